//go:build interop

package interop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/record"
)

// TestExchange hands one log directory from broker to broker. Whoever gets it must serve the same topics,
// configurations, offsets, records and producers as the one before, and go on from there; what ottla leaves behind must
// pass Apache's own checks of files.
func TestExchange(t *testing.T) {
	for _, order := range [][]string{
		{"ottla", "apache", "ottla", "apache", "ottla"},
		{"apache", "ottla", "apache", "ottla", "apache"},
	} {
		t.Run(order[0]+" first", func(t *testing.T) {
			x := newExchange(t)
			for round, kind := range order {
				x.round(t, kind, round)
			}
		})
	}
}

// An exchange is a directory on its way, and what it must hold.
type exchange struct {
	dir       string
	codecs    map[string]kgo.CompressionCodec
	settings  map[string][]string  // of the topics that stay, by name
	written   map[string][]string  // the records of each topic, in the readers' format
	committed string               // of topic "transactions"
	image     string               // what the last broker answered to everything but fetches
	epochs    map[string]int32     // leader epoch of each partition; never falls
	producer  record.ProducerState // writes to topic "sequences" beneath a client's level
	resend    []byte               // its last batch
	resentAt  int64                // base offset of resend
	rng       *rand.Rand
	groups    *exchangeGroups
}

func newExchange(t *testing.T) *exchange {
	x := &exchange{
		dir: t.TempDir(),
		codecs: map[string]kgo.CompressionCodec{
			"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
			"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
		},
		settings: map[string][]string{
			"by-size":         {"segment.bytes=1048576"},
			"by-time":         {"segment.ms=100"},
			"by-index":        {"segment.index.bytes=48", "index.interval.bytes=1"},
			"append-time":     {"message.timestamp.type=LogAppendTime"},
			"deleted-records": {"segment.ms=100"},
			"growing":         nil,
			"sequences":       nil,
			"transactions":    nil,
		},
		written: map[string][]string{},
		epochs:  map[string]int32{},
		rng:     rand.New(rand.NewPCG(1, 2)),
		groups:  newExchangeGroups(),
	}
	for codec := range x.codecs {
		x.settings["codec-"+codec] = nil
	}
	return x
}

func (x *exchange) round(t *testing.T, kind string, round int) {
	t.Helper()
	more := []string{"transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1", "transaction.state.log.num.partitions=2", "metadata.log.max.record.bytes.between.snapshots=4000",
		"offsets.topic.num.partitions=5", "group.initial.rebalance.delay.ms=0", "group.consumer.session.timeout.ms=600000", "group.consumer.max.session.timeout.ms=600000",
		"group.consumer.heartbeat.interval.ms=200", "group.consumer.min.heartbeat.interval.ms=200"}
	var b *broker
	if kind == "apache" {
		b = startApache(t, x.dir, more...)
	} else {
		b = startBroker(t, x.dir, more...)
	}
	if round == 0 {
		x.found(t, b)
		x.groups.found(t, b)
	} else {
		x.same(t, b, kind, round)
		x.groups.same(t, b)
	}
	x.change(t, b, round)
	x.write(t, b, kind, round)
	x.groups.goOn(t, b, round+2, x.written["by-time"])
	x.deleteRecords(t, b)
	x.readAll(t, b, kind, round)
	x.image = b.image(t)
	b.stop(t)
	if t.Failed() {
		t.FailNow()
	}
	run(t, exec.Command(binary, "log", "verify", x.dir))
	if kind == "ottla" && os.Getenv("AGAINST") != "apache" { // Apache leaves its metadata log's indexes unfinished
		checkFiles(t, x.dir)
	}
	if stray, _ := filepath.Glob(filepath.Join(x.dir, "*-stray")); len(stray) > 0 {
		t.Fatalf("%s in round %d set aside %v", kind, round, stray)
	}
}

// found makes the topics that stay to the end.
func (x *exchange) found(t *testing.T, b *broker) {
	t.Helper()
	for topic, settings := range x.settings {
		b.create(t, topic, 1, settings...)
	}
	b.create(t, "again", 1)
	b.create(t, "doomed-0", 2)
	r, err := kmsg.NewPtrInitProducerIDRequest().RequestWith(t.Context(), b.client)
	if err != nil || r.ErrorCode != 0 {
		t.Fatal(err, kerr.ErrorForCode(r.ErrorCode))
	}
	x.producer = record.ProducerState{ID: r.ProducerID, Epoch: r.ProducerEpoch}
}

