package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
)

// Values of ElectLeadersRequest.ElectionType.
const (
	preferredElection int8 = 0
	uncleanElection   int8 = 1
)

// electLeaders elects the preferred leaders, or any where there is none (KIP-460). Source: Kafka's
// ReplicationControlManager.electLeaders.
func (t *turn) electLeaders(req *kmsg.ElectLeadersRequest) answer {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	resp.Topics = []kmsg.ElectLeadersResponseTopic{}
	if req.ElectionType != preferredElection && req.ElectionType != uncleanElection {
		resp.ErrorCode, _ = codeOf(refuse(kerr.InvalidRequest, "election type %d is unknown", req.ElectionType))
		return reply(resp)
	}
	topics, all := req.Topics, req.Topics == nil
	if all {
		topics = everyPartition(t.image())
	}
	for _, topic := range topics {
		rt := kmsg.NewElectLeadersResponseTopic()
		rt.Topic = topic.Topic
		for _, id := range topic.Partitions {
			rp := kmsg.NewElectLeadersResponseTopicPartition()
			rp.Partition = id
			rp.ErrorCode, rp.ErrorMessage = codeOf(t.electLeader(topic.Topic, id, req.ElectionType))
			if all && rp.ErrorCode == kerr.ElectionNotNeeded.Code {
				continue
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		if len(rt.Partitions) > 0 {
			resp.Topics = append(resp.Topics, rt)
		}
	}
	return reply(resp)
}

func everyPartition(img *metadata.Image) []kmsg.ElectLeadersRequestTopic {
	var out []kmsg.ElectLeadersRequestTopic
	for topic := range img.Topics() {
		rt := kmsg.NewElectLeadersRequestTopic()
		rt.Topic = topic.Name
		for id := range topic.Partitions() {
			rt.Partitions = append(rt.Partitions, id)
		}
		out = append(out, rt)
	}
	return out
}

func (t *turn) electLeader(name string, id int32, kind int8) error {
	topic, err := t.topicFor(name)
	if err != nil {
		return err
	}
	p := topic.Partition(id)
	if p == nil {
		return refuse(kerr.UnknownTopicOrPartition, "No such partition as %s-%d", name, id)
	}
	if kind == preferredElection && p.Leader == p.PreferredLeader() || kind == uncleanElection && p.Leader != metadata.NoLeader {
		return refuse(kerr.ElectionNotNeeded, "Leader election not needed for topic partition %s-%d", name, id)
	}
	c := t.change(topic, id)
	c.mode = electUnclean
	if kind == preferredElection {
		c.mode = electPreferred
	}
	r := c.record()
	switch {
	case r != nil && (kind == uncleanElection && r.Leader >= 0 || kind == preferredElection && r.Leader == p.PreferredLeader()):
		t.emit(r)
		return nil
	case kind == preferredElection:
		return refuse(kerr.PreferredLeaderNotAvailable, "The preferred leader was not available.")
	}
	return refuse(kerr.EligibleLeadersNotAvailable, "No eligible leaders are available for topic partition %s-%d", name, id)
}

// maxBalanced bounds the elections of one pass of balance.
const maxBalanced = 1000

// balance gives preferred leaders back what they lost while they were away (auto.leader.rebalance.enable).
func (t *turn) balance() {
	type candidate struct {
		topic string
		id    int32
	}
	var found []candidate
	for topic := range t.image().Topics() {
		for id, p := range topic.Partitions() {
			preferred := p.PreferredLeader()
			if p.Leader != preferred && slices.Contains(p.ISR, preferred) && t.active(preferred) && len(found) < maxBalanced {
				found = append(found, candidate{topic.Name, id})
			}
		}
	}
	for _, c := range found {
		// A partition that cannot be moved after all stays as it is.
		_ = t.electLeader(c.topic, c.id, preferredElection)
	}
}
