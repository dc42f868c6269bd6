package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"ottla/internal/config"
	"ottla/internal/protocol"
	"ottla/internal/transport"
)

// A listener is an address this node accepts connections at.
type listener struct {
	config.Endpoint // as configured, but with the port that was found
	net             net.Listener
	kind            protocol.Listener
	defaulted       bool // the address is ottla's default: another port does as well
}

// openListeners binds every address before anything is registered, so that port 0 is resolved in time. Nothing is
// accepted yet: see serveListeners.
func (b *Broker) openListeners(ctx, _ context.Context) error {
	for _, kind := range []protocol.Listener{protocol.OnController, protocol.OnBroker} {
		endpoints := b.static.BrokerListeners()
		if kind == protocol.OnController {
			endpoints = b.static.ControllerListeners()
		}
		for _, e := range endpoints {
			l := listener{Endpoint: e, kind: kind, defaulted: !b.static.IsSet("listeners")}
			if err := b.bind(ctx, &l); err != nil {
				return err
			}
			b.listeners = append(b.listeners, l)
			b.undo = append(b.undo, func() error { return closeListener(l.net) })
		}
	}
	return nil
}

// defaultPortTries is how many ports above a default one are tried when it is in use.
const defaultPortTries = 20

// bind opens the socket of l. A default port in use is passed over with a warning; one that was configured is an error.
func (b *Broker) bind(ctx context.Context, l *listener) (err error) {
	e := l.Endpoint
	for try := 0; ; try++ {
		l.net, err = b.listen(ctx, "tcp", e.HostPort())
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("listen at %s: %w", l.Endpoint, err)
		}
		if !l.defaulted || try == defaultPortTries {
			return fmt.Errorf("listen at %s: the port is in use (by another broker?); stop that, or choose another with --set listeners=…: %w", l.Endpoint, err)
		}
		e.Port++
	}
	if e.Port != l.Port {
		b.logger.Warn("a default port is in use; took another", "listener", l.Name, "port", l.Port, "instead", e.Port)
	}
	l.Port = portOf(l.net.Addr(), e.Port)
	return nil
}

// closeListener closes a listener that may have been closed by the server that served it.
func closeListener(l net.Listener) error {
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func portOf(a net.Addr, otherwise int) int {
	_, text, err := net.SplitHostPort(a.String())
	if err != nil {
		return otherwise
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return otherwise
	}
	return port
}

// newServer returns the server that all listeners of the node share; it accepts nothing yet.
func (b *Broker) newServer() *transport.Server {
	c := b.static
	return transport.NewServer(transport.Options{
		Handler: apis{b}, Budget: transport.NewBudget(c.Long("queued.max.request.bytes"), memoryLimit(c.Bytes("ottla.memory.limit"))),
		Logger: b.loggers.named("transport"), Registerer: b.registerer, Limits: connectionLimits(c),
		MaxRequestBytes: c.Int("socket.request.max.bytes"), MaxIdle: c.Duration("connections.max.idle.ms"),
		SendBufferBytes: c.Int("socket.send.buffer.bytes"), ReceiveBufferBytes: c.Int("socket.receive.buffer.bytes"),
		FirstFrame: c.Duration("ottla.frame.timeout.ms"), Progress: c.Duration("ottla.frame.timeout.ms"),
	})
}

// serveListeners begins to accept connections on the listeners of one kind.
func (b *Broker) serveListeners(background context.Context, kind protocol.Listener) {
	for _, l := range b.listeners {
		if l.kind != kind {
			continue
		}
		as := transport.Listener{Name: l.Name, Kind: kind, Internal: kind == protocol.OnController || b.isInterBroker(l.Name)}
		b.goes(background, "accept connections at "+l.Endpoint.String(), func(context.Context) error {
			if err := b.server.Serve(l.net, as); !errors.Is(err, transport.ErrClosed) {
				return err
			}
			return nil
		})
	}
}

// isInterBroker reports whether a listener is for other brokers and not for clients too.
func (b *Broker) isInterBroker(name string) bool {
	return name == b.static.InterBrokerListenerName() && len(b.static.BrokerListeners()) > 1
}

func connectionLimits(c *config.Config) transport.Limits {
	limits := transport.Limits{
		MaxConnections: c.Int("max.connections"), MaxConnectionsPerIP: c.Int("max.connections.per.ip"),
		PerIPOverrides: c.ConnectionsPerIPOverrides(), CreationRate: c.Int("max.connection.creation.rate"),
		Listeners: map[string]transport.ListenerLimits{},
	}
	for _, l := range c.Listeners() {
		var own transport.ListenerLimits
		own.MaxConnections, _ = c.ListenerInt(l.Name, "max.connections")
		own.CreationRate, _ = c.ListenerInt(l.Name, "max.connection.creation.rate")
		limits.Listeners[l.Name] = own
	}
	return limits
}

// advertised returns where clients and brokers reach this node, listener by listener, with ports resolved and an empty
// host replaced by the machine's name.
func (b *Broker) advertised(kind protocol.Listener) (out []config.Endpoint) {
	from := b.static.AdvertisedListeners()
	if kind == protocol.OnController {
		from = b.static.AdvertisedControllerListeners()
	}
	for _, e := range from {
		if e.Port == 0 || !b.static.IsSet("advertised.listeners") { // the port that was found, be it another than the default
			e.Port = b.boundPort(e.Name)
		}
		if e.Host == "" || e.Host == "0.0.0.0" || e.Host == "::" {
			e.Host = hostName()
		}
		out = append(out, e)
	}
	return out
}

func (b *Broker) boundPort(listener string) int {
	for _, l := range b.listeners {
		if l.Name == listener {
			return l.Port
		}
	}
	return 0
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}

// Addr returns host:port of the client listener of that name, or of the first for an empty name; empty if there is none.
func (b *Broker) Addr(name string) string {
	for _, e := range b.advertised(protocol.OnBroker) {
		if e.Name == name || name == "" {
			return e.HostPort()
		}
	}
	return ""
}
