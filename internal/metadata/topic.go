package metadata

import (
	"fmt"
	"iter"
	"slices"

	"github.com/benbjohnson/immutable"

	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// A Topic is a topic at one offset of the metadata log.
type Topic struct {
	ID   uuid.UUID
	Name string

	partitions *immutable.SortedMap[int32, *Partition]
}

func newTopic(id uuid.UUID, name string) *Topic {
	return &Topic{ID: id, Name: name, partitions: immutable.NewSortedMap[int32, *Partition](ordered[int32]{})}
}

// Partition returns a partition, or nil.
func (t *Topic) Partition(id int32) *Partition {
	p, _ := t.partitions.Get(id)
	return p
}

// Partitions yields all partitions by id.
func (t *Topic) Partitions() iter.Seq2[int32, *Partition] { return all(t.partitions) }

// PartitionsFrom yields by id the partitions whose id is at or after from.
func (t *Topic) PartitionsFrom(from int32) iter.Seq2[int32, *Partition] {
	return func(yield func(int32, *Partition) bool) {
		it := t.partitions.Iterator()
		it.Seek(from)
		for id, p, ok := it.Next(); ok && yield(id, p); id, p, ok = it.Next() {
		}
	}
}

// PartitionCount returns the number of partitions; their ids are 0 to one less.
func (t *Topic) PartitionCount() int { return t.partitions.Len() }

// with returns the topic with some of its partitions added or changed.
func (t *Topic) with(changed map[int32]*Partition) *Topic {
	next := *t
	if t.partitions.Len() > 0 {
		for id, p := range changed {
			next.partitions = next.partitions.Set(id, p)
		}
		return &next
	}
	b := immutable.NewSortedMapBuilder[int32, *Partition](ordered[int32]{})
	for id, p := range changed {
		b.Set(id, p)
	}
	next.partitions = b.Map()
	return &next
}

// NoLeader is the leader of a partition that has none.
const NoLeader int32 = -1

// noLeaderChange is what a PartitionChangeRecord's leader is when it does not speak of it.
const noLeaderChange int32 = -2

// A RecoveryState says whether a partition's leader was elected uncleanly and is yet to put its log
// in order. Source: Kafka's LeaderRecoveryState.
type RecoveryState int8

// The recovery states; recoveryUnchanged is in PartitionChangeRecords only.
const (
	Recovered         RecoveryState = 0
	Recovering        RecoveryState = 1
	recoveryUnchanged RecoveryState = -1
)

// A Partition is a partition at one offset of the metadata log. Source: Kafka's
// PartitionRegistration.
type Partition struct {
	Replicas    []int32     // broker ids, the preferred leader first
	Directories []uuid.UUID // the log directory of each of Replicas; or Zero (migrating), uuid.Metadata (unassigned), uuid.LostDir
	ISR         []int32
	// ELR are replicas outside the ISR that hold everything acknowledged, LastKnownELR those that
	// did when they were last seen (KIP-966).
	ELR, LastKnownELR []int32
	Removing, Adding  []int32 // of Replicas, while they are being reassigned
	Leader            int32   // or NoLeader
	// LeaderEpoch goes up whenever a record names a leader, be it the same; PartitionEpoch with
	// every record on the partition.
	LeaderEpoch, PartitionEpoch int32
	LeaderRecoveryState         RecoveryState
}

// PreferredLeader returns the first replica, or NoLeader.
func (p *Partition) PreferredLeader() int32 {
	if len(p.Replicas) == 0 {
		return NoLeader
	}
	return p.Replicas[0]
}

// Directory returns the log directory of a broker's replica; false if it has no replica here.
func (p *Partition) Directory(broker int32) (uuid.UUID, bool) {
	i := slices.Index(p.Replicas, broker)
	if i < 0 {
		return uuid.Zero, false
	}
	return p.Directories[i], true
}

// Equal reports whether two partitions are the same in every field.
func (p *Partition) Equal(q *Partition) bool {
	return p.Leader == q.Leader && p.LeaderEpoch == q.LeaderEpoch && p.PartitionEpoch == q.PartitionEpoch &&
		p.LeaderRecoveryState == q.LeaderRecoveryState &&
		slices.Equal(p.Replicas, q.Replicas) && slices.Equal(p.Directories, q.Directories) && slices.Equal(p.ISR, q.ISR) &&
		slices.Equal(p.ELR, q.ELR) && slices.Equal(p.LastKnownELR, q.LastKnownELR) &&
		slices.Equal(p.Removing, q.Removing) && slices.Equal(p.Adding, q.Adding)
}

func newPartition(r *records.PartitionRecord) (*Partition, error) {
	p := &Partition{
		Replicas: r.Replicas, Directories: r.Directories, ISR: r.ISR, ELR: r.EligibleLeaderReplicas, LastKnownELR: r.LastKnownELR,
		Removing: r.RemovingReplicas, Adding: r.AddingReplicas, Leader: r.Leader,
		LeaderEpoch: r.LeaderEpoch, PartitionEpoch: r.PartitionEpoch, LeaderRecoveryState: RecoveryState(r.LeaderRecoveryState),
	}
	if len(p.Directories) == 0 {
		p.Directories = make([]uuid.UUID, len(p.Replicas))
	}
	return p, p.check()
}

func (p *Partition) check() error {
	if len(p.Directories) != len(p.Replicas) {
		return fmt.Errorf("%d directories for %d replicas", len(p.Directories), len(p.Replicas))
	}
	if p.LeaderRecoveryState != Recovered && p.LeaderRecoveryState != Recovering {
		return fmt.Errorf("leader recovery state %d is unknown", p.LeaderRecoveryState)
	}
	return nil
}

// changedBy returns the partition after a record, which says what changes and leaves the epochs to
// be counted.
func (p *Partition) changedBy(r *records.PartitionChangeRecord) (*Partition, error) {
	next := *p
	next.PartitionEpoch++
	if r.Leader != noLeaderChange {
		next.Leader = r.Leader
		next.LeaderEpoch++
	}
	for _, f := range []struct {
		field *[]int32
		value []int32
	}{
		{&next.Replicas, r.Replicas}, {&next.ISR, r.ISR}, {&next.ELR, r.EligibleLeaderReplicas},
		{&next.LastKnownELR, r.LastKnownELR}, {&next.Removing, r.RemovingReplicas}, {&next.Adding, r.AddingReplicas},
	} {
		if f.value != nil {
			*f.field = f.value
		}
	}
	switch {
	case len(r.Directories) > 0:
		next.Directories = r.Directories
	case r.Replicas != nil:
		next.Directories = p.directoriesOf(r.Replicas)
	}
	if state := RecoveryState(r.LeaderRecoveryState); state != recoveryUnchanged {
		next.LeaderRecoveryState = state
	}
	return &next, next.check()
}

// directoriesOf returns the directories that replicas have when nothing is said of them: those they
// have already, none for new ones.
func (p *Partition) directoriesOf(replicas []int32) []uuid.UUID {
	dirs := make([]uuid.UUID, len(replicas))
	for i, broker := range replicas {
		dir, known := p.Directory(broker)
		if !known {
			dir = uuid.Metadata // as a directory: UNASSIGNED
		}
		dirs[i] = dir
	}
	return dirs
}

// record returns the record that newPartition makes p of.
func (p *Partition) record(topicID uuid.UUID, id int32) *records.PartitionRecord {
	r := &records.PartitionRecord{
		PartitionID: id, TopicID: topicID, Replicas: p.Replicas, Directories: p.Directories, ISR: p.ISR,
		RemovingReplicas: p.Removing, AddingReplicas: p.Adding, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch,
		PartitionEpoch: p.PartitionEpoch, LeaderRecoveryState: int8(p.LeaderRecoveryState),
	}
	if len(p.ELR) > 0 {
		r.EligibleLeaderReplicas = p.ELR
	}
	if len(p.LastKnownELR) > 0 {
		r.LastKnownELR = p.LastKnownELR
	}
	return r
}
