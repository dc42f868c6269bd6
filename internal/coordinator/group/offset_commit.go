package group

import (
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/uuid"
)

// offsetCommit stores offsets, of a member in its generation or of anybody for a group without members.
func (m *Machine) offsetCommit(req *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitResponse {
	refusal := codeOf(m.checkCommit(req))
	expireMs := int64(-1)
	if req.RetentionTimeMillis != -1 {
		expireMs = m.nowMs() + req.RetentionTimeMillis
	}
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, 0, len(req.Topics))
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.OffsetCommitResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
		rt.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, 0, len(t.Partitions))
		for j := range t.Partitions {
			p := &t.Partitions[j]
			code := codeOf(m.checkPartition(req, t, p.Partition))
			if code == 0 {
				code = refusal
			}
			if code == 0 {
				code = codeOf(m.commit(req, t, p, expireMs))
			}
			rt.Partitions = append(rt.Partitions, kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: code})
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// checkCommit says whether the group takes this commit at all. A commit of a classic group's member is a sign of life.
func (m *Machine) checkCommit(req *kmsg.OffsetCommitRequest) *kerr.Error {
	g := m.groups[req.Group]
	switch {
	case g == nil && req.Generation < 0:
		return nil // a simple group is made with its first offset
	case g == nil && req.Version >= 9:
		return kerr.GroupIDNotFound
	case g == nil:
		return kerr.IllegalGeneration
	case g.consumer != nil:
		return g.consumer.checkCommit(req, m.image)
	}
	mem, err := g.classic.checkCommit(req)
	if err == nil && mem != nil && (g.classic.state == stateStable || g.classic.state == statePreparingRebalance) {
		m.hear(g.classic, mem)
	}
	return err
}

func (g *classicGroup) checkCommit(req *kmsg.OffsetCommitRequest) (*classicMember, *kerr.Error) {
	if req.Generation < 0 && g.state == stateEmpty {
		return nil, nil
	}
	if req.Generation < 0 && req.MemberID == "" && req.InstanceID == nil {
		return nil, kerr.UnknownMemberID // of nobody, while there are members
	}
	mem, err := g.validate(req.MemberID, req.InstanceID)
	switch {
	case err != nil:
		return nil, err
	case req.Generation != g.generation:
		return nil, kerr.IllegalGeneration
	case g.state == stateCompletingRebalance:
		return nil, kerr.RebalanceInProgress
	}
	return mem, nil
}

// checkPartition says whether there is such a partition, whatever the group is. The topic of that id may be another here, where the
// metadata is some moments older or younger than where it was looked up.
func (m *Machine) checkPartition(req *kmsg.OffsetCommitRequest, t *kmsg.OffsetCommitRequestTopic, partition int32) *kerr.Error {
	topic := m.image.TopicByName(t.Topic)
	switch other := topic != nil && uuid.UUID(t.TopicID) != uuid.Zero && topic.ID != t.TopicID; {
	case other && req.Version >= 10:
		return kerr.UnknownTopicID
	case other:
		return kerr.UnknownTopicOrPartition
	case topic == nil || topic.Partition(partition) == nil:
		return kerr.UnknownTopicOrPartition
	}
	return nil
}

// commit stores one partition's offset, with the id of the topic even if the request knows its name only.
func (m *Machine) commit(req *kmsg.OffsetCommitRequest, t *kmsg.OffsetCommitRequestTopic, p *kmsg.OffsetCommitRequestTopicPartition, expireMs int64) *kerr.Error {
	metadata := ""
	if p.Metadata != nil {
		metadata = *p.Metadata
	}
	if javaLength(metadata) > m.settings.OffsetMetadataMaxBytes {
		return kerr.OffsetMetadataTooLarge
	}
	if p.Offset < 0 {
		return kerr.InvalidRequest // Apache stores it, and then knows no offset
	}
	m.emitOffset(offsetKey{req.Group, t.Topic, p.Partition}, offset{
		offset: p.Offset, leaderEpoch: p.LeaderEpoch, metadata: metadata, topicID: m.image.TopicByName(t.Topic).ID, commitMs: m.nowMs(), expireMs: expireMs,
	})
	return nil
}

// javaLength is the length of a string as Java counts it, in UTF-16 units, by which Apache measures metadata.
func javaLength(s string) int {
	n := 0
	for _, r := range s {
		n += max(utf16.RuneLen(r), 1)
	}
	return n
}
