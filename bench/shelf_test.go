//go:build linux

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestShelf puts away three folders, of which two are as much as the memory there is, and then finds the disk full.
func TestShelf(t *testing.T) {
	s := shelf{folder: t.TempDir(), memory: 100_000}
	kept := func() (names []string) {
		entries, err := os.ReadDir(s.folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	work := t.TempDir()
	for range 3 {
		folder := filepath.Join(work, "broker")
		if err := os.MkdirAll(filepath.Join(folder, "data"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "data", "log"), make([]byte, 64<<10), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := s.put(folder); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(folder); !os.IsNotExist(err) {
			t.Errorf("the folder is still in its place: %v", err)
		}
	}
	if got, want := kept(), []string{"1", "2"}; !slices.Equal(got, want) {
		t.Errorf("kept are %v, want %v", got, want)
	}
	s.room = 1 << 60
	if err := s.spare(); err != nil || len(kept()) > 0 {
		t.Errorf("on a full disk %v are kept (%v)", kept(), err)
	}
}
