package storage

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ottla/internal/vfs"
)

// No record waits longer for its flush than it may, and for that the disk is not asked much more often than that.
func TestFlushInterval(t *testing.T) {
	const most = math.MaxInt64
	for _, x := range []struct {
		name          string
		broker, topic time.Duration // of the Dir, and flush.ms
		first, every  time.Duration // when records are appended
		others        int           // after so many records somebody else flushes them; 0 nobody does
		interval      time.Duration
	}{
		{"the default", 0, most, 0, 100 * time.Millisecond, 0, time.Second},
		{"between two looks", time.Second, most, 30 * time.Millisecond, 100 * time.Millisecond, 0, time.Second},
		{"in odd steps", time.Second, most, time.Millisecond, 77 * time.Millisecond, 0, time.Second},
		{"flushed by others meanwhile", time.Second, most, 0, 100 * time.Millisecond, 13, time.Second},
		{"flush.ms alone", -1, time.Second, 0, 100 * time.Millisecond, 0, time.Second},
		{"flush.ms is shorter", 10 * time.Second, time.Second, 0, 100 * time.Millisecond, 0, time.Second},
		{"flush.ms is longer", time.Second, time.Minute, 0, 100 * time.Millisecond, 0, time.Second},
		{"short", 100 * time.Millisecond, most, time.Millisecond, 9 * time.Millisecond, 13, 100 * time.Millisecond},
		{"long", 20 * time.Second, most, 0, 700 * time.Millisecond, 40, 20 * time.Second},
		{"now and then", time.Second, most, 30 * time.Millisecond, 2900 * time.Millisecond, 0, time.Second},
		{"now and then, flush.ms alone", -1, time.Second, 30 * time.Millisecond, 2900 * time.Millisecond, 0, time.Second},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fsys := newMem(t)
				d := loaded(t, DirOptions{FS: fsys, Path: root, NodeID: 1, FlushInterval: x.broker})
				c := testConfig()
				c.FlushInterval = x.topic
				l, err := d.Create("t", 0, topicID, c)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(x.first)
				var syncs atomic.Int64
				fsys.Inject(func(op vfs.Op) error {
					if op.Kind == vfs.OpSync && strings.HasSuffix(op.Path, logSuffix) {
						syncs.Add(1)
					}
					return nil
				})
				var appended []time.Time // of each offset
				// late returns the first offset that should be durable, and is not.
				late := func() (int64, bool) {
					synctest.Wait() // who has something to do at this moment has done it
					durable := l.Durable()
					return durable, durable < l.End().Offset && time.Since(appended[durable]) >= x.interval
				}
				const intervals = 6
				for begin := time.Now(); time.Since(begin) < intervals*x.interval; time.Sleep(x.every) {
					mustAppend(t, l, 1, 10, 1)
					appended = append(appended, time.Now())
					if offset, is := late(); is {
						t.Fatalf("offset %d waits for %s", offset, time.Since(appended[offset]))
					}
					if x.others > 0 && len(appended)%x.others == 0 {
						if err := l.Flush(l.End().Offset); err != nil {
							t.Fatal(err)
						}
					}
				}
				// A flush comes up to 2.1 looks before it is needed.
				most := intervals*10*flushLooks/(10*flushLooks-21) + 2
				if x.others > 0 {
					most += len(appended) / x.others
				}
				if n := int(syncs.Load()); n > most {
					t.Errorf("%d flushes in %d intervals, want at most %d", n, intervals, most)
				}
				last := appended[len(appended)-1]
				time.Sleep(time.Until(last.Add(x.interval)))
				if offset, is := late(); is || l.Durable() != l.End().Offset {
					t.Errorf("offset %d waits at the end", offset)
				}
				syncs.Store(0)
				time.Sleep(5 * x.interval)
				if n := syncs.Load(); n > 0 {
					t.Errorf("%d flushes of nothing", n)
				}
				if err := d.Close(context.Background(), 1, true); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A flusherTest is a directory whose disk waits in each sync of data of a topic "due…" until it is thawed, with the error given then.
type flusherTest struct {
	*Dir
	t       *testing.T
	fsys    *vfs.Mem
	thaw    chan error
	waiting atomic.Int64 // syncs
	failed  chan error   // of the directory
}

func newFlusherTest(t *testing.T) *flusherTest {
	x := &flusherTest{t: t, fsys: newMem(t), thaw: make(chan error), failed: make(chan error, 1)}
	x.Dir = loaded(t, DirOptions{FS: x.fsys, Path: root, NodeID: 1, OnFailure: func(err error) { x.failed <- err }})
	return x
}

// create makes logs that need no more than their data synced once it was flushed.
func (x *flusherTest) create(topic string, n int, flushMessages int64) (logs []*Log) {
	x.t.Helper()
	c := testConfig()
	c.FlushMessages = flushMessages
	for i := range n {
		l, err := x.Create(topic, int32(i), topicID, c)
		if err != nil {
			x.t.Fatal(err)
		}
		mustAppend(x.t, l, 1, 10, 1)
		logs = append(logs, l)
	}
	return logs
}

// freeze has the disk wait from now on.
func (x *flusherTest) freeze() {
	x.fsys.Inject(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && strings.Contains(op.Path, "/due") && strings.HasSuffix(op.Path, logSuffix) {
			x.waiting.Add(1)
			defer x.waiting.Add(-1)
			return <-x.thaw
		}
		return nil
	})
}

// durable is how many records of the logs are, once nothing moves.
func (x *flusherTest) durable(logs []*Log) (n int64) {
	synctest.Wait()
	for _, l := range logs {
		n += l.Durable()
	}
	return n
}

// close ends the test of a directory that need not be well.
func (x *flusherTest) close() {
	x.fsys.Inject(nil)
	_ = x.Close(context.Background(), 1, true)
}

// While the disk takes its time over logs that are due, others that are due wait for it, but none for which somebody waits. A failure takes the
// directory offline like any other, and nothing that was flushed together with it counts as durable.
func TestFlusherIsPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newFlusherTest(t)
		const n = minFlushes + 2
		due, urgent := x.create("due", n, math.MaxInt64), x.create("urgent", 1, 1)
		time.Sleep(2 * time.Second) // what a new log needs is done
		synctest.Wait()
		x.freeze()
		for _, l := range due {
			mustAppend(t, l, 1, 10, 1)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := x.waiting.Load(); got != 1 {
			t.Errorf("%d syncs wait for the disk, want 1", got)
		}
		mustAppend(t, urgent[0], 1, 10, 1)
		if x.durable(urgent) != 2 { // no time passes
			t.Error("a flush for which somebody waits waits for one for which nobody does")
		}
		for range minFlushes - 1 {
			x.thaw <- nil
		}
		if got := x.durable(due); got != n {
			t.Errorf("%d records are durable before all that are flushed together are, want %d", got, n)
		}
		x.thaw <- nil
		if got := x.durable(due); got != n+minFlushes {
			t.Errorf("%d records are durable after the first flushes, want %d", got, n+minFlushes)
		}
		time.Sleep(flushStep)
		x.thaw <- errDead
		if err := <-x.failed; !errors.Is(err, errDead) {
			t.Errorf("the directory failed with %v", err)
		}
		if got := x.durable(due); got != n+minFlushes {
			t.Errorf("%d records are durable after the failure, want %d", got, n+minFlushes)
		}
		x.close()
	})
}

