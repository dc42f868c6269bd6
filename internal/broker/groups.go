package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/coordinator"
	"ottla/internal/record"
	"ottla/internal/replica"
	"ottla/internal/storage"
	"ottla/internal/transport"
	"ottla/internal/uuid"
	"ottla/internal/wake"
)

// group hands a request about consumer groups to their coordinator, whose answer may come much later.
func (b *Broker) group(ctx context.Context, r *transport.Request) (transport.Response, transport.Pending) {
	a := &awaited{wake: r.Wake}
	b.groups.Handle(ctx, r.Body, a.done)
	if resp, ok := a.Poll(time.Time{}); ok {
		return resp, nil
	}
	r.ReleaseFrame() // the answer may take minutes, and nothing refers to the bytes
	return nil, a
}

// An awaited answer is one that somebody else brings. It is a transport.Pending until then.
type awaited struct {
	wake wake.Func
	mu   struct {
		sync.Mutex
		resp kmsg.Response
	}
}

func (a *awaited) done(resp kmsg.Response) {
	a.mu.Lock()
	a.mu.resp = resp
	a.mu.Unlock()
	a.wake.Go()
}

// Poll implements transport.Pending.
func (a *awaited) Poll(time.Time) (transport.Response, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.resp, a.mu.resp != nil
}

// Deadline implements transport.Pending: the coordinator keeps the time.
func (a *awaited) Deadline() time.Time { return time.Time{} }

// Cancel implements transport.Pending. The coordinator finds out by itself that a member is silent.
func (a *awaited) Cancel() {}

// internalLog finds the replica of an internal topic's partition for a coordinator.
func (b *Broker) internalLog(topicID uuid.UUID, partition int32) (coordinator.Log, error) {
	p, err := b.replicas.Get(topicID, partition)
	if err != nil {
		return nil, err
	}
	return internalLog{p}, nil
}

// An internalLog is a led partition of an internal topic as its coordinator sees it.
type internalLog struct{ *replica.Partition }

// Append implements coordinator.Log.
func (l internalLog) Append(batch []byte, leaderEpoch int32) (end int64, err error) {
	h, err := record.ParseHeader(batch)
	if err != nil {
		return 0, err
	}
	a, err := l.Partition.Append(batch, h, replica.AppendOptions{LeaderEpoch: leaderEpoch, Acks: acksAll, Coordinator: true})
	switch {
	case is[*replica.NotLeaderError](err), is[*replica.LeaderEpochError](err), errors.Is(err, replica.ErrUnknownPartition), errors.Is(err, replica.ErrClosed),
		errors.Is(err, storage.ErrClosed):
		return 0, fmt.Errorf("%w: %w", coordinator.ErrNotLeader, err)
	case err != nil:
		return 0, err
	}
	return a.LastOffset + 1, nil
}

// Bounds implements coordinator.Log.
func (l internalLog) Bounds() (start, end int64) { return l.LogStartOffset(), l.LogEndOffset() }

// Read implements coordinator.Log.
func (l internalLog) Read(offset int64, maxBytes int, buf []byte) ([]byte, error) {
	r, err := l.Partition.Read(replica.ReadOptions{
		Offset: offset, MaxBytes: maxBytes, MinOne: true, LeaderEpoch: -1, LastFetchedEpoch: -1, Isolation: replica.ReadReplica,
	})
	if err != nil {
		return nil, err
	}
	defer r.Slice.Release()
	buf = slices.Grow(buf[:0], r.Slice.Size())[:r.Slice.Size()]
	n, err := r.Slice.ReadInto(buf)
	return buf[:n], err
}

// Subscribe implements coordinator.Log.
func (l internalLog) Subscribe(news func()) coordinator.Subscription {
	s := new(replica.Subscription)
	l.Partition.Subscribe(s, false, func() wake.Work { news(); return nil })
	return s
}
