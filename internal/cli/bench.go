package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"ottla/internal/config"
)

func (a *app) bench() *cobra.Command {
	return group("bench", "Measure: produce, consume, end to end; compare runs.",
		a.benchKind("produce", "Write records and measure the time from the intended send to the acknowledgement.",
			"ottla bench produce --records 5M --size 100\nottla bench produce --throughput 50000 --records 1M --max-p99 10ms\n"+
				"ottla bench produce --topic t --num-records 200000 --record-size 200 --throughput -1 --output kafka"),
		a.benchKind("consume", "Read records as fast as they come.",
			"ottla bench consume --records 5M\nottla bench consume --topic t --num-records 200000 --output kafka"),
		a.benchKind("e2e", "Write and read records and measure the time from the intended send to the receipt.",
			"ottla bench e2e --throughput 1000 --records 60000\nottla bench e2e --records 10000 --output kafka"),
		a.benchCompare())
}

// benchFlags are the flags of all kinds; names and meanings are those of kafka-producer-perf-test 4.4
// where it has the thing.
type benchFlags struct {
	kind            string
	topic           string
	records, size   string
	throughput      string
	payloadFile     string
	warmup          time.Duration
	warmupRecords   int64
	transactionalID string
	properties      []string
	partitions      int32
	replicas        int16
	save            string
	targets         targets
	seed            uint64

	number  int64 // parsed records
	bytes   int   // parsed size
	rate    float64
	payload [][]byte
}

func (a *app) benchKind(kind, short, example string) *cobra.Command {
	b := &benchFlags{kind: kind}
	return a.leaf(leaf{
		use: kind, short: short, example: example, result: BenchResult{}, formats: []string{"kafka"},
		flags: func(f *pflag.FlagSet) {
			f.SetNormalizeFunc(perfTestNames)
			f.StringVar(&b.topic, "topic", "bench", "topic to use; made if it does not exist")
			f.StringVar(&b.records, "records", "1M", "records to measure, such as 200000 or 5M (also --num-records)")
			f.DurationVar(&b.warmup, "warmup", 2*time.Second, "time at the beginning that is not counted")
			f.StringArrayVar(&b.properties, "command-property", nil, "Java client property, `key=value`, as -X")
			f.Int32VarP(&b.partitions, "partitions", "p", 6, "partitions of a topic that is made")
			f.Int16Var(&b.replicas, "replication-factor", -1, "replicas of a topic that is made")
			f.StringVar(&b.save, "save", "", "keep the run in `DIR`/bench-N.json and .hgrm")
			f.Float64Var(&b.targets.minRate, "min-rate", 0, "exit 10 if fewer records a second")
			if kind == "consume" {
				return
			}
			f.DurationVar(&b.targets.maxP99, "max-p99", 0, "exit 10 if the 99th percentile is longer")
			f.StringVar(&b.size, "size", "100", "bytes of a value, such as 100 or 1KiB (also --record-size)")
			f.StringVar(&b.throughput, "throughput", "-1", "records a second, evenly spaced; -1 is as fast as possible")
			f.StringVar(&b.payloadFile, "payload-file", "", "`file` with values, one a line, picked at random")
			f.Int64Var(&b.warmupRecords, "warmup-records", 0, "records at the beginning that are not counted, instead of --warmup")
			f.StringVar(&b.transactionalID, "transactional-id", "", "write in transactions of 3 s under this id")
			f.Uint64Var(&b.seed, "random-seed", 0, "seed of the values")
		},
		run: func(ctx context.Context, _ []string) error {
			if err := b.parse(); err != nil {
				return err
			}
			return a.runBench(ctx, b)
		},
	})
}

// perfTestNames lets the flags of Apache's perf tools stand for ours.
func perfTestNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "num-records", "messages":
		name = "records"
	case "record-size":
		name = "size"
	case "producer-props":
		name = "command-property"
	}
	return pflag.NormalizedName(name)
}

// parse reads the numbers and makes the values.
func (b *benchFlags) parse() (err error) {
	if b.number, err = parseCount(b.records); err != nil || b.number < 1 {
		return usagef("--records %s: write a number, such as 200000 or 5M", b.records)
	}
	if b.kind == "consume" {
		return nil
	}
	n, err := config.ParseSize(b.size)
	if err != nil || n < 0 || n > 1<<30 {
		return usagef("--size %s: write a number of bytes, such as 100 or 1KiB", b.size)
	}
	b.bytes = int(n)
	if b.rate = -1; b.throughput != "-1" {
		count, err := parseCount(b.throughput)
		if err != nil {
			return usagef("--throughput %s: write records a second, or -1", b.throughput)
		}
		b.rate = float64(count)
	}
	if b.payloadFile != "" {
		return b.readPayload()
	}
	return nil
}

