// Package ages remembers when the records of a partition were appended, so that a broker can say how old the oldest unread
// record of a consumer is without trusting the timestamps that producers choose. [Ring] is pure: it reads no clock and takes no
// lock. Package replica keeps one for each partition, under the partition's mutex.
//
// What always holds: a Ring never takes more than some 3 KiB, and allocates only while it grows to that; an age that it
// gives is off by no more than a second up to an age of a minute, and by no more than 5 % beyond, however records came.
package ages

import (
	"slices"
	"time"
)

const (
	// second is the shortest time that gets a point of its own, and how far an age may be off up to exact.
	second = time.Second
	exact  = time.Minute
	// tolerance is how far an older one may be off, as a part of it. The moments that one point may stand for are then those whose
	// largest age is no more than spanRatio times the smallest: told is the age that is off from both by the same part of them.
	tolerance = 0.05
	spanRatio = (1 + tolerance) / (1 - tolerance)
	// capacity is the number of points. 30, of two seconds each, tell the last minute. Beyond it a point makes the age told 10.5 %
	// larger at best, so that an hour takes 71 points and half a day 96, whoever chooses them (TestPointsNeeded); 64 end after 30
	// minutes. As neighbours are joined only when both together are old enough, a point makes it some 7 % larger in fact, and 128 tell of
	// nine hours of appends without pause, and of longer with pauses, in which nothing happens that needs a point.
	capacity = 128
	// makeRoom is how many points are free after old ones were forgotten.
	makeRoom = 4
)

// A point says that the records from offset on, up to the next point's, were appended between first and last.
type point struct {
	offset      int64
	first, last time.Duration
}

// A Ring holds the points of one partition. The zero value knows of no record; Begin makes it ready. Times are durations since a
// moment that its user chooses, by a clock that never goes back.
type Ring struct {
	points []point // both offset and times rise
	end    int64   // offsets from here on are yet to come
	since  time.Duration
}

// Begin forgets all and starts with a log that ends at end now: of older records no more is known than that they are older.
func (r *Ring) Begin(end int64, now time.Duration) {
	r.points, r.end, r.since = r.points[:0], end, now
}

// Append says that the log ends at end now. Those records that were not yet told of count as appended now. An end that is not
// beyond the last one changes nothing.
func (r *Ring) Append(end int64, now time.Duration) {
	if end <= r.end {
		return
	}
	if n := len(r.points); n > 0 {
		last := &r.points[n-1]
		now = max(now, last.last)
		if now/second == last.first/second {
			last.last, r.end = now, end
			return
		}
	}
	if len(r.points) == capacity {
		r.compact(now)
	}
	r.points = append(r.points, point{r.end, now, now})
	r.end = end
}

// Truncate says that the log was cut to end.
func (r *Ring) Truncate(end int64) {
	if end >= r.end {
		return
	}
	n, _ := slices.BinarySearchFunc(r.points, end, byOffset)
	r.points, r.end = r.points[:n], end
}

// compact joins points that are old enough to be told as one, and forgets the oldest if that gives no room.
func (r *Ring) compact(now time.Duration) {
	kept := r.points[:1]
	for _, p := range r.points[1:] {
		if k := &kept[len(kept)-1]; p.last-k.first <= allowed(now-p.last) {
			k.last = p.last
			continue
		}
		kept = append(kept, p)
	}
	if n := len(kept) - (capacity - makeRoom); n > 0 {
		kept = slices.Delete(kept, 0, n)
	}
	r.points = kept
}

// allowed returns how long a stretch that ended so long ago may be for one point.
func allowed(age time.Duration) time.Duration {
	if age < exact {
		return 2 * second
	}
	return time.Duration((spanRatio - 1) * float64(age))
}

// Age returns how long ago the record at offset was appended; known is false if that was not seen. Then age is a lower bound, 0
// for a record that is yet to come.
func (r *Ring) Age(offset int64, now time.Duration) (age time.Duration, known bool) {
	if offset >= r.end {
		return 0, false
	}
	n, found := slices.BinarySearchFunc(r.points, offset, byOffset)
	if !found {
		n-- // the last point below
	}
	if n < 0 {
		return r.unseen(now), false
	}
	return r.points[n].age(now), true
}

// age is what is told of all records of a point.
func (p *point) age(now time.Duration) time.Duration {
	if p.last-p.first <= 2*second {
		return max(now-(p.first+p.last)/2, 0)
	}
	youngest, oldest := (now - p.last).Seconds(), (now - p.first).Seconds()
	return time.Duration(2 * youngest * oldest / (youngest + oldest) * float64(second)) // the harmonic mean
}

// unseen is a lower bound for the age of records before the first point.
func (r *Ring) unseen(now time.Duration) time.Duration {
	since := r.since
	if len(r.points) > 0 {
		since = r.points[0].first
	}
	return max(now-since, 0)
}

func byOffset(p point, offset int64) int {
	switch {
	case p.offset < offset:
		return -1
	case p.offset > offset:
		return 1
	}
	return 0
}
