package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"ottla/internal/vfs"
)

// Scrubbing: rot below the recovery point is met by nobody but readers, since a start does not read there again. So each cold
// segment is read from end to end now and then, slowly, and its batches are checked. What is rotten stays in the file; of
// those offsets readers get a *CorruptError, and of the rest what they ask for. Nothing is written down: after a restart the rot
// is found again.

const (
	// defaultScrubInterval is how long a segment that was read, or sealed, is left alone.
	defaultScrubInterval = 7 * 24 * time.Hour
	// defaultScrubRate is some 7 % of what a hard disk reads, and 6 TB in the interval.
	defaultScrubRate = 10 << 20
)

// A rot is a stretch of a sealed segment's file that holds no sound batch.
type rot struct {
	from, to int64 // bytes
	damage   Damage
}

// scrub reads the cold segments that are due, one after the other, until none is left or ctx ends.
func (d *Dir) scrub(ctx context.Context) {
	for _, l := range d.Logs() {
		for _, s := range *l.segments.Load() {
			if d.health.err() != nil || ctx.Err() != nil {
				return
			}
			if !s.scrubDue(time.Now().UnixMilli(), d.o.ScrubInterval.Milliseconds()) {
				continue
			}
			if err := l.scrub(ctx, s, d.o.ScrubRate); err == nil {
				d.metrics.scrubbed.Add(float64(s.size.Load()))
			} else if ctx.Err() == nil && !errors.Is(err, ErrClosed) {
				l.logger.Error("segment could not be read to see whether it is sound", "segment", s.path(), "error", err.Error())
			}
		}
	}
}

// scrubDue reports whether the segment is cold (on the disk, and its files closed since nobody reads it) and was not scrubbed within the
// interval, ms.
func (s *segment) scrubDue(now, interval int64) bool {
	if !s.sealed.Load() || s.deleted.Load() || s.flushed.Load() < s.size.Load() || now-s.scrubbed.Load() < interval {
		return false
	}
	return s.handle.Load() == nil
}

// scrub checks every batch of a sealed segment, reading so many bytes a second at most, and notes what is rotten.
func (l *Log) scrub(ctx context.Context, s *segment, rate int64) error {
	s.scrubbed.Store(time.Now().UnixMilli())
	h, err := s.acquire()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	defer h.release()
	cuts, size := s.cuts.Load(), s.size.Load()
	found, err := s.findRot(newScanner(&pacedFile{h.log, ctx, rate}, s.base, size), 0, size, s.base)
	err = errors.Join(err, h.log.Forget())
	s.drop()
	if len(found) > 0 {
		err = errors.Join(err, l.noteRot(s, cuts, found))
	}
	return err
}

// findRot checks the batches in bytes [pos, end) of the segment's file, the first of which has offset next or more. What is known to
// be rotten it passes over.
func (s *segment) findRot(sc *scanner, pos, end, next int64) (found []rot, err error) {
	for pos < end {
		if known := s.rotAt(pos); known != nil {
			pos, next = known.to, known.damage.To
			continue
		}
		header, reason, err := sc.batch(pos, next)
		if err != nil {
			return found, err
		}
		if reason == "" {
			pos, next = pos+int64(header.Size()), header.NextOffset()
			continue
		}
		r := rot{from: pos, to: end, damage: Damage{From: next, To: next, Reason: reason}}
		to, err := sc.resync(pos+1, next)
		if err != nil {
			return found, err
		}
		if to >= 0 {
			after, _, err := sc.batch(to, next)
			if err != nil {
				return found, err
			}
			r.to, r.damage.To = to, after.BaseOffset
		}
		found = append(found, r)
		pos, next = r.to, r.damage.To
	}
	return found, nil
}

// noteRot has readers told of what is rotten in a segment that had been cut so many times before it was read.
func (l *Log) noteRot(s *segment, cuts int32, found []rot) error {
	if err := l.lock(); err != nil {
		return err
	}
	defer l.unlock()
	if s.cuts.Load() != cuts {
		s.scrubbed.Store(0)
		return nil
	}
	segments := *l.segments.Load()
	i := segmentAt(segments, s.base)
	if i < 0 || segments[i] != s || i == len(segments)-1 {
		return nil
	}
	for j := range found {
		if r := &found[j]; r.to == s.size.Load() { // nothing sound behind it in this segment
			r.damage.To = segments[i+1].base
		}
	}
	var all []rot
	if known := s.rotten.Load(); known != nil {
		all = append(all, *known...)
	}
	all = append(all, found...)
	slices.SortFunc(all, func(a, b rot) int { return int(max(-1, min(1, a.from-b.from))) })
	s.rotten.Store(&all)
	for _, r := range found {
		l.addDamage(r.damage)
		l.health.metrics.foundRot()
		l.logger.Error("records on the disk are rotten; who reads them is told so, all others can be read", "segment", s.path(),
			"position", r.from, "bytes", r.to-r.from, "from", r.damage.From, "to", r.damage.To, "reason", r.damage.Reason)
	}
	return nil
}

// rotAt returns the known rot that begins at byte pos, nil if there is none.
func (s *segment) rotAt(pos int64) *rot {
	if known := s.rotten.Load(); known != nil {
		for i := range *known {
			if r := &(*known)[i]; r.from == pos {
				return r
			}
		}
	}
	return nil
}

// rotHolding returns the known rot that offset lies in, nil if there is none.
func (s *segment) rotHolding(offset int64) *rot {
	if known := s.rotten.Load(); known != nil {
		for i := range *known {
			if r := &(*known)[i]; offset >= r.damage.From && offset < r.damage.To {
				return r
			}
		}
	}
	return nil
}

// checkRot returns a *CorruptError if offset is among those that are known to be rotten.
func (s *segment) checkRot(offset int64) error {
	if r := s.rotHolding(offset); r != nil {
		return &CorruptError{Path: s.path(), Pos: r.from, Reason: r.damage.Reason}
	}
	return nil
}

// cutRot forgets the rot that a truncation to byte pos took away. The append slot is held.
func (s *segment) cutRot(pos int64) {
	s.cuts.Add(1)
	if known := s.rotten.Load(); known != nil {
		kept := slices.DeleteFunc(slices.Clone(*known), func(r rot) bool { return r.to > pos })
		s.rotten.Store(&kept)
	}
}

// soundUpTo returns up to where the file can be read from byte pos on, at most end.
func (s *segment) soundUpTo(pos, end int64) int64 {
	if known := s.rotten.Load(); known != nil {
		for _, r := range *known {
			if r.from >= pos {
				return min(end, r.from)
			}
		}
	}
	return end
}

// A pacedFile reads no more than rate bytes a second, and no more at all once ctx has ended.
type pacedFile struct {
	vfs.File
	ctx  context.Context
	rate int64
}

func (f *pacedFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	if n == 0 {
		return n, err
	}
	t := time.NewTimer(time.Duration(n) * time.Second / time.Duration(f.rate))
	defer t.Stop()
	select {
	case <-t.C:
		return n, err
	case <-f.ctx.Done():
		return 0, fmt.Errorf("read %s: %w", f.Name(), f.ctx.Err())
	}
}
