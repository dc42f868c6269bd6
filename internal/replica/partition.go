// Package replica hosts this broker's replicas: it appends as a leader, bounds what consumers read, moves the high
// watermark, and wakes who waits for it. The broker's handlers call it; it stands on [storage.Log]. What a replica decides
// is in package state; here are its lock, its waiters and its disk.
//
// Read [Partition.Append], [Partition.Read], then [Set.Apply].
//
// What always holds: an append and a read of one partition share no lock with another partition's; a leader that was
// replaced appends nothing after the metadata said so, for the epoch is checked again under the log's append slot; wake
// functions are called with no lock held; the goroutine that applies metadata never waits for a disk.
package replica

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"ottla/internal/metadata"
	"ottla/internal/record"
	"ottla/internal/replica/ages"
	"ottla/internal/replica/state"
	"ottla/internal/storage"
	"ottla/internal/uuid"
	"ottla/internal/wake"
)

// A Partition is this broker's replica of one partition. It may be used by many goroutines.
type Partition struct {
	set     *Set
	topic   string
	topicID uuid.UUID
	id      int32
	dir     *directory // where its log is or will be; set when it is made
	metrics *topicMetrics

	config atomic.Pointer[Config]
	view   atomic.Pointer[view]
	bounds atomic.Pointer[bounds]
	opened atomic.Bool // bounds mean something
	// following is one slot: who appends as a follower, cuts the log or changes the role holds it, also over file calls.
	following chan struct{}

	mu struct {
		sync.Mutex
		state   *state.Partition            // nil until the log is open
		log     *storage.Log                // nil until then
		target  *metadata.Partition         // what the metadata says; state follows
		queued  bool                        // the directory's worker has been asked to make it follow
		since   int32                       // leader epoch in which the present, unbroken leadership began
		gone    error                       // why the replica serves nothing any more; nil while it does
		ready   chan struct{}               // closed when the state has caught up with target; nil if it has
		ends    *[keptEnds]storage.Position // of the last appends: the high watermark will be at one of them; nil while it keeps up
		next    int                         // index in ends of the oldest
		ages    ages.Ring                   // when records came; its times are since Set.started
		waiters waiterList
		subs    subscriptionList
	}
}

// keptEnds is how many log ends a partition remembers the position of. A high watermark that lags further behind is looked
// up in the index by each read.
const keptEnds = 32

// A view is what the hot paths need to know of the partition's role. It never changes.
type view struct {
	log            *storage.Log
	err            error // why nothing is served
	role           state.Role
	leader         int32 // -1 none
	leaderEpoch    int32
	partitionEpoch int32
	epochStart     int64 // log end when this leadership began
	isr, replicas  int
	underMinISR    bool
	minISR         int
	check          func() error // that this view's leadership still stands
}

// bounds are the offsets up to which consumers read. They never change.
type bounds struct{ hw, lso storage.Position }

// Topic returns the topic's name.
func (p *Partition) Topic() string { return p.topic }

// TopicID returns the topic's id.
func (p *Partition) TopicID() uuid.UUID { return p.topicID }

// ID returns the partition's number.
func (p *Partition) ID() int32 { return p.id }

// DirID returns the id of the log directory that holds the replica, for AssignReplicasToDirs.
func (p *Partition) DirID() uuid.UUID { return p.dir.id }

// Config returns the topic's settings in force. They must not be changed.
func (p *Partition) Config() *Config { return p.config.Load() }

// Leader returns the leader and its epoch as known here, -1 if there is none.
func (p *Partition) Leader() (id, epoch int32) {
	v := p.view.Load()
	return v.leader, v.leaderEpoch
}

// IsLeader reports whether the local replica leads the partition and is ready to serve.
func (p *Partition) IsLeader() bool {
	v := p.view.Load()
	return v.err == nil && v.role == state.Leader
}

// HighWatermark returns the offset below which all records are committed.
func (p *Partition) HighWatermark() int64 { return p.bounds.Load().hw.Offset }

