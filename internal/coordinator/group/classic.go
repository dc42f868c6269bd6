package group

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol/records"
)

// A classicState is the state of a classic group. Dead, Kafka's fifth, is a group that is not there.
type classicState int8

const (
	stateEmpty classicState = iota
	statePreparingRebalance
	stateCompletingRebalance
	stateStable
)

// String returns the state as ListGroups and DescribeGroups print it.
func (s classicState) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}[s]
}

// consumerProtocol is the protocol type of consumers; that of Kafka Connect is "connect", of schema registries "sr".
const consumerProtocol = "consumer"

// A classicGroup is a group whose members assign partitions themselves: JoinGroup, then SyncGroup.
//
// Generation, protocol type, protocol, leader, members and their assignments are durable as of the last
// GroupMetadata record; a rebalance changes them softly and its end writes them.
type classicGroup struct {
	id           string
	state        classicState
	stateSince   int64   // ms; -1 in records of old
	protocolType *string // nil: a simple group, which only keeps offsets
	protocol     *string // nil unless in a generation
	leader       *string // member id
	generation   int32

	members map[string]*classicMember
	order   []*classicMember  // the same, in the order in which they came
	static  map[string]string // member id by instance id
	// supported counts the members that support each protocol.
	supported map[string]int
	awaiting  int // members that await a JoinGroup answer

	// pendingJoin are ids that were handed out with MEMBER_ID_REQUIRED and have not come back (KIP-394). pendingSync are
	// members that were told of this generation and have not sent SyncGroup.
	pendingJoin, pendingSync map[string]struct{}

	// initial is set while the first rebalance of an empty group waits for more members.
	initial *initialRebalance
	// subscribed are the topics of all members if they are consumers and could be read, else nil.
	subscribed map[string]struct{}
}

// An initialRebalance is the wait before an empty group's first generation: group.initial.rebalance.delay.ms, and
// again as long as members come, up to the longest rebalance timeout.
type initialRebalance struct {
	delay, remaining time.Duration
	joined           bool // somebody came since the last delay began
}

// A classicMember is a member of a classic group.
type classicMember struct {
	id                   string
	instanceID           *string
	clientID, clientHost string
	rebalanceTimeoutMs   int32
	sessionTimeoutMs     int32
	protocols            []classicProtocol // in its order of preference
	assignment           []byte

	join, sync *parked // its request that awaits an answer, or nil
	// fresh: it has not been in a generation, so it knows no id to heartbeat with and its session counts while it waits.
	fresh bool
}

type classicProtocol struct {
	name     string
	metadata []byte
}

// A parked operation awaits its answer.
type parked struct {
	ticket  Ticket
	version int16
}

// newMemberJoinTimeout bounds how long a new member's JoinGroup is parked: if the client is gone, nobody notices before.
// Source: GroupCoordinatorConfig.CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS.
const newMemberJoinTimeout = 5 * time.Minute

func newClassicGroup(id string, since int64) *classicGroup {
	return &classicGroup{
		id: id, stateSince: since, members: map[string]*classicMember{}, static: map[string]string{}, supported: map[string]int{},
		pendingJoin: map[string]struct{}{}, pendingSync: map[string]struct{}{},
	}
}

func (g *classicGroup) usesConsumerProtocol() bool {
	return g.protocolType != nil && *g.protocolType == consumerProtocol
}

func (g *classicGroup) isLeader(member string) bool { return g.leader != nil && *g.leader == member }

func (g *classicGroup) isPending(member string) bool { _, ok := g.pendingJoin[member]; return ok }

func (g *classicGroup) allJoined() bool {
	return len(g.members) == g.awaiting && len(g.pendingJoin) == 0
}

// rebalanceTimeout is the longest of the members'.
func (g *classicGroup) rebalanceTimeout() time.Duration {
	var longest int32
	for _, mem := range g.order {
		longest = max(longest, mem.rebalanceTimeoutMs)
	}
	return ms(longest)
}

func (g *classicGroup) add(mem *classicMember) {
	if mem.instanceID != nil {
		g.static[*mem.instanceID] = mem.id
	}
	if g.leader == nil {
		g.leader = &mem.id
	}
	g.members[mem.id] = mem
	g.order = append(g.order, mem)
	g.count(mem, 1)
	if mem.join != nil {
		g.awaiting++
	}
	delete(g.pendingJoin, mem.id)
}

