package cli

import (
	"runtime"
	"strconv"
	"testing"
)

// serve gives the Go runtime spare processors, unless somebody chose, and gives them back.
func TestTuneRuntime(t *testing.T) {
	before := runtime.GOMAXPROCS(runtime.NumCPU())
	defer runtime.GOMAXPROCS(before)
	during := func() int {
		undo := tuneRuntime()
		defer undo()
		return runtime.GOMAXPROCS(0)
	}
	t.Setenv("GOMAXPROCS", "")
	if got, want := during(), runtime.NumCPU()+min(runtime.NumCPU(), spareProcessors)+1; got != want {
		t.Errorf("%d processors, want %d", got, want)
	}
	if got := runtime.GOMAXPROCS(0); got != runtime.NumCPU() {
		t.Errorf("%d processors afterwards, want %d", got, runtime.NumCPU())
	}
	t.Setenv("GOMAXPROCS", strconv.Itoa(runtime.NumCPU()))
	if got := during(); got != runtime.NumCPU() {
		t.Errorf("%d processors where GOMAXPROCS is set, want as many as that says", got)
	}
}
