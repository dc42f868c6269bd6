//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commits measures commits of many groups of one topic. All groups form at once. Then each member commits all its partitions
// once every -every, the members evenly spaced over that time, and sends its heartbeats as ever, over the same connection. A
// commit is due at a time that is fixed beforehand, and its latency counts from there, so that a stall counts against all that
// it delays. The first -warm is not measured. In the end each group's offsets are fetched and held against the last
// commits.
//
// Figures: commits_due_s, commits_s (answered without error), commits, p50_ms to max_ms of commits and heartbeat_p50_ms to
// heartbeat_max_ms; late_p99_ms is how late this program sent, which is in the latencies; broker_cpu_us_per_commit has the
// heartbeats in it, heartbeats says how many; form_s until all groups were stable, idle_rss_mb before they formed, formed_rss_mb
// after; errors are commits and heartbeats that were refused, lost are partitions whose stored offset is not the last that
// was acknowledged: both are 0.
func commits(ctx context.Context, args []string, out io.Writer) error {
	f := newFlags("commit", 4, 4)
	groups := f.Int("groups", 1000, "groups")
	every := f.Duration("every", time.Second, "time between two commits of a member")
	warm := f.Duration("warm", 20*time.Second, "time of commits that is not measured")
	measured := f.Duration("time", 60*time.Second, "time of commits that is measured")
	if err := f.parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	meter, err := newMeter(f.pid)
	if err != nil {
		return err
	}
	r := result{"cmd": "commit", "protocol": f.protocol, "groups": *groups, "members": f.members, "partitions": f.partitions}
	if err := meter.report(r, meter.start); err != nil {
		return err
	}
	r["idle_rss_mb"] = r["rss_mb"]
	members, err := form(ctx, f, *groups, r)
	if err != nil {
		return err
	}
	if err := meter.report(r, meter.start); err != nil {
		return err
	}
	r["formed_rss_mb"] = r["rss_mb"]

	load := newLoad(members, *every)
	if err := load.run(ctx, *warm); err != nil {
		return err
	}
	load.reset()
	if err := meter.begin(); err != nil {
		return err
	}
	if err := load.run(ctx, *measured); err != nil {
		return err
	}
	end, err := meter.read()
	if err != nil {
		return err
	}
	if err := meter.report(r, end); err != nil {
		return err
	}
	wall := end.at.Sub(meter.start.at).Seconds()
	done := load.latency.TotalCount()
	r["commits_due_s"], r["commits_s"] = float64(len(members))/every.Seconds(), float64(done)/wall
	r["commits"], r["heartbeats"], r["errors"] = done, load.heartbeat.TotalCount(), load.errors
	percentiles(r, "", load.latency)
	percentiles(r, "heartbeat_", load.heartbeat)
	r["late_p99_ms"] = float64(load.late.ValueAtQuantile(99)) / 1e3
	if cpu, ok := r["broker_cpu_s"].(float64); ok {
		r["broker_cpu_us_per_commit"] = cpu * 1e6 / float64(done)
	}
	lost, err := load.verify(ctx, f.addr)
	if err != nil {
		return err
	}
	r["lost"] = lost
	if err := r.print(out, f.labels, ""); err != nil {
		return err
	}
	if load.errors > 0 || lost > 0 {
		return fmt.Errorf("%d requests were refused, the first with %w; %d partitions have not the offset that was acknowledged", load.errors, load.first, lost)
	}
	return nil
}

