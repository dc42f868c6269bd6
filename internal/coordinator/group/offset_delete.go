package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetDelete forgets offsets of topics that no member reads (KIP-496).
func (m *Machine) offsetDelete(req *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse {
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	resp.Topics = []kmsg.OffsetDeleteResponseTopic{}
	g := m.groups[req.Group]
	if err := checkOffsetDelete(req, g); err != nil {
		resp.ErrorCode = err.Code
		return resp
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.OffsetDeleteResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			code := codeOf(m.deleteOffset(g, offsetKey{req.Group, t.Topic, p.Partition}))
			rt.Partitions = append(rt.Partitions, kmsg.OffsetDeleteResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func checkOffsetDelete(req *kmsg.OffsetDeleteRequest, g *group) *kerr.Error {
	switch {
	case req.Group == "":
		return kerr.InvalidGroupID
	case g == nil:
		return kerr.GroupIDNotFound
	case g.classic != nil && g.classic.state != stateEmpty && !g.classic.usesConsumerProtocol():
		return kerr.NonEmptyGroup // what its members read is not known
	}
	return nil
}

func (m *Machine) deleteOffset(g *group, k offsetKey) *kerr.Error {
	if t := m.image.TopicByName(k.topic); t == nil || t.Partition(k.partition) == nil {
		return kerr.UnknownTopicOrPartition
	}
	if g.isSubscribed(k.topic) {
		return kerr.GroupSubscribedToTopic
	}
	if _, ok := m.offsets.get(k); ok || m.offsets.isPending(k) {
		m.emitOffsetTombstone(k)
	}
	return nil
}

// isSubscribed reports whether a member of the group reads a topic.
func (g *group) isSubscribed(topic string) bool {
	if g.classic != nil {
		return g.classic.isSubscribed(topic)
	}
	return g.consumer.isSubscribed(topic)
}
