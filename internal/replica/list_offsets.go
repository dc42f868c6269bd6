package replica

import (
	"ottla/internal/replica/state"
)

// The timestamps of ListOffsets that are none. Source: Kafka's ListOffsetsRequest.
const (
	LatestTimestamp          int64 = -1
	EarliestTimestamp        int64 = -2
	MaxTimestamp             int64 = -3 // the record with the largest timestamp (KIP-734)
	EarliestLocalTimestamp   int64 = -4 // the first offset on this disk (KIP-405)
	LatestTieredTimestamp    int64 = -5 // the last offset in remote storage (KIP-1005)
	EarliestPendingTimestamp int64 = -6 // the first offset that is yet to be uploaded (KIP-1023)
)

// A FoundOffset is an answer of ListOffsets. Fields that are not known, all of them if nothing was found, are -1.
type FoundOffset struct {
	Offset, Timestamp int64
	LeaderEpoch       int32
}

var nothingFound = FoundOffset{-1, -1, -1}

// ListOffsetsOptions say what is looked for.
type ListOffsetsOptions struct {
	Timestamp   int64 // ms since 1970, or one of the constants
	LeaderEpoch int32 // the client's current leader epoch; -1 it named none
	Isolation   Isolation
	AnyReplica  bool // a follower may answer, for debugging
}

// ListOffsets finds an offset by timestamp: that of the first record which is not older. It finds nothing that Read would not
// show at the same isolation level. Errors are those of Read, ErrOffsetNotAvailable and ErrUnsupportedTimestamp.
// Source: Kafka's Partition.fetchOffsetForTimestamp and UnifiedLog.fetchOffsetByTimestamp.
func (p *Partition) ListOffsets(o ListOffsetsOptions) (FoundOffset, error) {
	v, err := p.serve(o.LeaderEpoch, !o.AnyReplica)
	if err != nil {
		return nothingFound, err
	}
	switch o.Timestamp {
	case LatestTimestamp:
		if v.lags(p, o.Isolation) {
			return nothingFound, ErrOffsetNotAvailable
		}
		return FoundOffset{p.end(v, o.Isolation), -1, v.leaderEpoch}, nil
	case EarliestTimestamp, EarliestLocalTimestamp:
		start := v.log.StartOffset()
		return FoundOffset{start, -1, v.log.EpochAt(start)}, nil
	case LatestTieredTimestamp, EarliestPendingTimestamp:
		return nothingFound, nil // nothing is in remote storage
	}
	if o.Timestamp < MaxTimestamp {
		return nothingFound, ErrUnsupportedTimestamp
	}
	return p.searchTimestamp(v, o)
}

// end returns the offset before which a reader sees everything.
func (p *Partition) end(v *view, i Isolation) int64 {
	switch i {
	case ReadUncommitted:
		return p.HighWatermark()
	case ReadCommitted:
		return p.LastStableOffset()
	}
	return v.log.End().Offset
}

// lags reports whether the high watermark is still below where this leadership began, so that an older leader may have shown
// more than is known to be committed here (KIP-207).
func (v *view) lags(p *Partition, i Isolation) bool {
	return i != ReadReplica && v.role == state.Leader && v.epochStart > p.HighWatermark()
}

func (p *Partition) searchTimestamp(v *view, o ListOffsetsOptions) (FoundOffset, error) {
	var f FoundOffset
	var found bool
	var err error
	if o.Timestamp == MaxTimestamp {
		f.Offset, f.Timestamp, f.LeaderEpoch, found, err = v.log.MaxTimestamp()
	} else {
		f.Offset, f.Timestamp, f.LeaderEpoch, found, err = v.log.OffsetForTimestamp(o.Timestamp)
	}
	switch {
	case err != nil:
		return nothingFound, err
	case found && f.Offset < p.end(v, o.Isolation):
		return f, nil
	case v.lags(p, o.Isolation):
		return nothingFound, ErrOffsetNotAvailable
	}
	return nothingFound, nil
}
