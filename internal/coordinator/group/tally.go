package group

import (
	"maps"
	"slices"
)

// A tally counts what the members of a consumer group say, so that a heartbeat need not look at all of them. No count is 0.
type tally struct {
	topics    map[string]int // members that subscribe by this name
	regexes   map[string]int // members that subscribe by this expression
	assignors map[string]int // members that prefer it
	classic   int            // members that speak the classic protocol
	protocols map[string]int // of which those that support it
}

func newTally() tally {
	return tally{topics: map[string]int{}, regexes: map[string]int{}, assignors: map[string]int{}, protocols: map[string]int{}}
}

// add counts a member n times; -1 takes it out again.
func (t *tally) add(mem *consumerMember, n int) {
	for _, name := range mem.topics {
		count(t.topics, name, n)
	}
	if mem.regex != "" {
		count(t.regexes, mem.regex, n)
	}
	if mem.assignor != nil {
		count(t.assignors, *mem.assignor, n)
	}
	if mem.classic == nil {
		return
	}
	t.classic += n
	for i := range mem.classic.protocols {
		count(t.protocols, mem.classic.protocols[i].Name, n)
	}
}

// count adds n to one of some counts, and drops it when it is 0.
func count(counts map[string]int, key string, n int) {
	if counts[key] += n; counts[key] == 0 {
		delete(counts, key)
	}
}

// assignor returns the one that most members prefer, of several the first by name; empty if none prefers any.
func (t *tally) assignor() (best string) {
	for name, n := range t.assignors {
		if most := t.assignors[best]; n > most || n == most && name < best {
			best = name
		}
	}
	return best
}

// topics returns what members subscribe to, by name or by what an expression matches, sorted.
func (g *consumerGroup) topics() []string {
	names := slices.Collect(maps.Keys(g.tally.topics))
	for re := range g.tally.regexes {
		if r := g.regexes[re]; r != nil {
			names = append(names, r.topics...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// isSubscribed reports whether a member reads a topic.
func (g *consumerGroup) isSubscribed(topic string) bool {
	if g.tally.topics[topic] > 0 {
		return true
	}
	for re := range g.tally.regexes {
		if r := g.regexes[re]; r != nil {
			if _, ok := slices.BinarySearch(r.topics, topic); ok {
				return true
			}
		}
	}
	return false
}
