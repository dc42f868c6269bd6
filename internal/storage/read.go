package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"

	"ottla/internal/record"
)

// readRetries bounds how often a read that met a segment just being deleted looks again; each time the list of
// segments has changed.
const readRetries = 16

// A Slice is a range of bytes of one segment, pinned: it stays readable when the segment is deleted. It must be
// released. It serves one goroutine.
type Slice struct {
	h    *handle
	pos  int64
	size int
	// FirstOffset is the base offset of the first batch, at or below the offset asked for.
	FirstOffset int64
}

// Size returns the bytes of the range. The last batch may be cut off.
func (s *Slice) Size() int { return s.size }

// SendTo writes the range to w, by sendfile where file and connection allow. It returns how many bytes went out.
func (s *Slice) SendTo(w io.Writer) (int64, error) { return s.SendRange(w, 0, s.size) }

// SendRange writes n bytes from byte at of the range to w.
func (s *Slice) SendRange(w io.Writer, at, n int) (int64, error) {
	if n == 0 {
		return 0, nil
	}
	sent, err := s.h.log.SendTo(w, s.pos+int64(at), int64(n))
	if err == nil && sent != int64(n) {
		err = io.ErrUnexpectedEOF // the log was truncated below: the reader was given more than it may see
	}
	return sent, err
}

// ReadInto copies the range to dst, as much as fits, and returns how much that was.
func (s *Slice) ReadInto(dst []byte) (int, error) {
	n := min(len(dst), s.size)
	if n == 0 {
		return 0, nil
	}
	if n, err := s.h.log.ReadAt(dst[:n], s.pos); err != nil {
		return n, fmt.Errorf("read %s at %d: %w", s.h.log.Name(), s.pos, err)
	}
	return n, nil
}

// EndsBefore reports whether the range is of a segment older than that of upTo, to which it was read: it grows no more, and what
// comes next is no part of it. It is false if the segment of upTo is not known.
func (s *Slice) EndsBefore(upTo Position) bool {
	return s.h != nil && upTo.Pos >= 0 && s.h.s.base < upTo.SegmentBase
}

// Release lets go of the segment. Further calls do nothing.
func (s *Slice) Release() {
	if s.h != nil {
		s.h.release()
		s.h, s.size = nil, 0
	}
}

// Read pins the bytes that begin with the batch that holds offset from, or the first behind it, and end before upTo; they
// are at most maxBytes, and nothing if the first batch is larger, but if minOne is set that batch is there whole. The range lies in one segment and is empty
// if from is at upTo or behind. An offset below the log start or above the log end is an *OffsetOutOfRangeError; a
// *CorruptError means that no batch can be found at from, or that it is known to be rotten. Read takes no lock and allocates nothing.
func (l *Log) Read(from int64, maxBytes int, upTo Position, minOne bool) (Slice, error) {
	for range readRetries {
		s, err := l.read(from, maxBytes, upTo, minOne)
		if !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
	}
	return Slice{}, fmt.Errorf("read %s at %d: %w", l.tp, from, ErrClosed)
}

func (l *Log) read(from int64, maxBytes int, upTo Position, minOne bool) (Slice, error) {
	end := l.end.Load()
	if start := l.start.Load(); from < start || from > end.Offset {
		return Slice{}, &OffsetOutOfRangeError{Offset: from, Start: start, End: end.Offset}
	}
	if upTo.Offset > end.Offset {
		upTo = end.Position
	}
	if from >= upTo.Offset {
		return Slice{}, nil
	}
	segments := *l.segments.Load()
	for i := max(0, segmentAt(segments, from)); i < len(segments); i++ {
		s, err := segments[i].read(from, maxBytes, upTo, end, minOne)
		if err != nil || s.h != nil {
			return s, err
		}
	}
	return Slice{}, nil
}

