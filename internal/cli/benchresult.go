package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
	"time"
)

// A BenchResult is one run of `ottla bench`, as it is saved and compared.
type BenchResult struct {
	Kind             string            `json:"kind" doc:"produce, consume or e2e"`
	Started          time.Time         `json:"started"`
	Topic            string            `json:"topic"`
	Partitions       int               `json:"partitions"`
	Records          int64             `json:"records" doc:"without warm-up"`
	Bytes            int64             `json:"bytes" doc:"of values"`
	Errors           int64             `json:"errors"`
	Seconds          float64           `json:"elapsed_seconds"`
	RecordsPerSecond float64           `json:"records_per_second"`
	BytesPerSecond   float64           `json:"bytes_per_second"`
	Latency          *BenchLatency     `json:"latency_ms" doc:"from the intended send; null if there was none to measure"`
	Histogram        []BenchBar        `json:"histogram,omitempty"`
	PerSecond        []BenchSecond     `json:"per_second"`
	Settings         map[string]string `json:"settings" doc:"what the run was asked for"`
	Saved            []string          `json:"saved,omitempty" doc:"files that hold the run"`
}

// BenchLatency is a distribution of times in milliseconds.
type BenchLatency struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// A BenchBar counts the latencies up to a bound.
type BenchBar struct {
	UpTo       float64 `json:"up_to_ms"`
	Count      int64   `json:"count"`
	Share      float64 `json:"share"`
	Cumulative float64 `json:"cumulative"`
}

// A BenchSecond is what happened in one second.
type BenchSecond struct {
	Records   int64   `json:"records"`
	Bytes     int64   `json:"bytes"`
	MaxMillis float64 `json:"max_ms"`
}

// write prints a run for people.
func (r BenchResult) write(w io.Writer) {
	fmt.Fprintf(w, "%s in %.1f s: %s records/s, %s/s, %s\n", plenty(r.Records, "record"), r.Seconds,
		count(int64(r.RecordsPerSecond)), size(r.BytesPerSecond), plenty(r.Errors, "error"))
	if l := r.Latency; l != nil {
		fmt.Fprintf(w, "latency, intended send to %s, ms:  min %s  p50 %s  p95 %s  p99 %s  p99.9 %s  max %s\n",
			map[bool]string{true: "receipt", false: "ack"}[r.Kind == "e2e"],
			threeDigits(l.Min), threeDigits(l.P50), threeDigits(l.P95), threeDigits(l.P99), threeDigits(l.P999), threeDigits(l.Max))
		writeBars(w, r.Histogram)
	}
	if spark, low, high := r.spark(); spark != "" {
		fmt.Fprintf(w, "each second %s  %s–%s/s\n", spark, size(low), size(high))
	}
	if len(r.Saved) > 0 {
		fmt.Fprintf(w, "saved %s\n", strings.Join(r.Saved, ", "))
	}
}

// writeBars draws a histogram: bars show the share of each bound, figures what is at or below it.
func writeBars(w io.Writer, bars []BenchBar) {
	most := 0.0
	for _, b := range bars {
		most = max(most, b.Share)
	}
	for i, b := range bars {
		note := ""
		if i == 0 {
			note = "   (bars: share; figures: cumulative)"
		}
		fmt.Fprintf(w, "  ≤ %6s %-34s %5.1f %%%s\n", milliBound(b.UpTo), bar(b.Share/most, 34), b.Cumulative*100, note)
	}
}

func milliBound(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%g s", ms/1000)
	}
	return fmt.Sprintf("%g", ms)
}

// bar draws a share of width in eighths of a character.
func bar(share float64, width int) string {
	eighths := int(math.Round(share * float64(width) * 8))
	s := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		s += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return s
}

// spark draws the bytes of each whole second; the last, begun one is left out.
func (r BenchResult) spark() (line string, low, high float64) {
	seconds := r.PerSecond
	if len(seconds) > 1 {
		seconds = seconds[:len(seconds)-1]
	}
	if len(seconds) == 0 || r.Bytes == 0 {
		return "", 0, 0
	}
	low = math.Inf(1)
	for _, s := range seconds {
		low, high = min(low, float64(s.Bytes)), max(high, float64(s.Bytes))
	}
	levels := []rune("▁▂▃▄▅▆▇█")
	step := (len(seconds) + 59) / 60 // at most 60 characters
	for i := 0; i < len(seconds); i += step {
		n := 7
		if high > 0 {
			n = int(float64(seconds[i].Bytes) / high * 7)
		}
		line += string(levels[n])
	}
	return line, low, high
}

