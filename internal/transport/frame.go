package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

const (
	// readAhead is the read buffer that a connection keeps while idle. Most requests
	// fit, size included, and then cost one read.
	readAhead = 1024
	// firstStep is how much of a frame is believed before its bytes are there,
	// unless the connection has sent one as large before.
	firstStep = 64 << 10
	// maxUsual bounds what a connection may claim on the strength of its last frame:
	// a Produce of batch.size and max.request.size as clients have them.
	maxUsual = 2 << 20
	// minProgress is how many bytes count as progress of an unfinished frame.
	minProgress = 16 << 10
)

// A frame is the bytes of one request, without its size, and their share of the budget.
type frame struct {
	claim claim
	buf   *buffer // nil when released
}

func (f *frame) bytes() []byte { return f.buf.b }

// release gives the bytes back; more than once does no harm.
func (f *frame) release() {
	if f.buf != nil {
		putBuffer(f.buf)
		f.buf = nil
	}
	f.claim.release()
}

// A frameReader reads frames from a connection. It believes no size: the buffer
// grows as bytes arrive, under the budget.
type frameReader struct {
	conn   net.Conn
	socket *socket
	in     [readAhead]byte
	r, w   int // unread bytes of in
	// usual is the size of the last frame: the next may be as large at once.
	usual int
}

// A refusal is why a connection was closed by the server. Its reason is a label of
// ottla_connections_closed_total.
type refusal struct {
	reason string
	err    error
}

func (r *refusal) Error() string { return r.reason + ": " + r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(reason, format string, args ...any) *refusal {
	return &refusal{reason, fmt.Errorf(format, args...)}
}

// next waits for a frame of 0 to maxSize bytes to begin, until wait has passed, and returns its
// size. A connection that ends between two frames is io.EOF.
func (fr *frameReader) next(wait, progress time.Duration, maxSize int) (int, error) {
	for have := fr.w - fr.r; have < sizeBytes; have = fr.w - fr.r {
		limit := progress
		if have == 0 {
			limit = wait
		}
		if err := fr.fill(limit); err != nil {
			return 0, err
		}
	}
	size := int(int32(binary.BigEndian.Uint32(fr.in[fr.r:])))
	if size < 0 || size > maxSize {
		return 0, refuseSize(fr.in[fr.r:fr.w], size, maxSize)
	}
	fr.r += sizeBytes
	return size, nil
}

// fill reads what is there into in, waiting for limit at most.
func (fr *frameReader) fill(limit time.Duration) error {
	copy(fr.in[:], fr.in[fr.r:fr.w])
	fr.w -= fr.r
	fr.r = 0
	if err := fr.conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	n, err := fr.conn.Read(fr.in[fr.w:])
	fr.w += n
	switch {
	case n > 0:
		return nil
	case !errors.Is(err, os.ErrDeadlineExceeded):
		if err == io.EOF && fr.w > 0 {
			return io.ErrUnexpectedEOF
		}
		return err
	case fr.w == 0:
		return errIdle
	default:
		return refuse(reasonSlowFrame, "no complete frame size within %s", limit)
	}
}

// buffered reports whether part of the next frame has been read.
func (fr *frameReader) buffered() bool { return fr.w > fr.r }

// sizeBytes is how many bytes a frame's size has.
const sizeBytes = 4

// arrived reports whether the whole next frame is there. It looks into the socket only if part of the frame has been read, for then the
// client sends faster than it is answered.
func (fr *frameReader) arrived() bool {
	have := fr.w - fr.r
	if have < sizeBytes {
		return false
	}
	missing := sizeBytes + int(int32(binary.BigEndian.Uint32(fr.in[fr.r:]))) - have
	return missing <= 0 || missing <= fr.socket.unread()
}

// errIdle says that no frame began in time.
var errIdle = errors.New("no request")

// body reads the size bytes of a frame into f, taking its memory from p. A frame
// that does not get on for progress is refused; waiting for memory does not count.
func (fr *frameReader) body(ctx context.Context, f *frame, p *pool, size int, progress time.Duration) error {
	step := min(size, max(firstStep, fr.usual))
	_, have := bufferClass(step)
	if have < size {
		f.claim.enter(p) // it will need more: keep its place in the queue from now on
	}
	if err := f.claim.take(ctx, p, int64(have)); err != nil {
		return err
	}
	f.buf = getBuffer(step)
	n := copy(f.buf.b[:min(size, cap(f.buf.b))], fr.in[fr.r:fr.w])
	fr.r += n
	f.buf.b = f.buf.b[:n]

	var deadline time.Time
	mark := 0 // bytes there when the deadline was set
	for len(f.buf.b) < size {
		if len(f.buf.b) == cap(f.buf.b) {
			if err := f.grow(ctx, p, size); err != nil {
				return err
			}
			deadline = time.Time{} // it may have waited for memory
		}
		if deadline.IsZero() || len(f.buf.b)-mark >= minProgress {
			deadline, mark = time.Now().Add(progress), len(f.buf.b)
			if err := fr.conn.SetReadDeadline(deadline); err != nil {
				return err
			}
		}
		// in is empty by now, so it can take what of the next frame comes along where the buffer has room to spare.
		n, err := fr.conn.Read(f.buf.b[len(f.buf.b):min(size+len(fr.in), cap(f.buf.b))])
		f.buf.b = f.buf.b[:len(f.buf.b)+n]
		if err != nil && len(f.buf.b) < size {
			return bodyError(err, len(f.buf.b), size, progress)
		}
	}
	if len(f.buf.b) > size {
		fr.r, fr.w = 0, copy(fr.in[:], f.buf.b[size:])
		f.buf.b = f.buf.b[:size]
	}
	f.claim.settle()
	fr.usual = min(size, maxUsual)
	return nil
}

func bodyError(err error, have, size int, progress time.Duration) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(reasonSlowFrame, "frame stopped at %d of %d bytes for %s", have, size, progress)
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	default:
		return err
	}
}

// grow doubles the buffer, up to size.
func (f *frame) grow(ctx context.Context, p *pool, size int) error {
	step := min(size, 2*cap(f.buf.b))
	_, more := bufferClass(step)
	if err := f.claim.take(ctx, p, int64(more)); err != nil {
		return err
	}
	old := f.buf
	f.buf = getBuffer(step)
	f.buf.b = append(f.buf.b, old.b...)
	f.claim.shrink(int64(cap(old.b)))
	putBuffer(old)
	return nil
}

// refuseSize says what a first word that is no frame size more likely is.
func refuseSize(start []byte, size, maxSize int) error {
	switch word := string(start[:min(4, len(start))]); {
	case word == "GET " || word == "POST" || word == "HEAD" || word == "PUT " || word == "OPTI" || word == "PRI ":
		return refuse("http", "this is HTTP on a Kafka port; the console and metrics have a port of their own (ottla.console.listener)")
	case word == "SSH-":
		return refuse("ssh", "this is SSH on a Kafka port")
	case word[0] == 0x16 && word[1] == 0x03:
		return refuse("tls", "this is TLS on a plaintext port; set security.protocol=PLAINTEXT in the client or use a TLS listener")
	case size < 0:
		return refuse("bad_size", "a frame of %d bytes was announced", size)
	default:
		return refuse("too_large", "a frame of %d bytes was announced, socket.request.max.bytes is %d", size, maxSize)
	}
}

// The reasons that are used in more than one place.
const (
	reasonSlowFrame = "slow_frame"
	reasonMalformed = "malformed_request"
)
