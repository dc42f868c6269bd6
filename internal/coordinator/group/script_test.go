package group

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol/records"
)

// TestScripts runs the stories in testdata/scripts. After each command the log is replayed and must say what lives.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{world: newWorld(t)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			out := s.command(d)
			s.checkReplay()
			return short(out)
		})
	})
}

type script struct {
	*world
	printed int // records
}

// opt reads an argument that may be missing.
func opt[T any](d *datadriven.TestData, key string, otherwise T) T {
	if d.HasArg(key) {
		for _, a := range d.CmdArgs {
			if a.Key == key && len(a.Vals) == 1 && a.Vals[0] != "" {
				fmt.Sscan(a.Vals[0], &otherwise)
			} else if a.Key == key {
				otherwise = *new(T)
			}
		}
	}
	return otherwise
}

func (s *script) command(d *datadriven.TestData) string {
	switch d.Cmd {
	case "new":
		var set []string
		for _, a := range d.CmdArgs {
			set = append(set, a.Key+"="+strings.Join(a.Vals, ","))
		}
		*s = script{world: newWorld(s.t, set...)}
		return "ok\n"
	case "topic":
		for _, a := range d.CmdArgs {
			var n int32
			fmt.Sscan(a.Vals[0], &n)
			if out := s.show(s.topic(a.Key, n)); out != "" {
				return out
			}
		}
		return "ok\n"
	case "advance":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			s.t.Fatalf("%s: %v", d.Pos, err)
		}
		return s.show(s.advance(by))
	case "restart":
		return s.show(s.restart())
	case "group":
		g := s.machine.groups[d.CmdArgs[0].Key]
		if g == nil {
			return "none\n"
		}
		return joined(describe(g, true))
	}
	_, answers := s.do(s.request(d), opt(d, "client", "c"))
	return s.show(answers)
}

// show prints answers, and the records since the last time.
func (s *script) show(answers []Answer) string {
	var b strings.Builder
	for ; s.printed < len(s.log); s.printed++ {
		fmt.Fprintf(&b, "record %s\n", showRecord(s.log[s.printed]))
	}
	for _, a := range answers {
		fmt.Fprintf(&b, "%d: %s\n", a.Ticket, showAnswer(a.Response))
	}
	return b.String()
}

