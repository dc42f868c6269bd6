package report

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Document is docs/performance.md and the pictures it shows.
type Document struct {
	Markdown []byte
	Pictures map[string][]byte // by file name, to lie in the folder performance beside the document
}

// Render writes the document. notes is Markdown that is kept as it is, for what the lines cannot tell.
func Render(rs Results, notes string) Document {
	d := writer{rs: rs, pictures: map[string][]byte{}}
	d.printf("<!-- Generated: `make bench` measures and writes this, `make performance` writes it from performance/results.jsonl again.\n" +
		"     By hand: performance/notes.md. -->\n\n# Performance\n\n" +
		"ottla beside Apache Kafka 4.4.0, measured by a neutral load generator (kbench) that encodes its requests beforehand and never looks\n" +
		"into a record. A round starts each broker on a fresh directory, warms it until a JVM has compiled its code, measures, stops it, and goes on to\n" +
		"the other; one broker is alive at a time. While something is measured, all memory that is free is taken away, and what is written replaces old files in the page cache, so that no\n" +
		"figure tells what a virtual machine's host takes to find memory. Both have their default settings, Apache with a heap of 1 GB and G1. A figure is the\n" +
		"median of its rounds, with the lowest and the highest in parentheses; a ratio is ottla's median through Apache's.\n\n" +
		"CPU is user and system time of the broker's process, memory its resident set. A GB is 10⁹ bytes of record batches as they are on the wire.\n\n")
	d.summary()
	d.runs()
	d.failures()
	d.goals()
	d.groups()
	d.latencies()
	d.scaling()
	d.tailing()
	d.evenness()
	d.limits()
	d.everything()
	d.inner()
	d.printf("%s\n\n", strings.TrimSpace(notes))
	d.printf("## Measuring again\n\n" +
		"`make bench` runs everything, `make bench WORKLOADS=\"bulk small\"` some of it; `go run ./bench -list` names the workloads and says how long each takes.\n" +
		"What a run measured replaces what the results file had for the same workloads, and leaves the others. `ROUNDS` (3), `BYTES` (2GiB, to each throughput\n" +
		"measurement) and `WARM` (5GiB, before it) change its size; `QUICK=1` tries the whole thing out in a scratch folder with figures that mean nothing.\n")
	return Document{Markdown: d.Bytes(), Pictures: d.pictures}
}

type writer struct {
	bytes.Buffer
	rs       Results
	pictures map[string][]byte
}

func (d *writer) printf(format string, a ...any) { fmt.Fprintf(d, format, a...) }

// table prints rows below a header; without rows, that there are none.
func (d *writer) table(header []string, rows [][]string) {
	if len(rows) == 0 {
		d.printf("Not measured.\n\n")
		return
	}
	d.printf("| %s |\n|%s\n", strings.Join(header, " | "), strings.Repeat("---|", len(header)))
	for _, r := range rows {
		d.printf("| %s |\n", strings.Join(r, " | "))
	}
	d.printf("\n")
}

func (d *writer) picture(name, alt string, charts ...chart) {
	drawn := svg(charts...)
	if drawn == nil {
		d.printf("No picture: not measured.\n\n")
		return
	}
	d.pictures[name] = drawn
	d.printf("![%s](performance/%s)\n\n", alt, name)
}

func (d *writer) runs() {
	d.printf("## The runs\n\n")
	var rows [][]string
	for _, r := range d.rs {
		if !r.About {
			continue
		}
		var of []string
		noise := 0.0
		for _, l := range d.rs {
			if !l.About && l.Run == r.Run {
				if !slices.Contains(of, l.Of) {
					of = append(of, l.Of)
				}
				noise = max(noise, l.Values["other_cores"])
			}
		}
		rows = append(rows, []string{r.Run, r.Text["commit"], fmt.Sprintf("%s × %s, %s GB, Linux %s, %s", r.Text["cores"], r.Text["cpu"], r.Text["memory_gb"], r.Text["kernel"], r.Text["filesystem"]),
			fmt.Sprintf("%s rounds, %s after %s", r.Text["rounds"], r.Text["bytes"], r.Text["warm"]), strings.Join(of, ", "), short(noise)})
	}
	d.table([]string{"run", "ottla", "machine", "size", "workloads", "cores used by others, at most"}, rows)
}

