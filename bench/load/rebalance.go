//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// rebalances measures one large group, twice, and prints a result for each, with /start and /rolling behind the label workload.
//
// Start: all members connect and join at the same moment. The time runs from there.
//
// Rolling restart: once the group has been stable for -quiet, member i is told to leave i × -pace later, whether or not the group
// is stable by then. A member that is told leaves as soon as the request it waits for, if any, is answered: it gives its
// partitions back, says so (LeaveGroup, or a heartbeat of epoch -1), and closes its connection when that is answered. -down
// later its successor connects and joins under an id of its own. Members leave in the order in which they were started, so
// that the leader of a classic group is among the first. The time runs from the first leave.
//
// Either time runs until the group is stable, as [board] has it, and stays so for -quiet, which does not count.
//
// Figures: stable_s is that time; rebalances counts the generations or epochs in it; unowned_sum_s and unowned_max_s say for how
// long partitions had no owner, all stretches added up and the longest, unowned how many stretches; broker_cpu_s is of that
// time; joins, syncs, heartbeats and fenced count requests, and answers by which a member lost all; double_owned counts
// partitions that were given to a second owner: 0.
func rebalances(ctx context.Context, args []string, out io.Writer) error {
	f := newGroupFlags("rebalance", 500, 1000)
	id := f.String("group", "bench-large", "group id")
	pace := f.Duration("pace", 100*time.Millisecond, "time between two members' leaving")
	down := f.Duration("down", 500*time.Millisecond, "time between a member's leaving and its successor's joining")
	quiet := f.Duration("quiet", 11*time.Second, "time for which the group must stay stable; at least two heartbeat intervals")
	if err := f.parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	meter, err := newMeter(f.pid)
	if err != nil {
		return err
	}
	topic, err := prepare(ctx, f.flags, *id)
	if err != nil {
		return err
	}
	g := &group{id: *id, addr: f.addr, topic: topic, protocol: f.protocol, heartbeat: f.heartbeat, board: newBoard(f.members, f.partitions),
		calls: new(calls), dialing: make(chan struct{}, maxDialing)}
	p := &phases{flags: f, group: g, meter: meter, quiet: *quiet, out: out, running: newRun(ctx)}

	leaves := make([]chan struct{}, f.members)
	gone := make([]chan struct{}, f.members)
	if err := p.begin(); err != nil {
		return err
	}
	for i := range leaves {
		leaves[i], gone[i] = make(chan struct{}), make(chan struct{})
		p.running.start(func(ctx context.Context) error {
			defer close(gone[i])
			return g.newMember().run(ctx, leaves[i])
		})
	}
	if err := p.end(ctx, "start", result{}); err != nil {
		return err
	}

	if err := p.begin(); err != nil {
		return err
	}
	back := make(chan struct{}, f.members)
	for i := range leaves {
		p.running.start(func(ctx context.Context) error {
			if err := sleep(ctx, time.Duration(i)**pace); err != nil {
				return err
			}
			close(leaves[i])
			select {
			case <-gone[i]:
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := sleep(ctx, *down); err != nil {
				return err
			}
			successor := g.newMember()
			back <- struct{}{}
			return successor.run(ctx, nil)
		})
	}
	for range leaves {
		select {
		case <-back:
		case <-p.running.failed():
			return p.running.wait()
		}
	}
	return p.end(ctx, "rolling", result{"pace_s": pace.Seconds(), "down_s": down.Seconds()})
}

// phases are what is measured of one group, one after the other.
type phases struct {
	flags   *groupFlags
	group   *group
	meter   *meter
	quiet   time.Duration
	out     io.Writer
	running *run

	before standing
	counts [4]int64
}

func (p *phases) counted() [4]int64 {
	c := p.group.calls
	return [4]int64{c.joins.Load(), c.syncs.Load(), c.heartbeats.Load(), c.fenced.Load()}
}

// begin begins a phase.
func (p *phases) begin() error {
	p.group.board.begin()
	p.before, p.counts = p.group.board.standing(), p.counted()
	return p.meter.begin()
}

// end waits until the group is stable and prints what the phase was.
func (p *phases) end(ctx context.Context, name string, r result) error {
	end, counts, err := p.awaitStable(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s := p.group.board.standing()
	r["cmd"], r["protocol"], r["members"], r["partitions"] = "rebalance/"+name, p.flags.protocol, p.flags.members, p.flags.partitions
	r["stable_s"] = end.at.Sub(p.meter.start.at).Seconds()
	r["rebalances"], r["double_owned"] = s.epoch-p.before.epoch, s.doubles
	r["unowned"], r["unowned_sum_s"], r["unowned_max_s"] = s.gaps.count, s.gaps.sum.Seconds(), s.gaps.max.Seconds()
	for i, what := range []string{"joins", "syncs", "heartbeats", "fenced"} {
		r[what] = counts[i] - p.counts[i]
	}
	if err := p.meter.report(r, end); err != nil {
		return err
	}
	if err := r.print(p.out, p.flags.labels, "/"+name); err != nil {
		return err
	}
	if s.doubles > 0 {
		return fmt.Errorf("%s: %d times a partition was given to a member while another owned it", name, s.doubles)
	}
	return nil
}

// errSlow is what the time ran out for.
var errSlow = errors.New("the group did not become stable; give it a longer -timeout or look at the broker's log")

// awaitStable returns what had been spent and asked for when the group became stable for good.
func (p *phases) awaitStable(ctx context.Context) (reading, [4]int64, error) {
	b := p.group.board
	for {
		select {
		case <-b.stable:
		case <-p.running.failed():
			if ctx.Err() != nil {
				return reading{}, [4]int64{}, errSlow
			}
			return reading{}, [4]int64{}, p.running.wait()
		}
		since := b.since()
		end, err := p.meter.read()
		if err != nil || since.IsZero() {
			if err != nil {
				return reading{}, [4]int64{}, err
			}
			continue
		}
		end.at = since
		counts := p.counted()
		if err := sleep(p.running.ctx, p.quiet); err == nil && b.since().Equal(since) {
			return end, counts, nil
		}
	}
}
