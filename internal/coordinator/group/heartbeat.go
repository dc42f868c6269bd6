package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// heartbeat notes that a member is alive and tells it of a rebalance.
func (m *Machine) heartbeat(req *kmsg.HeartbeatRequest) *kmsg.HeartbeatResponse {
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	resp.ErrorCode = codeOf(m.checkHeartbeat(req))
	return resp
}

func (m *Machine) checkHeartbeat(req *kmsg.HeartbeatRequest) *kerr.Error {
	if req.Group == "" {
		return kerr.InvalidGroupID
	}
	if g := m.groups[req.Group]; g != nil && g.consumer != nil {
		return m.heartbeatConsumerGroup(req, g.consumer)
	}
	g := m.classic(req.Group)
	if g == nil {
		return kerr.UnknownMemberID
	}
	mem, err := g.validate(req.MemberID, req.InstanceID)
	if err != nil {
		return err
	}
	if req.Generation != g.generation {
		return kerr.IllegalGeneration
	}
	m.hear(g, mem)
	if g.state == statePreparingRebalance {
		return kerr.RebalanceInProgress
	}
	return nil
}