// parts are the goals as the document divides them.
var parts = []struct {
	title, against string
	goals          []goal
}{{"Beside Apache Kafka", "Apache", besideApache()}, {"Beside the machine", "machine", besideMachine()}, {"Of itself", "smallest case", ofItself()}}

func (d *writer) summary() {
	met, missed, unknown, failed := 0, 0, 0, 0
	for _, p := range parts {
		for _, g := range p.goals {
			switch v := g.judge(d.rs); {
			case g.shown:
			case !v.known:
				unknown++
			case v.met:
				met++
			default:
				missed++
			}
		}
	}
	for _, l := range d.rs {
		if l.Error != "" {
			failed++
		}
	}
	d.printf("**Of %d things to reach, %d are met, %d are not, %d are not measured.**", met+missed+unknown, met, missed, unknown)
	if failed > 0 {
		d.printf(" %d measurements failed.", failed)
	}
	d.printf("\n\n")
}

func (d *writer) goals() {
	for i, p := range parts {
		d.printf("## %s\n\n", p.title)
		if i == 1 {
			d.printf("In the same rounds: `kbench limits`, and a process that sends a cached file with sendfile over as many connections, to a reader that\n" +
				"copies, or that drops in the kernel as `-drop` does.\n\n")
		}
		var rows [][]string
		for _, g := range p.goals {
			v := g.judge(d.rs)
			row := []string{g.work, g.figure, v.against.String(), v.of.String(), "–", g.toReach(""), v.String()}
			if g.against.metric == "" {
				row[2] = "–"
			} else if v.known {
				row[4] = short(v.value)
			}
			if i == 1 {
				row[5] = g.toReach(" of it")
			}
			if g.shown {
				row[5], row[6] = "–", ""
			}
			rows = append(rows, row)
		}
		d.table([]string{"work", "figure", p.against, "ottla", "ratio", "to reach", ""}, rows)
	}
}

// quantiles are where a latency distribution is known, from left to right.
var quantiles = []struct{ metric, label string }{{"p50_ms", "p50"}, {"p99_ms", "p99"}, {"p999_ms", "p99.9"}, {"max_ms", "max"}}

// distribution is one broker's latency as a line through the quantiles. prefix is ack_, e2e_ or nothing.
func (d *writer) distribution(name, color string, dashed bool, broker, workload, prefix string) series {
	s := series{name: name, color: color, dashed: dashed}
	for i, q := range quantiles {
		s.points = append(s.points, point{float64(i), d.rs.Stat(broker, workload, prefix+q.metric)})
	}
	return s
}

func latencyChart(title string, lines ...series) chart {
	c := chart{title: title, x: "percentile", y: "latency, ms", series: lines}
	for i, q := range quantiles {
		c.ticks = append(c.ticks, tick{float64(i), q.label})
	}
	return c
}

func (d *writer) latencies() {
	d.printf("## Latency\n\nFrom when a request was due (at a fixed rate), or written, to its acknowledgement; end to end until the tailing consumer has it. The bands\n" +
		"reach from the lowest to the highest round. kbench tells these percentiles and no others; its buckets make them at most 1.6 %% high.\n\n")
	var charts []chart
	for _, w := range []struct{ title, workload, prefix string }{
		{"steady: 50 MB/s, acks=all", "steady", ""},
		{"one record a request, full window", "small", ""},
		{"end to end, 1,000 × 100 B/s", "e2e-1k", "e2e_"},
		{"end to end, 10,000 × 1 kB/s", "e2e-10k", "e2e_"},
		{"fsync on every ack, 16 × 64 KiB", "fsync-64k", ""},
		{"fsync on every ack, 16 × 1 kB", "fsync-1k", ""},
	} {
		charts = append(charts, latencyChart(w.title,
			d.distribution("Apache Kafka", apacheColor, false, Apache, w.workload, w.prefix),
			d.distribution("ottla", ottlaColor, false, Ottla, w.workload, w.prefix)))
	}
	d.picture("latency.svg", "Latency from p50 to the maximum, Apache Kafka and ottla", charts...)
}

