package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol"
)

// A DialFunc opens a connection. It is net.Dialer.DialContext, or its twin in memory.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// ClientOptions configure a Client.
type ClientOptions struct {
	Dial     DialFunc // required; TLS is its matter
	ClientID string   // by our custom ottla-…, such as ottla-fetcher-3
	// MaxResponseBytes bounds an answer's frame; 0 is 256 MiB. Memory grows with the bytes that
	// arrive, not with what is announced.
	MaxResponseBytes int
}

// A Client is one connection to another node. Calls may be made by many
// goroutines; they are sent in the order they come and answered in that
// order. When the connection ends, all calls fail at once and the Client is of no
// more use: dial another.
type Client struct {
	options ClientOptions
	address string
	nc      net.Conn
	sending chan struct{} // one token: the right to write
	done    chan struct{} // closed when the connection has ended
	reader  sync.WaitGroup

	mu struct {
		sync.Mutex
		next  int32 // correlation id
		calls map[int32]*call
		err   error // why the connection ended
	}
}

// A call waits for its answer.
type call struct {
	req  kmsg.Request
	done chan struct{} // closed when resp or err is set
	resp kmsg.Response
	err  error
}

// A ConnectionError says that a connection to another node could not be made or has
// ended. Whether the request was acted upon is not known.
type ConnectionError struct {
	Address string
	Err     error
}

func (e *ConnectionError) Error() string { return "connection to " + e.Address + ": " + e.Err.Error() }
func (e *ConnectionError) Unwrap() error { return e.Err }

// Dial connects to host:port. ctx bounds the attempt, not the life of the Client, which Close ends.
// It fails with a *ConnectionError.
func Dial(ctx context.Context, address string, options ClientOptions) (*Client, error) {
	setDefault(&options.MaxResponseBytes, 256<<20)
	nc, err := options.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, &ConnectionError{address, err}
	}
	c := &Client{options: options, address: address, nc: nc, sending: make(chan struct{}, 1), done: make(chan struct{})}
	c.mu.calls = make(map[int32]*call)
	c.sending <- struct{}{}
	c.reader.Add(1)
	go c.read()
	return c, nil
}

// Address returns what was dialled.
func (c *Client) Address() string { return c.address }

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Call sends req, at the version it is set to, and waits for the answer. Byte
// fields of the answer belong to the caller. A broken connection is a
// *ConnectionError, at once; an answer that cannot be decoded as well, for what
// follows it cannot be trusted either. If ctx ends first its error is returned, the request may
// be acted upon all the same, and other calls are not disturbed.
func (c *Client) Call(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	call := &call{req: req, done: make(chan struct{})}
	id, err := c.send(ctx, call)
	if err != nil {
		return nil, err
	}
	select {
	case <-call.done:
		return call.resp, call.err
	case <-ctx.Done():
		c.forget(id)
		return nil, fmt.Errorf("%s to %s: %w", kmsg.NameForKey(req.Key()), c.address, ctx.Err())
	}
}

// send writes the request of call when it is its turn.
func (c *Client) send(ctx context.Context, call *call) (id int32, err error) {
	select {
	case <-c.sending:
	case <-c.done:
		return 0, c.ended()
	case <-ctx.Done():
		return 0, fmt.Errorf("%s to %s: %w", kmsg.NameForKey(call.req.Key()), c.address, ctx.Err())
	}
	defer func() { c.sending <- struct{}{} }()

	id, err = c.enter(call)
	if err != nil {
		return 0, err
	}
	buf := getBuffer(0)
	defer putBuffer(buf)
	buf.b = protocol.AppendRequest(buf.b, call.req, id, &c.options.ClientID)
	if err := c.write(ctx, buf.b); err != nil {
		c.fail(err) // part of the frame may have left
		return 0, c.ended()
	}
	return id, nil
}

// write writes a frame. If ctx ends while the peer does not take it, the connection is
// ended: half a frame cannot be taken back.
func (c *Client) write(ctx context.Context, frame []byte) error {
	var over atomic.Bool // written or given up, whichever came first
	stop := context.AfterFunc(ctx, func() {
		if over.CompareAndSwap(false, true) {
			c.fail(fmt.Errorf("a request was not taken in time: %w", ctx.Err()))
		}
	})
	defer stop()
	_, err := c.nc.Write(frame)
	over.Store(true)
	return err
}

// enter gives the call a correlation id.
func (c *Client) enter(call *call) (id int32, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return 0, &ConnectionError{c.address, c.mu.err}
	}
	id = c.mu.next
	c.mu.next++
	c.mu.calls[id] = call
	return id, nil
}

// forget gives a call up whose answer may still come.
func (c *Client) forget(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.calls[id] != nil {
		c.mu.calls[id] = nil // the answer will be thrown away
	}
}

func (c *Client) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &ConnectionError{c.address, c.mu.err}
}

// Close ends the connection and waits for its reader. Calls under way fail.
func (c *Client) Close() error {
	c.fail(net.ErrClosed)
	c.reader.Wait()
	return nil
}

// fail ends the connection and all calls; only the first reason counts.
func (c *Client) fail(err error) {
	c.mu.Lock()
	if c.mu.err != nil {
		c.mu.Unlock()
		return
	}
	c.mu.err = err
	calls := c.mu.calls
	c.mu.calls = nil
	c.mu.Unlock()

	close(c.done)
	c.nc.Close() // given up already: err is what is reported
	for _, call := range calls {
		if call != nil {
			call.err = &ConnectionError{c.address, err}
			close(call.done)
		}
	}
}

// read hands answers to their calls until the connection ends.
func (c *Client) read() {
	defer c.reader.Done()
	for {
		frame, err := c.readFrame()
		if err == nil {
			err = c.deliver(frame)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// readFrame reads one frame, which the answer may keep.
func (c *Client) readFrame() ([]byte, error) {
	var word [4]byte
	if _, err := io.ReadFull(c.nc, word[:]); err != nil {
		return nil, err
	}
	size := int(int32(binary.BigEndian.Uint32(word[:])))
	if size < 4 || size > c.options.MaxResponseBytes {
		return nil, fmt.Errorf("an answer of %d bytes was announced; is this a Kafka port, and is it plaintext?", size)
	}
	frame := make([]byte, 0, min(size, firstAnswerStep))
	for len(frame) < size {
		if len(frame) == cap(frame) {
			frame = append(make([]byte, 0, min(size, 4*cap(frame))), frame...)
		}
		n, err := c.nc.Read(frame[len(frame):cap(frame)])
		frame = frame[:len(frame)+n]
		if err != nil && len(frame) < size {
			return nil, noEOF(err)
		}
	}
	return frame, nil
}

// firstAnswerStep is how much of an answer's announced size is believed at once. A node trusts
// another further than a client.
const firstAnswerStep = 1 << 20

// noEOF says that the end came in the middle.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// deliver gives the answer in frame to the call it is for.
func (c *Client) deliver(frame []byte) error {
	id := int32(binary.BigEndian.Uint32(frame))
	c.mu.Lock()
	call, known := c.mu.calls[id]
	delete(c.mu.calls, id)
	c.mu.Unlock()
	if !known {
		return fmt.Errorf("an answer came with correlation id %d, which no request has", id)
	}
	if call == nil {
		return nil // nobody waits any more
	}
	_, resp, err := protocol.ParseResponse(frame, call.req)
	call.resp, call.err = resp, err
	if err != nil {
		call.err = &ConnectionError{c.address, err}
	}
	close(call.done)
	return err
}
