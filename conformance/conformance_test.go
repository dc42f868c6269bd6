//go:build conformance

// Package conformance runs suites that other people wrote against the built binary, unmodified, and holds the outcome
// against expected.tsv. Each line of that file names a suite, a test of it, and one of
//
//   - "pass";
//   - "missing: API, …", the APIs whose absence explains why it cannot pass yet;
//   - "apache: why", when Apache Kafka 4.4 under the same suite does not pass it either;
//   - "client: why", when a fault of the client's own makes it fail, with Apache Kafka more rarely;
//   - "java: what", when it wants the broker to load Java code.
//
// The run fails when a test listed as a pass does not pass or does not run, when a test is excused by APIs that are all
// advertised by now, and when a test ran that is not listed. Excused tests are left out where the suite allows it; a
// test that a suite skips of itself need not be listed. When all suites went as expected, the README's table of what
// passes is written.
//
// The suites run in lanes beside one another, for they wait more than they compute; what fails there by the clock gets a
// second run.
//
// SUITES is the folder with the suites, which install themselves on their first run. ENUMERATE=1 runs every test that is
// not excused and prints lines for expected.tsv instead of judging; with the lines of a suite taken out of that file, it
// runs that suite whole.
package conformance

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
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
	"golang.org/x/sync/errgroup"
)

var (
	suites    = os.Getenv("SUITES")
	enumerate = os.Getenv("ENUMERATE") != ""
	cache     = filepath.Join(peersCache(), "conformance")
)

// peersCache is where the suites install themselves, by the same rule as theirs.
func peersCache() string {
	if dir := os.Getenv("PEERS_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		panic(err)
	}
	return filepath.Join(dir, "kafka-peers")
}

// An outcome is what became of one test.
type outcome int

const (
	failed outcome = iota
	passed
	skipped
)

func (o outcome) String() string { return [...]string{"failed", "pass", "skipped"}[o] }

// outcomes are the words of the suites' reports.
var outcomes = map[string]outcome{
	"ok": passed, "FAIL": failed, // kcat, java-tools, franz-go
	"PASS": passed, "SKIP": skipped, // franz-go
	"PASSED": passed, "FAILED": failed, "SKIPPED": skipped, // librdkafka
	"SUCCESSFUL": passed, "ABORTED": skipped, // JUnit
}

// A suite is how one folder of SUITES is told what to run, and how its report is read.
type suite struct {
	name     string                                // in expected.tsv
	title    string                                // in the README
	folder   string                                // of SUITES; also the folder in the cache
	settings []string                              // of the broker that it runs against
	tools    bool                                  // it starts a JVM for each of many short commands, with java-tools' libraries
	env      []string                              // always
	narrow   func(expected []expectation) []string // environment that leaves out what is excused
	choose   func(tests []string) string           // environment that runs just these tests; nil: they need one another
	apart    []part                                // tests that run in processes of their own, beside that of the others
	installs string                                // what it installs for all suites of its folder, each of which runs in a folder of its own
	report   string                                // the file with the outcomes, in its folder of the cache; "": its output
	line     *regexp.Regexp                        // one outcome: groups "test" and "outcome"
	test     func(string) string                   // makes the name for expected.tsv; nil: as it is
}

// A part of a suite's tests runs in a process of its own: as they would disturb the others, or take longest.
type part struct {
	env   []string
	tests []string
}

// All of librdkafka's tests, not just what is quick (ARGS=-Q). Some call Kafka's command-line tools, which java-tools has installed.
var librdkafkaEnv = []string{"ARGS=", "PARALLEL=6", "LIMIT=1200", "KAFKA_PATH=" + filepath.Join(suites, "librdkafka", "kafka-tools"), "KAFKA_LIBS=" + filepath.Join(cache, "java-tools", "libs")}

var librdkafkaLongest = part{tests: []string{"0113_cooperative_rebalance"}}

