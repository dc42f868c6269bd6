package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"ottla/internal/config"
)

func (a *app) groups() *cobra.Command {
	return plural(group("group", "Consumer groups of both protocols: list, describe, seek, delete offsets, delete.",
		a.groupList(), a.groupDescribe(), a.groupSeek(), a.groupDeleteOffsets(), a.groupDelete()))
}

// A GroupRow is a group as `group list` prints it.
type GroupRow struct {
	Name         string `json:"name"`
	Type         string `json:"type" doc:"classic, consumer, share or streams; empty if the broker is too old to tell"`
	State        string `json:"state" doc:"in Kafka's words, such as Stable or Empty"`
	ProtocolType string `json:"protocol_type" doc:"consumer, connect or whatever the members call it; empty if no member ever joined"`
	Coordinator  int32  `json:"coordinator" doc:"the broker that looks after it"`
}

var groupListing = listing[GroupRow]{
	columns: []column[GroupRow]{
		{title: "NAME", cell: func(g GroupRow) string { return g.Name }},
		{title: "TYPE", cell: func(g GroupRow) string { return orDash(g.Type) }},
		{title: "STATE", cell: func(g GroupRow) string { return orDash(g.State) }},
		{title: "PROTOCOL TYPE", wide: true, cell: func(g GroupRow) string { return orDash(g.ProtocolType) }},
		{title: "COORDINATOR", wide: true, right: true, cell: func(g GroupRow) string { return number(g.Coordinator) }},
	},
	name:  func(g GroupRow) string { return g.Name },
	empty: "no groups",
}

func (a *app) groupList() *cobra.Command {
	var regex bool
	var states, types []string
	return a.leaf(leaf{
		use: "list [NAME…]", short: "List groups, all or those that match.",
		example: "ottla group list\nottla group list 'flink-*' --state Empty\nottla group list --type consumer -o name",
		args:    cobra.ArbitraryArgs, complete: a.completeGroups, result: []GroupRow{},
		flags: func(f *pflag.FlagSet) {
			f.BoolVarP(&regex, "regex", "r", false, "names are regular expressions, not globs")
			f.StringSliceVar(&states, "state", nil, "only groups in these states, such as Stable, Empty or Dead")
			f.StringSliceVar(&types, "type", nil, "only groups of these types: classic, consumer, share, streams")
		},
		run: func(ctx context.Context, args []string) error {
			adm, err := a.admin(ctx)
			if err != nil {
				return err
			}
			defer adm.Close()
			groups, err := matchGroups(ctx, adm, args, regex)
			if err != nil {
				return err
			}
			var rows []GroupRow
			for _, g := range groups {
				if among(states, g.State) && among(types, g.GroupType) {
					rows = append(rows, GroupRow{g.Group, g.GroupType, g.State, g.ProtocolType, g.Coordinator})
				}
			}
			return groupListing.show(a, rows)
		},
	})
}

// among reports whether word is one of some, in any case of letters; if there are none every word is.
func among(some []string, word string) bool {
	return len(some) == 0 || slices.ContainsFunc(some, func(s string) bool { return strings.EqualFold(s, word) })
}

// matchGroups returns the groups that match one of the patterns, sorted; all if there are none. A plain name that does
// not exist is an error.
func matchGroups(ctx context.Context, adm *kadm.Client, patterns []string, regex bool) ([]kadm.ListedGroup, error) {
	all, err := adm.ListGroups(ctx)
	if err != nil {
		return nil, failed("list groups", err, "", "")
	}
	names, err := matchNames(all.Groups(), patterns, regex)
	if err != nil {
		return nil, err
	}
	var out []kadm.ListedGroup
	for _, name := range names {
		g, ok := all[name]
		if !ok {
			return nil, noGroup(name, all.Groups())
		}
		out = append(out, g)
	}
	return out, nil
}

func noGroup(name string, all []string) error {
	hint := "ottla group list shows what there is"
	if near := config.Suggest(name, all); near != "" {
		hint = "did you mean " + near + "?"
	}
	return failed("group "+name, kerr.GroupIDNotFound, "", hint)
}

