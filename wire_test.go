package ottla_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla"
)

// The tests of what a broker answers speak to it over a bare TCP connection, so that they can say what no client library says.
//
// The same cases can run against Apache Kafka 4.4, which shows that the tests are right: with OTTLA_TEST_AGAINST=host:port
// they take the broker there, one fresh node that is broker and controller under node.id 1, with its defaults but for
//
//	log.segment.delete.delay.ms=1000 group.initial.rebalance.delay.ms=0 and replication factors of 1
//
// Where ottla answers otherwise, on purpose, a row has an apache column beside what is wanted.
const againstVariable = "OTTLA_TEST_AGAINST"

// A target is the broker under test.
type target struct {
	addr   string
	apache bool
	broker *ottla.Broker // nil if it is Apache Kafka
}

// underTest returns the broker that OTTLA_TEST_AGAINST names, or starts one.
func underTest(t *testing.T, c ottla.Config) target {
	t.Helper()
	if addr := os.Getenv(againstVariable); addr != "" {
		return target{addr: addr, apache: true}
	}
	b := start(t, c)
	return target{addr: b.Addr(), broker: b}
}

// want returns what the target at hand should do: apache, if that is another than ottla's.
func (g target) want(ottla, apache string) string {
	if g.apache && apache != "" {
		return apache
	}
	return ottla
}

// answerWithin is how long a test waits for an answer, or for the close of a connection, before it calls the broker silent.
const answerWithin = 30 * time.Second

// What can come of a request beside an error code.
const (
	closed = "closed"
	silent = "no answer"
	none   = "NONE"
)

var (
	errClosed = errors.New(closed)
	errSilent = errors.New(silent)
)

// A wire is one connection to the broker.
type wire struct {
	t           testing.TB
	conn        net.Conn
	correlation int32
}

func dial(t testing.TB, addr string) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &wire{t: t, conn: conn}
}

// write sends bytes as they are. That the broker has closed already is for the read to find.
func (w *wire) write(b []byte) {
	w.t.Helper()
	if err := w.conn.SetWriteDeadline(time.Now().Add(answerWithin)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.conn.Write(b); errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Fatal(err)
	}
}

// read reads one answer, without its size.
func (w *wire) read() ([]byte, error) {
	w.t.Helper()
	if err := w.conn.SetReadDeadline(time.Now().Add(answerWithin)); err != nil {
		w.t.Fatal(err)
	}
	var size [4]byte
	if _, err := io.ReadFull(w.conn, size[:]); err != nil {
		return nil, readError(err)
	}
	answer := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(w.conn, answer); err != nil {
		return nil, readError(err)
	}
	return answer, nil
}

func readError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errSilent
	}
	return errClosed
}

// raw sends bytes as they are and tells what came of it.
func (w *wire) raw(b []byte) string {
	w.t.Helper()
	w.write(b)
	answer, err := w.read()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("answer of %d bytes", len(answer))
}

// frame sends a request with a body made by hand and tells what came of it.
func (w *wire) frame(key, version int16, flexible bool, body []byte) string {
	w.t.Helper()
	return w.raw(handMade(key, version, flexible, body))
}

// handMade is a whole frame with a right header before any body.
func handMade(key, version int16, flexible bool, body []byte) []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, 77)
	b = append(b, 0, 1, 't')
	if flexible {
		b = append(b, 0)
	}
	b = append(b, body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// send sends a request of the version it holds.
func (w *wire) send(req kmsg.Request) {
	w.t.Helper()
	w.correlation++
	w.write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("wire")).AppendRequest(nil, req, w.correlation))
}

