package cli

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func TestParseSpan(t *testing.T) {
	for text, want := range map[string]int64{
		"P7D": 7 * 86_400_000, "PT2H": 7_200_000, "P1DT2H3M4.5S": 93_784_500, "pt0s": 0, "PT1.05S": 1050, "90s": 90_000, "7d": 7 * 86_400_000,
	} {
		if got, err := parseSpan(text); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"P1Y", "PT1D", "soon", "", "P99999999999D"} {
		if got, err := parseSpan(text); err == nil {
			t.Errorf("%q is taken for %d ms", text, got)
		}
	}
}

// TestSeekDatetime: a moment without a zone is in UTC, as in Kafka's tool.
func TestSeekDatetime(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000).In(time.FixedZone("", 3600))
	for text, want := range map[string]int64{
		"2026-01-02T03:04:05.678": 1_767_323_045_678, "2026-01-02T03:04:05Z": 1_767_323_045_000, "2026-01-02T03:04:05+01:00": 1_767_319_445_000,
	} {
		if got, err := parseTime(text, now.UTC()); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestBehind(t *testing.T) {
	for want, seconds := range map[string]float64{
		"0 s": 0, "2.1 s": 2.12, "42 s": 42.4, "3m20s": 200, "2h5m": 7500, "3d4h": 273_600,
	} {
		if got := behind(&seconds, false); got != want {
			t.Errorf("%v is printed as %q, want %q", seconds, got, want)
		}
		if got := behind(&seconds, true); got != "~"+want {
			t.Errorf("an estimated %v is printed as %q", seconds, got)
		}
	}
	if got := behind(nil, false); got != "-" {
		t.Errorf("an unknown age is printed as %q", got)
	}
}

// TestLag: an unread partition without a commit, one that nobody reads, one committed past its end and one without a leader.
func TestLag(t *testing.T) {
	committed := kadm.OffsetResponses{}
	for partition, at := range map[int32]int64{1: 30, 2: 120, 3: 7} {
		committed.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: "t", Partition: partition, At: at, Metadata: "m"}})
	}
	ends := kadm.ListedOffsets{"t": {0: {Offset: 100}, 1: {Offset: 100}, 2: {Offset: 100}, 3: {Err: kerr.LeaderNotAvailable}}}
	member := GroupMember{ID: "r-1", ClientID: "r", Host: "h", Assigned: map[string][]int32{"t": {1, 0}}}
	g := GroupDetail{Lag: -1, Partitions: groupPartitions([]GroupMember{member}, committed)}
	g.measure(ends)
	want := []GroupPartition{
		{Topic: "t", Partition: 0, Committed: -1, End: 100, Lag: -1, MemberID: "r-1", ClientID: "r", Host: "h"},
		{Topic: "t", Partition: 1, Committed: 30, End: 100, Lag: 70, MemberID: "r-1", ClientID: "r", Host: "h", Metadata: "m"},
		{Topic: "t", Partition: 2, Committed: 120, End: 100, Lag: 0, Metadata: "m"},
		{Topic: "t", Partition: 3, Committed: 7, End: -1, Lag: -1, Metadata: "m"},
	}
	if diff := cmp.Diff(want, g.Partitions); diff != "" || g.Lag != 70 {
		t.Errorf("lag %d, want 70; %s", g.Lag, diff)
	}
}
