package group

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol/records"
)

// A group changes its protocol while it runs (KIP-848): the first member that speaks the new one makes it a consumer group, in
// which members that speak the classic one still take part; when the last that speaks the new one is gone it becomes
// classic again. An empty group simply makes room for one of the other type.

// checkUpgrade says whether a member with the new protocol may join a classic group.
func (m *Machine) checkUpgrade(g *classicGroup, req *kmsg.ConsumerGroupHeartbeatRequest, joins bool) *refusalError {
	if joins && len(g.members) == 0 {
		return nil
	}
	if !joins {
		return refuse(kerr.GroupIDNotFound, "Group %s is not a consumer group.", req.Group)
	}
	if why := m.hindersUpgrade(g); why != "" {
		return refuse(kerr.GroupIDNotFound, "Cannot upgrade classic group %s to consumer group because %s.", req.Group, why)
	}
	if g.members[req.MemberID] == nil && len(g.members) >= m.settings.ConsumerMaxSize && (req.InstanceID == nil || g.static[*req.InstanceID] == "") {
		return m.tooManyMembers()
	}
	return nil
}

// hindersUpgrade says why a group has to stay classic; empty: nothing.
func (m *Machine) hindersUpgrade(g *classicGroup) string {
	switch {
	case !m.settings.MigrationPolicy.Upgrade:
		return "group.consumer.migration.policy does not allow it"
	case !g.usesConsumerProtocol():
		return "its members are no consumers"
	case len(g.members) > m.settings.ConsumerMaxSize:
		return "it has more members than group.consumer.max.size"
	}
	for _, mem := range g.order {
		if _, err := mem.subscription(g.protocol); err != nil {
			return "a member's subscription cannot be read"
		}
		if len(mem.assignment) == 0 {
			continue
		}
		a := kmsg.NewConsumerMemberAssignment()
		if a.ReadFrom(mem.assignment) != nil {
			return "a member's assignment cannot be read"
		}
		if len(a.UserData) > 0 { // the coordinator's assignors would lose it
			return "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor before re-attempting the upgrade"
		}
	}
	return ""
}

func (mem *classicMember) subscription(protocol *string) (*kmsg.ConsumerMemberMetadata, error) {
	metadata := mem.protocols[0].metadata
	if protocol != nil {
		metadata = mem.metadata(*protocol)
	}
	s := kmsg.NewConsumerMemberMetadata()
	return &s, s.ReadFrom(metadata)
}

// consumerFor returns the group that a member joins: a classic one makes room or is converted. One that is new is not among the
// groups before its first record.
func (m *Machine) consumerFor(id string) *consumerGroup {
	known := m.groups[id]
	switch {
	case known == nil:
		return newConsumerGroup(id)
	case known.consumer != nil:
		return known.consumer
	case len(known.classic.members) == 0:
		m.emit(Record{Key: &records.GroupMetadataKey{Group: id}})
		return newConsumerGroup(id)
	}
	return m.upgrade(known.classic)
}

// upgrade makes a consumer group of a classic one; what its members were assigned they have. Its epoch is the generation.
func (m *Machine) upgrade(c *classicGroup) *consumerGroup {
	c.abandon(m, kerr.RebalanceInProgress.Code)
	m.emit(Record{Key: &records.GroupMetadataKey{Group: c.id}})
	g := newConsumerGroup(c.id)
	taken := owned{}
	var members []*consumerMember
	for _, old := range c.order {
		mem := m.upgraded(c, old, taken)
		members = append(members, mem)
		m.emit(g.metadataRecord(mem))
	}
	g = m.groups[c.id].consumer
	m.emit(Record{&records.ConsumerGroupMetadataKey{GroupID: g.id}, &records.ConsumerGroupMetadataValue{Epoch: c.generation, MetadataHash: m.metadataHash(g)}, 0})
	for _, mem := range members {
		m.emit(g.targetRecord(mem.id, mem.assigned.assignment()))
	}
	m.emit(g.targetEpochRecord(c.generation, 0))
	for _, mem := range members {
		m.emit(g.currentRecord(mem))
		m.hearConsumer(g, g.members[mem.id])
	}
	return g
}

