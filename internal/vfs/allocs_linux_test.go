//go:build !race

// The race detector has pools forget what they hold, so that allocations cannot be counted.

package vfs

import (
	"path/filepath"
	"testing"
)

// What is done for each flush allocates nothing.
func TestSyncAllocates(t *testing.T) {
	f, err := OS.Create(filepath.Join(t.TempDir(), "f"))
	ok(t, err)
	defer f.Close()
	n := testing.AllocsPerRun(10, func() {
		ok(t, f.Sync())
		ok(t, f.StartWriteback(0, 0))
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
