//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// A workload is what WORKLOADS names: a series of measurements on one fresh broker, each round.
type workload struct {
	name     string
	about    string
	minutes  float64        // a round with both brokers, at the default sizes, on 2 quiet cores
	settings []string       // of the broker, key=value
	client   bool           // kbench's null broker is measured, too: what the client alone takes
	limits   bool           // kbench limits is run, too
	sendfile int            // sendfile without a broker over so many connections is measured, too; 0: not
	alone    func(*session) // measures without a broker; the rest is then empty
	run      func(*session)
}

// A scale is what a run's size decides beside rounds and bytes.
type scale struct {
	topics      int // of 10 partitions
	conns       int
	seconds     int     // of a measurement at a fixed rate
	fraction    float64 // of amounts that BYTES does not decide
	partitions  []int
	connections []int
}

var (
	full  = scale{topics: 100, conns: 5000, seconds: 15, fraction: 1, partitions: []int{10, 100, 1000, 10000}, connections: []int{10, 100, 1000, 5000}}
	quick = scale{topics: 5, conns: 100, seconds: 2, fraction: 1. / 64, partitions: []int{10, 100}, connections: []int{10, 100}}
)

// The first eleven do what kbench's run.sh does under the same names.
var plan = []workload{
	{name: "bulk", about: "produce and catch-up fetch, 1 connection, 1 partition", minutes: 1.8, limits: true, sendfile: 1, run: func(s *session) {
		s.warm()
		s.kbench("", "produce", "-topic", "t", "-bytes", s.bytes)
		s.readBack(1, 1)
	}},
	{name: "bulk16", about: "the same with 4 connections and 16 partitions", minutes: 1.8, limits: true, sendfile: 4, run: func(s *session) {
		s.warm()
		s.kbench("", "produce", "-topic", "t", "-partitions", "16", "-conns", "4", "-bytes", s.bytes)
		s.readBack(16, 4)
	}},
	{name: "idempotent", about: "produce with sequence numbers, 4 connections", minutes: 1.4, run: func(s *session) {
		s.warm()
		s.kbench("", "produce", "-topic", "t", "-idempotent", "-partitions", "4", "-conns", "4", "-bytes", s.bytes)
	}},
	{name: "lz4", about: "produce batches compressed with lz4, 4 connections", minutes: 1.5, run: func(s *session) {
		s.warm()
		s.kbench("", "produce", "-topic", "t", "-codec", "lz4", "-partitions", "4", "-conns", "4", "-bytes", s.bytes)
	}},
	{name: "small", about: "one record of 100 B a request", minutes: 0.9, run: func(s *session) {
		one := []string{"-record-size", "100", "-batch-bytes", "1", "-partitions", "4", "-conns", "4", "-inflight", "64"}
		s.quiet("produce", append(one, "-topic", "warm", "-bytes", s.share(60e6))...)
		s.kbench("", "produce", append(one, "-topic", "t", "-bytes", s.share(30e6))...)
	}},
	{name: "steady", about: "50 MB/s: latency and CPU at a fixed load", minutes: 1.7, run: func(s *session) {
		s.warm()
		s.kbench("", "produce", append(s.steady(s.seconds), "-topic", "t", "-partitions", "4", "-conns", "2")...)
	}},
	{name: "e2e-1k", about: "1,000 × 100 B/s to a tailing consumer", minutes: 1.8, run: func(s *session) {
		s.warm()
		s.kbench("", "e2e", "-topic", "t", "-rate", "1000", "-record-size", "100", "-time", s.duration(s.seconds))
	}},
	{name: "e2e-10k", about: "10,000 × 1 kB/s to a tailing consumer", minutes: 1.8, run: func(s *session) {
		s.warm()
		s.kbench("", "e2e", append(tenThousand(s.duration(s.seconds)), "-topic", "t", "-partitions", "4")...)
	}},
	{name: "meta", about: "1,000 partitions: created, used, restarted", minutes: 0.7, run: func(s *session) {
		topics := strconv.Itoa(s.topics)
		s.kbench("", "meta", "-topic", "m", "-topics", topics, "-partitions", "10")
		s.restart(false)
		s.ready("meta/restart", "-topic", "m", "-topics", topics, "-partitions", "10", "-settle", "2s")
	}},
	{name: "conns", about: "5,000 idle connections, each used once", minutes: 0.5, run: func(s *session) {
		s.kbench("", "conns", "-topic", "t", "-partitions", "4", "-n", strconv.Itoa(s.conns))
	}},
	{name: "crash", about: "kill -9 after fresh data, restart, all read again", minutes: 0.9, run: func(s *session) {
		sent := s.quiet("produce", "-topic", "t", "-partitions", "4", "-conns", "4", "-bytes", s.bytes)
		s.restart(true)
		s.ready("crash/restart", "-topic", "t-crash")
		s.quiet("fetch", "-topic", "t", "-partitions", "4", "-check", "-records", strconv.Itoa(int(sent["records"])))
	}},
	{name: "fsync-64k", about: "fsync on every ack, 64 KiB batches, 16 connections and partitions", minutes: 1.2, limits: true,
		settings: []string{"log.flush.interval.messages=1"}, run: func(s *session) { // warmed by its own kind: the usual warm-up would take minutes
			all := []string{"-conns", "16", "-inflight", "1", "-partitions", "16"}
			s.quiet("produce", append(all, "-topic", "warm", "-bytes", s.share(512<<20))...)
			s.kbench("", "produce", append(all, "-topic", "t", "-bytes", s.share(1<<30))...)
		}},
	{name: "fsync-1k", about: "fsync on every ack, one record of 1 kB, 16 connections, 1 partition", minutes: 1.1,
		settings: []string{"log.flush.interval.messages=1"}, run: func(s *session) {
			all := []string{"-conns", "16", "-inflight", "1", "-partitions", "1", "-record-size", "1000", "-batch-bytes", "1100"}
			s.quiet("produce", append(all, "-topic", "warm", "-bytes", s.share(15e6))...)
			s.kbench("", "produce", append(all, "-topic", "t", "-bytes", s.share(30e6))...)
		}},
	{name: "rolling", about: "steady, while segments roll, indexes flush and retention deletes", minutes: 2.0,
		settings: []string{"log.retention.check.interval.ms=1000", "log.initial.task.delay.ms=0"}, run: (*session).rolling},
	{name: "tail", about: "10,000 × 1 kB/s to no, one and ten consumers of one partition", minutes: 3.1, run: (*session).tailing},
	{name: "partitions", about: "50 MB/s over 10 to 10,000 partitions", minutes: 5.6, client: true, run: (*session).byPartitions},
	{name: "connections", about: "50 MB/s from 10 to 5,000 connections", minutes: 4.5, client: true, run: (*session).byConnections},
	{name: "commit-classic", about: "1,000 groups × 4 members that commit every second, classic protocol", minutes: 3.2, settings: noDelay, run: func(s *session) { s.commits("classic") }},
	{name: "commit-consumer", about: "the same under the protocol of KIP-848", minutes: 3.2, settings: noDelay, run: func(s *session) { s.commits("consumer") }},
	{name: "rebalance-classic", about: "a group of 500 members: its start, and a rolling restart, classic protocol", minutes: 4, settings: noDelay, run: func(s *session) { s.rebalances("classic") }},
	{name: "rebalance-consumer", about: "the same under the protocol of KIP-848", minutes: 4, settings: noDelay, run: func(s *session) { s.rebalances("consumer") }},
	{name: "inner", about: "Go benchmarks of inner parts, with allocations", minutes: 1.2, alone: (*session).inner},
}

