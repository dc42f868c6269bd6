//go:build interop

// Package interop runs clients and tools that other people wrote against the
// built binary: Apache's Java producer, consumer and tools, librdkafka (kcat,
// confluent-kafka), aiokafka and kafkajs. run.sh installs them and calls this.
//
// Every producer writes the same records: record i goes to partition i mod 3
// with timestamp 1700000000000+i, key "k<i>", value "<prefix>-<i>" and a header
// h=<prefix>. Every reader prints one line a record, "partition offset
// timestamp key value header=value", so what the readers saw can be compared.
package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

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
	call   func(args ...string) *exec.Cmd
	reads  bool
}

var clients = []client{
	{"java", []string{"none", "gzip", "snappy", "lz4", "zstd"}, javaClient, true},
	{"confluent", []string{"none", "gzip", "snappy", "lz4", "zstd"}, pythonClient("confluent"), true},
	{"aiokafka", []string{"none", "gzip", "snappy", "lz4", "zstd"}, pythonClient("aiokafka"), true},
	{"kafkajs", []string{"none", "gzip", "snappy", "lz4"}, nodeProducer, false}, // consuming needs groups
	{"kcat", []string{"none", "gzip", "snappy", "lz4", "zstd"}, kcat, true},
}

func javaClient(args ...string) *exec.Cmd {
	return java("Client", args...)
}

func java(class string, args ...string) *exec.Cmd {
	cp := filepath.Join(cache, "classes") + ":" + filepath.Join(cache, "java", "*")
	return exec.Command("java", append([]string{"-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-Dlog4j2.configurationFile=java/log4j2.xml", "-cp", cp, class}, args...)...)
}

func pythonClient(library string) func(args ...string) *exec.Cmd {
	return func(args ...string) *exec.Cmd {
		return exec.Command(filepath.Join(cache, "python", "bin", "python"), append([]string{"python/client.py", library}, args...)...)
	}
}

