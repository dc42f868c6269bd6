package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory that knows what would survive a power cut: the contents of a file as of its last
// Sync, and the entries of a directory as of its last SyncDir. Its mutex never spans a wait, so it can be used in a
// testing/synctest bubble.
type Mem struct {
	mu       sync.Mutex
	root     *node
	locked   map[string]bool
	inject   func(Op) error
	ops      int    // operations so far
	capacity uint64 // bytes that all files together may hold; 0 = no bound
}

// unbounded is what Space reports of a device without a capacity.
const unbounded = 1 << 40

// NewMem returns an empty file system, a root directory, without a bound on what it holds.
func NewMem() *Mem { return &Mem{root: newDir(), locked: map[string]bool{}} }

// An OpKind names the method of [FS] or [File] that is about to run.
type OpKind string

// The operations that [Mem.Inject] sees.
const (
	OpOpen      OpKind = "open" // Open, Create and OpenReadWrite
	OpRemove    OpKind = "remove"
	OpRename    OpKind = "rename"
	OpMkdir     OpKind = "mkdir"
	OpStat      OpKind = "stat"
	OpReadDir   OpKind = "readdir"
	OpSyncDir   OpKind = "syncdir"
	OpLock      OpKind = "lock"
	OpSpace     OpKind = "space"
	OpRead      OpKind = "read" // ReadAt, and SendTo by way of it
	OpWrite     OpKind = "write"
	OpTruncate  OpKind = "truncate"
	OpSync      OpKind = "sync"
	OpWriteback OpKind = "writeback"
	OpMap       OpKind = "map"
	OpView      OpKind = "view" // reading through a mapping
)

// An Op is one operation about to run.
type Op struct {
	Kind  OpKind
	Path  string
	Off   int64 // of a read, write or write-back; the new size of a truncate
	Bytes int   // of a read or write
	Count int   // the 1-based number of this operation among all of this Mem
}

// A TornError, returned by a hook for a write, lets its first N bytes be written before the write fails with Err.
type TornError struct {
	N   int
	Err error
}

func (e *TornError) Error() string { return fmt.Sprintf("write torn after %d bytes: %v", e.N, e.Err) }

// Unwrap returns what the write fails with.
func (e *TornError) Unwrap() error { return e.Err }

// Inject sets a hook that runs before every operation, outside of any lock; nil removes it. An error it returns is the
// operation's error, and the operation does nothing (but see [TornError]). The hook may wait, to be a slow disk.
func (m *Mem) Inject(hook func(Op) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inject = hook
}

// SetCapacity sets how many bytes all files together may hold, 0 for no bound. A write beyond it writes what fits and fails with ENOSPC.
func (m *Mem) SetCapacity(bytes uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = bytes
}

// hook tells the hook about an operation.
func (m *Mem) hook(kind OpKind, path string, off int64, n int) error {
	m.mu.Lock()
	m.ops++
	op := Op{kind, path, off, n, m.ops}
	inject := m.inject
	m.mu.Unlock()
	if inject == nil {
		return nil
	}
	if err := inject(op); err != nil {
		return &fs.PathError{Op: string(kind), Path: path, Err: err}
	}
	return nil
}

func (m *Mem) fail(kind OpKind, name string, err error) error {
	return &fs.PathError{Op: string(kind), Path: name, Err: err}
}

// split returns the elements of a path below the root.
func split(name string) []string {
	name = filepath.ToSlash(filepath.Clean(name))
	name = strings.Trim(strings.TrimPrefix(name, filepath.VolumeName(name)), "/")
	if name == "" || name == "." {
		return nil
	}
	return strings.Split(name, "/")
}

func (m *Mem) lookupLocked(path []string) (*node, error) {
	n := m.root
	for _, name := range path {
		if !n.dir {
			return nil, syscall.ENOTDIR
		}
		if n = n.entries[name]; n == nil {
			return nil, fs.ErrNotExist
		}
	}
	return n, nil
}

// parentLocked returns the directory that holds name, and name's last element.
func (m *Mem) parentLocked(name string) (*node, string, error) {
	path := split(name)
	if len(path) == 0 {
		return nil, "", fs.ErrInvalid
	}
	dir, err := m.lookupLocked(path[:len(path)-1])
	if err == nil && !dir.dir {
		err = syscall.ENOTDIR
	}
	return dir, path[len(path)-1], err
}

// Open implements [FS].
func (m *Mem) Open(name string) (File, error) { return m.open(name, false, false) }

// Create implements [FS].
func (m *Mem) Create(name string) (File, error) { return m.open(name, true, true) }

// OpenReadWrite implements [FS].
func (m *Mem) OpenReadWrite(name string) (File, error) { return m.open(name, true, false) }

