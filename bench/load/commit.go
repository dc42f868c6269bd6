//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
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
	f := newGroupFlags("commit", 4, 4)
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

	load := newCommitLoad(members, *every)
	if err := load.run(ctx, *warm, load.plan()); err != nil {
		return err
	}
	load.reset()
	if err := meter.begin(); err != nil {
		return err
	}
	if err := load.run(ctx, *measured, load.plan()); err != nil {
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
func form(ctx context.Context, f *groupFlags, n int, r result) ([]member, error) {
	groupID := func(i int) string { return fmt.Sprintf("bench-%05d", i) }
	topic, err := prepare(ctx, f.flags, groupID(0))
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

// A commitLoad has commits and heartbeats of many members sent on schedule.
type commitLoad struct {
	*schedule
	members            []*committer
	every              time.Duration
	latency, heartbeat *hdrhistogram.Histogram // µs
}

// A committer is a parked member and the offset of its last commit, the same for all its partitions.
type committer struct {
	member
	offset int64
}

func newCommitLoad(members []member, every time.Duration) *commitLoad {
	l := &commitLoad{every: every}
	var conns []*conn
	for _, m := range members {
		l.members = append(l.members, &committer{member: m})
		conns = append(conns, m.link())
	}
	l.schedule = newSchedule(conns, l.answered)
	l.reset()
	return l
}

// reset forgets what was measured. Nothing is under way.
func (l *commitLoad) reset() {
	l.late, l.latency, l.heartbeat = newHistogram(), newHistogram(), newHistogram()
}

func (l *commitLoad) answered(r request, took time.Duration) {
	if r.Key() == keyOffsetCommit {
		observe(l.latency, took)
	} else {
		observe(l.heartbeat, took)
	}
}

var keyOffsetCommit = kmsg.NewPtrOffsetCommitRequest().Key()

// plan has each member commit every l.every and send its heartbeats as ever, the members evenly spaced.
func (l *commitLoad) plan() plan {
	n := len(l.members)
	at := func(i int, every time.Duration) time.Duration {
		return time.Duration(float64(every) / float64(n) * float64(i))
	}
	beats := l.members[0].heartbeatEvery()
	commit, beat := 0, 0
	return func() (time.Duration, int, func() kmsg.Request) {
		due, b := at(commit, l.every), at(beat, beats)
		if b < due {
			i := beat % n
			beat++
			return b, i, l.members[i].heartbeatRequest
		}
		i := commit % n
		commit++
		return due, i, l.members[i].nextCommit
	}
}

// nextCommit makes the request for it.
func (c *committer) nextCommit() kmsg.Request {
	c.offset++
	return c.commitRequest(c.offset)
}

// verify fetches the offsets of all groups and counts the partitions that have another than was acknowledged last.
func (l *commitLoad) verify(ctx context.Context, addr string) (lost int, err error) {
	c, err := connect(ctx, addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	byGroup := map[string][]*committer{}
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
