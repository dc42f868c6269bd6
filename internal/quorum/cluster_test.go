package quorum

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ottla/internal/protocol/records"
	"ottla/internal/record"
	"ottla/internal/uuid"
	"ottla/internal/vfs"
)

const testCluster = "AAAAAAAAAAAAAAAAAAAAAQ"

// A cluster is a number of voters in one synctest bubble. Each has a disk of its own; messages between them travel
// through a network whose links can be cut.
type cluster struct {
	t     *testing.T
	rng   *rand.Rand
	nodes []*node
	set   []Replica
	log   LogOptions

	mu  sync.Mutex
	cut map[[2]int32]bool
}

// A node is a voter, the disk it is on, and what it is a voter with.
type node struct {
	c       *cluster
	id      int32
	dir     uuid.UUID
	fs      *vfs.Mem
	voter   *Voter // nil while it is down
	inbox   chan []byte
	stopped chan struct{}
	failed  atomic.Pointer[error]
}

func newCluster(t *testing.T, size int, seed uint64) *cluster {
	// Of the snapshots, and of the log that they cover, as little as can be is kept, so that whoever is behind needs one.
	c := &cluster{t: t, rng: rand.New(rand.NewPCG(seed, 1)), cut: make(map[[2]int32]bool), log: LogOptions{MaxBytes: 1}}
	for id := range int32(size) { // node id 0 is legal
		n := &node{c: c, id: id, fs: vfs.NewMem(), dir: testDirectory(id)}
		if err := errors.Join(n.fs.MkdirAll("/data", 0o755), n.fs.SyncDir("/")); err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, n)
		c.set = append(c.set, Replica{NodeID: id, Endpoints: []Endpoint{{"CONTROLLER", "10.0.0." + fmt.Sprint(id), 9093}}})
	}
	return c
}

func testDirectory(id int32) uuid.UUID {
	var u uuid.UUID
	binary.BigEndian.PutUint64(u[:], 1000+uint64(id))
	u[15] = 200
	return u
}

// start starts the voter on what its disk holds.
func (n *node) start() {
	n.c.t.Helper()
	if err := n.open(); err != nil {
		n.c.t.Fatalf("start node %d: %v", n.id, err)
	}
}

func (n *node) open() error {
	inbox, stopped := make(chan []byte, 10_000), make(chan struct{})
	voter, err := OpenVoter(VoterOptions{
		FS: n.fs, Dir: "/data", ClusterID: testCluster, NodeID: n.id, DirectoryID: n.dir, Voters: n.c.set,
		Send: func(to int32, message []byte) { n.c.deliver(n.id, to, message) },
		Log:  n.c.log, Logger: slog.New(slog.DiscardHandler), OnFailure: func(err error) { n.failed.Store(&err) },
	})
	if err != nil {
		return err
	}
	n.c.mu.Lock()
	n.voter, n.inbox, n.stopped = voter, inbox, stopped
	n.c.mu.Unlock()
	go func() {
		defer close(stopped)
		for m := range inbox {
			time.Sleep(time.Millisecond) // the network's delay
			_ = voter.Step(m)
		}
	}()
	return nil
}

func (c *cluster) deliver(from, to int32, message []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.nodes[to]; n.voter != nil && c.nodes[from].voter != nil && !c.cut[[2]int32{from, to}] {
		n.inbox <- message
	}
}

// link cuts or heals both directions between two nodes.
func (c *cluster) link(a, b int32, up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[[2]int32{a, b}], c.cut[[2]int32{b, a}] = !up, !up
}

// disconnect takes the node off the network and returns the voter that was on it.
func (n *node) disconnect() *Voter {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	voter := n.voter
	if voter != nil {
		n.voter = nil
		close(n.inbox)
	}
	return voter
}

// stop closes the voter.
func (n *node) stop() { n.end(n.disconnect()) }

