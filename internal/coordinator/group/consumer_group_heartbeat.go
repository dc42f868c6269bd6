package group

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// A refusalError is a code with a message to go with it.
type refusalError struct {
	code    *kerr.Error
	message string
}

func refuse(code *kerr.Error, format string, args ...any) *refusalError {
	return &refusalError{code, fmt.Sprintf(format, args...)}
}

// consumerGroupHeartbeat is all that a member of a consumer group says: it joins, changes what it subscribes to, tells what it
// owns, leaves; and it is told what it should own.
func (m *Machine) consumerGroupHeartbeat(op Op, req *kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatResponse {
	resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	err := m.checkConsumerHeartbeat(req)
	if err == nil && req.MemberEpoch < 0 {
		err = m.leaveConsumer(req, resp)
	} else if err == nil {
		err = m.heartbeatConsumer(op, req, resp)
	}
	if err != nil {
		*resp = *req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
		resp.ErrorCode, resp.ErrorMessage = err.code.Code, &err.message
	}
	return resp
}

// checkConsumerHeartbeat refuses what makes no sense whatever the group is, and what no record could hold. Source:
// throwIfConsumerGroupHeartbeatRequestIsInvalid.
//
// A member that is at epoch 0 and does not know it is told that it is none, whereupon it joins. (Apache answers INVALID_REQUEST, which ends
// a client for good. librdkafka gets there if it unsubscribes and subscribes while it looks up the topics of an assignment.)
func (m *Machine) checkConsumerHeartbeat(req *kmsg.ConsumerGroupHeartbeatRequest) *refusalError {
	empty := func(s *string) bool { return s != nil && strings.TrimSpace(*s) == "" }
	invalid := func(what string) *refusalError { return refuse(kerr.InvalidRequest, "%s", what) }
	switch {
	case empty(&req.MemberID) && (req.Version >= 1 || req.MemberEpoch != 0):
		return invalid("MemberId can't be empty.")
	case empty(&req.Group):
		return invalid("GroupId can't be empty.")
	case empty(req.InstanceID):
		return invalid("InstanceId can't be empty.")
	case empty(req.RackID):
		return invalid("RackId can't be empty.")
	case req.MemberEpoch < leaveStaticEpoch:
		return invalid("MemberEpoch is invalid.")
	case req.MemberEpoch == leaveStaticEpoch && req.InstanceID == nil:
		return invalid("InstanceId can't be null.")
	}
	if req.MemberEpoch == 0 {
		switch {
		case req.RebalanceTimeoutMillis == -1:
			return refuse(kerr.UnknownMemberID, "RebalanceTimeoutMs must be provided in first request.")
		case req.Topics == nil || len(req.Topics) > 0:
			return invalid("TopicPartitions must be empty when (re-)joining.")
		case req.SubscribedTopicNames == nil && req.SubscribedTopicRegex == nil:
			return invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
		}
	}
	if a := req.ServerAssignor; a != nil && !slices.Contains(m.settings.ConsumerAssignors, *a) {
		return refuse(kerr.UnsupportedAssignor, "ServerAssignor %s is not supported. Supported assignors: %s.", *a, strings.Join(m.settings.ConsumerAssignors, ", "))
	}
	return m.checkConsumerSize(req)
}

// checkRegex refuses an expression that cannot be read. One that a member has already could be.
func (m *Machine) checkRegex(req *kmsg.ConsumerGroupHeartbeatRequest) *refusalError {
	re := req.SubscribedTopicRegex
	if re == nil || *re == "" {
		return nil
	}
	if g := m.groups[req.Group]; g != nil && g.consumer != nil && g.consumer.tally.regexes[*re] > 0 {
		return nil
	}
	if _, err := regexp.Compile(*re); err != nil {
		return refuse(kerr.InvalidRegularExpression, "SubscribedTopicRegex `%s` is not a valid regular expression: %v.", *re, err)
	}
	return nil
}

// checkConsumerSize refuses what no record could hold. (Apache accepts it, and fails when it writes the member.)
func (m *Machine) checkConsumerSize(req *kmsg.ConsumerGroupHeartbeatRequest) *refusalError {
	size := 0
	for _, s := range req.SubscribedTopicNames {
		size += len(s) + 3
	}
	if req.SubscribedTopicRegex != nil {
		size += len(*req.SubscribedTopicRegex)
	}
	if size > m.settings.MaxRecordBytes {
		return refuse(kerr.InvalidRequest, "The subscription takes %d bytes, and a record of __consumer_offsets holds %d; subscribe to fewer topics or by a regular expression.", size, m.settings.MaxRecordBytes)
	}
	return nil
}

func (m *Machine) heartbeatConsumer(op Op, req *kmsg.ConsumerGroupHeartbeatRequest, resp *kmsg.ConsumerGroupHeartbeatResponse) *refusalError {
	if err := m.checkConsumerMember(req); err != nil {
		return err
	}
	if err := m.checkRegex(req); err != nil {
		return err
	}
	g := m.consumerFor(req.Group)
	id := req.MemberID
	if id == "" {
		id = m.newID().String()
	}
	told := ownedBy(req.Topics)
	before := m.memberFor(g, id, req.InstanceID)
	next := *before
	next.clientID, next.clientHost, next.classic = op.ClientID, op.ClientHost, nil
	next.takeOver(req)
	g, changed := m.updateMember(g, before, &next, op)
	m.computeTarget(g)
	m.reconcile(g, id, told, changed)
	now := g.members[id]
	m.timers.cancel(timer{joinTimer, g.id, id})
	m.timers.cancel(timer{syncTimer, g.id, id})
	m.hearConsumer(g, now)

	resp.MemberID, resp.MemberEpoch = &id, now.epoch
	resp.HeartbeatIntervalMillis = int32(m.consumerSettings(g).heartbeatInterval.Milliseconds())
	full := req.MemberEpoch == 0 || req.RebalanceTimeoutMillis != -1 && (req.SubscribedTopicNames != nil || req.SubscribedTopicRegex != nil) && req.Topics != nil
	if full || !now.assigned.samePartitions(before.assigned) {
		resp.Assignment = responseAssignment(now.assigned.assignment())
	}
	return nil
}

// takeOver takes what a heartbeat says of a member; what it leaves out stays.
func (mem *consumerMember) takeOver(req *kmsg.ConsumerGroupHeartbeatRequest) {
	if req.InstanceID != nil {
		mem.instanceID = req.InstanceID
	}
	if req.RackID != nil {
		mem.rackID = req.RackID
	}
	if req.RebalanceTimeoutMillis != -1 {
		mem.rebalanceTimeoutMs = req.RebalanceTimeoutMillis
	}
	if req.ServerAssignor != nil {
		mem.assignor = req.ServerAssignor
	}
	if req.SubscribedTopicNames != nil {
		mem.topics = distinct(req.SubscribedTopicNames)
	}
	if req.SubscribedTopicRegex != nil {
		mem.regex = *req.SubscribedTopicRegex
	}
}

func distinct(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// checkConsumerMember says whether the group takes this member as it is. Nothing has been changed yet when it refuses.
func (m *Machine) checkConsumerMember(req *kmsg.ConsumerGroupHeartbeatRequest) *refusalError {
	joins := req.MemberEpoch == 0
	known := m.groups[req.Group]
	switch {
	case known == nil && !joins:
		return refuse(kerr.GroupIDNotFound, "Consumer group %s not found.", req.Group)
	case known == nil:
		return nil
	case known.classic != nil:
		return m.checkUpgrade(known.classic, req, joins)
	}
	g := known.consumer
	if g.isFull(m.settings.ConsumerMaxSize, req.MemberID, req.InstanceID) {
		return m.tooManyMembers()
	}
	mem := g.members[req.MemberID]
	if req.InstanceID != nil {
		holder := g.members[g.static[*req.InstanceID]]
		switch {
		// Who joins under its own id once more did not get the answer. (Apache takes it for another, and refuses it for good.)
		case joins && (holder == nil || holder.id == req.MemberID || holder.classic != nil || holder.epoch == leaveStaticEpoch):
			return nil
		case joins:
			return refuse(kerr.UnreleasedInstanceID, "Static member %s with instance id %s cannot join the group because the instance id is owned by %s member.",
				req.MemberID, *req.InstanceID, holder.id)
		case holder == nil:
			return refuse(kerr.UnknownMemberID, "Instance id %s is unknown.", *req.InstanceID)
		case holder.id != req.MemberID:
			return refuse(kerr.FencedInstanceID, "Static member %s with instance id %s was fenced by member %s.", req.MemberID, *req.InstanceID, holder.id)
		}
		mem = holder
	}
	if mem == nil && joins {
		return nil
	}
	if mem == nil {
		return refuse(kerr.UnknownMemberID, "Member %s is not a member of group %s.", req.MemberID, req.Group)
	}
	return mem.checkEpoch(req)
}

// isFull reports whether a group of at most size members has no place for this one: it is none of them, nor does it take over
// from one.
func (g *consumerGroup) isFull(size int, id string, instance *string) bool {
	if instance != nil {
		if _, ok := g.static[*instance]; ok {
			return false
		}
	}
	return g.members[id] == nil && len(g.members) >= size
}

func (m *Machine) tooManyMembers() *refusalError {
	return refuse(kerr.GroupMaxSizeReached, "The consumer group has reached its maximum capacity of %d members.", m.settings.ConsumerMaxSize)
}

// checkEpoch fences a member that is not where the coordinator knows it to be. One that did not get the last answer is let
// through, as long as it owns nothing that it should not.
func (mem *consumerMember) checkEpoch(req *kmsg.ConsumerGroupHeartbeatRequest) *refusalError {
	switch {
	case (mem.state < memberStable || mem.state > memberUnreleased) && (req.Topics == nil || len(req.Topics) > 0):
		return refuse(kerr.FencedMemberEpoch, "The consumer group member is in a state (%d) that this coordinator does not know. "+
			"The member must abandon all its partitions and rejoin.", mem.state)
	case req.MemberEpoch == 0, req.MemberEpoch == mem.epoch:
		return nil
	case req.MemberEpoch > mem.epoch:
		return refuse(kerr.FencedMemberEpoch, "The consumer group member has a greater member epoch (%d) than the one known by the group coordinator (%d). "+
			"The member must abandon all its partitions and rejoin.", req.MemberEpoch, mem.epoch)
	}
	if req.MemberEpoch == mem.previousEpoch && mem.ownsAll(req.Topics) {
		return nil
	}
	return refuse(kerr.FencedMemberEpoch, "The consumer group member has a smaller member epoch (%d) than the one known by the group coordinator (%d). "+
		"The member must abandon all its partitions and rejoin.", req.MemberEpoch, mem.epoch)
}

// ownsAll reports whether what a member tells that it owns is assigned to it.
func (mem *consumerMember) ownsAll(topics []kmsg.ConsumerGroupHeartbeatRequestTopic) bool {
	for _, t := range topics {
		for _, p := range t.Partitions {
			if _, ok := mem.assigned[topicPartition{t.TopicID, p}]; !ok {
				return false
			}
		}
	}
	return topics != nil
}

// ownedBy is what a member tells that it owns; nil if it does not tell.
func ownedBy(topics []kmsg.ConsumerGroupHeartbeatRequestTopic) *assignment {
	if topics == nil {
		return nil
	}
	a := assignment{}
	for _, t := range topics {
		a[t.TopicID] = slices.Concat(a[t.TopicID], t.Partitions)
		slices.Sort(a[t.TopicID])
	}
	return &a
}

// memberFor returns a member, or one to be made. A static member that comes with a new id takes over from the old one.
func (m *Machine) memberFor(g *consumerGroup, id string, instance *string) *consumerMember {
	if mem := g.members[id]; mem != nil {
		return mem
	}
	if instance != nil {
		if old := g.members[g.static[*instance]]; old != nil {
			return m.replaceStatic(g, old, id)
		}
	}
	return &consumerMember{id: id, previousEpoch: -1}
}

// replaceStatic moves all that a static member has to its new id.
func (m *Machine) replaceStatic(g *consumerGroup, old *consumerMember, id string) *consumerMember {
	target := g.target[old.id]
	next := *old
	next.id, next.epoch, next.previousEpoch = id, 0, 0
	m.stopMember(g, old.id)
	m.emit(Record{Key: &records.ConsumerGroupCurrentMemberAssignmentKey{GroupID: g.id, MemberID: old.id}})
	m.emit(Record{Key: &records.ConsumerGroupTargetAssignmentMemberKey{GroupID: g.id, MemberID: old.id}})
	m.emit(Record{Key: &records.ConsumerGroupMemberMetadataKey{GroupID: g.id, MemberID: old.id}})
	m.emit(g.metadataRecord(&next))
	m.emit(g.targetRecord(id, target))
	m.emit(g.currentRecord(&next))
	return g.members[id]
}

// updateMember writes what is new about a member, and begins another epoch of the group if that, or the topics, call for a new
// assignment. It returns the group, which may have been made by it, and whether the member's subscription changed.
func (m *Machine) updateMember(g *consumerGroup, before, next *consumerMember, op Op) (_ *consumerGroup, changed bool) {
	assignor := m.assignorName(g)
	if g.members[next.id] == nil || !next.sameSubscription(before) {
		m.emit(g.metadataRecord(next))
		g = m.groups[g.id].consumer
	}
	changed = !slices.Equal(before.topics, next.topics)
	bump := changed || m.assignorName(g) != assignor
	if before.regex != next.regex {
		changed, bump = true, bump || next.regex == "" || g.regexes[next.regex] != nil
		m.forgetRegex(g, before.regex)
	}
	later := ""
	if len(next.topics) > 0 && !slices.Equal(before.topics, next.topics) {
		later = next.regex
	}
	if m.resolve(g, op, later) {
		bump = true
	}
	if !bump && (changed || g.seen != m.imageSeq) {
		g.seen = m.imageSeq
		bump = m.metadataHash(g) != g.metadataHash
	}
	if bump {
		m.bump(g)
	}
	return g, changed
}

// forgetRegex removes a regular expression that no member has any more.
func (m *Machine) forgetRegex(g *consumerGroup, regex string) {
	if g.regexes[regex] == nil || g.tally.regexes[regex] > 0 {
		return
	}
	m.emit(Record{Key: &records.ConsumerGroupRegularExpressionKey{GroupID: g.id, RegularExpression: regex}})
}

// resolve finds the topics of the group's regular expressions: of those that are new, and of all if a topic came or went or
// some time has passed, as who may see what can change as well. It reports whether a match did. (Apache does it beside the heartbeat, every
// ten seconds at most: what a new expression matches is assigned with a later one, and so is a new topic.)
//
// An expression that came together with new names waits for the next heartbeat here as well: who mixes the two, as only librdkafka
// does, has come to expect the topics of the names by themselves first.
func (m *Machine) resolve(g *consumerGroup, op Op, later string) (changed bool) {
	for _, re := range slices.Sorted(maps.Keys(g.tally.regexes)) {
		known := g.regexes[re]
		if known == nil && re == later {
			continue
		}
		if known != nil && g.matched == m.topicsSeq && known.isFresh(m.nowMs(), m.settings.RegexRefreshInterval.Milliseconds()) {
			continue
		}
		topics := m.matching(re, op.MayDescribe)
		if known != nil && slices.Equal(topics, known.topics) && g.matched != m.topicsSeq {
			continue // it matches none of the topics that came or went
		}
		changed = changed || known == nil && len(topics) > 0 || known != nil && !slices.Equal(topics, known.topics)
		m.emit(Record{&records.ConsumerGroupRegularExpressionKey{GroupID: g.id, RegularExpression: re},
			&records.ConsumerGroupRegularExpressionValue{Topics: topics, Version: m.image.Offset, Timestamp: m.nowMs()}, 0})
	}
	g.matched = m.topicsSeq
	return changed
}

// isFresh reports whether a match is no older than an interval; one of the future is not: the clock went back.
func (r *resolvedRegex) isFresh(nowMs, interval int64) bool {
	age := nowMs - r.atMs
	return age >= 0 && age < interval
}

// matching returns the topics whose whole name matches, by name. The syntax is RE2's, as is the one of Apache's coordinator, so
// that no expression takes more than linear time.
func (m *Machine) matching(expression string, may func(string) bool) []string {
	out := []string{}
	re, err := regexp.Compile(`^(?:` + expression + `)$`)
	if err != nil {
		return out // a record of another make that this one cannot read matches nothing
	}
	for t := range m.image.Topics() {
		if re.MatchString(t.Name) && (may == nil || may(t.Name)) {
			out = append(out, t.Name)
		}
	}
	return out
}

// leaveConsumer takes a member out, or, of a static one that means to be back, keeps its place.
func (m *Machine) leaveConsumer(req *kmsg.ConsumerGroupHeartbeatRequest, resp *kmsg.ConsumerGroupHeartbeatResponse) *refusalError {
	known := m.groups[req.Group]
	if known == nil || known.consumer == nil {
		return refuse(kerr.GroupIDNotFound, "Group %s not found.", req.Group)
	}
	g := known.consumer
	mem := g.members[req.MemberID]
	if req.InstanceID != nil {
		mem = g.members[g.static[*req.InstanceID]]
		if mem == nil {
			return refuse(kerr.UnknownMemberID, "Instance id %s is unknown.", *req.InstanceID)
		}
		if mem.id != req.MemberID {
			return refuse(kerr.FencedInstanceID, "Static member %s with instance id %s was fenced by member %s.", req.MemberID, *req.InstanceID, mem.id)
		}
	}
	if mem == nil {
		return refuse(kerr.UnknownMemberID, "Member %s is not a member of group %s.", req.MemberID, req.Group)
	}
	resp.MemberID, resp.MemberEpoch = &mem.id, req.MemberEpoch
	if req.MemberEpoch == leaveEpoch {
		m.fence(g, mem)
		return nil
	}
	next := *mem
	next.epoch, next.assigned, next.revoking = leaveStaticEpoch, mem.assigned.as(0), nil
	m.timers.cancel(timer{rebalanceTimer, g.id, mem.id})
	m.emit(g.currentRecord(&next))
	return nil
}

func responseAssignment(a assignment) *kmsg.ConsumerGroupHeartbeatResponseAssignment {
	out := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
	out.Topics = []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{}
	for _, t := range a.topics() {
		out.Topics = append(out.Topics, kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{TopicID: t, Partitions: a[t]})
	}
	return &out
}

// consumerGroupDescribe describes consumer groups.
func (m *Machine) consumerGroupDescribe(req *kmsg.ConsumerGroupDescribeRequest) *kmsg.ConsumerGroupDescribeResponse {
	resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	for _, id := range req.Groups {
		d := kmsg.NewConsumerGroupDescribeResponseGroup()
		d.Group = id
		switch g := m.groups[id]; {
		case g == nil:
			message := "Group " + id + " not found."
			d.ErrorCode, d.ErrorMessage = kerr.GroupIDNotFound.Code, &message
		case g.consumer == nil:
			message := "Group " + id + " is not a consumer group."
			d.ErrorCode, d.ErrorMessage = kerr.GroupIDNotFound.Code, &message
		default:
			m.describeConsumer(g.consumer, &d)
		}
		resp.Groups = append(resp.Groups, d)
	}
	return resp
}

func (m *Machine) describeConsumer(g *consumerGroup, d *kmsg.ConsumerGroupDescribeResponseGroup) {
	d.State, d.Epoch, d.AssignmentEpoch, d.AssignorName = g.state().String(), g.epoch, g.assignmentEpoch, m.assignorName(g)
	for _, id := range slices.Backward(g.sorted()) { // as listGroups
		mem := g.members[id]
		r := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		r.MemberID, r.InstanceID, r.RackID, r.MemberEpoch, r.ClientID, r.ClientHost = id, mem.instanceID, mem.rackID, mem.epoch, mem.clientID, mem.clientHost
		r.SubscribedTopics = mem.topics
		r.SubscribedTopicRegex = &mem.regex
		r.Assignment, r.TargetAssignment = m.describedAssignment(mem.has().assignment()), m.describedAssignment(g.target[id])
		if r.MemberType = 1; mem.classic != nil {
			r.MemberType = 0
		}
		d.Members = append(d.Members, r)
	}
}

// has is what is assigned to a member and what it still has to give back.
func (mem *consumerMember) has() owned {
	all := owned{}
	maps.Copy(all, mem.assigned)
	maps.Copy(all, mem.revoking)
	return all
}

// describedAssignment leaves out topics that are gone.
func (m *Machine) describedAssignment(a assignment) (out kmsg.Assignment) {
	for _, id := range a.topics() {
		if t := m.image.Topic(uuid.UUID(id)); t != nil {
			out.TopicPartitions = append(out.TopicPartitions, kmsg.AssignmentTopicPartition{TopicID: id, Topic: t.Name, Partitions: a[id]})
		}
	}
	return out
}
