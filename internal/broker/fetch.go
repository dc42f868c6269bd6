package broker

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/metadata"
	"ottla/internal/protocol"
	"ottla/internal/replica"
	"ottla/internal/storage"
	"ottla/internal/transport"
)

// Who fetches, where that is not a follower.
const (
	consumerID      int32 = -1
	debugConsumerID int32 = -2 // may read from any replica
)

// fetchReplica is the broker id of the follower that fetches, or consumerID or debugConsumerID.
func fetchReplica(req *kmsg.FetchRequest) int32 {
	if req.Version >= 15 {
		return req.ReplicaState.ID
	}
	return req.ReplicaID
}

// fetch answers with what the session's dirty partitions have, or waits until that is enough. The answer pins ranges of
// segments and sends them from file to socket.
func (b *Broker) fetch(ctx context.Context, r *transport.Request) (transport.Response, transport.Pending) {
	req := r.Body.(*kmsg.FetchRequest)
	f := fetches.Get().(*fetching)
	f.Broker, f.ctx, f.r, f.req, f.replica, f.now = b, ctx, r, req, fetchReplica(req), time.Now()
	f.waiter.wake = r.Wake
	if err := f.check(); err != nil {
		return f.refuse(err), nil
	}
	var err error
	if f.session, err = b.sessions.resolve(req, f.now); err != nil {
		f.errorCode, r.ErrorCode = code(err), code(err)
		return f.answer(), nil
	}
	f.deadline = f.now
	if f.session.size() > 0 { // else there is nothing to wait for
		f.deadline = f.now.Add(time.Duration(req.MaxWaitMillis) * time.Millisecond)
	}
	if resp, done := f.Poll(f.now); done {
		return resp, nil
	}
	r.ReleaseFrame() // a consumer that waits shall cost little; all strings are copies
	return nil, f
}

// fetching is one Fetch on its way. It is a transport.Pending while it waits and a transport.FrameWriter once it is
// answered, and is used again after that.
type fetching struct {
	*Broker
	ctx     context.Context
	r       *transport.Request
	req     *kmsg.FetchRequest
	session *session
	waiter  fetchWaiter
	replica int32
	now     time.Time

	deadline  time.Time
	errorCode int16

	img        *metadata.Image
	candidates []candidate
	results    []fetchResult
	left       int // bytes that the answer may still hold
	bytes      int // bytes found
	urgent     bool
	frame      protocol.FetchFrame
}

// A fetchResult is what a partition has.
type fetchResult struct {
	candidate
	protocol.FetchPartition
	from *replica.Partition // nil if there is none to read
	read replica.ReadResult
	err  error
}

var fetches = sync.Pool{New: func() any { return new(fetching) }}

// check refuses what is wrong with the request as a whole.
func (f *fetching) check() error {
	switch {
	case f.req.MaxBytes < 0, f.req.IsolationLevel != 0 && f.req.IsolationLevel != 1:
		return kerr.InvalidRequest
	case f.replica >= 0 && !f.authorizeCluster(f.ctx, auth.ClusterAction):
		return kerr.ClusterAuthorizationFailed
	case f.replica >= 0:
		f.r.Conn.MarkNode()
	}
	return nil
}

// refuse answers that the request is wrong as a whole. Until version 12 each partition says so as well: before 7 there is no
// other place, and clients would take an answer without it for one without news. Source: FetchRequest.getErrorResponse.
func (f *fetching) refuse(err error) transport.Response {
	f.errorCode, f.r.ErrorCode = code(err), code(err)
	f.answer()
	if f.req.Version > 12 {
		return f
	}
	for i := range f.req.Topics {
		t := &f.req.Topics[i]
		f.frame.Topic(t.Topic, t.TopicID)
		for j := range t.Partitions {
			p := protocol.NewFetchPartition(t.Partitions[j].Partition)
			p.ErrorCode, p.AbortedTransactions = f.errorCode, []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
			f.frame.Partition(p)
		}
	}
	return f
}