func (s *script) request(d *datadriven.TestData) kmsg.Request {
	version := opt(d, "v", int16(-1))
	at := func(newest int16) int16 {
		if version >= 0 {
			return version
		}
		return newest
	}
	group, member := opt(d, "group", "g"), long(opt(d, "member", ""))
	var instance *string
	if d.HasArg("instance") {
		instance = kmsg.StringPtr(opt(d, "instance", ""))
	}
	switch d.Cmd {
	case "join":
		r := kmsg.NewPtrJoinGroupRequest()
		r.Version, r.Group, r.MemberID, r.InstanceID = at(9), group, member, instance
		r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = opt(d, "session", int32(10000)), opt(d, "rebalance", int32(60000))
		r.ProtocolType = opt(d, "type", "consumer")
		for _, p := range args(d, "protocols", "range") {
			name, topic, _ := strings.Cut(p, ":")
			meta := []byte(topic)
			if r.ProtocolType == "consumer" {
				meta = subscription(strings.Split(topic, "+")...)
			}
			r.Protocols = append(r.Protocols, kmsg.JoinGroupRequestProtocol{Name: name, Metadata: meta})
		}
		return r
	case "sync":
		r := kmsg.NewPtrSyncGroupRequest()
		r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = at(5), group, member, instance, opt(d, "gen", int32(1))
		if d.HasArg("protocol") {
			r.Protocol = kmsg.StringPtr(opt(d, "protocol", ""))
		}
		for _, a := range args(d, "assign") {
			id, what, _ := strings.Cut(a, ":")
			r.GroupAssignment = append(r.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: long(id), MemberAssignment: []byte(what)})
		}
		return r
	case "heartbeat":
		r := kmsg.NewPtrHeartbeatRequest()
		r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = at(4), group, member, instance, opt(d, "gen", int32(1))
		return r
	case "leave":
		r := kmsg.NewPtrLeaveGroupRequest()
		r.Version, r.Group, r.MemberID = at(5), group, member
		for _, id := range args(d, "members") {
			r.Members = append(r.Members, kmsg.LeaveGroupRequestMember{MemberID: long(id)})
		}
		for _, id := range args(d, "instances") {
			r.Members = append(r.Members, kmsg.LeaveGroupRequestMember{InstanceID: &id})
		}
		return r
	case "commit":
		r := kmsg.NewPtrOffsetCommitRequest()
		r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = at(9), group, member, instance, opt(d, "gen", int32(-1))
		r.RetentionTimeMillis = opt(d, "retention", int64(-1))
		metadata := strings.Repeat("x", opt(d, "metadata", 0))
		for _, a := range args(d, "offsets") {
			topic, p, o := parseOffset(a)
			r.Topics = append(r.Topics, kmsg.OffsetCommitRequestTopic{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{
				{Partition: p, Offset: o, LeaderEpoch: 7, Metadata: &metadata}}})
		}
		return r
	case "fetch":
		r := kmsg.NewPtrOffsetFetchRequest()
		r.Version, r.RequireStable = at(9), d.HasArg("stable")
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.MemberEpoch = group, opt(d, "epoch", int32(-1))
		if member != "" {
			g.MemberID = &member
		}
		for _, a := range args(d, "partitions") {
			topic, p, _ := parseOffset(a)
			g.Topics = append(g.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: topic, Partitions: []int32{p}})
		}
		r.Groups = append(r.Groups, g)
		return r
	case "delete-offsets":
		r := kmsg.NewPtrOffsetDeleteRequest()
		r.Group = group
		for _, a := range args(d, "partitions") {
			topic, p, _ := parseOffset(a)
			r.Topics = append(r.Topics, kmsg.OffsetDeleteRequestTopic{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: p}}})
		}
		return r
	case "describe":
		return &kmsg.DescribeGroupsRequest{Version: at(6), Groups: []string{group}}
	case "delete":
		return &kmsg.DeleteGroupsRequest{Version: at(2), Groups: []string{group}}
	case "list":
		return &kmsg.ListGroupsRequest{Version: at(5), StatesFilter: args(d, "states"), TypesFilter: args(d, "types")}
	}
	return s.consumerRequest(d, group, member, instance, at)
}

// args reads a list, or what it is when missing.
func args(d *datadriven.TestData, key string, otherwise ...string) []string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
	}
	return otherwise
}

// parseOffset reads t-0 or t-0@5.
func parseOffset(s string) (topic string, partition int32, offset int64) {
	s, at, _ := strings.Cut(s, "@")
	fmt.Sscan(at, &offset)
	i := strings.LastIndex(s, "-")
	fmt.Sscan(s[i+1:], &partition)
	return s[:i], partition, offset
}

func code(c int16) string {
	if c == 0 {
		return "ok"
	}
	return kerr.TypedErrorForCode(c).Message
}

