package ottla_test

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ottla/internal/protocol"
)

// The README is run: its console blocks are one session, from top to bottom, in one directory and against one broker.
//
//   - "$ command" is run by sh; the lines up to the next command are what it must print, stdout and stderr.
//   - "$ ottla serve …" goes on in the background, from its greeting to a line "^C", as in a terminal of its own.
//   - What differs from run to run (times, ids, free space, versions, widths of columns) is not compared.
//   - A properties block is the file server.properties; a go block is the body of Example.
//   - Between <!-- apis:begin --> and <!-- apis:end --> stands the table of APIs.
//
// go test . -run README -update writes what was printed, where it differs in substance, and the table.

var updateREADME = flag.Bool("update", false, "rewrite the outputs in README.md; read the diff")

const (
	readmeFile     = "README.md"
	readmeMaxLines = 200
	readmeTimeout  = time.Minute // for a machine under load; a run takes a second or two
)

// generated is what others than its writer put between two markers.
var generated = regexp.MustCompile(`(?s)<!-- \w+:begin -->.*?<!-- \w+:end -->`)

func TestREADME(t *testing.T) {
	b, err := os.ReadFile(readmeFile)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSuffix(string(b), "\n")
	if n := strings.Count(generated.ReplaceAllString(text, ""), "\n") + 1; n > readmeMaxLines {
		t.Errorf("README.md has %d lines, more than %d", n, readmeMaxLines)
	}
	lines := strings.Split(withAPIs(t, text), "\n")
	s := newSession(t)
	var out []string
	for i := 0; i < len(lines); i++ {
		out = append(out, lines[i])
		language, fenced := strings.CutPrefix(lines[i], "```")
		if !fenced {
			checkLinks(t, lines[i])
			continue
		}
		begin := i + 1
		for i++; i < len(lines) && lines[i] != "```"; i++ {
		}
		if i == len(lines) {
			t.Fatalf("line %d: the block is not closed", begin)
		}
		block := lines[begin:i]
		switch language {
		case "console":
			block = s.run(begin, block)
		case "properties":
			s.write("server.properties", block)
		case "go":
			checkExample(t, block)
		}
		out = append(append(out, block...), lines[i])
	}
	s.stop()
	if got := strings.Join(out, "\n"); got != text {
		if *updateREADME {
			err = os.WriteFile(readmeFile, []byte(got+"\n"), 0o644)
		} else {
			err = fmt.Errorf("README.md does not tell what happens (go test . -run README -update rewrites it):\n%s", cmp.Diff(text, got))
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// A session is a directory, a PATH with ottla on it, and the broker that runs.
type session struct {
	t       *testing.T
	dir     string
	env     []string
	broker  *exec.Cmd
	printed *bufio.Reader     // by the broker
	notes   bytes.Buffer      // stderr of the broker, to be read once it has ended
	real    map[string]string // addresses as the README has them, and as they are
}

func newSession(t *testing.T) *session {
	s := &session{t: t, dir: t.TempDir(), real: map[string]string{}}
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ottla", "curl"} {
		script := fmt.Sprintf("#!/bin/sh\n%s=%s exec '%s' \"$@\"\n", commandVariable, name, self)
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + s.dir, "TMPDIR=" + s.dir}
	t.Cleanup(s.stop)
	return s
}

func (s *session) write(name string, lines []string) {
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// run runs the commands of a block that begins after line at, and returns the block as it should be.
func (s *session) run(at int, block []string) (out []string) {
	for i := 0; i < len(block); {
		step := block[i]
		next := i + 1
		for next < len(block) && !strings.HasPrefix(block[next], "$ ") && block[next] != "^C" {
			next++
		}
		want := block[i+1 : next]
		out = append(out, step)
		var got string
		command, isCommand := strings.CutPrefix(step, "$ ")
		switch {
		case step == "^C":
			got = s.interrupt()
		case !isCommand:
			s.t.Fatalf("line %d: a console block begins with a command", at+i+1)
		case strings.HasPrefix(command, "ottla serve"):
			got = s.serve(command)
		default:
			got = s.command(command)
		}
		if alike(got, strings.Join(want, "\n")) {
			out = append(out, want...)
		} else if got != "" {
			out = append(out, strings.Split(got, "\n")...)
		}
		i = next
	}
	return out
}

func (s *session) shell(command string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), "sh", "-c", command)
	cmd.Dir, cmd.Env = s.dir, s.env
	return cmd
}

// command runs a command to its end and returns what it printed, with the README's addresses.
func (s *session) command(command string) string {
	for shown, real := range s.real {
		command = strings.ReplaceAll(command, shown, real)
	}
	cmd := s.shell(command)
	stuck := time.AfterFunc(readmeTimeout, func() { _ = cmd.Process.Kill() })
	out, err := cmd.CombinedOutput()
	if !stuck.Stop() {
		s.t.Errorf("%s did not end: %v", command, err)
	}
	return s.shown(string(out))
}

// shown puts the README's addresses and directory in place of the real ones.
func (s *session) shown(text string) string {
	for shown, real := range s.real {
		pad := strings.Repeat(" ", max(0, len(real)-len(shown)))
		text = strings.ReplaceAll(text, real+"  ", shown+pad+"  ") // a column keeps its width
		text = strings.ReplaceAll(text, real, shown)
	}
	return strings.TrimRight(strings.ReplaceAll(text, s.dir, "/home/you"), "\n")
}

// The addresses that the README shows, and where serve tells its own.
var addresses = map[string]*regexp.Regexp{
	"127.0.0.1:9092": regexp.MustCompile(`clients +(\S+)`),
	"127.0.0.1:9644": regexp.MustCompile(`console +http://(\S+)`),
}

// serve starts a broker on free ports and returns its greeting.
func (s *session) serve(command string) string {
	if s.broker != nil {
		s.t.Fatal("a broker runs already; end it with a line ^C")
	}
	s.broker = s.shell("exec " + command)
	s.broker.Env = append(s.env, "OTTLA_LISTENERS=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0", "OTTLA_CONSOLE_LISTENER=127.0.0.1:0")
	s.notes.Reset()
	s.broker.Stderr = &s.notes
	pipe, err := s.broker.StdoutPipe()
	if err == nil {
		err = s.broker.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.printed = bufio.NewReader(pipe)
	greeting := ""
	for !strings.Contains(greeting, "ready in") {
		line, err := s.printed.ReadString('\n')
		if err != nil {
			s.t.Fatalf("%s printed %q and ended: %v\n%s", command, greeting, s.broker.Wait(), &s.notes)
		}
		greeting += line
	}
	for shown, where := range addresses {
		if m := where.FindStringSubmatch(greeting); m != nil {
			s.real[shown] = m[1]
		}
	}
	s.env = append(s.env, "OTTLA_BOOTSTRAP_SERVER="+s.real["127.0.0.1:9092"])
	return s.shown(greeting)
}

// interrupt ends the broker as Ctrl-C does and returns what it then says, without its log.
func (s *session) interrupt() string {
	if s.broker == nil {
		s.t.Fatal("there is no broker to interrupt")
	}
	stuck := time.AfterFunc(readmeTimeout, func() { _ = s.broker.Process.Kill() })
	err := s.broker.Process.Signal(syscall.SIGINT)
	out, readErr := io.ReadAll(s.printed)
	if waitErr := s.broker.Wait(); err != nil || readErr != nil || waitErr != nil || !stuck.Stop() {
		s.t.Fatalf("the broker did not end well: %v, %v, %v\n%s", err, readErr, waitErr, &s.notes)
	}
	s.broker = nil
	for line := range strings.Lines(s.notes.String()) {
		if !strings.HasPrefix(line, "{") {
			out = append(out, line...)
		}
	}
	return s.shown(string(out))
}

// stop ends a broker that still runs.
func (s *session) stop() {
	if s.broker == nil {
		return
	}
	_ = s.broker.Process.Kill()
	_ = s.broker.Wait() // it was killed, and says so
	s.broker = nil
}

// curl prints what stands at the URL that is the last argument, as curl -s does, and returns the exit code.
func curl() int {
	resp, err := http.Get(os.Args[len(os.Args)-1])
	if err == nil {
		_, err = io.Copy(os.Stdout, resp.Body)
		err = errors.Join(err, resp.Body.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// What differs between two runs, and what stands for it when they are compared.
var volatile = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)`), "TIME"},
	{regexp.MustCompile(`\b1[0-9]{12}\b`), "TIME"}, // ms since 1970
	{regexp.MustCompile(`\b\d+(\.\d+)? ?(µs|ms|s)\b`), "DURATION"},
	{regexp.MustCompile(`\b[A-Za-z0-9_-]{22}\b`), "ID"},
	{regexp.MustCompile(`\b\d+(\.\d+)? ([KMGTP]i)?B\b`), "SIZE"},
	{regexp.MustCompile(`\b\d+ batch(es)?\b`), "BATCHES"}, // a busy machine makes more of them
	{regexp.MustCompile(`ottla \d+\.\d+\.\d+\S* · \S+`), "ottla VERSION · PLATFORM"},
	{regexp.MustCompile(`(crc:?) *[0-9a-f]+`), "$1 CRC"},
	{regexp.MustCompile(`(?m)[ \t]+$`), ""},
	{regexp.MustCompile(`[ \t]+`), " "},
}

// alike reports whether two outputs say the same.
func alike(a, b string) bool {
	for _, v := range volatile {
		a, b = v.pattern.ReplaceAllString(a, v.with), v.pattern.ReplaceAllString(b, v.with)
	}
	return a == b
}

var link = regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)

// checkLinks holds the links of a line to files of the repository against the files there are.
func checkLinks(t *testing.T, line string) {
	for _, m := range link.FindAllStringSubmatch(line, -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		if _, err := os.Stat(m[1]); err != nil {
			t.Errorf("a link leads nowhere: %v", err)
		}
	}
}

// checkExample holds a block of Go against the body of Example, which go test runs.
func checkExample(t *testing.T, block []string) {
	b, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	code := strings.ReplaceAll(string(b), "\n\t", "\n")
	if !strings.Contains(code, strings.Join(block, "\n")) {
		t.Error("README.md: the Go block is not a part of Example in example_test.go")
	}
}

// withAPIs puts the table of APIs between its markers.
func withAPIs(t *testing.T, text string) string {
	const begin, end = "<!-- apis:begin -->", "<!-- apis:end -->"
	head, rest, ok1 := strings.Cut(text, begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("README.md lacks %s or %s", begin, end)
	}
	return head + begin + "\n" + apiTable() + end + tail
}

// apiTable says which APIs ottla serves, in which versions, and which of Kafka's it does not.
func apiTable() string {
	var clients, nodes, missing []string
	for key := range int16(128) {
		a, ok := protocol.Lookup(key)
		if !ok || a.Private {
			continue
		}
		name := fmt.Sprintf("%s %d–%d", a.Name, a.Min, a.Max)
		if a.Min == a.Max {
			name = fmt.Sprintf("%s %d", a.Name, a.Min)
		}
		switch {
		case a.Built&protocol.OnBroker != 0:
			clients = append(clients, name)
		case a.Built != 0:
			nodes = append(nodes, name)
		default:
			missing = append(missing, a.Name)
		}
	}
	row := func(title string, names []string) string {
		return fmt.Sprintf("| %s (%d) | %s |\n", title, len(names), strings.Join(names, ", "))
	}
	return "| APIs | names and versions |\n| --- | --- |\n" + row("for clients", clients) + row("between nodes only", nodes) + row("not yet", missing)
}
