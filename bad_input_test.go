package ottla_test

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla"
)

// A badInput is one thing that a client should not send, and what must come of it: a typed answer or a closed
// connection. Whatever it is, the broker then still takes and gives records, and keeps none of a refused Produce.
type badInput struct {
	row string
	// send says it and tells what came of it; topic is there for this row alone.
	send   func(w *wire, topic string) string
	want   string
	apache string // what Apache Kafka 4.4 does, if ottla must differ
	stored int64  // records of topic that were accepted on the way
	// apacheStored is stored for Apache Kafka, where it takes what ottla must not.
	apacheStored int64
}

// notWithApache in the apache column says that Apache Kafka must not be asked: it would not live, or only in its own time.
const notWithApache = "do not ask"

func TestBadInput(t *testing.T) {
	log := new(lines)
	g := underTest(t, ottla.Config{
		Properties: map[string]string{
			"ottla.produce.max.decompressed.bytes": strconv.Itoa(256 << 20),
			"auto.create.topics.enable":            "false",
			"ottla.console.listener":               "127.0.0.1:0",
		},
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	var rows []badInput
	for _, table := range [][]badInput{frameRows(), versionRows(), bodyRows(), createTopicsRows(), produceRows(), producerRows(), fetchRows(), groupRows(), otherRows()} {
		rows = append(rows, table...)
	}
	var topics []kmsg.CreateTopicsRequestTopic
	for i := range rows {
		topics = append(topics, newTopic(topicName("bad", i)))
	}
	dial(t, g.addr).createTopics(topics...)

	// Those that measure the memory of the process come first and alone.
	memoryRows(t, g)
	for i, row := range rows {
		if g.apache && row.apache == notWithApache {
			continue
		}
		t.Run(row.row, func(t *testing.T) {
			t.Parallel()
			topic := topics[i].Topic
			want := g.want(row.want, row.apache)
			if got := row.send(dial(t, g.addr), topic); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			stored := row.stored
			if g.apache && row.apacheStored > 0 {
				stored = row.apacheStored
			}
			assertServes(t, g, topic, stored)
		})
	}
	if g.apache {
		return
	}
	for hint := range foreignGreetings {
		t.Run("the log says "+hint, func(t *testing.T) {
			t.Parallel()
			if got := dial(t, g.addr).raw(foreignGreetings[hint]); got != closed {
				t.Errorf("got %q, want %q", got, closed)
			}
			log.await(t, hint)
		})
	}
	for reason, frame := range map[string][]byte{
		"bad_size": size(-1), "too_large": size(100<<20 + 1), "http": foreignGreetings["HTTP on a Kafka port"],
		"tls": foreignGreetings["TLS on a plaintext port"], "ssh": foreignGreetings["SSH on a Kafka port"],
	} {
		t.Run("counted as "+reason, func(t *testing.T) {
			t.Parallel()
			if got := dial(t, g.addr).raw(frame); got != closed {
				t.Errorf("got %q, want %q", got, closed)
			}
			series := fmt.Sprintf(`ottla_connections_closed_total{listener="PLAINTEXT",reason=%q}`, reason)
			await(t, "counted", func() string {
				if strings.Contains(metrics(t, g.broker), series) {
					return "counted"
				}
				return "not counted"
			})
		})
	}
}

// metrics is what the broker's /metrics says.
func metrics(t *testing.T, b *ottla.Broker) string {
	t.Helper()
	resp, err := http.Get(b.ConsoleURL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// lines is a log that a test can wait for.
type lines struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{} // closed by the next Write
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written != nil {
		close(l.written)
		l.written = nil
	}
	return l.text.Write(p)
}

// await returns when the log holds text.
func (l *lines) await(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(answerWithin)
	for {
		l.mu.Lock()
		found := strings.Contains(l.text.String(), text)
		if l.written == nil {
			l.written = make(chan struct{})
		}
		written := l.written
		l.mu.Unlock()
		if found {
			return
		}
		select {
		case <-written:
		case <-timeout:
			t.Fatalf("the log does not say %q", text)
		}
	}
}

// assertServes writes and reads a record: the broker serves, and topic held exactly stored records.
func assertServes(t *testing.T, g target, topic string, stored int64) {
	t.Helper()
	w := dial(t, g.addr)
	good := newBatch("good").bytes()
	if offset := w.produce(topic, good); offset != stored {
		t.Errorf("a good record behind it has offset %d, want %d", offset, stored)
	}
	p := call[*kmsg.FetchResponse](w, fetchOf(topic, stored)).Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		t.Fatalf("Fetch of the good record: %s", errorName(p.ErrorCode))
	}
	if want := storedBatch(good, stored, 0); !bytes.Equal(p.RecordBatches, want) {
		t.Errorf("the good record was read as\n%x, want\n%x", p.RecordBatches, want)
	}
}

// size is a frame's announced size with what follows it.
func size(n int32, body ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(n)), body...)
}

var foreignGreetings = map[string][]byte{
	"HTTP on a Kafka port":    []byte("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"),
	"TLS on a plaintext port": {0x16, 0x03, 0x01, 0x00, 0xf5, 0x01, 0x00, 0x00, 0xf1, 0x03, 0x03},
	"SSH on a Kafka port":     []byte("SSH-2.0-OpenSSH_9.2\r\n"),
}

