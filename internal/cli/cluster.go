package cli

import (
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
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol"
)

func (a *app) cluster() *cobra.Command {
	return group("cluster", "The whole cluster: status, health, quorum, features.",
		a.clusterStatus(), a.clusterHealth(), a.clusterQuorum(), a.clusterFeatures())
}

// A ClusterStatus is a cluster in numbers.
type ClusterStatus struct {
	ClusterID       string `json:"cluster_id"`
	Controller      int32  `json:"controller" doc:"-1 if none is known"`
	Brokers         int    `json:"brokers"`
	Topics          int    `json:"topics" doc:"internal ones not counted"`
	Partitions      int    `json:"partitions"`
	Offline         int    `json:"offline_partitions"`
	UnderReplicated int    `json:"under_replicated_partitions"`
	NotPreferred    int    `json:"not_preferred_leaders" doc:"partitions that another than their first replica leads"`
}

func clusterStatus(m kadm.Metadata) ClusterStatus {
	s := ClusterStatus{ClusterID: m.Cluster, Controller: m.Controller, Brokers: len(m.Brokers)}
	for _, t := range m.Topics {
		if !t.IsInternal {
			s.Topics++
		}
		row := topicRow(t)
		s.Partitions += row.Partitions
		s.Offline += row.Offline
		s.UnderReplicated += row.UnderReplicated
		for _, p := range t.Partitions {
			if p.Leader >= 0 && len(p.Replicas) > 0 && p.Leader != p.Replicas[0] {
				s.NotPreferred++
			}
		}
	}
	return s
}

func (a *app) clusterStatus() *cobra.Command {
	return a.leaf(leaf{
		use: "status", short: "Show the cluster in numbers.",
		example: "ottla cluster status\nottla cluster status -o json", result: ClusterStatus{},
		run: func(ctx context.Context, _ []string) error {
			adm, err := a.admin(ctx)
			if err != nil {
				return err
			}
			defer adm.Close()
			m, err := adm.Metadata(ctx)
			if err != nil {
				return failed("ask for metadata", err, "", "")
			}
			s := clusterStatus(m)
			return a.showOne(s, s.ClusterID, func(w io.Writer) {
				writeTable(w, [][]string{
					{"cluster", s.ClusterID},
					{"brokers", fmt.Sprintf("%d, controller %d", s.Brokers, s.Controller)},
					{"topics", fmt.Sprintf("%s, %s", count(int64(s.Topics)), plenty(int64(s.Partitions), "partition"))},
					{"offline", count(int64(s.Offline))},
					{"under-replicated", count(int64(s.UnderReplicated))},
					{"not at preferred leader", count(int64(s.NotPreferred))},
				}, []bool{false, false})
			})
		},
	})
}

// A ClusterHealth is a verdict with what is wrong.
type ClusterHealth struct {
	Healthy  bool     `json:"healthy"`
	Problems []string `json:"problems" doc:"worst first"`
}

// judge finds what is wrong in a cluster's metadata.
func judge(m kadm.Metadata) ClusterHealth {
	h := ClusterHealth{Problems: []string{}}
	if m.Controller < 0 {
		h.Problems = append(h.Problems, "no active controller is known")
	}
	var offline, under []string
	for _, t := range m.Topics.Sorted() {
		for _, p := range t.Partitions.Sorted() {
			name := fmt.Sprintf("%s-%d", t.Topic, p.Partition)
			switch {
			case p.Leader < 0:
				offline = append(offline, name)
			case len(p.ISR) < len(p.Replicas):
				under = append(under, name)
			}
		}
	}
	for _, problem := range []struct {
		names []string
		what  string
	}{{offline, "offline"}, {under, "under-replicated"}} {
		if n := len(problem.names); n > 0 {
			h.Problems = append(h.Problems, fmt.Sprintf("%s %s: %s", plenty(int64(n), "partition"), problem.what, few(problem.names)))
		}
	}
	h.Healthy = len(h.Problems) == 0
	return h
}

// few names the first five and counts the rest.
func few(names []string) string {
	if len(names) <= 5 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:5], ", "), len(names)-5)
}