// receive reads the answer to req.
func (w *wire) receive(req kmsg.Request) (kmsg.Response, error) {
	w.t.Helper()
	b, err := w.read()
	if err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(b)); got != w.correlation {
		w.t.Fatalf("answer with correlation id %d to request %d", got, w.correlation)
	}
	b = b[4:]
	resp := req.ResponseKind()
	if resp.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		if b[0] != 0 {
			w.t.Fatalf("answer of %s has %d tagged fields in its header", kmsg.NameForKey(req.Key()), b[0])
		}
		b = b[1:]
	}
	if err := resp.ReadFrom(b); err != nil {
		w.t.Fatalf("answer of %s v%d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp, nil
}

// try sends a request and reads its answer. The error is errClosed or errSilent.
func (w *wire) try(req kmsg.Request) (kmsg.Response, error) {
	w.t.Helper()
	w.send(req)
	return w.receive(req)
}

// call sends a request that must be answered.
func call[R kmsg.Response](w *wire, req kmsg.Request) R {
	w.t.Helper()
	resp, err := w.try(req)
	if err != nil {
		w.t.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp.(R)
}

// outcome sends a request and tells what came of it: closed, no answer, or the name of the error code that pick finds.
func outcome[R kmsg.Response](w *wire, req kmsg.Request, pick func(R) int16) string {
	w.t.Helper()
	resp, err := w.try(req)
	if err != nil {
		return err.Error()
	}
	return errorName(pick(resp.(R)))
}

// errorName is Kafka's name of an error code, NONE for 0.
func errorName(code int16) string {
	switch code {
	case 0:
		return none
	case 6:
		return "NOT_LEADER_OR_FOLLOWER" // kerr has its former name
	}
	var e *kerr.Error
	if !errors.As(kerr.ErrorForCode(code), &e) || e.Code != code {
		return fmt.Sprintf("unknown error code %d", code)
	}
	return e.Message
}

// produceOf is a Produce of records to partition 0 of topic, acks=all, version 12 (topics by name).
func produceOf(topic string, records []byte) *kmsg.ProduceRequest {
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = records
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.Partitions = topic, []kmsg.ProduceRequestTopicPartition{p}
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 12, -1, 10_000
	req.Topics = []kmsg.ProduceRequestTopic{rt}
	return req
}

func produceCode(r *kmsg.ProduceResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode }

// fetchOf is a Fetch outside of sessions of partition 0 of topic, from offset on, version 12 (topics by name).
func fetchOf(topic string, offset int64) *kmsg.FetchRequest {
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = offset, 4<<20
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic, ft.Partitions = topic, []kmsg.FetchRequestTopicPartition{p}
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MinBytes, req.MaxWaitMillis = 12, 1, 5000
	req.SessionID, req.SessionEpoch = 0, -1
	req.Topics = []kmsg.FetchRequestTopic{ft}
	return req
}

// fetchCode is the top-level error, or that of the first partition.
func fetchCode(r *kmsg.FetchResponse) int16 {
	if r.ErrorCode != 0 || len(r.Topics) == 0 {
		return r.ErrorCode
	}
	return r.Topics[0].Partitions[0].ErrorCode
}

// listOffsetsOf asks partition 0 of topic for the offset of a timestamp.
func listOffsetsOf(topic string, timestamp int64) *kmsg.ListOffsetsRequest {
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp, p.CurrentLeaderEpoch = timestamp, -1
	lt := kmsg.NewListOffsetsRequestTopic()
	lt.Topic, lt.Partitions = topic, []kmsg.ListOffsetsRequestTopicPartition{p}
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 10, -1
	req.Topics = []kmsg.ListOffsetsRequestTopic{lt}
	return req
}

// endOffset is the high watermark of partition 0 of topic.
func (w *wire) endOffset(topic string) int64 {
	w.t.Helper()
	p := call[*kmsg.ListOffsetsResponse](w, listOffsetsOf(topic, -1)).Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		w.t.Fatalf("ListOffsets of %s: %s", topic, errorName(p.ErrorCode))
	}
	return p.Offset
}

// produce appends records, which must be accepted, and returns their first offset.
func (w *wire) produce(topic string, records []byte) int64 {
	w.t.Helper()
	p := call[*kmsg.ProduceResponse](w, produceOf(topic, records)).Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		w.t.Fatalf("Produce to %s: %s", topic, errorName(p.ErrorCode))
	}
	return p.BaseOffset
}

// newTopic is a topic to be created with one partition.
func newTopic(name string) kmsg.CreateTopicsRequestTopic {
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = name, 1, 1
	return ct
}

func createTopicsOf(topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis, req.Topics = 7, 30_000, topics
	return req
}

// createTopics creates topics, waits until each can be written, and returns their answers.
func (w *wire) createTopics(topics ...kmsg.CreateTopicsRequestTopic) []kmsg.CreateTopicsResponseTopic {
	w.t.Helper()
	created := call[*kmsg.CreateTopicsResponse](w, createTopicsOf(topics...)).Topics
	for _, ct := range created {
		if ct.ErrorCode != 0 {
			w.t.Fatalf("CreateTopics %s: %s", ct.Topic, errorName(ct.ErrorCode))
		}
	}
	for _, ct := range created {
		w.awaitLeader(ct.Topic)
	}
	return created
}

