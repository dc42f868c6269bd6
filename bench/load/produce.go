//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// produces measures produce requests at a fixed rate that is spread evenly over many connections, each with acks=all and one batch of -records records of
// 1,000 bytes for one partition of a topic that exists. The connections are opened beforehand, and take turns. The first -warm is not measured; each connection has its turn
// in it. In the end the topic's offsets are held against what was sent.
//
// Figures: mb_s of batches, bytes in all, requests, p50_ms to max_ms from when a request was due to its answer; late_p99_ms is how late this program sent, which
// is in these; broker_cpu_s_per_gb; errors are requests that were refused, lost are records that were acknowledged and are not there: both are 0.
func produces(ctx context.Context, args []string, out io.Writer) error {
	f := newFlags("produce", "produce", 10)
	conns := f.Int("conns", 10, "connections")
	rate := f.Float64("rate", 50, "`MB/s` of batches, in all")
	records := f.Int("records", 16, "records a batch")
	warm := f.Duration("warm", 5*time.Second, "time that is not measured")
	measured := f.Duration("time", 15*time.Second, "time that is measured")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *conns < 1 || f.partitions < 1 || *rate <= 0 || *records < 1 {
		return errors.New("-conns, -partitions, -rate and -records must be above 0")
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	meter, err := newMeter(f.pid)
	if err != nil {
		return err
	}
	load, err := newProduceLoad(ctx, f, *conns, *records)
	if err != nil {
		return err
	}
	interval := time.Duration(float64(len(load.batch)) / *rate * 1e3) // a MB/s is a byte a µs
	if turns := interval * time.Duration(*conns); *warm < turns {
		return fmt.Errorf("-warm %v: it takes %v until each connection has had its turn", *warm, turns)
	}
	before, err := load.stored(ctx, f)
	if err != nil {
		return err
	}
	if err := load.run(ctx, *warm, load.plan(interval)); err != nil {
		return err
	}
	warmed := load.latency.TotalCount()
	load.reset()
	if err := meter.begin(); err != nil {
		return err
	}
	if err := load.run(ctx, *measured, load.plan(interval)); err != nil {
		return err
	}
	end, err := meter.read()
	if err != nil {
		return err
	}
	after, err := load.stored(ctx, f)
	if err != nil {
		return err
	}
	done := load.latency.TotalCount()
	bytes := float64(done) * float64(len(load.batch))
	lost := (warmed+done)*int64(*records) - (after - before)
	r := result{"cmd": "produce", "conns": *conns, "requests": done, "bytes": bytes, "errors": load.errors, "lost": lost}
	if err := meter.report(r, end); err != nil {
		return err
	}
	r["mb_s"] = bytes / 1e6 / r["wall_s"].(float64)
	r["late_p99_ms"] = float64(load.late.ValueAtQuantile(99)) / 1e3
	percentiles(r, "", load.latency)
	if cpu, ok := r["broker_cpu_s"].(float64); ok {
		r["broker_cpu_s_per_gb"] = cpu / bytes * 1e9
	}
	if err := r.print(out, f.labels, ""); err != nil {
		return err
	}
	if load.errors > 0 || lost != 0 {
		return fmt.Errorf("%d requests were refused, the first with %w; the log holds %d records less than were acknowledged", load.errors, load.first, lost)
	}
	return nil
}

// A produceLoad has the same request sent on schedule over many connections, to one partition each.
type produceLoad struct {
	*schedule
	batch    []byte
	requests []*kmsg.ProduceRequest  // by lane
	latency  *hdrhistogram.Histogram // µs
}

func newProduceLoad(ctx context.Context, f *flags, n, records int) (*produceLoad, error) {
	l := &produceLoad{batch: newBatch(records)}
	var conns []*conn
	for i := range n {
		c, err := connect(ctx, f.addr)
		if err != nil {
			return nil, fmt.Errorf("open connection %d of %d: %w", i+1, n, err)
		}
		conns = append(conns, c)
		l.requests = append(l.requests, l.request(f.topic, int32(i%f.partitions)))
	}
	l.schedule = newSchedule(conns, func(_ request, took time.Duration) { observe(l.latency, took) })
	l.reset()
	return l, nil
}

func (l *produceLoad) request(topic string, partition int32) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis = 9, -1, 30_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, l.batch
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

// newBatch makes a batch of n records.
func newBatch(n int) []byte {
	b := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(n - 1), FirstTimestamp: time.Now().UnixMilli(),
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(n)}
	b.MaxTimestamp = b.FirstTimestamp
	for i := range n {
		r := kmsg.Record{OffsetDelta: int32(i), Value: make([]byte, 1000)}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // what follows the length, which takes one byte while it is 0
		b.Records = r.AppendTo(b.Records)
	}
	const beforeCRC, crcEnd, lengthEnd = 17, 21, 12 // see the record batch in Kafka's documentation of its message format
	out := b.AppendTo(nil)
	binary.BigEndian.PutUint32(out[lengthEnd-4:], uint32(len(out)-lengthEnd))
	binary.BigEndian.PutUint32(out[beforeCRC:], crc32.Checksum(out[crcEnd:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

// reset forgets what was measured. Nothing is under way.
func (l *produceLoad) reset() { l.late, l.latency = newHistogram(), newHistogram() }

// plan has the connections take turns, one request every interval.
func (l *produceLoad) plan(interval time.Duration) plan {
	i := -1
	return func() (time.Duration, int, func() kmsg.Request) {
		i++
		lane := i % len(l.lanes)
		return interval * time.Duration(i), lane, func() kmsg.Request { return l.requests[lane] }
	}
}

// stored is how many records the topic's partitions hold, which must be led.
func (l *produceLoad) stored(ctx context.Context, f *flags) (sum int64, err error) {
	c, err := connect(ctx, f.addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	r := kmsg.NewPtrListOffsetsRequest()
	r.Version, r.ReplicaID = 7, -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = f.topic
	for i := range f.partitions {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp, p.CurrentLeaderEpoch = int32(i), -1, -1 // the next offset
		t.Partitions = append(t.Partitions, p)
	}
	r.Topics = append(r.Topics, t)
	resp, err := c.call(r)
	if err != nil {
		return 0, err
	}
	for _, t := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return 0, fmt.Errorf("next offset of partition %d of %s: %w", p.Partition, f.topic, kerr.ErrorForCode(p.ErrorCode))
			}
			sum += p.Offset
		}
	}
	return sum, nil
}