// parseCount reads 200000, 200k, 5M or 1.5G, powers of ten.
func parseCount(text string) (int64, error) {
	factor := 1.0
	for suffix, f := range map[string]float64{"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text, factor = rest, f
		}
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	if err != nil || n*factor > 1e15 || n < 0 {
		return 0, strconv.ErrSyntax
	}
	return int64(n * factor), nil
}

func (b *benchFlags) readPayload() error {
	file, err := os.ReadFile(b.payloadFile)
	if err != nil {
		return usagef("--payload-file: %s", err)
	}
	for line := range strings.Lines(string(file)) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			b.payload = append(b.payload, []byte(line))
		}
	}
	if len(b.payload) == 0 {
		return usagef("--payload-file %s has no lines", b.payloadFile)
	}
	return nil
}

// values returns a function that gives the next value: letters, as Apache's
// tool makes them, or a line of the payload file.
func (b *benchFlags) values() func() []byte {
	random := rand.New(rand.NewPCG(b.seed, 0))
	if len(b.payload) > 0 {
		return func() []byte { return b.payload[random.IntN(len(b.payload))] }
	}
	block := make([]byte, b.bytes+1<<16)
	for i := range block {
		block[i] = byte('A' + random.IntN(26))
	}
	return func() []byte {
		at := random.IntN(1 << 16)
		return block[at : at+b.bytes]
	}
}

func (a *app) runBench(ctx context.Context, b *benchFlags) error {
	a.properties = append(a.properties, b.properties...)
	opts := []kgo.Opt{kgo.RecordDeliveryTimeout(2 * time.Minute)}
	if b.transactionalID != "" {
		opts = append(opts, kgo.TransactionalID(b.transactionalID))
	}
	props, err := a.clientProperties()
	if err != nil {
		return err
	}
	if _, set := props["linger.ms"]; !set {
		opts = append(opts, kgo.ProducerLinger(5*time.Millisecond))
	}
	client, err := a.dial(ctx, opts...)
	if err != nil {
		return err
	}
	defer client.Close()
	partitions, err := a.benchTopic(ctx, kadm.NewClient(client), b)
	if err != nil {
		return err
	}
	m, err := a.measure(ctx, client, b)
	if m == nil {
		return err
	}
	r := m.result()
	r.Kind, r.Topic, r.Partitions, r.Settings = b.kind, b.topic, partitions, b.settings(props)
	if saveErr := b.saveRun(&r, m); saveErr != nil {
		err = errors.Join(err, saveErr)
	}
	if r.Errors > 0 {
		err = errors.Join(err, failed(fmt.Sprintf("%s of %d records failed, the first", count(r.Errors), b.number), m.err, "", ""))
	}
	return errors.Join(err, a.showBench(r), b.targets.missed(r))
}

func (b *benchFlags) settings(props map[string]string) map[string]string {
	out := map[string]string{"records": b.records, "warmup": b.warmup.String()}
	if b.kind != "consume" {
		out["size"], out["throughput"] = b.size, b.throughput
	}
	for key, value := range props {
		if !strings.Contains(key, "jaas") && !strings.Contains(key, "password") && !strings.HasPrefix(key, "ssl.") {
			out[key] = value
		}
	}
	return out
}

func (a *app) showBench(r BenchResult) error {
	if a.format == "kafka" {
		r.kafkaLine(a.out)
		return nil
	}
	return a.showOne(r, r.Topic, r.write)
}

// saveRun writes the run and its histogram beside each other.
func (b *benchFlags) saveRun(r *BenchResult, m *meter) error {
	if b.save == "" {
		return nil
	}
	base, err := nextRun(b.save)
	if err != nil {
		return fmt.Errorf("save the run: %w", err)
	}
	r.Saved = []string{base + ".json", base + ".hgrm"}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("save the run: %w", err)
	}
	var histogram strings.Builder
	if _, err := m.latency.PercentilesPrint(&histogram, 5, 1000); err != nil {
		return fmt.Errorf("save the run: %w", err)
	}
	return errors.Join(os.WriteFile(r.Saved[0], append(text, '\n'), 0o644), os.WriteFile(r.Saved[1], []byte(histogram.String()), 0o644))
}

// benchTopic makes the topic if it is missing and returns how many partitions it has.
func (a *app) benchTopic(ctx context.Context, adm *kadm.Client, b *benchFlags) (int, error) {
	topics, err := adm.ListTopics(ctx, b.topic)
	if err != nil {
		return 0, failed("look for topic "+b.topic, err, "", "")
	}
	t := topics[b.topic]
	if t.Err == nil {
		return len(t.Partitions), nil
	}
	if !errors.Is(t.Err, kerr.UnknownTopicOrPartition) || b.kind == "consume" {
		return 0, failed("topic "+b.topic, t.Err, "", "fill one: ottla bench produce --topic "+b.topic)
	}
	resp, err := adm.CreateTopic(ctx, b.partitions, b.replicas, nil, b.topic)
	if err != nil {
		return 0, failed("create topic "+b.topic, err, resp.ErrMessage, "")
	}
	a.note("topic %s created: %s", b.topic, plenty(int64(b.partitions), "partition"))
	return int(b.partitions), nil
}