// Many logs that are due at the same time are not flushed at the same time, and none of them late.
func TestFlusherSpreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newFlusherTest(t)
		defer x.close()
		const n = 1000
		logs := x.create("t", n, math.MaxInt64)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for _, l := range logs {
			mustAppend(t, l, 1, 10, 1)
		}
		begun, before, most := time.Now(), int64(n), int64(0)
		for time.Since(begun) < time.Second {
			time.Sleep(flushStep)
			now := x.durable(logs)
			most, before = max(most, now-before), now
		}
		if before != 2*n {
			t.Errorf("%d records are durable after a second, want %d", before, 2*n)
		}
		even := int64(n * flushStep / spreadOver(time.Second/flushLooks))
		if most > 3*even/2 {
			t.Errorf("up to %d logs were flushed in one step, want about %d", most, even)
		}
	})
}

// The flusher does not look at logs to which nothing happens, nor at all where there are no others.
func TestFlusherRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newFlusherTest(t)
		defer x.close()
		logs := x.create("t", 100, math.MaxInt64)
		check := func(want int, wait time.Duration) {
			t.Helper()
			synctest.Wait()
			x.flusher.mu.Lock()
			defer x.flusher.mu.Unlock()
			if got := len(x.flusher.logs) + len(x.flusher.mu.told); got != want || x.flusher.mu.wait != wait {
				t.Errorf("it looks at %d logs every %s, want %d every %s", got, x.flusher.mu.wait, want, wait)
			}
		}
		look := time.Second / flushLooks
		check(100, look)
		time.Sleep(2 * time.Second)
		check(0, restfulWait)
		mustAppend(t, logs[3], 1, 10, 1)
		mustAppend(t, logs[3], 1, 10, 1)
		check(1, look)
		time.Sleep(time.Second)
		check(0, restfulWait)
		if got := x.durable(logs); got != 102 {
			t.Errorf("%d records are durable, want 102", got)
		}
		mustAppend(t, logs[4], 1, 10, 1)
		if err := x.Delete(logs[4]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(look)
		check(0, restfulWait)
	})
}

