package quorum

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"ottla/internal/uuid"
)

// maxFetchBytes bounds one answer to a Fetch or FetchSnapshot, whatever the request allows. A single batch
// may be larger, and is served whole.
const maxFetchBytes = 8 << 20

// ServeFetch answers an observer's Fetch, versions 12 to 18; it waits as the request says while there is nothing
// new. Only committed records are served, so none that was served is ever taken back.
func (v *Voter) ServeFetch(ctx context.Context, req *kmsg.FetchRequest) *kmsg.FetchResponse {
	wanted, code := v.fetchPartition(req)
	if code != 0 {
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		resp.ErrorCode = code
		resp.Topics = []kmsg.FetchResponseTopic{}
		return resp
	}
	if wait := time.Duration(req.MaxWaitMillis) * time.Millisecond; wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	} else {
		done, cancel := context.WithCancel(ctx)
		cancel()
		ctx = done
	}
	for {
		view := v.log.view()
		answer, ready := v.fetch(req, wanted, &view)
		if ready || view.err != nil || view.wait(ctx) != nil {
			return v.fetchResponse(req, answer, &view)
		}
	}
}

// fetchPartition returns the one partition a request must ask for, or the error code for the whole answer.
func (v *Voter) fetchPartition(req *kmsg.FetchRequest) (*kmsg.FetchRequestTopicPartition, int16) {
	if req.ClusterID != nil && *req.ClusterID != v.o.ClusterID {
		return nil, kerr.InconsistentClusterID.Code
	}
	if len(req.Topics) != 1 || len(req.Topics[0].Partitions) != 1 || req.Topics[0].Partitions[0].Partition != 0 {
		return nil, kerr.InvalidRequest.Code
	}
	topic := &req.Topics[0]
	if req.Version >= 13 && topic.TopicID != uuid.Metadata || req.Version < 13 && topic.Topic != Topic {
		return nil, kerr.InvalidRequest.Code
	}
	return &topic.Partitions[0], 0
}

// fetch answers for the partition as of view; ready is false if waiting may bring more.
func (v *Voter) fetch(req *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition, view *view) (a kmsg.FetchResponseTopicPartition, ready bool) {
	a = kmsg.NewFetchResponseTopicPartition()
	a.CurrentLeader.LeaderID, a.CurrentLeader.LeaderEpoch = view.leader.id, view.leader.epoch
	a.HighWatermark, a.LastStableOffset, a.LogStartOffset = -1, -1, -1
	a.RecordBatches = []byte{}
	if a.ErrorCode = v.fetchError(p, view); a.ErrorCode != 0 {
		return a, true
	}
	a.HighWatermark, a.LastStableOffset = view.end.Offset, view.end.Offset
	a.LogStartOffset = v.log.log.StartOffset()
	switch v.log.follows(view, p.FetchOffset, p.LastFetchedEpoch) {
	case needsSnapshot:
		id, _ := view.newestSnapshot()
		a.SnapshotID.EndOffset, a.SnapshotID.Epoch = id.EndOffset, id.Epoch
		return a, true
	case diverges:
		a.DivergingEpoch.Epoch, a.DivergingEpoch.EndOffset = v.log.log.EpochEndOffset(p.LastFetchedEpoch, view.end.Offset)
		return a, true
	}
	v.observers.fetched(req, p, view.end.Offset)
	if p.FetchOffset >= view.end.Offset {
		return a, p.HighWatermark < view.end.Offset
	}
	b, err := v.log.batches(p.FetchOffset, view.end, fetchBytes(req.MaxBytes))
	if err != nil {
		v.o.Logger.Error("an observer's fetch could not be served", "offset", p.FetchOffset, "error", err)
		a.ErrorCode = kerr.UnknownServerError.Code
		return a, true
	}
	a.RecordBatches = b
	return a, true
}

func fetchBytes(asked int32) int { return int(max(0, min(asked, maxFetchBytes))) }

// fetchError checks a fetch against who leads. Source: KafkaRaftClient.handleFetchRequest.
func (v *Voter) fetchError(p *kmsg.FetchRequestTopicPartition, view *view) int16 {
	if p.FetchOffset < 0 || p.LastFetchedEpoch < 0 || p.CurrentLeaderEpoch < 0 || p.LastFetchedEpoch > p.CurrentLeaderEpoch {
		return kerr.InvalidRequest.Code
	}
	return v.leaderError(p.CurrentLeaderEpoch, view)
}

