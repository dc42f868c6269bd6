package replica

import (
	"ottla/internal/metadata"
	"ottla/internal/replica/state"
	"ottla/internal/wake"
)

// An ISRChange is a set of in-sync replicas that a leader asks the controller for (AlterPartition, KIP-497).
type ISRChange struct {
	Partition *Partition
	*state.Proposal
}

// propose hands a proposal to who sends it.
func (p *Partition) propose(proposal *state.Proposal) {
	switch {
	case proposal == nil:
	case p.set.o.AlterPartition == nil:
		ISRChange{p, proposal}.Refused()
	default:
		p.set.o.AlterPartition(ISRChange{p, proposal})
	}
}

// BrokerEpoch returns the broker epoch that a follower fetched with, -1 if it named none: AlterPartition carries it.
func (c ISRChange) BrokerEpoch(broker int32) int64 {
	c.Partition.mu.Lock()
	defer c.Partition.mu.Unlock()
	for _, f := range c.Partition.mu.state.Followers() {
		if f.ID == broker {
			return f.BrokerEpoch
		}
	}
	return -1
}

// Committed tells the leader that the controller took the change: the partition as its answer says. Without an answer of
// substance (lost, or naming other epochs) the sender asks again, until the metadata log overtakes it.
func (c ISRChange) Committed(answer *metadata.Partition) {
	p := c.Partition
	var w wake.List
	p.mu.Lock()
	if p.mu.gone == nil && p.mu.ready == nil {
		env := p.env()
		moved := p.mu.state.Committed(registration(answer), &env)
		p.showLocked()
		if moved {
			p.publishBoundsLocked(&w)
		}
	}
	p.mu.Unlock()
	w.Go()
}

// Refused tells the leader that the controller did not take the change and will not, as with INELIGIBLE_REPLICA.
func (c ISRChange) Refused() {
	c.Partition.mu.Lock()
	defer c.Partition.mu.Unlock()
	c.Partition.mu.state.Refused(c.Proposal)
}

// shrink proposes an ISR without the followers that do not keep up.
func (p *Partition) shrink() {
	p.mu.Lock()
	var proposal *state.Proposal
	if p.mu.state != nil && p.mu.ready == nil && p.mu.gone == nil {
		env := p.env()
		proposal = p.mu.state.Shrink(&env)
	}
	p.mu.Unlock()
	p.propose(proposal)
	p.recheck()
}

// recheck moves the high watermark if the brokers' states, or the time that has passed, now allow it.
func (p *Partition) recheck() {
	var w wake.List
	p.mu.Lock()
	if p.mu.state != nil && p.mu.ready == nil && p.mu.gone == nil {
		env := p.env()
		if p.mu.state.Recheck(&env) {
			p.publishBoundsLocked(&w)
		}
	}
	p.mu.Unlock()
	w.Go()
}