// Its runner says it when a test ends, and once more in a table, whose rows other lines of its may cut in two.
var librdkafkaLine = regexp.MustCompile(`(?:=+ Test |^\| +)(?P<test>\d\S+)(?: +\| +| )(?P<outcome>PASSED|FAILED|SKIPPED)`)

// listed runs just these tests of librdkafka.
func listed(tests []string) string { return "TESTS=" + strings.Join(tests, ",") }

// lanes are the suites that run one after another, beside those of the other lanes. Those of apache-tests start brokers on the same ports.
var lanes = [][]suite{{
	{
		name: "kcat", folder: "kcat", title: "kcat: every codec, idempotence, groups, queries by time",
		line: regexp.MustCompile(`^(?P<outcome>ok|FAIL) +(?P<test>[^:]+)`),
	},
	{
		name: "java-tools", folder: "java-tools", title: "Apache's command-line tools, console clients, Connect, MirrorMaker 2", tools: true,
		env: []string{"STEP=180"},
		narrow: func(expected []expectation) []string {
			var only []string
			for _, e := range expected {
				if e.pass() {
					only = append(only, e.test)
				}
			}
			return []string{"ONLY=" + strings.Join(only, " ")}
		},
		line: regexp.MustCompile(`^(?P<outcome>ok|FAIL) +(?P<test>\S+)`),
	},
}, {
	{
		name: "librdkafka", folder: "librdkafka", title: "librdkafka's regression tests, the client under Python, .NET, Node, Rust and PHP",
		settings: []string{"num.partitions=4"}, tools: true, env: librdkafkaEnv, installs: "src",
		narrow: func(expected []expectation) []string {
			var numbers []string
			for _, test := range excused(expected) {
				number, _, _ := strings.Cut(test, "_")
				numbers = append(numbers, number)
			}
			return []string{"TESTS_SKIP=" + strings.Join(numbers, ",")}
		},
		choose: listed,
		apart: []part{{
			// They put a layer of their own between the client and its sockets, and close it by number: a number that a test beside them may have by then.
			env:   []string{"PARALLEL=1"},
			tests: []string{"0049_consume_conn_close", "0075_retry", "0076_produce_retry", "0086_purge_remote", "0088_produce_metadata_timeout", "0094_idempotence_msg_timeout"},
		}, librdkafkaLongest},
		report: "run.txt", line: librdkafkaLine,
	},
}, {
	{
		name: "librdkafka-consumer", folder: "librdkafka", title: "librdkafka's tests of consumers once more, with `group.protocol=consumer`",
		settings: []string{"num.partitions=4"}, tools: true, env: append([]string{"TEST_CONSUMER_GROUP_PROTOCOL=consumer"}, librdkafkaEnv...), installs: "src",
		narrow: func(expected []expectation) []string {
			var tests []string
			for _, e := range expected {
				if e.pass() {
					tests = append(tests, e.test)
				}
			}
			return []string{listed(tests)}
		},
		choose: listed,
		apart:  []part{librdkafkaLongest},
		report: "run.txt", line: librdkafkaLine,
	},
}, {
	{
		name: "franz-go", folder: "franz-go", title: "franz-go's own tests: groups of both protocols, rebalances, admin, produce and fetch under churn",
		env: []string{"LIMIT=600"},
		narrow: func(expected []expectation) []string {
			return []string{"SKIP=^(" + strings.Join(excused(expected), "|") + ")$"}
		},
		choose: func(tests []string) string { return "RUN=^(" + strings.Join(tests, "|") + ")$" },
		report: "kgo.log",
		line:   regexp.MustCompile(`^--- (?P<outcome>PASS|FAIL|SKIP): (?P<test>\S+)`),
	},
	{
		name: "apache-requests", folder: "apache-tests", title: "Apache Kafka's own tests of requests (one node)",
		env: []string{"SET=requests", "MAX_NODES=1", "WAIT=30", "LIMIT=900"}, narrow: exceptMethods, choose: methods,
		report: "run.log", line: junit, test: javaTest,
	},
	{
		name: "apache-clients", folder: "apache-tests", title: "Apache Kafka's own integration tests of its Java clients (one node)",
		env: []string{"SET=clients", "MAX_NODES=1", "WAIT=30", "LIMIT=900"}, narrow: exceptMethods, choose: methods,
		report: "run.log", line: junit, test: javaTest,
	},
}}

