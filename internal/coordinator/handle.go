package coordinator

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/coordinator/group"
	"ottla/internal/metadata"
	"ottla/internal/protocol"
)

// Handle answers a request about groups: it is authorised, its topics found, and it goes to the loop of its group's partition,
// or of each group's if it names several. done is called once with the answer, by any goroutine, perhaps before Handle
// returns, perhaps minutes later; it must not block. Handle itself may have to wait for the disk, for this operation and others. The request is Handle's for good, but for the bytes that its fields
// alias: those are copied, as the frame may be gone with its connection by the time they are looked at. The requests are
// JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit, OffsetFetch, OffsetDelete, ListGroups, DescribeGroups, DeleteGroups,
// ConsumerGroupHeartbeat and ConsumerGroupDescribe; another panics.
func (g *Groups) Handle(ctx context.Context, req kmsg.Request, done func(kmsg.Response)) {
	r := &request{groups: g, ctx: ctx, image: g.shared.Load().image, session: auth.From(ctx)}
	switch req := req.(type) {
	case *kmsg.JoinGroupRequest:
		for i := range req.Protocols {
			req.Protocols[i].Metadata = bytes.Clone(req.Protocols[i].Metadata)
		}
		r.one(req, req.Group, auth.Read, done)
	case *kmsg.SyncGroupRequest:
		for i := range req.GroupAssignment {
			req.GroupAssignment[i].MemberAssignment = bytes.Clone(req.GroupAssignment[i].MemberAssignment)
		}
		if req.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
			done(refusal(req, kerr.InconsistentGroupProtocol.Code))
			return
		}
		r.one(req, req.Group, auth.Read, done)
	case *kmsg.HeartbeatRequest:
		r.one(req, req.Group, auth.Read, done)
	case *kmsg.LeaveGroupRequest:
		r.one(req, req.Group, auth.Read, done)
	case *kmsg.OffsetCommitRequest:
		r.offsetCommit(req, done)
	case *kmsg.OffsetFetchRequest:
		r.offsetFetch(req, done)
	case *kmsg.OffsetDeleteRequest:
		r.offsetDelete(req, done)
	case *kmsg.ListGroupsRequest:
		r.listGroups(req, done)
	case *kmsg.DescribeGroupsRequest:
		r.describeGroups(req, done)
	case *kmsg.DeleteGroupsRequest:
		r.deleteGroups(req, done)
	case *kmsg.ConsumerGroupHeartbeatRequest, *kmsg.ConsumerGroupDescribeRequest:
		r.consumerGroup(req, done)
	default:
		panic("coordinator: no groups in " + kmsg.NameForKey(req.Key()))
	}
}

// A request is what is known while one is handled.
type request struct {
	groups  *Groups
	ctx     context.Context
	image   *metadata.Image
	session *auth.Session
}

func (r *request) mayGroup(op auth.Operation, name string) bool {
	return r.groups.authorize(r.ctx, op, auth.Group, name)
}

func (r *request) mayTopic(op auth.Operation, name string) bool {
	return r.groups.authorize(r.ctx, op, auth.Topic, name)
}

// one handles a request about one group. The group needs a name.
func (r *request) one(req kmsg.Request, name string, op auth.Operation, done func(kmsg.Response)) {
	switch {
	case !r.mayGroup(op, name):
		done(refusal(req, kerr.GroupAuthorizationFailed.Code))
	case name == "":
		done(refusal(req, kerr.InvalidGroupID.Code))
	default:
		r.submit(name, req, done)
	}
}

// submit hands an operation to its group's partition.
func (r *request) submit(name string, req kmsg.Request, done func(kmsg.Response)) {
	r.submitTo(r.partition(name), req, done)
}

func (r *request) submitTo(partition int32, req kmsg.Request, done func(kmsg.Response)) {
	c := &call{op: group.Op{Request: req, ClientID: r.session.ClientID, ClientHost: "/" + r.session.Host}, done: done}
	c.op.MayDescribe = func(topic string) bool { return r.mayTopic(auth.Describe, topic) }
	l := r.groups.loop(partition)
	if l == nil {
		c.refuse(kerr.NotCoordinator.Code)
		return
	}
	l.submit(c)
}

// partition returns a group's partition; -1, which nobody leads, while __consumer_offsets does not exist.
func (r *request) partition(name string) int32 {
	t := r.image.TopicByName(GroupTopic)
	if t == nil {
		return -1
	}
	return PartitionFor(name, int32(t.PartitionCount()))
}

// byPartition sorts group names by partition; the order within one is kept.
func (r *request) byPartition(names []string) map[int32][]string {
	out := map[int32][]string{}
	for _, n := range names {
		p := r.partition(n)
		out[p] = append(out[p], n)
	}
	return out
}

