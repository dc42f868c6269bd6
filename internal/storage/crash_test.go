package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

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
		// Below a start offset that the crash took, epochs are gone as they were meant to.
		if epoch := l.EpochAt(max(h.BaseOffset, m.start)); epoch != h.LeaderEpoch && h.LastOffset() >= m.start {
			return fmt.Errorf("batch at %d is of leader epoch %d, and the log says %d", h.BaseOffset, h.LeaderEpoch, epoch)
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

// crashEverywhere runs f on a disk, stopping the machine before each of its file operations in turn, with none, some and all of
// what was not synced, and calls check with what is left.
func crashEverywhere(t *testing.T, f func(fsys vfs.FS), check func(t *testing.T, fsys vfs.FS)) {
	t.Helper()
	for _, keep := range []float64{0, 0.3, 0.7, 1} {
		for stop := 1; ; stop++ {
			fsys, rng := newMem(t), rand.New(rand.NewPCG(uint64(stop), 1))
			var after *vfs.Mem
			n := 0
			fsys.Inject(func(vfs.Op) error {
				if n++; n == stop {
					after = fsys.Crash(keep, rng)
				}
				if n >= stop {
					return errDead
				}
				return nil
			})
			f(fsys)
			if after == nil {
				break
			}
			t.Run(fmt.Sprintf("operation %d, keeping %.1f", stop, keep), func(t *testing.T) { check(t, after) })
		}
	}
}

// wholeFiles checks what Apache's broker does not start on if there is but part of it, and what recovery therefore must not rely on.
func wholeFiles(t *testing.T, fsys vfs.FS, dir string) {
	t.Helper()
	if _, err := readTopicID(fsys, dir); err != nil {
		t.Errorf("partition.metadata: %v", err)
	}
	b, err := vfs.ReadFile(fsys, filepath.Join(dir, epochFile))
	if err == nil {
		_, err = readEpochs(b)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("leader-epoch-checkpoint: %v", err)
	}
}

// A log that is made costs no fsync, but no record is in it before it is durable whose it is; and what was flushed is there.
func TestCrashOfNewLog(t *testing.T) {
	flushed := false
	run := func(fsys vfs.FS) {
		flushed = false
		l, err := OpenLog(LogOptions{FS: fsys, Path: "/data/t-0", Topic: "t", TopicID: topicID, Config: crashConfig()})
		if err != nil || l.AssignEpoch(3, 0) != nil {
			return
		}
		for range 3 {
			b, h := build(t, record.BatchOptions{}, 2, 10, 1)
			if _, err := l.AppendAsLeader(b, h, LeaderAppend{LeaderEpoch: 3}); err != nil {
				return
			}
		}
		flushed = l.Flush(6) == nil && l.AssignEpoch(4, 6) == nil
	}
	crashEverywhere(t, run, func(t *testing.T, fsys vfs.FS) {
		wholeFiles(t, fsys, "/data/t-0")
		l := open(t, fsys, LogOptions{Config: crashConfig()})
		end := l.End().Offset
		if end > 0 && (l.TopicID() != topicID || l.EpochAt(0) != 3) {
			t.Errorf("the log holds %d records, of topic %s and leader epoch %d", end, l.TopicID(), l.EpochAt(0))
		}
		if flushed && end != 6 {
			t.Errorf("6 records were flushed, %d are there", end)
		}
	})
}

// A leader epoch that was taken back does not come again after a crash, to count for batches of an older one.
func TestCrashAfterEpochIsTakenBack(t *testing.T) {
	fresh, flushed := record.BatchOptions{LeaderEpoch: 2}, int64(0)
	run := func(fsys vfs.FS) {
		flushed = 0
		l, err := OpenLog(LogOptions{FS: fsys, Path: "/data/t-0", Topic: "t", TopicID: topicID, Config: crashConfig()})
		if err != nil {
			return
		}
		follow := func() error { // two batches
			for range 2 {
				fresh.BaseOffset = l.End().Offset
				b, _ := build(t, fresh, 10, 10, 1)
				if _, err := l.AppendAsFollower(b); err != nil {
					return err
				}
			}
			return nil
		}
		if follow() != nil || l.Flush(20) != nil {
			return
		}
		flushed = 20
		if l.AssignEpoch(3, 20) != nil || l.AssignEpoch(4, 20) != nil {
			return
		}
		flushed = 10
		if l.TruncateTo(10) != nil || follow() != nil || l.Flush(30) != nil {
			return
		}
		flushed = 30
	}
	crashEverywhere(t, run, func(t *testing.T, fsys vfs.FS) {
		wholeFiles(t, fsys, "/data/t-0")
		l := open(t, fsys, LogOptions{Config: crashConfig(), RecoveryPoint: min(flushed, 10)})
		end := l.End().Offset
		if end < flushed {
			t.Errorf("%d records were flushed, %d are there", flushed, end)
		}
		for offset := range end {
			if epoch := l.EpochAt(offset); epoch != 2 {
				t.Errorf("offset %d is of leader epoch 2, and the log says %d", offset, epoch)
			}
		}
	})
}

// The names of the files that a process made before it was killed are durable once the next process has flushed what is in them.
func TestCrashAfterKill(t *testing.T) {
	for _, keep := range []float64{0, 1} {
		fsys := newMem(t)
		c := testConfig()
		c.SegmentBytes = 300
		l := open(t, fsys, LogOptions{Config: c})
		mustAppend(t, l, 2, 50, 1)
		if err := l.Flush(2); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			mustAppend(t, l, 2, 50, 1)
		}
		if n := len(l.Segments()); n < 2 {
			t.Fatalf("%d segments", n)
		}
		l = open(t, fsys, LogOptions{Config: c, RecoveryPoint: 2}) // after a kill
		if err := l.Flush(8); err != nil || l.Durable() != 8 {
			t.Fatalf("durable to %d after the flush, %v", l.Durable(), err)
		}
		l = open(t, fsys.Crash(keep, rand.New(rand.NewPCG(1, 1))), LogOptions{Config: c, RecoveryPoint: 8})
		if end := l.End().Offset; end != 8 {
			t.Errorf("8 records were flushed, %d are there", end)
		}
	}
}

