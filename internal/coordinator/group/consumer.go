package group

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// A consumerGroup is a group whose coordinator assigns the partitions (KIP-848). All of it is durable but seen, matched and settings.
type consumerGroup struct {
	id              string
	epoch           int32
	metadataHash    int64 // of the topics that the group subscribes to, as of epoch
	assignmentEpoch int32 // epoch that target was computed for
	assignmentMs    int64 // when; 0 never
	members         map[string]*consumerMember
	tally           tally             // of members
	static          map[string]string // member id by instance id
	target          map[string]assignment
	regexes         map[string]*resolvedRegex
	// owner is who has a partition, or has to give it back still: nobody else may be given it.
	owner map[topicPartition]string
	// seen is the image that metadataHash was last held against, matched is the topicsSeq that the expressions were.
	seen, matched uint64
	// settings are the group's as long as the machine has that image and those Settings.
	settings struct {
		consumerSettings
		image uint64
		of    *Settings
	}
	// old: the log has a ConsumerGroupPartitionMetadata record, as coordinators before Kafka 4.1 wrote it. Nobody reads it any more; it is to go.
	old bool
}

// A resolvedRegex is what a regular expression of some members matches.
type resolvedRegex struct {
	topics []string // sorted
	atMs   int64
}

// A consumerMember is a member of a consumer group. It never changes: a record makes another.
type consumerMember struct {
	id                   string
	instanceID, rackID   *string
	clientID, clientHost string
	topics               []string // subscribed to by name, sorted
	regex                string   // empty: none
	rebalanceTimeoutMs   int32
	assignor             *string
	classic              *classicSide // of a member that speaks the classic protocol; else nil

	epoch, previousEpoch int32
	state                memberState
	assigned             owned
	revoking             owned // what it is to give back
}

// A classicSide is what there is more to a member that has not migrated yet.
type classicSide struct {
	sessionTimeoutMs int32
	protocols        []records.ClassicProtocol
}

// A memberState is how far a member is on its way to its target. The codes are in records. Source: Kafka's MemberState.
type memberState int8

const (
	memberStable     memberState = 0
	memberUnrevoked  memberState = 1 // it has to give partitions back first
	memberUnreleased memberState = 2 // others have not given back all that it is to get
)

// The member epochs that say goodbye.
const (
	leaveEpoch       int32 = -1
	leaveStaticEpoch int32 = -2 // it means to be back
)

type consumerState string

// String returns the state as ListGroups prints it.
func (s consumerState) String() string { return string(s) }

// initialEpoch is that of a group that nobody has subscribed in yet, and of its target, so that its first member with topics gets 2.
// Source: Kafka's ModernGroup and TargetAssignmentMetadata.
const initialEpoch = 1

func newConsumerGroup(id string) *consumerGroup {
	return &consumerGroup{id: id, epoch: initialEpoch, assignmentEpoch: initialEpoch, members: map[string]*consumerMember{}, tally: newTally(), static: map[string]string{}, target: map[string]assignment{},
		regexes: map[string]*resolvedRegex{}, owner: map[topicPartition]string{}}
}

func (g *consumerGroup) state() consumerState {
	switch {
	case len(g.members) == 0:
		return "Empty"
	case g.epoch > g.assignmentEpoch:
		return "Assigning"
	}
	for _, mem := range g.members {
		if !mem.reconciled(g.assignmentEpoch) {
			return "Reconciling"
		}
	}
	return "Stable"
}

func (mem *consumerMember) reconciled(epoch int32) bool {
	return mem.state == memberStable && mem.epoch == epoch
}

func (g *consumerGroup) sorted() []string { return slices.Sorted(maps.Keys(g.members)) }

// topicsOf returns the topics that a member subscribes to, by name or by what its expression matches, sorted.
func (g *consumerGroup) topicsOf(mem *consumerMember) []string {
	r := g.regexes[mem.regex]
	switch {
	case r == nil:
		return mem.topics
	case len(mem.topics) == 0:
		return r.topics
	}
	all := slices.Concat(mem.topics, r.topics)
	slices.Sort(all)
	return slices.Compact(all)
}

