package ottla_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"ottla/internal/cli"
)

// commandVariable (not OTTLA_…, which would be configuration) makes this test's binary be another: ottla, or curl, which not every machine has.
const commandVariable = "TEST_COMMAND"

// TestMain is a command instead of the tests if it is asked to be.
func TestMain(m *testing.M) {
	switch os.Getenv(commandVariable) {
	case "ottla":
		os.Exit(cli.Main())
	case "curl":
		os.Exit(curl())
	}
	os.Exit(m.Run())
}

// ottlaCommand is the command line of ottla, in a process of its own.
func ottlaCommand(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), commandVariable+"=ottla")
	return cmd
}

// A process is a broker in a process of its own.
type process struct {
	cmd     *exec.Cmd
	address string // of its clients' listener
}

// serve starts a broker on free ports and returns when it serves. It logs to log, and is killed when the test ends.
func serve(t *testing.T, log *lockedBuffer, dir string, settings ...string) *process {
	t.Helper()
	args := []string{"serve", "-o", "jsonl"}
	for _, set := range append([]string{"listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0", "log.dirs=" + dir, "ottla.console.listener="}, settings...) {
		args = append(args, "--set", set)
	}
	p := &process{cmd: ottlaCommand(context.Background(), t, args...)}
	p.cmd.Stderr = log
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	var g cli.Greeting
	if err := json.NewDecoder(out).Decode(&g); err != nil {
		t.Fatalf("the broker does not start: %v\n%s", err, log)
	}
	_, p.address, _ = strings.Cut(g.Listeners[0], "://")
	return p
}

// kill ends the broker as a fault would, unless it has ended.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill() // it may be dead by itself
		_ = p.cmd.Wait()         // says that it was killed
	}
}

// A lockedBuffer is a bytes.Buffer for several writers.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
