package ottla_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla"
)

// coordinated finds the coordinator of a group and waits until it has loaded the group's partition.
func coordinated(w *wire, group string) {
	w.t.Helper()
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorKeys = 4, []string{group}
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Version, fetch.Group = 5, group
	test, ok := w.t.(*testing.T)
	if !ok {
		w.t.Fatal("coordinated is for tests")
	}
	await(test, none+" "+none, func() string {
		return outcome(w, find, func(r *kmsg.FindCoordinatorResponse) int16 { return r.Coordinators[0].ErrorCode }) + " " +
			outcome(w, fetch, func(r *kmsg.OffsetFetchResponse) int16 { return r.ErrorCode })
	})
}

func joinOf(group string, turn func(*kmsg.JoinGroupRequest)) *kmsg.JoinGroupRequest {
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte{0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = 9, group, 10_000, 10_000, "consumer"
	req.Protocols = []kmsg.JoinGroupRequestProtocol{p}
	turn(req)
	return req
}

// beatOf is the first heartbeat of member m with the new protocol.
func beatOf(group, topic string, turn func(*kmsg.ConsumerGroupHeartbeatRequest)) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.RebalanceTimeoutMillis = 1, group, "m", 10_000
	req.SubscribedTopicNames, req.Topics = []string{topic}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	turn(req)
	return req
}

// commitOf commits offset 0 of partition 0, as of nobody.
func commitOf(group, topic string, turn func(*kmsg.OffsetCommitRequest, *kmsg.OffsetCommitRequestTopicPartition)) *kmsg.OffsetCommitRequest {
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 9, group, -1
	turn(req, &p)
	ct := kmsg.NewOffsetCommitRequestTopic()
	ct.Topic, ct.Partitions = topic, []kmsg.OffsetCommitRequestTopicPartition{p}
	req.Topics = []kmsg.OffsetCommitRequestTopic{ct}
	return req
}

func joinGroupCode(r *kmsg.JoinGroupResponse) int16         { return r.ErrorCode }
func beatCode(r *kmsg.ConsumerGroupHeartbeatResponse) int16 { return r.ErrorCode }
func offsetCommitCode(r *kmsg.OffsetCommitResponse) int16   { return r.Topics[0].Partitions[0].ErrorCode }

// groupRows are about groups that bear the name of the row's topic.
func groupRows() []badInput {
	const unknownMember, invalid, invalidGroup, unwritable = "UNKNOWN_MEMBER_ID", "INVALID_REQUEST", "INVALID_GROUP_ID", "UNKNOWN_SERVER_ERROR"
	long, ghost := strings.Repeat("x", 40_000), "ghost"
	megabytes := strings.Repeat("x", 2<<20)
	row := func(name, want, apache string, send func(w *wire, topic string) string) badInput {
		return badInput{row: name, want: want, apache: apache, send: func(w *wire, topic string) string {
			coordinated(w, topic)
			return send(w, topic)
		}}
	}
	join := func(name, want, apache string, turn func(*kmsg.JoinGroupRequest)) badInput {
		return row("join "+name, want, apache, func(w *wire, topic string) string { return outcome(w, joinOf(topic, turn), joinGroupCode) })
	}
	beat := func(name, want, apache string, turn func(*kmsg.ConsumerGroupHeartbeatRequest)) badInput {
		return row("consumer heartbeat "+name, want, apache, func(w *wire, topic string) string { return outcome(w, beatOf(topic, topic, turn), beatCode) })
	}
	commit := func(name, want, apache string, turn func(*kmsg.OffsetCommitRequest, *kmsg.OffsetCommitRequestTopicPartition)) badInput {
		return row("commit "+name, want, apache, func(w *wire, topic string) string { return outcome(w, commitOf(topic, topic, turn), offsetCommitCode) })
	}
	// inGroup has a group of one member, m at its first epoch, asked something.
	inGroup := func(name, want, apache string, then func(w *wire, topic string, epoch int32) string) badInput {
		return row(name, want, apache, func(w *wire, topic string) string {
			resp := call[*kmsg.ConsumerGroupHeartbeatResponse](w, beatOf(topic, topic, func(*kmsg.ConsumerGroupHeartbeatRequest) {}))
			if resp.ErrorCode != 0 {
				return errorName(resp.ErrorCode)
			}
			return then(w, topic, resp.MemberEpoch)
		})
	}
	commitIn := func(name, want string, member string, ahead int32) badInput {
		return inGroup("commit "+name, want, "", func(w *wire, topic string, epoch int32) string {
			return outcome(w, commitOf(topic, topic, func(r *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitRequestTopicPartition) {
				r.MemberID, r.Generation = member, epoch+ahead
			}), offsetCommitCode)
		})
	}
	// again has the topic deleted and made once more in between.
	again := func(name, want string, before, after func(w *wire, topic string) string) badInput {
		return row(name, want, "", func(w *wire, topic string) string {
			if code := before(w, topic); code != none {
				return code
			}
			if code := outcome(w, deleteTopicsOf(topic), func(r *kmsg.DeleteTopicsResponse) int16 { return r.Topics[0].ErrorCode }); code != none {
				return code
			}
			await(w.t.(*testing.T), none, func() string {
				return outcome(w, createTopicsOf(newTopic(topic)), func(r *kmsg.CreateTopicsResponse) int16 { return r.Topics[0].ErrorCode })
			})
			return after(w, topic)
		})
	}
	findCoordinator := func(name string, version int16, kind int8, key string) badInput {
		return badInput{row: "find the coordinator " + name, want: invalid, send: func(w *wire, _ string) string {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.Version, req.CoordinatorType, req.CoordinatorKeys = version, kind, []string{key}
			return outcome(w, req, func(r *kmsg.FindCoordinatorResponse) int16 { return max(r.ErrorCode, r.Coordinators[0].ErrorCode) })
		}}
	}
	return []badInput{
		join("with a session of 1 ms", "INVALID_SESSION_TIMEOUT", "", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1 }),
		join("a group without a name", invalidGroup, "", func(r *kmsg.JoinGroupRequest) { r.Group = "" }),
		join("as a ghost", unknownMember, "", func(r *kmsg.JoinGroupRequest) { r.MemberID = ghost }),
		join("as a ghost with an instance id", unknownMember, "", func(r *kmsg.JoinGroupRequest) { r.MemberID, r.InstanceID = ghost, &ghost }),
		join("without protocols", "INCONSISTENT_GROUP_PROTOCOL", "", func(r *kmsg.JoinGroupRequest) { r.Protocols = nil }),
		join("without a protocol type", "INCONSISTENT_GROUP_PROTOCOL", "", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" }),
		join("without an id", "MEMBER_ID_REQUIRED", "", func(*kmsg.JoinGroupRequest) {}),
		join("a group with a name of 40,000 bytes", closed, "", func(r *kmsg.JoinGroupRequest) { r.Group = long }),
		join("with an instance id of 40,000 bytes", closed, "", func(r *kmsg.JoinGroupRequest) { r.InstanceID = &long }),
		join("with a protocol type of 40,000 bytes", closed, "", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = long }),
		join("with a protocol of 40,000 bytes", closed, "", func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Name = long }),
		join("with an instance id that leaves no room for the member's", invalid, unwritable, func(r *kmsg.JoinGroupRequest) { r.InstanceID = kmsg.StringPtr(long[:32_740]) }),
		row("join with a client id that leaves no room for the member's", invalid, unwritable, func(w *wire, topic string) string {
			req := joinOf(topic, func(r *kmsg.JoinGroupRequest) { r.Version = 3 })
			w.correlation++
			w.write(kmsg.NewRequestFormatter(kmsg.FormatterClientID(long[:32_740])).AppendRequest(nil, req, w.correlation))
			resp, err := w.receive(req)
			if err != nil {
				return err.Error()
			}
			return errorName(joinGroupCode(resp.(*kmsg.JoinGroupResponse)))
		}),
		join("with metadata of 2 MiB", unwritable, "MEMBER_ID_REQUIRED", func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Metadata = []byte(megabytes) }),

		row("sync of a ghost", unknownMember, "", func(w *wire, topic string) string {
			req := kmsg.NewPtrSyncGroupRequest()
			req.Version, req.Group, req.MemberID, req.Generation = 5, topic, ghost, 1
			req.ProtocolType, req.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
			return outcome(w, req, func(r *kmsg.SyncGroupResponse) int16 { return r.ErrorCode })
		}),
		row("sync without a protocol", "INCONSISTENT_GROUP_PROTOCOL", "", func(w *wire, topic string) string {
			req := kmsg.NewPtrSyncGroupRequest()
			req.Version, req.Group, req.MemberID, req.Generation, req.ProtocolType = 5, topic, ghost, 1, kmsg.StringPtr("consumer")
			return outcome(w, req, func(r *kmsg.SyncGroupResponse) int16 { return r.ErrorCode })
		}),
		row("heartbeat of a ghost", unknownMember, "", func(w *wire, topic string) string {
			req := kmsg.NewPtrHeartbeatRequest()
			req.Version, req.Group, req.MemberID, req.Generation = 4, topic, ghost, 1
			return outcome(w, req, func(r *kmsg.HeartbeatResponse) int16 { return r.ErrorCode })
		}),
		row("leave of a ghost", "NONE UNKNOWN_MEMBER_ID", "", func(w *wire, topic string) string {
			req := kmsg.NewPtrLeaveGroupRequest()
			req.Version, req.Group, req.Members = 5, topic, []kmsg.LeaveGroupRequestMember{{MemberID: ghost}}
			r := call[*kmsg.LeaveGroupResponse](w, req)
			return errorName(r.ErrorCode) + " " + errorName(r.Members[0].ErrorCode)
		}),

		beat("of a group without a name", invalid, "", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = "" }),
		beat("of a member without an id", invalid, "", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "" }),
		beat("of a ghost", "GROUP_ID_NOT_FOUND", "", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = 7 }),
		beat("with epoch -3", invalid, "", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -3 }),
		beat("without a rebalance timeout", unknownMember, invalid, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 }),
		beat("without a subscription", invalid, "", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = nil }),
		beat("with an unknown assignor", "UNSUPPORTED_ASSIGNOR", "", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = &ghost }),
		beat("with a bad expression", "INVALID_REGULAR_EXPRESSION", "", func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.SubscribedTopicRegex = kmsg.StringPtr("(")
		}),
		beat("of a group with a name of 40,000 bytes", closed, "", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = long }),
		beat("of a member with an id of 40,000 bytes", closed, "", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = long }),
		beat("with an expression of 40,000 bytes", closed, "", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicRegex = &long }),
		beat("with a rack of 2 MiB", closed, "", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = &megabytes }),
		beat("with topics of 2 MiB", invalid, unwritable, func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			for i := range 8192 {
				r.SubscribedTopicNames = append(r.SubscribedTopicNames, fmt.Sprintf("%0249d", i))
			}
		}),
		inGroup("consumer heartbeat ahead of its epoch", "FENCED_MEMBER_EPOCH", "", func(w *wire, topic string, epoch int32) string {
			return outcome(w, beatOf(topic, topic, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = epoch + 1 }), beatCode)
		}),
		inGroup("consumer heartbeat of a ghost in a group", unknownMember, "", func(w *wire, topic string, epoch int32) string {
			return outcome(w, beatOf(topic, topic, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID, r.MemberEpoch = ghost, epoch }), beatCode)
		}),
		inGroup("delete a group with a member", "NON_EMPTY_GROUP", "", func(w *wire, topic string, _ int32) string {
			req := kmsg.NewPtrDeleteGroupsRequest()
			req.Version, req.Groups = 2, []string{topic}
			return outcome(w, req, func(r *kmsg.DeleteGroupsResponse) int16 { return r.Groups[0].ErrorCode })
		}),
		inGroup("delete offsets that a member reads", "GROUP_SUBSCRIBED_TO_TOPIC", "", func(w *wire, topic string, _ int32) string {
			req := kmsg.NewPtrOffsetDeleteRequest()
			req.Group, req.Topics = topic, []kmsg.OffsetDeleteRequestTopic{{Topic: topic, Partitions: make([]kmsg.OffsetDeleteRequestTopicPartition, 1)}}
			return outcome(w, req, func(r *kmsg.OffsetDeleteResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
		}),

		commit("with metadata of 5,000 bytes", "OFFSET_METADATA_TOO_LARGE", "", func(_ *kmsg.OffsetCommitRequest, p *kmsg.OffsetCommitRequestTopicPartition) {
			p.Metadata = kmsg.StringPtr(long[:5000])
		}),
		commit("of partition 77", "UNKNOWN_TOPIC_OR_PARTITION", "", func(_ *kmsg.OffsetCommitRequest, p *kmsg.OffsetCommitRequestTopicPartition) { p.Partition = 77 }),
		commit("of partition -1", "UNKNOWN_TOPIC_OR_PARTITION", "", func(_ *kmsg.OffsetCommitRequest, p *kmsg.OffsetCommitRequestTopicPartition) { p.Partition = -1 }),
		commit("of offset -100", invalid, none, func(_ *kmsg.OffsetCommitRequest, p *kmsg.OffsetCommitRequestTopicPartition) { p.Offset = -100 }),
		commit("of a ghost, of no group", "GROUP_ID_NOT_FOUND", "", func(r *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitRequestTopicPartition) {
			r.MemberID, r.Generation = ghost, 1
		}),
		commit("for a group with a name of 40,000 bytes", closed, "", func(r *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitRequestTopicPartition) { r.Group = long }),
		commitIn("of a ghost", unknownMember, ghost, 0),
		commitIn("ahead of its epoch", "STALE_MEMBER_EPOCH", "m", 1),
		commitIn("behind its epoch", "STALE_MEMBER_EPOCH", "m", -1),

		row("delete a group that is not there", "GROUP_ID_NOT_FOUND", "", func(w *wire, topic string) string {
			req := kmsg.NewPtrDeleteGroupsRequest()
			req.Version, req.Groups = 2, []string{topic + "-not"}
			coordinated(w, topic+"-not")
			return outcome(w, req, func(r *kmsg.DeleteGroupsResponse) int16 { return r.Groups[0].ErrorCode })
		}),
		row("describe a group that is not there", "GROUP_ID_NOT_FOUND Dead", "", func(w *wire, topic string) string {
			d := call[*kmsg.DescribeGroupsResponse](w, &kmsg.DescribeGroupsRequest{Version: 6, Groups: []string{topic}}).Groups[0]
			return errorName(d.ErrorCode) + " " + d.State
		}),

		findCoordinator("of a share group in version 5", 5, 2, "g:AAAAAAAAAAAAAAAAAAAAAQ:0"),
		findCoordinator("of a share group by a key that is none", 6, 2, "g:topic:0"),
		findCoordinator("of a kind that there is not", 6, 9, "g"),

		again("the offsets of a topic that is made again", "offset -1", func(w *wire, topic string) string {
			return outcome(w, commitOf(topic, topic, func(_ *kmsg.OffsetCommitRequest, p *kmsg.OffsetCommitRequestTopicPartition) { p.Offset = 7 }), offsetCommitCode)
		}, func(w *wire, topic string) string {
			req := kmsg.NewPtrOffsetFetchRequest()
			req.Version, req.Group, req.Topics = 7, topic, []kmsg.OffsetFetchRequestTopic{{Topic: topic, Partitions: []int32{0}}}
			var got string
			await(w.t.(*testing.T), "offset -1", func() string {
				got = fmt.Sprint("offset ", call[*kmsg.OffsetFetchResponse](w, req).Topics[0].Partitions[0].Offset)
				return got
			})
			return got
		}),
		again("the assignment of a topic that is made again", "another topic id, partition 0", func(w *wire, topic string) string {
			return outcome(w, beatOf(topic, topic, func(*kmsg.ConsumerGroupHeartbeatRequest) {}), beatCode)
		}, func(w *wire, topic string) string {
			return assignedAgain(w, topic)
		}),
	}
}

