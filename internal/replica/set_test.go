package replica

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ottla/internal/metadata"
	"ottla/internal/protocol/records"
	"ottla/internal/record"
	"ottla/internal/replica/state"
	"ottla/internal/storage"
	"ottla/internal/uuid"
	"ottla/internal/vfs"
	"ottla/internal/wake"
)

// A fixture is broker 1 on file systems in memory.
type fixture struct {
	t      testing.TB
	fs     vfs.FS
	dirs   []*storage.Dir
	set    *Set
	image  *metadata.Image
	config Config
	failed chan uuid.UUID
}

func newFixture(t testing.TB, fsys vfs.FS, change func(*Options), paths ...string) *fixture {
	f := &fixture{t: t, fs: fsys, image: metadata.Empty, failed: make(chan uuid.UUID, 1)}
	f.config = Config{Log: storage.DefaultLogConfig(), MinInSyncReplicas: 1}
	o := Options{
		NodeID: 1, Config: func(string, *metadata.Image) Config { return f.config },
		OnDirFailure: func(id uuid.UUID, err error) { f.failed <- id },
	}
	for _, path := range paths {
		f.ok(fsys.MkdirAll(path, 0o755))
		f.ok(fsys.SyncDir(filepath.Dir(path)))
		d, err := storage.OpenDir(context.Background(), storage.DirOptions{
			FS: fsys, Path: path, NodeID: 1, FlushThreads: 1, OnFailure: func(err error) { f.set.DirFailed(path, err) },
		})
		f.ok(err)
		if !d.Formatted() {
			f.ok(d.Format("cluster", 1))
		}
		f.dirs = append(f.dirs, d)
	}
	o.Dirs = f.dirs
	if change != nil {
		change(&o)
	}
	f.set = NewSet(o)
	f.ok(f.set.Load(context.Background()))
	t.Cleanup(func() { f.close(false) })
	return f
}

func (f *fixture) close(clean bool) {
	if f.set == nil {
		return
	}
	f.ok(f.set.Close(context.Background()))
	for _, d := range f.dirs {
		err := d.Close(context.Background(), 5, clean)
		if d.Err() == nil {
			f.ok(err)
		}
	}
	f.set = nil
}

