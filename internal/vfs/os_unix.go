//go:build linux || darwin || freebsd

package vfs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func space(dir string) (total, free uint64, err error) {
	var st unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return 0, 0, err
	}
	size := uint64(st.Bsize)
	return st.Blocks * size, uint64(st.Bavail) * size, nil
}

func ignoringEINTR(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

func (o *osFile) Map() (Mapping, error) {
	size, err := o.Size()
	if err != nil {
		return nil, err
	}
	m := &mapping{path: o.f.Name()}
	if size == 0 { // mmap refuses it
		return m, nil
	}
	if int64(int(size)) != size {
		return nil, &fs.PathError{Op: "mmap", Path: m.path, Err: errors.New("larger than the address space")}
	}
	err = o.control("mmap", func(fd int) (err error) {
		m.b, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
		return err
	})
	if err != nil {
		return nil, err
	}
	m.unmap = unix.Munmap
	return m, nil
}