// count adds n to the count of each protocol that a member supports.
func (g *classicGroup) count(mem *classicMember, n int) {
	for _, p := range mem.protocols {
		if g.supported[p.name] += n; g.supported[p.name] == 0 {
			delete(g.supported, p.name)
		}
	}
}

// remove takes a member, or a pending one, out of the group.
func (g *classicGroup) remove(id string) {
	if mem, ok := g.members[id]; ok {
		delete(g.members, id)
		g.order = slices.DeleteFunc(g.order, func(o *classicMember) bool { return o == mem })
		g.count(mem, -1)
		if mem.join != nil {
			g.awaiting--
		}
		if mem.instanceID != nil && g.static[*mem.instanceID] == id {
			delete(g.static, *mem.instanceID)
		}
	}
	if g.isLeader(id) {
		g.leader = nil
		if len(g.order) > 0 {
			g.leader = &g.order[0].id
		}
	}
	delete(g.pendingJoin, id)
	delete(g.pendingSync, id)
}

// replaceStatic gives the static member of an instance a new id, and keeps all else; the request that waited
// under the old one is fenced.
func (g *classicGroup) replaceStatic(m *Machine, old *classicMember, newID string) *classicMember {
	m.answerJoin(g, old, joinAnswer{code: kerr.FencedInstanceID.Code, member: old.id})
	m.answerSync(old, syncAnswer{code: kerr.FencedInstanceID.Code})
	mem := *old
	mem.id, mem.fresh = newID, false
	g.swap(old, &mem)
	return &mem
}

// swap puts another in the place of a static member. Neither awaits a JoinGroup answer.
func (g *classicGroup) swap(old, mem *classicMember) {
	g.count(old, -1)
	g.count(mem, 1)
	delete(g.members, old.id)
	g.members[mem.id] = mem
	g.order[slices.Index(g.order, old)] = mem
	g.static[*mem.instanceID] = mem.id
	if g.isLeader(old.id) {
		g.leader = &mem.id
	}
}

// update takes over what a member says with a JoinGroup, which is parked unless p is nil.
func (g *classicGroup) update(mem *classicMember, req *kmsg.JoinGroupRequest, p *parked) {
	g.count(mem, -1)
	mem.protocols = protocolsOf(req)
	g.count(mem, 1)
	mem.rebalanceTimeoutMs, mem.sessionTimeoutMs = rebalanceTimeoutMs(req), req.SessionTimeoutMillis
	if mem.join == nil {
		g.awaiting++
	}
	mem.join = p
}

// validate finds the member that a request speaks for, or says why there is none (KIP-345).
func (g *classicGroup) validate(member string, instance *string) (*classicMember, *kerr.Error) {
	if instance != nil {
		switch id, ok := g.static[*instance]; {
		case !ok:
			return nil, kerr.UnknownMemberID
		case id != member:
			return nil, kerr.FencedInstanceID
		}
	}
	mem, ok := g.members[member]
	if !ok {
		return nil, kerr.UnknownMemberID
	}
	return mem, nil
}

// supports reports whether a member of that type, with those protocols, can be in the group with the others.
func (g *classicGroup) supports(protocolType string, protocols []kmsg.JoinGroupRequestProtocol) bool {
	if g.state == stateEmpty {
		return protocolType != "" && len(protocols) > 0
	}
	return g.protocolType != nil && *g.protocolType == protocolType &&
		slices.ContainsFunc(protocols, func(p kmsg.JoinGroupRequestProtocol) bool { return g.supported[p.Name] == len(g.members) })
}

// selectProtocol lets each member vote for the first of its protocols that all support; of two with equal votes the one
// voted for first wins. There must be members.
func (g *classicGroup) selectProtocol() string {
	votes := map[string]int{}
	best := ""
	for _, mem := range g.order {
		for _, p := range mem.protocols {
			if g.supported[p.name] == len(g.members) {
				if votes[p.name]++; votes[p.name] > votes[best] {
					best = p.name
				}
				break
			}
		}
	}
	return best
}

