package sim

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestControllers: while links break and heal and controllers lose their power, topics go on being created, and in the
// end all nodes have the same metadata, with every topic whose creation was confirmed.
func TestControllers(t *testing.T) {
	seeds(t, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed, 3, 2)
		w.startAll()
		defer w.stopAll()
		for i := range 15 {
			w.mishap()
			w.createTopic(w.brokers()[w.rng.IntN(2)], fmt.Sprintf("topic-%d", i))
		}
		w.settle()
		w.compareLogs()
	})
}

// mishap lets one of the controllers suffer; the two others are left alone and whole, so that things go on.
func (w *world) mishap() {
	w.t.Helper()
	n := w.controllers()[w.rng.IntN(len(w.controllers()))]
	switch w.rng.IntN(5) {
	case 0:
		n.crash()
		w.startAll()
	case 1:
		n.isolate(true)
		time.Sleep(time.Duration(w.rng.IntN(5000)) * time.Millisecond)
		n.isolate(false)
	case 2:
		other := w.nodes[w.rng.IntN(len(w.nodes))]
		if other == n {
			return
		}
		w.net.CutOneWay(n.host(), other.host())
		time.Sleep(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
		w.net.Heal(n.host(), other.host())
	case 3:
		n.stop()
		time.Sleep(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
		w.startAll()
	}
}

// TestPowerCut: a controller loses its power at one of its file operations, whichever, and comes back. With -short it is a quarter of them.
func TestPowerCut(t *testing.T) {
	total := 0
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 3, 2)
		powerCutRun(w, w.nodes[0], -1)
		total = int(w.nodes[0].ops.Load())
	})
	step := 1
	if *crashFlag > 0 {
		step = max(1, total / *crashFlag)
	}
	if testing.Short() {
		step *= 4
	}
	t.Logf("%d file operations, the power is cut at every %dth", total, step)
	for at := 1; at <= total; at += step {
		t.Run(fmt.Sprintf("at=%d", at), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, uint64(at), 3, 2)
				powerCutRun(w, w.nodes[at%3], int64(at))
			})
		})
	}
}

// powerCutRun lets a cluster live for a while in which the power of one controller goes at its file operation number at.
func powerCutRun(w *world, victim *node, at int64) {
	defer w.stopAll()
	callOff := victim.cutPowerAt(at)
	// The first start may fail with the victim's disk; then it is repeated.
	w.startAllBut(victim)
	for i := range 4 {
		w.createTopic(w.brokers()[i%2], fmt.Sprintf("topic-%d", i))
	}
	callOff()
	victim.crash()
	w.settle()
	w.createTopic(w.brokers()[0], "last")
	w.settle()
	w.compareLogs()
}
