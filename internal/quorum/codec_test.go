package quorum

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"ottla/internal/protocol/records"
	"ottla/internal/record"
	"ottla/internal/uuid"
)

// apacheVoter is the voter of testdata/apache.
func apacheVoter(t testing.TB) Replica {
	directory, err := uuid.Parse("tWOWhvl9QSmg48Ik2KUTZA")
	if err != nil {
		t.Fatal(err)
	}
	return Replica{NodeID: 1, DirectoryID: directory, Endpoints: []Endpoint{{"CONTROLLER", "127.0.0.1", 24711}}}
}

// TestLeaderChangeBytes: the batch with which a leader begins a fresh log is Apache's, byte for byte.
func TestLeaderChangeBytes(t *testing.T) {
	log, err := os.ReadFile("testdata/apache/00000000000000000000.log")
	if err != nil {
		t.Fatal(err)
	}
	h, err := record.ParseHeader(log)
	if err != nil {
		t.Fatal(err)
	}
	voter := apacheVoter(t)
	b := appendLeaderChange(nil, h.BaseTimestamp, 1, []member{{1, voter.DirectoryID}}, []Replica{voter})
	record.SetLeaderEpoch(b, 1)
	// Apache marks control batches with producer epoch and sequence -1, too, but leaves bit 5 of the attributes only.
	if want := log[:h.Size()]; !bytes.Equal(b, want) {
		t.Errorf("got  %s\nwant %s", hex.EncodeToString(b), hex.EncodeToString(want))
	}
}

// TestApacheControlRecords: what Apache's log says of leader and voters is understood.
func TestApacheControlRecords(t *testing.T) {
	log, err := os.ReadFile("testdata/apache/restarted.log")
	if err != nil {
		t.Fatal(err)
	}
	var leader leadership
	var voters []Replica
	if err := absorb(log, &leader, &voters); err != nil {
		t.Fatal(err)
	}
	if want := (leadership{id: 1, epoch: 2, offset: 91}); leader != want {
		t.Errorf("leader %+v, want %+v", leader, want)
	}
	if want := []Replica{apacheVoter(t)}; !sameVoters(voters, want) {
		t.Errorf("voters %+v, want %+v", voters, want)
	}
}

func TestQuorumStateFile(t *testing.T) {
	apache, err := os.ReadFile("testdata/apache/quorum-state")
	if err != nil {
		t.Fatal(err)
	}
	q, err := decodeQuorumState(apache)
	if err != nil {
		t.Fatal(err)
	}
	if q.LeaderID != 1 || q.LeaderEpoch != 1 || q.VotedID != -1 {
		t.Errorf("read %+v", q)
	}
	if got := q.encode(); !bytes.Equal(got, apache) {
		t.Errorf("wrote %s, Apache wrote %s", got, apache)
	}
	for _, bad := range []string{"", "garbage", "{}", `{"leaderEpoch":1,"data_version":7}`, `{"leaderEpoch":-2,"data_version":1}`, string(apache[:50])} {
		if q, err := decodeQuorumState([]byte(bad)); err == nil {
			t.Errorf("%q was read as %+v", bad, q)
		}
	}
}

func registration(t testing.TB, version int16, epoch int64) []byte {
	t.Helper()
	return records.AppendMetadata(nil, &records.RegisterBrokerRecord{
		BrokerID: 7, IncarnationID: uuid.UUID{1, 2, 3}, BrokerEpoch: epoch, Fenced: true,
	}, version)
}

// TestBrokerEpoch: a registration without an epoch gets the offset at which it stands, in every version of the
// record, and nothing else changes.
func TestBrokerEpoch(t *testing.T) {
	lowest, highest := new(records.RegisterBrokerRecord).Versions()
	for version := lowest; version <= highest; version++ {
		noOp := records.AppendMetadata(nil, new(records.NoOpRecord), 0)
		data := appendBatch(nil, 1234, [][]byte{noOp, registration(t, version, -1), registration(t, version, 55), registration(t, version, -1)})
		e := &pb.Entry{Index: proto.Uint64(9), Term: proto.Uint64(4), Data: data}
		batch, err := materialise(e, 100)
		if err != nil {
			t.Fatal(err)
		}
		if err := record.CheckCRC(batch); err != nil {
			t.Fatal(err)
		}
		got, err := values(batch)
		if err != nil {
			t.Fatal(err)
		}
		want := [][]byte{noOp, registration(t, version, 101), registration(t, version, 55), registration(t, version, 103)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("version %d: %s", version, diff)
		}
		h, err := record.ParseHeader(batch)
		if err != nil {
			t.Fatal(err)
		}
		if h.BaseOffset != 100 || h.LeaderEpoch != 4 || h.LastOffset() != 103 || h.MaxTimestamp != 1234 {
			t.Errorf("version %d: header %+v", version, h)
		}
		if first, err := record.ParseHeader(data); err != nil || first.BaseOffset != 0 || first.LeaderEpoch != 0 {
			t.Errorf("version %d: the entry itself was changed: %+v, %v", version, first, err)
		}
	}
}

