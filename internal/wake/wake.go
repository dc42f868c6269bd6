// Package wake is how news reaches who waits for it: package replica calls what waits, package transport writes the answers
// that follow, and neither knows the other.
//
// Waking makes work, an answer to be written, and work wants a goroutine. To start one costs as much as a small answer does, for a thread has to
// be woken too; so who wakes may do the work itself when it has nothing else to do. What always holds:
//
//   - A [Func] never blocks and takes no lock that its caller could hold.
//   - Who is given [Work] sees to it: by Run or by Try, once.
package wake

// A Func tells one waiter that there is news. It returns the work this makes: nil if there is none, or somebody is at it already.
type Func func() Work

// Work is what follows from news.
type Work interface {
	// Run does it, however long it takes.
	Run()
	// Try does it unless that would take waiting for anybody but the disk; then it leaves the rest to a goroutine.
	Try()
}

// Run calls f and does what follows.
func (f Func) Run() {
	if w := f(); w != nil {
		w.Run()
	}
}

// Go calls f and does what follows in a goroutine.
func (f Func) Go() {
	if w := f(); w != nil {
		go w.Run()
	}
}

// A List collects whom to wake, under a lock for instance, to wake them later. The zero value is empty. It serves one goroutine.
type List struct {
	n    int
	few  [8]Func
	more []Func
}

// Add puts f at the end.
func (l *List) Add(f Func) {
	if l.n < len(l.few) {
		l.few[l.n] = f
		l.n++
		return
	}
	l.more = append(l.more, f)
}

// Go wakes everybody, has goroutines do what follows, and empties the list.
func (l *List) Go() {
	for f := range l.all {
		f.Go()
	}
	l.reset()
}

// Try is Go, but what follows for the first who makes work it tries itself, when all are awake.
func (l *List) Try() {
	var mine Work
	for f := range l.all {
		if mine == nil {
			mine = f()
		} else {
			f.Go()
		}
	}
	l.reset()
	if mine != nil {
		mine.Try()
	}
}

func (l *List) all(yield func(Func) bool) {
	for _, f := range l.few[:l.n] {
		if !yield(f) {
			return
		}
	}
	for _, f := range l.more {
		if !yield(f) {
			return
		}
	}
}

func (l *List) reset() {
	if l.n == 0 {
		return
	}
	clear(l.more)
	*l = List{more: l.more[:0]}
}
