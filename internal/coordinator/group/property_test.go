package group

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"ottla/internal/uuid"
)

// The property tests run clients against one machine: classic ones, which rejoin when they are told to, and ones with the
// new protocol, which subscribe by name or by an expression. They come, leave, fall silent and come back, commit, and commit once more when they are no members any more; topics grow,
// go and come again; the coordinator moves, and fails to write what it has just decided. After each step
//
//   - the log replayed says what lives,
//   - no partition has two owners in a generation,
//   - none goes to another member before the one that had it gave it back, or is no member any more,
//   - no committed offset went back.
//
// When nothing changes any more each partition soon has exactly one owner.

// A client is a member as it sees itself.
type client struct {
	name     string
	classic  bool
	instance *string
	topics   []string
	regex    *string // by which it subscribes to topics, instead of by name
	silent   bool    // it does nothing until it comes back

	id         string
	epoch      int32 // member epoch or generation; 0: it has to join
	owns       map[topicPartition]bool
	joining    Ticket // of a parked JoinGroup
	syncing    Ticket
	mustRejoin bool
	seen       string // the topics when it joined last: it joins again when they are others, which a leader's rebalance comes of

	goneID    string // what it was when it was a member last
	goneEpoch int32
}

type model struct {
	*world
	clients []*client
	// committed are the offsets by topic, with its id.
	committed map[string]int64
	// generation is the last of a classic group, and owners who is assigned what in each, by "generation topic-partition".
	generation int32
	owners     map[string]string
}

const groupID = "g"

func (m *model) run(c *client) {
	switch {
	case c.silent, c.joining != 0, c.syncing != 0:
	case c.classic && (c.epoch == 0 || c.mustRejoin || c.seen != fmt.Sprint(m.topics)):
		m.join(c)
	case c.classic:
		m.classicBeat(c)
	default:
		m.beat(c)
	}
}

func (m *model) join(c *client) {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID, r.ProtocolType, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 9, groupID, c.id, c.instance, consumerProtocol, 10000, 20000
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version, meta.Topics, meta.Generation = 1, c.topics, -1
	owns := map[string][]int32{}
	for tp := range c.owns {
		if t := m.image.Topic(tp.topic); t != nil {
			owns[t.Name] = append(owns[t.Name], tp.partition)
		}
	}
	for _, t := range slices.Sorted(maps.Keys(owns)) {
		meta.OwnedPartitions = append(meta.OwnedPartitions, kmsg.ConsumerMemberMetadataOwnedPartition{Topic: t, Partitions: owns[t]})
	}
	r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "cooperative-sticky", Metadata: meta.AppendTo(nil)}}
	c.mustRejoin, c.seen = false, fmt.Sprint(m.topics)
	var answers []Answer
	c.joining, answers = m.do(r, c.name)
	m.answered(answers)
}

func (m *model) classicBeat(c *client) {
	r := kmsg.NewPtrHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = 4, groupID, c.id, c.instance, c.epoch
	own, answers := m.own(r, c)
	m.answered(answers)
	switch code(own.(*kmsg.HeartbeatResponse).ErrorCode) {
	case "ok", "NOT_COORDINATOR":
	case "REBALANCE_IN_PROGRESS":
		c.mustRejoin = true
	case "ILLEGAL_GENERATION":
		c.lose()
	default:
		c.lose()
		c.id = ""
	}
}

func (c *client) lose() {
	if c.epoch > 0 {
		c.goneID, c.goneEpoch = c.id, c.epoch
	}
	c.epoch, c.owns = 0, nil
}

// own performs a request that is never parked and returns its answer, and those to others.
func (m *model) own(r kmsg.Request, c *client) (kmsg.Response, []Answer) {
	ticket, answers := m.do(r, c.name)
	i := slices.IndexFunc(answers, func(a Answer) bool { return a.Ticket == ticket })
	own := answers[i].Response
	return own, slices.Delete(answers, i, i+1)
}

func (m *model) answered(answers []Answer) {
	for _, a := range answers {
		for _, c := range m.clients {
			switch a.Ticket {
			case c.joining:
				c.joining = 0
				m.joined(c, a.Response.(*kmsg.JoinGroupResponse))
			case c.syncing:
				c.syncing = 0
				m.synced(c, a.Response.(*kmsg.SyncGroupResponse))
			}
		}
	}
}

