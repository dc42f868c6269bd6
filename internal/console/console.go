// Package console is a node's HTTP side: metrics, health and, for now, one
// plain page. The root package starts it beside the broker, of which it knows the
// interface [Node] and nothing else. It changes nothing in the node and reads no
// disk, so it answers while the broker is still starting, and when it is ill.
//
// Paths: /metrics (Prometheus), /livez (200 unless a restart is called for), /readyz
// (200 while the node serves), /. The address is ottla.console.listener.
package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A Node is what is told about. Its methods are called by many goroutines, at each request, and
// must not block.
type Node interface {
	// Ready says why the node does not serve, or nil.
	Ready() error
	// Live says why the node should be restarted, or nil.
	Live() error
	// State is what the broker is doing, by Kafka's names of BrokerState in lower case,
	// such as running; see States.
	State() string
}

// Info is what does not change while a node runs.
type Info struct {
	Version   string // of ottla
	Revision  string // of its source, empty if not known
	NodeID    int32
	ClusterID string
	Rack      string   // broker.rack, empty if not set
	Roles     []string // broker, controller
}

// Options configure a Server; all but Registry's content is required.
type Options struct {
	Node     Node
	Info     Info
	Registry *prometheus.Registry // served, and given the collectors of the process and the node
	Logger   *slog.Logger
}

const (
	// The limits on clients: they are scrapers and people, not many and not slow.
	headerTimeout  = 5 * time.Second
	requestTimeout = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
	// maxScrapes is how many scrapes may run at a time; each gathers everything.
	maxScrapes = 4
	// closeTimeout is how long Close waits for answers under way.
	closeTimeout = time.Second
)

// Listen listens on address, host:port. A port in use is an error if the address was
// configured; if it is the default one, Listen warns and returns nil and nil: a
// second node on the same machine starts all the same.
func Listen(address string, isDefault bool, logger *slog.Logger) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		return l, nil
	case isDefault && errors.Is(err, syscall.EADDRINUSE):
		logger.Warn("no metrics, health and console: the default port is in use; set ottla.console.listener", "address", address)
		return nil, nil
	default:
		return nil, fmt.Errorf("listen on ottla.console.listener %s: %w", address, err)
	}
}

// A Server answers HTTP requests until Close.
type Server struct {
	http    http.Server
	address net.Addr
	served  chan struct{} // closed when serving has ended
}

// Start registers the collectors of the process and the node and serves l, which it takes
// over. It fails if the registry holds such collectors already.
func Start(l net.Listener, o Options) (*Server, error) {
	if err := register(o.Registry, o.Node, o.Info); err != nil {
		return nil, errors.Join(fmt.Errorf("register the metrics of the process: %w", err), l.Close())
	}
	s := &Server{address: l.Addr(), served: make(chan struct{})}
	s.http = http.Server{
		Handler:           handler(o),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(s.served)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			o.Logger.Error("the console has stopped", "address", l.Addr().String(), "err", err)
		}
	}()
	return s, nil
}

// URL returns where the console is, such as http://127.0.0.1:9644.
func (s *Server) URL() string { return "http://" + s.address.String() }

// Close ends the server: it waits a second for answers under way, then cuts them off.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	<-s.served
	return err
}

func handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes,
		ErrorHandling:       promhttp.ContinueOnError, // one broken collector hides no other
		ErrorLog:            slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
	}))
	mux.Handle("GET /livez", health(o.Node.Live))
	mux.Handle("GET /readyz", health(o.Node.Ready))
	mux.Handle("GET /{$}", page(o))
	return secure(mux)
}

// health answers 200 ok, or 503 with the reason.
func health(check func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, err)
			return
		}
		fmt.Fprintln(w, "ok")
	})
}

// secure sets what every answer should carry: nothing here needs scripts, frames or
// content of others.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		next.ServeHTTP(w, r)
	})
}