// excused returns the tests that need not run.
func excused(expected []expectation) []string {
	var tests []string
	for _, e := range expected {
		if !e.pass() {
			tests = append(tests, e.test)
		}
	}
	return tests
}

var junit = regexp.MustCompile(`^JUnit Jupiter > (?P<test>\S+ > .* > .* \[\d+\]).* :: (?P<outcome>SUCCESSFUL|FAILED|ABORTED)`)

// javaTest makes "Class#method [1]" of JUnit's feed "Class > method() > display name [1]": the first case of that method.
func javaTest(feed string) string {
	class, rest, _ := strings.Cut(feed, " > ")
	method, _, _ := strings.Cut(rest, "(")
	return class + "#" + method + feed[strings.LastIndex(feed, " ["):]
}

// javaMethod is the method of a test that javaTest named, for JUnit's regular expressions over "package.Class#method".
func javaMethod(test string) string {
	name, _, _ := strings.Cut(test, " ")
	return regexp.QuoteMeta(name)
}

// methods runs only some.
func methods(tests []string) string {
	var names []string
	for _, test := range tests {
		names = append(names, javaMethod(test))
	}
	return `METHOD=.*\.(` + strings.Join(names, "|") + `)`
}

// exceptMethods leaves out the methods of which no invocation must pass.
func exceptMethods(expected []expectation) []string {
	needed := map[string]bool{}
	for _, e := range expected {
		method := javaMethod(e.test)
		needed[method] = needed[method] || e.pass()
	}
	var out []string
	for name, need := range needed {
		if !need {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return []string{`METHOD=^(?!.*\.(` + strings.Join(out, "|") + `)$).*$`}
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
	tools := prepare(t, binary)
	var table [][]string // by lane
	t.Run("lane", func(t *testing.T) {
		for _, lane := range lanes {
			rows := make([]string, len(lane))
			table = append(table, rows)
			t.Run(lane[0].name, func(t *testing.T) {
				t.Parallel()
				for i, s := range lane {
					t.Run(s.name, func(t *testing.T) {
						if s.tools {
							s.env = append(slices.Clone(s.env), tools)
						}
						s.verdict(t, binary, expected[s.name])
						rows[i] = row(s.title, expected[s.name])
					})
				}
			})
		}
	})
	rows := slices.Concat(table...)
	if !t.Failed() && !enumerate && len(rows) > 0 && !slices.Contains(rows, "") { // else -run left some out
		writeTable(t, rows)
	}
}

// prepare installs what several suites use, so that none of them meets another at it, and returns the environment in which Kafka's
// tools start quickly.
func prepare(t *testing.T, binary string) string {
	b := startBroker(t, binary, nil)
	tools := quickTools(t, b)
	cmd := exec.CommandContext(t.Context(), filepath.Join(suites, "librdkafka", "run.sh"))
	cmd.Env = append(os.Environ(), "BOOTSTRAP="+b.address, listed([]string{"none"}))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("librdkafka's tests cannot be built: %v\n%s", err, out)
	}
	return tools
}

// verdict runs the suite against a broker of its own and judges it.
func (s *suite) verdict(t *testing.T, binary string, expected []expectation) {
	b := startBroker(t, binary, s.settings)
	out := s.run(t, binary, b, s.processes(expected, nil))
	// The suites time things, and share two cores with what they time: what failed gets a second run. What got to no end, as the suite's
	// process broke off, gets a third.
	for _, how := range []func(map[string]outcome, string) bool{isFailed, hasNoOutcome} {
		unlucky := must(expected, func(test string) bool { return how(out, test) })
		if len(unlucky) == 0 || enumerate {
			break
		}
		t.Logf("once more: %s", strings.Join(unlucky, ", "))
		for test, o := range s.run(t, binary, b, s.processes(expected, unlucky)) {
			if slices.Contains(unlucky, test) || s.choose == nil {
				out[test] = o
			}
		}
	}
	if enumerate {
		for test, o := range out {
			fmt.Printf("%s\t%s\t%s\n", s.name, test, o)
		}
		return
	}
	judge(t, expected, out, b.advertised(t))
}

// quickTools has one of Apache's tools leave an archive of the classes it loaded, and returns the environment in which the others start
// from that: most of the processor time of such a command goes into loading classes.
func quickTools(t *testing.T, b *broker) string {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "classes.jsa")
	cmd := exec.CommandContext(t.Context(), filepath.Join(suites, "java-tools", "run.sh"))
	cmd.Env = append(os.Environ(), "BOOTSTRAP="+b.address, "ONLY=topic-list", "STEP=300", "JDK_JAVA_OPTIONS=-XX:+UseSerialGC -XX:ArchiveClassesAtExit="+archive)
	out, err := cmd.CombinedOutput() // fails too for want of a topic to list
	if _, missing := os.Stat(archive); missing != nil {
		t.Fatalf("Kafka's tools left no archive of classes: %v\n%s", err, out)
	}
	return "JDK_JAVA_OPTIONS=-XX:+UseSerialGC -XX:-UsePerfData -XX:SharedArchiveFile=" + archive
}

