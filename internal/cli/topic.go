package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/config"
	"ottla/internal/uuid"
)

func (a *app) topics() *cobra.Command {
	return plural(group("topic", "Topics: list, create, describe, alter, trim, delete.",
		a.topicList(), a.topicCreate(), a.topicDescribe(), a.topicAlter(), a.topicAddPartitions(), a.topicTrim(), a.topicDelete()))
}

// A TopicRow is a topic as `topic list` prints it.
type TopicRow struct {
	Name            string `json:"name"`
	ID              string `json:"id"`
	Internal        bool   `json:"internal"`
	Partitions      int    `json:"partitions"`
	Replicas        int    `json:"replicas" doc:"of its first partition"`
	UnderReplicated int    `json:"under_replicated" doc:"partitions with fewer replicas in sync than replicas"`
	Offline         int    `json:"offline" doc:"partitions without a leader"`
}

func topicRow(t kadm.TopicDetail) TopicRow {
	r := TopicRow{Name: t.Topic, ID: topicID(t.ID), Internal: t.IsInternal, Partitions: len(t.Partitions), Replicas: t.Partitions.NumReplicas()}
	for _, p := range t.Partitions {
		if p.Leader < 0 {
			r.Offline++
		}
		if len(p.ISR) < len(p.Replicas) {
			r.UnderReplicated++
		}
	}
	return r
}

// topicID prints an id as Kafka does; kadm has slashes in it.
func topicID(id kadm.TopicID) string { return uuid.UUID(id).String() }

var topicListing = listing[TopicRow]{
	columns: []column[TopicRow]{
		{title: "NAME", cell: func(t TopicRow) string { return t.Name }},
		{title: "PARTITIONS", right: true, cell: func(t TopicRow) string { return number(t.Partitions) }},
		{title: "REPLICAS", right: true, cell: func(t TopicRow) string { return number(t.Replicas) }},
		{title: "UNDER-REPLICATED", right: true, cell: func(t TopicRow) string { return number(t.UnderReplicated) }},
		{title: "OFFLINE", right: true, cell: func(t TopicRow) string { return number(t.Offline) }},
		{title: "INTERNAL", wide: true, cell: func(t TopicRow) string { return strconv.FormatBool(t.Internal) }},
		{title: "ID", wide: true, cell: func(t TopicRow) string { return t.ID }},
	},
	name:  func(t TopicRow) string { return t.Name },
	empty: "no topics (next: ottla topic create hello)",
}

func (a *app) topicList() *cobra.Command {
	var regex, internal bool
	return a.leaf(leaf{
		use: "list [NAME…]", short: "List topics, all or those that match.",
		example: "ottla topic list\nottla topic list 'log-*' -o wide\nottla topic list -r '^cdc\\.' -o json",
		args:    cobra.ArbitraryArgs, complete: a.completeTopics, result: []TopicRow{},
		flags: func(f *pflag.FlagSet) {
			f.BoolVarP(&regex, "regex", "r", false, "names are regular expressions, not globs")
			f.BoolVar(&internal, "internal", false, "internal topics as well")
		},
		run: func(ctx context.Context, args []string) error {
			adm, err := a.admin(ctx)
			if err != nil {
				return err
			}
			defer adm.Close()
			details, err := a.matchTopics(ctx, adm, args, regex, internal)
			if err != nil {
				return err
			}
			var rows []TopicRow
			for _, t := range details {
				rows = append(rows, topicRow(t))
			}
			return topicListing.show(a, rows)
		},
	})
}

// matchTopics returns the topics that match one of the patterns, sorted; all if there are none. A plain
// name that does not exist is an error.
func (a *app) matchTopics(ctx context.Context, adm *kadm.Client, patterns []string, regex, internal bool) ([]kadm.TopicDetail, error) {
	all, err := adm.ListTopicsWithInternal(ctx)
	if err != nil {
		return nil, failed("list topics", err, "", "")
	}
	names, err := matchNames(all.Names(), patterns, regex)
	if err != nil {
		return nil, err
	}
	var out []kadm.TopicDetail
	for _, name := range names {
		t, ok := all[name]
		if !ok {
			hint := "ottla topic list shows what there is"
			if near := config.Suggest(name, all.Names()); near != "" {
				hint = "did you mean " + near + "?"
			}
			return nil, failed("topic "+name, kerr.UnknownTopicOrPartition, "", hint)
		}
		if !t.IsInternal || internal || slices.Contains(patterns, name) {
			out = append(out, t)
		}
	}
	return out, nil
}

