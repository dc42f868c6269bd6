package transport

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol"
	"ottla/internal/wake"
)

// A later is a Pending that the test completes.
type later struct {
	request  *Request
	wake     wake.Func
	mu       sync.Mutex
	response Response
	polls    int
	deadline time.Time
	canceled bool
}

func (p *later) Poll(now time.Time) (Response, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.polls++
	if !p.deadline.IsZero() && !now.Before(p.deadline) && p.response == nil {
		return p.request.Body.ResponseKind(), true
	}
	return p.response, p.response != nil
}

func (p *later) Deadline() time.Time { return p.deadline }

func (p *later) Cancel() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.canceled = true
}

func (p *later) complete(resp Response) {
	p.mu.Lock()
	p.response = resp
	p.mu.Unlock()
	p.wake.Go()
}

func (p *later) wasCanceled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.canceled
}

// A parking handler makes every Produce and Fetch wait for the test and answers anything else.
type parking struct {
	mu     sync.Mutex
	parked []*later
	seen   []int32 // correlation ids, in the order of handling
	wait   time.Duration
}

func (h *parking) Handle(_ context.Context, r *Request) (Response, Pending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, r.Header.CorrelationID)
	if r.Header.Key > 1 {
		return r.Body.ResponseKind(), nil
	}
	p := &later{request: r, wake: r.Wake}
	if h.wait > 0 {
		p.deadline = time.Now().Add(h.wait)
	}
	h.parked = append(h.parked, p)
	return nil, p
}

func (h *parking) handled() []int32 {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.seen)
}

func (h *parking) complete(i int) {
	synctest.Wait()
	h.mu.Lock()
	p := h.parked[i]
	h.mu.Unlock()
	p.complete(p.request.Body.ResponseKind())
}

func fetchRequest(id int32) []byte {
	return request(versioned(kmsg.NewPtrFetchRequest(), 12), id)
}

