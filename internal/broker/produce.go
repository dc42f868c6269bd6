package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/metadata"
	"ottla/internal/record"
	"ottla/internal/replica"
	"ottla/internal/transport"
)

// The values of acks.
const (
	acksNone   int16 = 0
	acksLeader int16 = 1
	acksAll    int16 = -1
)

// adminClientID is the client id under which Apache's own tools may write to internal topics (AdminUtils).
const adminClientID = "__admin_client"

// produce appends each partition's batch and answers: at once, or with acks=all when the high watermark has passed the
// batches or the request's time is over. Everything is checked before anything of a partition is written; a batch that is
// refused costs its own partition, not the others.
func (b *Broker) produce(ctx context.Context, r *transport.Request) (transport.Response, transport.Pending) {
	req := r.Body.(*kmsg.ProduceRequest)
	now := time.Now()
	p := produces.Get().(*producing)
	p.lookup, p.r, p.req, p.now = b.lookup(ctx, now), r, req, now
	if err := p.checkRequest(); err != nil {
		p.recycle()
		r.ErrorCode = code(err)
		if req.Acks == acksNone {
			return transport.Close("produce with acks=0: " + err.Error()), nil
		}
		return failed[*kmsg.ProduceResponse](req, err), nil
	}
	waiting := p.append()
	r.ReleaseFrame()
	if waiting {
		return nil, p
	}
	resp, firstError := p.resp, p.firstError
	p.recycle()
	switch {
	case req.Acks != acksNone:
		return resp, nil
	case firstError != nil:
		return transport.Close("produce with acks=0: " + firstError.Error()), nil // the only way to tell the client
	}
	return nil, nil
}

// producing is one Produce request on its way. It is a transport.Pending while batches wait for the high watermark, and is
// used again once the answer is known.
type producing struct {
	lookup
	r    *transport.Request
	req  *kmsg.ProduceRequest
	now  time.Time
	resp *kmsg.ProduceResponse

	waits      []produceWait
	firstError error
}

var produces = sync.Pool{New: func() any { return new(producing) }}

// recycle makes p, none of whose batches waits, ready for another request.
func (p *producing) recycle() {
	clear(p.waits)
	*p = producing{waits: p.waits[:0]}
	produces.Put(p)
}

// A produceWait is a batch that was appended and waits for the high watermark.
type produceWait struct {
	replica.Waiter
	over bool
	out  *kmsg.ProduceResponseTopicPartition
}

// checkRequest refuses what is wrong with the request as a whole.
func (p *producing) checkRequest() error {
	switch {
	case p.req.Acks != acksAll && p.req.Acks != acksLeader && p.req.Acks != acksNone:
		return kerr.InvalidRequiredAcks
	case p.req.TransactionID != nil && !p.authorize(p.ctx, auth.Write, auth.TransactionalID, *p.req.TransactionID):
		return kerr.TransactionalIDAuthorizationFailed
	}
	return nil
}

// append appends all batches and reports whether any waits for the high watermark.
func (p *producing) append() (waiting bool) {
	partitions := 0
	for i := range p.req.Topics {
		partitions += len(p.req.Topics[i].Partitions)
	}
	answer := produceAnswers.Get().(*produceAnswer)
	outs := answer.begin(p.req.Version, len(p.req.Topics), partitions)
	p.resp = &answer.resp
	p.r.Lend(answer)
	if p.req.Acks == acksAll && cap(p.waits) < partitions {
		p.waits = make([]produceWait, 0, partitions) // never grown: a waiter must stay where it is
	}
	for i := range p.req.Topics {
		t, out := &p.req.Topics[i], &p.resp.Topics[i]
		n := len(t.Partitions)
		out.Topic, out.TopicID, out.Partitions, outs = t.Topic, t.TopicID, outs[:n:n], outs[n:]
		if p.appendTopic(t, out.Partitions) {
			waiting = true
		}
	}
	return waiting
}

// A produceAnswer is an answer and the arrays it is made of.
type produceAnswer struct {
	resp       kmsg.ProduceResponse
	topics     []kmsg.ProduceResponseTopic
	partitions []kmsg.ProduceResponseTopicPartition
}

var produceAnswers = sync.Pool{New: func() any { return new(produceAnswer) }}

// begin makes the answer one about so many topics, and returns room for all their partitions. Nothing is filled in.
func (a *produceAnswer) begin(version int16, topics, partitions int) []kmsg.ProduceResponseTopicPartition {
	a.topics, a.partitions = slices.Grow(a.topics, topics)[:topics], slices.Grow(a.partitions, partitions)[:partitions]
	a.resp.Version, a.resp.Topics = version, a.topics
	a.resp.Default()
	return a.partitions
}

// Recycle implements transport.Recycler.
func (a *produceAnswer) Recycle() {
	clear(a.topics)
	clear(a.partitions)
	*a = produceAnswer{topics: a.topics[:0], partitions: a.partitions[:0]}
	produceAnswers.Put(a)
}

func (p *producing) appendTopic(t *kmsg.ProduceRequestTopic, outs []kmsg.ProduceResponseTopicPartition) (waiting bool) {
	topic, err := p.topic(t)
	for i := range t.Partitions {
		out := &outs[i]
		out.Default()
		out.Partition, out.BaseOffset, out.LogAppendTime, out.LogStartOffset = t.Partitions[i].Partition, -1, -1, -1
		if err != nil {
			p.refuse(out, err)
			continue
		}
		over, err := p.appendPartition(topic, &t.Partitions[i], out)
		if err != nil {
			p.refuse(out, err)
		}
		waiting = waiting || !over
	}
	return waiting
}

