package broker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/metadata"
	"ottla/internal/transport"
	"ottla/internal/uuid"
)

// metadata tells a client which brokers there are and who leads what, with the endpoints of the listener that it came by.
func (b *Broker) metadata(ctx context.Context, r *transport.Request) (transport.Response, transport.Pending) {
	req := r.Body.(*kmsg.MetadataRequest)
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	if b.wantsCreation(req) {
		b.createMissing(ctx, req)
	}
	img := b.image()
	v := view{b, img, auth.From(ctx).Listener}
	resp.ClusterID = &b.clusterID
	resp.ControllerID = b.nodeID // any broker passes requests on to the active controller (KIP-590)
	resp.Brokers = each(v.brokers(), func(e brokerEndpoint) kmsg.MetadataResponseBroker {
		rb := kmsg.NewMetadataResponseBroker()
		rb.NodeID, rb.Host, rb.Port, rb.Rack = e.ID, e.Host, int32(e.Port), e.Rack
		return rb
	})
	resp.AuthorizedOperations = operationsNotAsked
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = b.authorizedClusterOperations(ctx)
	}
	if wantsAllTopics(req) {
		list := topicLists.Get().(*topicList)
		r.Lend(list)
		resp.Topics = list.fill(ctx, v, req)
		return resp, nil
	}
	resp.Topics = make([]kmsg.MetadataResponseTopic, 0, len(req.Topics))
	for i := range req.Topics {
		resp.Topics = append(resp.Topics, v.named(ctx, req, &req.Topics[i]))
	}
	return resp, nil
}

// A topicList is all topics in an answer, and the arrays they are made of: of thousands of topics they are large, and clients ask often.
type topicList struct {
	topics     []kmsg.MetadataResponseTopic
	partitions []kmsg.MetadataResponseTopicPartition
}

var topicLists = sync.Pool{New: func() any { return new(topicList) }}

// fill lists the topics that the client may describe; a listing leaves the others out.
func (l *topicList) fill(ctx context.Context, v view, req *kmsg.MetadataRequest) []kmsg.MetadataResponseTopic {
	l.topics, l.partitions = slices.Grow(l.topics, v.img.TopicCount()), slices.Grow(l.partitions, v.img.PartitionCount())
	for t := range v.img.Topics() {
		if !v.authorizeTopic(ctx, auth.Describe, t.Name) {
			continue
		}
		from, to := len(l.partitions), len(l.partitions)+t.PartitionCount()
		l.partitions = l.partitions[:to]
		l.topics = append(l.topics, v.topic(ctx, req, t, l.partitions[from:from:to]))
	}
	return l.topics
}

// Recycle implements transport.Recycler.
func (l *topicList) Recycle() {
	clear(l.topics)
	clear(l.partitions)
	l.topics, l.partitions = l.topics[:0], l.partitions[:0]
	topicLists.Put(l)
}

// wantsAllTopics: version 0 says so with an empty list, later ones with null.
func wantsAllTopics(req *kmsg.MetadataRequest) bool {
	return req.Topics == nil || req.Version == 0 && len(req.Topics) == 0
}

// named answers for a topic that the request names, by name or, since version 12, by id.
func (v view) named(ctx context.Context, req *kmsg.MetadataRequest, rt *kmsg.MetadataRequestTopic) kmsg.MetadataResponseTopic {
	var t *metadata.Topic
	unknown := kerr.UnknownTopicOrPartition
	switch {
	case rt.Topic != nil:
		if t = v.img.TopicByName(*rt.Topic); t == nil && invalidTopicName(*rt.Topic) {
			unknown = kerr.InvalidTopicException
		}
	default:
		unknown = kerr.UnknownTopicID
		t = v.img.Topic(rt.TopicID)
	}
	name := v.topicName(rt.Topic, rt.TopicID)
	if t != nil && v.authorizeTopic(ctx, auth.Describe, t.Name) {
		return v.topic(ctx, req, t, nil)
	}
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.ErrorCode = rt.Topic, rt.TopicID, unknown.Code
	out.AuthorizedOperations = operationsNotAsked
	out.Partitions = []kmsg.MetadataResponseTopicPartition{}
	if t != nil || !v.authorizeTopic(ctx, auth.Describe, name) {
		out.ErrorCode = kerr.TopicAuthorizationFailed.Code
		if rt.Topic == nil {
			out.ErrorCode = kerr.UnknownTopicID.Code // an id must not give a name away
		}
	}
	return out
}