// same compares the directory as b serves it with what the broker before served.
func (x *exchange) same(t *testing.T, b *broker, kind string, round int) {
	t.Helper()
	image := ""
	defer func() {
		if image != x.image {
			t.Logf("%s in round %d:\n%s", kind, round, firstDifference(image, x.image))
		}
	}()
	eventually(t, "the broker serves what the one before did", func() bool {
		image = b.image(t)
		return image == x.image
	})
	x.readAll(t, b, kind, round)
	if got := b.readCommitted(t, round-1); got != x.committed {
		t.Errorf("%s in round %d reads other committed records:\n%s", kind, round, firstDifference(got, x.committed))
	}
	if strings.Contains(x.committed, "commit false") {
		t.Errorf("records of aborted transactions are among the committed:\n%s", x.committed)
	}
}

func (x *exchange) readAll(t *testing.T, b *broker, kind string, round int) {
	t.Helper()
	for topic, want := range x.written {
		slices.Sort(want)
		if got, want := b.read(t, topic), sortedLines(strings.Join(want, "\n")); got != want {
			t.Errorf("%s in round %d, topic %s:\n%s", kind, round, topic, firstDifference(got, want))
		}
	}
	details, err := b.admin.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	details.EachPartition(func(d kadm.PartitionDetail) {
		p := fmt.Sprintf("%s-%d", d.Topic, d.Partition)
		if d.LeaderEpoch < x.epochs[p] {
			t.Errorf("%s in round %d: leader epoch of %s fell from %d to %d", kind, round, p, x.epochs[p], d.LeaderEpoch)
		}
		x.epochs[p] = d.LeaderEpoch
	})
}

// change makes every round's changes of metadata.
func (x *exchange) change(t *testing.T, b *broker, round int) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	deleted, err := b.admin.DeleteTopics(ctx, fmt.Sprintf("doomed-%d", round), "again")
	must(err)
	must(deleted.Error())
	delete(x.written, "again")
	delete(x.epochs, "again-0")
	b.create(t, fmt.Sprintf("doomed-%d", round+1), 2)
	b.create(t, "again", 1)
	grown, err := b.admin.CreatePartitions(ctx, 1, "growing")
	must(err)
	must(grown.Error())
	value := fmt.Sprint(1_000_000 + round)
	altered, err := b.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "max.message.bytes", Value: &value}}, "growing")
	must(err)
	must(altered[0].Err)
	altered, err = b.admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Name: "message.max.bytes", Value: &value}}, 1)
	must(err)
	must(altered[0].Err)
	altered, err = b.admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Name: "log.cleaner.io.buffer.size", Value: &value}})
	must(err)
	must(altered[0].Err)
	var offsets kadm.Offsets
	offsets.AddOffset("sequences", 0, int64(round), 0)
	offsets.AddOffset("by-size", 0, int64(round)+7, -1)
	eventually(t, "offsets are committed", func() bool { // the first commit of all makes __consumer_offsets
		return b.admin.CommitAllOffsets(ctx, "exchange", offsets) == nil
	})
}

