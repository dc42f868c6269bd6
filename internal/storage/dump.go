package storage

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"ottla/internal/record"
	"ottla/internal/vfs"
)

// A DumpedBatch is a batch as it stands in a segment's file, or a stretch of bytes that is none.
type DumpedBatch struct {
	Pos    int64 // bytes from the start of the file
	Header record.Header
	Bytes  []byte // the whole batch; nil if Err is set. It lasts until the function that was given it returns.
	Err    error  // a *CorruptError: no sound batch is here; Size says how far the damage goes
	Size   int64  // bytes
}

// DumpSegment calls f with each batch of the .log file at path, in order, and with each stretch of damage between them. It
// only reads, and goes on behind damage. It stops at f's first error, which it returns.
func DumpSegment(fsys vfs.FS, path string, f func(DumpedBatch) error) (err error) {
	file, err := fsys.Open(path)
	if err != nil {
		return fmt.Errorf("open segment: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	size, err := file.Size()
	if err != nil {
		return fmt.Errorf("size segment: %w", err)
	}
	base, next := int64(-1), int64(math.MinInt64)
	if named, _, ok := parseSegmentFile(filepath.Base(path)); ok {
		base, next = named, named
	}
	sc := newScanner(file, base, size)
	var buf []byte
	for pos := int64(0); pos < size; {
		b, err := sc.dump(pos, next, &buf)
		if err != nil {
			return err
		}
		if err := f(b); err != nil {
			return err
		}
		pos += b.Size
		if b.Err == nil {
			next = b.Header.NextOffset()
		}
	}
	return nil
}

// dump returns what stands at pos, where a batch from offset next on is due.
func (r *scanner) dump(pos, next int64, buf *[]byte) (DumpedBatch, error) {
	h, bad, err := r.batch(pos, next)
	if err != nil {
		return DumpedBatch{}, err
	}
	if bad != "" {
		to, err := r.resync(pos+1, next)
		if err != nil {
			return DumpedBatch{}, err
		}
		if to < 0 {
			to = r.end
		}
		return DumpedBatch{Pos: pos, Header: h, Size: to - pos, Err: &CorruptError{Path: r.f.Name(), Pos: pos, Reason: bad}}, nil
	}
	if cap(*buf) < h.Size() {
		*buf = make([]byte, h.Size())
	}
	b := (*buf)[:h.Size()]
	if _, err := r.f.ReadAt(b, pos); err != nil {
		return DumpedBatch{}, fmt.Errorf("read %s at %d: %w", r.f.Name(), pos, err)
	}
	return DumpedBatch{Pos: pos, Header: h, Bytes: b, Size: int64(len(b))}, nil
}
