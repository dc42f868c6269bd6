package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A GroupDetail is a group as `group describe` prints it.
type GroupDetail struct {
	Name         string           `json:"name"`
	Type         string           `json:"type" doc:"classic, consumer, share or streams; empty if the broker is too old to tell"`
	State        string           `json:"state" doc:"in Kafka's words, such as Stable or Empty"`
	ProtocolType string           `json:"protocol_type" doc:"consumer, connect or whatever the members call it; empty if no member ever joined"`
	Assignor     string           `json:"assignor" doc:"how partitions are shared out; empty if nobody is there"`
	Epoch        int32            `json:"epoch" doc:"of a group of type consumer; -1 for others"`
	Coordinator  int32            `json:"coordinator" doc:"the broker that looks after it"`
	Lag          int64            `json:"lag" doc:"records behind, over all partitions; -1 if unknown"`
	LagSeconds   *float64         `json:"lag_seconds" doc:"age of the oldest unread record of all partitions; 0 if all is read, null if unknown"`
	LagEstimated bool             `json:"lag_estimated" doc:"lag_seconds comes from the records' timestamps, not from when they were appended"`
	Members      []GroupMember    `json:"members"`
	Partitions   []GroupPartition `json:"partitions" doc:"that are assigned or have a committed offset"`
}

// A GroupMember is a member of a group.
type GroupMember struct {
	ID         string             `json:"id"`
	InstanceID string             `json:"instance_id,omitempty" doc:"of a static member"`
	ClientID   string             `json:"client_id"`
	Host       string             `json:"host"`
	Epoch      int32              `json:"epoch" doc:"of a member that speaks the consumer protocol; -1 for others"`
	Assigned   map[string][]int32 `json:"assigned" doc:"its partitions by topic"`
}

// A GroupPartition is a partition as a group reads it.
type GroupPartition struct {
	Topic        string   `json:"topic"`
	Partition    int32    `json:"partition"`
	Committed    int64    `json:"committed" doc:"offset of the first record that is yet to be read; -1 if none was committed"`
	End          int64    `json:"end_offset" doc:"-1 if unknown"`
	Lag          int64    `json:"lag" doc:"records behind; -1 if unknown"`
	LagSeconds   *float64 `json:"lag_seconds" doc:"age of the oldest unread record; 0 if all is read, null if unknown"`
	LagEstimated bool     `json:"lag_estimated" doc:"lag_seconds comes from the record's timestamp, not from when it was appended"`
	MemberID     string   `json:"member_id,omitempty" doc:"who reads it"`
	ClientID     string   `json:"client_id,omitempty"`
	Host         string   `json:"host,omitempty"`
	Metadata     string   `json:"metadata,omitempty" doc:"what was committed along with the offset"`
}

var groupPartitionListing = listing[GroupPartition]{
	columns: []column[GroupPartition]{
		{title: "TOPIC", cell: func(p GroupPartition) string { return p.Topic }},
		{title: "PARTITION", right: true, cell: func(p GroupPartition) string { return number(p.Partition) }},
		{title: "COMMITTED", right: true, cell: func(p GroupPartition) string { return offset(p.Committed) }},
		{title: "END", right: true, cell: func(p GroupPartition) string { return offset(p.End) }},
		{title: "LAG", right: true, cell: func(p GroupPartition) string { return offset(p.Lag) }},
		{title: "BEHIND", right: true, cell: func(p GroupPartition) string { return behind(p.LagSeconds, p.LagEstimated) }},
		{title: "MEMBER", cell: func(p GroupPartition) string { return orDash(p.ClientID) }},
		{title: "HOST", cell: func(p GroupPartition) string { return orDash(p.Host) }},
		{title: "MEMBER ID", wide: true, cell: func(p GroupPartition) string { return orDash(p.MemberID) }},
		{title: "METADATA", wide: true, cell: func(p GroupPartition) string { return orDash(p.Metadata) }},
	},
	name: func(p GroupPartition) string { return fmt.Sprintf("%s-%d", p.Topic, p.Partition) },
}