func (f *fixture) ok(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// apply hands metadata to the set.
func (f *fixture) apply(messages ...records.Message) {
	f.t.Helper()
	d := metadata.NewDelta(f.image)
	for _, m := range messages {
		f.ok(d.Replay(m))
	}
	f.image = d.Apply(f.image.Offset+1, 1)
	f.set.Apply(d)
}

var topicA = uuid.UUID{0: 7, 15: 9}

func topic(id uuid.UUID, name string) records.Message {
	return &records.TopicRecord{TopicID: id, Name: name}
}

func partition(id uuid.UUID, leader, epoch int32, replicas, isr []int32) records.Message {
	r := records.NewPartitionRecord()
	r.TopicID, r.PartitionID, r.Leader, r.LeaderEpoch, r.Replicas, r.ISR = id, 0, leader, epoch, replicas, isr
	r.Directories = make([]uuid.UUID, len(replicas))
	return r
}

func change(id uuid.UUID, edit func(*records.PartitionChangeRecord)) records.Message {
	r := records.NewPartitionChangeRecord()
	r.TopicID, r.PartitionID = id, 0
	edit(r)
	return r
}

// lead makes broker 1 lead partition 0 of topic a.
func (f *fixture) lead(replicas, isr []int32) *Partition {
	f.t.Helper()
	f.apply(topic(topicA, "a"), partition(topicA, 1, 0, replicas, isr))
	return f.ready(topicA)
}

func (f *fixture) ready(id uuid.UUID) *Partition {
	f.t.Helper()
	p, err := f.set.Get(id, 0)
	f.ok(err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	f.ok(p.Ready(ctx))
	return p
}

func batch(timestamp int64, values ...string) ([]byte, record.Header) {
	b := record.NewBuilder(nil, record.BatchOptions{})
	for i, v := range values {
		b.Append(record.Record{Timestamp: timestamp + int64(i), Value: []byte(v)})
	}
	bytes := b.Bytes()
	h, err := record.ParseHeader(bytes)
	if err != nil {
		panic(err)
	}
	return bytes, h
}

func (f *fixture) append(p *Partition, values ...string) Appended {
	f.t.Helper()
	b, h := batch(1000, values...)
	a, err := p.Append(b, h, AppendOptions{LeaderEpoch: -1, Acks: -1})
	f.ok(err)
	return a
}

// read returns the values that a reader sees from an offset on.
func (f *fixture) read(p *Partition, offset int64, i Isolation) []string {
	f.t.Helper()
	r, err := p.Read(ReadOptions{Offset: offset, MaxBytes: 1 << 20, MinOne: true, LeaderEpoch: -1, LastFetchedEpoch: -1, Isolation: i})
	f.ok(err)
	defer r.Slice.Release()
	b := make([]byte, r.Slice.Size())
	_, err = r.Slice.ReadInto(b)
	f.ok(err)
	var values []string
	for len(b) > 0 {
		h, err := record.ParseHeader(b)
		f.ok(err)
		f.ok(record.Iterate(b[:h.Size()], func(r record.Record) error {
			if r.Offset >= offset {
				values = append(values, string(r.Value))
			}
			return nil
		}))
		b = b[h.Size():]
	}
	return values
}

func (f *fixture) sees(p *Partition, i Isolation, want ...string) {
	f.t.Helper()
	got := f.read(p, 0, i)
	if len(got) != len(want) {
		f.t.Fatalf("read %q, want %q", got, want)
	}
	for k := range got {
		if got[k] != want[k] {
			f.t.Fatalf("read %q, want %q", got, want)
		}
	}
}

func TestAlone(t *testing.T) {
	mem := vfs.NewMem()
	f := newFixture(t, mem, nil, "/d")
	p := f.lead([]int32{1}, []int32{1})
	a := f.append(p, "x", "y")
	if a.FirstOffset != 0 || a.LastOffset != 1 || a.LeaderEpoch != 0 {
		t.Errorf("appended at %d to %d in epoch %d", a.FirstOffset, a.LastOffset, a.LeaderEpoch)
	}
	if hw := p.HighWatermark(); hw != 2 {
		t.Errorf("high watermark %d, want 2", hw)
	}
	f.sees(p, ReadUncommitted, "x", "y")
	f.sees(p, ReadCommitted, "x", "y")

	var w Waiter
	if !p.Await(&w, a.LeaderEpoch, a.LastOffset+1, func() wake.Work { t.Error("woken"); return nil }) {
		t.Error("a committed batch is waited for")
	}
	if done, err := w.Done(); !done || err != nil {
		t.Errorf("done %v, %v", done, err)
	}

	// A clean restart brings everything back, the high watermark included.
	f.close(true)
	f = newFixture(t, mem.Crash(0, nil), nil, "/d")
	p = f.lead([]int32{1}, []int32{1})
	f.sees(p, ReadUncommitted, "x", "y")
	f.append(p, "z")
	f.sees(p, ReadUncommitted, "x", "y", "z")
}

// Many replicas are made with no fsync; the flusher's next pass settles them, with one of the log directory for all.
func TestMakingCostsNoSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		f := newFixture(t, mem, nil, "/d")
		synctest.Wait()
		var syncs, ofDir atomic.Int32
		mem.Inject(func(op vfs.Op) error {
			if op.Kind == vfs.OpSync || op.Kind == vfs.OpSyncDir {
				syncs.Add(1)
			}
			if op.Kind == vfs.OpSyncDir && op.Path == "/d" {
				ofDir.Add(1)
			}
			return nil
		})
		const topics = 20
		for i := range byte(topics) {
			id := uuid.UUID{0: 8, 15: i}
			f.apply(topic(id, fmt.Sprint("t", i)), partition(id, 1, 3, []int32{1}, []int32{1}))
			f.ready(id)
		}
		if n := syncs.Load(); n > 0 {
			t.Errorf("making %d replicas took %d fsyncs", topics, n)
		}
		time.Sleep(2 * time.Second)
		if n := ofDir.Load(); n != 1 {
			t.Errorf("the log directory was synced %d times", n)
		}
		f.close(false)
		d, err := storage.OpenDir(t.Context(), storage.DirOptions{FS: mem.Crash(0, nil), Path: "/d", NodeID: 1})
		f.ok(err)
		logs, err := d.Load(t.Context())
		f.ok(err)
		if len(logs) != topics {
			t.Errorf("a power cut left %d of %d logs", len(logs), topics)
		}
		for _, l := range logs {
			if l.TopicID() != f.image.TopicByName(l.Topic()).ID {
				t.Errorf("%s is of topic %s", l.Topic(), l.TopicID())
			}
		}
		f.ok(d.Close(context.Background(), 0, false))
	})
}

