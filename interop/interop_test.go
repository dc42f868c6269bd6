//go:build interop

// Package interop runs clients and tools that other people wrote against the
// built binary: Apache's Java producer, consumers, tools, Streams and Connect,
// librdkafka (kcat, confluent-kafka), aiokafka, kafkajs and sarama; and hands
// directories to Apache's broker and back. run.sh installs them and calls this.
//
// Every producer writes the same records: record i goes to partition i mod 3
// with timestamp 1700000000000+i, key "k<i>", value "<prefix>-<i>" and a header
// h=<prefix>. Every reader prints one line a record, "partition offset
// timestamp key value header=value", so what the readers saw can be compared.
package interop

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 3
	count      = 300
)

var cache = os.Getenv("INTEROP_CACHE")

// A client is one library: how it is called, and the codecs it has.
type client struct {
	name   string
	codecs []string
	call   func(t *testing.T, args ...string) string // returns its standard output
	reads  bool
}

func newClients(t *testing.T) []client {
	java := func(t *testing.T, args ...string) string {
		t.Helper()
		call := strings.Join(append([]string{"Client"}, args...), " ")
		p := startHosted(t, call)
		out, status := finish(t, p)
		if status != 0 {
			t.Fatalf("%s: exit status %d:\n%s", call, status, tail(p.errs.String()))
		}
		return out
	}
	confluent, aiokafka := startToolbox(t, python("client.py", "confluent")), startToolbox(t, python("client.py", "aiokafka"))
	kafkajs := startToolbox(t, node("client.js"))
	return []client{
		{"java", []string{"none", "gzip", "snappy", "lz4", "zstd"}, java, true},
		{"confluent", []string{"none", "gzip", "snappy", "lz4", "zstd"}, confluent.run, true},
		{"aiokafka", []string{"none", "gzip", "snappy", "lz4", "zstd"}, aiokafka.run, true},
		{"kafkajs", []string{"none", "gzip", "snappy", "lz4"}, kafkajs.run, false}, // reads in a group only: see kafkajsConsumes
		{"kcat", []string{"none", "gzip", "snappy", "lz4", "zstd"}, func(t *testing.T, args ...string) string {
			t.Helper()
			return run(t, kcat(args...))
		}, true},
	}
}

func python(script string, args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(cache, "python", "bin", "python"), append([]string{"python/" + script}, args...)...)
}

func node(script string) *exec.Cmd {
	cmd := exec.Command("node", "node/"+script)
	cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(cache, "node", "node_modules"))
	return cmd
}

