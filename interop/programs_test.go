//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long anything may take. It is far more than all needs on a slow machine: waits end when what they wait for
// is there.
const patience = 4 * time.Minute

// A log is the output of a program, written while tests read it.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write never fails.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns all that was written.
func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// A program runs in a process of its own, or in the JVM that java/Host.java describes. Closing in asks it to end, kill makes
// it; end waits until it has, once out is read.
type program struct {
	name string
	in   io.WriteCloser
	out  io.Reader
	errs *log // standard error
	kill func()
	end  func() error
}

// startProcess runs a command as a program. One that has not ended when the test does is killed.
func startProcess(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{name: strings.Join(cmd.Args, " "), in: in, out: out, errs: new(log), end: cmd.Wait}
	cmd.Stderr = p.errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.kill = func() { cmd.Process.Kill() }
	t.Cleanup(p.kill)
	return p
}

// A jvm is the process of java/Host.java.
type jvm struct {
	in      io.Closer
	address string
	errs    log
	ended   chan struct{}
}

// host is started by the first test that needs it and ended by TestMain.
var host = sync.OnceValues(func() (*jvm, error) {
	cmd := java("Host")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h := &jvm{in: in, ended: make(chan struct{})}
	hosts = append(hosts, h)
	cmd.Stderr = &h.errs
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		cmd.Wait()
		close(h.ended)
	}()
	if err != nil {
		return nil, fmt.Errorf("the host JVM: %w\n%s", err, tail(h.errs.String()))
	}
	h.address = "127.0.0.1:" + strings.TrimSpace(line)
	return h, nil
})

var hosts []*jvm

// startHosted runs a Java class with its arguments in the host.
func startHosted(t *testing.T, line string) *program {
	t.Helper()
	h, err := host()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", h.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprintln(conn, line); err != nil {
		t.Fatal(err)
	}
	out := &hostedOutput{r: bufio.NewReader(conn)}
	return &program{
		name: "java " + line, in: hostedInput{conn.(*net.TCPConn)}, out: out, errs: &h.errs,
		kill: func() { conn.Close() },
		end: func() error {
			if out.status != 0 {
				return fmt.Errorf("exit status %d", out.status)
			}
			return nil
		},
	}
}

type hostedInput struct{ *net.TCPConn }

// Close ends the input and leaves the output open.
func (h hostedInput) Close() error { return h.CloseWrite() }

// A hostedOutput ends with the line that tells the exit status.
type hostedOutput struct {
	r      *bufio.Reader
	next   string
	status int
}

// Read gives whole lines as they come; it ends with io.EOF only if the exit status came.
func (h *hostedOutput) Read(p []byte) (int, error) {
	if h.next == "" {
		line, err := h.r.ReadString('\n')
		if n, _ := fmt.Sscanf(line, "exit %d\n", &h.status); n == 1 {
			return 0, io.EOF
		}
		if h.next = line; line == "" {
			return 0, fmt.Errorf("the JVM is lost: %w", err)
		}
	}
	n := copy(p, h.next)
	h.next = h.next[n:]
	return n, nil
}

// runHosted returns what a Java class printed, on both outputs, and its exit status.
func runHosted(t *testing.T, line string) (out string, status int) {
	t.Helper()
	return finish(t, startHosted(t, "2>&1 "+line))
}

// finish reads what a program in the host prints until it ends.
func finish(t *testing.T, p *program) (out string, status int) {
	t.Helper()
	defer time.AfterFunc(patience, p.kill).Stop()
	all, err := io.ReadAll(p.out)
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", p.name, err, tail(string(all)), tail(p.errs.String()))
	}
	return strings.TrimSuffix(string(all), "\n"), p.out.(*hostedOutput).status
}

// java runs a class in a JVM of its own. The flags are for a quick start and few pages of memory; to verify the classes takes
// almost half of a start's time.
func java(class string, args ...string) *exec.Cmd {
	cp := filepath.Join(cache, "classes") + ":" + filepath.Join(cache, "java", "*")
	return exec.Command("java", append([]string{"-Xms48m", "-Xmx768m", "-Xmn24m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData",
		"-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote", "-Dlog4j2.configurationFile=java/log4j2.xml", "-cp", cp, class}, args...)...)
}

// A toolbox is a process that runs one call after another: each line of its standard input is one; on standard output follow
// what it prints and a line "exit STATUS".
type toolbox struct {
	*program
	lines *bufio.Reader
}

func startToolbox(t *testing.T, cmd *exec.Cmd) *toolbox {
	t.Helper()
	p := startProcess(t, cmd)
	return &toolbox{p, bufio.NewReader(p.out)}
}

// run returns what the call printed; it must succeed.
func (b *toolbox) run(t *testing.T, args ...string) string {
	t.Helper()
	defer time.AfterFunc(patience, b.kill).Stop()
	call := strings.Join(args, " ")
	if _, err := fmt.Fprintln(b.in, call); err != nil {
		t.Fatalf("%s: %s: %v\n%s", b.name, call, err, tail(b.errs.String()))
	}
	var out strings.Builder
	for {
		line, err := b.lines.ReadString('\n')
		status := 0
		if n, _ := fmt.Sscanf(line, "exit %d\n", &status); n == 1 && status == 0 {
			return out.String()
		} else if n == 1 || err != nil {
			t.Fatalf("%s: %s: status %d, %v\n%s%s", b.name, call, status, err, tail(out.String()), tail(b.errs.String()))
		}
		out.WriteString(line)
	}
}

// run returns the command's standard output and fails the test unless it exits with 0.
func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(patience, func() { cmd.Process.Kill() }).Stop()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, tail(errs.String()))
	}
	return out.String()
}

func tail(s string) string {
	return s[max(0, len(s)-3000):]
}

// eventually waits until what is asked holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if !within(patience, holds) {
		t.Fatalf("waited %v: %s", patience, what)
	}
}

// within waits until what is asked holds, for so long at the most, and reports whether it does.
func within(most time.Duration, holds func() bool) bool {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(most); time.Now().Before(deadline); <-ticker.C {
		if holds() {
			return true
		}
	}
	return false
}
