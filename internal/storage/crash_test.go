package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"ottla/internal/record"
	"ottla/internal/vfs"
)

var errDead = errors.New("the machine is off")

// A model is what a log should hold: batches by offset, and what is known to be durable.
type model struct {
	batches [][]byte
	start   int64
	durable int64
}

func (m model) end() int64 {
	if len(m.batches) == 0 {
		return 0
	}
	h, _ := record.ParseHeader(m.batches[len(m.batches)-1])
	return h.NextOffset()
}

// script runs operations on the log until one fails, calling at before each with the models that are right if the
// machine stops in its middle: what was, and what will be.
func script(l *Log, seed uint64, at func(was, will model)) {
	rng := rand.New(rand.NewPCG(seed, 1))
	var m model
	epoch := int32(1)
	for i := range 60 {
		was, will := m, m
		will.batches = append([][]byte(nil), m.batches...)
		var err error
		switch op := rng.IntN(10); {
		case op < 6:
			b := record.NewBuilder(nil, record.BatchOptions{Producer: &record.ProducerState{ID: int64(rng.IntN(3)), Epoch: int16(i), BaseSequence: 0}})
			for range 1 + rng.IntN(3) {
				b.Append(record.Record{Timestamp: int64(i), Value: randomBytes(rng, 1+rng.IntN(700))})
			}
			raw := b.Bytes()
			h, _ := record.ParseHeader(raw)
			stamped := bytes.Clone(raw)
			record.SetBaseOffset(stamped, m.end())
			record.SetLeaderEpoch(stamped, epoch)
			will.batches = append(will.batches, stamped)
			at(was, will)
			_, err = l.AppendAsLeader(raw, h, LeaderAppend{LeaderEpoch: epoch, Now: int64(i)})
		case op < 8:
			will.durable = m.end()
			at(was, will)
			err = l.Flush(m.end())
		case op == 8 && len(m.batches) > 2:
			cut := 1 + rng.IntN(len(m.batches)-1)
			h, _ := record.ParseHeader(m.batches[cut])
			if h.BaseOffset < m.start {
				continue
			}
			will.batches = will.batches[:cut]
			will.durable = min(m.durable, h.BaseOffset)
			was.durable = will.durable
			at(was, will)
			err = l.TruncateTo(h.BaseOffset)
		case op == 9 && m.end() > m.start:
			will.start = m.start + rng.Int64N(m.end()-m.start)
			at(was, will)
			_, err = l.DeleteRecordsBefore(will.start)
			epoch++
		}
		if err != nil {
			return
		}
		m = will
	}
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + rng.IntN(255))
	}
	return b
}

// matches says what is wrong if the recovered log is not a prefix of the model with all that was durable.
func (m model) matches(l *Log) error {
	if end := l.End().Offset; end < m.durable || end > m.end() {
		return fmt.Errorf("log ends at %d, durable were %d of %d", end, m.durable, m.end())
	}
	for _, want := range m.batches {
		h, _ := record.ParseHeader(want)
		if h.LastOffset() < l.StartOffset() {
			continue
		}
		if h.BaseOffset >= l.End().Offset {
			break
		}
		got, err := l.Batch(max(h.BaseOffset, l.StartOffset()), nil)
		if err != nil {
			return fmt.Errorf("batch at %d: %w", h.BaseOffset, err)
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("batch at %d is not what was appended", h.BaseOffset)
		}
	}
	if len(l.Damage()) > 0 {
		return fmt.Errorf("damage %+v after a mere crash", l.Damage())
	}
	return nil
}

// newMem returns a file system with a durable /data.
func newMem(t testing.TB) *vfs.Mem {
	t.Helper()
	fsys := vfs.NewMem()
	if err := errors.Join(fsys.MkdirAll("/data", 0o755), fsys.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	return fsys
}

func crashConfig() LogConfig {
	c := testConfig()
	c.SegmentBytes = 4000
	c.IndexInterval = 300
	return c
}

// TestCrash stops the machine before and in the middle of every file operation of a script, with none, some and all of
// what was not synced, and asserts what recovery must keep: a prefix of what was appended, with all that was durable.
func TestCrash(t *testing.T) {
	total := 0
	for seed := range uint64(2) {
		for stop := 1; ; stop++ {
			ended := false
			for _, torn := range []bool{false, true} {
				for _, keep := range []float64{0, 0.5, 1} {
					name := fmt.Sprintf("seed %d, operation %d, torn %v, keeping %.1f", seed, stop, torn, keep)
					ended = crashAt(t, name, seed, stop, torn, keep) || ended
					total++
				}
			}
			if ended || t.Failed() {
				break
			}
		}
	}
	t.Logf("%d crashes", total)
}

// crashAt runs the script up to the given file operation and checks the recovery; true if the script had fewer.
func crashAt(t *testing.T, name string, seed uint64, stop int, torn bool, keep float64) (ended bool) {
	t.Helper()
	fsys := newMem(t)
	l := open(t, fsys, LogOptions{Config: crashConfig()})
	rng := rand.New(rand.NewPCG(seed, uint64(stop)))
	var after *vfs.Mem
	var was, will model
	var point, countdown int64
	countdown = int64(stop)
	fsys.Inject(func(op vfs.Op) error {
		if after != nil {
			return errDead
		}
		if countdown--; countdown > 0 {
			return nil
		}
		if torn && countdown == 0 && op.Kind == vfs.OpWrite {
			return &vfs.TornError{N: op.Bytes / 2, Err: errDead}
		}
		after = fsys.Crash(keep, rng)
		return errDead
	})
	script(l, seed, func(a, b model) {
		was, will = a, b
		if rng.IntN(4) == 0 || point > l.Durable() { // as the checkpoint does: behind, never ahead
			point = l.Durable()
		}
	})
	if countdown > 0 {
		return true
	}
	if after == nil {
		after = fsys.Crash(keep, rng)
	}
	point = min(point, was.durable, will.durable)
	recovered, err := OpenLog(LogOptions{FS: after, Path: "/data/t-0", Topic: "t", Config: crashConfig(), RecoveryPoint: point})
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return false
	}
	errWas, errWill := was.matches(recovered), will.matches(recovered)
	if errWas != nil && errWill != nil {
		t.Errorf("%s (recovery point %d): %v; %v", name, point, errWas, errWill)
	}
	end := recovered.End().Offset
	b, h := build(t, record.BatchOptions{}, 2, 10, 1)
	if a, err := recovered.AppendAsLeader(b, h, LeaderAppend{LeaderEpoch: 99}); err != nil || a.FirstOffset != end {
		t.Errorf("%s: append after recovery: %+v, %v", name, a, err)
	}
	return false
}
