package cli

import (
	"runtime"
	"syscall"
	"time"
)

const (
	// watchNap is how long keepWatching's call takes: less than the 10 ms that sysmon sleeps at most, or it would take the call for a hung one.
	watchNap = 7 * time.Millisecond
	// watchLook is how often it looks whether that is worth it: 140 calls a second are some 0.3 % of a processor.
	watchLook = 100 * time.Millisecond
	// watchFrom is how many times a look the process's threads must have gone to sleep, as with some 200 requests a second that come one by one.
	// A process at rest does so 10 times.
	watchFrom = 60
	// watchOwn is how many times they do so for keepWatching's own calls.
	watchOwn = 50
)

// keepWatching spares the process the waking of the Go runtime's sysmon, the thread that looks for goroutines whose calls of the system take long.
//
// sysmon lies down when nothing runs at all, which under a moderate load is most of the time, between any two requests. The next call of any
// goroutine then wakes it; it looks 20 µs later, and once more, and lies down again. On a virtual machine, where it costs most to wake an idle
// processor, that was half of all the CPU a broker took at 50 MB/s or a thousand requests a second (golang/go issues 18236 and 54622 are
// about it). But it stays up as long as a goroutine is in a call, and then looks less and less often, down to every 10 ms. So a
// goroutine here is in a call, while threads of the process go to sleep often. As all of this is but what the runtime does today, nothing depends on it but
// CPU: `make bench` tells when it has ceased to help.
//
// The price: a call that takes long is noticed up to 10 ms later, and holds one of the Go runtime's processors until then. That is what
// spareProcessors are for, and why records that nobody waits for are synced without a thread (vfs.FS.SyncAll).
//
// stop ends it, and returns when the goroutine has.
func keepWatching() (stop func()) {
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for before, own := timesAsleep(), int64(0); !isClosed(stopped); {
			now := timesAsleep()
			if now-before-own >= watchFrom {
				napFor(watchLook) // and at once again: between two calls sysmon would lie down
				own = watchOwn
			} else {
				waitFor(stopped, watchLook)
				own = 0
			}
			before = now
		}
	}()
	return func() {
		close(stopped)
		<-done
	}
}

// napFor is in calls for so long, and a little longer.
func napFor(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		nap()
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// waitFor waits so long, or until c is closed.
func waitFor(c <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
	case <-t.C:
	}
}

// nap is one call of watchNap. It lets others run in between: sysmon takes a goroutine that has run for 10 ms without that for one which hogs its processor.
func nap() {
	length := syscall.NsecToTimespec(int64(watchNap))
	_ = syscall.Nanosleep(&length, nil) // one that a signal cuts short is as good
	runtime.Gosched()
}

// timesAsleep counts how often threads of this process have gone to sleep. A process that has been told no number has none, and is at rest.
func timesAsleep() int64 {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return used.Nvcsw
}
