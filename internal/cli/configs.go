package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/config"
)

func (a *app) configs() *cobra.Command {
	return plural(group("config", "Settings of brokers, topics and groups; checks of a configuration file.",
		a.configGet(), a.configSet(), a.configUnset(), a.configCheck(), a.configShow()))
}

// resource is what settings belong to.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

func (r resource) String() string {
	switch {
	case r.kind == kmsg.ConfigResourceTypeBroker && r.name == "":
		return "cluster"
	case r.kind == kmsg.ConfigResourceTypeClientMetrics:
		return "client-metrics " + r.name
	case r.kind == kmsg.ConfigResourceTypeGroupConfig:
		return "group " + r.name
	}
	return strings.ToLower(r.kind.String()) + " " + r.name
}

const resourceUsage = "topic NAME, broker ID, cluster, group NAME or client-metrics NAME"

// parseResource takes a resource off the front of the arguments.
func parseResource(args []string) (resource, []string, error) {
	kinds := map[string]kmsg.ConfigResourceType{
		"topic": kmsg.ConfigResourceTypeTopic, "broker": kmsg.ConfigResourceTypeBroker,
		"group": kmsg.ConfigResourceTypeGroupConfig, "client-metrics": kmsg.ConfigResourceTypeClientMetrics,
	}
	if len(args) > 0 && args[0] == "cluster" {
		return resource{kind: kmsg.ConfigResourceTypeBroker}, args[1:], nil
	}
	if len(args) < 2 {
		return resource{}, nil, usagef("name what the settings belong to: %s", resourceUsage)
	}
	kind, ok := kinds[strings.TrimSuffix(args[0], "s")]
	if !ok {
		kind, ok = kinds[args[0]]
	}
	if !ok {
		return resource{}, nil, usagef("%s has no settings; name %s", args[0], resourceUsage)
	}
	if kind == kmsg.ConfigResourceTypeBroker {
		if _, err := strconv.ParseInt(args[1], 10, 32); err != nil {
			return resource{}, nil, usagef("broker %s: write a node id, or cluster for all brokers", args[1])
		}
	}
	return resource{kind, args[1]}, args[2:], nil
}

// keys returns the table of the resource's keys.
func (r resource) keys() []config.Key {
	switch r.kind {
	case kmsg.ConfigResourceTypeTopic:
		return config.TopicKeys()
	case kmsg.ConfigResourceTypeGroupConfig:
		return config.GroupKeys()
	case kmsg.ConfigResourceTypeClientMetrics:
		return config.ClientMetricsKeys()
	}
	return config.BrokerKeys()
}

// on sends requests about a broker to that broker and others to any.
func (r resource) on(client *kgo.Client) kmsg.Requestor {
	if r.kind == kmsg.ConfigResourceTypeBroker && r.name != "" {
		id, _ := strconv.Atoi(r.name) // parseResource saw to it
		return client.Broker(id)
	}
	return client
}

// A Setting is one key of a resource, as the broker describes it.
type Setting struct {
	Resource  string   `json:"resource"`
	Key       string   `json:"key"`
	Value     *string  `json:"value" doc:"null if it has none or is a secret"`
	Source    string   `json:"source" doc:"topic, group, client-metrics, broker, cluster, file or default"`
	ReadOnly  bool     `json:"read_only"`
	Sensitive bool     `json:"sensitive"`
	Synonyms  []string `json:"synonyms" doc:"where else it is set, strongest first: source key=value"`
	Doc       string   `json:"doc,omitempty"`
}

var sourceNames = map[kmsg.ConfigSource]string{
	kmsg.ConfigSourceDynamicTopicConfig: "topic", kmsg.ConfigSourceDynamicBrokerConfig: "broker",
	kmsg.ConfigSourceDynamicDefaultBrokerConfig: "cluster", kmsg.ConfigSourceStaticBrokerConfig: "file",
	kmsg.ConfigSourceDefaultConfig: "default", kmsg.ConfigSourceDynamicBrokerLoggerConfig: "logger",
	kmsg.ConfigSourceClientMetricsConfig: "client-metrics", kmsg.ConfigSourceGroupConfig: "group",
}

