package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// joinGroup lets a member into a classic group, or asks it to come again with an id (KIP-394). Most answers are parked
// until the generation begins.
func (m *Machine) joinGroup(op Op, req *kmsg.JoinGroupRequest) {
	refuse := func(err *kerr.Error, member string) {
		m.answer(op.Ticket, joinAnswer{code: err.Code, member: member}.response(req.Version))
	}
	if req.Group == "" {
		refuse(kerr.InvalidGroupID, req.MemberID)
		return
	}
	req.Protocols = distinctProtocols(req.Protocols)
	if err := m.checkJoinSize(op, req); err != nil {
		refuse(err, "")
		return
	}
	if s := ms(req.SessionTimeoutMillis); s < m.settings.MinSessionTimeout || s > m.settings.MaxSessionTimeout {
		refuse(kerr.InvalidSessionTimeout, req.MemberID)
		return
	}
	if g := m.groups[req.Group]; g != nil && g.consumer != nil && len(g.consumer.members) > 0 {
		m.joinConsumerGroup(op, req, g.consumer)
		return
	}
	g := m.classicToJoin(req)
	if g == nil {
		refuse(kerr.UnknownMemberID, req.MemberID)
		return
	}
	if !m.accepts(g, req.MemberID) {
		m.expel(g, req.MemberID)
		refuse(kerr.GroupMaxSizeReached, "")
		return
	}
	if !g.supports(req.ProtocolType, req.Protocols) {
		refuse(kerr.InconsistentGroupProtocol, req.MemberID)
		return
	}
	if req.MemberID == "" {
		m.joinNew(op, req, g)
		return
	}
	m.joinKnown(op, req, g)
}

// distinctProtocols leaves out what a member lists for the second time.
func distinctProtocols(all []kmsg.JoinGroupRequestProtocol) []kmsg.JoinGroupRequestProtocol {
	seen := make(map[string]bool, len(all))
	return slices.DeleteFunc(all, func(p kmsg.JoinGroupRequestProtocol) bool {
		again := seen[p.Name]
		seen[p.Name] = true
		return again
	})
}

// checkJoinSize refuses what no record could hold. (Apache accepts it, and fails when it writes the group.) Strings of a request are no
// longer than maxString, but member ids are made of one.
func (m *Machine) checkJoinSize(op Op, req *kmsg.JoinGroupRequest) *kerr.Error {
	prefix := op.ClientID
	if req.InstanceID != nil {
		prefix = *req.InstanceID
	}
	if len(prefix)+len("-")+uuidLength > maxString {
		return kerr.InvalidRequest
	}
	size := 0
	for i := range req.Protocols {
		size += len(req.Protocols[i].Name) + len(req.Protocols[i].Metadata) + 8
	}
	if size > m.settings.MaxRecordBytes {
		return kerr.UnknownServerError
	}
	return nil
}

// classicToJoin returns the group, made if a member without id asks for it, or nil. A consumer group that is
// empty makes room for it.
func (m *Machine) classicToJoin(req *kmsg.JoinGroupRequest) *classicGroup {
	if g := m.classic(req.Group); g != nil {
		return g
	}
	if req.MemberID != "" {
		return nil
	}
	if g := m.groups[req.Group]; g != nil {
		m.deleteConsumer(g.consumer)
	}
	g := newClassicGroup(req.Group, m.nowMs())
	m.emit(g.record(kept))
	return m.classic(req.Group)
}

// accepts reports whether group.max.size leaves room. While members join again those that are there already count, so
// that the last of a group that is too large are turned away.
func (m *Machine) accepts(g *classicGroup, member string) bool {
	mem := g.members[member]
	switch g.state {
	case statePreparingRebalance:
		return mem != nil && mem.join != nil || g.awaiting < m.settings.MaxSize
	case stateCompletingRebalance, stateStable:
		return mem != nil || len(g.members) < m.settings.MaxSize
	}
	return true
}

// expel removes a member that was not accepted. If the join waited for it alone it is complete. (Apache waits for the timeout.)
func (m *Machine) expel(g *classicGroup, id string) {
	if id == "" {
		return
	}
	m.timers.cancel(timer{sessionTimer, g.id, id})
	g.remove(id)
	m.maybeCompleteJoin(g)
}

// joinNew lets in a member that has no id yet.
func (m *Machine) joinNew(op Op, req *kmsg.JoinGroupRequest, g *classicGroup) {
	if req.InstanceID != nil {
		id := *req.InstanceID + "-" + m.memberUUID()
		if old, ok := g.static[*req.InstanceID]; ok {
			m.joinStaticAgain(op, req, g, g.members[old], id)
			return
		}
		m.join(op, req, g, id)
		return
	}
	id := op.ClientID + "-" + m.memberUUID()
	if req.Version >= 4 {
		g.pendingJoin[id] = struct{}{}
		m.timers.set(timer{sessionTimer, g.id, id}, m.now.Add(ms(req.SessionTimeoutMillis)))
		m.answer(op.Ticket, joinAnswer{code: kerr.MemberIDRequired.Code, member: id}.response(req.Version))
		return
	}
	m.join(op, req, g, id)
}

