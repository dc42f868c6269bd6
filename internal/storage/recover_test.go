package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ottla/internal/record"
	"ottla/internal/uuid"
	"ottla/internal/vfs"
)

const (
	root      = "/data/logs"
	partition = root + "/t-0"
	perBatch  = 10
	allBatch  = 130 // batches in the log, 10 records each, in three segments
)

var topicID = uuid.UUID{1, 2, 3}

// A patient is a log directory with one partition of three segments, about to be damaged.
type patient struct {
	t        testing.TB
	fs       *vfs.Mem
	batches  [][]byte // as appended
	bases    []int64  // of the segments
	end      int64
	recorded int64 // recovery point in the checkpoint
}

func dirOptions(fsys vfs.FS) DirOptions {
	return DirOptions{FS: fsys, Path: root, NodeID: 1, FlushInterval: -1, LogConfig: func(string) LogConfig { return patientConfig() }}
}

func patientConfig() LogConfig {
	c := testConfig()
	c.SegmentBytes = 70_000
	c.IndexInterval = 2000
	c.Retention = -1
	c.ProducerIDExpiration = math.MaxInt64 // the records are of 1970
	return c
}

// admit makes the patient: closed cleanly, or left by a process that was killed, whose checkpoint stands at recorded.
func admit(t testing.TB, clean bool, recorded int64) *patient {
	t.Helper()
	p := &patient{t: t, fs: newMem(t), recorded: recorded}
	d := p.dir()
	if err := d.Format("cluster", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	l, err := d.Create("t", 0, topicID, patientConfig())
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range allBatch {
		b := record.NewBuilder(nil, record.BatchOptions{Producer: &record.ProducerState{ID: 5, BaseSequence: int32(i * perBatch)}})
		for range perBatch {
			b.Append(record.Record{Timestamp: int64(1000 + i), Value: randomBytes(rng, 100)})
		}
		raw := b.Bytes()
		h, err := record.ParseHeader(raw)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.AppendAsLeader(raw, h, LeaderAppend{LeaderEpoch: int32(i / 50), Now: 1}); err != nil {
			t.Fatal(err)
		}
		p.batches = append(p.batches, raw)
		if i == allBatch/2 || i == allBatch-1 {
			if err := l.Flush(l.End().Offset); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.end = l.End().Offset
	for _, s := range l.Segments() {
		p.bases = append(p.bases, s.BaseOffset)
	}
	if len(p.bases) != 3 {
		t.Fatalf("%d segments", len(p.bases))
	}
	d.SetHighWatermarks(func() map[TopicPartition]int64 { return map[TopicPartition]int64{{"t", 0}: p.end} })
	if err := d.checkpoint(); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(context.Background(), 42, clean); err != nil {
		t.Fatal(err)
	}
	if !clean {
		p.write(recoveryPointFile, fmt.Appendf(nil, "0\n1\nt 0 %d\n", recorded))
	}
	return p
}

func (p *patient) dir() *Dir {
	p.t.Helper()
	d, err := OpenDir(context.Background(), dirOptions(p.fs))
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

// file returns the path of a segment's file, by the segment's number.
func (p *patient) file(segment int, suffix string) string {
	return fmt.Sprintf("t-0/%020d%s", p.bases[segment], suffix)
}

func (p *patient) read(name string) []byte {
	p.t.Helper()
	b, err := vfs.ReadFile(p.fs, filepath.Join(root, name))
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

func (p *patient) write(name string, b []byte) {
	p.t.Helper()
	if err := vfs.WriteFileAtomic(p.fs, filepath.Join(root, name), b); err != nil {
		p.t.Fatal(err)
	}
}

func (p *patient) remove(name string) {
	p.t.Helper()
	if err := p.fs.RemoveAll(filepath.Join(root, name)); err != nil {
		p.t.Fatal(err)
	}
}

// flip inverts a byte inside the batch of the given number, in its file.
func (p *patient) flip(segment, batch int) {
	b := p.read(p.file(segment, logSuffix))
	at := bytes.Index(b, p.batches[batch])
	if at < 0 {
		p.t.Fatalf("batch %d is not in segment %d", batch, segment)
	}
	b[at+len(p.batches[batch])/2] ^= 0xff
	p.write(p.file(segment, logSuffix), b)
}

// exists reports whether the partition's directory holds a file with this suffix.
func (p *patient) exists(suffix string) bool {
	p.t.Helper()
	entries, err := p.fs.ReadDir(partition)
	if err != nil {
		p.t.Fatal(err)
	}
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), suffix) })
}

// A prognosis is what must be after recovery.
type prognosis struct {
	end     int64
	missing []int // numbers of batches that are not there
	damage  []Damage
	lost    bool
}

// recovers starts the directory and compares the log with the prognosis: every batch byte for byte, the producer's
// sequence, epochs, a timestamp lookup; then appends.
func (p *patient) recovers(want prognosis) *Log {
	t := p.t
	t.Helper()
	d := p.dir()
	t.Cleanup(func() {
		if err := d.Close(context.Background(), 43, true); err != nil {
			t.Error(err)
		}
	})
	logs, err := d.Load(context.Background())
	if err != nil || len(logs) != 1 {
		t.Fatalf("%d logs, %v", len(logs), err)
	}
	l := logs[0]
	if l.End().Offset != want.end {
		t.Errorf("log ends at %d, want %d", l.End().Offset, want.end)
	}
	if _, lost := l.LostTo(); lost != want.lost {
		t.Errorf("lost tail: %v, want %v", lost, want.lost)
	}
	p.damage(l, want.damage)
	for range 2 { // before and after indexes that are wrong were built anew
		p.batchesAre(l, want)
		if err := l.Flush(l.End().Offset); err != nil {
			t.Fatal(err)
		}
	}
	p.producer(l, want)
	return l
}

func (p *patient) damage(l *Log, want []Damage) {
	p.t.Helper()
	got := slices.Clone(l.Damage())
	for i := range got {
		if got[i].Kept != "" {
			if _, err := p.fs.Stat(got[i].Kept); err != nil {
				p.t.Errorf("bad bytes are not kept: %v", err)
			}
		}
		got[i].Kept, got[i].Reason = "", ""
	}
	if !slices.Equal(got, want) {
		p.t.Errorf("damage %+v, want %+v", l.Damage(), want)
	}
}

func (p *patient) batchesAre(l *Log, want prognosis) {
	t := p.t
	t.Helper()
	for i, b := range p.batches {
		offset := int64(i * perBatch)
		if offset >= want.end {
			break
		}
		if slices.Contains(want.missing, i) {
			continue
		}
		got, err := l.Batch(offset+3, nil)
		if err != nil || !bytes.Equal(got, b) {
			t.Fatalf("batch %d is not what was appended: %v", i, err)
		}
		found, ts, epoch, ok, err := l.OffsetForTimestamp(int64(1000 + i))
		if err != nil || !ok || found != offset || ts != int64(1000+i) || epoch != int32(i/50) {
			t.Fatalf("timestamp of batch %d is at %d (%d, epoch %d, %v), %v", i, found, ts, epoch, ok, err)
		}
	}
	for epoch := int32(0); int64(epoch+1)*50*perBatch < want.end; epoch++ {
		if e, end := l.EpochEndOffset(epoch, want.end); e != epoch || end != int64(epoch+1)*50*perBatch {
			t.Errorf("epoch %d ends at %d in %d", epoch, end, e)
		}
	}
}

// producer checks that the last batch is known as a duplicate, and that the next may come.
func (p *patient) producer(l *Log, want prognosis) {
	t := p.t
	t.Helper()
	if want.end == 0 || slices.Contains(want.missing, int(want.end/perBatch)-1) {
		return
	}
	last := bytes.Clone(p.batches[want.end/perBatch-1])
	h, err := record.ParseHeader(last)
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.AppendAsLeader(last, h, LeaderAppend{LeaderEpoch: 9})
	if err != nil || !a.Duplicate || a.LastOffset != want.end-1 {
		t.Errorf("duplicate of the last batch: %+v, %v", a, err)
	}
	b, h := build(t, record.BatchOptions{Producer: &record.ProducerState{ID: 5, BaseSequence: int32(want.end) + 1}}, 1, 1, 1)
	var gap *OutOfOrderSequenceError
	if _, err := l.AppendAsLeader(b, h, LeaderAppend{LeaderEpoch: 9}); !errors.As(err, &gap) {
		t.Errorf("gap in the sequence: %v", err)
	}
	b, h = build(t, record.BatchOptions{Producer: &record.ProducerState{ID: 5, BaseSequence: int32(want.end)}}, 1, 1, 1)
	if a, err := l.AppendAsLeader(b, h, LeaderAppend{LeaderEpoch: 9}); err != nil || a.FirstOffset != want.end {
		t.Errorf("append after recovery: %+v, %v", a, err)
	}
}

// TestRecovery has a case for each row of what crashes and disks do to a log directory.
func TestRecovery(t *testing.T) {
	const all = int64(allBatch * perBatch)
	run := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { f(t) })
	}
	tail := func(p *patient, f func(b []byte) []byte) {
		p.write(p.file(2, logSuffix), f(p.read(p.file(2, logSuffix))))
	}
	garbage := func(n int) []byte { return randomBytes(rand.New(rand.NewPCG(3, 3)), n) }

	run("kill -9 only", func(t *testing.T) {
		for _, point := range []int64{0, 600, all} {
			admit(t, false, point).recovers(prognosis{end: all})
		}
	})
	run("tail cut, unclean", func(t *testing.T) {
		p := admit(t, false, 0)
		tail(p, func(b []byte) []byte { return b[:len(b)-300] })
		p.recovers(prognosis{end: all - perBatch})
		if !p.exists(tornSuffix) {
			t.Error("cut bytes are not kept")
		}
	})
	run("garbage tail, unclean", func(t *testing.T) {
		p := admit(t, false, 600)
		tail(p, func(b []byte) []byte { return append(b, garbage(777)...) })
		p.recovers(prognosis{end: all})
		if !p.exists(tornSuffix) {
			t.Error("cut bytes are not kept")
		}
	})
	run("zero tail, unclean", func(t *testing.T) {
		p := admit(t, false, 600)
		tail(p, func(b []byte) []byte { return append(b, make([]byte, 8192)...) })
		p.recovers(prognosis{end: all})
	})
	run("tail cut, clean marker", func(t *testing.T) {
		p := admit(t, true, 0)
		tail(p, func(b []byte) []byte { return b[:len(b)-300] })
		p.recovers(prognosis{end: all - perBatch, lost: true})
	})
	run("zero tail, clean marker", func(t *testing.T) {
		p := admit(t, true, 0)
		tail(p, func(b []byte) []byte { return append(b, make([]byte, 8192)...) })
		p.recovers(prognosis{end: all})
	})
	run("garbage tail, clean marker", func(t *testing.T) {
		p := admit(t, true, 0)
		tail(p, func(b []byte) []byte { return append(b, garbage(777)...) })
		p.recovers(prognosis{end: all})
	})
	run("flip mid active segment, unclean", func(t *testing.T) {
		p := admit(t, false, 0)
		p.flip(2, 125)
		p.recovers(prognosis{end: all, missing: []int{125}, damage: []Damage{{From: 1250, To: 1260}}})
	})
	run("flip in old segment, unclean and no recovery point", func(t *testing.T) {
		p := admit(t, false, 0)
		p.flip(0, 20)
		p.recovers(prognosis{end: all, missing: []int{20}, damage: []Damage{{From: 200, To: 210}}})
	})
	run("flip in old segment, clean or below recovery point", func(t *testing.T) {
		for _, clean := range []bool{true, false} {
			p := admit(t, clean, all)
			p.flip(0, 20)
			l := p.recovers(prognosis{end: all, missing: []int{20}})
			var c *CorruptError
			if _, err := l.Batch(200, nil); !errors.As(err, &c) {
				t.Errorf("reading the bad batch: %v", err)
			}
		}
	})
	run("index missing or of wrong size", func(t *testing.T) {
		for _, clean := range []bool{true, false} {
			for _, suffix := range []string{indexSuffix, timeIndexSuffix} {
				for segment := range 3 {
					p := admit(t, clean, 600)
					p.remove(p.file(segment, suffix))
					p.recovers(prognosis{end: all})
					if !clean && segment == 2 {
						continue // its indexes are not written yet
					}
					p = admit(t, clean, 600)
					b := p.read(p.file(segment, suffix))
					p.write(p.file(segment, suffix), b[:len(b)-5])
					p.recovers(prognosis{end: all})
				}
			}
		}
	})
	run("index of the same size, random or shifted", func(t *testing.T) {
		for _, clean := range []bool{true, false} {
			for _, suffix := range []string{indexSuffix, timeIndexSuffix} {
				p := admit(t, clean, all)
				p.write(p.file(1, suffix), garbage(len(p.read(p.file(1, suffix)))))
				p.recovers(prognosis{end: all})
				p = admit(t, clean, all)
				b := p.read(p.file(1, suffix))
				for i := 7; i < len(b); i += 8 {
					b[i] += 3
				}
				p.write(p.file(1, suffix), b)
				p.recovers(prognosis{end: all})
			}
		}
	})
	run("producer snapshot garbage or empty", func(t *testing.T) {
		for _, n := range []int{0, 56} {
			p := admit(t, true, 0)
			p.write(fmt.Sprintf("t-0/%020d%s", all, snapshotSuffix), garbage(n))
			p.write(p.file(2, snapshotSuffix), garbage(n))
			p.recovers(prognosis{end: all})
		}
	})
	run("checkpoints garbage", func(t *testing.T) {
		for _, clean := range []bool{true, false} {
			for _, name := range []string{"t-0/" + epochFile, "t-0/" + partitionMetadataFile, recoveryPointFile, highWatermarkFile, logStartFile} {
				p := admit(t, clean, 600)
				p.write(name, garbage(40))
				p.recovers(prognosis{end: all})
			}
		}
	})
	run("checkpoints empty or missing", func(t *testing.T) {
		for _, clean := range []bool{true, false} {
			p := admit(t, clean, 600)
			p.write("t-0/"+epochFile, nil)
			p.remove(highWatermarkFile)
			p.recovers(prognosis{end: all})
		}
	})
	run("overlapping segment", func(t *testing.T) {
		for _, clean := range []bool{true, false} {
			p := admit(t, clean, 0)
			p.write(fmt.Sprintf("t-0/%020d%s", p.bases[1]+200, logSuffix), p.read(p.file(1, logSuffix)))
			p.recovers(prognosis{end: all})
			if !p.exists(asideSuffix) {
				t.Error("the copy is not kept")
			}
		}
	})
	run("middle segment missing", func(t *testing.T) {
		p := admit(t, false, all)
		for _, suffix := range []string{logSuffix, indexSuffix, timeIndexSuffix} {
			p.remove(p.file(1, suffix))
		}
		var missing []int
		for i := p.bases[1] / perBatch; i < p.bases[2]/perBatch; i++ {
			missing = append(missing, int(i))
		}
		d := p.dir()
		logs, err := d.Load(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		l := logs[0]
		p.damage(l, []Damage{{From: p.bases[1], To: p.bases[2]}})
		for i := range allBatch {
			if got, err := l.Batch(int64(i*perBatch), nil); !slices.Contains(missing, i) && (err != nil || !bytes.Equal(got, p.batches[i])) {
				t.Fatalf("batch %d: %v", i, err)
			}
		}
		if err := d.Close(context.Background(), 1, true); err != nil {
			t.Fatal(err)
		}
	})
	run("active segment emptied", func(t *testing.T) {
		p := admit(t, false, all)
		p.write(p.file(2, logSuffix), nil)
		p.recovers(prognosis{end: p.bases[2], lost: true})
	})
	run("partition dir deleted", func(t *testing.T) {
		p := admit(t, false, all)
		p.remove("t-0")
		d := p.dir()
		if logs, err := d.Load(context.Background()); err != nil || len(logs) != 0 {
			t.Fatalf("%d logs, %v", len(logs), err)
		}
		l, err := d.Create("t", 0, topicID, patientConfig())
		if err != nil {
			t.Fatal(err)
		}
		if to, lost := l.LostTo(); !lost || to != all {
			t.Errorf("lost to %d, %v", to, lost)
		}
		if err := d.Close(context.Background(), 1, true); err != nil {
			t.Fatal(err)
		}
	})
	run("orphan index, stray swap, cleaned and deleted", func(t *testing.T) {
		p := admit(t, false, 600)
		p.write("t-0/00000000000000000077.index", garbage(80))
		p.write(p.file(1, logSuffix+swapSuffix), p.read(p.file(1, logSuffix)))
		p.write(p.file(2, logSuffix+cleanedSuffix), garbage(500))
		p.write(p.file(0, logSuffix+deletedSuffix), garbage(500))
		p.recovers(prognosis{end: all})
		for _, suffix := range []string{"77.index", swapSuffix, cleanedSuffix, deletedSuffix} {
			if p.exists(suffix) {
				t.Errorf("%s is still there", suffix)
			}
		}
	})
	run("swap file covers two segments", func(t *testing.T) {
		p := admit(t, false, 600)
		both := append(p.read(p.file(0, logSuffix)), p.read(p.file(1, logSuffix))...)
		p.write(p.file(0, logSuffix+swapSuffix), both)
		l := p.recovers(prognosis{end: all})
		if n := len(l.Segments()); n != 2 {
			t.Errorf("%d segments, want 2", n)
		}
	})
	run("stray dir in log.dirs", func(t *testing.T) {
		p := admit(t, true, 0)
		for _, name := range []string{"lost+found", "backup", "x-01", "__cluster_metadata-0"} {
			if err := p.fs.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		p.recovers(prognosis{end: all})
	})
	run("meta.properties missing", func(t *testing.T) {
		p := admit(t, true, 0)
		p.remove(metaPropertiesFile)
		d := p.dir()
		if d.Formatted() {
			t.Error("a directory without meta.properties counts as formatted")
		}
		if err := d.Close(context.Background(), 1, false); err != nil {
			t.Fatal(err)
		}
	})
}
