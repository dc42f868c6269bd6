package vfs

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refusedQueue returns a queue with so many free slots, of which the kernel takes none: it knows no context 0.
func refusedQueue(slots int) *syncQueue {
	q := &syncQueue{free: make(chan *syncSlot, maxSyncs)}
	q.once.Do(func() {})
	for i := range slots {
		s := &q.slots[i]
		s.done = make(chan unix.Errno, 1)
		s.iocb = iocb{data: uint64(i), opcode: iocbFdsync}
		s.list[0] = &s.iocb
		q.free <- s
	}
	return q
}

// Where the kernel takes no asynchronous fdatasync, or no more of them, a file is synced all the same, and an error is that of the
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
		{"refused", refusedQueue(maxSyncs), maxSyncs},
		{"no slot is free", refusedQueue(0), 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			f, err := os.Create(filepath.Join(t.TempDir(), "f"))
			ok(t, err)
			defer f.Close()
			event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
			ok(t, err)
			defer unix.Close(event)
			r, w, err := os.Pipe()
			ok(t, err)
			defer r.Close()
			defer w.Close()
			for range 20 {
				_, err = f.WriteAt([]byte("x"), 0)
				ok(t, err)
				ok(t, x.q.fdatasync(int(f.Fd())))
				for _, fd := range []int{event, int(w.Fd())} {
					if got, blocking := x.q.fdatasync(fd), unix.Fdatasync(fd); got != unix.EINVAL || got != blocking {
						t.Fatalf("error %v, want %v and of the blocking call %v", got, unix.EINVAL, blocking)
					}
				}
				if got := x.q.fdatasync(-1); got != unix.EBADF {
					t.Fatalf("error %v, want %v", got, unix.EBADF)
				}
			}
			if n := len(x.q.free); n != x.free && x.q.free != nil {
				t.Errorf("%d slots are free, want %d", n, x.free)
			}
		})
	}
}

// Where the kernel has it, the file is synced without a thread, not by the blocking call unnoticed.
func TestFdatasyncIsAsynchronous(t *testing.T) {
	syncs.once.Do(syncs.start)
	if syncs.free == nil {
		return // the system has none for us
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	ok(t, err)
	defer f.Close()
	for range 20 {
		s := <-syncs.free
		if !syncs.submit(s, int(f.Fd())) {
			t.Fatal("the kernel does not take it")
		}
		if errno := syncs.wait(s); errno != 0 {
			t.Fatal(errno)
		}
		syncs.free <- s
	}
}

// All that the kernel completed before anybody looked is told of, though it is more than one look takes. So is an error it comes to meanwhile.
func TestFdatasyncsCompleteTogether(t *testing.T) {
	q := refusedQueue(maxSyncs)
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, maxSyncs, uintptr(unsafe.Pointer(&q.context)), 0); errno != 0 {
		return // the system has none for us
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	ok(t, err)
	q.events = os.NewFile(uintptr(event), "eventfd") // for good: complete does not end
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	ok(t, err)
	defer f.Close()
	for range maxSyncs {
		s := <-q.free
		s.iocb.flags, s.iocb.completed = iocbEventfd, uint32(event)
		if !q.submit(s, int(f.Fd())) {
			t.Fatal("the kernel does not take it")
		}
	}
	var count [8]byte
	for n := uint64(0); n < maxSyncs; n += binary.NativeEndian.Uint64(count[:]) {
		_, err := q.events.Read(count[:])
		ok(t, err)
	}
	binary.NativeEndian.PutUint64(count[:], maxSyncs)
	_, err = q.events.Write(count[:])
	ok(t, err)
	q.telling = make(chan struct{}, 1)
	for i := range q.slots {
		if errno := q.wait(&q.slots[i]); errno != 0 {
			t.Fatal(errno)
		}
	}

	// An fdatasync does not fail on demand; a read does, of a byte to where there is no memory.
	_, err = f.WriteAt([]byte("x"), 0)
	ok(t, err)
	s := &q.slots[0]
	s.iocb.opcode = 0                                                        // IOCB_CMD_PREAD
	*(*[2]uint64)(unsafe.Add(unsafe.Pointer(&s.iocb), 24)) = [2]uint64{1, 1} // aio_buf and aio_nbytes
	if !q.submit(s, int(f.Fd())) {
		t.Fatal("the kernel does not take it")
	}
	is(t, q.wait(s), unix.EFAULT)
}

// What the kernel says comes through both ways to sync.
func TestSyncFails(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fifo")
	ok(t, unix.Mkfifo(name, 0o644))
	f, err := OS.OpenReadWrite(name)
	ok(t, err)
	defer f.Close()
	is(t, f.Sync(), unix.EINVAL)
	is(t, f.SyncQuietly(), unix.EINVAL)
}
