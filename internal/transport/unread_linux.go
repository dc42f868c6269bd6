package transport

import (
	"net"

	"golang.org/x/sys/unix"
)

// unreadBytes returns a function that tells how many bytes wait in the connection's socket, 0 where that is not known, for one goroutine
// at a time.
func unreadBytes(c net.Conn) func() int {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return func() int { return 0 }
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return func() int { return 0 } // it is closed
	}
	var n int
	ask := func(fd uintptr) {
		var err error
		if n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ); err != nil {
			n = 0
		}
	}
	return func() int {
		if raw.Control(ask) != nil { // it is closed, as the next read will find
			return 0
		}
		return n
	}
}
