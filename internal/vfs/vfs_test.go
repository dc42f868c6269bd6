package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// each runs the acceptance test on both file systems, in an empty directory.
func each(t *testing.T, test func(t *testing.T, fsys FS, dir string)) {
	t.Run("os", func(t *testing.T) { test(t, OS, t.TempDir()) })
	t.Run("mem", func(t *testing.T) {
		m := NewMem()
		ok(t, m.MkdirAll("/data", 0o755))
		test(t, m, "/data")
	})
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func write(t *testing.T, fsys FS, name, s string) File {
	t.Helper()
	f, err := fsys.Create(name)
	ok(t, err)
	t.Cleanup(func() { f.Close() })
	n, err := f.WriteAt([]byte(s), 0)
	ok(t, err)
	if n != len(s) {
		t.Fatalf("wrote %d of %d bytes", n, len(s))
	}
	return f
}

func holds(t *testing.T, fsys FS, name, want string) {
	t.Helper()
	b, err := ReadFile(fsys, name)
	ok(t, err)
	if string(b) != want {
		t.Fatalf("%s holds %q, want %q", name, b, want)
	}
}

func TestFile(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, "f")
		_, err := fsys.Open(name)
		is(t, err, fs.ErrNotExist)
		f := write(t, fsys, name, "hello")
		if f.Name() != name {
			t.Errorf("Name %q", f.Name())
		}
		_, err = f.WriteAt([]byte("!"), 7)
		ok(t, err)
		holds(t, fsys, name, "hello\x00\x00!")
		ok(t, f.Truncate(4))
		ok(t, f.Truncate(6))
		holds(t, fsys, name, "hell\x00\x00")
		ok(t, f.StartWriteback(0, 0))
		ok(t, f.Sync())
		size, err := f.Size()
		ok(t, err)
		if size != 6 {
			t.Errorf("size %d, want 6", size)
		}

		b := make([]byte, 4)
		n, err := f.ReadAt(b, 3)
		if n != 3 || err != io.EOF || string(b[:n]) != "l\x00\x00" {
			t.Errorf("short read: %q, %v", b[:n], err)
		}
		if n, err := f.ReadAt(b, 6); n != 0 || err != io.EOF {
			t.Errorf("read at the end: %d, %v", n, err)
		}

		r, err := fsys.Open(name)
		ok(t, err)
		if _, err := r.WriteAt(b, 0); err == nil {
			t.Error("a file opened for reading was written")
		}
		ok(t, r.Close())
		_, err = r.ReadAt(b, 0)
		is(t, err, fs.ErrClosed)

		again, err := fsys.OpenReadWrite(name)
		ok(t, err)
		holds(t, fsys, name, "hell\x00\x00")
		ok(t, again.Close())
		write(t, fsys, name, "")
		holds(t, fsys, name, "")
	})
}

// Many sync many at once, more than the kernel does for this process at a time.
func TestSyncAll(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		var wg sync.WaitGroup
		for i := range 6 {
			var files []File
			for n := range 60 {
				files = append(files, write(t, fsys, filepath.Join(dir, fmt.Sprint(i, "-", n)), "hello"))
			}
			wg.Go(func() {
				for range 3 {
					if _, err := files[0].WriteAt([]byte("!"), 5); err != nil {
						t.Error(err)
					}
					if err := fsys.SyncAll(files); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		ok(t, fsys.SyncAll(nil))
		f := write(t, fsys, filepath.Join(dir, "f"), "")
		ok(t, fsys.SyncAll([]File{f, f}))
		ok(t, f.Close())
		is(t, f.Sync(), fs.ErrClosed)
	})
}

func TestDirectory(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		deep := filepath.Join(dir, "a", "b")
		ok(t, fsys.MkdirAll(deep, 0o755))
		ok(t, fsys.MkdirAll(deep, 0o755))
		f := write(t, fsys, filepath.Join(deep, "x"), "x")
		write(t, fsys, filepath.Join(deep, "c"), "c")
		ok(t, fsys.SyncDir(deep))
		is(t, fsys.SyncDir(filepath.Join(dir, "none")), fs.ErrNotExist)
		entries, err := fsys.ReadDir(deep)
		ok(t, err)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if !slices.Equal(names, []string{"c", "x"}) {
			t.Errorf("ReadDir: %v", names)
		}
		_, err = fsys.ReadDir(filepath.Join(dir, "none"))
		is(t, err, fs.ErrNotExist)

		info, err := fsys.Stat(deep)
		ok(t, err)
		if !info.IsDir() || info.Name() != "b" {
			t.Errorf("Stat of a directory: %v %q", info.IsDir(), info.Name())
		}
		info, err = fsys.Stat(filepath.Join(deep, "x"))
		ok(t, err)
		if info.IsDir() || info.Size() != 1 {
			t.Errorf("Stat of a file: %v, %d bytes", info.IsDir(), info.Size())
		}

		if err := fsys.Remove(deep); err == nil {
			t.Error("a directory that holds files was removed")
		}
		ok(t, fsys.Rename(filepath.Join(deep, "x"), filepath.Join(deep, "c")))
		holds(t, fsys, filepath.Join(deep, "c"), "x")
		ok(t, fsys.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "z")))
		holds(t, fsys, filepath.Join(dir, "z", "b", "c"), "x")
		is(t, fsys.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "y")), fs.ErrNotExist)

		ok(t, fsys.RemoveAll(filepath.Join(dir, "z")))
		ok(t, fsys.RemoveAll(filepath.Join(dir, "z")))
		_, err = fsys.Stat(filepath.Join(dir, "z"))
		is(t, err, fs.ErrNotExist)
		is(t, fsys.Remove(filepath.Join(dir, "z")), fs.ErrNotExist)
		if runtime.GOOS == "windows" {
			return
		}
		b := make([]byte, 1)
		_, err = f.ReadAt(b, 0) // what is open outlives its name
		ok(t, err)
		if b[0] != 'x' {
			t.Errorf("an open, removed file reads %q", b)
		}
	})
}

