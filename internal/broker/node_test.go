package broker

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"maps"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/config"
	"ottla/internal/protocol"
	"ottla/internal/record"
	"ottla/internal/transport/memnet"
	"ottla/internal/uuid"
	"ottla/internal/vfs"
)

// answerWithin bounds every wait for an answer, and for a node to start.
const answerWithin = 10 * time.Second

// parse reads settings over those of a lone node on free loopback ports.
func parse(t testing.TB, settings map[string]string) *config.Config {
	t.Helper()
	properties := map[string]string{
		"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0", "log.dirs": "/data", "ottla.console.listener": "",
		"offsets.topic.num.partitions": "1", "ottla.memory.limit": "1073741824",
	}
	for k, v := range settings {
		properties[k] = v
	}
	c, err := config.Parse(config.Sources{Properties: properties})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newDisk is an empty disk in memory with a place for data.
func newDisk(t testing.TB) *vfs.Mem {
	t.Helper()
	disk := vfs.NewMem()
	if err := disk.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	return disk
}

func options(t testing.TB, disk vfs.FS, settings map[string]string) Options {
	return Options{Config: parse(t, settings), FS: disk, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}
}

// startNode starts a broker and controller that the test's end closes.
func startNode(t testing.TB, disk vfs.FS, settings map[string]string) *Broker {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerWithin)
	defer cancel()
	b, err := Start(ctx, options(t, disk, settings))
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

// A client is one connection. It uses its buffer again, so that what is measured is the broker.
type client struct {
	t    testing.TB
	conn net.Conn
	buf  []byte
}

// startInBubble is startNode on a network in memory, for a synctest bubble. It returns what opens connections to it.
func startInBubble(t *testing.T, disk vfs.FS, settings map[string]string) (*Broker, func() *client) {
	t.Helper()
	network := memnet.New()
	all := map[string]string{"listeners": "PLAINTEXT://node:9092,CONTROLLER://node:9093"}
	maps.Copy(all, settings)
	o := options(t, disk, all)
	o.Listen = func(_ context.Context, _, address string) (net.Listener, error) { return network.Listen(address) }
	o.Dial = network.Dialer("node")
	b, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return b, func() *client {
		conn, err := network.Dialer("client")(t.Context(), "tcp", "node:9092")
		if err != nil {
			t.Fatal(err)
		}
		return &client{t: t, conn: conn}
	}
}

func dial(t testing.TB, b *Broker) *client {
	t.Helper()
	conn, err := net.Dial("tcp", b.Addr(""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t: t, conn: conn}
}

// send sends a request without waiting for its answer.
func (c *client) send(req kmsg.Request) {
	c.t.Helper()
	if _, err := c.conn.Write(protocol.AppendRequest(nil, req, 1, nil)); err != nil {
		c.t.Fatal(err)
	}
}

// exchange sends a frame and returns the answer's, without its size, valid until the next.
func (c *client) exchange(frame []byte) []byte {
	c.t.Helper()
	if _, err := c.conn.Write(frame); err != nil {
		c.t.Fatal(err)
	}
	return c.receive()
}

func (c *client) receive() []byte {
	c.t.Helper()
	if err := c.conn.SetReadDeadline(time.Now().Add(answerWithin)); err != nil {
		c.t.Fatal(err)
	}
	if c.buf == nil {
		c.buf = make([]byte, 64<<10)
	}
	if _, err := io.ReadFull(c.conn, c.buf[:4]); err != nil {
		c.t.Fatal(err)
	}
	size := int(binary.BigEndian.Uint32(c.buf))
	if size > len(c.buf) {
		c.buf = make([]byte, size)
	}
	if _, err := io.ReadFull(c.conn, c.buf[:size]); err != nil {
		c.t.Fatal(err)
	}
	return c.buf[:size]
}

// ask sends a request and returns its answer.
func ask[Resp kmsg.Response](c *client, req kmsg.Request) Resp {
	c.t.Helper()
	c.send(req)
	return answerTo[Resp](c, req)
}

// answerTo receives the answer to a request that was sent.
func answerTo[Resp kmsg.Response](c *client, req kmsg.Request) Resp {
	c.t.Helper()
	_, resp, err := protocol.ParseResponse(append([]byte(nil), c.receive()...), req)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.(Resp)
}

// createTopic creates a topic with settings and returns its id.
func (c *client) createTopic(name string, partitions int32, settings ...string) uuid.UUID {
	c.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(createTopicsVersion)
	req.TimeoutMillis = 5000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	for i := 0; i < len(settings); i += 2 {
		kv := kmsg.NewCreateTopicsRequestTopicConfig()
		kv.Name, kv.Value = settings[i], &settings[i+1]
		topic.Configs = append(topic.Configs, kv)
	}
	req.Topics = append(req.Topics, topic)
	resp := ask[*kmsg.CreateTopicsResponse](c, req)
	if code := resp.Topics[0].ErrorCode; code != 0 {
		c.t.Fatalf("creating topic %s was answered with error code %d", name, code)
	}
	return resp.Topics[0].TopicID
}

func (c *client) deleteTopic(name string) {
	c.t.Helper()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.SetVersion(6)
	req.TimeoutMillis = 5000
	topic := kmsg.NewDeleteTopicsRequestTopic()
	topic.Topic = &name
	req.Topics = append(req.Topics, topic)
	resp := ask[*kmsg.DeleteTopicsResponse](c, req)
	if code := resp.Topics[0].ErrorCode; code != 0 {
		c.t.Fatalf("deleting topic %s was answered with error code %d", name, code)
	}
}

// batch is a batch of one record with a value of size bytes.
func batch(size int) []byte {
	b := record.NewBuilder(nil, record.BatchOptions{})
	b.Append(record.Record{Timestamp: time.Now().UnixMilli(), Value: make([]byte, size)})
	return b.Bytes()
}

// produceRequest writes one batch to one partition, with acks=all.
func produceRequest(topic uuid.UUID, partition int32, batch []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(13)
	req.Acks, req.TimeoutMillis = acksAll, 5000
	rt := kmsg.NewProduceRequestTopic()
	rt.TopicID = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, batch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// produce writes one batch and returns its offset.
func (c *client) produce(topic uuid.UUID, partition int32, batch []byte) int64 {
	c.t.Helper()
	p := ask[*kmsg.ProduceResponse](c, produceRequest(topic, partition, batch)).Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		c.t.Fatalf("a batch for partition %d was answered with error code %d", partition, p.ErrorCode)
	}
	return p.BaseOffset
}

// fetchRequest is a fetch of a session: 0 and initialEpoch begin one.
func fetchRequest(session, epoch int32, parts ...fetchWant) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(16)
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis = 1<<20, 1, 0
	req.SessionID, req.SessionEpoch = session, epoch
	for _, w := range parts {
		rt := kmsg.NewFetchRequestTopic()
		rt.TopicID = w.topicID
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = w.partition, w.offset, 1<<20, -1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// from says where a partition is read from.
func from(topic uuid.UUID, partition int32, offset int64) fetchWant {
	return fetchWant{fetchKey: fetchKey{topicID: topic, partition: partition}, offset: offset}
}

// fetched is how many bytes of records, or which error code, an answer has for each partition that it names.
func fetched(resp *kmsg.FetchResponse) map[int32]int {
	out := map[int32]int{}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			out[p.Partition] = len(p.RecordBatches)
			if p.ErrorCode != 0 {
				out[p.Partition] = -int(p.ErrorCode)
			}
		}
	}
	return out
}