func TestOrder(t *testing.T) {
	t.Run("Produce overlaps Produce and is answered in order", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &parking{}
			c := start(t, h.Handle, nil).dial()
			send(t, c, produceRequest(1, -1), produceRequest(2, -1), produceRequest(3, -1))
			if got := h.handled(); len(got) != 3 {
				t.Fatalf("handled %v before the first answer, want all three", got)
			}
			h.complete(2)
			h.complete(1)
			wantSilent(t, c, time.Minute)
			h.complete(0)
			wantID(t, c, 1)
			wantID(t, c, 2)
			wantID(t, c, 3)
		})
	})
	t.Run("what is answered while it is handled, and those before it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &parking{}
			c := start(t, func(ctx context.Context, r *Request) (Response, Pending) {
				resp, p := h.Handle(ctx, r)
				if r.Header.CorrelationID == 2 { // its wake finds the first one, and is used up before it is in the queue itself
					for _, i := range []int{1, 0} {
						h.parked[i].complete(r.Body.ResponseKind())
						time.Sleep(time.Millisecond)
					}
				}
				return resp, p
			}, nil).dial()
			send(t, c, produceRequest(1, -1), produceRequest(2, -1))
			wantID(t, c, 1)
			wantID(t, c, 2)
		})
	})
	t.Run("what is not pipelined waits for earlier answers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &parking{}
			c := start(t, h.Handle, nil).dial()
			send(t, c, produceRequest(1, -1), metadataRequest(2), produceRequest(3, -1))
			if got := h.handled(); !slices.Equal(got, []int32{1}) {
				t.Fatalf("handled %v, want 1 alone", got)
			}
			h.complete(0)
			wantID(t, c, 1)
			wantID(t, c, 2)
			if got := h.handled(); !slices.Equal(got, []int32{1, 2, 3}) {
				t.Errorf("handled %v", got)
			}
		})
	})
	t.Run("a fetch does not overlap a fetch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &parking{wait: 500 * time.Millisecond}
			c := start(t, h.Handle, nil).dial()
			send(t, c, fetchRequest(1), fetchRequest(2))
			begin := time.Now()
			wantID(t, c, 1)
			wantID(t, c, 2)
			if took := time.Since(begin); took != time.Second {
				t.Errorf("two waits of 500 ms took %s", took)
			}
		})
	})
	t.Run("a wake too often or too late does no harm", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &parking{}
			c := start(t, h.Handle, nil).dial()
			send(t, c, produceRequest(1, -1))
			synctest.Wait()
			news := h.parked[0].wake
			for range 1000 {
				news.Go()
			}
			h.complete(0)
			wantID(t, c, 1)
			news.Go()
			send(t, c, metadataRequest(2))
			wantID(t, c, 2)
			send(t, c, produceRequest(3, -1))
			h.complete(1)
			wantID(t, c, 3)
		})
	})
	t.Run("at most 128 unanswered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &parking{}
			c := start(t, h.Handle, nil).dial()
			go func() {
				for i := range int32(200) {
					c.Write(produceRequest(i, -1))
				}
			}()
			if got := h.handled(); len(got) != 128 {
				t.Fatalf("%d are handled", len(got))
			}
			h.complete(0)
			wantID(t, c, 0)
			if got := h.handled(); len(got) != 129 {
				t.Errorf("after one answer %d are handled", len(got))
			}
		})
	})
	t.Run("acks=0 has no answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := start(t, func(_ context.Context, r *Request) (Response, Pending) {
				if p, ok := r.Body.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
					return nil, nil
				}
				return r.Body.ResponseKind(), nil
			}, nil).dial()
			send(t, c, produceRequest(1, 0), produceRequest(2, 0), metadataRequest(3))
			wantID(t, c, 3)
		})
	})
	t.Run("acks=0 with an error closes behind earlier answers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &parking{}
			f := start(t, func(ctx context.Context, r *Request) (Response, Pending) {
				if p, ok := r.Body.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
					return Close("acks=0: CORRUPT_MESSAGE"), nil
				}
				return h.Handle(ctx, r)
			}, nil)
			c := f.dial()
			send(t, c, produceRequest(1, -1), produceRequest(2, 0), metadataRequest(3))
			synctest.Wait()
			h.complete(0)
			wantID(t, c, 1)
			wantClosed(t, c)
			if got := h.handled(); !slices.Equal(got, []int32{1}) {
				t.Errorf("handled %v", got)
			}
			if n := f.metric("ottla_connections_closed_total", "close_answer"); n != 1 {
				t.Errorf("%v closes by the handler", n)
			}
		})
	})
	t.Run("a connection that ends cancels what waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &parking{}
			f := start(t, h.Handle, nil)
			c := f.dial()
			send(t, c, fetchRequest(1))
			synctest.Wait()
			c.Close()
			synctest.Wait()
			if !h.parked[0].wasCanceled() {
				t.Error("the fetch still waits")
			}
			if used, n := f.options.Budget.Used(), f.Connections(); used != 0 || n != 0 {
				t.Errorf("%d bytes and %d connections are left", used, n)
			}
		})
	})
	t.Run("Close cancels what waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &parking{}
			f := start(t, h.Handle, nil)
			c := f.dial()
			send(t, c, produceRequest(1, -1), produceRequest(2, -1))
			synctest.Wait()
			f.Close()
			if !h.parked[0].wasCanceled() || !h.parked[1].wasCanceled() {
				t.Error("requests still wait")
			}
			wantClosed(t, c)
		})
	})
	t.Run("what waits has no goroutine", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &parking{wait: time.Minute}
			c := start(t, h.Handle, nil).dial()
			send(t, c, metadataRequest(1))
			wantID(t, c, 1)
			synctest.Wait()
			idle := runtime.NumGoroutine()
			send(t, c, fetchRequest(2))
			synctest.Wait()
			if n := runtime.NumGoroutine(); n != idle {
				t.Errorf("%d goroutines, %d without a fetch that waits", n, idle)
			}
			wantID(t, c, 2)
		})
	})
	t.Run("a long poll is not idle", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &parking{wait: time.Hour}
			c := start(t, h.Handle, nil).dial()
			send(t, c, metadataRequest(1), fetchRequest(2))
			wantID(t, c, 1)
			wantID(t, c, 2)
		})
	})
}