func frameRows() []badInput {
	raw := func(row string, b []byte) badInput {
		return badInput{row: row, want: closed, send: func(w *wire, _ string) string { return w.raw(b) }}
	}
	return []badInput{
		raw("size -1", size(-1)),
		raw("size -2^31", size(math.MinInt32)),
		raw("size 2^31-1", size(math.MaxInt32)),
		raw("size 100 MiB+1", size(100<<20+1)),
		raw("size 0", size(0)),
		raw("short header", size(4, 0, 3, 0, 1)),
		raw("256 zero bytes", make([]byte, 256)),
		raw("HTTP GET", foreignGreetings["HTTP on a Kafka port"]),
		raw("TLS hello", foreignGreetings["TLS on a plaintext port"]),
		raw("SSH banner", foreignGreetings["SSH on a Kafka port"]),
	}
}

func versionRows() []badInput {
	frame := func(row string, key, version int16, flexible bool) badInput {
		return badInput{row: row, want: closed, send: func(w *wire, _ string) string { return w.frame(key, version, flexible, make([]byte, 16)) }}
	}
	request := func(row string, req kmsg.Request) badInput {
		return badInput{row: row, want: closed, send: func(w *wire, _ string) string {
			if _, err := w.try(req); err != nil {
				return err.Error()
			}
			return "an answer"
		}}
	}
	heartbeat, alter, vote := kmsg.NewPtrBrokerHeartbeatRequest(), kmsg.NewPtrAlterPartitionRequest(), kmsg.NewPtrVoteRequest()
	heartbeat.Version, alter.Version, vote.Version = 2, 3, 2
	return []badInput{
		frame("api key 9999", 9999, 0, false),
		frame("api key -1", -1, 0, false),
		frame("Metadata v99", 3, 99, true),
		frame("Metadata v-1", 3, -1, false),
		frame("Produce v2", 0, 2, false),
		frame("ZK-era LeaderAndIsr", 4, 2, false),
		frame("ZK-era StopReplica", 5, 1, false),
		frame("ZK-era UpdateMetadata", 6, 5, false),
		frame("ZK-era ControlledShutdown", 7, 2, false),
		{row: "ApiVersions v99", want: "UNSUPPORTED_VERSION, ApiVersions 0-5", send: apiVersions(99)},
		{row: "ApiVersions v-1", want: "UNSUPPORTED_VERSION, ApiVersions 0-5", send: apiVersions(-1)},
		request("BrokerHeartbeat on a broker listener", heartbeat),
		request("AlterPartition on a broker listener", alter),
		request("Vote on a broker listener", vote),
	}
}

