package group

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ottla/internal/uuid"
)

// assignedTopic is the topic of a number.
func assignedTopic(i int) uuid.UUID { return uuid.UUID{0: 't', 15: byte(i)} }

// drawAssignorInput draws members, of whom each partition had so many at most: more than one only if a log is broken.
func drawAssignorInput(t *rapid.T, homogeneous bool, owners int) *assignorInput {
	in := &assignorInput{topics: map[uuid.UUID]int32{}}
	topics := rapid.IntRange(0, 4).Draw(t, "topics")
	var all []uuid.UUID
	for i := range topics {
		id := assignedTopic(i)
		in.topics[id] = rapid.Int32Range(1, 8).Draw(t, "partitions")
		all = append(all, id)
	}
	racks := rapid.IntRange(0, 3).Draw(t, "racks")
	where := map[topicPartition][]string{}
	if racks > 0 {
		for id, n := range in.topics {
			for p := range n {
				for range rapid.IntRange(0, 2).Draw(t, "replicas") {
					where[topicPartition{id, p}] = append(where[topicPartition{id, p}], fmt.Sprint("r", rapid.IntRange(1, racks).Draw(t, "rack")))
				}
			}
		}
		in.racks = func(topic uuid.UUID, p int32) []string { return slices.Clone(where[topicPartition{topic, p}]) }
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "members") {
		one := assignee{id: fmt.Sprint("m", i), topics: all}
		if racks > 0 && rapid.IntRange(0, 4).Draw(t, "has a rack") > 0 {
			one.rack = fmt.Sprint("r", rapid.IntRange(1, racks).Draw(t, "rack"))
		}
		if !homogeneous {
			one.topics = slices.DeleteFunc(slices.Clone(all), func(uuid.UUID) bool { return rapid.IntRange(0, 2).Draw(t, "left out") == 0 })
		}
		in.members = append(in.members, one)
	}
	// What members had may be of topics that they do not subscribe to any more, and of partitions that are gone.
	for i := range in.members {
		in.members[i].previous = assignment{}
	}
	for id, n := range in.topics {
		for p := range n + 1 {
			for range rapid.IntRange(0, owners).Draw(t, "owners") {
				a := in.members[rapid.IntRange(0, len(in.members)-1).Draw(t, "owner")].previous
				if !a.has(id, p) {
					a[id] = append(a[id], p)
				}
			}
		}
	}
	return in
}

// checkComplete: each partition that somebody subscribes to has one owner, who subscribes to it, and no other has any.
func checkComplete(t *rapid.T, in *assignorInput, out []assignment) {
	want, got := map[topicPartition]bool{}, map[topicPartition]bool{}
	for i := range in.members {
		for _, id := range in.members[i].topics {
			for p := range in.topics[id] {
				want[topicPartition{id, p}] = true
			}
		}
		for id, partitions := range out[i] {
			if len(partitions) == 0 || !slices.IsSorted(partitions) || !slices.Contains(in.members[i].topics, id) {
				t.Fatalf("member %d gets %v of %x", i, partitions, id)
			}
			for _, p := range partitions {
				if got[topicPartition{id, p}] {
					t.Fatalf("%x-%d is given twice", id, p)
				}
				got[topicPartition{id, p}] = true
			}
		}
	}
	if !maps.Equal(want, got) {
		t.Fatalf("given %v, want %v", got, want)
	}
}

// checkSettledAssignment: who has what an assignor gave keeps it.
func checkSettledAssignment(t *rapid.T, in *assignorInput, name string, out []assignment) {
	again := *in
	again.members = slices.Clone(in.members)
	for i := range again.members {
		again.members[i].previous = out[i]
	}
	for i, a := range again.assign(name) {
		if !a.equal(out[i]) {
			t.Fatalf("member %d had %v and is given %v although nothing changed", i, out[i], a)
		}
	}
}

func (a assignment) size() (n int) {
	for _, p := range a {
		n += len(p)
	}
	return n
}

// checkKept: nobody gives up anything while it is given something of another's, and nobody below its share gives up anything.
func checkKept(t *rapid.T, in *assignorInput, out []assignment) {
	total := 0
	for _, n := range in.topics {
		total += int(n)
	}
	low, odd := total/len(in.members), total%len(in.members)
	high := low
	if odd > 0 {
		high++
	}
	had := map[topicPartition]int{}
	for i := range in.members {
		for id, partitions := range in.members[i].previous {
			for _, p := range partitions {
				if p < in.topics[id] {
					had[topicPartition{id, p}] = i
				}
			}
		}
	}
	full := 0
	for i := range in.members {
		if n := out[i].size(); n < low || n > high {
			t.Fatalf("member %d gets %d partitions, want %d to %d", i, n, low, high)
		} else if n > low {
			full++
		}
	}
	if full != odd {
		t.Fatalf("%d members have an odd partition, want %d", full, odd)
	}
	for tp, i := range had {
		if out[i].has(tp.topic, tp.partition) {
			continue
		}
		for id, partitions := range out[i] {
			for _, p := range partitions {
				if owner, ok := had[topicPartition{id, p}]; !ok || owner != i {
					t.Fatalf("member %d gives up %x-%d and gets %x-%d", i, tp.topic, tp.partition, id, p)
				}
			}
		}
	}
}

func TestUniformAssignor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawAssignorInput(t, true, 1)
		out := in.assign(uniformAssignor)
		checkComplete(t, in, out)
		checkKept(t, in, out)
		checkSettledAssignment(t, in, uniformAssignor, out)
	})
}

