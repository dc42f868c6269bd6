package broker

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/metadata"
)

// describeTopicPartitions lists partitions page by page (KIP-966): topics by name, from the request's cursor on, until the
// limit, and then says where to go on.
func (b *Broker) describeTopicPartitions(ctx context.Context, req *kmsg.DescribeTopicPartitionsRequest) *kmsg.DescribeTopicPartitionsResponse {
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	resp.Topics = []kmsg.DescribeTopicPartitionsResponseTopic{}
	v := view{b, b.image(), auth.From(ctx).Listener}
	left := int(max(1, min(req.ResponsePartitionLimit, int32(b.config().Int("max.request.partition.size.limit")))))
	from, first := "", int32(0)
	if req.Cursor != nil {
		if req.Cursor.Partition < 0 {
			return failed[*kmsg.DescribeTopicPartitionsResponse](req, kerr.InvalidRequest)
		}
		from, first = req.Cursor.Topic, req.Cursor.Partition
	}
	for name, t := range v.topicsFrom(ctx, req, from) {
		if left <= 0 {
			resp.NextCursor = cursor(name, 0)
			return resp
		}
		if t == nil {
			resp.Topics = append(resp.Topics, v.undescribed(ctx, name))
			continue
		}
		start := int32(0)
		if name == from {
			start = first
		}
		topic, next := v.page(ctx, t, start, left)
		resp.Topics = append(resp.Topics, topic)
		left -= len(topic.Partitions)
		if next >= 0 {
			resp.NextCursor = cursor(name, next)
			return resp
		}
	}
	return resp
}

// topicsFrom yields the topics that the request asks for, by name from a name on; nil for one that is not there or may not
// be described.
func (v view) topicsFrom(ctx context.Context, req *kmsg.DescribeTopicPartitionsRequest, from string) func(func(string, *metadata.Topic) bool) {
	return func(yield func(string, *metadata.Topic) bool) {
		if len(req.Topics) == 0 {
			for t := range v.img.TopicsFrom(from) {
				if v.authorizeTopic(ctx, auth.Describe, t.Name) && !yield(t.Name, t) {
					return
				}
			}
			return
		}
		var names []string
		for i := range req.Topics {
			names = append(names, req.Topics[i].Topic)
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			if name < from {
				continue
			}
			t := v.img.TopicByName(name)
			if !v.authorizeTopic(ctx, auth.Describe, name) {
				t = nil
			}
			if !yield(name, t) {
				return
			}
		}
	}
}

// undescribed answers for a topic that is not there or may not be described.
func (v view) undescribed(ctx context.Context, name string) kmsg.DescribeTopicPartitionsResponseTopic {
	t := kmsg.NewDescribeTopicPartitionsResponseTopic()
	t.Topic, t.AuthorizedOperations = &name, operationsNotAsked
	t.Partitions = []kmsg.DescribeTopicPartitionsResponseTopicPartition{}
	switch {
	case !v.authorizeTopic(ctx, auth.Describe, name):
		t.ErrorCode = kerr.TopicAuthorizationFailed.Code
	case invalidTopicName(name):
		t.ErrorCode = kerr.InvalidTopicException.Code
	default:
		t.ErrorCode = kerr.UnknownTopicOrPartition.Code
	}
	return t
}

// page returns at most limit partitions of t, from start on, and the partition to go on with; -1 if that was all.
func (v view) page(ctx context.Context, t *metadata.Topic, start int32, limit int) (out kmsg.DescribeTopicPartitionsResponseTopic, next int32) {
	out = kmsg.NewDescribeTopicPartitionsResponseTopic()
	out.Topic, out.TopicID, out.IsInternal = &t.Name, t.ID, isInternal(t.Name)
	out.AuthorizedOperations = v.authorizedOperations(ctx, auth.Topic, t.Name, topicOperations...)
	out.Partitions = []kmsg.DescribeTopicPartitionsResponseTopicPartition{}
	for id, p := range t.PartitionsFrom(start) {
		if len(out.Partitions) == limit {
			return out, id
		}
		rp := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		rp.ErrorCode = v.leaderError(p)
		rp.Partition, rp.LeaderID, rp.LeaderEpoch = id, p.Leader, p.LeaderEpoch
		rp.Replicas, rp.ISR, rp.OfflineReplicas = p.Replicas, p.ISR, v.offline(p)
		rp.EligibleLeaderReplicas, rp.LastKnownELR = orEmpty(p.ELR), orEmpty(p.LastKnownELR)
		out.Partitions = append(out.Partitions, rp)
	}
	return out, -1
}

func orEmpty(ids []int32) []int32 {
	if ids == nil {
		return []int32{}
	}
	return ids
}

func cursor(topic string, partition int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, partition
	return &c
}