// Records that have waited for longer than settings allow which came after them are flushed soon, also by a flusher that looks but seldom.
func TestFlusherMeetsShorterInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := loaded(t, DirOptions{FS: newMem(t), Path: root, NodeID: 1, FlushInterval: -1})
		c := testConfig()
		c.FlushInterval = math.MaxInt64
		l, err := d.Create("t", 0, topicID, c)
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, 1, 10, 1)
		time.Sleep(time.Hour)
		mustAppend(t, l, 1, 10, 1)
		time.Sleep(time.Hour)
		if l.Durable() == 2 {
			t.Fatal("a record is durable that nobody asked for")
		}
		c.FlushInterval = 100 * time.Millisecond
		l.SetConfig(c)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if l.Durable() != 2 {
			t.Error("the records wait for longer than the new flush.ms")
		}
		if err := d.Close(context.Background(), 1, true); err != nil {
			t.Error(err)
		}
	})
}

// A log is flushed that goes while it is due, or is flushed by somebody else.
func TestFlusherMeetsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newFlusherTest(t)
		defer x.close()
		const n = minFlushes + 5
		logs := x.create("due", n, math.MaxInt64)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		x.freeze()
		for _, l := range logs {
			mustAppend(t, l, 1, 10, 1)
		}
		time.Sleep(time.Second) // the first of the others wait for the disk
		synctest.Wait()
		x.fsys.Inject(nil)
		last := slices.IndexFunc(logs, func(l *Log) bool { return l.due })
		if err := x.Delete(logs[last]); err != nil {
			t.Fatal(err)
		}
		logs = slices.Delete(logs, last, last+1)
		other := slices.IndexFunc(logs, func(l *Log) bool { return l.due })
		if err := logs[other].Flush(2); err != nil {
			t.Fatal(err)
		}
		x.thaw <- nil
		time.Sleep(time.Second)
		if got := x.durable(logs); got != 2*(n-1) {
			t.Errorf("%d records are durable, want %d", got, 2*(n-1))
		}
		select {
		case err := <-x.failed:
			t.Errorf("the directory failed: %v", err)
		default:
		}
	})
}
