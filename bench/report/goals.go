package report

import "fmt"

// What is to be reached: the table that ottla's performance is judged by, in its three parts.

// A goal sets one figure of ottla's against another figure, or stands for itself.
type goal struct {
	work    string // what is done
	figure  string // what is looked at, with its unit
	of      figure
	against figure // none: the bound is a value of the figure itself
	least   bool   // the bound is the least allowed; else the most
	bound   float64
	shown   bool // nothing is asked for: there is no bound
}

// A figure is the median of a metric over the rounds of a workload; of several workloads, the highest median.
type figure struct {
	broker    string
	workloads []string
	metric    string
	factor    float64 // to the unit that is shown; 0 is 1
}

func (f figure) stat(rs Results) Stat {
	s := rs.highest(f.broker, f.workloads, f.metric)
	if f.factor != 0 {
		s = s.times(f.factor)
	}
	return s
}

// A verdict says how a goal stands.
type verdict struct {
	of, against Stat
	value       float64 // what is compared with the bound
	known       bool
	met         bool
}

func (g goal) judge(rs Results) (v verdict) {
	v.of = g.of.stat(rs)
	v.known, v.value = v.of.N > 0, v.of.Median
	if g.against.metric != "" {
		v.against = g.against.stat(rs)
		v.known = v.known && v.against.N > 0 && v.against.Median != 0
		if v.known {
			v.value /= v.against.Median
		}
	}
	v.met = v.known && (g.least && v.value >= g.bound || !g.least && v.value <= g.bound)
	return v
}

func (v verdict) String() string {
	switch {
	case !v.known:
		return "not measured"
	case v.met:
		return "met"
	}
	return "**not met**"
}

// toReach is the bound as it is printed.
func (g goal) toReach(unit string) string {
	sign := "≤"
	if g.least {
		sign = "≥"
	}
	return fmt.Sprintf("%s %s%s", sign, short(g.bound), unit)
}

const (
	throughput   = "speed, MB/s"
	cpuPerGB     = "CPU, s/GB"
	cpuPerRecord = "CPU, µs/record"
	first        = "first record stored after, s"
)

// underLoad are the workloads whose peak of memory counts.
var underLoad = []string{"bulk", "bulk/fetch", "bulk16", "bulk16/fetch", "idempotent", "lz4", "small", "steady", "rolling", "e2e-1k", "e2e-10k"}

// besideApache returns what is asked for as a ratio to Apache Kafka.
func besideApache() (goals []goal) {
	const least, most = true, false
	add := func(work, shown, metric string, least bool, bound float64, workloads ...string) {
		goals = append(goals, goal{work, shown, figure{Ottla, workloads, metric, 0}, figure{Apache, workloads, metric, 0}, least, bound, false})
	}
	for _, w := range []struct{ work, workload string }{{"produce, 1 connection, 1 partition", "bulk"}, {"produce, 4 connections, 16 partitions", "bulk16"}} {
		add(w.work, throughput, "mb_s", least, 2.5, w.workload)
		add(w.work, cpuPerGB, "broker_cpu_s_per_gb", most, 0.4, w.workload)
	}
	add("produce, idempotent", cpuPerGB, "broker_cpu_s_per_gb", most, 0.4, "idempotent")
	add("produce, lz4", cpuPerGB, "broker_cpu_s_per_gb", most, 0.5, "lz4")
	add("catch-up fetch, 1 connection, dropped", throughput, "mb_s", least, 1.5, "bulk/fetch-drop")
	// The table asks this of one connection only; of four, as much as sendfile does over four.
	add("catch-up fetch, 4 connections, dropped", throughput, "mb_s", least, 0, "bulk16/fetch-drop")
	goals[len(goals)-1].shown = true
	add("one record a request", "requests/s", "requests_s", least, 3, "small")
	add("one record a request", cpuPerRecord, "broker_cpu_us_per_record", most, 0.25, "small")
	add("steady 50 MB/s", "p99, ms", "p99_ms", most, 0.5, "steady")
	add("steady 50 MB/s", "p99.9, ms", "p999_ms", most, 0.2, "steady")
	add("steady 50 MB/s", cpuPerGB, "broker_cpu_s_per_gb", most, 0.3, "steady")
	for _, w := range []struct{ work, workload string }{{"end to end, 1,000 × 100 B/s", "e2e-1k"}, {"end to end, 10,000 × 1 kB/s", "e2e-10k"}} {
		add(w.work, "p50, ms", "e2e_p50_ms", most, 0.8, w.workload)
		add(w.work, "p99, ms", "e2e_p99_ms", most, 0.1, w.workload)
		add(w.work, "CPU, cores", "broker_cores", most, 0.25, w.workload)
	}
	add("fsync on every ack, 64 KiB batches", throughput, "mb_s", least, 3, "fsync-64k")
	add("fsync on every ack, 64 KiB batches", "p99, ms", "p99_ms", most, 0.2, "fsync-64k")
	add("fsync on every ack, 1 kB batches", "acks/s", "requests_s", least, 10, "fsync-1k")
	add("fsync on every ack, 1 kB batches", "p99, ms", "p99_ms", most, 0.2, "fsync-1k")
	add("start on a fresh directory", first, "first_produce_s", most, 0.05, "start")
	add("memory, idle", "MB", "rss_mb", most, 0.1, "start")
	add("memory, peak under load", "MB", "rss_peak_mb", most, 0.15, underLoad...)
	add("1,000 partitions", "all usable after, s", "create_usable_s", most, 0.1, "meta")
	add("1,000 partitions", "memory each, kB", "rss_kb_per_partition", most, 0.2, "meta")
	add("restart with 1,000 partitions", first, "first_produce_s", most, 0.05, "meta/restart")
	add("`kill -9` after fresh data", first, "first_produce_s", most, 0.1, "crash/restart")
	add("5,000 connections", "opened/s", "opens_s", least, 2, "conns")
	add("5,000 connections", "memory of the broker, MB", "rss_mb", most, 0.35, "conns")
	return goals
}

