package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"ottla/internal/protocol/records"
	"ottla/internal/record"
	"ottla/internal/vfs"
)

func (f *fixture) hasAge(p *Partition, offset int64, want Age) {
	f.t.Helper()
	got, err := p.Age(offset, true)
	f.ok(err)
	if got != want {
		f.t.Errorf("the oldest record from %d on has age %+v, want %+v", offset, got, want)
	}
}

func TestAgeOfWhatIsUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		f := newFixture(t, fsys, nil, "/d")
		p := f.lead([]int32{1}, []int32{1})
		f.hasAge(p, 0, Age{Known: true})
		written := time.Now()
		b, h := batch(written.UnixMilli()-86_400_000, "its timestamp is a day too old")
		_, err := p.Append(b, h, AppendOptions{LeaderEpoch: -1, Acks: -1})
		f.ok(err)
		time.Sleep(10 * time.Second)
		f.append(p, "b", "c")
		time.Sleep(3 * time.Second)
		f.hasAge(p, 0, Age{Duration: 13 * time.Second, Known: true})
		f.hasAge(p, 2, Age{Duration: 3 * time.Second, Known: true})
		f.hasAge(p, 3, Age{Known: true})
		_, _, err = p.DeleteRecords(1)
		f.ok(err)
		f.hasAge(p, 0, Age{Duration: 3 * time.Second, Known: true})

		// A broker that starts knows only what the batches say.
		f.close(true)
		f = newFixture(t, fsys, nil, "/d")
		p = f.lead([]int32{1}, []int32{1})
		f.hasAge(p, 1, Age{Duration: time.Since(time.UnixMilli(1001)), Known: true, Estimated: true})
		f.append(p, "d")
		time.Sleep(time.Second)
		f.hasAge(p, 3, Age{Duration: time.Second, Known: true})
		f.close(false)
	})
}

// TestAgeAtFollower: a follower in sync remembers appends for the day that it leads; one that catches up does not know when the
// leader got what it fetches.
func TestAgeAtFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, vfs.NewMem(), nil, "/d")
		f.apply(topic(topicA, "a"), partition(topicA, 2, 0, []int32{1, 2}, []int32{1, 2}))
		p := f.ready(topicA)
		send := func(base, leaderHW int64) {
			b, _ := batch(time.Now().UnixMilli()-60_000, "x")
			record.SetBaseOffset(b, base)
			record.SetLeaderEpoch(b, 0)
			f.ok(p.AppendAsFollower(0, b, leaderHW, 0))
		}
		send(0, 5) // four behind
		time.Sleep(time.Second)
		send(1, 2)
		time.Sleep(time.Second)
		f.ok(p.AppendAsFollower(0, nil, 2, 0))
		f.hasAge(p, 0, Age{Duration: 62 * time.Second, Known: true, Estimated: true})
		f.hasAge(p, 1, Age{Duration: time.Second, Known: true})
		f.apply(change(topicA, func(r *records.PartitionChangeRecord) { r.Leader, r.ISR = 1, []int32{1} }))
		p = f.ready(topicA)
		f.hasAge(p, 1, Age{Duration: time.Second, Known: true})
		f.close(false)
	})
}
