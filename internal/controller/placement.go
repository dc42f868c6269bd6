package controller

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"ottla/internal/metadata"
	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// maxPartitionsPerRequest is how many partitions one request may create, so that one entry of the metadata log
// stays small. Source: ReplicationControlManager.MAX_PARTITIONS_PER_BATCH.
const maxPartitionsPerRequest = 10_000

// place chooses replicas for count partitions. Brokers that are unfenced come before fenced ones; leaders go round
// the brokers, so that each leads about as many, and the followers of two partitions with the same leader differ. Racks take turns.
func (t *turn) place(count int, factor int) ([][]int32, error) {
	usable, others := t.candidates()
	registered := len(usable) + len(others)
	switch {
	case len(usable) == 0:
		return nil, refuse(kerr.InvalidReplicationFactor,
			"Unable to replicate the partition %d time(s): All brokers are currently fenced, or have all their log directories cordoned.", factor)
	case factor > registered:
		return nil, refuse(kerr.InvalidReplicationFactor,
			"Unable to replicate the partition %d time(s): The target replication factor of %d cannot be reached because only %d broker(s) are registered or some brokers have all their log directories cordoned.",
			factor, factor, registered)
	}
	out := make([][]int32, count)
	for i := range out {
		turn := t.spread
		t.spread++
		replicas := rotated(usable, turn, factor)
		out[i] = append(replicas, rotated(others, turn, factor-len(replicas))...)
	}
	return out, nil
}

// rotated takes up to n of ids: the first goes round with turn, and each time all of them led, the others move
// on by one against it.
func rotated(ids []int32, turn, n int) []int32 {
	n = min(n, len(ids))
	out := make([]int32, 0, n)
	if n == 0 {
		return out
	}
	first := turn % len(ids)
	out = append(out, ids[first])
	shift := 0
	if len(ids) > 1 {
		shift = turn / len(ids) % (len(ids) - 1)
	}
	for k := 0; len(out) < n; k++ {
		out = append(out, ids[(first+1+(shift+k)%(len(ids)-1))%len(ids)])
	}
	return out
}

// candidates returns the brokers that replicas may be placed on, those that are not active apart, racks taking turns.
func (t *turn) candidates() (usable, others []int32) {
	var active, rest []*metadata.Broker
	for b := range t.image().Brokers() {
		switch {
		case cordoned(b):
		case t.active(b.ID):
			active = append(active, b)
		default:
			rest = append(rest, b)
		}
	}
	return interleaveRacks(active), interleaveRacks(rest)
}

// cordoned reports whether no log directory of a broker takes new replicas.
func cordoned(b *metadata.Broker) bool {
	return len(b.LogDirs) > 0 && !slices.ContainsFunc(b.LogDirs, func(d uuid.UUID) bool { return !slices.Contains(b.CordonedLogDirs, d) })
}

// interleaveRacks orders brokers so that neighbours are in different racks as long as there are any.
func interleaveRacks(brokers []*metadata.Broker) []int32 {
	type ranked struct {
		id   int32
		nth  int // of its rack
		rack string
	}
	seen := map[string]int{}
	all := make([]ranked, 0, len(brokers))
	for _, b := range brokers {
		rack := ""
		if b.Rack != nil {
			rack = *b.Rack
		}
		nth := seen[rack]
		if b.Rack == nil { // a rack of its own
			nth = 0
		}
		seen[rack]++
		all = append(all, ranked{b.ID, nth, rack})
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(a.nth, b.nth) })
	ids := make([]int32, len(all))
	for i, r := range all {
		ids[i] = r.id
	}
	return ids
}

// checkAssignment checks replicas that an administrator chose; factor is how many there must be, 0 for any number.
func (t *turn) checkAssignment(replicas []int32, factor int) error {
	if len(replicas) == 0 {
		return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes an empty replica list.")
	}
	for i, id := range replicas {
		if slices.Contains(replicas[:i], id) {
			return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes the broker %d more than once.", id)
		}
	}
	for _, id := range replicas {
		if t.image().Broker(id) == nil {
			return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes broker %d, but no such broker is registered.", id)
		}
	}
	if factor > 0 && len(replicas) != factor {
		return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes a partition with %d replica(s), "+
			"but this is not consistent with previous partitions, which have %d replica(s).",
			len(replicas), factor)
	}
	return nil
}

// newPartition returns the record of a new partition: its ISR are the replicas that are active, its leader the first of them.
func (t *turn) newPartition(topicID uuid.UUID, id int32, replicas []int32) (*records.PartitionRecord, error) {
	r := records.NewPartitionRecord()
	r.TopicID, r.PartitionID, r.Replicas = topicID, id, replicas
	for _, broker := range replicas {
		r.Directories = append(r.Directories, t.directory(broker))
		if t.active(broker) {
			r.ISR = append(r.ISR, broker)
		}
	}
	if len(r.ISR) == 0 {
		return nil, refuse(kerr.InvalidReplicaAssignment,
			"All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", id)
	}
	r.Leader, r.LeaderEpoch, r.PartitionEpoch = r.ISR[0], 0, 0
	return r, nil
}
