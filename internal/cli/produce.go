package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A Produced sums up what `produce` wrote.
type Produced struct {
	Topic      string              `json:"topic"`
	Records    int64               `json:"records"`
	Millis     float64             `json:"elapsed_ms"`
	Partitions []ProducedPartition `json:"partitions"`
}

// A ProducedPartition is where records went.
type ProducedPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Records   int64  `json:"records"`
	First     int64  `json:"first_offset"`
	Last      int64  `json:"last_offset"`
}

func (p Produced) line() string {
	var parts []string
	for _, r := range p.Partitions {
		offsets := fmt.Sprintf("offset %d", r.First)
		if r.Last > r.First {
			offsets = fmt.Sprintf("offsets %d–%d", r.First, r.Last)
		}
		parts = append(parts, fmt.Sprintf("partition %d %s", r.Partition, offsets))
	}
	line := fmt.Sprintf("%s to %s in %.0f ms", plenty(p.Records, "record"), p.Topic, p.Millis)
	if len(parts) > 0 {
		line += ": " + few(parts)
	}
	return line
}

// produceFlags are the flags of `produce`.
type produceFlags struct {
	topic, format, input, key string
	headers                   []string
	partition                 int32
	keep, tombstone           bool
	acks, codec               string
}

func (a *app) produce() *cobra.Command {
	var p produceFlags
	return a.leaf(leaf{
		use: "produce TOPIC", short: "Write records from stdin: lines, a format, or JSON lines.",
		example: "seq 5 | ottla produce hello\necho 'k1 v1' | ottla produce hello -f '%k %v\\n'\n" +
			"ottla consume a -o jsonl -e | ottla produce b -i jsonl",
		args: cobra.MaximumNArgs(1), complete: a.completeTopics, result: Produced{},
		flags: func(f *pflag.FlagSet) {
			f.StringVar(&p.topic, "topic", "", "another way to name the topic")
			f.StringVarP(&p.format, "format", "f", "", "how records stand in the input: %k key, %v value, %h headers, …; rpk's formats")
			f.StringVarP(&p.input, "input", "i", "lines", "form of the input: lines or jsonl")
			f.StringVarP(&p.key, "key", "k", "", "key of every record")
			f.StringArrayVarP(&p.headers, "header", "H", nil, "header `name=value` of every record; may be repeated")
			f.Int32VarP(&p.partition, "partition", "p", -1, "write to this partition only")
			f.BoolVar(&p.keep, "keep-partitions", false, "with -i jsonl: write each record to the partition that it names")
			f.BoolVar(&p.tombstone, "tombstone", false, "an empty value is a null")
			f.StringVar(&p.acks, "acks", "all", "acknowledgements to wait for: all, 1 or 0")
			f.StringVarP(&p.codec, "compression", "z", "", "none, gzip, snappy, lz4 or zstd")
		},
		run: func(ctx context.Context, args []string) error {
			if len(args) > 0 {
				p.topic = args[0]
			}
			return a.runProduce(ctx, p)
		},
	})
}

func (p *produceFlags) source(in io.Reader) (recordSource, error) {
	if err := oneOf("-i", p.input, []string{"lines", "jsonl"}); err != nil {
		return nil, err
	}
	buffered := bufio.NewReaderSize(in, 64<<10)
	switch {
	case p.input == "jsonl" && p.format != "":
		return nil, usagef("produce: -f and -i jsonl exclude each other")
	case p.input == "jsonl":
		return &jsonSource{in: json.NewDecoder(buffered)}, nil
	case p.format != "":
		r, err := kgo.NewRecordReader(buffered, p.format)
		if err != nil {
			return nil, usagef("-f %s: %s", p.format, err)
		}
		return r, nil
	}
	return lineSource{buffered}, nil
}

