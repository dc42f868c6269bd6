package cli

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ottla/internal/protocol"
)

// addAges tells groups how far behind they are in time. Only ottla's brokers know; of others', and where a leader does not
// answer, the ages stay unknown.
func addAges(ctx context.Context, client *kgo.Client, details []GroupDetail) {
	byTopic := map[string][]*GroupPartition{}
	for i := range details {
		for j := range details[i].Partitions {
			if p := &details[i].Partitions[j]; p.Lag >= 0 {
				byTopic[p.Topic] = append(byTopic[p.Topic], p)
			}
		}
	}
	for leader, topics := range byLeader(ctx, client, byTopic) {
		askAges(ctx, client, leader, topics)
	}
	for i := range details {
		details[i].sumAges()
	}
}

// byLeader sorts partitions by the broker that leads them.
func byLeader(ctx context.Context, client *kgo.Client, byTopic map[string][]*GroupPartition) map[int32]map[string][]*GroupPartition {
	if len(byTopic) == 0 {
		return nil
	}
	set := kadm.TopicsSet{}
	for topic := range byTopic {
		set.Add(topic)
	}
	metadata, err := kadm.NewClient(client).Metadata(ctx, set.Topics()...)
	if err != nil {
		return nil
	}
	leaders := map[int32]map[string][]*GroupPartition{}
	for topic, partitions := range byTopic {
		for _, p := range partitions {
			leader := metadata.Topics[topic].Partitions[p.Partition].Leader
			if leaders[leader] == nil {
				leaders[leader] = map[string][]*GroupPartition{}
			}
			leaders[leader][topic] = append(leaders[leader][topic], p)
		}
	}
	return leaders
}

func askAges(ctx context.Context, client *kgo.Client, leader int32, topics map[string][]*GroupPartition) {
	req := new(protocol.DescribeLagRequest)
	var asked []*GroupPartition // in the order of the request, which is the answer's
	for topic, partitions := range topics {
		t := protocol.DescribeLagRequestTopic{Topic: topic}
		for _, p := range partitions {
			t.Partitions = append(t.Partitions, protocol.DescribeLagRequestPartition{Partition: p.Partition, Offset: p.Committed})
			asked = append(asked, p)
		}
		req.Topics = append(req.Topics, t)
	}
	answer, err := client.Broker(int(leader)).Request(ctx, req)
	resp, ok := answer.(*protocol.DescribeLagResponse)
	if err != nil || !ok {
		return
	}
	for _, t := range resp.Topics {
		for _, answered := range t.Partitions {
			if len(asked) == 0 {
				return
			}
			asked[0].setAge(answered)
			asked = asked[1:]
		}
	}
}

func (p *GroupPartition) setAge(r protocol.DescribeLagResponsePartition) {
	if r.ErrorCode != 0 || r.AgeMs < 0 || r.Partition != p.Partition {
		return
	}
	seconds := float64(r.AgeMs) / 1000
	if p.Lag == 0 { // what came since the end was asked for is no lag
		seconds = 0
	}
	p.LagSeconds, p.LagEstimated = &seconds, r.Estimated && p.Lag > 0
}

// sumAges takes the largest age of all partitions for the group's.
func (g *GroupDetail) sumAges() {
	for _, p := range g.Partitions {
		if p.LagSeconds != nil && (g.LagSeconds == nil || *p.LagSeconds > *g.LagSeconds) {
			g.LagSeconds, g.LagEstimated = p.LagSeconds, p.LagEstimated
		}
	}
}
