package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"ottla/internal/record"
	"ottla/internal/vfs"
)

// batch builds one batch of n records, each with a value of size bytes, all at timestamp ts.
func batch(t testing.TB, n, size int, ts int64) ([]byte, record.Header) {
	t.Helper()
	return build(t, record.BatchOptions{}, n, size, ts)
}

func build(t testing.TB, o record.BatchOptions, n, size int, ts int64) ([]byte, record.Header) {
	t.Helper()
	b := record.NewBuilder(nil, o)
	for i := range n {
		b.Append(record.Record{Timestamp: ts, Key: fmt.Appendf(nil, "k%d", i), Value: bytes.Repeat([]byte{'v'}, size)})
	}
	raw := b.Bytes()
	h, err := record.ParseHeader(raw)
	if err != nil {
		t.Fatal(err)
	}
	return raw, h
}

func mustAppend(t testing.TB, l *Log, n, size int, ts int64) Appended {
	t.Helper()
	b, h := batch(t, n, size, ts)
	a, err := l.AppendAsLeader(b, h, LeaderAppend{LeaderEpoch: 1, Now: ts})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func testConfig() LogConfig {
	c := DefaultLogConfig()
	c.SegmentAge = math.MaxInt64
	return c
}

func open(t testing.TB, fsys vfs.FS, o LogOptions) *Log {
	t.Helper()
	o.FS = fsys
	if o.Path == "" {
		o.Path = "/data/t-0"
	}
	o.Topic = "t"
	if o.Config == (LogConfig{}) {
		o.Config = testConfig()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := OpenLog(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// offsets reads the whole log and returns the base offsets of its batches, checking their CRCs on the way.
func offsets(t testing.TB, l *Log) []int64 {
	t.Helper()
	var out []int64
	for at := l.StartOffset(); at < l.End().Offset; {
		b, err := l.Batch(at, nil)
		if err != nil {
			t.Fatalf("batch at %d: %v", at, err)
		}
		h, err := record.ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, h.BaseOffset)
		at = h.NextOffset()
	}
	return out
}

func TestAppendAndRead(t *testing.T) {
	l := open(t, vfs.NewMem(), LogOptions{})
	for i := range 100 {
		a := mustAppend(t, l, 3, 100, int64(1000+i))
		if a.FirstOffset != int64(3*i) || a.LastOffset != int64(3*i+2) || a.End.Offset != int64(3*i+3) {
			t.Fatalf("append %d went to %+v", i, a)
		}
	}
	for _, from := range []int64{0, 1, 2, 150, 298, 299} {
		s, err := l.Read(from, 1<<20, l.End(), true)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, s.Size())
		if _, err := s.ReadInto(b); err != nil {
			t.Fatal(err)
		}
		var sent bytes.Buffer
		if _, err := s.SendTo(&sent); err != nil || !bytes.Equal(sent.Bytes(), b) {
			t.Errorf("SendTo and ReadInto differ: %v", err)
		}
		s.Release()
		h, err := record.ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		if want := from / 3 * 3; h.BaseOffset != want || h.LeaderEpoch != 1 {
			t.Errorf("read at %d gave batch at %d, want %d", from, h.BaseOffset, want)
		}
		if err := record.CheckCRC(b); err != nil {
			t.Error(err)
		}
	}
	if s, err := l.Read(300, 100, l.End(), true); err != nil || s.Size() != 0 {
		t.Errorf("read at the end: %d bytes, %v", s.Size(), err)
	}
	var out *OffsetOutOfRangeError
	if _, err := l.Read(301, 100, l.End(), true); !errors.As(err, &out) || out.End != 300 {
		t.Errorf("read behind the end: %v", err)
	}
}

func TestReadBounds(t *testing.T) {
	l := open(t, vfs.NewMem(), LogOptions{})
	var size int
	for range 10 {
		b, h := batch(t, 1, 1000, 1)
		size = len(b)
		if _, err := l.AppendAsLeader(b, h, LeaderAppend{}); err != nil {
			t.Fatal(err)
		}
	}
	hw, err := l.Position(4)
	if err != nil || int(hw.Pos) != 4*size {
		t.Fatalf("position of 4 is %+v, %v", hw, err)
	}
	for _, c := range []struct {
		from     int64
		max      int
		upTo     Position
		minOne   bool
		wantSize int
	}{
		{0, 10, l.End(), true, size},
		{0, 10, l.End(), false, 0},
		{0, 1 << 20, hw, true, 4 * size},
		{3, 1 << 20, hw, true, size},
		{4, 1 << 20, hw, true, 0},
		{0, 1 << 20, Position{Offset: 4, Pos: -1}, true, 4 * size},
		{9, 1 << 20, Position{Offset: 99, Pos: -1}, true, size},
	} {
		s, err := l.Read(c.from, c.max, c.upTo, c.minOne)
		if err != nil || s.Size() != c.wantSize {
			t.Errorf("Read(%d, %d, %+v, %v) is %d bytes, %v; want %d", c.from, c.max, c.upTo, c.minOne, s.Size(), err, c.wantSize)
		}
		s.Release()
	}
}

func TestRollAndReopen(t *testing.T) {
	fsys := vfs.NewMem()
	c := testConfig()
	c.SegmentBytes = 20_000
	c.IndexInterval = 500
	l := open(t, fsys, LogOptions{Config: c})
	for i := range 200 {
		mustAppend(t, l, 2, 200, int64(i))
	}
	if n := len(l.Segments()); n < 5 {
		t.Fatalf("%d segments", n)
	}
	want := offsets(t, l)
	if err := l.Flush(l.End().Offset); err != nil {
		t.Fatal(err)
	}
	if l.Durable() != 400 {
		t.Errorf("durable to %d", l.Durable())
	}
	if got := offsets(t, l); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after flush %v, want %v", got, want)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, clean := range []bool{true, false} {
		l = open(t, fsys, LogOptions{Config: c, Clean: clean})
		if got := offsets(t, l); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("clean %v: %v, want %v", clean, got, want)
		}
		if l.End().Offset != 400 || l.LatestEpoch() != 1 {
			t.Errorf("clean %v: end %d epoch %d", clean, l.End().Offset, l.LatestEpoch())
		}
		mustAppend(t, l, 2, 200, 1000)
		if err := l.TruncateTo(400); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOffsetForTimestamp(t *testing.T) {
	c := testConfig()
	c.SegmentBytes = 10_000
	c.IndexInterval = 300
	l := open(t, vfs.NewMem(), LogOptions{Config: c})
	for i := range 100 {
		mustAppend(t, l, 2, 200, int64(1000+10*i))
	}
	for _, step := range []string{"live", "flushed"} {
		for _, c := range []struct{ ts, offset, at int64 }{{0, 0, 1000}, {1000, 0, 1000}, {1001, 2, 1010}, {1500, 100, 1500}, {1985, 198, 1990}} {
			offset, ts, epoch, found, err := l.OffsetForTimestamp(c.ts)
			if err != nil || !found || offset != c.offset || ts != c.at || epoch != 1 {
				t.Errorf("%s: timestamp %d is at %d (%d, epoch %d, %v), %v; want %d", step, c.ts, offset, ts, epoch, found, err, c.offset)
			}
		}
		if _, _, _, found, err := l.OffsetForTimestamp(1991); found || err != nil {
			t.Errorf("%s: found a timestamp that is not there, %v", step, err)
		}
		if offset, ts, _, found, err := l.MaxTimestamp(); offset != 198 || ts != 1990 || !found || err != nil {
			t.Errorf("%s: max timestamp %d at %d, %v", step, ts, offset, err)
		}
		if err := l.Flush(l.End().Offset); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRollByTime(t *testing.T) {
	c := testConfig()
	c.SegmentAge = time.Second
	l := open(t, vfs.NewMem(), LogOptions{Config: c})
	for _, ts := range []int64{1000, 1900, 2000, 2001, 1500, 3001, 3002} {
		mustAppend(t, l, 1, 10, ts)
	}
	var bases []int64
	for _, s := range l.Segments() {
		bases = append(bases, s.BaseOffset)
	}
	// waited > segment.ms since the first batch of the segment: 2001 after 1000, 3002 after 2001.
	if fmt.Sprint(bases) != "[0 3 6]" {
		t.Errorf("segments begin at %v", bases)
	}
}

// A disk that hangs holds Close up no longer than the caller wants to wait, and nobody else gets the directory until it answers.
func TestCloseOfHungDir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		fsys := newMem(t)
		o := DirOptions{FS: fsys, Path: root, NodeID: 1}
		d, err := OpenDir(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Load(ctx); err != nil {
			t.Fatal(err)
		}
		l, err := d.Create("t", 0, topicID, testConfig())
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, 1, 10, 1)
		thaw := make(chan struct{})
		fsys.Inject(func(op vfs.Op) error {
			if op.Kind == vfs.OpSync {
				<-thaw
			}
			return nil
		})
		time.Sleep(2 * time.Second) // until a flush waits for the disk
		began := time.Now()
		patience, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := d.Close(patience, 1, true); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 5*time.Second {
			t.Errorf("closing took %v and ended with %v", time.Since(began), err)
		}
		if _, err := OpenDir(ctx, o); !errors.Is(err, vfs.ErrLocked) {
			t.Errorf("opened again while the disk hangs: %v", err)
		}
		close(thaw)
		synctest.Wait()
		d, err = OpenDir(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		if d.Clean() {
			t.Error("the shutdown counts as clean")
		}
		if err := d.Close(ctx, 1, false); err != nil {
			t.Error(err)
		}
	})
}