// matchNames returns those of names that match a pattern, and plain patterns as they are.
func matchNames(names, patterns []string, regex bool) ([]string, error) {
	if len(patterns) == 0 {
		return slices.Sorted(slices.Values(names)), nil
	}
	set := map[string]bool{}
	for _, pattern := range patterns {
		matches := func(name string) bool { ok, err := path.Match(pattern, name); return ok && err == nil }
		switch {
		case regex:
			re, err := regexp.Compile(pattern)
			if err != nil {
				return nil, usagef("%s", err)
			}
			matches = re.MatchString
		case !strings.ContainsAny(pattern, "*?["):
			set[pattern] = true
			continue
		}
		for _, name := range names {
			if matches(name) {
				set[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set)), nil
}

// A TopicCreated is a topic that was just created.
type TopicCreated struct {
	Name       string            `json:"name"`
	ID         string            `json:"id,omitempty"`
	Partitions int32             `json:"partitions"`
	Replicas   int16             `json:"replicas"`
	Configs    map[string]string `json:"configs,omitempty" doc:"all that is in effect"`
	Existed    bool              `json:"existed" doc:"it was there before, and --if-not-exists was given"`
	DryRun     bool              `json:"dry_run,omitempty"`
}

func (t TopicCreated) line() string {
	switch {
	case t.Existed:
		return "exists " + t.Name
	case t.DryRun:
		return fmt.Sprintf("would create %s: %s, %s", t.Name, plenty(int64(t.Partitions), "partition"), plentyReplicas(t.Replicas))
	}
	line := fmt.Sprintf("created %s: %s, %s", t.Name, plenty(int64(t.Partitions), "partition"), plentyReplicas(t.Replicas))
	if ms, err := strconv.ParseInt(t.Configs["retention.ms"], 10, 64); err == nil {
		line += ", retention " + retention(ms)
	}
	return line
}

func plentyReplicas(n int16) string {
	if n == 1 {
		return "1 replica"
	}
	return number(n) + " replicas"
}

func retention(ms int64) string {
	if ms < 0 {
		return "without limit"
	}
	return span(time.Duration(ms) * time.Millisecond)
}

func (a *app) topicCreate() *cobra.Command {
	var partitions int32
	var replicas int16
	var settings, names []string
	var assignment string
	var ifNot bool
	return a.leaf(leaf{
		use: "create NAME…", short: "Create topics.",
		example: "ottla topic create hello -p 3\nottla topic create cdc -p 12 --replication-factor 3 -c min.insync.replicas=2 -c retention.ms=30d\n" +
			"ottla topic create a b c --if-not-exists",
		args: cobra.ArbitraryArgs, result: []TopicCreated{},
		flags: func(f *pflag.FlagSet) {
			f.Int32VarP(&partitions, "partitions", "p", -1, "partitions (default: num.partitions of the broker)")
			f.Int16Var(&replicas, "replication-factor", -1, "replicas of each partition (default: default.replication.factor of the broker)")
			f.StringVar(&assignment, "replica-assignment", "", "replicas by hand: `1:2,2:3` is partition 0 on 1 and 2, partition 1 on 2 and 3")
			f.StringArrayVarP(&settings, "config", "c", nil, "topic setting `key=value`; may be repeated")
			f.StringSliceVar(&names, "topic", nil, "another way to name topics")
			f.BoolVar(&ifNot, "if-not-exists", false, "a topic that exists is no error")
			f.BoolVar(&a.dryRun, "dry-run", false, "let the broker check it, and create nothing")
		},
		run: func(ctx context.Context, args []string) error {
			args = append(args, names...)
			if len(args) == 0 {
				return usagef("topic create: name a topic, as in: ottla topic create hello")
			}
			req, err := createRequest(args, partitions, replicas, assignment, settings)
			if err != nil {
				return err
			}
			req.ValidateOnly, req.TimeoutMillis = a.dryRun, int32(a.timeout.Milliseconds())
			return a.createTopics(ctx, req, ifNot)
		},
	})
}

// createRequest builds the request that all named topics share.
func createRequest(names []string, partitions int32, replicas int16, assignment string, settings []string) (*kmsg.CreateTopicsRequest, error) {
	configs, err := topicSettings(settings)
	if err != nil {
		return nil, err
	}
	assigned, err := parseAssignment(assignment)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	for _, name := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor, t.ReplicaAssignment = name, partitions, replicas, assigned
		for _, key := range slices.Sorted(maps.Keys(configs)) {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = key, kmsg.StringPtr(configs[key])
			t.Configs = append(t.Configs, c)
		}
		req.Topics = append(req.Topics, t)
	}
	return req, nil
}

// topicSettings reads key=value pairs, with human times and sizes. A key that the table does not know
// goes out as it is, for the broker may be newer; a near miss is told.
func topicSettings(pairs []string) (map[string]string, error) {
	out := map[string]string{}
	for _, kv := range pairs {
		name, text, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, usagef("--config %s: write key=value", kv)
		}
		out[name] = text
		if k, known := config.LookupTopic(name); known {
			human, err := k.FromHuman(text)
			if err != nil {
				return nil, usagef("--config %s: %s", name, err)
			}
			out[name] = human
		}
	}
	return out, nil
}

