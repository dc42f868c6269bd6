//go:build !linux

package transport

import "net"

// A socket is as on Linux, and knows nothing.
type socket struct{}

func newSocket(net.Conn) *socket { return &socket{} }

func (*socket) unread() int      { return 0 }
func (*socket) write([]byte) int { return 0 }
func (*socket) cork()            {}
func (*socket) uncork()          {}
