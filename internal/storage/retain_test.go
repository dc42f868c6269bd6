package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ottla/internal/record"
	"ottla/internal/uuid"
	"ottla/internal/vfs"
)

// segmented makes a log of 20 batches of 10 records each, two to a segment, stamped 0, 10, … ms.
func segmented(t testing.TB, c LogConfig, fsys vfs.FS) *Log {
	t.Helper()
	c.SegmentBytes = 2500
	l := open(t, fsys, LogOptions{Config: c})
	for i := range 20 {
		mustAppend(t, l, 10, 100, int64(10*i))
	}
	if len(l.Segments()) != 10 {
		t.Fatalf("%d segments", len(l.Segments()))
	}
	return l
}

func TestRetention(t *testing.T) {
	c := testConfig()
	c.Retention = 100 * time.Millisecond
	for _, x := range []struct {
		name    string
		now, hw int64
		bytes   int64
		deleted int
		start   int64
		cleanup bool
	}{
		{name: "all recent", now: 100, hw: 200, bytes: -1, cleanup: true},
		{name: "exactly as old", now: 110, hw: 200, bytes: -1, cleanup: true},
		{name: "one too old", now: 111, hw: 200, bytes: -1, deleted: 1, start: 20, cleanup: true},
		{name: "held back by the high watermark", now: 1000, hw: 59, bytes: -1, deleted: 2, start: 40, cleanup: true},
		{name: "the active one too", now: 1000, hw: 200, bytes: -1, deleted: 10, start: 200, cleanup: true},
		// A segment is a bit over 2300 bytes: four stay, for three would be less than asked for.
		{name: "by size", now: 0, hw: 200, bytes: 7200, deleted: 6, start: 120, cleanup: true},
		{name: "not with compaction alone", now: 1000, hw: 200, bytes: 1},
	} {
		c.RetentionBytes, c.CleanupDelete, c.CleanupCompact = x.bytes, x.cleanup, !x.cleanup
		l := segmented(t, c, vfs.NewMem())
		n, err := l.Retain(time.UnixMilli(x.now), x.hw)
		if err != nil || n != x.deleted || l.StartOffset() != x.start || l.End().Offset != 200 {
			t.Errorf("%s: %d deleted, start %d, end %d, %v", x.name, n, l.StartOffset(), l.End().Offset, err)
		}
		mustAppend(t, l, 1, 1, 1)
	}
}

func TestDeleteRecords(t *testing.T) {
	fsys := vfs.NewMem()
	l := segmented(t, testConfig(), fsys)
	if start, err := l.DeleteRecordsBefore(55); err != nil || start != 55 || l.Segments()[0].BaseOffset != 40 {
		t.Errorf("start %d, %+v, %v", start, l.Segments()[0], err)
	}
	if start, err := l.DeleteRecordsBefore(10); err != nil || start != 55 {
		t.Errorf("going back: start %d, %v", start, err)
	}
	var out *OffsetOutOfRangeError
	if _, err := l.DeleteRecordsBefore(201); !errors.As(err, &out) {
		t.Errorf("past the end: %v", err)
	}
	if _, err := l.Read(54, 1, l.End(), true); !errors.As(err, &out) || out.Start != 55 {
		t.Errorf("reading below the start: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, fsys, LogOptions{Config: *l.Config(), Clean: true, StartOffset: 55})
	if l.StartOffset() != 55 || l.End().Offset != 200 {
		t.Errorf("reopened: [%d, %d)", l.StartOffset(), l.End().Offset)
	}
}

func TestDeleteKeepsReaders(t *testing.T) {
	l := segmented(t, testConfig(), vfs.NewMem())
	s, err := l.Read(0, 1<<20, l.End(), true)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, s.Size())
	if _, err := s.ReadInto(want); err != nil {
		t.Fatal(err)
	}
	if _, err := l.DeleteRecordsBefore(200); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if _, err := s.SendTo(&got); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("a pinned slice changed when its segment was deleted: %v", err)
	}
	s.Release()
}

func TestTruncate(t *testing.T) {
	for _, reopen := range []bool{false, true} {
		fsys := vfs.NewMem()
		l := segmented(t, testConfig(), fsys)
		if err := l.Flush(200); err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct{ to, end int64 }{{300, 200}, {175, 175}, {170, 170}, {60, 60}, {0, 0}} {
			if err := l.TruncateTo(x.to); err != nil {
				t.Fatal(err)
			}
			if reopen {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				l = open(t, fsys, LogOptions{Config: *l.Config(), Clean: true})
			}
			// A batch that the new end lies in is gone, so a reopened log ends with the batch before.
			if end := l.End().Offset; end != x.end && (!reopen || end != x.end/10*10) {
				t.Errorf("truncated to %d the log ends at %d", x.to, end)
			}
			if n := int64(len(offsetsTo(t, l, x.end/10*10))); n != x.end/10 {
				t.Errorf("truncated to %d it holds %d batches", x.to, n)
			}
		}
		if a := mustAppend(t, l, 1, 1, 1); a.FirstOffset != 0 {
			t.Errorf("append went to %d", a.FirstOffset)
		}
		if err := l.TruncateFullyAndStartAt(1000); err != nil {
			t.Fatal(err)
		}
		if a := mustAppend(t, l, 1, 1, 1); a.FirstOffset != 1000 || l.StartOffset() != 1000 {
			t.Errorf("append went to %d, start %d", a.FirstOffset, l.StartOffset())
		}
	}
}