func parseAssignment(text string) ([]kmsg.CreateTopicsRequestTopicReplicaAssignment, error) {
	if text == "" {
		return nil, nil
	}
	var out []kmsg.CreateTopicsRequestTopicReplicaAssignment
	for i, part := range strings.Split(text, ",") {
		r := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		r.Partition = int32(i)
		for _, id := range strings.Split(part, ":") {
			n, err := strconv.ParseInt(id, 10, 32)
			if err != nil {
				return nil, usagef("--replica-assignment %s: %q is no node id", text, id)
			}
			r.Replicas = append(r.Replicas, int32(n))
		}
		out = append(out, r)
	}
	return out, nil
}

func (a *app) createTopics(ctx context.Context, req *kmsg.CreateTopicsRequest, ifNot bool) error {
	client, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return failed("create topics", err, "", "")
	}
	var created []TopicCreated
	var errs []error
	for _, t := range resp.Topics {
		err := kerr.ErrorForCode(t.ErrorCode)
		if errors.Is(err, kerr.TopicAlreadyExists) && ifNot {
			created = append(created, TopicCreated{Name: t.Topic, Existed: true})
			continue
		}
		if err != nil {
			errs = append(errs, createFailed(t.Topic, err, t.ErrorMessage))
			continue
		}
		c := TopicCreated{Name: t.Topic, ID: topicID(t.TopicID), Partitions: t.NumPartitions, Replicas: t.ReplicationFactor, Configs: map[string]string{}, DryRun: req.ValidateOnly}
		for _, s := range t.Configs {
			if s.Value != nil {
				c.Configs[s.Name] = *s.Value
			}
		}
		created = append(created, c)
	}
	return errors.Join(append(errs, lines(a, created, func(c TopicCreated) (string, string) { return c.Name, c.line() }))...)
}

func createFailed(topic string, err error, message *string) error {
	text, hint := deref(message), ""
	switch {
	case errors.Is(err, kerr.TopicAlreadyExists):
		text, hint = "", "add --if-not-exists, or see: ottla topic describe "+topic
	case errors.Is(err, kerr.InvalidConfig):
		hint = nearTopicKey(text)
	case errors.Is(err, kerr.InvalidReplicationFactor):
		hint = "ottla broker list shows how many brokers there are"
	case errors.Is(err, kerr.InvalidTopicException):
		hint = "letters, digits, '.', '_' and '-', at most 249"
	}
	return failed("create topic "+topic, err, text, hint)
}