// gather calls done with the n answers that add brings, in any order, when all are there; at once if n is 0.
type gather struct {
	left  atomic.Int32
	parts []kmsg.Response
	done  func(parts []kmsg.Response)
}

func newGather(n int, done func([]kmsg.Response)) *gather {
	g := &gather{parts: make([]kmsg.Response, n), done: done}
	g.left.Store(int32(n))
	if n == 0 {
		done(nil)
	}
	return g
}

// at returns what takes the i-th answer.
func (g *gather) at(i int) func(kmsg.Response) {
	return func(resp kmsg.Response) {
		g.parts[i] = resp
		if g.left.Add(-1) == 0 {
			g.done(g.parts)
		}
	}
}

// listGroups asks all partitions. Who may describe the cluster sees all groups, others those that they may describe.
func (r *request) listGroups(req *kmsg.ListGroupsRequest, done func(kmsg.Response)) {
	all := r.groups.authorize(r.ctx, auth.Describe, auth.Cluster, auth.ClusterName)
	loops := r.groups.all()
	g := newGather(len(loops), func(parts []kmsg.Response) {
		resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
		resp.Groups = []kmsg.ListGroupsResponseGroup{}
		for _, part := range parts {
			part := part.(*kmsg.ListGroupsResponse)
			if part.ErrorCode != 0 && part.ErrorCode != kerr.NotCoordinator.Code {
				resp.ErrorCode = part.ErrorCode
			}
			for _, lg := range part.Groups {
				if all || r.mayGroup(auth.Describe, lg.Group) {
					resp.Groups = append(resp.Groups, lg)
				}
			}
		}
		if resp.ErrorCode != 0 {
			resp.Groups = []kmsg.ListGroupsResponseGroup{}
		}
		done(resp)
	})
	for i, l := range loops {
		l.submit(&call{op: group.Op{Request: req}, done: g.at(i)})
	}
}

// describeGroups asks the partitions of the groups.
func (r *request) describeGroups(req *kmsg.DescribeGroupsRequest, done func(kmsg.Response)) {
	described := map[string]kmsg.DescribeGroupsResponseGroup{}
	parts := r.byPartition(r.allowed(req.Groups, auth.Describe))
	g := newGather(len(parts), func(parts []kmsg.Response) {
		for _, part := range parts {
			for _, d := range part.(*kmsg.DescribeGroupsResponse).Groups {
				described[d.Group] = d
			}
		}
		resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		for _, name := range req.Groups {
			d, ok := described[name]
			if !ok {
				d = kmsg.NewDescribeGroupsResponseGroup()
				d.Group, d.ErrorCode = name, kerr.GroupAuthorizationFailed.Code
			}
			if req.IncludeAuthorizedOperations && d.ErrorCode == 0 {
				d.AuthorizedOperations = r.operations(name)
			}
			resp.Groups = append(resp.Groups, d)
		}
		done(resp)
	})
	i := 0
	for p, names := range parts {
		r.submitTo(p, &kmsg.DescribeGroupsRequest{Version: req.Version, Groups: names}, g.at(i))
		i++
	}
}

// deleteGroups asks the partitions of the groups.
func (r *request) deleteGroups(req *kmsg.DeleteGroupsRequest, done func(kmsg.Response)) {
	deleted := map[string]kmsg.DeleteGroupsResponseGroup{}
	groups := distinct(req.Groups)
	parts := r.byPartition(r.allowed(groups, auth.Delete))
	g := newGather(len(parts), func(parts []kmsg.Response) {
		for _, part := range parts {
			for _, d := range part.(*kmsg.DeleteGroupsResponse).Groups {
				deleted[d.Group] = d
			}
		}
		resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
		for _, name := range groups {
			d, ok := deleted[name]
			if !ok {
				d = kmsg.NewDeleteGroupsResponseGroup()
				d.Group, d.ErrorCode = name, kerr.GroupAuthorizationFailed.Code
			}
			resp.Groups = append(resp.Groups, d)
		}
		done(resp)
	})
	i := 0
	for p, names := range parts {
		r.submitTo(p, &kmsg.DeleteGroupsRequest{Version: req.Version, Groups: names}, g.at(i))
		i++
	}
}

// distinct leaves out what is named for the second time.
func distinct(names []string) []string {
	seen := make(map[string]bool, len(names))
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		again := seen[n]
		seen[n] = true
		return again
	})
}

