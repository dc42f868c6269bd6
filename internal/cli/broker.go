package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func (a *app) brokers() *cobra.Command {
	return plural(group("broker", "Brokers: list, describe.", a.brokerList(), a.brokerDescribe()))
}

// A BrokerRow is a broker as `broker list` prints it.
type BrokerRow struct {
	ID         int32    `json:"id"`
	Host       string   `json:"host"`
	Port       int32    `json:"port"`
	Rack       string   `json:"rack" doc:"empty if none"`
	Controller bool     `json:"controller" doc:"it is, or stands for, the active controller"`
	Leaders    int      `json:"leaders" doc:"partitions that it leads"`
	Replicas   int      `json:"replicas"`
	OutOfSync  int      `json:"out_of_sync" doc:"replicas of it that are not in sync"`
	Bytes      int64    `json:"bytes" doc:"size of its logs; -1 if unknown"`
	FreeBytes  int64    `json:"free_bytes" doc:"space left in its log directories; -1 if unknown"`
	Dirs       []LogDir `json:"log_dirs"`
}

// A LogDir is a log directory of a broker.
type LogDir struct {
	Path       string `json:"path"`
	Error      string `json:"error,omitempty" doc:"Kafka's name of what is wrong with it"`
	Partitions int    `json:"partitions"`
	Bytes      int64  `json:"bytes"`
	TotalBytes int64  `json:"total_bytes" doc:"-1 if unknown"`
	FreeBytes  int64  `json:"free_bytes" doc:"-1 if unknown"`
	Cordoned   bool   `json:"cordoned"`
}

var brokerListing = listing[BrokerRow]{
	columns: []column[BrokerRow]{
		{title: "ID", right: true, cell: func(b BrokerRow) string { return number(b.ID) }},
		{title: "ADDRESS", cell: func(b BrokerRow) string { return fmt.Sprintf("%s:%d", b.Host, b.Port) }},
		{title: "RACK", cell: func(b BrokerRow) string { return orDash(b.Rack) }},
		{title: "LEADERS", right: true, cell: func(b BrokerRow) string { return count(int64(b.Leaders)) }},
		{title: "REPLICAS", right: true, cell: func(b BrokerRow) string { return count(int64(b.Replicas)) }},
		{title: "OUT OF SYNC", right: true, cell: func(b BrokerRow) string { return count(int64(b.OutOfSync)) }},
		{title: "SIZE", right: true, cell: func(b BrokerRow) string { return sizeOrDash(b.Bytes) }},
		{title: "FREE", right: true, cell: func(b BrokerRow) string { return sizeOrDash(b.FreeBytes) }},
		{title: "CONTROLLER", wide: true, cell: func(b BrokerRow) string { return strconv.FormatBool(b.Controller) }},
	},
	name: func(b BrokerRow) string { return number(b.ID) },
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func sizeOrDash(n int64) string {
	if n < 0 {
		return "-"
	}
	return size(float64(n))
}

// brokerRows combines metadata with the log directories; those that do not answer are left unknown.
func brokerRows(ctx context.Context, adm *kadm.Client) ([]BrokerRow, error) {
	m, err := adm.Metadata(ctx)
	if err != nil {
		return nil, failed("ask for metadata", err, "", "")
	}
	dirs, _ := adm.DescribeAllLogDirs(ctx, nil) // sizes are an extra
	var rows []BrokerRow
	for _, b := range m.Brokers {
		row := BrokerRow{ID: b.NodeID, Host: b.Host, Port: b.Port, Rack: deref(b.Rack), Controller: b.NodeID == m.Controller, Bytes: -1, FreeBytes: -1, Dirs: []LogDir{}}
		m.Topics.EachPartition(func(p kadm.PartitionDetail) {
			if p.Leader == b.NodeID {
				row.Leaders++
			}
			if slices.Contains(p.Replicas, b.NodeID) {
				row.Replicas++
				if !slices.Contains(p.ISR, b.NodeID) {
					row.OutOfSync++
				}
			}
		})
		row.addDirs(dirs[b.NodeID])
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b BrokerRow) int { return int(a.ID) - int(b.ID) })
	return rows, nil
}

func (b *BrokerRow) addDirs(dirs kadm.DescribedLogDirs) {
	for _, d := range dirs.Sorted() {
		dir := LogDir{Path: d.Dir, TotalBytes: d.TotalBytes, FreeBytes: d.UsableBytes, Cordoned: d.IsCordoned, Bytes: d.Size()}
		if d.Err != nil {
			dir.Error = errorName(d.Err)
		}
		for _, partitions := range d.Topics {
			dir.Partitions += len(partitions)
		}
		b.Bytes = max(b.Bytes, 0) + dir.Bytes
		if dir.FreeBytes >= 0 {
			b.FreeBytes = max(b.FreeBytes, 0) + dir.FreeBytes
		}
		b.Dirs = append(b.Dirs, dir)
	}
}

