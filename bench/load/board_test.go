//go:build linux

package main

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestBoard tells a story of two members and two partitions by the second.
func TestBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(2, 2)
		step := func(what string, stable bool, unowned, longest time.Duration) {
			t.Helper()
			if got := b.standing().gaps; b.since().IsZero() == stable || got.sum != unowned*time.Second || got.max != longest*time.Second {
				t.Errorf("%s: stable since %v, unowned %v, longest %v; want stable %v, %d s, %d s", what, b.since(), got.sum, got.max, stable, unowned, longest)
			}
			time.Sleep(time.Second)
		}
		first, second := b.enter(), b.enter()
		step("both have begun to join", false, 0, 0)
		b.hold(first, 1, []int32{0, 1}, true)
		step("one has all", false, 2, 1)
		b.hold(first, 2, []int32{0}, false)
		b.hold(second, 2, nil, true)
		step("the other is in, and one partition is on its way", false, 2, 1)
		b.hold(first, 3, []int32{0}, true)
		step("a new generation, which the other is not in yet", false, 2, 1)
		b.hold(second, 3, []int32{1}, true)
		step("the other has got it", true, 4, 2)

		since := b.since()
		b.hold(first, 3, []int32{0}, true)
		if !b.since().Equal(since) {
			t.Error("the group counts as stable from a heartbeat that changed nothing")
		}
		b.leave(second)
		step("the other has left", false, 4, 2)
		b.hold(first, 4, []int32{0, 1}, true)
		step("one has all, and one member is missing", false, 5, 2)
		third := b.enter()
		b.hold(third, 5, nil, true)
		b.hold(first, 5, []int32{0, 1}, true)
		step("all are in the generation, and one has nothing", false, 5, 2)
		if n := b.standing().doubles; n != 0 {
			t.Errorf("%d partitions had two owners, want none", n)
		}
		b.hold(third, 5, []int32{1}, true)
		if n := b.standing().doubles; n != 1 {
			t.Errorf("%d partitions had two owners, want 1", n)
		}
	})
}