// LastStableOffset returns the offset below which all transactions are decided, at most the high watermark.
func (p *Partition) LastStableOffset() int64 { return p.bounds.Load().lso.Offset }

// LogEndOffset returns the offset that the next record gets; 0 while the log is not open.
func (p *Partition) LogEndOffset() int64 {
	if log := p.view.Load().log; log != nil {
		return log.End().Offset
	}
	return 0
}

// LogStartOffset returns the first offset that can be read; 0 while the log is not open.
func (p *Partition) LogStartOffset() int64 {
	if log := p.view.Load().log; log != nil {
		return log.StartOffset()
	}
	return 0
}

// notLeader is the error for who expected a leader.
func (v *view) notLeader() error {
	if v.err != nil {
		return v.err
	}
	return &NotLeaderError{Leader: v.leader, LeaderEpoch: v.leaderEpoch}
}

// serve returns the view if the replica may answer a request that names a leader epoch, -1 for none. leaderOnly refuses to
// answer as a follower. Source: Kafka's Partition.checkCurrentLeaderEpoch.
func (p *Partition) serve(epoch int32, leaderOnly bool) (*view, error) {
	v := p.view.Load()
	switch {
	case v.err != nil:
		return nil, v.err
	case epoch >= 0 && epoch != v.leaderEpoch:
		return nil, &LeaderEpochError{Requested: epoch, Known: v.leaderEpoch, Leader: v.leader}
	case v.role == state.Leader || v.role == state.Follower && !leaderOnly:
		return v, nil
	}
	return nil, v.notLeader()
}

// AppendOptions say how a batch is appended.
type AppendOptions struct {
	LeaderEpoch int32 // that the caller appends in; -1 whichever there is
	Acks        int16 // -1: refuse if fewer than min.insync.replicas are in sync
	Now         int64 // ms since 1970; 0 the present
	// Coordinator marks a batch from within the broker, whose sequence numbers are not checked.
	Coordinator bool
	// Later takes those whom the append would wake, if the caller will do it. nil: Append does.
	Later *wake.List
}

// Appended tells where a batch went, see [storage.Appended].
type Appended struct {
	storage.Appended
	LeaderEpoch int32 // it was appended in; [Partition.Await] wants it
}

// Append appends one validated batch, whose header is h, as the leader. Base offset and leader epoch are stamped into batch
// in place; it may be used again afterwards. With one replica in sync the high watermark has moved when Append returns.
//
// Errors: ErrOpening, ErrUnknownPartition, *NotLeaderError, *LeaderEpochError, *NotEnoughReplicasError, *OfflineError, and
// those of [storage.Log.AppendAsLeader]. After a *NotLeaderError the records may be in the log all the same, as the
// leadership can go while they are being written.
func (p *Partition) Append(batch []byte, h record.Header, o AppendOptions) (Appended, error) {
	v, err := p.serve(o.LeaderEpoch, true)
	if err != nil {
		return Appended{}, err
	}
	if o.Acks == -1 && v.underMinISR {
		return Appended{}, &NotEnoughReplicasError{ISR: v.isr, MinISR: v.minISR}
	}
	a, err := v.log.AppendAsLeader(batch, h, storage.LeaderAppend{
		LeaderEpoch: v.leaderEpoch, Check: v.check, Now: o.Now, Coordinator: o.Coordinator,
	})
	if err != nil {
		return Appended{}, err
	}
	if !a.Duplicate {
		p.metrics.received(len(batch), int(h.Count))
	}
	if err := p.appended(v.leaderEpoch, a.End, o.Later); err != nil {
		return Appended{}, err
	}
	return Appended{a, v.leaderEpoch}, nil
}

