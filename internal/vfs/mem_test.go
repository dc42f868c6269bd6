package vfs

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
)

func TestCrashKeepsWhatWasSynced(t *testing.T) {
	m := NewMem()
	ok(t, m.MkdirAll("/d", 0o755))
	ok(t, m.SyncDir("/"))
	f := write(t, m, "/d/f", "synced")
	ok(t, f.Sync())
	ok(t, m.SyncAll([]File{write(t, m, "/d/quiet", "too")}))
	ok(t, m.SyncDir("/d"))
	_, err := f.WriteAt([]byte("SYNC and more"), 0)
	ok(t, err)
	write(t, m, "/d/new", "")
	l, err := m.Lock("/d/.lock")
	ok(t, err)
	defer l.Close()

	none := m.Crash(0, nil)
	holds(t, none, "/d/f", "synced")
	holds(t, none, "/d/quiet", "too")
	_, err = none.Stat("/d/new")
	is(t, err, fs.ErrNotExist)
	_, err = none.Lock("/d/.lock") // its holder is dead
	ok(t, err)

	all := m.Crash(1, nil)
	holds(t, all, "/d/f", "SYNC and more")
	holds(t, all, "/d/new", "")

	_, err = all.OpenReadWrite("/d/f")
	ok(t, err)
	holds(t, m, "/d/f", "SYNC and more") // and the dead go on by themselves
}

func TestCrashUndoesTruncate(t *testing.T) {
	m := NewMem()
	f := write(t, m, "/f", strings.Repeat("a", 2000))
	ok(t, f.Sync())
	ok(t, m.SyncDir("/"))
	ok(t, f.Truncate(600))
	_, err := f.WriteAt([]byte("b"), 1500)
	ok(t, err)
	holds(t, m.Crash(0, nil), "/f", strings.Repeat("a", 2000))
	holds(t, m.Crash(1, nil), "/f", strings.Repeat("a", 600)+strings.Repeat("\x00", 900)+"b")
}

func TestCrashNeedsSyncDir(t *testing.T) {
	m := NewMem()
	f := write(t, m, "/f", "x")
	ok(t, f.Sync())
	_, err := m.Crash(0, nil).Stat("/f")
	is(t, err, fs.ErrNotExist)
	ok(t, WriteFileAtomic(m, "/g", []byte("y")))
	holds(t, m.Crash(0, nil), "/g", "y")
}

func TestCrashTearsBySector(t *testing.T) {
	m := NewMem()
	f := write(t, m, "/f", strings.Repeat("a", 8*sectorSize))
	ok(t, f.Sync())
	ok(t, m.SyncDir("/"))
	_, err := f.WriteAt([]byte(strings.Repeat("b", 12*sectorSize)), 0)
	ok(t, err)
	torn := false
	for seed := range uint64(20) {
		b, err := ReadFile(m.Crash(0.5, rand.New(rand.NewPCG(seed, 1))), "/f")
		ok(t, err)
		if len(b) < 8*sectorSize || len(b)%sectorSize != 0 {
			t.Fatalf("seed %d: %d bytes", seed, len(b))
		}
		for s := 0; s < len(b); s += sectorSize {
			sector := string(b[s : s+sectorSize])
			if strings.Count(sector, sector[:1]) != sectorSize {
				t.Fatalf("seed %d: the sector at %d is torn", seed, s)
			}
			old := "a"
			if s >= 8*sectorSize {
				old = "\x00"
			}
			if sector[:1] != "b" && sector[:1] != old {
				t.Fatalf("seed %d: the sector at %d holds %q", seed, s, sector[:1])
			}
			torn = torn || sector[:1] != sectorAt(b, 0)
		}
	}
	if !torn {
		t.Error("no write was ever torn")
	}
}

func sectorAt(b []byte, s int) string { return string(b[s : s+1]) }

func TestRenameIsAtomic(t *testing.T) {
	m := NewMem()
	ok(t, WriteFileAtomic(m, "/f", []byte("old")))
	f := write(t, m, "/f.tmp", "new")
	ok(t, f.Sync())
	ok(t, m.Rename("/f.tmp", "/f"))
	for seed := range uint64(20) {
		b, err := ReadFile(m.Crash(0.5, rand.New(rand.NewPCG(seed, 2))), "/f")
		ok(t, err)
		if s := string(b); s != "old" && s != "new" {
			t.Fatalf("seed %d: %q", seed, s)
		}
	}
}

func TestInject(t *testing.T) {
	m := NewMem()
	f := write(t, m, "/f", "0123")
	var ops []OpKind
	last := 0
	m.Inject(func(op Op) error {
		ops = append(ops, op.Kind)
		if op.Count != last+1 && last != 0 {
			t.Errorf("count %d after %d", op.Count, last)
		}
		last = op.Count
		switch {
		case op.Kind == OpSync && op.Path == "/f":
			return syscall.EIO
		case op.Kind == OpWrite && op.Bytes > 3:
			return &TornError{N: 2, Err: syscall.ENOSPC}
		}
		return nil
	})
	is(t, f.Sync(), syscall.EIO)
	n, err := f.WriteAt([]byte("abcdef"), 4)
	is(t, err, syscall.ENOSPC)
	if n != 2 {
		t.Errorf("torn after %d bytes, want 2", n)
	}
	var torn *TornError
	if !errors.As(err, &torn) {
		t.Errorf("error %v does not say that the write is torn", err)
	}
	m.Inject(nil)
	holds(t, m, "/f", "0123ab")
	if len(ops) != 2 || ops[0] != OpSync || ops[1] != OpWrite {
		t.Errorf("the hook saw %v", ops)
	}
}

func TestFullDisk(t *testing.T) {
	m := NewMem()
	m.SetCapacity(10)
	f := write(t, m, "/f", "0123456")
	n, err := f.WriteAt([]byte("abcdef"), 5)
	is(t, err, syscall.ENOSPC)
	if n != 5 {
		t.Errorf("wrote %d bytes, want the 5 that fit", n)
	}
	_, free, err := m.Space("/")
	ok(t, err)
	if free != 0 {
		t.Errorf("%d bytes free, want 0", free)
	}
	_, err = f.WriteAt([]byte("xyz"), 0) // overwriting takes no room
	ok(t, err)
	ok(t, m.Remove("/f"))
	write(t, m, "/g", "0123456789")
}
