package group

// A Status is what metrics tell of a group.
type Status struct {
	Group   string
	State   string // as ListGroups prints it
	Members int
	// Rebalances goes up by one with each: it is the generation of a classic group and the epoch of a consumer group, which outlive
	// the coordinator.
	Rebalances int32
	// Offsets are those committed, by topic and partition: of the first record that is yet to be read.
	Offsets map[string]map[int32]int64
}

// Survey tells of all groups, by id.
func (m *Machine) Survey() []Status {
	out := make([]Status, 0, len(m.groups))
	for _, g := range m.sorted() {
		s := Status{Group: g.id, State: g.stateName(), Offsets: map[string]map[int32]int64{}}
		if g.classic != nil {
			s.Members, s.Rebalances = len(g.classic.members), g.classic.generation
		} else {
			s.Members, s.Rebalances = len(g.consumer.members), g.consumer.epoch
		}
		for topic, partitions := range m.offsets.committed[g.id] {
			s.Offsets[topic] = make(map[int32]int64, len(partitions))
			for p, o := range partitions {
				s.Offsets[topic][p] = o.offset
			}
		}
		out = append(out, s)
	}
	return out
}
