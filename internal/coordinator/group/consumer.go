package group

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol/records"
)

// A consumerGroup is a group whose coordinator assigns the partitions (KIP-848).
type consumerGroup struct {
	id      string
	members map[string]*consumerMember
}

type consumerMember struct{}

type consumerState int8

func (consumerState) String() string { return "Empty" }

func migrationPolicy(name string) MigrationPolicy {
	switch strings.ToUpper(name) {
	case "UPGRADE":
		return MigrationPolicy{Upgrade: true}
	case "DOWNGRADE":
		return MigrationPolicy{Downgrade: true}
	case "BIDIRECTIONAL":
		return MigrationPolicy{true, true}
	}
	return MigrationPolicy{}
}

func (g *consumerGroup) state() consumerState           { return 0 }
func (g *consumerGroup) isSubscribed(topic string) bool { return false }
func (g *consumerGroup) checkCommit(*kmsg.OffsetCommitRequest) *kerr.Error {
	return kerr.UnknownMemberID
}
func (g *consumerGroup) checkFetch(*kmsg.OffsetFetchRequestGroup) *kerr.Error { return nil }

func (m *Machine) joinConsumerGroup(op Op, req *kmsg.JoinGroupRequest, g *consumerGroup) {
	m.answer(op.Ticket, joinAnswer{code: kerr.InconsistentGroupProtocol.Code}.response(req.Version))
}
func (m *Machine) syncConsumerGroup(req *kmsg.SyncGroupRequest, g *consumerGroup) *kmsg.SyncGroupResponse {
	return syncAnswer{code: kerr.UnknownMemberID.Code}.response(req.Version)
}
func (m *Machine) heartbeatConsumerGroup(req *kmsg.HeartbeatRequest, g *consumerGroup) *kerr.Error {
	return kerr.UnknownMemberID
}
func (m *Machine) leaveConsumerGroup(g *consumerGroup, members []kmsg.LeaveGroupRequestMember) []int16 {
	return make([]int16, len(members))
}
func (m *Machine) deleteConsumer(g *consumerGroup)           {}
func (m *Machine) stopConsumer(g *consumerGroup)             {}
func (m *Machine) consumerLoaded(g *consumerGroup)           {}
func (m *Machine) fireConsumer(g *consumerGroup, t timer)    {}
func (m *Machine) consumersSeeImage()                        {}
func (m *Machine) replayConsumer(key, value records.Message) {}
func (m *Machine) consumerGroupHeartbeat(op Op, req *kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatResponse {
	resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	return resp
}
func (m *Machine) consumerGroupDescribe(req *kmsg.ConsumerGroupDescribeRequest) *kmsg.ConsumerGroupDescribeResponse {
	resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	for _, id := range req.Groups {
		d := kmsg.NewConsumerGroupDescribeResponseGroup()
		d.Group, d.ErrorCode = id, kerr.GroupIDNotFound.Code
		resp.Groups = append(resp.Groups, d)
	}
	return resp
}