// kcat has no flag for a record's timestamp, so it is left out of the comparison of producers by value.
func kcat(args ...string) *exec.Cmd {
	switch bootstrap, topic := args[1], args[2]; args[0] {
	case "produce":
		codec, prefix := args[3], args[4]
		var script strings.Builder
		for p := range partitions {
			var lines strings.Builder
			for i := p; i < count; i += partitions {
				fmt.Fprintf(&lines, "k%d:%s-%d\n", i, prefix, i)
			}
			fmt.Fprintf(&script, "kcat -q -b %s -P -t %s -p %d -K: -H h=%s -z %s <<'E'\n%sE\n", bootstrap, topic, p, prefix, codec, &lines)
		}
		return exec.Command("sh", "-ec", script.String())
	default:
		return exec.Command("kcat", "-q", "-b", bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-f", `%p %o %T %k %s %h\n`)
	}
}

// TestClients has each client produce with each codec it has; every reading client must then see the same
// records in each topic.
func TestClients(t *testing.T) {
	b := startBroker(t, t.TempDir(), groupSettings...)
	clients := newClients(t)
	for _, producer := range clients {
		for _, codec := range producer.codecs {
			t.Run(producer.name+"/"+codec, func(t *testing.T) {
				topic, prefix := producer.name+"-"+codec, producer.name
				b.createTopic(t, topic)
				producer.call(t, "produce", b.address, topic, codec, prefix, fmt.Sprint(count))
				want := b.read(t, topic)
				checkRecords(t, want, prefix, producer.name != "kcat")
				for _, reader := range clients {
					if !reader.reads {
						continue
					}
					if got := sortedLines(reader.call(t, "consume", b.address, topic)); got != want {
						t.Errorf("%s reads what %s wrote differently:\n%s", reader.name, producer.name, firstDifference(got, want))
					}
				}
			})
		}
	}
	t.Run("kafkajs/consume", func(t *testing.T) { kafkajsConsumes(t, b, clients) })
	t.Run("java/idempotent acks=0 acks=1", func(t *testing.T) {
		for _, settings := range [][]string{{"enable.idempotence=true"}, {"acks=1", "enable.idempotence=false"}, {"acks=0", "enable.idempotence=false"}} {
			topic := "java-" + strings.Map(func(r rune) rune {
				if r == '=' {
					return '-'
				}
				return r
			}, settings[0])
			b.createTopic(t, topic)
			clients[0].call(t, append([]string{"produce", b.address, topic, "none", "java", fmt.Sprint(count)}, settings...)...)
			checkRecords(t, b.readEventually(t, topic), "java", true)
		}
	})
}

// kafkajsConsumes has a group of kafkajs read all topics in codecs that kafkajs has, commit and leave; when it starts again, it
// goes on where it was.
func kafkajsConsumes(t *testing.T, b *broker, clients []client) {
	kafkajs := clients[slices.IndexFunc(clients, func(c client) bool { return c.name == "kafkajs" })]
	var topics []string
	var want strings.Builder
	for _, producer := range clients {
		for _, codec := range producer.codecs {
			if codec == "zstd" {
				continue
			}
			topic := producer.name + "-" + codec
			topics = append(topics, topic)
			for line := range strings.Lines(b.read(t, topic)) {
				want.WriteString(topic + " " + line)
			}
		}
	}
	consume := func(n int) string {
		t.Helper()
		return sortedLines(kafkajs.call(t, append([]string{"consume", b.address, "kafkajs", fmt.Sprint(n)}, topics...)...))
	}
	if got, want := consume(count*len(topics)), sortedLines(want.String()); got != want {
		t.Fatalf("kafkajs reads what the clients wrote differently:\n%s", firstDifference(got, want))
	}
	more := ""
	p := b.newProducer(t, kgo.SnappyCompression())
	for i := range 30 {
		r := &kgo.Record{Topic: topics[i%len(topics)], Partition: int32(i % partitions), Key: fmt.Append(nil, i), Value: []byte("more")}
		if err := p.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		more += r.Topic + " " + line(r) + "\n"
	}
	if got, want := consume(30), sortedLines(more); got != want {
		t.Fatalf("kafkajs goes on elsewhere than where it was:\n%s", firstDifference(got, want))
	}
}

// read returns what franz-go reads of topic, in the readers' format, sorted.
func (b *broker) read(t *testing.T, topic string) string {
	t.Helper()
	ends, err := b.admin.ListEndOffsets(t.Context(), topic)
	if err != nil || ends.Error() != nil {
		t.Fatal(err, ends.Error())
	}
	starts, err := b.admin.ListStartOffsets(t.Context(), topic)
	if err != nil || starts.Error() != nil {
		t.Fatal(err, starts.Error())
	}
	assigned := map[int32]kgo.Offset{}
	left := int64(0)
	ends.Each(func(o kadm.ListedOffset) {
		start, _ := starts.Lookup(topic, o.Partition)
		assigned[o.Partition] = kgo.NewOffset().At(start.Offset)
		left += o.Offset - start.Offset
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: assigned}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out strings.Builder
	for left > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%s: %d records left: %v", topic, left, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			left--
			out.WriteString(line(r) + "\n")
		})
	}
	return sortedLines(out.String())
}

// line prints a record in the readers' format; of a long value its hash.
func line(r *kgo.Record) string {
	value := string(r.Value)
	if len(value) > 1000 {
		value = fmt.Sprintf("%x", sha256.Sum256(r.Value))
	}
	s := fmt.Sprintf("%d %d %d %s %s", r.Partition, r.Offset, r.Timestamp.UnixMilli(), r.Key, value)
	for _, h := range r.Headers {
		s += fmt.Sprintf(" %s=%s", h.Key, h.Value)
	}
	return s
}

// readEventually reads topic once its end offsets add up to count: a producer with acks=0 has gone before
// its last records arrived.
func (b *broker) readEventually(t *testing.T, topic string) string {
	t.Helper()
	eventually(t, topic+" has all records", func() bool {
		ends, err := b.admin.ListEndOffsets(t.Context(), topic)
		sum := int64(0)
		ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
		return err == nil && sum == count
	})
	return b.read(t, topic)
}

// checkRecords compares lines, sorted, with the records that a producer with this prefix writes.
func checkRecords(t *testing.T, lines, prefix string, timestamps bool) {
	t.Helper()
	var want strings.Builder
	for i := range count {
		ts := fmt.Sprint(1700000000000 + i)
		if !timestamps {
			ts = "-"
		}
		fmt.Fprintf(&want, "%d %d %s k%d %s-%d h=%s\n", i%partitions, i/partitions, ts, i, prefix, i, prefix)
	}
	var got strings.Builder
	for line := range strings.Lines(lines) {
		f := strings.Fields(line)
		if !timestamps && len(f) > 2 {
			f[2] = "-"
		}
		got.WriteString(strings.Join(f, " ") + "\n")
	}
	if a, b := sortedLines(got.String()), sortedLines(want.String()); a != b {
		t.Fatalf("records differ from what was produced:\n%s", firstDifference(a, b))
	}
}

func sortedLines(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			return fmt.Sprintf("%d lines, wanted %d; line %d:\n got %.200s\nwant %.200s", len(g), len(w), i+1, at(g, i), at(w, i))
		}
	}
	return ""
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(none)"
}