// Deadline implements transport.Pending.
func (f *fetching) Deadline() time.Time { return f.deadline }

// Poll implements transport.Pending: it looks at the dirty partitions and answers if they have enough, if one has an
// error, or if the time is over.
func (f *fetching) Poll(now time.Time) (transport.Response, bool) {
	f.now, f.img = now, f.image()
	f.left = int(min(f.req.MaxBytes, int32(f.config().Int("fetch.max.bytes"))))
	f.candidates = f.session.take(f.candidates[:0], &f.waiter)
	for i, c := range f.candidates {
		if f.left <= 0 && f.bytes > 0 && f.incremental() {
			f.requeue(f.candidates[i:]) // for the next fetch, which begins with them
			break
		}
		f.look(c)
	}
	if f.bytes < int(f.req.MinBytes) && !f.urgent && now.Before(f.deadline) {
		f.putBack()
		return nil, false
	}
	f.session.idle(&f.waiter)
	return f.answer(), true
}

// incremental: the answer names only partitions with news.
func (f *fetching) incremental() bool {
	return f.req.Version >= 7 && f.req.SessionEpoch != initialEpoch && f.req.SessionEpoch != finalEpoch
}

// putBack lets go of what was found. It will be looked for again: what has news now, and in a full fetch everything.
func (f *fetching) putBack() {
	for i := range f.results {
		r := &f.results[i]
		if f.hasNews(r) || r.read.More {
			f.session.requeue(r.part)
		}
		r.read.Slice.Release()
	}
	f.forgetResults()
}

func (f *fetching) forgetResults() {
	clear(f.results)
	f.results, f.bytes, f.urgent = f.results[:0], 0, false
}

func (f *fetching) requeue(candidates []candidate) {
	f.session.mu.Lock()
	defer f.session.mu.Unlock()
	for _, c := range candidates {
		f.session.queueLocked(c.part)
	}
}

// hasNews reports whether the answer has to name the partition.
func (f *fetching) hasNews(r *fetchResult) bool {
	return !f.incremental() || r.err != nil || r.RecordsSize > 0 || r.read.Diverging != nil ||
		r.HighWatermark != r.sentHighWatermark || r.LogStartOffset != r.sentLogStart
}

// look finds out what a partition has.
func (f *fetching) look(c candidate) {
	f.results = append(f.results, fetchResult{candidate: c, FetchPartition: protocol.NewFetchPartition(c.want.partition)})
	r := &f.results[len(f.results)-1]
	var err error
	if r.from, err = f.find(r); err != nil {
		r.part.unfollow()
		f.failed(r, err)
		return
	}
	r.part.follow(r.from, f.replica >= 0) // before the read, so that no news is missed
	if r.read, err = f.read(r); err != nil {
		f.failed(r, err)
		return
	}
	r.HighWatermark, r.LastStableOffset, r.LogStartOffset = r.read.HighWatermark, r.read.LastStableOffset, r.read.LogStartOffset
	r.RecordsSize = r.read.Slice.Size()
	if d := r.read.Diverging; d != nil {
		r.DivergingEpoch = protocol.EpochEndOffset{Epoch: d.Epoch, EndOffset: d.Offset}
		f.urgent = true
	}
	if f.req.IsolationLevel == 1 {
		r.AbortedTransactions = aborted(r.read)
	}
	// What an older segment has will not become more: the reader shall go on in the next (DelayedFetch).
	f.urgent = f.urgent || r.read.Older
	f.bytes += r.RecordsSize
	f.left -= r.RecordsSize
}

// find resolves the partition and says why it may not be read.
func (f *fetching) find(r *fetchResult) (*replica.Partition, error) {
	byID := f.req.Version >= 13
	topic := topicIn(f.img, byID, r.want.topic, r.want.topicID)
	switch {
	case topic == nil && byID:
		return nil, kerr.UnknownTopicID
	case topic == nil && f.replica < 0 && !f.authorizeTopic(f.ctx, auth.Read, r.want.topic):
		return nil, kerr.TopicAuthorizationFailed
	case topic == nil:
		return nil, kerr.UnknownTopicOrPartition
	case f.replica < 0 && !f.authorizeTopic(f.ctx, auth.Read, topic.Name):
		return nil, kerr.TopicAuthorizationFailed
	}
	return f.located(topic, r.want.partition)
}