func (n *node) end(voter *Voter) {
	if voter == nil {
		return
	}
	<-n.stopped
	if err := voter.Close(); err != nil && !errors.Is(err, errPower) {
		n.c.t.Errorf("close node %d: %v", n.id, err)
	}
}

// crash takes the power from the node: of what was not synced, a random part is kept.
func (n *node) crash() {
	voter := n.disconnect()
	disk := n.fs.Crash(n.c.rng.Float64(), n.c.rng)
	n.end(voter)
	n.fs = disk
	n.failed.Store(nil)
}

func (c *cluster) startAll() {
	for _, n := range c.nodes {
		n.start()
	}
}

func (c *cluster) stopAll() {
	for _, n := range c.nodes {
		n.stop()
	}
}

// leader waits until one of the nodes that are up leads, in an epoch above the one given, and returns it.
func (c *cluster) leader(above int32) (*node, int32) {
	c.t.Helper()
	for range 30_000 {
		for _, n := range c.nodes {
			if n.voter == nil {
				continue
			}
			if id, epoch := n.voter.Leader(); id == n.id && epoch > above {
				return n, epoch
			}
		}
		time.Sleep(time.Millisecond)
	}
	for _, n := range c.nodes {
		if n.voter != nil {
			c.t.Logf("node %d: %+v", n.id, n.voter.log.view())
		}
		if err := n.failed.Load(); err != nil {
			c.t.Logf("node %d failed: %v", n.id, *err)
		}
	}
	c.stopAll()
	c.t.Fatal("no leader within 30 s")
	return nil, 0
}

func topicRecord(i int) []byte {
	return records.AppendMetadata(nil, &records.TopicRecord{Name: fmt.Sprintf("topic-%d", i), TopicID: uuid.UUID{1, byte(i), byte(i >> 8)}}, 0)
}

// propose proposes record i, at whoever leads, until it is committed there.
func (c *cluster) propose(i int) {
	c.t.Helper()
	for range 100 {
		n, epoch := c.leader(-1)
		before := n.voter.HighWatermark()
		if err := n.voter.Propose(epoch, [][]byte{topicRecord(i)}); err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		for range 5000 {
			if n.voter.HighWatermark() > before {
				return
			}
			if id, _ := n.voter.Leader(); id != n.id {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	c.t.Fatalf("record %d was not committed", i)
}

// converge waits until all nodes have the same high watermark, and checks that their logs are the same bytes.
func (c *cluster) converge() {
	c.t.Helper()
	c.leader(-1)
	for range 30_000 {
		var ends []int64
		for _, n := range c.nodes {
			ends = append(ends, n.voter.HighWatermark())
		}
		if slices.Min(ends) == slices.Max(ends) && ends[0] > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	want := logHash(c.t, c.nodes[0])
	for _, n := range c.nodes[1:] {
		if got := logHash(c.t, n); got != want {
			c.t.Errorf("node %d has another metadata log (ends at %d) than node 0 (%d)", n.id, n.voter.HighWatermark(), c.nodes[0].voter.HighWatermark())
		}
	}
}

// logHash hashes what is readable of a node's metadata log.
func logHash(t *testing.T, n *node) [32]byte {
	t.Helper()
	m := n.voter.log
	hash := sha256.New()
	v := m.view()
	for at := m.log.StartOffset(); at < v.end.Offset; {
		b, err := m.batches(at, v.end, scanBytes)
		if err != nil {
			t.Fatalf("node %d: %v", n.id, err)
		}
		hash.Write(b)
		events, err := headers(b)
		if err != nil {
			t.Fatalf("node %d: %v", n.id, err)
		}
		at = events[len(events)-1].NextOffset()
	}
	return [32]byte(hash.Sum(nil))
}

// headers returns the headers of whole batches.
func headers(b []byte) ([]record.Header, error) {
	var list []record.Header
	err := eachBatch(b, func(h record.Header, _ []byte) error {
		list = append(list, h)
		return nil
	})
	return list, err
}

// topics reads all committed topic records of a node, by its cursor.
func topics(t *testing.T, q Quorum) []string {
	t.Helper()
	return topicsBelow(t, q, q.HighWatermark())
}

// TestStored: a voter that lost its power tells what its files hold before it has anybody to decide with, and a lone one, too.
func TestStored(t *testing.T) {
	for _, voters := range []int{1, 3} {
		t.Run(fmt.Sprint(voters), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, voters, 1)
				c.startAll()
				for i := range 5 {
					c.propose(i)
				}
				c.converge()
				for _, n := range c.nodes {
					n.crash()
				}
				for _, n := range c.nodes {
					n.start()
					if got := storedTopics(t, n.voter); !slices.Equal(got, topicNames(5)) {
						t.Errorf("below %d is committed, and stored are the topics %v", n.voter.HighWatermark(), got)
					}
					n.stop()
				}
			})
		})
	}
}

