package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// consumeFlags are the flags of `consume`.
type consumeFlags struct {
	topics         []string
	regex, toEnd   bool
	number         int64
	format, offset string
	key            string
	partitions     []int32
	committed      bool
}

func (a *app) consume() *cobra.Command {
	var c consumeFlags
	return a.leaf(leaf{
		use: "consume TOPIC…", short: "Read records, from the earliest and without a group; goes on unless -n or -e.",
		example: "ottla consume hello -n 5 -f '%p@%o %v\\n'\nottla consume hello --offset -10 -e -o jsonl\n" +
			"ottla consume 'cdc.*' --offset @1h --key 4711",
		args: cobra.ArbitraryArgs, complete: a.completeTopics, result: []JSONRecord{},
		flags: func(f *pflag.FlagSet) {
			f.StringSliceVar(&c.topics, "topic", nil, "another way to name topics")
			f.BoolVarP(&c.regex, "regex", "r", false, "names are regular expressions, not globs")
			f.Int64VarP(&c.number, "number", "n", 0, "stop after so many records")
			f.BoolVarP(&c.toEnd, "end", "e", false, "stop at the end that each partition has now")
			f.StringVarP(&c.format, "format", "f", "%v\\n", "how to print: %t topic, %p partition, %o offset, %k key, %v value, %d time, %h headers, …; rpk's formats")
			f.StringVar(&c.offset, "offset", "start", "where to begin: start, end, `N`, -N (before the end), +N (after the start), @TIME")
			f.Int32SliceVarP(&c.partitions, "partition", "p", nil, "only these partitions")
			f.StringVar(&c.key, "key", "", "only records with this key")
			f.BoolVar(&c.committed, "read-committed", false, "leave records of open and aborted transactions out")
		},
		run: func(ctx context.Context, args []string) error {
			c.topics = append(args, c.topics...)
			if len(c.topics) == 0 {
				return usagef("consume: name a topic, as in: ottla consume hello")
			}
			return a.runConsume(ctx, c)
		},
	})
}

func (a *app) runConsume(ctx context.Context, c consumeFlags) error {
	printer, err := a.recordPrinter(c.format)
	if err != nil {
		return err
	}
	start, err := parseStart(c.offset, time.Now())
	if err != nil {
		return err
	}
	opts := []kgo.Opt{kgo.KeepControlRecords(), kgo.KeepRetryableFetchErrors()}
	if c.committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	client, err := a.dial(ctx, opts...)
	if err != nil {
		return err
	}
	defer client.Close()
	plan, err := a.planConsume(ctx, kadm.NewClient(client), c, start)
	if err != nil {
		return err
	}
	assigned := map[string]map[int32]kgo.Offset{}
	for tp, r := range plan {
		if c.toEnd && r.from >= r.to {
			continue
		}
		if assigned[tp.topic] == nil {
			assigned[tp.topic] = map[int32]kgo.Offset{}
		}
		assigned[tp.topic][tp.partition] = kgo.NewOffset().At(r.from)
	}
	if len(assigned) > 0 {
		client.AddConsumePartitions(assigned)
		err = a.follow(ctx, client, c, plan, printer)
	}
	return errors.Join(err, printer.end())
}

// A startRule is a parsed --offset.
type startRule struct {
	kind string // "start", "end", "at", "time"
	n    int64
}

func parseStart(text string, now time.Time) (startRule, error) {
	bad := usagef("--offset %s: write start, end, 42, -10, +10 or @2h", text)
	switch {
	case text == "start" || text == "earliest":
		return startRule{kind: "start"}, nil
	case text == "end" || text == "latest":
		return startRule{kind: "end"}, nil
	case strings.HasPrefix(text, "@"):
		ms, err := parseTime(text[1:], now)
		return startRule{"time", ms}, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return startRule{}, bad
	case text[0] == '+':
		return startRule{"start", n}, nil
	case text[0] == '-':
		return startRule{"end", n}, nil
	}
	return startRule{"at", n}, nil
}

// from computes the first offset to read between start and end; after is the first offset at or after
// the rule's time, or end.
func (s startRule) from(start, end, after int64) int64 {
	at := s.n
	switch s.kind {
	case "start":
		at = start + s.n
	case "end":
		at = end + s.n
	case "time":
		at = after
	}
	return min(max(at, start), end)
}

// readRange is what to read of a partition; to is the end when the command began.
type readRange struct{ from, to int64 }

func (a *app) planConsume(ctx context.Context, adm *kadm.Client, c consumeFlags, start startRule) (map[topicPartition]readRange, error) {
	topics, err := a.matchTopics(ctx, adm, c.topics, c.regex, false)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range topics {
		names = append(names, t.Topic)
	}
	if len(names) == 0 {
		return nil, nil
	}
	starts, err1 := adm.ListStartOffsets(ctx, names...)
	ends, err2 := adm.ListEndOffsets(ctx, names...)
	after, err3 := kadm.ListedOffsets(nil), error(nil)
	if start.kind == "time" {
		after, err3 = adm.ListOffsetsAfterMilli(ctx, start.n, names...)
	}
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, failed("find offsets", err, "", "")
	}
	plan := map[topicPartition]readRange{}
	var bad error
	ends.Each(func(end kadm.ListedOffset) {
		if len(c.partitions) > 0 && !slices.Contains(c.partitions, end.Partition) {
			return
		}
		first, _ := starts.Lookup(end.Topic, end.Partition)
		later, _ := after.Lookup(end.Topic, end.Partition)
		if err := errors.Join(end.Err, first.Err); err != nil {
			bad = failed(fmt.Sprintf("find offsets of %s-%d", end.Topic, end.Partition), end.Err, "", "")
			return
		}
		plan[topicPartition{end.Topic, end.Partition}] = readRange{start.from(first.Offset, end.Offset, later.Offset), end.Offset}
	})
	if bad == nil && len(plan) == 0 {
		bad = usagef("consume: %s has no such partition", strings.Join(names, ", "))
	}
	return plan, bad
}

// follow prints records until the number or the end is reached, or ctx is over.
func (a *app) follow(ctx context.Context, client *kgo.Client, c consumeFlags, plan map[topicPartition]readRange, out recordPrinter) error {
	var printed int64
	open := map[topicPartition]bool{}
	for tp, r := range plan {
		if r.from < r.to {
			open[tp] = true
		}
	}
	for {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, e := range fetches.Errors() {
			return failed(fmt.Sprintf("fetch %s-%d", e.Topic, e.Partition), e.Err, "", "")
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			r := iter.Next()
			tp := topicPartition{r.Topic, r.Partition}
			if c.toEnd && r.Offset >= plan[tp].to {
				delete(open, tp)
				continue
			}
			if !r.Attrs.IsControl() && (c.key == "" || bytes.Equal(r.Key, []byte(c.key))) {
				if err := out.print(r); err != nil {
					return err
				}
				if printed++; c.number > 0 && printed >= c.number {
					return nil
				}
			}
			if r.Offset >= plan[tp].to-1 {
				delete(open, tp)
			}
		}
		if c.toEnd && len(open) == 0 {
			return nil
		}
		if err := a.out.Flush(); err != nil {
			return err
		}
	}
}

// A recordPrinter prints records one by one; end closes what begins with the first.
type recordPrinter struct {
	print func(*kgo.Record) error
	end   func() error
}

func (a *app) recordPrinter(layout string) (recordPrinter, error) {
	nothing := func() error { return nil }
	switch a.format {
	case "jsonl":
		return recordPrinter{func(r *kgo.Record) error { return writeJSON(a.out, toJSON(r), false) }, nothing}, nil
	case "json":
		write, end := a.jsonArray()
		return recordPrinter{func(r *kgo.Record) error { return write(toJSON(r)) }, end}, nil
	case "name":
		return recordPrinter{func(r *kgo.Record) error {
			_, err := fmt.Fprintf(a.out, "%s-%d@%d\n", r.Topic, r.Partition, r.Offset)
			return err
		}, nothing}, nil
	case "wide":
		layout = "%t-%p@%o %d{go[2006-01-02T15:04:05.000Z07:00]} %k %v\\n"
	}
	f, err := kgo.NewRecordFormatter(layout)
	if err != nil {
		return recordPrinter{}, usagef("-f %s: %s", layout, err)
	}
	var buf []byte
	return recordPrinter{func(r *kgo.Record) error {
		buf = f.AppendRecord(buf[:0], r)
		_, err := a.out.Write(buf)
		return err
	}, nothing}, nil
}

// jsonArray prints one array, an element a line, as the values come; end closes it.
func (a *app) jsonArray() (print func(value any) error, end func() error) {
	separator := "["
	print = func(value any) error {
		a.out.WriteString(separator)
		separator = ","
		return writeJSON(a.out, value, false)
	}
	end = func() error {
		if separator == "[" {
			a.out.WriteString("[")
		}
		_, err := a.out.WriteString("]\n")
		return err
	}
	return print, end
}
