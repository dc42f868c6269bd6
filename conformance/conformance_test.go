//go:build conformance

// Package conformance runs suites that other people wrote against the built binary, unmodified, and holds the outcome
// against expected.tsv. Each line of that file names a suite, a test of it, and either "pass" or the APIs whose
// absence explains why it cannot pass yet ("missing: JoinGroup, SyncGroup"). The run fails when
//
//   - a test listed as a pass does not pass,
//   - a test is excused by APIs that are all advertised by now, or
//   - a test ran that is not listed.
//
// Excused tests are left out of the run where the suite allows it. The README's table of what passes is written
// from the outcome. SUITES is the folder with the suites; ENUMERATE=1 runs every test and prints lines for
// expected.tsv instead of judging.
package conformance

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	suites    = os.Getenv("SUITES")
	enumerate = os.Getenv("ENUMERATE") != ""
	cache     = filepath.Join(userCache(), "kafka-peers", "conformance")
)

func userCache() string {
	if dir := os.Getenv("PEERS_CACHE"); dir != "" {
		return filepath.Dir(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		panic(err)
	}
	return dir
}

// A verdict is one test's outcome.
type verdict struct {
	test   string
	passed bool
}

// A suite is one folder of SUITES: how it is told what to run, and how its report is read.
type suite struct {
	name     string
	settings []string                              // of the broker it runs against
	env      func(expected []expectation) []string // what narrows the run to what can pass
	report   func(stdout string) (string, error)   // the text that holds the outcomes
	line     *regexp.Regexp                        // one outcome: groups "ok" and "test", or "test" and "ok"
	ok       string                                // what group "ok" reads when a test passed
	minutes  time.Duration
}

var all = []suite{
	{
		name: "kcat", settings: []string{"num.partitions=4"}, minutes: 2,
		line: regexp.MustCompile(`^(?P<ok>ok|FAIL) +(?P<test>[^:]+)`), ok: "ok",
	},
	{
		name: "franz-go", minutes: 4, ok: "PASS",
		env: func(expected []expectation) []string {
			var skip []string
			for _, e := range expected {
				if !e.pass() {
					skip = append(skip, "^"+e.test+"$")
				}
			}
			return []string{"SKIP=" + strings.Join(skip, "|"), "LIMIT=230"}
		},
		report: file("franz-go", "kgo.log"),
		line:   regexp.MustCompile(`^--- (?P<ok>PASS|FAIL): (?P<test>\S+)`),
	},
	{
		name: "librdkafka", settings: []string{"num.partitions=4"}, minutes: 5, ok: "PASSED",
		env: func(expected []expectation) []string {
			var numbers []string
			for _, e := range expected {
				if number := e.test[:4]; e.pass() && !slices.Contains(numbers, number) {
					numbers = append(numbers, number)
				}
			}
			return []string{"TESTS=" + strings.Join(numbers, ","), "LIMIT=290"}
		},
		report: file("librdkafka", "run.txt"),
		line:   regexp.MustCompile(`^\| +(?P<test>\S+) +\| +(?P<ok>PASSED|FAILED)`),
	},
	{
		name: "java-tools", minutes: 5, ok: "ok",
		env: func(expected []expectation) []string {
			var only []string
			for _, e := range expected {
				if e.pass() {
					only = append(only, e.test)
				}
			}
			return []string{"ONLY=" + strings.Join(only, " ")}
		},
		line: regexp.MustCompile(`^(?P<ok>ok|FAIL) +(?P<test>\S+)`),
	},
	{
		name: "apache-tests", minutes: 6, ok: "SUCCESSFUL",
		env: func(expected []expectation) []string {
			var classes, methods []string
			for _, e := range expected {
				class, method, _ := strings.Cut(e.test, "#")
				if !e.pass() {
					continue
				}
				if !slices.Contains(classes, class) {
					classes = append(classes, class)
				}
				name, _, _ := strings.Cut(method, "(")
				if pattern := ".*\\." + regexp.QuoteMeta(class[strings.LastIndexByte(class, '.')+1:]+"."+name); !slices.Contains(methods, pattern) {
					methods = append(methods, pattern)
				}
			}
			return []string{"CLASSES=" + strings.Join(classes, " "), "METHOD=" + strings.Join(methods, "|"), "MAX_NODES=1", "LIMIT=350", "WAIT=10"}
		},
		report: file("apache-tests", "run.log"),
		line:   regexp.MustCompile(`^JUnit Jupiter > (?P<test>.*) :: (?P<ok>SUCCESSFUL|FAILED)`),
	},
}

func file(parts ...string) func(string) (string, error) {
	return func(string) (string, error) {
		b, err := os.ReadFile(filepath.Join(append([]string{cache}, parts...)...))
		return string(b), err
	}
}

func TestConformance(t *testing.T) {
	if suites == "" {
		t.Fatal("SUITES must name the folder with the suites; make conformance does so")
	}
	binary := filepath.Join(t.TempDir(), "ottla")
	if out, err := exec.Command("go", "build", "-o", binary, "ottla/cmd/ottla").CombinedOutput(); err != nil {
		t.Fatalf("build ottla: %v\n%s", err, out)
	}
	expected := readExpected(t)
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			b := startBroker(t, binary, s.settings)
			out := s.run(t, binary, b, expected[s.name])
			if enumerate {
				for _, v := range out {
					fmt.Printf("%s\t%s\t%s\n", s.name, v.test, map[bool]string{true: "pass", false: "FAILED"}[v.passed])
				}
				return
			}
			judge(t, expected[s.name], out, b.advertised(t))
		})
	}
}