func topicsBelow(t *testing.T, q Quorum, end int64) []string {
	t.Helper()
	var names []string
	cursor, next := q.Cursor(), int64(0)
	add := func(value []byte) error {
		m, _, err := records.DecodeMetadata(value)
		if topic, ok := m.(*records.TopicRecord); ok {
			names = append(names, topic.Name)
		}
		return err
	}
	for next < end {
		event, err := cursor.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		switch e := event.(type) {
		case Snapshot:
			if err := e.Values(add); err != nil {
				t.Fatal(err)
			}
			next = e.ID.EndOffset
		case Batch:
			if e.BaseOffset != next {
				t.Fatalf("batch at %d, want %d", e.BaseOffset, next)
			}
			for _, v := range e.Values {
				if err := add(v); err != nil {
					t.Fatal(err)
				}
			}
			next = e.LastOffset + 1
		}
	}
	return names
}

// storedTopics reads the topic records in the files of a node.
func storedTopics(t *testing.T, q Quorum) []string {
	t.Helper()
	var names []string
	add := func(value []byte) error {
		m, _, err := records.DecodeMetadata(value)
		if topic, ok := m.(*records.TopicRecord); ok {
			names = append(names, topic.Name)
		}
		return err
	}
	err := q.Stored(func(event Event) error {
		if s, ok := event.(Snapshot); ok {
			return s.Values(add)
		}
		for _, v := range event.(Batch).Values {
			if err := add(v); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func topicNames(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("topic-%d", i))
	}
	return names
}

func TestThreeVoters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 1)
		c.startAll()
		defer c.stopAll()
		for i := range 20 {
			c.propose(i)
		}
		c.converge()
		first, epoch := c.leader(-1)
		first.crash()
		for i := 20; i < 40; i++ {
			c.propose(i)
		}
		if _, next := c.leader(-1); next <= epoch {
			t.Errorf("epoch %d after %d", next, epoch)
		}
		first.start()
		c.converge()
		for _, n := range c.nodes {
			if got := topics(t, n.voter); !slices.Equal(got, topicNames(40)) {
				t.Errorf("node %d has the topics %v", n.id, got)
			}
		}
	})
}

// TestFailover: when the leader's process dies its connections break, and the others have a new leader at once.
func TestFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 1)
		c.startAll()
		defer c.stopAll()
		c.propose(0)
		c.converge()
		old, epoch := c.leader(-1)
		old.stop()
		killed := time.Now()
		for _, n := range c.nodes {
			if n.voter != nil {
				n.voter.Disconnected(old.id)
			}
		}
		c.leader(epoch)
		if took := time.Since(killed); took > 500*time.Millisecond {
			t.Errorf("a new leader after %v", took)
		}
		old.start()
		c.converge()
	})
}

// TestResign: a leader that is about to stop hands over without an election's wait.
func TestResign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 1)
		c.startAll()
		defer c.stopAll()
		c.propose(0)
		old, epoch := c.leader(-1)
		began := time.Now()
		old.voter.Resign(context.Background())
		if next, _ := c.leader(epoch); next == old {
			t.Error("the leader leads again")
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("handing over took %v", took)
		}
		c.propose(1)
	})
}

