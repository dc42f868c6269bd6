package cli

import (
	"os"
	"runtime"
)

// collectorHeadroom is how many bytes of garbage there may at least be before the Go runtime collects. It does so when the heap is twice
// of what was live, which for a broker is a few MB, and would many times a second under load. The bytes are
// counted as live, and are no memory, since nobody touches them; but a burst of garbage may come to so much, which is what a node with a
// thousand new partitions then holds. Programs that embed a broker decide for themselves.
const collectorHeadroom = 24 << 20

// spareProcessors is how many goroutines, but not more than there are processors, may be in calls of the system while as many others run
// as there are processors. To the Go runtime a call is work until it has watched it for 20 µs to 10 ms, and a broker is in calls most of the
// time. With no spare ones, fsyncs of thousands of partitions left nobody to serve requests (the p99 of produce was five times as long), and
// many small requests were served a sixth more slowly. With more of them the collector takes more.
const spareProcessors = 8

// tuneRuntime sets the Go runtime for a process that is nothing but a broker, until undo.
func tuneRuntime() (undo func()) {
	headroom := make([]byte, collectorHeadroom)
	before, cores := runtime.GOMAXPROCS(0), runtime.NumCPU()
	stop := func() {}
	// In a container that may use but some of the processors more threads would only use up its share sooner, and stand still the longer.
	if os.Getenv("GOMAXPROCS") == "" && before == cores {
		runtime.GOMAXPROCS(cores + min(cores, spareProcessors) + 1) // one for keepWatching
		stop = keepWatching()
	}
	return func() {
		stop()
		runtime.GOMAXPROCS(before)
		runtime.KeepAlive(headroom)
	}
}