// nearTopicKey finds the key meant in a broker's complaint about an unknown one.
func nearTopicKey(message string) string {
	_, name, ok := strings.Cut(message, "Unknown topic config name: ")
	if !ok {
		return ""
	}
	var names []string
	for _, k := range config.TopicKeys() {
		names = append(names, k.Name)
	}
	if near := config.Suggest(name, names); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// A TopicDetail is a topic as `topic describe` prints it.
type TopicDetail struct {
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	Internal   bool              `json:"internal"`
	Partitions []PartitionRow    `json:"partitions"`
	Configs    map[string]string `json:"configs" doc:"what the topic sets for itself"`
}

// A PartitionRow is a partition as `topic describe` and `partition list` print it.
type PartitionRow struct {
	Topic       string  `json:"topic"`
	Partition   int32   `json:"partition"`
	Leader      int32   `json:"leader" doc:"-1 if there is none"`
	LeaderEpoch int32   `json:"leader_epoch"`
	Replicas    []int32 `json:"replicas"`
	ISR         []int32 `json:"isr"`
	Offline     []int32 `json:"offline_replicas"`
	Start       int64   `json:"start_offset" doc:"-1 if unknown"`
	End         int64   `json:"end_offset" doc:"-1 if unknown"`
}

// State is one word for a partition.
func (p PartitionRow) State() string {
	switch {
	case p.Leader < 0:
		return "offline"
	case len(p.ISR) < len(p.Replicas):
		return "under-replicated"
	}
	return "ok"
}

var partitionListing = listing[PartitionRow]{
	columns: []column[PartitionRow]{
		{title: "TOPIC", cell: func(p PartitionRow) string { return p.Topic }},
		{title: "PARTITION", right: true, cell: func(p PartitionRow) string { return number(p.Partition) }},
		{title: "LEADER", right: true, cell: func(p PartitionRow) string { return number(p.Leader) }},
		{title: "EPOCH", right: true, wide: true, cell: func(p PartitionRow) string { return number(p.LeaderEpoch) }},
		{title: "REPLICAS", cell: func(p PartitionRow) string { return ids(p.Replicas) }},
		{title: "ISR", cell: func(p PartitionRow) string { return ids(p.ISR) }},
		{title: "OFFLINE", wide: true, cell: func(p PartitionRow) string { return ids(p.Offline) }},
		{title: "START", right: true, cell: func(p PartitionRow) string { return offset(p.Start) }},
		{title: "END", right: true, cell: func(p PartitionRow) string { return offset(p.End) }},
		{title: "STATE", cell: PartitionRow.State},
	},
	name:  func(p PartitionRow) string { return fmt.Sprintf("%s-%d", p.Topic, p.Partition) },
	empty: "no partitions",
}

func offset(n int64) string {
	if n < 0 {
		return "-"
	}
	return count(n)
}

// partitionRows lists the partitions of topics with their offsets, sorted. Offsets that cannot be had
// are -1.
func partitionRows(ctx context.Context, adm *kadm.Client, topics []kadm.TopicDetail) []PartitionRow {
	var names []string
	for _, t := range topics {
		names = append(names, t.Topic)
	}
	if len(names) == 0 {
		return nil
	}
	starts, _ := adm.ListStartOffsets(ctx, names...) // offsets are an extra; partitions without a leader have none
	ends, _ := adm.ListEndOffsets(ctx, names...)
	known := func(offsets kadm.ListedOffsets, topic string, partition int32) int64 {
		if o, ok := offsets.Lookup(topic, partition); ok && o.Err == nil {
			return o.Offset
		}
		return -1
	}
	var rows []PartitionRow
	for _, t := range topics {
		for _, p := range t.Partitions.Sorted() {
			rows = append(rows, PartitionRow{
				Topic: t.Topic, Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch,
				Replicas: filled(p.Replicas), ISR: filled(p.ISR), Offline: filled(p.OfflineReplicas),
				Start: known(starts, t.Topic, p.Partition), End: known(ends, t.Topic, p.Partition),
			})
		}
	}
	return rows
}

// filled makes JSON print [] instead of null.
func filled(list []int32) []int32 {
	if list == nil {
		return []int32{}
	}
	return list
}

func (a *app) topicDescribe() *cobra.Command {
	var regex bool
	var names []string
	return a.leaf(leaf{
		use: "describe NAME…", short: "Show partitions, replicas, offsets and settings of topics.",
		example: "ottla topic describe hello\nottla topic describe 'cdc.*' -o json\nottla topic describe hello -o wide",
		args:    cobra.ArbitraryArgs, complete: a.completeTopics, result: []TopicDetail{},
		flags: func(f *pflag.FlagSet) {
			f.BoolVarP(&regex, "regex", "r", false, "names are regular expressions, not globs")
			f.StringSliceVar(&names, "topic", nil, "another way to name topics")
		},
		run: func(ctx context.Context, args []string) error {
			adm, err := a.admin(ctx)
			if err != nil {
				return err
			}
			defer adm.Close()
			topics, err := a.matchTopics(ctx, adm, append(args, names...), regex, false)
			if err != nil {
				return err
			}
			details, err := describeTopics(ctx, adm, topics)
			if err != nil {
				return err
			}
			return a.showTopics(details)
		},
	})
}

func describeTopics(ctx context.Context, adm *kadm.Client, topics []kadm.TopicDetail) ([]TopicDetail, error) {
	details := []TopicDetail{}
	for _, t := range topics {
		d := TopicDetail{Name: t.Topic, ID: topicID(t.ID), Internal: t.IsInternal, Configs: map[string]string{},
			Partitions: partitionRows(ctx, adm, []kadm.TopicDetail{t})}
		configs, err := adm.DescribeTopicConfigs(ctx, t.Topic)
		if err != nil {
			return nil, failed("describe topic "+t.Topic, err, "", "")
		}
		for _, resource := range configs {
			if resource.Err != nil {
				return nil, failed("describe topic "+t.Topic, resource.Err, resource.ErrMessage, "")
			}
			for _, c := range resource.Configs {
				if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
					d.Configs[c.Key] = c.MaybeValue()
				}
			}
		}
		details = append(details, d)
	}
	return details, nil
}

