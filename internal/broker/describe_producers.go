package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
)

// describeProducers lists the idempotent producers that the leaders of partitions know (KIP-664).
func (b *Broker) describeProducers(ctx context.Context, req *kmsg.DescribeProducersRequest) *kmsg.DescribeProducersResponse {
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	l := b.lookup(ctx, time.Now())
	resp.Topics = make([]kmsg.DescribeProducersResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t := &req.Topics[i]
		resp.Topics[i] = kmsg.NewDescribeProducersResponseTopic()
		resp.Topics[i].Topic = t.Topic
		for _, partition := range t.Partitions {
			rp := kmsg.NewDescribeProducersResponseTopicPartition()
			rp.Partition = partition
			rp.ActiveProducers = []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{}
			if err := l.producers(t.Topic, &rp); err != nil {
				rp.ErrorCode, rp.ErrorMessage = codeAndText(err)
			}
			resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, rp)
		}
	}
	return resp
}

func (l *lookup) producers(topic string, out *kmsg.DescribeProducersResponseTopicPartition) error {
	if !l.authorizeTopic(l.ctx, auth.Read, topic) {
		return kerr.TopicAuthorizationFailed
	}
	if invalidTopicName(topic) {
		return kerr.InvalidTopicException
	}
	t := l.img.TopicByName(topic)
	if t == nil {
		return kerr.UnknownTopicOrPartition
	}
	part, err := l.hosted(t, out.Partition)
	if err != nil {
		return err
	}
	all, err := part.Producers()
	if err != nil {
		return err
	}
	for _, p := range all {
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch, a.LastSequence = p.ProducerID, int32(p.ProducerEpoch), p.LastSequence
		a.LastTimestamp, a.CoordinatorEpoch, a.CurrentTxnStartOffset = p.LastTimestamp, p.CoordinatorEpoch, p.CurrentTxnStartOffset
		out.ActiveProducers = append(out.ActiveProducers, a)
	}
	return nil
}