func TestEntryRoundTrip(t *testing.T) {
	for _, e := range []*pb.Entry{
		{Index: proto.Uint64(1), Term: proto.Uint64(1), Type: pb.EntryNormal.Enum()},
		{Index: proto.Uint64(1 << 40), Term: proto.Uint64(7), Type: pb.EntryNormal.Enum(), Data: []byte("data")},
		{Index: proto.Uint64(3), Term: proto.Uint64(2), Type: pb.EntryConfChangeV2.Enum(), Data: []byte{}},
	} {
		batch := appendEntry(nil, e, 1)
		h, err := record.ParseHeader(batch)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeEntry(h, batch)
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, e) {
			t.Errorf("got %v, want %v", got, e)
		}
	}
}

func someState() *raftState {
	return &raftState{
		term: 5, vote: 1 << 63, commit: 90,
		voters:   []member{{1, uuid.UUID{1}}, {2, uuid.UUID{2}}, {0, uuid.UUID{3}}},
		base:     raftMark{10, 2, 100, 2},
		snapshot: raftMark{70, 3, 700, 3},
		mark:     raftMark{80, 4, 800, 4},
	}
}

func FuzzRaftState(f *testing.F) {
	f.Add(someState().encode())
	f.Add(new(raftState).encode())
	f.Add([]byte("garbage"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeRaftState(b)
		if err != nil {
			return
		}
		if got := s.encode(); !bytes.Equal(got, b) {
			t.Errorf("%x was read as %+v, which is written as %x", b, s, got)
		}
	})
}

// TestRaftStateDamage: no flipped bit goes unnoticed.
func TestRaftStateDamage(t *testing.T) {
	whole := someState().encode()
	s, err := decodeRaftState(whole)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(someState(), s, cmp.AllowUnexported(raftState{}, raftMark{}, member{})); diff != "" {
		t.Error(diff)
	}
	for i := range len(whole) * 8 {
		b := bytes.Clone(whole)
		b[i/8] ^= 1 << (i % 8)
		if s, err := decodeRaftState(b); err == nil {
			t.Errorf("bit %d flipped: read as %+v", i, s)
		}
	}
	for n := range whole {
		if _, err := decodeRaftState(whole[:n]); err == nil {
			t.Errorf("cut to %d bytes: read", n)
		}
	}
}

func FuzzMessage(f *testing.F) {
	m := message{kind: chunkKind, clusterID: "abc", from: member{1, uuid.UUID{1}}, to: member{2, uuid.UUID{2}}}
	m.body = (&chunk{id: SnapshotID{5, 1}, size: 9, bytes: []byte("bytes")}).encode()
	f.Add(m.encode())
	m.kind, m.body = welcomeKind, encodeMembers(someState().voters)
	f.Add(m.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		if got := m.encode(); !bytes.Equal(got, b) {
			t.Errorf("%x is written as %x", b, got)
		}
		_, _ = decodeMembers(m.body)
		_, _ = decodeChunk(m.body)
	})
}

// FuzzEntry: no batch makes the decoder of raft's log or the materialisation panic, and what is materialised
// is a batch that follows.
func FuzzEntry(f *testing.F) {
	f.Add(appendBatch(nil, 1, [][]byte{{1, 0, 4}, registration(f, 4, -1)}))
	f.Add(appendLeaderChange(nil, 1, 1, []member{{1, uuid.UUID{1}}}, []Replica{{NodeID: 1}}))
	f.Add(appendEntry(nil, &pb.Entry{Index: proto.Uint64(1), Term: proto.Uint64(1), Type: pb.EntryNormal.Enum(), Data: []byte("x")}, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= record.HeaderSize { // let the CRC be right, or nothing behind it is tried
			b = bytes.Clone(b)
			binary.BigEndian.PutUint32(b[17:], record.Checksum(b))
		}
		if h, err := record.ParseHeader(b); err == nil && h.Size() == len(b) {
			_, _ = decodeEntry(h, b)
		}
		e := &pb.Entry{Index: proto.Uint64(1), Term: proto.Uint64(1), Data: b}
		batch, err := materialise(e, 77)
		if err != nil || batch == nil {
			return
		}
		h, err := record.ParseHeader(batch)
		if err != nil || h.BaseOffset != 77 || h.Size() != len(batch) {
			t.Errorf("materialised as %+v, %v", h, err)
		}
		leader, voters := nobody, []Replica(nil)
		_ = absorb(batch, &leader, &voters)
	})
}
