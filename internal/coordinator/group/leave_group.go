package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leaveGroup takes members out: the one of versions 0 to 2, or several, static ones by their instance id alone if an
// administrator removes them.
func (m *Machine) leaveGroup(req *kmsg.LeaveGroupRequest) *kmsg.LeaveGroupResponse {
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	if req.Group == "" {
		resp.ErrorCode = kerr.InvalidGroupID.Code
		return resp
	}
	members := req.Members
	if req.Version < 3 {
		members = []kmsg.LeaveGroupRequestMember{{MemberID: req.MemberID}}
	}
	var codes []int16
	switch g := m.groups[req.Group]; {
	case g == nil:
		codes = make([]int16, len(members))
		for i := range codes {
			codes[i] = kerr.UnknownMemberID.Code
		}
	case g.consumer != nil:
		codes = m.leaveConsumerGroup(g.consumer, members)
	default:
		codes = m.leaveClassicGroup(g.classic, members)
	}
	if req.Version < 3 {
		resp.ErrorCode = codes[0]
		return resp
	}
	resp.Members = make([]kmsg.LeaveGroupResponseMember, len(members))
	for i, mem := range members {
		resp.Members[i] = kmsg.LeaveGroupResponseMember{MemberID: mem.MemberID, InstanceID: mem.InstanceID, ErrorCode: codes[i]}
	}
	return resp
}

func (m *Machine) leaveClassicGroup(g *classicGroup, members []kmsg.LeaveGroupRequestMember) []int16 {
	codes := make([]int16, len(members))
	left := false
	for i, who := range members {
		err := m.leave(g, who)
		codes[i] = codeOf(err)
		left = left || err == nil
	}
	if left {
		m.afterRemoval(g)
	}
	return codes
}

func (m *Machine) leave(g *classicGroup, who kmsg.LeaveGroupRequestMember) *kerr.Error {
	if who.MemberID == "" {
		if who.InstanceID == nil {
			return kerr.UnknownMemberID
		}
		id, ok := g.static[*who.InstanceID]
		if !ok {
			return kerr.UnknownMemberID
		}
		m.removeMember(g, g.members[id])
		return nil
	}
	if g.isPending(who.MemberID) {
		m.timers.cancel(timer{sessionTimer, g.id, who.MemberID})
		g.remove(who.MemberID)
		return nil
	}
	mem, err := g.validate(who.MemberID, who.InstanceID)
	if err != nil {
		return err
	}
	m.removeMember(g, mem)
	return nil
}