// appended moves the high watermark after an append up to end in a leader epoch.
func (p *Partition) appended(epoch int32, end storage.Position, later *wake.List) error {
	var now wake.List
	w := cmp.Or(later, &now)
	p.mu.Lock()
	if p.mu.state == nil || p.mu.state.Role() != state.Leader || epoch < p.mu.since || p.mu.gone != nil {
		p.mu.Unlock()
		return p.view.Load().notLeader()
	}
	if len(p.mu.state.Registration().Replicas) > 1 || p.mu.log.Config().FlushMessages == 1 {
		p.rememberLocked(end)
	}
	at := time.Now()
	p.mu.ages.Append(end.Offset, at.Sub(p.set.started))
	env := p.envAt(at)
	if p.mu.state.Appended(p.countedEnd(), &env) {
		p.publishBoundsLocked(w)
	}
	p.mu.subs.fire(w, true)
	p.mu.Unlock()
	now.Go()
	return nil
}

// durable moves the high watermark after a flush, when flush.messages=1 makes it wait for the disk.
func (p *Partition) durable() {
	var w wake.List
	p.mu.Lock()
	env := p.env()
	if p.mu.state != nil && p.mu.ready == nil && p.mu.gone == nil && p.mu.state.Appended(p.countedEnd(), &env) {
		p.publishBoundsLocked(&w)
	}
	p.mu.Unlock()
	w.Go()
}

// countedEnd returns the log end as far as it counts for the high watermark: with group commit only what is on the disk.
func (p *Partition) countedEnd() int64 {
	log := p.mu.log
	end := log.End().Offset
	if log.Config().FlushMessages == 1 {
		end = min(end, log.Durable())
	}
	return end
}

func (p *Partition) env() state.Env { return p.envAt(time.Now()) }

func (p *Partition) envAt(now time.Time) state.Env {
	return state.Env{
		Now: now.UnixMilli(), LagMax: p.set.lagMax.Load(),
		MinISR: p.config.Load().MinInSyncReplicas, Eligible: p.set.eligible,
	}
}

// publishBoundsLocked shows readers the high watermark and the last stable offset, and collects who waited for them.
func (p *Partition) publishBoundsLocked(w *wake.List) {
	hw := p.positionLocked(p.mu.state.HighWatermark())
	lso, unstable := p.mu.log.FirstUnstable(hw.Offset)
	if !unstable || lso.Offset > hw.Offset {
		lso = hw
	}
	p.bounds.Store(&bounds{hw, lso})
	if first := p.mu.waiters.first; first != nil && first.offset <= hw.Offset {
		p.mu.waiters.reached(hw.Offset, p.enoughReplicasLocked(), w)
	}
	p.mu.subs.fire(w, false)
}

// positionLocked finds the position of an offset among the last log ends.
func (p *Partition) positionLocked(offset int64) storage.Position {
	if end := p.mu.log.End(); end.Offset == offset {
		return end
	}
	if p.mu.ends == nil {
		return storage.Position{Offset: offset, Pos: -1}
	}
	for _, end := range p.mu.ends {
		if end.Offset == offset && offset > 0 {
			return end
		}
	}
	return storage.Position{Offset: offset, Pos: -1}
}

func (p *Partition) rememberLocked(end storage.Position) {
	if p.mu.ends == nil {
		p.mu.ends = new([keptEnds]storage.Position)
	}
	p.mu.ends[p.mu.next] = end
	p.mu.next = (p.mu.next + 1) % keptEnds
}

// Ready waits until the replica has become what the metadata says, until ctx ends, or until it is gone for good. A handler
// that met ErrOpening calls it, rather than to have the client look for a leader that is here.
func (p *Partition) Ready(ctx context.Context) error {
	for {
		p.mu.Lock()
		ready, gone := p.mu.ready, p.mu.gone
		p.mu.Unlock()
		if gone != nil || ready == nil {
			return gone
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Producers lists the idempotent producers that the replica knows, by id. Only the leader answers.
func (p *Partition) Producers() ([]storage.ProducerState, error) {
	v, err := p.serve(-1, true)
	if err != nil {
		return nil, err
	}
	return v.log.Producers(), nil
}
