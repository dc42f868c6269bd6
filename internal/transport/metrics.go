package transport

import (
	"context"
	"errors"
	"io"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol"
)

// metrics are those of a server. Series of the hot path are looked up once per API.
type metrics struct {
	connections   *prometheus.GaugeVec   // listener
	started       *prometheus.CounterVec // listener, software
	closed        *prometheus.CounterVec // listener, reason
	acceptErrors  prometheus.Counter
	duration      *prometheus.HistogramVec // api
	phaseDuration *prometheus.HistogramVec // api, phase
	responses     *prometheus.CounterVec   // api, error

	mu       sync.Mutex
	software map[string]struct{} // values of that label in use
	apis     [128]atomicAPI      // by key; the last is that of our one private API
}

// buckets are the classic ones beside the native histogram: 0.5 ms to 10 s.
var buckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 2.5, 10}

// maxSoftware is how many client libraries are told apart; clients choose the name.
const maxSoftware = 64

func newMetrics(r prometheus.Registerer) *metrics {
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: buckets,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		connections:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ottla_connections", Help: "Open client and node connections."}, []string{"listener"}),
		started:       counter("ottla_connections_total", "Connections by the client library they named, once they sent a request.", "listener", "software"),
		closed:        counter("ottla_connections_closed_total", "Connections turned away or closed, by reason.", "listener", "reason"),
		acceptErrors:  prometheus.NewCounter(prometheus.CounterOpts{Name: "ottla_connection_accept_errors_total", Help: "Failed attempts to accept a connection, such as too many open files."}),
		duration:      histogram("ottla_request_duration_seconds", "Time from a request's last byte read to its answer's last byte written.", "api"),
		phaseDuration: histogram("ottla_request_phase_duration_seconds", "Parts of a request's time: queue, local, remote, throttle, send.", "api", "phase"),
		responses:     counter("ottla_responses_total", "Answers by error code.", "api", "error"),
		software:      make(map[string]struct{}),
	}
	if r != nil {
		r.MustRegister(m.collectors()...)
	}
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.connections, m.started, m.closed, m.acceptErrors, m.duration, m.phaseDuration, m.responses}
}

// unregister takes the metrics out of r, so that another server may have them there.
func (m *metrics) unregister(r prometheus.Registerer) {
	if r == nil {
		return
	}
	for _, c := range m.collectors() {
		r.Unregister(c)
	}
}

// apiMetrics are the series of one API.
type apiMetrics struct {
	duration                             prometheus.Observer
	queue, local, remote, throttle, send prometheus.Observer
	ok                                   prometheus.Counter
}

// atomicAPI makes an apiMetrics when its API is first asked.
type atomicAPI struct {
	once sync.Once
	apiMetrics
}

func (m *metrics) api(api *protocol.API) *apiMetrics {
	a := &m.apis[min(int(api.Key), len(m.apis)-1)]
	a.once.Do(func() { a.apiMetrics = *m.newAPI(api.Name) })
	return &a.apiMetrics
}

func (m *metrics) newAPI(name string) *apiMetrics {
	phase := func(p string) prometheus.Observer { return m.phaseDuration.WithLabelValues(name, p) }
	return &apiMetrics{
		duration: m.duration.WithLabelValues(name),
		queue:    phase("queue"), local: phase("local"), remote: phase("remote"), throttle: phase("throttle"), send: phase("send"),
		ok: m.responses.WithLabelValues(name, "NONE"),
	}
}

func (m *metrics) answered(api *protocol.API, p Phases, errorCode int16) {
	a := m.api(api)
	a.duration.Observe(p.Total.Seconds())
	a.queue.Observe(p.Queue.Seconds())
	a.local.Observe(p.Local.Seconds())
	a.remote.Observe(p.Remote.Seconds())
	a.throttle.Observe(p.Throttle.Seconds())
	a.send.Observe(p.Send.Seconds())
	if errorCode == 0 {
		a.ok.Inc()
		return
	}
	m.responses.WithLabelValues(api.Name, errorName(errorCode)).Inc()
}

// connected counts a connection that has sent its first request.
func (m *metrics) connected(listener, software string) {
	m.started.WithLabelValues(listener, m.softwareLabel(software)).Inc()
}

// softwareLabel keeps the number of label values bounded.
func (m *metrics) softwareLabel(name string) string {
	if name == "" {
		return "unknown"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.software[name]; ok {
		return name
	}
	if len(m.software) >= maxSoftware || len(name) > 64 {
		return "other"
	}
	m.software[name] = struct{}{}
	return name
}

// errorName returns Kafka's name of an error code.
func errorName(code int16) string {
	if e, ok := kerr.ErrorForCode(code).(*kerr.Error); ok {
		return e.Message
	}
	return "NONE"
}

// topLevelError finds the field ErrorCode of an API's answers.
var topLevelError = func() (index [128]int) {
	for key := range index {
		index[key] = -1
		resp := kmsg.ResponseForKey(int16(key))
		if resp == nil {
			continue
		}
		t := reflect.TypeOf(resp).Elem()
		if f, ok := t.FieldByName("ErrorCode"); ok && f.Type.Kind() == reflect.Int16 {
			index[key] = f.Index[0]
		}
	}
	return index
}()

// errorCodeOf returns the top-level error code of an answer, 0 if it has none.
func errorCodeOf(resp Response) int16 {
	r, ok := resp.(kmsg.Response)
	if !ok || int(r.Key()) >= len(topLevelError) || topLevelError[r.Key()] < 0 {
		return 0
	}
	return int16(reflect.ValueOf(r).Elem().Field(topLevelError[r.Key()]).Int())
}

// note counts and, where it helps somebody, logs why a connection ended.
func (s *Server) note(listener, host string, why error) {
	reason := reasonOf(why)
	s.metrics.closed.WithLabelValues(listener, reason).Inc()
	var r *refusal
	if !errors.As(why, &r) {
		s.options.Logger.Debug("connection ended", "listener", listener, "host", host, "reason", reason, "err", why)
		return
	}
	if n := s.hints.due(reason); n > 0 {
		s.options.Logger.Warn("connection refused", "listener", listener, "host", host, "reason", reason, "err", r.err, "times", n)
	}
}

func reasonOf(why error) string {
	var r *refusal
	switch {
	case errors.As(why, &r):
		return r.reason
	case errors.Is(why, ErrClosed), errors.Is(why, context.Canceled):
		return "shutdown"
	case errors.Is(why, errIdle):
		return "idle"
	case errors.Is(why, io.EOF), errors.Is(why, io.ErrUnexpectedEOF), errors.Is(why, syscall.ECONNRESET), errors.Is(why, syscall.EPIPE):
		return "peer"
	default:
		return "error"
	}
}

// hints keep a flood of bad connections from flooding the log.
type hints struct {
	mu   sync.Mutex
	last map[string]*hint
}

type hint struct {
	logged time.Time
	held   int // since then
}

// hintEvery is the least time between two log lines of one kind.
const hintEvery = 10 * time.Second

// due returns how often the kind has come since it was last logged, if it is time to log
// it again, else 0. Kinds are constants of this package.
func (h *hints) due(kind string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		h.last = make(map[string]*hint)
	}
	e := h.last[kind]
	if e == nil {
		e = &hint{}
		h.last[kind] = e
	}
	e.held++
	now := time.Now()
	if now.Sub(e.logged) < hintEvery {
		return 0
	}
	n := e.held
	e.logged, e.held = now, 0
	return n
}
