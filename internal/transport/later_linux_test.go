package transport

import (
	"bytes"
	"context"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol"
)

// A brought answer is what a Fetch waits for until a Produce on another connection brings it, by Request.Later.
type brought struct {
	mu      sync.Mutex
	waiting *later // the Fetch
	fetches int32
	size    int // of each answer, to Produce as well
	by      chan string
}

func (b *brought) Handle(_ context.Context, r *Request) (Response, Pending) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := r.Header.CorrelationID
	if r.Header.Key == 1 {
		b.waiting = &later{request: r, wake: r.Wake}
		b.fetches++
		return nil, b.waiting
	}
	if f := b.waiting; f != nil {
		f.mu.Lock()
		f.response = &memoryAnswer{id: f.request.Header.CorrelationID, size: b.size, by: b.by}
		f.mu.Unlock()
		r.Later().Add(f.wake)
		b.waiting = nil
	}
	switch {
	case r.Body.(*kmsg.ProduceRequest).Acks == 0:
		return nil, nil
	case b.size > 0:
		return &memoryAnswer{id: id, size: b.size}, nil
	}
	return r.Body.ResponseKind(), nil
}

// A memoryAnswer is a FrameWriter that gathers. It tells which goroutine wrote it.
type memoryAnswer struct {
	id   int32
	size int
	by   chan string
}

func (*memoryAnswer) Key() int16    { return 1 }
func (*memoryAnswer) Abandon()      {}
func (*memoryAnswer) Gathers() bool { return true }
func (a *memoryAnswer) WriteFrame(w *FrameConn) error {
	if a.by != nil {
		a.by <- goroutine()
	}
	_, err := w.Write(frameOf(append(protocol.AppendResponseHeader(nil, 1, false, a.id), bytes.Repeat([]byte{byte(a.id)}, a.size)...)))
	return err
}

// goroutine names the goroutine that calls it.
func goroutine() string {
	b := make([]byte, 64)
	name, _, _ := bytes.Cut(b[:runtime.Stack(b, false)], []byte(" ["))
	return string(name)
}

func dialTCP(t *testing.T, addr string, receiveBuffer int) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if receiveBuffer > 0 {
		if err := c.(*net.TCPConn).SetReadBuffer(receiveBuffer); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// waitFor has the handler take a Fetch before the Produce that is to answer it is sent.
func (b *brought) waitFor(t *testing.T, c net.Conn, id int32) {
	t.Helper()
	send(t, c, fetchRequest(id))
	for {
		b.mu.Lock()
		there := b.waiting != nil
		b.mu.Unlock()
		if there {
			return
		}
		runtime.Gosched()
	}
}

func TestLater(t *testing.T) {
	t.Run("whoever brings the news writes the answer, if its client has sent nothing more", func(t *testing.T) {
		b := &brought{by: make(chan string, 1)}
		var reader string
		addr := startTCP(t, func(ctx context.Context, r *Request) (Response, Pending) {
			if r.Header.Key == 0 && reader == "" {
				reader = goroutine()
			}
			return b.Handle(ctx, r)
		})
		consumer, producer := dialTCP(t, addr, 0), dialTCP(t, addr, 0)
		b.waitFor(t, consumer, 1)
		send(t, producer, produceRequest(1, -1))
		wantID(t, producer, 1)
		wantID(t, consumer, 1)
		if by := <-b.by; by != reader {
			t.Errorf("%s wrote the answer to the fetch, want %s", by, reader)
		}
		b.waitFor(t, consumer, 2)
		send(t, producer, produceRequest(2, -1), produceRequest(3, -1))
		wantID(t, producer, 2)
		wantID(t, producer, 3)
		wantID(t, consumer, 2)
		if by := <-b.by; by == reader {
			t.Error("the producer's next request waited for the consumer's answer")
		}
	})
	t.Run("a Produce without an answer, and over what is no socket", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &brought{}
			f := start(t, b.Handle, nil)
			consumer, producer := f.dial(), f.dial()
			b.waitFor(t, consumer, 1)
			send(t, producer, produceRequest(1, 0))
			wantID(t, consumer, 1)
		})
	})

	// Answers that are more than both sockets' buffers take.
	const size, buffer = 60_000, 4096
	narrow := func(o *Options) { o.SendBufferBytes = buffer }
	check := func(t *testing.T, c net.Conn, id int32) {
		t.Helper()
		got, rest := receive(t, c)
		if got != id || !bytes.Equal(rest, bytes.Repeat([]byte{byte(id)}, size)) {
			t.Errorf("answer %d of %d bytes, want %d of %d, or the wrong bytes", got, len(rest), id, size)
		}
	}
	t.Run("a consumer that reads nothing holds up nobody", func(t *testing.T) {
		b := &brought{size: size}
		addr := startTCP(t, b.Handle, narrow)
		consumer, producer := dialTCP(t, addr, buffer), dialTCP(t, addr, 0)
		b.waitFor(t, consumer, 1)
		for id := range int32(3) {
			send(t, producer, produceRequest(id, -1))
			check(t, producer, id)
		}
		check(t, consumer, 1)
		b.waitFor(t, consumer, 2)
		send(t, producer, produceRequest(3, -1))
		check(t, consumer, 2)
	})
	t.Run("a producer that reads nothing does not keep the news", func(t *testing.T) {
		b := &brought{size: size}
		addr := startTCP(t, b.Handle, narrow)
		consumer, producer := dialTCP(t, addr, 0), dialTCP(t, addr, buffer)
		b.waitFor(t, consumer, 1)
		send(t, producer, produceRequest(7, -1))
		check(t, consumer, 1)
		check(t, producer, 7)
	})
}