func (s Setting) shown() string {
	switch {
	case s.Sensitive:
		return "****"
	case s.Value == nil:
		return "-"
	}
	return *s.Value
}

var settingListing = listing[Setting]{
	columns: []column[Setting]{
		{title: "KEY", cell: func(s Setting) string { return s.Key }},
		{title: "VALUE", cell: Setting.shown},
		{title: "SOURCE", cell: func(s Setting) string { return s.Source }},
		{title: "READ-ONLY", wide: true, cell: func(s Setting) string { return strconv.FormatBool(s.ReadOnly) }},
		{title: "SYNONYMS", wide: true, cell: func(s Setting) string { return strings.Join(s.Synonyms, " ") }},
	},
	name:  func(s Setting) string { return s.Key },
	empty: "nothing but defaults (--all shows them)",
}

func (a *app) configGet() *cobra.Command {
	var all bool
	return a.leaf(leaf{
		use: "get RESOURCE [KEY…]", short: "Show the settings of a topic, broker or group: " + resourceUsage + ".",
		example: "ottla config get topic hello\nottla config get broker 1 --all\nottla config get cluster\nottla config get topic hello retention.ms -o json",
		args:    cobra.MinimumNArgs(1), complete: a.completeResource, result: []Setting{},
		flags: func(f *pflag.FlagSet) { f.BoolVar(&all, "all", false, "defaults as well") },
		run: func(ctx context.Context, args []string) error {
			r, keys, err := parseResource(args)
			if err != nil {
				return err
			}
			client, err := a.dial(ctx)
			if err != nil {
				return err
			}
			defer client.Close()
			settings, err := describe(ctx, client, r, keys)
			if err != nil {
				return err
			}
			if !all && len(keys) == 0 {
				settings = slices.DeleteFunc(settings, func(s Setting) bool { return s.Source == "default" })
			}
			return settingListing.show(a, settings)
		},
	})
}

func (a *app) completeResource(context.Context, string) []string {
	return []string{"topic", "broker", "cluster", "group", "client-metrics"}
}

// describe asks a broker for settings; no keys means all. A key that is not there is an error.
func describe(ctx context.Context, client *kgo.Client, r resource, keys []string) ([]Setting, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms, req.IncludeDocumentation = true, true
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName, rr.ConfigNames = r.kind, r.name, keys
	if len(keys) == 0 {
		rr.ConfigNames = nil
	}
	req.Resources = append(req.Resources, rr)
	resp, err := req.RequestWith(ctx, r.on(client))
	what := "describe " + r.String()
	if err != nil {
		return nil, failed(what, err, "", "")
	}
	var settings []Setting
	for _, answer := range resp.Resources {
		if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
			return nil, failed(what, err, deref(answer.ErrorMessage), r.hint(err))
		}
		for _, c := range answer.Configs {
			settings = append(settings, setting(r, c))
		}
	}
	slices.SortFunc(settings, func(a, b Setting) int { return strings.Compare(a.Key, b.Key) })
	for _, key := range keys {
		if !slices.ContainsFunc(settings, func(s Setting) bool { return s.Key == key }) {
			return nil, usagef("%s has no key %s%s", r, key, r.near(key))
		}
	}
	return settings, nil
}

func setting(r resource, c kmsg.DescribeConfigsResponseResourceConfig) Setting {
	s := Setting{Resource: r.String(), Key: c.Name, Value: c.Value, Source: sourceNames[c.Source], ReadOnly: c.ReadOnly,
		Sensitive: c.IsSensitive, Synonyms: []string{}, Doc: deref(c.Documentation)}
	for _, syn := range c.ConfigSynonyms {
		text := "****"
		if syn.Value != nil {
			text = *syn.Value
		}
		s.Synonyms = append(s.Synonyms, sourceNames[syn.Source]+" "+syn.Name+"="+text)
	}
	return s
}

func (r resource) hint(err error) string {
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return "ottla topic list shows what there is"
	}
	return ""
}