func (m *model) joined(c *client, r *kmsg.JoinGroupResponse) {
	switch code(r.ErrorCode) {
	case "ok":
	case "MEMBER_ID_REQUIRED":
		c.id = r.MemberID
		return
	case "REBALANCE_IN_PROGRESS", "NOT_COORDINATOR":
		c.mustRejoin = true
		return
	default:
		c.lose()
		c.id = ""
		return
	}
	c.id, c.epoch = r.MemberID, r.Generation
	s := kmsg.NewPtrSyncGroupRequest()
	s.Version, s.Group, s.MemberID, s.InstanceID, s.Generation = 5, groupID, c.id, c.instance, c.epoch
	if r.LeaderID == c.id && !r.SkipAssignment {
		s.GroupAssignment = m.lead(r)
	}
	if r.SkipAssignment {
		c.seen = "" // what the assignment it is to keep was made for it does not know
	}
	var answers []Answer
	c.syncing, answers = m.do(s, c.name)
	m.answered(answers)
}

// lead assigns each partition to the member that has it, or else to the first that may; cooperatively: what somebody else still has
// is left out for now.
func (m *model) lead(r *kmsg.JoinGroupResponse) []kmsg.SyncGroupRequestGroupAssignment {
	had, members := map[string]string{}, []string{}
	subscribed := map[string][]string{}
	for _, mem := range r.Members {
		meta := kmsg.NewConsumerMemberMetadata()
		if err := meta.ReadFrom(mem.ProtocolMetadata); err != nil {
			m.t.Fatal(err)
		}
		members = append(members, mem.MemberID)
		subscribed[mem.MemberID] = meta.Topics
		for _, o := range meta.OwnedPartitions {
			for _, p := range o.Partitions {
				had[fmt.Sprint(o.Topic, "-", p)] = mem.MemberID
			}
		}
	}
	out := map[string]map[string][]int32{}
	for _, topic := range slices.Sorted(maps.Keys(m.topics)) {
		for p := range m.topics[topic] {
			owner := had[fmt.Sprint(topic, "-", p)]
			for _, id := range members {
				if owner == "" && slices.Contains(subscribed[id], topic) {
					owner = id
				}
			}
			if owner != "" && slices.Contains(subscribed[owner], topic) {
				if out[owner] == nil {
					out[owner] = map[string][]int32{}
				}
				out[owner][topic] = append(out[owner][topic], p)
			}
		}
	}
	var all []kmsg.SyncGroupRequestGroupAssignment
	for _, id := range members {
		a := kmsg.NewConsumerMemberAssignment()
		a.Version = 1
		for _, topic := range slices.Sorted(maps.Keys(out[id])) {
			a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: topic, Partitions: out[id][topic]})
		}
		all = append(all, kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: a.AppendTo(nil)})
	}
	return all
}

func (m *model) synced(c *client, r *kmsg.SyncGroupResponse) {
	switch code(r.ErrorCode) {
	case "ok":
	case "REBALANCE_IN_PROGRESS", "NOT_COORDINATOR":
		c.mustRejoin = true
		return
	default:
		c.lose()
		c.id = ""
		return
	}
	a := kmsg.NewConsumerMemberAssignment()
	if err := a.ReadFrom(r.MemberAssignment); err != nil && len(r.MemberAssignment) > 0 {
		m.t.Fatal(err)
	}
	had := c.owns
	c.owns = map[topicPartition]bool{}
	for _, t := range a.Topics {
		topic := m.image.TopicByName(t.Topic)
		if topic == nil {
			continue
		}
		for _, p := range t.Partitions {
			c.owns[topicPartition{topic.ID, p}] = true
		}
	}
	m.checkGeneration(c)
	for tp := range had {
		if !c.owns[tp] {
			c.mustRejoin = true // it gave something back: cooperative clients come again
		}
	}
}

// beat is a heartbeat of the new protocol, with what the client owns, so that every revocation is acknowledged at once.
func (m *model) beat(c *client) {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID, r.MemberEpoch = 1, groupID, c.id, c.instance, c.epoch
	if r.RebalanceTimeoutMillis, r.SubscribedTopicNames = 20000, c.topics; c.regex != nil {
		r.SubscribedTopicNames, r.SubscribedTopicRegex = []string{}, c.regex
	}
	r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for tp := range c.owns {
		r.Topics = append(r.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: tp.topic, Partitions: []int32{tp.partition}})
	}
	if c.epoch == 0 {
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	own, answers := m.own(r, c)
	resp := own.(*kmsg.ConsumerGroupHeartbeatResponse)
	m.answered(answers)
	switch code(resp.ErrorCode) {
	case "NOT_COORDINATOR":
	case "ok":
		c.epoch = resp.MemberEpoch
		if resp.Assignment == nil {
			return
		}
		c.owns = map[topicPartition]bool{}
		for _, t := range resp.Assignment.Topics {
			for _, p := range t.Partitions {
				c.owns[topicPartition{t.TopicID, p}] = true
			}
		}
	default:
		c.lose()
	}
}

