package storage

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ottla/internal/uuid"
	"ottla/internal/vfs"
)

// FuzzTextFiles: each text file of a log directory is read or refused, and what was read is read again from what is written of it.
func FuzzTextFiles(f *testing.F) {
	for _, text := range []string{
		"0\n2\n1 0\n4 17\n", "0\n2\nt 0 5\nt 1 7\n", "0\n1\nt 0 -1\n", "0\n0\n", "", "1\n0\n", "0\n9223372036854775808\n",
		partitionMetadataStart + "AAAAAAAAAAAAAAAAAAAAAQ",
		"#\n#Mon Nov 30 07:00:00 UTC 2026\ncluster.id=q1Zr9aAtRk2xWb0hK3m7Ag\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\nnode.id=1\nversion=1\n",
		`{"version":0,"brokerEpoch":12}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if entries, err := readEpochs(b); err == nil {
			if again, err := readEpochs(encodeEpochs(entries)); err != nil || !slices.Equal(entries, again) {
				t.Errorf("epochs %v are read again as %v, %v", entries, again, err)
			}
		}
		if m, err := parseMetaProperties(b); err == nil && m.directory != uuid.Zero {
			if again, err := parseMetaProperties(m.encode(time.Time{})); err != nil || m != again {
				t.Errorf("%+v is read again as %+v, %v", m, again, err)
			}
		}
		fsys := vfs.NewMem()
		file := func(name string) string {
			t.Helper()
			path := filepath.Join("/", name)
			if err := vfs.WriteFileAtomic(fsys, path, b); err != nil {
				t.Fatal(err)
			}
			return path
		}
		path := file(recoveryPointFile)
		if offsets, err := readOffsets(fsys, path); err == nil {
			if err := writeOffsets(fsys, path, offsets); err != nil {
				t.Fatal(err)
			}
			if again, err := readOffsets(fsys, path); err != nil || !maps.Equal(offsets, again) {
				t.Errorf("offsets %v are read again as %v, %v", offsets, again, err)
			}
		}
		file(partitionMetadataFile)
		if id, err := readTopicID(fsys, "/"); err == nil {
			if err := writeTopicID(fsys, "/", id); err != nil {
				t.Fatal(err)
			}
			if again, err := readTopicID(fsys, "/"); err != nil || again != id {
				t.Errorf("topic id %s is read again as %s, %v", id, again, err)
			}
		}
		file(cleanShutdownFile)
		if _, _, err := takeCleanShutdown(fsys, "/"); err != nil {
			t.Error(err)
		}
		if _, clean, err := takeCleanShutdown(fsys, "/"); err != nil || clean {
			t.Errorf("a marker that was taken is still there (%v)", err)
		}
	})
}
