package storage

import (
	"encoding/binary"
	"fmt"
	"io"
	"sort"
	"sync"
	"sync/atomic"

	"ottla/internal/vfs"
)

// chunkEntries is how many entries a chunk of an index's unwritten tail holds when it is full, and how many entries on disk stand
// behind each key of the summary: 128 entries cover 512 KiB of log, and a lookup reads 1 KiB.
const chunkEntries = 128

// An index's first chunk has room for firstEntries, and for chunkGrowth times as many whenever it is full, until it has room for chunkEntries. Most
// of ten thousand partitions' segments have but a few entries each, and each segment has two indexes.
const (
	chunkGrowth  = 4
	firstEntries = chunkEntries / (chunkGrowth * chunkGrowth)
)

// writeBehind is how many full chunks may gather before the flusher writes them out: one index write for each 2 MiB
// of log. What is not yet written is found again by recovery, which starts at the last entry that was.
const writeBehind = 4

// An entry of an index. In an .index file key is an offset relative to the segment's base and value the position of
// the batch; in a .timeindex file key is a timestamp in ms and value the relative offset.
type entry struct {
	key   int64
	value int32
}

// A layout says how the entries of one kind of index stand on disk, big endian. Sources: Kafka's OffsetIndex and
// TimeIndex.
type layout struct {
	suffix string
	size   int // bytes of an entry
}

var (
	offsetLayout = layout{suffix: indexSuffix, size: 8}
	timeLayout   = layout{suffix: timeIndexSuffix, size: 12}
)

func (y layout) decode(b []byte) entry {
	if y.size == 8 {
		return entry{int64(int32(binary.BigEndian.Uint32(b))), int32(binary.BigEndian.Uint32(b[4:]))}
	}
	return entry{int64(binary.BigEndian.Uint64(b)), int32(binary.BigEndian.Uint32(b[8:]))}
}

func (y layout) append(dst []byte, e entry) []byte {
	if y.size == 8 {
		dst = binary.BigEndian.AppendUint32(dst, uint32(e.key))
	} else {
		dst = binary.BigEndian.AppendUint64(dst, uint64(e.key))
	}
	return binary.BigEndian.AppendUint32(dst, uint32(e.value))
}

// An index is one .index or .timeindex of a segment: the front is in the file, the tail that was not written yet in
// memory. Lookups take no lock; add, persist and replace are serialised by the log.
type index struct {
	layout layout
	state  atomic.Pointer[indexState]

	mu sync.Mutex // guards the replacement of state
}

// An indexState is immutable but for the entries that are added behind chunk.n.
type indexState struct {
	onDisk  int     // entries in the file
	summary []int64 // key of every chunkEntries-th entry in the file; nil: the file is mapped
	tail    []*chunk
	last    entry // of those on disk; meaningless if there are none
}

// A chunk has room for as many entries as e is long, of which there are n. It is never empty.
type chunk struct {
	n atomic.Int32
	e []entry
}

// newChunk returns a chunk with so much room, of which the entries take some.
func newChunk(room int, entries []entry) *chunk {
	c := &chunk{e: make([]entry, room)}
	c.n.Store(int32(copy(c.e, entries)))
	return c
}

// chunkOf returns a chunk of some entries, no more than fit into one, with the room that it would have if they had been added.
func chunkOf(entries []entry) *chunk {
	room := firstEntries
	for room < len(entries) {
		room *= chunkGrowth
	}
	return newChunk(room, entries)
}

// add appends an entry if there is room.
func (c *chunk) add(e entry) bool {
	n := c.n.Load()
	if int(n) == len(c.e) {
		return false
	}
	c.e[n] = e
	c.n.Store(n + 1)
	return true
}

func newIndex(y layout) *index {
	x := &index{layout: y}
	x.state.Store(&indexState{})
	return x
}

// len returns how many entries there are.
func (s *indexState) len() int {
	if len(s.tail) == 0 {
		return s.onDisk
	}
	last := len(s.tail) - 1
	return s.onDisk + last*chunkEntries + int(s.tail[last].n.Load())
}

