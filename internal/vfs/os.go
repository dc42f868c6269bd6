package vfs

import (
	"cmp"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// OS is the file system of the machine.
var OS FS = osFS{}

type osFS struct{}

func (osFS) Open(name string) (File, error) { return open(name, os.O_RDONLY) }

func (osFS) Create(name string) (File, error) {
	return open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (osFS) OpenReadWrite(name string) (File, error) { return open(name, os.O_RDWR|os.O_CREATE) }

func (osFS) Remove(name string) error                     { return os.Remove(name) }
func (osFS) RemoveAll(name string) error                  { return os.RemoveAll(name) }
func (osFS) Rename(oldName, newName string) error         { return os.Rename(oldName, newName) }
func (osFS) MkdirAll(name string, perm fs.FileMode) error { return os.MkdirAll(name, perm) }
func (osFS) Stat(name string) (fs.FileInfo, error)        { return os.Stat(name) }
func (osFS) ReadDir(name string) ([]fs.DirEntry, error)   { return os.ReadDir(name) }
func (osFS) SyncDir(name string) error                    { return syncDir(name) }

func (osFS) Space(dir string) (total, free uint64, err error) {
	if total, free, err = space(dir); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return total, free, nil
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		f.Close() // nothing was written
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	return f, nil
}

// syncThreads is how many files are synced at the same time where each takes a thread.
const syncThreads = 8

// syncTogether is SyncAll where each file takes a thread.
func syncTogether(files []File) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, min(syncThreads, len(files)))
	for i := range errs {
		wg.Go(func() {
			for n := next.Add(1) - 1; n < int64(len(files)) && errs[i] == nil; n = next.Add(1) - 1 {
				errs[i] = files[n].Sync()
			}
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}

type osFile struct {
	f   *os.File
	raw syscall.RawConn // of f; its Control keeps the descriptor open meanwhile
}

func open(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o644)
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close() // nothing was written
		return nil, err
	}
	return &osFile{f, raw}, nil
}

func (o *osFile) ReadAt(b []byte, off int64) (int, error)  { return o.f.ReadAt(b, off) }
func (o *osFile) WriteAt(b []byte, off int64) (int, error) { return o.f.WriteAt(b, off) }
func (o *osFile) Close() error                             { return o.f.Close() }
func (o *osFile) Name() string                             { return o.f.Name() }
func (o *osFile) Truncate(size int64) error                { return o.f.Truncate(size) }

func (o *osFile) Size() (int64, error) {
	info, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (o *osFile) SendTo(w io.Writer, off, n int64) (int64, error) {
	if conn, ok := w.(*net.TCPConn); ok {
		return o.sendToTCP(conn, off, n)
	}
	return copyTo(w, o.f, off, n)
}

// control runs a system call on the file's descriptor.
func (o *osFile) control(op string, call func(fd int) error) error {
	var err error
	if cerr := o.raw.Control(func(fd uintptr) { err = call(int(fd)) }); cerr != nil {
		err = fs.ErrClosed // all that Control fails with, in words of its own
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: o.f.Name(), Err: err}
	}
	return nil
}
