package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
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

// refuseUnauthorized returns the answer to a forwarded request whose sender may not make it, or nil. What a request asks
// of each topic is checked topic by topic, and the whole request refused if one is not allowed: without ACLs none is.
func (b *Broker) refuseUnauthorized(ctx context.Context, req kmsg.Request) kmsg.Response {
	api, ok := protocol.Lookup(req.Key())
	if !ok || api.Operation == kmsg.ACLOperationUnknown {
		return nil
	}
	op := auth.Operation(api.Operation)
	if auth.ResourceType(api.Resource) != auth.Topic {
		if b.authorizeCluster(ctx, op) {
			return nil
		}
		return protocol.ErrorAnswer(req, kerr.ClusterAuthorizationFailed.Code)
	}
	for _, topic := range b.topicsOf(req) {
		if !b.authorizeTopic(ctx, op, topic) {
			return protocol.ErrorAnswer(req, kerr.TopicAuthorizationFailed.Code)
		}
	}
	return nil
}

// topicsOf lists the topics that a forwarded request wants changed, by name.
func (b *Broker) topicsOf(req kmsg.Request) (topics []string) {
	switch req := req.(type) {
	case *kmsg.CreateTopicsRequest:
		for i := range req.Topics {
			topics = append(topics, req.Topics[i].Topic)
		}
	case *kmsg.DeleteTopicsRequest:
		topics = append(topics, req.TopicNames...)
		for i := range req.Topics {
			topics = append(topics, b.topicName(req.Topics[i].Topic, req.Topics[i].TopicID))
		}
	case *kmsg.CreatePartitionsRequest:
		for i := range req.Topics {
			topics = append(topics, req.Topics[i].Topic)
		}
	case *kmsg.AlterConfigsRequest:
		for i := range req.Resources {
			topics = append(topics, req.Resources[i].ResourceName)
		}
	case *kmsg.IncrementalAlterConfigsRequest:
		for i := range req.Resources {
			topics = append(topics, req.Resources[i].ResourceName)
		}
	}
	return topics
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

// Operations that exist for a topic and for the cluster (AclEntry.supportedOperations).
var (
	topicOperations = []auth.Operation{auth.Read, auth.Write, auth.Create, auth.Describe, auth.Delete, auth.Alter,
		auth.DescribeConfigs, auth.AlterConfigs}
	clusterOperations = []auth.Operation{auth.Create, auth.ClusterAction, auth.DescribeConfigs, auth.AlterConfigs,
		auth.IdempotentWrite, auth.Alter, auth.Describe}
)

// operationsNotAsked stands where the client did not ask for authorized operations.
const operationsNotAsked int32 = -1 << 31