// completeGroups gives the names of groups to the shell.
func (a *app) completeGroups(ctx context.Context, prefix string) []string {
	a.timeout = time.Second
	adm, err := a.admin(ctx)
	if err != nil {
		return nil
	}
	defer adm.Close()
	groups, err := adm.ListGroups(ctx)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(groups.Groups(), func(name string) bool { return !strings.HasPrefix(name, prefix) })
}

// A GroupDeleted is a group that was deleted.
type GroupDeleted struct {
	Name    string `json:"name"`
	Missing bool   `json:"missing" doc:"it was not there, and --if-exists was given"`
}

func (a *app) groupDelete() *cobra.Command {
	var regex, ifExists bool
	return a.leaf(leaf{
		use: "delete NAME…", short: "Delete groups without members, with all their offsets.",
		example: "ottla group delete old-job\nottla group delete 'test-*' --yes\nottla group delete -r '^console-' --dry-run",
		args:    cobra.MinimumNArgs(1), complete: a.completeGroups, result: []GroupDeleted{},
		flags: func(f *pflag.FlagSet) {
			f.BoolVarP(&regex, "regex", "r", false, "names are regular expressions, not globs")
			f.BoolVar(&ifExists, "if-exists", false, "a group that does not exist is no error")
			a.changes(f)
		},
		run: func(ctx context.Context, args []string) error {
			adm, err := a.admin(ctx)
			if err != nil {
				return err
			}
			defer adm.Close()
			groups, err := matchGroups(ctx, adm, args, regex)
			if ifExists && errors.Is(err, kerr.GroupIDNotFound) {
				return lines(a, []GroupDeleted{{args[0], true}}, func(d GroupDeleted) (string, string) { return d.Name, "missing " + d.Name })
			}
			if err != nil {
				return err
			}
			return a.deleteGroups(ctx, adm, groups)
		},
	})
}

func (a *app) deleteGroups(ctx context.Context, adm *kadm.Client, groups []kadm.ListedGroup) error {
	var names []string
	for _, g := range groups {
		names = append(names, g.Group)
	}
	if len(names) == 0 {
		a.note("no group matches")
		return lines(a, []GroupDeleted(nil), nil)
	}
	a.note("deletes %s with all offsets: %s", plenty(int64(len(names)), "group"), strings.Join(names, ", "))
	agreed, err := a.confirm("delete " + plenty(int64(len(names)), "group"))
	if err != nil || !agreed {
		return err
	}
	resp, err := adm.DeleteGroups(ctx, names...)
	if err != nil {
		return failed("delete groups", err, "", "")
	}
	var deleted []GroupDeleted
	var errs []error
	for _, r := range resp.Sorted() {
		if r.Err != nil {
			errs = append(errs, failed("delete group "+r.Group, r.Err, r.ErrMessage, liveHint(r.Err, r.Group)))
			continue
		}
		deleted = append(deleted, GroupDeleted{Name: r.Group})
	}
	return errors.Join(append(errs, lines(a, deleted, func(d GroupDeleted) (string, string) { return d.Name, "deleted " + d.Name }))...)
}

// liveHint is the next step after an error that only a group with members gives.
func liveHint(err error, name string) string {
	switch {
	case errors.Is(err, kerr.NonEmptyGroup), errors.Is(err, kerr.GroupSubscribedToTopic), errors.Is(err, kerr.UnknownMemberID):
		return "stop its members first; see: ottla group describe " + name
	}
	return ""
}

// An OffsetDeleted is a committed offset that was, or with --dry-run would be, deleted.
type OffsetDeleted struct {
	Group     string `json:"group"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed" doc:"the offset that is forgotten"`
	DryRun    bool   `json:"dry_run,omitempty"`
}

var offsetDeletedListing = listing[OffsetDeleted]{
	columns: []column[OffsetDeleted]{
		{title: "TOPIC", cell: func(o OffsetDeleted) string { return o.Topic }},
		{title: "PARTITION", right: true, cell: func(o OffsetDeleted) string { return number(o.Partition) }},
		{title: "COMMITTED", right: true, cell: func(o OffsetDeleted) string { return offset(o.Committed) }},
	},
	name:  func(o OffsetDeleted) string { return fmt.Sprintf("%s-%d", o.Topic, o.Partition) },
	empty: "no committed offsets there",
}

