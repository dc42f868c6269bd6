// Package vfs is the seam between ottla and the file system. [OS] is the real one; [Mem] is its twin for tests, which
// keeps what was synced apart from what was only written, so that a test can cut the power, and fails where it is told
// to. It knows nothing of Kafka. One acceptance test runs on both.
//
// What always holds: a method either did all it says or returns an error; an error of Sync means that the fate of
// everything written since the last good Sync is unknown, and calling it again proves nothing.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
)

// ErrLocked is returned by [FS.Lock] when somebody else, in this process or another, holds the lock.
var ErrLocked = errors.New("locked by another process")

// An FS is a file system. Names are paths as the operating system writes them. Its methods may be called by many
// goroutines. Errors wrap those of io/fs: errors.Is(err, fs.ErrNotExist) works on both implementations.
type FS interface {
	// Open opens a file for reading; writing to it fails.
	Open(name string) (File, error)
	// Create opens a file for reading and writing, empty, whether it existed or not.
	Create(name string) (File, error)
	// OpenReadWrite opens a file for reading and writing as it is, or creates an empty one.
	OpenReadWrite(name string) (File, error)
	// Remove removes a file or an empty directory. Whoever has it open can go on using it.
	Remove(name string) error
	// RemoveAll removes name and all below it; it is no error if there is nothing.
	RemoveAll(name string) error
	// Rename renames a file or a directory within one file system, replacing a file (or an empty directory) that has
	// the new name. It is atomic: after a crash one of the two names stands, not both and not neither.
	Rename(oldName, newName string) error
	// MkdirAll makes the directory and its missing parents.
	MkdirAll(name string, perm fs.FileMode) error
	Stat(name string) (fs.FileInfo, error)
	// ReadDir lists a directory, sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	// SyncDir makes the directory's entries durable: what was created, renamed and removed in it. Before that, a crash
	// may undo the newest of these, however well the files themselves were synced.
	SyncDir(name string) error
	// SyncAll is Sync of all the files, at the same time, for work that nobody waits for: where the system can (Linux), no thread, and so none of
	// the Go runtime's few processors, is held by it, for which it takes up to some milliseconds longer than the disk. None of the files
	// may be closed meanwhile. It returns one of the errors if there are any; nothing is known then of any of the files.
	SyncAll(files []File) error
	// Lock takes an exclusive lock on the file, which it creates if need be; Apache's own lock on the same file excludes
	// it, and the reverse. It returns [ErrLocked], wrapped, at once when the lock is held. Close releases it, as does
	// the end of the process. The file stays.
	Lock(name string) (io.Closer, error)
	// Space returns the size of the file system that holds dir, and how much of it this process may still write; bytes.
	Space(dir string) (total, free uint64, err error)
}

// A File is an open file. Its methods may be called by many goroutines, for there is no shared offset; only Close must
// come last.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Name is the path the file was opened by.
	Name() string
	// Size is the file's length in bytes.
	Size() (int64, error)
	// Truncate cuts the file, or extends it with zeros.
	Truncate(size int64) error
	// Sync makes the file's contents and length durable (fdatasync). After an error it must not be called again: the
	// kernel may have dropped the pages and would report success.
	Sync() error
	// StartWriteback asks the kernel to begin writing n bytes from off to the device, without waiting and without any
	// promise; n 0 means up to the end. It keeps dirty pages from piling up until a Sync has to wait for all of them.
	StartWriteback(off, n int64) error
	// Forget tells the kernel that the file's contents will not be read again soon, without any promise: for one who has read all
	// of it, once, and would not have that push out of memory what others read.
	Forget() error
	// SendTo writes n bytes from off to w and returns how many w took. An OS file is sent to a *net.TCPConn by
	// sendfile(2), without passing through this process; everything else is copied. A file that ends before off+n gives
	// io.ErrUnexpectedEOF. A write deadline of the connection is honoured.
	SendTo(w io.Writer, off, n int64) (int64, error)
	// Map maps the whole file, as long as it is now, read-only. The mapping outlives the file's Close.
	Map() (Mapping, error)
}

// A Mapping is a file's contents, mapped into memory. It must not be used after Close. A file that is cut while it is
// mapped, and a device that fails, show as a *[FaultError].
type Mapping interface {
	// ReadAt copies out of the mapping, as io.ReaderAt.
	io.ReaderAt
	io.Closer
	// Len is how many bytes are mapped.
	Len() int
	// View calls read with the mapped bytes, which it must neither keep nor write to. A fault while it runs ends it and
	// is returned as an error; read must therefore leave nothing half done, and hold no lock.
	View(read func(b []byte)) error
}

// A FaultError reports that mapped bytes could not be read: the device failed, or the file was cut behind our back.
type FaultError struct {
	Path string
	Addr uintptr // the address that faulted
}

func (e *FaultError) Error() string {
	return fmt.Sprintf("read %s through its mapping: fault at %#x: the device failed, or the file was cut by somebody else", e.Path, e.Addr)
}

// ReadFile returns the whole contents of a file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err == io.EOF && int64(n) == size {
		err = nil
	}
	return b[:n], err
}

// WriteFileAtomic replaces a file's contents so that after a crash at any moment there are the old or the new ones,
// and the new ones once it has returned: it writes name.tmp, syncs it, renames it, and syncs the directory.
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	tmp := name + ".tmp"
	if err := writeAndSync(fsys, tmp, data); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, name); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

func writeAndSync(fsys FS, name string, data []byte) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

const copySize = 64 << 10 // a TCP send buffer's worth

var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// copyTo is SendTo by way of a buffer.
func copyTo(w io.Writer, r io.ReaderAt, off, n int64) (int64, error) {
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	var sent int64
	for sent < n {
		b := buf[:min(copySize, n-sent)]
		if got, err := r.ReadAt(b, off+sent); got < len(b) {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return sent, err
		}
		wrote, err := w.Write(b)
		sent += int64(wrote)
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}
