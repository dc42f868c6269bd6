package record

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/s2"
)

// Kafka's Java side wraps snappy blocks in the framing of xerial's snappy-java: a header of 8 magic
// bytes and two int32, version and lowest compatible version, then chunks of an int32 length and a
// snappy block. Most other clients send one bare snappy block. Both are read, xerial's is written.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const (
	xerialHeaderSize = 16
	xerialChunkSize  = 32 << 10 // bytes before compression; snappy-java's default
	xerialVersion    = 1
	// maxSnappyRatio bounds what a block can claim to hold: a copy of up to 64 bytes takes at least 2.
	maxSnappyRatio = 33
)

// A snappyReader decodes a snappy block at a time. Its memory is that of the largest block, which
// is bounded by maxSnappyRatio times the input.
type snappyReader struct {
	src    []byte // what is left
	xerial bool
	block  []byte // decoded, unread
	buf    []byte // keeps the memory of block
}

// maxIdleSnappyBuffer is the most memory in bytes that an idle reader in the pool keeps.
const maxIdleSnappyBuffer = 1 << 20

func (r *snappyReader) reset(src []byte) error {
	*r = snappyReader{src: src, buf: r.buf}
	r.xerial = bytes.HasPrefix(src, xerialMagic)
	return nil
}

func (r *snappyReader) release() {
	r.src, r.block = nil, nil
	if cap(r.buf) > maxIdleSnappyBuffer {
		r.buf = nil
	}
}

func (r *snappyReader) Read(p []byte) (int, error) {
	for len(r.block) == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.block)
	r.block = r.block[n:]
	return n, nil
}

// next decodes the next block.
func (r *snappyReader) next() error {
	if len(r.src) == 0 {
		return io.EOF
	}
	block := r.src
	if r.xerial {
		// Streams may be concatenated, each with its header (snappy-java's SnappyInputStream).
		for bytes.HasPrefix(r.src, xerialMagic) {
			if len(r.src) < xerialHeaderSize {
				return io.ErrUnexpectedEOF
			}
			r.src = r.src[xerialHeaderSize:]
		}
		if len(r.src) == 0 {
			return io.EOF
		}
		if len(r.src) < 4 {
			return io.ErrUnexpectedEOF
		}
		n := binary.BigEndian.Uint32(r.src)
		if int64(n) > int64(len(r.src)-4) {
			return fmt.Errorf("chunk of %d bytes, but %d are left", n, len(r.src)-4)
		}
		block = r.src[4 : 4+n]
		r.src = r.src[4+n:]
	} else {
		r.src = nil
	}
	return r.decode(block)
}

func (r *snappyReader) decode(block []byte) error {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return err
	}
	if n > maxSnappyRatio*len(block) {
		return fmt.Errorf("block of %d bytes claims to hold %d", len(block), n)
	}
	if n > cap(r.buf) {
		r.buf = make([]byte, n)
	}
	r.block, err = s2.Decode(r.buf[:n], block)
	return err
}

// A snappyWriter writes xerial's framing.
type snappyWriter struct {
	w       io.Writer
	started bool
	chunk   []byte // not yet written, at most xerialChunkSize
	out     []byte // scratch
}

func (w *snappyWriter) Reset(to io.Writer) {
	w.w, w.started, w.chunk = to, false, w.chunk[:0]
}

func (w *snappyWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		k := min(len(p), xerialChunkSize-len(w.chunk))
		w.chunk = append(w.chunk, p[:k]...)
		p = p[k:]
		if len(w.chunk) == xerialChunkSize {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (w *snappyWriter) Close() error { return w.flush() }

func (w *snappyWriter) flush() error {
	w.out = w.out[:0]
	if !w.started {
		w.started = true
		w.out = append(w.out, xerialMagic...)
		w.out = binary.BigEndian.AppendUint32(w.out, xerialVersion)
		w.out = binary.BigEndian.AppendUint32(w.out, xerialVersion)
	}
	if len(w.chunk) > 0 {
		head := len(w.out)
		w.out = append(w.out, make([]byte, 4+s2.MaxEncodedLen(len(w.chunk)))...)
		block := s2.EncodeSnappy(w.out[head+4:], w.chunk)
		binary.BigEndian.PutUint32(w.out[head:], uint32(len(block)))
		w.out = w.out[:head+4+len(block)]
		w.chunk = w.chunk[:0]
	}
	_, err := w.w.Write(w.out)
	return err
}
