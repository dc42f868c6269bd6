package replica

import (
	"sync/atomic"

	"ottla/internal/replica/state"
	"ottla/internal/wake"
)

// A Waiter waits for the high watermark to pass what was appended. It is part of its owner's own struct, so that waiting
// allocates nothing; the zero value is ready for [Partition.Await], and again once it is done or cancelled. Its methods may
// be called by one goroutine at a time.
type Waiter struct {
	p          *Partition
	offset     int64
	wake       wake.Func
	prev, next *Waiter // guarded by p.mu
	queued     bool    // guarded by p.mu
	err        error   // of a done one
}

// Await asks to be woken once the high watermark is at offset or above: for a batch, its last offset plus 1. epoch is the
// leader epoch of the append. woken is called at most once, with no lock held, by whatever goroutine moved the high
// watermark or took the leadership away; it must not block, and may still come after a Cancel. Await reports whether the
// wait is already over; then woken is not called, and [Waiter.Done] tells how it ended.
func (p *Partition) Await(w *Waiter, epoch int32, offset int64, woken wake.Func) (over bool) {
	w.p, w.offset, w.wake, w.err = p, offset, woken, nil
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.mu.gone != nil:
		w.err = p.mu.gone
	case p.mu.state == nil || p.mu.state.Role() != state.Leader || epoch < p.mu.since:
		w.err = p.view.Load().notLeader()
	case p.mu.state.HighWatermark() >= offset:
		w.err = p.enoughReplicasLocked()
	default:
		p.mu.waiters.add(w)
		return false
	}
	return true
}

// Done reports whether the wait is over, and why if the records were not committed: *NotLeaderError, ErrUnknownPartition,
// *OfflineError, or *NotEnoughReplicasError with AfterAppend set. They are in the leader's log all the same, and may yet be
// committed.
func (w *Waiter) Done() (bool, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return !w.queued, w.err
}

// Cancel ends the wait. It may be called at any time, also when the wait is over.
func (w *Waiter) Cancel() {
	if w.p == nil {
		return
	}
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if w.queued {
		w.p.mu.waiters.remove(w)
	}
}

// enoughReplicasLocked is the last check of an append with acks=all. Source: Kafka's
// Partition.checkEnoughReplicasReachOffset.
func (p *Partition) enoughReplicasLocked() error {
	minISR := p.config.Load().MinInSyncReplicas
	if !p.mu.state.UnderMinISR(minISR) {
		return nil
	}
	return &NotEnoughReplicasError{ISR: len(p.mu.state.Registration().ISR), MinISR: minISR, AfterAppend: true}
}

// A waiterList holds waiters by offset, the lowest first. Most are added at its end.
type waiterList struct{ first, last *Waiter }

func (l *waiterList) add(w *Waiter) {
	after := l.last
	for after != nil && after.offset > w.offset {
		after = after.prev
	}
	w.queued, w.prev = true, after
	if after == nil {
		w.next, l.first = l.first, w
	} else {
		w.next, after.next = after.next, w
	}
	if w.next == nil {
		l.last = w
	} else {
		w.next.prev = w
	}
}

func (l *waiterList) remove(w *Waiter) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
}

// reached ends the waits for offsets up to hw; err is nil if enough replicas are in sync.
func (l *waiterList) reached(hw int64, err error, list *wake.List) {
	for w := l.first; w != nil && w.offset <= hw; w = l.first {
		l.remove(w)
		w.err = err
		list.Add(w.wake)
	}
}

// fail ends all waits with an error.
func (l *waiterList) fail(err error, list *wake.List) {
	for w := l.first; w != nil; w = l.first {
		l.remove(w)
		w.err = err
		list.Add(w.wake)
	}
}

// A Subscription wakes a fetch, or a fetch session, when there may be news of a partition: the high watermark or the last
// stable offset moved, the log start did, the leadership changed, the partition went. It is part of its owner's own struct.
type Subscription struct {
	p          *Partition
	wake       wake.Func
	replica    bool // also when the log end moves
	armed      atomic.Bool
	prev, next *Subscription // guarded by p.mu
}

// Subscribe adds a subscription, armed. A follower's also fires when the log end moves. news is called once for each time it
// is armed, with no lock held; it must not block, and may still come after Close.
func (p *Partition) Subscribe(s *Subscription, replica bool, news wake.Func) {
	s.p, s.wake, s.replica = p, news, replica
	s.armed.Store(true)
	p.mu.Lock()
	p.mu.subs.add(s)
	gone := p.mu.gone != nil
	p.mu.Unlock()
	if gone && s.armed.Swap(false) {
		news.Go()
	}
}

// Arm asks for one more wake. Who reads the partition arms first and reads then, so that no news is missed.
func (s *Subscription) Arm() { s.armed.Store(true) }

// Partition returns what is subscribed to.
func (s *Subscription) Partition() *Partition { return s.p }

// Close ends the subscription. It may be called again.
func (s *Subscription) Close() {
	if s.p == nil {
		return
	}
	s.p.mu.Lock()
	s.p.mu.subs.remove(s)
	s.p.mu.Unlock()
	s.p = nil
}

type subscriptionList struct{ first *Subscription }

func (l *subscriptionList) add(s *Subscription) {
	s.prev, s.next = nil, l.first
	if l.first != nil {
		l.first.prev = s
	}
	l.first = s
}

func (l *subscriptionList) remove(s *Subscription) {
	if s.prev == nil {
		l.first = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
}

// fire disarms subscriptions and collects their wakes; onlyReplicas leaves consumers alone.
func (l *subscriptionList) fire(w *wake.List, onlyReplicas bool) {
	for s := l.first; s != nil; s = s.next {
		if (s.replica || !onlyReplicas) && s.armed.Load() && s.armed.Swap(false) {
			w.Add(s.wake)
		}
	}
}