// limit returns the size of what may be read of the segment: up to upTo, and never beyond end.
func (s *segment) limit(h *handle, upTo Position, end *logEnd) (int64, error) {
	size := s.size.Load()
	if s.base == end.SegmentBase {
		size = min(size, int64(end.Pos))
	}
	switch {
	case upTo.Pos >= 0 && upTo.SegmentBase == s.base:
		return min(size, int64(upTo.Pos)), nil
	case upTo.Pos >= 0 && upTo.SegmentBase > s.base || upTo.Offset == end.Offset:
		return size, nil
	case upTo.Pos >= 0 || upTo.Offset <= s.base:
		return 0, nil
	}
	_, pos, err := s.find(h, upTo.Offset, size)
	if err == io.EOF {
		return size, nil
	}
	return pos, err
}

// read returns the slice of this segment, or a Slice without a handle if there is nothing at from or behind it.
func (s *segment) read(from int64, maxBytes int, upTo Position, end *logEnd, minOne bool) (Slice, error) {
	h, err := s.acquire()
	if err != nil {
		return Slice{}, err
	}
	limit, err := s.limit(h, upTo, end)
	if err == nil && limit > 0 {
		err = s.checkRot(max(from, s.base)) // from may lie in a gap before the segment
	}
	if err != nil || limit == 0 {
		h.release()
		return Slice{}, err
	}
	first, pos, size, err := s.locate(h, from, limit, end)
	if err != nil {
		h.release()
		if err == io.EOF {
			err = nil
		}
		return Slice{}, err
	}
	n := min(int64(maxBytes), s.soundUpTo(pos, limit)-pos)
	if n < size { // part of a batch is of no use
		n = 0
		if minOne {
			n = size
		}
	}
	return Slice{h: h, pos: pos, size: int(max(0, n)), FirstOffset: first}, nil
}

// locate is find for a log that ends at end: it returns the base offset, position and size of the batch.
func (s *segment) locate(h *handle, offset, limit int64, end *logEnd) (base, pos, size int64, err error) {
	if s.base == end.SegmentBase && limit == int64(end.Pos) && end.last.base >= 0 && offset >= end.last.base {
		return end.last.base, int64(end.last.pos), limit - int64(end.last.pos), nil
	}
	header, pos, err := s.find(h, offset, limit)
	return header.BaseOffset, pos, int64(header.Size()), err
}

// Position returns where the batch that holds offset, or the first behind it, starts. The log end is a valid offset.
// Errors are as of Read.
func (l *Log) Position(offset int64) (Position, error) {
	end := l.End()
	if offset == end.Offset {
		return end, nil
	}
	s, err := l.Read(offset, 0, end, false)
	if err != nil {
		return Position{}, err
	}
	defer s.Release()
	if s.h == nil {
		return Position{Offset: offset, SegmentBase: end.SegmentBase, Pos: end.Pos}, nil
	}
	return Position{Offset: offset, SegmentBase: s.h.s.base, Pos: int32(s.pos)}, nil
}

// Batch returns the bytes of the whole batch that holds offset, or of the first behind it, checked against its CRC, in
// dst if it is large enough. io.EOF means that there is none.
func (l *Log) Batch(offset int64, dst []byte) ([]byte, error) {
	s, err := l.Read(offset, 0, l.End(), true)
	if err != nil {
		return nil, err
	}
	defer s.Release()
	if s.size == 0 {
		return nil, io.EOF
	}
	if cap(dst) < s.size {
		dst = make([]byte, s.size)
	}
	dst = dst[:s.size]
	if _, err := s.ReadInto(dst); err != nil {
		return nil, err
	}
	if err := record.CheckCRC(dst); err != nil {
		return nil, &CorruptError{Path: s.h.log.Name(), Pos: s.pos, Reason: err.Error()}
	}
	return dst, nil
}

// TimestampAt returns the largest timestamp, ms, of the batch that holds offset, or of the first behind it; found is false if
// there is none, or none with a timestamp. Errors are as of Read.
func (l *Log) TimestampAt(offset int64) (ts int64, found bool, err error) {
	s, err := l.Read(offset, 0, l.End(), true)
	if err != nil || s.size == 0 {
		return 0, false, err
	}
	defer s.Release()
	var b [record.HeaderSize]byte
	if _, err := s.h.log.ReadAt(b[:], s.pos); err != nil {
		return 0, false, fmt.Errorf("read %s at %d: %w", s.h.log.Name(), s.pos, err)
	}
	h, err := record.ParseHeader(b[:])
	if err != nil {
		return 0, false, &CorruptError{Path: s.h.log.Name(), Pos: s.pos, Reason: err.Error()}
	}
	return h.MaxTimestamp, h.MaxTimestamp >= 0, nil
}

