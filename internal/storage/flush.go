package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"ottla/internal/vfs"
)

// Flush makes everything below upTo durable; what is behind it may become durable as well. It returns at once if
// nothing is missing. A failed fsync is not tried again: the directory has failed. Flush may run beside appends and
// reads.
func (l *Log) Flush(upTo int64) error { return l.flush(upTo, vfs.File.Sync) }

// flush is Flush, with the records synced in a way of one's own.
func (l *Log) flush(upTo int64, sync func(vfs.File) error) error {
	l.flushing <- struct{}{}
	defer func() { <-l.flushing }()
	l.attended.Store(notAttended)
	if l.closed.Load() {
		return ErrClosed
	}
	if err := l.health.err(); err != nil {
		return err
	}
	if err := l.settleFirst(); err != nil {
		return err
	}
	if err := l.rebuildMarked(); err != nil {
		return err
	}
	if upTo <= l.recoveryPoint.Load() {
		return nil
	}
	return l.flushAll(sync)
}

// settleFirst is settle for a flush.
func (l *Log) settleFirst() error {
	if !l.unsettled.Load() {
		return nil
	}
	l.appending <- struct{}{}
	defer l.unlock()
	return l.settle()
}

// flushAll syncs what is not on the disk yet. The flush slot is held.
func (l *Log) flushAll(sync func(vfs.File) error) error {
	begun, end := time.Now(), l.End()
	if err := l.sync(false, sync); err != nil {
		return l.health.fail(err)
	}
	l.lastFlush.Store(begun.UnixMilli())
	if end.Offset <= l.recoveryPoint.Load() {
		return nil
	}
	l.recoveryPoint.Store(end.Offset)
	l.mu.Lock()
	wake := l.mu.onDurable
	l.mu.Unlock()
	if wake != nil {
		wake()
	}
	return nil
}

// sync brings segments, indexes and producer snapshots to the disk, in the order in which recovery relies on them: the
// leader epochs, the files' names, the data, the time index, the offset index. With all, the unwritten tail of the active indexes goes too.
func (l *Log) sync(all bool, sync func(vfs.File) error) error {
	if err := l.writeEpochs(); err != nil {
		return err
	}
	if err := l.syncNames(); err != nil {
		return err
	}
	for _, s := range *l.segments.Load() {
		if err := s.flush(all, sync, l.health.metrics); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return l.writeSnapshots()
}

func (s *segment) flush(all bool, sync func(vfs.File) error, m *metrics) error {
	size := s.size.Load()
	sealed := s.sealed.Load()
	if s.flushed.Load() < size {
		h, err := s.acquire()
		if err != nil {
			return err
		}
		begun := time.Now()
		err = sync(h.log)
		m.synced(begun)
		h.release()
		if err != nil {
			return fmt.Errorf("sync segment: %w", err)
		}
		if err := s.syncAborted(); err != nil {
			return err
		}
		s.flushed.Store(size)
	}
	all = all || sealed
	if !s.times.due(all) && !s.offsets.due(all) && (s.indexed.Load() || !all) {
		return nil
	}
	if err := s.persist(s.times, all); err != nil {
		return err
	}
	if err := s.persist(s.offsets, all); err != nil {
		return err
	}
	s.indexed.Store(true)
	if all {
		s.drop() // the next to open it maps the indexes as they are now
	}
	return nil
}

func (s *segment) syncAborted() error {
	if t := s.txns.Load(); t == nil || len(*t) == 0 {
		return nil
	}
	f, err := s.fs.OpenReadWrite(s.stem + txnIndexSuffix)
	if err != nil {
		return fmt.Errorf("open transaction index: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync transaction index: %w", err)
	}
	return nil
}

// persist writes the index's tail to its file, which is made if need be. The new name is not synced: an index that a crash
// takes is built again.
func (s *segment) persist(x *index, all bool) error {
	if s.deleted.Load() {
		return nil
	}
	f, err := s.fs.OpenReadWrite(s.stem + x.layout.suffix)
	if err != nil {
		return fmt.Errorf("open index: %w", err)
	}
	return errors.Join(x.persist(f, all), f.Close())
}

// writeSnapshots writes the producer snapshots that are waiting.
func (l *Log) writeSnapshots() error {
	l.mu.Lock()
	pending := l.mu.snapshots
	l.mu.snapshots = nil
	l.mu.Unlock()
	for _, p := range pending {
		if err := vfs.WriteFileAtomic(l.fs, l.snapshotPath(p.offset), p.data); err != nil {
			return fmt.Errorf("write producer snapshot: %w", err)
		}
	}
	return nil
}

func (l *Log) snapshotPath(offset int64) string {
	return filepath.Join(l.path, fmt.Sprintf("%020d%s", offset, snapshotSuffix))
}

// startWriteback asks the kernel to write out what was appended to the active segment.
func (l *Log) startWriteback() error {
	s := l.active()
	h, err := s.acquire()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return l.health.fail(err)
	}
	defer h.release()
	size, from := s.size.Load(), s.writtenBack.Swap(s.size.Load())
	if size <= from {
		return nil
	}
	if err := h.log.StartWriteback(from, size-from); err != nil {
		return l.health.fail(fmt.Errorf("write back %s: %w", l.tp, err))
	}
	return nil
}

