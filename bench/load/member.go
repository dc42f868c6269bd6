//go:build linux

package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A group is what its members have in common.
type group struct {
	id        string
	addr      string
	topic     topic
	protocol  string
	heartbeat time.Duration // of classic members
	board     *board
	calls     *calls
	dialing   chan struct{} // bounds how many members connect at a time
	park      chan struct{} // closed: members stop between two heartbeats and keep their connection
}

// calls counts what all members asked for.
type calls struct {
	joins      atomic.Int64 // JoinGroup, or ConsumerGroupHeartbeat of epoch 0
	syncs      atomic.Int64 // SyncGroup
	heartbeats atomic.Int64
	fenced     atomic.Int64 // answers that made a member start over: unknown, of an old generation, fenced
}

// maxDialing keeps the listener's queue from overflowing when thousands of members start at once.
const maxDialing = 64

// What the Java consumer sends unless told otherwise.
const (
	sessionTimeoutMs   = 45_000  // session.timeout.ms
	rebalanceTimeoutMs = 300_000 // max.poll.interval.ms
)

// A member is one member's life, from a connection of its own to its leaving.
type member interface {
	// run joins the group and stays in it until leave is closed; then it leaves. It returns early, with its connection open and no
	// request under way, when the group's park is closed; and with an error if ctx ends or nothing can be done about an answer.
	run(ctx context.Context, leave <-chan struct{}) error
	// commitRequest and heartbeatRequest make the requests of a member that is parked.
	commitRequest(offset int64) *kmsg.OffsetCommitRequest
	heartbeatRequest() kmsg.Request
	heartbeatEvery() time.Duration
	link() *conn
	partitions() []int32
}

func (g *group) newMember() member {
	if g.protocol == "consumer" {
		return &consumerMember{group: g}
	}
	return &classicMember{group: g}
}

// dial connects a member.
func (g *group) dial(ctx context.Context) (*conn, error) {
	select {
	case g.dialing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-g.dialing }()
	return connect(ctx, g.addr)
}

// A nap is why a member's pause between two heartbeats ended.
type nap int

const (
	napOver nap = iota
	napLeave
	napPark
)

// nap waits for the next heartbeat.
func (g *group) nap(ctx context.Context, d time.Duration, leave <-chan struct{}) (nap, error) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return napOver, nil
	case <-leave:
		return napLeave, nil
	case <-g.park:
		return napPark, nil
	case <-ctx.Done():
		return napOver, ctx.Err()
	}
}

// left reports whether a member is to leave.
func left(leave <-chan struct{}) bool {
	select {
	case <-leave:
		return true
	default:
		return false
	}
}

// commitOf is a commit of all that a member owns. Its version is the first that both protocols have.
func (g *group) commitOf(id string, epoch int32, partitions []int32, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 9, g.id, id, epoch
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = g.topic.name
	for _, p := range partitions {
		tp := kmsg.NewOffsetCommitRequestTopicPartition()
		tp.Partition, tp.Offset, tp.LeaderEpoch, tp.Metadata = p, offset, -1, kmsg.StringPtr("")
		t.Partitions = append(t.Partitions, tp)
	}
	req.Topics = append(req.Topics, t)
	return req
}
