package replica

import (
	"errors"
	"fmt"
)

// Errors that need nothing but their name.
var (
	// ErrUnknownPartition says that no replica of the partition is here. UNKNOWN_TOPIC_OR_PARTITION (error code 3), or
	// UNKNOWN_TOPIC_ID (100) if the client named an id that the metadata does not know either.
	ErrUnknownPartition = errors.New("no replica of the partition is hosted here")
	// ErrOpening says that the replica is being opened or is taking over the leadership; [Partition.Ready] waits for it.
	// NOT_LEADER_OR_FOLLOWER (6) if one does not want to wait.
	ErrOpening = errors.New("the replica is not ready yet")
	// ErrOffsetNotAvailable says that a new leader's high watermark has not reached the start of its epoch yet.
	// OFFSET_NOT_AVAILABLE (78).
	ErrOffsetNotAvailable = errors.New("the leader was just elected and does not know the high watermark yet; ask again")
	// ErrNotDeletable says that records of a topic without cleanup.policy=delete can not be deleted. POLICY_VIOLATION (44).
	ErrNotDeletable = errors.New("records can not be deleted from a topic whose cleanup.policy does not contain delete")
	// ErrUnsupportedTimestamp is the answer to a negative timestamp that means nothing. UNSUPPORTED_VERSION (35).
	ErrUnsupportedTimestamp = errors.New("there is no such special timestamp")
	// ErrClosed is returned once the set was closed.
	ErrClosed = errors.New("the replicas are closed")
)

// A NotLeaderError says that the local replica does not lead the partition. Clients see it as NOT_LEADER_OR_FOLLOWER
// (error code 6), with the leader if the API has a field for it.
type NotLeaderError struct {
	Leader      int32 // as far as is known here; -1 none
	LeaderEpoch int32
}

func (e *NotLeaderError) Error() string {
	return fmt.Sprintf("this broker does not lead the partition, broker %d does in leader epoch %d", e.Leader, e.LeaderEpoch)
}

// A LeaderEpochError says that a client named another leader epoch than the one known here: FENCED_LEADER_EPOCH (error code
// 74) if it is older, UNKNOWN_LEADER_EPOCH (75) if it is newer.
type LeaderEpochError struct {
	Requested, Known int32
	Leader           int32 // -1 none
}

// Fenced reports whether the client's epoch is older than the one known here.
func (e *LeaderEpochError) Fenced() bool { return e.Requested < e.Known }

func (e *LeaderEpochError) Error() string {
	return fmt.Sprintf("leader epoch %d was named, this broker knows %d; refresh the metadata", e.Requested, e.Known)
}

// A NotEnoughReplicasError says that fewer replicas than min.insync.replicas are in sync: NOT_ENOUGH_REPLICAS (error code
// 19), or NOT_ENOUGH_REPLICAS_AFTER_APPEND (20) if the records are in the leader's log all the same.
type NotEnoughReplicasError struct {
	ISR, MinISR int
	AfterAppend bool
}

func (e *NotEnoughReplicasError) Error() string {
	return fmt.Sprintf("%d replicas are in sync, min.insync.replicas=%d", e.ISR, e.MinISR)
}

// An OfflineError says that the log directory of the replica failed. Clients see it as KAFKA_STORAGE_ERROR (error code 56).
type OfflineError struct {
	Dir string
	Err error
}

func (e *OfflineError) Error() string {
	return fmt.Sprintf("the partition is offline with its log directory %s (check the disk, then restart the broker): %v", e.Dir, e.Err)
}

func (e *OfflineError) Unwrap() error { return e.Err }

// A NotReplicaError says that a broker fetched as a follower that is none: UNKNOWN_LEADER_EPOCH (error code 75) if its fetch
// names a leader epoch, else NOT_LEADER_OR_FOLLOWER (6).
type NotReplicaError struct {
	Broker     int32
	EpochNamed bool
}

func (e *NotReplicaError) Error() string {
	return fmt.Sprintf("broker %d fetched as a follower but has no replica of the partition", e.Broker)
}

// A StaleBrokerError says that a follower fetched with a broker epoch that is no longer its own (KIP-903). It is
// NOT_LEADER_OR_FOLLOWER (error code 6).
type StaleBrokerError struct {
	Broker           int32
	Epoch, Registers int64
}

func (e *StaleBrokerError) Error() string {
	return fmt.Sprintf("broker %d fetched with broker epoch %d but is registered with %d", e.Broker, e.Epoch, e.Registers)
}
