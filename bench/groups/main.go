//go:build linux

// Command groups measures the group coordinator of a broker that speaks Kafka's protocol, ottla or Apache Kafka, by what its
// members see. It speaks the protocol by itself, a connection and a goroutine a member, and consumes no records: so thousands
// of members take a fraction of one core, and the broker is what is measured. One broker must coordinate all groups.
//
//	groups commit     many groups whose members commit on a schedule: latency and cost of a commit
//	groups rebalance  one large group that starts at once, and is then restarted member by member
//
// Both take -protocol classic, the JoinGroup protocol with a cooperative sticky assignor as its leader runs it, or
// -protocol consumer, that of KIP-848. Each result is one JSON object a line on standard output. Exit status 1 says that a
// result is missing or that a member was told or found what it must not: an error to a commit, an offset that was not stored,
// a partition with two owners.
//
// Read [commits] and [rebalances] for what is measured, [classicMember] and [consumerMember] for how a member behaves, [board]
// for when a group is stable.
//
// Figures of all results: broker_cpu_s is the user and system time of -pid and broker_cores that by the wall's, client_cores
// this program's, other_cores everybody else's on the machine, the kernel's threads included: where it is not small, or
// differs much between two brokers, times and percentiles tell about the machine. rss_mb, rss_anon_mb and rss_peak_mb are of
// -pid at the end, in 10⁶ bytes, the peak since its start.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	commands := map[string]func(context.Context, []string, io.Writer) error{"commit": commits, "rebalance": rebalances}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: groups commit|rebalance [flags]; groups commit -h lists the flags")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](context.Background(), os.Args[2:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "groups %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// flags are those of both commands.
type flags struct {
	*flag.FlagSet
	addr, topic, labels string
	protocol            string
	members, partitions int
	pid                 int
	heartbeat, timeout  time.Duration
}

func newFlags(name string, members, partitions int) *flags {
	f := &flags{FlagSet: flag.NewFlagSet("groups "+name, flag.ContinueOnError)}
	f.StringVar(&f.addr, "addr", "127.0.0.1:9092", "broker `host:port`, the coordinator of all groups")
	f.StringVar(&f.topic, "topic", "bench-groups", "topic that the groups subscribe to; made if it does not exist")
	f.StringVar(&f.labels, "labels", "", "space-separated key=value pairs copied to each result, such as broker, workload and round")
	f.StringVar(&f.protocol, "protocol", "classic", "classic or consumer (KIP-848)")
	f.IntVar(&f.members, "members", members, "members of a group")
	f.IntVar(&f.partitions, "partitions", partitions, "partitions of the topic")
	f.IntVar(&f.pid, "pid", 0, "broker process whose CPU and memory are reported")
	f.DurationVar(&f.heartbeat, "heartbeat", 3*time.Second, "heartbeat.interval.ms of classic members; the coordinator sets that of consumer members")
	f.DurationVar(&f.timeout, "timeout", 15*time.Minute, "give up after this")
	return f
}

func (f *flags) parse(args []string) error {
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.protocol != "classic" && f.protocol != "consumer" {
		return fmt.Errorf("-protocol %s: write classic or consumer", f.protocol)
	}
	if f.members < 1 || f.partitions < 1 || f.heartbeat <= 0 {
		return errors.New("-members, -partitions and -heartbeat must be above 0")
	}
	return nil
}

// A result is one measurement.
type result map[string]any

// print writes the result as a line, numbers with five digits. suffix goes behind the label workload.
func (r result) print(out io.Writer, labels, suffix string) error {
	for _, kv := range strings.Fields(labels) {
		k, v, _ := strings.Cut(kv, "=")
		if k == "workload" {
			v += suffix
		}
		r[k] = v
	}
	for k, v := range r {
		if x, ok := v.(float64); ok {
			r[k], _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 5, 64), 64)
		}
	}
	return json.NewEncoder(out).Encode(r)
}
