//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ottla/bench/report"
)

func TestArguments(t *testing.T) {
	const command = "run --listen=x:{port} {data} --set={set} -v"
	for _, test := range []struct {
		settings []string
		want     string
	}{
		{nil, "run --listen=x:7 /d -v"},
		{[]string{"a=1", "b=2"}, "run --listen=x:7 /d --set=a=1 --set=b=2 -v"},
	} {
		if got := strings.Join(arguments(command, 7, "/d", test.settings), " "); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

func TestChoose(t *testing.T) {
	names := func(ws []workload) (all []string) {
		for _, w := range ws {
			all = append(all, w.name)
		}
		return all
	}
	for _, test := range []struct {
		names string
		want  []string // in the plan's order, each once
	}{
		{"small bulk", []string{"bulk", "small"}},
		{"lifecycle meta small", []string{"small", "meta", "conns", "crash"}},
		{"all", names(plan)},
	} {
		got, err := choose(test.names)
		if diff := cmp.Diff(test.want, names(got)); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", test.names, err, diff)
		}
	}
	for _, wrong := range []string{"", "bulk bulky"} {
		if got, err := choose(wrong); err == nil {
			t.Errorf("%q is taken for %v", wrong, names(got))
		}
	}
	for name, members := range sets {
		for _, m := range members {
			if !slices.Contains(names(plan), m) {
				t.Errorf("the set %s has %s, which is no workload", name, m)
			}
		}
	}
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{"2GiB": 2 << 30, "1.5KiB": 1536, "500MB": 500e6, "7": 7, "7B": 7} {
		if got, err := parseSize(s); err != nil || got != want {
			t.Errorf("%s is %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "x", "1XB", "-1MB", "0"} {
		if got, err := parseSize(s); err == nil {
			t.Errorf("%q is taken for %d", s, got)
		}
	}
}

// TestCollectGarbage is what TestGCTime runs in a process of its own.
func TestCollectGarbage(t *testing.T) {
	for range 4 {
		runtime.GC()
	}
}

// TestGCTime reads what this version of Go writes.
func TestGCTime(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCollectGarbage$")
	cmd.Env = append(os.Environ(), "GODEBUG=gctrace=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	// The line of the last collection is cut short when the process ends while it is written.
	trace := stderr.Bytes()
	if n := len(gcLine.FindAll(trace, -1)); n < 3 {
		t.Errorf("%d collections are seen in\n%s", n, trace)
	}
	const line = "gc 7 @1.5s 2%: 0.1+2+0.1 ms clock, 1.5+0.5/250/40+8 ms cpu, 4->5->1 MB, 5 MB goal, 0 MB stacks, 0 MB globals, 2 P\n"
	if got, err := gcTime([]byte("x\n" + line + "gc is mentioned here\n" + line)); err != nil || got != 0.6 {
		t.Errorf("%v s, %v, want 0.6", got, err)
	}
	if got, err := gcTime(nil); err != nil || got != 0 {
		t.Errorf("of nothing: %v s, %v", got, err)
	}
}

// TestSendFile has both readers get as many bytes as they ask for, twice, of a file that is shorter.
func TestSendFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, make([]byte, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func(*net.TCPConn, int64) error{"copied": readCopied, "dropped": readDropped} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		sent := make(chan error, 1)
		go func() {
			c, err := l.Accept()
			if err == nil {
				defer c.Close()
				err = sendFile(c.(*net.TCPConn), path)
			}
			sent <- err
		}()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			const asked = 1_234_567
			if _, err := c.Write(binary.BigEndian.AppendUint64(nil, asked)); err != nil {
				t.Fatal(err)
			}
			if err := read(c.(*net.TCPConn), asked); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := errors.Join(c.Close(), <-sent, l.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// testRunner measures with a script in kbench's place. The script prints its flags as it got them and fails when they
// have the word FAIL.
func testRunner(t *testing.T) (*runner, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\ncase \"$*\" in *FAIL*) echo it did not work in " + dir + " nor in /some/where/else >&2; exit 3;; esac\n" +
		`printf '{"cmd":"%s","flags":"%s","records":7,"broker_cpu_s":2}\n' "$1" "$*"` + "\n"
	kbench := filepath.Join(dir, "kbench")
	if err := os.WriteFile(kbench, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	raw := new(bytes.Buffer)
	return &runner{options: options{rounds: 2, bytes: "1MiB", warm: "2MiB", quick: true, dir: dir}, scale: quick, size: 1 << 20, kbenchPath: kbench,
		work: filepath.Join(dir, "run"), port: firstPort, raw: raw, id: "now", log: slog.New(slog.DiscardHandler)}, raw
}

var fakes = []party{{report.Apache, "sleep 1000"}, {report.Ottla, "env GODEBUG=gctrace=1 sleep 1000"}}

// TestWorkload follows one workload through two rounds: which lines it files, of whom, in which order.
func TestWorkload(t *testing.T) {
	r, raw := testRunner(t)
	crash := plan[slices.IndexFunc(plan, func(w workload) bool { return w.name == "crash" })]
	lines, err := r.workload(t.Context(), crash, fakes)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprintf("%s %s %s of %s in %s %s", l.Text["round"], l.Broker, l.Workload, l.Of, l.Run, l.Error))
	}
	want := []string{
		"1 apache start of crash in now ", "1 apache crash/restart of crash in now ", "1 ottla start of crash in now ", "1 ottla crash/restart of crash in now ",
		"2 apache start of crash in now ", "2 apache crash/restart of crash in now ", "2 ottla start of crash in now ", "2 ottla crash/restart of crash in now ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	kept, err := report.Parse(raw)
	if err != nil || len(kept) != len(lines) {
		t.Errorf("%d lines are kept at once, %v, want %d", len(kept), err, len(lines))
	}
	if left, err := os.ReadDir(r.work); err != nil || len(left) > 0 {
		t.Errorf("data is left: %v, %v", left, err)
	}
}

// TestFailures has a failed measurement and a dead broker become lines that say why, without a path of this machine.
func TestFailures(t *testing.T) {
	r, _ := testRunner(t)
	r.rounds = 1
	w := workload{name: "w", run: func(s *session) {
		s.kbench("/good", "produce")
		s.kbench("/bad", "produce", "-topic", "FAIL")
		s.node.stop(true)
		s.kbench("/late", "produce", "-topic", "FAIL")
	}}
	lines, err := r.workload(t.Context(), w, fakes[1:])
	if err != nil || len(lines) != 4 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	if good := lines[1]; good.Error != "" || good.Values["gc_share"] != 0 || good.Values["broker_cpu_s"] != 2 {
		t.Errorf("what worked: %+v", good)
	}
	if _, ok := lines[1].Values["gc_share"]; !ok {
		t.Error("the garbage collection of a broker that traces it is not told of")
	}
	if bad := lines[2].Error; !strings.Contains(bad, "it did not work in … nor in …/else") || strings.Contains(bad, r.dir) {
		t.Errorf("what failed: %q", bad)
	}
	if late := lines[3].Error; !strings.Contains(late, "the broker exited during kbench produce") {
		t.Errorf("what came when the broker was gone: %q", late)
	}
}

// TestBrokenOff has a run that is interrupted file nothing and leave no broker.
func TestBrokenOff(t *testing.T) {
	r, _ := testRunner(t)
	ctx, cancel := context.WithCancel(t.Context())
	var n *node
	w := workload{name: "w", run: func(s *session) { n = s.node; cancel(); s.kbench("", "produce") }}
	if lines, err := r.workload(ctx, w, fakes); err == nil || len(lines) > 0 {
		t.Errorf("%d lines, %v", len(lines), err)
	}
	select {
	case <-n.exited:
	default:
		t.Error("the broker still runs")
	}
}

// TestFile writes the document for lines of two runs into an empty folder.
func TestFile(t *testing.T) {
	docs := t.TempDir()
	if err := os.MkdirAll(filepath.Join(docs, "performance"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(docs, "performance", "notes.md"), []byte("- tried: this"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, _ := testRunner(t)
	for _, speed := range []float64{100, 200} {
		line := r.line(map[string]any{"run": "now", "broker": report.Ottla, "workload": "bulk", "of": "bulk", "mb_s": speed, "p50_ms": 1.0})
		if err := file(docs, report.Results{line}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(docs, "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| not measured | 200 |", "- tried: this"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the document lacks %q", want)
		}
	}
}
