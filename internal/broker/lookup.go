package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"ottla/internal/metadata"
	"ottla/internal/replica"
)

// A lookup finds the partitions that one request names, by one image of the metadata.
type lookup struct {
	*Broker
	ctx   context.Context
	img   *metadata.Image
	until time.Time // the request waits for replicas that are being opened
}

// readyWait is how long a request waits for replicas that are being opened, all of them together.
const readyWait = time.Second

func (b *Broker) lookup(ctx context.Context, now time.Time) lookup {
	return lookup{b, ctx, b.image(), now.Add(readyWait)}
}

// hosted returns this broker's replica of a partition, once it has become what the metadata says it is. A client that
// was told that the leader is here need not look for another.
func (l *lookup) hosted(topic *metadata.Topic, partition int32) (*replica.Partition, error) {
	part, err := l.located(topic, partition)
	if err == nil && !part.IsLeader() {
		l.awaitReady(part)
	}
	return part, err
}

func (l *lookup) awaitReady(part *replica.Partition) {
	ctx, cancel := context.WithDeadline(l.ctx, l.until)
	defer cancel()
	_ = part.Ready(ctx) // what it is by then, the request itself will find out
}

// located is hosted without the wait.
func (b *Broker) located(topic *metadata.Topic, partition int32) (*replica.Partition, error) {
	if part, err := b.replicas.Get(topic.ID, partition); err == nil {
		return part, nil
	}
	p := topic.Partition(partition)
	if p == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	return nil, &replica.NotLeaderError{Leader: p.Leader, LeaderEpoch: p.LeaderEpoch}
}