// noDelay has a group's first rebalance wait for nobody, as where brokers are tried out.
var noDelay = []string{"group.initial.rebalance.delay.ms=0"}

// sets are names for several workloads.
var sets = map[string][]string{
	"throughput": {"bulk", "bulk16", "idempotent", "lz4", "small"},
	"latency":    {"steady", "rolling", "e2e-1k", "e2e-10k", "tail"},
	"fsync":      {"fsync-64k", "fsync-1k"},
	"lifecycle":  {"meta", "conns", "crash"},
	"curves":     {"partitions", "connections"},
	"groups":     {"commit-classic", "commit-consumer", "rebalance-classic", "rebalance-consumer"},
}

func init() {
	for _, w := range plan {
		sets["all"] = append(sets["all"], w.name)
	}
}

// choose returns the workloads that names, separated by spaces, stand for, in the order of the plan.
func choose(names string) (chosen []workload, err error) {
	wanted := map[string]bool{}
	for _, n := range strings.Fields(names) {
		if members, ok := sets[n]; ok {
			for _, m := range members {
				wanted[m] = true
			}
		} else if slices.ContainsFunc(plan, func(w workload) bool { return w.name == n }) {
			wanted[n] = true
		} else {
			return nil, fmt.Errorf("there is no workload %q; bench -list shows which there are", n)
		}
	}
	for _, w := range plan {
		if wanted[w.name] {
			chosen = append(chosen, w)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no workload is named; bench -list shows which there are")
	}
	return chosen, nil
}

func list(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WORKLOAD\tMINUTES A ROUND\t")
	of := map[string]float64{}
	for _, w := range plan {
		of[w.name] = w.minutes
		fmt.Fprintf(t, "%s\t%.1f\t%s\n", w.name, w.minutes, w.about)
	}
	fmt.Fprintln(t, "\nSET\t\t")
	for _, name := range []string{"throughput", "latency", "fsync", "lifecycle", "curves", "groups", "all"} {
		sum := 0.0
		for _, m := range sets[name] {
			sum += of[m]
		}
		fmt.Fprintf(t, "%s\t%.1f\t%s\n", name, sum, strings.Join(sets[name], " "))
	}
	return t.Flush()
}

// warm lets compilers, caches and pools settle, and the disk after them.
func (s *session) warm() {
	if s.client() {
		return
	}
	s.quiet("produce", "-topic", "warm", "-partitions", "4", "-conns", "4", "-bytes", s.options.warm)
	s.quiet("fetch", "-topic", "warm", "-partitions", "4", "-conns", "4")
	s.sync()
}

// readBack reads as consumers would, without copies, then checks each byte.
func (s *session) readBack(partitions, conns int) {
	all := []string{"-topic", "t", "-partitions", strconv.Itoa(partitions)}
	s.kbench("/fetch", "fetch", append(all, "-conns", strconv.Itoa(conns))...)
	s.kbench("/fetch-drop", "fetch", append(all, "-conns", strconv.Itoa(conns), "-drop")...)
	s.quiet("fetch", append(all, "-check")...)
}

func (s *session) commits(protocol string) {
	size := []string{"-groups", "1000", "-warm", "20s", "-time", "60s"}
	if s.quick {
		size = []string{"-groups", "10", "-warm", "1s", "-time", "2s"}
	}
	s.load("", "commit", append(size, "-protocol", protocol)...)
}

func (s *session) rebalances(protocol string) {
	size := []string{"-members", "500", "-partitions", "1000"}
	if s.quick {
		size = []string{"-members", "10", "-partitions", "20"}
	}
	s.load("", "rebalance", append(size, "-protocol", protocol)...)
}

const steadyRate = 50 // MB/s

func (s *session) steady(seconds int) []string {
	return []string{"-rate", strconv.Itoa(steadyRate), "-bytes", fmt.Sprintf("%dMB", steadyRate*seconds)}
}

func (s *session) duration(seconds int) string {
	return (time.Duration(seconds) * time.Second).String()
}

func tenThousand(length string) []string {
	return []string{"-rate", "10000", "-record-size", "1000", "-batch-records", "10", "-time", length}
}

// rolling is steady on a topic of small segments, and proves that retention kept up.
func (s *session) rolling() {
	const lead = 5 // seconds before the measurement, so that deleting has begun
	s.warm()
	s.createTopic("t", 4, map[string]string{"segment.bytes": "8388608", "retention.bytes": "16777216", "file.delete.delay.ms": "1000"})
	flags := []string{"-topic", "t", "-partitions", "4", "-conns", "2"}
	s.quiet("produce", append(s.steady(lead), flags...)...)
	if !s.kbench("", "produce", append(s.steady(s.seconds), flags...)...) {
		return
	}
	produced := float64(steadyRate * (lead + s.seconds))
	kept := 0.0
	for began := time.Now(); time.Since(began) < 15*time.Second; time.Sleep(200 * time.Millisecond) {
		if kept = s.stored("t") / 1e6; kept < produced/2 {
			s.add("/kept", map[string]any{"cmd": "kept", "kept_mb": kept, "produced_mb": produced})
			return
		}
	}
	s.fail("/kept", "kept", fmt.Errorf("%.0f of %.0f MB are still there: retention did not delete", kept, produced))
}

// stored is how many bytes the partitions of a topic take on disk.
func (s *session) stored(topic string) (sum float64) {
	files, err := filepath.Glob(filepath.Join(s.node.data, topic+"-*", "*.log*"))
	if err != nil {
		panic(err) // the pattern is ours
	}
	for _, f := range files {
		if i, err := os.Stat(f); err == nil { // one that is gone takes nothing
			sum += float64(i.Size())
		}
	}
	return sum
}

// tailing measures the same stream with no, one and ten consumers. One consumer is e2e's own; the others are kbench fetch.
func (s *session) tailing() {
	s.warm()
	s.createTopic("t", 1, nil)
	// The batches of e2e: ten records of 1,000 bytes make some 10.13 kB.
	s.kbench("/0", "produce", "-topic", "t", "-partitions", "1", "-conns", "1", "-inflight", "1000", "-record-size", "1000", "-batch-bytes", "10240",
		"-rate", "10.13", "-bytes", fmt.Sprintf("%dKB", 10130*s.seconds))
	one := append(tenThousand(s.duration(s.seconds)), "-topic", "t", "-partitions", "1")
	s.kbench("/1", "e2e", one...)
	others := make(chan error, 1)
	go func() { // it outlives e2e's three seconds of warm-up and its measurement
		_, err := s.command("fetch", "-topic", "t", "-partitions", "1", "-fanout", "-conns", "9", "-tail", s.duration(s.seconds+6))
		others <- err
	}()
	s.kbench("/10", "e2e", one...)
	if err := <-others; err != nil {
		s.fail("/10", "fetch", err)
	}
}

// The scaling curves use smaller batches, so that each of 10,000 partitions is written to several times.
const curveBatch = 16 << 10

// firstFlush is how long after its first records a partition may still be made: its first flush writes the leader epochs, once and for all. What is
// measured is partitions that are in use.
const firstFlush = 5 * time.Second

func (s *session) byPartitions() {
	s.warm()
	for _, n := range s.partitions {
		topic := fmt.Sprint("p", n)
		s.createTopic(topic, n, nil)
		flags := []string{"-topic", topic, "-partitions", strconv.Itoa(n), "-conns", "4", "-batch-bytes", strconv.Itoa(curveBatch)}
		s.quiet("produce", append(flags, "-bytes", strconv.Itoa(n*curveBatch))...) // each once
		time.Sleep(firstFlush)
		s.sync()
		s.kbench(fmt.Sprint("/", n), "produce", append(s.steady(s.seconds), flags...)...)
	}
}

// byConnections does not use kbench, which takes a thread a connection at a fixed rate: with thousands it is the bottleneck itself.
func (s *session) byConnections() {
	s.warm()
	s.createTopic("t", 10, nil)
	for _, n := range s.connections {
		s.load(fmt.Sprint("/", n), "produce", "-topic", "t", "-partitions", "10", "-conns", strconv.Itoa(n), "-rate", strconv.Itoa(steadyRate),
			"-time", s.duration(s.seconds))
	}
}