// rebuildMarked builds the indexes anew of the segments where a lookup was misled. The flush slot is held.
func (l *Log) rebuildMarked() error {
	for _, s := range *l.segments.Load() {
		if !s.rebuild.Load() {
			continue
		}
		l.logger.Warn("index does not match its segment, building it anew", "segment", s.path())
		if err := l.rebuildIndexes(s); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (l *Log) rebuildIndexes(s *segment) error {
	l.appending <- struct{}{}
	defer l.unlock()
	h, err := s.acquire()
	if err != nil {
		return err
	}
	defer h.release()
	err = s.reindex(h, l.Config().IndexInterval, s.size.Load())
	s.rebuild.Store(false)
	var c *CorruptError
	if errors.As(err, &c) { // readers meet it, too; the index covers what is before
		l.logger.Error("segment is damaged", "segment", s.path(), "position", c.Pos, "reason", c.Reason)
		return nil
	}
	return err
}

// reindex builds both indexes from the batch headers below size. A damaged header ends it with a *CorruptError; the
// indexes cover what is before. Readers see the old indexes until the new ones are whole.
func (s *segment) reindex(h *handle, interval, size int64) error {
	fresh := s.blank()
	err := fresh.noteAll(h, 0, size, interval)
	if s.sealed.Load() {
		fresh.noteTime()
	}
	s.adoptIndexes(fresh)
	return err
}

// blank returns a segment to build the indexes of s in.
func (s *segment) blank() *segment {
	b := &segment{
		base: s.base, fs: s.fs, stem: s.stem, offsets: newIndex(offsetLayout), times: newIndex(timeLayout),
		maxTimestampOffset: s.base, firstTimestamp: -1,
	}
	b.size.Store(s.size.Load())
	b.rotten.Store(s.rotten.Load())
	b.maxTimestamp.Store(-1)
	return b
}

// noteAll notes the batches of the file from pos to end.
func (s *segment) noteAll(h *handle, pos, end, interval int64) error {
	w := s.walk(h, pos, end)
	defer w.close()
	for {
		header, pos, err := w.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		s.note(&header, pos, interval)
	}
}

// adoptIndexes replaces the indexes, and what is known of timestamps, by those of fresh. The append slot is held.
func (s *segment) adoptIndexes(fresh *segment) {
	s.maxTimestamp.Store(fresh.maxTimestamp.Load())
	s.offsets.become(fresh.offsets)
	s.times.become(fresh.times)
	s.maxTimestampOffset, s.firstTimestamp, s.sinceIndexEntry = fresh.maxTimestampOffset, fresh.firstTimestamp, fresh.sinceIndexEntry
}
