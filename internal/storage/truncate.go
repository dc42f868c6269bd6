package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"
)

// TruncateTo cuts the log so that offset becomes its end, if it reaches that far; a batch that offset lies in goes
// whole. Producer state, leader epochs and the recovery point follow. It must not cut below what a reader was
// given: a follower truncates above the high watermark. Source: Kafka's UnifiedLog.truncateTo.
func (l *Log) TruncateTo(offset int64) error {
	l.flushing <- struct{}{}
	defer func() { <-l.flushing }()
	if err := l.lock(); err != nil {
		return err
	}
	defer l.unlock()
	segments := *l.segments.Load()
	if end := l.End().Offset; offset >= end {
		// An epoch that began here with a leader who then appended nothing is not the new leader's: batches of an older one may follow.
		if l.epochs.truncateEnd(end) {
			l.epochsChanged.Store(true)
		}
		return nil
	}
	if offset < segments[0].base {
		return l.startAt(offset)
	}
	return l.truncate(segments, offset)
}

// TruncateFullyAndStartAt empties the log and lets it begin at offset: what a follower does whose log has nothing in
// common with the leader's. Source: KIP-107, Kafka's UnifiedLog.truncateFullyAndStartAt.
func (l *Log) TruncateFullyAndStartAt(offset int64) error {
	l.flushing <- struct{}{}
	defer func() { <-l.flushing }()
	if err := l.lock(); err != nil {
		return err
	}
	defer l.unlock()
	return l.startAt(offset)
}

func (l *Log) startAt(offset int64) error {
	gone := *l.segments.Load()
	if err := l.lowerRecoveryPoint(offset); err != nil {
		return err
	}
	if err := l.discard(gone); err != nil {
		return err
	}
	s, err := l.newSegment(offset, time.Now().UnixMilli())
	if err == nil {
		err = l.fs.SyncDir(l.path)
	}
	if err != nil {
		return l.health.fail(err)
	}
	l.segments.Store(&[]*segment{s})
	l.start.Store(offset)
	l.publish(s, 0, offset, noLastBatch)
	l.epochs.entries.Store(&[]epochEntry{})
	if err := l.cutEpochs(); err != nil {
		return err
	}
	return l.restoreProducers()
}

// lowerRecoveryPoint takes the recovery point back to offset, in the Dir's checkpoint too, before anything is cut. Else what is appended
// behind offset would be trusted after a crash up to where the log once was durable, unread, and its leader epochs
// missed; and a log that is shorter now would count as one that lost its tail. Source: Kafka's LogManager.truncateTo, which
// writes the checkpoint once it has cut. The flush slot is held.
func (l *Log) lowerRecoveryPoint(offset int64) error {
	l.recoveryPoint.Store(min(l.recoveryPoint.Load(), offset))
	if l.lowered == nil {
		return nil
	}
	return l.lowered(l.tp, offset)
}

func (l *Log) truncate(segments []*segment, offset int64) error {
	i := segmentAt(segments, offset)
	s := segments[i]
	if err := l.lowerRecoveryPoint(offset); err != nil {
		return err
	}
	pos, err := s.truncatePos(offset)
	if err != nil {
		return err
	}
	gone := segments[i+1:]
	kept := slices.Clone(segments[:i+1])
	l.segments.Store(&kept)
	l.publish(s, pos, offset, noLastBatch)
	l.start.Store(min(l.start.Load(), offset))
	for _, g := range slices.Backward(gone) { // the last first, so that a crash leaves no hole
		if err := l.discard([]*segment{g}); err != nil {
			return err
		}
	}
	if len(gone) > 0 {
		if err := l.fs.SyncDir(l.path); err != nil {
			return l.health.fail(fmt.Errorf("truncate %s to %d: %w", l.tp, offset, err))
		}
	}
	if err := l.cutSegment(s, pos, offset); err != nil {
		return l.health.fail(fmt.Errorf("truncate %s to %d: %w", l.tp, offset, err))
	}
	if l.epochs.truncateEnd(offset) {
		if err := l.cutEpochs(); err != nil {
			return err
		}
	}
	return l.restoreProducers()
}

// truncatePos returns where the batch that holds offset starts, or the segment's size.
func (s *segment) truncatePos(offset int64) (int64, error) {
	h, err := s.acquire()
	if err != nil {
		return 0, err
	}
	defer h.release()
	if r := s.rotHolding(offset); r != nil {
		return r.from, nil
	}
	_, pos, err := s.find(h, offset, s.size.Load())
	if err == io.EOF {
		return s.size.Load(), nil
	}
	return pos, err
}

