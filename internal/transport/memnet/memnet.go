// Package memnet is a network in memory: listeners and connections between
// named hosts, whose links can be cut, healed and delayed. Simulations and tests
// give its [Network.Listen] and [Network.Dialer] to what takes a net.Listener and a
// dial function.
//
// It behaves as TCP does where it matters: bytes arrive in order; what is written while a link
// is cut, the end of a connection included, arrives after it heals; a
// writer blocks when its peer does not read; a host that crashes resets its
// connections, but the peer learns of it only if the link is up. All waiting is on a sync.Cond and
// timers are plain time, so in a testing/synctest bubble all of it takes
// virtual time.
package memnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// bufferBytes is how much one direction of a connection holds before its
// writer blocks: like a small pair of socket buffers.
const bufferBytes = 64 << 10

// backlog is how many connections a listener holds that nobody has accepted yet.
const backlog = 128

// A Network connects hosts. Its methods may be called by many goroutines.
type Network struct {
	mu        sync.Mutex
	changed   *sync.Cond // a link or a listener changed; for those who dial
	links     map[link]state
	listeners map[string]*Listener
	pipes     map[*pipe]struct{}
	nextPort  int
}

// A link is one direction between two hosts.
type link struct{ from, to string }

type state struct {
	cut   bool
	delay time.Duration
}

// New returns a network whose links are all up and take no time.
func New() *Network {
	n := &Network{
		links:     make(map[link]state),
		listeners: make(map[string]*Listener),
		pipes:     make(map[*pipe]struct{}),
		nextPort:  32768,
	}
	n.changed = sync.NewCond(&n.mu)
	return n
}

// Addr is an address host:port in the network.
type Addr string

// Network returns "mem".
func (Addr) Network() string  { return "mem" }
func (a Addr) String() string { return string(a) }

// Listen listens on address, host:port. Port 0 is replaced by a free one. It fails with
// EADDRINUSE if somebody listens there.
func (n *Network) Listen(address string) (*Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if port == "0" {
		n.nextPort++
		address = fmt.Sprintf("%s:%d", host, n.nextPort)
	}
	if n.listeners[address] != nil {
		return nil, &net.OpError{Op: "listen", Net: "mem", Addr: Addr(address), Err: syscall.EADDRINUSE}
	}
	l := &Listener{network: n, address: Addr(address), host: host}
	l.changed = sync.NewCond(&n.mu)
	n.listeners[address] = l
	n.changed.Broadcast()
	return l, nil
}

// A Listener is a net.Listener of the network.
type Listener struct {
	network *Network
	address Addr
	host    string

	// Guarded by network.mu.
	changed *sync.Cond
	queue   []*Conn
	closed  bool
}

// Accept waits for a connection.
func (l *Listener) Accept() (net.Conn, error) {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	for len(l.queue) == 0 && !l.closed {
		l.changed.Wait()
	}
	if l.closed {
		return nil, &net.OpError{Op: "accept", Net: "mem", Addr: l.address, Err: net.ErrClosed}
	}
	c := l.queue[0]
	l.queue = l.queue[1:]
	return c, nil
}

// Close ends Accept and resets the connections nobody has accepted.
func (l *Listener) Close() error {
	queue, err := l.close()
	for _, c := range queue {
		c.reset()
	}
	return err
}

func (l *Listener) close() ([]*Conn, error) {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if l.closed {
		return nil, &net.OpError{Op: "close", Net: "mem", Addr: l.address, Err: net.ErrClosed}
	}
	l.closed = true
	delete(l.network.listeners, string(l.address))
	l.changed.Broadcast()
	l.network.changed.Broadcast()
	queue := l.queue
	l.queue = nil
	return queue, nil
}

// Addr returns the address listened on, an [Addr].
func (l *Listener) Addr() net.Addr { return l.address }

// Dialer returns a function like net.Dialer.DialContext that dials from a host. While the link
// is cut it waits, until ctx ends; nobody listening is ECONNREFUSED.
func (n *Network) Dialer(host string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		c, err := n.dial(ctx, host, address)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: "mem", Addr: Addr(address), Err: err}
		}
		return c, nil
	}
}

func (n *Network) dial(ctx context.Context, from, address string) (net.Conn, error) {
	to, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.changed.Broadcast()
	})
	defer stop()
	if err := n.travel(ctx, from, to); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch l := n.listeners[address]; {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case n.links[link{from, to}].cut || n.links[link{to, from}].cut:
		case l == nil:
			return nil, syscall.ECONNREFUSED
		case len(l.queue) < backlog:
			return n.connectLocked(l, from), nil
		}
		n.changed.Wait()
	}
}

