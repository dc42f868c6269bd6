package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"ottla/internal/record"
	"ottla/internal/replica"
	"ottla/internal/storage"
	"ottla/internal/transport"
)

// Every error of the packages below becomes an error code here and nowhere else.

// A refusedError is an error code with a text of its own for the client.
type refusedError struct {
	code *kerr.Error
	text string
}

func (e *refusedError) Error() string { return e.text }
func (e *refusedError) Unwrap() error { return e.code }

// refusal returns an error that a client sees as code, with a text that says more.
func refusal(code *kerr.Error, format string, args ...any) error {
	return &refusedError{code, fmt.Sprintf(format, args...)}
}

// code returns the error code that a client sees for err, 0 for none.
func code(err error) int16 {
	if err == nil {
		return 0
	}
	return kafkaError(err).Code
}

// codeAndText returns code's and, for APIs with room for it, a text that says more than the code.
func codeAndText(err error) (int16, *string) {
	e := kafkaError(err)
	text := err.Error()
	if err == error(e) {
		text = e.Description
	}
	return e.Code, &text
}

// kafkaError finds Kafka's error for one of ours; UNKNOWN_SERVER_ERROR for what no client can have caused.
func kafkaError(err error) *kerr.Error {
	if e := new(kerr.Error); errors.As(err, &e) {
		return e
	}
	for _, sentinel := range sentinels {
		if errors.Is(err, sentinel.err) {
			return sentinel.code
		}
	}
	for _, family := range []func(error) *kerr.Error{replicaError, storageError, recordError} {
		if e := family(err); e != nil {
			return e
		}
	}
	return kerr.UnknownServerError
}

// sentinels are errors that say all by being themselves.
var sentinels = []struct {
	err  error
	code *kerr.Error
}{
	{replica.ErrUnknownPartition, kerr.UnknownTopicOrPartition},
	{replica.ErrOpening, kerr.NotLeaderForPartition},
	{replica.ErrOffsetNotAvailable, kerr.OffsetNotAvailable},
	{replica.ErrNotDeletable, kerr.PolicyViolation},
	{replica.ErrUnsupportedTimestamp, kerr.UnsupportedVersion},
	{replica.ErrClosed, kerr.NotLeaderForPartition},
	{storage.ErrClosed, kerr.NotLeaderForPartition},
	{errNoController, kerr.NotController},
	{context.DeadlineExceeded, kerr.RequestTimedOut},
	{context.Canceled, kerr.RequestTimedOut},
}

func replicaError(err error) *kerr.Error {
	if e := new(replica.LeaderEpochError); errors.As(err, &e) {
		if e.Fenced() {
			return kerr.FencedLeaderEpoch
		}
		return kerr.UnknownLeaderEpoch
	}
	if e := new(replica.NotEnoughReplicasError); errors.As(err, &e) {
		if e.AfterAppend {
			return kerr.NotEnoughReplicasAfterAppend
		}
		return kerr.NotEnoughReplicas
	}
	if e := new(replica.NotReplicaError); errors.As(err, &e) && e.EpochNamed {
		return kerr.UnknownLeaderEpoch
	}
	switch {
	case is[*replica.NotLeaderError](err), is[*replica.NotReplicaError](err), is[*replica.StaleBrokerError](err):
		return kerr.NotLeaderForPartition
	case is[*replica.OfflineError](err):
		return kerr.KafkaStorageError
	}
	return nil
}

func storageError(err error) *kerr.Error {
	switch {
	case is[*storage.OffsetOutOfRangeError](err):
		return kerr.OffsetOutOfRange
	case is[*storage.CorruptError](err):
		return kerr.CorruptMessage
	case is[*storage.DirFailedError](err):
		return kerr.KafkaStorageError
	case is[*storage.OutOfOrderSequenceError](err):
		return kerr.OutOfOrderSequenceNumber
	case is[*storage.InvalidProducerEpochError](err):
		return kerr.InvalidProducerEpoch
	case is[*storage.InvalidTxnStateError](err):
		return kerr.InvalidTxnState
	case is[*storage.CoordinatorFencedError](err):
		return kerr.TransactionCoordinatorFenced
	case is[*storage.TooLargeError](err):
		return kerr.RecordListTooLarge
	}
	return nil
}

func recordError(err error) *kerr.Error {
	switch {
	case is[*record.CorruptError](err):
		return kerr.CorruptMessage
	case is[*record.InvalidRecordError](err):
		return kerr.InvalidRecord
	case is[*record.InvalidTimestampError](err):
		return kerr.InvalidTimestamp
	case is[*record.TooLargeError](err):
		return kerr.MessageTooLarge
	case is[*record.UnsupportedCodecError](err):
		return kerr.UnsupportedCompressionType
	}
	if is[*transport.ConnectionError](err) {
		return kerr.NotController // the only peer that a handler calls is the controller
	}
	return nil
}

// is reports whether err is or wraps an error of type T.
func is[T error](err error) bool {
	var e T
	return errors.As(err, &e)
}

// recordErrors returns the records that err blames.
func recordErrors(err error) []record.RecordError {
	if e := new(record.InvalidRecordError); errors.As(err, &e) {
		return e.Records
	}
	if e := new(record.InvalidTimestampError); errors.As(err, &e) {
		return e.Records
	}
	return nil
}

// leaderOf returns the leader that err names, if it does.
func leaderOf(err error) (leader, epoch int32, ok bool) {
	if e := new(replica.NotLeaderError); errors.As(err, &e) {
		return e.Leader, e.LeaderEpoch, e.Leader >= 0
	}
	if e := new(replica.LeaderEpochError); errors.As(err, &e) {
		return e.Leader, e.Known, e.Leader >= 0
	}
	return 0, 0, false
}