// TestOrderAtRandom completes waiting requests in any order and any number at a time.
func TestOrderAtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		f := start(t, func(_ context.Context, r *Request) (Response, Pending) {
			if rng.IntN(3) == 0 {
				return r.Body.ResponseKind(), nil
			}
			p := &later{request: r, wake: r.Wake}
			resp := r.Body.ResponseKind()
			time.AfterFunc(time.Duration(rng.IntN(20))*time.Millisecond, func() { p.complete(resp) })
			return nil, p
		}, nil)
		c := f.dial()
		const requests = 2000
		go func() {
			for i := range int32(requests) {
				if i%7 == 0 {
					c.Write(metadataRequest(i))
				} else {
					c.Write(produceRequest(i, -1))
				}
			}
		}()
		for i := range int32(requests) {
			wantID(t, c, i)
		}
		synctest.Wait()
		if used := f.options.Budget.Used(); used != 0 {
			t.Errorf("%d bytes of the budget are lost", used)
		}
	})
}

// A fileAnswer is a FrameWriter that sends its frame from a file.
type fileAnswer struct {
	id       int32
	file     pattern
	n        int64
	abandons int
}

// A pattern is a Source without end whose bytes tell their offset.
type pattern struct{}

func (pattern) SendTo(w io.Writer, off, n int64) (int64, error) {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(off + int64(i))
	}
	sent, err := w.Write(b)
	return int64(sent), err
}

func (*fileAnswer) Key() int16    { return 1 }
func (*fileAnswer) Gathers() bool { return false }
func (a *fileAnswer) Abandon()    { a.abandons++ }
func (a *fileAnswer) WriteFrame(w *FrameConn) error {
	head := protocol.AppendResponseHeader(nil, 1, false, a.id)
	frame := frameOf(append(head, make([]byte, a.n)...))
	if _, err := w.Write(frame[:8]); err != nil {
		return err
	}
	b, err := w.Reserve(3)
	if err != nil {
		return err
	}
	copy(b, []byte{0, 1, 2})
	return w.SendFrom(a.file, 3, a.n-3)
}

func TestFrameWriter(t *testing.T) {
	const size = 3<<20 + 17
	synctest.Test(t, func(t *testing.T) {
		h := &parking{}
		f := start(t, h.Handle, nil)
		c := f.dial()
		send(t, c, produceRequest(1, -1), produceRequest(2, -1), produceRequest(3, -1))
		synctest.Wait()
		h.parked[1].complete(&fileAnswer{id: 2, n: size})
		h.complete(2)
		h.complete(0)
		wantID(t, c, 1)
		id, rest := receive(t, c)
		if id != 2 || len(rest) != size {
			t.Fatalf("answer %d of %d bytes", id, len(rest))
		}
		for i, b := range rest {
			if b != byte(i) {
				t.Fatalf("byte %d is %d", i, b)
			}
		}
		wantID(t, c, 3)
	})
	t.Run("a reader that stalls loses what is pinned for it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			first, second := &fileAnswer{id: 1, n: size}, &fileAnswer{id: 2, n: size}
			h := &parking{}
			f := start(t, func(ctx context.Context, r *Request) (Response, Pending) {
				if r.Header.CorrelationID == 2 {
					return second, nil
				}
				return h.Handle(ctx, r)
			}, nil)
			send(t, f.dial(), produceRequest(1, -1), produceRequest(2, -1))
			synctest.Wait()
			h.parked[0].complete(first)
			time.Sleep(31 * time.Second)
			if n := f.metric("ottla_connections_closed_total", "stalled_reader"); n != 1 {
				t.Errorf("%v stalled readers", n)
			}
			if second.abandons != 1 {
				t.Errorf("the answer behind it was let go %d times", second.abandons)
			}
		})
	})
}

