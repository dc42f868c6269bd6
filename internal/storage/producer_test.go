package storage

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ottla/internal/record"
	"ottla/internal/vfs"
)

// send appends a batch of n records by producer id 7.
func send(t testing.TB, l *Log, epoch int16, sequence int32, n int, flags record.Attributes) (Appended, error) {
	t.Helper()
	b, h := build(t, record.BatchOptions{Flags: flags, Producer: &record.ProducerState{ID: 7, Epoch: epoch, BaseSequence: sequence}}, n, 10, 1)
	return l.AppendAsLeader(b, h, LeaderAppend{LeaderEpoch: 1})
}

// TestSequences goes through the answers that Apache Kafka 4.4 gives.
func TestSequences(t *testing.T) {
	l := open(t, vfs.NewMem(), LogOptions{})
	for i := range int32(7) {
		if a, err := send(t, l, 3, 10*i, 10, 0); err != nil || a.FirstOffset != int64(10*i) {
			t.Fatalf("batch %d: %+v, %v", i, a, err)
		}
	}
	for i := int32(2); i < 7; i++ {
		a, err := send(t, l, 3, 10*i, 10, 0)
		if err != nil || !a.Duplicate || a.FirstOffset != int64(10*i) || a.LastOffset != int64(10*i+9) {
			t.Errorf("duplicate of batch %d: %+v, %v", i, a, err)
		}
	}
	var order *OutOfOrderSequenceError
	var epoch *InvalidProducerEpochError
	for _, c := range []struct {
		name     string
		epoch    int16
		sequence int32
		as       any
	}{
		{"older than the last five", 3, 10, &order},
		{"gap", 3, 80, &order},
		{"part of a batch", 3, 65, &order},
		{"new epoch, sequence not 0", 4, 70, &order},
		{"old epoch", 2, 70, &epoch},
		{"epoch -1", -1, 70, &epoch},
	} {
		if _, err := send(t, l, c.epoch, c.sequence, 10, 0); !errors.As(err, c.as) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if a, err := send(t, l, 4, 0, 1, 0); err != nil || a.FirstOffset != 70 {
		t.Errorf("new epoch from 0: %+v, %v", a, err)
	}
	if a, err := send(t, l, 4, 1, 1, 0); err != nil || a.FirstOffset != 71 {
		t.Errorf("next in the new epoch: %+v, %v", a, err)
	}
	if l.End().Offset != 72 {
		t.Errorf("log ends at %d", l.End().Offset)
	}
}

func TestSequenceWraps(t *testing.T) {
	l := open(t, vfs.NewMem(), LogOptions{})
	const last = 1<<31 - 1
	for _, sequence := range []int32{last - 4, last, 9} { // a producer that is not known may begin anywhere
		n := 10
		if sequence == last-4 {
			n = 4
		}
		if _, err := send(t, l, 0, sequence, n, 0); err != nil {
			t.Fatalf("sequence %d: %v", sequence, err)
		}
	}
	// The middle batch holds last, 0 … 8.
	if a, err := send(t, l, 0, last, 10, 0); err != nil || !a.Duplicate || a.FirstOffset != 4 {
		t.Errorf("duplicate of the batch that wraps: %+v, %v", a, err)
	}
}

func endTxn(t testing.TB, l *Log, epoch int16, coordinator int32, commit bool) error {
	t.Helper()
	b := record.AppendEndTxnBatch(nil, 7, epoch, record.EndTxnMarker{Commit: commit, CoordinatorEpoch: coordinator}, 1)
	h, err := record.ParseHeader(b)
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.AppendAsLeader(b, h, LeaderAppend{LeaderEpoch: 1, Coordinator: true})
	return err
}

func TestTransactions(t *testing.T) {
	fsys := vfs.NewMem()
	l := open(t, fsys, LogOptions{Config: patientConfig()})
	unstable := func(hw, want int64) {
		t.Helper()
		p, ok := l.FirstUnstable(hw)
		if ok != (want >= 0) || ok && p.Offset != want {
			t.Errorf("first unstable offset is %d (%v), want %d", p.Offset, ok, want)
		}
	}
	mustAppend(t, l, 5, 10, 1)
	unstable(5, -1)
	if _, err := send(t, l, 0, 0, 5, record.FlagTransactional); err != nil { // offsets 5–9
		t.Fatal(err)
	}
	unstable(10, 5)
	var state *InvalidTxnStateError
	if _, err := send(t, l, 0, 5, 1, 0); !errors.As(err, &state) {
		t.Errorf("plain batch within a transaction: %v", err)
	}
	if err := endTxn(t, l, 1, 4, false); err != nil { // offset 10; transaction.version 2 bumps the epoch
		t.Fatal(err)
	}
	unstable(10, 5) // until the marker is below the high watermark
	unstable(11, -1)
	if _, err := send(t, l, 1, 0, 2, record.FlagTransactional); err != nil { // 11–12
		t.Fatal(err)
	}
	var fenced *CoordinatorFencedError
	if err := endTxn(t, l, 1, 3, true); !errors.As(err, &fenced) {
		t.Errorf("marker of an old coordinator: %v", err)
	}
	var old *InvalidProducerEpochError
	if err := endTxn(t, l, 0, 4, true); !errors.As(err, &old) {
		t.Errorf("marker of an old epoch: %v", err)
	}
	if err := endTxn(t, l, 2, 4, true); err != nil { // 13
		t.Fatal(err)
	}
	want := AbortedTxn{ProducerID: 7, FirstOffset: 5, LastOffset: 10, LastStableOffset: 11}
	check := func(when string) {
		t.Helper()
		for _, c := range []struct {
			from, upTo int64
			n          int
		}{{0, 20, 1}, {0, 6, 1}, {0, 5, 0}, {10, 14, 1}, {11, 14, 0}} {
			got, err := l.AbortedTransactions(c.from, c.upTo)
			if err != nil || len(got) != c.n || c.n == 1 && got[0] != want {
				t.Errorf("%s: aborted in [%d, %d): %+v, %v", when, c.from, c.upTo, got, err)
			}
		}
	}
	check("live")
	if _, err := send(t, l, 2, 0, 1, record.FlagTransactional); err != nil { // 14, left open
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// Kafka's own bytes for producer 7, offsets 5–9, marker 10, last stable offset 11.
	b, err := vfs.ReadFile(fsys, "/data/t-0/00000000000000000000.txnindex")
	if got := hex.EncodeToString(b); err != nil || got != "0000"+"0000000000000007"+"0000000000000005"+"000000000000000a"+"000000000000000b" {
		t.Errorf("transaction index is %s, %v", got, err)
	}
	for _, o := range []LogOptions{{Config: patientConfig(), Clean: true}, {Config: patientConfig()}} {
		l = open(t, fsys, o)
		check("reopened")
		unstable(15, 14)
		if p := l.Producers(); len(p) != 1 || p[0] != (ProducerState{ProducerID: 7, ProducerEpoch: 2, LastSequence: 0, LastTimestamp: 1, CoordinatorEpoch: 4, CurrentTxnStartOffset: 14}) {
			t.Errorf("producers %+v", p)
		}
	}
	if err := fsys.Remove("/data/t-0/00000000000000000000.txnindex"); err != nil {
		t.Fatal(err)
	}
	if err := fsys.Remove("/data/t-0/00000000000000000015.snapshot"); err != nil {
		t.Fatal(err)
	}
	l = open(t, fsys, LogOptions{Config: patientConfig()})
	check("without its index")
}

// TestSnapshotBytes compares with the layout of Apache's ProducerSnapshot version 1.
func TestSnapshotBytes(t *testing.T) {
	l := open(t, vfs.NewMem(), LogOptions{})
	if _, err := send(t, l, 2, 0, 3, 0); err != nil {
		t.Fatal(err)
	}
	b := l.mu.producers.encode()
	const want = "00000001" + "0000000000000007" + "0002" + "00000002" + "0000000000000002" + "00000002" + "0000000000000001" + "ffffffff" + "ffffffffffffffff"
	if got := hex.EncodeToString(b[6:]); len(b) != 56 || got != want {
		t.Errorf("snapshot is %s, want %s", got, want)
	}
	s, err := decodeProducers(b, 3, 1, 1000)
	if err != nil || *s.byID[7] != *l.mu.producers.byID[7] {
		t.Errorf("read back %+v, %v", s.byID[7], err)
	}
}

func FuzzSnapshot(f *testing.F) {
	s := newProducers(0)
	s.data(&record.Header{ProducerID: 1, LastOffsetDelta: 3}, Position{})
	f.Add(s.encode())
	f.Add([]byte{0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := decodeProducers(b, 1, 0, 1); err == nil {
			s.encode()
		}
	})
}

// However many producers come, no more than MaxProducers are remembered: those go that have written nothing for longest.
func TestMaxProducers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		const most = 100
		d, err := OpenDir(ctx, DirOptions{FS: newMem(t), Path: root, NodeID: 1, MaxProducers: most})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Load(ctx); err != nil {
			t.Fatal(err)
		}
		var logs []*Log
		for i := range int32(3) {
			l, err := d.Create("t", i, topicID, testConfig())
			if err != nil {
				t.Fatal(err)
			}
			logs = append(logs, l)
		}
		send := func(l *Log, id int64, sequence int32, flags record.Attributes) Appended {
			t.Helper()
			b, h := build(t, record.BatchOptions{Flags: flags, Producer: &record.ProducerState{ID: id, BaseSequence: sequence}}, 1, 10, time.Now().UnixMilli())
			a, err := l.AppendAsLeader(b, h, LeaderAppend{LeaderEpoch: 1})
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		remembered := func() (n int) {
			for _, l := range logs {
				n += len(l.Producers())
			}
			if count := d.budget.count.Load(); int(count) != n {
				t.Fatalf("%d producers are remembered, and counted are %d", n, count)
			}
			return n
		}
		send(logs[0], 1, 0, record.FlagTransactional)
		send(logs[1], 2, 0, 0)
		time.Sleep(time.Minute)
		for id := int64(1000); id < 1500; id++ { // one producer each, every so often
			time.Sleep(100 * time.Millisecond)
			synctest.Wait() // the trimming that may be due at this very moment
			send(logs[2], id, 0, 0)
			if id%50 == 0 {
				send(logs[1], 3, int32(id-1000)/50, 0)
			}
			if n := remembered(); n > most {
				t.Fatalf("%d producers are remembered", n)
			}
		}
		if !send(logs[1], 3, 9, 0).Duplicate || !send(logs[2], 1499, 0, 0).Duplicate {
			t.Error("a producer that wrote lately was forgotten")
		}
		if p := logs[0].Producers(); len(p) != 1 || p[0].ProducerID != 1 {
			t.Errorf("the producer of an open transaction was forgotten: %+v", p)
		}
		if p := logs[1].Producers(); len(p) != 1 || p[0].ProducerID != 3 {
			t.Errorf("one that wrote nothing for longest was not forgotten: %+v", p)
		}
		for id := int64(2000); id < 3000; id++ { // and all at once
			send(logs[id%3], id, 0, 0)
			if n := remembered(); n > most+len(logs) {
				t.Fatalf("%d producers are remembered", n)
			}
		}
		time.Sleep(2 * time.Second)
		if n := remembered(); n > most*9/10 {
			t.Errorf("%d producers are remembered, which leaves no room for more", n)
		}
		if p := logs[0].Producers(); !slices.ContainsFunc(p, func(p ProducerState) bool { return p.ProducerID == 1 }) {
			t.Error("the producer of an open transaction was forgotten")
		}
		if err := logs[0].TruncateTo(1); err != nil { // which builds the state anew
			t.Fatal(err)
		}
		remembered()
		if err := d.Delete(logs[2]); err != nil {
			t.Fatal(err)
		}
		logs = logs[:2]
		remembered()
		if err := d.Close(ctx, 1, true); err != nil {
			t.Error(err)
		}
		if n := d.budget.count.Load(); n != 0 {
			t.Errorf("%d producers are counted of a directory that is closed", n)
		}
	})
}
