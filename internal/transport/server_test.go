package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"ottla/internal/auth"
	"ottla/internal/protocol"
	"ottla/internal/transport/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A handlerFunc is a Handler made of a function.
type handlerFunc func(ctx context.Context, r *Request) (Response, Pending)

func (f handlerFunc) Handle(ctx context.Context, r *Request) (Response, Pending) { return f(ctx, r) }

// answerAll answers every request with the zero answer of its kind.
func answerAll(_ context.Context, r *Request) (Response, Pending) {
	return r.Body.ResponseKind(), nil
}

// A fixture is a server on b:9092 in a network of its own.
type fixture struct {
	*Server
	t        *testing.T
	net      *memnet.Network
	log      *bytes.Buffer
	registry *prometheus.Registry
}

func start(t *testing.T, h handlerFunc, change func(*Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, net: memnet.New(), log: &bytes.Buffer{}, registry: prometheus.NewPedanticRegistry()}
	o := Options{
		Handler: h, Budget: NewBudget(16<<20, 0), Registerer: f.registry,
		Logger: slog.New(slog.NewTextHandler(&lockedWriter{w: f.log}, nil)),
	}
	if change != nil {
		change(&o)
	}
	f.Server = NewServer(o)
	f.listen("b:9092", Listener{Name: "PLAINTEXT", Kind: protocol.OnBroker})
	t.Cleanup(func() { f.Close() })
	return f
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (f *fixture) listen(address string, as Listener) {
	l, err := f.net.Listen(address)
	if err != nil {
		f.t.Fatal(err)
	}
	go func() {
		if err := f.Serve(l, as); !errors.Is(err, ErrClosed) {
			f.t.Errorf("Serve: %v", err)
		}
	}()
}

func (f *fixture) dial() net.Conn { return f.dialFrom("a") }

func (f *fixture) dialFrom(host string) net.Conn {
	f.t.Helper()
	c, err := f.net.Dialer(host)(context.Background(), "tcp", "b:9092")
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	return c
}

// metric returns the value of a counter or gauge whose labels contain the given values.
func (f *fixture) metric(name string, labels ...string) (value float64) {
	f.t.Helper()
	families, err := f.registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	series:
		for _, m := range family.Metric {
			have := make(map[string]bool)
			for _, l := range m.Label {
				have[l.GetValue()] = true
			}
			for _, l := range labels {
				if !have[l] {
					continue series
				}
			}
			value += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return value
}

func versioned[R interface{ SetVersion(int16) }](r R, version int16) R {
	r.SetVersion(version)
	return r
}

// request returns the frame of a request, size included.
func request(r kmsg.Request, id int32) []byte {
	return protocol.AppendRequest(nil, r, id, kmsg.StringPtr("tester"))
}

func metadataRequest(id int32) []byte {
	return request(versioned(kmsg.NewPtrMetadataRequest(), 12), id)
}

func produceRequest(id int32, acks int16) []byte { return largeProduceRequest(id, acks, 0) }

// largeProduceRequest is a produceRequest with so many bytes of records.
func largeProduceRequest(id int32, acks int16, n int) []byte {
	r := versioned(kmsg.NewPtrProduceRequest(), 9)
	r.Acks = acks
	if n > 0 {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Records = make([]byte, n)
		topic := kmsg.NewProduceRequestTopic()
		topic.Partitions = append(topic.Partitions, p)
		r.Topics = append(r.Topics, topic)
	}
	return request(r, id)
}

// send writes to a connection whose server may have closed it.
func send(t *testing.T, c net.Conn, frames ...[]byte) {
	t.Helper()
	if _, err := c.Write(bytes.Join(frames, nil)); err != nil {
		t.Fatal(err)
	}
}

// receive returns the correlation id and the rest of the next answer.
func receive(t *testing.T, c net.Conn) (id int32, rest []byte) {
	t.Helper()
	var word [4]byte
	if _, err := io.ReadFull(c, word[:]); err != nil {
		t.Fatalf("no answer: %v", err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(word[:]))
	if _, err := io.ReadFull(c, frame); err != nil {
		t.Fatalf("half an answer: %v", err)
	}
	return int32(binary.BigEndian.Uint32(frame)), frame[4:]
}

func wantID(t *testing.T, c net.Conn, want int32) {
	t.Helper()
	if id, _ := receive(t, c); id != want {
		t.Fatalf("answer to request %d, want %d", id, want)
	}
}

// wantClosed waits for the connection to end and returns how long that took.
func wantClosed(t *testing.T, c net.Conn) time.Duration {
	t.Helper()
	start := time.Now()
	b := make([]byte, 1)
	if n, err := c.Read(b); err == nil {
		t.Fatalf("%d bytes came, want the end of the connection", n)
	}
	return time.Since(start)
}

func wantSilent(t *testing.T, c net.Conn, d time.Duration) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(d))
	defer c.SetReadDeadline(time.Time{})
	if n, err := c.Read(make([]byte, 1)); !isTimeout(err) {
		t.Fatalf("%d bytes came, %v; want silence", n, err)
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// frameOf returns a frame around bytes.
func frameOf(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// TestBadInput has the frame rows of the table of bad input; the answers are Apache Kafka 4.4.0's, as
// measured, but for the deadlines, which are ours.
func TestBadInput(t *testing.T) {
	header := func(key, version int16) []byte {
		b := binary.BigEndian.AppendUint16(nil, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		return append(b, 0, 0, 0, 1, 0xff, 0xff)
	}
	size := func(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	for _, test := range []struct {
		name   string
		send   []byte
		reason string
		log    string
	}{
		{name: "size -1", send: size(-1), reason: "bad_size"},
		{name: "size -2^31", send: size(-1 << 31), reason: "bad_size"},
		{name: "size 2^31-1", send: size(1<<31 - 1), reason: "too_large"},
		{name: "size 100 MiB+1", send: size(100<<20 + 1), reason: "too_large", log: "socket.request.max.bytes"},
		{name: "size 0", send: size(0), reason: "malformed_request"},
		{name: "short header", send: frameOf(header(3, 12)[:7]), reason: "malformed_request"},
		{name: "client id longer than the frame", send: frameOf(append(header(3, 12)[:8], 0, 50, 'x')), reason: "malformed_request"},
		{name: "256 zero bytes", send: make([]byte, 256), reason: "malformed_request"},
		{name: "HTTP GET", send: []byte("GET / HTTP/1.1\r\nHost: b\r\n\r\n"), reason: "http", log: "HTTP on a Kafka port"},
		{name: "TLS hello", send: []byte{0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc}, reason: "tls", log: "TLS on a plaintext port"},
		{name: "SSH banner", send: []byte("SSH-2.0-OpenSSH_9.2\r\n"), reason: "ssh", log: "SSH on a Kafka port"},
		{name: "api key 9999", send: frameOf(header(9999, 0)), reason: "malformed_request"},
		{name: "api key -1", send: frameOf(header(-1, 0)), reason: "malformed_request"},
		{name: "Metadata v99", send: frameOf(header(3, 99)), reason: "malformed_request"},
		{name: "Metadata v-1", send: frameOf(header(3, -1)), reason: "malformed_request"},
		{name: "Produce v2", send: frameOf(header(0, 2)), reason: "malformed_request"},
		{name: "LeaderAndIsr, of ZooKeeper's time", send: frameOf(header(4, 0)), reason: "malformed_request"},
		{name: "BrokerHeartbeat on a broker listener", send: frameOf(append(header(63, 1), 0)), reason: "unserved_api"},
		{name: "AlterPartition on a broker listener", send: frameOf(append(header(56, 3), 0)), reason: "unserved_api"},
		{name: "Vote on a broker listener", send: frameOf(append(header(52, 0), 0)), reason: "unserved_api"},
		{name: "array length 2^30", send: frameOf(append(header(3, 4), 0x40, 0, 0, 0, 0)), reason: "malformed_request"},
		{name: "array length -2", send: frameOf(append(header(3, 4), 0xff, 0xff, 0xff, 0xfe, 0)), reason: "malformed_request"},
		{name: "truncated body", send: frameOf(header(3, 4)), reason: "malformed_request"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, answerAll, nil)
				good, bad := f.dial(), f.dial()
				send(t, bad, test.send)
				if took := wantClosed(t, bad); took != 0 {
					t.Errorf("it was closed after %s", took)
				}
				synctest.Wait()
				if n := f.metric("ottla_connections_closed_total", "PLAINTEXT", test.reason); n != 1 {
					t.Errorf("%v connections closed as %s", n, test.reason)
				}
				if !strings.Contains(f.log.String(), test.log) {
					t.Errorf("no hint %q in the log: %s", test.log, f.log)
				}
				send(t, good, metadataRequest(7))
				wantID(t, good, 7) // nobody else is the worse for it
				synctest.Wait()
				if used := f.options.Budget.Used(); used != 0 {
					t.Errorf("%d bytes of the budget are lost", used)
				}
			})
		})
	}

	t.Run("ApiVersions v99 and v-1", func(t *testing.T) {
		for _, version := range []int16{99, -1} {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, answerAll, nil)
				c := f.dial()
				send(t, c, frameOf(append(header(18, version), 0))) // no tags; version -1 has no place for them
				id, body := receive(t, c)
				var resp kmsg.ApiVersionsResponse
				if err := resp.ReadFrom(body); err != nil || id != 1 {
					t.Fatalf("answer %d, %v", id, err)
				}
				if resp.ErrorCode != 35 || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 || resp.ApiKeys[0].MaxVersion != 5 {
					t.Errorf("answer %+v", resp)
				}
				send(t, c, metadataRequest(2)) // and it goes on
				wantID(t, c, 2)
			})
		}
	})

	t.Run("SaslHandshake and SaslAuthenticate on PLAINTEXT", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, answerAll, nil)
			c := f.dial()
			for _, r := range []kmsg.Request{versioned(kmsg.NewPtrSASLHandshakeRequest(), 1), versioned(kmsg.NewPtrSASLAuthenticateRequest(), 1)} {
				send(t, c, request(r, 3))
				_, body := receive(t, c)
				if code := int16(binary.BigEndian.Uint16(body)); code != 34 {
					t.Errorf("%T is answered %d, want ILLEGAL_SASL_STATE", r, code)
				}
			}
		})
	})

	t.Run("100 trailing bytes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, answerAll, nil)
			c := f.dial()
			send(t, c, frameOf(append(metadataRequest(4)[4:], make([]byte, 100)...)))
			wantID(t, c, 4)
		})
	})

	t.Run("6 of 260 bytes then idle", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, answerAll, nil)
			c := f.dial()
			send(t, c, []byte{0, 0, 1, 0, 0, 3})
			if took := wantClosed(t, c); took != 10*time.Second {
				t.Errorf("closed after %s, want 10 s", took)
			}
			synctest.Wait()
			if n := f.metric("ottla_connections_closed_total", "slow_frame"); n != 1 {
				t.Errorf("%v slow frames", n)
			}
		})
	})

	t.Run("a byte a second", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, answerAll, nil)
			c := f.dial()
			begin := time.Now()
			send(t, c, []byte{0, 0, 1, 0})
			for {
				if _, err := c.Write([]byte{0}); err != nil {
					break
				}
				time.Sleep(time.Second)
			}
			if took := time.Since(begin); took < 10*time.Second || took > 11*time.Second {
				t.Errorf("closed after %s, want 10 s", took)
			}
		})
	})

	t.Run("size=100 MiB exactly, no body; x12 connections", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, answerAll, nil)
			for range 12 {
				send(t, f.dial(), size(100<<20), []byte{0})
			}
			synctest.Wait()
			if used := f.options.Budget.Used(); used != 12*firstStep {
				t.Errorf("12 announced frames hold %d bytes, want %d", used, 12*firstStep)
			}
			c := f.dial()
			send(t, c, metadataRequest(1))
			wantID(t, c, 1)
		})
	})

	t.Run("12 times 8 MiB of 100 MiB against a budget of 16", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, answerAll, nil)
			for range 12 {
				c := f.dial()
				go c.Write(append(size(100<<20), make([]byte, 8<<20)...))
			}
			time.Sleep(time.Second)
			capacity := f.options.Budget.Capacity()
			if used := f.options.Budget.Used(); used > 2*capacity {
				t.Errorf("the frames hold %d bytes of %d", used, capacity)
			}
			c := f.dial()
			send(t, c, metadataRequest(1))
			wantID(t, c, 1) // after the stuck frames are thrown out, at the latest
			time.Sleep(5 * time.Minute)
			if used := f.options.Budget.Used(); used != 0 {
				t.Errorf("%d bytes are lost", used)
			}
		})
	})

	t.Run("200,000 pipelined ApiVersions, never read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, answerAll, nil)
			c := f.dial()
			one := request(versioned(kmsg.NewPtrApiVersionsRequest(), 3), 1)
			begin := time.Now()
			for range 200_000 {
				if _, err := c.Write(one); err != nil {
					break
				}
			}
			if took := time.Since(begin); took < 15*time.Second || took > 30*time.Second {
				t.Errorf("given up after %s, want 15 to 30 s", took)
			}
			synctest.Wait()
			if n := f.metric("ottla_connections_closed_total", "stalled_reader"); n != 1 {
				t.Errorf("%v stalled readers", n)
			}
		})
	})

	t.Run("a slow reader is waited for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, func(_ context.Context, r *Request) (Response, Pending) {
				resp := r.Body.ResponseKind().(*kmsg.MetadataResponse)
				resp.ClusterID = kmsg.StringPtr(strings.Repeat("x", 30<<10))
				resp.Brokers = make([]kmsg.MetadataResponseBroker, 100)
				for i := range resp.Brokers {
					resp.Brokers[i].Host = strings.Repeat("y", 30<<10)
				}
				return resp, nil
			}, nil)
			c := f.dial()
			send(t, c, metadataRequest(1))
			total := 0
			for total < 3_000_000 {
				time.Sleep(14 * time.Second)
				n, err := io.ReadAtLeast(c, make([]byte, 256<<10), 60<<10)
				if err != nil {
					t.Fatalf("after %d bytes: %v", total, err)
				}
				total += n
			}
		})
	})

	t.Run("connections.max.idle.ms", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, answerAll, nil)
			c := f.dial()
			send(t, c, metadataRequest(1))
			wantID(t, c, 1)
			if took := wantClosed(t, c); took != 10*time.Minute {
				t.Errorf("an idle connection is closed after %s, want 10 min", took)
			}
			silent := f.dial()
			if took := wantClosed(t, silent); took != 10*time.Second {
				t.Errorf("one that never sent anything after %s, want 10 s", took)
			}
		})
	})
}