func TestLimits(t *testing.T) {
	t.Run("max.connections", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, answerAll, func(o *Options) { o.Limits.MaxConnections = 2 })
			f.listen("b:9093", Listener{Name: "CONTROLLER", Kind: protocol.OnController, Internal: true})
			first, second, third := f.dial(), f.dial(), f.dial()
			send(t, first, metadataRequest(1))
			wantID(t, first, 1)
			time.Sleep(time.Second)
			send(t, second, metadataRequest(1))
			wantID(t, second, 1)
			send(t, third, metadataRequest(1))
			wantSilent(t, third, 5*time.Second)
			first.Close()
			wantID(t, third, 1) // as soon as there is room

			controller, err := f.net.Dialer("c")(t.Context(), "tcp", "b:9093")
			if err != nil {
				t.Fatal(err)
			}
			defer controller.Close()
			wantClosed(t, second) // the least recently used makes room for a node
			send(t, controller, request(versioned(kmsg.NewPtrApiVersionsRequest(), 3), 9))
			wantID(t, controller, 9)
		})
	})
	t.Run("max.connections.per.ip and its overrides", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, answerAll, func(o *Options) {
				o.Limits = Limits{MaxConnectionsPerIP: 1, PerIPOverrides: map[string]int{"vip": 2, "banned": 0}}
			})
			kept := []net.Conn{f.dialFrom("a"), f.dialFrom("other"), f.dialFrom("vip"), f.dialFrom("vip")}
			for _, host := range []string{"a", "vip", "banned"} {
				wantClosed(t, f.dialFrom(host))
			}
			for _, c := range kept {
				send(t, c, metadataRequest(1))
				wantID(t, c, 1)
			}
			synctest.Wait()
			if n := f.metric("ottla_connections_closed_total", "max_connections_per_ip"); n != 3 {
				t.Errorf("%v were turned away", n)
			}
		})
	})
	t.Run("max.connection.creation.rate", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, answerAll, func(o *Options) { o.Limits.CreationRate = 10 })
			begin := time.Now()
			for range 40 {
				c := f.dial()
				send(t, c, metadataRequest(1))
				wantID(t, c, 1)
			}
			if took := time.Since(begin).Round(100 * time.Millisecond); took < 2800*time.Millisecond || took > 3*time.Second {
				t.Errorf("40 connections at 10 a second, with a second's burst, took %s", took)
			}
		})
	})
	t.Run("listener.name.x.max.connections", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, answerAll, func(o *Options) {
				o.Limits.Listeners = map[string]ListenerLimits{"PLAINTEXT": {MaxConnections: 2}}
			})
			f.listen("b:9094", Listener{Name: "OTHER", Kind: protocol.OnBroker})
			first, second, third := f.dial(), f.dial(), f.dial()
			for _, c := range []net.Conn{first, second} {
				send(t, c, metadataRequest(1))
				wantID(t, c, 1)
			}
			send(t, third, metadataRequest(1))
			wantSilent(t, third, 5*time.Second)
			for range 3 { // the other listener has no limit
				c, err := f.net.Dialer("a")(t.Context(), "tcp", "b:9094")
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				send(t, c, metadataRequest(1))
				wantID(t, c, 1)
			}
			f.SetLimits(Limits{Listeners: map[string]ListenerLimits{"PLAINTEXT": {MaxConnections: 3}}})
			wantID(t, third, 1)
		})
	})
	t.Run("listener.name.x.max.connection.creation.rate", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, answerAll, func(o *Options) {
				o.Limits = Limits{CreationRate: 20, Listeners: map[string]ListenerLimits{"PLAINTEXT": {CreationRate: 10}}}
			})
			f.listen("b:9093", Listener{Name: "CONTROLLER", Kind: protocol.OnController, Internal: true})
			connect := func(address string) {
				c, err := f.net.Dialer("a")(t.Context(), "tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				send(t, c, request(versioned(kmsg.NewPtrApiVersionsRequest(), 3), 1))
				wantID(t, c, 1)
			}
			begin := time.Now()
			for range 40 {
				connect("b:9092")
			}
			if took := time.Since(begin).Round(100 * time.Millisecond); took < 2800*time.Millisecond || took > 3*time.Second {
				t.Errorf("40 connections at 10 a second, with a second's burst, took %s", took)
			}
			begin = time.Now()
			for range 100 {
				connect("b:9093")
			}
			if took := time.Since(begin); took > 100*time.Millisecond {
				t.Errorf("100 connections of nodes were held up for %s", took)
			}
		})
	})
	t.Run("accept errors", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, answerAll, nil)
			l, err := f.net.Listen("b:1")
			if err != nil {
				t.Fatal(err)
			}
			flaky := &flakyListener{Listener: l, failures: 5}
			go f.Serve(flaky, Listener{Name: "FLAKY", Kind: protocol.OnBroker})
			c, err := f.net.Dialer("a")(t.Context(), "tcp", "b:1")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			send(t, c, metadataRequest(1))
			wantID(t, c, 1)
			if n := f.metric("ottla_connection_accept_errors_total"); n != 5 {
				t.Errorf("%v errors were counted", n)
			}
		})
	})
}

