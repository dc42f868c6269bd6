package storage

import (
	"fmt"
	"sync"
	"testing"

	"ottla/internal/record"
	"ottla/internal/vfs"
)

// A cut is what Read gave, and how many file operations it took.
type cut struct {
	found bool // a batch, whether or not it may be read
	first int64
	pos   int64
	bytes string
	ops   int
}

// A reader counts the file operations of what it reads.
type reader struct {
	t   *testing.T
	l   *Log
	ops int
}

func (r *reader) read(from int64, maxBytes int, upTo Position, minOne bool) cut {
	r.t.Helper()
	before := r.ops
	s, err := r.l.Read(from, maxBytes, upTo, minOne)
	if err != nil {
		r.t.Fatalf("read at %d: %v", from, err)
	}
	defer s.Release()
	c := cut{found: s.h != nil, first: s.FirstOffset, pos: s.pos, ops: r.ops - before}
	b := make([]byte, s.Size())
	if _, err := s.ReadInto(b); err != nil {
		r.t.Fatal(err)
	}
	c.bytes = string(b)
	return c
}

// byIndex calls f with a log that does not know where its last batch is.
func (r *reader) byIndex(f func()) {
	known := r.l.end.Load()
	r.l.end.Store(&logEnd{known.Position, noLastBatch})
	f()
	r.l.end.Store(known)
}

// followed builds batches of three records each as a leader sends them, the first with the given offset, each next behind a gap.
func followed(t testing.TB, n int, base, gap int64) (b []byte) {
	t.Helper()
	for range n {
		next, h := build(t, record.BatchOptions{LeaderEpoch: 1, BaseOffset: base}, 3, 100, 1)
		b, base = append(b, next...), h.NextOffset()+gap
	}
	return b
}

