//go:build interop

package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Groups of an exchange. Their members stay in them over all brokers, as clients would that find a broker restarted; so
// they speak beneath a client's level. The names of the groups say what is in them.
const (
	classicGroup  = "exchange-classic"  // a dynamic member, its leader, and a static one
	consumerGroup = "exchange-consumer" // a dynamic member, and a static one that subscribes by regular expression
	mixedGroup    = "exchange-mixed"    // a member of the consumer protocol and one of the classic protocol
	goneGroup     = "exchange-gone"     // deleted before the broker goes, made again by the next one
	txnGroup      = "exchange-txn"      // offsets committed in transactions, of which every other one is aborted
)

var (
	classicGroups  = []string{"exchange", classicGroup, txnGroup, "exchange-readers-classic"}
	consumerGroups = []string{consumerGroup, mixedGroup, "exchange-readers-consumer"}
)

// exchangeGroups are the groups' members, and what they know.
type exchangeGroups struct {
	classic       []*classicMember
	consumer      []*consumerMember
	mixedConsumer *consumerMember
	mixedClassic  *classicMember
	read          int // records of topic "by-time" that the readers' groups have read
}

func newExchangeGroups() *exchangeGroups {
	instance, regex := "static", "growing|by-.*"
	return &exchangeGroups{
		classic: []*classicMember{{name: "leader", group: classicGroup}, {name: "follower", group: classicGroup, instance: &instance}},
		consumer: []*consumerMember{
			{name: "by-name", group: consumerGroup, id: "member-by-name", topics: []string{"growing"}},
			{name: "by-regex", group: consumerGroup, id: "member-by-regex", regex: &regex, instance: &instance},
		},
		mixedConsumer: &consumerMember{name: "mixed-consumer", group: mixedGroup, id: "member-mixed", topics: []string{"growing"}},
		mixedClassic:  &classicMember{name: "mixed-classic", group: mixedGroup},
	}
}

// connect gives each member a connection to b of its own: a JoinGroup keeps what comes behind it waiting.
func (x *exchangeGroups) connect(t *testing.T, b *broker) {
	t.Helper()
	connect := func(name string) *kgo.Client {
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.ClientID(name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return cl
	}
	for _, m := range append(slices.Clone(x.classic), x.mixedClassic) {
		m.client = connect(m.name)
	}
	for _, m := range append(slices.Clone(x.consumer), x.mixedConsumer) {
		m.client = connect(m.name)
	}
}

// found makes the groups, at the first broker.
func (x *exchangeGroups) found(t *testing.T, b *broker) {
	t.Helper()
	x.connect(t, b)
	leader, follower := x.classic[0], x.classic[1]
	leader.join(t)
	leader.sync(t, leader.assignments(x.classic[:1]))
	x.rebalance(t, follower, leader)
	x.settle(t, b, 1)
}

// same has the members go on at another broker as if nothing had happened: nobody joins, nothing changes, and all may commit.
func (x *exchangeGroups) same(t *testing.T, b *broker) {
	t.Helper()
	x.connect(t, b)
	before, names := b.groups(t), b.topicNames(t)
	for _, m := range append(slices.Clone(x.classic), x.mixedClassic) {
		if err := m.heartbeat(t); err != nil {
			t.Errorf("heartbeat of %s in generation %d: %v", m.name, m.generation, err)
		}
	}
	for _, m := range append(slices.Clone(x.consumer), x.mixedConsumer) {
		had := m.owned(names)
		m.heartbeat(t) // a full one, which is told its assignment
		if has := m.owned(names); !slices.Equal(has, had) {
			t.Errorf("%s is told a new assignment: %v, it had %v", m.name, has, had)
		}
	}
	stale := *x.classic[0]
	stale.generation--
	if err := stale.heartbeat(t); err != kerr.IllegalGeneration {
		t.Errorf("heartbeat of a stale generation: %v", err)
	}
	stale.id = "nobody"
	if err := stale.heartbeat(t); err != kerr.UnknownMemberID {
		t.Errorf("heartbeat of an unknown member: %v", err)
	}
	if after := b.groups(t); after != before {
		t.Errorf("heartbeats changed the groups:\n%s", firstDifference(after, before))
	}
	for _, m := range append(slices.Clone(x.classic), x.mixedClassic) {
		m.commit(t, b)
	}
	for _, m := range append(slices.Clone(x.consumer), x.mixedConsumer) {
		m.commit(t, b)
	}
}

// goOn has the groups change at this broker: the classic one rebalances, the others take the partition that topic "growing"
// got, and readers in groups of both protocols read what was written since they last did, from by-time.
func (x *exchangeGroups) goOn(t *testing.T, b *broker, partitions int, byTime []string) {
	t.Helper()
	x.rebalance(t, x.classic[0], x.classic[1]) // a leader that joins wants a new generation
	x.settle(t, b, partitions)
	for _, m := range append(slices.Clone(x.classic), x.mixedClassic) {
		m.commit(t, b)
	}
	for protocol, options := range map[string][]kgo.Opt{
		"classic":  nil,
		"consumer": {kgo.WithContext(nextGeneration())},
	} {
		got := b.readOn(t, "exchange-readers-"+protocol, "by-time", len(byTime)-x.read, options)
		want := slices.Clone(byTime)
		slices.SortFunc(want, func(a, b string) int { return offsetOf(t, a) - offsetOf(t, b) })
		if got, want := strings.Join(got, "\n"), strings.Join(want[x.read:], "\n"); got != want {
			t.Errorf("the reader with the %s protocol goes on elsewhere than where it was:\n%s", protocol, firstDifference(got, want))
		}
	}
	x.read = len(byTime)

	var offsets kadm.Offsets
	offsets.AddOffset("sequences", 0, 1, -1)
	eventually(t, "offsets of "+goneGroup+" are committed", func() bool {
		return b.admin.CommitAllOffsets(t.Context(), goneGroup, offsets) == nil
	})
	deleted, err := b.admin.DeleteGroups(t.Context(), goneGroup)
	if err != nil || deleted.Error() != nil {
		t.Fatal(err, deleted.Error())
	}
}

// nextGeneration opts in to the consumer protocol.
func nextGeneration() context.Context {
	//lint:ignore SA1029 the client looks for this very string
	return context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)
}

