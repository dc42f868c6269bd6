package storage

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ottla/internal/record"
)

// opened opens the directory, with so many bytes a second for scrubbing, calls f with the log, and closes it.
func (p *patient) opened(rate int64, f func(d *Dir, l *Log)) {
	p.t.Helper()
	o := dirOptions(p.fs)
	o.ScrubRate, o.ScrubInterval = rate, 20*time.Minute
	d, err := OpenDir(context.Background(), o)
	if err != nil {
		p.t.Fatal(err)
	}
	logs, err := d.Load(context.Background())
	if err != nil {
		p.t.Fatal(err)
	}
	f(d, logs[0])
	if err := d.Close(context.Background(), 44, true); err != nil {
		p.t.Error(err)
	}
}

// reads reads the log as a consumer does, jumping over what it gets errors for, and returns the offsets [from, to) of the holes. What it
// reads must be what was appended.
func (p *patient) reads(l *Log) (holes [][2]int64) {
	t := p.t
	t.Helper()
	for offset := int64(0); offset < p.end; {
		s, err := l.Read(offset, 20_000, l.End(), true)
		var c *CorruptError
		if errors.As(err, &c) {
			if n := len(holes); n > 0 && holes[n-1][1] == offset {
				holes[n-1][1]++
			} else {
				holes = append(holes, [2]int64{offset, offset + 1})
			}
			offset++
			continue
		}
		if err != nil || s.Size() == 0 {
			t.Fatalf("reading offset %d gives %d bytes (%v)", offset, s.Size(), err)
		}
		b := make([]byte, s.Size())
		if _, err := s.ReadInto(b); err != nil {
			t.Fatal(err)
		}
		s.Release()
		first := true
		for len(b) >= record.HeaderSize {
			h, err := record.ParseHeader(b)
			if err != nil {
				t.Fatalf("bytes read at offset %d: %v", offset, err)
			}
			if h.Size() > len(b) {
				break
			}
			if want := p.batches[h.BaseOffset/perBatch]; !bytes.Equal(b[:h.Size()], want) {
				t.Fatalf("the batch read at offset %d is not what was appended", h.BaseOffset)
			}
			if first && h.BaseOffset > offset {
				t.Fatalf("reading offset %d gives the batch at %d", offset, h.BaseOffset)
			}
			first = false
			offset, b = h.NextOffset(), b[h.Size():]
		}
	}
	return holes
}

// What rots below the recovery point, where a start does not look, is found before it is read, and costs its own offsets only.
func TestScrub(t *testing.T) {
	// hurt changes bytes of segment 0, which holds batch i at the position that at returns.
	type hurt func(b []byte, at func(i int) int)
	const last = 59 // batch of segment 0
	for _, test := range []struct {
		name     string
		hurt     hurt
		from, to int64
	}{
		{"a flipped bit", func(b []byte, at func(int) int) { b[at(20)+300] ^= 4 }, 200, 210},
		{"the length in a header", func(b []byte, at func(int) int) { b[at(20)+8] ^= 0x40 }, 200, 210},
		{"the offset in a header", func(b []byte, at func(int) int) { b[at(20)+7]-- }, 200, 210},
		{"the first batch", func(b []byte, at func(int) int) { b[at(0)+100]++ }, 0, 10},
		{"a sector of zeros over two batches", func(b []byte, at func(int) int) { clear(b[at(21)-100:][:512]) }, 200, 220},
		{"the last batch", func(b []byte, at func(int) int) { b[at(last)+100]++ }, last * perBatch, (last + 1) * perBatch},
	} {
		for _, clean := range []bool{true, false} {
			t.Run(test.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := admit(t, clean, allBatch*perBatch)
					if p.bases[1] != (last+1)*perBatch {
						t.Fatalf("segment 1 begins at %d", p.bases[1])
					}
					b := p.read(p.file(0, logSuffix))
					test.hurt(b, func(i int) int { return bytes.Index(b, p.batches[i]) })
					p.write(p.file(0, logSuffix), b)
					p.opened(0, func(d *Dir, l *Log) {
						time.Sleep(5 * time.Minute)
						p.damage(l, []Damage{{From: test.from, To: test.to}})
						if holes := p.reads(l); len(holes) != 1 || holes[0] != [2]int64{test.from, test.to} {
							t.Errorf("readers miss the offsets %v, want [%d %d]", holes, test.from, test.to)
						}
						time.Sleep(40 * time.Minute)
						p.damage(l, []Damage{{From: test.from, To: test.to}}) // not twice
						// A replica with peers cuts what is rotten off and fetches it again.
						if err := l.TruncateTo(test.from); err != nil {
							t.Fatal(err)
						}
						for _, b := range p.batches[test.from/perBatch:] {
							if _, err := l.AppendAsFollower(b); err != nil {
								t.Fatal(err)
							}
						}
						if holes := p.reads(l); len(holes) > 0 {
							t.Errorf("readers still miss the offsets %v", holes)
						}
						if err := l.Flush(p.end); err != nil {
							t.Fatal(err)
						}
						time.Sleep(40 * time.Minute)
						p.damage(l, []Damage{{From: test.from, To: test.to}})
					})
				})
			})
		}
	}
}

