package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/metadata"
	"ottla/internal/protocol"
)

// Every handler asks authorize before it acts. There is no authorizer yet, so everything is allowed; a configuration that
// asks for one refuses the start (package config).

// authorize says whether the session in ctx may do op to a resource.
func (b *Broker) authorize(ctx context.Context, op auth.Operation, resource auth.ResourceType, name string) bool {
	return b.authorizer(ctx, op, resource, name)
}

// authorizeTopic is authorize for a topic.
func (b *Broker) authorizeTopic(ctx context.Context, op auth.Operation, topic string) bool {
	return b.authorize(ctx, op, auth.Topic, topic)
}

// authorizeCluster is authorize for the cluster.
func (b *Broker) authorizeCluster(ctx context.Context, op auth.Operation) bool {
	return b.authorize(ctx, op, auth.Cluster, auth.ClusterName)
}

// refuseUnauthorized returns the answer of a controller to a request whose sender may not make it, or nil. What a request
// asks of each resource is checked one by one, and the whole request refused if one is not allowed: without ACLs none is.
func (b *Broker) refuseUnauthorized(ctx context.Context, req kmsg.Request) kmsg.Response {
	api, ok := protocol.Lookup(req.Key())
	if !ok || api.Operation == kmsg.ACLOperationUnknown {
		return nil
	}
	op := auth.Operation(api.Operation)
	if req.Key() == int16(kmsg.Fetch) {
		op = auth.ClusterAction // of the metadata log
	}
	if op == auth.Create && b.authorizeCluster(ctx, op) {
		return nil
	}
	for _, r := range b.resourcesOf(req) {
		if !b.authorize(ctx, op, r.kind, r.name) {
			return protocol.ErrorAnswer(req, authorizationFailed(r.kind).Code)
		}
	}
	return nil
}

func authorizationFailed(kind auth.ResourceType) *kerr.Error {
	switch kind {
	case auth.Topic:
		return kerr.TopicAuthorizationFailed
	case auth.Group:
		return kerr.GroupAuthorizationFailed
	}
	return kerr.ClusterAuthorizationFailed
}

// An authResource is what an operation is asked of.
type authResource struct {
	kind auth.ResourceType
	name string
}

var cluster = authResource{auth.Cluster, auth.ClusterName}

// resourcesOf lists what a request to the controller reads or wants changed.
func (b *Broker) resourcesOf(req kmsg.Request) []authResource {
	topic := func(name string) authResource { return authResource{auth.Topic, name} }
	switch req := req.(type) {
	case *kmsg.CreateTopicsRequest:
		return each(req.Topics, func(t kmsg.CreateTopicsRequestTopic) authResource { return topic(t.Topic) })
	case *kmsg.DeleteTopicsRequest:
		return append(each(req.TopicNames, topic), each(req.Topics, func(t kmsg.DeleteTopicsRequestTopic) authResource {
			return topic(b.topicName(t.Topic, t.TopicID))
		})...)
	case *kmsg.CreatePartitionsRequest:
		return each(req.Topics, func(t kmsg.CreatePartitionsRequestTopic) authResource { return topic(t.Topic) })
	case *kmsg.DescribeConfigsRequest:
		return each(req.Resources, func(r kmsg.DescribeConfigsRequestResource) authResource {
			return configured(r.ResourceType, r.ResourceName)
		})
	case *kmsg.AlterConfigsRequest:
		return each(req.Resources, func(r kmsg.AlterConfigsRequestResource) authResource {
			return configured(r.ResourceType, r.ResourceName)
		})
	case *kmsg.IncrementalAlterConfigsRequest:
		return each(req.Resources, func(r kmsg.IncrementalAlterConfigsRequestResource) authResource {
			return configured(r.ResourceType, r.ResourceName)
		})
	}
	return []authResource{cluster}
}

// configured is what must be allowed to be changed for a configuration to be: brokers, and what clients measure, belong to the
// cluster.
func configured(kind kmsg.ConfigResourceType, name string) authResource {
	switch metadata.ResourceType(kind) {
	case metadata.TopicConfig:
		return authResource{auth.Topic, name}
	case metadata.GroupConfig:
		return authResource{auth.Group, name}
	}
	return cluster
}

// topicName is the name that a request gives, or that of the topic with the id it gives; empty if there is none.
func (b *Broker) topicName(name *string, id [16]byte) string {
	if name != nil {
		return *name
	}
	if t := b.image().Topic(id); t != nil {
		return t.Name
	}
	return ""
}

// authorizedOperations is the bit field of operations, by their codes, that the session in ctx may do to a resource.
func (b *Broker) authorizedOperations(ctx context.Context, resource auth.ResourceType, name string, all ...auth.Operation) (bits int32) {
	for _, op := range all {
		if b.authorize(ctx, op, resource, name) {
			bits |= 1 << op
		}
	}
	return bits
}

// authorizedClusterOperations is authorizedOperations of the cluster; none for who may not describe it.
func (b *Broker) authorizedClusterOperations(ctx context.Context) int32 {
	if !b.authorizeCluster(ctx, auth.Describe) {
		return 0
	}
	return b.authorizedOperations(ctx, auth.Cluster, auth.ClusterName, clusterOperations...)
}

// Operations that exist for a topic and for the cluster (AclEntry.supportedOperations).
var (
	topicOperations = []auth.Operation{auth.Read, auth.Write, auth.Create, auth.Describe, auth.Delete, auth.Alter,
		auth.DescribeConfigs, auth.AlterConfigs}
	clusterOperations = []auth.Operation{auth.Create, auth.ClusterAction, auth.DescribeConfigs, auth.AlterConfigs,
		auth.IdempotentWrite, auth.Alter, auth.Describe}
)

// operationsNotAsked stands where the client did not ask for authorized operations.
const operationsNotAsked int32 = -1 << 31