func (d *writer) scaling() {
	d.printf("## Scaling at a fixed 50 MB/s\n\nBatches of 16 KiB. Each partition was written to, and flushed, before the measurement. *Client alone* is the same load on a broker that\n" +
		"stores nothing (`kbench null`). The curve by connections is made by `bench/load`, a single thread of which sends what is due: kbench sleeps in a thread a\n" +
		"connection, and of thousands of these its own p99 is hundreds of ms.\n\n")
	for _, curve := range []string{"partitions", "connections"} {
		cases := d.cases(curve)
		latency := chart{title: "p99 by " + curve, x: curve, y: "p99, ms"}
		cpu := chart{title: "broker CPU by " + curve, x: curve, y: "CPU, s/GB", linear: true}
		for i, n := range cases {
			t := tick{float64(i), short(float64(n))}
			latency.ticks, cpu.ticks = append(latency.ticks, t), append(cpu.ticks, t)
		}
		var rows [][]string
		for _, b := range []struct{ broker, name, color string }{{Apache, "Apache Kafka", apacheColor}, {Ottla, "ottla", ottlaColor}, {Client, "client alone", clientColor}} {
			l, c := series{name: b.name, color: b.color, dashed: b.broker == Client}, series{name: b.name, color: b.color}
			for i, n := range cases {
				w := fmt.Sprint(curve, "/", n)
				p99, spent := d.rs.Stat(b.broker, w, "p99_ms"), d.rs.Stat(b.broker, w, "broker_cpu_s_per_gb")
				l.points = append(l.points, point{float64(i), p99})
				if p99.N == 0 {
					continue
				}
				row := []string{short(float64(n)), b.name, d.rs.Stat(b.broker, w, "mb_s").String(), d.rs.Stat(b.broker, w, "p50_ms").String(), p99.String(), "–", "–"}
				if b.broker != Client {
					c.points = append(c.points, point{float64(i), spent})
					row[5], row[6] = spent.String(), d.rs.Stat(b.broker, w, "rss_mb").String()
				}
				rows = append(rows, row)
			}
			latency.series, cpu.series = append(latency.series, l), append(cpu.series, c)
		}
		d.printf("### By %s\n\n", curve)
		d.picture(curve+".svg", "p99 and CPU at 50 MB/s by number of "+curve, latency, cpu)
		d.table([]string{curve, "", "MB/s", "p50, ms", "p99, ms", "CPU, s/GB", "memory, MB"}, rows)
	}
}

