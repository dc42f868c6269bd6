package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The life of a classic group's generation: prepareRebalance → all have joined, or the timeout → completeJoin → the
// leader's SyncGroup → Stable. Source: GroupMetadataManager's classicGroup… methods.

// hear notes a sign of life of a member: its session starts anew.
func (m *Machine) hear(g *classicGroup, mem *classicMember) {
	m.timers.set(timer{sessionTimer, g.id, mem.id}, m.now.Add(ms(mem.sessionTimeoutMs)))
}

// fireClassic does what one of a classic group's timers was set for.
func (m *Machine) fireClassic(g *classicGroup, t timer) {
	switch t.kind {
	case sessionTimer:
		m.sessionExpired(g, t.member)
	case rebalanceTimer:
		if g.initial != nil {
			m.extendInitialRebalance(g)
		} else {
			m.completeJoin(g)
		}
	case syncTimer:
		m.syncExpired(g)
	}
}

func (m *Machine) sessionExpired(g *classicGroup, id string) {
	if g.isPending(id) {
		m.removePending(g, id)
		return
	}
	if mem, ok := g.members[id]; ok && !mem.waits() {
		m.removeMember(g, mem)
		m.afterRemoval(g)
	}
}

// removePending forgets an id that was handed out; the join may have waited for it alone. The wait of an empty group for its first
// members goes on. (Apache ends it, whoever's session ends meanwhile.)
func (m *Machine) removePending(g *classicGroup, id string) {
	m.timers.cancel(timer{sessionTimer, g.id, id})
	g.remove(id)
	if g.state == statePreparingRebalance && g.initial == nil && g.allJoined() {
		m.completeJoin(g)
	}
}

// removeMember takes a member out; a JoinGroup of it that is parked is told, so that a member that lives on comes again.
func (m *Machine) removeMember(g *classicGroup, mem *classicMember) {
	m.answerJoin(g, mem, joinAnswer{code: kerr.UnknownMemberID.Code})
	m.answerSync(mem, syncAnswer{code: kerr.UnknownMemberID.Code})
	m.timers.cancel(timer{sessionTimer, g.id, mem.id})
	g.remove(mem.id)
}

// afterRemoval makes the group go on without those that were removed.
func (m *Machine) afterRemoval(g *classicGroup) {
	switch g.state {
	case stateStable, stateCompletingRebalance:
		m.prepareRebalance(g)
	case statePreparingRebalance:
		m.maybeCompleteJoin(g)
	}
}

// rebalanceOrCompleteJoin follows a member's JoinGroup.
func (m *Machine) rebalanceOrCompleteJoin(g *classicGroup) {
	if g.state == statePreparingRebalance {
		m.maybeCompleteJoin(g)
		return
	}
	m.prepareRebalance(g)
}

// prepareRebalance asks all members to join again. They learn of it by their heartbeats.
func (m *Machine) prepareRebalance(g *classicGroup) {
	if g.state == stateCompletingRebalance {
		for _, mem := range g.order {
			mem.assignment = nil
		}
		m.answerSyncs(g, func(*classicMember) syncAnswer { return syncAnswer{code: kerr.RebalanceInProgress.Code} })
	}
	clear(g.pendingSync)
	m.timers.cancel(timer{syncTimer, g.id, ""})
	first := g.state == stateEmpty
	g.becomes(statePreparingRebalance, m.nowMs())
	if first {
		delay := m.settings.InitialRebalanceDelay
		g.initial = &initialRebalance{delay: delay, remaining: max(g.rebalanceTimeout()-delay, 0)}
		m.timers.set(timer{rebalanceTimer, g.id, ""}, m.now.Add(delay))
		return
	}
	if g.allJoined() {
		m.completeJoin(g)
		return
	}
	m.timers.set(timer{rebalanceTimer, g.id, ""}, m.now.Add(g.rebalanceTimeout()))
}

func (m *Machine) maybeCompleteJoin(g *classicGroup) {
	if g.state == statePreparingRebalance && g.initial == nil && g.allJoined() {
		m.completeJoin(g)
	}
}

// extendInitialRebalance waits once more if members came during the last delay and the rebalance timeout allows it.
func (m *Machine) extendInitialRebalance(g *classicGroup) {
	i := g.initial
	if !i.joined || i.remaining == 0 {
		m.completeJoin(g)
		return
	}
	delay := min(m.settings.InitialRebalanceDelay, i.remaining)
	*i = initialRebalance{delay: delay, remaining: max(i.remaining-i.delay, 0)}
	m.timers.set(timer{rebalanceTimer, g.id, ""}, m.now.Add(delay))
}