// A topic that is deleted before its replica was opened leaves a former topic's log of that name to be set aside by the next.
func TestDeletedBeforeOpened(t *testing.T) {
	mem := vfs.NewMem()
	f := newFixture(t, mem, nil, "/d")
	f.append(f.lead([]int32{1}, []int32{1}), "x")
	f.close(true)
	f = newFixture(t, mem, nil, "/d")
	thaw := make(chan struct{})
	mem.Inject(func(op vfs.Op) error {
		if op.Kind == vfs.OpMkdir && op.Path == "/d/busy-0" {
			<-thaw
		}
		return nil
	})
	ids := []uuid.UUID{{0: 8, 15: 1}, {0: 8, 15: 2}, {0: 8, 15: 3}}
	f.apply(topic(ids[0], "busy"), partition(ids[0], 1, 0, []int32{1}, []int32{1}))
	f.apply(topic(ids[1], "a"), partition(ids[1], 1, 0, []int32{1}, []int32{1}))
	f.apply(&records.RemoveTopicRecord{TopicID: ids[1]})
	close(thaw)
	f.apply(topic(ids[2], "a"), partition(ids[2], 1, 0, []int32{1}, []int32{1}))
	p := f.ready(ids[2])
	f.append(p, "y")
	f.sees(p, ReadUncommitted, "y")
}

func TestLeaderEpochs(t *testing.T) {
	f := newFixture(t, vfs.NewMem(), nil, "/d")
	if _, err := f.set.Get(topicA, 0); !errors.Is(err, ErrUnknownPartition) {
		t.Errorf("unknown topic: %v", err)
	}
	f.apply(topic(topicA, "a"), partition(topicA, 1, 3, []int32{1, 2}, []int32{1, 2}))
	p := f.ready(topicA)
	if got, err := f.set.GetByName("a", 0); got != p || err != nil {
		t.Errorf("by name: %v, %v", got, err)
	}
	for _, partition := range []int32{-1, 1, math.MaxInt32} {
		if _, err := f.set.Get(topicA, partition); !errors.Is(err, ErrUnknownPartition) {
			t.Errorf("partition %d: %v", partition, err)
		}
	}
	b, h := batch(1, "x")
	for _, c := range []struct {
		epoch  int32
		fenced bool
	}{{2, true}, {4, false}} {
		var e *LeaderEpochError
		if _, err := p.Append(b, h, AppendOptions{LeaderEpoch: c.epoch}); !errors.As(err, &e) || e.Fenced() != c.fenced || e.Known != 3 {
			t.Errorf("epoch %d: %v", c.epoch, err)
		}
	}
	_, err := p.Append(b, h, AppendOptions{LeaderEpoch: 3})
	f.ok(err)

	// Broker 2 takes over: who waits is told, nothing is appended any more.
	var w Waiter
	woken := 0
	if p.Await(&w, 3, 1, func() wake.Work { woken++; return nil }) {
		t.Fatal("nobody but the leader has the record")
	}
	var s Subscription
	news := 0
	p.Subscribe(&s, false, func() wake.Work { news++; return nil })
	f.apply(change(topicA, func(r *records.PartitionChangeRecord) { r.Leader = 2 }))
	var not *NotLeaderError
	if done, err := w.Done(); !done || !errors.As(err, &not) || not.Leader != 2 || not.LeaderEpoch != 4 || woken != 1 {
		t.Errorf("after losing the leadership: done %v, %v, woken %d times", done, err, woken)
	}
	f.ready(topicA)
	if news != 1 {
		t.Errorf("the subscription fired %d times, want once as it was armed once", news)
	}
	s.Close()
	s.Close()
	if _, err := p.Append(b, h, AppendOptions{LeaderEpoch: -1}); !errors.As(err, &not) {
		t.Errorf("append as a follower: %v", err)
	}
	if !p.Await(&w, 3, 1, nil) {
		t.Error("a wait for an append of a leadership that is over began")
	}

	// And is leader again, of whom nothing is known yet.
	f.apply(change(topicA, func(r *records.PartitionChangeRecord) { r.Leader = 1 }))
	f.ready(topicA)
	e, err := p.EpochEnd(5, 3, false)
	f.ok(err)
	if e != (state.EpochEnd{Epoch: 3, Offset: 1}) {
		t.Errorf("epoch 3 ends at %v, want 1", e)
	}
	if e, err = p.EpochEnd(5, 5, false); err != nil || e != (state.EpochEnd{Epoch: 5, Offset: 1}) {
		t.Errorf("epoch 5, without a record, ends at %v, %v", e, err)
	}
	if _, err := p.ListOffsets(ListOffsetsOptions{Timestamp: LatestTimestamp, LeaderEpoch: -1}); !errors.Is(err, ErrOffsetNotAvailable) {
		t.Errorf("latest offset with a high watermark below the epoch's start: %v", err)
	}
}