// leave takes a client out for good; or, if it is a static one of the new protocol and means to be back, for a while, to come again with
// another id.
func (m *model) leave(c *client, back bool) {
	back = back && !c.classic && c.instance != nil
	if c.joining != 0 || c.syncing != 0 {
		return
	}
	if c.classic {
		r := kmsg.NewPtrLeaveGroupRequest()
		r.Version, r.Group = 5, groupID
		r.Members = []kmsg.LeaveGroupRequestMember{{MemberID: c.id, InstanceID: c.instance}}
		_, answers := m.do(r, c.name)
		m.answered(answers)
	} else if c.epoch > 0 {
		r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		r.Version, r.Group, r.MemberID, r.InstanceID, r.MemberEpoch, r.RebalanceTimeoutMillis = 1, groupID, c.id, c.instance, leaveEpoch, -1
		if back {
			r.MemberEpoch = leaveStaticEpoch
		}
		_, answers := m.do(r, c.name)
		m.answered(answers)
	}
	c.lose()
	switch {
	case c.classic:
		c.id = ""
	case back:
		c.id += "'"
	}
	c.silent = true
}

// checkGeneration: what a member of a classic group is assigned nobody else is in the same generation.
func (m *model) checkGeneration(c *client) {
	if g := m.machine.groups[groupID]; g == nil || g.classic == nil {
		return
	}
	if c.epoch < m.generation { // the group began anew
		clear(m.owners)
	}
	m.generation = c.epoch
	for tp := range c.owns {
		key := fmt.Sprintf("%d %x-%d", c.epoch, tp.topic, tp.partition)
		if other, ok := m.owners[key]; ok && other != c.name {
			m.t.Fatalf("%s is both %s's and %s's", key, other, c.name)
		}
		m.owners[key] = c.name
	}
}

// check looks for partitions that two have: two members by the coordinator's word, and, of those clients that are still
// members, two by their own; and for offsets that are not what was committed last.
func (m *model) check() {
	told := map[topicPartition]string{}
	for _, c := range m.clients {
		if !m.isMember(c.id) || c.epoch == 0 {
			continue
		}
		for tp := range c.owns {
			if other, ok := told[tp]; ok {
				m.t.Fatalf("%x-%d: both %s and %s were told that they own it", tp.topic, tp.partition, other, c.id)
			}
			told[tp] = c.id
		}
	}
	for topic := range m.topics {
		if o, _ := m.machine.offsets.get(offsetKey{groupID, topic, 0}); o.offset != m.committed[m.key(topic)] {
			m.t.Fatalf("%s: committed %d, and the group has %d", topic, m.committed[m.key(topic)], o.offset)
		}
	}
	g := m.machine.groups[groupID]
	if g == nil || g.consumer == nil {
		return
	}
	owner := map[topicPartition]string{}
	for _, id := range g.consumer.sorted() {
		mem := g.consumer.members[id]
		for _, o := range []owned{mem.assigned, mem.revoking} {
			for tp := range o {
				if other, ok := owner[tp]; ok {
					m.t.Fatalf("%x-%d is %s's and %s's", tp.topic, tp.partition, other, id)
				}
				owner[tp] = id
			}
		}
	}
}

func (m *model) isMember(id string) bool {
	switch g := m.machine.groups[groupID]; {
	case g == nil:
		return false
	case g.classic != nil:
		return g.classic.members[id] != nil
	default:
		return g.consumer.members[id] != nil
	}
}

// key names a topic such that one that is created again is another.
func (m *model) key(topic string) string { return topic + m.ofTopic[topic].String() }

// commit commits for whoever is a member, a little further than before.
func (m *model) commit(c *client) {
	for _, topic := range slices.Sorted(maps.Keys(m.topics)) {
		if m.commitAs(c, c.id, c.epoch, topic, m.committed[m.key(topic)]+1) {
			m.committed[m.key(topic)]++
		}
	}
}

func (m *model) commitAs(c *client, id string, epoch int32, topic string, at int64) bool {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = 9, groupID, id, c.instance, epoch
	r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: 0, Offset: at}}}}
	own, answers := m.own(r, c)
	m.answered(answers)
	return own.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode == 0
}

