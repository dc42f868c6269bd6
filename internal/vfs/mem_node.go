package vfs

import (
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// sectorSize is the unit a device writes whole; a power cut tears between sectors.
const sectorSize = 512

// A node is a file or a directory. Its Mem's mutex guards it.
type node struct {
	dir      bool
	modified time.Time

	// Of a directory.
	entries  map[string]*node
	durable  map[string]*node // as of the last SyncDir
	unsynced [][]edit         // the steps from durable to entries, oldest first

	// Of a file. saved holds, for each sector that changed since the last Sync, what it held then, at most up to
	// synced; a crash puts it back, or not.
	data   []byte
	synced int64 // length as of the last Sync
	low    int64 // the shortest the file has been since then
	saved  map[int64][]byte
}

// An edit sets one entry of a directory, or removes it if n is nil. The edits of one step are atomic.
type edit struct {
	name string
	n    *node
}

func newDir() *node {
	return &node{dir: true, modified: time.Now(), entries: map[string]*node{}, durable: map[string]*node{}}
}

func (n *node) edit(step ...edit) {
	apply(n.entries, step)
	n.unsynced = append(n.unsynced, step)
	n.modified = time.Now()
}

func apply(entries map[string]*node, step []edit) {
	for _, e := range step {
		if e.n == nil {
			delete(entries, e.name)
			continue
		}
		entries[e.name] = e.n
	}
}

func (n *node) writeAt(b []byte, off int64) {
	if end := off + int64(len(b)); end > int64(len(n.data)) {
		n.resize(end)
	}
	n.save(off, off+int64(len(b)))
	copy(n.data[off:], b)
	n.modified = time.Now()
}

func (n *node) resize(size int64) {
	old := int64(len(n.data))
	n.save(min(old, size), max(old, size))
	n.low = min(n.low, size)
	n.modified = time.Now()
	if size <= old {
		n.data = n.data[:size]
		return
	}
	n.data = slices.Grow(n.data, int(size-old))[:size]
	clear(n.data[old:])
}

// save remembers what the sectors of [from, to) held at the last Sync, if they have not changed since then.
func (n *node) save(from, to int64) {
	if n.saved == nil {
		n.saved = map[int64][]byte{}
	}
	for s := from / sectorSize; s*sectorSize < to; s++ {
		if _, changed := n.saved[s]; changed {
			continue
		}
		start, end := s*sectorSize, min((s+1)*sectorSize, n.synced)
		if start < end {
			n.saved[s] = slices.Clone(n.data[start:end])
		} else {
			n.saved[s] = nil
		}
	}
}

func (n *node) sync() {
	n.synced = int64(len(n.data))
	n.low = n.synced
	n.saved = nil
}

func (n *node) size() uint64 {
	size := uint64(len(n.data))
	for _, child := range n.entries {
		size += child.size()
	}
	return size
}

func (n *node) info(name string) fs.FileInfo {
	return memInfo{name: name, size: int64(len(n.data)), dir: n.dir, modified: n.modified}
}

type memInfo struct {
	name     string
	size     int64
	dir      bool
	modified time.Time
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) ModTime() time.Time { return i.modified }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}

func asTorn(err error) (*TornError, bool) {
	var torn *TornError
	ok := errors.As(err, &torn)
	return torn, ok
}

// Crash returns what a machine finds after a power cut at this moment, as a file system of its own: all that was
// synced, and of the rest each sector of a file, and each directory's oldest changes, with probability keepUnsynced
// (0 = nothing unsynced, 1 = all of it). Locks are free and the hook is gone. The old file system goes on, for
// goroutines that do not know yet that they are dead. rng may be nil if keepUnsynced is 0 or 1.
func (m *Mem) Crash(keepUnsynced float64, rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := crash{keepUnsynced, rng, map[*node]*node{}}
	return &Mem{root: c.node(m.root), locked: map[string]bool{}, capacity: m.capacity}
}

type crash struct {
	keep float64
	rng  *rand.Rand
	done map[*node]*node // a node that two names lead to stays one
}

func (c *crash) kept() bool {
	return c.keep >= 1 || c.keep > 0 && c.rng.Float64() < c.keep
}

func (c *crash) node(n *node) *node {
	if after := c.done[n]; after != nil {
		return after
	}
	after := &node{dir: n.dir, modified: n.modified}
	c.done[n] = after
	if !n.dir {
		after.data = c.contents(n)
		after.sync()
		return after
	}
	entries := maps.Clone(n.durable)
	for _, step := range n.unsynced { // a journal is replayed up to somewhere
		if !c.kept() {
			break
		}
		apply(entries, step)
	}
	after.entries = make(map[string]*node, len(entries))
	for _, name := range slices.Sorted(maps.Keys(entries)) { // sorted: the same draws for the same seed
		after.entries[name] = c.node(entries[name])
	}
	after.durable = maps.Clone(after.entries)
	return after
}

func (c *crash) contents(n *node) []byte {
	if c.keep >= 1 {
		return slices.Clone(n.data)
	}
	size := n.synced
	if n.low < n.synced && c.kept() {
		size = n.low
	}
	data := make([]byte, max(n.synced, int64(len(n.data))))
	copy(data, n.data)
	for _, s := range slices.Sorted(maps.Keys(n.saved)) {
		start := s * sectorSize
		if start >= int64(len(data)) {
			continue // written and cut off again, without a sync in between
		}
		end := min(start+sectorSize, int64(len(data)))
		if c.kept() && start < int64(len(n.data)) {
			size = max(size, min(end, int64(len(n.data))))
			continue
		}
		clear(data[start:end])
		copy(data[start:end], n.saved[s])
	}
	return data[:size]
}