// write adds to every topic; each call is one batch.
func (x *exchange) write(t *testing.T, b *broker, kind string, round int) {
	t.Helper()
	now := time.Now().UnixMilli()
	for codec, compression := range x.codecs {
		p := b.newProducer(t, compression)
		for batch := range 4 {
			x.produce(t, p, "codec-"+codec, 0, 50, now+int64(batch), strings.Repeat(codec, 20))
		}
	}
	p := b.newProducer(t, kgo.NoCompression())
	for range 12 {
		value := make([]byte, 100_000)
		for i := range value {
			value[i] = byte(x.rng.Uint32())
		}
		x.produce(t, p, "by-size", 0, 1, now, string(value))
	}
	for i := range int64(20) {
		ts := now + int64(round)*1000 + i*40
		x.produce(t, p, "by-time", 0, 2, ts, "v")
		x.produce(t, p, "by-index", 0, 3, ts, "v")
		x.produce(t, p, "deleted-records", 0, 2, ts, "v")
	}
	x.produce(t, p, "append-time", 0, 7, 1, "v")
	x.written["append-time"] = appendTimes(t, b, now, 7*(round+1))
	x.produce(t, p, "again", 0, 3, now, "v")
	for partition := range round + 2 {
		x.produce(t, p, "growing", int32(partition), 5, now, "v")
	}
	x.sequence(t, b, round, now)
	if kind == "apache" {
		b.transact(t, round)
	}
	if err := p.ProduceSync(t.Context(), &kgo.Record{Topic: "transactions", Value: fmt.Append(nil, "end ", round)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	x.committed = b.readCommitted(t, round)
}

// transact leaves a committed and an aborted transaction in topic "transactions", each with an offset of txnGroup.
func (b *broker) transact(t *testing.T, round int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.TransactionalID("exchange"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			r := &kgo.Record{Topic: "transactions", Value: fmt.Appendf(nil, "round %d record %d commit %v", round, i, end)}
			if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		offset := int64(2 * round)
		if end == kgo.TryAbort {
			offset++
		}
		b.commitInTransaction(t, cl, offset)
		if err := cl.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
}

// commitInTransaction adds an offset of txnGroup to the client's transaction.
func (b *broker) commitInTransaction(t *testing.T, cl *kgo.Client, offset int64) {
	t.Helper()
	id, epoch, err := cl.ProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	partition.Offset = offset
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = "transactions", append(topic.Partitions, partition)
	for id, name := range b.topicNames(t) {
		if name == topic.Topic {
			topic.TopicID = id
		}
	}
	r := kmsg.NewPtrTxnOffsetCommitRequest()
	r.TransactionalID, r.Group, r.ProducerID, r.ProducerEpoch = "exchange", txnGroup, id, epoch
	r.Topics = append(r.Topics, topic)
	answer, err := r.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode); err != nil {
		t.Fatalf("TxnOffsetCommit: %v", err)
	}
}

// readCommitted reads what is committed of topic "transactions", up to the record that ends round.
func (b *broker) readCommitted(t *testing.T, round int) string {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"transactions": {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out strings.Builder
	for ended := false; !ended; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read committed: %v, behind:\n%s", err, &out)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			fmt.Fprintf(&out, "%d %s\n", r.Offset, r.Value)
			ended = ended || string(r.Value) == fmt.Sprint("end ", round)
		})
	}
	return out.String()
}

// produce writes one batch and notes its records.
func (x *exchange) produce(t *testing.T, p *kgo.Client, topic string, partition int32, count int, timestamp int64, value string) {
	t.Helper()
	var batch []*kgo.Record
	for i := range count {
		batch = append(batch, &kgo.Record{
			Topic: topic, Partition: partition, Key: fmt.Appendf(nil, "k%d", i), Value: []byte(value),
			Timestamp: time.UnixMilli(timestamp + int64(i)), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte(topic)}},
		})
	}
	if err := p.ProduceSync(t.Context(), batch...).FirstErr(); err != nil {
		t.Fatalf("produce to %s: %v", topic, err)
	}
	for _, r := range batch {
		x.written[topic] = append(x.written[topic], line(r))
	}
}

// sequence has one producer go on where it was, over all brokers: its last batch sent again is known, a gap is refused.
func (x *exchange) sequence(t *testing.T, b *broker, round int, now int64) {
	t.Helper()
	if x.resend != nil {
		if offset, err := b.produceBatch(t, "sequences", x.resend); err != nil || offset != x.resentAt {
			t.Errorf("round %d: batch sent again: offset %d (%v), want %d", round, offset, err, x.resentAt)
		}
	}
	x.resend = sequenced(x.producer, now)
	offset, err := b.produceBatch(t, "sequences", x.resend)
	if err != nil {
		t.Fatalf("round %d: %v", round, err)
	}
	x.resentAt = offset
	for i := range int64(sequencedCount) {
		x.written["sequences"] = append(x.written["sequences"], fmt.Sprintf("0 %d %d s v", offset+i, now))
	}
	x.producer.BaseSequence += sequencedCount
	gap := x.producer
	gap.BaseSequence++
	if _, err := b.produceBatch(t, "sequences", sequenced(gap, now)); err != kerr.OutOfOrderSequenceNumber {
		t.Errorf("round %d: batch behind a gap: %v", round, err)
	}
}