// checkCommit says whether a member may commit. One that is behind may, for what it has had since.
func (g *consumerGroup) checkCommit(req *kmsg.OffsetCommitRequest, img *metadata.Image) *kerr.Error {
	if req.Generation < 0 && len(g.members) == 0 {
		return nil
	}
	mem := g.members[req.MemberID]
	if mem == nil {
		return kerr.UnknownMemberID
	}
	if mem.classic == nil && req.Version < 9 {
		return kerr.UnsupportedVersion
	}
	if req.Generation == mem.epoch {
		return nil
	}
	if req.Generation > mem.epoch {
		return mem.stale()
	}
	for i := range req.Topics {
		t := img.TopicByName(req.Topics[i].Topic)
		if t == nil {
			continue // it is refused by itself
		}
		for j := range req.Topics[i].Partitions {
			tp := topicPartition{t.ID, req.Topics[i].Partitions[j].Partition}
			if t.Partition(tp.partition) == nil {
				continue // likewise
			}
			epoch, ok := mem.assigned[tp]
			if !ok {
				epoch, ok = mem.revoking[tp]
			}
			if !ok || req.Generation < epoch {
				return mem.stale()
			}
		}
	}
	return nil
}

// stale is what a member of another epoch is told, in its own protocol's word.
func (mem *consumerMember) stale() *kerr.Error {
	if mem.classic != nil {
		return kerr.IllegalGeneration
	}
	return kerr.StaleMemberEpoch
}

// checkFetch says whether a member may fetch offsets; who names none may.
func (g *consumerGroup) checkFetch(req *kmsg.OffsetFetchRequestGroup) *kerr.Error {
	if req.MemberID == nil && req.MemberEpoch < 0 {
		return nil
	}
	id := ""
	if req.MemberID != nil {
		id = *req.MemberID
	}
	mem := g.members[id]
	switch {
	case mem == nil:
		return kerr.UnknownMemberID
	case mem.epoch != req.MemberEpoch:
		return mem.stale()
	}
	return nil
}

func migrationPolicy(name string) MigrationPolicy {
	switch strings.ToUpper(name) {
	case "UPGRADE":
		return MigrationPolicy{Upgrade: true}
	case "DOWNGRADE":
		return MigrationPolicy{Downgrade: true}
	case "BIDIRECTIONAL":
		return MigrationPolicy{Upgrade: true, Downgrade: true}
	}
	return MigrationPolicy{}
}

// consumerSettings returns a group's settings. They are asked for with every heartbeat, and seldom change.
func (m *Machine) consumerSettings(g *consumerGroup) consumerSettings {
	if s := &g.settings; s.image != m.imageSeq || s.of != m.settings {
		s.image, s.of = m.imageSeq, m.settings
		s.consumerSettings = m.settings.consumer(m.image.Config(metadata.Resource{Type: metadata.GroupConfig, Name: g.id}))
	}
	return g.settings.consumerSettings
}

// hearConsumer notes a sign of life of a member.
func (m *Machine) hearConsumer(g *consumerGroup, mem *consumerMember) {
	timeout := m.consumerSettings(g).sessionTimeout
	if mem.classic != nil {
		timeout = ms(mem.classic.sessionTimeoutMs)
	}
	m.timers.set(timer{sessionTimer, g.id, mem.id}, m.now.Add(timeout))
}

// fireConsumer fences a member that let a time pass.
func (m *Machine) fireConsumer(g *consumerGroup, t timer) {
	if mem := g.members[t.member]; mem != nil {
		m.fence(g, mem)
	}
}

// fence takes members out. If those that are left all speak the classic protocol the group becomes a classic one.
func (m *Machine) fence(g *consumerGroup, members ...*consumerMember) {
	for _, mem := range members {
		m.removeConsumer(g, mem)
	}
	if m.downgrades(g) {
		m.downgrade(g)
		return
	}
	m.bump(g)
	if len(g.members) == 0 { // who comes next need not wait for consumer.assignment.interval.ms to pass
		m.emit(g.targetEpochRecord(g.epoch, 0))
	}
}

