//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/tools/benchmark/parse"

	"ottla/bench/report"
)

// A runner carries out a run: workload by workload, round by round, broker by broker.
type runner struct {
	options
	scale
	size       int64 // options.bytes
	kbenchPath string
	loadPath   string
	work       string    // where the brokers keep their data
	shelf      shelf     // what they have left
	port       int       // to try next
	raw        io.Writer // gets each line at once, for a run that is broken off in the middle of a workload
	id         string
	log        *slog.Logger
}

// A session is one broker in one round of a workload.
type session struct {
	*runner
	ctx   context.Context
	w     workload
	round int
	node  *node // nil while nothing runs
	name  string
	lines report.Results
}

// workload measures all rounds of one workload and returns what there is to file. Its error ends the run; a measurement
// that failed is a line.
func (r *runner) workload(ctx context.Context, w workload, brokers []party) (lines report.Results, err error) {
	for round := range r.rounds {
		s := &session{runner: r, ctx: ctx, w: w, round: round + 1, name: report.Ottla}
		if w.alone != nil {
			r.log.Info("measuring", "workload", w.name, "round", s.round)
			w.alone(s)
		}
		parties := brokers
		if w.alone != nil {
			parties = nil
		} else if w.client {
			parties = append(slices.Clone(brokers), party{report.Client, r.kbenchPath + " null -addr 127.0.0.1:{port}"})
		}
		for _, p := range parties {
			r.log.Info("measuring", "workload", w.name, "round", s.round, "broker", p.name)
			if err := s.broker(p); err != nil {
				return nil, err
			}
		}
		s.name = report.Machine
		if w.sendfile > 0 {
			r.log.Info("measuring", "workload", w.name, "round", s.round, "without a broker", "sendfile")
			s.sendfile(w.sendfile)
		}
		if w.limits {
			r.log.Info("measuring", "workload", w.name, "round", s.round, "without a broker", "limits")
			s.limits()
		}
		lines = append(lines, s.lines...)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("broken off in %s; what was measured of it is in %s", w.name, filepath.Join(r.dir, "fresh.jsonl"))
		}
	}
	return lines, nil
}

// broker measures one broker on a fresh directory.
func (s *session) broker(p party) error {
	s.name = p.name
	folder := filepath.Join(s.work, p.name)
	port, err := s.freePort()
	if err != nil {
		return err
	}
	s.node, err = s.start(p, filepath.Join(folder, "data"), port, s.w.settings)
	if err != nil {
		return err
	}
	serves := true
	if !s.client() {
		serves = s.ready("start", "-settle", "2s")
	} else if _, err := s.command("ready", "-t0", strconv.FormatInt(s.node.started.UnixNano(), 10)); err != nil {
		serves = false
		s.fail("", "ready", err)
	}
	if serves {
		s.w.run(s)
	}
	s.node.stop(s.ctx.Err() != nil)
	err = os.Rename(s.node.logPath, filepath.Join(s.dir, p.name+".log"))
	s.node = nil
	err = errors.Join(err, s.shelf.put(folder))
	s.sync() // the next one is not to pay for it
	return err
}

// client reports whether the broker is kbench's own, which stores nothing.
func (s *session) client() bool { return s.name == report.Client }

// restart stops the broker, or kills it, and starts it on the same directory.
func (s *session) restart(kill bool) {
	n := s.node
	n.stop(kill)
	again, err := s.start(n.party, n.data, n.port, s.w.settings)
	if err != nil {
		s.fail("/restart", "ready", err)
		return
	}
	s.node = again
}

// ready files under the workload's name how long the broker took to serve since its process was started. A broker that does
// not within five minutes is not worth more.
func (s *session) ready(workload string, flags ...string) (serves bool) {
	t0 := strconv.FormatInt(s.node.started.UnixNano(), 10)
	values, err := s.command("ready", append([]string{"-t0", t0, "-limit", "5m"}, flags...)...)
	if err != nil {
		values = failure("ready", err)
	}
	s.file(workload, values)
	return err == nil
}

// kbench files one measurement under the workload's name and a suffix, and reports whether there is one.
func (s *session) kbench(suffix, command string, flags ...string) bool {
	var from int64
	if s.node != nil {
		from = s.node.logEnd()
	}
	defer s.hold()()
	values, err := s.command(command, flags...)
	if err != nil {
		s.fail(suffix, command, err)
		return false
	}
	if cpu, ok := values["broker_cpu_s"].(float64); ok && s.node.tracesGC() && cpu > 0 {
		gc, err := s.node.gcSeconds(from)
		if err != nil {
			s.fail(suffix, command, fmt.Errorf("read the trace of garbage collections: %w", err))
			return false
		}
		values["gc_cpu_s"], values["gc_share"] = gc, gc/cpu
	}
	s.add(suffix, values)
	return true
}

// quiet runs kbench without filing anything, unless it fails. It returns the numbers.
func (s *session) quiet(command string, flags ...string) map[string]float64 {
	values, err := s.command(command, flags...)
	if err != nil {
		s.fail("", command, err)
	}
	numbers := map[string]float64{}
	for k, v := range values {
		if x, ok := v.(float64); ok {
			numbers[k] = x
		}
	}
	return numbers
}

