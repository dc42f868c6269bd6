//go:build interop

package interop

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestStreams has a Kafka Streams application (at_least_once) count words while its instances come and go, are halted
// without leaving their group, lose their state directory, and meet a restarted broker. After each step the counts are right.
func TestStreams(t *testing.T) {
	dir := t.TempDir()
	w := &wordCount{broker: startBroker(t, dir, groupSettings...), want: map[string]int{}, said: map[string]string{}}
	w.broker.create(t, "lines", 4)
	w.broker.create(t, "counts", 2)
	w.app = startDriver(t, startHosted(t, "WordCount"), w.note)

	w.start(t, "a")
	w.write(t)
	w.checkCounts(t)
	w.start(t, "b") // takes over some of the tasks, with an empty state directory
	w.write(t)
	w.checkCounts(t)
	w.end(t, "stop", "a")
	w.write(t)
	w.checkCounts(t)
	w.start(t, "a")
	w.write(t)
	w.checkCounts(t)
	w.end(t, "halt", "b") // the group waits for its session to end
	w.write(t)
	w.checkCounts(t)
	w.end(t, "halt", "a")

	w.broker.stop(t)
	w.broker = startBroker(t, dir, groupSettings...)
	w.broker.lead(t, "counts", 2)
	w.write(t)
	w.start(t, "b")
	w.start(t, "a")
	w.checkCounts(t)
	w.checkTopics(t)
	w.end(t, "stop", "b")
	w.end(t, "stop", "a")
	w.checkCounts(t)
}

// A wordCount is the application, its broker, and what it must have counted.
type wordCount struct {
	broker *broker
	app    *processDriver
	lines  int // written so far
	want   map[string]int

	mu   sync.Mutex
	said map[string]string // the last state of each instance
	died string
}

func (w *wordCount) note(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name, state, _ := strings.Cut(line, " ")
	w.said[name] = state
	if strings.HasPrefix(state, "died") || state == "ERROR" {
		w.died = line
	}
}

func (w *wordCount) await(t *testing.T, name, state string) {
	t.Helper()
	eventually(t, name+" is "+state, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.died != "" {
			t.Fatal(w.died)
		}
		return w.said[name] == state
	})
}

func (w *wordCount) start(t *testing.T, name string) {
	t.Helper()
	fmt.Fprintln(w.app.in, "start", name, w.broker.address, t.TempDir(), "num.stream.threads=2", "commit.interval.ms=200",
		"repartition.purge.interval.ms=500", "heartbeat.interval.ms=300", "session.timeout.ms=20000", "processing.guarantee=at_least_once")
	w.await(t, name, "RUNNING")
}

func (w *wordCount) end(t *testing.T, how, name string) {
	t.Helper()
	fmt.Fprintln(w.app.in, how, name)
	w.await(t, name, "closed")
}

// write produces lines of words, some frequent and some rare.
func (w *wordCount) write(t *testing.T) {
	t.Helper()
	p := w.broker.newProducer(t, kgo.Lz4Compression())
	var lines []*kgo.Record
	for range 300 {
		words := []string{"every", fmt.Sprint("seventh-", w.lines%7), fmt.Sprint("hundredth-", w.lines%100), fmt.Sprint("line-", w.lines)}
		for _, word := range words {
			w.want[word]++
		}
		lines = append(lines, &kgo.Record{Topic: "lines", Partition: int32(w.lines % 4), Value: []byte(strings.Join(words, " "))})
		w.lines++
	}
	if err := p.ProduceSync(t.Context(), lines...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// checkCounts waits until the last count of each word is what it must be; none may be counted twice, or backwards.
func (w *wordCount) checkCounts(t *testing.T) {
	t.Helper()
	var got map[string]int
	defer func() {
		for word, n := range w.want {
			if t.Failed() && got[word] != n {
				t.Logf("%s is counted %d times, not %d", word, got[word], n)
				break
			}
		}
	}()
	eventually(t, "the counts are right", func() bool {
		got = map[string]int{}
		var records []string
		for line := range strings.Lines(w.broker.read(t, "counts")) {
			if line != "\n" { // nothing was read
				records = append(records, line)
			}
		}
		slices.SortFunc(records, func(a, b string) int { return offsetOf(t, a) - offsetOf(t, b) })
		for _, r := range records {
			f := strings.Fields(r) // partition, offset, timestamp, word, count
			n, err := strconv.Atoi(f[4])
			if err != nil || n > w.want[f[3]] || n < got[f[3]] {
				t.Fatalf("word %s is counted %s times behind %d; it was written %d times", f[3], f[4], got[f[3]], w.want[f[3]])
			}
			got[f[3]] = n
		}
		return maps.Equal(got, w.want)
	})
}

// offsetOf returns the offset in a line of the readers' format.
func offsetOf(t *testing.T, line string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.Fields(line)[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkTopics looks at what Streams made and used: a compacted changelog, and a repartition topic whose records go once they
// are processed.
func (w *wordCount) checkTopics(t *testing.T) {
	t.Helper()
	const changelog, repartition = "wordcount-counts-store-changelog", "wordcount-counts-store-repartition"
	configs, err := w.broker.admin.DescribeTopicConfigs(t.Context(), changelog)
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(configs[0].Configs, func(c kadm.Config) bool { return c.Key == "cleanup.policy" }); i < 0 || configs[0].Configs[i].MaybeValue() != "compact" {
		t.Errorf("%s is not compacted: %v", changelog, configs)
	}
	purged := func() bool {
		starts, err := w.broker.admin.ListStartOffsets(t.Context(), repartition)
		if err != nil {
			return false
		}
		ends, err := w.broker.admin.ListEndOffsets(t.Context(), repartition)
		if err != nil {
			return false
		}
		var first, end int64
		starts.Each(func(o kadm.ListedOffset) { first += o.Offset })
		ends.Each(func(o kadm.ListedOffset) { end += o.Offset })
		return first == end && end == int64(4*w.lines)
	}
	eventually(t, "what was processed is purged from "+repartition, func() bool {
		w.write(t) // what another instance processed is not purged by the one that has the task now before it has processed some itself
		w.checkCounts(t)
		return within(10*time.Second, purged)
	})
	described, err := w.broker.admin.DescribeGroups(t.Context(), "wordcount")
	if err != nil {
		t.Fatal(err)
	}
	if d := described["wordcount"]; d.ProtocolType != "consumer" || d.Protocol != "stream" || len(d.Members) != 4 {
		t.Errorf("group of protocol type %q, protocol %q, %d members; want consumer, stream, 4", d.ProtocolType, d.Protocol, len(d.Members))
	}
	var committed kadm.OffsetResponses
	eventually(t, "all is committed", func() bool {
		committed, err = w.broker.admin.FetchOffsets(t.Context(), "wordcount")
		sum := int64(0)
		committed.Each(func(o kadm.OffsetResponse) {
			if o.Topic == "lines" {
				sum += o.At
			}
		})
		return err == nil && sum == int64(w.lines)
	})
}
