package group

import (
	"encoding/binary"
	"maps"
	"slices"
	"unicode/utf16"

	"github.com/zeebo/xxh3"

	"ottla/internal/metadata"
	"ottla/internal/uuid"
)

// A topicDigest is a digest of a topic as it was.
type topicDigest struct {
	topic *metadata.Topic
	hash  uint64
}

// topicHashMagic is the version of the digest.
const topicHashMagic = 0

// metadataHash is a digest of the topics that a group subscribes to and that are there: names, ids, partitions and the racks of their
// replicas; 0 if there are none. If it changes the group is assigned anew. It is bit for bit Apache's, so that a group which
// changes hands keeps its assignment. Source: KIP-1101; Utils.computeGroupHash and computeTopicHash of Apache's group coordinator.
func (m *Machine) metadataHash(g *consumerGroup) int64 {
	var b []byte
	for _, name := range g.topics() {
		if t := m.image.TopicByName(name); t != nil {
			b = binary.LittleEndian.AppendUint64(b, m.topicHash(t))
		}
	}
	if b == nil {
		return 0
	}
	return int64(xxh3.Hash(b))
}

// topicHash digests one topic, or knows its digest already.
func (m *Machine) topicHash(t *metadata.Topic) uint64 {
	if d := m.digests[t.ID]; d.topic == t {
		return d.hash
	}
	b := []byte{topicHashMagic}
	b = binary.LittleEndian.AppendUint64(b, binary.BigEndian.Uint64(t.ID[:8]))
	b = binary.LittleEndian.AppendUint64(b, binary.BigEndian.Uint64(t.ID[8:]))
	b = appendJavaString(b, utf16.Encode([]rune(t.Name)))
	b = binary.LittleEndian.AppendUint32(b, uint32(t.PartitionCount()))
	for id, p := range t.Partitions() {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
		var racks [][]uint16
		for _, broker := range p.Replicas {
			if rack, ok := m.racks[broker]; ok {
				racks = append(racks, utf16.Encode([]rune(rack)))
			}
		}
		slices.SortFunc(racks, slices.Compare)
		for _, rack := range racks {
			b = binary.LittleEndian.AppendUint32(b, uint32(len(rack)))
			b = appendJavaString(b, rack)
		}
	}
	d := topicDigest{t, xxh3.Hash(b)}
	m.digests[t.ID] = d
	return d.hash
}

// appendJavaString appends a string as hash4j, the library that Apache hashes with, does: its UTF-16 units, then their number.
func appendJavaString(b []byte, s []uint16) []byte {
	for _, c := range s {
		b = binary.LittleEndian.AppendUint16(b, c)
	}
	return binary.LittleEndian.AppendUint32(b, uint32(len(s)))
}

// imageChanged learns the racks of the brokers and forgets digests that are not true any more. A topic that changed is
// another *metadata.Topic.
func (m *Machine) imageChanged(topicsDeleted bool) {
	racks := map[int32]string{}
	for b := range m.image.Brokers() {
		if b.Rack != nil {
			racks[b.ID] = *b.Rack
		}
	}
	if !maps.Equal(racks, m.racks) {
		m.racks = racks
		clear(m.digests)
	}
	if topicsDeleted {
		maps.DeleteFunc(m.digests, func(id uuid.UUID, _ topicDigest) bool { return m.image.Topic(id) == nil })
	}
}