// cutSegment cuts the file to pos and the indexes to what lies below offset, and opens the segment for appends again.
func (l *Log) cutSegment(s *segment, pos, offset int64) error {
	h, err := s.acquireToWrite()
	if err != nil {
		return err
	}
	defer h.release()
	if err := h.log.Truncate(pos); err != nil {
		return err
	}
	if err := h.log.Sync(); err != nil { // or a power cut could bring batches back among those that follow
		return err
	}
	s.cutRot(pos)
	s.sealed.Store(false)
	s.flushed.Store(min(s.flushed.Load(), pos))
	s.writtenBack.Store(min(s.writtenBack.Load(), pos))
	s.begin(time.Now().UnixMilli(), l.Config())
	if err := s.reindexBelow(h, l.Config().IndexInterval, offset); err != nil {
		return err
	}
	return s.truncateAborted(offset)
}

// reindexBelow brings the indexes back to the batches below offset, behind which the file now ends.
func (s *segment) reindexBelow(h *handle, interval, offset int64) error {
	offsets, offsetsOnDisk, err := s.current(s.offsets)
	if err != nil {
		return err
	}
	times, timesOnDisk, err := s.current(s.times)
	if err != nil {
		return err
	}
	fresh := s.blank()
	offsets, times, _, err = fresh.resumable(h, offsets, times, offset)
	if err != nil {
		return err
	}
	if err := errors.Join(s.trimIndex(offsetLayout, min(len(offsets), offsetsOnDisk)), s.trimIndex(timeLayout, min(len(times), timesOnDisk))); err != nil {
		return err
	}
	if len(offsets) == 0 {
		return s.reindex(h, interval, s.size.Load())
	}
	fresh.offsets.reset(offsets, offsetsOnDisk)
	fresh.times.reset(times, timesOnDisk)
	err = fresh.noteAll(h, int64(offsets[len(offsets)-1].value), s.size.Load(), interval)
	s.adoptIndexes(fresh)
	return err
}

// trimIndex cuts an index file to n entries, so that a crash does not bring entries back that were truncated away.
func (s *segment) trimIndex(y layout, n int) error {
	path := s.stem + y.suffix
	if _, err := s.fs.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f, err := s.fs.OpenReadWrite(path)
	if err != nil {
		return fmt.Errorf("open index: %w", err)
	}
	if err := errors.Join(f.Truncate(int64(n*y.size)), f.Close()); err != nil {
		return fmt.Errorf("trim index: %w", err)
	}
	return nil
}

// restoreProducers builds the producer state anew after a truncation.
func (l *Log) restoreProducers() error {
	snapshots, err := l.snapshotOffsets()
	if err != nil {
		return l.health.fail(err)
	}
	l.mu.Lock()
	l.mu.snapshots = nil
	l.mu.Unlock()
	if err := l.loadProducers(snapshots, time.Now().UnixMilli()); err != nil {
		return l.health.fail(err)
	}
	return nil
}

func (l *Log) snapshotOffsets() ([]int64, error) {
	entries, err := l.fs.ReadDir(l.path)
	if err != nil {
		return nil, fmt.Errorf("list log directory: %w", err)
	}
	var offsets []int64
	for _, e := range entries {
		if base, suffix, ok := parseSegmentFile(e.Name()); ok && suffix == snapshotSuffix {
			offsets = append(offsets, base)
		}
	}
	return offsets, nil
}

// Close writes out everything, so that the next OpenLog with Clean set has nothing to read again, and closes the files;
// readers that pinned a slice go on until they release it. On a failed directory it only closes.
func (l *Log) Close() error {
	l.flushing <- struct{}{}
	defer func() { <-l.flushing }()
	l.appending <- struct{}{}
	defer l.unlock()
	if l.closed.Swap(true) {
		return nil
	}
	err := l.health.err()
	if err == nil {
		err = l.closeClean()
	}
	l.dropAll()
	return err
}

// abandon closes the log without writing anything more, as if the process had ended here.
func (l *Log) abandon() {
	l.flushing <- struct{}{}
	defer func() { <-l.flushing }()
	l.appending <- struct{}{}
	defer l.unlock()
	if l.closed.Swap(true) {
		return
	}
	l.dropAll()
}

// dropAll closes the files for good; who pinned a slice keeps it.
func (l *Log) dropAll() {
	for _, s := range *l.segments.Load() {
		s.deleted.Store(true)
		s.drop()
	}
	l.mu.Lock()
	l.mu.producers.release()
	l.mu.Unlock()
}

func (l *Log) closeClean() error {
	if err := l.settle(); err != nil {
		return err
	}
	end := l.End().Offset
	l.active().noteTime()
	l.snapshotProducers(end)
	if err := l.flushToClose(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l.health.fail(err)
	}
	l.recoveryPoint.Store(end)
	return nil
}

// flushToClose flushes all there is. Both slots are held.
func (l *Log) flushToClose() error {
	f := flush{l: l, all: true}
	if err := f.open(); err != nil {
		return err
	}
	defer f.close()
	if err := f.sync(); err != nil {
		return err
	}
	return f.finish()
}