func (a *app) clusterHealth() *cobra.Command {
	var watch, exit bool
	return a.leaf(leaf{
		use: "health", short: "Say whether anything is wrong; exit 10 if so.",
		example: "ottla cluster health\nottla cluster health -w\nottla cluster health -e --timeout 60s   # wait until it is healthy", result: ClusterHealth{},
		flags: func(f *pflag.FlagSet) {
			f.BoolVarP(&watch, "watch", "w", false, "go on and print each change")
			f.BoolVarP(&exit, "exit-when-healthy", "e", false, "wait until the cluster is healthy, at most --timeout")
		},
		run: func(ctx context.Context, _ []string) error {
			adm, err := a.admin(ctx)
			if err != nil {
				return err
			}
			defer adm.Close()
			deadline := time.Now().Add(a.timeout)
			last := ""
			for {
				m, err := adm.Metadata(ctx)
				if err != nil {
					return failed("ask for metadata", err, "", "")
				}
				h := judge(m)
				ends := !watch && !exit || exit && (h.Healthy || time.Now().After(deadline))
				if now := fmt.Sprint(h); now != last && (watch || ends) {
					last = now
					if err := errors.Join(a.showHealth(h), a.out.Flush()); err != nil {
						return err
					}
				}
				if ends {
					return unhealthy(h)
				}
				if err := wait(ctx, time.Second); err != nil {
					return err
				}
			}
		},
	})
}

func (a *app) showHealth(h ClusterHealth) error {
	name := map[bool]string{true: "healthy", false: "unhealthy"}[h.Healthy]
	return a.showOne(h, name, func(w io.Writer) {
		fmt.Fprintln(w, name)
		for _, p := range h.Problems {
			fmt.Fprintln(w, "  "+p)
		}
	})
}

func unhealthy(h ClusterHealth) error {
	if h.Healthy {
		return nil
	}
	return &conditionError{"the cluster is unhealthy (see: ottla partition list --troubled)"}
}

// wait sleeps unless ctx ends first.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// A QuorumReplica is a controller or broker that follows the metadata log.
type QuorumReplica struct {
	ID           int32      `json:"id"`
	DirectoryID  string     `json:"directory_id"`
	Role         string     `json:"role" doc:"leader, follower or observer"`
	LogEndOffset int64      `json:"log_end_offset"`
	Lag          int64      `json:"lag" doc:"records behind the leader"`
	LastFetch    *time.Time `json:"last_fetch" doc:"null if unknown"`
	LastCaughtUp *time.Time `json:"last_caught_up" doc:"null if unknown"`
}

// A QuorumStatus is the state of the metadata quorum.
type QuorumStatus struct {
	Leader        int32           `json:"leader"`
	Epoch         int32           `json:"epoch"`
	HighWatermark int64           `json:"high_watermark"`
	Replicas      []QuorumReplica `json:"replicas"`
}

var quorumListing = listing[QuorumReplica]{
	columns: []column[QuorumReplica]{
		{title: "ID", right: true, cell: func(r QuorumReplica) string { return number(r.ID) }},
		{title: "ROLE", cell: func(r QuorumReplica) string { return r.Role }},
		{title: "LOG END", right: true, cell: func(r QuorumReplica) string { return offset(r.LogEndOffset) }},
		{title: "LAG", right: true, cell: func(r QuorumReplica) string { return count(r.Lag) }},
		{title: "LAST FETCH", wide: true, cell: func(r QuorumReplica) string { return moment(r.LastFetch) }},
		{title: "CAUGHT UP", wide: true, cell: func(r QuorumReplica) string { return moment(r.LastCaughtUp) }},
		{title: "DIRECTORY", wide: true, cell: func(r QuorumReplica) string { return r.DirectoryID }},
	},
}

func moment(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(time.RFC3339)
}