// lastEntry returns the newest entry in memory, or the last on disk if that is known; ok is false if there is none.
func (s *indexState) lastEntry() (e entry, ok bool) {
	if len(s.tail) > 0 {
		c := s.tail[len(s.tail)-1]
		return c.e[c.n.Load()-1], true
	}
	return s.last, s.onDisk > 0
}

// add appends an entry. The caller is the log's only appender.
func (x *index) add(e entry) {
	if s := x.state.Load(); len(s.tail) > 0 && s.tail[len(s.tail)-1].add(e) {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	next := *x.state.Load() // persist may have replaced it, but for the last chunk
	before, c := next.makeRoom()
	c.add(e)
	next.tail = append(before[:len(before):len(before)], c)
	x.state.Store(&next)
}

// makeRoom returns a chunk that has room, with the entries of the tail's last if that is to have more, and the chunks before it.
func (s *indexState) makeRoom() (before []*chunk, c *chunk) {
	if len(s.tail) == 0 && s.onDisk == 0 {
		return nil, newChunk(firstEntries, nil)
	}
	if last := len(s.tail) - 1; last >= 0 && len(s.tail[last].e) < chunkEntries {
		return s.tail[:last], newChunk(chunkGrowth*len(s.tail[last].e), s.tail[last].e)
	}
	return s.tail, newChunk(chunkEntries, nil)
}

// floor returns the last entry whose key is at most key. ok is false when there is none.
func (x *index) floor(h *handle, key int64) (e entry, ok bool, err error) {
	s := x.state.Load()
	if len(s.tail) > 0 && s.tail[0].e[0].key <= key {
		i := sort.Search(len(s.tail), func(i int) bool { return s.tail[i].e[0].key > key }) - 1
		c := s.tail[i]
		j := sort.Search(int(c.n.Load()), func(j int) bool { return c.e[j].key > key }) - 1
		return c.e[j], true, nil
	}
	if s.onDisk == 0 {
		return entry{}, false, nil
	}
	if s.summary != nil {
		return x.floorInFile(h, s, key)
	}
	return x.floorMapped(h, s, key)
}

func (x *index) floorInFile(h *handle, s *indexState, key int64) (entry, bool, error) {
	i := sort.Search(len(s.summary), func(i int) bool { return s.summary[i] > key }) - 1
	if i < 0 {
		return entry{}, false, nil
	}
	first := i * chunkEntries
	n := min(chunkEntries, s.onDisk-first)
	f, err := h.indexFile(x.layout)
	if err != nil {
		return entry{}, false, err
	}
	var buf [chunkEntries * 12]byte
	b := buf[:n*x.layout.size]
	if _, err := f.ReadAt(b, int64(first*x.layout.size)); err != nil {
		return entry{}, false, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	e, ok := x.layout.search(b, key)
	return e, ok, nil
}

func (x *index) floorMapped(h *handle, s *indexState, key int64) (e entry, ok bool, err error) {
	m, err := h.indexMapping(x.layout)
	if err != nil {
		return entry{}, false, err
	}
	err = m.View(func(b []byte) {
		e, ok = x.layout.search(b[:min(len(b), s.onDisk*x.layout.size)], key)
	})
	return e, ok, err
}

// search returns the last of the whole entries in b whose key is at most key.
func (y layout) search(b []byte, key int64) (entry, bool) {
	n := len(b) / y.size
	i := sort.Search(n, func(i int) bool { return y.decode(b[i*y.size:]).key > key }) - 1
	if i < 0 {
		return entry{}, false
	}
	return y.decode(b[i*y.size:]), true
}

// pending returns how many entries are not in the file.
func (s *indexState) pending() int { return s.len() - s.onDisk }

// due reports whether persist has something worth writing.
func (x *index) due(all bool) bool {
	s := x.state.Load()
	if all {
		return s.pending() > 0
	}
	return len(s.tail) > writeBehind
}

// persist writes the full chunks of the tail to the file and syncs it; with all, which needs the appender to stand
// still or the segment to be sealed, the last chunk too, and the index is then read through a mapping.
func (x *index) persist(f vfs.File, all bool) error {
	s := x.state.Load()
	chunks := s.tail
	if !all && len(chunks) > 0 {
		chunks = chunks[:len(chunks)-1]
	}
	if len(chunks) == 0 {
		return nil
	}
	buf := make([]byte, 0, s.pending()*x.layout.size)
	keys := make([]int64, 0, len(chunks))
	var last entry
	n := 0
	for _, c := range chunks {
		keys = append(keys, c.e[0].key)
		for _, e := range c.e[:c.n.Load()] {
			buf = x.layout.append(buf, e)
			last = e
			n++
		}
	}
	at := int64(s.onDisk * x.layout.size)
	if _, err := f.WriteAt(buf, at); err != nil {
		return fmt.Errorf("write %s: %w", f.Name(), err)
	}
	if err := f.Truncate(at + int64(len(buf))); err != nil { // what an earlier broker preallocated
		return fmt.Errorf("trim %s: %w", f.Name(), err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", f.Name(), err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	s = x.state.Load()
	next := &indexState{onDisk: s.onDisk + n, tail: s.tail[len(chunks):], last: last}
	if !all {
		next.summary = append(s.summary[:len(s.summary):len(s.summary)], keys...)
	}
	x.state.Store(next)
	return nil
}

// replace puts entries, all of them unwritten, in the place of what was.
func (x *index) replace(entries []entry) {
	s := &indexState{}
	for len(entries) > 0 {
		n := min(chunkEntries, len(entries))
		s.tail = append(s.tail, chunkOf(entries[:n]))
		entries = entries[n:]
	}
	x.mu.Lock()
	x.state.Store(s)
	x.mu.Unlock()
}

// load takes entries, which are those at the front of the file. What does not fill a chunk counts as unwritten, so that
// the keys of the summary stay aligned.
func (x *index) load(entries []entry) {
	n := len(entries) - len(entries)%chunkEntries
	s := &indexState{onDisk: n}
	for i := 0; i < n; i += chunkEntries {
		s.summary = append(s.summary, entries[i].key)
	}
	if n > 0 {
		s.last = entries[n-1]
	}
	if rest := entries[n:]; len(rest) > 0 {
		s.tail = []*chunk{chunkOf(rest)}
	}
	x.mu.Lock()
	x.state.Store(s)
	x.mu.Unlock()
}

// reset puts entries in the place of what was, of which the first onDisk are at the front of the file.
func (x *index) reset(entries []entry, onDisk int) {
	if len(entries) <= onDisk {
		x.load(entries)
		return
	}
	x.replace(entries)
}

// become takes over the entries of another index of the same file, which is not used any more.
func (x *index) become(other *index) {
	x.mu.Lock()
	x.state.Store(other.state.Load())
	x.mu.Unlock()
}

// adopt takes n entries in the file as they are, to be read through a mapping.
func (x *index) adopt(n int) {
	x.mu.Lock()
	x.state.Store(&indexState{onDisk: n})
	x.mu.Unlock()
}

// readIndex reads the entries at the front of f which are in order: keys rise, values do, both fit the segment. What
// follows the first that is not, such as the zeros that Apache preallocates, is left out.
func readIndex(f io.ReaderAt, size int64, y layout) ([]entry, error) {
	b := make([]byte, size-size%int64(y.size))
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		return nil, err
	}
	entries := make([]entry, 0, len(b)/y.size)
	previous := entry{key: -1, value: -1}
	for ; len(b) >= y.size; b = b[y.size:] {
		e := y.decode(b)
		if e.key <= previous.key || e.value < previous.value || e.value == 0 && e.key == 0 {
			break
		}
		entries = append(entries, e)
		previous = e
	}
	return entries, nil
}
