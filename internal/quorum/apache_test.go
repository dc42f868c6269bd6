package quorum

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"ottla/internal/record"
	"ottla/internal/vfs"
)

// apacheNode returns a node on a disk that holds the metadata log directory of testdata/apache.
func apacheNode(t *testing.T, voters int) *node {
	t.Helper()
	c := newCluster(t, voters, 1)
	n := c.nodes[min(1, voters-1)]
	voter := apacheVoter(t)
	n.id, n.dir = voter.NodeID, voter.DirectoryID
	if voters == 1 {
		c.set[0] = voter
	}
	dir := "/data/__cluster_metadata-0"
	if err := n.fs.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"00000000000000000000-0000000000.checkpoint", "00000000000000000000.log", "quorum-state", "leader-epoch-checkpoint", "partition.metadata"} {
		b, err := os.ReadFile(filepath.Join("testdata/apache", name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, n.fs, filepath.Join(dir, name), b)
	}
	return n
}

func write(t *testing.T, fsys vfs.FS, name string, b []byte) {
	t.Helper()
	if err := vfs.WriteFileAtomic(fsys, name, b); err != nil {
		t.Fatal(err)
	}
}

// readLog returns the bytes of the node's metadata log on disk.
func readLog(t *testing.T, n *node) []byte {
	t.Helper()
	b, err := vfs.ReadFile(n.fs, "/data/__cluster_metadata-0/00000000000000000000.log")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTakeOver: a lone voter takes over a log that Apache Kafka wrote, gives it back, and takes it again when Apache has
// gone on writing. Nothing is lost, and the epoch only grows.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := apacheNode(t, 1)
		before := readLog(t, n)
		for round := range int32(3) {
			n.start()
			_, epoch := leaderOf(t, n)
			if want := 2 + 2*round; epoch != want { // Apache had 1, and has one between ours
				t.Errorf("round %d: epoch %d, want %d", round, epoch, want)
			}
			if err := n.voter.Propose(epoch, [][]byte{topicRecord(int(round))}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := topics(t, n.voter); !slices.Equal(got, topicNames(int(round)+1)) {
				t.Errorf("round %d: topics %v", round, got)
			}
			if !sameVoters(n.voter.Voters(), []Replica{apacheVoter(t)}) {
				t.Errorf("round %d: voters %+v", round, n.voter.Voters())
			}
			end := n.voter.HighWatermark()
			n.stop()
			log := readLog(t, n)
			if !bytes.HasPrefix(log, before) {
				t.Fatalf("round %d: what Apache wrote was changed", round)
			}
			// Apache starts: it finds an epoch to begin behind, and writes on.
			q, err := readQuorumState(n.fs, "/data/__cluster_metadata-0")
			if err != nil || q == nil || q.LeaderEpoch != epoch {
				t.Fatalf("round %d: quorum-state %+v, %v", round, q, err)
			}
			batch := appendLeaderChange(nil, 1, 1, []member{{1, n.dir}}, nil)
			record.SetBaseOffset(batch, end)
			record.SetLeaderEpoch(batch, epoch+1)
			before = append(log, batch...)
			write(t, n.fs, "/data/__cluster_metadata-0/00000000000000000000.log", before)
			write(t, n.fs, "/data/__cluster_metadata-0/quorum-state", quorumState{LeaderID: 1, LeaderEpoch: epoch + 1, VotedID: -1}.encode())
		}
	})
}

// leaderOf waits until a lone node leads.
func leaderOf(t *testing.T, n *node) (id, epoch int32) {
	t.Helper()
	synctest.Wait()
	if id, epoch = n.voter.Leader(); id != n.id {
		t.Fatalf("node %d leads in epoch %d", id, epoch)
	}
	return id, epoch
}

// TestTakeOverRefused: what a take-over would lose, or could get wrong, is refused.
func TestTakeOverRefused(t *testing.T) {
	const dir = "/data/__cluster_metadata-0"
	for _, test := range []struct {
		name, want string
		voters     int
		damage     func(t *testing.T, fs *vfs.Mem)
	}{
		{"several voters", "lone controller", 3, func(*testing.T, *vfs.Mem) {}},
		{"no quorum-state", "no quorum-state", 1, func(t *testing.T, fs *vfs.Mem) { remove(t, fs, dir+"/quorum-state") }},
		{"early flip", "damaged", 1, func(t *testing.T, fs *vfs.Mem) { overwrite(t, fs, dir+"/00000000000000000000.log", 300, 0xff) }},
		{"first batch flip", "damaged", 1, func(t *testing.T, fs *vfs.Mem) { overwrite(t, fs, dir+"/00000000000000000000.log", 70, 0xff) }},
		{"nothing readable", "damaged", 1, func(t *testing.T, fs *vfs.Mem) { truncate(t, fs, dir+"/00000000000000000000.log", 100) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := apacheNode(t, test.voters)
				test.damage(t, n.fs)
				before := readLog(t, n)
				err := n.open()
				if err == nil {
					n.stop()
				}
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("opened with %v, want an error with %q", err, test.want)
				}
				if !bytes.Equal(readLog(t, n), before) {
					t.Error("the log was changed")
				}
			})
		})
	}
}

// TestTornTail: what a crash of Apache left behind its last batch is cut off.
func TestTornTail(t *testing.T) {
	for _, tail := range []string{"garbage", string(make([]byte, 8192)), "\x00\x00\x00\x00\x00\x00\x00\x5b\x00\x00\x00\x4f"} {
		synctest.Test(t, func(t *testing.T) {
			n := apacheNode(t, 1)
			before := readLog(t, n)
			write(t, n.fs, "/data/__cluster_metadata-0/00000000000000000000.log", append(bytes.Clone(before), tail...))
			n.start()
			defer n.stop()
			leaderOf(t, n)
			if !bytes.HasPrefix(readLog(t, n), before) {
				t.Error("what Apache wrote was changed")
			}
		})
	}
}

// TestBootstrap: the records of the format are read, as Apache wrote them and as Format does.
func TestBootstrap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := apacheNode(t, 1)
		n.start()
		defer n.stop()
		records, err := n.voter.Bootstrap()
		if err != nil || len(records) != 6 || !bytes.Contains(records[0], []byte("metadata.version")) {
			t.Errorf("%q, %v", records, err)
		}
		ours := vfs.NewMem()
		if err := Format(ours, "/data", []Replica{apacheVoter(t)}, records); err != nil {
			t.Fatal(err)
		}
		name := "/data/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
		theirs, err1 := vfs.ReadFile(n.fs, name)
		written, err2 := vfs.ReadFile(ours, name)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if len(theirs) != len(written) {
			t.Errorf("wrote %d bytes, Apache wrote %d", len(written), len(theirs))
		}
		if err := Format(ours, "/data", nil, nil); !errors.Is(err, fs.ErrExist) {
			t.Errorf("formatted twice: %v", err)
		}
	})
}