// apiVersions asks in a version that is not there and reads the answer, which has the body of version 0.
func apiVersions(version int16) func(*wire, string) string {
	return func(w *wire, _ string) string {
		w.write(handMade(18, version, version > 2, []byte{2, 't', 2, '1', 0}))
		b, err := w.read()
		if err != nil {
			return err.Error()
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		if err := resp.ReadFrom(b[4:]); err != nil {
			return err.Error()
		}
		if len(resp.ApiKeys) != 1 {
			return fmt.Sprintf("%s and %d APIs", errorName(resp.ErrorCode), len(resp.ApiKeys))
		}
		k := resp.ApiKeys[0]
		return fmt.Sprintf("%s, %s %d-%d", errorName(resp.ErrorCode), kmsg.NameForKey(k.ApiKey), k.MinVersion, k.MaxVersion)
	}
}

func bodyRows() []badInput {
	metadata := func(row string, body ...byte) badInput {
		return badInput{row: row, want: closed, send: func(w *wire, _ string) string { return w.frame(3, 1, false, body) }}
	}
	flexible := func(row string, body ...byte) badInput {
		return badInput{row: row, want: closed, send: func(w *wire, _ string) string { return w.frame(3, 12, true, body) }}
	}
	// What is accepted is asked of Metadata v1 or v12, so that the answer is known.
	accepted := func(row string, version int16, body []byte, extra []byte) badInput {
		return badInput{row: row, want: none, stored: 0, send: func(w *wire, _ string) string {
			w.write(handMade(3, version, version >= 9, append(append([]byte(nil), body...), extra...)))
			b, err := w.read()
			if err != nil {
				return err.Error()
			}
			resp := kmsg.NewPtrMetadataResponse()
			resp.Version = version
			b = b[4:]
			if version >= 9 {
				b = b[1:]
			}
			if err := resp.ReadFrom(b); err != nil {
				return err.Error()
			}
			return none
		}}
	}
	return []badInput{
		metadata("array of 2^30", 0x40, 0, 0, 0),
		{row: "array of -2", want: closed, send: func(w *wire, _ string) string {
			return w.frame(20, 1, false, []byte{0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0}) // DeleteTopics; Metadata's array may be null
		}},
		metadata("null for a string that is not nullable", 0, 0, 0, 1, 0xff, 0xff),
		metadata("string of 32767 bytes, cut off", 0, 0, 0, 1, 0x7f, 0xff, 'a', 'b', 'c'),
		flexible("varint of 6 bytes", 0xff, 0xff, 0xff, 0xff, 0xff, 0x01),
		flexible("compact array of 2^30", 0x81, 0x80, 0x80, 0x80, 0x04),
		accepted("100 trailing bytes", 1, []byte{0, 0, 0, 0}, make([]byte, 100)),
		// No topics, three booleans (false), one tagged field 999 of two bytes.
		accepted("odd tagged field", 12, []byte{1, 0, 0}, []byte{1, 0xe7, 0x07, 2, 1, 2}),
		{row: "topic name that is not UTF-8", want: "INVALID_TOPIC_EXCEPTION", send: func(w *wire, _ string) string {
			return metadataCode(w, "bad\xff\xfe")
		}},
		{row: "SaslHandshake on PLAINTEXT", want: "ILLEGAL_SASL_STATE", send: func(w *wire, _ string) string {
			req := kmsg.NewPtrSASLHandshakeRequest()
			req.Version, req.Mechanism = 1, "PLAIN"
			return outcome(w, req, func(r *kmsg.SASLHandshakeResponse) int16 { return r.ErrorCode })
		}},
		{row: "SaslAuthenticate on PLAINTEXT", want: "ILLEGAL_SASL_STATE", send: func(w *wire, _ string) string {
			req := kmsg.NewPtrSASLAuthenticateRequest()
			req.Version, req.SASLAuthBytes = 2, []byte("\x00user\x00secret")
			return outcome(w, req, func(r *kmsg.SASLAuthenticateResponse) int16 { return r.ErrorCode })
		}},
	}
}

// metadataCode asks for one topic, without creating it.
func metadataCode(w *wire, topic string) string {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = &topic
	req.Topics = []kmsg.MetadataRequestTopic{mt}
	return outcome(w, req, func(r *kmsg.MetadataResponse) int16 { return r.Topics[0].ErrorCode })
}

func createTopicsRows() []badInput {
	const invalidTopic, invalidRequest = "INVALID_TOPIC_EXCEPTION", "INVALID_REQUEST"
	// create asks for one topic under another name and, turned, with other faults.
	create := func(row, want string, name func(topic string) string, turn func(*kmsg.CreateTopicsRequestTopic)) badInput {
		return badInput{row: row, want: want, send: func(w *wire, topic string) string {
			ct := newTopic(name(topic))
			turn(&ct)
			return outcome(w, createTopicsOf(ct), func(r *kmsg.CreateTopicsResponse) int16 { return r.Topics[0].ErrorCode })
		}}
	}
	nothing := func(*kmsg.CreateTopicsRequestTopic) {}
	named := func(row, name string) badInput {
		return create("topic "+row, invalidTopic, func(string) string { return name }, nothing)
	}
	with := func(row, want string, turn func(*kmsg.CreateTopicsRequestTopic)) badInput {
		return create(row, want, func(topic string) string { return topic + "-new" }, turn)
	}
	config := func(name, value string) func(*kmsg.CreateTopicsRequestTopic) {
		return func(ct *kmsg.CreateTopicsRequestTopic) {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = name, &value
			ct.Configs = append(ct.Configs, c)
		}
	}
	assignment := func(replicas ...int32) func(*kmsg.CreateTopicsRequestTopic) {
		return func(ct *kmsg.CreateTopicsRequestTopic) {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Replicas = replicas
			ct.NumPartitions, ct.ReplicationFactor = -1, -1
			ct.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{a}
		}
	}
	partitions := func(n int32) func(*kmsg.CreateTopicsRequestTopic) {
		return func(ct *kmsg.CreateTopicsRequestTopic) { ct.NumPartitions = n }
	}
	replicas := func(n int16) func(*kmsg.CreateTopicsRequestTopic) {
		return func(ct *kmsg.CreateTopicsRequestTopic) { ct.ReplicationFactor = n }
	}
	return []badInput{
		named("climbing out", "../../x"),
		named("empty", ""),
		named("dot", "."),
		named("dots", ".."),
		named("with a slash", "a/b"),
		named("with NUL", "a\x00b"),
		named("with a newline", "a\nb"),
		named("not ASCII", "naïve"),
		named("of 250 characters", strings.Repeat("t", 250)),
		create("topic of 249 characters", none, func(topic string) string { return topic + strings.Repeat("t", 249-len(topic)) }, nothing),
		{row: "topics a_b and a.b", want: invalidTopic, send: func(w *wire, topic string) string {
			w.createTopics(newTopic(topic + "_b"))
			return outcome(w, createTopicsOf(newTopic(topic+".b")), func(r *kmsg.CreateTopicsResponse) int16 { return r.Topics[0].ErrorCode })
		}},
		create("topic __cluster_metadata", invalidRequest, func(string) string { return "__cluster_metadata" }, nothing),
		create("topic that exists", "TOPIC_ALREADY_EXISTS", func(topic string) string { return topic }, nothing),
		{row: "topic twice in one request", want: invalidRequest, send: func(w *wire, topic string) string {
			req := createTopicsOf(newTopic(topic+"-new"), newTopic(topic+"-new"))
			return outcome(w, req, func(r *kmsg.CreateTopicsResponse) int16 { return r.Topics[0].ErrorCode })
		}},
		with("partitions 0", "INVALID_PARTITIONS", partitions(0)),
		with("partitions -2", "INVALID_PARTITIONS", partitions(-2)),
		with("partitions 10,001", "POLICY_VIOLATION", partitions(10_001)),
		with("partitions 2^31-1", "POLICY_VIOLATION", partitions(math.MaxInt32)),
		with("replication factor 0", "INVALID_REPLICATION_FACTOR", replicas(0)),
		with("replication factor over the brokers", "INVALID_REPLICATION_FACTOR", replicas(2)),
		with("unknown config", "INVALID_CONFIG", config("no.such.config", "1")),
		with("bad config value", "INVALID_CONFIG", config("retention.ms", "a week")),
		with("config value out of range", "INVALID_CONFIG", config("segment.bytes", "-1")),
		with("assignment to an unknown broker", "INVALID_REPLICA_ASSIGNMENT", assignment(4711)),
		with("assignment to one broker twice", "INVALID_REPLICA_ASSIGNMENT", assignment(1, 1)),
	}
}

func produceRows() []badInput {
	const corrupt, invalid, unknown = "CORRUPT_MESSAGE", "INVALID_RECORD", "UNKNOWN_SERVER_ERROR"
	three := func() *batch { return newBatch("one", "two", "three") }
	raw := func(row, want, apache string, records []byte) badInput {
		return badInput{row: row, want: want, apache: apache, send: func(w *wire, topic string) string {
			return outcome(w, produceOf(topic, records), produceCode)
		}}
	}
	turned := func(row, want, apache string, turn func(*batch)) badInput {
		return raw(row, want, apache, three().with(turn).bytes())
	}
	length := func(n int32) func(*batch) { return func(b *batch) { b.length = func(int32) int32 { return n } } }
	count := func(n int32) func(*batch) { return func(b *batch) { b.count = n } }
	codec := func(n int16) func(*batch) { return func(b *batch) { b.attributes |= n } }
	deltas := func(of ...int64) func(*batch) {
		return func(b *batch) {
			b.records = nil
			for _, d := range of {
				b.records = rec{offsetDelta: d, value: []byte("v")}.append(b.records)
			}
			b.count, b.lastDelta = int32(len(of)), int32(len(of)-1)
		}
	}
	timestamp := func(at int64) func(*batch) {
		return func(b *batch) { b.baseTimestamp, b.maxTimestamp = at, at }
	}
	garbage := bytes.Repeat([]byte{0x5a, 0xa5, 0x5b, 0xa4}, 51)
	toPartition := func(row string, partition int32) badInput {
		return badInput{row: row, want: "UNKNOWN_TOPIC_OR_PARTITION", send: func(w *wire, topic string) string {
			req := produceOf(topic, three().bytes())
			req.Topics[0].Partitions[0].Partition = partition
			return outcome(w, req, produceCode)
		}}
	}
	toTopic := func(row, want, name string) badInput {
		return badInput{row: row, want: want, send: func(w *wire, _ string) string {
			return outcome(w, produceOf(name, three().bytes()), produceCode)
		}}
	}
	withAcks := func(row, want string, acks int16, records []byte) badInput {
		return badInput{row: row, want: want, send: func(w *wire, topic string) string {
			req := produceOf(topic, records)
			req.Acks = acks
			return outcome(w, req, produceCode)
		}}
	}
	flipped := func(b *batch) { b.crc = func(right uint32) uint32 { return right ^ 1 } }
	accepted := func(row string, stored int64, records []byte) badInput {
		b := raw(row, none, "", records)
		b.stored = stored
		return b
	}
	return []badInput{
		turned("CRC flip", corrupt, "", flipped),
		turned("batch length 10", corrupt, "", length(10)),
		turned("batch length -1", corrupt, "", length(-1)),
		raw("16 bytes of garbage", corrupt, "", garbage[1:17]),
		raw("200 bytes of garbage", corrupt, "", garbage[:200]),
		turned("magic 3", corrupt, "", func(b *batch) { b.magic = 3 }),
		raw("batch cut off", corrupt, invalid, three().bytes()[:80]),

		raw("count 10 with 1 record", invalid, "", newBatch("one").with(count(10)).bytes()),
		turned("count 0", invalid, "", count(0)),
		turned("count -5", invalid, "", count(-5)),
		turned("count 2^31-1", invalid, "", count(math.MaxInt32)),
		turned("lastOffsetDelta is not count-1", invalid, "", func(b *batch) { b.lastDelta = 7 }),
		turned("junk inside the batch", invalid, "", func(b *batch) { b.records = append(b.records, "junk!"...) }),
		turned("record length past the end", invalid, "", func(b *batch) { b.records = append(binary.AppendVarint(nil, 4000), b.records[1:]...) }),
		turned("record length negative", invalid, "", func(b *batch) { b.records = append(binary.AppendVarint(nil, -3), b.records[1:]...) }),
		raw("two batches", invalid, "", append(newBatch("one").bytes(), newBatch("two").bytes()...)),
		raw("empty records", invalid, "", []byte{}),
		turned("control batch", invalid, "", func(b *batch) { b.attributes |= 0x20 }),
		turned("base offset 5", invalid, "", func(b *batch) { b.baseOffset = 5 }),
		turned("sequence -1 with a producer id", invalid, "", func(b *batch) { b.producerID, b.producerEpoch = 4_000_000, 0 }),
		turned("magic 0", invalid, "", func(b *batch) { b.magic = 0 }),
		turned("magic 1", invalid, "", func(b *batch) { b.magic = 1 }),

		turned("batch length 2^31-1", corrupt, unknown, length(math.MaxInt32)),
		turned("codec 5", "UNSUPPORTED_COMPRESSION_TYPE", unknown, codec(5)),
		turned("codec 7", "UNSUPPORTED_COMPRESSION_TYPE", unknown, codec(7)),
		turned("gzip garbage", corrupt, unknown, codec(1)),
		turned("snappy garbage", corrupt, unknown, codec(2)),
		turned("lz4 garbage", corrupt, unknown, codec(3)),
		turned("zstd garbage", corrupt, unknown, codec(4)),
		{row: "null records", want: invalid, apache: notWithApache, send: func(w *wire, topic string) string {
			req := produceOf(topic, nil)
			req.Version = 9
			return outcome(w, req, produceCode)
		}},
		{row: "two records of offset delta 0", want: invalid, apache: none, apacheStored: 2, send: func(w *wire, topic string) string {
			return outcome(w, produceOf(topic, three().with(deltas(0, 0)).bytes()), produceCode)
		}},
		{row: "offset deltas 1, 0", want: invalid, apache: none, apacheStored: 2, send: func(w *wire, topic string) string {
			return outcome(w, produceOf(topic, three().with(deltas(1, 0)).bytes()), produceCode)
		}},

		accepted("5 bytes of junk behind the batch", 3, three().with(func(b *batch) { b.behind = []byte("junk!") }).bytes()),
		{row: "partition twice", want: "2 answers NONE", stored: 2, apache: "1 answers NONE", apacheStored: 1, send: func(w *wire, topic string) string {
			req := produceOf(topic, newBatch("one").bytes())
			again := req.Topics[0].Partitions[0]
			again.Records = newBatch("two").bytes()
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, again)
			resp := call[*kmsg.ProduceResponse](w, req)
			return fmt.Sprintf("%d answers %s", len(resp.Topics[0].Partitions), errorName(produceCode(resp)))
		}},
		accepted("timestamp -5", 3, three().with(timestamp(-5)).bytes()),
		{row: "timestamp in 3 hours", want: "INVALID_TIMESTAMP, records 0 1 2", send: invalidTimestamps(time.Now().Add(3 * time.Hour).UnixMilli())},
		{row: "timestamp 2^63-1", want: "INVALID_TIMESTAMP, records 0 1 2", send: invalidTimestamps(math.MaxInt64)},
		raw("value of 1 MiB", "MESSAGE_TOO_LARGE", "", newBatch(strings.Repeat("v", 1<<20)).bytes()),

		withAcks("acks 5", "INVALID_REQUIRED_ACKS", 5, three().bytes()),
		withAcks("acks -2", "INVALID_REQUIRED_ACKS", -2, three().bytes()),
		withAcks("acks 0 with a bad CRC", closed, 0, three().with(flipped).bytes()),
		toPartition("partition 99", 99),
		toPartition("partition -1", -1),
		toTopic("unknown topic", "UNKNOWN_TOPIC_OR_PARTITION", "no-such-topic"),
		toTopic("illegal topic", "UNKNOWN_TOPIC_OR_PARTITION", "a/b"),
		{row: "__consumer_offsets", want: "INVALID_TOPIC_EXCEPTION", send: func(w *wire, _ string) string {
			call[*kmsg.CreateTopicsResponse](w, createTopicsOf(newTopic("__consumer_offsets")))
			w.awaitLeader("__consumer_offsets")
			return outcome(w, produceOf("__consumer_offsets", three().bytes()), produceCode)
		}},
		turned("transactional without a transactional id", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "", func(b *batch) {
			b.attributes |= 0x10
			b.producerID, b.producerEpoch, b.baseSequence = 4_000_001, 0, 0
		}),
	}
}