// kafkaLine prints the run exactly as Apache's perf tools do, so that scripts go on parsing. Their MB
// is a MiB. Source: ProducerPerformance, ConsumerPerformance, EndToEndLatency of Kafka 4.4.
func (r BenchResult) kafkaLine(w io.Writer) {
	mb := r.BytesPerSecond / (1 << 20)
	l := r.Latency
	if l == nil {
		l = &BenchLatency{}
	}
	whole := func(ms float64) int64 { return int64(math.Round(ms)) }
	switch r.Kind {
	case "produce":
		fmt.Fprintf(w, "%d records sent, %f records/sec (%.2f MB/sec), %.2f ms avg latency, %.2f ms max latency, %d ms 50th, %d ms 95th, %d ms 99th, %d ms 99.9th.\n",
			r.Records, r.RecordsPerSecond, mb, l.Mean, l.Max, whole(l.P50), whole(l.P95), whole(l.P99), whole(l.P999))
	case "consume":
		end := r.Started.Add(time.Duration(r.Seconds * float64(time.Second)))
		ms := int64(r.Seconds * 1000)
		fmt.Fprintln(w, "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec")
		fmt.Fprintf(w, "%s, %s, %.4f, %.4f, %d, %.4f, %d, %d, %.4f, %.4f\n", javaMoment(r.Started), javaMoment(end),
			float64(r.Bytes)/(1<<20), mb, r.Records, r.RecordsPerSecond, 0, ms, mb, r.RecordsPerSecond)
	default:
		fmt.Fprintf(w, "Avg latency: %.4f ms\nPercentiles: 50th = %d, 99th = %d, 99.9th = %d\n", l.Mean, whole(l.P50), whole(l.P99), whole(l.P999))
	}
}

// javaMoment prints yyyy-MM-dd HH:mm:ss:SSS; Go has no layout for milliseconds behind a colon.
func javaMoment(t time.Time) string {
	t = t.Local()
	return fmt.Sprintf("%s:%03d", t.Format("2006-01-02 15:04:05"), t.Nanosecond()/1e6)
}

// targets are what a run must reach.
type targets struct {
	maxP99  time.Duration // 0 is none
	minRate float64       // records a second; 0 is none
}

// missed returns a conditionError that names what was missed, or nil.
func (t targets) missed(r BenchResult) error {
	var why []string
	if t.maxP99 > 0 && r.Latency != nil && r.Latency.P99 > float64(t.maxP99.Microseconds())/1000 {
		why = append(why, fmt.Sprintf("p99 is %s ms, over %s", threeDigits(r.Latency.P99), t.maxP99))
	}
	if t.minRate > 0 && r.RecordsPerSecond < t.minRate {
		why = append(why, fmt.Sprintf("rate is %s records/s, under %s", count(int64(r.RecordsPerSecond)), count(int64(t.minRate))))
	}
	if len(why) == 0 {
		return nil
	}
	return &conditionError{"bench target missed: " + strings.Join(why, "; ")}
}

// nextRun finds the first free bench-N in a directory.
func nextRun(dir string) (base string, err error) {
	for n := 1; ; n++ {
		base = fmt.Sprintf("bench-%d", n)
		if dir != "" && dir != "." {
			base = dir + "/" + base
		}
		_, err := os.Stat(base + ".json")
		if errors.Is(err, fs.ErrNotExist) {
			return base, nil
		}
		if err != nil {
			return "", err
		}
	}
}

// readRun loads a saved run.
func readRun(path string) (BenchResult, error) {
	var r BenchResult
	b, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s: %w (it must be a run saved by ottla bench)", path, err)
	}
	return r, nil
}

// A Delta compares one figure of two runs.
type Delta struct {
	Figure string  `json:"figure"`
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	Change float64 `json:"change" doc:"share of before; 0.1 is ten percent more"`
	Better string  `json:"better" doc:"yes, no or same (within two percent)"`
}

// compare lists the figures that both runs have.
func compare(before, after BenchResult) []Delta {
	var out []Delta
	add := func(figure string, b, a float64, moreIsBetter bool) {
		d := Delta{Figure: figure, Before: b, After: a, Better: "same"}
		if b != 0 {
			d.Change = a/b - 1
		}
		if math.Abs(d.Change) > 0.02 {
			d.Better = map[bool]string{true: "yes", false: "no"}[(d.Change > 0) == moreIsBetter]
		}
		out = append(out, d)
	}
	add("records/s", before.RecordsPerSecond, after.RecordsPerSecond, true)
	add("bytes/s", before.BytesPerSecond, after.BytesPerSecond, true)
	if b, a := before.Latency, after.Latency; b != nil && a != nil {
		add("p50 ms", b.P50, a.P50, false)
		add("p95 ms", b.P95, a.P95, false)
		add("p99 ms", b.P99, a.P99, false)
		add("p99.9 ms", b.P999, a.P999, false)
		add("max ms", b.Max, a.Max, false)
	}
	add("errors", float64(before.Errors), float64(after.Errors), false)
	return out
}

var deltaListing = listing[Delta]{
	columns: []column[Delta]{
		{title: "FIGURE", cell: func(d Delta) string { return d.Figure }},
		{title: "BEFORE", right: true, cell: func(d Delta) string { return figure(d.Before) }},
		{title: "AFTER", right: true, cell: func(d Delta) string { return figure(d.After) }},
		{title: "CHANGE", right: true, cell: func(d Delta) string { return fmt.Sprintf("%+.1f %%", d.Change*100) }},
		{title: "BETTER", cell: func(d Delta) string { return d.Better }},
	},
	name: func(d Delta) string { return d.Figure },
}

func figure(n float64) string {
	if n >= 1000 {
		return count(int64(math.Round(n)))
	}
	return threeDigits(n)
}