// near suggests a key, as a clause to put behind a sentence.
func (r resource) near(key string) string {
	var names []string
	for _, k := range r.keys() {
		names = append(names, k.Name)
	}
	if near := config.Suggest(key, names); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

func (a *app) configSet() *cobra.Command {
	return a.leaf(leaf{
		use: "set RESOURCE KEY=VALUE…", short: "Change settings while the brokers run: " + resourceUsage + ".",
		example: "ottla config set topic hello retention.ms=30d\nottla config set cluster log.retention.ms=7d min.insync.replicas=2\nottla config set broker 1 log.cleaner.threads=2 --dry-run",
		args:    cobra.MinimumNArgs(2), complete: a.completeResource, result: []Change{},
		flags: func(f *pflag.FlagSet) {
			f.BoolVar(&a.dryRun, "dry-run", false, "let the broker check it, and change nothing")
		},
		run: func(ctx context.Context, args []string) error {
			r, pairs, err := parseResource(args)
			if err != nil {
				return err
			}
			values, err := r.values(pairs)
			if err != nil {
				return err
			}
			return a.alter(ctx, []resource{r}, values, nil)
		},
	})
}

// values reads key=value pairs with human times and sizes.
func (r resource) values(pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, usagef("nothing to set; write key=value")
	}
	keys := r.keys()
	out := map[string]string{}
	for _, pair := range pairs {
		name, text, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, usagef("%s: write key=value", pair)
		}
		out[name] = text
		for i := range keys {
			if keys[i].Name == name {
				human, err := keys[i].FromHuman(text)
				if err != nil {
					return nil, usagef("%s: %s", name, err)
				}
				out[name] = human
			}
		}
	}
	return out, nil
}

func (a *app) configUnset() *cobra.Command {
	return a.leaf(leaf{
		use: "unset RESOURCE KEY…", short: "Give settings back to their defaults: " + resourceUsage + ".",
		example: "ottla config unset topic hello retention.ms\nottla config unset cluster log.retention.ms",
		args:    cobra.MinimumNArgs(2), complete: a.completeResource, result: []Change{},
		flags: func(f *pflag.FlagSet) {
			f.BoolVar(&a.dryRun, "dry-run", false, "let the broker check it, and change nothing")
		},
		run: func(ctx context.Context, args []string) error {
			r, keys, err := parseResource(args)
			if err != nil {
				return err
			}
			if len(keys) == 0 {
				return usagef("nothing to unset; name a key")
			}
			return a.alter(ctx, []resource{r}, nil, keys)
		},
	})
}

// alter sets values and drops keys on every resource, and prints what changed.
func (a *app) alter(ctx context.Context, resources []resource, values map[string]string, drop []string) error {
	client, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	var changes []Change
	var errs []error
	for _, r := range resources {
		made, err := a.alterOne(ctx, client, r, values, drop)
		changes, errs = append(changes, made...), append(errs, err)
	}
	return errors.Join(append(errs, lines(a, changes, func(c Change) (string, string) { return c.Key, c.line() }))...)
}

func (a *app) alterOne(ctx context.Context, client *kgo.Client, r resource, values map[string]string, drop []string) ([]Change, error) {
	before := map[string]*string{}
	if settings, err := describe(ctx, client, r, nil); err == nil { // what was is an extra
		for _, s := range settings {
			before[s.Key] = s.Value
		}
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.ValidateOnly = a.dryRun
	rr := kmsg.NewIncrementalAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = r.kind, r.name
	var changes []Change
	add := func(key string, value *string, op kmsg.IncrementalAlterConfigOp) {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value, c.Op = key, value, op
		rr.Configs = append(rr.Configs, c)
		changes = append(changes, Change{r.String(), key, before[key], value, a.dryRun})
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		add(key, kmsg.StringPtr(values[key]), kmsg.IncrementalAlterConfigOpSet)
	}
	for _, key := range drop {
		add(key, nil, kmsg.IncrementalAlterConfigOpDelete)
	}
	req.Resources = append(req.Resources, rr)
	resp, err := req.RequestWith(ctx, r.on(client))
	if err != nil {
		return nil, failed("change "+r.String(), err, "", "")
	}
	for _, answer := range resp.Resources {
		if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
			message := deref(answer.ErrorMessage)
			hint := nearTopicKey(message)
			if hint == "" {
				hint = r.hint(err)
			}
			return nil, failed("change "+r.String(), err, message, hint)
		}
	}
	return changes, nil
}

// sources are the flags that name a static configuration.
type sources struct {
	set   []string
	noEnv bool
}

