package record

import (
	"encoding/binary"
	"io"
	"sync"
)

const (
	// windowSize is how much of a compressed batch is held decompressed, in bytes.
	windowSize = 64 << 10
	// maxVarint is the longest encoding of a varint, in bytes.
	maxVarint = binary.MaxVarintLen64
	// maxRecordSize bounds in bytes what Iterate gathers for one record of a compressed batch. Java clients cannot
	// send one of half that size.
	maxRecordSize = 256 << 20
)

// A reader walks the records of a batch. Those of an uncompressed batch it walks in place; a compressed one
// passes through buf a window at a time.
type reader struct {
	buf   []byte // what is at hand
	pos   int    // in buf
	base  int64  // bytes of records before buf[0]
	src   decompressor
	codec Codec
	left  int64 // how much more may come out of src; at -1 the limit is known to be broken
	limit int64 // all that may come out of src
	own   []byte
}

// readers holds idle readers with their windows.
var readers = sync.Pool{New: func() any { return &reader{own: make([]byte, windowSize)} }}

// openReader returns a reader of the records of batch, to be given back with close. No more than limit
// bytes may come out of decompression.
func openReader(batch []byte, codec Codec, limit int64) (*reader, error) {
	r := readers.Get().(*reader)
	own := r.own
	*r = reader{own: own, codec: codec, limit: limit, left: limit}
	body := batch[HeaderSize:]
	if codec == None {
		r.buf = body
		return r, nil
	}
	var err error
	if r.src, err = openDecompressor(codec, body); err != nil {
		r.close()
		return nil, err
	}
	r.buf = own[:0]
	return r, nil
}

func (r *reader) close() {
	if r.src != nil {
		closeDecompressor(r.codec, r.src)
	}
	own := r.own
	if cap(own) > windowSize {
		own = own[:windowSize:windowSize]
	}
	*r = reader{own: own}
	readers.Put(r)
}

// at returns how many bytes of records lie behind.
func (r *reader) at() int64 { return r.base + int64(r.pos) }

// fill makes at least n bytes available at pos, or as many as there are.
func (r *reader) fill(n int) error {
	if len(r.buf)-r.pos >= n || r.src == nil {
		return nil
	}
	r.base += int64(r.pos)
	kept := copy(r.own, r.buf[r.pos:])
	r.buf, r.pos = r.own[:kept], 0
	for len(r.buf) < n && r.src != nil {
		if len(r.buf) == len(r.own) {
			r.grow()
		}
		if err := r.read(); err != nil {
			return err
		}
	}
	return nil
}

// grow doubles the window, for a single record that does not fit; the memory follows data that arrived.
func (r *reader) grow() {
	own := make([]byte, 2*len(r.own))
	copy(own, r.buf)
	r.own, r.buf = own, own[:len(r.buf)]
}

// read appends what one call of src yields to buf, within own, and drops src at its end.
func (r *reader) read() error {
	n, err := r.src.Read(r.own[len(r.buf):])
	r.buf = r.own[:len(r.buf)+n]
	if r.left -= int64(n); r.left < 0 {
		return &TooLargeError{Size: r.limit - r.left, Max: r.limit, Decompressed: true}
	}
	if err == nil {
		return nil
	}
	closeDecompressor(r.codec, r.src)
	r.src = nil
	if err != io.EOF {
		return corrupt("%s: %v", r.codec, err)
	}
	return nil
}

// varint reads a zigzag varint. ok is false when the bytes end or it is longer than 64 bits.
func (r *reader) varint() (v int64, ok bool, err error) {
	if len(r.buf)-r.pos < maxVarint {
		if err := r.fill(maxVarint); err != nil {
			return 0, false, err
		}
	}
	if r.pos < len(r.buf) && r.buf[r.pos] < 0x80 { // most are one byte
		u := r.buf[r.pos]
		r.pos++
		return int64(u>>1) ^ -int64(u&1), true, nil
	}
	v, n := binary.Varint(r.buf[r.pos:])
	if n <= 0 {
		return 0, false, nil
	}
	r.pos += n
	return v, true, nil
}

// skip passes over n ≥ 0 bytes; ok is false when there are fewer.
func (r *reader) skip(n int64) (ok bool, err error) {
	for {
		here := int64(len(r.buf) - r.pos)
		if n <= here {
			r.pos += int(n)
			return true, nil
		}
		if r.src == nil {
			return false, nil
		}
		n -= here
		r.pos = len(r.buf)
		if err := r.fill(1); err != nil {
			return false, err
		}
	}
}

// end reports whether no byte is left.
func (r *reader) end() (bool, error) {
	err := r.fill(1)
	return r.pos == len(r.buf), err
}

// bytes returns the next n ≥ 0 bytes, valid until the next call of any method; ok is false when there
// are fewer.
func (r *reader) bytes(n int64) (b []byte, ok bool, err error) {
	if n > maxRecordSize {
		return nil, false, corrupt("record of %d bytes is above %d", n, maxRecordSize)
	}
	if err := r.fill(int(n)); err != nil {
		return nil, false, err
	}
	if int64(len(r.buf)-r.pos) < n {
		return nil, false, nil
	}
	b = r.buf[r.pos : r.pos+int(n)]
	r.pos += int(n)
	return b, true, nil
}
