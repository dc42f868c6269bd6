package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"

	"ottla/internal/record"
	"ottla/internal/vfs"
)

// The suffixes of Kafka's files, behind the 20 digits of a segment's base offset.
const (
	logSuffix       = ".log"
	indexSuffix     = ".index"
	timeIndexSuffix = ".timeindex"
	txnIndexSuffix  = ".txnindex"
	snapshotSuffix  = ".snapshot"
	deletedSuffix   = ".deleted" // renamed, to be removed after file.delete.delay.ms
	cleanedSuffix   = ".cleaned" // being written in place of another; worthless after a crash
	swapSuffix      = ".swap"    // written whole, to replace what it covers
	// tornSuffix marks bytes that recovery cut out of a log, asideSuffix whole files it took out. Ours, ignored by
	// Apache; never removed by the broker.
	tornSuffix  = ".torn"
	asideSuffix = ".aside"
)

// scanWindow is how much of a log is read at once when walking over batch headers: the stretch between two index
// entries, and room for the batch that crosses it.
const scanWindow = 16 << 10

var scanBuffers = sync.Pool{New: func() any { return new([scanWindow]byte) }}

// A segment is one stretch of a log: a .log file and the indexes beside it. Its size is what has been published to
// readers; the appender alone changes it, and only upward while readers may hold it.
type segment struct {
	base    int64
	fs      vfs.FS
	stem    string // path of its files without the suffix
	size    atomic.Int64
	indexed atomic.Bool  // both index files exist
	flushed atomic.Int64 // bytes known to be on the disk
	// writtenBack is up to where the kernel was asked to write.
	writtenBack atomic.Int64
	offsets     *index
	times       *index
	txns        atomic.Pointer[[]AbortedTxn] // nil until read from the file; only the appender appends
	handle      atomic.Pointer[handle]
	sealed      atomic.Bool           // no more appends
	deleted     atomic.Bool           // renamed to .deleted
	rebuild     atomic.Bool           // an index entry did not land where it said; the next Flush builds the indexes anew
	doubted     func()                // tells the log of rebuild; nil: nobody asks
	scrubbed    atomic.Int64          // ms; when it was read by scrubbing, or sealed; 0 not known
	cuts        atomic.Int32          // how often it was truncated
	rotten      atomic.Pointer[[]rot] // found by scrubbing, by position; nil if nothing

	// maxTimestamp is the largest timestamp, in ms; unknownTimestamp until read from the time index.
	maxTimestamp atomic.Int64

	// Of the appender alone, valid in the active segment.
	maxTimestampOffset int64 // last offset of the batch that has maxTimestamp
	firstTimestamp     int64 // max timestamp of the first batch, which rolling by time goes by; -1 if none yet
	created            int64 // ms; what rolling goes by when there are no timestamps
	jitter             int64 // ms
	sinceIndexEntry    int64 // bytes appended since the last index entry
}

const unknownTimestamp = math.MinInt64

func newSegment(fsys vfs.FS, dir string, base int64, doubted func()) *segment {
	s := &segment{
		base: base, fs: fsys, stem: filepath.Join(dir, fmt.Sprintf("%020d", base)), doubted: doubted,
		offsets: newIndex(offsetLayout), times: newIndex(timeLayout),
		maxTimestampOffset: base, firstTimestamp: -1,
	}
	s.maxTimestamp.Store(unknownTimestamp)
	return s
}

func (s *segment) path() string { return s.stem + logSuffix }

// doubt has the indexes built anew.
func (s *segment) doubt() {
	s.rebuild.Store(true)
	if s.doubted != nil {
		s.doubted()
	}
}

// A handle holds the open files of a segment. It is closed when the last that uses it lets go, so a deleted segment
// stays readable for those who began before.
type handle struct {
	s        *segment
	log      vfs.File
	writable bool
	refs     atomic.Int64
	used     atomic.Bool // since the last sweep
	indexes  [2]atomic.Pointer[openIndex]
}

type openIndex struct {
	file    vfs.File
	mapping vfs.Mapping // nil while only the file is needed
}

func (o *openIndex) close() error {
	var err error
	if o.mapping != nil {
		err = o.mapping.Close()
	}
	if o.file != nil {
		err = errors.Join(err, o.file.Close())
	}
	return err
}