// removeConsumer writes the tombstones of a member, and of its regular expression if nobody else has it.
func (m *Machine) removeConsumer(g *consumerGroup, mem *consumerMember) {
	m.stopMember(g, mem.id)
	m.emit(Record{Key: &records.ConsumerGroupCurrentMemberAssignmentKey{GroupID: g.id, MemberID: mem.id}})
	m.emit(Record{Key: &records.ConsumerGroupTargetAssignmentMemberKey{GroupID: g.id, MemberID: mem.id}})
	m.emit(Record{Key: &records.ConsumerGroupMemberMetadataKey{GroupID: g.id, MemberID: mem.id}})
	m.forgetRegex(g, mem.regex)
}

// bump begins a new epoch of the group.
func (m *Machine) bump(g *consumerGroup) {
	g.seen = m.imageSeq
	m.emit(Record{&records.ConsumerGroupMetadataKey{GroupID: g.id}, &records.ConsumerGroupMetadataValue{Epoch: g.epoch + 1, MetadataHash: m.metadataHash(g)}, 0})
	m.forgetOld(g)
}

// forgetOld removes the record of the subscribed topics that coordinators of old wrote: a broker that reads it makes a group of it.
func (m *Machine) forgetOld(g *consumerGroup) {
	if g.old {
		m.emit(Record{Key: &records.ConsumerGroupPartitionMetadataKey{GroupID: g.id}})
	}
}

func (m *Machine) stopMember(g *consumerGroup, id string) {
	for _, kind := range []timerKind{sessionTimer, rebalanceTimer, joinTimer, syncTimer} {
		m.timers.cancel(timer{kind, g.id, id})
	}
}

func (m *Machine) stopConsumer(g *consumerGroup) {
	for id := range g.members {
		m.stopMember(g, id)
	}
}

// consumerLoaded starts the timers of a group that was replayed. A classic member has its own session timeout as before. (Apache gives it the
// group's until its next sign of life.)
func (m *Machine) consumerLoaded(g *consumerGroup) {
	for _, id := range g.sorted() {
		mem := g.members[id]
		m.hearConsumer(g, mem)
		if mem.classic == nil && mem.state == memberUnrevoked {
			m.timers.set(timer{rebalanceTimer, g.id, id}, m.now.Add(ms(mem.rebalanceTimeoutMs)))
		}
	}
}

// deleteConsumer writes the tombstones of the whole group, the group's own last.
func (m *Machine) deleteConsumer(g *consumerGroup) {
	for _, id := range g.sorted() {
		m.removeConsumer(g, g.members[id])
	}
	for _, re := range slices.Sorted(maps.Keys(g.regexes)) {
		m.emit(Record{Key: &records.ConsumerGroupRegularExpressionKey{GroupID: g.id, RegularExpression: re}})
	}
	m.emit(Record{Key: &records.ConsumerGroupTargetAssignmentMetadataKey{GroupID: g.id}})
	m.forgetOld(g)
	m.emit(Record{Key: &records.ConsumerGroupMetadataKey{GroupID: g.id}})
}

