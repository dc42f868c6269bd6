//go:build linux

package main

import (
	"sync"
	"time"
)

// A board shows who owns which partition of one group, as the members themselves know it: a member owns a partition from the
// answer that gives it until it begins to give it back, and a member that leaves gives all back before it says so. So two
// owners at a time, which are counted, are the coordinator's fault.
//
// The group is stable when all its members are in the newest generation (classic) or epoch (consumer), none of them has
// anything to give back, each partition has an owner, and no member owns two partitions more than another.
type board struct {
	members int // wanted

	mu         sync.Mutex
	seats      map[*seat]struct{}
	epoch      int32 // the newest that any member was told
	upToDate   int   // seats that are in it, and settled
	owner      []*seat
	owned      int
	free       []time.Time // of each partition without owner: since when
	gaps       gaps
	doubles    int       // partitions given to a second owner
	stableFrom time.Time // zero: not stable
	stable     chan struct{}
}

// A seat is one member's place on the board.
type seat struct {
	epoch   int32
	settled bool
	owned   map[int32]struct{}
}

// gaps are the stretches of time for which partitions were unowned.
type gaps struct {
	count    int
	sum, max time.Duration
}

func newBoard(members, partitions int) *board {
	b := &board{members: members, seats: map[*seat]struct{}{}, owner: make([]*seat, partitions), free: make([]time.Time, partitions),
		stable: make(chan struct{}, 1)}
	b.begin()
	return b
}

// begin forgets the gaps and two-fold owners so far; what is unowned counts from now.
func (b *board) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gaps, b.doubles = gaps{}, 0
	now := time.Now()
	for p := range b.free {
		b.free[p] = now
	}
}

// enter seats a member that is about to join.
func (b *board) enter() *seat {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &seat{owned: map[int32]struct{}{}}
	b.seats[s] = struct{}{}
	b.changed()
	return s
}

// leave gives back all that a member has; it is about to leave.
func (b *board) leave(s *seat) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(s, nil)
	b.place(s, 0, false)
	delete(b.seats, s)
	b.changed()
}

// hold says that a member now owns these partitions and no other, in this epoch. It is not settled if that is not the end of it.
func (b *board) hold(s *seat, epoch int32, partitions []int32, settled bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(s, partitions)
	b.place(s, epoch, settled)
	b.changed()
}

// place moves a seat to an epoch.
func (b *board) place(s *seat, epoch int32, settled bool) {
	if s.settled && s.epoch == b.epoch {
		b.upToDate--
	}
	s.epoch, s.settled = epoch, settled
	if epoch > b.epoch {
		b.epoch, b.upToDate = epoch, 0
	}
	if settled && epoch == b.epoch {
		b.upToDate++
	}
}

// set replaces what a seat owns.
func (b *board) set(s *seat, partitions []int32) {
	now := time.Now()
	next := make(map[int32]struct{}, len(partitions))
	for _, p := range partitions {
		next[p] = struct{}{}
	}
	for p := range s.owned {
		if _, ok := next[p]; !ok && b.owner[p] == s {
			b.owner[p], b.free[p] = nil, now
			b.owned--
		}
	}
	for p := range next {
		switch _, had := s.owned[p]; {
		case had:
		case b.owner[p] != nil:
			b.doubles++
			b.owner[p] = s
		default:
			gap := now.Sub(b.free[p])
			b.gaps.count++
			b.gaps.sum += gap
			b.gaps.max = max(b.gaps.max, gap)
			b.owner[p] = s
			b.owned++
		}
	}
	s.owned = next
}

// changed looks whether the group is stable now.
func (b *board) changed() {
	if !b.isStable() {
		b.stableFrom = time.Time{}
		return
	}
	if b.stableFrom.IsZero() {
		b.stableFrom = time.Now()
		select {
		case b.stable <- struct{}{}:
		default:
		}
	}
}

func (b *board) isStable() bool {
	if len(b.seats) != b.members || b.upToDate != b.members || b.owned != len(b.owner) {
		return false
	}
	least, most := len(b.owner), 0
	for s := range b.seats {
		least, most = min(least, len(s.owned)), max(most, len(s.owned))
	}
	return most-least <= 1
}

// since returns since when the group is stable; zero: it is not.
func (b *board) since() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stableFrom
}

// A standing is what a board has come to.
type standing struct {
	epoch   int32
	gaps    gaps
	doubles int
}

func (b *board) standing() standing {
	b.mu.Lock()
	defer b.mu.Unlock()
	return standing{b.epoch, b.gaps, b.doubles}
}
