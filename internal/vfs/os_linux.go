package vfs

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

func (o *osFile) Sync() error {
	return o.rangeCall("fdatasync", func(fd int, _, _ int64) error {
		return ignoringEINTR(func() error { return unix.Fdatasync(fd) })
	}, 0, 0)
}

func (o *osFile) StartWriteback(off, n int64) error {
	err := o.rangeCall("sync_file_range", func(fd int, off, n int64) error {
		return unix.SyncFileRange(fd, off, n, unix.SYNC_FILE_RANGE_WRITE)
	}, off, n)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil // a hint, and this file system takes none
	}
	return err
}

func (o *osFile) Forget() error {
	err := o.rangeCall("fadvise64", func(fd int, off, n int64) error {
		return unix.Fadvise(fd, off, n, unix.FADV_DONTNEED)
	}, 0, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return nil // a hint, and this file system takes none
	}
	return err
}

// A rangeCall is a system call on bytes of a file. They are pooled, since appends and fsyncs make them all the time, and what is given
// to syscall.RawConn would otherwise be allocated for each.
type rangeCall struct {
	call   func(fd int, off, n int64) error
	off, n int64
	err    error
	do     func(fd uintptr) // run, bound once
}

var rangeCalls = sync.Pool{New: func() any {
	c := new(rangeCall)
	c.do = c.run
	return c
}}

func (c *rangeCall) run(fd uintptr) { c.err = c.call(int(fd), c.off, c.n) }

// rangeCall is control for a call that captures nothing.
func (o *osFile) rangeCall(op string, call func(fd int, off, n int64) error, off, n int64) error {
	c := rangeCalls.Get().(*rangeCall)
	c.call, c.off, c.n = call, off, n
	err := fs.ErrClosed // all that Control fails with, in words of its own
	if o.raw.Control(c.do) == nil {
		err = c.err
	}
	c.call, c.err = nil, nil
	rangeCalls.Put(c)
	if err != nil {
		return &fs.PathError{Op: op, Path: o.f.Name(), Err: err}
	}
	return nil
}

// maxSendfile bounds one system call, so that a fast peer does not keep the thread for long.
const maxSendfile = 4 << 20

// sendToTCP uses sendfile(2) with an offset of its own, so that readers of one file do not disturb each other. The
// poller waits for room in the socket, and a deadline ends that.
func (o *osFile) sendToTCP(conn *net.TCPConn, off, n int64) (int64, error) {
	socket, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	start, end := off, off+n
	var serr error
	send := func(out uintptr) (done bool) {
		for off < end {
			var sent int
			cerr := o.raw.Control(func(in uintptr) {
				sent, serr = unix.Sendfile(int(out), int(in), &off, int(min(end-off, maxSendfile)))
			})
			switch {
			case cerr != nil:
				serr = cerr
				return true
			case serr == unix.EINTR:
			case serr == unix.EAGAIN:
				serr = nil
				return false
			case serr != nil:
				return true
			case sent == 0:
				serr = io.ErrUnexpectedEOF
				return true
			}
		}
		return true
	}
	if err := socket.Write(send); err != nil {
		return off - start, err
	}
	switch {
	case serr == nil, serr == io.ErrUnexpectedEOF:
		return off - start, serr
	case serr == unix.EINVAL, serr == unix.ENOSYS, serr == unix.EOPNOTSUPP: // a file system without it
		n, err := copyTo(conn, o.f, off, end-off)
		return off - start + n, err
	}
	return off - start, &fs.PathError{Op: "sendfile", Path: o.f.Name(), Err: serr}
}

// lock takes an open-file-description lock. Unlike flock(2) it conflicts with the fcntl locks of a JVM, so an Apache
// broker and ottla keep each other out of a directory; unlike those it also holds between two users in one process,
// and survives the close of another descriptor.
func lock(f *os.File) error {
	l := unix.Flock_t{Type: unix.F_WRLCK}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
	if errors.Is(err, unix.EINVAL) { // a kernel without them
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == unix.EAGAIN || err == unix.EACCES {
		return ErrLocked
	}
	return err
}