// joinKnown lets a member join that names itself.
func (m *Machine) joinKnown(op Op, req *kmsg.JoinGroupRequest, g *classicGroup) {
	if g.isPending(req.MemberID) && req.InstanceID == nil { // an instance was never told to come again: UNKNOWN_MEMBER_ID, where Apache fails
		m.join(op, req, g, req.MemberID)
		return
	}
	mem, err := g.validate(req.MemberID, req.InstanceID)
	if err != nil {
		m.answer(op.Ticket, joinAnswer{code: err.Code, member: req.MemberID}.response(req.Version))
		return
	}
	// In a generation, a member that says nothing new did not get its answer, or wants its assignment again. The leader
	// of a stable group does not: it asks for a rebalance, say because a topic has more partitions.
	inGeneration := g.state == stateCompletingRebalance || g.state == stateStable && !g.isLeader(mem.id)
	if inGeneration && mem.matches(req.Protocols) {
		m.answer(op.Ticket, g.joined(mem).response(req.Version))
		return
	}
	if g.state == stateEmpty {
		m.answer(op.Ticket, joinAnswer{code: kerr.UnknownMemberID.Code, member: req.MemberID}.response(req.Version))
		return
	}
	m.supersede(g, mem)
	g.update(mem, req, &parked{op.Ticket, req.Version})
	m.rebalanceOrCompleteJoin(g)
}

// supersede answers a JoinGroup of a member that a later one replaces: the connection it came over is given up or about to be.
func (m *Machine) supersede(g *classicGroup, mem *classicMember) {
	m.answerJoin(g, mem, joinAnswer{code: kerr.RebalanceInProgress.Code, member: mem.id})
}

// join adds a member.
func (m *Machine) join(op Op, req *kmsg.JoinGroupRequest, g *classicGroup, id string) {
	mem := &classicMember{
		id: id, instanceID: req.InstanceID, clientID: op.ClientID, clientHost: op.ClientHost,
		rebalanceTimeoutMs: rebalanceTimeoutMs(req), sessionTimeoutMs: req.SessionTimeoutMillis, protocols: protocolsOf(req),
		join: &parked{op.Ticket, req.Version}, fresh: true,
	}
	if g.initial != nil {
		g.initial.joined = true
	}
	if len(g.members) == 0 {
		g.protocolType = &req.ProtocolType
	}
	g.add(mem)
	m.timers.set(timer{sessionTimer, g.id, id}, m.now.Add(newMemberJoinTimeout))
	m.rebalanceOrCompleteJoin(g)
}

// joinStaticAgain gives a static member that restarted its place back, under a new id. If nothing changes for the others no
// rebalance is needed (KIP-345, KIP-814).
func (m *Machine) joinStaticAgain(op Op, req *kmsg.JoinGroupRequest, g *classicGroup, old *classicMember, id string) {
	leader := g.leader
	m.timers.cancel(timer{sessionTimer, g.id, old.id})
	delete(g.pendingSync, old.id) // which cannot sync any more; Apache waits for it, and then rebalances
	mem := g.replaceStatic(m, old, id)
	g.update(mem, req, &parked{op.Ticket, req.Version})
	m.hear(g, mem)
	switch g.state {
	case stateCompletingRebalance:
		// The leader may be assigning partitions to the old id just now.
		m.prepareRebalance(g)
	case statePreparingRebalance:
		m.maybeCompleteJoin(g)
	case stateStable:
		if g.selectProtocol() != *g.protocol {
			m.prepareRebalance(g)
			return
		}
		if !m.persist(g, kept) {
			m.answerJoin(g, mem, joinAnswer{code: kerr.UnknownServerError.Code})
			m.timers.cancel(timer{sessionTimer, g.id, id})
			g.swap(mem, old)
			m.hear(g, old)
			return
		}
		a := g.joined(mem)
		if req.Version >= 9 {
			a.skipAssignment = a.leads
		} else {
			a.leads = false
		}
		resp := a.response(req.Version)
		if req.Version < 9 && leader != nil {
			resp.LeaderID = *leader // the old id: a client of these versions that read its own would assign anew
		}
		m.answer(op.Ticket, resp)
		mem.join = nil
		g.awaiting--
	}
}

// memberUUID is the part of a member id that makes it unique, in the form that Java prints.
func (m *Machine) memberUUID() string {
	return formatUUID(m.newID())
}