// A flakyListener has too many open files for a while.
type flakyListener struct {
	net.Listener
	failures int
}

func (l *flakyListener) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, errors.New("accept: too many open files")
	}
	return l.Listener.Accept()
}

// TestGather: the answer to a Produce leaves with that to the next one if that has arrived, and else at once.
func TestGather(t *testing.T) {
	// The handler answers each request when it is released, a Produce with acks=0 with nothing.
	gather := func(name string, f func(t *testing.T, c net.Conn, release func())) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turn := make(chan struct{}, 16)
				s := start(t, func(_ context.Context, r *Request) (Response, Pending) {
					<-turn
					if p, ok := r.Body.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
						return nil, nil
					}
					return r.Body.ResponseKind(), nil
				}, nil)
				f(t, s.dial(), func() {
					turn <- struct{}{}
					synctest.Wait()
				})
				close(turn)
				s.Close()
				if used := s.options.Budget.Used(); used != 0 {
					t.Errorf("%d bytes are left", used)
				}
			})
		})
	}
	gather("behind one that has arrived", func(t *testing.T, c net.Conn, release func()) {
		send(t, c, produceRequest(1, -1), produceRequest(2, -1))
		release()
		wantSilent(t, c, gatherFor/2)
		release()
		wantID(t, c, 1)
		wantID(t, c, 2)
	})
	gather("not for long", func(t *testing.T, c net.Conn, release func()) {
		send(t, c, produceRequest(1, -1), produceRequest(2, -1), produceRequest(3, -1))
		release()
		wantSilent(t, c, gatherFor+1)
		release()
		wantID(t, c, 1)
		wantID(t, c, 2)
		release()
		wantID(t, c, 3)
	})
	gather("not behind part of one", func(t *testing.T, c net.Conn, release func()) {
		next := produceRequest(2, -1)
		send(t, c, produceRequest(1, -1), next[:len(next)-1])
		release()
		wantID(t, c, 1)
		send(t, c, next[len(next)-1:])
		release()
		wantID(t, c, 2)
	})
	gather("not behind one that may take long", func(t *testing.T, c net.Conn, release func()) {
		send(t, c, produceRequest(1, -1), metadataRequest(2))
		release()
		wantID(t, c, 1)
		release()
		wantID(t, c, 2)
	})
	gather("not behind one without an answer", func(t *testing.T, c net.Conn, release func()) {
		send(t, c, produceRequest(1, -1), produceRequest(2, 0))
		release()
		release()
		wantID(t, c, 1)
	})
	for name, x := range map[string]struct {
		size int
		kept bool
	}{"behind a large one": {gatherUpTo / 2, true}, "not behind one that is large enough": {gatherUpTo + 1, false}} {
		gather(name, func(t *testing.T, c net.Conn, release func()) {
			send(t, c, largeProduceRequest(1, -1, x.size), produceRequest(2, -1))
			release()
			if x.kept {
				wantSilent(t, c, gatherFor/2)
				release()
			}
			wantID(t, c, 1)
			if !x.kept {
				release()
			}
			wantID(t, c, 2)
		})
	}
	gather("before what is refused", func(t *testing.T, c net.Conn, release func()) {
		send(t, c, produceRequest(1, -1), frameOf([]byte{0, 0, 0x7f, 0xff, 0, 0, 0, 2, 0xff, 0xff}))
		release()
		wantID(t, c, 1)
		wantClosed(t, c)
	})
}
