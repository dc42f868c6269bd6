package storage

import (
	"context"
	"slices"
	"sync"
	"time"

	"ottla/internal/vfs"
)

const (
	// flushLooks is how many times the flusher looks round in the time that a record may wait for its flush.
	flushLooks = 5
	// minFlushWait and maxFlushWait bound how long it waits between two looks.
	minFlushWait = 10 * time.Millisecond
	maxFlushWait = time.Second
	// flushStep is how far apart at least it begins with some of the logs that it found due, and minFlushes and maxFlushes are how many at least,
	// and at most. To be woken for a step costs CPU; on the other hand the kernel works at each flush with the priority of a request, and holds
	// one up for some 50 µs, so that of many at once the p99 of appends suffers.
	flushStep              = 2 * time.Millisecond
	minFlushes, maxFlushes = 8, 128
)

// restfulWait is how long the flusher waits with nothing to look at, unless it is told of a log.
const restfulWait = time.Hour

// A flusher flushes the logs whose records have waited long enough. Nobody waits for that, so it is done with as little as possible in the way of
// requests: a few logs every moment, and those together, rather than all that are due at once or each by itself. What needs more than that its
// data is synced has a worker.
//
// It looks only at logs of which it was told, until it finds nothing to do there: however many a directory has, the quiet ones cost nothing.
type flusher struct {
	d    *Dir
	wake chan struct{} // one slot: it is to look sooner than it meant to
	mu   struct {
		sync.Mutex
		told []*Log
		wait time.Duration // between the last look and the next; less once it was told of a log that can not wait so long
	}

	// What follows is the goroutine's own.
	logs    []*Log  // that it looks at
	due     []*Log  // of these, to be flushed in this order
	flushes []flush // under way; empty but for that
	files   []vfs.File
}

func (f *flusher) init(d *Dir) {
	f.d, f.wake, f.mu.wait = d, make(chan struct{}, 1), restfulWait
}

// quiet reports whether the flusher has nothing to do with the log.
func (l *Log) quiet() bool {
	return l.End().Offset <= l.Durable() && !l.unsettled.Load() && !l.doubted.Load()
}

// tellFlusher has the flusher look at a log that is not quiet any more. Each change that makes it so must be followed by a call.
func (l *Log) tellFlusher() {
	if l.flusher != nil && !l.listed.Load() {
		l.flusher.tell(l)
	}
}

// indexDoubted is told by a segment whose indexes wait to be built anew.
func (l *Log) indexDoubted() {
	l.doubted.Store(true)
	l.tellFlusher()
}

// tell has the flusher look at l, in time for what its settings say. It may know l already.
func (f *flusher) tell(l *Log) {
	look := flushLook(f.interval(l))
	f.mu.Lock()
	if l.listed.CompareAndSwap(false, true) {
		f.mu.told = append(f.mu.told, l)
	}
	sooner := look < f.mu.wait
	if sooner {
		f.mu.wait = look
	}
	f.mu.Unlock()
	if sooner {
		nudge(f.wake)
	}
}

// interval is how long records of l may wait for their flush.
func (f *flusher) interval(l *Log) time.Duration {
	interval := l.Config().FlushInterval
	if f.d.o.FlushInterval > 0 {
		interval = min(interval, f.d.o.FlushInterval)
	}
	return interval
}

// run flushes until ctx ends.
func (f *flusher) run(ctx context.Context) {
	t := time.NewTimer(restfulWait)
	defer t.Stop()
	var nextLook, spread time.Time // until spread, what was found has its turn
	for {
		now := time.Now()
		if !now.Before(nextLook) {
			wait := f.look(now)
			nextLook, spread = now.Add(wait), now.Add(spreadOver(wait))
		}
		next := nextLook
		if n, step := f.share(spread.Sub(now)); n > 0 {
			f.flush(n)
			if then := now.Add(step); len(f.due) > 0 && then.Before(next) {
				next = then
			}
		}
		wait := time.Until(next)
		if len(f.due) > 0 && wait < flushStep/2 && ctx.Err() == nil {
			continue // a timer rang but a moment ago, when the disk was done
		}
		t.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
			if sooner := time.Now().Add(f.nextWait()); sooner.Before(nextLook) {
				nextLook = sooner
			}
		case <-t.C:
		}
	}
}