var groupMemberListing = listing[GroupMember]{
	columns: []column[GroupMember]{
		{title: "MEMBER", cell: func(m GroupMember) string { return orDash(m.ClientID) }},
		{title: "INSTANCE", cell: func(m GroupMember) string { return orDash(m.InstanceID) }},
		{title: "HOST", cell: func(m GroupMember) string { return orDash(m.Host) }},
		{title: "PARTITIONS", right: true, cell: func(m GroupMember) string { return count(m.partitions()) }},
		{title: "EPOCH", wide: true, right: true, cell: func(m GroupMember) string { return offset(int64(m.Epoch)) }},
		{title: "MEMBER ID", wide: true, cell: func(m GroupMember) string { return m.ID }},
	},
}

func (m GroupMember) partitions() (n int64) {
	for _, list := range m.Assigned {
		n += int64(len(list))
	}
	return n
}

// behind prints an age in seconds, ~ before an estimate and - for none.
func behind(seconds *float64, estimated bool) string {
	if seconds == nil {
		return "-"
	}
	mark := ""
	if estimated {
		mark = "~"
	}
	switch s := *seconds; {
	case s == 0:
		return mark + "0 s"
	case s < 10:
		return fmt.Sprintf("%s%.1f s", mark, s)
	case s < 120:
		return fmt.Sprintf("%s%.0f s", mark, s)
	default:
		d := time.Duration(s) * time.Second
		if d >= 48*time.Hour {
			return fmt.Sprintf("%s%dd%dh", mark, d/(24*time.Hour), d/time.Hour%24)
		}
		if d >= 2*time.Hour {
			return fmt.Sprintf("%s%dh%dm", mark, d/time.Hour, d/time.Minute%60)
		}
		return fmt.Sprintf("%s%dm%ds", mark, d/time.Minute, d/time.Second%60)
	}
}

// describeFlags are the flags of `group describe`.
type describeFlags struct {
	regex, members, watch bool
	interval              time.Duration
	maxLag                int64
	maxBehind             time.Duration
}

func (a *app) groupDescribe() *cobra.Command {
	var d describeFlags
	var names []string
	return a.leaf(leaf{
		use: "describe [NAME…]", short: "Show groups with their members and how far behind they are, in records and in seconds.",
		example: "ottla group describe flink-logs\nottla group describe flink-logs -w\nottla group describe 'flink-*' --members\n" +
			"ottla group describe flink-logs --max-behind 5m   # exit 10 if it is further behind",
		args: cobra.ArbitraryArgs, complete: a.completeGroups, result: []GroupDetail{},
		flags: func(f *pflag.FlagSet) {
			f.BoolVarP(&d.regex, "regex", "r", false, "names are regular expressions, not globs")
			f.StringSliceVar(&names, "group", nil, "another way to name groups")
			f.BoolVar(&d.members, "members", false, "show members instead of partitions")
			f.BoolVarP(&d.watch, "watch", "w", false, "go on and refresh")
			f.DurationVar(&d.interval, "interval", 2*time.Second, "time between two refreshes")
			f.Int64Var(&d.maxLag, "max-lag", -1, "exit with code 10 if a group is more `records` behind")
			f.DurationVar(&d.maxBehind, "max-behind", -1, "exit with code 10 if a group is further behind in time")
		},
		run: func(ctx context.Context, args []string) error {
			if d.watch && (d.maxLag >= 0 || d.maxBehind >= 0) {
				return usagef("group describe: -w goes on for ever; leave --max-lag and --max-behind out")
			}
			client, err := a.dial(ctx)
			if err != nil {
				return err
			}
			defer client.Close()
			return a.describeGroups(ctx, client, append(args, names...), d)
		},
	})
}

func (a *app) describeGroups(ctx context.Context, client *kgo.Client, patterns []string, f describeFlags) error {
	adm := kadm.NewClient(client)
	for {
		listed, err := matchGroups(ctx, adm, patterns, f.regex)
		if err != nil {
			return err
		}
		details, err := groupDetails(ctx, adm, listed)
		if err != nil {
			return err
		}
		addAges(ctx, client, details)
		if f.watch && a.Terminal {
			_, _ = a.out.WriteString("\x1b[H\x1b[2J") // cursor home, erase; an error is met at the flush
		}
		if err := a.showGroups(details, f.members); err != nil || !f.watch {
			return errors.Join(err, tooFarBehind(details, f))
		}
		if err := errors.Join(a.out.Flush(), wait(ctx, f.interval)); err != nil {
			return err
		}
	}
}