func (f *fixture) fetch(p *Partition, broker int32, offset int64, epoch int32) ReadResult {
	f.t.Helper()
	r, err := p.ReadAsReplica(ReadOptions{Offset: offset, MaxBytes: 1 << 20, LeaderEpoch: -1, LastFetchedEpoch: epoch},
		state.Fetch{Replica: broker, BrokerEpoch: -1})
	f.ok(err)
	r.Slice.Release()
	return r
}

func TestFollowers(t *testing.T) {
	var changes []ISRChange
	f := newFixture(t, vfs.NewMem(), func(o *Options) {
		o.AlterPartition = func(c ISRChange) { changes = append(changes, c) }
	}, "/d")
	f.config.MinInSyncReplicas = 2
	f.apply(&records.RegisterBrokerRecord{BrokerID: 3, BrokerEpoch: 40})
	p := f.lead([]int32{1, 2, 3}, []int32{1, 2})
	a := f.append(p, "x")
	f.sees(p, ReadUncommitted)
	f.sees(p, ReadReplica, "x")

	var w Waiter
	woken := 0
	if p.Await(&w, a.LeaderEpoch, 1, func() wake.Work { woken++; return nil }) {
		t.Fatal("committed without the follower")
	}
	var consumer, follower Subscription
	news, ends := 0, 0
	p.Subscribe(&consumer, false, func() wake.Work { news++; return nil })
	p.Subscribe(&follower, true, func() wake.Work { ends++; return nil })
	f.append(p, "y")
	if news != 0 || ends != 1 {
		t.Errorf("an append woke %d consumers and %d followers", news, ends)
	}
	f.fetch(p, 2, 1, -1)
	if done, err := w.Done(); !done || err != nil || woken != 1 || news != 1 {
		t.Errorf("done %v, %v, woken %d, news %d", done, err, woken, news)
	}
	f.sees(p, ReadUncommitted, "x")

	// 3 is registered with epoch 40, not fenced, and comes up to the end.
	var stale *StaleBrokerError
	_, err := p.ReadAsReplica(ReadOptions{Offset: 2, LeaderEpoch: -1, LastFetchedEpoch: 0}, state.Fetch{Replica: 3, BrokerEpoch: 39})
	if !errors.As(err, &stale) {
		t.Errorf("a fetch of a former incarnation: %v", err)
	}
	_, err = p.ReadAsReplica(ReadOptions{Offset: 2, LeaderEpoch: -1, LastFetchedEpoch: 0}, state.Fetch{Replica: 3, BrokerEpoch: 40})
	f.ok(err)
	if len(changes) != 1 || len(changes[0].ISR) != 3 || changes[0].BrokerEpoch(3) != 40 {
		t.Fatalf("proposed %v", changes)
	}
	f.fetch(p, 2, 2, 0)
	f.append(p, "z")
	f.fetch(p, 2, 3, 0)
	f.sees(p, ReadUncommitted, "x", "y") // 3 is proposed: it counts
	changes[0].Committed(&metadata.Partition{Replicas: []int32{1, 2, 3}, ISR: []int32{1, 2, 3}, Leader: 1, PartitionEpoch: 1})
	f.fetch(p, 3, 3, 0)
	f.sees(p, ReadUncommitted, "x", "y", "z")

	var no *NotReplicaError
	if _, err := p.ReadAsReplica(ReadOptions{Offset: 0, LeaderEpoch: 0, LastFetchedEpoch: -1}, state.Fetch{Replica: 77, BrokerEpoch: -1}); !errors.As(err, &no) || !no.EpochNamed {
		t.Errorf("a fetch of no replica: %v", err)
	}
	var out *storage.OffsetOutOfRangeError
	if _, err := p.ReadAsReplica(ReadOptions{Offset: 4, LeaderEpoch: 0, LastFetchedEpoch: -1}, state.Fetch{Replica: 2}); !errors.As(err, &out) {
		t.Errorf("a fetch past the log end: %v", err)
	}
	if _, err := p.ReadAsReplica(ReadOptions{Offset: 2, LeaderEpoch: 0, LastFetchedEpoch: 9}, state.Fetch{Replica: 2}); !errors.As(err, &out) {
		t.Errorf("a fetch of an unknown epoch: %v", err)
	}
	r := f.fetch(p, 2, 5, 0)
	if r.Diverging == nil || *r.Diverging != (state.EpochEnd{Epoch: 0, Offset: 3}) {
		t.Errorf("a longer log diverges at %v, want 0/3", r.Diverging)
	}
}