// run runs the suite and returns its outcomes, sorted by test.
func (s *suite) run(t *testing.T, binary string, b *broker, expected []expectation) []verdict {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), s.minutes*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(suites, s.name, "run.sh"))
	node, err := filepath.Abs("node.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "BOOTSTRAP="+b.address, "BROKER="+node, "OTTLA="+binary)
	if s.env != nil && !enumerate {
		cmd.Env = append(cmd.Env, s.env(expected)...)
	}
	cmd.WaitDelay = 5 * time.Second
	stdout, _ := cmd.Output() // a suite exits with 1 when a test fails; its report says which
	report := string(stdout)
	if s.report != nil {
		if report, err = s.report(report); err != nil {
			t.Fatalf("%s left no report: %v\n%s", s.name, err, stdout)
		}
	}
	var out []verdict
	for line := range strings.Lines(report) {
		if m := s.line.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			test := strings.TrimSpace(m[s.line.SubexpIndex("test")])
			if s.name == "apache-tests" {
				test = javaTest(test)
			}
			out = append(out, verdict{test, m[s.line.SubexpIndex("ok")] == s.ok})
		}
	}
	slices.SortFunc(out, func(a, b verdict) int { return strings.Compare(a.test, b.test) })
	return out
}

// javaTest makes "Class > method() > [1] …" of JUnit's feed "Class#method() [1] …".
func javaTest(feed string) string {
	class, rest, _ := strings.Cut(feed, " > ")
	return class + "#" + strings.ReplaceAll(rest, " > ", " ")
}

// An expectation is a line of expected.tsv.
type expectation struct {
	test    string
	missing []string // APIs; none: it must pass
}

func (e expectation) pass() bool { return len(e.missing) == 0 }

func readExpected(t *testing.T) map[string][]expectation {
	t.Helper()
	f, err := os.Open("expected.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	expected := map[string][]expectation{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 3 {
			t.Fatalf("expected.tsv: %q is not suite, test and verdict", lines.Text())
		}
		e := expectation{test: fields[1]}
		if apis, ok := strings.CutPrefix(fields[2], "missing: "); ok {
			e.missing = strings.Split(apis, ", ")
		} else if fields[2] != "pass" {
			t.Fatalf("expected.tsv: %q is neither pass nor missing: API, …", fields[2])
		}
		expected[fields[0]] = append(expected[fields[0]], e)
	}
	return expected
}

func judge(t *testing.T, expected []expectation, out []verdict, advertised []string) {
	t.Helper()
	listed := map[string]expectation{}
	for _, e := range expected {
		listed[e.test] = e
		built := func(api string) bool { return slices.Contains(advertised, api) }
		if !e.pass() && !slices.ContainsFunc(e.missing, func(api string) bool { return !built(api) }) {
			t.Errorf("%s is excused by %s, which the broker advertises by now", e.test, strings.Join(e.missing, ", "))
		}
	}
	passed := map[string]bool{}
	for _, v := range out {
		e, ok := listed[v.test]
		switch {
		case !ok:
			t.Errorf("%s is not listed (it %s)", v.test, map[bool]string{true: "passed", false: "failed"}[v.passed])
		case e.pass() && !v.passed:
			t.Errorf("%s failed", v.test)
		}
		passed[v.test] = v.passed
	}
	count := 0
	for _, e := range expected {
		if _, ran := passed[e.test]; e.pass() && !ran {
			t.Errorf("%s did not run", e.test)
		}
		if e.pass() {
			count++
		}
	}
	t.Logf("%d of %d tests must pass, the others wait for APIs", count, len(expected))
}

// A broker is a process of the built binary.
type broker struct{ address string }

func startBroker(t *testing.T, binary string, settings []string) *broker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{address: l.Addr().String()}
	l.Close()
	args := []string{"serve", "--set", "listeners=PLAINTEXT://" + b.address + ",CONTROLLER://127.0.0.1:0",
		"--set", "log.dirs=" + t.TempDir(), "--set", "ottla.console.listener="}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	cmd := exec.Command(binary, args...)
	log := new(strings.Builder)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("broker ended with %v:\n%.10000s", err, log)
		}
	})
	return b
}

// advertised returns the names of the APIs in the broker's ApiVersions answer.
func (b *broker) advertised(t *testing.T) []string {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.address))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, k := range resp.ApiKeys {
		names = append(names, kmsg.NameForKey(k.ApiKey))
	}
	return names
}
