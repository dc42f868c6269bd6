// Package state is what a replica decides, without a clock, a disk or a network: who leads a partition, which replicas
// are in sync, how far the high watermark may go, and where a follower's log parts from its leader's. A [Partition] is
// stepped by what happens to it; package replica owns one per partition, under its mutex.
//
// What always holds: the high watermark of a leader never goes back; it does not pass a replica of the maximal ISR, which
// is the committed ISR and one proposed (KIP-497), nor one that is about to join; it does not move while the committed ISR
// is smaller than min.insync.replicas (KIP-966).
//
// Source: Kafka's Partition and Replica.
package state

import (
	"errors"
	"slices"
)

// Unknown is an offset that is not known.
const Unknown int64 = -1

// A Registration is a partition as the cluster metadata has it.
type Registration struct {
	Replicas, ISR               []int32 // broker ids; not changed by anybody
	Leader                      int32   // -1 none
	LeaderEpoch, PartitionEpoch int32
}

// An Env is what the world says at the moment of a step.
type Env struct {
	Now    int64 // ms
	LagMax int64 // replica.lag.time.max.ms
	MinISR int   // min.insync.replicas
	// Eligible reports whether a broker may join the ISR: registered, neither fenced nor shutting down, and its registered
	// epoch is the one it fetched with; -1 is a fetch without one.
	Eligible func(broker int32, epoch int64) bool
}

// A Role is what the local replica is to the partition.
type Role uint8

// The roles.
const (
	None Role = iota // no registration yet, or no replica here any more
	Follower
	Leader
)

func (r Role) String() string { return [...]string{"none", "follower", "leader"}[r] }

// A Replica is what a leader knows of a follower, from its fetches.
type Replica struct {
	ID             int32
	LogEndOffset   int64 // Unknown until it fetched in this leadership
	LogStartOffset int64 // Unknown until then
	BrokerEpoch    int64 // it fetched with; -1 none
	LastCaughtUp   int64 // ms; when it last had all that the leader had
	lastFetch      int64 // ms
	lastFetchLEO   int64 // the leader's log end at that fetch
}

// caughtUp reports whether a follower counts as in sync with a leader whose log ends at leo.
func (r *Replica) caughtUp(leo int64, env *Env) bool {
	return r.LogEndOffset == leo || env.Now-r.LastCaughtUp <= env.LagMax
}

// A Proposal is an ISR that the controller is asked for, by AlterPartition. One is in flight at a time.
type Proposal struct {
	ISR                         []int32
	LeaderEpoch, PartitionEpoch int32 // it is based on
}

// A Partition is one partition as its local replica sees it. It serves one goroutine at a time; New makes it.
type Partition struct {
	local      int32
	reg        Registration
	role       Role
	epochStart int64 // log end when this leadership began
	leo, hw    int64
	followers  []Replica // of a leader: the other replicas
	proposed   *Proposal
}

// New returns the partition of a log that ends at leo, before any registration is known. hw is the last known high
// watermark.
func New(local int32, hw, leo int64) *Partition {
	return &Partition{local: local, hw: min(hw, leo), leo: leo, reg: Registration{Leader: -1, LeaderEpoch: -1, PartitionEpoch: -1}}
}

// Role returns what the local replica is.
func (p *Partition) Role() Role { return p.role }

// Registration returns the registration in force.
func (p *Partition) Registration() Registration { return p.reg }

// HighWatermark returns the offset below which everything is committed, as far as is known here.
func (p *Partition) HighWatermark() int64 { return p.hw }

// LogEndOffset returns the log end that the high watermark goes by.
func (p *Partition) LogEndOffset() int64 { return p.leo }

// EpochStart returns the log end offset at which the local leadership began, Unknown if it is none.
func (p *Partition) EpochStart() int64 {
	if p.role != Leader {
		return Unknown
	}
	return p.epochStart
}

// Followers returns what a leader knows of the other replicas; the slice is the partition's.
func (p *Partition) Followers() []Replica { return p.followers }

// Proposed returns the ISR in flight, or nil.
func (p *Partition) Proposed() *Proposal { return p.proposed }