func TestISRBelowMinimum(t *testing.T) {
	f := newFixture(t, vfs.NewMem(), nil, "/d")
	f.config.MinInSyncReplicas = 2
	p := f.lead([]int32{1, 2}, []int32{1, 2})
	f.append(p, "x")
	f.fetch(p, 2, 1, 0)
	f.apply(change(topicA, func(r *records.PartitionChangeRecord) { r.ISR = []int32{1} }))
	b, h := batch(1, "q")
	var few *NotEnoughReplicasError
	if _, err := p.Append(b, h, AppendOptions{LeaderEpoch: -1, Acks: -1}); !errors.As(err, &few) || few.AfterAppend || few.ISR != 1 || few.MinISR != 2 {
		t.Errorf("acks=all: %v", err)
	}
	_, err := p.Append(b, h, AppendOptions{LeaderEpoch: -1, Acks: 1})
	f.ok(err)
	f.sees(p, ReadUncommitted, "x") // the high watermark stands still
	var w Waiter
	if !p.Await(&w, 0, 1, nil) {
		t.Fatal("offset 1 is committed")
	}
	if _, err := w.Done(); !errors.As(err, &few) || !few.AfterAppend {
		t.Errorf("committed while too few are in sync: %v", err)
	}

	// min.insync.replicas is lowered.
	if p.Await(&w, 0, 2, func() wake.Work { return nil }) {
		t.Fatal("offset 2 is not committed")
	}
	f.config.MinInSyncReplicas = 1
	f.apply(&records.ConfigRecord{ResourceType: int8(metadata.TopicConfig), ResourceName: "a", Name: "min.insync.replicas", Value: ptr("1")})
	f.fetch(p, 2, 2, 0)
	f.sees(p, ReadUncommitted, "x", "q")
	if done, err := w.Done(); !done || err != nil {
		t.Errorf("done %v, %v", done, err)
	}
}

func ptr[T any](v T) *T { return &v }

func TestWaiters(t *testing.T) {
	f := newFixture(t, vfs.NewMem(), nil, "/d")
	p := f.lead([]int32{1, 2}, []int32{1, 2})
	for range 5 {
		f.append(p, "x")
	}
	woken := map[int64]int{}
	waiters := make([]Waiter, 6)
	for _, offset := range []int64{3, 1, 5, 2, 4} {
		if p.Await(&waiters[offset], 0, offset, func() wake.Work { woken[offset]++; return nil }) {
			t.Fatal("over already")
		}
	}
	waiters[2].Cancel()
	f.fetch(p, 2, 3, 0)
	if len(woken) != 2 || woken[1] != 1 || woken[3] != 1 {
		t.Errorf("at high watermark 3: woken %v, want 1 and 3", woken)
	}
	waiters[3].Cancel() // over: does nothing
	waiters[5].Cancel()
	if p.Await(&waiters[5], 0, 5, func() wake.Work { woken[5]++; return nil }) {
		t.Fatal("over already")
	}
	f.fetch(p, 2, 5, 0)
	if woken[4] != 1 || woken[5] != 1 || woken[2] != 0 {
		t.Errorf("at high watermark 5: woken %v", woken)
	}
}

