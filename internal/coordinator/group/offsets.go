package group

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// An offset is a committed offset, or one that awaits the end of its transaction.
type offset struct {
	offset      int64
	leaderEpoch int32 // -1: not known
	metadata    string
	topicID     uuid.UUID // zero: not known
	commitMs    int64
	expireMs    int64 // -1: as offsets.retention.minutes says
	// seq orders all commits of this machine as the log does: a transaction that ends later must not undo a
	// plain commit made since (KAFKA-19862).
	seq uint64
}

type offsetKey struct {
	group, topic string
	partition    int32
}

// groupOffsets are a group's offsets by topic and partition. Neither map is ever empty.
type groupOffsets map[string]map[int32]offset

// offsets are all offsets of a machine.
type offsets struct {
	seq       uint64
	committed map[string]groupOffsets
	// pending are those of open transactions, by producer id and group; open are the producers that have
	// some in a group.
	pending map[int64]map[string]groupOffsets
	open    map[string]map[int64]struct{}
}

func newOffsets() offsets {
	return offsets{committed: map[string]groupOffsets{}, pending: map[int64]map[string]groupOffsets{}, open: map[string]map[int64]struct{}{}}
}

func put(of map[string]groupOffsets, k offsetKey, o offset) {
	topics := of[k.group]
	if topics == nil {
		topics = groupOffsets{}
		of[k.group] = topics
	}
	if topics[k.topic] == nil {
		topics[k.topic] = map[int32]offset{}
	}
	topics[k.topic][k.partition] = o
}

func remove(of map[string]groupOffsets, k offsetKey) {
	topics := of[k.group]
	delete(topics[k.topic], k.partition)
	if len(topics[k.topic]) == 0 {
		delete(topics, k.topic)
	}
	if len(topics) == 0 {
		delete(of, k.group)
	}
}

func (o *offsets) get(k offsetKey) (offset, bool) {
	c, ok := o.committed[k.group][k.topic][k.partition]
	return c, ok
}

// isPending reports whether an open transaction has an offset for a partition.
func (o *offsets) isPending(k offsetKey) bool {
	for producer := range o.open[k.group] {
		if _, ok := o.pending[producer][k.group][k.topic][k.partition]; ok {
			return true
		}
	}
	return false
}

// keys returns all of a group's partitions that have an offset, committed or pending, in order.
func (o *offsets) keys(group string) []offsetKey {
	seen := map[offsetKey]struct{}{}
	collect := func(topics groupOffsets) {
		for topic, partitions := range topics {
			for p := range partitions {
				seen[offsetKey{group, topic, p}] = struct{}{}
			}
		}
	}
	collect(o.committed[group])
	for producer := range o.open[group] {
		collect(o.pending[producer][group])
	}
	return slices.SortedFunc(maps.Keys(seen), compareKeys)
}

// ofTopic returns all partitions of a topic that have an offset of any group, committed or pending, in order.
func (o *offsets) ofTopic(topic string) []offsetKey {
	seen := map[offsetKey]struct{}{}
	collect := func(groups map[string]groupOffsets) {
		for group, topics := range groups {
			for p := range topics[topic] {
				seen[offsetKey{group, topic, p}] = struct{}{}
			}
		}
	}
	collect(o.committed)
	for _, groups := range o.pending {
		collect(groups)
	}
	return slices.SortedFunc(maps.Keys(seen), compareKeys)
}

func (o *offsets) add(k offsetKey, c offset, producerID int64) {
	o.seq++
	c.seq = o.seq
	if producerID == noProducerID {
		put(o.committed, k, c)
		return
	}
	if o.pending[producerID] == nil {
		o.pending[producerID] = map[string]groupOffsets{}
	}
	put(o.pending[producerID], k, c)
	if o.open[k.group] == nil {
		o.open[k.group] = map[int64]struct{}{}
	}
	o.open[k.group][producerID] = struct{}{}
}

// forget removes an offset, and what open transactions would make it.
func (o *offsets) forget(k offsetKey) {
	remove(o.committed, k)
	for producer := range o.open[k.group] {
		remove(o.pending[producer], k)
		if o.pending[producer][k.group] == nil {
			delete(o.open[k.group], producer)
		}
	}
	if len(o.open[k.group]) == 0 {
		delete(o.open, k.group)
	}
}

// isOf reports whether an offset of a partition, committed or pending, is of a topic of that id, for all that is known.
func (o *offsets) isOf(k offsetKey, id uuid.UUID) bool {
	is := func(c offset, ok bool) bool { return ok && (c.topicID == uuid.Zero || c.topicID == id) }
	if is(o.get(k)) {
		return true
	}
	for producer := range o.open[k.group] {
		c, ok := o.pending[producer][k.group][k.topic][k.partition]
		if is(c, ok) {
			return true
		}
	}
	return false
}

// end ends a transaction.
func (o *offsets) end(producerID int64, commit bool) {
	pending := o.pending[producerID]
	delete(o.pending, producerID)
	for group, producers := range o.open {
		if delete(producers, producerID); len(producers) == 0 {
			delete(o.open, group)
		}
	}
	if !commit {
		return
	}
	for group, topics := range pending {
		for topic, partitions := range topics {
			for p, c := range partitions {
				k := offsetKey{group, topic, p}
				if was, ok := o.get(k); !ok || c.seq > was.seq {
					put(o.committed, k, c)
				}
			}
		}
	}
}

// replayOffset applies a commit. A group that is not known is made: a simple one, which only keeps offsets and has no
// record of its own.
func (m *Machine) replayOffset(k offsetKey, v *records.OffsetCommitValue, producerID int64) {
	if v == nil {
		m.offsets.forget(k)
		return
	}
	if m.groups[k.group] == nil {
		m.groups[k.group] = &group{id: k.group, classic: newClassicGroup(k.group, v.CommitTimestamp)}
	}
	m.offsets.add(k, offset{
		offset: v.Offset, leaderEpoch: v.LeaderEpoch, metadata: v.Metadata, topicID: v.TopicID,
		commitMs: v.CommitTimestamp, expireMs: v.ExpireTimestamp,
	}, producerID)
}

// emitOffset writes a committed offset as Apache 4.4 does: version 1 if it carries its own expiry, else 4.
func (m *Machine) emitOffset(k offsetKey, o offset) {
	v := records.NewOffsetCommitValue()
	v.Offset, v.LeaderEpoch, v.Metadata, v.TopicID = o.offset, o.leaderEpoch, o.metadata, o.topicID
	v.CommitTimestamp, v.ExpireTimestamp = o.commitMs, o.expireMs
	version := int16(4)
	if o.expireMs >= 0 {
		version = 1
		v.LeaderEpoch, v.TopicID = -1, uuid.Zero // which version 1 cannot hold: replaying must give the same
	}
	m.emit(Record{&records.OffsetCommitKey{Group: k.group, Topic: k.topic, Partition: k.partition}, v, version})
}

func (m *Machine) emitOffsetTombstone(k offsetKey) {
	m.emit(Record{Key: &records.OffsetCommitKey{Group: k.group, Topic: k.topic, Partition: k.partition}})
}

// deleteOffsetsOfTopic removes what any group committed for a topic that was deleted, but not for another of its name.
func (m *Machine) deleteOffsetsOfTopic(t DeletedTopic) {
	for _, k := range m.offsets.ofTopic(t.Name) {
		if m.offsets.isOf(k, t.ID) {
			m.emitOffsetTombstone(k)
		}
	}
}

func compareKeys(a, b offsetKey) int {
	return cmp.Or(strings.Compare(a.group, b.group), strings.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
}
