// Package report turns the raw lines of `make bench` into docs/performance.md and its pictures. It owns the form of the
// results file, the table of what is to be reached, and what the document says; the program in the folder above measures
// and writes the files. Everything here is a pure function of the lines: what was not measured is called so, and a
// document can be made again from the committed lines alone. Read [Parse], then [Render].
package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// The names that the lines have for who was measured.
const (
	Apache  = "apache"  // the yardstick
	Ottla   = "ottla"   // what is to be judged
	Machine = "machine" // the machine alone: kbench limits, and sendfile without a broker
	Client  = "null"    // the client alone, against kbench's broker that stores nothing
)

// A Line is one measurement: a JSON object as kbench prints it, with labels that say what it belongs to.
type Line struct {
	Broker   string // who was measured
	Workload string // what was done, such as bulk/fetch
	Of       string // the workload that it was run for, as WORKLOADS names it: bulk of bulk/fetch
	Run      string // the run of make bench
	Error    string // why there are no values
	About    bool   // tells of a whole run; Text has the rest
	Text     map[string]string
	Values   map[string]float64

	raw []byte
}

// Results are the lines of a results file, in the order in which they were measured.
type Results []Line

// Parse reads lines as [Results.WriteTo] writes them. An error names the line.
func Parse(r io.Reader) (Results, error) {
	var rs Results
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		l, err := ParseLine(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("line %d of the results is no measurement: %w; take it out or restore the file", n, err)
		}
		rs = append(rs, l)
	}
	return rs, lines.Err()
}

// ParseLine reads one line.
func ParseLine(raw []byte) (Line, error) {
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return Line{}, err
	}
	l := Line{Text: map[string]string{}, Values: map[string]float64{}, raw: slices.Clone(bytes.TrimSpace(raw))}
	for k, v := range fields {
		switch v := v.(type) {
		case float64:
			l.Values[k] = v
		case string:
			l.Text[k] = v
		default:
			return Line{}, fmt.Errorf("field %s is neither a number nor a string", k)
		}
	}
	l.Broker, l.Workload, l.Of, l.Run, l.Error = l.Text["broker"], l.Text["workload"], l.Text["of"], l.Text["run"], l.Text["error"]
	l.About = l.Text["cmd"] == "run"
	if l.Run == "" || !l.About && (l.Broker == "" || l.Workload == "" || l.Of == "") {
		return Line{}, fmt.Errorf("run, broker, workload and of must be set")
	}
	return l, nil
}

// WriteTo writes one line each.
func (rs Results) WriteTo(w io.Writer) (int64, error) {
	var b bytes.Buffer
	for _, l := range rs {
		b.Write(l.raw)
		b.WriteByte('\n')
	}
	return b.WriteTo(w)
}

// Merge adds the lines of a later run. They replace all that was measured for the same workloads, so that figures which
// are set against each other come from one run; a run of which nothing is left is forgotten.
func (rs Results) Merge(later Results) Results {
	again, used := map[string]bool{}, map[string]bool{}
	for _, l := range later {
		if !l.About {
			again[l.Of] = true
		}
	}
	all := slices.Concat(slices.DeleteFunc(slices.Clone(rs), func(l Line) bool { return !l.About && again[l.Of] }), later)
	for _, l := range all {
		if !l.About {
			used[l.Run] = true
		}
	}
	told := map[string]bool{}
	return slices.DeleteFunc(all, func(l Line) bool {
		drop := l.About && (!used[l.Run] || told[l.Run])
		told[l.Run] = told[l.Run] || l.About
		return drop
	})
}

// A Stat sums up the rounds of one figure. N is 0 if it was not measured.
type Stat struct {
	Median, Min, Max float64
	N                int
}

// Stat sums up a metric of a workload over its rounds.
func (rs Results) Stat(broker, workload, metric string) Stat {
	var v []float64
	for _, l := range rs {
		if x, ok := l.Values[metric]; ok && l.Broker == broker && l.Workload == workload {
			v = append(v, x)
		}
	}
	if len(v) == 0 {
		return Stat{}
	}
	slices.Sort(v)
	return Stat{Median: (v[(len(v)-1)/2] + v[len(v)/2]) / 2, Min: v[0], Max: v[len(v)-1], N: len(v)}
}

// highest returns the largest of a metric's medians over workloads: a peak.
func (rs Results) highest(broker string, workloads []string, metric string) (top Stat) {
	for _, w := range workloads {
		if s := rs.Stat(broker, w, metric); s.N > 0 && (top.N == 0 || s.Median > top.Median) {
			top = s
		}
	}
	return top
}

func (s Stat) times(factor float64) Stat {
	s.Median, s.Min, s.Max = s.Median*factor, s.Min*factor, s.Max*factor
	return s
}

// String prints the median and, of more than one round, the span.
func (s Stat) String() string {
	switch {
	case s.N == 0:
		return "not measured"
	case s.N == 1 || s.Min == s.Max:
		return short(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", short(s.Median), short(s.Min), short(s.Max))
}

// short prints three significant digits without an exponent, and whole numbers from 1,000 on.
func short(x float64) string {
	switch abs := max(x, -x); {
	case abs >= 1000:
		s := strconv.FormatFloat(x, 'f', 0, 64)
		for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
			s = s[:at] + "," + s[at:]
		}
		return s
	case abs != 0 && abs < 0.0001:
		return strconv.FormatFloat(x, 'g', 2, 64)
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64)
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
