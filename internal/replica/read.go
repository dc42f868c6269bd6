package replica

import (
	"ottla/internal/replica/state"
	"ottla/internal/storage"
	"ottla/internal/wake"
)

// EpochEnd and FollowerFetch are what the signatures here need of package state, for those who import only this one.
type (
	EpochEnd      = state.EpochEnd
	FollowerFetch = state.Fetch
)

// Isolation bounds what a read may see.
type Isolation uint8

// The isolation levels; the first two have Kafka's codes.
const (
	ReadUncommitted Isolation = 0 // up to the high watermark
	ReadCommitted   Isolation = 1 // up to the last stable offset
	ReadReplica     Isolation = 2 // up to the log end: a follower's fetch
)

// ReadOptions say what is read.
type ReadOptions struct {
	Offset           int64
	MaxBytes         int
	MinOne           bool  // the first batch is returned whole, even if it is larger than MaxBytes
	LeaderEpoch      int32 // the reader's current leader epoch; -1 it named none
	LastFetchedEpoch int32 // leader epoch of the reader's last record; -1 do not compare logs
	Isolation        Isolation
	// AnyReplica allows a follower to answer (KIP-392).
	AnyReplica bool
}

// A ReadResult is what there is. Slice must be released.
type ReadResult struct {
	Slice            storage.Slice
	HighWatermark    int64
	LastStableOffset int64
	LogStartOffset   int64
	// More: there are records for the reader, but MaxBytes left no room for the first batch.
	More bool
	// Older: Slice is of a segment that has another behind it, and grows no more.
	Older bool
	// Diverging is set if the reader's log is not a prefix of this one and must be cut first; nothing was read then.
	Diverging *EpochEnd
	// Aborted are the aborted transactions in the range, for ReadCommitted.
	Aborted []storage.AbortedTxn
}

// Read pins the batches from an offset on, up to what the isolation level lets the reader see; an empty Slice says that
// there is nothing yet.
//
// Errors: ErrOpening, ErrUnknownPartition, *NotLeaderError, *LeaderEpochError, *OfflineError, and those of
// [storage.Log.Read], of which *storage.OffsetOutOfRangeError also stands for a LastFetchedEpoch that is not known here.
func (p *Partition) Read(o ReadOptions) (ReadResult, error) {
	v, err := p.serve(o.LeaderEpoch, !o.AnyReplica)
	if err != nil {
		return ReadResult{}, err
	}
	r, err := p.compare(v, &o)
	if err != nil || r.Diverging != nil {
		return r, err
	}
	return p.read(v, &o)
}

// compare tells whether the reader's log is a prefix of this one.
func (p *Partition) compare(v *view, o *ReadOptions) (ReadResult, error) {
	if o.LastFetchedEpoch < 0 {
		return ReadResult{}, nil
	}
	end, start := v.log.End().Offset, v.log.StartOffset()
	epoch, offset := v.log.EpochEndOffset(o.LastFetchedEpoch, end)
	e := state.EpochEnd{Epoch: epoch, Offset: offset}
	switch state.Diverge(o.LastFetchedEpoch, o.Offset, start, e) {
	case state.Diverged:
		b := p.bounds.Load()
		return ReadResult{HighWatermark: b.hw.Offset, LastStableOffset: b.lso.Offset, LogStartOffset: start, Diverging: &e}, nil
	case state.EpochNewer, state.BeforeStart:
		return ReadResult{}, &storage.OffsetOutOfRangeError{Offset: o.Offset, Start: start, End: end}
	}
	return ReadResult{}, nil
}