func (mem *classicMember) metadata(protocol string) []byte {
	for _, p := range mem.protocols {
		if p.name == protocol {
			return p.metadata
		}
	}
	return nil
}

// matches reports whether a JoinGroup says of the member's protocols what is known already.
func (mem *classicMember) matches(protocols []kmsg.JoinGroupRequestProtocol) bool {
	return slices.EqualFunc(mem.protocols, protocols, func(p classicProtocol, q kmsg.JoinGroupRequestProtocol) bool {
		return p.name == q.Name && bytes.Equal(p.metadata, q.Metadata)
	})
}

// waits reports whether the member's silence is the group's doing. A fresh member has to come back in time all the same.
func (mem *classicMember) waits() bool { return !mem.fresh && (mem.join != nil || mem.sync != nil) }

func protocolsOf(req *kmsg.JoinGroupRequest) []classicProtocol {
	out := make([]classicProtocol, len(req.Protocols))
	for i, p := range req.Protocols {
		out[i] = classicProtocol{p.Name, p.Metadata}
	}
	return out
}

// rebalanceTimeoutMs is the session's where a version 0 does not say.
func rebalanceTimeoutMs(req *kmsg.JoinGroupRequest) int32 {
	if req.Version == 0 {
		return req.SessionTimeoutMillis
	}
	return req.RebalanceTimeoutMillis
}

// becomes moves the group to another state.
func (g *classicGroup) becomes(s classicState, nowMs int64) { g.state, g.stateSince = s, nowMs }

// findSubscribed reads the topics that consumers subscribe to out of their metadata. If one cannot be read nothing is known.
func (g *classicGroup) findSubscribed() {
	g.subscribed = nil
	if !g.usesConsumerProtocol() {
		return
	}
	topics := map[string]struct{}{}
	for _, mem := range g.order {
		if g.protocol == nil || !readSubscription(mem.metadata(*g.protocol), topics) {
			return
		}
	}
	g.subscribed = topics
}

// isSubscribed reports whether a member may be reading a topic; if that is unknown, a consumer may.
func (g *classicGroup) isSubscribed(topic string) bool {
	if g.subscribed == nil {
		return g.usesConsumerProtocol()
	}
	_, ok := g.subscribed[topic]
	return ok
}

// readSubscription adds to topics those of a ConsumerProtocolSubscription. All versions begin like version 0: the
// version, then an array of strings.
func readSubscription(b []byte, topics map[string]struct{}) bool {
	if len(b) < 6 {
		return false
	}
	count := int32(binary.BigEndian.Uint32(b[2:]))
	b = b[6:]
	for ; count > 0; count-- {
		if len(b) < 2 {
			return false
		}
		n := int(int16(binary.BigEndian.Uint16(b)))
		if n < 0 || len(b) < 2+n {
			return false
		}
		topics[string(b[2:2+n])] = struct{}{}
		b = b[2+n:]
	}
	return count == 0
}

// classic returns the classic group of an id, or nil.
func (m *Machine) classic(id string) *classicGroup {
	if g := m.groups[id]; g != nil {
		return g.classic
	}
	return nil
}

// sorted returns the groups by id.
func (m *Machine) sorted() []*group {
	out := make([]*group, 0, len(m.groups))
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		out = append(out, m.groups[id])
	}
	return out
}

// value is the group as its record says it, with each member's assignment.
func (g *classicGroup) value(assignment func(*classicMember) []byte) *records.GroupMetadataValue {
	v := records.NewGroupMetadataValue()
	if g.protocolType != nil {
		v.ProtocolType = *g.protocolType
	}
	v.Generation, v.Protocol, v.Leader, v.CurrentStateTimestamp = g.generation, g.protocol, g.leader, g.stateSince
	for _, mem := range g.order {
		r := records.NewMemberMetadata()
		r.MemberID, r.GroupInstanceID, r.ClientID, r.ClientHost = mem.id, mem.instanceID, mem.clientID, mem.clientHost
		r.RebalanceTimeout, r.SessionTimeout = mem.rebalanceTimeoutMs, mem.sessionTimeoutMs
		if g.protocol != nil {
			r.Subscription = mem.metadata(*g.protocol)
		}
		r.Assignment = assignment(mem)
		v.Members = append(v.Members, r)
	}
	return v
}