// upgraded is a classic member in a consumer group. taken are the partitions that others have: classic leaders may have been
// careless.
func (m *Machine) upgraded(c *classicGroup, old *classicMember, taken owned) *consumerMember {
	s, err := old.subscription(c.protocol)
	if err != nil {
		s = &kmsg.ConsumerMemberMetadata{} // checkUpgrade has looked
	}
	mem := &consumerMember{
		id: old.id, instanceID: old.instanceID, rackID: s.Rack, clientID: old.clientID, clientHost: old.clientHost, topics: distinct(s.Topics),
		rebalanceTimeoutMs: old.rebalanceTimeoutMs, classic: &classicSide{sessionTimeoutMs: old.sessionTimeoutMs},
		epoch: c.generation, previousEpoch: c.generation, assigned: owned{},
	}
	for _, p := range old.protocols {
		mem.classic.protocols = append(mem.classic.protocols, records.ClassicProtocol{Name: p.name, Metadata: p.metadata})
	}
	a := kmsg.NewConsumerMemberAssignment()
	if a.ReadFrom(old.assignment) != nil {
		return mem
	}
	for _, at := range a.Topics {
		t := m.image.TopicByName(at.Topic)
		if t == nil {
			continue
		}
		for _, p := range at.Partitions {
			tp := topicPartition{t.ID, p}
			if _, ok := taken[tp]; !ok && t.Partition(p) != nil {
				taken[tp], mem.assigned[tp] = 0, c.generation
			}
		}
	}
	return mem
}

// downgrades reports whether a group becomes classic, as all its members are.
func (m *Machine) downgrades(g *consumerGroup) bool {
	return len(g.members) > 0 && g.tally.classic == len(g.members) && m.settings.MigrationPolicy.Downgrade && len(g.members) <= m.settings.MaxSize
}

// downgrade makes a classic group of a consumer group whose members all speak the classic protocol. Each is assigned its
// target, and all are asked to join again: none of them knows yet that it leads, so nobody would notice that a topic changed.
// (Apache leaves that rebalance out when it is a static member's return to the classic protocol that brings this about.)
func (m *Machine) downgrade(g *consumerGroup) {
	c := newClassicGroup(g.id, m.nowMs())
	c.state, c.generation = stateStable, g.epoch
	kind := consumerProtocol
	c.protocolType = &kind
	for _, id := range g.sorted() {
		mem := g.members[id]
		old := &classicMember{id: id, instanceID: mem.instanceID, clientID: mem.clientID, clientHost: mem.clientHost,
			rebalanceTimeoutMs: mem.rebalanceTimeoutMs, sessionTimeoutMs: mem.classic.sessionTimeoutMs}
		for _, p := range mem.classic.protocols {
			old.protocols = append(old.protocols, classicProtocol{p.Name, p.Metadata})
		}
		old.assignment = m.classicAssignment(g.target[id], mem.classic)
		c.add(old)
	}
	protocol := c.selectProtocol()
	c.protocol, c.leader = &protocol, nil // which tells whoever loads the group that this rebalance is still to come
	m.deleteConsumer(g)
	m.groups[g.id] = &group{id: g.id, classic: c} // with all protocols that its members speak, which a record does not know
	m.emit(c.record(kept))
	for _, mem := range c.order {
		m.hear(c, mem)
	}
	m.prepareRebalance(c)
}

// classicAssignment is an assignment as a classic member reads it, in the version of its own metadata.
func (m *Machine) classicAssignment(a assignment, c *classicSide) []byte {
	out := kmsg.NewConsumerMemberAssignment()
	if len(c.protocols) > 0 && len(c.protocols[0].Metadata) >= 2 {
		out.Version = int16(binary.BigEndian.Uint16(c.protocols[0].Metadata))
	}
	for _, id := range a.topics() {
		if t := m.image.Topic(id); t != nil {
			out.Topics = append(out.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: t.Name, Partitions: a[id]})
		}
	}
	slices.SortFunc(out.Topics, func(a, b kmsg.ConsumerMemberAssignmentTopic) int { return strings.Compare(a.Topic, b.Topic) })
	return out.AppendTo(nil)
}