// acquire returns the open files for reading; the caller must release them. It fails with fs.ErrNotExist once the
// segment was deleted.
func (s *segment) acquire() (*handle, error) {
	for {
		h := s.handle.Load()
		if h != nil && h.acquire() {
			return h, nil
		}
		if s.deleted.Load() {
			return nil, fs.ErrNotExist
		}
		f, err := s.fs.Open(s.path())
		if err != nil {
			return nil, fmt.Errorf("open segment: %w", err)
		}
		next := newHandle(s, f, 2) // the segment's and the caller's reference
		if !s.handle.CompareAndSwap(h, next) {
			if err := f.Close(); err != nil {
				return nil, fmt.Errorf("close segment: %w", err)
			}
			continue
		}
		if s.deleted.Load() { // deleted meanwhile; nobody else will drop the segment's reference
			s.drop()
		}
		return next, nil
	}
}

// acquireToWrite returns the open files, the log's for writing. The append slot is held.
func (s *segment) acquireToWrite() (*handle, error) {
	h := s.handle.Load()
	if h != nil && h.writable && h.acquire() {
		return h, nil
	}
	f, err := s.fs.OpenReadWrite(s.path())
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	next := newHandle(s, f, 2)
	next.writable = true
	if h = s.handle.Swap(next); h != nil {
		h.release()
	}
	return next, nil
}

func newHandle(s *segment, f vfs.File, refs int64) *handle {
	h := &handle{s: s, log: f}
	h.refs.Store(refs)
	h.used.Store(true)
	return h
}

func (h *handle) acquire() bool {
	for {
		n := h.refs.Load()
		if n == 0 {
			return false
		}
		if h.refs.CompareAndSwap(n, n+1) {
			if !h.used.Load() {
				h.used.Store(true)
			}
			return true
		}
	}
}

// release gives the handle back. The files were only read or have been synced, so that an error of closing them has
// nothing to tell.
func (h *handle) release() {
	if h.refs.Add(-1) > 0 {
		return
	}
	_ = h.log.Close()
	for i := range h.indexes {
		if o := h.indexes[i].Load(); o != nil {
			_ = o.close()
		}
	}
}

// drop closes the files once nobody uses them.
func (s *segment) drop() {
	if h := s.handle.Swap(nil); h != nil {
		h.release()
	}
}

// sweep closes the files of a segment that nobody used since the last sweep and that has nothing to flush.
func (s *segment) sweep() {
	h := s.handle.Load()
	if h == nil || h.used.Swap(false) || s.flushed.Load() < s.size.Load() {
		return
	}
	if s.handle.CompareAndSwap(h, nil) {
		h.release()
	}
}

func (y layout) slot() int {
	if y.size == offsetLayout.size {
		return 0
	}
	return 1
}

func (h *handle) indexFile(y layout) (vfs.File, error) {
	slot := &h.indexes[y.slot()]
	if o := slot.Load(); o != nil && o.file != nil {
		return o.file, nil
	}
	f, err := h.s.fs.Open(h.s.stem + y.suffix)
	if err != nil {
		return nil, fmt.Errorf("open index: %w", err)
	}
	o := &openIndex{file: f}
	if slot.CompareAndSwap(nil, o) {
		return f, nil
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("close index: %w", err)
	}
	return h.indexFile(y)
}

func (h *handle) indexMapping(y layout) (vfs.Mapping, error) {
	slot := &h.indexes[y.slot()]
	for {
		o := slot.Load()
		if o != nil && o.mapping != nil {
			return o.mapping, nil
		}
		next := &openIndex{}
		var f vfs.File
		var err error
		if o != nil {
			f = o.file
		} else if f, err = h.s.fs.Open(h.s.stem + y.suffix); err != nil {
			return nil, fmt.Errorf("open index: %w", err)
		}
		next.file = f // kept: closing it here could pull it from under a reader of the summary
		if next.mapping, err = f.Map(); err != nil {
			if o == nil {
				err = errors.Join(err, f.Close())
			}
			return nil, fmt.Errorf("map index: %w", err)
		}
		if slot.CompareAndSwap(o, next) {
			return next.mapping, nil
		}
		err = next.mapping.Close()
		if o == nil {
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return nil, fmt.Errorf("close index: %w", err)
		}
	}
}

// largestTimestamp returns the largest timestamp in the segment, ms, or -1 if no record has one. While the time index
// waits to be rebuilt, and if its last entry is not true, it is not known and math.MaxInt64.
func (s *segment) largestTimestamp(h *handle) int64 {
	if t := s.maxTimestamp.Load(); t != unknownTimestamp {
		return t
	}
	if s.rebuild.Load() {
		return math.MaxInt64
	}
	e, ok, err := s.times.floor(h, math.MaxInt64)
	if err == nil && !ok {
		s.maxTimestamp.CompareAndSwap(unknownTimestamp, record.NoTimestamp)
		return record.NoTimestamp
	}
	if err == nil {
		header, _, err := s.find(h, s.base+int64(e.value), s.size.Load())
		if err == nil && header.MaxTimestamp == e.key {
			s.maxTimestamp.CompareAndSwap(unknownTimestamp, e.key)
			return e.key
		}
	}
	s.doubt()
	return math.MaxInt64
}