func (m *Mem) open(name string, write, truncate bool) (File, error) {
	if err := m.hook(OpOpen, name, 0, 0); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentLocked(name)
	if err != nil {
		return nil, m.fail(OpOpen, name, err)
	}
	n := dir.entries[base]
	switch {
	case n == nil && !write:
		return nil, m.fail(OpOpen, name, fs.ErrNotExist)
	case n == nil:
		n = &node{modified: time.Now()}
		dir.edit(edit{base, n})
	case n.dir:
		return nil, m.fail(OpOpen, name, syscall.EISDIR)
	case truncate:
		n.resize(0)
	}
	return &memFile{m: m, n: n, name: name, write: write}, nil
}

// Remove implements [FS].
func (m *Mem) Remove(name string) error {
	if err := m.hook(OpRemove, name, 0, 0); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentLocked(name)
	if err != nil {
		return m.fail(OpRemove, name, err)
	}
	n := dir.entries[base]
	if n == nil {
		return m.fail(OpRemove, name, fs.ErrNotExist)
	}
	if len(n.entries) > 0 {
		return m.fail(OpRemove, name, syscall.ENOTEMPTY)
	}
	dir.edit(edit{base, nil})
	return nil
}

// RemoveAll implements [FS].
func (m *Mem) RemoveAll(name string) error {
	if err := m.hook(OpRemove, name, 0, 0); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentLocked(name)
	if err != nil || dir.entries[base] == nil {
		return nil
	}
	dir.edit(edit{base, nil})
	return nil
}

// Rename implements [FS].
func (m *Mem) Rename(oldName, newName string) error {
	if err := m.hook(OpRename, oldName, 0, 0); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	from, oldBase, err := m.parentLocked(oldName)
	if err != nil {
		return m.fail(OpRename, oldName, err)
	}
	to, newBase, err := m.parentLocked(newName)
	if err != nil {
		return m.fail(OpRename, newName, err)
	}
	n, replaced := from.entries[oldBase], to.entries[newBase]
	switch {
	case n == nil:
		return m.fail(OpRename, oldName, fs.ErrNotExist)
	case n == replaced:
		return nil
	case replaced == nil:
	case len(replaced.entries) > 0:
		return m.fail(OpRename, newName, syscall.ENOTEMPTY)
	case n.dir != replaced.dir:
		return m.fail(OpRename, newName, fs.ErrExist)
	}
	if from == to {
		from.edit(edit{oldBase, nil}, edit{newBase, n})
		return nil
	}
	to.edit(edit{newBase, n})
	from.edit(edit{oldBase, nil})
	return nil
}

// MkdirAll implements [FS].
func (m *Mem) MkdirAll(name string, perm fs.FileMode) error {
	if err := m.hook(OpMkdir, name, 0, 0); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for _, base := range split(name) {
		next := n.entries[base]
		if next == nil {
			next = newDir()
			n.edit(edit{base, next})
		}
		if !next.dir {
			return m.fail(OpMkdir, name, syscall.ENOTDIR)
		}
		n = next
	}
	return nil
}

// Stat implements [FS].
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	if err := m.hook(OpStat, name, 0, 0); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookupLocked(split(name))
	if err != nil {
		return nil, m.fail(OpStat, name, err)
	}
	return n.info(filepath.Base(name)), nil
}

// ReadDir implements [FS].
func (m *Mem) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := m.hook(OpReadDir, name, 0, 0); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookupLocked(split(name))
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, m.fail(OpReadDir, name, err)
	}
	entries := make([]fs.DirEntry, 0, len(n.entries))
	for _, base := range slices.Sorted(maps.Keys(n.entries)) {
		entries = append(entries, fs.FileInfoToDirEntry(n.entries[base].info(base)))
	}
	return entries, nil
}

