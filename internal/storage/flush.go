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
func (l *Log) Flush(upTo int64) error {
	f := flush{l: l}
	if err := f.begin(upTo); err != nil {
		return err
	}
	return f.end(f.sync())
}

// A flush brings segments, indexes and producer snapshots to the disk, in the order in which recovery relies on them: the
// leader epochs, the files' names, the data, the time index, the offset index. It is begin, then sync, or the flusher's for the files
// of many flushes together, then end, which must follow.
type flush struct {
	l     *Log
	all   bool // also the unwritten tail of the active segment's indexes; nobody appends
	begun time.Time
	upTo  int64 // the log's end when it began
	parts []flushPart
}

// A flushPart is a segment's.
type flushPart struct {
	*segment
	file *handle // held open until end; nil: the data is on the disk already
	size int64
	all  bool // also the unwritten tail of the indexes
}

// begin takes the log's flush slot, and does all that comes before the data. If it fails, or there is nothing to flush, the slot is free again, there
// are no parts, and the rest has nothing to do.
func (f *flush) begin(upTo int64) error {
	f.l.flushing <- struct{}{}
	f.l.attended.Store(notAttended)
	err := f.l.readyToFlush()
	if err == nil && upTo > f.l.recoveryPoint.Load() {
		if err = f.open(); err != nil {
			err = f.l.health.fail(err)
		}
	}
	if len(f.parts) == 0 {
		<-f.l.flushing
	}
	return err
}

// readyToFlush does what a flush is also asked for. The flush slot is held.
func (l *Log) readyToFlush() error {
	if l.closed.Load() {
		return ErrClosed
	}
	if err := l.health.err(); err != nil {
		return err
	}
	if err := l.settleFirst(); err != nil {
		return err
	}
	return l.rebuildMarked()
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

// open makes durable what the data relies on, and opens the files of what is not on the disk yet. The flush slot is held.
func (f *flush) open() error {
	f.begun, f.upTo = time.Now(), f.l.End().Offset
	if err := f.l.writeEpochs(); err != nil {
		return err
	}
	if err := f.l.syncNames(); err != nil {
		return err
	}
	for _, s := range *f.l.segments.Load() {
		p := flushPart{segment: s, size: s.size.Load(), all: f.all || s.sealed.Load()}
		if s.flushed.Load() < p.size {
			h, err := s.acquire()
			if errors.Is(err, fs.ErrNotExist) { // retention was quicker
				continue
			}
			if err != nil {
				f.close()
				return err
			}
			p.file = h
		}
		f.parts = append(f.parts, p)
	}
	return nil
}

// close gives the files back.
func (f *flush) close() {
	for _, p := range f.parts {
		if p.file != nil {
			p.file.release()
		}
	}
	f.parts = f.parts[:0]
}

// appendFiles appends the files that are to be synced. They are open until end.
func (f *flush) appendFiles(files []vfs.File) []vfs.File {
	for _, p := range f.parts {
		if p.file != nil {
			files = append(files, p.file.log)
		}
	}
	return files
}

// sync syncs the data.
func (f *flush) sync() error {
	for _, p := range f.parts {
		if p.file == nil {
			continue
		}
		begun := time.Now()
		err := p.file.log.Sync()
		f.l.health.metrics.synced(begun)
		if err != nil {
			return fmt.Errorf("sync segment: %w", err)
		}
	}
	return nil
}

// end gives the files and the flush slot back, after the data was synced, unless that failed with err. What was to be flushed is durable if it returns nil.
func (f *flush) end(err error) error {
	if len(f.parts) == 0 {
		return err
	}
	defer func() { <-f.l.flushing }()
	if err == nil {
		err = f.finish()
	}
	f.close()
	if err != nil {
		return f.l.health.fail(err)
	}
	f.l.flushed(f.begun, f.upTo)
	return nil
}

// finish is what comes after the data.
func (f *flush) finish() error {
	for _, p := range f.parts {
		if err := p.finish(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return f.l.writeSnapshots()
}

// flushed notes that a flush which began at the given time made everything below upTo durable. The flush slot is held.
func (l *Log) flushed(begun time.Time, upTo int64) {
	l.lastFlush.Store(begun.UnixMilli())
	if upTo <= l.recoveryPoint.Load() {
		return
	}
	l.recoveryPoint.Store(upTo)
	l.mu.Lock()
	wake := l.mu.onDurable
	l.mu.Unlock()
	if wake != nil {
		wake()
	}
}

func (p *flushPart) finish() error {
	if p.file != nil {
		if err := p.syncAborted(); err != nil {
			return err
		}
		p.flushed.Store(p.size)
	}
	if !p.times.due(p.all) && !p.offsets.due(p.all) && (p.indexed.Load() || !p.all) {
		return nil
	}
	if err := p.persist(p.times, p.all); err != nil {
		return err
	}
	if err := p.persist(p.offsets, p.all); err != nil {
		return err
	}
	p.indexed.Store(true)
	if p.all {
		p.drop() // the next to open it maps the indexes as they are now
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
	if !l.doubted.Swap(false) {
		return nil
	}
	for _, s := range *l.segments.Load() {
		if !s.rebuild.Load() {
			continue
		}
		l.logger.Warn("index does not match its segment, building it anew", "segment", s.path())
		if err := l.rebuildIndexes(s); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.doubted.Store(true)
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
