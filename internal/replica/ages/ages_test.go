package ages

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestAccuracy: whatever comes when, an age is off by at most a second up to a minute, and by at most 5 % beyond; the last
// minute is always there; and what is not known any more is older than what is said of it.
func TestAccuracy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Ring
		var now time.Duration
		start := rapid.Int64Range(0, 1000).Draw(t, "start")
		r.Begin(start, now)
		appended := []time.Duration{} // of the offsets from start on
		end := func() int64 { return start + int64(len(appended)) }
		check := func(offset int64) {
			age, known := r.Age(offset, now)
			want := now - appended[offset-start]
			tolerated := time.Second
			if want > time.Minute {
				tolerated = want/20 + time.Microsecond // of a floating-point number
			}
			switch off := (age - want).Abs(); {
			case known && off > tolerated:
				t.Fatalf("at %v offset %d is said to be %v old; it is %v", now, offset, age, want)
			case !known && age > want:
				t.Fatalf("at %v offset %d is said to be more than %v old; it is %v", now, offset, age, want)
			case !known && want <= time.Minute:
				t.Fatalf("at %v it is forgotten that offset %d is %v old", now, offset, want)
			}
			if len(r.points) > capacity || cap(r.points) > capacity {
				t.Fatalf("%d points in room for %d", len(r.points), cap(r.points))
			}
		}
		for range rapid.IntRange(1, 12).Draw(t, "phases") {
			pause := time.Duration(rapid.Int64Range(1, int64(20*time.Second)).Draw(t, "pause"))
			if rapid.Bool().Draw(t, "busy") {
				pause = max(pause/1000, 1)
			}
			for range rapid.IntRange(1, 1500).Draw(t, "appends") {
				now += pause
				for range rapid.IntRange(1, 3).Draw(t, "records") {
					appended = append(appended, now)
				}
				r.Append(end(), now)
			}
			if rapid.IntRange(0, 4).Draw(t, "cut") == 0 {
				n := rapid.IntRange(0, min(len(appended), 5)).Draw(t, "lost")
				appended = appended[:len(appended)-n]
				r.Truncate(end())
			}
			now += time.Duration(rapid.Int64Range(0, int64(3*time.Hour)).Draw(t, "idle"))
			for offset := start; offset < end(); offset += 1 + (end()-start)/200 {
				check(offset)
			}
		}
	})
}

// TestReach: with an append every tenth of a second, ages of nine hours are known; what was before Begin never is.
func TestReach(t *testing.T) {
	var r Ring
	r.Begin(100, 0)
	const every, n = 100 * time.Millisecond, 24 * 36_000
	least := 24 * time.Hour // that it has reached back at any time, once it could
	for i := range int64(n) {
		now := time.Duration(i) * every
		r.Append(101+i, now)
		if now > 12*time.Hour && i%100 == 0 {
			least = min(least, now-r.points[0].first)
		}
	}
	t.Logf("at least the last %v are known", least)
	if least < 9*time.Hour {
		t.Errorf("only the last %v were known at times", least)
	}
	now := time.Duration(n) * every
	for _, want := range []time.Duration{0, 30 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 9 * time.Hour} {
		age, known := r.Age(100+n-1-int64(want/every), now)
		tolerated := time.Second
		if want > time.Minute {
			tolerated = want / 20
		}
		if off := (age - want - every).Abs(); !known || off > tolerated {
			t.Errorf("a record of %v is said to be %v old, known: %v", want, age, known)
		}
	}
	if age, known := r.Age(99, now); known || age > 24*time.Hour {
		t.Errorf("a record from before is known to be %v old", age)
	}
	if age, known := r.Age(100+n, now); known || age != 0 {
		t.Errorf("a record that is yet to come is %v old", age)
	}
}

// TestPointsNeeded counts the points that it takes to tell ages as exactly, if each is chosen as well as can be when the age is asked
// for: each stands for all ages that it may, from the last one's largest on. No ring can do with fewer.
func TestPointsNeeded(t *testing.T) {
	needed := func(reach time.Duration) (points int) {
		for from := time.Duration(0); from < reach; points++ {
			from += allowed(from)
		}
		return points
	}
	for reach, want := range map[time.Duration]int{time.Minute: 30, 30 * time.Minute: 64, time.Hour: 71, 12 * time.Hour: 96} {
		if got := needed(reach); got != want {
			t.Errorf("%v take %d points, want %d", reach, got, want)
		}
	}
	if n := needed(12 * time.Hour); n > capacity {
		t.Errorf("half a day takes %d points, and there are %d", n, capacity)
	}
}

// TestLate: appends that are told of in another order than they happened in are no older than the pause before them.
func TestLate(t *testing.T) {
	var r Ring
	r.Begin(0, 0)
	r.Append(1, time.Second)
	r.Append(8, 100*time.Second) // of which 5, 6 and 7 are told of late
	r.Append(5, 100*time.Second)
	if age, known := r.Age(3, 101*time.Second); !known || age != time.Second {
		t.Errorf("%v, %v; want 1s", age, known)
	}
}

func TestAppendDoesNotAllocate(t *testing.T) {
	var r Ring
	r.Begin(0, 0)
	var end int64
	now := func() time.Duration { return time.Duration(end) * 400 * time.Millisecond }
	step := func() { end++; r.Append(end, now()) }
	for range 4 * capacity {
		step()
	}
	if n := testing.AllocsPerRun(1000, step); n != 0 {
		t.Errorf("%v allocations an append", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	var r Ring
	r.Begin(0, 0)
	for i := range int64(b.N) {
		r.Append(i+1, time.Duration(i)*10*time.Microsecond)
	}
}