// assignedAgain has member m heartbeat until it is given partition 0 of a topic that was made again.
func assignedAgain(w *wire, topic string) string {
	w.t.Helper()
	first := call[*kmsg.ConsumerGroupHeartbeatResponse](w, beatOf(topic, topic, func(*kmsg.ConsumerGroupHeartbeatRequest) {}))
	epoch, owned := first.MemberEpoch, first.Assignment
	got := ""
	await(w.t.(*testing.T), "another topic id, partition 0", func() string {
		resp := call[*kmsg.ConsumerGroupHeartbeatResponse](w, beatOf(topic, topic, func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.MemberEpoch = epoch
			for _, t := range owned.Topics {
				r.Topics = append(r.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
			}
		}))
		if resp.ErrorCode != 0 {
			return errorName(resp.ErrorCode)
		}
		epoch = resp.MemberEpoch
		if resp.Assignment != nil {
			owned = resp.Assignment
		}
		id := metadataOf(w, topic).TopicID
		got = fmt.Sprintf("%+v", owned.Topics)
		if len(owned.Topics) == 1 && owned.Topics[0].TopicID == id && len(owned.Topics[0].Partitions) == 1 {
			got = "another topic id, partition 0"
		}
		return got
	})
	return got
}

// TestGroupsBeforeTheCoordinator: who asks about groups before anybody has asked for their coordinator is told to look for it.
func TestGroupsBeforeTheCoordinator(t *testing.T) {
	b := start(t, ottla.Config{})
	w := dial(t, b.Addr())
	w.createTopics(newTopic("t"))
	const want = "NOT_COORDINATOR"
	for name, got := range map[string]string{
		"JoinGroup":              outcome(w, joinOf("g", func(*kmsg.JoinGroupRequest) {}), joinGroupCode),
		"ConsumerGroupHeartbeat": outcome(w, beatOf("g", "t", func(*kmsg.ConsumerGroupHeartbeatRequest) {}), beatCode),
		"OffsetCommit":           outcome(w, commitOf("g", "t", func(*kmsg.OffsetCommitRequest, *kmsg.OffsetCommitRequestTopicPartition) {}), offsetCommitCode),
		"OffsetFetch":            outcome(w, &kmsg.OffsetFetchRequest{Version: 7, Group: "g"}, func(r *kmsg.OffsetFetchResponse) int16 { return r.ErrorCode }),
		"Heartbeat":              outcome(w, &kmsg.HeartbeatRequest{Version: 4, Group: "g"}, func(r *kmsg.HeartbeatResponse) int16 { return r.ErrorCode }),
		"SyncGroup":              outcome(w, &kmsg.SyncGroupRequest{Version: 4, Group: "g"}, func(r *kmsg.SyncGroupResponse) int16 { return r.ErrorCode }),
		"LeaveGroup":             outcome(w, &kmsg.LeaveGroupRequest{Version: 5, Group: "g"}, func(r *kmsg.LeaveGroupResponse) int16 { return r.ErrorCode }),
		"OffsetDelete":           outcome(w, &kmsg.OffsetDeleteRequest{Group: "g"}, func(r *kmsg.OffsetDeleteResponse) int16 { return r.ErrorCode }),
		"DescribeGroups":         outcome(w, &kmsg.DescribeGroupsRequest{Version: 6, Groups: []string{"g"}}, func(r *kmsg.DescribeGroupsResponse) int16 { return r.Groups[0].ErrorCode }),
		"DeleteGroups":           outcome(w, &kmsg.DeleteGroupsRequest{Version: 2, Groups: []string{"g"}}, func(r *kmsg.DeleteGroupsResponse) int16 { return r.Groups[0].ErrorCode }),
	} {
		if got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