// Become takes in a registration. The log ends at end, and as far as it counts for the high watermark at leo, which is less
// where records count once they are on the disk. A registration that is older than what is known changes nothing, and
// false is returned. What is known of the followers is forgotten when a leadership begins.
func (p *Partition) Become(r Registration, end, leo int64, env *Env) bool {
	if r.LeaderEpoch < p.reg.LeaderEpoch || r.LeaderEpoch == p.reg.LeaderEpoch && r.PartitionEpoch < p.reg.PartitionEpoch {
		return false
	}
	newEpoch := r.LeaderEpoch > p.reg.LeaderEpoch
	if r.PartitionEpoch > p.reg.PartitionEpoch {
		p.proposed = nil
	}
	was := p.role
	p.reg, p.leo = r, leo
	switch {
	case !slices.Contains(r.Replicas, p.local):
		p.role, p.followers = None, nil
	case r.Leader != p.local:
		p.role, p.followers = Follower, nil
	default:
		p.role = Leader
		p.lead(newEpoch, was != Leader, end, env)
	}
	return true
}

// lead makes the followers fit the registration and the leadership.
func (p *Partition) lead(newEpoch, newLeader bool, end int64, env *Env) {
	if newEpoch || newLeader {
		p.epochStart = end
	}
	followers := make([]Replica, 0, len(p.reg.Replicas)-1)
	for _, id := range p.reg.Replicas {
		if id == p.local {
			continue
		}
		f := p.follower(id)
		switch {
		case f == nil || newLeader:
			followers = append(followers, p.newFollower(id, env))
		case newEpoch:
			next := p.newFollower(id, env)
			next.LogEndOffset, next.LogStartOffset, next.BrokerEpoch = f.LogEndOffset, f.LogStartOffset, f.BrokerEpoch
			followers = append(followers, next)
		default:
			followers = append(followers, *f)
		}
	}
	p.followers = followers
	p.advance(env)
}

// newFollower gives a member of the ISR the benefit of the doubt, for replica.lag.time.max.ms.
func (p *Partition) newFollower(id int32, env *Env) Replica {
	f := Replica{ID: id, LogEndOffset: Unknown, LogStartOffset: Unknown, BrokerEpoch: -1, lastFetchLEO: p.leo}
	if slices.Contains(p.reg.ISR, id) {
		f.LastCaughtUp, f.lastFetch = env.Now, env.Now
	}
	return f
}

func (p *Partition) follower(id int32) *Replica {
	for i := range p.followers {
		if p.followers[i].ID == id {
			return &p.followers[i]
		}
	}
	return nil
}

// Appended says that the leader's log, as far as it counts, ends at leo. It reports whether the high watermark moved.
func (p *Partition) Appended(leo int64, env *Env) bool {
	if p.role != Leader || leo <= p.leo {
		return false
	}
	p.leo = leo
	return p.advance(env)
}

// A Fetch is a follower's fetch from its leader.
type Fetch struct {
	Replica        int32
	Offset         int64 // it asks for: its log ends there
	LogStartOffset int64
	BrokerEpoch    int64 // -1: it did not say
}

// ErrNotReplica says that the broker which fetched has no replica of the partition, as far as is known here.
var ErrNotReplica = errors.New("the broker has no replica of the partition")

// Fetched takes in a follower's position at a leader whose log ends at leo. It reports whether the high watermark moved,
// and returns the ISR to propose if the follower may join.
func (p *Partition) Fetched(f Fetch, leo int64, env *Env) (moved bool, join *Proposal, err error) {
	r := p.follower(f.Replica)
	if r == nil {
		return false, nil, ErrNotReplica
	}
	switch {
	case f.Offset >= leo:
		r.LastCaughtUp = max(r.LastCaughtUp, env.Now)
	case f.Offset >= r.lastFetchLEO:
		r.LastCaughtUp = max(r.LastCaughtUp, r.lastFetch)
	}
	r.LogEndOffset, r.LogStartOffset, r.BrokerEpoch = f.Offset, f.LogStartOffset, f.BrokerEpoch
	r.lastFetch, r.lastFetchLEO = env.Now, max(r.lastFetchLEO, leo)
	join = p.join(r, env)
	return p.advance(env), join, nil
}

