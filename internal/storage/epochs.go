package storage

import (
	"sort"
	"sync/atomic"
)

// UnknownEpoch and UnknownOffset are the answer of [Log.EpochEndOffset] when nothing is known of the epoch.
const (
	UnknownEpoch  int32 = -1
	UnknownOffset int64 = -1
)

// An epochEntry says at which offset a leader epoch began.
type epochEntry struct {
	epoch int32
	start int64
}

// epochs is the leader-epoch cache: entries with rising epochs and start offsets. Readers take no lock; the log
// serialises changes, which replace the slice. Source: Kafka's LeaderEpochFileCache.
type epochs struct {
	entries atomic.Pointer[[]epochEntry]
}

func newEpochs(entries []epochEntry) *epochs {
	c := &epochs{}
	c.entries.Store(&entries)
	return c
}

func (c *epochs) list() []epochEntry { return *c.entries.Load() }

func (c *epochs) latest() int32 {
	if l := c.list(); len(l) > 0 {
		return l[len(l)-1].epoch
	}
	return UnknownEpoch
}

// assign adds the start of an epoch and reports whether that changed anything. Entries that contradict it, being of
// the same or a later epoch or starting at or behind it, go.
func (c *epochs) assign(epoch int32, start int64) bool {
	if epoch < 0 || start < 0 {
		return false
	}
	old := c.list()
	keep := len(old)
	if keep > 0 && old[keep-1].epoch == epoch && old[keep-1].start <= start {
		return false // the first start of an epoch stands
	}
	for keep > 0 && (old[keep-1].epoch >= epoch || old[keep-1].start >= start) {
		keep--
	}
	next := append(old[:keep:keep], epochEntry{epoch, start})
	c.entries.Store(&next)
	return true
}

// truncateEnd forgets the epochs that began at end or behind it.
func (c *epochs) truncateEnd(end int64) bool {
	old := c.list()
	n := sort.Search(len(old), func(i int) bool { return old[i].start >= end })
	if n == len(old) {
		return false
	}
	next := old[:n:n]
	c.entries.Store(&next)
	return true
}

// truncateStart forgets the epochs that ended before start; the one that start lies in begins there from now on.
func (c *epochs) truncateStart(start int64) bool {
	old := c.list()
	n := sort.Search(len(old), func(i int) bool { return old[i].start > start }) - 1
	if n < 0 || old[n].start == start && n == 0 {
		return false
	}
	next := append([]epochEntry(nil), old[n:]...)
	next[0].start = start
	c.entries.Store(&next)
	return true
}

// end returns the largest epoch up to requested and where it ends, given the log's end offset leo; see
// [Log.EpochEndOffset].
func (c *epochs) end(requested int32, leo int64) (epoch int32, end int64) {
	l := c.list()
	if len(l) == 0 || requested == UnknownEpoch || l[len(l)-1].epoch < requested {
		return UnknownEpoch, UnknownOffset
	}
	if l[len(l)-1].epoch == requested {
		return requested, leo
	}
	i := sort.Search(len(l), func(i int) bool { return l[i].epoch > requested })
	if i == 0 {
		return requested, l[0].start
	}
	return l[i-1].epoch, l[i].start
}

// at returns the epoch that the batch at offset was written in, UnknownEpoch if it is before all entries.
func (c *epochs) at(offset int64) int32 {
	l := c.list()
	i := sort.Search(len(l), func(i int) bool { return l[i].start > offset }) - 1
	if i < 0 {
		return UnknownEpoch
	}
	return l[i].epoch
}