// invalidTimestamps sends three records of that time and tells the error with the records it names.
func invalidTimestamps(at int64) func(*wire, string) string {
	records := newBatch("one", "two", "three").with(func(b *batch) { b.baseTimestamp, b.maxTimestamp = at, at }).bytes()
	return func(w *wire, topic string) string {
		p := call[*kmsg.ProduceResponse](w, produceOf(topic, records)).Topics[0].Partitions[0]
		text := errorName(p.ErrorCode) + ", records"
		for _, e := range p.ErrorRecords {
			if e.ErrorMessage == nil || *e.ErrorMessage == "" {
				return text + " without a reason"
			}
			text += fmt.Sprintf(" %d", e.RelativeOffset)
		}
		return text
	}
}

// producerRows send batches with producer ids that the broker never gave out, which it must take.
func producerRows() []badInput {
	const outOfOrder, invalidEpoch = "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH"
	sequenced := func(pid int64, epoch int16, sequence int32) []byte {
		return newBatch("v").with(func(b *batch) { b.producerID, b.producerEpoch, b.baseSequence = pid, epoch, sequence }).bytes()
	}
	// after sends n batches of epoch 3, then the bad one.
	after := func(row, want string, n int, epoch int16, sequence int32) badInput {
		const pid = 5_000_000
		return badInput{row: "producer id: " + row, want: want, stored: int64(n), send: func(w *wire, topic string) string {
			for i := range n {
				w.produce(topic, sequenced(pid, 3, int32(i)))
			}
			p := call[*kmsg.ProduceResponse](w, produceOf(topic, sequenced(pid, epoch, sequence))).Topics[0].Partitions[0]
			if p.ErrorCode == 0 {
				return fmt.Sprintf("offset %d", p.BaseOffset)
			}
			return errorName(p.ErrorCode)
		}}
	}
	neverIssued := func(row string, sequence int32) badInput {
		return badInput{row: "producer id never issued, sequence " + row, want: none, stored: 1, send: func(w *wire, topic string) string {
			return outcome(w, produceOf(topic, sequenced(6_000_000, 0, sequence)), produceCode)
		}}
	}
	return []badInput{
		after("duplicate of the last batch", "offset 5", 6, 3, 5),
		after("duplicate of the fifth last batch", "offset 1", 6, 3, 1),
		after("duplicate of the sixth last batch", outOfOrder, 6, 3, 0),
		after("gap", outOfOrder, 2, 3, 4),
		after("next epoch not from 0", outOfOrder, 2, 4, 2),
		after("old epoch", invalidEpoch, 2, 2, 0),
		after("epoch -1", invalidEpoch, 2, -1, 0),
		neverIssued("0", 0),
		neverIssued("1000", 1000),
	}
}

