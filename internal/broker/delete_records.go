package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/replica"
	"ottla/internal/transport"
	"ottla/internal/wake"
)

// deleteRecords raises log start offsets, and answers when all replicas that are alive have followed or the request's time
// is over (KIP-107).
func (b *Broker) deleteRecords(ctx context.Context, r *transport.Request) (transport.Response, transport.Pending) {
	req := r.Body.(*kmsg.DeleteRecordsRequest)
	d := &deletingRecords{resp: req.ResponseKind().(*kmsg.DeleteRecordsResponse), deadline: time.Now().Add(time.Duration(req.TimeoutMillis) * time.Millisecond)}
	l := b.lookup(ctx, time.Now())
	partitions := 0
	for i := range req.Topics {
		partitions += len(req.Topics[i].Partitions)
	}
	d.waits = make([]deleteWait, 0, partitions) // never grown: a subscription must stay where it is
	d.resp.Topics = make([]kmsg.DeleteRecordsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, out := &req.Topics[i], &d.resp.Topics[i]
		out.Topic = t.Topic
		out.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			rp := &out.Partitions[j]
			rp.Partition, rp.LowWatermark = t.Partitions[j].Partition, -1
			part, err := l.deletable(t.Topic, rp.Partition)
			if err == nil {
				err = d.delete(part, t.Partitions[j].Offset, rp, r.Wake)
			}
			rp.ErrorCode = code(err)
		}
	}
	if resp, done := d.Poll(time.Now()); done {
		return resp, nil
	}
	return nil, d
}

func (l *lookup) deletable(topic string, partition int32) (*replica.Partition, error) {
	if !l.authorizeTopic(l.ctx, auth.Delete, topic) {
		return nil, kerr.TopicAuthorizationFailed
	}
	t := l.img.TopicByName(topic)
	if t == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	return l.hosted(t, partition)
}

// deletingRecords is a DeleteRecords that waits for followers.
type deletingRecords struct {
	resp     *kmsg.DeleteRecordsResponse
	deadline time.Time
	waits    []deleteWait
}

// A deleteWait is a partition whose low watermark has yet to come to an offset.
type deleteWait struct {
	replica.Subscription
	part *replica.Partition
	want int64
	out  *kmsg.DeleteRecordsResponseTopicPartition
	over bool
}

func (d *deletingRecords) delete(part *replica.Partition, offset int64, out *kmsg.DeleteRecordsResponseTopicPartition, woken wake.Func) error {
	want, low, err := part.DeleteRecords(offset)
	if err != nil {
		return err
	}
	if out.LowWatermark = low; low >= want {
		return nil
	}
	d.waits = append(d.waits, deleteWait{part: part, want: want, out: out})
	w := &d.waits[len(d.waits)-1]
	part.Subscribe(&w.Subscription, true, woken)
	return nil
}

// Deadline implements transport.Pending.
func (d *deletingRecords) Deadline() time.Time { return d.deadline }

// Poll implements transport.Pending.
func (d *deletingRecords) Poll(now time.Time) (transport.Response, bool) {
	expired := !now.Before(d.deadline)
	waiting := false
	for i := range d.waits {
		w := &d.waits[i]
		if w.over {
			continue
		}
		w.Arm()
		low, err := w.part.LowWatermark()
		if err == nil && low < w.want {
			if !expired {
				waiting = true
				continue
			}
			err = kerr.RequestTimedOut
		}
		w.out.LowWatermark, w.out.ErrorCode, w.over = low, code(err), true
		w.Close()
	}
	if waiting {
		return nil, false
	}
	return d.resp, true
}

// Cancel implements transport.Pending.
func (d *deletingRecords) Cancel() {
	for i := range d.waits {
		d.waits[i].Close()
	}
}
