package storage

import (
	"math/rand/v2"
	"testing"
)

// A queueTest is a queue whose workers the test plays; the logs in it are numbers.
type queueTest struct {
	*workQueue
	t       *testing.T
	numbers map[*Log]int // of the logs that were pushed
}

const nobody = -1 // what begin and next return if they return no log

func newQueue(t *testing.T) *queueTest {
	return &queueTest{&workQueue{wake: make(chan struct{}, 1)}, t, map[*Log]int{}}
}

// add pushes so many logs by the given method; the first log ever is number 0.
func (q *queueTest) add(n int, push func(*Log)) {
	for range n {
		l := new(Log)
		q.numbers[l] = len(q.numbers)
		push(l)
	}
}

func (q *queueTest) due(n int)    { q.add(n, q.workQueue.pushDue) }
func (q *queueTest) urgent(n int) { q.add(n, q.workQueue.push) }

// woken reports whether a worker was, and has it awake.
func (q *queueTest) woken() bool {
	select {
	case <-q.wake:
		return true
	default:
		return false
	}
}

func (q *queueTest) number(l *Log) int {
	if l == nil {
		return nobody
	}
	return q.numbers[l]
}

// begins has a worker begin that was woken, or is awake for no reason.
func (q *queueTest) begins(wake bool, want int) {
	q.t.Helper()
	if woken := q.woken(); woken != wake {
		q.t.Fatalf("a worker was woken: %v, want %v", woken, wake)
	}
	if got := q.number(q.begin()); got != want {
		q.t.Fatalf("the worker begins with log %d, want %d", got, want)
	}
}

// goesOn has a worker that is at one go on with the logs from first up to before end.
func (q *queueTest) goesOn(first, end int) {
	q.t.Helper()
	for want := first; want < end; want++ {
		if got := q.number(q.next()); got != want {
			q.t.Fatalf("the worker goes on with log %d, want %d", got, want)
		}
	}
}

// rests has a worker that is at one find that there is no other.
func (q *queueTest) rests() {
	q.t.Helper()
	if got := q.number(q.next()); got != nobody {
		q.t.Fatalf("the worker goes on with log %d, want none", got)
	}
}

func TestWorkQueue(t *testing.T) {
	t.Run("a few that are due have one worker", func(t *testing.T) {
		for n := 1; n <= 1+quietBacklog; n++ { // the first is no more waiting once the worker is at it
			q := newQueue(t)
			q.due(n)
			q.begins(true, 0)
			q.begins(false, nobody)
			q.goesOn(1, n)
			q.begins(false, nobody)
			q.rests()
			q.begins(false, nobody)
		}
	})
	t.Run("many that are due have one for each backlog", func(t *testing.T) {
		const each = 1 + quietBacklog // what it is at, and what waits for it
		for _, x := range []struct{ logs, workers int }{
			{each, 1}, {each + 1, 2}, {2 * each, 2}, {2*each + 1, 3}, {7 * each, 7}, {7*each + 1, 8},
		} {
			q := newQueue(t)
			q.due(x.logs)
			workers := 0
			for q.woken() { // each wakes the next
				if got := q.number(q.begin()); got != workers {
					t.Fatalf("of %d logs, worker %d begins with %d", x.logs, workers, got)
				}
				workers++
			}
			if workers != x.workers {
				t.Errorf("%d logs have %d workers, want %d", x.logs, workers, x.workers)
			}
			q.begins(false, nobody)
			q.goesOn(workers, x.logs)
			for range workers {
				q.rests()
			}
			q.due(1)
			q.begins(true, x.logs)
		}
	})
	t.Run("one more comes when too many wait for one", func(t *testing.T) {
		q := newQueue(t)
		q.due(1)
		q.begins(true, 0)
		for range quietBacklog {
			q.due(1)
			q.begins(false, nobody)
		}
		q.due(1)
		q.begins(true, 1)
		q.goesOn(2, 2+quietBacklog) // whichever of the two
		q.rests()
		q.rests()
	})
	t.Run("an urgent one has a worker at once", func(t *testing.T) {
		q := newQueue(t)
		q.due(1)
		q.begins(true, 0)
		q.urgent(1)
		q.begins(true, 1)
		q.urgent(1)
		q.begins(true, 2)
		q.begins(false, nobody)
	})
	t.Run("an urgent one behind some that are due has as many as it takes to come to it", func(t *testing.T) {
		q := newQueue(t)
		q.due(3)
		q.begins(true, 0)
		q.urgent(1)
		q.due(2)
		q.begins(true, 1)
		q.begins(true, 2)
		q.begins(true, 3) // the urgent one
		q.begins(false, nobody)
		q.goesOn(4, 6)
		for range 4 {
			q.rests()
		}
	})
	t.Run("an urgent one that a busy worker takes wants no other", func(t *testing.T) {
		q := newQueue(t)
		q.due(1)
		q.begins(true, 0)
		q.urgent(1)
		q.goesOn(1, 2)
		q.begins(true, nobody) // it was woken, and comes too late
		q.due(1)
		q.begins(false, nobody)
		q.goesOn(2, 3)
		q.rests()
	})
	t.Run("after a rest", func(t *testing.T) {
		q := newQueue(t)
		q.begins(false, nobody) // who is awake for no reason is at nothing
		for n, push := range []func(int){q.due, q.urgent, q.due, q.due} {
			push(1)
			q.begins(true, n)
			q.rests()
		}
	})
	t.Run("it grows no further than what waits in it", func(t *testing.T) {
		q := newQueue(t)
		q.due(4)
		q.begins(true, 0)
		for n := range 1000 { // it is never empty
			q.due(1)
			q.goesOn(n+1, n+2)
		}
		if n := cap(q.mu.waiting); n > 20 {
			t.Errorf("for 4 logs it has %d places", n)
		}
	})
	t.Run("first in, first out", func(t *testing.T) {
		q, rng := newQueue(t), rand.New(rand.NewPCG(1, 1))
		q.urgent(1)
		q.begins(true, 0)
		taken := 1
		for i := range 2000 { // it grows to some hundred, and shrinks
			n := rng.IntN(10)
			switch {
			case rng.IntN(2) == 0:
				n = min(n, len(q.numbers)-taken)
				q.goesOn(taken, taken+n)
				taken += n
			case i > 1000 && rng.IntN(3) > 0:
			case rng.IntN(2) == 0:
				q.urgent(n)
			default:
				q.due(n)
			}
		}
		q.goesOn(taken, len(q.numbers))
		q.rests()
		if q.mu.urgent != 0 || q.mu.busy != 0 || len(q.mu.waiting) != 0 {
			t.Errorf("%d urgent, %d busy and %d waiting are left", q.mu.urgent, q.mu.busy, len(q.mu.waiting))
		}
	})
}