// topic answers for a topic that exists and may be described, with its partitions in room if that is enough.
func (v view) topic(ctx context.Context, req *kmsg.MetadataRequest, t *metadata.Topic, room []kmsg.MetadataResponseTopicPartition) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.IsInternal = &t.Name, t.ID, isInternal(t.Name)
	out.AuthorizedOperations = operationsNotAsked
	if req.IncludeTopicAuthorizedOperations {
		out.AuthorizedOperations = v.authorizedOperations(ctx, auth.Topic, t.Name, topicOperations...)
	}
	out.Partitions = slices.Grow(room, t.PartitionCount())
	for id, p := range t.Partitions() {
		rp := kmsg.NewMetadataResponseTopicPartition()
		rp.Partition, rp.Leader, rp.LeaderEpoch = id, p.Leader, p.LeaderEpoch
		rp.Replicas, rp.ISR, rp.OfflineReplicas = p.Replicas, p.ISR, v.offline(p)
		rp.ErrorCode = v.leaderError(p)
		out.Partitions = append(out.Partitions, rp)
	}
	return out
}

// A view is the metadata as one listener's clients see it.
type view struct {
	*Broker
	img      *metadata.Image
	listener string
}

// A brokerEndpoint is a broker and where it is reached.
type brokerEndpoint struct {
	*metadata.Broker
	metadata.Endpoint
}

// brokers lists the unfenced brokers that listen under the view's listener.
func (v view) brokers() (out []brokerEndpoint) {
	for br := range v.img.UnfencedBrokers() {
		if e, ok := br.Endpoint(v.listener); ok {
			out = append(out, brokerEndpoint{br, e})
		}
	}
	return out
}

// leaderError is the error code of a partition as far as its leader is concerned.
func (v view) leaderError(p *metadata.Partition) int16 {
	leader := v.img.Broker(p.Leader)
	if leader == nil || leader.Fenced {
		return kerr.LeaderNotAvailable.Code
	}
	if _, ok := leader.Endpoint(v.listener); !ok {
		return kerr.ListenerNotFound.Code
	}
	return 0
}

// offline lists the replicas of p whose broker or log directory is out of service.
func (v view) offline(p *metadata.Partition) []int32 {
	out := []int32{}
	for i, id := range p.Replicas {
		if br := v.img.Broker(id); br == nil || br.Fenced || isLost(br, p.Directories[i]) {
			out = append(out, id)
		}
	}
	return out
}

// isLost reports whether a replica was assigned to a log directory that its broker no longer has online.
func isLost(br *metadata.Broker, dir uuid.UUID) bool {
	return dir == uuid.LostDir || !dir.IsReserved() && !br.HasLogDir(dir)
}

// wantsCreation reports whether the request names a topic that is to be created on the fly.
func (b *Broker) wantsCreation(req *kmsg.MetadataRequest) bool {
	if req.Version >= 4 && !req.AllowAutoTopicCreation || !b.config().Bool("auto.create.topics.enable") {
		return false
	}
	img := b.image()
	for i := range req.Topics {
		if name := req.Topics[i].Topic; name != nil && img.TopicByName(*name) == nil {
			return true
		}
	}
	return false
}

// creationWait is how long a client waits for topics that its request creates, before it is told that they are unknown
// and asks again.
const creationWait = 2 * time.Second

// createMissing creates the topics that the request names and that do not exist, with the configured numbers of
// partitions and replicas, and waits until this broker knows them: a client that is told at once who leads need not come
// back, and some stumble over errors in their first answer.
func (b *Broker) createMissing(ctx context.Context, req *kmsg.MetadataRequest) {
	create := kmsg.NewPtrCreateTopicsRequest()
	create.SetVersion(createTopicsVersion)
	create.TimeoutMillis = int32(creationWait / time.Millisecond)
	img := b.image()
	for i := range req.Topics {
		name := req.Topics[i].Topic
		if name == nil || img.TopicByName(*name) != nil || invalidTopicName(*name) || !b.mayCreate(ctx, *name) {
			continue
		}
		create.Topics = append(create.Topics, b.newTopic(*name))
	}
	if len(create.Topics) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, creationWait)
	defer cancel()
	b.createTopics(ctx, create)
}

func (b *Broker) mayCreate(ctx context.Context, topic string) bool {
	return b.authorizeCluster(ctx, auth.Create) || b.authorizeTopic(ctx, auth.Create, topic)
}
