package storage

import (
	"testing"

	"ottla/internal/record"
)

func TestVerifyDir(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(p *patient)
		loss   []int64 // offsets
		other  int     // findings
	}{
		{"sound", func(*patient) {}, nil, 0},
		{"flip", func(p *patient) { p.flip(0, 20); p.flip(1, 80) }, []int64{200, 800}, 0},
		{"tail", func(p *patient) { b := p.read(p.file(2, logSuffix)); p.write(p.file(2, logSuffix), b[:len(b)-1]) }, []int64{1290}, 0},
		{"index", func(p *patient) {
			b := p.read(p.file(1, indexSuffix))
			b[7]++
			p.write(p.file(1, indexSuffix), b)
		}, nil, 1},
		{"checkpoints", func(p *patient) {
			p.write(recoveryPointFile, []byte("x"))
			p.write("t-0/"+epochFile, []byte("y"))
			p.write(p.file(1, snapshotSuffix), nil)
		}, nil, 3},
	} {
		p := admit(t, true, 0)
		c.damage(p)
		var loss []int64
		other := 0
		v, err := VerifyDir(p.fs, root, func(f Finding) {
			if f.Loss {
				loss = append(loss, f.Offset)
				return
			}
			other++
		})
		if err != nil {
			t.Fatal(err)
		}
		want := allBatch - len(c.loss)
		if v.Partitions != 1 || v.Segments != 3 || v.Batches != want || v.Records != want*perBatch {
			t.Errorf("%s: %+v", c.name, v)
		}
		if len(loss) != len(c.loss) || other != c.other {
			t.Errorf("%s: lost at %v, %d other findings", c.name, loss, other)
		}
		for i := range loss {
			if loss[i] != c.loss[i] {
				t.Errorf("%s: lost at %v, want %v", c.name, loss, c.loss)
			}
		}
	}
}

func FuzzRecoverSegment(f *testing.F) {
	b, _ := batch(f, 3, 20, 5)
	f.Add(b, false)
	f.Add(append(append([]byte{}, b...), make([]byte, 600)...), true)
	f.Add(b[:len(b)-3], false)
	far := append([]byte{'0'}, b...) // sound but for its offset, behind a byte that is no batch
	copy(far[1:], "00000000")
	f.Add(far, false)
	f.Fuzz(func(t *testing.T, data []byte, clean bool) {
		fsys := newMem(t)
		if err := fsys.MkdirAll("/data/t-0", 0o755); err != nil {
			t.Fatal(err)
		}
		file, err := fsys.Create("/data/t-0/00000000000000000000.log")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(data, 0); err != nil {
			t.Fatal(err)
		}
		l := open(t, fsys, LogOptions{Clean: clean})
		for at := l.StartOffset(); at < l.End().Offset; { // whatever is left is sound
			got, err := l.Batch(at, nil)
			if err != nil {
				t.Fatal(err)
			}
			h, err := record.ParseHeader(got)
			if err != nil {
				t.Fatal(err)
			}
			at = h.NextOffset()
		}
		raw, h := batch(t, 1, 1, 1)
		if l.End().Offset < 1<<40 {
			if _, err := l.AppendAsLeader(raw, h, LeaderAppend{LeaderEpoch: 1 << 30}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
