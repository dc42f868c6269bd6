package group

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
	"ottla/internal/protocol/records"
)

// TestRecordsOfOtherReleases: a coordinator of before Kafka 4.1 left a record that is to go, one of a later release a member in a state that is
// not known here.
func TestRecordsOfOtherReleases(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 2)
	beat := func(epoch int32) string {
		r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		r.Version, r.Group, r.MemberID, r.MemberEpoch, r.RebalanceTimeoutMillis = 1, "g", "m", epoch, -1
		if epoch == 0 {
			r.RebalanceTimeoutMillis, r.SubscribedTopicNames, r.Topics = 30000, []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		}
		_, answers := w.do(r, "c")
		return code(answers[0].Response.(*kmsg.ConsumerGroupHeartbeatResponse).ErrorCode)
	}
	tombstones := func() int {
		n := 0
		for _, r := range w.log {
			if _, ok := r.Key.(*records.ConsumerGroupPartitionMetadataKey); ok && r.Value == nil {
				n++
			}
		}
		return n
	}
	old := func() {
		w.machine.Replay(&records.ConsumerGroupPartitionMetadataKey{GroupID: "g"}, &records.ConsumerGroupPartitionMetadataValue{}, noProducerID)
	}
	old()
	if got := beat(0); got != "ok" || tombstones() != 1 {
		t.Errorf("join: %s, %d tombstones", got, tombstones())
	}
	w.machine.Replay(&records.ConsumerGroupCurrentMemberAssignmentKey{GroupID: "g", MemberID: "m"},
		&records.ConsumerGroupCurrentMemberAssignmentValue{MemberEpoch: 2, PreviousMemberEpoch: 2, State: 9}, noProducerID)
	if got := beat(2); got != "FENCED_MEMBER_EPOCH" {
		t.Errorf("heartbeat in a state of a later release: %s", got)
	}
	if got := beat(0); got != "ok" || w.machine.groups["g"].consumer.members["m"].state != memberStable {
		t.Errorf("joining again: %s", got)
	}
	if got := beat(-1); got != "ok" {
		t.Errorf("leave: %s", got)
	}
	old()
	w.do(&kmsg.DeleteGroupsRequest{Version: 2, Groups: []string{"g"}}, "c")
	if tombstones() != 2 || w.machine.groups["g"] != nil {
		t.Errorf("after the group was deleted: %d tombstones, group %v", tombstones(), w.machine.groups["g"])
	}
}

// TestStaticMemberAway: while a static member is away its partitions are as of epoch 0.
func TestStaticMemberAway(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 2)
	instance := "i"
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID, r.RebalanceTimeoutMillis = 1, "g", "m", &instance, 30000
	r.SubscribedTopicNames, r.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	w.do(r, "c")
	away := *r
	away.MemberEpoch = leaveStaticEpoch
	w.do(&away, "c")
	mem := w.machine.groups["g"].consumer.members["m"]
	if got, want := fmt.Sprint(mem.epoch, len(mem.assigned), mem.assigned.equal(mem.assigned.as(0))), "-2 2 true"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	w.checkReplay()
}

// TestGroupSettingsInBounds: what a group sets for itself counts within the broker's bounds of today.
func TestGroupSettingsInBounds(t *testing.T) {
	w := newWorld(t, "group.consumer.max.assignment.interval.ms=5000")
	s := NewSettings(w.config).consumer(map[string]string{
		"consumer.session.timeout.ms": "1000", "consumer.heartbeat.interval.ms": "7000", "consumer.assignment.interval.ms": "9000",
	})
	if got, want := strings.Join([]string{s.sessionTimeout.String(), s.heartbeatInterval.String(), s.assignmentInterval.String()}, " "), "45s 7s 5s"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestGroupSettingsChange: a group heeds what it sets for itself, and the broker for all, from its next heartbeat on.
func TestGroupSettingsChange(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1)
	heartbeat := func(epoch int32) (intervalMs int32) {
		r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		r.Version, r.Group, r.MemberID, r.MemberEpoch, r.RebalanceTimeoutMillis = 1, "g", "m", epoch, 30000
		r.SubscribedTopicNames, r.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		_, answers := w.do(r, "c")
		return answers[0].Response.(*kmsg.ConsumerGroupHeartbeatResponse).HeartbeatIntervalMillis
	}
	want := func(what string, got, want int32) {
		t.Helper()
		if got != want {
			t.Errorf("%s: heartbeats every %d ms, want %d", what, got, want)
		}
	}
	want("join", heartbeat(0), 5000)

	w.config = parse(t, "group.consumer.heartbeat.interval.ms=6000")
	w.machine.Configure(NewSettings(w.config))
	want("the broker's setting", heartbeat(2), 6000)

	d := metadata.NewDelta(w.image)
	seven := "7000"
	if err := d.Replay(&records.ConfigRecord{ResourceType: int8(metadata.GroupConfig), ResourceName: "g", Name: "consumer.heartbeat.interval.ms", Value: &seven}); err != nil {
		t.Fatal(err)
	}
	w.image = d.Apply(w.image.Offset+1, 1)
	w.take(w.machine.SetImage(w.now, w.image, nil))
	want("the group's own", heartbeat(2), 7000)
}

// TestExpressionsAreMatchedSeldom: against all topics when one came or went, not for whatever else is new in the cluster.
func TestExpressionsAreMatchedSeldom(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1)
	looks := 0
	beat := func(epoch int32) {
		r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		r.Version, r.Group, r.MemberID, r.MemberEpoch, r.RebalanceTimeoutMillis = 1, "g", "m", epoch, 30000
		r.SubscribedTopicRegex, r.Topics = kmsg.StringPtr("."), []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		w.tickets++
		w.started[w.tickets] = r
		w.take(w.machine.Step(w.now, Op{Ticket: w.tickets, Request: r, MayDescribe: func(string) bool { looks++; return true }}))
	}
	want := func(what string, want int) {
		t.Helper()
		if looks != want {
			t.Errorf("%s: %d topics were looked at, want %d", what, looks, want)
		}
	}
	beat(0)
	want("join", 1)
	w.topic("t", 2)
	beat(2)
	want("a topic has another partition", 1)
	w.topic("u", 1)
	beat(2)
	want("another topic", 3)
	w.topic("t", 0)
	beat(2)
	want("a topic less", 4)
	w.checkReplay()
}