func showAnswer(resp kmsg.Response) string {
	var b strings.Builder
	switch r := resp.(type) {
	case *kmsg.JoinGroupResponse:
		fmt.Fprintf(&b, "join %s", code(r.ErrorCode))
		if r.MemberID != "" {
			fmt.Fprintf(&b, " member %s", r.MemberID)
		}
		if r.ErrorCode == 0 {
			fmt.Fprintf(&b, " generation %d protocol %s leader %s", r.Generation, str(r.Protocol), r.LeaderID)
		}
		if r.SkipAssignment {
			b.WriteString(" skip assignment")
		}
		for _, m := range r.Members {
			fmt.Fprintf(&b, "\n   %s %q", m.MemberID, m.ProtocolMetadata)
		}
	case *kmsg.SyncGroupResponse:
		fmt.Fprintf(&b, "sync %s", code(r.ErrorCode))
		if r.ErrorCode == 0 {
			fmt.Fprintf(&b, " %s %q", str(r.Protocol), r.MemberAssignment)
		}
	case *kmsg.HeartbeatResponse:
		fmt.Fprintf(&b, "heartbeat %s", code(r.ErrorCode))
	case *kmsg.LeaveGroupResponse:
		fmt.Fprintf(&b, "leave %s", code(r.ErrorCode))
		for _, m := range r.Members {
			fmt.Fprintf(&b, ", %s%s %s", m.MemberID, str(m.InstanceID), code(m.ErrorCode))
		}
	case *kmsg.OffsetCommitResponse:
		b.WriteString("commit")
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				fmt.Fprintf(&b, " %s-%d %s", t.Topic, p.Partition, code(p.ErrorCode))
			}
		}
	case *kmsg.OffsetFetchResponse:
		for _, g := range r.Groups {
			fmt.Fprintf(&b, "offsets of %s %s", g.Group, code(g.ErrorCode))
			for _, t := range g.Topics {
				for _, p := range t.Partitions {
					fmt.Fprintf(&b, " %s-%d@%d", t.Topic, p.Partition, p.Offset)
					if p.ErrorCode != 0 {
						fmt.Fprintf(&b, " %s", code(p.ErrorCode))
					}
				}
			}
		}
	case *kmsg.OffsetDeleteResponse:
		fmt.Fprintf(&b, "delete offsets %s", code(r.ErrorCode))
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				fmt.Fprintf(&b, " %s-%d %s", t.Topic, p.Partition, code(p.ErrorCode))
			}
		}
	case *kmsg.ListGroupsResponse:
		b.WriteString("groups")
		for _, g := range r.Groups {
			fmt.Fprintf(&b, " %s(%s %s %s)", g.Group, g.GroupType, g.ProtocolType, g.GroupState)
		}
	case *kmsg.DescribeGroupsResponse:
		for _, g := range r.Groups {
			fmt.Fprintf(&b, "%s %s %s %s %s", g.Group, code(g.ErrorCode), g.State, g.ProtocolType, g.Protocol)
			for _, m := range g.Members {
				fmt.Fprintf(&b, "\n   %s %s %s %q %q", m.MemberID, m.ClientID, m.ClientHost, m.ProtocolMetadata, m.MemberAssignment)
			}
		}
	case *kmsg.DeleteGroupsResponse:
		for _, g := range r.Groups {
			fmt.Fprintf(&b, "delete %s %s", g.Group, code(g.ErrorCode))
		}
	default:
		return showConsumerAnswer(resp)
	}
	return b.String()
}

func showRecord(r Record) string {
	name := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", r.Key), "*records."), "Key")
	switch k := r.Key.(type) {
	case *records.GroupMetadataKey:
		v, _ := r.Value.(*records.GroupMetadataValue)
		if v == nil {
			return "tombstone of group " + k.Group
		}
		s := fmt.Sprintf("%s v%d %s generation %d type %s protocol %s leader %s", name, r.Version, k.Group, v.Generation, v.ProtocolType, str(v.Protocol), str(v.Leader))
		for i := range v.Members {
			s += fmt.Sprintf(", %s %q", v.Members[i].MemberID, bytes.TrimSpace(v.Members[i].Assignment))
		}
		return s
	case *records.OffsetCommitKey:
		v, _ := r.Value.(*records.OffsetCommitValue)
		if v == nil {
			return fmt.Sprintf("tombstone of %s %s-%d", k.Group, k.Topic, k.Partition)
		}
		return fmt.Sprintf("%s v%d %s %s-%d@%d", name, r.Version, k.Group, k.Topic, k.Partition, v.Offset)
	}
	return showConsumerRecord(r)
}
