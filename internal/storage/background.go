package storage

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// minFlushWait bounds how often the flusher looks round for flush.ms.
const minFlushWait = 10 * time.Millisecond

// trimInterval is how often it is looked whether there are too many producers.
const trimInterval = time.Second

// sweepInterval is how long files of a segment stay open that nobody reads.
const sweepInterval = time.Minute

// A workQueue holds the logs that want a worker's attention, each once.
type workQueue struct {
	wake chan struct{} // one slot
	mu   struct {
		sync.Mutex
		logs  []*Log
		first int // index of the next one; those before are gone
	}
}

func (q *workQueue) push(l *Log) {
	q.mu.Lock()
	if n := len(q.mu.logs); n == cap(q.mu.logs) && q.mu.first > n/2 {
		q.mu.logs, q.mu.first = slices.Delete(q.mu.logs, 0, q.mu.first), 0
	}
	q.mu.logs = append(q.mu.logs, l)
	q.mu.Unlock()
	q.signal()
}

func (q *workQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// pop returns the next log, nil if there is none. If more are left it wakes another worker.
func (q *workQueue) pop() *Log {
	q.mu.Lock()
	if len(q.mu.logs) == 0 {
		q.mu.Unlock()
		return nil
	}
	l := q.mu.logs[q.mu.first]
	q.mu.logs[q.mu.first] = nil
	q.mu.first++
	more := q.mu.first < len(q.mu.logs)
	if !more {
		q.mu.logs, q.mu.first = q.mu.logs[:0], 0
	}
	q.mu.Unlock()
	if more {
		q.signal()
	}
	return l
}

// start runs the background work until Close.
func (d *Dir) start() {
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	for range d.o.FlushThreads {
		d.workers.Go(func() { d.work(ctx) })
	}
	d.workers.Go(func() { d.flushLoop(ctx) })
	d.workers.Go(func() { d.janitor.run(ctx, d) })
	d.workers.Go(func() { every(ctx, d.o.CheckpointInterval, d.checkpointAndLog) })
	d.workers.Go(func() { every(ctx, d.o.RetentionInterval, d.retain) })
	d.workers.Go(func() { every(ctx, sweepInterval, d.sweep) })
	if d.o.MaxProducers > 0 {
		d.workers.Go(func() { every(ctx, trimInterval, d.trimProducers) })
	}
	if d.o.ScrubRate > 0 {
		d.workers.Go(func() { every(ctx, sweepInterval, func() { d.scrub(ctx) }) })
	}
}

func every(ctx context.Context, interval time.Duration, f func()) {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			f()
		}
	}
}

// work serves logs of the queue: it flushes them if that is due, else has the kernel begin.
func (d *Dir) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.queue.wake:
		}
		for l := d.queue.pop(); l != nil && ctx.Err() == nil; l = d.queue.pop() {
			l.serve()
		}
	}
}

// serve does what attend was called for. An error has failed the directory, which tells its owner.
func (l *Log) serve() {
	end := l.End().Offset
	if l.wantFlush.Swap(false) || end-l.Durable() >= l.Config().FlushMessages {
		_ = l.Flush(end)
		return
	}
	l.attended.Store(false)
	_ = l.startWriteback()
}

// flushLoop asks for a flush of each log whose records have waited long enough.
func (d *Dir) flushLoop(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		t.Reset(d.requestFlushes(time.Now().UnixMilli()))
	}
}

// requestFlushes queues the logs whose flush is due at now (ms) and returns how long to wait for the next.
func (d *Dir) requestFlushes(now int64) time.Duration {
	wait := time.Second
	if d.o.FlushInterval > 0 {
		wait = d.o.FlushInterval
	}
	for _, l := range d.Logs() {
		interval := l.Config().FlushInterval
		if d.o.FlushInterval > 0 {
			interval = min(interval, d.o.FlushInterval)
		}
		wait = min(wait, interval)
		waited := now-l.lastFlush.Load() >= interval.Milliseconds() && l.End().Offset > l.Durable()
		if !waited && !l.unsettled.Load() && !l.rebuilds() {
			continue
		}
		l.wantFlush.Store(true)
		if !l.attended.Swap(true) {
			d.queue.push(l)
		}
	}
	return max(wait, minFlushWait)
}

