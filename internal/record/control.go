package record

import (
	"encoding/binary"
	"fmt"
)

// A ControlType says what a control record means. It stands in the record's key.
type ControlType int16

// The control records of Kafka (ControlRecordType). The values of all but the first two are messages of their own,
// to be found in internal/protocol/records.
const (
	ControlAbort          ControlType = 0
	ControlCommit         ControlType = 1
	ControlLeaderChange   ControlType = 2
	ControlSnapshotHeader ControlType = 3
	ControlSnapshotFooter ControlType = 4
	ControlKRaftVersion   ControlType = 5
	ControlKRaftVoters    ControlType = 6
)

var controlNames = [...]string{"ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS"}

// String returns Kafka's name of the type.
func (t ControlType) String() string {
	if t >= 0 && int(t) < len(controlNames) {
		return controlNames[t]
	}
	return fmt.Sprintf("ControlType(%d)", int16(t))
}

const controlKeySize = 4 // int16 version 0, int16 type

// AppendControlKey appends the key of a control record.
func AppendControlKey(dst []byte, t ControlType) []byte {
	dst = binary.BigEndian.AppendUint16(dst, 0)
	return binary.BigEndian.AppendUint16(dst, uint16(t))
}

// ParseControlKey reads the key of a control record. Later versions may append fields, which are passed over; a
// type that is not known here is returned as it is. Errors are of type *CorruptError.
func ParseControlKey(key []byte) (ControlType, error) {
	if len(key) < controlKeySize {
		return 0, corrupt("control record key of %d bytes, not %d", len(key), controlKeySize)
	}
	if version := int16(binary.BigEndian.Uint16(key)); version < 0 {
		return 0, corrupt("control record key has version %d", version)
	}
	return ControlType(binary.BigEndian.Uint16(key[2:])), nil
}

// An EndTxnMarker ends a transaction in one partition.
type EndTxnMarker struct {
	Commit           bool
	CoordinatorEpoch int32 // leader epoch of the coordinator's partition of __transaction_state
}

// Type returns ControlCommit or ControlAbort.
func (m EndTxnMarker) Type() ControlType {
	if m.Commit {
		return ControlCommit
	}
	return ControlAbort
}

// AppendEndTxnBatch appends the control batch that ends a transaction, written at the given time (ms).
// The sequence number is none; base offset and leader epoch are the log's to stamp.
func AppendEndTxnBatch(dst []byte, producerID int64, producerEpoch int16, m EndTxnMarker, timestamp int64) []byte {
	value := binary.BigEndian.AppendUint16(nil, 0) // version
	value = binary.BigEndian.AppendUint32(value, uint32(m.CoordinatorEpoch))
	b := NewBuilder(dst, BatchOptions{
		Flags:       FlagTransactional | FlagControl,
		LeaderEpoch: -1,
		Producer:    &ProducerState{ID: producerID, Epoch: producerEpoch, BaseSequence: NoSequence},
	})
	b.Append(Record{Timestamp: timestamp, Key: AppendControlKey(nil, m.Type()), Value: value})
	return b.Bytes()
}

// ParseEndTxnMarker reads the one record of the control batch at the start of b. ok is false when it is a control
// batch of another kind. Errors are of type *CorruptError.
func ParseEndTxnMarker(b []byte) (m EndTxnMarker, ok bool, err error) {
	err = Iterate(b, func(r Record) error {
		t, err := ParseControlKey(r.Key)
		if err != nil {
			return err
		}
		if t != ControlAbort && t != ControlCommit {
			return nil
		}
		if len(r.Value) < 6 {
			return corrupt("end transaction marker of %d bytes, not 6", len(r.Value))
		}
		ok = true
		m = EndTxnMarker{Commit: t == ControlCommit, CoordinatorEpoch: int32(binary.BigEndian.Uint32(r.Value[2:]))}
		return nil
	})
	return m, ok, err
}
