package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"ottla/internal/transport/memnet"
)

// FuzzFrameReader compares the frames that come out with what a reader that has all bytes at
// hand finds, and holds the memory taken to a small multiple of what was sent.
func FuzzFrameReader(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 'x'}, uint16(1))
	f.Add(metadataRequest(1), uint16(3))
	f.Add(append(frameOf(make([]byte, 200_000)), metadataRequest(2)...), uint16(60_000))
	f.Add([]byte{0x06, 0x40, 0, 0, 1, 2, 3}, uint16(7))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint16(100))
	const maxSize = 100 << 20
	f.Fuzz(func(t *testing.T, sent []byte, piece uint16) {
		n := memnet.New()
		l, err := n.Listen("b:1")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		client, err := n.Dialer("a")(t.Context(), "tcp", "b:1")
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			writeInPieces(client, sent, int(piece)+1)
		}()
		got := readAll(t, server, maxSize, int64(4*len(sent)+64<<10+1<<minBufferShift))
		server.Close()
		<-done
		if want := splitFrames(sent, maxSize); !equalFrames(got, want) {
			t.Fatalf("%d frames, want %d", len(got), len(want))
		}
	})
}

func writeInPieces(c net.Conn, b []byte, size int) {
	defer c.Close()
	for len(b) > 0 {
		n, err := c.Write(b[:min(size, len(b))])
		if err != nil {
			return
		}
		b = b[n:]
	}
}

func readAll(t *testing.T, c net.Conn, maxSize int, mostMemory int64) (frames [][]byte) {
	fr := frameReader{conn: c}
	p := &pool{capacity: 1 << 30}
	for {
		size, err := fr.next(time.Minute, time.Minute, maxSize)
		if err != nil {
			return frames
		}
		var fm frame
		err = fr.body(context.Background(), &fm, p, size, time.Minute)
		if used := p.used.Load(); used > mostMemory {
			t.Fatalf("a frame took %d bytes, at most %d are its due", used, mostMemory)
		}
		if err != nil {
			fm.release()
			return frames
		}
		frames = append(frames, bytes.Clone(fm.bytes()))
		fm.release()
	}
}

// splitFrames is the slow model.
func splitFrames(b []byte, maxSize int) (frames [][]byte) {
	r := bytes.NewReader(b)
	for {
		var size int32
		if binary.Read(r, binary.BigEndian, &size) != nil || size < 0 || int(size) > maxSize || int(size) > r.Len() {
			return frames
		}
		frame := make([]byte, size)
		if _, err := io.ReadFull(r, frame); err != nil {
			return frames
		}
		frames = append(frames, frame)
	}
}

func equalFrames(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}
