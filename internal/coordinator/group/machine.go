// Package group holds the group coordinator's machine: the groups, their members and committed offsets
// of one partition of __consumer_offsets, and every rule about them. It is pure: no clock, no goroutine, no
// I/O, no random number but those it is given. Package coordinator runs it, one machine per led partition.
//
// Read [Machine.Step], then [Machine.Replay], then the file of an API: each has the name of its API.
//
// What always holds:
//
//   - Durable state (groups, members' assignments, offsets) is changed by Replay only. An operation emits records,
//     and each is replayed as it is emitted; so the machine is always at the end of the log that its records make,
//     and replaying that log makes the same durable state. If an append fails the machine is thrown away.
//   - Soft state (who awaits a rebalance, timers) belongs to the running machine alone. A machine that was loaded
//     starts from the last stable generation, as Apache's does.
//   - Given the same operations at the same times, and the same ids, it does the same: nothing depends on
//     the order of a map.
//
// Source of the rules: KIP-62, 134, 345, 394, 429, 848, 1043, and what Apache's GroupMetadataManager and
// OffsetMetadataManager answer.
package group

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// A Ticket names an operation until its answer: the caller's choice, unique among those not yet answered.
type Ticket uint64

// An Op is one request for groups of this partition. The machine keeps bytes of Request: nobody may change them.
type Op struct {
	Ticket Ticket
	// Request is one of those [Machine.Step] lists, about groups of this partition only.
	Request kmsg.Request
	// ClientID and ClientHost are the requester's, as the session knows them; both end up in records.
	ClientID, ClientHost string
	// MayDescribe says which topics the requester may see, of those that match a regular expression; nil: all.
	MayDescribe func(topic string) bool
}

// A Record is one record to append: a tombstone if Value is nil.
type Record struct {
	Key, Value records.Message
	Version    int16 // of Value
}

// An Answer is the answer to an operation, of the type and version that its request asks for.
type Answer struct {
	Ticket   Ticket
	Response kmsg.Response
}

// An Output is what an operation or the passing of time brought about. The records are to be appended, in
// order, behind those of earlier outputs. An answer may leave once all records up to and including its own
// output's are replicated; it may answer an earlier operation that was parked.
type Output struct {
	Records []Record
	Answers []Answer
}

// A Machine is the state of one partition's groups. It serves one goroutine.
type Machine struct {
	settings *Settings
	image    *metadata.Image
	// imageSeq counts the images, and topicsSeq those in which a topic came or went, so that a group knows whether it has seen this one. racks
	// are those of the brokers in it, digests those of topics, by id, that metadataHash has needed.
	imageSeq, topicsSeq uint64
	racks               map[int32]string
	digests             map[uuid.UUID]topicDigest
	newID               func() uuid.UUID

	now     time.Time // of the running step
	out     Output    // of the running step
	timers  timers
	groups  map[string]*group
	offsets offsets
}

// A group is one group, of the type whose field is set. Both are nil while a group of the one type is
// being replaced by one of the other, never between steps.
type group struct {
	id       string
	classic  *classicGroup
	consumer *consumerGroup
}

// Options say what a machine starts with.
type Options struct {
	Settings *Settings
	Image    *metadata.Image
	// NewID makes member ids; nil for uuid.Random.
	NewID func() uuid.UUID
}

// New returns a machine without groups. Load it by Replay, then call Loaded before anything else.
func New(o Options) *Machine {
	if o.NewID == nil {
		o.NewID = uuid.Random
	}
	m := &Machine{settings: o.Settings, image: o.Image, imageSeq: 1, topicsSeq: 1, digests: map[uuid.UUID]topicDigest{}, newID: o.NewID, groups: map[string]*group{},
		offsets: newOffsets()}
	m.imageChanged(false)
	return m
}

