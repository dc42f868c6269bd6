// Package transport owns both ends of a Kafka connection. A [Server] reads
// frames under a memory budget, hands each request to a [Handler] and sends the
// answers back in the order of the requests; a [Client] is what one node asks
// another with. The broker and the controller call it; it does not know what a
// request means.
//
// Read [Handler], then [Server.Serve], then conn.go. What always holds:
//
//   - A connection's requests are handled one after the other by its reader, and
//     answered in their order. A request that is not pipelined (the table of package
//     protocol says which are) is handled only when all before it are answered.
//   - Memory for requests is bounded by a budget, whatever the peers announce.
//   - Each request is answered or its connection closed; a connection that makes no
//     progress is closed.
//   - After Close no goroutine of this package is left.
package transport

import (
	"context"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol"
	"ottla/internal/wake"
)

// A Handler answers requests. Handle is called by a connection's reader, one call
// at a time per connection, many at a time per server, and blocks that
// connection alone. ctx carries the auth.Session of the connection and ends when the
// connection does.
//
// It returns the answer, or nil and a Pending that will know it, or nil and nil
// for a request without an answer (Produce with acks=0).
type Handler interface {
	Handle(ctx context.Context, r *Request) (Response, Pending)
}

// A Request is one frame, decoded. It belongs to the handler until its answer has
// been written, its Pending cancelled, or, without either, until Handle returns; then the
// server uses it again.
type Request struct {
	Header protocol.RequestHeader
	API    *protocol.API
	// Body is the request as kmsg's struct. Its byte fields alias the frame: copy
	// what has to outlive the answer, or ReleaseFrame. Strings are copies. The struct itself is used again once the answer has left.
	Body     kmsg.Request
	Received time.Time // when the last byte of the frame was read
	Conn     *Conn
	// Wake asks that the Pending of this connection's oldest request be polled. Any
	// goroutine may call it at any time, also too often or too late; it never blocks.
	// Whoever wakes keeps the func, not the Request: that may be another's by then.
	Wake wake.Func
	// ErrorCode is what ottla_responses_total counts the answer under. The handler
	// sets it, in Handle or Poll, if the answer's code is not its top-level one.
	ErrorCode int16

	slot *slot
}

// ReleaseFrame gives the bytes of the frame back to the budget before the request
// is answered. Byte fields of Body must not be used afterwards. Produce does so when
// its records are in the log. Only Handle may call it.
func (r *Request) ReleaseFrame() { r.slot.frame.release() }

// Later returns a list of whom to wake when this request's own answer has left, or if that has to wait. The reader then also does the work
// that follows, if its client has sent nothing more. Only Handle may call it, and add to the list.
func (r *Request) Later() *wake.List { return &r.Conn.later }

// Lend has x recycled once the answer has been sent, or given up: it is made of what x holds. Only Handle may call it, once at most.
func (r *Request) Lend(x Recycler) { r.slot.lent = x }

// A Recycler takes back what an answer was made of, to make another of it.
type Recycler interface{ Recycle() }

// Throttle delays the client for d from now, because it exceeded a quota. Both
// Handle and Poll may call it; the longest delay counts.
//
// For d nothing is read from the connection, whatever the request was: the client's next
// request waits in the socket. The answer says d in throttle_time_ms, if it has that field.
//
// When the answer leaves is a matter of the request's version. Since KIP-219 (Kafka 2.0) a
// client that is told of a delay keeps still for so long by itself, and raised the version
// of each API to say that it does. Such an answer leaves at once; to hold it back as well
// would throttle twice. An older client takes the answer as leave to go on: it would send
// the next request at once, into a socket that nobody reads, count the silence against
// its request.timeout.ms, and come back by a new connection, which is not throttled. So its
// answer is held back until d is over, as brokers before 2.0 did. (Apache Kafka today
// answers both at once and stops reading; what differs is when an old client has its answer.)
// Which versions are which: the second result of kmsg.ThrottleResponse; an answer without the
// field is held back.
func (r *Request) Throttle(d time.Duration) { r.Conn.throttle(r.slot, d) }

// A Response is an answer to be sent: a kmsg.Response, whose frame the server
// makes; a [FrameWriter], which makes its own; or what [Close] returns.
type Response interface {
	Key() int16 // API key of the request it answers
}

// A FrameWriter writes its whole frame itself, size and header included, e.g. a
// Fetch answer whose records go from file to socket. The server calls WriteFrame
// once and closes the connection if it fails, for then part of a frame may have
// left; if the connection ends first, it calls Abandon instead. Either must release what
// the frame pins.
type FrameWriter interface {
	Response
	WriteFrame(w *FrameConn) error
	Abandon()
	// Gathers reports that the frame is some 64 KiB at most, and that WriteFrame does not call SendFrom: it may leave together with other answers.
	Gathers() bool
}

// Close returns a Response that closes the connection once all earlier answers
// have left. Clients see a broken connection, the only answer to a failed Produce with
// acks=0. The reason is logged.
func Close(reason string) Response { return closeResponse{reason} }

type closeResponse struct{ reason string }

func (closeResponse) Key() int16 { return -1 }

// A Pending is an answer that must wait: for a high watermark, for records, for a
// timer. Its methods are called by one goroutine at a time.
type Pending interface {
	// Poll returns the answer if there is one. It is called after a Wake, also one before Handle returned, at Deadline, and when the
	// requests before it have come to be answered, but not before those; at or
	// after Deadline it must return true. It must not block.
	Poll(now time.Time) (Response, bool)
	// Deadline is when Poll answers at the latest. Zero: only after a Wake. It takes no lock.
	Deadline() time.Time
	// Cancel is called instead of a further Poll when the connection is gone.
	Cancel()
}

// A Source sends n of its bytes, from off on, to w, and returns how many it sent.
// vfs.File is one; it uses sendfile if w is a TCP connection.
type Source interface {
	SendTo(w io.Writer, off, n int64) (int64, error)
}

// Phases are the five spans of a request's life, Kafka's names and meanings, and their whole.
type Phases struct {
	Queue  time.Duration // from the frame's last byte to Handle: waiting for earlier answers and for memory
	Local  time.Duration // in Handle
	Remote time.Duration // from then until the answer was known
	// Throttle is how long the answer, being known, was held back because of a quota; or, if it was not held
	// back (see [Request.Throttle]), for how long reading stopped, which is no part of Total.
	Throttle time.Duration
	Send     time.Duration // from the answer known, and no longer held back, to its last byte written; it may wait for another to leave with
	Total    time.Duration // from the frame's last byte read to the answer's last byte written
}

// An Observer is told of each request when it has been answered. It is called by
// whoever wrote the answer and must be quick; h is only valid during the call.
type Observer interface {
	Answered(c *Conn, h *protocol.RequestHeader, p Phases, errorCode int16)
}