// rebuilds reports whether an index waits to be built anew.
func (l *Log) rebuilds() bool {
	return slices.ContainsFunc(*l.segments.Load(), func(s *segment) bool { return s.rebuild.Load() })
}

func (d *Dir) checkpointAndLog() {
	if err := d.checkpoint(); err != nil {
		d.o.Logger.Error("writing checkpoints", "path", d.o.Path, "error", err.Error())
	}
}

func (d *Dir) retain() {
	hw := d.currentHighWatermarks()
	now := time.Now()
	for _, l := range d.Logs() {
		l.ExpireProducers(now)
		n, err := l.Retain(now, hw[l.tp])
		if err != nil {
			d.o.Logger.Error("applying retention", "topic", l.tp.Topic, "partition", l.tp.Partition, "error", err.Error())
		} else if n > 0 {
			d.o.Logger.Info("deleted segments past retention", "topic", l.tp.Topic, "partition", l.tp.Partition, "segments", n, "logStartOffset", l.StartOffset())
		}
	}
}

// trimProducers makes room for new producers before MaxProducers is reached, so that in the whole directory those are forgotten that
// have written nothing for longest, as if producer.id.expiration.ms had been shorter. One that wrote lately need not fear
// the many that somebody else makes. Where so many come at once that the bound is reached before, a new one takes the place of
// one of its own log: see producers.forgetOne. A producer with an open transaction stays.
func (d *Dir) trimProducers() {
	count := d.budget.count.Load()
	if count <= d.budget.max*9/10 {
		return
	}
	var times []int64
	for _, l := range d.Logs() {
		times = l.producerTimes(times)
	}
	excess := min(int(count-d.budget.max*8/10), len(times))
	if excess <= 0 {
		return
	}
	slices.Sort(times)
	cutoff := times[excess-1]
	for _, l := range d.Logs() {
		l.mu.Lock()
		l.mu.producers.expire(cutoff, 0)
		l.mu.Unlock()
	}
	d.o.Logger.Warn("there are more producers than are remembered, forgetting those that have written nothing for longest (see "+
		"ottla.max.producer.ids)", "path", d.o.Path, "max", d.budget.max, "forgotten", count-d.budget.count.Load(), "lastTimestamp", cutoff)
}

// producerTimes appends when each producer without an open transaction wrote last, in ms.
func (l *Log) producerTimes(times []int64) []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.mu.producers.byID {
		if p.txnFirst < 0 {
			times = append(times, p.lastTimestamp)
		}
	}
	return times
}

func (d *Dir) sweep() {
	for _, l := range d.Logs() {
		for _, s := range *l.segments.Load() {
			s.sweep()
		}
	}
}

// A janitor removes files and directories once their delay is over. What is left at the end is removed at the next
// start, for it has the suffix of deleted things.
type janitor struct {
	wake chan struct{} // one slot
	mu   struct {
		sync.Mutex
		due []dueRemoval
	}
}

type dueRemoval struct {
	path string
	at   time.Time
}

func (j *janitor) add(removals []removal) {
	now := time.Now()
	j.mu.Lock()
	for _, r := range removals {
		j.mu.due = append(j.mu.due, dueRemoval{r.path, now.Add(r.delay)})
	}
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// take returns what is due at now, and how long to wait for the next.
func (j *janitor) take(now time.Time) (due []dueRemoval, wait time.Duration) {
	wait = time.Hour
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.due = slices.DeleteFunc(j.mu.due, func(r dueRemoval) bool {
		if r.at.After(now) {
			wait = min(wait, r.at.Sub(now))
			return false
		}
		due = append(due, r)
		return true
	})
	return due, wait
}

func (j *janitor) run(ctx context.Context, d *Dir) {
	for {
		due, wait := j.take(time.Now())
		for _, r := range due {
			if err := d.o.FS.RemoveAll(r.path); err != nil {
				d.o.Logger.Warn("removing deleted files", "path", r.path, "error", fmt.Sprint(err))
			}
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-j.wake:
		case <-t.C:
		}
		t.Stop()
	}
}
