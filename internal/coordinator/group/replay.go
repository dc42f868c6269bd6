package group

import (
	"encoding/hex"

	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// noProducerID marks a record that is in no transaction.
const noProducerID int64 = -1

// Replay applies one record of the log, while it is being loaded. producerID is that of its batch if the batch is
// transactional, else -1. Records of kinds that this machine does not keep, those of share and streams groups, are passed
// over. It owns key and value from now on.
func (m *Machine) Replay(key, value records.Message, producerID int64) {
	if k, ok := key.(*records.GroupMetadataKey); ok && value != nil {
		m.drop(k.Group) // members may have joined with something new since the record before
	}
	m.replay(key, value, producerID)
}

// ReplayMarker applies the end of a transaction: the offsets committed in it count, or are forgotten.
func (m *Machine) ReplayMarker(producerID int64, commit bool) { m.offsets.end(producerID, commit) }

func (m *Machine) replay(key, value records.Message, producerID int64) {
	switch k := key.(type) {
	case *records.GroupMetadataKey:
		m.replayClassic(k.Group, as[records.GroupMetadataValue](value))
	case *records.OffsetCommitKey:
		m.replayOffset(offsetKey{k.Group, k.Topic, k.Partition}, as[records.OffsetCommitValue](value), producerID)
	case *records.LegacyOffsetCommitKey:
		m.replayOffset(offsetKey{k.Group, k.Topic, k.Partition}, modern(as[records.LegacyOffsetCommitValue](value)), producerID)
	default:
		m.replayConsumer(key, value)
	}
}

// as returns a value as what its key says it is; a nil message, a tombstone, is a nil pointer.
func as[T any](m records.Message) *T {
	if m == nil {
		return nil
	}
	return any(m).(*T)
}

// modern is a committed offset of the schema before Kafka 0.9 in today's.
func modern(v *records.LegacyOffsetCommitValue) *records.OffsetCommitValue {
	if v == nil {
		return nil
	}
	out := records.NewOffsetCommitValue()
	out.Offset, out.Metadata, out.CommitTimestamp = v.Offset, v.Metadata, v.CommitTimestamp
	return out
}

// uuidLength is the length of an id that formatUUID prints.
const uuidLength = 36

// formatUUID prints an id as Java's UUID does, which is how member ids of Apache's brokers look.
func formatUUID(u uuid.UUID) string {
	h := hex.EncodeToString(u[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