// form makes all members join and returns them parked, once all groups are stable.
func form(ctx context.Context, f *flags, n int, r result) ([]member, error) {
	groupID := func(i int) string { return fmt.Sprintf("bench-%05d", i) }
	topic, err := prepare(ctx, f, groupID(0))
	if err != nil {
		return nil, err
	}
	began := time.Now()
	park, calls, dialing := make(chan struct{}), new(calls), make(chan struct{}, maxDialing)
	var boards []*board
	var members []member
	running := newRun(ctx)
	for i := range n {
		g := &group{id: groupID(i), addr: f.addr, topic: topic, protocol: f.protocol, heartbeat: f.heartbeat,
			board: newBoard(f.members, f.partitions), calls: calls, dialing: dialing, park: park}
		boards = append(boards, g.board)
		for range f.members {
			m := g.newMember()
			members = append(members, m)
			running.start(func(ctx context.Context) error { return m.run(ctx, nil) })
		}
	}
	for _, b := range boards {
		for b.since().IsZero() {
			select {
			case <-b.stable:
			case <-running.failed():
				return nil, running.wait()
			}
		}
	}
	r["form_s"] = time.Since(began).Seconds()
	close(park)
	if err := running.wait(); err != nil {
		return nil, err
	}
	for _, b := range boards {
		if b.since().IsZero() {
			return nil, errors.New("a group that had been stable began to rebalance again before all were; try again with a longer -heartbeat")
		}
	}
	return members, nil
}

// A run is goroutines of which the first error ends all.
type run struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

func newRun(ctx context.Context) *run {
	r := &run{}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	return r
}

func (r *run) start(f func(context.Context) error) {
	r.wg.Go(func() {
		if err := f(r.ctx); err != nil {
			r.cancel(err)
		}
	})
}

func (r *run) failed() <-chan struct{} { return r.ctx.Done() }

// wait waits for all and returns the first error. The context that they were given goes on.
func (r *run) wait() error {
	r.wg.Wait()
	return context.Cause(r.ctx)
}

// A load sends commits and heartbeats of many members on schedule.
type load struct {
	members  []*loaded
	every    time.Duration
	inFlight atomic.Int64

	mu                       sync.Mutex
	latency, heartbeat, late *hdrhistogram.Histogram // µs
	errors                   int64
	first                    error
}

// A loaded member has its requests sent by the load, and its answers read by a goroutine of its own.
type loaded struct {
	member
	offset int64 // of its last commit, the same for all its partitions

	mu      sync.Mutex
	pending []request
}

// A request awaits its answer.
type request struct {
	kmsg.Request
	due time.Time
}

func newLoad(members []member, every time.Duration) *load {
	l := &load{every: every}
	for _, m := range members {
		l.members = append(l.members, &loaded{member: m})
	}
	l.reset()
	return l
}

func (l *load) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latency, l.heartbeat, l.late = newHistogram(), newHistogram(), newHistogram()
}

// maxDrain is how long answers are waited for when the time is over.
const maxDrain = time.Minute

