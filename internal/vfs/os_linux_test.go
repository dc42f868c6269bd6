package vfs

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A JVM locks with fcntl, so an Apache broker must find a directory of ours locked.
func TestLockExcludesFcntl(t *testing.T) {
	name := filepath.Join(t.TempDir(), ".lock")
	l, err := OS.Lock(name)
	ok(t, err)
	defer l.Close()
	other, err := os.OpenFile(name, os.O_RDWR, 0)
	ok(t, err)
	defer other.Close()
	is(t, unix.FcntlFlock(other.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}), unix.EAGAIN)
}