// cases returns the numbers N of the workloads curve/N, ascending.
func (d *writer) cases(curve string) []int {
	found := map[int]bool{}
	for _, l := range d.rs {
		if s, ok := strings.CutPrefix(l.Workload, curve+"/"); ok {
			if n, err := strconv.Atoi(s); err == nil {
				found[n] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func (d *writer) tailing() {
	d.printf("## Consumers that tail one partition\n\n10,000 records of 1 kB a second, ten a batch, `acks=all`, read by so many consumers as they come. CPU is the broker's for the whole; that of\n" +
		"the consumers is what is left without the case that has none.\n\n")
	var rows [][]string
	for _, n := range d.cases("tail") {
		for _, b := range []struct{ broker, name string }{{Apache, "Apache Kafka"}, {Ottla, "ottla"}} {
			w := fmt.Sprint("tail/", n)
			cores, none := d.rs.Stat(b.broker, w, "broker_cores"), d.rs.Stat(b.broker, "tail/0", "broker_cores")
			if cores.N == 0 {
				continue
			}
			own, p50, p99 := "–", "–", "–"
			if n > 0 {
				p50, p99 = d.rs.Stat(b.broker, w, "e2e_p50_ms").String(), d.rs.Stat(b.broker, w, "e2e_p99_ms").String()
				if none.N > 0 {
					own = short(cores.Median - none.Median)
				}
			}
			rows = append(rows, []string{strconv.Itoa(n), b.name, cores.String(), own, p50, p99})
		}
	}
	d.table([]string{"consumers", "", "CPU, cores", "of it for consumers", "end to end p50, ms", "p99, ms"}, rows)
}

func (d *writer) evenness() {
	d.printf("## While segments roll\n\nThe steady 50 MB/s again, on a topic whose segments are of 8 MiB and which keeps 16 MiB a partition: some six rolls a second, with their\n" +
		"index flushes and deletions, where *steady* has none.\n\n")
	c := latencyChart("50 MB/s: steady, and while segments roll",
		d.distribution("Apache Kafka", apacheColor, false, Apache, "steady", ""),
		d.distribution("… rolling", apacheColor, true, Apache, "rolling", ""),
		d.distribution("ottla", ottlaColor, false, Ottla, "steady", ""),
		d.distribution("… rolling", ottlaColor, true, Ottla, "rolling", ""))
	d.picture("rolling.svg", "Latency at 50 MB/s, steady and while segments roll", c)
	var rows [][]string
	for _, w := range []string{"steady", "rolling"} {
		for _, b := range []struct{ broker, name string }{{Apache, "Apache Kafka"}, {Ottla, "ottla"}} {
			if d.rs.Stat(b.broker, w, "p50_ms").N == 0 {
				continue
			}
			row := []string{w, b.name}
			for _, q := range quantiles {
				row = append(row, d.rs.Stat(b.broker, w, q.metric).String())
			}
			row = append(row, d.rs.Stat(b.broker, w, "broker_cpu_s_per_gb").String())
			if kept := d.rs.Stat(b.broker, w+"/kept", "kept_mb"); kept.N > 0 {
				row = append(row, fmt.Sprintf("%s of %s", kept, short(d.rs.Stat(b.broker, w+"/kept", "produced_mb").Median)))
			} else {
				row = append(row, "all")
			}
			rows = append(rows, row)
		}
	}
	d.table([]string{"", "", "p50, ms", "p99, ms", "p99.9, ms", "max, ms", "CPU, s/GB", "MB still there at the end"}, rows)
}

func (d *writer) limits() {
	d.printf("## The machine's own limits\n\n`kbench limits`, once in each round that compares with it; best is the best round, as others on a machine only ever slow it.\n\n")
	var rows [][]string
	for _, m := range []struct {
		metric, name, unit string
		least              bool
	}{
		{"memcpy_cached_gb_s", "memcpy, in cache", "GB/s", false},
		{"memcpy_dram_gb_s", "memcpy, in memory", "GB/s", false},
		{"crc32c_cached_gb_s", "CRC-32C, in cache", "GB/s", false},
		{"crc32c_dram_gb_s", "CRC-32C, in memory", "GB/s", false},
		{"tcp_gb_s", "loopback TCP, one connection", "GB/s", false},
		{"tcp_drop_gb_s", "… the receiver drops in the kernel", "GB/s", false},
		{"tcp_crc_append_gb_s", "TCP → CRC → append to a file, one thread", "GB/s", false},
		{"append_gb_s", "append to the page cache, 64 KiB a write", "GB/s", false},
		{"append_64k_fsync_mb_s", "append and fdatasync, 64 KiB each", "MB/s", false},
		{"append_1m_fsync_mb_s", "append and fdatasync, 1 MiB each", "MB/s", false},
		{"sendfile_gb_s", "sendfile to loopback TCP", "GB/s", false},
		{"sendfile_drop_gb_s", "… the receiver drops in the kernel", "GB/s", false},
		{"tcp_rtt_us", "loopback round trip, 128 bytes", "µs", true},
	} {
		var all Results
		for _, l := range d.rs {
			if _, ok := l.Values[m.metric]; ok && l.Broker == Machine {
				l.Workload = "limits"
				all = append(all, l)
			}
		}
		s := all.Stat(Machine, "limits", m.metric)
		if s.N == 0 {
			continue
		}
		best := s.Max
		if m.least {
			best = s.Min
		}
		rows = append(rows, []string{m.name, m.unit, short(s.Median), short(best), strconv.Itoa(s.N)})
	}
	d.table([]string{"limit", "", "median", "best", "rounds"}, rows)
}

// everything lists the workloads that move records, with all that is known of each.
func (d *writer) everything() {
	d.printf("## All figures\n\n")
	var rows [][]string
	seen := map[[2]string]bool{}
	for _, l := range d.rs {
		key := [2]string{l.Workload, l.Broker}
		if _, moves := l.Values["mb_s"]; !moves || l.Broker == Client || seen[key] {
			continue
		}
		seen[key] = true
		of := func(metric string) Stat { return d.rs.Stat(l.Broker, l.Workload, metric) }
		or := func(s Stat) string {
			if s.N == 0 {
				return "–"
			}
			return s.String()
		}
		prefix := ""
		if of("e2e_p50_ms").N > 0 {
			prefix = "e2e_"
		}
		var ms []string
		for _, q := range quantiles {
			if s := of(prefix + q.metric); s.N > 0 {
				ms = append(ms, short(s.Median))
			}
		}
		rows = append(rows, []string{l.Workload, l.Broker, or(of("mb_s")), or(of("requests_s")), strings.Join(ms, " / "), or(of("broker_cpu_s_per_gb")), or(of("broker_cores")),
			or(of("rss_peak_mb")), or(of("client_cores")), or(of("other_cores")), strconv.Itoa(of("mb_s").N)})
	}
	slices.SortStableFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	d.table([]string{"workload", "", "MB/s", "requests/s", "p50 / p99 / p99.9 / max, ms", "CPU, s/GB", "CPU, cores", "peak memory, MB", "client, cores", "others, cores", "rounds"}, rows)
}

// groups shows what consumer groups cost beside Apache Kafka. No bound is set for them.
func (d *writer) groups() {
	d.printf("## Consumer groups\n\nBy `bench/load`, whose members speak the protocols themselves and consume no records.\n\n")
	commit := [][2]string{{"commits_s", "commits/s"}, {"p50_ms", "p50, ms"}, {"p99_ms", "p99, ms"}, {"broker_cpu_us_per_commit", "CPU, µs a commit, heartbeats included"}, {"formed_rss_mb", "memory, MB"}}
	rebalance := [][2]string{{"stable_s", "until all is owned for good, s"}, {"unowned_max_s", "a partition without an owner, at most, s"}, {"broker_cpu_s", "CPU, s"}}
	var rows [][]string
	for _, w := range []struct {
		workload, work string
		figures        [][2]string
	}{
		{"commit-classic", "4,000 members in 1,000 groups commit every second, classic", commit},
		{"commit-consumer", "the same, KIP-848", commit},
		{"rebalance-classic/start", "500 members join at once, classic", rebalance},
		{"rebalance-consumer/start", "the same, KIP-848", rebalance},
		{"rebalance-classic/rolling", "500 members restart one after the other, classic", rebalance},
		{"rebalance-consumer/rolling", "the same, KIP-848", rebalance},
	} {
		for _, f := range w.figures {
			apache, ottla := d.rs.Stat(Apache, w.workload, f[0]), d.rs.Stat(Ottla, w.workload, f[0])
			if apache.N == 0 && ottla.N == 0 {
				continue
			}
			ratio := "–"
			if apache.N > 0 && ottla.N > 0 && apache.Median != 0 {
				ratio = short(ottla.Median / apache.Median)
			}
			rows = append(rows, []string{w.work, f[1], apache.String(), ottla.String(), ratio})
		}
	}
	d.table([]string{"work", "figure", "Apache", "ottla", "ratio"}, rows)
}

func (d *writer) inner() {
	d.printf("## Inner parts\n\nGo benchmarks. What a Produce and a Fetch may allocate is a bound that `go test` holds (`TestAllocations` of the broker and of the log).\n\n")
	var rows [][]string
	seen := map[string]bool{}
	for _, l := range d.rs {
		name, ok := strings.CutPrefix(l.Workload, "inner/")
		if !ok || l.Error != "" || seen[name] {
			continue
		}
		seen[name] = true
		speed := d.rs.Stat(l.Broker, l.Workload, "part_mb_s")
		shown := "–"
		if speed.N > 0 {
			shown = speed.String()
		}
		rows = append(rows, []string{name, d.rs.Stat(l.Broker, l.Workload, "ns_op").String(), shown, d.rs.Stat(l.Broker, l.Workload, "bytes_op").String(),
			d.rs.Stat(l.Broker, l.Workload, "allocs_op").String()})
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	d.table([]string{"benchmark", "ns", "MB/s", "bytes allocated", "allocations"}, rows)
}

// failures says what was tried to measure and gave nothing, which would look as if nobody had tried.
func (d *writer) failures() {
	var rows [][]string
	for _, l := range d.rs {
		if l.Error != "" {
			rows = append(rows, []string{l.Workload, l.Broker, l.Text["round"], strings.ReplaceAll(strings.ReplaceAll(l.Error, "|", "\\|"), "\n", " ")})
		}
	}
	if len(rows) > 0 {
		d.printf("## Failed\n\n")
		d.table([]string{"workload", "", "round", "why"}, rows)
	}
}
