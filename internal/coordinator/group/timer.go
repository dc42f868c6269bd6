package group

import (
	"container/heap"
	"time"
)

// A timerKind says what a timer is for.
type timerKind int8

const (
	sessionTimer   timerKind = iota // a member did not give a sign of life
	rebalanceTimer                  // of a classic group: not all members joined; of a consumer group: a member did not revoke
	syncTimer                       // a classic member did not send SyncGroup
	joinTimer                       // a classic member of a consumer group was told to join again and did not
	expiryTimer                     // offsets may have expired; the one timer without a group
)

// A timer is named by its kind, group and, if it is one member's, member: setting it again replaces it.
type timer struct {
	kind          timerKind
	group, member string
}

// timers is a heap of timers by due time; those due at the same time go in the order in which they were set.
type timers struct {
	heap timerHeap
	at   map[timer]*timerEntry
	seq  uint64
}

type timerEntry struct {
	timer
	due   time.Time
	seq   uint64
	index int // in the heap
}

func (t *timers) set(key timer, due time.Time) {
	t.seq++
	if e, ok := t.at[key]; ok {
		e.due, e.seq = due, t.seq
		heap.Fix(&t.heap, e.index)
		return
	}
	if t.at == nil {
		t.at = map[timer]*timerEntry{}
	}
	e := &timerEntry{timer: key, due: due, seq: t.seq}
	t.at[key] = e
	heap.Push(&t.heap, e)
}

func (t *timers) cancel(key timer) {
	if e, ok := t.at[key]; ok {
		delete(t.at, key)
		heap.Remove(&t.heap, e.index)
	}
}

func (t *timers) running(key timer) bool { return t.at[key] != nil }

func (t *timers) due() (time.Time, bool) {
	if len(t.heap) == 0 {
		return time.Time{}, false
	}
	return t.heap[0].due, true
}

// pop removes the first timer that is due at now.
func (t *timers) pop(now time.Time) (timer, bool) {
	if len(t.heap) == 0 || t.heap[0].due.After(now) {
		return timer{}, false
	}
	e := heap.Pop(&t.heap).(*timerEntry)
	delete(t.at, e.timer)
	return e.timer, true
}

// timerHeap implements heap.Interface.
type timerHeap []*timerEntry

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	if h[i].due.Equal(h[j].due) {
		return h[i].seq < h[j].seq
	}
	return h[i].due.Before(h[j].due)
}
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *timerHeap) Push(x any) {
	e := x.(*timerEntry)
	e.index = len(*h)
	*h = append(*h, e)
}
func (h *timerHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}