func (a *app) brokerList() *cobra.Command {
	return a.leaf(leaf{
		use: "list", short: "List brokers with their load and free space.",
		example: "ottla broker list\nottla broker list -o json", result: []BrokerRow{},
		run: func(ctx context.Context, _ []string) error {
			adm, err := a.admin(ctx)
			if err != nil {
				return err
			}
			defer adm.Close()
			rows, err := brokerRows(ctx, adm)
			if err != nil {
				return err
			}
			return brokerListing.show(a, rows)
		},
	})
}

var dirListing = listing[LogDir]{
	columns: []column[LogDir]{
		{title: "LOG DIRECTORY", cell: func(d LogDir) string { return d.Path }},
		{title: "PARTITIONS", right: true, cell: func(d LogDir) string { return count(int64(d.Partitions)) }},
		{title: "SIZE", right: true, cell: func(d LogDir) string { return sizeOrDash(d.Bytes) }},
		{title: "FREE", right: true, cell: func(d LogDir) string { return sizeOrDash(d.FreeBytes) }},
		{title: "STATE", cell: func(d LogDir) string {
			switch {
			case d.Error != "":
				return d.Error
			case d.Cordoned:
				return "cordoned"
			}
			return "ok"
		}},
	},
}

func (a *app) brokerDescribe() *cobra.Command {
	return a.leaf(leaf{
		use: "describe ID", short: "Show a broker with its log directories.",
		example: "ottla broker describe 1\nottla broker describe 1 -o json", args: cobra.ExactArgs(1), complete: a.completeBrokers, result: BrokerRow{},
		run: func(ctx context.Context, args []string) error {
			id, err := strconv.ParseInt(args[0], 10, 32)
			if err != nil {
				return usagef("broker describe %s: write a node id", args[0])
			}
			adm, err := a.admin(ctx)
			if err != nil {
				return err
			}
			defer adm.Close()
			rows, err := brokerRows(ctx, adm)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(rows, func(b BrokerRow) bool { return int64(b.ID) == id })
			if i < 0 {
				return failed("broker "+args[0], kerr.ResourceNotFound, "", "ottla broker list shows what there is")
			}
			b := rows[i]
			return a.showOne(b, args[0], func(w io.Writer) {
				fmt.Fprintf(w, "broker %d  %s:%d  rack %s  leads %d of %d replicas, %d out of sync\n", b.ID, b.Host, b.Port, orDash(b.Rack), b.Leaders, b.Replicas, b.OutOfSync)
				dirListing.table(w, b.Dirs, a.format == "wide")
			})
		},
	})
}

func (a *app) partitions() *cobra.Command {
	return plural(group("partition", "Partitions: list, elect leaders.", a.partitionList(), a.partitionElect()))
}

func (a *app) partitionList() *cobra.Command {
	var regex, internal, under, offline, troubled, notPreferred bool
	return a.leaf(leaf{
		use: "list [TOPIC…]", short: "List partitions, all or those in trouble.",
		example: "ottla partition list hello\nottla partition list --under-replicated\nottla partition list --offline -o json",
		args:    cobra.ArbitraryArgs, complete: a.completeTopics, result: []PartitionRow{},
		flags: func(f *pflag.FlagSet) {
			f.BoolVarP(&regex, "regex", "r", false, "names are regular expressions, not globs")
			f.BoolVar(&internal, "internal", false, "internal topics as well")
			f.BoolVar(&under, "under-replicated", false, "only those with fewer replicas in sync than replicas")
			f.BoolVar(&offline, "offline", false, "only those without a leader")
			f.BoolVar(&troubled, "troubled", false, "only those of either kind, internal ones included")
			f.BoolVar(&notPreferred, "not-preferred", false, "only those led by another than their first replica")
		},
		run: func(ctx context.Context, args []string) error {
			adm, err := a.admin(ctx)
			if err != nil {
				return err
			}
			defer adm.Close()
			topics, err := a.matchTopics(ctx, adm, args, regex, internal || troubled)
			if err != nil {
				return err
			}
			rows := slices.DeleteFunc(partitionRows(ctx, adm, topics), func(p PartitionRow) bool {
				state := p.State()
				return under && state != "under-replicated" || offline && state != "offline" || troubled && state == "ok" ||
					notPreferred && (p.Leader < 0 || len(p.Replicas) == 0 || p.Leader == p.Replicas[0])
			})
			return partitionListing.show(a, rows)
		},
	})
}

