package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/record"
	"ottla/internal/storage"
	"ottla/internal/uuid"
	"ottla/internal/vfs"
)

// ObserverOptions says who this node is and where it may find the controllers.
type ObserverOptions struct {
	FS          vfs.FS
	Dir         string // the metadata log directory, which holds __cluster_metadata-0
	ClusterID   string
	NodeID      int32
	DirectoryID uuid.UUID // of Dir
	// Controllers are where to ask for the leader. From controller.quorum.voters they come with node ids; from
	// controller.quorum.bootstrap.servers without, and NodeID is -1.
	Controllers []Replica
	Call        Caller
	Log         LogOptions
	// RequestTimeout ends a call that is not answered (controller.quorum.request.timeout.ms); default 2 s.
	RequestTimeout time.Duration
	// RetryBackoff is the wait after an error (controller.quorum.retry.backoff.ms); it doubles up to observerMaxBackoff. Default
	// 20 ms.
	RetryBackoff time.Duration
	// FetchMaxBytes and FetchSnapshotMaxBytes bound one answer of the leader; a batch that is larger comes whole
	// (controller.quorum.fetch.max.bytes, controller.quorum.fetch.snapshot.max.bytes). Default 1 MiB each.
	FetchMaxBytes, FetchSnapshotMaxBytes int32
	Logger                               *slog.Logger
	OnFailure                            func(error) // called once, on a goroutine of its own, when the disk failed
}

func (o *ObserverOptions) defaults() {
	o.RequestTimeout, o.RetryBackoff = cmp.Or(o.RequestTimeout, 2*time.Second), cmp.Or(o.RetryBackoff, 20*time.Millisecond)
	o.FetchMaxBytes, o.FetchSnapshotMaxBytes = cmp.Or(o.FetchMaxBytes, 1<<20), cmp.Or(o.FetchSnapshotMaxBytes, 1<<20)
}

const (
	// observerWait is how long the leader holds a fetch when there is nothing new (KafkaRaftClient.MAX_FETCH_WAIT_MS).
	observerWait = 500 * time.Millisecond
	// observerMaxBackoff is the longest wait after errors, unless RetryBackoff is longer.
	observerMaxBackoff = time.Second
)

// An Observer follows the metadata log of the controllers, Apache's or ours. Its one goroutine fetches from the
// leader and is the only one to append to the log.
type Observer struct {
	o      ObserverOptions
	log    *metaLog
	ctx    context.Context // of the fetcher
	cancel context.CancelFunc
	done   chan struct{}
	close  sync.Once
	// snapshotting is one slot: who writes a snapshot or fetches one, and has the log begin behind it.
	snapshotting chan struct{}

	// What follows is the fetcher's.

	target    Endpoint
	versions  versions // of target
	asked     int      // controllers of the options asked so far, one after the other
	endpoints map[int32]Endpoint
	failures  int // since the last answer that brought something
}

// versions are the highest that a controller and this node have in common; fetch is 0 while unknown.
type versions struct{ fetch, fetchSnapshot int16 }

// errAsk says that another controller is to be asked, after a moment.
var errAsk = errors.New("ask another controller")

// OpenObserver recovers the log of a directory and begins to follow.
func OpenObserver(ctx context.Context, o ObserverOptions) (*Observer, error) {
	if len(o.Controllers) == 0 {
		return nil, errors.New("no controllers to follow: set controller.quorum.bootstrap.servers")
	}
	o.defaults()
	b := &Observer{o: o, done: make(chan struct{}), snapshotting: make(chan struct{}, 1), endpoints: make(map[int32]Endpoint)}
	var err error
	if b.log, err = openObserverLog(&o); err != nil {
		return nil, err
	}
	for _, r := range o.Controllers {
		if r.NodeID >= 0 && len(r.Endpoints) > 0 {
			b.endpoints[r.NodeID] = r.Endpoints[0]
		}
	}
	b.ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	b.ask()
	go b.run()
	return b, nil
}

// Leader implements [Quorum].
func (b *Observer) Leader() (id, epoch int32) {
	l := b.log.view().leader
	return l.id, l.epoch
}

// LeaderEndpoint implements [Quorum].
func (b *Observer) LeaderEndpoint() (Endpoint, bool) {
	v := b.log.view()
	if v.leader.id < 0 {
		return Endpoint{}, false
	}
	return v.leader.endpoint, v.leader.endpoint != Endpoint{}
}

// Voters implements [Quorum].
func (b *Observer) Voters() []Replica { return b.log.view().voters }

// Cursor implements [Quorum].
func (b *Observer) Cursor() *Cursor { return newCursor(b.log) }