// SyncAll implements [FS].
func (m *Mem) SyncAll(files []File) error {
	for _, f := range files {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// SyncDir implements [FS].
func (m *Mem) SyncDir(name string) error {
	if err := m.hook(OpSyncDir, name, 0, 0); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookupLocked(split(name))
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return m.fail(OpSyncDir, name, err)
	}
	n.durable = maps.Clone(n.entries)
	n.unsynced = nil
	return nil
}

// Lock implements [FS].
func (m *Mem) Lock(name string) (io.Closer, error) {
	if err := m.hook(OpLock, name, 0, 0); err != nil {
		return nil, err
	}
	f, err := m.OpenReadWrite(name)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := strings.Join(split(name), "/")
	if m.locked[key] {
		return nil, m.fail(OpLock, name, ErrLocked)
	}
	m.locked[key] = true
	return &memLock{File: f, m: m, key: key}, nil
}

type memLock struct {
	File
	m   *Mem
	key string
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	delete(l.m.locked, l.key)
	l.m.mu.Unlock()
	return l.File.Close()
}

// Space implements [FS].
func (m *Mem) Space(dir string) (total, free uint64, err error) {
	if err := m.hook(OpSpace, dir, 0, 0); err != nil {
		return 0, 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.lookupLocked(split(dir)); err != nil {
		return 0, 0, m.fail(OpSpace, dir, err)
	}
	total = m.capacity
	if total == 0 {
		total = unbounded
	}
	return total, total - min(m.root.size(), total), nil
}

// A memFile is an open file of a [Mem].
type memFile struct {
	m      *Mem
	n      *node
	name   string
	write  bool
	closed bool // guarded by m.mu
}

func (f *memFile) Name() string { return f.name }

// lock tells the hook, and locks the file system if the file is open for what is asked.
func (f *memFile) lock(kind OpKind, off int64, n int, write bool) error {
	if err := f.m.hook(kind, f.name, off, n); err != nil {
		return err
	}
	return f.lockQuietly(kind, write)
}

func (f *memFile) lockQuietly(kind OpKind, write bool) error {
	f.m.mu.Lock()
	var err error
	switch {
	case f.closed:
		err = fs.ErrClosed
	case write && !f.write:
		err = fs.ErrPermission
	default:
		return nil
	}
	f.m.mu.Unlock()
	return f.m.fail(kind, f.name, err)
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, f.m.fail(OpRead, f.name, fs.ErrInvalid)
	}
	if err := f.lock(OpRead, off, len(b), false); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	if off >= int64(len(f.n.data)) {
		if len(b) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(b, f.n.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, f.m.fail(OpWrite, f.name, fs.ErrInvalid)
	}
	hookErr := f.m.hook(OpWrite, f.name, off, len(b))
	if hookErr != nil {
		torn, ok := asTorn(hookErr)
		if !ok {
			return 0, hookErr
		}
		b = b[:min(max(torn.N, 0), len(b))]
	}
	if err := f.lockQuietly(OpWrite, true); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	n, err := f.m.writeLocked(f.n, b, off)
	if err != nil {
		return n, f.m.fail(OpWrite, f.name, err)
	}
	return n, hookErr
}

// writeLocked writes as much of b as fits on the device.
func (m *Mem) writeLocked(n *node, b []byte, off int64) (int, error) {
	var err error
	if m.capacity > 0 {
		grow := max(0, off+int64(len(b))-int64(len(n.data)))
		room := int64(m.capacity - min(m.root.size(), m.capacity))
		if grow > room {
			b, err = b[:max(0, int64(len(b))-(grow-room))], syscall.ENOSPC
		}
	}
	if len(b) > 0 {
		n.writeAt(b, off)
	}
	return len(b), err
}

func (f *memFile) Size() (int64, error) {
	if err := f.lockQuietly(OpStat, false); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	return int64(len(f.n.data)), nil
}

func (f *memFile) Truncate(size int64) error {
	if size < 0 {
		return f.m.fail(OpTruncate, f.name, fs.ErrInvalid)
	}
	if err := f.lock(OpTruncate, size, 0, true); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	f.n.resize(size)
	return nil
}

func (f *memFile) Sync() error {
	if err := f.lock(OpSync, 0, 0, false); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	f.n.sync()
	return nil
}

// StartWriteback does nothing but tell the hook: what the kernel has begun to write is not durable yet.
func (f *memFile) StartWriteback(off, n int64) error {
	return f.m.hook(OpWriteback, f.name, off, int(n))
}

// Forget does nothing: all is in memory.
func (f *memFile) Forget() error { return nil }

func (f *memFile) SendTo(w io.Writer, off, n int64) (int64, error) { return copyTo(w, f, off, n) }

// Map returns a copy: what is mapped does not change any more.
func (f *memFile) Map() (Mapping, error) {
	if err := f.lock(OpMap, 0, 0, false); err != nil {
		return nil, err
	}
	defer f.m.mu.Unlock()
	return &memMapping{mapping{path: f.name, b: slices.Clone(f.n.data)}, f.m}, nil
}

type memMapping struct {
	mapping
	m *Mem
}

func (m *memMapping) View(read func(b []byte)) error {
	if err := m.m.hook(OpView, m.path, 0, len(m.b)); err != nil {
		return err
	}
	return m.mapping.View(read)
}

func (m *memMapping) ReadAt(p []byte, off int64) (int, error) {
	if err := m.m.hook(OpView, m.path, off, len(p)); err != nil {
		return 0, err
	}
	return m.mapping.ReadAt(p, off)
}

func (f *memFile) Close() error {
	if err := f.lockQuietly("close", false); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	f.closed = true
	return nil
}
