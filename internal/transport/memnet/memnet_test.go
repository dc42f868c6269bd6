package memnet

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"
)

// pair returns both ends of a connection from a to b:1.
func pair(t *testing.T, n *Network) (client, server net.Conn) {
	t.Helper()
	l, err := n.Listen("b:1")
	if err != nil {
		t.Fatal(err)
	}
	client, err = n.Dialer("a")(context.Background(), "tcp", "b:1")
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close(); l.Close() })
	return client, server
}

// TestConn holds our connections against what net.Conn promises.
func TestConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		client, server := pair(t, New())
		return client, server, func() { client.Close(); server.Close() }, nil
	})
}

func TestAddresses(t *testing.T) {
	client, server := pair(t, New())
	if got := client.RemoteAddr().String(); got != "b:1" {
		t.Errorf("the client's peer is %s", got)
	}
	if got, want := server.RemoteAddr(), client.LocalAddr(); got != want {
		t.Errorf("the server's peer is %s, the client %s", got, want)
	}
	if host, _, err := net.SplitHostPort(client.LocalAddr().String()); host != "a" {
		t.Errorf("the client is on host %q, %v", host, err)
	}
}

func TestListen(t *testing.T) {
	n := New()
	l, err := n.Listen("b:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Listen("b:1"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listening twice: %v", err)
	}
	if _, err := n.Dialer("a")(context.Background(), "tcp", "b:2"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialling where nobody listens: %v", err)
	}
	waiting, err := n.Dialer("a")(context.Background(), "tcp", "b:1")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after close: %v", err)
	}
	if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection nobody accepted: %v", err)
	}
	if _, err := n.Listen("b:1"); err != nil {
		t.Errorf("listening again after close: %v", err)
	}
}

func TestLinks(t *testing.T) {
	read := func(t *testing.T, c net.Conn, want string) {
		t.Helper()
		b := make([]byte, len(want))
		if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
			t.Fatalf("read %q, %v; want %q", b, err, want)
		}
	}
	silent := func(t *testing.T, c net.Conn) {
		t.Helper()
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read %d bytes, %v; want nothing for a minute", n, err)
		}
		c.SetReadDeadline(time.Time{})
	}

	t.Run("delay", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := New()
			client, server := pair(t, n)
			n.Delay("a", "b", time.Second)
			start := time.Now()
			client.Write([]byte("x"))
			read(t, server, "x")
			if took := time.Since(start); took != time.Second {
				t.Errorf("a delay of 1 s took %s", took)
			}
		})
	})
	t.Run("cut and heal", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := New()
			client, server := pair(t, n)
			client.Write([]byte("before"))
			n.Cut("a", "b")
			client.Write([]byte(" during"))
			read(t, server, "before") // had arrived
			silent(t, server)
			client.Close()
			silent(t, server) // its end is cut off as well
			n.Heal("a", "b")
			read(t, server, " during")
			if _, err := server.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("after close: %v", err)
			}
		})
	})
	t.Run("a cut loses what is on its way", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := New()
			client, server := pair(t, n)
			n.Delay("a", "b", time.Second)
			client.Write([]byte("x"))
			n.CutOneWay("a", "b")
			silent(t, server)
			server.Write([]byte("y"))
			read(t, client, "y") // the other way is up
			n.Heal("a", "b")
			read(t, server, "x")
		})
	})
	t.Run("dial waits for the link", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := New()
			l, err := n.Listen("b:1")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			n.Cut("a", "b")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := n.Dialer("a")(ctx, "tcp", "b:1"); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("dialling over a cut link: %v", err)
			}
			time.AfterFunc(time.Minute, func() { n.Heal("a", "b") })
			c, err := n.Dialer("a")(t.Context(), "tcp", "b:1")
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
		})
	})
	t.Run("crash", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := New()
			client, server := pair(t, n)
			n.Crash("b")
			if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the peer reads %v", err)
			}
			if _, err := client.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
				t.Errorf("the peer writes: %v", err)
			}
			if _, err := server.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the crashed host reads %v", err)
			}
			if _, err := n.Dialer("a")(t.Context(), "tcp", "b:1"); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("dialling the crashed host: %v", err)
			}
		})
	})
	t.Run("crash behind a cut link", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := New()
			client, _ := pair(t, n)
			n.Cut("a", "b")
			n.Crash("b")
			silent(t, client)
			n.Heal("a", "b")
			if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("after healing: %v", err)
			}
		})
	})
	t.Run("a reader that does not read blocks its writer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client, server := pair(t, New())
			client.SetWriteDeadline(time.Now().Add(time.Minute))
			n, err := client.Write(make([]byte, 2*bufferBytes))
			if n != bufferBytes || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("wrote %d bytes, %v", n, err)
			}
			read(t, server, string(make([]byte, bufferBytes)))
		})
	})
}