func (p *Partition) read(v *view, o *ReadOptions) (ReadResult, error) {
	b := p.bounds.Load()
	upTo := b.hw
	switch o.Isolation {
	case ReadCommitted:
		upTo = b.lso
	case ReadReplica:
		upTo = v.log.End()
	}
	slice, err := v.log.Read(o.Offset, o.MaxBytes, upTo, o.MinOne)
	if err != nil {
		return ReadResult{}, err
	}
	r := ReadResult{
		Slice: slice, HighWatermark: b.hw.Offset, LastStableOffset: b.lso.Offset, LogStartOffset: v.log.StartOffset(),
		More: slice.Size() == 0 && o.Offset < upTo.Offset, Older: slice.Size() > 0 && slice.EndsBefore(upTo),
	}
	if o.Isolation == ReadCommitted && slice.Size() > 0 {
		if r.Aborted, err = v.log.AbortedTransactions(o.Offset, upTo.Offset); err != nil {
			slice.Release()
			return ReadResult{}, err
		}
	}
	return r, nil
}

// CountSent counts bytes that were read and are now being sent to a consumer, or to a follower. A read whose Slice is let go again
// because the fetch goes on waiting does not count.
func (p *Partition) CountSent(bytes int, toReplica bool) { p.metrics.sent(bytes, toReplica) }

// ReadAsReplica is Read for a follower's fetch, which also tells the leader how far the follower is: the high watermark may
// move, and the follower may be proposed for the ISR. Errors are those of Read, *NotReplicaError and *StaleBrokerError.
// o.Isolation is taken as ReadReplica.
func (p *Partition) ReadAsReplica(o ReadOptions, f FollowerFetch) (ReadResult, error) {
	o.Isolation, o.AnyReplica = ReadReplica, false
	v, err := p.serve(o.LeaderEpoch, true)
	if err != nil {
		return ReadResult{}, err
	}
	r, err := p.compare(v, &o)
	if err != nil || r.Diverging != nil {
		return r, err
	}
	if start, end := v.log.StartOffset(), v.log.End().Offset; o.Offset < start || o.Offset > end {
		return ReadResult{}, &storage.OffsetOutOfRangeError{Offset: o.Offset, Start: start, End: end}
	}
	f.Offset = o.Offset
	if err := p.fetched(f, o.LeaderEpoch >= 0); err != nil {
		return ReadResult{}, err
	}
	return p.read(v, &o)
}

// fetched takes in a follower's position.
func (p *Partition) fetched(f state.Fetch, epochNamed bool) error {
	if b := p.set.Image().Broker(f.Replica); b != nil && f.BrokerEpoch >= 0 && f.BrokerEpoch < b.Epoch {
		return &StaleBrokerError{Broker: f.Replica, Epoch: f.BrokerEpoch, Registers: b.Epoch}
	}
	var w wake.List
	p.mu.Lock()
	if p.mu.gone != nil || p.mu.state.Role() != state.Leader {
		p.mu.Unlock()
		return p.view.Load().notLeader()
	}
	env := p.env()
	before := p.mu.state.LowWatermark(f.LogStartOffset, isAnyBroker)
	moved, join, err := p.mu.state.Fetched(f, p.countedEnd(), &env)
	if moved {
		p.publishBoundsLocked(&w)
	}
	if p.mu.state.LowWatermark(f.LogStartOffset, isAnyBroker) != before { // a DeleteRecords may wait for it
		p.mu.subs.fire(&w, false)
	}
	p.mu.Unlock()
	w.Go()
	if err != nil {
		return &NotReplicaError{Broker: f.Replica, EpochNamed: epochNamed}
	}
	p.propose(join)
	return nil
}

func isAnyBroker(int32) bool { return true }

// EpochEnd answers OffsetForLeaderEpoch: the largest leader epoch up to requested and where it ends, -1 and -1 if that is
// not known. current is the client's current leader epoch, -1 none. Errors are those of Read.
func (p *Partition) EpochEnd(current, requested int32, anyReplica bool) (EpochEnd, error) {
	v, err := p.serve(current, !anyReplica)
	if err != nil {
		return state.EpochEnd{}, err
	}
	epoch, offset := v.log.EpochEndOffset(requested, v.log.End().Offset)
	return state.EpochEnd{Epoch: epoch, Offset: offset}, nil
}