func (a *app) showTopics(details []TopicDetail) error {
	return lines(a, details, func(d TopicDetail) (string, string) {
		var b strings.Builder
		d.write(&b, a.format == "wide")
		return d.Name, strings.TrimRight(b.String(), "\n")
	})
}

func (d TopicDetail) write(w io.Writer, wide bool) {
	fmt.Fprintf(w, "%s  id %s  %s\n", d.Name, d.ID, plenty(int64(len(d.Partitions)), "partition"))
	for _, key := range slices.Sorted(maps.Keys(d.Configs)) {
		fmt.Fprintf(w, "  %s=%s\n", key, d.Configs[key])
	}
	partitionListing.table(w, d.Partitions, wide)
}

// A Change is one setting that was, or with --dry-run would be, changed.
type Change struct {
	Resource string  `json:"resource" doc:"topic hello, broker 1, cluster, group g or client-metrics m"`
	Key      string  `json:"key"`
	Old      *string `json:"old" doc:"what was in effect; null if nothing or a secret"`
	New      *string `json:"new" doc:"null: the setting is taken away and the default holds"`
	DryRun   bool    `json:"dry_run,omitempty"`
}

func (c Change) line() string {
	verb := "set"
	if c.DryRun {
		verb = "would set"
	}
	from := "unset"
	if c.Old != nil {
		from = *c.Old
	}
	if c.New == nil {
		return fmt.Sprintf("%s %s: %s to its default (was %s)", strings.Replace(verb, "set", "reset", 1), c.Resource, c.Key, from)
	}
	return fmt.Sprintf("%s %s: %s=%s (was %s)", verb, c.Resource, c.Key, *c.New, from)
}

