package storage

import (
	"fmt"
	"time"
)

// DeleteRecordsBefore raises the log start offset to offset, which must lie between the log start and the log end, and
// deletes the segments that are all below it. It returns the log start offset then: an offset below it changes nothing.
// Source: KIP-107.
func (l *Log) DeleteRecordsBefore(offset int64) (start int64, err error) {
	if err := l.lock(); err != nil {
		return 0, err
	}
	defer l.unlock()
	if end := l.End().Offset; offset > end {
		return 0, &OffsetOutOfRangeError{Offset: offset, Start: l.StartOffset(), End: end}
	}
	l.raiseStart(offset)
	n := 0
	segments := *l.segments.Load()
	for n < len(segments)-1 && segments[n+1].base <= offset {
		n++
	}
	return l.StartOffset(), l.deleteOldest(n)
}

// raiseStart moves the log start offset up to offset.
func (l *Log) raiseStart(offset int64) {
	if offset <= l.start.Load() {
		return
	}
	l.start.Store(offset)
	if l.epochs.truncateStart(offset) {
		l.epochsChanged.Store(true)
	}
}

// Retain deletes whole segments that retention.ms and retention.bytes no longer keep, all of them below the high
// watermark hw, and those below the log start. Without cleanup.policy=delete only the latter. It returns how many went.
func (l *Log) Retain(now time.Time, hw int64) (deleted int, err error) {
	if err := l.lock(); err != nil {
		return 0, err
	}
	defer l.unlock()
	c := l.Config()
	n, err := l.belowStart()
	if err != nil {
		return 0, err
	}
	if c.CleanupDelete {
		byTime, err := l.expired(c, now.UnixMilli(), hw)
		if err != nil {
			return 0, err
		}
		n = max(n, byTime, l.oversized(c, hw))
	}
	segments := *l.segments.Load()
	if n == 0 {
		return 0, nil
	}
	if n == len(segments) { // the active one too: a new one takes its place
		if _, err := l.roll(l.End().Offset, now.UnixMilli()); err != nil {
			return 0, err
		}
		segments = *l.segments.Load()
	}
	l.raiseStart(segments[n].base)
	return n, l.deleteOldest(n)
}

// next returns the first offset behind segment i.
func (l *Log) next(segments []*segment, i int) int64 {
	if i+1 < len(segments) {
		return segments[i+1].base
	}
	return l.End().Offset
}

func (l *Log) belowStart() (n int, err error) {
	segments := *l.segments.Load()
	for n < len(segments)-1 && segments[n+1].base <= l.StartOffset() {
		n++
	}
	return n, nil
}

// deletable reports whether segment i may go at all: it is below hw and not an empty active one.
func (l *Log) deletable(segments []*segment, i int, hw int64) bool {
	return l.next(segments, i) <= hw && (i < len(segments)-1 || segments[i].size.Load() > 0)
}

func (l *Log) expired(c *LogConfig, now, hw int64) (n int, err error) {
	if c.Retention < 0 {
		return 0, nil
	}
	segments := *l.segments.Load()
	for n < len(segments) && l.deletable(segments, n, hw) {
		largest, err := l.retainedTimestamp(segments[n])
		if err != nil {
			return n, err
		}
		if now-largest <= c.Retention.Milliseconds() {
			break
		}
		n++
	}
	return n, nil
}

// retainedTimestamp is the time that retention goes by: the largest timestamp, or when there is none, when the file was
// last changed.
func (l *Log) retainedTimestamp(s *segment) (int64, error) {
	h, err := s.acquire()
	if err != nil {
		return 0, err
	}
	defer h.release()
	if t := s.largestTimestamp(h); t >= 0 {
		return t, nil
	}
	info, err := l.fs.Stat(s.path())
	if err != nil {
		return 0, fmt.Errorf("stat segment: %w", err)
	}
	return info.ModTime().UnixMilli(), nil
}

func (l *Log) oversized(c *LogConfig, hw int64) (n int) {
	if c.RetentionBytes < 0 {
		return 0
	}
	segments := *l.segments.Load()
	excess := l.Size() - c.RetentionBytes
	for n < len(segments) && l.deletable(segments, n, hw) && excess >= segments[n].size.Load() {
		excess -= segments[n].size.Load()
		n++
	}
	return n
}

// deleteOldest takes the first n segments, not all of them, out of the log and renames their files, to be removed
// later. The append slot is held.
func (l *Log) deleteOldest(n int) error {
	if n == 0 {
		return nil
	}
	segments := *l.segments.Load()
	gone, kept := segments[:n], append([]*segment(nil), segments[n:]...)
	l.segments.Store(&kept)
	return l.discard(gone)
}

// discard renames the files of segments that readers no longer find. Those who pinned one keep reading.
func (l *Log) discard(gone []*segment) error {
	var removals []removal
	for _, s := range gone {
		s.deleted.Store(true)
		s.sealed.Store(true)
		for _, suffix := range []string{logSuffix, indexSuffix, timeIndexSuffix, txnIndexSuffix, snapshotSuffix} {
			path := s.stem + suffix
			renamed, err := renameIfThere(l.fs, path, path+deletedSuffix)
			if err != nil {
				return l.health.fail(fmt.Errorf("delete segment of %s: %w", l.tp, err))
			}
			if renamed {
				removals = append(removals, removal{path + deletedSuffix, l.Config().FileDeleteDelay})
			}
		}
		s.drop()
	}
	if l.remove != nil {
		l.remove(removals)
		return nil
	}
	for _, r := range removals {
		if err := l.fs.Remove(r.path); err != nil {
			return l.health.fail(fmt.Errorf("remove segment of %s: %w", l.tp, err))
		}
	}
	return nil
}