func (f *fetching) read(r *fetchResult) (replica.ReadResult, error) {
	o := replica.ReadOptions{
		Offset: r.want.offset, MaxBytes: max(0, min(int(r.want.maxBytes), f.left)), MinOne: f.bytes == 0, // also of a request that wants no byte: else its sender would never get on
		LeaderEpoch: r.want.leaderEpoch, LastFetchedEpoch: r.want.lastFetchedEpoch, Isolation: replica.Isolation(f.req.IsolationLevel),
		AnyReplica: f.replica == debugConsumerID || f.replica == consumerID && f.req.Version >= 11, // KIP-392
	}
	if f.replica < 0 {
		return r.from.Read(o)
	}
	epoch := int64(-1)
	if f.req.Version >= 15 {
		epoch = f.req.ReplicaState.Epoch
	}
	return r.from.ReadAsReplica(o, replica.FollowerFetch{Replica: f.replica, LogStartOffset: r.want.logStartOffset, BrokerEpoch: epoch})
}

// failed answers for a partition with an error, which is news enough to answer at once. A replica that is just being opened
// is waited for instead, as long as the request waits: a client that was told that the leader is here need not look for another.
func (f *fetching) failed(r *fetchResult, err error) {
	r.err, r.ErrorCode = err, code(err)
	f.urgent = f.urgent || !errors.Is(err, replica.ErrOpening)
	if leader, epoch, ok := leaderOf(err); ok {
		r.CurrentLeader = protocol.LeaderAndEpoch{LeaderID: leader, LeaderEpoch: epoch}
	}
	if r.ErrorCode == kerr.UnknownServerError.Code {
		unexpected(f.logger, "fetch", err)
	}
}

func aborted(read replica.ReadResult) []kmsg.FetchResponseTopicPartitionAbortedTransaction {
	out := make([]kmsg.FetchResponseTopicPartitionAbortedTransaction, len(read.Aborted))
	for i, t := range read.Aborted {
		out[i] = kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
		out[i].ProducerID, out[i].FirstOffset = t.ProducerID, t.FirstOffset
	}
	return out
}

// answer settles what the client is told; the frame is written from it.
func (f *fetching) answer() transport.Response {
	f.frame.Reset(f.req.Version, f.r.Header.CorrelationID)
	f.frame.ErrorCode = f.errorCode
	if f.session == nil {
		return f
	}
	if f.session.kept {
		f.frame.SessionID = f.session.id
	}
	named := f.results[:0]
	for i := range f.results {
		r := &f.results[i]
		if !f.hasNews(r) {
			r.read.Slice.Release()
			if r.read.More {
				f.session.requeue(r.part)
			}
			continue
		}
		f.tell(r, len(named) == 0 || named[len(named)-1].want.topicID != r.want.topicID || named[len(named)-1].want.topic != r.want.topic)
		named = append(named, *r)
	}
	clear(f.results[len(named):])
	f.results = named
	if !f.session.kept {
		f.session.close()
	}
	return f
}

// tell adds a partition to the frame. It stays dirty if it has, or may have, more than the client was told.
func (f *fetching) tell(r *fetchResult, newTopic bool) {
	if newTopic {
		f.frame.Topic(r.want.topic, r.want.topicID)
	}
	f.frame.Partition(r.FetchPartition)
	if r.RecordsSize > 0 {
		r.from.CountSent(r.RecordsSize, f.replica >= 0)
	}
	if f.r.ErrorCode == 0 {
		f.r.ErrorCode = r.ErrorCode
	}
	if r.CurrentLeader.LeaderID >= 0 {
		f.nameNode(r.CurrentLeader.LeaderID)
	}
	if !f.session.kept {
		return
	}
	f.session.told(r.part, r.HighWatermark, r.LogStartOffset)
	if r.err != nil || r.RecordsSize > 0 || r.read.More || r.read.Diverging != nil {
		f.session.requeue(r.part)
	}
}