// topic finds the topic that a part of the request is for, and says why it may not be written to.
func (p *producing) topic(t *kmsg.ProduceRequestTopic) (*metadata.Topic, error) {
	byID := p.req.Version >= 13
	topic := topicIn(p.img, byID, t.Topic, t.TopicID)
	switch {
	case topic == nil && byID:
		return nil, kerr.UnknownTopicID
	case topic == nil && !p.authorizeTopic(p.ctx, auth.Write, t.Topic):
		return nil, kerr.TopicAuthorizationFailed
	case topic == nil:
		return nil, kerr.UnknownTopicOrPartition
	case !p.authorizeTopic(p.ctx, auth.Write, topic.Name):
		return nil, kerr.TopicAuthorizationFailed
	case isInternal(topic.Name) && auth.From(p.ctx).ClientID != adminClientID:
		return nil, refusal(kerr.InvalidTopicException, "Cannot append to internal topic %s", topic.Name)
	}
	return topic, nil
}

// appendPartition checks and appends one partition's batch. It reports false when the answer has to wait.
func (p *producing) appendPartition(topic *metadata.Topic, in *kmsg.ProduceRequestTopicPartition, out *kmsg.ProduceResponseTopicPartition) (over bool, err error) {
	part, err := p.hosted(topic, in.Partition)
	if err != nil {
		return true, err
	}
	rules := part.Config().Produce
	rules.Now, rules.NoZstd = p.now.UnixMilli(), p.req.Version < 7
	v, err := rules.Validate(in.Records)
	if err != nil {
		return true, err
	}
	if v.Header.Attributes.Transactional() {
		if err := p.checkTransaction(); err != nil {
			return true, err
		}
	}
	a, err := part.Append(v.Batch, v.Header, replica.AppendOptions{LeaderEpoch: -1, Acks: p.req.Acks, Now: rules.Now, Later: p.r.Later()})
	if err != nil {
		return true, err
	}
	out.BaseOffset, out.LogStartOffset = a.FirstOffset, a.StartOffset
	if rules.TimestampType == record.LogAppendTime && !a.Duplicate {
		out.LogAppendTime = rules.Now
	}
	if p.req.Acks != acksAll {
		return true, nil
	}
	p.waits = append(p.waits, produceWait{out: out})
	w := &p.waits[len(p.waits)-1]
	if w.over = part.Await(&w.Waiter, a.LeaderEpoch, a.LastOffset+1, p.r.Wake); w.over {
		_, err = w.Done()
	}
	return w.over, err
}

// checkTransaction says why a transactional batch can not be taken: there is no transaction coordinator yet.
func (p *producing) checkTransaction() error {
	if p.req.TransactionID == nil {
		return kerr.TransactionalIDAuthorizationFailed
	}
	return refusal(kerr.NotEnoughReplicas, "The transaction coordinator of %s is not available.", *p.req.TransactionID)
}

// refuse answers for a partition with an error: its code, its text, the records at fault, and the leader if that is
// another.
func (p *producing) refuse(out *kmsg.ProduceResponseTopicPartition, err error) {
	if p.firstError == nil {
		p.firstError = err
	}
	out.BaseOffset, out.LogAppendTime, out.LogStartOffset = -1, -1, -1
	out.ErrorCode, out.ErrorMessage = codeAndText(err)
	for _, e := range recordErrors(err) {
		re := kmsg.NewProduceResponseTopicPartitionErrorRecord()
		re.RelativeOffset, re.ErrorMessage = e.Index, &e.Message
		out.ErrorRecords = append(out.ErrorRecords, re)
	}
	if leader, epoch, ok := leaderOf(err); ok {
		out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = leader, epoch
		p.nameNode(leader)
	}
	if p.r.ErrorCode == 0 {
		p.r.ErrorCode = out.ErrorCode
	}
	if errors.Is(err, kerr.UnknownServerError) || out.ErrorCode == kerr.UnknownServerError.Code {
		unexpected(p.logger, "append", err)
	}
}

// nameNode adds where a leader is reached, once (KIP-951).
func (p *producing) nameNode(id int32) {
	for i := range p.resp.Brokers {
		if p.resp.Brokers[i].NodeID == id {
			return
		}
	}
	br := p.img.Broker(id)
	if br == nil {
		return
	}
	if e, ok := br.Endpoint(auth.From(p.ctx).Listener); ok {
		n := kmsg.NewProduceResponseBroker()
		n.NodeID, n.Host, n.Port, n.Rack = id, e.Host, int32(e.Port), br.Rack
		p.resp.Brokers = append(p.resp.Brokers, n)
	}
}

// Deadline implements transport.Pending.
func (p *producing) Deadline() time.Time {
	return p.now.Add(time.Duration(p.req.TimeoutMillis) * time.Millisecond)
}

// Poll implements transport.Pending: it answers when all batches are committed, lost or out of time.
func (p *producing) Poll(now time.Time) (transport.Response, bool) {
	expired := !now.Before(p.Deadline())
	for i := range p.waits {
		w := &p.waits[i]
		if w.over {
			continue
		}
		over, err := w.Done()
		switch {
		case over:
			w.over = true
		case expired:
			w.Cancel()
			w.over, err = true, kerr.RequestTimedOut
		default:
			return nil, false
		}
		if err != nil {
			p.refuse(w.out, err)
		}
	}
	resp := p.resp
	p.recycle()
	return resp, true
}

// Cancel implements transport.Pending.
func (p *producing) Cancel() {
	for i := range p.waits {
		p.waits[i].Cancel()
	}
	p.recycle()
}