// completeJoin begins the next generation with those who joined; dynamic members who did not are out, static ones stay
// until their session ends.
func (m *Machine) completeJoin(g *classicGroup) {
	if g.state != statePreparingRebalance {
		return
	}
	m.timers.cancel(timer{rebalanceTimer, g.id, ""})
	for _, mem := range slices.Clone(g.order) {
		if mem.join == nil && mem.instanceID == nil {
			m.timers.cancel(timer{sessionTimer, g.id, mem.id})
			g.remove(mem.id)
		}
	}
	if !g.electLeader() {
		// Only static members are left and none of them joined: wait for them, or for their sessions to end.
		g.initial = nil
		m.timers.set(timer{rebalanceTimer, g.id, ""}, m.now.Add(g.rebalanceTimeout()))
		return
	}
	g.initial = nil
	g.generation++
	clear(g.pendingSync)
	if len(g.members) == 0 {
		m.empty(g)
		return
	}
	protocol := g.selectProtocol()
	g.protocol = &protocol
	g.findSubscribed()
	g.becomes(stateCompletingRebalance, m.nowMs())
	for _, mem := range g.order {
		m.answerJoin(g, mem, g.joined(mem))
		m.hear(g, mem)
		mem.fresh = false
		g.pendingSync[mem.id] = struct{}{}
	}
	m.timers.set(timer{syncTimer, g.id, ""}, m.now.Add(g.rebalanceTimeout()))
}

// electLeader makes the first member that joined the leader if the leader did not. It is false if there are members and none
// joined.
func (g *classicGroup) electLeader() bool {
	if len(g.order) == 0 {
		return true
	}
	if g.leader != nil {
		if mem := g.members[*g.leader]; mem != nil && mem.join != nil {
			return true
		}
	}
	i := slices.IndexFunc(g.order, func(mem *classicMember) bool { return mem.join != nil })
	if i < 0 {
		return false
	}
	g.leader = &g.order[i].id
	return true
}

// empty ends a generation that nobody is in.
func (m *Machine) empty(g *classicGroup) {
	g.protocol, g.leader = nil, nil
	g.becomes(stateEmpty, m.nowMs())
	m.emit(g.record(kept))
}

// syncExpired removes the members that did not fetch their assignment in time.
func (m *Machine) syncExpired(g *classicGroup) {
	if len(g.pendingSync) == 0 || g.state != stateCompletingRebalance && g.state != stateStable {
		return
	}
	for _, mem := range slices.Clone(g.order) {
		if _, ok := g.pendingSync[mem.id]; ok {
			m.removeMember(g, mem)
		}
	}
	m.prepareRebalance(g)
}

// A joinAnswer is what a JoinGroup is answered.
type joinAnswer struct {
	code           int16
	member         string
	group          *classicGroup // nil unless code is 0: who and what this generation is
	leads          bool          // the answer lists the members
	skipAssignment bool
}

// joined answers a member that is in the generation.
func (g *classicGroup) joined(mem *classicMember) joinAnswer {
	return joinAnswer{member: mem.id, group: g, leads: g.isLeader(mem.id)}
}

// answerJoin answers a member's parked JoinGroup, if there is one.
func (m *Machine) answerJoin(g *classicGroup, mem *classicMember, a joinAnswer) {
	if mem.join == nil {
		return
	}
	m.answer(mem.join.ticket, a.response(mem.join.version))
	mem.join = nil
	g.awaiting--
}

func (a joinAnswer) response(version int16) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Version, resp.ErrorCode, resp.MemberID, resp.SkipAssignment = version, a.code, a.member, a.skipAssignment
	resp.Members = []kmsg.JoinGroupResponseMember{}
	g := a.group
	if g == nil {
		return resp
	}
	resp.Generation, resp.ProtocolType, resp.Protocol = g.generation, g.protocolType, g.protocol
	if g.leader != nil {
		resp.LeaderID = *g.leader
	}
	if a.leads {
		for _, mem := range g.order {
			resp.Members = append(resp.Members, kmsg.JoinGroupResponseMember{
				MemberID: mem.id, InstanceID: mem.instanceID, ProtocolMetadata: mem.metadata(*g.protocol),
			})
		}
	}
	return resp
}

// A syncAnswer is what a SyncGroup is answered.
type syncAnswer struct {
	code                   int16
	protocolType, protocol *string
	assignment             []byte
}

// assigned answers a member that is in the generation.
func (g *classicGroup) assigned(mem *classicMember) syncAnswer {
	return syncAnswer{protocolType: g.protocolType, protocol: g.protocol, assignment: mem.assignment}
}

// answerSync answers a member's parked SyncGroup, if there is one, and reports whether there was.
func (m *Machine) answerSync(mem *classicMember, a syncAnswer) bool {
	if mem.sync == nil {
		return false
	}
	m.answer(mem.sync.ticket, a.response(mem.sync.version))
	mem.sync = nil
	return true
}

// answerSyncs answers all SyncGroups that are parked. Their members' sessions begin anew: they may have ended unheeded meanwhile. Source:
// propagateAssignment.
func (m *Machine) answerSyncs(g *classicGroup, answer func(*classicMember) syncAnswer) {
	for _, mem := range g.order {
		if m.answerSync(mem, answer(mem)) {
			m.hear(g, mem)
		}
	}
}

func (a syncAnswer) response(version int16) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.Version, resp.ErrorCode, resp.ProtocolType, resp.Protocol, resp.MemberAssignment = version, a.code, a.protocolType, a.protocol, a.assignment
	return resp
}