func (a *app) measure(ctx context.Context, client *kgo.Client, b *benchFlags) (*meter, error) {
	if b.kind == "produce" && b.transactionalID != "" {
		return a.measureTransactions(ctx, client, b)
	}
	switch b.kind {
	case "produce":
		return a.measureProduce(ctx, client, b)
	case "consume":
		return a.measureConsume(ctx, client, b)
	}
	return a.measureEndToEnd(ctx, client, b)
}

// progress draws a bar on a terminal until stop is called.
func (a *app) progress(m func() *meter, total int64) (stop func()) {
	if !a.Terminal || a.quiet {
		return func() {}
	}
	bar := progressbar.NewOptions64(total, progressbar.OptionSetWriter(a.err), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetWidth(30), progressbar.OptionEnableColorCodes(false))
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				_ = bar.Finish() // a picture on stderr
				return
			case <-tick.C:
				records, bytes, p99 := m().now()
				elapsed := time.Since(m().start).Seconds()
				bar.Describe(fmt.Sprintf("%s rec/s  %s/s  p99 %s ms", count(int64(float64(records)/elapsed)), size(float64(bytes)/elapsed), threeDigits(p99)))
				_ = bar.Set64(min(records, total))
			}
		}
	}()
	return func() { close(quit); <-done }
}

// warmed swaps meters: what comes before the warm-up is over goes to a meter that is thrown away.
type warmed struct {
	current atomic.Pointer[meter]
	begun   atomic.Bool // the warm-up is over, and current is the meter that counts
}

func newWarmed() *warmed {
	w := &warmed{}
	w.current.Store(newMeter(time.Now()))
	return w
}

func (w *warmed) begin(now time.Time) {
	w.current.Store(newMeter(now))
	w.begun.Store(true)
}

// measureProduce sends records when they are due and times each from then to its acknowledgement, so
// that a broker that stalls cannot hide the records it kept from being sent.
func (a *app) measureProduce(ctx context.Context, client *kgo.Client, b *benchFlags) (*meter, error) {
	w := newWarmed()
	defer a.progress(w.current.Load, b.number)()
	err := b.sendPaced(ctx, w, func(value []byte, due time.Time, m *meter) {
		client.Produce(ctx, &kgo.Record{Topic: b.topic, Value: value}, func(r *kgo.Record, err error) {
			if err != nil {
				m.fail(err)
				return
			}
			m.add(len(r.Value), due, time.Now())
		})
	})
	return w.current.Load(), errors.Join(err, client.Flush(ctx))
}

// sendPaced calls send for each record when it is due, warm-up first.
func (b *benchFlags) sendPaced(ctx context.Context, w *warmed, send func(value []byte, due time.Time, m *meter)) error {
	next := b.values()
	phase := func(more func(i int64, now time.Time) bool) {
		p := pace{time.Now(), b.rate}
		m := w.current.Load()
		for i := int64(0); ctx.Err() == nil; i++ {
			due := p.due(i)
			if early := time.Until(due); early > 0 && wait(ctx, early) != nil {
				return
			}
			if !more(i, due) {
				return
			}
			send(next(), due, m)
		}
	}
	start := time.Now()
	if b.warmupRecords > 0 || b.warmup > 0 {
		phase(func(i int64, now time.Time) bool {
			if b.warmupRecords > 0 {
				return i < b.warmupRecords
			}
			return now.Sub(start) < b.warmup
		})
	}
	w.begin(time.Now())
	phase(func(i int64, _ time.Time) bool { return i < b.number })
	return ctx.Err()
}

// transactionLength is that of kafka-producer-perf-test.
const transactionLength = 3 * time.Second

func (a *app) measureTransactions(ctx context.Context, client *kgo.Client, b *benchFlags) (*meter, error) {
	w := newWarmed()
	defer a.progress(w.current.Load, b.number)()
	if err := client.BeginTransaction(); err != nil {
		return nil, failed("begin a transaction", err, "", "")
	}
	began := time.Now()
	var failure error
	end := func() error {
		return failed("commit a transaction", errors.Join(client.Flush(ctx), client.EndTransaction(ctx, kgo.TryCommit)), "", "")
	}
	err := b.sendPaced(ctx, w, func(value []byte, due time.Time, m *meter) {
		if time.Since(began) > transactionLength && failure == nil {
			failure = errors.Join(end(), client.BeginTransaction())
			began = time.Now()
		}
		client.Produce(ctx, &kgo.Record{Topic: b.topic, Value: value}, func(r *kgo.Record, err error) {
			if err != nil {
				m.fail(err)
				return
			}
			m.add(len(r.Value), due, time.Now())
		})
	})
	return w.current.Load(), errors.Join(err, failure, end())
}