// command runs kbench against the broker and returns the object that it prints.
func (s *session) command(name string, flags ...string) (map[string]any, error) {
	return s.kbenchAt(s.node, name, append([]string{"-addr", s.node.address(), "-pid", strconv.Itoa(s.node.pid())}, flags...)...)
}

func (s *session) kbenchAt(n *node, name string, flags ...string) (map[string]any, error) {
	out, err := s.output(n, s.kbenchPath, append([]string{name}, flags...)...)
	if err != nil {
		return nil, err
	}
	var values map[string]any
	if err := json.Unmarshal(out, &values); err != nil {
		return nil, fmt.Errorf("kbench %s printed %q: %w", name, out, err)
	}
	return values, nil
}

// load runs bench/load and files what it measured under the workload's name and a suffix: one measurement, or several under their names.
func (s *session) load(suffix, command string, flags ...string) {
	defer s.hold()()
	out, err := s.output(s.node, s.loadPath, append([]string{command, "-addr", s.node.address(), "-pid", strconv.Itoa(s.node.pid())}, flags...)...)
	for line := range bytes.Lines(out) {
		var values map[string]any
		if err := json.Unmarshal(line, &values); err != nil {
			s.fail(suffix, command, fmt.Errorf("load printed %q: %w", line, err))
			return
		}
		which, _ := values["cmd"].(string)
		s.add(suffix+strings.TrimPrefix(which, command), values)
	}
	if err != nil {
		s.fail(suffix, command, err)
	}
}

// output is what a program prints that measures the node n; nil: no node.
func (s *session) output(n *node, program string, args ...string) ([]byte, error) {
	name := filepath.Base(program) + " " + args[0]
	ctx, cancel := context.WithTimeout(s.ctx, 10*time.Minute)
	defer cancel()
	if n != nil {
		var over context.CancelFunc
		ctx, over = n.while(ctx)
		defer over()
	}
	cmd := exec.CommandContext(ctx, program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if n != nil && err != nil && s.ctx.Err() == nil {
		select {
		case <-n.exited:
			return nil, fmt.Errorf("the broker exited during %s: %s", name, n.lastWords())
		default:
		}
	}
	if err != nil {
		return out, fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

func failure(command string, err error) map[string]any {
	return map[string]any{"cmd": command, "error": err.Error()}
}

// fail files that a measurement gave nothing.
func (s *session) fail(suffix, command string, err error) { s.add(suffix, failure(command, err)) }

// add files values under the workload's name and a suffix.
func (s *session) add(suffix string, values map[string]any) { s.file(s.w.name+suffix, values) }

func (s *session) file(workload string, values map[string]any) {
	if s.ctx.Err() != nil {
		return // what is broken off has failed through no fault of its own
	}
	maps.Copy(values, map[string]any{"broker": s.name, "workload": workload, "of": s.w.name, "round": strconv.Itoa(s.round), "run": s.id})
	if text, ok := values["error"].(string); ok {
		text = paths.ReplaceAllString(strings.ReplaceAll(text, s.dir, "…"), " …/")
		values["error"] = text
		s.log.Error("not measured", "workload", workload, "broker", s.name, "why", text)
	}
	for k, v := range values { // to five digits, as kbench prints its own
		if x, ok := v.(float64); ok {
			values[k], _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 5, 64), 64)
		}
	}
	s.lines = append(s.lines, s.line(values))
}

// line makes a line of the results and keeps it.
func (r *runner) line(values map[string]any) report.Line {
	raw, err := json.Marshal(values)
	if err != nil {
		panic(err) // they are numbers and strings
	}
	l, err := report.ParseLine(raw)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", raw, err))
	}
	if _, err := r.raw.Write(append(raw, '\n')); err != nil {
		r.log.Error("not kept in the scratch folder", "line", string(raw), "why", err)
	}
	return l
}

// share is that much of an amount of bytes, as the scale wants it.
func (s *session) share(bytes float64) string { return strconv.FormatInt(int64(bytes*s.fraction), 10) }

// hold is [hold], which a quick run does not need.
func (s *session) hold() (release func()) {
	if s.quick {
		return func() {}
	}
	release, err := hold()
	if err != nil {
		s.log.Warn("memory", "why", err)
	}
	return release
}

// sync has the disk finish what it was given, for a minute at most; a quick run is not worth the wait.
func (s *session) sync() {
	if s.quick {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "sync", "-f", s.work).CombinedOutput(); err != nil && s.ctx.Err() == nil {
		s.log.Warn("sync", "why", err, "output", string(out))
	}
}

// createTopic creates a topic that kbench alone could not: with settings, or with more partitions than Kafka creates at a
// time (10,000 records an operation), and waits until all its partitions are led.
func (s *session) createTopic(name string, partitions int, settings map[string]string) {
	if s.client() {
		return
	}
	if err := s.tryCreateTopic(name, partitions, settings); err != nil {
		s.fail("", "create", fmt.Errorf("create topic %s with %d partitions: %w", name, partitions, err))
	}
}