// The last batch of a log, which is all that a reader at the tail reads, is found without any file operation, and it is what the index says.
func TestReadLastBatch(t *testing.T) {
	fsys := newMem(t)
	c := testConfig()
	c.IndexInterval = 500
	c.SegmentBytes = 8000
	r := &reader{t: t, l: open(t, fsys, LogOptions{Config: c})}
	fsys.Inject(func(vfs.Op) error {
		r.ops++
		return nil
	})
	follow := func(t *testing.T, b []byte) {
		t.Helper()
		if _, err := r.l.AppendAsFollower(b); err != nil {
			t.Fatal(err)
		}
	}
	truncate := func(t *testing.T, back int64) {
		t.Helper()
		if err := r.l.TruncateTo(r.l.End().Offset - back); err != nil {
			t.Fatal(err)
		}
	}
	roll := func(t *testing.T, add func()) {
		t.Helper()
		for n := len(r.l.Segments()); len(r.l.Segments()) == n; {
			add()
		}
	}
	for _, step := range []struct {
		name  string
		do    func(t *testing.T)
		looks bool // it is not known where the last batch is
	}{
		{name: "the first batch", do: func(t *testing.T) { mustAppend(t, r.l, 3, 100, 1) }},
		{name: "the second", do: func(t *testing.T) { mustAppend(t, r.l, 5, 10, 1) }},
		{name: "one behind index entries", do: func(t *testing.T) {
			for range 8 {
				mustAppend(t, r.l, 3, 100, 1)
			}
		}},
		{name: "of a follower", do: func(t *testing.T) { follow(t, followed(t, 1, r.l.End().Offset, 0)) }},
		{name: "of a follower that got several", do: func(t *testing.T) { follow(t, followed(t, 3, r.l.End().Offset, 0)) }},
		{name: "of a follower that got one cut off", do: func(t *testing.T) {
			b := followed(t, 3, r.l.End().Offset, 0)
			follow(t, b[:len(b)-1])
		}},
		{name: "behind a gap", do: func(t *testing.T) { follow(t, followed(t, 2, r.l.End().Offset+4, 7)) }},
		{name: "flushed", do: func(t *testing.T) {
			if err := r.l.Flush(r.l.End().Offset); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "truncated by a batch", do: func(t *testing.T) { truncate(t, 3) }, looks: true},
		{name: "appended behind that", do: func(t *testing.T) { mustAppend(t, r.l, 3, 50, 1) }},
		{name: "truncated within a batch", do: func(t *testing.T) { truncate(t, 1) }, looks: true},
		{name: "appended behind what is left of the offsets", do: func(t *testing.T) { mustAppend(t, r.l, 2, 50, 1) }},
		{name: "truncated at the end", do: func(t *testing.T) { truncate(t, 0) }},
		{name: "rolled", do: func(t *testing.T) { roll(t, func() { mustAppend(t, r.l, 3, 100, 1) }) }},
		{name: "one more in the new segment", do: func(t *testing.T) { mustAppend(t, r.l, 3, 100, 1) }},
		{name: "of a follower that rolled", do: func(t *testing.T) { roll(t, func() { follow(t, followed(t, 1, r.l.End().Offset, 0)) }) }},
		{name: "of a follower that rolled in the middle", do: func(t *testing.T) {
			follow(t, followed(t, 40, r.l.End().Offset, 1)) // more than a segment
		}},
		{name: "truncated to a segment before", looks: true, do: func(t *testing.T) {
			s := r.l.Segments()
			truncate(t, r.l.End().Offset-s[len(s)-1].BaseOffset+3)
		}},
		{name: "appended in that segment", do: func(t *testing.T) { mustAppend(t, r.l, 3, 50, 1) }},
		{name: "opened again", looks: true, do: func(t *testing.T) {
			if err := r.l.Close(); err != nil {
				t.Fatal(err)
			}
			r.l = open(t, fsys, LogOptions{Config: c, Clean: true})
		}},
		{name: "appended after that", do: func(t *testing.T) { mustAppend(t, r.l, 3, 100, 1) }},
		{name: "begun anew", do: func(t *testing.T) {
			if err := r.l.TruncateFullyAndStartAt(5000); err != nil {
				t.Fatal(err)
			}
			if got := r.read(5000, 100, r.l.End(), true); got != (cut{}) {
				t.Errorf("of an empty log %+v is read", got)
			}
			mustAppend(t, r.l, 2, 10, 1)
		}},
	} {
		t.Run(step.name, func(t *testing.T) {
			r.t = t
			step.do(t)
			r.lastBatch(step.looks)
		})
	}
}

// A placed batch is one in a segment's file.
type placed struct {
	record.Header
	pos   int64
	bytes string
}

// active returns the batches of the active segment, from its file alone.
func (r *reader) active() (batches []placed) {
	r.t.Helper()
	b, err := vfs.ReadFile(r.l.fs, r.l.active().path())
	if err != nil {
		r.t.Fatal(err)
	}
	for pos := 0; pos < len(b); {
		h, err := record.ParseHeader(b[pos:])
		if err != nil {
			r.t.Fatal(err)
		}
		batches = append(batches, placed{h, int64(pos), string(b[pos : pos+h.Size()])})
		pos += h.Size()
	}
	return batches
}

// lastBatch checks what is read of the last batch; looks says that it takes a look into files.
func (r *reader) lastBatch(looks bool) {
	t, l, end := r.t, r.l, r.l.End()
	t.Helper()
	batches := r.active()
	last := batches[len(batches)-1]
	size := last.Size()
	for _, from := range []int64{last.BaseOffset, (last.BaseOffset + last.NextOffset()) / 2, last.LastOffset()} {
		for _, upTo := range []Position{end, {Offset: end.Offset, Pos: -1}, {Offset: end.Offset + 9, SegmentBase: end.SegmentBase, Pos: end.Pos + 900}} {
			for _, maxBytes := range []int{0, size - 1, size, size + 1} {
				for _, minOne := range []bool{false, true} {
					name := fmt.Sprintf("Read(%d, %d, %+v, %v)", from, maxBytes, upTo, minOne)
					got, want := r.read(from, maxBytes, upTo, minOne), cut{found: true, first: last.BaseOffset, pos: last.pos, bytes: last.bytes}
					if maxBytes < size && !minOne {
						want.bytes = ""
					}
					if looks != (got.ops > 0) {
						t.Errorf("%s takes %d file operations", name, got.ops)
					}
					var indexed cut
					r.byIndex(func() { indexed = r.read(from, maxBytes, upTo, minOne) })
					if indexed.ops == 0 {
						t.Errorf("%s without knowing where the last batch is takes no file operation", name)
					}
					got.ops, indexed.ops = 0, 0
					if got != want || indexed != want {
						t.Errorf("%s gives %d bytes from offset %d at %d, by the index %d from %d at %d, want %d from %d at %d", name,
							len(got.bytes), got.first, got.pos, len(indexed.bytes), indexed.first, indexed.pos, len(want.bytes), want.first, want.pos)
					}
				}
			}
		}
	}
	ops := r.ops
	p, err := l.Position(last.BaseOffset)
	if want := (Position{last.BaseOffset, end.SegmentBase, int32(last.pos)}); err != nil || p != want || looks != (r.ops > ops) {
		t.Errorf("the last batch is at %+v, want %+v (%v), found by %d file operations", p, want, err, r.ops-ops)
	}
	inside := Position{last.BaseOffset + 1, p.SegmentBase, p.Pos}
	if got := r.read(last.BaseOffset, 1<<20, inside, true); got.found {
		t.Errorf("%d bytes from offset %d are read of the last batch, which is not to be seen", len(got.bytes), got.first)
	}
	if last.NextOffset() < end.Offset { // a batch that a truncation met is gone whole
		if got := r.read(end.Offset-1, 1<<20, end, true); got.found {
			t.Errorf("%d bytes from offset %d are read from behind the last batch", len(got.bytes), got.first)
		}
	}
	if len(batches) == 1 {
		return
	}
	// What begins before the last batch is as ever.
	before := batches[len(batches)-2]
	type ask struct {
		from int64
		upTo Position
		want cut
	}
	asks := []ask{
		{before.LastOffset(), end, cut{found: true, first: before.BaseOffset, pos: before.pos, bytes: before.bytes + last.bytes}},
		{before.LastOffset(), p, cut{found: true, first: before.BaseOffset, pos: before.pos, bytes: before.bytes}},
	}
	if gap := before.NextOffset(); gap < last.BaseOffset {
		asks = append(asks, ask{gap, end, cut{found: true, first: last.BaseOffset, pos: last.pos, bytes: last.bytes}})
	}
	for _, x := range asks {
		got := r.read(x.from, 1<<20, x.upTo, true)
		got.ops = 0
		if got != x.want {
			t.Errorf("from %d to %+v %d bytes from offset %d at %d are read, want %d from %d at %d",
				x.from, x.upTo, len(got.bytes), got.first, got.pos, len(x.want.bytes), x.want.first, x.want.pos)
		}
	}
}

// A reader that looked at the log's end just before it was truncated finds nothing where the last batch was.
func TestReadWhileTruncated(t *testing.T) {
	l := open(t, newMem(t), LogOptions{})
	for range 3 {
		mustAppend(t, l, 3, 100, 1)
	}
	end, s := l.end.Load(), l.active()
	for _, to := range []int64{8, 6, 4, 3} {
		if err := l.TruncateTo(to); err != nil {
			t.Fatal(err)
		}
		got, err := s.read(6, 1<<20, end.Position, end, true)
		if err != nil || got.h != nil {
			t.Errorf("truncated to %d: %d bytes from offset %d are read, %v", to, got.Size(), got.FirstOffset, err)
		}
		got.Release()
	}
}

// A reader at the tail meets whole batches while others are appended, and segments rolled.
func TestTail(t *testing.T) {
	c := testConfig()
	c.SegmentBytes = 8000
	l := open(t, vfs.NewMem(), LogOptions{Config: c})
	mustAppend(t, l, 3, 100, 1)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var b []byte
			for ended := false; !ended && !t.Failed(); {
				select {
				case <-done:
					ended = true // after one more, of a log at rest
				default:
				}
				offset := l.End().Offset - 1
				var err error
				if b, err = l.Batch(offset, b); err != nil {
					t.Errorf("batch at %d: %v", offset, err)
					return
				}
				if h, err := record.ParseHeader(b); err != nil || h.BaseOffset > offset || h.LastOffset() < offset {
					t.Errorf("offset %d is read from batch [%d, %d], %v", offset, h.BaseOffset, h.LastOffset(), err)
				}
			}
		})
	}
	for i := range 1000 {
		if i%2 == 0 {
			mustAppend(t, l, 1+i%5, 100, 1)
		} else if _, err := l.AppendAsFollower(followed(t, 1+i%3, l.End().Offset, 0)); err != nil {
			t.Error(err)
			break
		}
	}
	close(done)
	wg.Wait()
}