// TestPartitionedLeader: a leader without a majority says so, and what it proposed alone is not kept.
func TestPartitionedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 1)
		c.startAll()
		defer c.stopAll()
		c.propose(0)
		old, epoch := c.leader(-1)
		cursor := old.voter.Cursor()
		for _, n := range c.nodes {
			if n != old {
				c.link(old.id, n.id, false)
			}
		}
		if err := old.voter.Propose(epoch, [][]byte{topicRecord(77)}); err != nil {
			t.Fatal(err)
		}
		for {
			event, err := cursor.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if change, ok := event.(LeaderChange); ok && change.ID == NoLeader && change.Epoch == epoch {
				break
			}
		}
		if err := old.voter.Propose(epoch, [][]byte{topicRecord(78)}); !errors.Is(err, ErrNotLeader) {
			t.Errorf("proposing after the loss: %v", err)
		}
		c.leader(epoch)
		c.propose(1)
		for _, n := range c.nodes {
			c.link(old.id, n.id, true)
		}
		c.converge()
		if got := topics(t, old.voter); !slices.Equal(got, topicNames(2)) {
			t.Errorf("topics %v", got)
		}
	})
}

// TestSnapshots: a follower that was away while the log was compacted gets the checkpoint, and goes on from there.
func TestSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 1)
		c.startAll()
		defer c.stopAll()
		c.propose(0)
		c.converge()
		leader, _ := c.leader(-1)
		away := c.nodes[(leader.id+1)%3]
		away.stop()
		next := 1
		for range 3 {
			for range 30 {
				c.propose(next)
				next++
			}
			for _, n := range c.nodes {
				if n != away {
					saveTopics(t, n, next)
				}
			}
		}
		away.start()
		c.propose(next)
		for range 10_000 {
			if away.voter.HighWatermark() == leader.voter.HighWatermark() {
				break
			}
			time.Sleep(time.Millisecond)
		}
		for _, n := range c.nodes {
			if got := topics(t, n.voter); !slices.Equal(got, topicNames(next+1)) {
				t.Errorf("node %d has %d topics: %v", n.id, len(got), got)
			}
		}
		for _, n := range c.nodes {
			n.crash()
			n.start()
		}
		c.propose(next + 1)
		time.Sleep(5 * time.Second)
		for _, n := range c.nodes {
			if got := topics(t, n.voter); !slices.Equal(got, topicNames(next+2)) {
				t.Errorf("after the crash node %d has %d topics: %v", n.id, len(got), got)
			}
		}
	})
}

// saveTopics waits until a node has the first count topics and lets it save a snapshot of all that it has.
func saveTopics(t *testing.T, n *node, count int) {
	t.Helper()
	for range 10_000 {
		if len(topics(t, n.voter)) >= count {
			break
		}
		time.Sleep(time.Millisecond)
	}
	saveSnapshot(t, n.voter, n.voter.log)
}

// saveSnapshot lets a node save a snapshot of all that it has.
func saveSnapshot(t *testing.T, q Quorum, log *metaLog) {
	t.Helper()
	v := log.view()
	if v.end.Offset == 0 {
		return
	}
	id := SnapshotID{EndOffset: v.end.Offset, Epoch: log.log.LatestEpoch()}
	names := topicsBelow(t, q, v.end.Offset)
	err := q.SaveSnapshot(id, func(emit func([]byte)) error {
		for _, name := range names {
			emit(records.AppendMetadata(nil, &records.TopicRecord{Name: name}, 0))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("save snapshot %v: %v", id, err)
	}
}

// TestLoneVoter: alone, a voter leads at once, in a new epoch each time, and keeps what it committed.
func TestLoneVoter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		n := c.nodes[0]
		for round := range 5 {
			began := time.Now()
			n.start()
			_, epoch := c.leader(int32(round))
			if took := time.Since(began); took > 5*time.Millisecond {
				t.Errorf("led after %v", took)
			}
			if epoch != int32(round)+1 {
				t.Errorf("epoch %d in round %d", epoch, round)
			}
			c.propose(round)
			if got := topics(t, n.voter); !slices.Equal(got, topicNames(round+1)) {
				t.Errorf("topics %v in round %d", got, round)
			}
			if round%2 == 0 {
				n.stop()
			} else {
				n.crash()
			}
		}
	})
}