// allowed returns the groups that op may be done to.
func (r *request) allowed(names []string, op auth.Operation) (out []string) {
	for _, n := range names {
		if r.mayGroup(op, n) {
			out = append(out, n)
		}
	}
	return out
}

// groupOperations are those that an ACL on a group can allow. Source: AclEntry.supportedOperations.
var groupOperations = []auth.Operation{auth.Read, auth.Delete, auth.Describe, auth.DescribeConfigs, auth.AlterConfigs}

// operations returns what the requester may do with a group, a bit each (KIP-430).
func (r *request) operations(name string) (bits int32) {
	for _, op := range groupOperations {
		if r.mayGroup(op, name) {
			bits |= 1 << op
		}
	}
	return bits
}

// consumerGroup handles the requests of KIP-848, if that is switched on: by group.coordinator.rebalance.protocols here, and by
// the feature group.version in the cluster.
func (r *request) consumerGroup(req kmsg.Request, done func(kmsg.Response)) {
	if !r.groups.shared.Load().consumer || r.image.FeatureLevel(protocol.FeatureGroup) < 1 {
		done(protocol.ErrorAnswer(req, kerr.UnsupportedVersion.Code))
		return
	}
	switch req := req.(type) {
	case *kmsg.ConsumerGroupHeartbeatRequest:
		r.consumerGroupHeartbeat(req, done)
	case *kmsg.ConsumerGroupDescribeRequest:
		r.consumerGroupDescribe(req, done)
	}
}

// consumerGroupHeartbeat needs every topic that is subscribed to by name to be describable.
func (r *request) consumerGroupHeartbeat(req *kmsg.ConsumerGroupHeartbeatRequest, done func(kmsg.Response)) {
	if !r.mayGroup(auth.Read, req.Group) {
		done(refusal(req, kerr.GroupAuthorizationFailed.Code))
		return
	}
	for _, topic := range req.SubscribedTopicNames {
		if !r.mayTopic(auth.Describe, topic) {
			done(protocol.ErrorAnswer(req, kerr.TopicAuthorizationFailed.Code))
			return
		}
	}
	if req.Group == "" {
		resp := protocol.ErrorAnswer(req, kerr.InvalidRequest.Code).(*kmsg.ConsumerGroupHeartbeatResponse)
		resp.ErrorMessage = kmsg.StringPtr("GroupId can't be empty.")
		done(resp)
		return
	}
	r.submit(req.Group, req, done)
}

// consumerGroupDescribe asks the partitions of the groups. A group that reads a topic which the requester may not describe
// is not told.
func (r *request) consumerGroupDescribe(req *kmsg.ConsumerGroupDescribeRequest, done func(kmsg.Response)) {
	described := map[string]kmsg.ConsumerGroupDescribeResponseGroup{}
	parts := r.byPartition(r.allowed(req.Groups, auth.Describe))
	g := newGather(len(parts), func(parts []kmsg.Response) {
		for _, part := range parts {
			for _, d := range part.(*kmsg.ConsumerGroupDescribeResponse).Groups {
				described[d.Group] = d
			}
		}
		resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
		for _, name := range req.Groups {
			d, ok := described[name]
			switch {
			case !ok:
				d = refusedDescription(name, kerr.GroupAuthorizationFailed.Code)
			case name == "":
				d = refusedDescription(name, kerr.InvalidGroupID.Code)
			case !r.mayDescribeTopics(&d):
				d = refusedDescription(name, kerr.TopicAuthorizationFailed.Code)
				message := "The group has described topic(s) that the client is not authorized to describe."
				d.ErrorMessage = &message
			case req.IncludeAuthorizedOperations && d.ErrorCode == 0:
				d.AuthorizedOperations = r.operations(name)
			}
			resp.Groups = append(resp.Groups, d)
		}
		done(resp)
	})
	i := 0
	for p, names := range parts {
		r.submitTo(p, &kmsg.ConsumerGroupDescribeRequest{Version: req.Version, Groups: names}, g.at(i))
		i++
	}
}

func refusedDescription(name string, code int16) kmsg.ConsumerGroupDescribeResponseGroup {
	d := kmsg.NewConsumerGroupDescribeResponseGroup()
	d.Group, d.ErrorCode = name, code
	return d
}

func (r *request) mayDescribeTopics(d *kmsg.ConsumerGroupDescribeResponseGroup) bool {
	for i := range d.Members {
		m := &d.Members[i]
		for _, a := range [][]kmsg.AssignmentTopicPartition{m.Assignment.TopicPartitions, m.TargetAssignment.TopicPartitions} {
			for _, tp := range a {
				if !r.mayTopic(auth.Describe, tp.Topic) {
					return false
				}
			}
		}
	}
	return true
}
