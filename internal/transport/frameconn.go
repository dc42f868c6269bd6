package transport

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol"
)

const (
	// flushAt is how many bytes of answers are gathered before they are written.
	flushAt = 64 << 10
	// sendStep is the most that is sent before the deadline is renewed.
	sendStep = 1 << 20
	// corkUpTo is how many bytes of a file are few enough to leave in one segment with what stands before and behind them. Larger ones make
	// segments enough by themselves, and are better on their way at once.
	corkUpTo = 64 << 10
)

// A FrameConn is what a [FrameWriter] writes its frame to. Small pieces are gathered;
// a stretch of a file goes straight from file to socket. It is valid during
// WriteFrame only.
type FrameConn struct {
	conn   net.Conn
	socket *socket
	stall  time.Duration
	buf    *buffer // nil while there is nothing to send
	usual  int     // bytes that are likely to be gathered in buf next
}

// Write takes p as the frame's next bytes. It keeps no reference to p.
func (w *FrameConn) Write(p []byte) (int, error) {
	if len(p) >= flushAt {
		if err := w.flush(true); err != nil {
			return 0, err
		}
		return len(p), w.writeConn(p)
	}
	dst, err := w.Reserve(len(p))
	return copy(dst, p), err
}

// Reserve returns the frame's next n bytes, to be filled by the caller before it calls
// w again, e.g. by reading a small stretch of a file. It fails like Write.
func (w *FrameConn) Reserve(n int) ([]byte, error) {
	if w.buf != nil && len(w.buf.b) > 0 && len(w.buf.b)+n > flushAt {
		if err := w.flush(true); err != nil {
			return nil, err
		}
	}
	b := w.buffer(n)
	end := len(b.b)
	b.b = slices.Grow(b.b, n)[:end+n]
	return b.b[end:], nil
}

// SendFrom sends n bytes of src from off on as the frame's next: at most 1 MiB at a time, each time
// with a fresh deadline, so that a slow client is waited for and a stalled one is not.
func (w *FrameConn) SendFrom(src Source, off, n int64) error {
	if n <= corkUpTo {
		w.socket.cork()
	}
	if err := w.flush(true); err != nil {
		return err
	}
	for n > 0 {
		if err := w.renew(); err != nil {
			return err
		}
		sent, err := src.SendTo(w.conn, off, min(n, sendStep))
		off, n = off+sent, n-sent
		if err != nil && (sent == 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return w.sendError(err)
		}
		if sent == 0 {
			return io.ErrUnexpectedEOF // the file is shorter than the frame says
		}
	}
	return nil
}

// send writes the answer of s and all gathered before it.
func (w *FrameConn) send(s *slot) error {
	switch r := s.response.(type) {
	case nil:
	case closeResponse:
		return errors.Join(w.flush(true), refuse("close_answer", "%s", r.reason))
	case FrameWriter:
		s.response = nil // it releases itself now
		defer w.socket.uncork()
		if err := r.WriteFrame(w); err != nil {
			return err
		}
	case kmsg.Response:
		w.append(s, r)
	default:
		panic("transport: the handler answered " + s.req.API.Name + " with neither kmsg.Response nor FrameWriter")
	}
	return w.flush(true)
}

// gather appends the answer of s to those not yet written. It declines those that
// are written otherwise, and when enough is gathered. After an error the connection is to be closed.
func (w *FrameConn) gather(s *slot) (gathered bool, err error) {
	have := 0
	if w.buf != nil {
		have = len(w.buf.b)
	}
	if have >= flushAt {
		return false, nil
	}
	switch r := s.response.(type) {
	case nil:
		return true, nil
	case FrameWriter:
		if have > 0 || !r.Gathers() {
			return false, nil
		}
		s.response = nil // it releases itself now
		return true, r.WriteFrame(w)
	case kmsg.Response:
		w.append(s, r)
		return true, nil
	}
	return false, nil
}

func (w *FrameConn) append(s *slot, r kmsg.Response) {
	r.SetVersion(s.req.Header.Version)
	b := w.buffer(0)
	b.b = protocol.AppendResponse(b.b, r, s.req.Header.CorrelationID)
}

// buffer returns the buffer, which has room for n bytes if it is new.
func (w *FrameConn) buffer(n int) *buffer {
	if w.buf == nil {
		w.buf = getBuffer(max(n, w.usual))
	}
	return w.buf
}

// errWait says that somebody who is not patient would have to wait for the client.
var errWait = errors.New("the socket takes no more")

// flush writes what is gathered. If it is not patient and the socket does not take all, it returns errWait and keeps the rest.
func (w *FrameConn) flush(patient bool) error {
	if w.buf == nil || len(w.buf.b) == 0 {
		return nil
	}
	b := w.buf.b
	// A buffer that has to grow is lost to the pool: a client that asks for all topics will do so again.
	w.usual = min(max(len(b), w.usual/2), maxUsual)
	rest := b[w.socket.write(b):]
	if len(rest) > 0 && !patient {
		w.buf.b = b[:copy(b, rest)]
		return errWait
	}
	err := w.writeConn(rest)
	w.buf.b = b[:0]
	return err
}

// free lets go of the buffer, so that a quiet connection holds none.
func (w *FrameConn) free() {
	if w.buf != nil {
		putBuffer(w.buf)
		w.buf = nil
	}
}

// writeConn writes p, which may take as long as the client keeps taking some of it.
func (w *FrameConn) writeConn(p []byte) error {
	for len(p) > 0 {
		if err := w.renew(); err != nil {
			return err
		}
		n, err := w.conn.Write(p[:min(len(p), sendStep)])
		p = p[n:]
		if err != nil && (n == 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return w.sendError(err)
		}
	}
	return nil
}

// renew gives the client half the stall time to take something. A second half follows only
// if it did, so that no more than the whole can pass after the last byte it took.
func (w *FrameConn) renew() error { return w.conn.SetWriteDeadline(time.Now().Add(w.stall / 2)) }

func (w *FrameConn) sendError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return refuse("stalled_reader", "the client took no byte of its answers for %s", w.stall/2)
	}
	return err
}
