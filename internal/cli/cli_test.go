package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestExitCodes(t *testing.T) {
	for err, want := range map[error]int{
		usagef("x"): ExitUsage,
		failed("x", kerr.UnknownTopicOrPartition, "", ""):              ExitNotFound,
		failed("x", kerr.TopicAlreadyExists, "", ""):                   ExitExists,
		failed("x", kerr.TopicAuthorizationFailed, "", ""):             ExitForbidden,
		failed("x", kerr.RequestTimedOut, "", ""):                      ExitNoBroker,
		failed("x", kerr.InvalidConfig, "", ""):                        ExitFailed,
		&noBrokerError{"a", io.EOF}:                                    ExitNoBroker,
		&conditionError{"x"}:                                           ExitCondition,
		errors.Join(nil, failed("x", kerr.TopicAlreadyExists, "", "")): ExitExists,
		errors.New("x"): ExitFailed,
	} {
		if got := exitCode(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

// TestJSONRecordsRoundTrip sends records of every shape through `consume -o jsonl` and `produce -i jsonl`.
func TestJSONRecordsRoundTrip(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	records := []*kgo.Record{
		{Topic: "t", Partition: 3, Timestamp: at, Key: []byte("k"), Value: []byte("v")},
		{Topic: "t", Timestamp: at, Value: []byte{}},
		{Topic: "t", Timestamp: at, Key: []byte{0xff, 0}, Value: nil},
		{Topic: "t", Timestamp: at, Value: []byte("ä\"\n<&>"), Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "", Value: []byte{0x80}}}},
	}
	var out bytes.Buffer
	for _, r := range records {
		if err := writeJSON(&out, toJSON(r), false); err != nil {
			t.Fatal(err)
		}
	}
	source := &jsonSource{in: json.NewDecoder(&out)}
	for i, want := range records {
		got, err := source.ReadRecord()
		if err != nil {
			t.Fatal(err)
		}
		if got.Topic != want.Topic || got.Partition != want.Partition || !got.Timestamp.Equal(want.Timestamp) ||
			!same(got.Key, want.Key) || !same(got.Value, want.Value) || !cmp.Equal(got.Headers, want.Headers) {
			t.Errorf("record %d: %+v, want %+v", i, got, want)
		}
	}
	if _, err := source.ReadRecord(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// same tells null from empty.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func TestJSONErrorNamesTheRecord(t *testing.T) {
	source := &jsonSource{in: json.NewDecoder(strings.NewReader("{\"value\":\"a\"}\nnonsense"))}
	if _, err := source.ReadRecord(); err != nil {
		t.Fatal(err)
	}
	if _, err := source.ReadRecord(); err == nil || !strings.HasPrefix(err.Error(), "record 2 of the input: ") {
		t.Errorf("%v", err)
	}
}

func TestLines(t *testing.T) {
	source := lineSource{bufio.NewReader(strings.NewReader("a\r\n\nb"))}
	var got []string
	for {
		r, err := source.ReadRecord()
		if err == io.EOF {
			break
		}
		got = append(got, string(r.Value))
	}
	if diff := cmp.Diff([]string{"a", "", "b"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestStartRules(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	for text, want := range map[string]int64{
		"start": 10, "earliest": 10, "end": 100, "latest": 100, "42": 42, "5": 10, "1000": 100,
		"-10": 90, "-1000": 10, "+5": 15, "@1h": 77,
	} {
		rule, err := parseStart(text, now)
		if got := rule.from(10, 100, 77); err != nil || got != want {
			t.Errorf("--offset %s: %d, %v, want %d", text, got, err, want)
		}
	}
	if rule, err := parseStart("@1h", now); err != nil || rule.n != now.UnixMilli()-3_600_000 {
		t.Errorf("@1h: %+v, %v", rule, err)
	}
}

func TestParseTime(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	for text, want := range map[string]int64{
		"2026-01-02T03:04:05Z": 1_767_323_045_000, "7d": now.UnixMilli() - 7*86_400_000, "-90s": now.UnixMilli() - 90_000,
		"1767323045000": 1_767_323_045_000,
	} {
		if got, err := parseTime(text, now); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestMatchNames(t *testing.T) {
	all := []string{"log-b", "log-a", "cdc.x"}
	for _, test := range []struct {
		patterns []string
		regex    bool
		want     []string
	}{
		{nil, false, []string{"cdc.x", "log-a", "log-b"}},
		{[]string{"log-*"}, false, []string{"log-a", "log-b"}},
		{[]string{"^cdc\\."}, true, []string{"cdc.x"}},
		{[]string{"nope"}, false, []string{"nope"}},
		{[]string{"nope*"}, false, nil},
	} {
		got, err := matchNames(all, test.patterns, test.regex)
		if err != nil || !cmp.Equal(got, test.want) {
			t.Errorf("%v: %v, %v, want %v", test.patterns, got, err, test.want)
		}
	}
}

func TestHealth(t *testing.T) {
	partition := func(n, leader int32, isr ...int32) kadm.PartitionDetail {
		return kadm.PartitionDetail{Topic: "t", Partition: n, Leader: leader, Replicas: []int32{1, 2}, ISR: isr}
	}
	m := kadm.Metadata{Cluster: "c", Controller: 1, Topics: kadm.TopicDetails{"t": {Topic: "t", Partitions: kadm.PartitionDetails{
		0: partition(0, 1, 1, 2), 1: partition(1, 2, 2), 2: partition(2, -1),
	}}}}
	want := ClusterHealth{false, []string{"1 partition offline: t-2", "1 partition under-replicated: t-1"}}
	if diff := cmp.Diff(want, judge(m)); diff != "" {
		t.Error(diff)
	}
	status := ClusterStatus{ClusterID: "c", Controller: 1, Topics: 1, Partitions: 3, Offline: 1, UnderReplicated: 2, NotPreferred: 1}
	if diff := cmp.Diff(status, clusterStatus(m)); diff != "" {
		t.Error(diff)
	}
	if h := judge(kadm.Metadata{Controller: 1}); !h.Healthy {
		t.Errorf("%+v", h)
	}
}

func TestJAAS(t *testing.T) {
	line := `org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="a \"secret\"";`
	for _, name := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		m, err := mechanism(name, line)
		if err != nil || m.Name() != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := mechanism("GSSAPI", line); err == nil {
		t.Error("GSSAPI passes")
	}
}

// TestKafkaLines holds the perf lines against those that Apache's tools print, letter by letter.
func TestKafkaLines(t *testing.T) {
	started := time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.Local)
	r := BenchResult{Kind: "produce", Started: started, Records: 200000, Bytes: 40_000_000, Seconds: 25.986, RecordsPerSecond: 7696.451936, BytesPerSecond: 1_539_290.3872,
		Latency: &BenchLatency{Mean: 5.123, Max: 211.2, P50: 4.4, P95: 9.6, P99: 12.5, P999: 19.2}}
	for kind, want := range map[string]string{
		"produce": "200000 records sent, 7696.451936 records/sec (1.47 MB/sec), 5.12 ms avg latency, 211.20 ms max latency, 4 ms 50th, 10 ms 95th, 13 ms 99th, 19 ms 99.9th.\n",
		"consume": "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n" +
			"2026-03-04 05:06:07:089, 2026-03-04 05:06:33:075, 38.1470, 1.4680, 200000, 7696.4519, 0, 25986, 1.4680, 7696.4519\n",
		"e2e": "Avg latency: 5.1230 ms\nPercentiles: 50th = 4, 99th = 13, 99.9th = 19\n",
	} {
		r.Kind = kind
		var b strings.Builder
		r.kafkaLine(&b)
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}

func TestMeter(t *testing.T) {
	start := time.Unix(100, 0)
	m := newMeter(start)
	for i := range 1000 {
		due := start.Add(time.Duration(i) * 2 * time.Millisecond)
		m.add(100, due, due.Add(time.Duration(i%100+1)*time.Millisecond))
	}
	r := m.result()
	if r.Records != 1000 || r.Bytes != 100_000 || len(r.PerSecond) != 3 {
		t.Errorf("%d records, %d bytes, %d seconds", r.Records, r.Bytes, len(r.PerSecond))
	}
	if l := r.Latency; l.Min < 0.99 || l.Min > 1 || l.P50 < 50 || l.P50 > 51 || l.P99 < 99 || l.P99 > 100 || l.Max < 100 || l.Max > 100.1 {
		t.Errorf("%+v", l)
	}
	last := r.Histogram[len(r.Histogram)-1]
	if last.UpTo != 128 || last.Cumulative != 1 {
		t.Errorf("%+v", r.Histogram)
	}
}

// TestIntendedTime shows that a stall is charged to all records that were due during it.
func TestIntendedTime(t *testing.T) {
	start := time.Unix(100, 0)
	p, m := pace{start, 1000}, newMeter(start)
	for i := range int64(100) { // the broker answers nothing for the first 100 ms
		m.add(1, p.due(i), start.Add(100*time.Millisecond))
	}
	if l := m.result().Latency; l.P50 < 50 || l.Max < 100 {
		t.Errorf("%+v: the stall is hidden", l)
	}
}

func TestTargets(t *testing.T) {
	r := BenchResult{RecordsPerSecond: 1000, Latency: &BenchLatency{P99: 12}}
	for _, test := range []struct {
		targets targets
		miss    bool
	}{
		{targets{}, false}, {targets{20 * time.Millisecond, 900}, false}, {targets{10 * time.Millisecond, 0}, true}, {targets{0, 2000}, true},
	} {
		if err := test.targets.missed(r); (err != nil) != test.miss || err != nil && exitCode(err) != ExitCondition {
			t.Errorf("%+v: %v", test.targets, err)
		}
	}
}

func TestBenchCompare(t *testing.T) {
	dir := t.TempDir()
	save := func(name string, rate, p99 float64) string {
		path := filepath.Join(dir, name)
		b, err := json.Marshal(BenchResult{Kind: "produce", RecordsPerSecond: rate, BytesPerSecond: rate * 100, Latency: &BenchLatency{P50: 1, P95: 1, P99: p99, P999: 1, Max: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	before, after := save("a.json", 1000, 10), save("b.json", 1500, 20)
	code, stdout, _ := run(t, "", "bench", "compare", before, after)
	want := `FIGURE      BEFORE    AFTER    CHANGE  BETTER
records/s    1,000    1,500   +50.0 %  yes
bytes/s    100,000  150,000   +50.0 %  yes
p50 ms        1.00     1.00    +0.0 %  same
p95 ms        1.00     1.00    +0.0 %  same
p99 ms        10.0     20.0  +100.0 %  no
p99.9 ms      1.00     1.00    +0.0 %  same
max ms        1.00     1.00    +0.0 %  same
errors        0.00     0.00    +0.0 %  same
`
	if diff := cmp.Diff(want, stdout); code != 0 || diff != "" {
		t.Errorf("code %d, %s", code, diff)
	}
	code, _, stderr := run(t, "", "bench", "compare", before, after, "--max-p99", "15ms", "--min-rate", "2000")
	if code != ExitCondition || stderr != "ottla: bench target missed: p99 is 20.0 ms, over 15ms; rate is 1,500 records/s, under 2,000\n" {
		t.Errorf("code %d, %q", code, stderr)
	}
}

func TestPrintedNumbers(t *testing.T) {
	for got, want := range map[string]string{
		count(0): "0", count(999): "999", count(1204): "1,204", count(-1234567): "-1,234,567",
		size(0): "0 B", size(1023): "1023 B", size(1536): "1.50 KiB", size(76.9 * (1 << 20)): "76.9 MiB",
		span(7 * 24 * time.Hour): "7d", span(36 * time.Hour): "36h", span(1500 * time.Millisecond): "1500ms",
		plenty(1, "record"): "1 record", plenty(2, "record"): "2 records", bar(0.5, 4): "██", bar(0.28, 4): "█▏",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTopicIDsAreKafkas(t *testing.T) {
	if got := topicID(kadm.TopicID{0xfb, 0xff, 0xfe}); got != "-__-AAAAAAAAAAAAAAAAAA" {
		t.Errorf("%s", got)
	}
}

func TestParseCount(t *testing.T) {
	for text, want := range map[string]int64{"5M": 5_000_000, "200000": 200_000, "1.5k": 1500, "2G": 2_000_000_000, "1,000": 1000} {
		if got, err := parseCount(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
}
