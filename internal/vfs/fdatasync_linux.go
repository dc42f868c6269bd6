package vfs

import (
	"encoding/binary"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxSyncs is how many fdatasyncs may be under way in the kernel without a thread of this process each. More take a thread.
const maxSyncs = 256

// Of linux/aio_abi.h.
const (
	iocbFdsync  = 3 // IOCB_CMD_FDSYNC, since Linux 4.18
	iocbEventfd = 1 // IOCB_FLAG_RESFD
)

// An iocb asks for an asynchronous operation (struct iocb).
type iocb struct {
	data      uint64
	_         [2]uint32 // key and flags
	opcode    uint16
	_         int16
	fd        uint32
	_         [4]uint64 // what other operations need
	flags     uint32
	completed uint32 // eventfd
}

// A completion is what came of one (struct io_event).
type completion struct {
	data, _ uint64
	result  int64 // negative: an errno
	_       int64
}

// A syncQueue has the kernel do fdatasync while only a goroutine waits, not a thread: to the Go runtime a thread in a call is at work, and keeps
// one of its few processors, for up to 10 ms; where thousands of partitions are flushed nobody was left to serve requests, and the p99 of produce
// was thirty times what it is so. It is the native asynchronous interface, not io_uring, which containers mostly may not use.
type syncQueue struct {
	once    sync.Once
	context uintptr  // aio_context_t
	events  *os.File // an eventfd; nil if the system has no asynchronous fdatasync
	free    chan *syncSlot
	telling chan struct{} // one slot: of those who wait, the one that reads what is done
	slots   [maxSyncs]syncSlot
}

// A syncSlot is one fdatasync under way.
type syncSlot struct {
	iocb iocb
	list [1]*iocb
	done chan unix.Errno // one slot
}

var syncs syncQueue

// fdatasync is fdatasync(2).
func (q *syncQueue) fdatasync(fd int) error {
	q.once.Do(q.start)
	select {
	case s := <-q.free: // nil channel: there is no asynchronous one
		defer func() { q.free <- s }()
		if q.submit(s, fd) {
			if errno := q.wait(s); errno != 0 {
				return errno
			}
			return nil
		}
	default:
	}
	return ignoringEINTR(func() error { return unix.Fdatasync(fd) })
}

// submit hands the fdatasync to the kernel, which keeps the file open for it. It reports false if the kernel does not take it.
func (q *syncQueue) submit(s *syncSlot, fd int) bool {
	s.iocb.fd = uint32(fd)
	n, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, q.context, 1, uintptr(unsafe.Pointer(&s.list)))
	return errno == 0 && n == 1
}

func (q *syncQueue) start() {
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, maxSyncs, uintptr(unsafe.Pointer(&q.context)), 0); errno != 0 {
		return
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return
	}
	q.events = os.NewFile(uintptr(fd), "eventfd")
	q.telling = make(chan struct{}, 1)
	q.free = make(chan *syncSlot, maxSyncs)
	for i := range q.slots {
		s := &q.slots[i]
		s.done = make(chan unix.Errno, 1)
		s.iocb = iocb{data: uint64(i), opcode: iocbFdsync, flags: iocbEventfd, completed: uint32(fd)}
		s.list[0] = &s.iocb
		q.free <- s
	}
}

// wait returns what came of an fdatasync that the kernel took. One of those who wait reads for all, so that no goroutine is left when nobody does.
func (q *syncQueue) wait(s *syncSlot) unix.Errno {
	for {
		select {
		case errno := <-s.done:
			return errno
		case q.telling <- struct{}{}:
		}
		if len(s.done) == 0 { // nobody else tells it now
			q.complete()
		}
		<-q.telling
	}
}

// complete waits for completions and tells those who wait for them.
func (q *syncQueue) complete() {
	var count [8]byte
	var done [64]completion
	var now unix.Timespec
	if _, err := q.events.Read(count[:]); err != nil { // nobody closes it
		panic("vfs: eventfd: " + err.Error())
	}
	for left := binary.NativeEndian.Uint64(count[:]); left > 0; {
		n, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, q.context, 0, uintptr(len(done)),
			uintptr(unsafe.Pointer(&done)), uintptr(unsafe.Pointer(&now)), 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 || n == 0 {
			break
		}
		for _, c := range done[:n] {
			q.slots[c.data].done <- unix.Errno(-c.result)
		}
		left -= min(left, uint64(n))
	}
}