// travel waits for the time that a round trip takes.
func (n *Network) travel(ctx context.Context, a, b string) error {
	n.mu.Lock()
	d := n.links[link{a, b}].delay + n.links[link{b, a}].delay
	n.mu.Unlock()
	if d == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *Network) connectLocked(l *Listener, from string) *Conn {
	n.nextPort++
	local := Addr(fmt.Sprintf("%s:%d", from, n.nextPort))
	out := n.pipeLocked(link{from, l.host})
	in := n.pipeLocked(link{l.host, from})
	l.queue = append(l.queue, &Conn{in: out, out: in, local: l.address, remote: local})
	l.changed.Signal()
	return &Conn{in: in, out: out, local: local, remote: l.address}
}

func (n *Network) pipeLocked(way link) *pipe {
	p := &pipe{network: n, way: way, link: n.links[way]}
	p.changed = sync.NewCond(&p.mu)
	n.pipes[p] = struct{}{}
	return p
}

// Cut stops all traffic between two hosts, both ways.
func (n *Network) Cut(a, b string) {
	n.CutOneWay(a, b)
	n.CutOneWay(b, a)
}

// CutOneWay stops traffic from one host to another. Connections stay, as TCP's do.
func (n *Network) CutOneWay(from, to string) {
	n.set(link{from, to}, func(s *state) { s.cut = true })
}

// Heal undoes Cut and CutOneWay, both ways. What was written meanwhile arrives now.
func (n *Network) Heal(a, b string) {
	n.set(link{a, b}, func(s *state) { s.cut = false })
	n.set(link{b, a}, func(s *state) { s.cut = false })
}

// Delay makes all that is written from now on take d from a to b and d back.
func (n *Network) Delay(a, b string, d time.Duration) {
	n.set(link{a, b}, func(s *state) { s.delay = d })
	n.set(link{b, a}, func(s *state) { s.delay = d })
}

func (n *Network) set(way link, change func(*state)) {
	n.mu.Lock()
	s := n.links[way]
	change(&s)
	n.links[way] = s
	pipes := n.pipesLocked(func(p *pipe) bool { return p.way == way })
	n.changed.Broadcast()
	n.mu.Unlock()
	for _, p := range pipes {
		p.setLink(s)
	}
}

// Crash resets all connections of a host and closes its listeners, as the end of
// its process does. A peer behind a cut link does not notice until it heals.
func (n *Network) Crash(host string) {
	n.mu.Lock()
	pipes := n.pipesLocked(func(p *pipe) bool { return p.way.from == host || p.way.to == host })
	var listeners []*Listener
	for _, l := range n.listeners {
		if l.host == host {
			listeners = append(listeners, l)
		}
	}
	n.mu.Unlock()
	for _, l := range listeners {
		if queue, err := l.close(); err == nil {
			for _, c := range queue {
				c.reset()
			}
		}
	}
	for _, p := range pipes {
		if p.way.from == host {
			p.closeWriter(syscall.ECONNRESET)
		} else {
			p.closeReader()
		}
	}
}

func (n *Network) pipesLocked(match func(*pipe) bool) []*pipe {
	var pipes []*pipe
	for p := range n.pipes {
		if match(p) {
			pipes = append(pipes, p)
		}
	}
	return pipes
}

// A Conn is a net.Conn of the network.
type Conn struct {
	in, out       *pipe
	local, remote Addr
}

// Read waits for bytes that have arrived. After the peer's Close it returns io.EOF, after its
// crash ECONNRESET.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	return n, c.opError("read", err)
}

// Write takes b, waiting while the buffer is full.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.out.write(b)
	return n, c.opError("write", err)
}

func (c *Conn) opError(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "mem", Source: c.local, Addr: c.remote, Err: err}
}

// Close ends both directions. What was written before still arrives.
func (c *Conn) Close() error {
	closed := c.out.closeWriter(io.EOF)
	c.in.closeReader()
	if !closed {
		return c.opError("close", net.ErrClosed)
	}
	return nil
}

// reset ends both directions as a crash does.
func (c *Conn) reset() {
	c.out.closeWriter(syscall.ECONNRESET)
	c.in.closeReader()
}

// LocalAddr returns this end's [Addr].
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the other end's [Addr].
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline makes Read fail with os.ErrDeadlineExceeded from t on; never if t is zero.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.in.setDeadline(&c.in.reader, t) }

// SetWriteDeadline makes Write fail with os.ErrDeadlineExceeded from t on; never if t is zero.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.out.setDeadline(&c.out.writer, t) }

// A pipe is one direction of a connection.
type pipe struct {
	network *Network
	way     link

	mu             sync.Mutex
	changed        *sync.Cond
	link           state
	segments       []segment // on their way or unread, in order
	bytes          int       // in segments
	peerGone       bool      // the reader is closed: nothing is taken any more
	reader, writer end
}