// TestCrashAtEveryOperation: wherever the power fails, a voter starts again with all that was committed.
func TestCrashAtEveryOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for at := 0; ; at++ {
			if !crashAt(t, at) {
				t.Logf("%d operations", at)
				return
			}
		}
	})
}

var errPower = errors.New("the power failed")

// crashAt runs a lone voter on a disk whose operation number at, and all behind it, fail. It returns false if
// the run was over before.
func crashAt(t *testing.T, at int) bool {
	c := newCluster(t, 1, uint64(at))
	n := c.nodes[0]
	var count int
	var mu sync.Mutex
	crashed := false
	n.fs.Inject(func(vfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if count++; count > at {
			crashed = true
			return errPower
		}
		return nil
	})
	acked := 0
	for range 2 {
		if n.open() != nil {
			break
		}
		acked += runLone(n, acked)
		n.stop()
		n.failed.Store(nil)
		if func() bool { mu.Lock(); defer mu.Unlock(); return crashed }() {
			break
		}
	}
	n.fs.Inject(nil)
	n.fs = n.fs.Crash(c.rng.Float64(), c.rng)
	n.failed.Store(nil)
	if err := n.open(); err != nil {
		t.Fatalf("after a crash at operation %d (%d records committed): %v", at, acked, err)
	}
	c.leader(0)
	got := topics(t, n.voter)
	if len(got) < acked || !slices.Equal(got, topicNames(len(got))) {
		t.Errorf("after a crash at operation %d: topics %v, %d were committed", at, got, acked)
	}
	n.stop()
	return crashed
}

// runLone commits records, and saves a snapshot now and then, until the disk fails. It returns how many were committed.
func runLone(n *node, from int) (acked int) {
	for range 12 {
		var epoch int32
		for range 100 {
			id, e := n.voter.Leader()
			if epoch = e; id == n.id || n.failed.Load() != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		before := n.voter.HighWatermark()
		if n.voter.Propose(epoch, [][]byte{topicRecord(from + acked)}) != nil {
			return acked
		}
		synctest.Wait()
		if n.voter.HighWatermark() <= before {
			return acked
		}
		acked++
		if acked%4 == 0 {
			id := SnapshotID{EndOffset: n.voter.HighWatermark(), Epoch: epoch}
			err := n.voter.SaveSnapshot(id, func(emit func([]byte)) error {
				for i := range from + acked {
					emit(topicRecord(i))
				}
				return nil
			})
			if err != nil {
				return acked
			}
		}
	}
	return acked
}

const chaosSeeds = 20

// TestChaos crashes, stops and partitions three voters at random; in the end all have the same log, with all that
// was committed.
func TestChaos(t *testing.T) {
	for seed := range uint64(chaosSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { chaos(t, seed) })
		})
	}
}

