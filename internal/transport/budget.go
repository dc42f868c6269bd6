package transport

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
)

// A Budget bounds the memory of requests that are being read, decoded or
// handled, over all connections of a process. Those of other nodes draw from
// a pool of their own, so that no client can keep replication or heartbeats out.
//
// When a pool is empty its readers pause, except the one whose frame was begun
// first: it alone may overdraw, so that somebody always gets on.
type Budget struct {
	clients, nodes pool
}

// Shares of the budget.
const (
	// nodesShare: frames between nodes are small (Fetch, AlterPartition,
	// heartbeats), an eighth is plenty.
	nodesShare = 8
	// minBudget keeps a tiny configuration from stopping everything.
	minBudget = 1 << 20
)

// NewBudget returns a budget of limit bytes: queued.max.request.bytes if that is
// positive, else a quarter of the memory limit. A limit below 1 MiB is taken
// as 1 MiB. Connections to other nodes have an eighth of it on top.
func NewBudget(queuedMaxRequestBytes, memoryLimit int64) *Budget {
	limit := queuedMaxRequestBytes
	if limit <= 0 {
		limit = memoryLimit / 4
	}
	limit = max(limit, minBudget)
	b := &Budget{}
	b.clients.capacity = limit
	b.nodes.capacity = max(limit/nodesShare, minBudget)
	return b
}

// Capacity returns the bytes that clients' requests may take together.
func (b *Budget) Capacity() int64 { return b.clients.capacity }

// Used returns the bytes taken at the moment, by clients and nodes together.
func (b *Budget) Used() int64 { return b.clients.used.Load() + b.nodes.used.Load() }

// A pool counts in an atomic, and takes its lock only when a frame needs more than
// one step or has to wait.
type pool struct {
	capacity int64
	used     atomic.Int64
	waiting  atomic.Int32 // claims in open with want > 0

	mu   sync.Mutex
	open list.List // of *claim, in the order they were opened; the first may overdraw
}

// A claim is what one frame holds of a pool. It is used by one goroutine at a time.
// The zero claim holds nothing of no pool.
type claim struct {
	pool *pool
	held int64

	// Guarded by pool.mu.
	place *list.Element // in pool.open, nil if not open
	want  int64         // what it waits for
	ready chan struct{} // closed when want has been granted
}

// take takes n more bytes of p and waits for them if need be. The frame stays open,
// that is keeps its place in the queue for memory, until [claim.settle].
func (c *claim) take(ctx context.Context, p *pool, n int64) error {
	c.pool = p
	if n == 0 {
		return nil
	}
	if p.tryTake(n) {
		c.held += n
		return nil
	}
	ready := p.queue(c, n)
	if ready == nil {
		return nil
	}
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		p.forget(c)
		return ctx.Err()
	}
}

// enter gives the claim its place in the queue: it will need more than it has.
func (c *claim) enter(p *pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.place == nil {
		c.pool = p
		c.place = p.open.PushBack(c)
	}
}

// settle gives the place in the queue up: the claim needs no more. The next one
// may overdraw now.
func (c *claim) settle() {
	if c.place == nil {
		return
	}
	c.pool.mu.Lock()
	c.pool.open.Remove(c.place)
	c.place = nil
	granted := c.pool.grantLocked()
	c.pool.mu.Unlock()
	wakeAll(granted)
}

// release gives everything back.
func (c *claim) release() {
	c.settle()
	if c.held == 0 {
		return
	}
	n := c.held
	c.held = 0
	c.pool.give(n)
}

// shrink gives n bytes back.
func (c *claim) shrink(n int64) {
	c.held -= n
	c.pool.give(n)
}

// hasRoom reports whether a reader need not expect to wait for memory.
func (p *pool) hasRoom() bool { return p.used.Load() < p.capacity/2 }

func (p *pool) tryTake(n int64) bool {
	for {
		used := p.used.Load()
		if used+n > p.capacity {
			return false
		}
		if p.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

func (p *pool) give(n int64) {
	p.used.Add(-n)
	if p.waiting.Load() == 0 {
		return
	}
	p.mu.Lock()
	granted := p.grantLocked()
	p.mu.Unlock()
	wakeAll(granted)
}

// queue takes n bytes for c if it is first in line or they have become free, and
// returns nil; else a channel that is closed when they are c's.
func (p *pool) queue(c *claim, n int64) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.place == nil {
		c.place = p.open.PushBack(c)
	}
	// Waiting is counted before the second look, so that whoever gives bytes back
	// after that look knows to look for us.
	c.want = n
	c.ready = make(chan struct{})
	p.waiting.Add(1)
	if p.tryGrantLocked(c) {
		return nil
	}
	return c.ready
}

// forget withdraws c's wish; it keeps what it has been granted.
func (p *pool) forget(c *claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.want > 0 {
		c.want = 0
		p.waiting.Add(-1)
	}
}

// grantLocked serves those who wait, oldest first, and returns the channels to close.
func (p *pool) grantLocked() []chan struct{} {
	var granted []chan struct{}
	for e := p.open.Front(); e != nil && p.waiting.Load() > 0; e = e.Next() {
		c := e.Value.(*claim)
		if c.want == 0 {
			continue
		}
		if !p.tryGrantLocked(c) {
			break
		}
		granted = append(granted, c.ready)
	}
	return granted
}

// tryGrantLocked gives c what it wants if that is free or c is first in line.
func (p *pool) tryGrantLocked(c *claim) bool {
	if !p.tryTake(c.want) {
		if p.open.Front() != c.place {
			return false
		}
		p.used.Add(c.want) // overdraws
	}
	c.held += c.want
	c.want = 0
	p.waiting.Add(-1)
	return true
}

func wakeAll(granted []chan struct{}) {
	for _, ready := range granted {
		close(ready)
	}
}