func TestListOffsets(t *testing.T) {
	f := newFixture(t, vfs.NewMem(), nil, "/d")
	p := f.lead([]int32{1, 2}, []int32{1, 2})
	for _, at := range []int64{1000, 3000, 2000} {
		b, h := batch(at, "x", "y") // at, at+1
		_, err := p.Append(b, h, AppendOptions{LeaderEpoch: -1})
		f.ok(err)
	}
	f.fetch(p, 2, 4, 0)
	for _, c := range []struct {
		name      string
		timestamp int64
		isolation Isolation
		want      FoundOffset
	}{
		{"latest", -1, ReadUncommitted, FoundOffset{4, -1, 0}},
		{"latest committed", -1, ReadCommitted, FoundOffset{4, -1, 0}},
		{"latest of a replica", -1, ReadReplica, FoundOffset{6, -1, 0}},
		{"earliest", -2, ReadUncommitted, FoundOffset{0, -1, 0}},
		{"max timestamp", -3, ReadUncommitted, FoundOffset{3, 3001, 0}},
		{"earliest local", -4, ReadUncommitted, FoundOffset{0, -1, 0}},
		{"latest tiered", -5, ReadUncommitted, FoundOffset{-1, -1, -1}},
		{"earliest pending upload", -6, ReadUncommitted, FoundOffset{-1, -1, -1}},
		{"first at or behind", 1001, ReadUncommitted, FoundOffset{1, 1001, 0}},
		{"between", 1500, ReadUncommitted, FoundOffset{2, 3000, 0}},
		{"later than all", 4000, ReadUncommitted, FoundOffset{-1, -1, -1}},
		{"zero", 0, ReadUncommitted, FoundOffset{0, 1000, 0}},
	} {
		got, err := p.ListOffsets(ListOffsetsOptions{Timestamp: c.timestamp, LeaderEpoch: -1, Isolation: c.isolation})
		if got != c.want || err != nil {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}
	if _, err := p.ListOffsets(ListOffsetsOptions{Timestamp: -77, LeaderEpoch: -1}); !errors.Is(err, ErrUnsupportedTimestamp) {
		t.Errorf("timestamp -77: %v", err)
	}
}

func TestDeleteRecords(t *testing.T) {
	f := newFixture(t, vfs.NewMem(), nil, "/d")
	p := f.lead([]int32{1}, []int32{1})
	f.append(p, "x")
	f.append(p, "y")
	f.append(p, "z")
	var out *storage.OffsetOutOfRangeError
	for _, offset := range []int64{4, -2} {
		if _, _, err := p.DeleteRecords(offset); !errors.As(err, &out) {
			t.Errorf("offset %d: %v", offset, err)
		}
	}
	meant, low, err := p.DeleteRecords(2)
	if meant != 2 || low != 2 || err != nil {
		t.Errorf("deleted up to %d, low watermark %d, %v", meant, low, err)
	}
	if _, err := p.Read(ReadOptions{Offset: 1, LeaderEpoch: -1, LastFetchedEpoch: -1}); !errors.As(err, &out) {
		t.Errorf("reading a deleted record: %v", err)
	}
	if meant, low, err = p.DeleteRecords(-1); meant != 3 || low != 3 || err != nil {
		t.Errorf("deleted all: up to %d, low watermark %d, %v", meant, low, err)
	}
	f.config.Log.CleanupDelete = false
	f.set.Reconfigure()
	if _, _, err := p.DeleteRecords(3); !errors.Is(err, ErrNotDeletable) {
		t.Errorf("a compacted topic: %v", err)
	}
}

func TestGroupCommit(t *testing.T) {
	mem := vfs.NewMem()
	syncs := make(chan struct{})
	f := newFixture(t, mem, nil, "/d")
	f.config.Log.FlushMessages = 1
	p := f.lead([]int32{1}, []int32{1})
	mem.Inject(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && filepath.Ext(op.Path) == ".log" {
			<-syncs
		}
		return nil
	})
	a := f.append(p, "x")
	var w Waiter
	woken := make(chan struct{})
	if p.Await(&w, a.LeaderEpoch, 1, func() wake.Work { close(woken); return nil }) {
		t.Error("committed before it is on the disk")
	}
	f.sees(p, ReadUncommitted)
	close(syncs)
	<-woken
	f.sees(p, ReadUncommitted, "x")
}