// readOn has a consumer of a group read count records of topic, commit, and leave.
func (b *broker) readOn(t *testing.T, group, topic string, count int, options []kgo.Opt) (lines []string) {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.address), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit()}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(lines) < count {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%s: %d of %d records: %v", group, len(lines), count, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { lines = append(lines, line(r)) })
	}
	if err := cl.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatalf("%s: %v", group, err)
	}
	if err := cl.LeaveGroupContext(ctx); err != nil {
		t.Fatalf("%s: %v", group, err)
	}
	return lines
}

// rebalance has the classic group make its next generation: the first member asks for it, the second one hears of it.
func (x *exchangeGroups) rebalance(t *testing.T, first, second *classicMember) {
	t.Helper()
	next := x.classic[0].generation + 1
	var joining sync.WaitGroup
	joining.Go(func() { first.join(t) })
	eventually(t, second.name+" hears of a rebalance", func() bool { return second.heartbeat(t) == kerr.RebalanceInProgress })
	second.join(t)
	joining.Wait()
	for _, m := range x.classic {
		if m.generation != next {
			t.Fatalf("%s is in generation %d, want %d", m.name, m.generation, next)
		}
	}
	x.classic[0].sync(t, x.classic[0].assignments(x.classic))
	x.classic[1].sync(t, nil)
}

// settle has the members of the other two groups go on until they own all partitions they subscribe to.
func (x *exchangeGroups) settle(t *testing.T, b *broker, growing int) {
	t.Helper()
	want := []string{"by-index-0", "by-size-0", "by-time-0"}
	for p := range growing {
		want = append(want, fmt.Sprint("growing-", p))
	}
	names := b.topicNames(t)
	slices.Sort(want)
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("owned: %v, want %v", got, want)
		}
	}()
	eventually(t, consumerGroup+" settles", func() bool {
		got = nil
		for _, m := range x.consumer {
			m.heartbeat(t)
			got = append(got, m.owned(names)...)
		}
		slices.Sort(got)
		return slices.Equal(got, want) && x.consumer[0].epoch == x.consumer[1].epoch
	})
	eventually(t, mixedGroup+" settles", func() bool {
		x.mixedConsumer.heartbeat(t)
		if m := x.mixedClassic; m.owned == nil || m.heartbeat(t) != nil {
			m.join(t)
			m.sync(t, nil)
		}
		got = append(x.mixedConsumer.owned(names), x.mixedClassic.owned...)
		slices.Sort(got)
		return slices.Equal(got, want[3:]) && x.mixedConsumer.epoch == x.mixedClassic.generation
	})
}

// topicNames returns the names of topics by id.
func (b *broker) topicNames(t *testing.T) map[[16]byte]string {
	t.Helper()
	details, err := b.admin.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := map[[16]byte]string{}
	for _, d := range details {
		names[d.ID] = d.Topic
	}
	return names
}

