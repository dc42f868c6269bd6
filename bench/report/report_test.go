package report

import (
	"bytes"
	"encoding/xml"
	"flag"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/golden anew; read the difference before committing it")

func testResults(t *testing.T) Results {
	t.Helper()
	f, err := os.Open("testdata/results.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rs, err := Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

// files is a document as it lies on the disk.
func files(d Document) map[string]string {
	all := map[string]string{"performance.md": string(d.Markdown)}
	for name, svg := range d.Pictures {
		all[name] = string(svg)
	}
	return all
}

// read returns the files of a folder that belong to a document.
func read(t *testing.T, fsys fs.FS, patterns ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, p := range patterns {
		names, err := fs.Glob(fsys, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			b, err := fs.ReadFile(fsys, n)
			if err != nil {
				t.Fatal(err)
			}
			all[filepath.Base(n)] = string(b)
		}
	}
	return all
}

func TestRender(t *testing.T) {
	got := files(Render(testResults(t), "## Tried, and did not help\n\n- The kitchen sink: 3 % slower.\n"))
	const golden = "testdata/golden"
	if *update {
		if err := os.RemoveAll(golden); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(golden, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range got {
			if err := os.WriteFile(filepath.Join(golden, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff(read(t, os.DirFS(golden), "*"), got); diff != "" {
		t.Errorf("the document is not %s (-want +got), which -update writes:\n%s", golden, diff)
	}
}

// TestPublished holds docs/performance.md to the committed lines: nobody edits a figure.
func TestPublished(t *testing.T) {
	docs := os.DirFS(filepath.Join("..", "..", "docs"))
	lines, err := fs.ReadFile(docs, "performance/results.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	notes, err := fs.ReadFile(docs, "performance/notes.md")
	if err != nil {
		t.Fatal(err)
	}
	rs, err := Parse(bytes.NewReader(lines))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(files(Render(rs, string(notes))), read(t, docs, "performance.md", "performance/*.svg")); diff != "" {
		t.Errorf("docs/performance.md is not what the results give; run make performance (-want +got):\n%s", diff)
	}
}

// TestNothingMeasured shows that a figure comes from a line or not at all.
func TestNothingMeasured(t *testing.T) {
	d := Render(nil, "")
	if len(d.Pictures) > 0 {
		t.Errorf("pictures of nothing: %v", slices.Collect(maps.Keys(d.Pictures)))
	}
	goals := 0
	for _, p := range parts {
		for _, g := range p.goals {
			if !g.shown {
				goals++
			}
		}
	}
	if got := strings.Count(string(d.Markdown), "| not measured |\n"); got != goals {
		t.Errorf("%d goals are said not to be measured, want all %d", got, goals)
	}
	for _, word := range []string{"| met |", "not met** |"} {
		if strings.Contains(string(d.Markdown), word) {
			t.Errorf("something is said to be %s", word)
		}
	}
}

func TestJudge(t *testing.T) {
	line := func(broker string, value float64) Line {
		return Line{Broker: broker, Workload: "w", Values: map[string]float64{"m": value}}
	}
	ours, theirs := figure{Ottla, []string{"w"}, "m", 0}, figure{Apache, []string{"w"}, "m", 0}
	both := Results{line(Apache, 10), line(Ottla, 24), line(Ottla, 25), line(Ottla, 26)}
	for _, test := range []struct {
		name string
		goal goal
		rs   Results
		want string
	}{
		{"at least, just", goal{of: ours, against: theirs, least: true, bound: 2.5}, both, "met"},
		{"at least, not quite", goal{of: ours, against: theirs, least: true, bound: 2.51}, both, "**not met**"},
		{"at most, just", goal{of: ours, against: theirs, bound: 2.5}, both, "met"},
		{"at most, too much", goal{of: ours, against: theirs, bound: 2.49}, both, "**not met**"},
		{"alone", goal{of: ours, bound: 25}, both, "met"},
		{"without the yardstick", goal{of: ours, against: theirs, bound: 99}, both[1:], "not measured"},
		{"without ottla", goal{of: ours, against: theirs, bound: 99}, both[:1], "not measured"},
		{"against zero", goal{of: ours, against: theirs, bound: 99}, Results{line(Apache, 0), line(Ottla, 1)}, "not measured"},
	} {
		if got := test.goal.judge(test.rs).String(); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestMerge(t *testing.T) {
	parse := func(s string) Results {
		rs, err := Parse(strings.NewReader(s))
		if err != nil {
			t.Fatal(err)
		}
		return rs
	}
	const (
		run1   = `{"cmd":"run","run":"1"}` + "\n"
		bulk1  = `{"run":"1","broker":"ottla","workload":"bulk/fetch","of":"bulk","mb_s":1}` + "\n"
		small1 = `{"run":"1","broker":"ottla","workload":"small","of":"small","mb_s":2}` + "\n"
		run2   = `{"cmd":"run","run":"2"}` + "\n"
		bulk2  = `{"run":"2","broker":"ottla","workload":"bulk","of":"bulk","mb_s":3}` + "\n"
		small2 = `{"run":"2","broker":"ottla","workload":"small","of":"small","mb_s":4}` + "\n"
	)
	rs := parse(run1 + bulk1 + small1)
	for _, step := range []struct{ add, want string }{
		{run2 + bulk2, run1 + small1 + run2 + bulk2},                 // what was measured for bulk goes, the rest stays
		{run2 + small2, run2 + bulk2 + small2},                       // nothing of run 1 is left; run 2 is told of once
		{run1 + bulk1 + bulk1, run2 + small2 + run1 + bulk1 + bulk1}, // two rounds
	} {
		rs = rs.Merge(parse(step.add))
		var b bytes.Buffer
		if _, err := rs.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, b.String()); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", step.add, diff)
		}
		rs = parse(b.String())
	}
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{`{`, `{"run":"1","broker":"ottla","workload":"w"}`, `{"broker":"ottla","workload":"w","of":"w"}`, `{"run":"1","broker":"b","workload":"w","of":"w","m":[1]}`} {
		if rs, err := Parse(strings.NewReader(s)); err == nil {
			t.Errorf("%s is read as %v", s, rs)
		}
	}
}

func TestStat(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   string
	}{
		{nil, "not measured"}, {[]float64{3}, "3"}, {[]float64{3, 1}, "2 (1–3)"}, {[]float64{9, 1, 2}, "2 (1–9)"}, {[]float64{2, 2}, "2"},
	} {
		var rs Results
		for _, v := range test.values {
			rs = append(rs, Line{Broker: Ottla, Workload: "w", Values: map[string]float64{"m": v}})
		}
		if got := rs.Stat(Ottla, "w", "m").String(); got != test.want {
			t.Errorf("%v: %s, want %s", test.values, got, test.want)
		}
	}
	for x, want := range map[float64]string{0: "0", 0.12345: "0.123", 12.345: "12.3", 999.9: "1000", 1234567: "1,234,567", -1234: "-1,234", 123456: "123,456", 0.00001: "1e-05"} {
		if got := short(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
}

func TestMarks(t *testing.T) {
	labels := func(all []tick) (s string) {
		for _, m := range all {
			s += m.label + " "
		}
		return s
	}
	for _, test := range []struct {
		low, high float64
		want      string
	}{
		{0.3, 31, "0.2 0.5 1 2 5 10 20 50 "}, {1, 1, "0.5 1 "}, {2, 10, "2 5 10 "}, {0.15, 300, "0.1   1   10   100   "},
	} {
		if got := labels(logMarks(test.low, test.high)); got != test.want {
			t.Errorf("log %v to %v: %q, want %q", test.low, test.high, got, test.want)
		}
	}
	for high, want := range map[float64]string{0: "0 0.2 0.4 0.6 0.8 1 ", 4.2: "0 1 2 3 4 5 ", 9.4: "0 2 4 6 8 10 "} {
		if got := labels(linearMarks(high)); got != want {
			t.Errorf("up to %v: %q, want %q", high, got, want)
		}
	}
}

// TestPicturesAreXML reads each picture as a browser would.
func TestPicturesAreXML(t *testing.T) {
	d := Render(testResults(t), "")
	for name, svg := range d.Pictures {
		for x := xml.NewDecoder(bytes.NewReader(svg)); ; {
			if _, err := x.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
		}
		if strings.Contains(string(svg), "NaN") || strings.Contains(string(svg), "Inf") {
			t.Errorf("%s has a coordinate that is no number", name)
		}
	}
}