func (a *app) showGroups(details []GroupDetail, members bool) error {
	return lines(a, details, func(g GroupDetail) (string, string) {
		var b strings.Builder
		g.write(&b, members, a.format == "wide")
		return g.Name, strings.TrimRight(b.String(), "\n")
	})
}

func (g *GroupDetail) write(w io.Writer, members, wide bool) {
	fmt.Fprintf(w, "%s   %s   %s   %s\n", g.Name, g.State, plenty(int64(len(g.Members)), "member"), g.headline())
	switch {
	case members && len(g.Members) > 0:
		groupMemberListing.table(w, g.Members, wide)
	case !members && len(g.Partitions) > 0:
		groupPartitionListing.table(w, g.Partitions, wide)
	}
}

// headline says in a few words how far behind a group is.
func (g *GroupDetail) headline() string {
	switch {
	case g.Lag < 0:
		return "lag unknown"
	case g.LagSeconds == nil:
		return "lag " + plenty(g.Lag, "record")
	}
	return fmt.Sprintf("lag %s, %s", plenty(g.Lag, "record"), behind(g.LagSeconds, g.LagEstimated))
}

func tooFarBehind(details []GroupDetail, f describeFlags) error {
	for _, g := range details {
		if f.maxLag >= 0 && g.Lag > f.maxLag {
			return &conditionError{fmt.Sprintf("group %s is %s behind, over %s", g.Name, plenty(g.Lag, "record"), count(f.maxLag))}
		}
		if f.maxBehind >= 0 && g.LagSeconds != nil && *g.LagSeconds > f.maxBehind.Seconds() {
			return &conditionError{fmt.Sprintf("group %s is %s behind, over %s", g.Name, behind(g.LagSeconds, g.LagEstimated), f.maxBehind)}
		}
	}
	return nil
}

// groupDetails describes groups, sorted as they come.
func groupDetails(ctx context.Context, adm *kadm.Client, listed []kadm.ListedGroup) ([]GroupDetail, error) {
	details := make([]GroupDetail, len(listed))
	byName := map[string]*GroupDetail{}
	var classic, consumer []string
	for i, g := range listed {
		details[i] = GroupDetail{Name: g.Group, Type: g.GroupType, State: g.State, ProtocolType: g.ProtocolType, Coordinator: g.Coordinator,
			Epoch: -1, Lag: -1, Members: []GroupMember{}, Partitions: []GroupPartition{}}
		byName[g.Group] = &details[i]
		switch strings.ToLower(g.GroupType) {
		case "", "classic":
			classic = append(classic, g.Group)
		case "consumer":
			consumer = append(consumer, g.Group)
		}
	}
	if err := describeClassic(ctx, adm, classic, byName); err != nil {
		return nil, err
	}
	if err := describeConsumer(ctx, adm, consumer, byName); err != nil {
		return nil, err
	}
	return details, addOffsets(ctx, adm, append(classic, consumer...), byName)
}

func describeClassic(ctx context.Context, adm *kadm.Client, names []string, into map[string]*GroupDetail) error {
	if len(names) == 0 {
		return nil // which would mean all
	}
	described, err := adm.DescribeGroups(ctx, names...)
	if err != nil {
		return failed("describe groups", err, "", "")
	}
	for _, d := range described {
		if d.Err != nil {
			return failed("describe group "+d.Group, d.Err, d.ErrMessage, "")
		}
		g := into[d.Group]
		g.State, g.Assignor = d.State, d.Protocol
		for _, m := range d.Members {
			member := GroupMember{ID: m.MemberID, InstanceID: deref(m.InstanceID), ClientID: m.ClientID, Host: host(m.ClientHost), Epoch: -1, Assigned: map[string][]int32{}}
			if assigned, ok := m.Assigned.AsConsumer(); ok {
				for _, t := range assigned.Topics {
					member.Assigned[t.Topic] = t.Partitions
				}
			}
			g.Members = append(g.Members, member)
		}
	}
	return nil
}