func fetchRows() []badInput {
	fetch := func(row, want, apache string, turn func(*kmsg.FetchRequest)) badInput {
		return badInput{row: "fetch " + row, want: want, apache: apache, stored: 1, send: func(w *wire, topic string) string {
			w.produce(topic, newBatch("one").bytes())
			req := fetchOf(topic, 0)
			req.MaxWaitMillis = 0
			turn(req)
			return outcome(w, req, fetchCode)
		}}
	}
	partition := func(turn func(*kmsg.FetchRequestTopicPartition)) func(*kmsg.FetchRequest) {
		return func(req *kmsg.FetchRequest) { turn(&req.Topics[0].Partitions[0]) }
	}
	return []badInput{
		fetch("offset -5", "OFFSET_OUT_OF_RANGE", "", partition(func(p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = -5 })),
		fetch("offset 2^62", "OFFSET_OUT_OF_RANGE", "", partition(func(p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = 1 << 62 })),
		fetch("epoch 99", "UNKNOWN_LEADER_EPOCH", "", partition(func(p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = 99 })),
		fetch("unknown session", "FETCH_SESSION_ID_NOT_FOUND", "", func(req *kmsg.FetchRequest) { req.SessionID, req.SessionEpoch = 4711, 1 }),
		fetch("max_bytes -1", "INVALID_REQUEST", "UNKNOWN_SERVER_ERROR", func(req *kmsg.FetchRequest) { req.MaxBytes = -1 }),
		fetch("isolation 9", "INVALID_REQUEST", "UNKNOWN_SERVER_ERROR", func(req *kmsg.FetchRequest) { req.IsolationLevel = 9 }),
		fetch("as replica 77", "NOT_LEADER_OR_FOLLOWER", "", func(req *kmsg.FetchRequest) { req.ReplicaID = 77 }),
		fetch("partition 99", "UNKNOWN_TOPIC_OR_PARTITION", "", partition(func(p *kmsg.FetchRequestTopicPartition) { p.Partition = 99 })),
		fetch("illegal topic", "UNKNOWN_TOPIC_OR_PARTITION", "", func(req *kmsg.FetchRequest) { req.Topics[0].Topic = "../../x" }),
	}
}