// Step performs one operation. Requests are JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit,
// OffsetFetch (in the form of version 8 and up: Groups), OffsetDelete, DescribeGroups, DeleteGroups, ListGroups,
// ConsumerGroupHeartbeat and ConsumerGroupDescribe. A request of another type panics. Topics that are named by id
// have their name filled in, those of an OffsetCommit that are named have their id.
func (m *Machine) Step(now time.Time, op Op) Output {
	m.now = now
	switch req := op.Request.(type) {
	case *kmsg.JoinGroupRequest:
		m.joinGroup(op, req)
	case *kmsg.SyncGroupRequest:
		m.syncGroup(op, req)
	case *kmsg.HeartbeatRequest:
		m.answer(op.Ticket, m.heartbeat(req))
	case *kmsg.LeaveGroupRequest:
		m.answer(op.Ticket, m.leaveGroup(req))
	case *kmsg.OffsetCommitRequest:
		m.answer(op.Ticket, m.offsetCommit(req))
	case *kmsg.OffsetFetchRequest:
		m.answer(op.Ticket, m.offsetFetch(req))
	case *kmsg.OffsetDeleteRequest:
		m.answer(op.Ticket, m.offsetDelete(req))
	case *kmsg.DescribeGroupsRequest:
		m.answer(op.Ticket, m.describeGroups(req))
	case *kmsg.DeleteGroupsRequest:
		m.answer(op.Ticket, m.deleteGroups(req))
	case *kmsg.ListGroupsRequest:
		m.answer(op.Ticket, m.listGroups(req))
	case *kmsg.ConsumerGroupHeartbeatRequest:
		m.answer(op.Ticket, m.consumerGroupHeartbeat(op, req))
	case *kmsg.ConsumerGroupDescribeRequest:
		m.answer(op.Ticket, m.consumerGroupDescribe(req))
	default:
		panic("group: no operation for " + kmsg.NameForKey(op.Request.Key()))
	}
	return m.take()
}

// Due returns when Tick is next to be called; false: not before another Step.
func (m *Machine) Due() (time.Time, bool) { return m.timers.due() }

// Tick does what is due at now: sessions and rebalances that time out, offsets that expire.
func (m *Machine) Tick(now time.Time) Output {
	m.now = now
	for {
		t, ok := m.timers.pop(now)
		if !ok {
			return m.take()
		}
		m.fire(t)
	}
}

// fire does what a timer was set for.
func (m *Machine) fire(t timer) {
	g := m.groups[t.group]
	switch {
	case t.kind == expiryTimer:
		m.expire()
	case g == nil: // it was deleted
	case g.classic != nil:
		m.fireClassic(g.classic, t)
	case g.consumer != nil:
		m.fireConsumer(g.consumer, t)
	}
}

// Loaded starts the timers of what was replayed. It is called once, between the last record of the log and the
// first Step.
func (m *Machine) Loaded(now time.Time) Output {
	m.now = now
	for _, g := range m.sorted() {
		switch {
		case g.classic != nil:
			m.classicLoaded(g.classic)
		case g.consumer != nil:
			m.consumerLoaded(g.consumer)
		}
	}
	m.timers.set(timer{kind: expiryTimer}, now.Add(m.settings.OffsetsRetentionCheckInterval))
	return m.take()
}

// A DeletedTopic is a topic that is gone. One of the same name may have come since.
type DeletedTopic struct {
	ID   uuid.UUID
	Name string
}

// Configure replaces the settings. Timers that run are not changed.
func (m *Machine) Configure(s *Settings) { m.settings = s }

// SetImage tells the machine what the cluster looks like now, and which topics are gone since the last time:
// their offsets go as well, lest a new topic of the same name inherits them.
func (m *Machine) SetImage(now time.Time, img *metadata.Image, deletedTopics []DeletedTopic) Output {
	m.now = now
	if len(deletedTopics) > 0 || img.TopicCount() != m.image.TopicCount() {
		m.topicsSeq++
	}
	m.image = img
	m.imageSeq++
	m.imageChanged(len(deletedTopics) > 0)
	for _, topic := range deletedTopics {
		m.deleteOffsetsOfTopic(topic)
	}
	return m.take()
}

// emit appends a record to the output and replays it.
func (m *Machine) emit(r Record) {
	m.out.Records = append(m.out.Records, r)
	m.replay(r.Key, r.Value, noProducerID)
}

func (m *Machine) answer(t Ticket, resp kmsg.Response) {
	m.out.Answers = append(m.out.Answers, Answer{t, resp})
}

func (m *Machine) take() Output {
	out := m.out
	m.out = Output{}
	return out
}

// maxString is the length in bytes of a string in the key of a record, or in the record of a classic group, at most, and in a request of
// any version.
const maxString = math.MaxInt16

func (m *Machine) nowMs() int64 { return m.now.UnixMilli() }

// codeOf returns the code of an error of package kerr, 0 for nil.
func codeOf(err *kerr.Error) int16 {
	if err == nil {
		return 0
	}
	return err.Code
}

func ms(n int32) time.Duration { return time.Duration(n) * time.Millisecond }
