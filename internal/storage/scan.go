package storage

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"ottla/internal/record"
	"ottla/internal/vfs"
)

// scanChunk is how much recovery reads at once.
const scanChunk = 1 << 20

// sectorSize is what a device writes whole. A write that never reached it reads as zeros: whole sectors of them, or,
// where the log was synced up to the middle of a sector, from there to its end.
const sectorSize = 512

// minLostStart is how many zeros there must be from the start of a batch to the end of the sector, to show that its start
// was lost: a sound batch begins with up to so many, the upper bytes of its offset and length.
const minLostStart = 11

// A scanner reads a log file front to back and checks every batch. It uses one buffer, however long a batch claims to be.
type scanner struct {
	f    vfs.File
	end  int64 // size of the file
	last int64 // the largest offset that may stand in it
	buf  []byte
	off  int64 // position of buf[0]
	n    int   // bytes in buf
}

// newScanner returns a scanner of a segment's file. A base below 0 says that the file is none whose offsets count from a base.
func newScanner(f vfs.File, base, size int64) *scanner {
	last := int64(math.MaxInt64 - 1) // so that the next offset is one too
	if base >= 0 && base < last-math.MaxInt32 {
		last = base + math.MaxInt32 // what an index entry can hold
	}
	return &scanner{f: f, end: size, last: last, buf: make([]byte, min(scanChunk, max(size, record.HeaderSize)))}
}

// bytes returns up to n bytes at pos, fewer only at the end of the file or of the buffer's room.
func (r *scanner) bytes(pos int64, n int) ([]byte, error) {
	n = int(min(int64(n), int64(len(r.buf)), r.end-pos))
	if pos < r.off || pos+int64(n) > r.off+int64(r.n) {
		r.off, r.n = pos, int(min(int64(len(r.buf)), r.end-pos))
		if _, err := r.f.ReadAt(r.buf[:r.n], pos); err != nil && err != io.EOF {
			r.n = 0
			return nil, fmt.Errorf("read %s at %d: %w", r.f.Name(), pos, err)
		}
	}
	return r.buf[pos-r.off:][:n], nil
}

// batch reads the header at pos and checks the whole batch, which must not begin before offset next. bad says why it
// is none; err is an error of reading.
func (r *scanner) batch(pos, next int64) (h record.Header, bad string, err error) {
	b, err := r.bytes(pos, record.HeaderSize)
	if err != nil {
		return h, "", err
	}
	if h, err = record.ParseHeader(b); err != nil {
		return h, err.Error(), nil
	}
	switch {
	case int64(h.Size()) > r.end-pos:
		return h, fmt.Sprintf("batch of %d bytes is cut off after %d", h.Size(), r.end-pos), nil
	case h.BaseOffset < next:
		return h, fmt.Sprintf("batch at offset %d where %d or more is due", h.BaseOffset, next), nil
	case h.LastOffsetDelta < 0:
		return h, fmt.Sprintf("batch has last offset delta %d", h.LastOffsetDelta), nil
	case h.BaseOffset > r.last-int64(h.LastOffsetDelta):
		return h, fmt.Sprintf("batch at offset %d is too far from the segment's base", h.BaseOffset), nil
	}
	crc, err := r.crc(pos, int64(h.Size()))
	if err != nil {
		return h, "", err
	}
	if crc != h.CRC {
		return h, fmt.Sprintf("batch CRC is %08x but its bytes give %08x", h.CRC, crc), nil
	}
	return h, "", nil
}

// crcStart is where the part of a batch begins that its CRC covers: the attributes.
const crcStart = 21

func (r *scanner) crc(pos, size int64) (crc uint32, err error) {
	for at := pos + crcStart; at < pos+size; {
		b, err := r.bytes(at, int(min(pos+size-at, scanChunk)))
		if err != nil {
			return 0, err
		}
		crc = crc32.Update(crc, castagnoli, b)
		at += int64(len(b))
	}
	return crc, nil
}

func readMarkerAt(f vfs.File, pos int64, h *record.Header) (admission, error) {
	b := make([]byte, h.Size())
	if _, err := f.ReadAt(b, pos); err != nil {
		return admission{}, fmt.Errorf("read %s at %d: %w", f.Name(), pos, err)
	}
	return readMarker(b, h)
}

// magicPos is where a batch's magic byte stands.
const magicPos = 16

// resync looks behind damage for the next position where a sound batch begins, at offset next or later; -1 if there
// is none.
func (r *scanner) resync(pos, next int64) (int64, error) {
	for pos+record.HeaderSize <= r.end {
		b, err := r.bytes(pos+magicPos, scanChunk)
		if err != nil {
			return -1, err
		}
		i := bytes.IndexByte(b, byte(record.Magic))
		if i < 0 {
			pos += int64(len(b))
			continue
		}
		pos += int64(i)
		_, bad, err := r.batch(pos, next)
		if err != nil {
			return -1, err
		}
		if bad == "" {
			return pos, nil
		}
		pos++
	}
	return -1, nil
}

// lostWrite reports whether the bytes [from, to), which begin where a batch was due, look like a write that never
// reached the disk rather than like rotten bytes.
func (r *scanner) lostWrite(from, to int64) (bool, error) {
	end := from - from%sectorSize + sectorSize
	if end <= to && end-from >= minLostStart {
		if zeros, err := r.zeros(from, end); zeros || err != nil {
			return zeros, err
		}
	}
	// A sound batch at to may begin in the upper bytes of its offset, in the sector that was lost.
	for ; end+sectorSize <= to+minLostStart; end += sectorSize {
		if zeros, err := r.zeros(end, min(end+sectorSize, to)); zeros || err != nil {
			return zeros, err
		}
	}
	return false, nil
}

// zeros reports whether [from, to) holds nothing but zeros.
func (r *scanner) zeros(from, to int64) (bool, error) {
	for pos := from; pos < to; {
		b, err := r.bytes(pos, int(min(to-pos, scanChunk)))
		if err != nil {
			return false, err
		}
		for _, c := range b {
			if c != 0 {
				return false, nil
			}
		}
		pos += int64(len(b))
	}
	return true, nil
}
