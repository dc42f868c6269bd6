//go:build linux

package main

import (
	"cmp"
	"slices"
)

// A claim is what a member says with its JoinGroup: what it owns, as of which generation.
type claim struct {
	member     string
	generation int32
	owned      []int32
}

// sticky is the leader's assignor: it spreads partitions 0 to n-1 evenly, leaves each member what it has as far as that
// allows, and returns what each may own now, in the order of the claims. A partition that is to move from one member to another
// is given to nobody yet: its owner gives it back first, and joins again (KIP-429).
func sticky(claims []claim, n int) [][]int32 {
	const nobody = -1
	owner := slices.Repeat([]int{nobody}, n)
	for i, c := range claims {
		for _, p := range c.owned {
			if o := owner[p]; o == nobody || claims[o].generation < c.generation {
				owner[p] = i
			}
		}
	}
	out := make([][]int32, len(claims))
	var free []int32
	for p, o := range owner {
		if o == nobody {
			free = append(free, int32(p))
		} else {
			out[o] = append(out[o], int32(p))
		}
	}
	// Those who have most keep the odd ones.
	order := make([]int, len(claims))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(len(out[b]), len(out[a])), cmp.Compare(claims[a].member, claims[b].member))
	})
	quota, odd := n/len(claims), n%len(claims)
	limit := make([]int, len(claims))
	for rank, i := range order {
		limit[i] = quota
		if rank < odd {
			limit[i]++
		}
		if len(out[i]) > limit[i] {
			out[i] = out[i][:limit[i]] // the rest is to move
		}
	}
	for _, i := range order {
		for len(out[i]) < limit[i] && len(free) > 0 {
			out[i] = append(out[i], free[0])
			free = free[1:]
		}
	}
	// Whoever has less than its limit now gets what moves next time.
	return out
}