// A classicMember is one of a classic or a mixed group that subscribes to topic "growing".
type classicMember struct {
	client      *kgo.Client
	name, group string
	instance    *string
	id          string
	generation  int32
	owned       []string // of a mixed group: "topic-partition"
}

func (m *classicMember) join(t *testing.T) {
	t.Helper()
	metadata := kmsg.NewConsumerMemberMetadata()
	metadata.Version, metadata.Topics, metadata.UserData = 3, []string{"growing"}, []byte(m.name)
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "range", metadata.AppendTo(nil)
	r := kmsg.NewPtrJoinGroupRequest()
	r.Group, r.InstanceID, r.ProtocolType = m.group, m.instance, "consumer"
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 600_000, 600_000
	r.Protocols = append(r.Protocols, protocol)
	for range 2 { // the first time, it is told its id
		r.MemberID = m.id
		answer, err := r.RequestWith(t.Context(), m.client)
		if err != nil {
			t.Errorf("%s: JoinGroup: %v", m.name, err)
			return
		}
		m.id, m.generation = answer.MemberID, answer.Generation
		if err = kerr.ErrorForCode(answer.ErrorCode); err != kerr.MemberIDRequired {
			if err != nil {
				t.Errorf("%s: JoinGroup: %v", m.name, err)
			}
			return
		}
	}
}

// assignments are what the leader gives the members of the classic group: nobody reads it.
func (m *classicMember) assignments(members []*classicMember) (to []kmsg.SyncGroupRequestGroupAssignment) {
	for _, other := range members {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		topic := kmsg.NewConsumerMemberAssignmentTopic()
		topic.Topic, topic.Partitions = "growing", []int32{m.generation, int32(len(other.name))}
		assigned := kmsg.ConsumerMemberAssignment{Topics: []kmsg.ConsumerMemberAssignmentTopic{topic}}
		a.MemberID, a.MemberAssignment = other.id, assigned.AppendTo(nil)
		to = append(to, a)
	}
	return to
}

func (m *classicMember) sync(t *testing.T, assignments []kmsg.SyncGroupRequestGroupAssignment) {
	t.Helper()
	protocolType, protocol := "consumer", "range"
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group, r.Generation, r.MemberID, r.InstanceID = m.group, m.generation, m.id, m.instance
	r.ProtocolType, r.Protocol, r.GroupAssignment = &protocolType, &protocol, assignments
	answer, err := r.RequestWith(t.Context(), m.client)
	if err != nil {
		t.Fatal(err)
	}
	m.owned = nil
	if answer.ErrorCode == kerr.RebalanceInProgress.Code {
		return
	}
	var assigned kmsg.ConsumerMemberAssignment
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		t.Fatalf("%s: SyncGroup: %v", m.name, err)
	}
	if err := assigned.ReadFrom(answer.MemberAssignment); err != nil {
		t.Fatalf("%s: assignment %x: %v", m.name, answer.MemberAssignment, err)
	}
	for _, topic := range assigned.Topics {
		for _, p := range topic.Partitions {
			m.owned = append(m.owned, fmt.Sprintf("%s-%d", topic.Topic, p))
		}
	}
}

func (m *classicMember) heartbeat(t *testing.T) error {
	t.Helper()
	r := kmsg.NewPtrHeartbeatRequest()
	r.Group, r.Generation, r.MemberID, r.InstanceID = m.group, m.generation, m.id, m.instance
	answer, err := r.RequestWith(t.Context(), m.client)
	if err != nil {
		t.Fatal(err)
	}
	return kerr.ErrorForCode(answer.ErrorCode)
}

func (m *classicMember) commit(t *testing.T, b *broker) {
	t.Helper()
	b.commit(t, m.client, m.name, m.group, m.id, m.instance, m.generation)
}

// A consumerMember is one of the consumer protocol.
type consumerMember struct {
	client          *kgo.Client
	name, group, id string
	instance        *string
	topics          []string
	regex           *string
	epoch           int32
	assigned        []kmsg.ConsumerGroupHeartbeatRequestTopic
}