// Stored implements [Quorum].
func (b *Observer) Stored(yield func(Event) error) error {
	return b.log.stored(b.log.log.End(), yield)
}

// HighWatermark implements [Quorum].
func (b *Observer) HighWatermark() int64 { return b.log.view().end.Offset }

// Describe implements [Quorum]; an observer never leads.
func (b *Observer) Describe(req *kmsg.DescribeQuorumRequest) *kmsg.DescribeQuorumResponse {
	v := b.log.view()
	return describe(req, &v, -2)
}

// SaveSnapshot implements [Quorum]. It does nothing either while a snapshot is being fetched, which is newer.
func (b *Observer) SaveSnapshot(id SnapshotID, write func(emit func(value []byte)) error) error {
	select {
	case b.snapshotting <- struct{}{}:
	default:
		return nil
	}
	defer func() { <-b.snapshotting }()
	saved, err := b.log.saveSnapshot(id, time.Now().UnixMilli(), write)
	if err != nil || !saved {
		return err
	}
	return b.log.adopt(id)
}

// Close implements [Quorum].
func (b *Observer) Close() error {
	b.cancel()
	<-b.done
	var err error
	b.close.Do(func() { err = b.log.close() })
	return err
}

func (b *Observer) run() {
	err := b.follow()
	if b.ctx.Err() != nil {
		err = ErrClosed
	}
	b.log.fail(err)
	close(b.done)
	if err == ErrClosed {
		return
	}
	b.o.Logger.Error("the metadata log cannot be followed any more", "error", err)
	if b.o.OnFailure != nil {
		b.o.OnFailure(err)
	}
}

// follow fetches until the disk fails or the observer is closed.
func (b *Observer) follow() error {
	for b.ctx.Err() == nil {
		err := b.fetch()
		if err == nil {
			b.failures = 0
			continue
		}
		if !errors.Is(err, errAsk) {
			return err
		}
		b.backOff()
	}
	return b.ctx.Err()
}

// backOff waits after an error, longer each time, and turns to the next controller.
func (b *Observer) backOff() {
	wait := max(b.o.RetryBackoff, min(b.o.RetryBackoff<<min(b.failures, 10), observerMaxBackoff))
	b.failures++
	b.ask()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.ctx.Done():
	}
}

// ask turns to the leader if its address is known and it was not in vain, else to the next of the controllers.
func (b *Observer) ask() {
	v := b.log.view()
	if b.failures%2 == 0 && v.leader.id >= 0 && (v.leader.endpoint != Endpoint{}) {
		b.turnTo(v.leader.endpoint)
		return
	}
	r := b.o.Controllers[b.asked%len(b.o.Controllers)]
	b.asked++
	if len(r.Endpoints) > 0 {
		b.turnTo(r.Endpoints[0])
	}
}

func (b *Observer) turnTo(e Endpoint) {
	if e.Host != b.target.Host || e.Port != b.target.Port {
		b.target, b.versions = e, versions{}
	}
}

// call sends a request to the target.
func (b *Observer) call(req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(b.ctx, b.o.RequestTimeout)
	defer cancel()
	resp, err := b.o.Call(ctx, b.target, req)
	if err != nil {
		b.versions = versions{} // it may come back as another release
		b.o.Logger.Debug("a controller did not answer", "controller", b.target, "error", err)
		return nil, errAsk
	}
	return resp, nil
}

// learnVersions asks the target which versions it knows, once.
func (b *Observer) learnVersions() error {
	if b.versions.fetch > 0 {
		return nil
	}
	req := kmsg.NewPtrApiVersionsRequest()
	req.SetVersion(3)
	req.ClientSoftwareName, req.ClientSoftwareVersion = "ottla", "1"
	resp, err := b.call(req)
	if err != nil {
		return err
	}
	versions := versions{}
	for _, k := range resp.(*kmsg.ApiVersionsResponse).ApiKeys {
		switch k.ApiKey {
		case int16(kmsg.Fetch):
			versions.fetch = min(k.MaxVersion, 18)
		case int16(kmsg.FetchSnapshot):
			versions.fetchSnapshot = min(k.MaxVersion, 1)
		}
	}
	if versions.fetch < 12 {
		b.o.Logger.Warn("a controller does not speak KRaft's Fetch: is this its controller listener?", "controller", b.target)
		return errAsk
	}
	b.versions = versions
	return nil
}

