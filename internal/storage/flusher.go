package storage

import (
	"context"
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
	// and at most. The kernel works at those with the priority of a request: each holds one up for some 50 µs.
	flushStep              = time.Millisecond
	minFlushes, maxFlushes = 4, 128
)

// A flusher flushes the logs whose records have waited long enough. Nobody waits for that, so it is done with as little as possible in the way of
// requests: a few logs every moment, and those together, rather than all that are due at once or each by itself. What needs more than that its
// data is synced has a worker.
type flusher struct {
	d       *Dir
	rebuild time.Time // when to look next whether an index waits to be built anew
	due     []*Log    // to be flushed in this order
	flushes []flush   // under way; empty but for that
	files   []vfs.File
}

// run flushes until ctx ends.
func (f *flusher) run(ctx context.Context) {
	t := time.NewTimer(0)
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
		case <-t.C:
		}
	}
}

// look finds the logs that would be late if they waited for the next look, and returns how long to wait for that.
func (f *flusher) look(now time.Time) time.Duration {
	wait := maxFlushWait
	if f.d.o.FlushInterval > 0 { // a log that is made meanwhile waits no longer
		wait = flushLook(f.d.o.FlushInterval)
	}
	rebuild := !now.Before(f.rebuild)
	if rebuild {
		f.rebuild = now.Add(maxFlushWait)
	}
	for _, l := range f.d.Logs() {
		interval := l.Config().FlushInterval
		if f.d.o.FlushInterval > 0 {
			interval = min(interval, f.d.o.FlushInterval)
		}
		look := flushLook(interval)
		wait = min(wait, look)
		// It would be found a look later, then wait for its turn, and the disk has a fifth of a look.
		late := interval - look - spreadOver(look) - look/5
		waited := now.UnixMilli()-l.lastFlush.Load() >= late.Milliseconds() && l.End().Offset > l.Durable()
		switch {
		case l.unsettled.Load() || waited && (l.epochsChanged.Load() || l.dirChanged.Load()) || rebuild && l.rebuilds():
			l.wantFlush.Store(true)
			if l.attended.CompareAndSwap(notAttended, attendedDue) {
				f.d.queue.pushDue(l)
			}
		case waited && !l.due:
			l.due = true
			f.due = append(f.due, l)
		}
	}
	return wait
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
