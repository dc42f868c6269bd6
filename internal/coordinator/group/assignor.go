package group

import (
	"cmp"
	"maps"
	"slices"

	"ottla/internal/uuid"
)

// The server-side assignors. Of both, balance comes first, then that a member keeps what it has, then that it reads from a broker
// in its own rack: what is to be given up is first what is elsewhere, and what is free goes first to who is near. (Apache 4.4's
// uniform assignor knows nothing of racks, and its range assignor neither of racks nor of what members have: with every new member
// it moves partitions about that could have stayed.)
const (
	uniformAssignor = "uniform" // spreads all partitions over the members
	rangeAssignor   = "range"   // topic by topic, the same partitions of topics alike to the same member
)

// An assignorInput is what an assignor works on.
type assignorInput struct {
	members []assignee          // in an order that later calls repeat
	topics  map[uuid.UUID]int32 // partitions of each topic that somebody subscribes to
	// racks returns those where a replica of a partition is; nil if no member has a rack.
	racks func(topic uuid.UUID, partition int32) []string
}

// An assignee is a member as an assignor sees it.
type assignee struct {
	id       string
	rack     string      // empty: none
	topics   []uuid.UUID // that it subscribes to and that are there, sorted
	previous assignment
}

// assign computes a target for each of the members, in their order.
func (in *assignorInput) assign(name string) []assignment {
	switch {
	case len(in.members) == 0:
		return nil
	case name == rangeAssignor:
		return in.byRange()
	case in.homogeneous():
		return in.uniformly()
	}
	return in.heterogeneously()
}

// homogeneous reports whether all members subscribe to the same topics.
func (in *assignorInput) homogeneous() bool {
	for i := range in.members[1:] {
		if !slices.Equal(in.members[i+1].topics, in.members[0].topics) {
			return false
		}
	}
	return true
}

func (in *assignorInput) empty() []assignment {
	out := make([]assignment, len(in.members))
	for i := range out {
		out[i] = assignment{}
	}
	return out
}

// A share is what is to be dealt out: items 0 to n-1, to members so that none has two more than another.
type share struct {
	n       int
	members int
	rack    func(member int) string
	before  func(member int) []int  // items that a member had, in order; others may have had them as well
	racks   func(item int) []string // where an item is; nil: it does not matter
}

// near reports whether an item is in a member's rack.
func (s *share) near(item, member int) bool {
	rack := s.rack(member)
	return rack != "" && slices.Contains(s.racks(item), rack)
}

// deal returns each member's items, sorted. A member keeps what it had up to its share; the first that had more keep the
// odd ones.
func (s *share) deal() [][]int {
	quota, odd := s.n/s.members, s.n%s.members
	free := make([]bool, s.n)
	for i := range free {
		free[i] = true
	}
	out := make([][]int, s.members)
	for m := range out {
		kept := slices.DeleteFunc(slices.Clone(s.before(m)), func(it int) bool { return !free[it] })
		limit := quota
		if len(kept) > quota && odd > 0 {
			limit++
			odd--
		}
		if len(kept) > limit {
			if s.racks != nil {
				slices.SortStableFunc(kept, func(a, b int) int { return nearFirst(s.near(a, m), s.near(b, m)) })
			}
			kept = kept[:limit]
		}
		for _, it := range kept {
			free[it] = false
		}
		out[m] = kept
	}
	room := make([]int, s.members)
	for m := range out {
		room[m] = max(quota-len(out[m]), 0)
		if len(out[m]) <= quota && odd > 0 {
			room[m]++
			odd--
		}
	}
	rest := make([]int, 0, s.n)
	for it, is := range free {
		if is {
			rest = append(rest, it)
		}
	}
	if s.racks != nil {
		rest = s.dealNear(rest, out, room)
	}
	for m := range out {
		n := min(room[m], len(rest))
		out[m], rest = append(out[m], rest[:n]...), rest[n:]
		slices.Sort(out[m])
	}
	return out
}

func nearFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// dealNear gives free items to members with room in a rack where they are, and returns those that are left. Items that few
// racks can take go first, each to the rack with the most room.
func (s *share) dealNear(free []int, out [][]int, room []int) []int {
	members := map[string][]int{} // by rack, of those with room
	space := map[string]int{}
	for m := range out {
		if rack := s.rack(m); rack != "" && room[m] > 0 {
			members[rack] = append(members[rack], m)
			space[rack] += room[m]
		}
	}
	racks := make(map[int][]string, len(free))
	for _, it := range free {
		for _, rack := range s.racks(it) {
			if len(members[rack]) > 0 && !slices.Contains(racks[it], rack) {
				racks[it] = append(racks[it], rack)
			}
		}
	}
	choosy := slices.Clone(free)
	slices.SortStableFunc(choosy, func(a, b int) int { return cmp.Compare(len(racks[a]), len(racks[b])) })
	var left []int
	for _, it := range choosy {
		rack := ""
		for _, r := range racks[it] {
			if space[r] > space[rack] || space[r] == space[rack] && space[r] > 0 && r < rack {
				rack = r
			}
		}
		if rack == "" {
			left = append(left, it)
			continue
		}
		m := members[rack][0]
		out[m] = append(out[m], it)
		space[rack]--
		if room[m]--; room[m] == 0 {
			members[rack] = members[rack][1:]
		}
	}
	slices.Sort(left)
	return left
}

// uniformly deals the partitions of all topics as one heap. Source: UniformHomogeneousAssignmentBuilder.
func (in *assignorInput) uniformly() []assignment {
	topics := in.members[0].topics
	first := make([]int, len(topics)+1) // item of each topic's partition 0
	place := make(map[uuid.UUID]int, len(topics))
	for i, t := range topics {
		place[t], first[i+1] = i, first[i]+int(in.topics[t])
	}
	topicOf := func(item int) int { // the last one that begins at or before the item: topics without partitions are passed over
		i, _ := slices.BinarySearch(first, item+1)
		return i - 1
	}
	s := share{n: first[len(topics)], members: len(in.members), rack: func(m int) string { return in.members[m].rack }}
	s.before = func(m int) (had []int) {
		for _, t := range in.members[m].previous.topics() {
			i, ok := place[t]
			for _, p := range in.members[m].previous[t] {
				if ok && p < in.topics[t] {
					had = append(had, first[i]+int(p))
				}
			}
		}
		return had
	}
	if in.racks != nil {
		s.racks = func(item int) []string {
			i := topicOf(item)
			return in.racks(topics[i], int32(item-first[i]))
		}
	}
	out := in.empty()
	for m, items := range s.deal() {
		for _, it := range items {
			i := topicOf(it)
			out[m][topics[i]] = append(out[m][topics[i]], int32(it-first[i]))
		}
	}
	return out
}

// byRange deals each set of topics that have the same subscribers and as many partitions at once, so that they can be joined. Source:
// RangeAssignor.
func (in *assignorInput) byRange() []assignment {
	out, subscribers := in.empty(), in.subscribers()
	order := sortedTopics(subscribers)
	dealt := map[uuid.UUID]bool{}
	for i, t := range order {
		if dealt[t] {
			continue
		}
		alike := []uuid.UUID{t}
		for _, o := range order[i+1:] {
			if !dealt[o] && in.topics[o] == in.topics[t] && slices.Equal(subscribers[o], subscribers[t]) {
				alike = append(alike, o)
				dealt[o] = true
			}
		}
		for j, items := range in.dealAlike(alike, subscribers[t]) {
			if len(items) == 0 {
				continue
			}
			partitions := make([]int32, len(items))
			for k, p := range items {
				partitions[k] = int32(p)
			}
			for _, o := range alike {
				out[subscribers[t][j]][o] = partitions
			}
		}
	}
	return out
}

// subscribers returns the members, by their place, that subscribe to each topic.
func (in *assignorInput) subscribers() map[uuid.UUID][]int {
	out := map[uuid.UUID][]int{}
	for m := range in.members {
		for _, t := range in.members[m].topics {
			out[t] = append(out[t], m)
		}
	}
	return out
}