// Around what is rotten the indexes are built anew as far as the segment reaches, and an entry that leads into it misleads nobody.
func TestIndexesAroundRot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admit(t, true, 0)
		b := p.read(p.file(0, logSuffix))
		for i := range 5 { // headers of no batch
			b[bytes.Index(b, p.batches[20+i])+8] ^= 0x40
		}
		p.write(p.file(0, logSuffix), b)
		p.opened(0, func(d *Dir, l *Log) {
			time.Sleep(5 * time.Minute)
			p.damage(l, []Damage{{From: 200, To: 250}})
			s := (*l.segments.Load())[0]
			p.reads(l)
			if s.rebuild.Load() {
				t.Error("an index entry that leads into the rot counts as wrong")
			}
			s.doubt()
			if err := l.Flush(l.End().Offset); err != nil {
				t.Fatal(err)
			}
			p.batchesAre(l, prognosis{end: p.end, missing: []int{20, 21, 22, 23, 24}})
		})
	})
}

// A reader in a gap between two segments is not led over what is rotten behind it.
func TestRotBehindGap(t *testing.T) {
	fsys := newMem(t)
	c := testConfig()
	c.SegmentBytes = 520
	l := open(t, fsys, LogOptions{Config: c})
	for _, offset := range []int64{0, 10, 30, 40, 50, 60} { // compaction took 20 to 29
		b, _ := build(t, record.BatchOptions{BaseOffset: offset}, 10, 10, 1)
		if _, err := l.AppendAsFollower(b); err != nil {
			t.Fatal(err)
		}
	}
	s := (*l.segments.Load())[1]
	if s.base != 30 {
		t.Fatalf("the second segment begins at %d", s.base)
	}
	if err := l.Flush(70); err != nil {
		t.Fatal(err)
	}
	f, err := fsys.OpenReadWrite(s.path())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{1, 2, 3}, 70); err != nil {
		t.Fatal(err)
	}
	if err := l.scrub(t.Context(), s, 1<<40); err != nil {
		t.Fatal(err)
	}
	if d := l.Damage(); len(d) != 1 || d[0].From != 30 || d[0].To != 40 {
		t.Fatalf("damage %+v", d)
	}
	var corrupt *CorruptError
	if s, err := l.Read(25, 1000, l.End(), true); !errors.As(err, &corrupt) {
		t.Errorf("a read at offset 25 gives the batch at %d, %v", s.FirstOffset, err)
	}
}

// Scrubbing takes no more than its share of the disk, and leaves alone what is appended to, and what was read or sealed lately.
func TestScrubPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := admit(t, true, 0)
		p.flip(1, 60)
		p.flip(2, 125)
		p.opened(10_000, func(d *Dir, l *Log) {
			began := time.Now()
			for len(l.Damage()) == 0 && time.Since(began) < time.Hour {
				time.Sleep(time.Second)
			}
			// After the first minute segment 0 takes 7 s, and so does segment 1.
			if took := time.Since(began); took < 73*time.Second || took > 77*time.Second {
				t.Errorf("the rot in segment 1 was found after %v", took)
			}
			time.Sleep(5 * time.Minute)
			if n := len(l.Damage()); n != 1 {
				t.Errorf("%d stretches were found: the active segment was read", n)
			}
			p.flip(0, 3)
			time.Sleep(10 * time.Minute)
			if n := len(l.Damage()); n != 1 {
				t.Error("segment 0 was read again before it was due")
			}
			for range 60 { // it is warm
				if s, err := l.Read(0, 1, l.End(), true); err != nil {
					t.Fatal(err)
				} else {
					s.Release()
				}
				time.Sleep(30 * time.Second)
			}
			if n := len(l.Damage()); n != 1 {
				t.Error("segment 0 was read while others read it")
			}
			time.Sleep(3 * time.Minute)
			if n := len(l.Damage()); n != 2 {
				t.Error("segment 0 was not read again")
			}
		})
	})
}