// besideMachine returns what is asked for as a share of what the machine can do.
func besideMachine() (goals []goal) {
	of := func(workload, metric string) figure { return figure{Ottla, []string{workload}, metric, 0} }
	limit := func(workload, metric string, factor float64) figure {
		return figure{Machine, []string{workload}, metric, factor}
	}
	for _, w := range []struct{ work, workload string }{{"produce, 1 connection", "bulk"}, {"produce, 4 connections", "bulk16"}} {
		goals = append(goals, goal{w.work + ", against TCP → CRC → append in one thread", throughput, of(w.workload, "mb_s"),
			limit(w.workload+"/limits", "tcp_crc_append_gb_s", 1000), true, 0.75, false})
	}
	for _, w := range []struct{ work, workload string }{
		{"fetch, 1 connection", "bulk/fetch"}, {"fetch, 1 connection, dropped", "bulk/fetch-drop"},
		{"fetch, 4 connections", "bulk16/fetch"}, {"fetch, 4 connections, dropped", "bulk16/fetch-drop"},
	} {
		goals = append(goals,
			goal{w.work + ", against sendfile", throughput, of(w.workload, "mb_s"), limit(w.workload, "mb_s", 0), true, 0.85, false},
			goal{w.work + ", against sendfile", cpuPerGB, of(w.workload, "broker_cpu_s_per_gb"), limit(w.workload, "broker_cpu_s_per_gb", 0), false, 1.25, false})
	}
	return goals
}

// The ends of the scaling curves that are to lie close together.
const (
	smallest          = "10"
	mostPartitions    = "10000"
	mostConnections   = "5000"
	mostTailing       = "10"
	partitionChange   = "inner/metadata.PartitionChange"
	garbageCollection = "gc_share"
)

// ofItself returns what is asked of ottla alone: growth from the smallest case of a curve to the largest, and plain bounds.
func ofItself() (goals []goal) {
	of := func(metric string, factor float64, workloads ...string) figure {
		return figure{Ottla, workloads, metric, factor}
	}
	for _, w := range []struct{ curve, largest, work string }{
		{"partitions", mostPartitions, "50 MB/s over 10,000 partitions, against 10"},
		{"connections", mostConnections, "50 MB/s from 5,000 connections, against 10"},
	} {
		for _, f := range []struct{ figure, metric string }{{"p99, ms", "p99_ms"}, {cpuPerGB, "broker_cpu_s_per_gb"}} {
			goals = append(goals, goal{w.work, f.figure, of(f.metric, 0, w.curve+"/"+w.largest), of(f.metric, 0, w.curve+"/"+smallest), false, 1.5, false})
		}
	}
	return append(goals,
		goal{"10 consumers tailing one partition, against 1", "CPU, cores", of("broker_cores", 0, "tail/"+mostTailing), of("broker_cores", 0, "tail/1"), false, 6, false},
		goal{"5,000 connections, each used once", "memory each, kB", of("rss_kb_per_conn_used", 0, "conns"), figure{}, false, 20, false},
		goal{"garbage collection, the workload that has most", "% of CPU", of(garbageCollection, 100, underLoad...), figure{}, false, 3, false},
		goal{"publish a PartitionChange at 100,000 partitions", "µs", of("ns_op", 1e-3, partitionChange+"/1-per-topic", partitionChange+"/100000-per-topic"), figure{}, false, 20, false},
		goal{"publish a PartitionChange at 100,000 partitions", "kB", of("bytes_op", 1e-3, partitionChange+"/1-per-topic", partitionChange+"/100000-per-topic"), figure{}, false, 20, false},
		goal{"Produce of one partition, `acks=all`", "allocations", of("allocs_op", 0, "inner/broker.Produce"), figure{}, false, 12, false},
		goal{"incremental Fetch", "allocations", of("allocs_op", 0, "inner/broker.Fetch"), figure{}, false, 8, false},
	)
}
