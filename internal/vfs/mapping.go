package vfs

import (
	"io"
	"io/fs"
	"runtime/debug"
)

// A mapping is mapped memory, or a copy where nothing can be mapped.
type mapping struct {
	path  string
	b     []byte
	unmap func([]byte) error // nil: nothing to give back
}

func (m *mapping) Len() int { return len(m.b) }

func (m *mapping) Close() error {
	b := m.b
	m.b = nil
	if m.unmap == nil || b == nil {
		return nil
	}
	if err := m.unmap(b); err != nil {
		return &fs.PathError{Op: "munmap", Path: m.path, Err: err}
	}
	return nil
}

func (m *mapping) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, &fs.PathError{Op: "read", Path: m.path, Err: fs.ErrInvalid}
	}
	err = m.View(func(b []byte) {
		if off < int64(len(b)) {
			n = copy(p, b[off:])
		}
	})
	if err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// View has the runtime turn a SIGBUS of this goroutine into a panic, and that into an error. Any other panic goes on.
func (m *mapping) View(read func(b []byte)) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch p := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = &FaultError{Path: m.path, Addr: p.Addr()}
		default:
			panic(p)
		}
	}()
	read(m.b)
	return nil
}
