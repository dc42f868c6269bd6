package vfs

import (
	"io/fs"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxSyncs is how many fdatasyncs may be under way in the kernel.
const maxSyncs = 256

// It is looked after firstSyncLook whether they are done, then after twice as long, and so on up to lastSyncLook.
const (
	firstSyncLook = time.Millisecond
	lastSyncLook  = 4 * time.Millisecond
)

// Of linux/aio_abi.h.
const iocbFdsync = 3 // IOCB_CMD_FDSYNC, since Linux 4.18

// An iocb asks for an asynchronous operation (struct iocb).
type iocb struct {
	data   uint64
	_      [2]uint32 // key and flags
	opcode uint16
	_      int16
	fd     uint32
	_      [5]uint64 // what other operations need
}

// A completion is what came of one (struct io_event).
type completion struct {
	data, _ uint64
	result  int64 // negative: an errno
	_       int64
}

// A syncQueue has the kernel do fdatasync while no thread waits: to the Go runtime a thread in a call is at work, and keeps one of its few
// processors, for up to 10 ms; where thousands of partitions are flushed nobody was left to serve requests. Nor is anybody woken for each: whoever
// asked looks from time to time whether all of them are done. It is the native asynchronous interface, not io_uring, which
// containers mostly may not use.
type syncQueue struct {
	once    sync.Once
	context uintptr        // aio_context_t
	free    chan *syncSlot // nil if the system has no asynchronous fdatasync
	looking sync.Mutex
	slots   [maxSyncs]syncSlot
}

// A syncSlot is one fdatasync under way.
type syncSlot struct {
	iocb   iocb
	file   *osFile
	result atomic.Int64 // an errno, 0 if all went well, or underWay
}

// underWay is the result of what is not done yet.
const underWay = -1

var syncs syncQueue

// SyncAll implements [FS].
func (osFS) SyncAll(files []File) error { return syncs.syncAll(files) }

func (q *syncQueue) syncAll(files []File) error {
	q.once.Do(q.start)
	for len(files) > 0 {
		slots := q.take(len(files))
		if len(slots) == 0 {
			return syncTogether(files)
		}
		if err := q.syncSome(files[:len(slots)], slots); err != nil {
			return err
		}
		files = files[len(slots):]
	}
	return nil
}

func (q *syncQueue) start() {
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, maxSyncs, uintptr(unsafe.Pointer(&q.context)), 0); errno != 0 {
		return
	}
	q.free = make(chan *syncSlot, maxSyncs)
	for i := range q.slots {
		s := &q.slots[i]
		s.iocb = iocb{data: uint64(i), opcode: iocbFdsync}
		q.free <- s
	}
}

// take returns up to n free slots.
func (q *syncQueue) take(n int) []*syncSlot {
	slots := make([]*syncSlot, 0, min(n, maxSyncs))
	for len(slots) < cap(slots) {
		select {
		case s := <-q.free:
			slots = append(slots, s)
		default: // also where the channel is nil
			return slots
		}
	}
	return slots
}

// syncSome syncs as many files as there are slots, and frees those.
func (q *syncQueue) syncSome(files []File, slots []*syncSlot) error {
	asked := make([]*iocb, len(slots))
	for i, s := range slots {
		s.file = files[i].(*osFile)
		s.iocb.fd = uint32(s.file.f.Fd())
		s.result.Store(underWay)
		asked[i] = &s.iocb
	}
	var err error
	for at := 0; at < len(asked); {
		n := q.submit(asked[at:])
		at += n
		if n == 0 { // the kernel does not take the next one
			if serr := slots[at].file.Sync(); err == nil {
				err = serr
			}
			slots[at].result.Store(0)
			at++
		}
	}
	q.wait(slots)
	for _, s := range slots {
		if errno := s.result.Load(); errno != 0 && err == nil {
			err = &fs.PathError{Op: "fdatasync", Path: s.file.Name(), Err: unix.Errno(errno)}
		}
		s.file = nil
		q.free <- s
	}
	return err
}

// submit hands fdatasyncs to the kernel, which keeps their files open meanwhile, and returns how many it took.
func (q *syncQueue) submit(asked []*iocb) int {
	n, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, q.context, uintptr(len(asked)), uintptr(unsafe.Pointer(&asked[0])))
	if errno != 0 {
		return 0
	}
	return int(n)
}

// wait returns when all of them are done.
func (q *syncQueue) wait(slots []*syncSlot) {
	look := firstSyncLook
	for _, s := range slots {
		for ; s.result.Load() == underWay; look = min(2*look, lastSyncLook) {
			time.Sleep(look)
			q.look()
		}
	}
}

// look notes what the kernel has done, whoever asked for it.
func (q *syncQueue) look() {
	q.looking.Lock()
	defer q.looking.Unlock()
	var done [64]completion
	var now unix.Timespec
	for {
		n, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, q.context, 0, uintptr(len(done)),
			uintptr(unsafe.Pointer(&done)), uintptr(unsafe.Pointer(&now)), 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			panic("vfs: io_getevents: " + errno.Error()) // nobody destroys the context
		}
		for _, c := range done[:n] {
			q.slots[c.data].result.Store(-c.result)
		}
		if int(n) < len(done) {
			return
		}
	}
}
