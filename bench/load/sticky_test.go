//go:build linux

package main

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestSticky(t *testing.T) {
	for name, tc := range map[string]struct {
		claims []claim
		n      int
		want   [][]int32
	}{
		"nobody owns anything": {[]claim{{member: "a"}, {member: "b"}}, 5, [][]int32{{0, 1, 2}, {3, 4}}},
		"what is free goes to who has less": {
			[]claim{{member: "a", generation: 3, owned: []int32{0, 1}}, {member: "b", generation: 3}}, 4, [][]int32{{0, 1}, {2, 3}}},
		"what moves is given back first": {
			[]claim{{member: "a", generation: 3, owned: []int32{0, 1, 2, 3}}, {member: "b"}}, 4, [][]int32{{0, 1}, nil}},
		"the newer generation is right": {
			[]claim{{member: "a", generation: 2, owned: []int32{0, 1}}, {member: "b", generation: 3, owned: []int32{1}}}, 2, [][]int32{{0}, {1}}},
		"more members than partitions": {[]claim{{member: "a"}, {member: "b", generation: 1, owned: []int32{0}}}, 1, [][]int32{nil, {0}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sticky(tc.claims, tc.n); !slices.EqualFunc(got, tc.want, slices.Equal) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestStickySettles: whatever members come and go, the second generation after it is even and complete, no
// partition ever goes to a member while another has it, and no more of them move than balance asks for.
func TestStickySettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "partitions")
		var claims []claim
		next := 0
		for generation := range int32(rapid.IntRange(1, 6).Draw(t, "changes")) {
			claims = slices.DeleteFunc(claims, func(c claim) bool { return rapid.Bool().Draw(t, "leaves "+c.member) })
			for range rapid.IntRange(0, 5).Draw(t, "join") {
				claims = append(claims, claim{member: fmt.Sprintf("m%03d", next), generation: -1})
				next++
			}
			if len(claims) == 0 {
				continue
			}
			for range 2 {
				owner := map[int32]int{}
				for i, c := range claims {
					for _, p := range c.owned {
						owner[p] = i
					}
				}
				for i, given := range sticky(claims, n) {
					kept := 0
					for _, p := range given {
						o, had := owner[p]
						if had && o != i {
							t.Fatalf("partition %d goes to %s while %s has it", p, claims[i].member, claims[o].member)
						}
						if had {
							kept++
						}
					}
					if least := min(len(claims[i].owned), n/len(claims)); kept < least {
						t.Fatalf("%s keeps %d partitions, and could have kept %d", claims[i].member, kept, least)
					}
					claims[i].owned, claims[i].generation = given, generation
				}
			}
			seen := map[int32]bool{}
			least, most := n, 0
			for _, c := range claims {
				least, most = min(least, len(c.owned)), max(most, len(c.owned))
				for _, p := range c.owned {
					seen[p] = true
				}
			}
			if len(seen) != n || most-least > 1 {
				t.Fatalf("%d of %d partitions are dealt, between %d and %d a member", len(seen), n, least, most)
			}
		}
	})
}