func chaos(t *testing.T, seed uint64) {
	c := newCluster(t, 3, seed)
	c.startAll()
	defer c.stopAll()
	next := 0
	c.propose(next)
	next++
	for range 30 {
		n := c.nodes[c.rng.IntN(3)]
		switch c.rng.IntN(4) {
		case 0:
			n.crash()
		case 1:
			n.stop()
		case 2:
			other := c.nodes[(n.id+1)%3]
			c.link(n.id, other.id, false)
		}
		time.Sleep(time.Duration(c.rng.IntN(2000)) * time.Millisecond)
		for a := range int32(3) {
			c.link(a, (a+1)%3, true)
		}
		if n.voter == nil {
			n.start()
		}
		c.propose(next)
		next++
		if c.rng.IntN(3) == 0 {
			saveTopics(t, c.nodes[c.rng.IntN(3)], 0)
		}
	}
	time.Sleep(5 * time.Second)
	c.propose(next)
	time.Sleep(5 * time.Second)
	want := topics(t, c.nodes[0].voter)
	seen := make(map[string]bool)
	for _, name := range want {
		seen[name] = true
	}
	for i := range next + 1 {
		if name := fmt.Sprintf("topic-%d", i); !seen[name] {
			t.Errorf("seed %d: %s was committed and is gone", seed, name)
		}
	}
	for _, n := range c.nodes[1:] {
		if got := topics(t, n.voter); !slices.Equal(got, want) {
			t.Errorf("seed %d: node %d (end %d) has %d topics, node 0 (end %d) has %d:\n%v\n%v", seed, n.id, n.voter.HighWatermark(), len(got), c.nodes[0].voter.HighWatermark(), len(want), got, want)
		}
	}
}

// TestEmptiedDisk: a voter whose disk was emptied is another voter, which the quorum does not know: it refuses to start
// and does not vote.
func TestEmptiedDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 1)
		c.startAll()
		defer c.stopAll()
		c.propose(0)
		n := c.nodes[0]
		n.stop()
		n.fs, n.dir = vfs.NewMem(), uuid.UUID{9, 9}
		n.start()
		time.Sleep(3 * time.Second)
		if err := n.failed.Load(); err == nil || !strings.Contains((*err).Error(), "emptied") {
			t.Errorf("failed with %v", err)
		}
		c.propose(1)
	})
}

// TestTamperedFiles: what makes a voter forget its votes is refused, with a message that names the file.
func TestTamperedFiles(t *testing.T) {
	const dir = "/data/__cluster_metadata-0"
	for _, test := range []struct {
		name, want string
		damage     func(t *testing.T, fs *vfs.Mem)
	}{
		{"raft state garbage", "ottla-raft/state", func(t *testing.T, fs *vfs.Mem) { overwrite(t, fs, dir+"/ottla-raft/state", 20, 0xff) }},
		{"quorum-state garbage", "quorum-state", func(t *testing.T, fs *vfs.Mem) { overwrite(t, fs, dir+"/quorum-state", 0, 'x') }},
		{"early flip", "damaged", func(t *testing.T, fs *vfs.Mem) { overwrite(t, fs, dir+"/00000000000000000000.log", 70, 0xff) }},
		{"raft's log lost", "raft's log", func(t *testing.T, fs *vfs.Mem) {
			truncate(t, fs, dir+"/ottla-raft/00000000000000000001.log", 0)
		}},
		{"metadata log lost", "ends at offset 0", func(t *testing.T, fs *vfs.Mem) { truncate(t, fs, dir+"/00000000000000000000.log", 0) }},
		{"raft state lost", "quorum-state", func(t *testing.T, fs *vfs.Mem) {
			remove(t, fs, dir+"/ottla-raft/state")
			remove(t, fs, dir+"/quorum-state")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, 1)
				n := c.nodes[0]
				n.start()
				for i := range 10 {
					c.propose(i)
				}
				n.stop()
				test.damage(t, n.fs)
				err := n.open()
				if err == nil {
					n.stop()
				}
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("opened with %v, want an error with %q", err, test.want)
				}
			})
		})
	}
}

func overwrite(t *testing.T, fs vfs.FS, name string, at int64, b byte) {
	t.Helper()
	f, err := fs.OpenReadWrite(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte{b}, 8), at); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, fs vfs.FS, name string, size int64) {
	t.Helper()
	f, err := fs.OpenReadWrite(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(size), f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, fs vfs.FS, name string) {
	t.Helper()
	if err := errors.Join(fs.Remove(name), fs.SyncDir(filepath.Dir(name))); err != nil {
		t.Fatal(err)
	}
}