func TestHeterogeneousAssignor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawAssignorInput(t, false, 2)
		out := in.assign(uniformAssignor)
		checkComplete(t, in, out)
		checkSettledAssignment(t, in, uniformAssignor, out)
		for i := range out { // no move makes it better
			for id := range out[i] {
				for j := range out {
					if slices.Contains(in.members[j].topics, id) && out[i].size()-out[j].size() > 1 {
						t.Fatalf("member %d has %d partitions, one of a topic that member %d with %d subscribes to", i, out[i].size(), j, out[j].size())
					}
				}
			}
		}
	})
}

// TestRangeAssignor: each topic is balanced, and topics with the same subscribers and as many partitions are given alike.
func TestRangeAssignor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawAssignorInput(t, rapid.Bool().Draw(t, "homogeneous"), 2)
		out := in.assign(rangeAssignor)
		checkComplete(t, in, out)
		checkSettledAssignment(t, in, rangeAssignor, out)
		subscribers := in.subscribers()
		for id, who := range subscribers {
			low := int(in.topics[id]) / len(who)
			for _, i := range who {
				if n := len(out[i][id]); n != low && n != low+1 {
					t.Fatalf("member %d of %d gets %d of %d partitions", i, len(who), n, in.topics[id])
				}
				for other := range subscribers {
					if in.topics[id] == in.topics[other] && slices.Equal(who, subscribers[other]) && !slices.Equal(out[i][id], out[i][other]) {
						t.Fatalf("member %d gets %v and %v of two topics alike", i, out[i][id], out[i][other])
					}
				}
			}
		}
	})
}

// TestRangeAssignorIsSticky: a third member takes from the others what it needs, and nothing moves between them; a topic that is new
// is given as those alike are.
func TestRangeAssignorIsSticky(t *testing.T) {
	in := &assignorInput{topics: map[uuid.UUID]int32{assignedTopic(2): 6}}
	for i, had := range [][]int32{{0, 1, 2}, {3, 4, 5}, nil} {
		one := assignee{id: fmt.Sprint(i), topics: []uuid.UUID{assignedTopic(2)}, previous: assignment{}}
		if had != nil {
			one.previous[assignedTopic(2)] = had
		}
		in.members = append(in.members, one)
	}
	out := in.assign(rangeAssignor)
	if got, want := fmt.Sprint(out[0][assignedTopic(2)], out[1][assignedTopic(2)], out[2][assignedTopic(2)]), "[0 1] [3 4] [2 5]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	in.topics[assignedTopic(1)] = 6
	for i := range in.members {
		in.members[i].topics, in.members[i].previous = []uuid.UUID{assignedTopic(1), assignedTopic(2)}, out[i]
	}
	for i, a := range in.assign(rangeAssignor) {
		if !slices.Equal(a[assignedTopic(1)], out[i][assignedTopic(2)]) || !slices.Equal(a[assignedTopic(2)], out[i][assignedTopic(2)]) {
			t.Errorf("member %d has %v and is given %v", i, out[i], a)
		}
	}
}

// TestRacks: who comes to a group gets what is in its rack, from whom it is far, under each assignor.
func TestRacks(t *testing.T) {
	topic, other := assignedTopic(1), assignedTopic(2)
	in := &assignorInput{topics: map[uuid.UUID]int32{topic: 6}, racks: func(_ uuid.UUID, p int32) []string {
		return []string{"b", "a"}[p%2:][:1] // odd ones are in a
	}}
	both := []uuid.UUID{topic}
	in.members = []assignee{{id: "1", rack: "a", topics: both, previous: assignment{topic: {0, 1, 2, 3, 4, 5}}}, {id: "2", rack: "b", topics: both}}
	for _, name := range []string{uniformAssignor, rangeAssignor} {
		out := in.assign(name)
		if got := fmt.Sprint(out[0][topic], out[1][topic]); got != "[1 3 5] [0 2 4]" {
			t.Errorf("%s: a has, b gets %s", name, got)
		}
	}
	in.members[0].previous = nil // at the beginning
	for _, name := range []string{uniformAssignor, rangeAssignor} {
		out := in.assign(name)
		if got := fmt.Sprint(out[0][topic], out[1][topic]); got != "[1 3 5] [0 2 4]" {
			t.Errorf("%s: a and b get %s", name, got)
		}
	}
	in.topics[other] = 1
	in.members[0].previous, in.members[1].topics = assignment{topic: {0, 1, 2, 3, 4, 5}}, []uuid.UUID{topic, other}
	if out := in.assign(uniformAssignor); fmt.Sprint(out[0][topic], out[1][topic], out[1][other]) != "[1 3 4 5] [0 2] [0]" {
		t.Errorf("heterogeneous: %v", out)
	}
}

// A group as large as any: 500 members, 3,000 partitions.
func largeInput(homogeneous bool) *assignorInput {
	in := &assignorInput{topics: map[uuid.UUID]int32{}}
	var all []uuid.UUID
	for i := range 30 {
		in.topics[assignedTopic(i)] = 100
		all = append(all, assignedTopic(i))
	}
	for i := range 500 {
		one := assignee{id: fmt.Sprint(i), topics: all}
		if !homogeneous {
			one.topics = all[i%10:]
		}
		in.members = append(in.members, one)
	}
	return in
}

func BenchmarkAssign(b *testing.B) {
	for _, homogeneous := range []bool{true, false} {
		for _, name := range []string{uniformAssignor, rangeAssignor} {
			b.Run(fmt.Sprintf("%s/homogeneous=%v", name, homogeneous), func(b *testing.B) {
				in := largeInput(homogeneous)
				for i, a := range in.assign(name) {
					in.members[i].previous = a
				}
				in.members = in.members[1:]
				for b.Loop() {
					in.assign(name)
				}
			})
		}
	}
}
