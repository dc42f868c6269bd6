package state

// An EpochEnd says where a leader epoch ends in a log.
type EpochEnd struct {
	Epoch  int32 // -1 unknown
	Offset int64 // the first that is not of it; Unknown if so is the epoch
}

// A Divergence is the answer to a follower's fetch.
type Divergence uint8

// What a leader finds when it compares a follower's last record with its own log.
const (
	Same        Divergence = iota // the follower's log is a prefix of the leader's
	Diverged                      // it must truncate by the leader's EpochEnd first
	EpochNewer                    // the leader knows no such epoch: OFFSET_OUT_OF_RANGE
	BeforeStart                   // it asks for what the leader has deleted: OFFSET_OUT_OF_RANGE
)

// Diverge compares a follower whose log ends at offset, its last record being of epoch last, with the leader's log, which
// begins at logStart; leader is the leader's EpochEnd for last. Source: Kafka's Partition.readRecords, KIP-595.
func Diverge(last int32, offset, logStart int64, leader EpochEnd) Divergence {
	switch {
	case leader.Epoch < 0 || leader.Offset < 0:
		return EpochNewer
	case offset < logStart:
		return BeforeStart
	case leader.Epoch < last || leader.Offset < offset:
		return Diverged
	}
	return Same
}

// TruncateTo returns the offset to which a follower's log, which ends at leo, must be cut when its leader answered with
// an EpochEnd. own is the follower's EpochEnd for the leader's epoch. If its epoch is older than the leader's, the next
// fetch may diverge again. Source: Kafka's AbstractFetcherThread.getOffsetTruncationState, KIP-279.
func TruncateTo(leader, own EpochEnd, leo int64) int64 {
	to := min(leader.Offset, leo)
	if own.Epoch >= 0 {
		to = min(to, own.Offset)
	}
	return max(to, 0)
}
