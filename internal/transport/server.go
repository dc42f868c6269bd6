package transport

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ottla/internal/protocol"
)

// Options configure a Server. Handler, Budget and Logger must be set; the zero
// value of anything else means what its comment says.
type Options struct {
	Handler Handler
	Budget  *Budget
	Logger  *slog.Logger
	// Registerer takes the metrics of transport; nil for none.
	Registerer prometheus.Registerer
	// Observer is told of each answered request; nil for none.
	Observer Observer
	// Limits on connections; see [Server.SetLimits].
	Limits Limits

	MaxRequestBytes int           // socket.request.max.bytes; 0 is Kafka's 100 MiB
	MaxIdle         time.Duration // connections.max.idle.ms; 0 is Kafka's 10 min
	// SendBufferBytes and ReceiveBufferBytes are socket.send.buffer.bytes and
	// socket.receive.buffer.bytes; 0 or less leaves the choice to the system.
	SendBufferBytes, ReceiveBufferBytes int

	FirstFrame time.Duration // from accept to the first complete request; 0 is 10 s
	Progress   time.Duration // a begun frame must get on within it; 0 is 10 s
	// Stall bounds how long a client that takes nothing of its answers keeps what they
	// pin: it is closed after half of it at the earliest, all of it at the latest. 0 is 30 s.
	Stall time.Duration
}

// withDefaults fills what is zero.
func (o Options) withDefaults() Options {
	setDefault(&o.MaxRequestBytes, 100<<20)
	setDefault(&o.MaxIdle, 10*time.Minute)
	setDefault(&o.FirstFrame, 10*time.Second)
	setDefault(&o.Progress, 10*time.Second)
	setDefault(&o.Stall, 30*time.Second)
	return o
}

func setDefault[T int | time.Duration](v *T, value T) {
	if *v == 0 {
		*v = value
	}
}

// A Listener says what the connections accepted from one net.Listener are for. TLS is
// a matter of that net.Listener; sendfile is used on plain TCP only.
type Listener struct {
	Name string            // such as PLAINTEXT, a label of metrics
	Kind protocol.Listener // which APIs it serves
	// Internal: the listener is for other nodes (inter.broker.listener.name or a
	// controller listener, used by nothing else). Its connections draw from their own
	// part of the budget and are let in beyond max.connections.
	Internal bool
}

// A Server accepts connections and serves requests on them. It may be used by
// many goroutines.
type Server struct {
	options Options
	metrics *metrics
	gate    gate
	hints   hints

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wait   sync.WaitGroup // of accept loops and connections

	mu struct {
		sync.Mutex
		closed    bool
		listeners map[net.Listener]struct{}
		conns     map[*Conn]struct{}
	}
}

// NewServer returns a server that does nothing yet. Close ends it.
func NewServer(options Options) *Server {
	s := &Server{options: options.withDefaults(), metrics: newMetrics(options.Registerer)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.gate.limits = options.Limits
	s.mu.listeners = make(map[net.Listener]struct{})
	s.mu.conns = make(map[*Conn]struct{})
	return s
}

// ErrClosed is returned by Serve after Close.
var ErrClosed = errors.New("transport: server closed")

// Serve accepts connections from l until Close, which it reports as [ErrClosed]. It takes l over.
// Errors of accept, such as too many open files, are logged and retried.
func (s *Server) Serve(l net.Listener, as Listener) error {
	if !s.track(l) {
		return errors.Join(ErrClosed, l.Close())
	}
	defer s.wait.Done()
	door := s.newDoor(as)
	s.gate.addDoor(door)
	defer s.gate.removeDoor(door)
	var backoff time.Duration
	for {
		nc, err := l.Accept()
		if err == nil {
			backoff = 0
			s.admit(nc, door)
			continue
		}
		if s.ctx.Err() != nil {
			return ErrClosed
		}
		backoff = min(max(2*backoff, 5*time.Millisecond), time.Second)
		s.metrics.acceptErrors.Inc()
		if n := s.hints.due("accept"); n > 0 {
			s.options.Logger.Warn("accepting connections fails; raise the limit of open files if it says so",
				"listener", as.Name, "err", err, "times", n)
		}
		if !sleep(s.ctx, backoff) {
			return ErrClosed
		}
	}
}

// track notes l as one to be closed, unless the server is closed already.
func (s *Server) track(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	s.mu.listeners[l] = struct{}{}
	s.wait.Add(1)
	return true
}

// admit starts serving nc, when and if the limits let it in. Waiting here keeps the
// listener from accepting more, as Apache does.
func (s *Server) admit(nc net.Conn, door *door) {
	host := hostOf(nc.RemoteAddr())
	err := s.gate.enter(s.ctx, door, host, s.closeOldest)
	if err == nil {
		c := newConn(s, nc, door, host)
		if s.start(c) {
			return
		}
		s.gate.leave(door, host)
		err = ErrClosed
	}
	s.note(door.Name, host, err)
	nc.Close() // nothing was sent: there is nothing to lose by an error
}

// start runs c unless the server is closed.
func (s *Server) start(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	s.mu.conns[c] = struct{}{}
	s.wait.Add(1)
	c.door.connections.Inc()
	go c.run()
	return true
}

// ended is called by a connection's reader as its last act, with why it ended.
func (s *Server) ended(c *Conn, why error) {
	s.mu.Lock()
	delete(s.mu.conns, c)
	s.mu.Unlock()
	c.door.connections.Dec()
	s.gate.leave(c.door, c.host)
	s.note(c.door.Name, c.host, why)
	s.wait.Done()
}

// closeOldest closes the connection that has been quiet for longest, among those that
// are not internal.
func (s *Server) closeOldest() {
	if c := s.oldest(); c != nil {
		c.fail(refuse("max_connections", "max.connections is reached and another node wants in; this was the least recently used"))
	}
}

func (s *Server) oldest() *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest *Conn
	for c := range s.mu.conns {
		if !c.door.Internal && c.ctx.Err() == nil && (oldest == nil || c.lastActive.Load() < oldest.lastActive.Load()) {
			oldest = c
		}
	}
	return oldest
}

// SetLimits changes the limits on connections. Those there already stay.
func (s *Server) SetLimits(limits Limits) { s.gate.setLimits(limits) }

// Connections returns how many connections are open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.conns)
}

// Close closes listeners and connections, cancels what waits, and returns when
// nothing runs any more. Requests under way get no answer.
func (s *Server) Close() error {
	s.mu.Lock()
	s.mu.closed = true
	var closers []interface{ Close() error }
	for l := range s.mu.listeners {
		closers = append(closers, l)
	}
	clear(s.mu.listeners)
	conns := make([]*Conn, 0, len(s.mu.conns))
	for c := range s.mu.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()

	s.cancel()
	var errs []error
	for _, l := range closers {
		errs = append(errs, l.Close())
	}
	for _, c := range conns {
		c.fail(ErrClosed)
	}
	s.wait.Wait()
	s.metrics.unregister(s.options.Registerer)
	return errors.Join(errs...)
}

// hostOf returns the host of an address, without port.
func hostOf(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return host
}

// sleep waits for d and reports true, or false as soon as ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
