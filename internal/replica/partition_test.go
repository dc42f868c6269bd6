package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ottla/internal/metadata"
	"ottla/internal/protocol/records"
	"ottla/internal/record"
	"ottla/internal/replica/state"
	"ottla/internal/storage"
	"ottla/internal/vfs"
	"ottla/internal/wake"
)

func (f *fixture) appendBatch(p *Partition, b []byte) Appended {
	f.t.Helper()
	h, err := record.ParseHeader(b)
	f.ok(err)
	a, err := p.Append(b, h, AppendOptions{LeaderEpoch: -1, Acks: -1, Coordinator: h.Attributes.Control()})
	f.ok(err)
	return a
}

func transactional(producer int64, sequence int32, values ...string) []byte {
	b := record.NewBuilder(nil, record.BatchOptions{
		Flags: record.FlagTransactional, Producer: &record.ProducerState{ID: producer, BaseSequence: sequence},
	})
	for _, v := range values {
		b.Append(record.Record{Timestamp: 1, Value: []byte(v)})
	}
	return b.Bytes()
}

func TestLastStableOffset(t *testing.T) {
	f := newFixture(t, vfs.NewMem(), nil, "/d")
	p := f.lead([]int32{1, 2}, []int32{1, 2})
	f.append(p, "plain")
	f.appendBatch(p, transactional(7, 0, "in a transaction"))
	f.append(p, "behind")
	f.fetch(p, 2, 3, 0)
	if lso := p.LastStableOffset(); lso != 1 {
		t.Errorf("last stable offset %d while a transaction is open, want 1", lso)
	}
	f.sees(p, ReadCommitted, "plain")
	f.sees(p, ReadUncommitted, "plain", "in a transaction", "behind")

	f.appendBatch(p, record.AppendEndTxnBatch(nil, 7, 0, record.EndTxnMarker{Commit: false, CoordinatorEpoch: 1}, 2))
	if lso := p.LastStableOffset(); lso != 1 {
		t.Errorf("last stable offset %d while the marker is not committed, want 1", lso)
	}
	f.fetch(p, 2, 4, 0)
	if lso := p.LastStableOffset(); lso != 4 {
		t.Errorf("last stable offset %d, want 4", lso)
	}
	r, err := p.Read(ReadOptions{MaxBytes: 1 << 20, LeaderEpoch: -1, LastFetchedEpoch: -1, Isolation: ReadCommitted})
	f.ok(err)
	defer r.Slice.Release()
	if len(r.Aborted) != 1 || r.Aborted[0].ProducerID != 7 || r.Aborted[0].FirstOffset != 1 {
		t.Errorf("aborted %v, want producer 7 from offset 1", r.Aborted)
	}
	if producers, err := p.Producers(); err != nil || len(producers) != 1 || producers[0].CoordinatorEpoch != 1 {
		t.Errorf("producers %v, %v", producers, err)
	}
}