// processes are the environments of the processes that run just these tests, or, if none are given or they build on one another, all.
func (s *suite) processes(expected []expectation, tests []string) (envs [][]string) {
	together := slices.Clone(expected)
	all := tests == nil || s.choose == nil
	for _, p := range s.apart {
		mine := p.tests
		if !all {
			mine = slices.DeleteFunc(slices.Clone(tests), func(test string) bool { return !slices.Contains(p.tests, test) })
		}
		if len(mine) > 0 {
			envs = append(envs, append(slices.Clone(p.env), s.choose(mine)))
		}
		tests = slices.DeleteFunc(slices.Clone(tests), func(test string) bool { return slices.Contains(p.tests, test) })
		for i, e := range together {
			if slices.Contains(p.tests, e.test) {
				together[i].never = "it runs apart"
			}
		}
	}
	switch {
	case all && s.narrow != nil && len(expected) > 0:
		envs = append(envs, s.narrow(together))
	case all:
		envs = append(envs, nil)
	case len(tests) > 0:
		envs = append(envs, []string{s.choose(tests)})
	}
	return envs
}

// must are those of the tests that must pass of which something holds.
func must(expected []expectation, holds func(test string) bool) (tests []string) {
	for _, e := range expected {
		if e.pass() && holds(e.test) {
			tests = append(tests, e.test)
		}
	}
	return tests
}

// isFailed holds for what has no outcome as well.
func isFailed(out map[string]outcome, test string) bool { return out[test] == failed }

func hasNoOutcome(out map[string]outcome, test string) bool {
	_, known := out[test]
	return !known
}