// replayConsumer applies a record of a consumer group.
func (m *Machine) replayConsumer(key, value records.Message) {
	switch k := key.(type) {
	case *records.ConsumerGroupMetadataKey:
		v := as[records.ConsumerGroupMetadataValue](value)
		if v == nil {
			if g := m.groups[k.GroupID]; g != nil && g.consumer != nil {
				m.drop(k.GroupID)
			}
			return
		}
		g := m.replayedConsumer(k.GroupID, true)
		g.epoch, g.metadataHash = v.Epoch, v.MetadataHash
	case *records.ConsumerGroupPartitionMetadataKey:
		if g := m.replayedConsumer(k.GroupID, value != nil); g != nil {
			g.old = value != nil
		}
	case *records.ConsumerGroupMemberMetadataKey:
		if g := m.replayedConsumer(k.GroupID, value != nil); g != nil {
			g.replayMember(k.MemberID, as[records.ConsumerGroupMemberMetadataValue](value))
		}
	case *records.ConsumerGroupTargetAssignmentMetadataKey:
		if g := m.replayedConsumer(k.GroupID, value != nil); g != nil {
			g.assignmentEpoch, g.assignmentMs = -1, 0
			if v := as[records.ConsumerGroupTargetAssignmentMetadataValue](value); v != nil {
				g.assignmentEpoch, g.assignmentMs = v.AssignmentEpoch, v.AssignmentTimestamp
			}
		}
	case *records.ConsumerGroupTargetAssignmentMemberKey:
		if g := m.replayedConsumer(k.GroupID, value != nil); g != nil {
			g.replayTarget(k.MemberID, as[records.ConsumerGroupTargetAssignmentMemberValue](value))
		}
	case *records.ConsumerGroupCurrentMemberAssignmentKey:
		if g := m.replayedConsumer(k.GroupID, value != nil); g != nil {
			g.replayCurrent(k.MemberID, as[records.ConsumerGroupCurrentMemberAssignmentValue](value))
		}
	case *records.ConsumerGroupRegularExpressionKey:
		if g := m.replayedConsumer(k.GroupID, value != nil); g != nil {
			delete(g.regexes, k.RegularExpression)
			if v := as[records.ConsumerGroupRegularExpressionValue](value); v != nil {
				slices.Sort(v.Topics)
				g.regexes[k.RegularExpression] = &resolvedRegex{v.Topics, v.Timestamp}
			}
		}
	}
}

// replayedConsumer returns the group that a record speaks of; make says whether it may be new. One of another type gives
// way: its tombstone may have been compacted away.
func (m *Machine) replayedConsumer(id string, make bool) *consumerGroup {
	if g := m.groups[id]; g != nil && g.consumer != nil {
		return g.consumer
	}
	if !make {
		return nil
	}
	m.drop(id)
	g := newConsumerGroup(id)
	m.groups[id] = &group{id: id, consumer: g}
	return g
}

func (g *consumerGroup) replayMember(id string, v *records.ConsumerGroupMemberMetadataValue) {
	old := g.members[id]
	if old != nil {
		g.tally.add(old, -1)
		if old.instanceID != nil && g.static[*old.instanceID] == id {
			delete(g.static, *old.instanceID)
		}
	}
	if v == nil {
		delete(g.members, id)
		return
	}
	mem := &consumerMember{id: id, previousEpoch: -1}
	if old != nil {
		*mem = *old
	}
	mem.instanceID, mem.rackID, mem.clientID, mem.clientHost = v.InstanceID, v.RackID, v.ClientID, v.ClientHost
	mem.topics, mem.regex, mem.rebalanceTimeoutMs, mem.assignor, mem.classic = v.SubscribedTopicNames, "", v.RebalanceTimeoutMs, v.ServerAssignor, nil
	if v.SubscribedTopicRegex != nil {
		mem.regex = *v.SubscribedTopicRegex
	}
	if c := v.ClassicMemberMetadata; c != nil && len(c.SupportedProtocols) > 0 {
		mem.classic = &classicSide{c.SessionTimeoutMs, c.SupportedProtocols}
	}
	slices.Sort(mem.topics)
	g.members[id] = mem
	g.tally.add(mem, 1)
	if mem.instanceID != nil {
		g.static[*mem.instanceID] = id
	}
}

func (g *consumerGroup) replayTarget(id string, v *records.ConsumerGroupTargetAssignmentMemberValue) {
	delete(g.target, id)
	if v == nil {
		return
	}
	a := assignment{}
	for _, t := range v.TopicPartitions {
		slices.Sort(t.Partitions)
		a[t.TopicID] = t.Partitions
	}
	g.target[id] = a
}

