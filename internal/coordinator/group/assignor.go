package group

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"ottla/internal/uuid"
)

// The server-side assignors. Both are sticky: a member keeps what it has as far as the balance allows.
const (
	uniformAssignor = "uniform" // spreads all partitions over the members
	rangeAssignor   = "range"   // topic by topic, the same partitions of topics alike to the same member
)

// An assignorInput is what an assignor works on: members in their order, what each subscribes to, and how many
// partitions each topic has.
type assignorInput struct {
	members    []string
	subscribed map[string][]uuid.UUID // by member, sorted
	previous   map[string]assignment  // by member
	partitions map[uuid.UUID]int32
}

// assign computes a target for each member.
func assign(name string, in *assignorInput) map[string]assignment {
	switch {
	case name == rangeAssignor:
		return in.byRange()
	case in.homogeneous():
		return in.uniformly()
	}
	return in.heterogeneously()
}

// homogeneous reports whether all members subscribe to the same topics.
func (in *assignorInput) homogeneous() bool {
	for _, m := range in.members[1:] {
		if !slices.Equal(in.subscribed[m], in.subscribed[in.members[0]]) {
			return false
		}
	}
	return true
}

// share deals items to members, so that none has two more than another. A member keeps items of before up to its share;
// the first that have more keep the odd ones.
func share[T cmp.Ordered](items []T, members []string, before func(member string) []T) map[string][]T {
	quota, odd := len(items)/len(members), len(items)%len(members)
	free := make(map[T]bool, len(items))
	for _, it := range items {
		free[it] = true
	}
	out := make(map[string][]T, len(members))
	for _, m := range members {
		limit := quota
		for _, it := range before(m) {
			if !free[it] {
				continue
			}
			if len(out[m]) == limit {
				if odd == 0 || limit > quota {
					break
				}
				limit++
				odd--
			}
			free[it] = false
			out[m] = append(out[m], it)
		}
	}
	rest := slices.DeleteFunc(slices.Clone(items), func(it T) bool { return !free[it] })
	for _, m := range members {
		limit := quota
		if len(out[m]) <= quota && odd > 0 {
			limit++
			odd--
		}
		for len(out[m]) < limit && len(rest) > 0 {
			out[m] = append(out[m], rest[0])
			rest = rest[1:]
		}
	}
	return out
}

// uniformly deals the partitions of all topics as one heap.
func (in *assignorInput) uniformly() map[string]assignment {
	topics := in.subscribed[in.members[0]]
	var all []int64 // topic's place << 32 | partition
	place := map[uuid.UUID]int64{}
	for i, t := range topics {
		place[t] = int64(i)
		for p := range in.partitions[t] {
			all = append(all, int64(i)<<32|int64(p))
		}
	}
	shares := share(all, in.members, func(m string) (had []int64) {
		for _, t := range in.previous[m].topics() {
			if i, ok := place[t]; ok {
				for _, p := range in.previous[m][t] {
					had = append(had, i<<32|int64(p))
				}
			}
		}
		return had
	})
	out := map[string]assignment{}
	for _, m := range in.members {
		out[m] = assignment{}
		slices.Sort(shares[m])
		for _, it := range shares[m] {
			t := topics[it>>32]
			out[m][t] = append(out[m][t], int32(it&0xffffffff))
		}
	}
	return out
}

// byRange deals each set of topics that have the same subscribers and as many partitions, at once.
func (in *assignorInput) byRange() map[string]assignment {
	out, subscribers := map[string]assignment{}, map[uuid.UUID][]string{}
	for _, m := range in.members {
		out[m] = assignment{}
		for _, t := range in.subscribed[m] {
			subscribers[t] = append(subscribers[t], m)
		}
	}
	dealt := map[uuid.UUID]bool{}
	order := sortedTopics(subscribers)
	for i, t := range order {
		if dealt[t] {
			continue
		}
		partitions := make([]int32, in.partitions[t])
		for p := range partitions {
			partitions[p] = int32(p)
		}
		shares := share(partitions, subscribers[t], func(m string) []int32 { return in.previous[m][t] })
		for _, like := range order[i:] {
			if dealt[like] || in.partitions[like] != in.partitions[t] || !slices.Equal(subscribers[like], subscribers[t]) {
				continue
			}
			dealt[like] = true
			for m, s := range shares {
				if len(s) > 0 {
					slices.Sort(s)
					out[m][like] = s
				}
			}
		}
	}
	return out
}

// heterogeneously deals when members subscribe to different topics: first what is kept, then what is free to the least loaded
// that may have it, then partitions move from the more to the less loaded until no move helps.
func (in *assignorInput) heterogeneously() map[string]assignment {
	load := map[string]int{}
	owner := map[topicPartition]string{}
	may := map[uuid.UUID][]string{}
	for _, m := range in.members {
		for _, t := range in.subscribed[m] {
			may[t] = append(may[t], m)
		}
	}
	for _, m := range in.members {
		for _, t := range in.previous[m].topics() {
			if !slices.Contains(may[t], m) {
				continue
			}
			for _, p := range in.previous[m][t] {
				tp := topicPartition{t, p}
				if _, taken := owner[tp]; !taken && p < in.partitions[t] {
					owner[tp] = m
					load[m]++
				}
			}
		}
	}
	least := func(members []string) string {
		return slices.MinFunc(members, func(a, b string) int { return cmp.Compare(load[a], load[b]) })
	}
	// Topics that few may have go first: the others can make up for it.
	order := slices.SortedFunc(maps.Keys(may), func(a, b uuid.UUID) int {
		return cmp.Or(cmp.Compare(len(may[a]), len(may[b])), bytes.Compare(a[:], b[:]))
	})
	for _, t := range order {
		for p := range in.partitions[t] {
			if _, taken := owner[topicPartition{t, p}]; !taken {
				m := least(may[t])
				owner[topicPartition{t, p}] = m
				load[m]++
			}
		}
	}
	// Each move lowers the sum of the squares of the loads, so this ends.
	for moved := true; moved; {
		moved = false
		for _, t := range order {
			for p := range in.partitions[t] {
				tp := topicPartition{t, p}
				if to := least(may[t]); load[owner[tp]]-load[to] >= 2 {
					load[owner[tp]]--
					load[to]++
					owner[tp] = to
					moved = true
				}
			}
		}
	}
	out := map[string]assignment{}
	for _, m := range in.members {
		out[m] = assignment{}
	}
	for _, t := range order {
		for p := range in.partitions[t] {
			m := owner[topicPartition{t, p}]
			out[m][t] = append(out[m][t], p)
		}
	}
	return out
}
