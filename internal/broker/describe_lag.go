package broker

import (
	"context"
	"time"

	"ottla/internal/protocol"
)

// describeLag tells ottla's own client how old the oldest unread records of a consumer are.
func (b *Broker) describeLag(ctx context.Context, req *protocol.DescribeLagRequest) *protocol.DescribeLagResponse {
	resp := &protocol.DescribeLagResponse{Topics: make([]protocol.DescribeLagResponseTopic, len(req.Topics))}
	l := b.lookup(ctx, time.Now())
	for i := range req.Topics {
		t := &req.Topics[i]
		out := protocol.DescribeLagResponseTopic{Topic: t.Topic, Partitions: make([]protocol.DescribeLagResponsePartition, len(t.Partitions))}
		for j, p := range t.Partitions {
			out.Partitions[j] = l.lag(t.Topic, p)
		}
		resp.Topics[i] = out
	}
	return resp
}

func (l *lookup) lag(topic string, p protocol.DescribeLagRequestPartition) protocol.DescribeLagResponsePartition {
	out := protocol.DescribeLagResponsePartition{Partition: p.Partition, AgeMs: -1}
	part, err := l.describable(topic, p.Partition)
	if err != nil {
		out.ErrorCode = code(err)
		return out
	}
	age, err := part.Age(p.Offset, false)
	if err != nil {
		out.ErrorCode = code(err)
		return out
	}
	if age.Known {
		out.AgeMs, out.Estimated = age.Duration.Milliseconds(), age.Estimated
	}
	return out
}