// nextWait is how long it may wait from now on, having been told of a log.
func (f *flusher) nextWait() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.wait
}

// look finds the logs that would be late if they waited for the next look, and returns how long to wait for that.
func (f *flusher) look(now time.Time) (wait time.Duration) {
	f.mu.Lock()
	f.logs = append(f.logs, f.mu.told...)
	clear(f.mu.told)
	f.mu.told, f.mu.wait = f.mu.told[:0], restfulWait
	f.mu.Unlock()
	wait = restfulWait
	f.logs = slices.DeleteFunc(f.logs, func(l *Log) bool {
		if f.leaves(l) {
			return true
		}
		interval := f.interval(l)
		wait = min(wait, flushLook(interval))
		f.lookAt(l, now, interval)
		return false
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.wait = min(f.mu.wait, wait) // it may have been told of others meanwhile
	return f.mu.wait
}

// leaves lets go of a log with which there is nothing to do.
func (f *flusher) leaves(l *Log) bool {
	if l.due {
		return false
	}
	if l.closed.Load() || l.health.err() != nil {
		return true
	}
	if !l.quiet() {
		return false
	}
	l.listed.Store(false)
	// Who made it otherwise just now may have seen that it is listed.
	return l.quiet() || !l.listed.CompareAndSwap(false, true)
}

// lookAt has l flushed if it would be late at the next look.
func (f *flusher) lookAt(l *Log, now time.Time, interval time.Duration) {
	// It would be found a look later, then wait for its turn, and the disk has a fifth of a look.
	look := flushLook(interval)
	late := interval - look - spreadOver(look) - look/5
	waited := now.UnixMilli()-l.lastFlush.Load() >= late.Milliseconds() && l.End().Offset > l.Durable()
	switch {
	case l.unsettled.Load() || l.doubted.Load() || waited && (l.epochsChanged.Load() || l.dirChanged.Load()):
		l.wantFlush.Store(true)
		if l.attended.CompareAndSwap(notAttended, attendedDue) {
			f.d.queue.pushDue(l)
		}
	case waited && !l.due:
		l.due = true
		f.due = append(f.due, l)
	}
}

// flushLook is how long to wait between two looks at a log whose records may wait so long.
func flushLook(interval time.Duration) time.Duration {
	return min(max(interval/flushLooks, minFlushWait), maxFlushWait)
}

// spreadOver is in how much time all that a look finds has its turn.
func spreadOver(look time.Duration) time.Duration { return look * 9 / 10 }

// share returns how many of the logs that are due have their turn now, and how long after now the next have, so that the last have theirs when
// left is over.
func (f *flusher) share(left time.Duration) (n int, step time.Duration) {
	due := len(f.due)
	if due == 0 {
		return 0, 0
	}
	steps := max(1, int(left/flushStep))
	n = min(max((due+steps-1)/steps, minFlushes), maxFlushes, due)
	return n, left * time.Duration(n) / time.Duration(due)
}

// flush flushes the first n that are due. An error has failed the directory, which tells its owner.
func (f *flusher) flush(n int) {
	for _, l := range f.due[:n] {
		l.due = false
		next := flush{l: l}
		if next.begin(l.End().Offset) == nil {
			f.flushes = append(f.flushes, next)
			f.files = next.appendFiles(f.files)
		}
	}
	f.due = append(f.due[:0], f.due[n:]...)
	begun := time.Now()
	err := f.d.o.FS.SyncAll(f.files)
	for range f.files {
		f.d.metrics.synced(begun)
	}
	for i := range f.flushes {
		_ = f.flushes[i].end(err)
	}
	clear(f.flushes)
	clear(f.files)
	f.flushes, f.files = f.flushes[:0], f.files[:0]
}
