package group

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/uuid"
)

// offsetFetch tells committed offsets, of the partitions that are asked for, or of all if none are. The request is in the
// form of version 8 and up, several groups at a time.
func (m *Machine) offsetFetch(req *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchResponse {
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	for i := range req.Groups {
		resp.Groups = append(resp.Groups, m.offsetFetchGroup(&req.Groups[i], req.RequireStable))
	}
	return resp
}

func (m *Machine) offsetFetchGroup(g *kmsg.OffsetFetchRequestGroup, stable bool) kmsg.OffsetFetchResponseGroup {
	resp := kmsg.NewOffsetFetchResponseGroup()
	resp.Group, resp.Topics = g.Group, []kmsg.OffsetFetchResponseGroupTopic{}
	if known := m.groups[g.Group]; known != nil && known.consumer != nil {
		if err := known.consumer.checkFetch(g); err != nil {
			resp.ErrorCode = err.Code
			return resp
		}
	}
	if g.Topics != nil {
		for i := range g.Topics {
			t := &g.Topics[i]
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rt.Partitions = append(rt.Partitions, m.fetchOffset(offsetKey{g.Group, t.Topic, p}, t.TopicID, stable))
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	}
	committed := m.offsets.committed[g.Group]
	for _, topic := range slices.Sorted(maps.Keys(committed)) {
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.Topic = topic
		for _, p := range slices.Sorted(maps.Keys(committed[topic])) {
			rt.Partitions = append(rt.Partitions, m.fetchOffset(offsetKey{g.Group, topic, p}, uuid.Zero, stable))
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// fetchOffset tells one offset; -1 if there is none, or if it is of another topic than that of an id that is not zero: one that had
// the name before. Who wants a stable one is sent away while a transaction is about to set it (KIP-447).
func (m *Machine) fetchOffset(k offsetKey, id uuid.UUID, stable bool) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	metadata := ""
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = k.partition, -1, -1, &metadata
	if stable && m.offsets.isPending(k) {
		p.ErrorCode = kerr.UnstableOffsetCommit.Code
		return p
	}
	if o, ok := m.offsets.get(k); ok && (id == uuid.Zero || o.topicID == uuid.Zero || o.topicID == id) {
		p.Offset, p.LeaderEpoch, metadata = o.offset, o.leaderEpoch, o.metadata
	}
	return p
}