// awaitLeader returns when partition 0 of topic answers ListOffsets: Apache Kafka answers CreateTopics a moment before
// its broker has the partition. Each try costs a round trip; there are at most as many as fit into answerWithin.
func (w *wire) awaitLeader(topic string) {
	w.t.Helper()
	for deadline := time.Now().Add(answerWithin); ; {
		code := call[*kmsg.ListOffsetsResponse](w, listOffsetsOf(topic, -1)).Topics[0].Partitions[0].ErrorCode
		if code == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s has no leader yet: %s", topic, errorName(code))
		}
	}
}

// topicName makes the name of a topic that no earlier run against the same broker has used.
func topicName(purpose string, i int) string {
	return fmt.Sprintf("%s-%d-%x", purpose, i, time.Now().UnixNano())
}

// A rec is a record of a batch. A nil key or value is null.
type rec struct {
	offsetDelta    int64
	timestampDelta int64
	key, value     []byte
}

// append encodes the record with its length.
func (r rec) append(b []byte) []byte {
	body := []byte{0} // attributes
	body = binary.AppendVarint(body, r.timestampDelta)
	body = binary.AppendVarint(body, r.offsetDelta)
	body = appendNullable(body, r.key)
	body = appendNullable(body, r.value)
	body = binary.AppendVarint(body, 0) // headers
	b = binary.AppendVarint(b, int64(len(body)))
	return append(b, body...)
}

func appendNullable(b, field []byte) []byte {
	if field == nil {
		return binary.AppendVarint(b, -1)
	}
	b = binary.AppendVarint(b, int64(len(field)))
	return append(b, field...)
}

// A batch is a record batch of magic 2 with a knob for each thing that a producer can get wrong. newBatch sets them right.
type batch struct {
	baseOffset    int64
	length        func(right int32) int32
	leaderEpoch   int32
	magic         int8
	crc           func(right uint32) uint32
	attributes    int16
	lastDelta     int32
	baseTimestamp int64
	maxTimestamp  int64
	producerID    int64
	producerEpoch int16
	baseSequence  int32
	count         int32
	records       []byte // after the header; compressed if attributes say so
	behind        []byte // after the batch
}

// The time of the records of newBatch: neither old enough for retention nor in the future.
var batchTime = time.Now().Add(-time.Minute).UnixMilli()

// newBatch is a right batch of one record a value.
func newBatch(values ...string) *batch {
	var records []byte
	for i, v := range values {
		records = rec{offsetDelta: int64(i), value: []byte(v)}.append(records)
	}
	n := int32(len(values))
	return &batch{magic: 2, lastDelta: n - 1, count: n, baseTimestamp: batchTime, maxTimestamp: batchTime,
		producerID: -1, producerEpoch: -1, baseSequence: -1, records: records}
}

// with turns knobs.
func (b *batch) with(turn func(*batch)) *batch {
	turn(b)
	return b
}

const batchHeader = 61 // bytes before the records

// bytes encodes the batch.
func (b *batch) bytes() []byte {
	be := binary.BigEndian
	out := be.AppendUint64(nil, uint64(b.baseOffset))
	length := int32(batchHeader - 12 + len(b.records))
	if b.length != nil {
		length = b.length(length)
	}
	out = be.AppendUint32(out, uint32(length))
	out = be.AppendUint32(out, uint32(b.leaderEpoch))
	out = append(out, byte(b.magic), 0, 0, 0, 0)
	out = be.AppendUint16(out, uint16(b.attributes))
	out = be.AppendUint32(out, uint32(b.lastDelta))
	out = be.AppendUint64(out, uint64(b.baseTimestamp))
	out = be.AppendUint64(out, uint64(b.maxTimestamp))
	out = be.AppendUint64(out, uint64(b.producerID))
	out = be.AppendUint16(out, uint16(b.producerEpoch))
	out = be.AppendUint32(out, uint32(b.baseSequence))
	out = be.AppendUint32(out, uint32(b.count))
	out = append(out, b.records...)
	crc := crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli))
	if b.crc != nil {
		crc = b.crc(crc)
	}
	be.PutUint32(out[17:], crc)
	return append(out, b.behind...)
}

// storedBatch is what a right batch looks like in a Fetch at that offset.
func storedBatch(sent []byte, offset int64, leaderEpoch int32) []byte {
	b := append([]byte(nil), sent...)
	binary.BigEndian.PutUint64(b, uint64(offset))
	binary.BigEndian.PutUint32(b[12:], uint32(leaderEpoch))
	return b
}