func (a *app) topicAlter() *cobra.Command {
	var settings, drop []string
	return a.leaf(leaf{
		use: "alter NAME…", short: "Change settings of topics.",
		example: "ottla topic alter hello -c retention.ms=30d\nottla topic alter 'cdc.*' -c min.insync.replicas=2 --dry-run\nottla topic alter hello --delete-config retention.ms",
		args:    cobra.MinimumNArgs(1), complete: a.completeTopics, result: []Change{},
		flags: func(f *pflag.FlagSet) {
			f.StringArrayVarP(&settings, "config", "c", nil, "setting `key=value`; may be repeated")
			f.StringSliceVar(&drop, "delete-config", nil, "`key`s to give back to the default")
			f.BoolVar(&a.dryRun, "dry-run", false, "let the broker check it, and change nothing")
		},
		run: func(ctx context.Context, args []string) error {
			values, err := topicSettings(settings)
			if err != nil {
				return err
			}
			if len(values)+len(drop) == 0 {
				return usagef("topic alter: nothing to change; add -c key=value or --delete-config key")
			}
			adm, err := a.admin(ctx)
			if err != nil {
				return err
			}
			topics, err := a.matchTopics(ctx, adm, args, false, false)
			adm.Close()
			if err != nil {
				return err
			}
			var resources []resource
			for _, t := range topics {
				resources = append(resources, resource{kmsg.ConfigResourceTypeTopic, t.Topic})
			}
			return a.alter(ctx, resources, values, drop)
		},
	})
}