// A walker goes over the batch headers of a log file, in file order.
type walker struct {
	f    vfs.File
	pos  int64 // of the header that next reads
	end  int64 // of what may be read
	skip []rot // stretches to pass over
	win  *[scanWindow]byte
	from int64 // position of win[0]
	n    int   // bytes in win
}

// walk starts at pos and ends at end. The walker must be closed.
func walk(f vfs.File, pos, end int64) walker {
	return walker{f: f, pos: pos, end: end, win: scanBuffers.Get().(*[scanWindow]byte)}
}

// walk is walk over the segment's file, without what is known to be rotten.
func (s *segment) walk(h *handle, pos, end int64) walker {
	w := walk(h.log, pos, end)
	if known := s.rotten.Load(); known != nil {
		w.skip = *known
	}
	return w
}

func (w *walker) close() {
	scanBuffers.Put(w.win)
	w.win = nil
}

// next returns the next header and its position. It is io.EOF at the end, *CorruptError if what stands there is no
// header or the batch does not fit before the end.
func (w *walker) next() (h record.Header, pos int64, err error) {
	for _, r := range w.skip {
		if w.pos >= r.from && w.pos < r.to {
			w.pos = r.to
		}
	}
	pos = w.pos
	if pos >= w.end {
		return h, pos, io.EOF
	}
	if w.end-pos < record.HeaderSize {
		return h, pos, &CorruptError{Path: w.f.Name(), Pos: pos, Reason: fmt.Sprintf("%d bytes are no batch", w.end-pos)}
	}
	b, err := w.bytes(pos, record.HeaderSize)
	if err != nil {
		return h, pos, err
	}
	h, err = record.ParseHeader(b)
	if err != nil {
		return h, pos, &CorruptError{Path: w.f.Name(), Pos: pos, Reason: err.Error()}
	}
	if int64(h.Size()) > w.end-pos {
		return h, pos, &CorruptError{Path: w.f.Name(), Pos: pos, Reason: fmt.Sprintf("batch of %d bytes is cut off after %d", h.Size(), w.end-pos)}
	}
	w.pos += int64(h.Size())
	return h, pos, nil
}

// bytes returns n bytes at pos, at most scanWindow; they last until the next call.
func (w *walker) bytes(pos int64, n int) ([]byte, error) {
	if pos < w.from || pos+int64(n) > w.from+int64(w.n) {
		w.from, w.n = pos, int(min(scanWindow, w.end-pos))
		if _, err := w.f.ReadAt(w.win[:w.n], pos); err != nil {
			w.n = 0
			return nil, fmt.Errorf("read %s at %d: %w", w.f.Name(), pos, err)
		}
	}
	return w.win[pos-w.from:][:n], nil
}

// errMisled says that an index entry led to a place where no fitting batch begins.
var errMisled = errors.New("index entry leads to no fitting batch")

// find returns the header and position of the batch that holds offset, or the first behind it; io.EOF if there is
// none before end. It goes by the index and checks where that leads.
func (s *segment) find(h *handle, offset, end int64) (record.Header, int64, error) {
	var start int64
	if !s.rebuild.Load() {
		e, ok, err := s.offsets.floor(h, offset-s.base)
		if err != nil {
			s.doubt()
		}
		if ok && e.value <= 0 { // the first batch has no entry; zeros that nobody trimmed
			s.doubt()
		} else if ok && err == nil {
			start = int64(e.value)
		}
		if start < end && start > 0 {
			header, pos, err := s.scan(h, start, end, offset, s.base+e.key)
			if !errors.Is(err, errMisled) {
				return header, pos, err
			}
			s.doubt()
		}
	}
	return s.scan(h, 0, end, offset, -1)
}

// scan walks from start to the batch that holds offset. If landing is not -1, the first batch must begin at or
// before it, else the walk is errMisled.
func (s *segment) scan(h *handle, start, end, offset, landing int64) (record.Header, int64, error) {
	w := s.walk(h, start, end)
	defer w.close()
	for {
		header, pos, err := w.next()
		if landing >= 0 && pos == start && (err != nil || header.BaseOffset > landing || header.BaseOffset < s.base) {
			return header, pos, errMisled
		}
		if err != nil {
			return header, pos, err
		}
		if header.LastOffset() >= offset {
			return header, pos, nil
		}
	}
}
