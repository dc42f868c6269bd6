package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/replica"
)

// listOffsets finds offsets by timestamp, or by what a special timestamp stands for.
func (b *Broker) listOffsets(ctx context.Context, req *kmsg.ListOffsetsRequest) *kmsg.ListOffsetsResponse {
	if req.IsolationLevel != 0 && req.IsolationLevel != 1 {
		return failed[*kmsg.ListOffsetsResponse](req, kerr.InvalidRequest)
	}
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	l := b.lookup(ctx, time.Now())
	asked := map[partitionName]int{}
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			asked[partitionName{req.Topics[i].Topic, req.Topics[i].Partitions[j].Partition}]++
		}
	}
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewListOffsetsResponseTopic()
		out.Topic = t.Topic
		for j := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.Offset, rp.Timestamp = t.Partitions[j].Partition, -1, -1
			var found replica.FoundOffset
			err := error(kerr.InvalidRequest) // the same partition twice has no one answer
			if asked[partitionName{t.Topic, t.Partitions[j].Partition}] == 1 {
				found, err = l.listOffset(req, t.Topic, &t.Partitions[j])
			}
			if err != nil {
				rp.ErrorCode = code(err)
			} else {
				rp.Offset, rp.Timestamp, rp.LeaderEpoch = found.Offset, found.Timestamp, found.LeaderEpoch
			}
			out.Partitions = append(out.Partitions, rp)
		}
		resp.Topics[i] = out
	}
	return resp
}

// A partitionName is a partition as clients name it.
type partitionName struct {
	topic     string
	partition int32
}

// timestampSince is the version of ListOffsets that introduced a special timestamp.
var timestampSince = map[int64]int16{
	replica.MaxTimestamp: 7, replica.EarliestLocalTimestamp: 8, replica.LatestTieredTimestamp: 9, replica.EarliestPendingTimestamp: 11,
}

func (l *lookup) listOffset(req *kmsg.ListOffsetsRequest, topic string, p *kmsg.ListOffsetsRequestTopicPartition) (replica.FoundOffset, error) {
	part, err := l.describable(topic, p.Partition)
	if err != nil {
		return replica.FoundOffset{}, err
	}
	if req.Version < timestampSince[p.Timestamp] {
		return replica.FoundOffset{}, kerr.UnsupportedVersion
	}
	o := replica.ListOffsetsOptions{
		Timestamp: p.Timestamp, LeaderEpoch: p.CurrentLeaderEpoch, Isolation: replica.Isolation(req.IsolationLevel),
		AnyReplica: req.ReplicaID == debugConsumerID,
	}
	if req.ReplicaID >= 0 {
		o.Isolation = replica.ReadReplica
	}
	return part.ListOffsets(o)
}

// describable returns the replica of a partition that a client names and may describe.
func (l *lookup) describable(topic string, partition int32) (*replica.Partition, error) {
	if !l.authorizeTopic(l.ctx, auth.Describe, topic) {
		return nil, kerr.TopicAuthorizationFailed
	}
	t := l.img.TopicByName(topic)
	if t == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	return l.hosted(t, partition)
}
