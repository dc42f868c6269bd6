package broker

import (
	"context"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/coordinator"
	"ottla/internal/metadata"
	"ottla/internal/uuid"
)

// Kinds of coordinators (FindCoordinatorRequest.CoordinatorType).
const (
	groupCoordinator       int8 = 0
	transactionCoordinator int8 = 1
	shareCoordinator       int8 = 2
)

// findCoordinator tells which broker coordinates a group: the leader of its partition of __consumer_offsets, which is made
// when it is first asked for. Up to version 3 a request names one key.
func (b *Broker) findCoordinator(ctx context.Context, req *kmsg.FindCoordinatorRequest) *kmsg.FindCoordinatorResponse {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	keys := req.CoordinatorKeys
	if req.Version < 4 {
		keys = []string{req.CoordinatorKey}
	}
	resp.Coordinators = each(keys, func(key string) kmsg.FindCoordinatorResponseCoordinator {
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Port = key, -1, -1
		e, err := b.coordinatorOf(ctx, req, key)
		if err != nil {
			c.ErrorCode, c.ErrorMessage = codeAndText(err)
			return c
		}
		c.NodeID, c.Host, c.Port = e.ID, e.Host, int32(e.Port)
		return c
	})
	if req.Version < 4 {
		c := &resp.Coordinators[0]
		resp.ErrorCode, resp.ErrorMessage, resp.NodeID, resp.Host, resp.Port = c.ErrorCode, c.ErrorMessage, c.NodeID, c.Host, c.Port
	}
	return resp
}

func (b *Broker) coordinatorOf(ctx context.Context, req *kmsg.FindCoordinatorRequest, key string) (brokerEndpoint, error) {
	switch req.CoordinatorType {
	case groupCoordinator:
		if !b.authorize(ctx, auth.Describe, auth.Group, key) {
			return brokerEndpoint{}, kerr.GroupAuthorizationFailed
		}
	case transactionCoordinator:
		if !b.authorize(ctx, auth.Describe, auth.TransactionalID, key) {
			return brokerEndpoint{}, kerr.TransactionalIDAuthorizationFailed
		}
		return brokerEndpoint{}, kerr.CoordinatorNotAvailable // there is none yet
	case shareCoordinator:
		switch {
		case req.Version < 6:
			return brokerEndpoint{}, kerr.InvalidRequest
		case !b.authorize(ctx, auth.ClusterAction, auth.Cluster, auth.ClusterName):
			return brokerEndpoint{}, kerr.ClusterAuthorizationFailed
		case !isShareKey(key):
			return brokerEndpoint{}, kerr.InvalidRequest
		}
		return brokerEndpoint{}, kerr.CoordinatorNotAvailable // there is none yet
	default:
		return brokerEndpoint{}, kerr.InvalidRequest
	}
	t, err := b.internalTopic(ctx, offsetsTopic)
	if err != nil {
		return brokerEndpoint{}, err
	}
	p := t.Partition(coordinator.PartitionFor(key, int32(t.PartitionCount())))
	v := view{b, b.image(), auth.From(ctx).Listener}
	for _, e := range v.brokers() {
		if e.ID == p.Leader {
			return e, nil
		}
	}
	return brokerEndpoint{}, kerr.CoordinatorNotAvailable
}

// isShareKey reports whether a key is group:topic id:partition, as share coordinators are looked for by (KIP-932). Source: SharePartitionKey.
func isShareKey(key string) bool {
	parts := strings.Split(key, ":")
	if len(parts) < 3 {
		return false
	}
	_, idErr := uuid.Parse(parts[len(parts)-2])
	_, partitionErr := strconv.ParseInt(parts[len(parts)-1], 10, 32)
	return idErr == nil && partitionErr == nil
}

// internalTopic returns an internal topic, which is created if it is not there.
func (b *Broker) internalTopic(ctx context.Context, name string) (*metadata.Topic, error) {
	if t := b.image().TopicByName(name); t != nil {
		return t, nil
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.SetVersion(createTopicsVersion)
	create.TimeoutMillis = int32(creationWait.Milliseconds())
	create.Topics = append(create.Topics, b.newTopic(name))
	ctx, cancel := context.WithTimeout(ctx, creationWait)
	defer cancel()
	b.createTopics(ctx, create)
	if t := b.image().TopicByName(name); t != nil {
		return t, nil
	}
	return nil, kerr.CoordinatorNotAvailable
}

// newTopic describes a topic that is created on the fly: an internal one by keys of its own, also before there is a coordinator that
// uses it, for it cannot be changed later; any other by the defaults. Source: AutoTopicCreationManager.creatableTopic.
func (b *Broker) newTopic(name string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
	c := b.config()
	var settings [][2]string
	switch name {
	case offsetsTopic:
		t.NumPartitions, t.ReplicationFactor = int32(c.Int("offsets.topic.num.partitions")), int16(c.Int("offsets.topic.replication.factor"))
		settings = [][2]string{{"cleanup.policy", "compact"}, {"compression.type", "producer"}, {"segment.bytes", c.String("offsets.topic.segment.bytes")}}
	case transactionsTopic:
		t.NumPartitions = int32(c.Int("transaction.state.log.num.partitions"))
		t.ReplicationFactor = int16(c.Int("transaction.state.log.replication.factor"))
		settings = [][2]string{
			{"cleanup.policy", "compact"}, {"compression.type", "uncompressed"}, {"unclean.leader.election.enable", "false"},
			{"min.insync.replicas", c.String("transaction.state.log.min.isr")}, {"segment.bytes", c.String("transaction.state.log.segment.bytes")},
		}
	case shareStateTopic:
		t.NumPartitions = int32(c.Int("share.coordinator.state.topic.num.partitions"))
		t.ReplicationFactor = int16(c.Int("share.coordinator.state.topic.replication.factor"))
		settings = [][2]string{
			{"cleanup.policy", "delete"}, {"compression.type", "producer"}, {"retention.ms", "-1"},
			{"min.insync.replicas", c.String("share.coordinator.state.topic.min.isr")}, {"segment.bytes", c.String("share.coordinator.state.topic.segment.bytes")},
		}
	}
	for _, kv := range settings {
		tc := kmsg.NewCreateTopicsRequestTopicConfig()
		tc.Name, tc.Value = kv[0], &kv[1]
		t.Configs = append(t.Configs, tc)
	}
	return t
}
