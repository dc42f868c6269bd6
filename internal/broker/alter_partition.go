package broker

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
	"ottla/internal/replica"
	"ottla/internal/uuid"
)

// partitionChanges asks the controller, by AlterPartition, for what leaders here want changed: who is in sync, and that a log
// which an unclean election may have left behind others is in order again. One goroutine sends what has gathered
// meanwhile as one request.
type partitionChanges struct {
	wake chan struct{}
	mu   struct {
		sync.Mutex
		waiting []partitionChange
	}
}

// A partitionChange is one partition of an AlterPartition request.
type partitionChange struct {
	topicID                     uuid.UUID
	partition                   int32
	leaderEpoch, partitionEpoch int32
	isr                         []int32
	change                      *replica.ISRChange // who asks for the ISR; nil for the end of a recovery, whose ISR stays
}

func newPartitionChanges() *partitionChanges { return &partitionChanges{wake: make(chan struct{}, 1)} }

func (c *partitionChanges) add(changes ...partitionChange) {
	c.mu.Lock()
	c.mu.waiting = append(c.mu.waiting, changes...)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *partitionChanges) take() []partitionChange {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.mu.waiting
	c.mu.waiting = nil
	return taken
}

// alterISR queues what a leader proposes.
func (b *Broker) alterISR(c replica.ISRChange) {
	b.changes.add(partitionChange{
		topicID: c.Partition.TopicID(), partition: c.Partition.ID(), leaderEpoch: c.LeaderEpoch, partitionEpoch: c.PartitionEpoch,
		isr: c.ISR, change: &c,
	})
}

// endRecoveries queues, for each partition that this broker leads after an unclean election, that its log is in order: what
// was lost is lost, and what is here was recovered before the replica took the leadership.
func (b *Broker) endRecoveries(delta *metadata.Delta) {
	for topic := range delta.Topics() {
		for p := range topic.Partitions() {
			if p.New != nil && p.New.Leader == b.nodeID && p.New.LeaderRecoveryState == metadata.Recovering {
				b.changes.add(partitionChange{topicID: topic.ID(), partition: p.ID, leaderEpoch: p.New.LeaderEpoch, partitionEpoch: p.New.PartitionEpoch, isr: p.New.ISR})
			}
		}
	}
}

// changeRetry is the pause before a request that the controller did not answer is sent again.
const changeRetry = 100 * time.Millisecond

// sendChanges sends what is queued until ctx ends.
func (b *Broker) sendChanges(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-b.changes.wake:
		}
		changes := b.changes.take()
		if len(changes) == 0 {
			continue
		}
		answer, err := b.controllers.attempt(ctx, b.alterPartitionRequest(changes))
		if err == nil {
			err = kerr.ErrorForCode(answer.(*kmsg.AlterPartitionResponse).ErrorCode)
		}
		if err != nil {
			b.logger.Debug("the controller did not take partition changes", "error", err)
			b.changes.add(changes...)
			if !pause(ctx, changeRetry) {
				return ctx.Err()
			}
			continue
		}
		b.settleChanges(changes, answer.(*kmsg.AlterPartitionResponse))
	}
}

func (b *Broker) alterPartitionRequest(changes []partitionChange) *kmsg.AlterPartitionRequest {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.SetVersion(req.MaxVersion())
	req.BrokerID, req.BrokerEpoch = b.nodeID, b.lifecycle.epoch.Load()
	at := map[uuid.UUID]int{}
	for i := range changes {
		c := &changes[i]
		j, ok := at[c.topicID]
		if !ok {
			j, at[c.topicID] = len(req.Topics), len(req.Topics)
			t := kmsg.NewAlterPartitionRequestTopic()
			t.TopicID = c.topicID
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewAlterPartitionRequestTopicPartition()
		p.Partition, p.LeaderEpoch, p.PartitionEpoch = c.partition, c.leaderEpoch, c.partitionEpoch
		for _, id := range c.isr {
			m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			m.BrokerID, m.BrokerEpoch = id, b.epochOf(c, id)
			p.NewEpochISR = append(p.NewEpochISR, m)
		}
		req.Topics[j].Partitions = append(req.Topics[j].Partitions, p)
	}
	return req
}

// epochOf is the broker epoch under which a member of the ISR is known; -1 leaves the check to the controller.
func (b *Broker) epochOf(c *partitionChange, broker int32) int64 {
	switch {
	case broker == b.nodeID:
		return b.lifecycle.epoch.Load()
	case c.change == nil:
		return -1
	}
	return c.change.BrokerEpoch(broker)
}

// settleChanges tells leaders what became of their proposals.
func (b *Broker) settleChanges(changes []partitionChange, resp *kmsg.AlterPartitionResponse) {
	type key struct {
		topicID   uuid.UUID
		partition int32
	}
	answers := map[key]*kmsg.AlterPartitionResponseTopicPartition{}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			answers[key{resp.Topics[i].TopidID, p.Partition}] = p
		}
	}
	for i := range changes {
		c := &changes[i]
		if c.change == nil {
			continue // the metadata log will tell
		}
		answer := answers[key{c.topicID, c.partition}]
		if answer == nil || answer.ErrorCode != 0 {
			c.change.Refused()
			continue
		}
		known := b.image().Partition(c.topicID, c.partition)
		if known == nil {
			continue
		}
		now := *known
		now.Leader, now.LeaderEpoch, now.PartitionEpoch, now.ISR = answer.LeaderID, answer.LeaderEpoch, answer.PartitionEpoch, answer.ISR
		c.change.Committed(&now)
	}
}
