package vfs

import (
	"io"
	"net"
	"os"

	"golang.org/x/sys/windows"
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

// syncDir does nothing: Windows cannot sync a directory, and NTFS journals its entries.
func syncDir(name string) error {
	_, err := os.Stat(name)
	return err
}

func space(dir string) (total, free uint64, err error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, 0, err
	}
	err = windows.GetDiskFreeSpaceEx(path, &free, &total, nil)
	return total, free, err
}

func lock(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped))
	if err == windows.ERROR_LOCK_VIOLATION {
		return ErrLocked
	}
	return err
}

// Map reads the file: a mapped file could be neither cut nor removed on Windows.
func (o *osFile) Map() (Mapping, error) {
	size, err := o.Size()
	if err != nil {
		return nil, err
	}
	m := &mapping{path: o.f.Name(), b: make([]byte, size)}
	if n, err := o.f.ReadAt(m.b, 0); err != nil && !(err == io.EOF && int64(n) == size) {
		return nil, err
	}
	return m, nil
}