func offsetsTo(t testing.TB, l *Log, end int64) (out []int64) {
	t.Helper()
	for at := l.StartOffset(); at < end; {
		b, err := l.Batch(at, nil)
		if err != nil {
			t.Fatal(err)
		}
		h, err := record.ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, at)
		at = h.NextOffset()
	}
	return out
}

func TestEpochs(t *testing.T) {
	l := open(t, vfs.NewMem(), LogOptions{})
	ask := func(requested, epoch int32, end int64) {
		t.Helper()
		if e, o := l.EpochEndOffset(requested, l.End().Offset); e != epoch || o != end {
			t.Errorf("epoch %d ends at (%d, %d), want (%d, %d)", requested, e, o, epoch, end)
		}
	}
	ask(0, UnknownEpoch, UnknownOffset)
	for _, epoch := range []int32{1, 1, 3} {
		b, h := batch(t, 5, 1, 1)
		if _, err := l.AppendAsLeader(b, h, LeaderAppend{LeaderEpoch: epoch}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.AssignEpoch(5, 15); err != nil { // a leader without a record yet
		t.Fatal(err)
	}
	ask(0, 0, 0) // older than all: itself, and where the oldest starts
	ask(1, 1, 10)
	ask(2, 1, 10)
	ask(3, 3, 15)
	ask(4, 3, 15)
	ask(5, 5, 15)
	ask(6, UnknownEpoch, UnknownOffset)
	if err := l.TruncateTo(12); err != nil {
		t.Fatal(err)
	}
	ask(3, 3, 12)
	if l.LatestEpoch() != 3 {
		t.Errorf("latest epoch is %d", l.LatestEpoch())
	}
}

func TestFollower(t *testing.T) {
	leader := segmented(t, testConfig(), vfs.NewMem())
	c := testConfig()
	c.SegmentBytes = 3600 // rolls elsewhere
	follower := open(t, vfs.NewMem(), LogOptions{Config: c})
	for at := int64(0); at < 200; at = follower.End().Offset {
		s, err := leader.Read(at, 2000, leader.End(), true)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, s.Size())
		if _, err := s.ReadInto(b); err != nil {
			t.Fatal(err)
		}
		s.Release()
		if _, err := follower.AppendAsFollower(b); err != nil { // the last batch is cut off
			t.Fatal(err)
		}
	}
	if got, want := offsets(t, follower), offsets(t, leader); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("follower has %v, leader %v", got, want)
	}
	b, err := leader.Batch(190, nil)
	if err != nil {
		t.Fatal(err)
	}
	var unexpected *UnexpectedOffsetError
	if _, err := follower.AppendAsFollower(b); !errors.As(err, &unexpected) {
		t.Errorf("append below the end: %v", err)
	}
	record.SetBaseOffset(b, 200)
	b[len(b)-1] ^= 1
	var corrupt *record.CorruptError
	if _, err := follower.AppendAsFollower(b); !errors.As(err, &corrupt) {
		t.Errorf("append of a rotten batch: %v", err)
	}
}

func TestFailureTakesDirectoryOffline(t *testing.T) {
	for _, kind := range []vfs.OpKind{vfs.OpWrite, vfs.OpSync} {
		fsys := newMem(t)
		var told atomic.Int64
		l := open(t, fsys, LogOptions{OnFailure: func(error) { told.Add(1) }})
		mustAppend(t, l, 1, 1, 1)
		syncs := 0
		fsys.Inject(func(op vfs.Op) error {
			if op.Kind == kind && strings.HasSuffix(op.Path, logSuffix) {
				syncs++
				return errDead
			}
			return nil
		})
		fail := func() error {
			if kind == vfs.OpSync {
				return l.Flush(l.End().Offset)
			}
			b, h := batch(t, 1, 1, 1)
			_, err := l.AppendAsLeader(b, h, LeaderAppend{LeaderEpoch: 1})
			return err
		}
		var failed *DirFailedError
		for range 2 {
			if err := fail(); !errors.As(err, &failed) {
				t.Errorf("%s: %v", kind, err)
			}
		}
		b, h := batch(t, 1, 1, 1)
		if _, err := l.AppendAsLeader(b, h, LeaderAppend{LeaderEpoch: 1}); !errors.As(err, &failed) {
			t.Errorf("append after the failure: %v", err)
		}
		if syncs != 1 || told.Load() != 1 {
			t.Errorf("%s: tried %d times, told %d times", kind, syncs, told.Load())
		}
	}
}