func (a *app) groupDeleteOffsets() *cobra.Command {
	var topics []string
	return a.leaf(leaf{
		use: "delete-offsets GROUP TOPIC[:PARTITION,…]…", short: "Forget what a group committed for topics that it no longer reads.",
		example: "ottla group delete-offsets flink-logs old-topic\nottla group delete-offsets flink-logs logs:3,4 --dry-run",
		args:    cobra.MinimumNArgs(1), complete: a.completeGroups, result: []OffsetDeleted{},
		flags: func(f *pflag.FlagSet) {
			f.StringArrayVar(&topics, "topic", nil, "another way to name topics")
			a.changes(f)
		},
		run: func(ctx context.Context, args []string) error {
			topics = append(args[1:], topics...)
			if len(topics) == 0 {
				return usagef("group delete-offsets: name topics, as in: ottla group delete-offsets %s hello", args[0])
			}
			set, err := parsePartitions(topics)
			if err != nil {
				return err
			}
			adm, err := a.admin(ctx)
			if err != nil {
				return err
			}
			defer adm.Close()
			groups, err := matchGroups(ctx, adm, args[:1], false)
			if err != nil {
				return err
			}
			if len(groups) != 1 {
				return usagef("group delete-offsets: name one group, not a pattern")
			}
			committed, err := a.committedOffsets(ctx, adm, args[0])
			if err != nil {
				return err
			}
			return a.deleteOffsets(ctx, adm, args[0], doomed(args[0], committed, set))
		},
	})
}

// committedOffsets are a group's offsets; those that cannot be had are an error. A coordinator that is yet to come, as after
// the first question about a group ever, is waited for.
func (a *app) committedOffsets(ctx context.Context, adm *kadm.Client, group string) (kadm.OffsetResponses, error) {
	deadline := time.Now().Add(a.timeout)
	for {
		committed, err := adm.FetchOffsets(ctx, group)
		if err == nil {
			err = committed.Error()
		}
		comes := errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.CoordinatorLoadInProgress) || errors.Is(err, kerr.NotCoordinator)
		if !comes || time.Now().After(deadline) {
			return committed, failed("offsets of group "+group, err, "", "")
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// doomed picks from committed what set names; a topic without partitions means all of them.
func doomed(group string, committed kadm.OffsetResponses, set kadm.TopicsSet) []OffsetDeleted {
	var rows []OffsetDeleted
	for _, o := range committed.Sorted() {
		partitions, named := set[o.Topic]
		_, chosen := partitions[o.Partition]
		if named && o.At >= 0 && (chosen || len(partitions) == 0) {
			rows = append(rows, OffsetDeleted{Group: group, Topic: o.Topic, Partition: o.Partition, Committed: o.At})
		}
	}
	return rows
}

func (a *app) deleteOffsets(ctx context.Context, adm *kadm.Client, group string, rows []OffsetDeleted) error {
	for i := range rows {
		rows[i].DryRun = a.dryRun
	}
	if len(rows) == 0 || a.dryRun {
		return offsetDeletedListing.show(a, rows)
	}
	agreed, err := a.confirm(fmt.Sprintf("forget %s of group %s", plenty(int64(len(rows)), "committed offset"), group))
	if err != nil || !agreed {
		return err
	}
	set := kadm.TopicsSet{}
	for _, r := range rows {
		set.Add(r.Topic, r.Partition)
	}
	resp, err := adm.DeleteOffsets(ctx, group, set)
	if err != nil {
		return failed("delete offsets of group "+group, err, "", liveHint(err, group))
	}
	var deleted []OffsetDeleted
	var errs []error
	for _, r := range rows {
		if err, _ := resp.Lookup(r.Topic, r.Partition); err != nil {
			errs = append(errs, failed(fmt.Sprintf("delete offset of group %s in %s-%d", group, r.Topic, r.Partition), err, "", liveHint(err, group)))
			continue
		}
		deleted = append(deleted, r)
	}
	return errors.Join(append(errs, offsetDeletedListing.show(a, deleted))...)
}
