package transport

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Limits bound the connections of a server. Zero means no limit.
type Limits struct {
	MaxConnections      int            // max.connections
	MaxConnectionsPerIP int            // max.connections.per.ip
	PerIPOverrides      map[string]int // max.connections.per.ip.overrides, by address; 0 refuses it
	CreationRate        int            // max.connection.creation.rate, connections a second
	// Listeners are the limits of single listeners, by name, which hold beside those of all. Their connections count for both.
	Listeners map[string]ListenerLimits
}

// ListenerLimits bound the connections of one listener. Zero means no limit of its own.
type ListenerLimits struct {
	MaxConnections int // listener.name.<name>.max.connections
	CreationRate   int // listener.name.<name>.max.connection.creation.rate, connections a second
}

// A gate counts connections. Beyond max.connections newcomers wait in their listener's
// accept loop; beyond the limit of their address they are turned away.
type gate struct {
	mu     sync.Mutex
	limits Limits
	doors  map[*door]struct{}
	total  int
	perIP  map[string]int
	pace   pace // of Limits.CreationRate
}

// A pace lets so many connections a second begin. Its next may begin then; that may lie up to a second back, which is the burst
// allowed.
type pace struct{ next time.Time }

// reserve returns when a connection that has come now may begin.
func (p *pace) reserve(now time.Time, rate int) time.Time {
	if rate <= 0 {
		return now
	}
	if burst := now.Add(-time.Second); p.next.Before(burst) {
		p.next = burst
	}
	start := p.next
	p.next = start.Add(time.Second / time.Duration(rate))
	return start
}

// A door is one listener's way through the gate.
type door struct {
	Listener
	count       int  // guarded by gate.mu
	pace        pace // likewise; of ListenerLimits.CreationRate
	connections prometheus.Gauge
	// room gets a token when a connection has left, for the accept loop that waits.
	room chan struct{}
}

func (s *Server) newDoor(as Listener) *door {
	return &door{Listener: as, connections: s.metrics.connections.WithLabelValues(as.Name), room: make(chan struct{}, 1)}
}

func (g *gate) addDoor(d *door) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.doors == nil {
		g.doors = make(map[*door]struct{})
		g.perIP = make(map[string]int)
	}
	g.doors[d] = struct{}{}
}

func (g *gate) removeDoor(d *door) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.doors, d)
}

func (g *gate) setLimits(limits Limits) {
	g.mu.Lock()
	g.limits = limits
	waiting := g.roomsLocked()
	g.mu.Unlock()
	signalAll(waiting)
}

// enter counts a connection of host in, after waiting for the rate and for room. An internal door
// does not wait for room of the server: makeRoom is called to close another connection.
func (g *gate) enter(ctx context.Context, d *door, host string, makeRoom func()) error {
	if !sleepUntil(ctx, g.reserveStart(time.Now(), d)) {
		return ErrClosed
	}
	for {
		switch g.tryEnter(d, host) {
		case entered:
			return nil
		case enteredOverLimit:
			makeRoom()
			return nil
		case tooManyOfHost:
			return refuse("max_connections_per_ip", "max.connections.per.ip is reached")
		}
		select {
		case <-d.room:
		case <-ctx.Done():
			return ErrClosed
		}
	}
}

type entry int

const (
	entered entry = iota
	enteredOverLimit
	tooManyOfHost
	noRoom
)

func (g *gate) tryEnter(d *door, host string) entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	limit, limited := g.limits.PerIPOverrides[host]
	if !limited {
		limit, limited = g.limits.MaxConnectionsPerIP, g.limits.MaxConnectionsPerIP > 0
	}
	full := g.limits.MaxConnections > 0 && g.total >= g.limits.MaxConnections
	own := g.limits.Listeners[d.Name].MaxConnections
	switch {
	case limited && g.perIP[host] >= limit:
		return tooManyOfHost
	case own > 0 && d.count >= own, full && !d.Internal:
		return noRoom
	}
	g.total++
	g.perIP[host]++
	d.count++
	if full {
		return enteredOverLimit
	}
	return entered
}

func (g *gate) leave(d *door, host string) {
	g.mu.Lock()
	g.total--
	d.count--
	if g.perIP[host]--; g.perIP[host] == 0 {
		delete(g.perIP, host)
	}
	waiting := g.roomsLocked()
	g.mu.Unlock()
	signalAll(waiting)
}

// reserveStart returns when a connection that has come to d now may begin, by the rate of d and that of all. Nodes heed only the
// former, so that no flood of clients keeps them out. Source: ConnectionQuotas.waitForConnectionSlot.
func (g *gate) reserveStart(now time.Time, d *door) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	start := d.pace.reserve(now, g.limits.Listeners[d.Name].CreationRate)
	if d.Internal {
		return start
	}
	if all := g.pace.reserve(now, g.limits.CreationRate); all.After(start) {
		return all
	}
	return start
}

func (g *gate) roomsLocked() []chan struct{} {
	rooms := make([]chan struct{}, 0, len(g.doors))
	for d := range g.doors {
		rooms = append(rooms, d.room)
	}
	return rooms
}

func signalAll(chans []chan struct{}) {
	for _, c := range chans {
		signal(c)
	}
}

// signal leaves a token in a channel of capacity one, if there is none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func sleepUntil(ctx context.Context, t time.Time) bool {
	d := time.Until(t)
	return d <= 0 || sleep(ctx, d)
}