// commitLate commits the beginning once more, as who has not heard that it is no member any more.
func (m *model) commitLate(c *client) {
	if c.goneID == "" || m.isMember(c.goneID) {
		return
	}
	for topic := range m.topics {
		if m.commitAs(c, c.goneID, c.goneEpoch, topic, 0) {
			m.t.Fatalf("%s, which is no member, committed as of epoch %d", c.goneID, c.goneEpoch)
		}
		return
	}
}

func (m *model) settle() {
	for range 60 {
		for _, c := range m.clients {
			m.run(c)
			m.check()
		}
		m.answered(m.advance(time.Second))
		m.checkReplay()
	}
}

// checkSettled: every partition that a live client subscribes to has exactly one owner.
func (m *model) checkSettled() {
	owners := map[topicPartition][]string{}
	wanted := map[string]bool{}
	for _, c := range m.clients {
		if c.silent {
			continue
		}
		for _, t := range c.topics {
			wanted[t] = true
		}
		for tp := range c.owns {
			owners[tp] = append(owners[tp], c.name)
		}
	}
	for topic := range m.topics {
		for p := range m.topics[topic] {
			tp := topicPartition{m.ofTopic[topic], p}
			want := 0
			if wanted[topic] {
				want = 1
			}
			if len(owners[tp]) != want {
				var b strings.Builder
				for _, c := range m.clients {
					fmt.Fprintf(&b, "\n%+v", *c)
				}
				m.t.Fatalf("%s-%d has owners %v, want %d\n%s%s", topic, p, owners[tp], want, strings.Join(describe(m.machine.groups[groupID], true), "\n"), b.String())
			}
			delete(owners, tp)
		}
	}
	for tp := range owners {
		if m.image.Topic(uuid.UUID(tp.topic)) != nil {
			m.t.Fatalf("somebody owns %x-%d, which nobody subscribes to", tp.topic, tp.partition)
		}
	}
}

func TestGroupsUnderChange(t *testing.T) {
	t.Run("classic", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { underChange(t, func(int) bool { return true }) })
	})
	t.Run("consumer", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { underChange(t, func(int) bool { return false }) })
	})
	t.Run("both", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { underChange(t, func(i int) bool { return i%2 == 0 }) })
	})
}

func underChange(t *rapid.T, classic func(i int) bool) {
	// Where the downgrade is forbidden a group may be left to classic members, who get what they are to have all the same.
	policy := rapid.SampledFrom([]string{"bidirectional", "upgrade"}).Draw(t, "group.consumer.migration.policy")
	m := &model{world: newWorld(t, "group.consumer.migration.policy="+policy), committed: map[string]int64{}, owners: map[string]string{}}
	m.topic("t", 3)
	m.topic("u", 2)
	for i := range rapid.IntRange(1, 5).Draw(t, "clients") {
		c := &client{name: fmt.Sprint("c", i), classic: classic(i), topics: []string{"t"}}
		if !c.classic {
			c.id = c.name
		}
		if rapid.Bool().Draw(t, "both topics") {
			c.topics = []string{"t", "u"}
		}
		if !c.classic && len(c.topics) == 2 && rapid.Bool().Draw(t, "by an expression") {
			c.regex = kmsg.StringPtr("[tu]")
		}
		if rapid.IntRange(0, 3).Draw(t, "static") == 0 {
			c.instance = &c.name
		}
		m.clients = append(m.clients, c)
	}
	any := rapid.SampledFrom(m.clients)
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		switch rapid.IntRange(0, 14).Draw(t, "step") {
		case 0, 1, 2, 3, 4:
			m.run(any.Draw(t, "runs"))
		case 5, 6:
			for _, c := range m.clients {
				m.run(c)
			}
		case 7:
			m.answered(m.advance(time.Duration(rapid.IntRange(0, 60000).Draw(t, "ms")) * time.Millisecond))
		case 8:
			c := any.Draw(t, "changes")
			c.silent = !c.silent
		case 9:
			m.leave(any.Draw(t, "leaves"), rapid.Bool().Draw(t, "for a while"))
		case 10:
			m.answered(m.restart())
		case 11:
			topic := rapid.SampledFrom([]string{"t", "u"}).Draw(t, "topic")
			if m.topics[topic] > 0 && rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
				m.answered(m.topic(topic, 0))
			} else {
				m.answered(m.topic(topic, m.topics[topic]+1))
			}
		case 12:
			m.commit(any.Draw(t, "commits"))
		case 13:
			m.commitLate(any.Draw(t, "commits late"))
		case 14:
			m.lose = true
		}
		m.check()
		m.checkReplay()
	}
	m.lose = false
	// Static members that fell silent keep their place for their session; so long it may take.
	m.settle()
	m.checkSettled()
}
