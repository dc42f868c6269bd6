//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A classicMember behaves as the Java consumer does with group.protocol=classic and the CooperativeStickyAssignor: it joins,
// syncs, and sends a heartbeat each interval; told of a rebalance it joins again and keeps what it owns; what an assignment
// takes from it it gives back at once, and joins again. As it polls for nothing it learns of a rebalance by its heartbeats
// alone. All its requests go over one connection, one at a time, so a member that is to leave while its JoinGroup waits for the
// others leaves when that is answered.
type classicMember struct {
	group      *group
	conn       *conn
	seat       *seat
	id         string
	generation int32
	owned      []int32
}

const assignorName = "cooperative-sticky"

func (m *classicMember) link() *conn                   { return m.conn }
func (m *classicMember) partitions() []int32           { return m.owned }
func (m *classicMember) heartbeatEvery() time.Duration { return m.group.heartbeat }

func (m *classicMember) run(ctx context.Context, leave <-chan struct{}) (err error) {
	m.seat, m.generation = m.group.board.enter(), -1
	if m.conn, err = m.group.dial(ctx); err != nil {
		return err
	}
	for {
		settled, err := m.rebalance(ctx)
		if err != nil {
			return err
		}
		if left(leave) {
			return m.leave()
		}
		if !settled {
			continue
		}
		why, err := m.stay(ctx, leave)
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

// rebalance joins and syncs once. The member is settled if it is in a generation now and has nothing to give back.
func (m *classicMember) rebalance(ctx context.Context) (settled bool, err error) {
	req := m.joinRequest()
	m.group.calls.joins.Add(1)
	resp, err := m.conn.call(req)
	if err != nil {
		return false, err
	}
	join := resp.(*kmsg.JoinGroupResponse)
	if join.ErrorCode == kerr.MemberIDRequired.Code {
		m.id = join.MemberID
		return false, nil
	}
	if join.ErrorCode != 0 {
		return false, m.refused(ctx, req, join.ErrorCode)
	}
	m.id, m.generation = join.MemberID, join.Generation
	sync, err := m.syncRequest(join)
	if err != nil {
		return false, err
	}
	m.group.calls.syncs.Add(1)
	if resp, err = m.conn.call(sync); err != nil {
		return false, err
	}
	answer := resp.(*kmsg.SyncGroupResponse)
	if answer.ErrorCode != 0 {
		return false, m.refused(ctx, sync, answer.ErrorCode)
	}
	assigned, err := m.parseAssignment(answer.MemberAssignment)
	if err != nil {
		return false, err
	}
	settled = !slices.ContainsFunc(m.owned, func(p int32) bool { return !slices.Contains(assigned, p) })
	m.owned = assigned
	m.group.board.hold(m.seat, m.generation, m.owned, settled)
	return settled, nil
}

// stay sends heartbeats until there is something else to do.
func (m *classicMember) stay(ctx context.Context, leave <-chan struct{}) (nap, error) {
	for {
		why, err := m.group.nap(ctx, m.group.heartbeat, leave)
		if err != nil || why != napOver {
			return why, err
		}
		req := m.heartbeatRequest()
		m.group.calls.heartbeats.Add(1)
		resp, err := m.conn.call(req)
		if err != nil {
			return napOver, err
		}
		if code := resp.(*kmsg.HeartbeatResponse).ErrorCode; code != 0 {
			return napOver, m.refused(ctx, req, code)
		}
	}
}

// refused does what the Java consumer does about an error before it joins again; an error means that there is nothing to do.
func (m *classicMember) refused(ctx context.Context, req kmsg.Request, code int16) error {
	switch code {
	case kerr.RebalanceInProgress.Code:
		return nil
	case kerr.UnknownMemberID.Code:
		m.id = ""
	case kerr.IllegalGeneration.Code:
	default:
		if retriable(code) {
			return sleep(ctx, pause)
		}
		return unexpected(req, code)
	}
	m.group.calls.fenced.Add(1)
	m.generation, m.owned = -1, nil
	m.group.board.hold(m.seat, 0, nil, false)
	return nil
}

// leave gives back all and says so.
func (m *classicMember) leave() error {
	defer m.conn.Close()
	m.group.board.leave(m.seat)
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group = 5, m.group.id
	lm := kmsg.NewLeaveGroupRequestMember()
	lm.MemberID, lm.Reason = m.id, kmsg.StringPtr("the consumer is being closed")
	req.Members = append(req.Members, lm)
	resp, err := m.conn.call(req)
	if err != nil {
		return err
	}
	answer := resp.(*kmsg.LeaveGroupResponse)
	code := answer.ErrorCode
	if code == 0 && len(answer.Members) > 0 {
		code = answer.Members[0].ErrorCode
	}
	if code != 0 && code != kerr.UnknownMemberID.Code {
		return unexpected(req, code)
	}
	return nil
}

func (m *classicMember) joinRequest() *kmsg.JoinGroupRequest {
	sub := kmsg.NewConsumerMemberMetadata()
	sub.Version, sub.Topics, sub.Generation = 3, []string{m.group.topic.name}, m.generation
	if len(m.owned) > 0 {
		sub.OwnedPartitions = []kmsg.ConsumerMemberMetadataOwnedPartition{{Topic: m.group.topic.name, Partitions: m.owned}}
	}
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = assignorName, sub.AppendTo(nil)
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.ProtocolType = 9, m.group.id, m.id, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = sessionTimeoutMs, rebalanceTimeoutMs
	req.Protocols = append(req.Protocols, p)
	return req
}

// syncRequest asks for the assignment; the leader brings it along for all.
func (m *classicMember) syncRequest(join *kmsg.JoinGroupResponse) (*kmsg.SyncGroupRequest, error) {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 5, m.group.id, m.id, m.generation
	req.ProtocolType, req.Protocol = join.ProtocolType, join.Protocol
	if join.LeaderID != m.id || join.SkipAssignment {
		return req, nil
	}
	claims := make([]claim, len(join.Members))
	for i, other := range join.Members {
		var sub kmsg.ConsumerMemberMetadata
		if err := sub.ReadFrom(other.ProtocolMetadata); err != nil {
			return nil, fmt.Errorf("subscription of member %s: %w", other.MemberID, err)
		}
		claims[i] = claim{member: other.MemberID, generation: sub.Generation}
		for _, o := range sub.OwnedPartitions {
			claims[i].owned = append(claims[i].owned, o.Partitions...)
		}
	}
	for i, partitions := range sticky(claims, m.group.topic.partitions) {
		a := kmsg.NewConsumerMemberAssignment()
		a.Version = 1
		if len(partitions) > 0 {
			a.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: m.group.topic.name, Partitions: partitions}}
		}
		ga := kmsg.NewSyncGroupRequestGroupAssignment()
		ga.MemberID, ga.MemberAssignment = claims[i].member, a.AppendTo(nil)
		req.GroupAssignment = append(req.GroupAssignment, ga)
	}
	return req, nil
}

func (m *classicMember) parseAssignment(b []byte) (partitions []int32, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	var a kmsg.ConsumerMemberAssignment
	if err := a.ReadFrom(b); err != nil {
		return nil, fmt.Errorf("assignment of member %s: %w", m.id, err)
	}
	for _, t := range a.Topics {
		partitions = append(partitions, t.Partitions...)
	}
	return partitions, nil
}

func (m *classicMember) heartbeatRequest() kmsg.Request {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 4, m.group.id, m.id, m.generation
	return req
}

func (m *classicMember) commitRequest(offset int64) *kmsg.OffsetCommitRequest {
	return m.group.commitOf(m.id, m.generation, m.owned, offset)
}