// appendTimes reads the topic whose timestamps are the broker's: count records, the last ones not before now.
func appendTimes(t *testing.T, b *broker, now int64, count int) []string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(b.read(t, "append-time")), "\n")
	latest := int64(0)
	for _, line := range lines {
		var partition, offset, timestamp int64
		if _, err := fmt.Sscan(line, &partition, &offset, &timestamp); err != nil {
			t.Fatal(err)
		}
		latest = max(latest, timestamp)
	}
	if len(lines) != count || latest < now {
		t.Fatalf("%d records, the latest of %d; want %d, the latest not before %d", len(lines), latest, count, now)
	}
	return lines
}

const sequencedCount = 10

func sequenced(p record.ProducerState, now int64) []byte {
	batch := record.NewBuilder(nil, record.BatchOptions{Producer: &p, LeaderEpoch: -1})
	for range sequencedCount {
		batch.Append(record.Record{Timestamp: now, Key: []byte("s"), Value: []byte("v")})
	}
	return batch.Bytes()
}

// deleteRecords deletes all but the last three records of topic "deleted-records".
func (x *exchange) deleteRecords(t *testing.T, b *broker) {
	t.Helper()
	const topic = "deleted-records"
	ends, err := b.admin.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	var before kadm.Offsets
	before.AddOffset(topic, 0, end.Offset-3, -1)
	r, err := b.admin.DeleteRecords(t.Context(), before)
	if err != nil || r.Error() != nil {
		t.Fatal(err, r.Error())
	}
	x.written[topic] = x.written[topic][len(x.written[topic])-3:]
}

