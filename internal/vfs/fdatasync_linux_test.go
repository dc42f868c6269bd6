package vfs

import (
	"fmt"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// newQueue returns a queue with so many free slots, of which the kernel takes none: it knows no context 0.
func newQueue(slots int) *syncQueue {
	q := &syncQueue{free: make(chan *syncSlot, maxSyncs)}
	q.once.Do(func() {})
	for i := range slots {
		s := &q.slots[i]
		s.iocb = iocb{data: uint64(i), opcode: iocbFdsync}
		q.free <- s
	}
	return q
}

// synced returns files of which each has something to sync.
func synced(t *testing.T, n int) (files []File) {
	dir := t.TempDir()
	for i := range n {
		files = append(files, write(t, OS, filepath.Join(dir, fmt.Sprint(i)), "x"))
	}
	return files
}

// fifo returns a file that cannot be synced: EINVAL.
func fifo(t *testing.T) File {
	name := filepath.Join(t.TempDir(), "fifo")
	ok(t, unix.Mkfifo(name, 0o644))
	f, err := OS.OpenReadWrite(name)
	ok(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// Where the kernel takes no asynchronous fdatasync, or not all of them, the files are synced all the same, and an error is that of the
// blocking call.
func TestFdatasync(t *testing.T) {
	none := &syncQueue{} // io_setup failed
	none.once.Do(func() {})
	for _, x := range []struct {
		name string
		q    *syncQueue
		free int
	}{
		{"asynchronous", &syncs, maxSyncs},
		{"not there", none, 0},
		{"refused", newQueue(maxSyncs), maxSyncs},
		{"few slots are free", newQueue(2), 2},
		{"no slot is free", newQueue(0), 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			bad := fifo(t)
			is(t, bad.Sync(), unix.EINVAL)
			for n := range 6 {
				files := synced(t, n)
				for range 5 {
					ok(t, x.q.syncAll(files))
				}
				for at := range n + 1 {
					is(t, x.q.syncAll(append(append(files[:at:at], bad), files[at:]...)), unix.EINVAL)
				}
			}
			if n := len(x.q.free); n != x.free && x.q.free != nil {
				t.Errorf("%d slots are free, want %d", n, x.free)
			}
		})
	}
}

// Where the kernel has it, the files are synced without a thread each, not by the blocking call unnoticed.
func TestFdatasyncIsAsynchronous(t *testing.T) {
	syncs.once.Do(syncs.start)
	if syncs.free == nil {
		return // the system has none for us
	}
	files := synced(t, 20)
	slots := syncs.take(len(files))
	asked := make([]*iocb, len(files))
	for i, s := range slots {
		s.iocb.fd = uint32(files[i].(*osFile).f.Fd())
		s.result.Store(underWay)
		asked[i] = &s.iocb
	}
	if n := syncs.submit(asked); n != len(files) {
		t.Fatalf("the kernel takes %d of %d", n, len(files))
	}
	syncs.wait(slots)
	for _, s := range slots {
		if errno := s.result.Load(); errno != 0 {
			t.Error(unix.Errno(errno))
		}
		syncs.free <- s
	}
}

// All that the kernel completed before anybody looked is seen, though it is more than it tells at once. So is an error it comes to meanwhile.
func TestFdatasyncsCompleteTogether(t *testing.T) {
	q := newQueue(maxSyncs)
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, maxSyncs, uintptr(unsafe.Pointer(&q.context)), 0); errno != 0 {
		return // the system has none for us
	}
	f := write(t, OS, filepath.Join(t.TempDir(), "f"), "x")
	slots := q.take(maxSyncs)
	for _, s := range slots {
		s.iocb.fd = uint32(f.(*osFile).f.Fd())
		s.result.Store(underWay)
	}
	// An fdatasync does not fail on demand; a read does, of a byte to where there is no memory.
	bad := slots[100]
	bad.iocb.opcode = 0                                                        // IOCB_CMD_PREAD
	*(*[2]uint64)(unsafe.Add(unsafe.Pointer(&bad.iocb), 24)) = [2]uint64{1, 1} // aio_buf and aio_nbytes
	for _, s := range slots {
		if q.submit([]*iocb{&s.iocb}) != 1 {
			t.Fatal("the kernel does not take it")
		}
	}
	q.wait(slots)
	for i, s := range slots {
		want := unix.Errno(0)
		if s == bad {
			want = unix.EFAULT
		}
		if got := unix.Errno(s.result.Load()); got != want {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
}