func (g *consumerGroup) replayCurrent(id string, v *records.ConsumerGroupCurrentMemberAssignmentValue) {
	old := g.members[id]
	if old == nil {
		if v == nil {
			return
		}
		old = &consumerMember{id: id}
	}
	for _, o := range []owned{old.assigned, old.revoking} {
		for tp := range o {
			if g.owner[tp] == id {
				delete(g.owner, tp)
			}
		}
	}
	mem := *old
	mem.epoch, mem.previousEpoch, mem.state, mem.assigned, mem.revoking = 0, -1, memberStable, nil, nil
	if v != nil {
		mem.epoch, mem.previousEpoch, mem.state = v.MemberEpoch, v.PreviousMemberEpoch, memberState(v.State)
		mem.assigned, mem.revoking = ownedOf(v.AssignedPartitions, v.MemberEpoch), ownedOf(v.PartitionsPendingRevocation, v.MemberEpoch)
	}
	g.members[id] = &mem
	for _, o := range []owned{mem.assigned, mem.revoking} {
		for tp := range o {
			g.owner[tp] = id
		}
	}
}

// metadataRecord is a member's subscription as its record has it.
func (g *consumerGroup) metadataRecord(mem *consumerMember) Record {
	v := records.NewConsumerGroupMemberMetadataValue()
	v.InstanceID, v.RackID, v.ClientID, v.ClientHost = mem.instanceID, mem.rackID, mem.clientID, mem.clientHost
	v.SubscribedTopicNames, v.RebalanceTimeoutMs, v.ServerAssignor = slices.Clone(mem.topics), mem.rebalanceTimeoutMs, mem.assignor
	v.SubscribedTopicRegex = &mem.regex // Apache's records have "" rather than null
	v.ClassicMemberMetadata = nil
	if c := mem.classic; c != nil {
		v.ClassicMemberMetadata = &records.ClassicMemberMetadata{SessionTimeoutMs: c.sessionTimeoutMs, SupportedProtocols: c.protocols}
	}
	return Record{&records.ConsumerGroupMemberMetadataKey{GroupID: g.id, MemberID: mem.id}, v, 0}
}

// currentRecord is where a member stands as its record has it.
func (g *consumerGroup) currentRecord(mem *consumerMember) Record {
	return Record{&records.ConsumerGroupCurrentMemberAssignmentKey{GroupID: g.id, MemberID: mem.id}, &records.ConsumerGroupCurrentMemberAssignmentValue{
		MemberEpoch: mem.epoch, PreviousMemberEpoch: mem.previousEpoch, State: int8(mem.state),
		AssignedPartitions: mem.assigned.records(), PartitionsPendingRevocation: mem.revoking.records(),
	}, 0}
}

func (g *consumerGroup) targetRecord(id string, a assignment) Record {
	v := &records.ConsumerGroupTargetAssignmentMemberValue{}
	for _, t := range a.topics() {
		v.TopicPartitions = append(v.TopicPartitions, records.ConsumerGroupTargetAssignmentMemberTopicPartition{TopicID: t, Partitions: slices.Clone(a[t])})
	}
	return Record{&records.ConsumerGroupTargetAssignmentMemberKey{GroupID: g.id, MemberID: id}, v, 0}
}

func (g *consumerGroup) targetEpochRecord(epoch int32, at int64) Record {
	return Record{&records.ConsumerGroupTargetAssignmentMetadataKey{GroupID: g.id},
		&records.ConsumerGroupTargetAssignmentMetadataValue{AssignmentEpoch: epoch, AssignmentTimestamp: at}, 0}
}

// assignorName is the one most members prefer, or the default.
func (m *Machine) assignorName(g *consumerGroup) string {
	best := g.tally.assignor()
	if best == "" && len(m.settings.ConsumerAssignors) > 0 {
		best = m.settings.ConsumerAssignors[0]
	}
	return best
}

// targetIsDue reports whether the partitions are to be assigned anew: the group has a newer epoch than its target, and
// consumer.assignment.interval.ms has passed since the last time, or the clock went back behind it.
func (m *Machine) targetIsDue(g *consumerGroup) bool {
	if g.epoch <= g.assignmentEpoch {
		return false
	}
	passed := m.nowMs() - g.assignmentMs
	return g.assignmentMs == 0 || passed < 0 || passed >= m.consumerSettings(g).assignmentInterval.Milliseconds()
}