// fetch asks the target for what comes next and takes it in. It returns nil if that brought something, errAsk
// if another controller, or the same a little later, is to be asked, and else what ends the observer.
func (b *Observer) fetch() error {
	if err := b.learnVersions(); err != nil {
		return err
	}
	resp, err := b.call(b.fetchRequest())
	if err != nil {
		return err
	}
	r := resp.(*kmsg.FetchResponse)
	if r.ErrorCode != 0 || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		b.o.Logger.Warn("a controller turned a fetch of the metadata log down", "controller", b.target, "error", kerr.ErrorForCode(r.ErrorCode))
		return errAsk
	}
	p := &r.Topics[0].Partitions[0]
	for _, e := range r.Brokers {
		b.endpoints[e.NodeID] = Endpoint{Host: e.Host, Port: uint16(e.Port)}
	}
	moved, err := b.follows(p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch)
	if err != nil {
		return err
	}
	if p.ErrorCode != 0 {
		return b.fetchError(p.ErrorCode, moved)
	}
	if p.DivergingEpoch.EndOffset >= 0 {
		return b.truncate(p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset)
	}
	if p.SnapshotID.EndOffset >= 0 {
		return b.fetchSnapshot(SnapshotID{EndOffset: p.SnapshotID.EndOffset, Epoch: p.SnapshotID.Epoch})
	}
	return b.take(p.RecordBatches, p.HighWatermark)
}

func (b *Observer) fetchRequest() *kmsg.FetchRequest {
	v := b.log.view()
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(b.versions.fetch)
	req.ClusterID = &b.o.ClusterID
	req.ReplicaID = b.o.NodeID
	if req.Version >= 15 {
		req.ReplicaID = -1
		req.ReplicaState.ID, req.ReplicaState.Epoch = b.o.NodeID, -1
	}
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(observerWait/time.Millisecond), 0, b.o.FetchMaxBytes
	req.SessionEpoch = -1
	p := kmsg.NewFetchRequestTopicPartition()
	p.CurrentLeaderEpoch = v.leader.epoch
	p.FetchOffset, p.LastFetchedEpoch = b.log.log.End().Offset, b.log.lastEpoch(&v)
	p.LogStartOffset = b.log.log.StartOffset()
	p.PartitionMaxBytes = b.o.FetchMaxBytes
	if req.Version >= 17 {
		p.ReplicaDirectoryID = b.o.DirectoryID
	}
	if req.Version >= 18 {
		p.HighWatermark = v.end.Offset
	}
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = Topic, uuid.Metadata
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	return req
}

// follows takes note of the leader that a controller named; moved if that is news. An older epoch than the
// one known is not believed.
func (b *Observer) follows(id, epoch int32) (moved bool, err error) {
	old := b.log.view().leader
	endpoint, known := b.endpoints[id]
	if epoch < old.epoch || epoch == old.epoch && (id == old.id || id < 0) && (endpoint == old.endpoint || !known) {
		return false, nil
	}
	if epoch > old.epoch {
		if err := saveQuorumState(b.o.FS, b.log.dir, quorumState{LeaderID: id, LeaderEpoch: epoch, VotedID: NoLeader}); err != nil {
			return false, err
		}
	}
	b.log.update(func(v *view) { v.leader = leadership{id: id, epoch: epoch, offset: -1, endpoint: endpoint} })
	if id >= 0 && known {
		b.turnTo(endpoint)
	}
	return true, nil
}

// fetchError judges an error of the partition.
func (b *Observer) fetchError(code int16, moved bool) error {
	switch code {
	case kerr.FencedLeaderEpoch.Code, kerr.NotLeaderForPartition.Code, kerr.UnknownLeaderEpoch.Code:
		if moved {
			return nil // the answer said who leads
		}
	default:
		b.o.Logger.Warn("a controller turned a fetch of the metadata log down", "controller", b.target,
			"offset", b.log.log.End().Offset, "error", kerr.ErrorForCode(code))
	}
	return errAsk
}

// truncate cuts the log back to where it and the leader's are the same (KIP-595): the leader's log has entries of
// epoch up to end.
func (b *Observer) truncate(epoch int32, end int64) error {
	leo := b.log.log.End().Offset
	ourEpoch, ourEnd := b.log.log.EpochEndOffset(epoch, leo)
	to := ourEnd
	if ourEpoch == epoch {
		to = min(end, ourEnd)
	}
	v := b.log.view()
	if to < v.end.Offset {
		return fmt.Errorf("the controllers' metadata log differs from this node's at offset %d, although all below %d was committed: "+
			"the controllers lost data or are those of another cluster; to follow them, empty %s", to, v.end.Offset, b.log.dir)
	}
	b.o.Logger.Info("truncating the metadata log to where the leader's agrees", "from", leo, "to", to, "epoch", epoch)
	if to >= leo || to < 0 {
		to = max(v.end.Offset, b.log.log.StartOffset()) // the caches do not agree on an epoch: begin where nothing is in doubt
	}
	return b.log.log.TruncateTo(to)
}