func (a *app) clusterQuorum() *cobra.Command {
	return a.leaf(leaf{
		use: "quorum", short: "Show the controllers that keep the metadata log, and who follows it.",
		example: "ottla cluster quorum\nottla cluster quorum -o wide", result: QuorumStatus{},
		run: func(ctx context.Context, _ []string) error {
			client, err := a.dial(ctx)
			if err != nil {
				return err
			}
			defer client.Close()
			req := kmsg.NewPtrDescribeQuorumRequest()
			t := kmsg.NewDescribeQuorumRequestTopic()
			t.Topic = "__cluster_metadata"
			t.Partitions = append(t.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
			req.Topics = append(req.Topics, t)
			resp, err := req.RequestWith(ctx, client)
			if err == nil {
				err = kerr.ErrorForCode(resp.ErrorCode)
			}
			if err != nil {
				return failed("describe the quorum", err, "", "")
			}
			s, err := quorumStatus(resp)
			if err != nil {
				return err
			}
			return a.showOne(s, number(s.Leader), func(w io.Writer) {
				fmt.Fprintf(w, "leader %d, epoch %d, high watermark %s\n", s.Leader, s.Epoch, count(s.HighWatermark))
				quorumListing.table(w, s.Replicas, a.format == "wide")
			})
		},
	})
}

func quorumStatus(resp *kmsg.DescribeQuorumResponse) (QuorumStatus, error) {
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return QuorumStatus{}, errors.New("describe the quorum: the answer names no metadata log")
	}
	p := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return QuorumStatus{}, failed("describe the quorum", err, deref(p.ErrorMessage), "")
	}
	s := QuorumStatus{Leader: p.LeaderID, Epoch: p.LeaderEpoch, HighWatermark: p.HighWatermark, Replicas: []QuorumReplica{}}
	var end int64
	add := func(list []kmsg.DescribeQuorumResponseTopicPartitionReplicaState, role string) {
		for _, r := range list {
			q := QuorumReplica{ID: r.ReplicaID, DirectoryID: topicID(r.ReplicaDirectoryID), Role: role, LogEndOffset: r.LogEndOffset,
				LastFetch: fromMillis(r.LastFetchTimestamp), LastCaughtUp: fromMillis(r.LastCaughtUpTimestamp)}
			if r.ReplicaID == p.LeaderID && role == "follower" {
				q.Role, end = "leader", r.LogEndOffset
			}
			s.Replicas = append(s.Replicas, q)
		}
	}
	add(p.CurrentVoters, "follower")
	add(p.Observers, "observer")
	for i := range s.Replicas {
		s.Replicas[i].Lag = max(end-s.Replicas[i].LogEndOffset, 0)
	}
	return s, nil
}

func fromMillis(ms int64) *time.Time {
	if ms < 0 {
		return nil
	}
	t := time.UnixMilli(ms).UTC()
	return &t
}

// A Feature is a feature of the cluster with its levels.
type Feature struct {
	Name      string `json:"name"`
	Finalized int16  `json:"finalized" doc:"the level in effect; 0 is off"`
	Min       int16  `json:"min" doc:"lowest level that the asked broker supports"`
	Max       int16  `json:"max" doc:"highest level that the asked broker supports"`
	Epoch     int64  `json:"epoch" doc:"of the finalized levels"`
}

var featureListing = listing[Feature]{
	columns: []column[Feature]{
		{title: "FEATURE", cell: func(f Feature) string { return f.Name }},
		{title: "LEVEL", right: true, cell: func(f Feature) string { return number(f.Finalized) }},
		{title: "SUPPORTED", cell: func(f Feature) string { return fmt.Sprintf("%d–%d", f.Min, f.Max) }},
		{title: "EPOCH", right: true, wide: true, cell: func(f Feature) string { return number(f.Epoch) }},
	},
	name: func(f Feature) string { return f.Name },
}

func (a *app) clusterFeatures() *cobra.Command {
	return a.leaf(leaf{
		use: "features", short: "Show the features of the cluster and their levels, such as metadata.version.",
		example: "ottla cluster features\nottla cluster features -o json", result: []Feature{},
		run: func(ctx context.Context, _ []string) error {
			client, err := a.dial(ctx)
			if err != nil {
				return err
			}
			defer client.Close()
			req := kmsg.NewPtrApiVersionsRequest()
			req.ClientSoftwareName, req.ClientSoftwareVersion = protocol.OwnSoftware, version()
			resp, err := req.RequestWith(ctx, client)
			if err == nil {
				err = kerr.ErrorForCode(resp.ErrorCode)
			}
			if err != nil {
				return failed("ask for features", err, "", "")
			}
			return featureListing.show(a, features(resp))
		},
	})
}

func features(resp *kmsg.ApiVersionsResponse) []Feature {
	var rows []Feature
	for _, s := range resp.SupportedFeatures {
		f := Feature{Name: s.Name, Min: s.MinVersion, Max: s.MaxVersion, Epoch: resp.FinalizedFeaturesEpoch}
		for _, level := range resp.FinalizedFeatures {
			if level.Name == s.Name {
				f.Finalized = level.MaxVersionLevel
			}
		}
		rows = append(rows, f)
	}
	slices.SortFunc(rows, func(a, b Feature) int { return strings.Compare(a.Name, b.Name) })
	return rows
}
