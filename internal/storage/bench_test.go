package storage

import (
	"fmt"
	"io"
	"math"
	"testing"

	"ottla/internal/record"
	"ottla/internal/vfs"
)

func benchLog(b *testing.B) *Log {
	l, err := OpenLog(LogOptions{FS: vfs.OS, Path: b.TempDir() + "/t-0", Topic: "t", Config: testConfig()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Error(err)
		}
	})
	return l
}

func BenchmarkAppendAsLeader(b *testing.B) {
	for _, size := range []int{100, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			l := benchLog(b)
			raw, h := build(b, record.BatchOptions{Producer: &record.ProducerState{ID: 1}}, max(1, size/1024), min(size, 1024), 1)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.AppendAsLeader(raw, h, LeaderAppend{LeaderEpoch: 1, Now: 1, Coordinator: true}); err != nil {
					b.Fatal(err)
				}
				if l.End().Pos > 900<<20 { // keep the disk free
					b.StopTimer()
					if err := l.TruncateFullyAndStartAt(0); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	l := benchLog(b)
	raw, h := batch(b, 10, 100, 1)
	for range 50_000 {
		if _, err := l.AppendAsLeader(raw, h, LeaderAppend{LeaderEpoch: 1, Now: 1}); err != nil {
			b.Fatal(err)
		}
	}
	end := l.End()
	for _, where := range []string{"spread", "tail"} {
		b.Run(where, func(b *testing.B) {
			b.ReportAllocs()
			at := int64(0)
			for b.Loop() {
				from := end.Offset - 10
				if where == "spread" {
					at = (at + 7919*10) % end.Offset
					from = at
				}
				s, err := l.Read(from, 1<<20, end, true)
				if err != nil {
					b.Fatal(err)
				}
				s.Release()
			}
		})
	}
	b.Run("send", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(1 << 20)
		for b.Loop() {
			s, err := l.Read(0, 1<<20, end, true)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := s.SendTo(io.Discard); err != nil {
				b.Fatal(err)
			}
			s.Release()
		}
	})
}

// BenchmarkIndexLookup finds offsets in the index of a segment: while it is in memory, when most of it was written to the file,
// and when the segment is sealed and its index mapped.
func BenchmarkIndexLookup(b *testing.B) {
	c := testConfig()
	c.IndexInterval = 1 // an entry a batch
	l := open(b, vfs.OS, LogOptions{Path: b.TempDir() + "/t-0", Config: c})
	raw, h := batch(b, 1, 10, 1)
	for range 200_000 {
		if _, err := l.AppendAsLeader(raw, h, LeaderAppend{LeaderEpoch: 1, Now: 1}); err != nil {
			b.Fatal(err)
		}
	}
	s := l.active()
	lookup := func(b *testing.B) {
		files, err := s.acquire()
		if err != nil {
			b.Fatal(err)
		}
		defer files.release()
		b.ReportAllocs()
		key := int64(0)
		for b.Loop() {
			key = (key + 7919) % 190_000
			e, ok, err := s.offsets.floor(files, key)
			if err != nil || !ok && key > 1 || e.key > key {
				b.Fatalf("the entry below %d is %v, %v, %v", key, e, ok, err)
			}
		}
	}
	b.Run("memory", lookup)
	if err := l.Flush(l.End().Offset); err != nil {
		b.Fatal(err)
	}
	b.Run("file", lookup)
	if _, err := l.roll(l.End().Offset, 1); err != nil {
		b.Fatal(err)
	}
	mustAppend(b, l, 1, 10, 1) // so that there is something to flush
	if err := l.Flush(l.End().Offset); err != nil {
		b.Fatal(err)
	}
	b.Run("mapped", lookup)
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRecover measures how fast a log is read again after a crash.
func BenchmarkRecover(b *testing.B) {
	c := testConfig()
	path := b.TempDir() + "/t-0"
	l, err := OpenLog(LogOptions{FS: vfs.OS, Path: path, Topic: "t", Config: c})
	if err != nil {
		b.Fatal(err)
	}
	raw, h := batch(b, 64, 1024, 1)
	for l.End().Pos < 200<<20 {
		if _, err := l.AppendAsLeader(raw, h, LeaderAppend{LeaderEpoch: 1, Now: 1}); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(l.Size())
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		l, err := OpenLog(LogOptions{FS: vfs.OS, Path: path, Topic: "t", Config: c})
		if err != nil {
			b.Fatal(err)
		}
		l.abandon()
	}
}

// TestAllocations holds the hot paths to what they may allocate a call.
func TestAllocations(t *testing.T) {
	c := testConfig()
	c.IndexInterval = math.MaxInt32 // an index entry takes a chunk of memory now and then
	l := open(t, vfs.OS, LogOptions{Path: t.TempDir() + "/t-0", Config: c})
	raw, h := build(t, record.BatchOptions{Producer: &record.ProducerState{ID: 1}}, 100, 100, 1)
	appendOne := func() {
		if _, err := l.AppendAsLeader(raw, h, LeaderAppend{LeaderEpoch: 1, Coordinator: true}); err != nil {
			t.Fatal(err)
		}
	}
	appendOne()
	if n := testing.AllocsPerRun(100, appendOne); n > 3 {
		t.Errorf("an append allocates %.1f times", n)
	}
	end := l.End()
	if n := testing.AllocsPerRun(100, func() {
		s, err := l.Read(end.Offset-100, 1<<20, end, true)
		if err != nil {
			t.Fatal(err)
		}
		s.Release()
	}); n > 0 {
		t.Errorf("a read allocates %.1f times", n)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