// groupMetadataVersion is what Apache 4.4 writes.
const groupMetadataVersion = 3

func (g *classicGroup) record(assignment func(*classicMember) []byte) Record {
	return Record{&records.GroupMetadataKey{Group: g.id}, g.value(assignment), groupMetadataVersion}
}

func kept(mem *classicMember) []byte { return mem.assignment }

// replayClassic brings a classic group to what its record says. What runs beside it, such as requests that are
// parked and protocols that were not chosen, stays; of members that are there already the record says nothing else that is new.
func (m *Machine) replayClassic(id string, v *records.GroupMetadataValue) {
	if v == nil {
		if m.classic(id) != nil {
			m.drop(id)
		}
		return
	}
	g := m.classic(id)
	if g == nil {
		m.drop(id)
		g = newClassicGroup(id, v.CurrentStateTimestamp)
		m.groups[id] = &group{id: id, classic: g}
	}
	present := make(map[string]bool, len(v.Members))
	for i := range v.Members {
		r := &v.Members[i]
		present[r.MemberID] = true
		mem := g.members[r.MemberID]
		if mem == nil {
			mem = loadedMember(v, r)
			g.add(mem)
		}
		mem.assignment = r.Assignment
	}
	for _, mem := range slices.Clone(g.order) {
		if !present[mem.id] {
			g.remove(mem.id)
		}
	}
	g.generation, g.protocol, g.leader, g.stateSince = v.Generation, v.Protocol, v.Leader, v.CurrentStateTimestamp
	g.protocolType = nil
	if v.ProtocolType != "" {
		g.protocolType = &v.ProtocolType
	}
	g.state = stateStable
	switch {
	case len(v.Members) == 0:
		g.state = stateEmpty
	case g.protocol == nil:
		g.protocol = new(string) // no coordinator writes that; the name is loadedMember's
	}
	g.findSubscribed()
}

// loadedMember is a member as a record knows it: only the protocol that was chosen.
func loadedMember(v *records.GroupMetadataValue, r *records.MemberMetadata) *classicMember {
	mem := &classicMember{
		id: r.MemberID, instanceID: r.GroupInstanceID, clientID: r.ClientID, clientHost: r.ClientHost,
		rebalanceTimeoutMs: r.RebalanceTimeout, sessionTimeoutMs: r.SessionTimeout,
	}
	if r.RebalanceTimeout == -1 { // records of version 0
		mem.rebalanceTimeoutMs = r.SessionTimeout
	}
	name := ""
	if v.Protocol != nil {
		name = *v.Protocol
	}
	mem.protocols = []classicProtocol{{name, r.Subscription}}
	return mem
}

// drop forgets a group and its timers. Its offsets have records of their own.
func (m *Machine) drop(id string) {
	g := m.groups[id]
	if g == nil {
		return
	}
	delete(m.groups, id)
	if g.classic != nil {
		m.stopClassic(g.classic)
	}
	if g.consumer != nil {
		m.stopConsumer(g.consumer)
	}
}

// stopClassic ends the timers of a classic group.
func (m *Machine) stopClassic(g *classicGroup) {
	m.timers.cancel(timer{rebalanceTimer, g.id, ""})
	m.timers.cancel(timer{syncTimer, g.id, ""})
	for id := range g.members {
		m.timers.cancel(timer{sessionTimer, g.id, id})
	}
	for id := range g.pendingJoin {
		m.timers.cancel(timer{sessionTimer, g.id, id})
	}
}

// classicLoaded starts the sessions of a group that was replayed. If it is larger than it may be now it rebalances, so that
// the surplus leaves; so it does if nobody leads it, as downgrade leaves it: what the members that left had still has to be assigned.
func (m *Machine) classicLoaded(g *classicGroup) {
	for _, mem := range g.order {
		m.hear(g, mem)
	}
	if len(g.members) > m.settings.MaxSize || len(g.members) > 0 && g.leader == nil {
		m.prepareRebalance(g)
	}
}

// abandon answers all that is parked.
func (g *classicGroup) abandon(m *Machine, code int16) {
	for _, mem := range g.order {
		m.answerJoin(g, mem, joinAnswer{code: code, member: mem.id})
		m.answerSync(mem, syncAnswer{code: code})
	}
}