// leaderError checks the epoch in which a caller believes that we lead.
func (v *Voter) leaderError(epoch int32, view *view) int16 {
	switch {
	case epoch < view.leader.epoch:
		return kerr.FencedLeaderEpoch.Code
	case epoch > view.leader.epoch:
		return kerr.UnknownLeaderEpoch.Code
	case view.leader.id != v.self.nodeID || view.err != nil:
		return kerr.NotLeaderForPartition.Code
	}
	return 0
}

// fetchResponse wraps a partition's answer, with the address of the leader.
func (v *Voter) fetchResponse(req *kmsg.FetchRequest, a kmsg.FetchResponseTopicPartition, view *view) *kmsg.FetchResponse {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	topic := kmsg.NewFetchResponseTopic()
	topic.Topic, topic.TopicID = Topic, uuid.Metadata
	topic.Partitions = append(topic.Partitions, a)
	resp.Topics = append(resp.Topics, topic)
	if e, ok := view.endpoint(view.leader.id); ok && req.Version >= 16 {
		broker := kmsg.NewFetchResponseBroker()
		broker.NodeID, broker.Host, broker.Port = view.leader.id, e.Host, int32(e.Port)
		resp.Brokers = append(resp.Brokers, broker)
	}
	return resp
}

// How a follower's log relates to ours.
type following int

const (
	followsOn following = iota
	diverges
	needsSnapshot
)

// follows judges a follower whose log ends at offset with a batch of the given epoch. Source: Kafka's
// ReplicatedLog.validateOffsetAndEpoch.
func (m *metaLog) follows(view *view, offset int64, epoch int32) following {
	start := m.log.StartOffset()
	if start == 0 && offset == 0 {
		return followsOn
	}
	if len(view.snapshots) > 0 {
		oldest := view.snapshots[0]
		if offset < start || start > 0 && epoch < oldest.Epoch {
			return needsSnapshot
		}
		if slices.Contains(view.snapshots, SnapshotID{EndOffset: offset, Epoch: epoch}) {
			return followsOn // the log may not know the epoch of what a snapshot covers
		}
		if offset == start {
			return needsSnapshot
		}
	}
	if e, end := m.log.EpochEndOffset(epoch, view.end.Offset); e != epoch || end < offset {
		return diverges
	}
	return followsOn
}

// ServeFetchSnapshot answers an observer's FetchSnapshot.
func (v *Voter) ServeFetchSnapshot(req *kmsg.FetchSnapshotRequest) *kmsg.FetchSnapshotResponse {
	resp := req.ResponseKind().(*kmsg.FetchSnapshotResponse)
	resp.Topics = []kmsg.FetchSnapshotResponseTopic{}
	if req.ClusterID != nil && *req.ClusterID != v.o.ClusterID {
		resp.ErrorCode = kerr.InconsistentClusterID.Code
		return resp
	}
	view := v.log.view()
	for _, t := range req.Topics {
		topic := kmsg.NewFetchSnapshotResponseTopic()
		topic.Topic = t.Topic
		for i := range t.Partitions {
			topic.Partitions = append(topic.Partitions, v.fetchSnapshot(req, t.Topic, &t.Partitions[i], &view))
		}
		resp.Topics = append(resp.Topics, topic)
	}
	if e, ok := view.endpoint(view.leader.id); ok && req.Version >= 1 {
		endpoint := kmsg.NewFetchSnapshotResponseNodeEndpoint()
		endpoint.NodeID, endpoint.Host, endpoint.Port = view.leader.id, e.Host, e.Port
		resp.NodeEndpoints = append(resp.NodeEndpoints, endpoint)
	}
	return resp
}

