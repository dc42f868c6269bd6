//go:build linux

// Command load puts a load on a broker that speaks Kafka's protocol, ottla or Apache Kafka, and measures what its clients see, where kbench can not:
// it has group members, and produces over thousands of connections without being the bottleneck itself. It speaks the protocol by
// itself, a connection and a goroutine a client, and a single thread sends what is due: so thousands of clients take a fraction of one core. One
// broker must lead all partitions and coordinate all groups.
//
//	load commit     many groups whose members commit on a schedule: latency and cost of a commit
//	load rebalance  one large group that starts at once, and is then restarted member by member
//	load produce    produces at a fixed rate, spread over many connections: latency and cost
//
// The first two take -protocol classic, the JoinGroup protocol with a cooperative sticky assignor as its leader runs it, or
// -protocol consumer, that of KIP-848; their members consume no records. Each result is one JSON object a line on standard output. Exit status 1 says
// that a result is missing or that a client was told or found what it must not: an error, an offset or records that were not stored,
// a partition with two owners.
//
// Read [commits], [rebalances] and [produces] for what is measured, [schedule] for how requests are sent, [classicMember] and [consumerMember] for how a
// member behaves, [board] for when a group is stable.
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
	commands := map[string]func(context.Context, []string, io.Writer) error{"commit": commits, "rebalance": rebalances, "produce": produces}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: load commit|rebalance|produce [flags]; load commit -h lists the flags")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](context.Background(), os.Args[2:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "load %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// flags are those of all commands.
type flags struct {
	*flag.FlagSet
	addr, topic, labels string
	partitions, pid     int
	timeout             time.Duration
}

func newFlags(name, topic string, partitions int) *flags {
	f := &flags{FlagSet: flag.NewFlagSet("load "+name, flag.ContinueOnError)}
	f.StringVar(&f.addr, "addr", "127.0.0.1:9092", "broker `host:port`, which leads all partitions and coordinates all groups")
	f.StringVar(&f.topic, "topic", "bench-"+topic, "topic")
	f.StringVar(&f.labels, "labels", "", "space-separated key=value pairs copied to each result, such as broker, workload and round")
	f.IntVar(&f.partitions, "partitions", partitions, "partitions of the topic")
	f.IntVar(&f.pid, "pid", 0, "broker process whose CPU and memory are reported")
	f.DurationVar(&f.timeout, "timeout", 15*time.Minute, "give up after this")
	return f
}

// groupFlags are those of the commands that have groups.
type groupFlags struct {
	*flags
	protocol  string
	members   int
	heartbeat time.Duration
}

func newGroupFlags(name string, members, partitions int) *groupFlags {
	f := &groupFlags{flags: newFlags(name, "groups", partitions)}
	f.StringVar(&f.protocol, "protocol", "classic", "classic or consumer (KIP-848)")
	f.IntVar(&f.members, "members", members, "members of a group")
	f.DurationVar(&f.heartbeat, "heartbeat", 3*time.Second, "heartbeat.interval.ms of classic members; the coordinator sets that of consumer members")
	return f
}

func (f *groupFlags) parse(args []string) error {
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