func describeConsumer(ctx context.Context, adm *kadm.Client, names []string, into map[string]*GroupDetail) error {
	if len(names) == 0 {
		return nil // which would mean all
	}
	described, err := adm.DescribeConsumerGroups(ctx, names...)
	if err != nil {
		return failed("describe groups", err, "", "")
	}
	for _, d := range described {
		if d.Err != nil {
			return failed("describe group "+d.Group, d.Err, "", "")
		}
		g := into[d.Group]
		g.State, g.Assignor, g.Epoch = d.State, d.AssignorName, d.Epoch
		for _, m := range d.Members {
			member := GroupMember{ID: m.MemberID, InstanceID: deref(m.InstanceID), ClientID: m.ClientID, Host: host(m.ClientHost), Epoch: m.MemberEpoch, Assigned: map[string][]int32{}}
			for _, t := range m.Assignment.Sorted() {
				member.Assigned[t.Topic] = t.Partitions
			}
			g.Members = append(g.Members, member)
		}
	}
	return nil
}

// host takes the slash off that Java prints before an address.
func host(s string) string { return strings.TrimPrefix(s, "/") }

// addOffsets tells groups how far they are and how far behind.
func addOffsets(ctx context.Context, adm *kadm.Client, names []string, into map[string]*GroupDetail) error {
	if len(names) == 0 {
		return nil
	}
	fetched := adm.FetchManyOffsets(ctx, names...)
	topics := kadm.TopicsSet{}
	for _, name := range names {
		if err := fetched[name].Err; err != nil {
			return failed("offsets of group "+name, err, "", "")
		}
		g := into[name]
		g.Partitions = groupPartitions(g.Members, fetched[name].Fetched)
		for _, p := range g.Partitions {
			topics.Add(p.Topic)
		}
	}
	if len(topics) == 0 {
		return nil
	}
	ends, _ := adm.ListEndOffsets(ctx, topics.Topics()...) // a partition without a leader has no end, and so no lag
	for _, name := range names {
		into[name].measure(ends)
	}
	return nil
}

// groupPartitions joins what members are assigned with what was committed, by topic and partition.
func groupPartitions(members []GroupMember, committed kadm.OffsetResponses) []GroupPartition {
	rows := []GroupPartition{}
	seen := kadm.TopicsSet{}
	for _, m := range members {
		for topic, list := range m.Assigned {
			for _, partition := range list {
				row := GroupPartition{Topic: topic, Partition: partition, Committed: -1, MemberID: m.ID, ClientID: m.ClientID, Host: m.Host}
				if o, ok := committed.Lookup(topic, partition); ok && o.Err == nil {
					row.Committed, row.Metadata = o.At, o.Metadata
				}
				seen.Add(topic, partition)
				rows = append(rows, row)
			}
		}
	}
	for _, o := range committed.Sorted() {
		if o.Err == nil && o.At >= 0 && !seen.Lookup(o.Topic, o.Partition) {
			rows = append(rows, GroupPartition{Topic: o.Topic, Partition: o.Partition, Committed: o.At, Metadata: o.Metadata})
		}
	}
	slices.SortFunc(rows, func(a, b GroupPartition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return rows
}

// measure sets ends and lags. A partition without a committed offset has no lag, as in Kafka's own tool, for where its
// reader will start is the reader's own affair.
func (g *GroupDetail) measure(ends kadm.ListedOffsets) {
	for i := range g.Partitions {
		p := &g.Partitions[i]
		p.End, p.Lag = -1, -1
		end, ok := ends.Lookup(p.Topic, p.Partition)
		if !ok || end.Err != nil {
			continue
		}
		p.End = end.Offset
		if p.Committed >= 0 {
			p.Lag = max(p.End-p.Committed, 0)
			g.Lag = max(g.Lag, 0) + p.Lag
		}
	}
}