// joinConsumerGroup lets a member with the classic protocol into a consumer group. What it is assigned it fetches with
// SyncGroup.
func (m *Machine) joinConsumerGroup(op Op, req *kmsg.JoinGroupRequest, g *consumerGroup) {
	id := req.MemberID
	if id == "" {
		id = m.newID().String()
	}
	err := m.checkClassicJoin(g, req, id)
	if err == nil && req.MemberID == "" && req.InstanceID == nil && req.Version >= 4 {
		err = kerr.MemberIDRequired
	}
	s := kmsg.NewConsumerMemberMetadata()
	if err == nil && s.ReadFrom(req.Protocols[0].Metadata) != nil {
		err = kerr.InconsistentGroupProtocol
	}
	if err != nil {
		a := joinAnswer{code: err.Code}
		if err == kerr.MemberIDRequired {
			a.member = id
		}
		m.answer(op.Ticket, a.response(req.Version))
		return
	}
	before := m.memberFor(g, id, req.InstanceID)
	next := *before
	next.clientID, next.clientHost, next.topics, next.regex = op.ClientID, op.ClientHost, distinct(s.Topics), ""
	next.rebalanceTimeoutMs = rebalanceTimeoutMs(req)
	next.classic = &classicSide{sessionTimeoutMs: req.SessionTimeoutMillis}
	for _, p := range req.Protocols {
		next.classic.protocols = append(next.classic.protocols, records.ClassicProtocol{Name: p.Name, Metadata: p.Metadata})
	}
	if req.InstanceID != nil {
		next.instanceID = req.InstanceID
	}
	if s.Rack != nil {
		next.rackID = s.Rack
	}
	g, changed := m.updateMember(g, before, &next, op)
	m.computeTarget(g)
	m.reconcile(g, id, m.toldClassically(&s), changed)
	now := g.members[id]
	resp := joinAnswer{member: id}.response(req.Version)
	kind := consumerProtocol
	resp.Generation, resp.ProtocolType, resp.Protocol = now.epoch, &kind, &req.Protocols[0].Name
	m.answer(op.Ticket, resp)
	m.timers.cancel(timer{joinTimer, g.id, id})
	if m.downgrades(g) {
		m.downgrade(g)
		return
	}
	m.hearConsumer(g, now)
	m.timers.set(timer{syncTimer, g.id, id}, m.now.Add(ms(now.rebalanceTimeoutMs)))
}

// toldClassically is what a classic member says that it owns.
func (m *Machine) toldClassically(s *kmsg.ConsumerMemberMetadata) *assignment {
	a := assignment{}
	for _, o := range s.OwnedPartitions {
		if t := m.image.TopicByName(o.Topic); t != nil {
			a[t.ID] = slices.Sorted(slices.Values(o.Partitions))
		}
	}
	return &a
}

func (m *Machine) checkClassicJoin(g *consumerGroup, req *kmsg.JoinGroupRequest, id string) *kerr.Error {
	if m.settings.MigrationPolicy == (MigrationPolicy{}) {
		return kerr.InconsistentGroupProtocol
	}
	if g.isFull(m.settings.ConsumerMaxSize, id, req.InstanceID) {
		return kerr.GroupMaxSizeReached
	}
	if req.ProtocolType != consumerProtocol || !g.supportsClassic(req.Protocols) {
		return kerr.InconsistentGroupProtocol
	}
	if req.InstanceID == nil || req.MemberID == "" {
		return nil
	}
	switch holder, ok := g.static[*req.InstanceID]; {
	case !ok:
		return kerr.UnknownMemberID
	case holder != req.MemberID:
		return kerr.FencedInstanceID
	}
	return nil
}

// supportsClassic reports whether one of a member's protocols is one of all classic members.
func (g *consumerGroup) supportsClassic(protocols []kmsg.JoinGroupRequestProtocol) bool {
	return slices.ContainsFunc(protocols, func(p kmsg.JoinGroupRequestProtocol) bool { return g.tally.protocols[p.Name] == g.tally.classic })
}

// classicMemberOf finds the member that a classic request speaks for.
func (g *consumerGroup) classicMemberOf(id string, instance *string) (*consumerMember, *kerr.Error) {
	mem := g.members[id]
	if instance != nil {
		switch holder, ok := g.static[*instance]; {
		case !ok:
			return nil, kerr.UnknownMemberID
		case holder != id:
			return nil, kerr.FencedInstanceID
		}
	}
	if mem == nil || mem.classic == nil {
		return nil, kerr.UnknownMemberID
	}
	return mem, nil
}

