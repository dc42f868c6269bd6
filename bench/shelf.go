//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// A shelf keeps what brokers have written for as long as it may be in the page cache. To delete it at once would free that memory,
// and a virtual machine that gives free memory back to its host pays for each page that the next broker writes to: several times what
// the writing costs, and more for whoever comes second. So memory is full from the first measurement on, as it is on a machine
// that has run for a while, and a new page is one that was taken from an old file. What is free all the same when something is measured, such as
// what a broker had that was stopped, is for hold.
//
// The zero value keeps nothing.
type shelf struct {
	folder string
	memory int64 // of the machine, bytes; newer data of that size has pushed an item out of the cache
	room   int64 // bytes on the disk that the next broker needs
	n      int
	items  []item // oldest first
}

type item struct {
	path string
	size int64
}

// newShelf makes a shelf in a folder that is not there yet, and fills the memory that is free with a file of nothing.
func newShelf(folder string) (shelf, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return shelf{}, fmt.Errorf("ask for the machine's memory: %w", err)
	}
	s := shelf{folder: folder, memory: int64(info.Totalram) * int64(info.Unit), room: 20 << 30}
	if err := os.Mkdir(folder, 0o755); err != nil {
		return shelf{}, err
	}
	const spared = 1 << 30
	free := int64(info.Freeram)*int64(info.Unit) - spared
	if free <= 0 {
		return s, nil
	}
	f, err := os.Create(filepath.Join(folder, "nothing"))
	if err != nil {
		return shelf{}, err
	}
	defer f.Close()
	s.items = append(s.items, item{f.Name(), free})
	if err := f.Truncate(free); err != nil {
		return shelf{}, err
	}
	// Discard would be copied to by splice, which leaves no page behind.
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, make([]byte, 1<<20))
	return s, err
}

// put takes a folder away, and deletes what cannot be in the cache any more.
func (s *shelf) put(folder string) error {
	if s.folder == "" {
		return os.RemoveAll(folder)
	}
	i := item{path: filepath.Join(s.folder, fmt.Sprint(s.n))}
	s.n++
	err := filepath.WalkDir(folder, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			i.size += info.Sys().(*syscall.Stat_t).Blocks * 512 // an index of Apache's is mostly a hole
		}
		return err
	})
	if err = errors.Join(err, os.Rename(folder, i.path)); err != nil {
		return err
	}
	s.items = append(s.items, i)
	newer := int64(0)
	for _, i := range s.items[1:] {
		newer += i.size
	}
	for len(s.items) > 1 && newer > s.memory {
		if err := s.drop(); err != nil {
			return err
		}
		newer -= s.items[0].size
	}
	return s.spare()
}

// spare leaves room on the disk for the next broker, at the price of its figures.
func (s *shelf) spare() error {
	for len(s.items) > 0 {
		var disk unix.Statfs_t
		if err := unix.Statfs(s.folder, &disk); err != nil {
			return fmt.Errorf("ask for the room on the disk of %s: %w", s.folder, err)
		}
		if int64(disk.Bavail)*disk.Bsize >= s.room {
			break
		}
		if err := s.drop(); err != nil {
			return err
		}
	}
	return nil
}

// drop deletes the oldest item.
func (s *shelf) drop() error {
	path := s.items[0].path
	s.items = s.items[1:]
	return os.RemoveAll(path)
}

// hold takes all memory that is free, and keeps it until the caller releases it, so that a page which is new to a broker is one that the kernel
// takes from an old file. Free memory that nothing has used for seconds is the host's again, however little it is: at a low rate a
// broker would be given nothing else, and its figures would tell what the host takes to find a page (0.35 to 2.7 s/GB, several times
// as much in one minute as in the next). In a container that may have less than the machine, the kernel would kill who asks for all of it.
func hold() (release func(), err error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return func() {}, fmt.Errorf("ask for the machine's memory: %w", err)
	}
	free := int(info.Freeram) * int(info.Unit)
	b, err := unix.Mmap(-1, 0, free, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return func() {}, fmt.Errorf("take %d bytes of memory: %w", free, err)
	}
	return func() { _ = unix.Munmap(b) }, nil // what was mapped can be unmapped
}
