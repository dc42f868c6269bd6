package ottla_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ottla"
)

// Three clients that others wrote, each with each of its codecs, write the same records; each then reads what
// every one of them wrote.

const (
	clientRecords    = 200
	clientPartitions = 2
)

// A client is a foreign library under test.
type client struct {
	name    string
	codecs  []string
	produce func(t *testing.T, addr, topic, codec string)
	consume func(t *testing.T, addr, topic string, partition int32) []string
}

var clients = []client{
	{"franz-go", []string{"none", "gzip", "snappy", "lz4", "zstd"}, franzProduce, franzConsume},
	{"sarama", []string{"none", "gzip", "snappy", "lz4", "zstd"}, saramaProduce, saramaConsume},
	{"kafka-go", []string{"none", "gzip", "snappy", "lz4", "zstd"}, kafkaGoProduce, kafkaGoConsume},
}

func TestClients(t *testing.T) {
	b := start(t, ottla.Config{})
	for _, writer := range clients {
		for _, codec := range writer.codecs {
			t.Run(writer.name+"/"+codec, func(t *testing.T) {
				t.Parallel() // they wait more than they work
				topic := writer.name + "-" + codec
				createTopic(t, b, topic, clientPartitions)
				writer.produce(t, b.Addr(), topic, codec)
				for _, reader := range clients {
					for p := range int32(clientPartitions) {
						if got, want := reader.consume(t, b.Addr(), topic, p), expectedRecords(p); !slices.Equal(got, want) {
							t.Errorf("%s read of partition %d: %d records, first differing: %s", reader.name, p, len(got), firstDifference(got, want))
						}
					}
				}
			})
		}
	}
}

// record i goes to partition i mod clientPartitions.
func recordKey(i int) []byte   { return fmt.Appendf(nil, "key-%d", i) }
func recordValue(i int) []byte { return fmt.Appendf(nil, "value-%d", i) }
func recordTime(i int) time.Time {
	return time.UnixMilli(1_700_000_000_000 + int64(i))
}

func expectedRecords(partition int32) []string {
	var lines []string
	for i := int(partition); i < clientRecords; i += clientPartitions {
		lines = append(lines, recordLine(int64(len(lines)), recordTime(i), recordKey(i), recordValue(i), "h", recordKey(i)))
	}
	return lines
}

func recordLine(offset int64, at time.Time, key, value []byte, header string, headerValue []byte) string {
	return fmt.Sprintf("%d %d %s %s %s=%s", offset, at.UnixMilli(), key, value, header, headerValue)
}

func firstDifference(got, want []string) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("got %q, want %q", got[i], want[i])
		}
	}
	return fmt.Sprintf("got %d, want %d", len(got), len(want))
}

func franzProduce(t *testing.T, addr, topic, codec string) {
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codecs[codec]))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var records []*kgo.Record
	for i := range clientRecords {
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(i % clientPartitions), Timestamp: recordTime(i),
			Key: recordKey(i), Value: recordValue(i), Headers: []kgo.RecordHeader{{Key: "h", Value: recordKey(i)}}})
	}
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func franzConsume(t *testing.T, addr, topic string, partition int32) []string {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var lines []string
	for len(lines) < clientRecords/clientPartitions {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d records: %v", len(lines), err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			lines = append(lines, recordLine(r.Offset, r.Timestamp, r.Key, r.Value, r.Headers[0].Key, r.Headers[0].Value))
		})
	}
	return lines
}

func saramaProduce(t *testing.T, addr, topic, codec string) {
	codecs := map[string]sarama.CompressionCodec{"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD}
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Compression = codecs[codec]
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	producer, err := sarama.NewSyncProducer([]string{addr}, config)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for i := range clientRecords {
		messages = append(messages, &sarama.ProducerMessage{Topic: topic, Partition: int32(i % clientPartitions), Timestamp: recordTime(i),
			Key: sarama.ByteEncoder(recordKey(i)), Value: sarama.ByteEncoder(recordValue(i)),
			Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: recordKey(i)}}})
	}
	if err := producer.SendMessages(messages); err != nil {
		t.Fatal(err)
	}
}

func saramaConsume(t *testing.T, addr, topic string, partition int32) []string {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.MaxWaitTime = 50 * time.Millisecond // Close waits for the fetch that is under way
	consumer, err := sarama.NewConsumer([]string{addr}, config)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	part, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	if err != nil {
		t.Fatal(err)
	}
	defer part.Close()
	var lines []string
	for len(lines) < clientRecords/clientPartitions {
		select {
		case m := <-part.Messages():
			lines = append(lines, recordLine(m.Offset, m.Timestamp, m.Key, m.Value, string(m.Headers[0].Key), m.Headers[0].Value))
		case <-time.After(20 * time.Second):
			t.Fatalf("waited 20 s after %d records", len(lines))
		}
	}
	return lines
}

func kafkaGoProduce(t *testing.T, addr, topic, codec string) {
	codecs := map[string]kafka.Compression{"none": compress.None, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}
	transport := &kafka.Transport{} // the default one remembers for seconds which topics there are
	defer transport.CloseIdleConnections()
	w := &kafka.Writer{Addr: kafka.TCP(addr), Transport: transport, Topic: topic, RequiredAcks: kafka.RequireAll, Compression: codecs[codec], BatchTimeout: time.Millisecond,
		Balancer: kafka.BalancerFunc(func(m kafka.Message, partitions ...int) int { return m.WriterData.(int) })}
	defer w.Close()
	var messages []kafka.Message
	for i := range clientRecords {
		messages = append(messages, kafka.Message{Time: recordTime(i), Key: recordKey(i), Value: recordValue(i), WriterData: i % clientPartitions,
			Headers: []kafka.Header{{Key: "h", Value: recordKey(i)}}})
	}
	if err := w.WriteMessages(t.Context(), messages...); err != nil {
		t.Fatal(err)
	}
}

func kafkaGoConsume(t *testing.T, addr, topic string, partition int32) []string {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{addr}, Topic: topic, Partition: int(partition), MaxWait: 100 * time.Millisecond})
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var lines []string
	for len(lines) < clientRecords/clientPartitions {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			t.Fatalf("after %d records: %v", len(lines), err)
		}
		lines = append(lines, recordLine(m.Offset, m.Time, m.Key, m.Value, m.Headers[0].Key, m.Headers[0].Value))
	}
	return lines
}

// start starts a broker that the test's end closes.
func start(t *testing.T, c ottla.Config) *ottla.Broker {
	t.Helper()
	b, err := ottla.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func createTopic(t *testing.T, b *ottla.Broker, topic string, partitions int32) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if r, err := kadm.NewClient(cl).CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
}
