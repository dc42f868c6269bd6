package storage

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestVerifyFindings damages one thing at a time that VerifyDir's counts do not tell apart.
func TestVerifyFindings(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(p *patient)
		path   string
		want   string
		loss   bool
	}{
		{"time index", func(p *patient) {
			b := p.read(p.file(0, timeIndexSuffix))
			b[7]++
			p.write(p.file(0, timeIndexSuffix), b)
		}, timeIndexSuffix, "no batch there has", false},
		{"index of a sealed segment gone", func(p *patient) { p.remove(p.file(0, indexSuffix)) }, indexSuffix, "is missing", false},
		{"index of the active segment gone", func(p *patient) { p.remove(p.file(2, indexSuffix)) }, "", "", false},
		{"bytes behind an index", func(p *patient) {
			p.write(p.file(0, indexSuffix), append(p.read(p.file(0, indexSuffix)), 0, 0, 0, 1))
		}, indexSuffix, "4 bytes behind entry", false},
		{"preallocated index", func(p *patient) {
			p.write(p.file(0, indexSuffix), append(p.read(p.file(0, indexSuffix)), make([]byte, 64)...))
		}, "", "", false},
		{"transaction index", func(p *patient) { p.write(p.file(0, txnIndexSuffix), []byte("x")) }, txnIndexSuffix, "1 bytes are no entries", false},
		{"segment gone", func(p *patient) { p.remove(p.file(1, logSuffix)) }, logSuffix, "the one before it ends at", true},
		{"log ends early", func(p *patient) { p.remove(p.file(2, logSuffix)) }, "t-0", "it was on the disk up to", true},
		{"topic id", func(p *patient) { p.write("t-0/"+partitionMetadataFile, []byte("x")) }, partitionMetadataFile, "topic_id", false},
		{"meta.properties", func(p *patient) { p.write(metaPropertiesFile, []byte("x")) }, metaPropertiesFile, "version", false},
		{"kept bytes", func(p *patient) { p.write(p.file(0, logSuffix)+".7"+tornSuffix, []byte("x")) }, tornSuffix, "earlier recovery", false},
		{"epoch of the future", func(p *patient) { p.write("t-0/"+epochFile, []byte("0\n1\n7 99999\n")) }, epochFile, "but the log ends at", false},
	} {
		p := admit(t, true, 0)
		c.damage(p)
		var first *Finding
		if _, err := VerifyDir(p.fs, root, func(f Finding) {
			if first == nil || f.Loss {
				first = &f
			}
		}); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		switch {
		case first == nil && c.want == "":
		case first == nil || c.want == "":
			t.Errorf("%s: found %v", c.name, first)
		case !strings.HasSuffix(first.Path, c.path) || !strings.Contains(first.Reason, c.want) || first.Loss != c.loss:
			t.Errorf("%s: found %+v", c.name, *first)
		}
	}
}

func TestVerifyPath(t *testing.T) {
	p := admit(t, true, 0)
	none := func(f Finding) { t.Errorf("found %+v", f) }
	for path, segments := range map[string]int{root: 3, filepath.Join(root, "t-0"): 3, filepath.Join(root, p.file(1, logSuffix)): 1} {
		if v, err := VerifyPath(p.fs, path, none); err != nil || v.Segments != segments {
			t.Errorf("%s: %+v, %v", path, v, err)
		}
	}
	for _, path := range []string{filepath.Join(root, p.file(1, indexSuffix)), filepath.Join(root, "nowhere"), "/"} {
		if _, err := VerifyPath(p.fs, path, none); err == nil {
			t.Errorf("%s passes for a log", path)
		}
	}
}
