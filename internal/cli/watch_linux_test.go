package cli

import (
	"bytes"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// keepWatching is in calls while threads go to sleep often, not otherwise, and ends when it is told to.
func TestKeepWatching(t *testing.T) {
	rest := keepWatching()
	for range 2 {
		stop := make(chan struct{})
		go func() {
			for blink := syscall.NsecToTimespec(50_000); ; {
				select {
				case <-stop:
					return
				default:
					syscall.Nanosleep(&blink, nil)
				}
			}
		}()
		eventually(t, true)
		close(stop)
		eventually(t, false)
	}
	rest()
	if watching() {
		t.Error("it goes on after its end")
	}
}

// eventually waits until keepWatching is found to be in calls, or not, several times in a row.
func eventually(t *testing.T, want bool) {
	t.Helper()
	look := time.NewTicker(watchLook / 2) // looking is calm enough not to count
	defer look.Stop()
	deadline := time.After(20 * time.Second)
	for same := 0; same < 5; same++ {
		select {
		case <-deadline:
			t.Fatalf("keepWatching naps: %v, want %v", !want, want)
		case <-look.C:
		}
		if watching() != want {
			same = -1
		}
	}
}

func watching() bool {
	b := make([]byte, 1<<20)
	return bytes.Contains(b[:runtime.Stack(b, true)], []byte("cli.napFor"))
}