func (v *Voter) fetchSnapshot(req *kmsg.FetchSnapshotRequest, topic string, p *kmsg.FetchSnapshotRequestTopicPartition, view *view) kmsg.FetchSnapshotResponseTopicPartition {
	a := kmsg.NewFetchSnapshotResponseTopicPartition()
	a.Partition = p.Partition
	a.CurrentLeader.LeaderID, a.CurrentLeader.LeaderEpoch = view.leader.id, view.leader.epoch
	a.SnapshotID = kmsg.FetchSnapshotResponseTopicPartitionSnapshotID{EndOffset: p.SnapshotID.EndOffset, Epoch: p.SnapshotID.Epoch}
	a.Position, a.Bytes = p.Position, []byte{}
	if topic != Topic || p.Partition != 0 {
		a.ErrorCode = kerr.UnknownTopicOrPartition.Code
		return a
	}
	if a.ErrorCode = v.leaderError(p.CurrentLeaderEpoch, view); a.ErrorCode != 0 {
		return a
	}
	id := SnapshotID{EndOffset: p.SnapshotID.EndOffset, Epoch: p.SnapshotID.Epoch}
	b, size, err := readSnapshot(v.log.fs, v.log.dir, id, p.Position, fetchBytes(req.MaxBytes))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		a.ErrorCode = kerr.SnapshotNotFound.Code
	case errors.Is(err, errPosition):
		a.ErrorCode = kerr.PositionOutOfRange.Code
	case err != nil:
		v.o.Logger.Error("an observer's fetch of a snapshot could not be served", "snapshot", id, "error", err)
		a.ErrorCode = kerr.UnknownServerError.Code
	default:
		a.Size, a.Bytes = size, b
	}
	return a
}

// observerSession is for how long an observer that stopped fetching is still listed
// (LeaderState.OBSERVER_SESSION_TIMEOUT_MS).
const observerSession = 5 * time.Minute

// observers is who fetches from this leader, for DescribeQuorum.
type observers struct {
	mu sync.Mutex
	of map[observerKey]*observer
}

type observerKey struct {
	nodeID    int32
	directory uuid.UUID
}

type observer struct {
	offset              int64
	lastFetch, caughtUp time.Time
}

// maxObservers bounds what unknown callers can make us remember.
const maxObservers = 10_000

func (o *observers) fetched(req *kmsg.FetchRequest, p *kmsg.FetchRequestTopicPartition, end int64) {
	key := observerKey{req.ReplicaID, p.ReplicaDirectoryID}
	if req.Version >= 15 {
		key.nodeID = req.ReplicaState.ID
	}
	if key.nodeID < 0 {
		return
	}
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of = make(map[observerKey]*observer)
	}
	seen := o.of[key]
	if seen == nil {
		if len(o.of) >= maxObservers {
			return
		}
		seen = new(observer)
		o.of[key] = seen
	}
	seen.offset, seen.lastFetch = p.FetchOffset, now
	if p.FetchOffset >= end {
		seen.caughtUp = now
	}
}

// list returns the observers that fetch still, and forgets the others.
func (o *observers) list() []kmsg.DescribeQuorumResponseTopicPartitionReplicaState {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	list := []kmsg.DescribeQuorumResponseTopicPartitionReplicaState{}
	for key, seen := range o.of {
		if now.Sub(seen.lastFetch) > observerSession {
			delete(o.of, key)
			continue
		}
		s := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
		s.ReplicaID, s.ReplicaDirectoryID, s.LogEndOffset = key.nodeID, key.directory, seen.offset
		s.LastFetchTimestamp, s.LastCaughtUpTimestamp = seen.lastFetch.UnixMilli(), -1
		if !seen.caughtUp.IsZero() {
			s.LastCaughtUpTimestamp = seen.caughtUp.UnixMilli()
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b kmsg.DescribeQuorumResponseTopicPartitionReplicaState) int {
		return cmp.Compare(a.ReplicaID, b.ReplicaID)
	})
	return list
}

// Describe implements [Quorum].
func (v *Voter) Describe(req *kmsg.DescribeQuorumRequest) *kmsg.DescribeQuorumResponse {
	view := v.log.view()
	resp := describe(req, &view, v.self.nodeID)
	if len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		return resp
	}
	p := &resp.Topics[0].Partitions[0]
	v.call(func() error { p.CurrentVoters = v.describeVoters(); return nil })
	p.Observers = v.observers.list()
	return resp
}