// computeTarget assigns the partitions anew if that is due.
func (m *Machine) computeTarget(g *consumerGroup) {
	if !m.targetIsDue(g) {
		return
	}
	in := m.assignorInput(g)
	target := in.assign(m.assignorName(g))
	for i := range in.members {
		id := in.members[i].id
		if old, ok := g.target[id]; !ok || !old.equal(target[i]) {
			m.emit(g.targetRecord(id, target[i]))
		}
	}
	m.emit(g.targetEpochRecord(g.epoch, m.nowMs()))
}

// assignorInput is what an assignor gets to know of a group: static members first, by instance id, so that they keep their
// place when they restart, then the others by id. Source: RangeAssignor.
func (m *Machine) assignorInput(g *consumerGroup) *assignorInput {
	in := &assignorInput{topics: map[uuid.UUID]int32{}}
	ids := g.sorted()
	slices.SortStableFunc(ids, func(a, b string) int { return g.members[a].compareInstance(g.members[b]) })
	var names []string // of the member before, and their ids: most groups subscribe to the same
	var topics []uuid.UUID
	for _, id := range ids {
		mem := g.members[id]
		if mine := g.topicsOf(mem); topics == nil || !slices.Equal(mine, names) {
			names, topics = mine, []uuid.UUID{}
			for _, name := range mine {
				if t := m.image.TopicByName(name); t != nil {
					topics = append(topics, t.ID)
					in.topics[t.ID] = int32(t.PartitionCount())
				}
			}
			slices.SortFunc(topics, compareIDs)
		}
		one := assignee{id: id, topics: topics, previous: g.target[id]}
		if mem.rackID != nil {
			one.rack, in.racks = *mem.rackID, m.partitionRacks
		}
		in.members = append(in.members, one)
	}
	return in
}

// partitionRacks returns the racks of the brokers that have a replica of a partition; one may be there twice.
func (m *Machine) partitionRacks(topic uuid.UUID, partition int32) (racks []string) {
	p := m.image.Partition(topic, partition)
	if p == nil {
		return nil
	}
	for _, broker := range p.Replicas {
		if rack, ok := m.racks[broker]; ok {
			racks = append(racks, rack)
		}
	}
	return racks
}

// compareInstance orders members by instance id, those without one last.
func (mem *consumerMember) compareInstance(o *consumerMember) int {
	switch {
	case mem.instanceID != nil && o.instanceID != nil:
		return strings.Compare(*mem.instanceID, *o.instanceID)
	case mem.instanceID != nil:
		return -1
	case o.instanceID != nil:
		return 1
	}
	return 0
}

// sameSubscription reports whether a record of the one says what a record of the other does.
func (mem *consumerMember) sameSubscription(o *consumerMember) bool {
	same := func(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }
	classic := func(a, b *classicSide) bool {
		return a == b || a != nil && b != nil && a.sessionTimeoutMs == b.sessionTimeoutMs &&
			slices.EqualFunc(a.protocols, b.protocols, func(p, q records.ClassicProtocol) bool {
				return p.Name == q.Name && bytes.Equal(p.Metadata, q.Metadata)
			})
	}
	return same(mem.instanceID, o.instanceID) && same(mem.rackID, o.rackID) && mem.clientID == o.clientID && mem.clientHost == o.clientHost &&
		slices.Equal(mem.topics, o.topics) && mem.regex == o.regex && mem.rebalanceTimeoutMs == o.rebalanceTimeoutMs &&
		same(mem.assignor, o.assignor) && classic(mem.classic, o.classic)
}

// topicIDs returns the ids of those topics that are there.
func (m *Machine) topicIDs(names []string) map[uuid.UUID]bool {
	out := make(map[uuid.UUID]bool, len(names))
	for _, n := range names {
		if t := m.image.TopicByName(n); t != nil {
			out[t.ID] = true
		}
	}
	return out
}