// take appends batches, and shows what is committed by hw.
func (b *Observer) take(batches []byte, hw int64) error {
	if _, err := b.log.log.AppendAsFollower(batches); err != nil {
		failed := new(storage.DirFailedError)
		if errors.As(err, &failed) || errors.Is(err, storage.ErrClosed) {
			return fmt.Errorf("append to %s: %w", b.log.dir, err)
		}
		b.o.Logger.Warn("a controller sent a piece of the metadata log that is damaged or does not follow", "controller", b.target, "error", err)
		return errAsk
	}
	v := b.log.view()
	end := b.log.log.End()
	if hw < end.Offset {
		var err error
		if end, err = b.log.log.Position(max(hw, v.end.Offset)); err != nil {
			return err
		}
	}
	if end.Offset <= v.end.Offset {
		return nil
	}
	voters := v.voters
	err := b.log.scan(v.end.Offset, end, func(_ record.Header, batch []byte) error {
		var ignored leadership // who leads is what the leader says now
		return absorb(batch, &ignored, &voters)
	})
	if err != nil {
		return err
	}
	b.log.update(func(v *view) { v.end, v.voters = end, voters })
	return nil
}

// fetchSnapshot fetches a snapshot and lets the log begin behind it.
func (b *Observer) fetchSnapshot(id SnapshotID) error {
	if v := b.log.view(); id.EndOffset < v.end.Offset || id == bootstrapID {
		return errAsk // it would take back what was shown
	}
	select {
	case b.snapshotting <- struct{}{}:
		defer func() { <-b.snapshotting }()
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
	path := checkpointPath(b.log.dir, id)
	file, err := b.o.FS.Create(path + partSuffix)
	if err != nil {
		return fmt.Errorf("create snapshot: %w", err)
	}
	err = b.receiveSnapshot(id, file)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, ignoreNotExist(b.o.FS.Remove(path+partSuffix)))
	}
	if err := eachValue(b.o.FS, path+partSuffix, func([]byte) error { return nil }); err != nil {
		b.o.Logger.Warn("a controller sent a damaged snapshot", "controller", b.target, "error", err)
		return errors.Join(errAsk, ignoreNotExist(b.o.FS.Remove(path+partSuffix)))
	}
	if err := b.o.FS.Rename(path+partSuffix, path); err != nil {
		return fmt.Errorf("write snapshot %s: %w", path, err)
	}
	if err := b.o.FS.SyncDir(b.log.dir); err != nil {
		return fmt.Errorf("write snapshot %s: %w", path, err)
	}
	return b.log.beginBehind(id)
}

// receiveSnapshot writes a snapshot into file, piece by piece.
func (b *Observer) receiveSnapshot(id SnapshotID, file vfs.File) error {
	for position, size := int64(0), int64(1); position < size; {
		p, err := b.fetchChunk(id, position)
		if err != nil {
			return err
		}
		if _, err := file.WriteAt(p.Bytes, position); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
		position, size = position+int64(len(p.Bytes)), p.Size
	}
	return nil
}

func (b *Observer) fetchChunk(id SnapshotID, position int64) (*kmsg.FetchSnapshotResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchSnapshotRequest()
	req.SetVersion(b.versions.fetchSnapshot)
	req.ClusterID, req.ReplicaID, req.MaxBytes = &b.o.ClusterID, b.o.NodeID, b.o.FetchSnapshotMaxBytes
	p := kmsg.NewFetchSnapshotRequestTopicPartition()
	p.CurrentLeaderEpoch, p.Position = b.log.view().leader.epoch, position
	p.SnapshotID.EndOffset, p.SnapshotID.Epoch = id.EndOffset, id.Epoch
	if req.Version >= 1 {
		p.ReplicaDirectoryID = b.o.DirectoryID
	}
	topic := kmsg.NewFetchSnapshotRequestTopic()
	topic.Topic = Topic
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	resp, err := b.call(req)
	if err != nil {
		return nil, err
	}
	r := resp.(*kmsg.FetchSnapshotResponse)
	if r.ErrorCode != 0 || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return nil, errAsk
	}
	a := &r.Topics[0].Partitions[0]
	if a.ErrorCode != 0 || a.Position != position || len(a.Bytes) == 0 {
		b.o.Logger.Warn("a controller turned a fetch of a snapshot down", "controller", b.target, "snapshot", id, "error", kerr.ErrorForCode(a.ErrorCode))
		return nil, errAsk
	}
	return a, nil
}