// heartbeat has the member own what it is told.
func (m *consumerMember) heartbeat(t *testing.T) {
	t.Helper()
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Group, r.MemberID, r.MemberEpoch, r.InstanceID = m.group, m.id, m.epoch, m.instance
	r.Topics = append([]kmsg.ConsumerGroupHeartbeatRequestTopic{}, m.assigned...)
	r.RebalanceTimeoutMillis = 600_000
	r.SubscribedTopicNames, r.SubscribedTopicRegex = m.topics, m.regex
	answer, err := r.RequestWith(t.Context(), m.client)
	if err != nil {
		t.Fatalf("%s: ConsumerGroupHeartbeat: %v", m.name, err)
	}
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		t.Fatalf("%s: ConsumerGroupHeartbeat at epoch %d: %v %s", m.name, m.epoch, err, *answer.ErrorMessage)
	}
	m.epoch = answer.MemberEpoch
	if answer.Assignment == nil {
		return
	}
	m.assigned = nil
	for _, topic := range answer.Assignment.Topics {
		m.assigned = append(m.assigned, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: topic.TopicID, Partitions: topic.Partitions})
	}
}

func (m *consumerMember) owned(names map[[16]byte]string) (owned []string) {
	for _, topic := range m.assigned {
		for _, p := range topic.Partitions {
			owned = append(owned, fmt.Sprintf("%s-%d", names[topic.TopicID], p))
		}
	}
	slices.Sort(owned)
	return owned
}

func (m *consumerMember) commit(t *testing.T, b *broker) {
	t.Helper()
	b.commit(t, m.client, m.name, m.group, m.id, m.instance, m.epoch)
}

// commit is a member's commit in a generation or at an epoch.
func (b *broker) commit(t *testing.T, cl *kgo.Client, name, group, id string, instance *string, generation int32) {
	t.Helper()
	partition := kmsg.NewOffsetCommitRequestTopicPartition()
	partition.Offset, partition.LeaderEpoch, partition.Metadata = int64(generation), 0, &name
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = "growing", append(topic.Partitions, partition)
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Group, r.MemberID, r.InstanceID, r.Generation = group, id, instance, generation
	r.Topics = append(r.Topics, topic)
	for id, name := range b.topicNames(t) {
		if name == topic.Topic {
			r.Topics[0].TopicID = id
		}
	}
	answer, err := r.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode); err != nil {
		t.Errorf("%s: OffsetCommit in generation %d: %v", name, generation, err)
	}
}

// groups prints what the broker tells of groups, their members and offsets.
func (b *broker) groups(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	listed, err := b.admin.ListGroups(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range listed {
		add("group %s of type %s, protocol type %q, state %s", g.Group, g.GroupType, g.ProtocolType, g.State)
	}
	classic := kmsg.NewPtrDescribeGroupsRequest()
	classic.Groups = append(slices.Clone(classicGroups), goneGroup)
	described, err := classic.RequestWith(ctx, b.client)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range described.Groups {
		add("group %s: %v, protocol %q, state %s", g.Group, kerr.ErrorForCode(g.ErrorCode), g.Protocol, g.State)
		for _, m := range g.Members {
			add("member of %s: %s instance %s client %s at %s, metadata %x, assignment %x", g.Group, m.MemberID, text(m.InstanceID), m.ClientID,
				m.ClientHost, m.ProtocolMetadata, m.MemberAssignment)
		}
	}
	consumer := kmsg.NewPtrConsumerGroupDescribeRequest()
	consumer.Groups = consumerGroups
	consumers, err := consumer.RequestWith(ctx, b.client)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range consumers.Groups {
		add("group %s: %v, state %s, epoch %d, assignment epoch %d, assignor %q", g.Group, kerr.ErrorForCode(g.ErrorCode), g.State, g.Epoch,
			g.AssignmentEpoch, g.AssignorName)
		for _, m := range g.Members {
			slices.Sort(m.SubscribedTopics)
			add("member of %s: %s instance %s rack %s client %s at %s, type %d, epoch %d, topics %v, regex %s, assigned %s, target %s", g.Group, m.MemberID,
				text(m.InstanceID), text(m.RackID), m.ClientID, m.ClientHost, m.MemberType, m.MemberEpoch, m.SubscribedTopics,
				text(m.SubscribedTopicRegex), assignment(m.Assignment), assignment(m.TargetAssignment))
		}
	}
	for _, g := range slices.Concat(classicGroups, consumerGroups) {
		committed, err := b.admin.FetchOffsets(ctx, g)
		if err != nil {
			t.Fatal(err)
		}
		committed.Each(func(o kadm.OffsetResponse) {
			add("committed by %s of %s-%d: %d epoch %d metadata %q", g, o.Topic, o.Partition, o.At, o.LeaderEpoch, o.Metadata)
		})
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func text(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func assignment(a kmsg.Assignment) string {
	var all []string
	for _, topic := range a.TopicPartitions {
		for _, p := range topic.Partitions {
			all = append(all, fmt.Sprintf("%s-%d", topic.Topic, p))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}
