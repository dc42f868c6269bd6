package replica

import (
	"hash/maphash"
	"maps"
	"sync/atomic"

	"ottla/internal/uuid"
)

// indexParts is how many maps an index is cut into: a change copies one of them, and a broker may host 100,000 topics.
const indexParts = 1024

// An index finds a topic's replicas, by partition number, without a lock. It has one writer.
type index[K comparable] struct {
	hash  func(K) uint64
	parts *[indexParts]atomic.Pointer[map[K][]*Partition]
}

func newIndex[K comparable](hash func(K) uint64) index[K] {
	return index[K]{hash, new([indexParts]atomic.Pointer[map[K][]*Partition])}
}

var hashSeed = maphash.MakeSeed()

func hashID(id uuid.UUID) uint64   { return maphash.Comparable(hashSeed, id) }
func hashName(topic string) uint64 { return maphash.String(hashSeed, topic) }

func (x *index[K]) part(k K) *atomic.Pointer[map[K][]*Partition] {
	return &x.parts[x.hash(k)%indexParts]
}

// get returns a topic's replicas; not to be changed.
func (x *index[K]) get(k K) []*Partition {
	if m := x.part(k).Load(); m != nil {
		return (*m)[k]
	}
	return nil
}

// set replaces a topic's replicas; nil removes the topic.
func (x *index[K]) set(k K, partitions []*Partition) {
	part := x.part(k)
	next := map[K][]*Partition{}
	if m := part.Load(); m != nil {
		next = maps.Clone(*m)
	}
	if partitions == nil {
		delete(next, k)
	} else {
		next[k] = partitions
	}
	part.Store(&next)
}

func (x *index[K]) all(yield func([]*Partition) bool) {
	for i := range x.parts {
		m := x.parts[i].Load()
		if m == nil {
			continue
		}
		for _, partitions := range *m {
			if !yield(partitions) {
				return
			}
		}
	}
}