// syncConsumerGroup gives a classic member what it is assigned.
func (m *Machine) syncConsumerGroup(req *kmsg.SyncGroupRequest, g *consumerGroup) *kmsg.SyncGroupResponse {
	mem, err := g.classicMemberOf(req.MemberID, req.InstanceID)
	switch {
	case err != nil:
	case mem.epoch != req.Generation:
		err = kerr.IllegalGeneration
	case req.ProtocolType != nil && *req.ProtocolType != consumerProtocol, req.Protocol != nil && *req.Protocol != mem.classic.protocols[0].Name:
		err = kerr.InconsistentGroupProtocol
	case g.assignmentEpoch > mem.epoch && mem.state != memberUnrevoked:
		m.expectJoin(g, mem)
		err = kerr.RebalanceInProgress
	}
	if err != nil {
		return syncAnswer{code: err.Code}.response(req.Version)
	}
	m.timers.cancel(timer{syncTimer, g.id, mem.id})
	m.hearConsumer(g, mem)
	return syncAnswer{protocolType: req.ProtocolType, protocol: req.Protocol, assignment: m.classicAssignment(mem.assigned.assignment(), mem.classic)}.response(req.Version)
}

// expectJoin gives a member its rebalance timeout to join again, from the first time it is told.
func (m *Machine) expectJoin(g *consumerGroup, mem *consumerMember) {
	key := timer{joinTimer, g.id, mem.id}
	if !m.timers.running(key) {
		m.timers.set(key, m.now.Add(ms(mem.rebalanceTimeoutMs)))
	}
}

// heartbeatConsumerGroup tells a classic member to join again if there is something to get or to give back, or if its joining again would
// compute a new target. (Apache leaves that to members with the new protocol; but there may be none, where the downgrade is forbidden.)
func (m *Machine) heartbeatConsumerGroup(req *kmsg.HeartbeatRequest, g *consumerGroup) *kerr.Error {
	mem, err := g.classicMemberOf(req.MemberID, req.InstanceID)
	if err != nil {
		return err
	}
	if mem.epoch != req.Generation {
		return kerr.IllegalGeneration
	}
	m.hearConsumer(g, mem)
	if mem.epoch < g.assignmentEpoch || m.targetIsDue(g) || mem.state == memberUnrevoked || mem.state == memberUnreleased && !g.waitsForOthers(mem) {
		m.expectJoin(g, mem)
		return kerr.RebalanceInProgress
	}
	return nil
}

// waitsForOthers reports whether a partition that the member is to get still belongs to another.
func (g *consumerGroup) waitsForOthers(mem *consumerMember) bool {
	for t, partitions := range g.target[mem.id] {
		for _, p := range partitions {
			if holder, ok := g.owner[topicPartition{t, p}]; ok && holder != mem.id {
				return true
			}
		}
	}
	return false
}

// leaveConsumerGroup takes members out of a consumer group: classic ones that leave, and any that an administrator names.
func (m *Machine) leaveConsumerGroup(g *consumerGroup, members []kmsg.LeaveGroupRequestMember) []int16 {
	codes := make([]int16, len(members))
	var leaving []*consumerMember
	for i, who := range members {
		mem, err := g.memberToLeave(who)
		if codes[i] = codeOf(err); err == nil && !slices.Contains(leaving, mem) {
			leaving = append(leaving, mem)
		}
	}
	if len(leaving) > 0 {
		m.fence(g, leaving...)
	}
	return codes
}

func (g *consumerGroup) memberToLeave(who kmsg.LeaveGroupRequestMember) (*consumerMember, *kerr.Error) {
	id := who.MemberID
	if who.InstanceID != nil {
		holder, ok := g.static[*who.InstanceID]
		switch {
		case !ok:
			return nil, kerr.UnknownMemberID
		case id != "" && id != holder:
			return nil, kerr.FencedInstanceID
		}
		id = holder
	}
	if mem := g.members[id]; mem != nil {
		return mem, nil
	}
	return nil, kerr.UnknownMemberID
}