// A segment is what one write put in, or the end of the stream.
type segment struct {
	data []byte
	end  error // io.EOF or ECONNRESET, with no data
	// at is when it arrives; lost, if the link was cut before that: it is sent anew
	// when the link heals.
	at   time.Time
	lost bool
}

// An end is the reader's or the writer's side of a pipe.
type end struct {
	closed   bool
	deadline time.Time
	timer    *time.Timer // wakes those who wait when the deadline comes
}

func (e *end) expired(now time.Time) bool { return !e.deadline.IsZero() && !now.Before(e.deadline) }

func (p *pipe) setLink(s state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	healed := p.link.cut && !s.cut
	p.link = s
	for i := range p.segments {
		g := &p.segments[i]
		switch {
		case s.cut && g.at.After(now):
			g.lost = true
		case healed && g.lost:
			g.lost = false
			g.at = now.Add(s.delay)
			p.wakeAtLocked(g.at)
		}
	}
	p.changed.Broadcast()
}

// wakeAtLocked wakes those who wait when t has come.
func (p *pipe) wakeAtLocked(t time.Time) {
	if d := time.Until(t); d > 0 {
		time.AfterFunc(d, p.broadcast)
	}
}

func (p *pipe) broadcast() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed.Broadcast()
}

func (p *pipe) putLocked(s segment) {
	s.at = time.Now().Add(p.link.delay)
	s.lost = p.link.cut
	if n := len(p.segments); n > 0 && p.segments[n-1].at.After(s.at) {
		s.at = p.segments[n-1].at // never overtakes
	}
	p.segments = append(p.segments, s)
	p.bytes += len(s.data)
	p.wakeAtLocked(s.at)
	p.changed.Broadcast()
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		now := time.Now()
		switch {
		case p.reader.closed:
			return 0, net.ErrClosed
		case p.reader.expired(now):
			return 0, os.ErrDeadlineExceeded
		case len(p.segments) > 0 && !p.segments[0].lost && !p.segments[0].at.After(now):
			return p.takeLocked(b)
		}
		p.changed.Wait()
	}
}

// takeLocked reads from the first segment, which has arrived.
func (p *pipe) takeLocked(b []byte) (int, error) {
	s := &p.segments[0]
	if s.end != nil {
		return 0, s.end
	}
	n := copy(b, s.data)
	s.data = s.data[n:]
	p.bytes -= n
	if len(s.data) == 0 {
		p.segments[0] = segment{}
		p.segments = p.segments[1:]
	}
	p.changed.Broadcast()
	return n, nil
}

func (p *pipe) write(b []byte) (written int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.writer.closed:
			return written, net.ErrClosed
		case p.writer.expired(time.Now()):
			return written, os.ErrDeadlineExceeded
		case p.peerGone && !p.link.cut:
			return written, syscall.EPIPE
		case written == len(b):
			return written, nil
		}
		if room := min(bufferBytes-p.bytes, len(b)-written); room > 0 {
			p.putLocked(segment{data: append([]byte(nil), b[written:written+room]...)})
			written += room
			continue
		}
		p.changed.Wait()
	}
}

// closeWriter ends the stream with the given end, if it had not ended before.
func (p *pipe) closeWriter(with error) bool {
	p.mu.Lock()
	first := !p.writer.closed
	if first {
		p.writer.closed = true
		p.putLocked(segment{end: with})
	}
	p.writer.stop()
	over := p.reader.closed
	p.mu.Unlock()
	p.drop(over)
	return first
}

// closeReader makes the reader take no more. The writer notices while the link is up.
func (p *pipe) closeReader() {
	p.mu.Lock()
	p.reader.closed = true
	p.peerGone = true
	p.reader.stop()
	over := p.writer.closed
	p.changed.Broadcast()
	p.mu.Unlock()
	p.drop(over)
}

// drop takes a pipe that is closed at both ends out of the network.
func (p *pipe) drop(over bool) {
	if !over {
		return
	}
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	delete(p.network.pipes, p)
}

func (e *end) stop() {
	if e.timer != nil {
		e.timer.Stop()
	}
}

func (p *pipe) setDeadline(e *end, t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.closed {
		return net.ErrClosed
	}
	e.deadline = t
	e.stop()
	p.changed.Broadcast()
	if t.IsZero() {
		return nil
	}
	switch d := time.Until(t); {
	case d <= 0:
	case e.timer == nil:
		e.timer = time.AfterFunc(d, p.broadcast)
	default:
		e.timer.Reset(d)
	}
	return nil
}
