package group

import (
	"bytes"
	"maps"
	"slices"

	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// An assignment is a set of partitions by topic. The partitions are sorted and none is there twice; no topic is there
// without partitions. It is never changed once it is made.
type assignment map[uuid.UUID][]int32

func (a assignment) equal(b assignment) bool {
	return maps.EqualFunc(a, b, func(p, q []int32) bool { return slices.Equal(p, q) })
}

func (a assignment) has(topic uuid.UUID, partition int32) bool {
	_, ok := slices.BinarySearch(a[topic], partition)
	return ok
}

// topics returns the topics in order.
func (a assignment) topics() []uuid.UUID { return sortedTopics(a) }

// A topicPartition is one partition.
type topicPartition struct {
	topic     uuid.UUID
	partition int32
}

// An owned set is what a member owns: for each partition the epoch in which it got it (KIP-1251). It is never changed once it
// is made.
type owned map[topicPartition]int32

func (o owned) equal(p owned) bool { return maps.Equal(o, p) }

// samePartitions reports whether the epochs are all that differs.
func (o owned) samePartitions(p owned) bool {
	if len(o) != len(p) {
		return false
	}
	for tp := range o {
		if _, ok := p[tp]; !ok {
			return false
		}
	}
	return true
}

// as returns the same partitions as of one epoch.
func (o owned) as(epoch int32) owned {
	out := make(owned, len(o))
	for tp := range o {
		out[tp] = epoch
	}
	return out
}

// assignment drops the epochs.
func (o owned) assignment() assignment {
	a := assignment{}
	for tp := range o {
		a[tp.topic] = append(a[tp.topic], tp.partition)
	}
	for _, p := range a {
		slices.Sort(p)
	}
	return a
}

// records returns the set as a record has it.
func (o owned) records() []records.ConsumerGroupCurrentMemberAssignmentTopicPartitions {
	out := []records.ConsumerGroupCurrentMemberAssignmentTopicPartitions{}
	a := o.assignment()
	for _, t := range a.topics() {
		r := records.ConsumerGroupCurrentMemberAssignmentTopicPartitions{TopicID: t, Partitions: a[t], AssignmentEpochs: []int32{}}
		for _, p := range a[t] {
			r.AssignmentEpochs = append(r.AssignmentEpochs, o[topicPartition{t, p}])
		}
		out = append(out, r)
	}
	return out
}

// ownedOf reads such a set; records from before there were epochs mean that of the member.
func ownedOf(topics []records.ConsumerGroupCurrentMemberAssignmentTopicPartitions, memberEpoch int32) owned {
	out := owned{}
	for _, t := range topics {
		for i, p := range t.Partitions {
			epoch := memberEpoch
			if i < len(t.AssignmentEpochs) {
				epoch = t.AssignmentEpochs[i]
			}
			out[topicPartition{t.TopicID, p}] = epoch
		}
	}
	return out
}

func sortedTopics[V any](m map[uuid.UUID]V) []uuid.UUID {
	return slices.SortedFunc(maps.Keys(m), compareIDs)
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }
