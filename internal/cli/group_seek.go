package cli

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"ottla/internal/config"
)

// A Seek is a committed offset that was, or with --dry-run would be, moved.
type Seek struct {
	Group     string `json:"group"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Before    int64  `json:"before" doc:"-1 if nothing was committed"`
	After     int64  `json:"after"`
	Start     int64  `json:"start_offset"`
	End       int64  `json:"end_offset"`
	DryRun    bool   `json:"dry_run,omitempty"`
}

var seekListing = listing[Seek]{
	columns: []column[Seek]{
		{title: "TOPIC", cell: func(s Seek) string { return s.Topic }},
		{title: "PARTITION", right: true, cell: func(s Seek) string { return number(s.Partition) }},
		{title: "COMMITTED", right: true, cell: func(s Seek) string { return offset(s.Before) }},
		{title: "NEW", right: true, cell: func(s Seek) string { return count(s.After) }},
		{title: "CHANGE", right: true, cell: Seek.change},
		{title: "NEW LAG", right: true, cell: func(s Seek) string { return count(s.End - s.After) }},
		{title: "START", right: true, wide: true, cell: func(s Seek) string { return count(s.Start) }},
		{title: "END", right: true, wide: true, cell: func(s Seek) string { return count(s.End) }},
	},
	name:  func(s Seek) string { return fmt.Sprintf("%s-%d", s.Topic, s.Partition) },
	empty: "no committed offsets to move (name topics instead of --all-topics)",
}

func (s Seek) change() string {
	switch {
	case s.Before < 0:
		return "-"
	case s.After > s.Before:
		return "+" + count(s.After-s.Before)
	}
	return count(s.After - s.Before)
}

// seekFlags are the flags of `group seek` that say where to.
type seekFlags struct {
	set                             *pflag.FlagSet
	toEarliest, toLatest, toCurrent bool
	toOffset, shiftBy               int64
	byDuration                      string
	toDatetime                      string
	fromFile                        string
}

func (s *seekFlags) add(f *pflag.FlagSet) {
	s.set = f
	f.BoolVar(&s.toEarliest, "to-earliest", false, "to the first record that there is")
	f.BoolVar(&s.toLatest, "to-latest", false, "to the end, past all records")
	f.BoolVar(&s.toCurrent, "to-current", false, "to what is committed, or the end where nothing is")
	f.Int64Var(&s.toOffset, "to-offset", 0, "to this offset, in every partition")
	f.Int64Var(&s.shiftBy, "shift-by", 0, "by so many `records` from what is committed, forth or, if negative, back")
	f.StringVar(&s.byDuration, "by-duration", "", "to the first record of the last `time`: 2h, 7d, or PT2H as Kafka has it")
	f.StringVar(&s.toDatetime, "to-datetime", "", "to the first record at or after a `moment` such as 2026-01-02T15:04:05.000, UTC unless it names a zone")
	f.StringVar(&s.fromFile, "from-file", "", "as a CSV `file` says, or standard input if it is -: topic,partition,offset a line, as --export prints it")
}

// A seekGoal says where to go.
type seekGoal struct {
	rule startRule
	from seekFrom
	file kadm.Offsets // the offset of each partition, for seekFile
}

type seekFrom int

const (
	seekRule    seekFrom = iota // the rule says it all
	seekShift                   // rule.n records from what is committed
	seekCurrent                 // what is committed
	seekFile
)

// goal checks the flags and returns where to go.
func (s *seekFlags) goal(now time.Time, stdin io.Reader) (seekGoal, error) {
	offsets, shift := s.set.Changed("to-offset"), s.set.Changed("shift-by")
	if choices(s.toEarliest, s.toLatest, s.toCurrent, offsets, shift, s.byDuration != "", s.toDatetime != "", s.fromFile != "") != 1 {
		return seekGoal{}, usagef("group seek: say one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --by-duration, --to-datetime and --from-file")
	}
	switch {
	case s.toEarliest:
		return seekGoal{rule: startRule{kind: "start"}}, nil
	case s.toLatest:
		return seekGoal{rule: startRule{kind: "end"}}, nil
	case s.toCurrent:
		return seekGoal{from: seekCurrent}, nil
	case offsets:
		return seekGoal{rule: startRule{"at", s.toOffset}}, nil
	case shift:
		return seekGoal{rule: startRule{"at", s.shiftBy}, from: seekShift}, nil
	case s.byDuration != "":
		ms, err := parseSpan(s.byDuration)
		return seekGoal{rule: startRule{"time", now.UnixMilli() - ms}}, err
	case s.toDatetime != "":
		ms, err := parseTime(s.toDatetime, now.UTC())
		return seekGoal{rule: startRule{"time", ms}}, err
	}
	file, err := readSeekFile(s.fromFile, stdin)
	return seekGoal{from: seekFile, file: file}, err
}

// readSeekFile reads the offsets of partitions, as kafka-consumer-groups has them for one group.
func readSeekFile(name string, stdin io.Reader) (kadm.Offsets, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("--from-file: %w", err)
		}
		defer f.Close() // it was only read
		in = f
	}
	rows := csv.NewReader(in)
	rows.FieldsPerRecord, rows.TrimLeadingSpace = 3, true
	offsets := kadm.Offsets{}
	for {
		row, err := rows.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("--from-file %s: %w (write topic,partition,offset on each line)", name, err)
		}
		line, _ := rows.FieldPos(0)
		partition, err1 := strconv.ParseInt(row[1], 10, 32)
		at, err2 := strconv.ParseInt(row[2], 10, 64)
		if err1 != nil || err2 != nil || row[0] == "" || partition < 0 {
			return nil, usagef("--from-file %s: line %d: %s is not topic,partition,offset", name, line, strings.Join(row, ","))
		}
		if _, again := offsets.Lookup(row[0], int32(partition)); again {
			return nil, usagef("--from-file %s: line %d: %s-%d is there a second time", name, line, row[0], partition)
		}
		offsets.AddOffset(row[0], int32(partition), at, -1)
	}
	if len(offsets) == 0 {
		return nil, usagef("--from-file %s: it is empty; write topic,partition,offset on each line", name)
	}
	return offsets, nil
}

// isoDuration is ISO 8601 as far as java.time.Duration reads it.
var isoDuration = regexp.MustCompile(`(?i)^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,3}))?S)?)?$`)

// parseSpan reads a time span, human or ISO 8601, in milliseconds.
func parseSpan(text string) (int64, error) {
	parts := isoDuration.FindStringSubmatch(text)
	if parts == nil {
		ms, err := config.ParseMilliseconds(text)
		if err != nil {
			return 0, usagef("--by-duration: %s", err)
		}
		return ms, nil
	}
	var ms int64
	for i, unit := range []int64{86_400_000, 3_600_000, 60_000, 1000} {
		n, err := strconv.ParseInt("0"+parts[i+1], 10, 32)
		if err != nil {
			return 0, usagef("--by-duration: %q is longer than time", text)
		}
		ms += n * unit
	}
	if fraction := parts[5]; fraction != "" {
		n, _ := strconv.ParseInt((fraction + "00")[:3], 10, 32) // three digits
		ms += n
	}
	return ms, nil
}

func (a *app) groupSeek() *cobra.Command {
	var where seekFlags
	var topics []string
	var all, export bool
	return a.leaf(leaf{
		use: "seek GROUP [TOPIC[:PARTITION,…]…]", short: "Move the committed offsets of a group that has no members.",
		example: "ottla group seek flink-logs logs --to-earliest --dry-run\nottla group seek flink-logs logs:0,1 --shift-by -100\n" +
			"ottla group seek flink-logs --all-topics --by-duration 2h --yes\n" +
			"ottla group seek flink-logs --all-topics --to-current --export --dry-run >offsets.csv   # and later --from-file offsets.csv",
		args: cobra.MinimumNArgs(1), complete: a.completeGroups, result: []Seek{},
		flags: func(f *pflag.FlagSet) {
			where.add(f)
			f.StringArrayVar(&topics, "topic", nil, "another way to name topics")
			f.BoolVar(&all, "all-topics", false, "every partition that the group has committed an offset of")
			f.BoolVar(&export, "export", false, "print the new offsets as CSV, for --from-file")
			a.changes(f)
		},
		run: func(ctx context.Context, args []string) error {
			topics = append(args[1:], topics...)
			goal, err := where.goal(time.Now(), a.In)
			if err != nil {
				return err
			}
			switch {
			case goal.from == seekFile && (all || len(topics) > 0):
				return usagef("group seek: --from-file names the partitions; leave topics and --all-topics out")
			case goal.from != seekFile && all == (len(topics) > 0):
				return usagef("group seek: name topics, as in: ottla group seek %s hello --to-earliest, or say --all-topics", args[0])
			}
			set, err := parsePartitions(topics)
			if err != nil {
				return err
			}
			if goal.from == seekFile {
				set = kadm.TopicsSet{}
				goal.file.Each(func(o kadm.Offset) { set.Add(o.Topic, o.Partition) })
			}
			adm, err := a.admin(ctx)
			if err != nil {
				return err
			}
			defer adm.Close()
			plan, err := a.seekPlan(ctx, adm, args[0], set, goal)
			if err != nil {
				return err
			}
			return a.seek(ctx, adm, args[0], plan, export)
		},
	})
}

// seekPlan computes the new offset of each partition in set, or, if that is nil, of those with a committed one.
func (a *app) seekPlan(ctx context.Context, adm *kadm.Client, group string, set kadm.TopicsSet, goal seekGoal) ([]Seek, error) {
	if err := idle(ctx, adm, group); err != nil {
		return nil, err
	}
	committed, err := a.committedOffsets(ctx, adm, group)
	if err != nil {
		return nil, err
	}
	if set == nil {
		set = committed.Partitions()
	} else if err := wholeTopics(ctx, adm, set); err != nil {
		return nil, err
	}
	if len(set) == 0 {
		return nil, nil
	}
	at, err := findLandmarks(ctx, adm, set.Topics(), goal.rule)
	if err != nil {
		return nil, err
	}
	var plan []Seek
	for _, t := range set.Sorted() {
		for _, partition := range t.Partitions {
			s := Seek{Group: group, Topic: t.Topic, Partition: partition, Before: -1}
			if o, ok := committed.Lookup(t.Topic, partition); ok {
				s.Before = o.At
			}
			if err := s.aim(at, goal); err != nil {
				return nil, err
			}
			plan = append(plan, s)
		}
	}
	return plan, nil
}

// idle makes sure that nobody is in a group. One that does not exist yet may be sought, as in Kafka.
func idle(ctx context.Context, adm *kadm.Client, group string) error {
	groups, err := adm.ListGroups(ctx)
	if err != nil {
		return failed("list groups", err, "", "")
	}
	switch g, ok := groups[group]; {
	case !ok || g.State == "" || g.State == "Empty" || g.State == "Dead":
		return nil
	default:
		return failed("seek group "+group, kerr.NonEmptyGroup, "it is "+g.State, liveHint(kerr.NonEmptyGroup, group))
	}
}

// landmarks are the offsets that a seek is measured by.
type landmarks struct {
	start, end kadm.ListedOffsets
	after      kadm.ListedOffsets // of the rule's time; the end where nothing is that young
}

func findLandmarks(ctx context.Context, adm *kadm.Client, topics []string, rule startRule) (l landmarks, err error) {
	if l.start, err = adm.ListStartOffsets(ctx, topics...); err == nil {
		l.end, err = adm.ListEndOffsets(ctx, topics...)
	}
	if err == nil && rule.kind == "time" {
		l.after, err = adm.ListOffsetsAfterMilli(ctx, rule.n, topics...)
	}
	return l, failed("find offsets of "+strings.Join(topics, ", "), err, "", "")
}

// aim computes where a partition goes, which is never outside of what it holds.
func (s *Seek) aim(l landmarks, goal seekGoal) error {
	what := fmt.Sprintf("seek group %s in %s-%d", s.Group, s.Topic, s.Partition)
	var after int64
	for _, landmark := range []struct {
		offsets kadm.ListedOffsets
		into    *int64
	}{{l.start, &s.Start}, {l.end, &s.End}, {l.after, &after}} {
		if landmark.offsets == nil {
			continue
		}
		o, ok := landmark.offsets.Lookup(s.Topic, s.Partition)
		if !ok {
			o.Err = kerr.UnknownTopicOrPartition
		}
		if o.Err != nil {
			return failed(what, o.Err, "", "ottla topic describe "+s.Topic)
		}
		*landmark.into = o.Offset
	}
	rule := goal.rule
	switch {
	case goal.from == seekShift && s.Before < 0:
		return fmt.Errorf("%s: nothing is committed to shift from (say --to-earliest or --to-offset)", what)
	case goal.from == seekShift: // no further than the partition goes, whatever the number
		rule.n = s.Before + min(max(rule.n, s.Start-s.Before), s.End-s.Before)
	case goal.from == seekCurrent && s.Before < 0:
		rule = startRule{kind: "end"}
	case goal.from == seekCurrent:
		rule = startRule{"at", s.Before}
	case goal.from == seekFile:
		o, _ := goal.file.Lookup(s.Topic, s.Partition)
		rule = startRule{"at", o.At}
	}
	s.After = rule.from(s.Start, s.End, after)
	return nil
}

// seek shows the plan, asks, and commits.
func (a *app) seek(ctx context.Context, adm *kadm.Client, group string, plan []Seek, export bool) error {
	for i := range plan {
		plan[i].DryRun = a.dryRun
	}
	if len(plan) == 0 || a.dryRun {
		return a.showSeeks(plan, export)
	}
	if a.Terminal && !a.yes {
		seekListing.table(a.err, plan, a.format == "wide")
	}
	agreed, err := a.confirm(fmt.Sprintf("move %s of group %s", plenty(int64(len(plan)), "committed offset"), group))
	if err != nil || !agreed {
		return err
	}
	offsets := kadm.Offsets{}
	for _, s := range plan {
		offsets.AddOffset(s.Topic, s.Partition, s.After, -1)
	}
	resp, err := adm.CommitOffsets(ctx, group, offsets)
	if err != nil {
		return failed("seek group "+group, err, "", liveHint(err, group))
	}
	var moved []Seek
	var errs []error
	for _, s := range plan {
		if r, _ := resp.Lookup(s.Topic, s.Partition); r.Err != nil {
			errs = append(errs, failed(fmt.Sprintf("seek group %s in %s-%d", group, s.Topic, s.Partition), r.Err, "", liveHint(r.Err, group)))
			continue
		}
		moved = append(moved, s)
	}
	return errors.Join(append(errs, a.showSeeks(moved, export))...)
}

// showSeeks prints what was sought, as CSV if it is to be exported.
func (a *app) showSeeks(rows []Seek, export bool) error {
	if !export {
		return seekListing.show(a, rows)
	}
	out := csv.NewWriter(a.out)
	for _, s := range rows {
		if err := out.Write([]string{s.Topic, number(s.Partition), strconv.FormatInt(s.After, 10)}); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