// With flush.messages=1 what is committed survives a power cut, although nothing else was synced.
func TestGroupCommitSurvivesPowerCut(t *testing.T) {
	mem := vfs.NewMem()
	f := newFixture(t, mem, nil, "/d")
	f.config.Log.FlushMessages = 1
	p := f.lead([]int32{1}, []int32{1})
	var want []string
	for i := range 20 {
		want = append(want, string(rune('a'+i)))
		a := f.append(p, want[i])
		var w Waiter
		committed := make(chan struct{})
		if !p.Await(&w, a.LeaderEpoch, a.LastOffset+1, func() wake.Work { close(committed); return nil }) {
			<-committed
		}
		if done, err := w.Done(); !done || err != nil {
			t.Fatalf("done %v, %v", done, err)
		}
	}
	f = newFixture(t, mem.Crash(0, nil), nil, "/d")
	f.sees(f.lead([]int32{1}, []int32{1}), ReadUncommitted, want...)
}

func TestHighWatermarkSurvivesRestart(t *testing.T) {
	mem := vfs.NewMem()
	f := newFixture(t, mem, nil, "/d")
	p := f.lead([]int32{1, 2}, []int32{1, 2})
	f.append(p, "x")
	f.append(p, "y")
	f.fetch(p, 2, 1, 0)
	f.close(true)

	f = newFixture(t, mem.Crash(0, nil), nil, "/d")
	f.apply(topic(topicA, "a"), partition(topicA, 1, 1, []int32{1, 2}, []int32{1, 2}))
	p = f.ready(topicA)
	f.sees(p, ReadUncommitted, "x")
	f.fetch(p, 2, 2, 0)
	f.sees(p, ReadUncommitted, "x", "y")
}

func TestTopicDeletedAndMadeAnew(t *testing.T) {
	f := newFixture(t, vfs.NewMem(), nil, "/d")
	p := f.lead([]int32{1}, []int32{1})
	f.append(p, "x")
	again := uuid.UUID{0: 8, 15: 1}
	f.apply(&records.RemoveTopicRecord{TopicID: topicA})
	f.apply(topic(again, "a"), partition(again, 1, 0, []int32{1}, []int32{1}))
	if _, err := f.set.Get(topicA, 0); !errors.Is(err, ErrUnknownPartition) {
		t.Errorf("the old id: %v", err)
	}
	b, h := batch(1, "y")
	if _, err := p.Append(b, h, AppendOptions{LeaderEpoch: -1}); !errors.Is(err, ErrUnknownPartition) {
		t.Errorf("append to a deleted partition: %v", err)
	}
	next := f.ready(again)
	if got, err := f.set.GetByName("a", 0); got != next || err != nil {
		t.Errorf("by name: %v, %v", got, err)
	}
	f.sees(next, ReadUncommitted)
	f.append(next, "z")
	f.sees(next, ReadUncommitted, "z")
}

func TestStrays(t *testing.T) {
	mem := vfs.NewMem()
	f := newFixture(t, mem, nil, "/d")
	f.append(f.lead([]int32{1}, []int32{1}), "x")
	f.close(true)

	// The metadata knows a topic of that name with another id; and nothing of b.
	f = newFixture(t, mem, nil, "/d")
	again := uuid.UUID{0: 8, 15: 1}
	f.apply(topic(again, "a"), partition(again, 1, 0, []int32{1}, []int32{1}))
	f.sees(f.ready(again), ReadUncommitted)
	f.close(true)

	f = newFixture(t, mem, nil, "/d")
	f.apply()
	f.ok(f.set.SetStraysAside(context.Background()))
	entries, err := mem.ReadDir("/d")
	f.ok(err)
	strays := 0
	for _, e := range entries {
		if e.Name() == "a-0" {
			t.Error("a stray is in place")
		}
		if filepath.Ext(e.Name()) != "" && e.IsDir() {
			strays++
		}
	}
	if strays != 2 {
		t.Errorf("%d strays are kept, want 2", strays)
	}
}

