package storage

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// trimInterval is how often it is looked whether there are too many producers.
const trimInterval = time.Second

// sweepInterval is how long files of a segment stay open that nobody reads.
const sweepInterval = time.Minute

// quietBacklog is how many logs that merely are due may wait for each worker before one more is woken. The fewer workers are at it the less is in
// the way of requests, as a flush holds one of the Go runtime's processors for up to 10 ms. Where thousands of partitions are made all are at it.
const quietBacklog = 8

// A workQueue holds the logs that want a worker's attention, each once. Those for which somebody waits have as many workers as there are;
// those that are only due, and for which the flusher is not enough, have but as many as it takes.
type workQueue struct {
	wake chan struct{} // one slot
	mu   struct {
		sync.Mutex
		waiting []waitingLog
		first   int // index of the next one; those before are gone
		urgent  int // of those that wait
		busy    int // workers that are at one
	}
}

type waitingLog struct {
	*Log
	urgent bool
}

func (q *workQueue) push(l *Log)    { q.add(waitingLog{l, true}) }
func (q *workQueue) pushDue(l *Log) { q.add(waitingLog{l, false}) }

func (q *workQueue) add(l waitingLog) {
	q.mu.Lock()
	if n := len(q.mu.waiting); n == cap(q.mu.waiting) && q.mu.first > n/2 {
		q.mu.waiting, q.mu.first = slices.Delete(q.mu.waiting, 0, q.mu.first), 0
	}
	q.mu.waiting = append(q.mu.waiting, l)
	if l.urgent {
		q.mu.urgent++
	}
	short := q.shortLocked()
	q.mu.Unlock()
	if short {
		q.signal()
	}
}

// shortLocked reports whether what waits takes a worker more.
func (q *workQueue) shortLocked() bool {
	n := len(q.mu.waiting) - q.mu.first
	return q.mu.urgent > 0 || n > quietBacklog*q.mu.busy
}

func (q *workQueue) signal() { nudge(q.wake) }

// nudge wakes who waits on c, which has one slot, or has him find that when he next does.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// begin returns the first log for a worker that was woken, nil if others do. It wakes one more if the rest takes one. The worker goes on with next.
func (q *workQueue) begin() *Log {
	q.mu.Lock()
	if !q.shortLocked() {
		q.mu.Unlock()
		return nil
	}
	q.mu.busy++
	return q.takeAndUnlock()
}

// next returns the next log for a worker that is done with one, nil if there is none: then the worker rests.
func (q *workQueue) next() *Log {
	q.mu.Lock()
	if q.mu.first == len(q.mu.waiting) {
		q.mu.busy--
		q.mu.Unlock()
		return nil
	}
	return q.takeAndUnlock()
}

func (q *workQueue) takeAndUnlock() *Log {
	l := q.mu.waiting[q.mu.first]
	q.mu.waiting[q.mu.first] = waitingLog{}
	q.mu.first++
	if l.urgent {
		q.mu.urgent--
	}
	if q.mu.first == len(q.mu.waiting) {
		q.mu.waiting, q.mu.first = q.mu.waiting[:0], 0
	}
	short := q.shortLocked()
	q.mu.Unlock()
	if short {
		q.signal()
	}
	return l.Log
}

// start runs the background work until Close.
func (d *Dir) start() {
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	for range d.o.FlushThreads {
		d.workers.Go(func() { d.work(ctx) })
	}
	d.workers.Go(func() { d.flusher.run(ctx) })
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
		for l := d.queue.begin(); l != nil && ctx.Err() == nil; l = d.queue.next() {
			l.serve()
		}
	}
}

// serve does what attend was called for. An error has failed the directory, which tells its owner.
func (l *Log) serve() {
	end := l.End().Offset
	due := l.wantFlush.Swap(false)
	switch {
	case due, end-l.Durable() >= l.Config().FlushMessages: // acknowledgements may wait for it
		_ = l.Flush(end)
		return
	}
	l.attended.Store(notAttended)
	_ = l.startWriteback()
}

// What attended says.
const (
	notAttended = iota
	attendedDue
	attendedUrgent
)

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
	nudge(j.wake)
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
