package group

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// describeForTest prints the group; all of it is durable.
func (g *consumerGroup) describeForTest() []string {
	out := []string{fmt.Sprintf("%s %s epoch %d target %d", g.id, g.state(), g.epoch, g.assignmentEpoch)}
	for _, id := range g.sorted() {
		mem := g.members[id]
		s := fmt.Sprintf("  %s epoch %d", id, mem.epoch)
		if mem.classic != nil {
			s += " classic"
		}
		if mem.state != memberStable {
			s += [...]string{"", " unrevoked", " unreleased"}[mem.state]
		}
		s += fmt.Sprintf(" has %s", showAssignment(mem.assigned.assignment()))
		if len(mem.revoking) > 0 {
			s += fmt.Sprintf(" gives back %s", showAssignment(mem.revoking.assignment()))
		}
		out = append(out, s+fmt.Sprintf(" target %s", showAssignment(g.target[id])))
	}
	return out
}

// describeFully prints what a story need not tell.
func (g *consumerGroup) describeFully() []string {
	out := []string{fmt.Sprintf("  hash %x assigned at %d old %t static %v owners %d target of %v", g.metadataHash, g.assignmentMs, g.old, g.static,
		len(g.owner), slices.Sorted(maps.Keys(g.target)))}
	for _, re := range slices.Sorted(maps.Keys(g.regexes)) {
		out = append(out, fmt.Sprintf("  %s matches %v as of %d", re, g.regexes[re].topics, g.regexes[re].atMs))
	}
	for _, id := range g.sorted() {
		mem := g.members[id]
		s := fmt.Sprintf("  %s instance %s rack %s client %s at %s topics %q regex %q rebalance %d assignor %s previous %d has %v gives back %v", id,
			str(mem.instanceID), str(mem.rackID), mem.clientID, mem.clientHost, mem.topics, mem.regex, mem.rebalanceTimeoutMs, str(mem.assignor),
			mem.previousEpoch, mem.assigned, mem.revoking)
		if mem.classic != nil {
			s += fmt.Sprintf(" classic %v", *mem.classic)
		}
		out = append(out, s)
	}
	return out
}

// showAssignment prints topics by the last byte of their ids in a world: #1:0+1.
func showAssignment(a assignment) string {
	var out []string
	for _, t := range a.topics() {
		out = append(out, fmt.Sprintf("%d:%s", t[15], strings.Trim(strings.ReplaceAll(fmt.Sprint(a[t]), " ", "+"), "[]")))
	}
	if out == nil {
		return "nothing"
	}
	return strings.Join(out, ",")
}

func (s *script) consumerRequest(d *datadriven.TestData, group, member string, instance *string, at func(int16) int16) kmsg.Request {
	switch d.Cmd {
	case "beat": // a heartbeat of KIP-848; full if it joins (epoch 0)
		r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		r.Version, r.Group, r.MemberID, r.InstanceID, r.MemberEpoch = at(1), group, member, instance, opt(d, "epoch", int32(0))
		r.RebalanceTimeoutMillis = opt(d, "rebalance", int32(-1))
		if r.MemberEpoch == 0 {
			r.RebalanceTimeoutMillis = opt(d, "rebalance", int32(30000))
			r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		}
		if d.HasArg("topics") {
			r.SubscribedTopicNames = append([]string{}, args(d, "topics")...)
		}
		if d.HasArg("regex") {
			r.SubscribedTopicRegex = kmsg.StringPtr(opt(d, "regex", ""))
		}
		if d.HasArg("assignor") {
			r.ServerAssignor = kmsg.StringPtr(opt(d, "assignor", ""))
		}
		if d.HasArg("owns") {
			r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
			for _, a := range args(d, "owns") {
				if topic, p, _ := parseOffset(a); topic != "" {
					r.Topics = append(r.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: s.ofTopic[topic], Partitions: []int32{p}})
				}
			}
		}
		return r
	case "describe-consumer":
		return &kmsg.ConsumerGroupDescribeRequest{Version: at(1), Groups: []string{group}}
	}
	s.t.Fatalf("%s: no command %s", d.Pos, d.Cmd)
	return nil
}

func showConsumerAnswer(resp kmsg.Response) string {
	switch r := resp.(type) {
	case *kmsg.ConsumerGroupHeartbeatResponse:
		if r.ErrorCode != 0 {
			return fmt.Sprintf("%s %s", code(r.ErrorCode), str(r.ErrorMessage))
		}
		out := fmt.Sprintf("%s epoch %d", str(r.MemberID), r.MemberEpoch)
		if r.Assignment != nil {
			a := assignment{}
			for _, t := range r.Assignment.Topics {
				a[t.TopicID] = t.Partitions
			}
			out += " assigned " + showAssignment(a)
		}
		return out
	case *kmsg.ConsumerGroupDescribeResponse:
		g := r.Groups[0]
		out := fmt.Sprintf("%s %s %s epoch %d target %d %s", g.Group, code(g.ErrorCode), g.State, g.Epoch, g.AssignmentEpoch, g.AssignorName)
		for _, m := range g.Members {
			out += fmt.Sprintf("\n   %s epoch %d type %d subscribes to %v %s, has %v", m.MemberID, m.MemberEpoch, m.MemberType, m.SubscribedTopics, str(m.SubscribedTopicRegex), m.Assignment.TopicPartitions)
		}
		return out
	}
	return fmt.Sprintf("%+v", resp)
}

func showConsumerRecord(r Record) string {
	name := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", r.Key), "*records."), "Key")
	of := func(topics map[uuid.UUID][]int32) string {
		for _, p := range topics {
			slices.Sort(p)
		}
		return showAssignment(topics)
	}
	key := strings.Trim(fmt.Sprintf("%v", r.Key), "&{}")
	if r.Value == nil {
		return fmt.Sprintf("tombstone of %s %s", name, key)
	}
	switch v := r.Value.(type) {
	case *records.ConsumerGroupMetadataValue:
		return fmt.Sprintf("%s %s epoch %d", name, key, v.Epoch)
	case *records.ConsumerGroupMemberMetadataValue:
		return fmt.Sprintf("%s %s %v %s", name, key, v.SubscribedTopicNames, cmp.Or(str(v.SubscribedTopicRegex), `""`))
	case *records.ConsumerGroupTargetAssignmentMemberValue:
		a := map[uuid.UUID][]int32{}
		for _, t := range v.TopicPartitions {
			a[t.TopicID] = t.Partitions
		}
		return fmt.Sprintf("%s %s %s", name, key, of(a))
	case *records.ConsumerGroupTargetAssignmentMetadataValue:
		return fmt.Sprintf("%s %s epoch %d", name, key, v.AssignmentEpoch)
	case *records.ConsumerGroupCurrentMemberAssignmentValue:
		return fmt.Sprintf("%s %s epoch %d after %d state %d has %s gives back %s", name, key, v.MemberEpoch, v.PreviousMemberEpoch, v.State,
			showAssignment(ownedOf(v.AssignedPartitions, 0).assignment()), showAssignment(ownedOf(v.PartitionsPendingRevocation, 0).assignment()))
	case *records.ConsumerGroupRegularExpressionValue:
		return fmt.Sprintf("%s %s %v", name, key, v.Topics)
	}
	return fmt.Sprintf("%s %+v", name, r.Value)
}