// run sends for a while, and returns when all is answered.
func (l *load) run(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	running := newRun(ctx)
	stop := make(chan struct{})
	for _, m := range l.members {
		running.start(func(context.Context) error { return l.receive(m, stop) })
	}
	running.start(func(ctx context.Context) error {
		defer func() {
			close(stop)
			for _, m := range l.members {
				m.link().SetReadDeadline(time.Now()) // ends the readers
			}
		}()
		if err := l.send(ctx, d); err != nil {
			return err
		}
		for deadline := time.Now().Add(maxDrain); l.inFlight.Load() > 0; {
			if time.Now().After(deadline) {
				return fmt.Errorf("%d requests were not answered in %v", l.inFlight.Load(), maxDrain)
			}
			if err := sleep(ctx, time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	})
	if err := running.wait(); err != nil {
		return err
	}
	for _, m := range l.members {
		m.link().SetReadDeadline(time.Time{})
	}
	return nil
}

// send sends what is due, when it is due.
func (l *load) send(ctx context.Context, d time.Duration) error {
	// The thread sleeps, as timers of the runtime may be a millisecond late; another runs the rest.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 1))
	n := len(l.members)
	start := time.Now()
	at := func(i int, every time.Duration) time.Time {
		return start.Add(time.Duration(float64(every) / float64(n) * float64(i)))
	}
	beats := l.members[0].heartbeatEvery()
	for commit, beat := 0, 0; ctx.Err() == nil; {
		next, isBeat := at(commit, l.every), false
		if b := at(beat, beats); b.Before(next) {
			next, isBeat = b, true
		}
		if next.Sub(start) >= d {
			return nil
		}
		sleepUntil(next)
		var err error
		if isBeat {
			m := l.members[beat%n]
			err = l.request(m, request{m.heartbeatRequest(), next})
			beat++
		} else {
			m := l.members[commit%n]
			m.offset++
			err = l.request(m, request{m.commitRequest(m.offset), next})
			commit++
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// sleepUntil sleeps until t, to some 50 µs.
func sleepUntil(t time.Time) {
	for d := time.Until(t); d > 0; d = time.Until(t) {
		ts := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&ts, nil) // if a signal ends it, the loop sleeps on
	}
}

func (l *load) request(m *loaded, r request) error {
	m.mu.Lock()
	m.pending = append(m.pending, r)
	m.mu.Unlock()
	l.inFlight.Add(1)
	late := time.Since(r.due)
	l.mu.Lock()
	record(l.late, late)
	l.mu.Unlock()
	return m.link().send(r)
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(d.Microseconds(), 1), h.HighestTrackableValue())) // within its range it cannot fail
}

// receive reads a member's answers until stop is closed.
func (l *load) receive(m *loaded, stop <-chan struct{}) error {
	for {
		frame, err := m.link().frame()
		if err != nil {
			if left(stop) {
				return nil
			}
			return err
		}
		now := time.Now()
		m.mu.Lock()
		r := m.pending[0]
		m.pending = m.pending[1:]
		m.mu.Unlock()
		resp, err := decode(r.Request, frame)
		if err != nil {
			return err
		}
		l.mu.Lock()
		switch code := codeOf(resp); {
		case code != 0:
			if l.errors++; l.first == nil {
				l.first = unexpected(r.Request, code)
			}
		case r.Key() == keyOffsetCommit:
			record(l.latency, now.Sub(r.due))
		default:
			record(l.heartbeat, now.Sub(r.due))
		}
		l.mu.Unlock()
		l.inFlight.Add(-1)
	}
}

var keyOffsetCommit = kmsg.NewPtrOffsetCommitRequest().Key()

// codeOf returns the first error in an answer.
func codeOf(resp kmsg.Response) int16 {
	switch resp := resp.(type) {
	case *kmsg.HeartbeatResponse:
		return resp.ErrorCode
	case *kmsg.ConsumerGroupHeartbeatResponse:
		return resp.ErrorCode
	case *kmsg.OffsetCommitResponse:
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 {
					return p.ErrorCode
				}
			}
		}
	}
	return 0
}

// verify fetches the offsets of all groups and counts the partitions that have another than was acknowledged last.
func (l *load) verify(ctx context.Context, addr string) (lost int, err error) {
	c, err := connect(ctx, addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	byGroup := map[string][]*loaded{}
	for _, m := range l.members {
		id := m.commitRequest(0).Group
		byGroup[id] = append(byGroup[id], m)
	}
	for id, members := range byGroup {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version = 9
		rg := kmsg.NewOffsetFetchRequestGroup()
		rg.Group, rg.MemberEpoch = id, -1
		req.Groups = append(req.Groups, rg)
		resp, err := c.call(req)
		if err != nil {
			return 0, err
		}
		g := resp.(*kmsg.OffsetFetchResponse).Groups[0]
		if g.ErrorCode != 0 {
			return 0, fmt.Errorf("offsets of group %s: %w", id, kerr.ErrorForCode(g.ErrorCode))
		}
		stored := map[int32]int64{}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				stored[p.Partition] = p.Offset
			}
		}
		for _, m := range members {
			for _, p := range m.partitions() {
				if stored[p] != m.offset {
					lost++
				}
			}
		}
	}
	return lost, nil
}
