package storage

import (
	"sync"
	"testing"
	"unsafe"

	"ottla/internal/vfs"
)

// A lookup finds every entry that was added before it, in memory or in the file, while more are added, chunks grow and are written.
func TestIndexIsReadWhileItGrows(t *testing.T) {
	const entries = 20 * chunkEntries
	stem := t.TempDir() + "/00000000000000000000"
	f, err := vfs.OS.OpenReadWrite(stem + indexSuffix)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := new(handle)
	h.indexes[offsetLayout.slot()].Store(&openIndex{file: f})
	x := newIndex(offsetLayout)
	added := make(chan int, entries)
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for n := range added {
				for _, key := range []int{n, n / 2, 0} {
					e, ok, err := x.floor(h, int64(10*key+5))
					if err != nil || !ok || e != (entry{int64(10 * key), int32(key)}) {
						t.Errorf("where there are %d entries, that before %d is %v, %t, %v", n+1, 10*key+5, e, ok, err)
					}
				}
				if e, ok := x.state.Load().lastEntry(); !ok || e.key < int64(10*n) {
					t.Errorf("the last of %d entries is %v, %t", n+1, e, ok)
				}
			}
		})
	}
	for n := range entries {
		x.add(entry{int64(10 * n), int32(n)})
		added <- n
		if x.due(false) {
			if err := x.persist(f, false); err != nil {
				t.Fatal(err)
			}
		}
		if got := x.state.Load().len(); got != n+1 {
			t.Fatalf("%d entries, want %d", got, n+1)
		}
	}
	close(added)
	readers.Wait()
}

// An index of few entries takes little memory, however it came to them, and none has room for more than a chunk's that it does not need.
func TestIndexMemory(t *testing.T) {
	for n := 1; n <= 3*chunkEntries; n++ {
		var all []entry
		grown := newIndex(timeLayout)
		for i := range n {
			all = append(all, entry{int64(i), int32(i)})
			grown.add(all[i])
		}
		replaced := newIndex(timeLayout)
		replaced.replace(all)
		for name, x := range map[string]*index{"grown": grown, "replaced": replaced} {
			s := x.state.Load()
			if s.len() != n {
				t.Fatalf("%s: %d entries, want %d", name, s.len(), n)
			}
			room := 0
			for _, c := range s.tail {
				room += len(c.e)
			}
			if most := max(firstEntries, min(chunkGrowth*n, n+chunkEntries)); room > most {
				t.Errorf("%s: room for %d entries where there are %d, want at most %d", name, room, n, most)
			}
		}
	}
	if size := firstEntries * unsafe.Sizeof(entry{}); size > 128 {
		t.Errorf("the first chunk takes %d bytes", size)
	}
}