func TestFollowing(t *testing.T) {
	settled := make(fetchers, 8)
	f := newFixture(t, vfs.NewMem(), func(o *Options) { o.Fetchers = settled }, "/d")
	f.apply(topic(topicA, "a"), partition(topicA, 2, 0, []int32{1, 2}, []int32{1, 2}))
	p := f.ready(topicA)
	<-settled
	send := func(epoch int32, base int64, values ...string) error {
		b, _ := batch(1, values...)
		record.SetBaseOffset(b, base)
		record.SetLeaderEpoch(b, epoch)
		return p.AppendAsFollower(epoch, b, base, 0)
	}
	f.ok(send(0, 0, "a"))
	f.ok(send(0, 1, "b"))
	f.ok(send(0, 2, "c"))
	if hw, end := p.HighWatermark(), p.LogEndOffset(); hw != 2 || end != 3 {
		t.Errorf("high watermark %d, log end %d; want the leader's 2, and 3", hw, end)
	}
	var epoch *LeaderEpochError
	if err := send(1, 3, "x"); !errors.As(err, &epoch) {
		t.Errorf("records of a leader that is not known: %v", err)
	}
	r, err := p.Read(ReadOptions{MaxBytes: 1 << 20, LeaderEpoch: -1, LastFetchedEpoch: -1, AnyReplica: true})
	f.ok(err)
	r.Slice.Release()
	var not *NotLeaderError
	if _, err := p.Read(ReadOptions{LeaderEpoch: -1, LastFetchedEpoch: -1}); !errors.As(err, &not) || not.Leader != 2 {
		t.Errorf("a consumer at a follower: %v", err)
	}

	// The next leader does not have c.
	f.apply(change(topicA, func(r *records.PartitionChangeRecord) { r.Leader = 2 }))
	f.ready(topicA)
	<-settled
	to, err := p.Truncate(1, state.EpochEnd{Epoch: 0, Offset: 2})
	f.ok(err)
	if to != 2 {
		t.Errorf("truncated to %d, want 2", to)
	}
	f.ok(send(1, 2, "d"))
	f.ok(p.AppendAsFollower(1, nil, 3, 1))
	if start, hw := p.LogStartOffset(), p.HighWatermark(); start != 1 || hw != 3 {
		t.Errorf("log start %d, high watermark %d; want the leader's 1 and 3", start, hw)
	}

	// Now it leads, from where its log ends.
	f.apply(change(topicA, func(r *records.PartitionChangeRecord) { r.Leader, r.ISR = 1, []int32{1} }))
	f.ready(topicA)
	if a := f.append(p, "e"); a.FirstOffset != 3 || a.LeaderEpoch != 2 {
		t.Errorf("appended at %d in epoch %d, want 3 and 2", a.FirstOffset, a.LeaderEpoch)
	}
	if err := send(1, 4, "x"); !errors.As(err, &epoch) {
		t.Errorf("records of a former leader: %v", err)
	}
	if e, err := p.EpochEnd(-1, 1, false); err != nil || e != (state.EpochEnd{Epoch: 1, Offset: 3}) {
		t.Errorf("epoch 1 ends at %v, %v; want 3", e, err)
	}
}

type fetchers chan *Partition

func (f fetchers) Settled(p *Partition) { f <- p }
func (f fetchers) Removed(*Partition)   {}

func TestShrink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proposed := make(chan ISRChange, 10)
		f := newFixture(t, vfs.NewMem(), func(o *Options) {
			o.AlterPartition = func(c ISRChange) { proposed <- c }
		}, "/d")
		p := f.lead([]int32{1, 2}, []int32{1, 2})
		f.append(p, "x")
		begun := time.Now()
		c := <-proposed
		if len(c.ISR) != 1 || c.ISR[0] != 1 || c.LeaderEpoch != 0 {
			t.Errorf("proposed %v in epoch %d", c.ISR, c.LeaderEpoch)
		}
		if took := time.Since(begun); took < 30*time.Second || took > 46*time.Second {
			t.Errorf("shrunk after %s, want replica.lag.time.max.ms and up to half of it", took)
		}
		f.sees(p, ReadUncommitted)
		c.Refused()
		c = <-proposed
		c.Committed(&metadata.Partition{Replicas: []int32{1, 2}, ISR: []int32{1}, Leader: 1, PartitionEpoch: 1})
		f.sees(p, ReadUncommitted, "x")
		f.close(false)
	})
}

// TestLeadershipRace appends from several goroutines while the leadership comes and goes: what was acknowledged must be in the
// log once, in order, in the epoch that it was acknowledged in.
func TestLeadershipRace(t *testing.T) {
	f := newFixture(t, vfs.NewMem(), nil, "/d")
	p := f.lead([]int32{1, 2}, []int32{1})
	const writers, epochs = 4, 50
	var acked sync.Map // value → Appended
	stop, progress := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				value := fmt.Sprintf("%d-%d", w, i)
				b, h := batch(1, value)
				a, err := p.Append(b, h, AppendOptions{LeaderEpoch: -1, Acks: -1})
				switch {
				case err == nil:
					acked.Store(value, a)
					select {
					case progress <- struct{}{}:
					default:
					}
				case errors.Is(err, ErrOpening):
					_ = p.Ready(context.Background())
				default:
					var not *NotLeaderError
					if !errors.As(err, &not) {
						t.Errorf("append: %v", err)
						return
					}
				}
			}
		})
	}
	for i := range epochs {
		f.apply(change(topicA, func(r *records.PartitionChangeRecord) { r.Leader = int32(2 - i%2) }))
		switch {
		case i%4 == 1: // a leadership in which something happens
			<-progress
			<-progress
		case i%3 == 0:
			f.ready(topicA)
		}
	}
	f.ready(topicA)
	close(stop)
	wg.Wait()
	f.apply(change(topicA, func(r *records.PartitionChangeRecord) { r.Leader, r.ISR = 1, []int32{1} }))
	f.ready(topicA)

	found := map[string]Appended{}
	for offset := int64(0); offset < p.LogEndOffset(); {
		b, err := p.view.Load().log.Batch(offset, nil)
		f.ok(err)
		h, err := record.ParseHeader(b)
		f.ok(err)
		f.ok(record.Iterate(b, func(r record.Record) error {
			found[string(r.Value)] = Appended{storage.Appended{FirstOffset: r.Offset}, h.LeaderEpoch}
			return nil
		}))
		offset = h.NextOffset()
	}
	n := 0
	acked.Range(func(value, a any) bool {
		want := a.(Appended)
		got, ok := found[value.(string)]
		if !ok || got.FirstOffset != want.FirstOffset || got.LeaderEpoch != want.LeaderEpoch {
			t.Errorf("%s was acknowledged at %d in epoch %d, is at %d in epoch %d", value, want.FirstOffset, want.LeaderEpoch, got.FirstOffset, got.LeaderEpoch)
		}
		n++
		return true
	})
	if n == 0 {
		t.Error("nothing was acknowledged")
	}
}

