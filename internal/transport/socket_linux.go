package transport

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// A socket is what net.Conn does not show of a TCP connection. Of any other it knows nothing, and does nothing to it.
type socket struct {
	raw syscall.RawConn // nil if there is none

	// Of the reader.
	waiting int
	count   func(fd uintptr)

	// Of whoever writes.
	unsent []byte // what write is to send, then what it could not
	send   func(fd uintptr)
	corked bool
	set    func(fd uintptr)
}

func newSocket(c net.Conn) *socket {
	s := &socket{}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return s
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return s // it is closed
	}
	s.raw = raw
	s.count = func(fd uintptr) {
		n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		if err != nil {
			n = 0
		}
		s.waiting = n
	}
	s.send = func(fd uintptr) {
		for len(s.unsent) > 0 {
			n, err := syscall.Write(int(fd), s.unsent) // not unix.Write, which the race detector does not see as what a read in this process follows
			if err != nil || n == 0 {                  // for whoever writes the rest to find out
				return
			}
			s.unsent = s.unsent[n:]
		}
	}
	s.set = func(fd uintptr) {
		on := 0
		if s.corked {
			on = 1
		}
		// Advice: without it there are more segments.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, on)
	}
	return s
}

// unread returns how many bytes wait to be read, 0 if that is not known.
func (s *socket) unread() int {
	if s.raw == nil || s.raw.Control(s.count) != nil { // closed, as the next read will find
		return 0
	}
	return s.waiting
}

// write sends what the socket takes of p at once, and returns how many bytes that were. Of why it took no more it says nothing.
func (s *socket) write(p []byte) int {
	if s.raw == nil {
		return 0
	}
	s.unsent = p
	_ = s.raw.Control(s.send) // it is closed, as the next write will find
	n := len(p) - len(s.unsent)
	s.unsent = nil
	return n
}

// cork has the kernel keep what fills no segment back until there is more, uncork has it sent.
func (s *socket) cork() {
	if s.raw != nil && !s.corked {
		s.corked = true
		_ = s.raw.Control(s.set) // it is closed, as the next write will find
	}
}

func (s *socket) uncork() {
	if s.corked {
		s.corked = false
		_ = s.raw.Control(s.set)
	}
}