// A PartitionsAdded is a topic that was given more partitions.
type PartitionsAdded struct {
	Topic  string `json:"topic"`
	Before int    `json:"before"`
	After  int    `json:"after"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func (a *app) topicAddPartitions() *cobra.Command {
	var to, add int
	return a.leaf(leaf{
		use: "add-partitions NAME", short: "Give a topic more partitions.",
		example: "ottla topic add-partitions hello --to 12\nottla topic add-partitions hello --add 3",
		args:    cobra.ExactArgs(1), complete: a.completeTopics, result: PartitionsAdded{},
		flags: func(f *pflag.FlagSet) {
			f.IntVar(&to, "to", 0, "partitions that the topic shall have")
			f.IntVar(&add, "add", 0, "partitions to add")
			f.BoolVar(&a.dryRun, "dry-run", false, "let the broker check it, and change nothing")
		},
		run: func(ctx context.Context, args []string) error {
			if (to == 0) == (add == 0) {
				return usagef("topic add-partitions: say --to N or --add N")
			}
			adm, err := a.admin(ctx)
			if err != nil {
				return err
			}
			defer adm.Close()
			topics, err := a.matchTopics(ctx, adm, args, false, true)
			if err != nil {
				return err
			}
			now := len(topics[0].Partitions)
			after := to + add
			if add > 0 {
				after = now + add
			}
			return a.addPartitions(ctx, adm, PartitionsAdded{args[0], now, after, a.dryRun})
		},
	})
}

func (a *app) addPartitions(ctx context.Context, adm *kadm.Client, p PartitionsAdded) error {
	what := fmt.Sprintf("give topic %s %d partitions", p.Topic, p.After)
	update := adm.UpdatePartitions
	if p.DryRun {
		update = adm.ValidateUpdatePartitions
	}
	resp, err := update(ctx, p.After, p.Topic)
	if err != nil {
		return failed(what, err, "", "")
	}
	if r := resp[p.Topic]; r.Err != nil {
		return failed(what, r.Err, r.ErrMessage, "it has "+number(p.Before)+"; partitions can only be added")
	}
	return a.showOne(p, p.Topic, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %d partitions, were %d; keys hash to other partitions from now on\n", p.Topic, p.After, p.Before)
	})
}

// A Trimmed is a partition whose oldest records were deleted.
type Trimmed struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Before    int64  `json:"before" doc:"first offset it had"`
	After     int64  `json:"after" doc:"first offset it has"`
}

var trimListing = listing[Trimmed]{
	columns: []column[Trimmed]{
		{title: "TOPIC", cell: func(t Trimmed) string { return t.Topic }},
		{title: "PARTITION", right: true, cell: func(t Trimmed) string { return number(t.Partition) }},
		{title: "START", right: true, cell: func(t Trimmed) string { return offset(t.Before) }},
		{title: "NEW START", right: true, cell: func(t Trimmed) string { return offset(t.After) }},
		{title: "RECORDS", right: true, cell: func(t Trimmed) string { return count(t.After - t.Before) }},
	},
	name:  func(t Trimmed) string { return fmt.Sprintf("%s-%d", t.Topic, t.Partition) },
	empty: "nothing to delete",
}

func (a *app) topicTrim() *cobra.Command {
	var at int64
	var before string
	var all bool
	var partitions []int32
	return a.leaf(leaf{
		use: "trim NAME", short: "Delete the oldest records of a topic, up to an offset or a time.",
		example: "ottla topic trim hello --before 7d\nottla topic trim hello --offset 1000 -p 0 --yes\nottla topic trim hello --all --dry-run",
		args:    cobra.ExactArgs(1), complete: a.completeTopics, result: []Trimmed{},
		flags: func(f *pflag.FlagSet) {
			f.Int64Var(&at, "offset", -1, "first offset to keep")
			f.StringVar(&before, "before", "", "delete what is older: a `time` such as 7d (ago) or 2006-01-02T15:04:05Z")
			f.BoolVar(&all, "all", false, "delete every record")
			f.Int32SliceVarP(&partitions, "partition", "p", nil, "only these partitions")
			a.changes(f)
		},
		run: func(ctx context.Context, args []string) error {
			if n := choices(at >= 0, before != "", all); n != 1 {
				return usagef("topic trim: say one of --offset, --before and --all")
			}
			adm, err := a.admin(ctx)
			if err != nil {
				return err
			}
			defer adm.Close()
			topics, err := a.matchTopics(ctx, adm, args, false, true)
			if err != nil {
				return err
			}
			plan, err := trimPlan(ctx, adm, topics[0], partitions, at, before)
			if err != nil {
				return err
			}
			return a.trim(ctx, adm, plan)
		},
	})
}

// choices counts how many of some flags are given.
func choices(given ...bool) (n int) {
	for _, g := range given {
		if g {
			n++
		}
	}
	return n
}

// trimPlan computes the new start of each partition; partitions that lose nothing are left out.
func trimPlan(ctx context.Context, adm *kadm.Client, topic kadm.TopicDetail, only []int32, at int64, before string) ([]Trimmed, error) {
	var cut kadm.ListedOffsets
	if before != "" {
		ms, err := parseTime(before, time.Now())
		if err != nil {
			return nil, err
		}
		if cut, err = adm.ListOffsetsAfterMilli(ctx, ms, topic.Topic); err != nil {
			return nil, failed("find offsets of "+topic.Topic, err, "", "")
		}
	}
	var plan []Trimmed
	for _, p := range partitionRows(ctx, adm, []kadm.TopicDetail{topic}) {
		if len(only) > 0 && !slices.Contains(only, p.Partition) {
			continue
		}
		to := p.End // --all
		if o, ok := cut.Lookup(p.Topic, p.Partition); ok {
			to = o.Offset
		} else if at >= 0 {
			to = min(at, p.End)
		}
		if to > p.Start {
			plan = append(plan, Trimmed{p.Topic, p.Partition, p.Start, to})
		}
	}
	return plan, nil
}

func (a *app) trim(ctx context.Context, adm *kadm.Client, plan []Trimmed) error {
	if len(plan) == 0 || a.dryRun {
		return trimListing.show(a, plan)
	}
	var records int64
	offsets := kadm.Offsets{}
	for _, t := range plan {
		records += t.After - t.Before
		offsets.AddOffset(t.Topic, t.Partition, t.After, -1)
	}
	agreed, err := a.confirm(fmt.Sprintf("delete %s of %s", plenty(records, "record"), plan[0].Topic))
	if err != nil || !agreed {
		return err
	}
	resp, err := adm.DeleteRecords(ctx, offsets)
	if err != nil {
		return failed("trim topic "+plan[0].Topic, err, "", "")
	}
	var errs []error
	for i := range plan {
		r, _ := resp.Lookup(plan[i].Topic, plan[i].Partition)
		plan[i].After = r.LowWatermark
		errs = append(errs, failed(fmt.Sprintf("trim %s-%d", plan[i].Topic, plan[i].Partition), r.Err, "", ""))
	}
	return errors.Join(append(errs, trimListing.show(a, plan))...)
}

// parseTime reads a moment: RFC 3339, a date, milliseconds since 1970, or a time span before now. Without a zone it is in
// now's.
func parseTime(text string, now time.Time) (int64, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t.UnixMilli(), nil
		}
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 1e11 {
		return n, nil
	}
	ms, err := config.ParseMilliseconds(strings.TrimPrefix(text, "-"))
	if err != nil || text == "" {
		return 0, usagef("%q is no time (write 2006-01-02T15:04:05Z, 7d for seven days ago, or milliseconds since 1970)", text)
	}
	return now.UnixMilli() - ms, nil
}

// A TopicDeleted is a topic that was deleted.
type TopicDeleted struct {
	Name    string `json:"name"`
	Missing bool   `json:"missing" doc:"it was not there, and --if-exists was given"`
}

func (a *app) topicDelete() *cobra.Command {
	var regex, ifExists bool
	return a.leaf(leaf{
		use: "delete NAME…", short: "Delete topics with all their records.",
		example: "ottla topic delete hello\nottla topic delete 'test-*' --yes\nottla topic delete -r '^tmp' --dry-run",
		args:    cobra.MinimumNArgs(1), complete: a.completeTopics, result: []TopicDeleted{},
		flags: func(f *pflag.FlagSet) {
			f.BoolVarP(&regex, "regex", "r", false, "names are regular expressions, not globs")
			f.BoolVar(&ifExists, "if-exists", false, "a topic that does not exist is no error")
			a.changes(f)
		},
		run: func(ctx context.Context, args []string) error {
			adm, err := a.admin(ctx)
			if err != nil {
				return err
			}
			defer adm.Close()
			topics, err := a.matchTopics(ctx, adm, args, regex, false)
			if ifExists && errors.Is(err, kerr.UnknownTopicOrPartition) {
				return lines(a, []TopicDeleted{{args[0], true}}, func(d TopicDeleted) (string, string) { return d.Name, "missing " + d.Name })
			}
			if err != nil {
				return err
			}
			return a.deleteTopics(ctx, adm, topics)
		},
	})
}

func (a *app) deleteTopics(ctx context.Context, adm *kadm.Client, topics []kadm.TopicDetail) error {
	var names []string
	partitions := 0
	for _, t := range topics {
		names = append(names, t.Topic)
		partitions += len(t.Partitions)
	}
	if len(names) == 0 {
		a.note("no topic matches")
		return lines(a, []TopicDeleted(nil), nil)
	}
	a.note("deletes %s with %s: %s", plenty(int64(len(names)), "topic"), plenty(int64(partitions), "partition"), strings.Join(names, ", "))
	agreed, err := a.confirm("delete " + plenty(int64(len(names)), "topic"))
	if err != nil || !agreed {
		return err
	}
	resp, err := adm.DeleteTopics(ctx, names...)
	if err != nil {
		return failed("delete topics", err, "", "")
	}
	var deleted []TopicDeleted
	var errs []error
	for _, r := range resp.Sorted() {
		if r.Err != nil {
			errs = append(errs, failed("delete topic "+r.Topic, r.Err, r.ErrMessage, ""))
			continue
		}
		deleted = append(deleted, TopicDeleted{Name: r.Topic})
	}
	return errors.Join(append(errs, lines(a, deleted, func(d TopicDeleted) (string, string) { return d.Name, "deleted " + d.Name }))...)
}