// image prints what the broker knows beside records: topics, configurations, offsets, producers, committed offsets.
func (b *broker) image(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	details, err := b.admin.ListTopics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range details {
		add("topic %s %s, %d partitions", d.Topic, d.ID, len(d.Partitions))
	}
	details.EachPartition(func(d kadm.PartitionDetail) {
		add("partition %s-%d leader %d replicas %v isr %v", d.Topic, d.Partition, d.Leader, d.Replicas, d.ISR)
	})
	starts, err := b.admin.ListStartOffsets(ctx, details.Names()...)
	if err != nil {
		t.Fatal(err)
	}
	starts.Each(func(o kadm.ListedOffset) { add("start %s-%d %d %v", o.Topic, o.Partition, o.Offset, o.Err) })
	ends, err := b.admin.ListEndOffsets(ctx, details.Names()...)
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) { add("end %s-%d %d %v", o.Topic, o.Partition, o.Offset, o.Err) })
	maxima, err := b.admin.ListMaxTimestampOffsets(ctx, details.Names()...)
	if err != nil {
		t.Fatal(err)
	}
	maxima.Each(func(o kadm.ListedOffset) {
		add("max %s-%d %d %d %v", o.Topic, o.Partition, o.Offset, o.Timestamp, o.Err)
	})
	producers, err := b.admin.DescribeProducers(ctx, details.TopicsSet())
	if err != nil {
		t.Fatal(err)
	}
	producers.EachProducer(func(p kadm.DescribedProducer) {
		add("producer of %s-%d: %d epoch %d sequence %d at %d", p.Topic, p.Partition, p.ProducerID, p.ProducerEpoch, p.LastSequence, p.LastTimestamp)
	})
	add("%s", b.groups(t))
	configs, err := b.admin.DescribeTopicConfigs(ctx, details.Names()...)
	if err != nil {
		t.Fatal(err)
	}
	for _, brokers := range [][]int32{{1}, {}} {
		c, err := b.admin.DescribeBrokerConfigs(ctx, brokers...)
		if err != nil {
			t.Fatal(err)
		}
		configs = append(configs, c...)
	}
	for _, c := range configs {
		for _, k := range c.Configs {
			switch k.Source {
			case kmsg.ConfigSourceDynamicTopicConfig, kmsg.ConfigSourceDynamicBrokerConfig, kmsg.ConfigSourceDynamicDefaultBrokerConfig:
				add("config of %q: %s=%s", c.Name, k.Key, k.MaybeValue())
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// produceBatch sends one batch, as it is, to partition 0 of topic.
func (b *broker) produceBatch(t *testing.T, topic string, batch []byte) (offset int64, err error) {
	t.Helper()
	details, err := b.admin.ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	partition := kmsg.NewProduceRequestTopicPartition()
	partition.Records = slices.Clone(batch)
	topicData := kmsg.NewProduceRequestTopic()
	topicData.Topic, topicData.TopicID = topic, details[topic].ID
	topicData.Partitions = append(topicData.Partitions, partition)
	r := kmsg.NewPtrProduceRequest()
	r.Acks, r.TimeoutMillis = -1, 10_000
	r.Topics = append(r.Topics, topicData)
	answer, err := r.RequestWith(t.Context(), b.client)
	if err != nil {
		t.Fatal(err)
	}
	p := answer.Topics[0].Partitions[0]
	return p.BaseOffset, kerr.ErrorForCode(p.ErrorCode)
}

// newProducer returns a client that writes each ProduceSync as one batch.
func (b *broker) newProducer(t *testing.T, codec kgo.CompressionCodec) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// create makes a topic with settings key=value.
func (b *broker) create(t *testing.T, topic string, partitions int32, settings ...string) {
	t.Helper()
	configs := map[string]*string{}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		configs[key] = &value
	}
	if r, err := b.admin.CreateTopic(t.Context(), partitions, 1, configs, topic); err != nil || r.Err != nil {
		t.Fatalf("create %s: %v %v", topic, err, r.Err)
	}
}

// complaint matches all that DumpLogSegments has against a file, eachSegment what it says of every segment that does
// not begin at offset 0.
var (
	complaint   = regexp.MustCompile(`(?i)isvalid: false|invalid bytes|is followed by|mismatch|out of order|not found|exception|could not`)
	eachSegment = regexp.MustCompile(`Non-consecutive offsets in .*\n  -1 is followed by \d+\n`)
)

// checkFiles has Apache's DumpLogSegments read every file in dir.
func checkFiles(t *testing.T, dir string) {
	t.Helper()
	logs := files(t, dir, ".log")
	indexes := slices.Concat(files(t, dir, ".index"), files(t, dir, ".timeindex"))
	if len(logs) < 25 {
		t.Fatalf("only %d segments", len(logs))
	}
	dump := func(files []string, flags ...string) string {
		t.Helper()
		out, status := runHosted(t, strings.Join(append([]string{toolPackage + "DumpLogSegments", "--files", strings.Join(files, ",")}, flags...), " "))
		out = eachSegment.ReplaceAllString(out, "")
		if at := complaint.FindStringIndex(out); at != nil {
			t.Errorf("DumpLogSegments %v:\n%s", flags, tail(out[:min(len(out), at[1]+1000)]))
		}
		if status != 0 {
			t.Errorf("DumpLogSegments %v: exit status %d:\n%s", flags, status, tail(out))
		}
		return out
	}
	out := dump(indexes, "--index-sanity-check")
	for _, index := range indexes {
		if !strings.Contains(out, index+" passed sanity check.") && !strings.Contains(out, index+" is empty.") {
			t.Errorf("%s does not pass the sanity check", index)
		}
	}
	dump(slices.Concat(logs, indexes, files(t, dir, ".snapshot")), "--deep-iteration", "--verify-index-only")
	metadata := filepath.Join(dir, "__cluster_metadata-0")
	checkpoints, _ := filepath.Glob(filepath.Join(metadata, "*.checkpoint"))
	segments, _ := filepath.Glob(filepath.Join(metadata, "*.log"))
	if len(checkpoints) == 0 {
		t.Error("no snapshot of the metadata")
	}
	for _, file := range slices.Concat(checkpoints, segments) {
		out := dump([]string{file}, "--cluster-metadata-decoder")
		if !strings.Contains(out, `payload: {"type":"`) {
			t.Errorf("no record of metadata in %s:\n%s", file, tail(out))
		}
	}
}

// files returns those of live partitions and the metadata log that end with suffix.
func files(t *testing.T, dir, suffix string) (found []string) {
	t.Helper()
	partitions, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range partitions {
		if !p.IsDir() || strings.HasSuffix(p.Name(), "-delete") {
			continue
		}
		of, err := filepath.Glob(filepath.Join(dir, p.Name(), "*"+suffix))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, of...)
	}
	return found
}
