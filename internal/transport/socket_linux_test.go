package transport

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ottla/internal/protocol"
	"ottla/internal/vfs"
)

// TestSmallFileInOneSegment: what stands before, in and behind a small stretch of a file is one segment to the client.
func TestSmallFileInOneSegment(t *testing.T) {
	const size = 20_000
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.OS.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := net.Dial("tcp", startTCP(t, func(_ context.Context, r *Request) (Response, Pending) {
		return &sandwich{id: r.Header.CorrelationID, file: f, n: size}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range int32(3) {
		before := dataSegments(t, c)
		send(t, c, fetchRequest(i))
		wantID(t, c, i)
		if n := dataSegments(t, c) - before; n != 1 {
			t.Errorf("answer %d came in %d segments", i, n)
		}
	}
}

// A sandwich is an answer with a file between bytes of memory, as a Fetch has it.
type sandwich struct {
	id   int32
	file Source
	n    int64
}

func (*sandwich) Key() int16    { return 1 }
func (*sandwich) Gathers() bool { return false }
func (*sandwich) Abandon()      {}
func (a *sandwich) WriteFrame(w *FrameConn) error {
	frame := frameOf(append(protocol.AppendResponseHeader(nil, 1, false, a.id), make([]byte, a.n+3)...))
	if _, err := w.Write(frame[:8]); err != nil {
		return err
	}
	if err := w.SendFrom(a.file, 0, a.n); err != nil {
		return err
	}
	_, err := w.Write(make([]byte, 3))
	return err
}

// dataSegments is how many segments with data in them the connection has received.
func dataSegments(t *testing.T, c net.Conn) (n uint32) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	if controlErr := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); controlErr != nil {
		t.Fatal(controlErr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return info.Data_segs_in
}

// TestFrameArrived looks for a large frame where it waits: in a socket's buffer.
func TestFrameArrived(t *testing.T) {
	const size = 20_000
	two := append(frameOf(make([]byte, size)), frameOf(make([]byte, size))...)
	for name, missing := range map[string]int{"whole": 0, "all but a byte": 1, "nothing of it": size + sizeBytes} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			server, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			fr := frameReader{conn: server, socket: newSocket(server)}
			sent := two[:len(two)-missing]
			if _, err := client.Write(sent); err != nil {
				t.Fatal(err)
			}
			for fr.socket.unread() < len(sent) {
				runtime.Gosched()
			}
			if _, err := fr.next(time.Minute, time.Minute, size); err != nil {
				t.Fatal(err)
			}
			var f frame
			defer f.release()
			if err := fr.body(context.Background(), &f, &pool{capacity: 1 << 20}, size, time.Minute); err != nil {
				t.Fatal(err)
			}
			if got := fr.arrived(); got != (missing == 0) {
				t.Errorf("the second frame has arrived: %v", got)
			}
		})
	}
}
