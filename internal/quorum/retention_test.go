package quorum

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRetention: snapshots, and the segments of the log that they cover, are kept as long as metadata.max.retention.bytes and .ms
// say, and the newest in any case. A snapshot is taken each hour, five in all.
func TestRetention(t *testing.T) {
	const taken = 5
	for _, test := range []struct {
		name string
		log  LogOptions
		kept int
	}{
		{"without limits", LogOptions{MaxBytes: -1, MaxAge: -1}, taken},
		{"defaults", LogOptions{}, taken},
		{"by size", LogOptions{MaxBytes: 1, MaxAge: -1}, 1},
		{"by age", LogOptions{MaxBytes: -1, MaxAge: 90 * time.Minute}, 2},
		{"by either", LogOptions{MaxBytes: 1 << 20, MaxAge: 59 * time.Minute}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, 1)
				c.log = test.log
				c.log.SegmentBytes = 100 // a batch in each
				n := c.nodes[0]
				n.start()
				began := time.Now()
				for i := range taken {
					time.Sleep(time.Until(began.Add(time.Duration(i) * time.Hour)))
					c.propose(i)
					saveTopics(t, n, i+1)
				}
				check := func(when string, restarted bool) {
					t.Helper()
					snapshots, log := n.voter.log.view().snapshots, n.voter.log.log
					if len(snapshots) != test.kept {
						t.Fatalf("%s: the snapshots are %v, want %d of them", when, snapshots, test.kept)
					}
					start := snapshots[0].EndOffset
					if test.kept == taken {
						start = 0
					}
					file := start
					if test.kept == 1 {
						file-- // the segment that is written to stays, with the last batch in it
					}
					if restarted {
						start = file
					}
					if log.StartOffset() != start || log.Segments()[0].BaseOffset != file {
						t.Errorf("%s: the log begins at %d, its files at %d; want %d and %d", when, log.StartOffset(), log.Segments()[0].BaseOffset, start, file)
					}
					entries, err := n.fs.ReadDir("/data/__cluster_metadata-0")
					if err != nil {
						t.Fatal(err)
					}
					files := 0
					for _, e := range entries {
						if strings.HasSuffix(e.Name(), checkpointSuffix) {
							files++
						}
					}
					if files != test.kept {
						t.Errorf("%s: there are %d snapshots on the disk, want %d", when, files, test.kept)
					}
					if got := topics(t, n.voter); !slices.Equal(got, topicNames(taken)) {
						t.Errorf("%s: topics %v", when, got)
					}
				}
				check("at the end", false)
				n.stop()
				n.start()
				defer n.stop()
				c.leader(-1)
				check("after a restart", true)
			})
		})
	}
}
