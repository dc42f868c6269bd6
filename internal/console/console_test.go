package console

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type node struct {
	mu          sync.Mutex
	ready, live error
	state       string
}

func (n *node) set(state string, ready, live error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state, n.ready, n.live = state, ready, live
}

func (n *node) Ready() error  { n.mu.Lock(); defer n.mu.Unlock(); return n.ready }
func (n *node) Live() error   { n.mu.Lock(); defer n.mu.Unlock(); return n.live }
func (n *node) State() string { n.mu.Lock(); defer n.mu.Unlock(); return n.state }

func start(t *testing.T, n *node) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(l, Options{
		Node: n, Registry: prometheus.NewPedanticRegistry(), Logger: slog.New(slog.DiscardHandler),
		Info: Info{Version: "0.1.0", NodeID: 3, ClusterID: "q1Zr9a_tRk2xWb0hK3m7Ag", Rack: "<rack & 1>", Roles: []string{"broker", "controller"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.URL()
}

// client keeps no connection, so that none outlives a test.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}

func get(t *testing.T, url string) (status int, body string, header http.Header) {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

func TestHealth(t *testing.T) {
	n := &node{}
	url := start(t, n)
	for _, test := range []struct {
		state                string
		ready, live          error
		wantReady, wantLive  int
		readyBody, livesBody string
	}{
		{"running", nil, nil, 200, 200, "ok\n", "ok\n"},
		{"recovery", errors.New("it is fenced"), nil, 503, 200, "it is fenced\n", "ok\n"},
		{"not running", errors.New("no directory"), errors.New("all log directories failed"), 503, 503, "no directory\n", "all log directories failed\n"},
	} {
		n.set(test.state, test.ready, test.live)
		if status, body, _ := get(t, url+"/readyz"); status != test.wantReady || body != test.readyBody {
			t.Errorf("%s: /readyz is %d %q", test.state, status, body)
		}
		if status, body, _ := get(t, url+"/livez"); status != test.wantLive || body != test.livesBody {
			t.Errorf("%s: /livez is %d %q", test.state, status, body)
		}
	}
}

func TestMetrics(t *testing.T) {
	n := &node{state: "controlled shutdown"}
	url := start(t, n)
	status, body, _ := get(t, url+"/metrics")
	if status != 200 {
		t.Fatalf("status %d: %s", status, body)
	}
	for _, want := range []string{
		`ottla_build_info{goversion="go`,
		`ottla_broker_info{node_id="3",rack="<rack & 1>",roles="broker,controller"} 1`,
		`ottla_broker_state{state="controlled_shutdown"} 1`,
		`ottla_broker_state{state="running"} 0`,
		"go_goroutines ", "process_resident_memory_bytes ",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	// Prometheus's own collectors break some of its rules; ours must not.
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "ottla_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestPage(t *testing.T) {
	n := &node{state: "running"}
	url := start(t, n)
	status, body, header := get(t, url+"/")
	if status != 200 || !strings.HasPrefix(header.Get("Content-Type"), "text/html") {
		t.Fatalf("status %d, type %s", status, header.Get("Content-Type"))
	}
	if !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("policy %q", header.Get("Content-Security-Policy"))
	}
	for _, want := range []string{"It serves.", "ottla node 3", "q1Zr9a_tRk2xWb0hK3m7Ag", "&lt;rack &amp; 1&gt;", `href="/metrics"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	n.set("recovery", errors.New("<fenced>"), nil)
	if _, body, _ := get(t, url); !strings.Contains(body, "It does not serve: &lt;fenced&gt;") {
		t.Errorf("the page of a node that does not serve: %s", body)
	}
	if status, _, _ := get(t, url+"/nothing"); status != 404 {
		t.Errorf("an unknown path is %d", status)
	}
	resp, err := client.Post(url+"/metrics", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST is %d", resp.StatusCode)
	}
}

func TestListen(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	taken, err := Listen("127.0.0.1:0", false, logger)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	if l, err := Listen(address, true, logger); l != nil || err != nil {
		t.Errorf("a default port in use: %v, %v", l, err)
	}
	if !strings.Contains(log.String(), "ottla.console.listener") {
		t.Errorf("the log does not say what to do: %s", &log)
	}
	if _, err := Listen(address, false, logger); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("a configured port in use: %v", err)
	}
}

func TestCloseCutsOff(t *testing.T) {
	block := make(chan struct{})
	defer close(block)
	entered := make(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(l, Options{Node: &blocked{entered, block}, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		_, err := client.Get(s.URL() + "/readyz")
		failed <- err
	}()
	<-entered
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("an answer came although the check never ended")
	}
}

type blocked struct{ entered, block chan struct{} }

func (b *blocked) Ready() error  { close(b.entered); <-b.block; return nil }
func (b *blocked) Live() error   { return nil }
func (b *blocked) State() string { return "running" }

func TestRegistryUsedTwice(t *testing.T) {
	o := Options{Node: &node{}, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)}
	if err := register(o.Registry, o.Node, o.Info); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(l, o); err == nil {
		t.Error("no error")
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is still open: %v", err)
	}
}