func (s *session) tryCreateTopic(name string, partitions int, settings map[string]string) error {
	const most, patience = 5000, 5 * time.Minute
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	ctx, over := s.node.while(ctx)
	defer over()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.node.address()))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	admin.SetTimeoutMillis(int32(patience.Milliseconds()))
	configs := map[string]*string{}
	for k, v := range settings {
		configs[k] = &v
	}
	if _, err := admin.CreateTopic(ctx, int32(min(partitions, most)), 1, configs, name); err != nil {
		return err
	}
	for n := most; n < partitions; n += most {
		resp, err := admin.UpdatePartitions(ctx, min(n+most, partitions), name)
		if err := errors.Join(err, resp.Error()); err != nil {
			return err
		}
	}
	for {
		ends, err := admin.ListEndOffsets(ctx, name)
		led := 0
		ends.Each(func(o kadm.ListedOffset) {
			if o.Err == nil {
				led++
			}
		})
		if err == nil && led == partitions {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d partitions are led: %w", led, partitions, errors.Join(ctx.Err(), err))
		}
	}
}

// limits measures the machine, one round of kbench limits for each of ours.
func (s *session) limits() {
	size := min(s.size, 1<<30)
	defer s.hold()()
	values, err := s.kbenchAt(nil, "limits", "-rounds", "1", "-dir", s.work, "-bytes", strconv.FormatInt(size, 10))
	if err != nil {
		values = failure("limits", err)
	}
	for k := range values {
		if strings.HasSuffix(k, "_best") { // of one round
			delete(values, k)
		}
	}
	s.add("/limits", values)
}

// innerParts are the packages whose benchmarks are run, and which of them.
var innerParts = []struct{ pkg, benchmarks string }{
	{"record", "Validate"}, {"storage", "AppendAsLeader|Read|IndexLookup"}, {"replica", "Append|Read"}, {"protocol", "FetchFrame"},
	{"transport", "Request|LargeProduce"}, {"broker", "Produce|Fetch"}, {"metadata", "PartitionChange"}, {"vfs", "SendTo"},
}

// paths are the folders of absolute paths, which have no place in a committed file.
var paths = regexp.MustCompile(`(?:^|[ "=(])(?:/[^/ ":)]+)+/`)

var processors = regexp.MustCompile(`-\d+$`)

// inner runs Go benchmarks of ottla's own packages.
func (s *session) inner() {
	for _, p := range innerParts {
		args := []string{"test", "-run=^$", "-bench=" + p.benchmarks, "-benchmem"}
		if s.quick {
			args = append(args, "-benchtime=1ms")
		}
		out, err := exec.CommandContext(s.ctx, "go", append(args, "./internal/"+p.pkg)...).CombinedOutput()
		if err != nil {
			s.fail("/"+p.pkg, "go test", fmt.Errorf("%w: %s", err, out))
			continue
		}
		set, err := parse.ParseSet(bytes.NewReader(out))
		if err != nil || len(set) == 0 {
			s.fail("/"+p.pkg, "go test", errors.Join(fmt.Errorf("no benchmark matches %s", p.benchmarks), err))
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(set)) {
			for _, b := range set[name] {
				values := map[string]any{"cmd": "go test", "ns_op": b.NsPerOp, "bytes_op": float64(b.AllocedBytesPerOp), "allocs_op": float64(b.AllocsPerOp)}
				if b.Measured&parse.MBPerS != 0 {
					values["part_mb_s"] = b.MBPerS
				}
				s.add("/"+p.pkg+"."+processors.ReplaceAllString(strings.TrimPrefix(name, "Benchmark"), ""), values)
			}
		}
	}
}

// about is the line that tells of the run and the machine.
func (r *runner) about(ctx context.Context) report.Line {
	said := func(name string, args ...string) string {
		out, err := exec.CommandContext(ctx, name, args...).Output()
		if err != nil {
			return "unknown"
		}
		return strings.TrimSpace(string(out))
	}
	field := func(path, name string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			return "unknown"
		}
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
				return strings.TrimSpace(v)
			}
		}
		return "unknown"
	}
	kernel, _, _ := strings.Cut(said("uname", "-r"), "-")
	memory := "unknown"
	if kb, err := strconv.ParseFloat(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 64); err == nil {
		memory = strconv.FormatFloat(kb*1024/1e9, 'f', 0, 64)
	}
	return r.line(map[string]any{"cmd": "run", "run": r.id, "commit": said("git", "describe", "--always", "--dirty", "--abbrev=10"), "go": runtime.Version(),
		"cores": strconv.Itoa(runtime.NumCPU()), "cpu": field("/proc/cpuinfo", "model name"), "memory_gb": memory, "kernel": kernel,
		"filesystem": said("findmnt", "-n", "-o", "FSTYPE", "-T", r.work), "rounds": strconv.Itoa(r.rounds), "bytes": r.bytes, "warm": r.options.warm})
}