// dealAlike deals the partitions of topics that are to go together to members. One had a partition if it had it of any of
// the topics, and is near if it is to all of them.
func (in *assignorInput) dealAlike(topics []uuid.UUID, members []int) [][]int {
	s := share{n: int(in.topics[topics[0]]), members: len(members), rack: func(m int) string { return in.members[members[m]].rack }}
	s.before = func(m int) (had []int) {
		for _, t := range topics {
			for _, p := range in.members[members[m]].previous[t] {
				if p < in.topics[t] {
					had = append(had, int(p))
				}
			}
		}
		slices.Sort(had)
		return slices.Compact(had)
	}
	if in.racks != nil {
		s.racks = func(item int) []string {
			racks := in.racks(topics[0], int32(item))
			for _, t := range topics[1:] {
				other := in.racks(t, int32(item))
				racks = slices.DeleteFunc(racks, func(r string) bool { return !slices.Contains(other, r) })
			}
			return racks
		}
	}
	return s.deal()
}

// maxPasses bounds how often heterogeneously looks at all partitions again. Where members subscribe to different, overlapping topics
// each pass roughly halves what is out of balance. Source: UniformHeterogeneousAssignmentBuilder.MAX_ITERATION_COUNT.
const maxPasses = 16

// A partitionOf is a partition with who has it, -1 for nobody.
type partitionOf struct {
	topic     uuid.UUID
	partition int32
	may       []int // who subscribes to its topic
	owner     int
}

// heterogeneously deals when members subscribe to different topics: first what is kept, then what is free to the least loaded
// that may have it, then partitions move from the more to the less loaded until no move helps. Source:
// UniformHeterogeneousAssignmentBuilder.
func (in *assignorInput) heterogeneously() []assignment {
	subscribers := in.subscribers()
	load := make([]int, len(in.members))
	all := in.owned(subscribers, load)
	near := func(p *partitionOf, m int) bool {
		rack := in.members[m].rack
		return in.racks != nil && rack != "" && slices.Contains(in.racks(p.topic, p.partition), rack)
	}
	least := func(p *partitionOf) int {
		best := p.may[0]
		for _, m := range p.may[1:] {
			if load[m] < load[best] || in.racks != nil && load[m] == load[best] && near(p, m) && !near(p, best) {
				best = m
			}
		}
		return best
	}
	for i := range all {
		if p := &all[i]; p.owner < 0 {
			p.owner = least(p)
			load[p.owner]++
		}
	}
	move := func(also bool) (moved bool) { // also what is near its owner
		for i := range all {
			p := &all[i]
			to := least(p)
			if load[p.owner]-load[to] < 2 || !also && near(p, p.owner) {
				continue
			}
			load[p.owner]--
			load[to]++
			p.owner, moved = to, true
		}
		return moved
	}
	for range maxPasses {
		moved := in.racks != nil && move(false)
		if !move(true) && !moved {
			break
		}
	}
	out := in.empty()
	for i := range all {
		p := &all[i]
		out[p.owner][p.topic] = append(out[p.owner][p.topic], p.partition)
	}
	return out
}

// owned lists the partitions of all topics with those members that may keep them, and counts in load how many each has. Topics
// that few may have come first: the others can make up for it.
func (in *assignorInput) owned(subscribers map[uuid.UUID][]int, load []int) []partitionOf {
	order := slices.SortedFunc(maps.Keys(subscribers), func(a, b uuid.UUID) int {
		return cmp.Or(cmp.Compare(len(subscribers[a]), len(subscribers[b])), compareIDs(a, b))
	})
	var all []partitionOf
	for _, t := range order {
		first := len(all)
		for p := range in.topics[t] {
			all = append(all, partitionOf{topic: t, partition: p, may: subscribers[t], owner: -1})
		}
		for _, m := range subscribers[t] {
			for _, p := range in.members[m].previous[t] {
				if p < in.topics[t] && all[first+int(p)].owner < 0 {
					all[first+int(p)].owner = m
					load[m]++
				}
			}
		}
	}
	return all
}
