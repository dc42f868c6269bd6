package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/replica"
)

// offsetForLeaderEpoch tells where leader epochs end, by which a consumer or follower finds out whether its log was cut.
func (b *Broker) offsetForLeaderEpoch(ctx context.Context, req *kmsg.OffsetForLeaderEpochRequest) *kmsg.OffsetForLeaderEpochResponse {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	l := b.lookup(ctx, time.Now())
	resp.Topics = make([]kmsg.OffsetForLeaderEpochResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = t.Topic
		for j := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition = t.Partitions[j].Partition
			end, err := l.epochEnd(req.ReplicaID, t.Topic, &t.Partitions[j])
			rp.ErrorCode, rp.LeaderEpoch, rp.EndOffset = code(err), end.Epoch, end.Offset
			out.Partitions = append(out.Partitions, rp)
		}
		resp.Topics[i] = out
	}
	return resp
}

var unknownEpochEnd = replica.EpochEnd{Epoch: -1, Offset: -1}

func (l *lookup) epochEnd(replicaID int32, topic string, p *kmsg.OffsetForLeaderEpochRequestTopicPartition) (replica.EpochEnd, error) {
	part, err := l.describable(topic, p.Partition)
	if err != nil {
		return unknownEpochEnd, err
	}
	end, err := part.EpochEnd(p.CurrentLeaderEpoch, p.LeaderEpoch, replicaID == debugConsumerID)
	if err != nil {
		return unknownEpochEnd, err
	}
	return end, nil
}
