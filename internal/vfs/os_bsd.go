//go:build darwin || freebsd

package vfs

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

func (o *osFile) Sync() error { return o.f.Sync() }

// SyncAll implements [FS].
func (osFS) SyncAll(files []File) error { return syncTogether(files) }

// StartWriteback does nothing here: only Linux has the call.
func (o *osFile) StartWriteback(off, n int64) error { return nil }

// Forget does nothing here: only Linux has the call.
func (o *osFile) Forget() error { return nil }

func (o *osFile) sendToTCP(conn *net.TCPConn, off, n int64) (int64, error) {
	return copyTo(conn, o.f, off, n)
}

// lock takes a lock between users in one process and between ottlas, and then the fcntl lock that a JVM takes.
func lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	if err == unix.EAGAIN || err == unix.EACCES {
		return ErrLocked
	}
	return err
}
