package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func (f *fixture) client() *Client {
	f.t.Helper()
	c, err := Dial(f.t.Context(), "b:9092", ClientOptions{Dial: f.net.Dialer("a"), ClientID: "ottla-test-1"})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	return c
}

func TestClient(t *testing.T) {
	metadata := func() kmsg.Request { return versioned(kmsg.NewPtrMetadataRequest(), 12) }
	produce := func() kmsg.Request {
		r := versioned(kmsg.NewPtrProduceRequest(), 9)
		r.Acks = -1
		return r
	}

	t.Run("calls are pipelined", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &parking{}
			c := start(t, h.Handle, nil).client()
			var calls sync.WaitGroup
			for range 10 {
				calls.Go(func() {
					resp, err := c.Call(t.Context(), produce())
					if _, ok := resp.(*kmsg.ProduceResponse); !ok || err != nil {
						t.Errorf("answer %T, %v", resp, err)
					}
				})
			}
			if got := h.handled(); len(got) != 10 {
				t.Fatalf("handled %v while none is answered", got)
			}
			if id := *h.parked[0].request.Header.ClientID; id != "ottla-test-1" {
				t.Errorf("client id %q", id)
			}
			for i := range 10 {
				h.complete(9 - i)
			}
			calls.Wait()
		})
	})
	t.Run("versions are the caller's", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, func(_ context.Context, r *Request) (Response, Pending) {
				resp := r.Body.ResponseKind().(*kmsg.MetadataResponse)
				resp.ControllerID = int32(r.Header.Version)
				return resp, nil
			}, nil)
			c := f.client()
			for v := int16(1); v <= 13; v++ {
				resp, err := c.Call(t.Context(), versioned(kmsg.NewPtrMetadataRequest(), v))
				if err != nil || resp.(*kmsg.MetadataResponse).ControllerID != int32(v) {
					t.Errorf("version %d: %+v, %v", v, resp, err)
				}
			}
		})
	})
	t.Run("a lost connection fails all calls at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &parking{}
			f := start(t, h.Handle, nil)
			c := f.client()
			var calls sync.WaitGroup
			begin := time.Now()
			for range 5 {
				calls.Go(func() {
					_, err := c.Call(t.Context(), produce())
					var lost *ConnectionError
					if !errors.As(err, &lost) || lost.Address != "b:9092" || !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("error %v", err)
					}
				})
			}
			synctest.Wait()
			f.net.Crash("b")
			calls.Wait()
			if took := time.Since(begin); took != 0 {
				t.Errorf("it took %s", took)
			}
			<-c.Done()
			if _, err := c.Call(t.Context(), metadata()); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("a later call: %v", err)
			}
		})
	})
	t.Run("a call given up disturbs no other", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := &parking{}
			c := start(t, h.Handle, nil).client()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := c.Call(ctx, produce()); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("error %v", err)
			}
			h.complete(0)
			if _, err := c.Call(t.Context(), metadata()); err != nil {
				t.Errorf("the next call: %v", err)
			}
		})
	})
	t.Run("a call over a cut link ends with its context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, answerAll, nil)
			c := f.client()
			f.net.Cut("a", "b")
			for range 100 { // until the buffer is full, and beyond
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				r := versioned(kmsg.NewPtrProduceRequest(), 9)
				r.TransactionID = kmsg.StringPtr(string(make([]byte, 4<<10)))
				begin := time.Now()
				_, err := c.Call(ctx, r)
				cancel()
				if err == nil || time.Since(begin) > time.Second {
					t.Fatalf("error %v after %s", err, time.Since(begin))
				}
			}
		})
	})
	t.Run("nobody listens", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, answerAll, nil)
			_, err := Dial(t.Context(), "b:1", ClientOptions{Dial: f.net.Dialer("a")})
			var lost *ConnectionError
			if !errors.As(err, &lost) || !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("error %v", err)
			}
		})
	})
	for name, answer := range map[string][]byte{
		"an answer that is no answer":       []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"an answer nobody asked for":        {0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 0},
		"an answer that cannot be decoded":  {0, 0, 0, 5, 0, 0, 0, 0, 0},
		"half an answer":                    {0, 0, 0, 50, 0, 0, 0, 0},
		"an answer too short for a header":  {0, 0, 0, 2, 0, 0},
		"an answer of 200 MiB that is none": {0x0c, 0, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, answerAll, nil)
				l, err := f.net.Listen("b:1")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				c, err := Dial(t.Context(), "b:1", ClientOptions{Dial: f.net.Dialer("a")})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				peer, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					io.ReadFull(peer, make([]byte, 10))
					peer.Write(answer)
					peer.Close()
				}()
				_, err = c.Call(t.Context(), metadata())
				var lost *ConnectionError
				if !errors.As(err, &lost) || errors.Is(err, net.ErrClosed) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}