// nameNode adds where a leader is reached (KIP-951).
func (f *fetching) nameNode(id int32) {
	br := f.img.Broker(id)
	if br == nil {
		return
	}
	if e, ok := br.Endpoint(auth.From(f.ctx).Listener); ok {
		f.frame.Node(protocol.FetchNode{NodeID: id, Host: e.Host, Port: int32(e.Port), Rack: br.Rack})
	}
}

// Key implements transport.Response.
func (f *fetching) Key() int16 { return int16(kmsg.Fetch) }

var (
	_ transport.FrameWriter    = (*fetching)(nil)
	_ kmsg.ThrottleResponse    = (*fetching)(nil)
	_ kmsg.SetThrottleResponse = (*fetching)(nil)
)

// SetThrottle implements kmsg.SetThrottleResponse, of an answer that is settled.
func (f *fetching) SetThrottle(millis int32) { f.frame.ThrottleMillis = millis }

// Throttle implements kmsg.ThrottleResponse. Source: KIP-219 raised Fetch to version 8.
func (f *fetching) Throttle() (millis int32, clientThrottles bool) {
	return f.frame.ThrottleMillis, f.req.Version >= 8
}

const (
	// smallRange is up to how many bytes are copied into the frame's own write; a sendfile of so few costs more than that.
	smallRange = 16 << 10
	// gatherRecords and gatherPartitions are the most of an answer that is a small one as a whole.
	gatherRecords    = 32 << 10
	gatherPartitions = 64 // a name each, at worst
)

// Gathers implements transport.FrameWriter.
func (f *fetching) Gathers() bool {
	if len(f.results) > gatherPartitions {
		return false
	}
	records := 0
	for i := range f.results {
		n := f.results[i].read.Slice.Size()
		if records += n; n > smallRange || records > gatherRecords {
			return false
		}
	}
	return true
}

// WriteFrame implements transport.FrameWriter.
func (f *fetching) WriteFrame(w *transport.FrameConn) error {
	defer f.recycle()
	for _, part := range f.frame.Encode() {
		if _, err := w.Write(part.Bytes); err != nil {
			return err
		}
		if part.Partition < 0 {
			continue
		}
		r := &f.results[part.Partition]
		if err := sendRange(w, &r.read); err != nil {
			return err
		}
		r.read.Slice.Release()
	}
	return nil
}

func sendRange(w *transport.FrameConn, read *replica.ReadResult) error {
	n := read.Slice.Size()
	if n > smallRange {
		return w.SendFrom((*sliceSource)(&read.Slice), 0, int64(n))
	}
	dst, err := w.Reserve(n)
	if err != nil {
		return err
	}
	_, err = read.Slice.ReadInto(dst)
	return err
}

// sliceSource is a Slice as a transport.Source.
type sliceSource storage.Slice

// SendTo implements transport.Source.
func (s *sliceSource) SendTo(w io.Writer, off, n int64) (int64, error) {
	return (*storage.Slice)(s).SendRange(w, int(off), int(n))
}

// Abandon implements transport.FrameWriter.
func (f *fetching) Abandon() { f.recycle() }

// Cancel implements transport.Pending.
func (f *fetching) Cancel() {
	f.session.idle(&f.waiter)
	if !f.session.kept {
		f.session.close()
	}
	f.recycle()
}

// recycle unpins what is pinned and makes f ready for another request.
func (f *fetching) recycle() {
	for i := range f.results {
		f.results[i].read.Slice.Release()
	}
	f.forgetResults()
	clear(f.candidates)
	f.frame.Reset(0, 0)
	*f = fetching{candidates: f.candidates[:0], results: f.results, frame: f.frame}
	fetches.Put(f)
}
