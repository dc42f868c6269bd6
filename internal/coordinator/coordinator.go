// Package coordinator runs the coordinators whose state lives in internal topics: for each partition of such a topic that
// this broker leads a loop, which loads the partition into a pure machine, steps the machine with what clients ask, appends
// the records that come of it, and lets answers out when those are replicated. The machines are in packages below: group.
//
// Read [Groups.Handle] for the way of a request, then loop.go. The broker calls it; what it needs of a partition is the
// interface [Log].
//
// What always holds: an answer, of a read too, leaves when the log end that it was computed at is below the high watermark,
// so nobody is told what a new leader would not know. If an append fails or the leadership goes, all state of the partition
// is dropped and what waits is refused; there is no other way back. One goroutine at a time is at a partition's work, be it its own or that of
// a client's connection: no lock is held over a machine, and nobody waits for another's turn.
package coordinator

import (
	"context"
	"errors"

	"ottla/internal/uuid"
)

// GroupTopic is the internal topic of the group coordinator.
const GroupTopic = "__consumer_offsets"

// A Log is a partition of an internal topic that this broker leads. Its methods are called by one goroutine at a time.
type Log interface {
	// Ready waits until the partition can be appended to and read, or ctx ends.
	Ready(ctx context.Context) error
	// Append appends one batch as the leader of an epoch, with what acks=all asks for, and returns the offset behind its
	// last record: the log end. It may write base offset and leader epoch into batch, and keeps none of it. An error that
	// wraps ErrNotLeader says that somebody else leads now.
	Append(batch []byte, leaderEpoch int32) (end int64, err error)
	// HighWatermark returns the offset below which records are replicated.
	HighWatermark() int64
	// Bounds returns the log start offset and the log end offset.
	Bounds() (start, end int64)
	// Read returns batches from the one that holds an offset, committed or not, in buf if they fit: some maxBytes, but one whole batch at
	// least; the last may be cut off. Nothing means the log end.
	Read(offset int64, maxBytes int, buf []byte) ([]byte, error)
	// Subscribe calls wake, which does not block, for each time the subscription is armed, when the high watermark moved. It
	// is armed to begin with.
	Subscribe(wake func()) Subscription
}

// A Subscription is news of a Log.
type Subscription interface {
	Arm()   // asks for one more wake
	Close() // ends it; a wake may still come
}

// ErrNotLeader says that this broker does not lead the partition, or not in that epoch.
var ErrNotLeader = errors.New("this broker does not lead the partition of the internal topic")

// A LogFinder returns a partition of an internal topic that the metadata says this broker leads. It does no I/O.
type LogFinder func(topicID uuid.UUID, partition int32) (Log, error)

// PartitionFor returns the partition of an internal topic that a key, a group id or a transactional id, belongs to. Source:
// Kafka's Utils.abs(String.hashCode()) % partitions, which differs from clearing the sign bit.
func PartitionFor(key string, partitions int32) int32 {
	h := javaHash(key)
	if h < 0 {
		h = -h // the least int32 stays negative
	}
	return max(h, 0) % partitions
}

// javaHash is Java's String.hashCode, over UTF-16 units.
func javaHash(s string) int32 {
	var h int32
	for _, r := range s {
		if r >= 0x10000 {
			r -= 0x10000
			h = 31*h + 0xd800 + r>>10
			r = 0xdc00 + r&0x3ff
		}
		h = 31*h + r
	}
	return h
}