func otherRows() []badInput {
	initProducerID := func(row, want string, turn func(*kmsg.InitProducerIDRequest)) badInput {
		return badInput{row: "InitProducerId " + row, want: want, send: func(w *wire, topic string) string {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 5, &topic, 1000
			turn(req)
			return outcome(w, req, func(r *kmsg.InitProducerIDResponse) int16 { return r.ErrorCode })
		}}
	}
	empty := ""
	return []badInput{
		initProducerID("timeout 0", "INVALID_TRANSACTION_TIMEOUT", func(r *kmsg.InitProducerIDRequest) { r.TransactionTimeoutMillis = 0 }),
		initProducerID("timeout 2^31-1", "INVALID_TRANSACTION_TIMEOUT", func(r *kmsg.InitProducerIDRequest) { r.TransactionTimeoutMillis = math.MaxInt32 }),
		initProducerID("id empty", "INVALID_REQUEST", func(r *kmsg.InitProducerIDRequest) { r.TransactionalID = &empty }),
		{row: "ListOffsets timestamp -77", want: "UNSUPPORTED_VERSION", send: func(w *wire, topic string) string {
			return outcome(w, listOffsetsOf(topic, -77), func(r *kmsg.ListOffsetsResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
		}},
		{row: "DeleteRecords past the high watermark", want: "OFFSET_OUT_OF_RANGE", stored: 1, send: func(w *wire, topic string) string {
			w.produce(topic, newBatch("one").bytes())
			return outcome(w, deleteRecordsOf(topic, 2), func(r *kmsg.DeleteRecordsResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
		}},
		{row: "OffsetForLeaderEpoch as of leader epoch 99", want: "UNKNOWN_LEADER_EPOCH", send: func(w *wire, topic string) string {
			return outcome(w, leaderEpochOf(topic, 99, 0), func(r *kmsg.OffsetForLeaderEpochResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
		}},
		{row: "DeleteTopics of an unknown topic", want: "UNKNOWN_TOPIC_OR_PARTITION", send: func(w *wire, topic string) string {
			return outcome(w, deleteTopicsOf(topic+"-not"), func(r *kmsg.DeleteTopicsResponse) int16 { return r.Topics[0].ErrorCode })
		}},
		{row: "CreatePartitions to fewer", want: "INVALID_PARTITIONS", send: createPartitions(1)},
		{row: "CreatePartitions over 10,000", want: "POLICY_VIOLATION", send: createPartitions(20_000)},
		{row: "IncrementalAlterConfigs of an unknown topic", want: "UNKNOWN_TOPIC_OR_PARTITION", send: alterConfig("-not", "retention.ms", "1000")},
		{row: "IncrementalAlterConfigs of an unknown config", want: "INVALID_CONFIG", send: alterConfig("", "no.such.config", "1")},
		{row: "IncrementalAlterConfigs to a bad value", want: "INVALID_CONFIG", send: alterConfig("", "cleanup.policy", "burn")},
	}
}

func deleteRecordsOf(topic string, offset int64) *kmsg.DeleteRecordsRequest {
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Offset = offset
	dt := kmsg.NewDeleteRecordsRequestTopic()
	dt.Topic, dt.Partitions = topic, []kmsg.DeleteRecordsRequestTopicPartition{p}
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version, req.TimeoutMillis, req.Topics = 2, 10_000, []kmsg.DeleteRecordsRequestTopic{dt}
	return req
}

func leaderEpochOf(topic string, current, epoch int32) *kmsg.OffsetForLeaderEpochRequest {
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.CurrentLeaderEpoch, p.LeaderEpoch = current, epoch
	et := kmsg.NewOffsetForLeaderEpochRequestTopic()
	et.Topic, et.Partitions = topic, []kmsg.OffsetForLeaderEpochRequestTopicPartition{p}
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version, req.ReplicaID, req.Topics = 4, -1, []kmsg.OffsetForLeaderEpochRequestTopic{et}
	return req
}

// deleteTopicsOf deletes topics by name.
func deleteTopicsOf(names ...string) *kmsg.DeleteTopicsRequest {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis = 6, 30_000
	for _, name := range names {
		dt := kmsg.NewDeleteTopicsRequestTopic()
		dt.Topic = &name
		req.Topics = append(req.Topics, dt)
	}
	return req
}

func createPartitionsOf(topic string, count int32) *kmsg.CreatePartitionsRequest {
	ct := kmsg.NewCreatePartitionsRequestTopic()
	ct.Topic, ct.Count = topic, count
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Version, req.TimeoutMillis, req.Topics = 3, 30_000, []kmsg.CreatePartitionsRequestTopic{ct}
	return req
}

func createPartitions(count int32) func(*wire, string) string {
	return func(w *wire, topic string) string {
		return outcome(w, createPartitionsOf(topic, count), func(r *kmsg.CreatePartitionsResponse) int16 { return r.Topics[0].ErrorCode })
	}
}

// alterConfig sets a config of the topic whose name ends so.
func alterConfig(ending, name, value string) func(*wire, string) string {
	return func(w *wire, topic string) string {
		req := alterConfigsOf(kmsg.ConfigResourceTypeTopic, topic+ending, name, kmsg.IncrementalAlterConfigOpSet, value)
		return outcome(w, req, func(r *kmsg.IncrementalAlterConfigsResponse) int16 { return r.Resources[0].ErrorCode })
	}
}

func alterConfigsOf(kind kmsg.ConfigResourceType, resource, name string, op kmsg.IncrementalAlterConfigOp, value string) *kmsg.IncrementalAlterConfigsRequest {
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op, c.Value = name, op, &value
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, resource
	r.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{c}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version, req.Resources = 1, []kmsg.IncrementalAlterConfigsRequestResource{r}
	return req
}

// memoryRows are the rows about sizes: what the broker believes before it has it. They run one after the other, for they
// measure the memory of this process, which is the broker's too.
func memoryRows(t *testing.T, g target) {
	const limit = raceFactor * 64 << 20
	claims := func(t *testing.T, connections int) {
		topic := topicName("claims", connections)
		dial(t, g.addr).createTopics(newTopic(topic))
		growth := memoryGrowth(t, func() {
			for range connections {
				dial(t, g.addr).write(append(size(100<<20), handMade(0, 9, true, nil)[4:]...))
			}
			assertServes(t, g, topic, 0)
		})
		if growth > limit {
			t.Errorf("memory grew by %d MiB, want at most %d", growth>>20, limit>>20)
		}
	}
	if !g.apache { // of 512 MiB, it does not survive the first; it takes half a minute for the last
		t.Run("size 100 MiB without a body from 12 connections", func(t *testing.T) { claims(t, 12) })
		t.Run("size 100 MiB without a body from 1000 connections", func(t *testing.T) { claims(t, 1000) })
		t.Run("10000 idle connections", func(t *testing.T) {
			var log lockedBuffer // in a process of its own: not every machine lets one have the descriptors of both ends
			far, topic := target{addr: serve(t, &log, t.TempDir()).address}, topicName("idle", 0)
			dial(t, far.addr).createTopics(newTopic(topic))
			idle := make([]*wire, 10_000)
			for i := range idle {
				idle[i] = dial(t, far.addr)
			}
			assertServes(t, far, topic, 0)
			for _, w := range idle {
				if got := apiVersions(0)(w, ""); !strings.HasPrefix(got, none) {
					t.Fatalf("one that was idle: %s; the broker said\n%.2000s", got, log.String())
				}
			}
		})
	}
	t.Run("gzip bomb 0.06 to 64 MiB", func(t *testing.T) { bomb(t, g, 64<<20, none) })
	t.Run("gzip bomb 0.5 to 512 MiB", func(t *testing.T) { bomb(t, g, 512<<20, g.want("MESSAGE_TOO_LARGE", none)) })
	t.Run("200,000 pipelined ApiVersions, never read", func(t *testing.T) {
		topic := topicName("pipelined", 0)
		dial(t, g.addr).createTopics(newTopic(topic))
		requests := bytes.Repeat(longApiVersions(), 200_000) // 25 MB, more than the kernel buffers on either side
		growth := memoryGrowth(t, func() {
			w := dial(t, g.addr)
			if err := w.conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			// The broker must stop reading when its answers are not read.
			if n, err := w.conn.Write(requests); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("after %d bytes: %v, want the broker to stop reading and keep the connection", n, err)
			}
			assertServes(t, g, topic, 0)
		})
		if growth > limit {
			t.Errorf("memory grew by %d MiB, want at most %d", growth>>20, limit>>20)
		}
	})
}

// longApiVersions is an ApiVersions v3 of 125 bytes, most of them the client's name.
func longApiVersions() []byte {
	return handMade(18, 3, true, append(append([]byte{102}, strings.Repeat("n", 101)...), 2, '1', 0))
}

// bomb sends a batch of one record of that many zeros in gzip, while another client goes on producing.
func bomb(t *testing.T, g target, size int, want string) {
	const limit, otherWithin = raceFactor * 32 << 20, 2 * time.Second
	topic, other := topicName("bomb", size), topicName("beside-bomb", size)
	dial(t, g.addr).createTopics(newTopic(topic), newTopic(other))
	b := newBatch("").with(func(b *batch) { b.records, b.attributes = gzipZeros(t, size), 1 }).bytes()
	if len(b) > 1<<20 {
		t.Fatalf("the bomb of %d bytes is too large as it is", len(b))
	}

	answered := make(chan string, 1)
	growth := memoryGrowth(t, func() {
		w, beside := dial(t, g.addr), dial(t, g.addr)
		go func() { answered <- outcome(w, produceOf(topic, b), produceCode) }()
		for got := ""; got == ""; {
			begin := time.Now()
			beside.produce(other, newBatch("good").bytes())
			if took := time.Since(begin); took > otherWithin {
				t.Errorf("a record beside it took %s, want at most %s", took, otherWithin)
			}
			select {
			case got = <-answered:
				if got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			default:
			}
		}
	})
	if growth > limit {
		t.Errorf("memory grew by %d MiB, want at most %d", growth>>20, limit>>20)
	}
	stored := int64(0)
	if want == none {
		stored = 1
	}
	assertServes(t, g, topic, stored)
}

// gzipZeros is one record whose value is n zeros, in gzip. n is a multiple of 1 MiB: the deflate blocks of one
// are repeated, so that making a bomb costs next to nothing.
func gzipZeros(t *testing.T, n int) []byte {
	t.Helper()
	deflate := func(b []byte, finish func(*flate.Writer) error) []byte {
		var out bytes.Buffer
		z, err := flate.NewWriter(&out, flate.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := z.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := finish(z); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	head := binary.AppendVarint([]byte{0, 0, 0}, -1) // attributes, both deltas, null key
	head = binary.AppendVarint(head, int64(n))
	tail := []byte{0} // no headers
	head = append(binary.AppendVarint(nil, int64(len(head)+n+len(tail))), head...)
	zeros := make([]byte, 1<<20)

	crc := crc32.NewIEEE()
	crc.Write(head)
	for range n / len(zeros) {
		crc.Write(zeros)
	}
	crc.Write(tail)
	out := []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff} // RFC 1952
	out = append(out, deflate(head, (*flate.Writer).Flush)...)
	out = append(out, bytes.Repeat(deflate(zeros, (*flate.Writer).Flush), n/len(zeros))...)
	out = append(out, deflate(tail, (*flate.Writer).Close)...)
	out = binary.LittleEndian.AppendUint32(out, crc.Sum32())
	return binary.LittleEndian.AppendUint32(out, uint32(len(head)+n+len(tail)))
}

// memoryGrowth runs f and returns the bytes by which the process's memory rose at most above what it was before:
// resident memory on Linux, elsewhere what Go took from the system.
func memoryGrowth(t *testing.T, f func()) int64 {
	t.Helper()
	debug.FreeOSMemory()
	if runtime.GOOS != "linux" {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return int64(after.Sys - before.Sys)
	}
	// Writing 5 sets the peak to the present (proc_pid_clear_refs(5)).
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	before := residentBytes(t, "VmRSS")
	f()
	return residentBytes(t, "VmHWM") - before
}

// residentBytes reads a line of /proc/self/status.
func residentBytes(t *testing.T, name string) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(status), name+":")
	kilobytes, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	n, err := strconv.ParseInt(kilobytes, 10, 64)
	if !found || err != nil {
		t.Fatalf("no %s in /proc/self/status: %v", name, err)
	}
	return n << 10
}

// TestSlowFrame: a request that stops arriving costs its connection, not the ten minutes of connections.max.idle.ms
// that Apache Kafka gives it.
func TestSlowFrame(t *testing.T) {
	b := start(t, ottla.Config{Properties: map[string]string{"ottla.frame.timeout.ms": "200"}})
	for _, row := range []struct {
		row   string
		bytes []byte
	}{
		{"3 of 4 bytes of the size", size(260)[:3]},
		{"6 of 260 bytes", size(260, 0, 3)},
		{"no first request", nil},
	} {
		t.Run(row.row, func(t *testing.T) {
			t.Parallel()
			if got := dial(t, b.Addr()).raw(row.bytes); got != closed {
				t.Errorf("got %q, want %q", got, closed)
			}
		})
	}
	t.Run("a connection that has asked once may rest", func(t *testing.T) {
		t.Parallel()
		w := dial(t, b.Addr())
		if got := apiVersions(99)(w, ""); got == closed {
			t.Fatal(got)
		}
		if err := w.conn.SetReadDeadline(time.Now().Add(600 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("three frame timeouts later: %v, want the connection open", err)
		}
	})
}