func (p *produceFlags) options() ([]kgo.Opt, error) {
	ackOpt, err := acks(p.acks)
	if err != nil {
		return nil, usagef("--acks %s: %s", p.acks, err)
	}
	opts := []kgo.Opt{ackOpt, kgo.DefaultProduceTopic(p.topic), kgo.ProducerLinger(5 * time.Millisecond)}
	if p.acks != "all" && p.acks != "-1" {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	if p.codec != "" {
		codec, err := compression(p.codec)
		if err != nil {
			return nil, usagef("-z %s: %s", p.codec, err)
		}
		opts = append(opts, codec)
	}
	if p.keep || p.partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	return append(opts, kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(3)), nil
}

// complete sets what the flags say of every record.
func (p *produceFlags) complete(r *kgo.Record) error {
	if p.keep && p.input != "jsonl" {
		return usagef("--keep-partitions needs -i jsonl")
	}
	if p.topic != "" {
		r.Topic = p.topic
	}
	if r.Topic == "" {
		return usagef("produce: name a topic, as in: ottla produce hello")
	}
	if p.key != "" {
		r.Key = []byte(p.key)
	}
	if p.partition >= 0 {
		r.Partition = p.partition
	}
	if p.tombstone && len(r.Value) == 0 {
		r.Value = nil
	}
	for _, h := range p.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok {
			return usagef("-H %s: write name=value", h)
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return nil
}

func (a *app) runProduce(ctx context.Context, p produceFlags) error {
	if p.topic == "" && p.input != "jsonl" {
		return usagef("produce: name a topic, as in: ottla produce hello")
	}
	source, err := p.source(a.In)
	if err != nil {
		return err
	}
	opts, err := p.options()
	if err != nil {
		return err
	}
	client, err := a.dial(ctx, opts...)
	if err != nil {
		return err
	}
	defer client.Close()
	start := time.Now()
	tally := produceTally{partitions: map[topicPartition]*ProducedPartition{}}
	readErr := send(ctx, client, source, &p, &tally)
	flushErr := client.Flush(ctx)
	sum := tally.sum(p.topic, time.Since(start))
	shown := a.showOne(sum, sum.Topic, func(w io.Writer) { fmt.Fprintln(w, sum.line()) })
	return errors.Join(tally.err, readErr, flushErr, shown)
}

// send produces until the source ends, a record fails or ctx is over.
func send(ctx context.Context, client *kgo.Client, source recordSource, p *produceFlags, tally *produceTally) error {
	for ctx.Err() == nil && !tally.failed() {
		r, err := source.ReadRecord()
		if err == io.EOF || err == io.ErrUnexpectedEOF && r == nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the input: %w", err)
		}
		if err := p.complete(r); err != nil {
			return err
		}
		client.Produce(ctx, r, tally.add)
	}
	return ctx.Err()
}

type topicPartition struct {
	topic     string
	partition int32
}

// produceTally counts what was acknowledged. The client calls add from its own goroutines.
type produceTally struct {
	mu         sync.Mutex
	partitions map[topicPartition]*ProducedPartition
	err        error // the first
}

func (t *produceTally) failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err != nil
}

func (t *produceTally) add(r *kgo.Record, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		if t.err == nil {
			t.err = failed("produce to "+r.Topic, err, "", produceHint(err, r.Topic))
		}
		return
	}
	key := topicPartition{r.Topic, r.Partition}
	p := t.partitions[key]
	if p == nil {
		p = &ProducedPartition{Topic: r.Topic, Partition: r.Partition, First: r.Offset, Last: r.Offset}
		t.partitions[key] = p
	}
	p.Records++
	p.First, p.Last = min(p.First, r.Offset), max(p.Last, r.Offset)
}

func produceHint(err error, topic string) string {
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return "make it: ottla topic create " + topic
	case errors.Is(err, kerr.MessageTooLarge):
		return "see max.message.bytes: ottla config get topic " + topic + " max.message.bytes"
	case errors.Is(err, kerr.NotEnoughReplicas):
		return "see: ottla topic describe " + topic
	}
	return ""
}

func (t *produceTally) sum(topic string, elapsed time.Duration) Produced {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := Produced{Topic: topic, Millis: float64(elapsed.Microseconds()) / 1000, Partitions: []ProducedPartition{}}
	for _, p := range t.partitions {
		sum.Records += p.Records
		sum.Partitions = append(sum.Partitions, *p)
		if sum.Topic == "" {
			sum.Topic = p.Topic
		}
	}
	slices.SortFunc(sum.Partitions, func(a, b ProducedPartition) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	return sum
}