func nodeProducer(args ...string) *exec.Cmd {
	cmd := exec.Command("node", append([]string{"node/produce.js"}, args[1:]...)...)
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
	b := startBroker(t, t.TempDir())
	for _, producer := range clients {
		for _, codec := range producer.codecs {
			t.Run(producer.name+"/"+codec, func(t *testing.T) {
				topic, prefix := producer.name+"-"+codec, producer.name
				b.createTopic(t, topic)
				run(t, producer.call("produce", b.address, topic, codec, prefix, fmt.Sprint(count)))
				want := b.read(t, topic)
				checkRecords(t, want, prefix, producer.name != "kcat")
				for _, reader := range clients {
					if !reader.reads {
						continue
					}
					if got := sortedLines(run(t, reader.call("consume", b.address, topic))); got != want {
						t.Errorf("%s reads what %s wrote differently:\n%s", reader.name, producer.name, firstDifference(got, want))
					}
				}
			})
		}
	}
	t.Run("java/idempotent acks=0 acks=1", func(t *testing.T) {
		for _, settings := range [][]string{{"enable.idempotence=true"}, {"acks=1", "enable.idempotence=false"}, {"acks=0", "enable.idempotence=false"}} {
			topic := "java-" + strings.Map(func(r rune) rune {
				if r == '=' {
					return '-'
				}
				return r
			}, settings[0])
			b.createTopic(t, topic)
			run(t, javaClient(append([]string{"produce", b.address, topic, "none", "java", fmt.Sprint(count)}, settings...)...))
			checkRecords(t, b.readEventually(t, topic), "java", true)
		}
	})
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
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
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

// A broker is a process under test: ottla's built binary, or Apache Kafka.
type broker struct {
	address    string
	controller string
	client     *kgo.Client
	admin      *kadm.Client
	cmd        *exec.Cmd
	log        *bytes.Buffer
}

var binary = filepath.Join(os.TempDir(), fmt.Sprintf("ottla-interop-%d", os.Getpid()))

func TestMain(m *testing.M) {
	if out, err := exec.Command("go", "build", "-o", binary, "ottla/cmd/ottla").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build ottla: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.Remove(binary)
	os.Exit(code)
}

// startBroker starts the broker under test on directory dir; the test's end stops it.
func startBroker(t *testing.T, dir string, more ...string) *broker {
	t.Helper()
	if os.Getenv("AGAINST") == "apache" {
		return startApache(t, dir, more...)
	}
	return startOttla(t, dir, more...)
}

// settings are those both brokers get, so that either can take over the other's directory. The tests' records have
// timestamps long past, hence no retention by time.
func settings(port int, dir string, more []string) []string {
	return append([]string{
		"process.roles=broker,controller", "node.id=1",
		fmt.Sprintf("controller.quorum.bootstrap.servers=127.0.0.1:%d", port+1),
		"controller.listener.names=CONTROLLER",
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", port, port+1),
		"log.dirs=" + dir, "offsets.topic.replication.factor=1", "num.partitions=3", "log.retention.ms=-1",
	}, more...)
}

func startOttla(t *testing.T, dir string, more ...string) *broker {
	t.Helper()
	port := freePort(t)
	args := []string{"serve", "--set", "ottla.console.listener="}
	for _, s := range settings(port, dir, more) {
		args = append(args, "--set", s)
	}
	return started(t, exec.Command(binary, args...), port)
}

func startApache(t *testing.T, dir string, more ...string) *broker {
	t.Helper()
	port := freePort(t)
	file := filepath.Join(t.TempDir(), "server.properties")
	more = append([]string{"log.cleaner.dedupe.buffer.size=8388608"}, more...) // by default half the heap that it gets here
	if err := os.WriteFile(file, []byte(strings.Join(settings(port, dir, more), "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "meta.properties")); err != nil {
		run(t, java("kafka.tools.StorageTool", "format", "--standalone", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", file))
	}
	return started(t, java("kafka.Kafka", file), port)
}

func started(t *testing.T, cmd *exec.Cmd, port int) *broker {
	t.Helper()
	b := &broker{address: fmt.Sprintf("127.0.0.1:%d", port), controller: fmt.Sprintf("127.0.0.1:%d", port+1), cmd: cmd, log: new(bytes.Buffer)}
	cmd.Stdout, cmd.Stderr = b.log, b.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.MetadataMinAge(10*time.Millisecond)) // for so long it believes its cache
	if err != nil {
		t.Fatal(err)
	}
	b.client, b.admin = cl, kadm.NewClient(cl)
	t.Cleanup(func() {
		cl.Close()
		if b.cmd.ProcessState == nil {
			b.stop(t)
		}
		if t.Failed() {
			t.Logf("broker's log:\n%.20000s", b.log)
		}
	})
	eventually(t, "the broker answers", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.admin.ListTopics(ctx)
		return err == nil
	})
	return b
}

// stop ends the broker with SIGTERM, which must lead to exit status 0 (Apache's JVM says 143).
func (b *broker) stop(t *testing.T) {
	t.Helper()
	b.cmd.Process.Signal(syscall.SIGTERM)
	if err := b.cmd.Wait(); err != nil && b.cmd.ProcessState.ExitCode() != 143 {
		t.Errorf("broker at SIGTERM: %v\n%s", err, b.log)
	}
}

func (b *broker) createTopic(t *testing.T, topic string) {
	t.Helper()
	if r, err := b.admin.CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
}

// nextPort is where freePort goes on looking: below the ports that the system gives to clients, which could take one
// before the broker does.
var nextPort = 15000 + os.Getpid()%7000*2

// freePort returns a port that, like the next one, nobody listens on and no broker of this run had.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := nextPort
		nextPort += 2
		if isFree(port) && isFree(port+1) {
			return port
		}
	}
	t.Fatalf("no two neighbouring free ports below %d", nextPort)
	return 0
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// run returns the command's standard output and fails the test unless it exits with 0 within a minute.
func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, tail(errs.String()))
	}
	return out.String()
}

func tail(s string) string {
	return s[max(0, len(s)-3000):]
}

// eventually waits until what is asked holds, for half a minute at the most.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-ticker.C {
		if holds() {
			return
		}
	}
	t.Fatalf("waited half a minute: %s", what)
}
