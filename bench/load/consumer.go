//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A consumerMember behaves as the Java consumer does with group.protocol=consumer (KIP-848): it sends a heartbeat each interval
// that the coordinator asks for, says what it owns only when that is new, and then at once; what an assignment takes from it
// it gives back at once.
type consumerMember struct {
	group    *group
	conn     *conn
	seat     *seat
	id       string
	epoch    int32
	owned    []int32
	interval time.Duration
	news     bool // what it owns, and has not said so
}

func (m *consumerMember) link() *conn                   { return m.conn }
func (m *consumerMember) partitions() []int32           { return m.owned }
func (m *consumerMember) heartbeatEvery() time.Duration { return m.interval }

func (m *consumerMember) run(ctx context.Context, leave <-chan struct{}) (err error) {
	m.seat, m.id = m.group.board.enter(), newID()
	if m.conn, err = m.group.dial(ctx); err != nil {
		return err
	}
	for {
		if err := m.beat(ctx); err != nil {
			return err
		}
		if m.news || m.epoch == 0 {
			if left(leave) {
				return m.leave()
			}
			continue
		}
		why, err := m.group.nap(ctx, m.interval, leave)
		switch {
		case err != nil:
			return err
		case why == napLeave:
			return m.leave()
		case why == napPark:
			return nil
		}
	}
}

// newID is a random id in the form of Kafka's Uuid.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// beat sends a heartbeat and takes over what it is answered.
func (m *consumerMember) beat(ctx context.Context) error {
	if m.epoch == 0 {
		m.group.calls.joins.Add(1)
	} else {
		m.group.calls.heartbeats.Add(1)
	}
	req := m.request()
	resp, err := m.conn.call(req)
	if err != nil {
		return err
	}
	m.news = false
	answer := resp.(*kmsg.ConsumerGroupHeartbeatResponse)
	switch code := answer.ErrorCode; {
	case code == kerr.FencedMemberEpoch.Code || code == kerr.UnknownMemberID.Code:
		m.group.calls.fenced.Add(1)
		m.epoch, m.owned = 0, nil
		m.group.board.hold(m.seat, 0, nil, false)
		return nil
	case retriable(code):
		m.news = true
		return sleep(ctx, pause)
	case code != 0:
		return unexpected(req, code)
	}
	moved := m.epoch != answer.MemberEpoch
	m.epoch, m.interval = answer.MemberEpoch, time.Duration(answer.HeartbeatIntervalMillis)*time.Millisecond
	if a := answer.Assignment; a != nil {
		var assigned []int32
		for _, t := range a.Topics {
			assigned = append(assigned, t.Partitions...)
		}
		slices.Sort(assigned)
		m.news = !slices.Equal(assigned, m.owned)
		m.owned = assigned
	}
	if moved || m.news {
		m.group.board.hold(m.seat, m.epoch, m.owned, true)
	}
	return nil
}

// request is the next heartbeat.
func (m *consumerMember) request() *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.MemberEpoch = 1, m.group.id, m.id, m.epoch
	if m.epoch == 0 {
		req.RebalanceTimeoutMillis, req.SubscribedTopicNames = rebalanceTimeoutMs, []string{m.group.topic.name}
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		return req
	}
	if m.news {
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		if len(m.owned) > 0 {
			req.Topics = append(req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: m.group.topic.id, Partitions: m.owned})
		}
	}
	return req
}

// leave gives back all and says so.
func (m *consumerMember) leave() error {
	defer m.conn.Close()
	m.group.board.leave(m.seat)
	m.epoch, m.news = -1, false
	req := m.request()
	resp, err := m.conn.call(req)
	if err != nil {
		return err
	}
	if code := resp.(*kmsg.ConsumerGroupHeartbeatResponse).ErrorCode; code != 0 && code != kerr.UnknownMemberID.Code {
		return unexpected(req, code)
	}
	return nil
}

func (m *consumerMember) heartbeatRequest() kmsg.Request { return m.request() }

func (m *consumerMember) commitRequest(offset int64) *kmsg.OffsetCommitRequest {
	return m.group.commitOf(m.id, m.epoch, m.owned, offset)
}