func TestLock(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, ".lock")
		l, err := fsys.Lock(name)
		ok(t, err)
		_, err = fsys.Lock(name)
		is(t, err, ErrLocked)
		ok(t, l.Close())
		l, err = fsys.Lock(name)
		ok(t, err)
		ok(t, l.Close())
		holds(t, fsys, name, "")
	})
}

func TestSpace(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		total, free, err := fsys.Space(dir)
		ok(t, err)
		if total == 0 || free > total {
			t.Errorf("total %d, free %d", total, free)
		}
		_, _, err = fsys.Space(filepath.Join(dir, "none"))
		is(t, err, fs.ErrNotExist)
	})
}

func TestWriteFileAtomic(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, "checkpoint")
		for _, s := range []string{"first, and long", "second"} {
			ok(t, WriteFileAtomic(fsys, name, []byte(s)))
			holds(t, fsys, name, s)
		}
		entries, err := fsys.ReadDir(dir)
		ok(t, err)
		if len(entries) != 1 {
			t.Errorf("%d files are left, want 1", len(entries))
		}
	})
}

func TestMap(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		empty, err := write(t, fsys, filepath.Join(dir, "empty"), "").Map()
		ok(t, err)
		if empty.Len() != 0 {
			t.Errorf("an empty file maps %d bytes", empty.Len())
		}
		ok(t, empty.Close())

		f := write(t, fsys, filepath.Join(dir, "f"), "0123456789")
		m, err := f.Map()
		ok(t, err)
		ok(t, f.Close())
		b := make([]byte, 4)
		n, err := m.ReadAt(b, 8)
		if n != 2 || err != io.EOF || string(b[:n]) != "89" {
			t.Errorf("ReadAt: %q, %v", b[:n], err)
		}
		ok(t, m.View(func(b []byte) {
			if string(b) != "0123456789" {
				t.Errorf("View: %q", b)
			}
		}))
		ok(t, m.Close())
	})
}

func TestMapOfCutFileFaults(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // nothing is mapped there
	}
	name := filepath.Join(t.TempDir(), "f")
	f := write(t, OS, name, string(make([]byte, 1<<16)))
	m, err := f.Map()
	ok(t, err)
	defer m.Close()
	ok(t, f.Truncate(0))
	_, err = m.ReadAt(make([]byte, 1), 1<<15)
	var fault *FaultError
	if !errors.As(err, &fault) || fault.Path != name {
		t.Fatalf("error %v, want a fault of %s", err, name)
	}
	defer func() {
		if p := recover(); p != "mine" {
			t.Errorf("panic %v, want the reader's own", p)
		}
	}()
	m.View(func([]byte) { panic("mine") })
}

// tcpPair is a plain TCP connection; what is written to the first end is read from the second.
func tcpPair(t *testing.T) (*net.TCPConn, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	defer l.Close()
	dialed := make(chan net.Conn, 1)
	go func() {
		c, _ := net.Dial("tcp", l.Addr().String())
		dialed <- c
	}()
	a, err := l.Accept()
	ok(t, err)
	b := <-dialed
	t.Cleanup(func() { a.Close(); b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn)
}

func TestSendTo(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		data := make([]byte, 6<<20) // more than a socket takes at once, and than one sendfile
		rand.NewChaCha8([32]byte{7}).Read(data)
		f := write(t, fsys, filepath.Join(dir, "f"), string(data))

		var buf bytes.Buffer
		n, err := f.SendTo(&buf, 100, 200_000)
		ok(t, err)
		if n != 200_000 || !bytes.Equal(buf.Bytes(), data[100:200_100]) {
			t.Errorf("copied %d bytes, or the wrong ones", n)
		}
		n, err = f.SendTo(io.Discard, int64(len(data))-10, 11)
		if n > 10 || err != io.ErrUnexpectedEOF {
			t.Errorf("past the end: %d, %v", n, err)
		}

		// Many connections read one file at different places at once.
		var wg sync.WaitGroup
		for i := range 3 {
			out, in := tcpPair(t)
			from := i * 12345
			wg.Go(func() {
				n, err := f.SendTo(out, int64(from), int64(len(data)-from))
				if n != int64(len(data)-from) || err != nil {
					t.Errorf("sent %d, %v", n, err)
				}
				out.CloseWrite()
			})
			wg.Go(func() {
				got, err := io.ReadAll(in)
				if err != nil || !bytes.Equal(got, data[from:]) {
					t.Errorf("received %d bytes, or the wrong ones: %v", len(got), err)
				}
			})
		}
		wg.Wait()

		out, in := tcpPair(t)
		go func() { io.Copy(io.Discard, in) }()
		n, err = f.SendTo(out, int64(len(data))-10, 11)
		if n > 10 || err != io.ErrUnexpectedEOF {
			t.Errorf("past the end to a connection: %d, %v", n, err)
		}
		out.Close()
		if _, err = f.SendTo(out, 0, 1); !errors.Is(err, net.ErrClosed) {
			t.Errorf("to a closed connection: %v", err)
		}
	})
}

func BenchmarkSendTo(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		c, err := l.Accept()
		if err == nil {
			io.Copy(io.Discard, c)
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	f, err := OS.Create(filepath.Join(b.TempDir(), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	const size = 1 << 20
	if _, err := f.WriteAt(make([]byte, size), 0); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.SendTo(conn, 0, size); err != nil {
			b.Fatal(err)
		}
	}
}