// reconcile moves a member on towards its target, as far as what it still has and what others still have allows. told is what it
// says it owns; nil: it does not say. changed: its subscription did. Source: CurrentAssignmentBuilder.
func (m *Machine) reconcile(g *consumerGroup, id string, told *assignment, changed bool) {
	mem := g.members[id]
	if mem.reconciled(g.assignmentEpoch) && !changed {
		return
	}
	var next *consumerMember
	switch {
	case mem.state == memberUnrevoked && holds(told, mem.revoking):
		if !changed {
			return
		}
		next = m.unsubscribe(g, mem, told)
	case mem.state == memberStable && mem.epoch == g.assignmentEpoch:
		next = m.unsubscribe(g, mem, told)
	default:
		next = m.advance(g, mem, told)
	}
	if next.epoch == mem.epoch && next.state == mem.state && next.assigned.equal(mem.assigned) && next.revoking.equal(mem.revoking) {
		return
	}
	m.emit(g.currentRecord(next))
	if next.classic != nil {
		return
	}
	if next.state == memberUnrevoked {
		m.timers.set(timer{rebalanceTimer, g.id, id}, m.now.Add(ms(next.rebalanceTimeoutMs)))
	} else {
		m.timers.cancel(timer{rebalanceTimer, g.id, id})
	}
}

// holds reports whether a member owns, or may own, any of a set.
func holds(told *assignment, set owned) bool {
	if told == nil {
		return len(set) > 0
	}
	for tp := range set {
		if told.has(tp.topic, tp.partition) {
			return true
		}
	}
	return false
}

// unsubscribe takes from a member what it does not subscribe to any more, ahead of a new target.
func (m *Machine) unsubscribe(g *consumerGroup, mem *consumerMember, told *assignment) *consumerMember {
	wanted := m.topicIDs(g.topicsOf(mem))
	next := *mem
	next.assigned, next.revoking = owned{}, maps.Clone(mem.revoking)
	if next.revoking == nil {
		next.revoking = owned{}
	}
	for tp, epoch := range mem.assigned {
		if wanted[tp.topic] {
			next.assigned[tp] = epoch
		} else {
			next.revoking[tp] = epoch
		}
	}
	if len(next.assigned) < len(mem.assigned) {
		next.setEpoch(mem.epoch)
	}
	switch {
	case len(next.revoking) > 0 && holds(told, next.revoking):
		next.state = memberUnrevoked
	default:
		next.revoking = owned{}
	}
	return &next
}

// advance brings a member towards its target: it stays in its epoch as long as it has something to give back.
func (m *Machine) advance(g *consumerGroup, mem *consumerMember, told *assignment) *consumerMember {
	wanted := m.topicIDs(g.topicsOf(mem))
	target := g.target[mem.id]
	next := *mem
	next.assigned, next.revoking = owned{}, owned{}
	for tp, since := range mem.assigned {
		if wanted[tp.topic] && target.has(tp.topic, tp.partition) {
			next.assigned[tp] = since
		} else {
			next.revoking[tp] = since
		}
	}
	if holds(told, next.revoking) {
		next.setEpoch(mem.epoch)
		next.state = memberUnrevoked
		return &next
	}
	next.revoking = owned{}
	next.state = memberStable
	for t, partitions := range target {
		if !wanted[t] {
			continue
		}
		for _, p := range partitions {
			tp := topicPartition{t, p}
			if _, has := next.assigned[tp]; has {
				continue
			}
			if owner, taken := g.owner[tp]; taken && owner != mem.id { // what it was to give back itself it may keep
				next.state = memberUnreleased
				continue
			}
			next.assigned[tp] = g.assignmentEpoch
		}
	}
	next.setEpoch(g.assignmentEpoch)
	return &next
}

// setEpoch moves a member to an epoch; the one before is remembered, in case the answer gets lost.
func (mem *consumerMember) setEpoch(epoch int32) {
	mem.previousEpoch, mem.epoch = mem.epoch, epoch
}
