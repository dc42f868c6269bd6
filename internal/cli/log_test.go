package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"ottla"
)

// logDir makes a log directory with two batches in t-0, one of two records, with a broker that has stopped.
func logDir(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "data")
	b, err := ottla.Start(t.Context(), ottla.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("t"), kgo.ManualFlushing())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	at := time.Now()
	for _, batch := range [][]*kgo.Record{
		{{Key: []byte("k"), Value: []byte("v1")}, {Value: []byte("two\nlines"), Headers: []kgo.RecordHeader{{Key: "h"}}}},
		{{Key: []byte{0xff}}},
	} {
		for _, r := range batch {
			r.Timestamp = at // so that no time delta takes a byte more
			client.Produce(t.Context(), r, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		if err := client.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var volatileInDump = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z|crc: \d+|size: 1?\d\d `)

func TestLogDump(t *testing.T) {
	dir := logDir(t)
	code, stdout, stderr := run(t, "", "log", "dump", filepath.Join(dir, "t-0"), "--print-data-log")
	got := volatileInDump.ReplaceAllString(strings.ReplaceAll(stdout, dir, "data"), "~")
	want := `data/t-0/00000000000000000000.log
  baseOffset: 0 lastOffset: 1 count: 2 position: 0 ~partitionLeaderEpoch: 0 CreateTime: ~ compresscodec: none ~ producerId: 0 producerEpoch: 0 baseSequence: 0
  | offset: 0 CreateTime: ~ keySize: 1 valueSize: 2 key: k payload: v1
  | offset: 1 CreateTime: ~ keySize: -1 valueSize: 9 headerKeys: h payload: "two\nlines"
  baseOffset: 2 lastOffset: 2 count: 1 position: 90 ~partitionLeaderEpoch: 0 CreateTime: ~ compresscodec: none ~ producerId: 0 producerEpoch: 0 baseSequence: 2
  | offset: 2 CreateTime: ~ keySize: 1 valueSize: -1 key: "\xff"
data/t-0/00000000000000000000.timeindex
  timestamp: ~ offset: 1
data/t-0/00000000000000000003.snapshot
  producerId: 0 producerEpoch: 0 lastSequence: 2 lastTimestamp: ~ coordinatorEpoch: -1 currentTxnFirstOffset: -1
data/t-0/leader-epoch-checkpoint
  epoch: 0 startOffset: 0
`
	if diff := cmp.Diff(want, got); code != 0 || stderr != "" || diff != "" {
		t.Errorf("code %d, stderr %q, %s", code, stderr, diff)
	}
	code, stdout, _ = run(t, "", "log", "dump", filepath.Join(dir, "__cluster_metadata-0"), "--deep-iteration", "-o", "jsonl")
	for _, want := range []string{`"control":"LEADER_CHANGE"`, `"decoded":{"type":"TopicRecord","version":0,"data":{"Name":"t","TopicID":"`, `"epoch":{"epoch":1,"start_offset":0}`} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("code %d, no %s in\n%s", code, want, stdout)
		}
	}
}

func TestLogVerify(t *testing.T) {
	dir := logDir(t)
	code, stdout, stderr := run(t, "", "log", "verify", dir)
	if code != 0 || !strings.HasSuffix(stdout, ": sound\n") || stderr != "" {
		t.Errorf("code %d, %q, %q", code, stdout, stderr)
	}
	file := filepath.Join(dir, "t-0", "00000000000000000000.log")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[70]++
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = run(t, "", "log", "verify", filepath.Join(dir, "t-0"))
	finding := regexp.MustCompile(`(?m)^\S+/t-0/00000000000000000000\.log at byte 0, offset 0: LOSS: batch CRC is [0-9a-f]+ but its bytes give [0-9a-f]+; 90 bytes are unreadable$`)
	if code != ExitCondition || !finding.MatchString(stdout) || stderr != "ottla: log verify: 1 finding, records lost in 1 of them\n" {
		t.Errorf("code %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, _ = run(t, "", "log", "dump", file)
	if code != 0 || !strings.Contains(stdout, "  DAMAGE at byte 0, 90 bytes: batch CRC is ") || !strings.Contains(stdout, "  baseOffset: 2 ") {
		t.Errorf("code %d, %q", code, stdout)
	}
	if code, _, stderr = run(t, "", "log", "verify", t.TempDir()); code != ExitFailed || !strings.Contains(stderr, "is no log directory") {
		t.Errorf("code %d, %q", code, stderr)
	}
	if code, _, stderr = run(t, "", "log", "dump", filepath.Join(dir, "meta.properties")); code != ExitUsage || !strings.Contains(stderr, "holds nothing to dump") {
		t.Errorf("code %d, %q", code, stderr)
	}
}