// OffsetForTimestamp finds the first record at or behind the log start whose timestamp is at least ts (ms), and the leader
// epoch it was written in. Source: Kafka's UnifiedLog.fetchOffsetByTimestamp.
func (l *Log) OffsetForTimestamp(ts int64) (offset, timestamp int64, epoch int32, found bool, err error) {
	start := l.StartOffset()
	segments := *l.segments.Load()
	for _, s := range segments[max(0, segmentAt(segments, start)):] {
		offset, timestamp, epoch, found, err = l.timestampIn(s, ts, start)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		if found || err != nil {
			return offset, timestamp, epoch, found, err
		}
	}
	return 0, 0, UnknownEpoch, false, nil
}

func (l *Log) timestampIn(s *segment, ts, start int64) (offset, timestamp int64, epoch int32, found bool, err error) {
	h, err := s.acquire()
	if err != nil {
		return 0, 0, 0, false, err
	}
	defer h.release()
	if s.largestTimestamp(h) < ts {
		return 0, 0, 0, false, nil
	}
	size := s.size.Load()
	header, pos, err := s.beforeTimestamp(h, ts, start, size)
	for ; err == nil; header, pos, err = s.scan(h, pos+int64(header.Size()), size, start, -1) {
		if header.MaxTimestamp < ts {
			continue
		}
		if offset, timestamp, found, err = recordAt(h, header, pos, ts, start); found || err != nil {
			return offset, timestamp, header.LeaderEpoch, found, err
		}
	}
	if err == io.EOF {
		err = nil
	}
	return 0, 0, 0, false, err
}

// beforeTimestamp returns a batch before which no record has timestamp ts or a later one, going by the time index if
// what it says is so.
func (s *segment) beforeTimestamp(h *handle, ts, start, size int64) (record.Header, int64, error) {
	if !s.rebuild.Load() {
		e, ok, err := s.times.floor(h, ts)
		if err != nil {
			s.doubt()
		} else if ok {
			header, pos, err := s.find(h, s.base+int64(e.value), size)
			if err == nil && header.MaxTimestamp == e.key {
				if header.LastOffset() >= start {
					return header, pos, nil
				}
				return s.find(h, start, size)
			}
			s.doubt()
		}
	}
	return s.find(h, max(start, s.base), size)
}

// recordAt looks in one batch for the first record from offset start on that is not older than ts.
func recordAt(h *handle, header record.Header, pos, ts, start int64) (offset, timestamp int64, found bool, err error) {
	b := make([]byte, header.Size())
	if _, err := h.log.ReadAt(b, pos); err != nil {
		return 0, 0, false, fmt.Errorf("read %s at %d: %w", h.log.Name(), pos, err)
	}
	if err := record.CheckCRC(b); err != nil {
		return 0, 0, false, &CorruptError{Path: h.log.Name(), Pos: pos, Reason: err.Error()}
	}
	err = record.Iterate(b, func(r record.Record) error {
		if r.Timestamp >= ts && r.Offset >= start {
			offset, timestamp, found = r.Offset, r.Timestamp, true
			return errStop
		}
		return nil
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return offset, timestamp, found, err
}

var errStop = errors.New("found")

// MaxTimestamp finds the first of the records with the largest timestamp, ms; found is false if no record has one.
func (l *Log) MaxTimestamp() (offset, timestamp int64, epoch int32, found bool, err error) {
	largest := int64(math.MinInt64)
	for _, s := range *l.segments.Load() {
		h, err := s.acquire()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, 0, UnknownEpoch, false, err
		}
		t := s.largestTimestamp(h)
		h.release()
		if t != math.MaxInt64 {
			largest = max(largest, t)
		}
	}
	if largest < 0 {
		return 0, 0, UnknownEpoch, false, nil
	}
	return l.OffsetForTimestamp(largest)
}