// What follows a truncation is not taken for what once was durable there: its leader epochs are read from it, and nothing counts as lost.
func TestKillAfterTruncation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig()
		c.SegmentBytes = 300
		o := DirOptions{FS: newMem(t), Path: root, NodeID: 1, FlushInterval: -1, LogConfig: func(string) LogConfig { return c }}
		d := loaded(t, o)
		l, err := d.Create("t", 0, topicID, c)
		if err != nil {
			t.Fatal(err)
		}
		follow := func(epoch int32, to int64) {
			t.Helper()
			for l.End().Offset < to {
				b, _ := build(t, record.BatchOptions{LeaderEpoch: epoch, BaseOffset: l.End().Offset}, 10, 10, 1)
				if _, err := l.AppendAsFollower(b); err != nil {
					t.Fatal(err)
				}
			}
		}
		killed := func() {
			t.Helper()
			if err := d.Close(t.Context(), 1, false); err != nil {
				t.Fatal(err)
			}
			d = loaded(t, o)
			l = d.Log(TopicPartition{"t", 0})
		}
		follow(1, 200)
		if err := l.Flush(200); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second) // a checkpoint says so
		killed()                    // which counts as well if another process has written it
		if err := l.TruncateTo(50); err != nil {
			t.Fatal(err)
		}
		follow(2, 100)
		follow(3, 150)
		killed()
		if _, lost := l.LostTo(); lost || l.End().Offset != 150 || len(l.Damage()) > 0 {
			t.Errorf("the log ends at %d, lost %v, damage %+v", l.End().Offset, lost, l.Damage())
		}
		for offset := range int64(150) {
			if epoch, want := l.EpochAt(offset), int32(offset/50+1); epoch != want {
				t.Fatalf("offset %d is of leader epoch %d, want %d", offset, epoch, want)
			}
		}
		if err := d.Close(t.Context(), 1, true); err != nil {
			t.Error(err)
		}
	})
}

// A disk that could not make the name of one new log durable is not asked again for that of another.
func TestParentDirFailsForGood(t *testing.T) {
	fsys := newMem(t)
	d := newParentDir(fsys, "/data")
	d.made.Add(1)
	if err := d.sync(); err != nil {
		t.Fatal(err)
	}
	d.made.Add(1)
	fsys.Inject(func(vfs.Op) error { return errDead })
	if err := d.sync(); !errors.Is(err, errDead) {
		t.Errorf("the first ends with %v", err)
	}
	fsys.Inject(nil)
	if err := d.sync(); !errors.Is(err, errDead) {
		t.Errorf("the second ends with %v", err)
	}
}

// A leader that appended nothing in its epoch and then follows an older one's log has forgotten its own.
func TestTruncateAtEndForgetsEpoch(t *testing.T) {
	fsys := newMem(t)
	l := open(t, fsys, LogOptions{})
	follow := func(epoch int32) {
		t.Helper()
		b, _ := build(t, record.BatchOptions{LeaderEpoch: epoch, BaseOffset: l.End().Offset}, 10, 10, 1)
		if _, err := l.AppendAsFollower(b); err != nil {
			t.Fatal(err)
		}
	}
	follow(2)
	if err := errors.Join(l.AssignEpoch(5, 10), l.TruncateTo(10)); err != nil {
		t.Fatal(err)
	}
	follow(2)
	for range 2 {
		if l.LatestEpoch() != 2 || l.EpochAt(0) != 2 || l.EpochAt(10) != 2 {
			t.Errorf("offsets 0 and 10 are of epochs %d and %d, the latest is %d; want 2", l.EpochAt(0), l.EpochAt(10), l.LatestEpoch())
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = open(t, fsys, LogOptions{Clean: true})
	}
}
