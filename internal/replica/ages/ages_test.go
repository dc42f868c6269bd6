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
			switch off := (age - want).Abs(); {
			case known && off > max(time.Second, want/20):
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

// TestReach: with an append every tenth of a second, ages up to hours are exact; what was before Begin is never known.
func TestReach(t *testing.T) {
	var r Ring
	r.Begin(100, 0)
	const every, n = 100 * time.Millisecond, 24 * 36_000
	for i := range int64(n) {
		r.Append(101+i, time.Duration(i)*every)
	}
	now := time.Duration(n) * every
	for _, want := range []time.Duration{0, 30 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour} {
		age, known := r.Age(100+n-1-int64(want/every), now)
		if off := (age - want - every).Abs(); !known || off > max(time.Second, want/20) {
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
