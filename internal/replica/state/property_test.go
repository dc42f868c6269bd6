package state

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestHighWatermark steps a leader at random, with a model of what the followers really hold, and checks what the package
// comment promises after each step.
func TestHighWatermark(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := []int32{1, 2, 3}
		var fenced []int32
		env := Env{Now: 100_000, LagMax: 1000, MinISR: rapid.IntRange(1, 3).Draw(t, "min.insync.replicas")}
		env.Eligible = func(id int32, epoch int64) bool { return !slices.Contains(fenced, id) }
		p := New(1, 0, 0)
		reg := Registration{Replicas: replicas, ISR: replicas, Leader: 1, LeaderEpoch: 0, PartitionEpoch: 0}
		p.Become(reg, 0, 0, &env)
		held := map[int32]int64{1: 0, 2: 0, 3: 0}
		var proposed *Proposal
		leo, hw := int64(0), int64(0)
		follower := rapid.SampledFrom([]int32{2, 3})

		check := func(*rapid.T) {
			now := p.HighWatermark()
			if now < hw {
				t.Fatalf("the high watermark went back from %d to %d", hw, now)
			}
			if now > hw && len(reg.ISR) < min(env.MinISR, len(replicas)) {
				t.Fatalf("the high watermark moved to %d with ISR %v", now, reg.ISR)
			}
			hw = now
			isr := reg.ISR
			if q := p.Proposed(); q != nil {
				isr = append(slices.Clone(isr), q.ISR...)
			}
			for _, id := range isr {
				if held[id] < hw {
					t.Fatalf("replica %d of the maximal ISR ends at %d, the high watermark is %d", id, held[id], hw)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": check,
			"append": func(t *rapid.T) {
				leo += rapid.Int64Range(1, 5).Draw(t, "records")
				held[1] = leo
				p.Appended(leo, &env)
			},
			"fetch": func(t *rapid.T) {
				id := follower.Draw(t, "follower")
				_, join, err := p.Fetched(Fetch{Replica: id, Offset: held[id], BrokerEpoch: -1}, leo, &env)
				if err != nil {
					t.Fatal(err)
				}
				if join != nil {
					proposed = join
				}
				held[id] += rapid.Int64Range(0, leo-held[id]).Draw(t, "received") // known at the next fetch
			},
			"time":  func(t *rapid.T) { env.Now += rapid.Int64Range(0, 1500).Draw(t, "ms") },
			"fence": func(t *rapid.T) { fenced = []int32{follower.Draw(t, "follower")} },
			"heal":  func(t *rapid.T) { fenced = nil },
			"shrink": func(t *rapid.T) {
				if s := p.Shrink(&env); s != nil {
					proposed = s
				}
			},
			"answer": func(t *rapid.T) {
				if proposed == nil || proposed != p.Proposed() {
					return // nothing is in flight
				}
				if rapid.Bool().Draw(t, "refused") {
					p.Refused(proposed)
					return
				}
				reg.ISR, reg.PartitionEpoch = proposed.ISR, reg.PartitionEpoch+1
				if rapid.Bool().Draw(t, "by the metadata log") {
					p.Become(reg, leo, leo, &env)
				} else {
					p.Committed(reg, &env)
				}
			},
			"epoch": func(t *rapid.T) {
				reg.LeaderEpoch++
				reg.PartitionEpoch++
				p.Become(reg, leo, leo, &env)
			},
			"recheck": func(t *rapid.T) { p.Recheck(&env) },
		})
	})
}