func (a *app) measureConsume(ctx context.Context, client *kgo.Client, b *benchFlags) (*meter, error) {
	client.AddConsumeTopics(b.topic)
	m := newMeter(time.Now())
	defer a.progress(func() *meter { return m }, b.number)()
	for {
		poll, cancel := context.WithTimeout(ctx, a.timeout)
		fetches := client.PollFetches(poll)
		cancel()
		if err := ctx.Err(); err != nil {
			return m, err
		}
		if err := fetches.Err(); err != nil {
			return m, failed(fmt.Sprintf("consume %s after %s", b.topic, plenty(m.records, "record")), err, "", "fewer records there than asked for? --records N")
		}
		now := time.Now()
		bytes := 0
		fetches.EachRecord(func(r *kgo.Record) { bytes += len(r.Value) })
		m.addBytes(fetches.NumRecords(), bytes, now)
		if m.records >= b.number {
			return m, nil
		}
	}
}

func (a *app) measureEndToEnd(ctx context.Context, client *kgo.Client, b *benchFlags) (*meter, error) {
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, b.topic)
	if err != nil {
		return nil, failed("find offsets of "+b.topic, err, "", "")
	}
	assigned := map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) { assigned[o.Partition] = kgo.NewOffset().At(o.Offset) })
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{b.topic: assigned})
	w := newWarmed()
	defer a.progress(w.current.Load, b.number)()
	reading, stop := context.WithCancel(ctx)
	received := make(chan error, 1)
	go func() { received <- receive(reading, client, w, b.number) }()
	err = b.sendPaced(ctx, w, func(value []byte, due time.Time, m *meter) {
		r := &kgo.Record{Topic: b.topic, Value: value, Headers: []kgo.RecordHeader{{Key: dueHeader, Value: strconv.AppendInt(nil, due.UnixNano(), 10)}}}
		client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				m.fail(err)
			}
		})
	})
	err = errors.Join(err, client.Flush(ctx))
	if err != nil {
		stop()
	}
	select {
	case got := <-received:
		err = errors.Join(err, got)
	case <-time.After(a.timeout):
		stop()
		err = errors.Join(err, failed("receive what was sent", context.DeadlineExceeded, "", ""), <-received)
	}
	stop()
	return w.current.Load(), err
}

// dueHeader carries the intended time of a record, in nanoseconds since 1970.
const dueHeader = "ottla-due"

// receive times the records that come back until number of the measured ones are there.
func receive(ctx context.Context, client *kgo.Client, w *warmed, number int64) error {
	for got := int64(0); got < number; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil // the sender ended it and says why
		}
		if err := fetches.Err(); err != nil {
			return failed("receive what was sent", err, "", "")
		}
		now := time.Now()
		begun := w.begun.Load()
		m := w.current.Load()
		fetches.EachRecord(func(r *kgo.Record) {
			if due, ok := dueOf(r); ok && begun && !due.Before(m.start) {
				m.add(len(r.Value), due, now)
				got++
			}
		})
	}
	return nil
}

func dueOf(r *kgo.Record) (time.Time, bool) {
	for _, h := range r.Headers {
		if h.Key == dueHeader {
			n, err := strconv.ParseInt(string(h.Value), 10, 64)
			return time.Unix(0, n), err == nil
		}
	}
	return time.Time{}, false
}

func (a *app) benchCompare() *cobra.Command {
	var t targets
	return a.leaf(leaf{
		use: "compare BEFORE AFTER", short: "Compare two saved runs; exit 10 if the second misses a target.",
		example: "ottla bench compare bench-1.json bench-2.json\nottla bench compare bench-1.json bench-2.json --max-p99 10ms --min-rate 500000",
		args:    cobra.ExactArgs(2), result: []Delta{},
		flags: func(f *pflag.FlagSet) {
			f.DurationVar(&t.maxP99, "max-p99", 0, "exit 10 if the 99th percentile of AFTER is longer")
			f.Float64Var(&t.minRate, "min-rate", 0, "exit 10 if AFTER has fewer records a second")
		},
		run: func(_ context.Context, args []string) error {
			before, err := readRun(args[0])
			if err != nil {
				return err
			}
			after, err := readRun(args[1])
			if err != nil {
				return err
			}
			if before.Kind != after.Kind {
				return usagef("bench compare: %s measured %s and %s %s", args[0], before.Kind, args[1], after.Kind)
			}
			return errors.Join(deltaListing.show(a, compare(before, after)), t.missed(after))
		},
	})
}