func TestDirFailure(t *testing.T) {
	mem := vfs.NewMem()
	f := newFixture(t, mem, nil, "/d1", "/d2")
	other := uuid.UUID{0: 8, 15: 1}
	p := f.lead([]int32{1}, []int32{1})
	f.apply(topic(other, "b"), partition(other, 1, 0, []int32{1}, []int32{1}))
	q := f.ready(other)
	if p.DirID() == q.DirID() {
		t.Fatal("both replicas are in one directory")
	}
	failed := errors.New("the disk is broken")
	bad := p.dir.path
	mem.Inject(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && filepath.Dir(filepath.Dir(op.Path)) == bad {
			return failed
		}
		return nil
	})
	b, h := batch(1, "x")
	if _, err := p.Append(b, h, AppendOptions{LeaderEpoch: -1}); !errors.Is(err, failed) {
		t.Errorf("append to a broken disk: %v", err)
	}
	if id := <-f.failed; id != p.DirID() {
		t.Errorf("directory %s failed, want %s", id, p.DirID())
	}
	var offline *OfflineError
	if _, err := p.Read(ReadOptions{LeaderEpoch: -1, LastFetchedEpoch: -1}); !errors.As(err, &offline) || offline.Dir != bad {
		t.Errorf("read of an offline partition: %v", err)
	}
	f.append(q, "y")
	f.sees(q, ReadUncommitted, "y")
	if ids := f.set.OnlineDirs(); len(ids) != 1 || ids[0] != q.DirID() {
		t.Errorf("online: %v", ids)
	}
	infos := f.set.DescribeDirs(nil)
	for _, info := range infos {
		if (info.Err != nil) != (info.ID == p.DirID()) {
			t.Errorf("directory %s: %v", info.Path, info.Err)
		}
		if info.ID == q.DirID() && (len(info.Replicas) != 1 || info.Replicas[0].Bytes == 0 || info.Total <= 0) {
			t.Errorf("directory %s: %+v", info.Path, info)
		}
	}
	// A new topic goes where the disk works.
	third := uuid.UUID{0: 9, 15: 1}
	f.apply(topic(third, "c"), partition(third, 1, 0, []int32{1}, []int32{1}))
	if r := f.ready(third); r.DirID() != q.DirID() {
		t.Error("a replica was placed on a broken disk")
	}
}

// A replica whose disk is broken at the start is offline. Made anew on another, it would be an empty leader.
func TestDirBrokenAtStart(t *testing.T) {
	mem := vfs.NewMem()
	f := newFixture(t, mem, nil, "/d1", "/d2")
	f.append(f.lead([]int32{1}, []int32{1}), "x")
	bad := f.ready(topicA).dir.path
	f.close(true)

	f = newFixture(t, mem, func(*Options) {
		mem.Inject(func(op vfs.Op) error {
			if op.Kind == vfs.OpReadDir && op.Path == bad {
				return errors.New("the disk is broken")
			}
			return nil
		})
	}, "/d1", "/d2")
	<-f.failed
	f.apply(topic(topicA, "a"), partition(topicA, 1, 1, []int32{1}, []int32{1}))
	p, err := f.set.Get(topicA, 0)
	f.ok(err)
	var offline *OfflineError
	if err := p.Ready(context.Background()); !errors.As(err, &offline) {
		t.Errorf("ready: %v", err)
	}
	other := uuid.UUID{0: 8, 15: 1}
	f.apply(topic(other, "b"), partition(other, 1, 0, []int32{1}, []int32{1}))
	f.append(f.ready(other), "y") // a new one has nothing to lose
}

func TestMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	f := newFixture(t, vfs.NewMem(), func(o *Options) { o.Registerer = r }, "/d")
	p := f.lead([]int32{1, 2}, []int32{1})
	f.append(p, "x", "y")
	p.CountSent(100, false)
	for name, want := range map[string]float64{
		"ottla_replicas": 1, "ottla_leaders": 1, "ottla_under_replicated_partitions": 1, "ottla_under_min_isr_partitions": 0,
		"ottla_topic_received_records_total": 2,
	} {
		if got := f.gather(r, name); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := f.gather(r, "ottla_topic_sent_bytes_total"); len(got) != 2 || got[0] != 100 || got[1] != 0 {
		t.Errorf("sent bytes %v, want 100 to a consumer, none to a replica", got)
	}
	f.apply(&records.RemoveTopicRecord{TopicID: topicA})
	if got := f.gather(r, "ottla_topic_sent_bytes_total"); len(got) != 0 {
		t.Errorf("sent bytes of a deleted topic: %v", got)
	}
}

// gather returns the values of a metric, by its labels.
func (f *fixture) gather(r *prometheus.Registry, name string) []float64 {
	f.t.Helper()
	families, err := r.Gather()
	f.ok(err)
	var values []float64
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.Metric {
			values = append(values, m.GetGauge().GetValue()+m.GetCounter().GetValue())
		}
	}
	return values
}