// An Election is the answer for one partition.
type Election struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Result    string `json:"result" doc:"elected, not needed, or Kafka's name of what went wrong"`
}

var electionListing = listing[Election]{
	columns: []column[Election]{
		{title: "TOPIC", cell: func(e Election) string { return e.Topic }},
		{title: "PARTITION", right: true, cell: func(e Election) string { return number(e.Partition) }},
		{title: "RESULT", cell: func(e Election) string { return e.Result }},
	},
	name:  func(e Election) string { return fmt.Sprintf("%s-%d", e.Topic, e.Partition) },
	empty: "no partition needed an election",
}

func (a *app) partitionElect() *cobra.Command {
	var unclean, all bool
	return a.leaf(leaf{
		use: "elect [TOPIC[:PARTITION]…]", short: "Elect preferred leaders, or with --unclean any that is left.",
		example: "ottla partition elect --all\nottla partition elect hello:0 hello:1\nottla partition elect hello:2 --unclean",
		args:    cobra.ArbitraryArgs, complete: a.completeTopics, result: []Election{},
		flags: func(f *pflag.FlagSet) {
			f.BoolVar(&unclean, "unclean", false, "elect a replica that is not in sync where nothing else is left; records may be lost")
			f.BoolVar(&all, "all", false, "every partition")
			a.changes(f)
		},
		run: func(ctx context.Context, args []string) error {
			if all == (len(args) > 0) {
				return usagef("partition elect: name partitions, or say --all")
			}
			set, err := parsePartitions(args)
			if err != nil {
				return err
			}
			if unclean || a.dryRun {
				agreed, err := a.confirm("elect leaders that may lack records")
				if err != nil || !agreed {
					return err
				}
			}
			adm, err := a.admin(ctx)
			if err != nil {
				return err
			}
			defer adm.Close()
			if err := wholeTopics(ctx, adm, set); err != nil {
				return err
			}
			return a.elect(ctx, adm, set, unclean)
		},
	})
}

// parsePartitions reads TOPIC or TOPIC:PARTITION,…; a topic without partitions means all of them. nil is
// everything.
func parsePartitions(args []string) (kadm.TopicsSet, error) {
	if len(args) == 0 {
		return nil, nil
	}
	set := kadm.TopicsSet{}
	for _, arg := range args {
		topic, text, ok := strings.Cut(arg, ":")
		if !ok {
			set.Add(topic)
			continue
		}
		for _, digits := range strings.Split(text, ",") {
			n, err := strconv.ParseInt(digits, 10, 32)
			if err != nil || n < 0 {
				return nil, usagef("%s: write TOPIC or TOPIC:PARTITION", arg)
			}
			set.Add(topic, int32(n))
		}
	}
	return set, nil
}

// wholeTopics names the partitions of the topics in set that have none yet.
func wholeTopics(ctx context.Context, adm *kadm.Client, set kadm.TopicsSet) error {
	for topic, partitions := range set {
		if len(partitions) > 0 {
			continue
		}
		details, err := adm.ListTopics(ctx, topic)
		if err == nil {
			err = details[topic].Err
		}
		if err != nil {
			return failed("topic "+topic, err, "", "ottla topic list shows what there is")
		}
		set.Add(topic, details[topic].Partitions.Numbers()...)
	}
	return nil
}

func (a *app) elect(ctx context.Context, adm *kadm.Client, set kadm.TopicsSet, unclean bool) error {
	how := kadm.ElectPreferredReplica
	if unclean {
		how = kadm.ElectLiveReplica
	}
	results, err := adm.ElectLeaders(ctx, how, set)
	if err != nil {
		return failed("elect leaders", err, "", "")
	}
	var rows []Election
	var errs []error
	for _, partitions := range results {
		for _, r := range partitions {
			e := Election{r.Topic, r.Partition, "elected"}
			switch {
			case errors.Is(r.Err, kerr.ElectionNotNeeded):
				e.Result = "not needed"
			case r.Err != nil:
				e.Result = errorName(r.Err)
				errs = append(errs, failed(fmt.Sprintf("elect a leader of %s-%d", r.Topic, r.Partition), r.Err, r.ErrMessage, ""))
			}
			rows = append(rows, e)
		}
	}
	slices.SortFunc(rows, func(a, b Election) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	return errors.Join(append(errs, electionListing.show(a, rows))...)
}
