package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol/records"
)

// syncGroup gives a member its assignment; the leader brings those of all.
func (m *Machine) syncGroup(op Op, req *kmsg.SyncGroupRequest) {
	refuse := func(err *kerr.Error) {
		m.answer(op.Ticket, syncAnswer{code: err.Code}.response(req.Version))
	}
	if req.Group == "" {
		refuse(kerr.InvalidGroupID)
		return
	}
	if g := m.groups[req.Group]; g != nil && g.consumer != nil {
		m.answer(op.Ticket, m.syncConsumerGroup(req, g.consumer))
		return
	}
	g := m.classic(req.Group)
	if g == nil || g.state == stateEmpty {
		refuse(kerr.UnknownMemberID)
		return
	}
	mem, err := g.validateSync(req)
	if err != nil {
		refuse(err)
		return
	}
	switch g.state {
	case statePreparingRebalance:
		refuse(kerr.RebalanceInProgress)
	case stateCompletingRebalance:
		m.answerSync(mem, syncAnswer{code: kerr.RebalanceInProgress.Code}) // one that this one replaces
		mem.sync = &parked{op.Ticket, req.Version}
		m.synced(g, mem)
		if g.isLeader(mem.id) {
			m.assign(g, req.GroupAssignment)
		}
	case stateStable:
		m.synced(g, mem)
		m.answer(op.Ticket, g.assigned(mem).response(req.Version))
	}
}

func (g *classicGroup) validateSync(req *kmsg.SyncGroupRequest) (*classicMember, *kerr.Error) {
	mem, err := g.validate(req.MemberID, req.InstanceID)
	if err != nil {
		return nil, err
	}
	differs := func(said, is *string) bool { return said != nil && is != nil && *said != *is }
	switch {
	case req.Generation != g.generation:
		return nil, kerr.IllegalGeneration
	case differs(req.ProtocolType, g.protocolType) || differs(req.Protocol, g.protocol):
		return nil, kerr.InconsistentGroupProtocol
	}
	return mem, nil
}

// synced notes that a member asked for its assignment.
func (m *Machine) synced(g *classicGroup, mem *classicMember) {
	delete(g.pendingSync, mem.id)
	if len(g.pendingSync) == 0 {
		m.timers.cancel(timer{syncTimer, g.id, ""})
	}
}

// assign ends the rebalance: the assignments become durable and go to all who wait for them.
func (m *Machine) assign(g *classicGroup, assignments []kmsg.SyncGroupRequestGroupAssignment) {
	of := make(map[string][]byte, len(assignments))
	for _, a := range assignments {
		of[a.MemberID] = a.MemberAssignment
	}
	if !m.persist(g, func(mem *classicMember) []byte { return of[mem.id] }) {
		m.answerSyncs(g, func(*classicMember) syncAnswer { return syncAnswer{code: kerr.UnknownServerError.Code} })
		m.prepareRebalance(g)
		return
	}
	m.answerSyncs(g, g.assigned)
}

// persist writes the group with these assignments, and is false if no record can hold it.
func (m *Machine) persist(g *classicGroup, assignment func(*classicMember) []byte) bool {
	r := g.record(assignment)
	if len(records.AppendValue(nil, r.Value, r.Version)) > m.settings.MaxRecordBytes {
		return false
	}
	m.emit(r)
	return true
}
