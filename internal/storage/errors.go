package storage

import (
	"errors"
	"fmt"
)

// ErrClosed is returned by a [Log] or [Dir] that was closed or deleted.
var ErrClosed = errors.New("the log is closed")

// An OffsetOutOfRangeError says that an offset is not in the log. Clients see it as
// OFFSET_OUT_OF_RANGE (error code 1).
type OffsetOutOfRangeError struct {
	Offset     int64
	Start, End int64 // the log holds [Start, End)
}

func (e *OffsetOutOfRangeError) Error() string {
	return fmt.Sprintf("offset %d is not in the log, which holds offsets %d to %d", e.Offset, e.Start, e.End)
}

// A CorruptError reports bytes that no correct broker can have written. Clients see it as
// CORRUPT_MESSAGE (error code 2).
type CorruptError struct {
	Path   string
	Pos    int64 // bytes from the start of Path
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: %s (ottla log verify shows the extent)", e.Path, e.Pos, e.Reason)
}

// A DirFailedError says that a write or an fsync failed in the log directory, which takes nothing more until
// the broker is restarted. Clients see it as KAFKA_STORAGE_ERROR (error code 56).
type DirFailedError struct {
	Path string
	Err  error // what failed first
}

func (e *DirFailedError) Error() string {
	return fmt.Sprintf("log directory of %s is offline since a write failed (check the disk, then restart the broker): %v", e.Path, e.Err)
}

func (e *DirFailedError) Unwrap() error { return e.Err }

// An OutOfOrderSequenceError says that an idempotent producer's batch does not follow its last one. Clients see it
// as OUT_OF_ORDER_SEQUENCE_NUMBER (error code 45); so do they see a duplicate of a batch older than the last five.
type OutOfOrderSequenceError struct {
	ProducerID int64
	Sequence   int32 // of the batch's first record
	Last       int32 // the last sequence known; -1 if there is none in this epoch
}

func (e *OutOfOrderSequenceError) Error() string {
	return fmt.Sprintf("producer %d sent sequence %d after %d", e.ProducerID, e.Sequence, e.Last)
}

// An InvalidProducerEpochError says that a newer instance of the producer is known. Clients see it as
// INVALID_PRODUCER_EPOCH (error code 47).
type InvalidProducerEpochError struct {
	ProducerID     int64
	Epoch, Current int16
}

func (e *InvalidProducerEpochError) Error() string {
	return fmt.Sprintf("producer %d wrote with epoch %d, but epoch %d is known", e.ProducerID, e.Epoch, e.Current)
}

// An InvalidTxnStateError says that a batch outside of a transaction came from a producer whose transaction is open
// in this partition. Clients see it as INVALID_TXN_STATE (error code 48).
type InvalidTxnStateError struct{ ProducerID int64 }

func (e *InvalidTxnStateError) Error() string {
	return fmt.Sprintf("producer %d has a transaction open but wrote outside of it", e.ProducerID)
}

// A CoordinatorFencedError says that a transaction marker came from a coordinator that has been replaced. It is
// TRANSACTION_COORDINATOR_FENCED (error code 52).
type CoordinatorFencedError struct {
	ProducerID     int64
	Epoch, Current int32
}

func (e *CoordinatorFencedError) Error() string {
	return fmt.Sprintf("marker for producer %d came from coordinator epoch %d, but %d is known", e.ProducerID, e.Epoch, e.Current)
}

// An UnexpectedOffsetError says that a follower was handed batches that do not continue its log.
type UnexpectedOffsetError struct{ Got, Want int64 }

func (e *UnexpectedOffsetError) Error() string {
	return fmt.Sprintf("batch at offset %d does not continue the log, which ends at %d", e.Got, e.Want)
}

// A TooLargeError says that a batch does not fit a segment. Clients see it as RECORD_LIST_TOO_LARGE (error code 18).
type TooLargeError struct{ Size, Max int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("batch of %d bytes is larger than a segment may be (segment.bytes=%d)", e.Size, e.Max)
}