// TestHotPathAllocations bounds what an append, a read and a wait allocate.
func TestHotPathAllocations(t *testing.T) {
	f := newFixture(t, vfs.NewMem(), nil, "/d")
	p := f.lead([]int32{1}, []int32{1})
	b, h := batch(1, "x", "y", "z", "u", "v")
	appends := testing.AllocsPerRun(100, func() {
		_, err := p.Append(b, h, AppendOptions{LeaderEpoch: -1, Acks: -1})
		f.ok(err)
	})
	if appends > 8 { // most are the file system's twin's
		t.Errorf("an append allocates %v times", appends)
	}
	reads := testing.AllocsPerRun(100, func() {
		r, err := p.Read(ReadOptions{Offset: 5, MaxBytes: 1000, LeaderEpoch: -1, LastFetchedEpoch: -1})
		f.ok(err)
		r.Slice.Release()
	})
	if reads > 0 {
		t.Errorf("a read allocates %v times", reads)
	}
	var w Waiter
	nothing := func() wake.Work { return nil }
	end := p.LogEndOffset()
	if waits := testing.AllocsPerRun(100, func() { p.Await(&w, 0, end+1, nothing); w.Cancel() }); waits > 0 {
		t.Errorf("a wait allocates %v times", waits)
	}
	if gets := testing.AllocsPerRun(100, func() { _, _ = f.set.Get(topicA, 0); _, _ = f.set.GetByName("a", 0) }); gets > 0 {
		t.Errorf("finding a partition allocates %v times", gets)
	}
}

func benchmarkFixture(b *testing.B) (*fixture, *Partition) {
	f := newFixture(b, vfs.OS, nil, b.TempDir()+"/d")
	f.config.Log.FlushInterval = time.Hour
	return f, f.lead([]int32{1}, []int32{1})
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 16 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			f, p := benchmarkFixture(b)
			bytes, h := batch(1, string(make([]byte, size)))
			b.SetBytes(int64(len(bytes)))
			b.ReportAllocs()
			for b.Loop() {
				_, err := p.Append(bytes, h, AppendOptions{LeaderEpoch: -1, Acks: -1})
				f.ok(err)
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	f, p := benchmarkFixture(b)
	for range 1000 {
		f.append(p, string(make([]byte, 1000)))
	}
	b.ReportAllocs()
	offset := int64(0)
	for b.Loop() {
		r, err := p.Read(ReadOptions{Offset: offset, MaxBytes: 100_000, LeaderEpoch: -1, LastFetchedEpoch: -1})
		f.ok(err)
		r.Slice.Release()
		offset = (offset + 97) % 1000
	}
}

func BenchmarkReadAtEnd(b *testing.B) {
	f, p := benchmarkFixture(b)
	for range 1000 {
		f.append(p, string(make([]byte, 1000)))
	}
	b.ReportAllocs()
	for b.Loop() {
		r, err := p.Read(ReadOptions{Offset: 1000, MaxBytes: 100_000, LeaderEpoch: -1, LastFetchedEpoch: -1})
		f.ok(err)
		r.Slice.Release()
	}
}