// describeVoters returns how far each voter is, as raft's leader knows it.
func (v *Voter) describeVoters() []kmsg.DescribeQuorumResponseTopicPartitionReplicaState {
	if v.node == nil {
		return nil
	}
	now := time.Now().UnixMilli()
	var list []kmsg.DescribeQuorumResponseTopicPartitionReplicaState
	for _, m := range v.state.voters {
		s := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
		s.ReplicaID, s.ReplicaDirectoryID, s.LogEndOffset = m.nodeID, m.directory, -1
		if m == v.self {
			s.LogEndOffset, s.LastFetchTimestamp, s.LastCaughtUpTimestamp = v.applied.offset, now, now
		}
		list = append(list, s)
	}
	v.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		for i, m := range v.state.voters {
			if m == v.self || m.raftID() != id {
				continue
			}
			list[i].LogEndOffset = v.offsetAt(p.Match)
			if p.RecentActive {
				list[i].LastFetchTimestamp = now
			}
			if p.Match >= v.applied.index {
				list[i].LastCaughtUpTimestamp = now
			}
		}
	})
	return list
}

// offsetAt returns where the metadata log of a voter ends that has raft's entries up to index; -1 if that is
// too long ago to tell.
func (v *Voter) offsetAt(index uint64) int64 {
	if index >= v.applied.index {
		return v.applied.offset
	}
	offset := v.applied.offset
	entries, err := v.raft.Entries(index+1, v.applied.index+1, cacheBytes)
	if err != nil || uint64(len(entries)) != v.applied.index-index {
		return -1
	}
	for _, e := range entries {
		count, err := batchCount(e)
		if err != nil {
			return -1
		}
		offset -= count
	}
	return offset
}

// describe answers DescribeQuorum as far as every node can; the leader adds the replicas.
func describe(req *kmsg.DescribeQuorumRequest, view *view, self int32) *kmsg.DescribeQuorumResponse {
	resp := req.ResponseKind().(*kmsg.DescribeQuorumResponse)
	resp.Topics = []kmsg.DescribeQuorumResponseTopic{}
	resp.Nodes = []kmsg.DescribeQuorumResponseNode{}
	if len(req.Topics) != 1 || req.Topics[0].Topic != Topic || len(req.Topics[0].Partitions) != 1 || req.Topics[0].Partitions[0].Partition != 0 {
		resp.Topics = describeUnknown(req)
		return resp
	}
	p := kmsg.NewDescribeQuorumResponseTopicPartition()
	p.LeaderID, p.LeaderEpoch, p.HighWatermark = view.leader.id, view.leader.epoch, view.end.Offset
	p.CurrentVoters = []kmsg.DescribeQuorumResponseTopicPartitionReplicaState{}
	p.Observers = []kmsg.DescribeQuorumResponseTopicPartitionReplicaState{}
	if view.leader.id != self {
		p.ErrorCode = kerr.NotLeaderForPartition.Code
	}
	topic := kmsg.NewDescribeQuorumResponseTopic()
	topic.Topic = Topic
	topic.Partitions = append(topic.Partitions, p)
	resp.Topics = append(resp.Topics, topic)
	for _, r := range view.voters {
		node := kmsg.NewDescribeQuorumResponseNode()
		node.NodeID = r.NodeID
		for _, e := range r.Endpoints {
			listener := kmsg.NewDescribeQuorumResponseNodeListener()
			listener.Name, listener.Host, listener.Port = e.Name, e.Host, e.Port
			node.Listeners = append(node.Listeners, listener)
		}
		resp.Nodes = append(resp.Nodes, node)
	}
	return resp
}

// describeUnknown answers a request for anything but the metadata partition.
func describeUnknown(req *kmsg.DescribeQuorumRequest) []kmsg.DescribeQuorumResponseTopic {
	topics := make([]kmsg.DescribeQuorumResponseTopic, len(req.Topics))
	for i := range req.Topics {
		topics[i].Topic = req.Topics[i].Topic
		for _, asked := range req.Topics[i].Partitions {
			p := kmsg.NewDescribeQuorumResponseTopicPartition()
			p.Partition, p.ErrorCode = asked.Partition, kerr.UnknownTopicOrPartition.Code
			topics[i].Partitions = append(topics[i].Partitions, p)
		}
	}
	return topics
}
