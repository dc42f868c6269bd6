package group

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// typeName is the group's type as ListGroups prints it (KIP-848, KIP-1043).
func (g *group) typeName() string {
	if g.classic != nil {
		return "classic"
	}
	return "consumer"
}

func (g *group) stateName() string {
	if g.classic != nil {
		return g.classic.state.String()
	}
	return g.consumer.state().String()
}

func (g *group) protocolTypeName() string {
	switch {
	case g.classic == nil:
		return consumerProtocol
	case g.classic.protocolType == nil:
		return ""
	}
	return *g.classic.protocolType
}

// listGroups lists the groups that the filters let through; an empty filter lets all. The later id comes first, as Kafka's hash
// tables have ids that differ in their last digit; nobody should rely on it, but Kafka's own tests do.
func (m *Machine) listGroups(req *kmsg.ListGroupsRequest) *kmsg.ListGroupsResponse {
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	passes := func(filter []string, value string) bool {
		return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(strings.TrimSpace(f), value) })
	}
	for _, g := range slices.Backward(m.sorted()) {
		if !passes(req.StatesFilter, g.stateName()) || !passes(req.TypesFilter, g.typeName()) {
			continue
		}
		resp.Groups = append(resp.Groups, kmsg.ListGroupsResponseGroup{
			Group: g.id, ProtocolType: g.protocolTypeName(), GroupState: g.stateName(), GroupType: g.typeName(),
		})
	}
	return resp
}

// describeGroups describes classic groups. One that is not there is Dead, and since version 6 an error as well.
func (m *Machine) describeGroups(req *kmsg.DescribeGroupsRequest) *kmsg.DescribeGroupsResponse {
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, id := range req.Groups {
		d := kmsg.NewDescribeGroupsResponseGroup()
		d.Group, d.Members = id, []kmsg.DescribeGroupsResponseGroupMember{}
		switch g := m.groups[id]; {
		case g == nil:
			notClassic(&d, req.Version, "Group "+id+" not found.")
		case g.classic == nil:
			notClassic(&d, req.Version, "Group "+id+" is not a classic group.")
		default:
			g.classic.describe(&d)
		}
		resp.Groups = append(resp.Groups, d)
	}
	return resp
}

func notClassic(d *kmsg.DescribeGroupsResponseGroup, version int16, message string) {
	d.State = "Dead"
	if version >= 6 {
		d.ErrorCode, d.ErrorMessage = kerr.GroupIDNotFound.Code, &message
	}
}

// describe fills in the group. Metadata and assignments are those of a generation that is complete, and not told otherwise.
func (g *classicGroup) describe(d *kmsg.DescribeGroupsResponseGroup) {
	d.State = g.state.String()
	if g.protocolType != nil {
		d.ProtocolType = *g.protocolType
	}
	stable := g.state == stateStable
	if stable && g.protocol != nil {
		d.Protocol = *g.protocol
	}
	for _, mem := range g.order {
		r := kmsg.DescribeGroupsResponseGroupMember{
			MemberID: mem.id, InstanceID: mem.instanceID, ClientID: mem.clientID, ClientHost: mem.clientHost,
		}
		if stable {
			r.ProtocolMetadata, r.MemberAssignment = mem.metadata(d.Protocol), mem.assignment
		}
		d.Members = append(d.Members, r)
	}
}

// deleteGroups removes groups without members, offsets included.
func (m *Machine) deleteGroups(req *kmsg.DeleteGroupsRequest) *kmsg.DeleteGroupsResponse {
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for _, id := range req.Groups {
		r := kmsg.NewDeleteGroupsResponseGroup()
		r.Group = id
		switch g := m.groups[id]; {
		case g == nil:
			message := "Group " + id + " not found."
			r.ErrorCode, r.ErrorMessage = kerr.GroupIDNotFound.Code, &message
		case g.hasMembers():
			r.ErrorCode = kerr.NonEmptyGroup.Code
		default:
			for _, k := range m.offsets.keys(id) {
				m.emitOffsetTombstone(k)
			}
			m.deleteGroup(g)
		}
		resp.Groups = append(resp.Groups, r)
	}
	return resp
}

func (g *group) hasMembers() bool {
	if g.classic != nil {
		return g.classic.state != stateEmpty
	}
	return len(g.consumer.members) > 0
}