// run runs the suite, in as many processes at once as there are additions to its environment, and returns its outcomes by test.
func (s *suite) run(t *testing.T, binary string, b *broker, envs [][]string) map[string]outcome {
	t.Helper()
	outs := make([]map[string]outcome, len(envs))
	var all errgroup.Group
	for i, env := range envs {
		all.Go(func() (err error) {
			outs[i], err = s.process(t, binary, b, env)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	return s.merge(outs)
}

// merge puts the outcomes of several processes together: what a process was told to skip because another has it is none.
func (s *suite) merge(outs []map[string]outcome) map[string]outcome {
	merged := map[string]outcome{}
	for _, out := range outs {
		for test, o := range out {
			_, known := merged[test]
			if o == skipped && (known || s.runsApart(test)) {
				continue
			}
			merged[test] = o
		}
	}
	return merged
}

func (s *suite) runsApart(test string) bool {
	return slices.ContainsFunc(s.apart, func(p part) bool { return slices.Contains(p.tests, test) })
}

// process is one run of the suite's command.
func (s *suite) process(t *testing.T, binary string, b *broker, env []string) (map[string]outcome, error) {
	node, err := filepath.Abs("node.sh")
	if err != nil {
		return nil, err
	}
	// A first run installs the suite: the bound on the tests themselves is the suite's LIMIT.
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(suites, s.folder, "run.sh"))
	cmd.Env = append(os.Environ(), "BOOTSTRAP="+b.address, "BROKER="+node, "OTTLA="+binary)
	cmd.Env = slices.Concat(cmd.Env, s.env, env)
	if enumerate {
		cmd.Env = append(cmd.Env, "LIMIT=3000")
	}
	work := filepath.Join(cache, s.folder)
	if s.installs != "" {
		own := t.TempDir()
		if err := os.Symlink(filepath.Join(work, s.installs), filepath.Join(own, s.installs)); err != nil {
			return nil, err
		}
		work = own
		cmd.Env = append(cmd.Env, "WORK="+work)
	}
	cmd.WaitDelay = 5 * time.Second
	began := time.Now()
	report, runErr := cmd.Output() // a suite exits with 1 when a test fails; its report says which
	t.Logf("%s: %v after %s\n%s", s.name, runErr, time.Since(began).Round(time.Second), report)
	if s.report != "" {
		if report, err = os.ReadFile(filepath.Join(work, s.report)); err != nil {
			return nil, fmt.Errorf("%s left no report: %w", s.name, err)
		}
		if cmd.ProcessState.ExitCode() > 1 {
			t.Logf("%s broke off with:\n%s", s.name, report[max(0, len(report)-2000):])
		}
	}
	out := map[string]outcome{}
	for line := range strings.Lines(string(report)) {
		m := s.line.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		test := strings.TrimSpace(m[s.line.SubexpIndex("test")])
		if s.test != nil {
			test = s.test(test)
		}
		out[test] = outcomes[m[s.line.SubexpIndex("outcome")]]
	}
	return out, nil
}

// An expectation is a line of expected.tsv.
type expectation struct {
	test    string
	missing []string // APIs
	never   string   // why it is not waited for
}

func (e expectation) pass() bool { return len(e.missing) == 0 && e.never == "" }

func readExpected(t *testing.T) map[string][]expectation {
	t.Helper()
	f, err := os.Open("expected.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var known []string
	for key := range int16(kmsg.MaxKey + 1) {
		known = append(known, kmsg.NameForKey(key))
	}
	expected := map[string][]expectation{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if lines.Text() == "" || strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 3 {
			t.Fatalf("expected.tsv: %q is not suite, test and verdict", lines.Text())
		}
		e := expectation{test: fields[1]}
		kind, why, _ := strings.Cut(fields[2], ": ")
		switch kind {
		case "pass":
		case "missing":
			e.missing = strings.Split(why, ", ")
			for _, api := range e.missing {
				if !slices.Contains(known, api) {
					t.Fatalf("expected.tsv: %s is no API that kmsg has a name for", api)
				}
			}
		case "apache", "client", "java":
			e.never = why
		default:
			t.Fatalf("expected.tsv: %q is neither pass, missing: API, …, apache: why, client: why nor java: what", fields[2])
		}
		expected[fields[0]] = append(expected[fields[0]], e)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return expected
}

// judge compares the outcomes with what is expected of one suite. What is not as expected becomes a subtest that fails, so that the
// names stand in the summary.
func judge(t *testing.T, expected []expectation, out map[string]outcome, advertised []string) {
	t.Helper()
	wrong := func(test, format string, args ...any) {
		t.Run(test, func(t *testing.T) { t.Errorf(format, args...) })
	}
	listed := map[string]bool{}
	for _, e := range expected {
		listed[e.test] = true
		o, ran := out[e.test]
		switch {
		case e.pass() && !ran:
			wrong(e.test, "did not run, or not to its end")
		case e.pass() && o != passed:
			wrong(e.test, "must pass, and %s", map[outcome]string{failed: "failed", skipped: "was skipped"}[o])
		case len(e.missing) > 0 && !slices.ContainsFunc(e.missing, func(api string) bool { return !slices.Contains(advertised, api) }):
			wrong(e.test, "is excused by %s, which the broker advertises by now: take its line out and enumerate", strings.Join(e.missing, ", "))
		}
	}
	for _, test := range slices.Sorted(maps.Keys(out)) {
		if o := out[test]; !listed[test] && o != skipped {
			wrong(test, "is not listed (%s)", o)
		}
	}
}

// row is a suite's line in the README's table.
func row(title string, expected []expectation) string {
	var pass, never int
	missing := map[string]int{}
	waiting := 0
	for _, e := range expected {
		switch {
		case e.pass():
			pass++
		case e.never != "":
			never++
		default:
			waiting++
			missing[e.missing[0]]++
		}
	}
	names := make([]string, 0, len(missing))
	for api, n := range missing {
		names = append(names, fmt.Sprintf("%s %d", api, n))
	}
	slices.Sort(names)
	wait := fmt.Sprint(waiting)
	if waiting > 0 {
		wait += " (" + strings.Join(names, ", ") + ")"
	}
	return fmt.Sprintf("| %s | %d | %s | %d |", title, pass, wait, never)
}

// writeTable puts the rows between the README's markers.
func writeTable(t *testing.T, rows []string) {
	t.Helper()
	const path, begin, end = "../README.md", "<!-- conformance:begin -->\n", "<!-- conformance:end -->"
	readme, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := bytes.Cut(readme, []byte(begin))
	_, tail, closed := bytes.Cut(rest, []byte(end))
	if !ok || !closed {
		t.Fatalf("%s lacks the lines %s and %s for the table", path, strings.TrimSpace(begin), end)
	}
	table := "| suite | pass | wait for an API | fail on Apache too, by a fault of the client's, or want Java |\n| --- | --- | --- | --- |\n" + strings.Join(rows, "\n") + "\n"
	if err := os.WriteFile(path, slices.Concat(head, []byte(begin), []byte(table), []byte(end), tail), 0o644); err != nil {
		t.Fatal(err)
	}
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
		if err := cmd.Wait(); err != nil {
			t.Errorf("the broker ended with: %v", err)
		}
		if t.Failed() {
			t.Logf("what the broker warned of:\n%.4000s", warnings(log.String()))
		}
	})
	b.wait(t)
	return b
}

// wait returns once the broker answers.
func (b *broker) wait(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.address))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for err = cl.Ping(ctx); err != nil; err = cl.Ping(ctx) {
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("the broker does not answer: %v", err)
		}
	}
}

// warnings are the lines of a broker's log that do not merely inform.
func warnings(log string) string {
	var out strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `"level":"INFO"`) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// advertised returns the names of the APIs in the broker's ApiVersions answer.
func (b *broker) advertised(t *testing.T) []string {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.address))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "conformance", "1"
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, k := range resp.ApiKeys {
		names = append(names, kmsg.NameForKey(k.ApiKey))
	}
	return names
}

func TestMerge(t *testing.T) {
	s := suite{apart: []part{{tests: []string{"alone", "broke off"}}}}
	got := s.merge([]map[string]outcome{
		{"alone": passed},
		{"alone": skipped, "broke off": skipped, "a": passed, "b": failed, "c": skipped},
	})
	want := map[string]outcome{"alone": passed, "a": passed, "b": failed, "c": skipped}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