func (s *sources) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&s.set, "set", nil, "a setting `key=value` over file and environment; may be repeated")
	f.BoolVar(&s.noEnv, "no-env", false, "leave the environment out")
}

func (a *app) sources(s sources, args []string) config.Sources {
	out := config.Sources{Set: s.set, Env: a.Env}
	if len(args) > 0 {
		out.File = args[0]
	}
	if s.noEnv {
		out.Env = nil
	}
	return out
}

var verdictListing = listing[config.Finding]{
	columns: []column[config.Finding]{
		{title: "KEY", cell: func(f config.Finding) string { return f.Key }},
		{title: "VALUE", cell: func(f config.Finding) string { return f.Value }},
		{title: "VERDICT", cell: func(f config.Finding) string { return f.Verdict }},
		{title: "WHY", cell: func(f config.Finding) string { return f.Why }},
		{title: "DEFAULT", wide: true, cell: func(f config.Finding) string { return f.Default }},
		{title: "FROM", wide: true, cell: func(f config.Finding) string { return f.From }},
	},
	name: func(f config.Finding) string { return f.Key },
}

func (a *app) configCheck() *cobra.Command {
	var from sources
	return a.leaf(leaf{
		use: "check FILE", short: "Say of each key of a server.properties what becomes of it; exit 1 if ottla would not start with it.",
		example: "ottla config check server.properties\nottla config check /etc/kafka/server.properties --no-env -o json",
		args:    cobra.ExactArgs(1), result: config.Report{}, flags: from.flags,
		run: func(_ context.Context, args []string) error {
			report, err := config.Check(a.sources(from, args))
			if err != nil {
				return err
			}
			if a.format == "json" || a.format == "jsonl" {
				err = writeJSON(a.out, report, a.format == "json")
			} else {
				err = verdictListing.show(a, report.Findings)
			}
			if err != nil {
				return err
			}
			if len(report.Errors) > 0 {
				return errors.New(strings.Join(report.Errors, "\n"))
			}
			a.note("%s", summary(report))
			return nil
		},
	})
}

// summary counts the verdicts: "12 used, 3 ignored, 1 unknown".
func summary(r *config.Report) string {
	counts := map[string]int{}
	for _, f := range r.Findings {
		counts[f.Verdict]++
	}
	var parts []string
	for _, verdict := range []string{"used", "used differently", "not yet", "ignored", "unknown"} {
		if counts[verdict] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[verdict], verdict))
		}
	}
	if len(parts) == 0 {
		return "no settings; the defaults hold"
	}
	return strings.Join(parts, ", ") + "; ottla starts with this"
}

func (a *app) configShow() *cobra.Command {
	var from sources
	var origin, all bool
	return a.leaf(leaf{
		use: "show [FILE]", short: "Print the configuration that a start here would have, and who set what.",
		example: "ottla config show\nottla config show server.properties --origin\nottla config show server.properties --set num.partitions=3 --all -o json",
		args:    cobra.MaximumNArgs(1), result: []config.Line{},
		flags: func(f *pflag.FlagSet) {
			from.flags(f)
			f.BoolVar(&origin, "origin", false, "who set each value")
			f.BoolVar(&all, "all", false, "defaults as well")
		},
		run: func(_ context.Context, args []string) error {
			c, err := config.Parse(a.sources(from, args))
			if err != nil {
				return err
			}
			rows := c.Show()
			if !all {
				rows = slices.DeleteFunc(rows, func(l config.Line) bool { return !l.Set })
			}
			if (a.format == "table" || a.format == "wide") && !origin {
				for _, l := range rows {
					fmt.Fprintf(a.out, "%s=%s\n", l.Key, l.Value)
				}
				return nil
			}
			return lineListing.show(a, rows)
		},
	})
}

var lineListing = listing[config.Line]{
	columns: []column[config.Line]{
		{title: "KEY", cell: func(l config.Line) string { return l.Key }},
		{title: "VALUE", cell: func(l config.Line) string { return l.Value }},
		{title: "ORIGIN", cell: func(l config.Line) string { return l.Origin }},
	},
	name:  func(l config.Line) string { return l.Key },
	empty: "nothing is set; --all shows the defaults",
}
