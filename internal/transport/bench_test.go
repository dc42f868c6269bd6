package transport

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol"
)

// startTCP serves on a port of the loopback interface.
func startTCP(t testing.TB, h handlerFunc, set ...func(*Options)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Handler: h, Budget: NewBudget(256<<20, 0), Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), FirstFrame: time.Hour}
	for _, f := range set {
		f(&o)
	}
	s := NewServer(o)
	go s.Serve(l, Listener{Name: "PLAINTEXT", Kind: protocol.OnBroker})
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// BenchmarkRequest is the round trip of a small Produce, the handler's work left out: once answered
// at once, once after a wait.
func BenchmarkRequest(b *testing.B) {
	records := make([]byte, 100)
	produce := versioned(kmsg.NewPtrProduceRequest(), 9)
	produce.Acks = -1
	produce.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: records}}}}
	resp := versioned(kmsg.NewPtrProduceResponse(), 9)
	for name, h := range map[string]handlerFunc{
		"ready": func(_ context.Context, r *Request) (Response, Pending) {
			r.ReleaseFrame()
			return resp, nil
		},
		"waiting": func(_ context.Context, r *Request) (Response, Pending) {
			r.ReleaseFrame()
			r.Wake.Go()
			return nil, at(resp)
		},
	} {
		b.Run(name, func(b *testing.B) { benchmarkFrames(b, h, request(produce, 1), 1) })
		b.Run(name+", 5 in flight", func(b *testing.B) { benchmarkFrames(b, h, request(produce, 1), 5) })
	}
}

// BenchmarkLargeProduce reads frames of 1 MiB.
func BenchmarkLargeProduce(b *testing.B) {
	produce := versioned(kmsg.NewPtrProduceRequest(), 9)
	produce.Acks = -1
	produce.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: make([]byte, 1<<20)}}}}
	resp := versioned(kmsg.NewPtrProduceResponse(), 9)
	b.SetBytes(1 << 20)
	benchmarkFrames(b, func(_ context.Context, r *Request) (Response, Pending) {
		r.ReleaseFrame()
		return resp, nil
	}, request(produce, 1), 5)
}

// readyAnswer is a Pending that is over when it is first asked.
type readyAnswer struct{ kmsg.Response }

func at(r kmsg.Response) Pending                      { return readyAnswer{r} }
func (a readyAnswer) Poll(time.Time) (Response, bool) { return a.Response, true }
func (readyAnswer) Deadline() time.Time               { return time.Time{} }
func (readyAnswer) Cancel()                           {}

func benchmarkFrames(b *testing.B, h handlerFunc, frame []byte, inFlight int) {
	c, err := net.Dial("tcp", startTCP(b, h))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	answer := make([]byte, 64<<10)
	size := 0
	read := func() {
		if _, err := io.ReadFull(c, answer[:4]); err != nil {
			b.Fatal(err)
		}
		size = int(binary.BigEndian.Uint32(answer))
		if _, err := io.ReadFull(c, answer[:size]); err != nil {
			b.Fatal(err)
		}
	}
	write := func() {
		if _, err := c.Write(frame); err != nil {
			b.Fatal(err)
		}
	}
	for range inFlight - 1 {
		write()
	}
	b.ReportAllocs()
	for b.Loop() {
		write()
		read()
	}
	for range inFlight - 1 {
		read()
	}
}

// TestIdleConnectionsAreCheap holds the promise of 20 kB a connection; what is measured has the
// client's end in it as well.
func TestIdleConnectionsAreCheap(t *testing.T) {
	const connections = 500
	address := startTCP(t, answerAll)
	before := memory()
	for range connections {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		send(t, c, metadataRequest(1))
		wantID(t, c, 1)
	}
	if each := (memory() - before) / connections; each > 20_000 {
		t.Errorf("an idle connection takes %d bytes", each)
	} else {
		t.Logf("an idle connection takes %d bytes, its client included", each)
	}
}

func memory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
