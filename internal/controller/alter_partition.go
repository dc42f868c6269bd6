package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
)

// alterPartition changes the ISR as a partition's leader sees it (KIP-497). Source: Kafka's
// ReplicationControlManager.alterPartition.
func (t *turn) alterPartition(req *kmsg.AlterPartitionRequest) answer {
	resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
	resp.Topics = []kmsg.AlterPartitionResponseTopic{}
	if err := t.checkBroker(req.BrokerID, req.BrokerEpoch); err != nil {
		resp.ErrorCode, _ = codeOf(err)
		return reply(resp)
	}
	for i := range req.Topics {
		topic := &req.Topics[i]
		rt := kmsg.NewAlterPartitionResponseTopic()
		rt.TopidID = topic.TopicID
		for j := range topic.Partitions {
			rp := kmsg.NewAlterPartitionResponseTopicPartition()
			rp.Partition, rp.ISR = topic.Partitions[j].Partition, []int32{}
			rp.ErrorCode, _ = codeOf(t.alterISR(req, topic, &topic.Partitions[j], &rp))
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return reply(resp)
}

func (t *turn) alterISR(req *kmsg.AlterPartitionRequest, rt *kmsg.AlterPartitionRequestTopic,
	rp *kmsg.AlterPartitionRequestTopicPartition, out *kmsg.AlterPartitionResponseTopicPartition) error {
	topic := t.image().Topic(rt.TopicID)
	if topic == nil {
		return refuse(kerr.UnknownTopicID, "no topic has this id")
	}
	p := topic.Partition(rp.Partition)
	if p == nil {
		return refuse(kerr.UnknownTopicOrPartition, "no partition %d", rp.Partition)
	}
	isr := proposedISR(rp)
	if err := checkProposal(req, rp, p, isr); err != nil {
		return err
	}
	if err := t.checkEligible(rp, p); err != nil {
		return err
	}
	c := t.change(topic, rp.Partition)
	c.isr, c.recovery = isr, metadata.RecoveryState(rp.LeaderRecoveryState)
	if r := c.record(); r != nil {
		t.emit(r)
	}
	now := t.image().Topic(rt.TopicID).Partition(rp.Partition)
	out.LeaderID, out.LeaderEpoch, out.ISR = now.Leader, now.LeaderEpoch, slices.Clone(now.ISR)
	out.LeaderRecoveryState, out.PartitionEpoch = int8(now.LeaderRecoveryState), now.PartitionEpoch
	if now.Leader != req.BrokerID { // the end of a reassignment took the leadership away
		return refuse(kerr.NewLeaderElected, "broker %d leads now", now.Leader)
	}
	return nil
}

func proposedISR(rp *kmsg.AlterPartitionRequestTopicPartition) []int32 {
	isr := slices.Clone(rp.NewISR)
	for _, r := range rp.NewEpochISR {
		isr = append(isr, r.BrokerID)
	}
	return isr
}

// checkProposal refuses a proposal that was made from an older, or a newer, state of the partition, or that no leader
// should make.
func checkProposal(req *kmsg.AlterPartitionRequest, rp *kmsg.AlterPartitionRequestTopicPartition, p *metadata.Partition, isr []int32) error {
	recovering := rp.LeaderRecoveryState == int8(metadata.Recovering)
	switch {
	case rp.LeaderEpoch > p.LeaderEpoch || rp.PartitionEpoch > p.PartitionEpoch:
		// The leader knows more than this controller: a newer one decides by now.
		return refuse(kerr.NotController, "the partition's epochs are %d and %d", p.LeaderEpoch, p.PartitionEpoch)
	case req.BrokerID != p.Leader:
		return refuse(kerr.InvalidRequest, "broker %d leads", p.Leader)
	case rp.LeaderEpoch < p.LeaderEpoch:
		return refuse(kerr.FencedLeaderEpoch, "the leader epoch is %d", p.LeaderEpoch)
	case rp.PartitionEpoch < p.PartitionEpoch:
		return refuse(kerr.InvalidUpdateVersion, "the partition epoch is %d", p.PartitionEpoch)
	case hasDuplicates(isr) || !containsAll(p.Replicas, isr):
		return refuse(kerr.InvalidRequest, "ISR %v has duplicates or is not of the replicas %v", isr, p.Replicas)
	case !slices.Contains(isr, p.Leader):
		return refuse(kerr.InvalidRequest, "ISR %v lacks the leader %d", isr, p.Leader)
	case !recovering && rp.LeaderRecoveryState != int8(metadata.Recovered):
		return refuse(kerr.InvalidRequest, "leader recovery state %d is unknown", rp.LeaderRecoveryState)
	case recovering && len(isr) > 1:
		return refuse(kerr.InvalidRequest, "ISR %v has more than the leader, which is yet to recover", isr)
	case recovering && p.LeaderRecoveryState == metadata.Recovered:
		return refuse(kerr.InvalidRequest, "the leader has recovered already")
	}
	return nil
}

// checkEligible refuses to put a broker into the ISR that may die unnoticed, or that is another incarnation than the
// leader saw catch up (KIP-841, KIP-903).
func (t *turn) checkEligible(rp *kmsg.AlterPartitionRequestTopicPartition, p *metadata.Partition) error {
	for _, r := range rp.NewEpochISR {
		if b := t.image().Broker(r.BrokerID); b != nil && r.BrokerEpoch != -1 && r.BrokerEpoch != b.Epoch {
			return refuse(kerr.IneligibleReplica, "broker %d has epoch %d, not %d", b.ID, b.Epoch, r.BrokerEpoch)
		}
	}
	for _, id := range proposedISR(rp) {
		if !t.active(id) || !t.dirOnline(p, id) {
			return refuse(kerr.IneligibleReplica, "broker %d is fenced, stops or lost the directory", id)
		}
	}
	return nil
}