func loaded(t testing.TB, o DirOptions) *Dir {
	t.Helper()
	d, err := OpenDir(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !d.Formatted() {
		if err := d.Format("cluster", 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := newMem(t)
		d := loaded(t, DirOptions{FS: fsys, Path: root, NodeID: 1})
		c := testConfig()
		c.FlushMessages = 1
		l, err := d.Create("t", 0, uuid.Random(), c)
		if err != nil {
			t.Fatal(err)
		}
		var woken atomic.Int64
		l.OnDurable(func() { woken.Add(1) })
		a := mustAppend(t, l, 3, 10, 1)
		synctest.Wait() // no time passes: the flush is not the one of the clock
		if l.Durable() != a.LastOffset+1 || woken.Load() == 0 {
			t.Errorf("durable to %d after the append of %+v, woken %d times", l.Durable(), a, woken.Load())
		}
		c.FlushMessages = 1 << 40
		l.SetConfig(c)
		mustAppend(t, l, 3, 10, 1)
		synctest.Wait()
		if l.Durable() != 3 {
			t.Errorf("durable to %d without a reason", l.Durable())
		}
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if l.Durable() != 6 {
			t.Errorf("durable to %d after a second", l.Durable())
		}
		if err := d.Close(context.Background(), 7, true); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := newMem(t)
		o := DirOptions{FS: fsys, Path: root, NodeID: 1, ClusterID: "cluster"}
		d := loaded(t, o)
		if _, err := OpenDir(context.Background(), o); !errors.Is(err, vfs.ErrLocked) {
			t.Errorf("opened twice: %v", err)
		}
		id := uuid.Random()
		a, err := d.Create("a", 0, id, testConfig())
		if err != nil {
			t.Fatal(err)
		}
		b, err := d.Create("b", 1, uuid.Random(), testConfig())
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, a, 5, 1, 1)
		if err := d.Delete(b); err != nil {
			t.Fatal(err)
		}
		if names := dirs(t, fsys); len(names) != 2 || !strings.HasPrefix(names[1], "b-1.") || !strings.HasSuffix(names[1], deleteDirSuffix) {
			t.Errorf("after the deletion there are %v", names)
		}
		time.Sleep(61 * time.Second)
		if names := dirs(t, fsys); len(names) != 1 {
			t.Errorf("a minute later there are %v", names)
		}
		d.SetHighWatermarks(func() map[TopicPartition]int64 { return map[TopicPartition]int64{{"a", 0}: 4} })
		if err := d.Close(context.Background(), 77, true); err != nil {
			t.Fatal(err)
		}
		marker, err := vfs.ReadFile(fsys, root+"/"+cleanShutdownFile)
		if err != nil || string(marker) != `{"version":0,"brokerEpoch":77}` {
			t.Errorf("marker is %q, %v", marker, err)
		}
		meta, err := vfs.ReadFile(fsys, root+"/a-0/"+partitionMetadataFile)
		if err != nil || string(meta) != "version: 0\ntopic_id: "+id.String() {
			t.Errorf("partition.metadata is %q, %v", meta, err)
		}
		points, err := vfs.ReadFile(fsys, root+"/"+recoveryPointFile)
		if err != nil || string(points) != "0\n1\na 0 5\n" {
			t.Errorf("recovery points are %q, %v", points, err)
		}
		d = loaded(t, o)
		if l := d.Log(TopicPartition{"a", 0}); d.CleanShutdownEpoch() != 77 || l == nil || l.TopicID() != id || l.End().Offset != 5 {
			t.Errorf("reopened: epoch %d, %+v", d.CleanShutdownEpoch(), l)
		}
		if hw := d.HighWatermarks()[TopicPartition{"a", 0}]; hw != 4 {
			t.Errorf("high watermark %d", hw)
		}
		if err := d.Close(context.Background(), 78, false); err != nil {
			t.Fatal(err)
		}
		o.ClusterID = "another"
		if _, err := OpenDir(context.Background(), o); err == nil || !strings.Contains(err.Error(), "belongs to cluster") {
			t.Errorf("another cluster's directory: %v", err)
		}
		o.ClusterID = ""
		d = loaded(t, o)
		if d.CleanShutdownEpoch() != -1 || d.ClusterID() != "cluster" {
			t.Errorf("after a kill: epoch %d", d.CleanShutdownEpoch())
		}
		if err := d.Close(context.Background(), 1, true); err != nil {
			t.Fatal(err)
		}
	})
}

func dirs(t testing.TB, fsys vfs.FS) (names []string) {
	t.Helper()
	entries, err := fsys.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}