func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got auth.Session
		f := start(t, func(ctx context.Context, r *Request) (Response, Pending) {
			got = *auth.From(ctx)
			return r.Body.ResponseKind(), nil
		}, nil)
		c := f.dial()
		v := versioned(kmsg.NewPtrApiVersionsRequest(), 3)
		v.ClientSoftwareName, v.ClientSoftwareVersion = "apache-kafka-java", "4.4.0"
		send(t, c, request(v, 1))
		wantID(t, c, 1)
		send(t, c, metadataRequest(2))
		wantID(t, c, 2)
		want := auth.Session{Principal: auth.Anonymous, Listener: "PLAINTEXT", Host: "a", ClientID: "tester",
			SoftwareName: "apache-kafka-java", SoftwareVersion: "4.4.0"}
		if got != want {
			t.Errorf("session %+v, want %+v", got, want)
		}
		synctest.Wait()
		if n := f.metric("ottla_connections_total", "PLAINTEXT", "apache-kafka-java"); n != 1 {
			t.Errorf("%v connections of the Java client", n)
		}
		if n := f.metric("ottla_connections"); n != 1 {
			t.Errorf("%v connections", n)
		}
		if n := f.metric("ottla_responses_total", "Metadata", "NONE"); n != 1 {
			t.Errorf("%v answers", n)
		}
		for _, phase := range []string{"queue", "local", "remote", "throttle", "send"} {
			if n := f.metric("ottla_request_phase_duration_seconds", "Metadata", phase); n != 1 {
				t.Errorf("phase %s was observed %v times", phase, n)
			}
		}
		families, err := f.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("promlint: %v, %v", problems, err)
		}
	})
}