// join proposes an ISR with a follower that has everything committed, and at least all that was there when this
// leadership began.
func (p *Partition) join(r *Replica, env *Env) *Proposal {
	if p.proposed != nil || slices.Contains(p.reg.ISR, r.ID) ||
		r.LogEndOffset < p.hw || r.LogEndOffset < p.epochStart || !env.Eligible(r.ID, r.BrokerEpoch) {
		return nil
	}
	return p.propose(append(slices.Clone(p.reg.ISR), r.ID))
}

// Shrink proposes an ISR without the followers that are no longer caught up, or returns nil.
func (p *Partition) Shrink(env *Env) *Proposal {
	if p.role != Leader || p.proposed != nil {
		return nil
	}
	isr := slices.DeleteFunc(slices.Clone(p.reg.ISR), func(id int32) bool {
		f := p.follower(id)
		return f != nil && !f.caughtUp(p.leo, env)
	})
	if len(isr) == len(p.reg.ISR) {
		return nil
	}
	return p.propose(isr)
}

func (p *Partition) propose(isr []int32) *Proposal {
	p.proposed = &Proposal{ISR: isr, LeaderEpoch: p.reg.LeaderEpoch, PartitionEpoch: p.reg.PartitionEpoch}
	return p.proposed
}

// Committed takes in the controller's answer to a proposal: the partition as it now is. It reports whether the high
// watermark moved.
func (p *Partition) Committed(r Registration, env *Env) bool {
	if p.role != Leader || r.LeaderEpoch != p.reg.LeaderEpoch || r.PartitionEpoch < p.reg.PartitionEpoch {
		return false // the metadata log will tell, or has told
	}
	if r.PartitionEpoch > p.reg.PartitionEpoch || p.proposed != nil && p.proposed.PartitionEpoch == r.PartitionEpoch {
		p.proposed = nil
	}
	p.reg.ISR, p.reg.PartitionEpoch = r.ISR, r.PartitionEpoch
	return p.advance(env)
}

// Refused says that the controller did not take the proposal and that none of it holds. If that is not certain (the
// answer was lost, or says that the epochs are others), the proposal must be sent again or left in flight until the next
// registration.
func (p *Partition) Refused(proposal *Proposal) {
	if p.proposed == proposal {
		p.proposed = nil
	}
}

// UnderMinISR reports whether the committed ISR is smaller than min.insync.replicas, or than all replicas if these are
// fewer.
func (p *Partition) UnderMinISR(minISR int) bool {
	return len(p.reg.ISR) < min(minISR, len(p.reg.Replicas))
}

// advance moves a leader's high watermark as far as it may go.
func (p *Partition) advance(env *Env) bool {
	if p.UnderMinISR(env.MinISR) {
		return false
	}
	hw := p.leo
	for i := range p.followers {
		f := &p.followers[i]
		if f.LogEndOffset < hw && (p.inMaximalISR(f.ID) || f.caughtUp(p.leo, env) && env.Eligible(f.ID, f.BrokerEpoch)) {
			hw = f.LogEndOffset
		}
	}
	if hw <= p.hw {
		return false
	}
	p.hw = hw
	return true
}

func (p *Partition) inMaximalISR(id int32) bool {
	return slices.Contains(p.reg.ISR, id) || p.proposed != nil && slices.Contains(p.proposed.ISR, id)
}

// Recheck moves the high watermark if time, min.insync.replicas or the brokers' states now allow it.
func (p *Partition) Recheck(env *Env) bool { return p.role == Leader && p.advance(env) }

// Followed says that a follower's log now ends at leo and that its leader told its high watermark. It reports whether
// the local one moved.
func (p *Partition) Followed(leo, leaderHW int64) bool {
	p.leo = leo
	hw := min(leaderHW, leo)
	if p.role == Leader || hw <= p.hw {
		return false
	}
	p.hw = hw
	return true
}

// Truncated says that a follower's log was cut and now ends at leo. Only here the high watermark may go back.
func (p *Partition) Truncated(leo int64) {
	p.leo, p.hw = leo, min(p.hw, leo)
}

// LowWatermark returns the smallest log start offset of the leader, whose own is logStart, and of its followers that are
// alive; Unknown if one of them has not said yet. DeleteRecords waits for it.
func (p *Partition) LowWatermark(logStart int64, alive func(broker int32) bool) int64 {
	low := logStart
	for i := range p.followers {
		if alive(p.followers[i].ID) {
			low = min(low, p.followers[i].LogStartOffset)
		}
	}
	return low
}
