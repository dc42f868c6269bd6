//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A party is a broker to measure: its name in the results and the command that starts it.
type party struct{ name, command string }

// A node is a running broker with a directory of its own.
type node struct {
	party
	command *exec.Cmd
	port    int
	data    string
	logPath string
	started time.Time
	exited  chan struct{} // closed when the process is gone
}

// Ports are taken from here upwards, below the range that Linux gives to clients.
const firstPort, lastPort = 22000, 22998

// freePort returns a port that nobody has, nor the one above it.
func (r *runner) freePort() (int, error) {
	for range lastPort - firstPort {
		port := r.port
		if r.port += 2; r.port > lastPort {
			r.port = firstPort
		}
		free := true
		for _, p := range []int{port, port + 1} {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if err != nil {
				free = false
				continue
			}
			free = l.Close() == nil && free
		}
		if free {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no two free ports in a row from %d to %d", firstPort, lastPort)
}

// arguments fills a command in; see the command's comment.
func arguments(command string, port int, data string, settings []string) (args []string) {
	fill := strings.NewReplacer("{port}", strconv.Itoa(port), "{data}", data)
	for _, a := range strings.Fields(command) {
		if !strings.Contains(a, "{set}") {
			args = append(args, fill.Replace(a))
			continue
		}
		for _, s := range settings {
			args = append(args, fill.Replace(strings.ReplaceAll(a, "{set}", s)))
		}
	}
	return args
}

// start runs a broker on the data directory, which may be there already. Its output is added to data.log.
func (r *runner) start(p party, data string, port int, settings []string) (*node, error) {
	if err := os.MkdirAll(filepath.Dir(data), 0o755); err != nil {
		return nil, err
	}
	n := &node{party: p, port: port, data: data, logPath: data + ".log", exited: make(chan struct{})}
	out, err := os.OpenFile(n.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	args := arguments(p.command, port, data, settings)
	if len(args) == 0 {
		return nil, fmt.Errorf("the command of %s is empty", p.name)
	}
	n.command = exec.Command(args[0], args[1:]...)
	n.command.Stdout, n.command.Stderr = out, out
	n.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	n.started = time.Now()
	if err := n.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		n.command.Wait() // how it ended is in its log
		close(n.exited)
	}()
	return n, nil
}

func (n *node) pid() int        { return n.command.Process.Pid }
func (n *node) address() string { return fmt.Sprintf("127.0.0.1:%d", n.port) }

// while returns a context that is over when the process is.
func (n *node) while(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-n.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// stop ends the broker: at once if kill is set, else with SIGTERM and 30 s.
func (n *node) stop(kill bool) {
	signal := syscall.SIGTERM
	if kill {
		signal = syscall.SIGKILL
	}
	n.command.Process.Signal(signal) // it may be gone already
	select {
	case <-n.exited:
	case <-time.After(30 * time.Second):
		n.command.Process.Kill()
		<-n.exited
	}
}

// lastWords is the end of the log, for an error message.
func (n *node) lastWords() string {
	b, err := os.ReadFile(n.logPath)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

// tracesGC reports whether the Go runtime writes a line a collection to the broker's output.
func (n *node) tracesGC() bool { return strings.Contains(n.party.command, "gctrace=1") }

// logEnd is the size of the log so far.
func (n *node) logEnd() int64 {
	i, err := os.Stat(n.logPath)
	if err != nil {
		return 0
	}
	return i.Size()
}

// gcLine is a line of GODEBUG=gctrace=1; the group is CPU milliseconds: sweeping + assists / background / idle + marking.
var gcLine = regexp.MustCompile(`(?m)^gc \d+ @.* ms clock, ([0-9.+/]+) ms cpu,`)

// gcSeconds sums up the CPU time of the collections that the log tells of from a position on.
func (n *node) gcSeconds(from int64) (float64, error) {
	f, err := os.Open(n.logPath)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, from, 1<<40))
	if err != nil {
		return 0, err
	}
	return gcTime(b)
}

func gcTime(log []byte) (seconds float64, err error) {
	var total float64
	for _, m := range gcLine.FindAllSubmatch(log, -1) {
		for _, part := range bytes.FieldsFunc(m[1], func(r rune) bool { return r == '+' || r == '/' }) {
			ms, parseErr := strconv.ParseFloat(string(part), 64)
			total, err = total+ms, errors.Join(err, parseErr)
		}
	}
	return total / 1000, err
}
