//go:build linux

// Command bench measures ottla beside Apache Kafka, on Linux, and writes docs/performance.md: it is what `make bench` runs. It drives
// kbench, the neutral load generator, which is built from a folder that the flag -kbench names and is never changed, and the
// program load beside it, which is as neutral; it owns which workloads there are (plan.go), the life of the brokers (node.go), and what is measured without a broker
// (bare.go), and in which state the machine's memory is (shelf.go). The package report beside it owns the results file and the document.
//
//	go run ./bench [flags] apache='COMMAND' ottla='COMMAND'
//	go run ./bench -render
//	go run ./bench -list
//
// A command runs in the foreground and stops at SIGTERM; it is split at spaces, no shell reads it. {port} in it is replaced
// by a free port (the one above it is free as well), {data} by a fresh directory, and an argument with {set} stands once for
// each setting of the workload, as key=value. With GODEBUG=gctrace=1 in its environment, as `env` sets it, the share of
// garbage collection is reported as well.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ottla/bench/report"
)

// A child that is told to die with its parent dies with the thread that started it; the main one stays.
func init() { runtime.LockOSThread() }

func main() {
	if len(os.Args) == 3 && os.Args[1] == serveFileCommand {
		exit(serveFile(os.Args[2]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, os.Args[1:]))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Options are a run's parameters. Make hands them on in the environment, under the names of kbench's own run.sh.
type options struct {
	workloads string
	rounds    int
	bytes     string // to each throughput measurement
	warm      string // before it
	quick     bool
	kbench    string // folder of its source
	dir       string // scratch
	docs      string // the folder of performance.md
	list      bool
	render    bool
}

func run(ctx context.Context, args []string) error {
	env := func(name, otherwise string) string { return cmp.Or(os.Getenv(name), otherwise) }
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.BoolVar(&o.quick, "quick", os.Getenv("QUICK") != "", "try everything out, small and once, and keep the outcome in the scratch `folder` (QUICK)")
	f.StringVar(&o.workloads, "workloads", env("WORKLOADS", "all"), "names of workloads or sets of them, separated by spaces (WORKLOADS)")
	f.StringVar(&o.bytes, "bytes", env("BYTES", ""), "bytes to each throughput measurement (BYTES; 2GiB, quick: 32MiB)")
	f.StringVar(&o.warm, "warm", env("WARM", ""), "bytes to warm a broker with before (WARM; 5GiB, quick: 32MiB)")
	f.IntVar(&o.rounds, "rounds", 0, "rounds of each workload (ROUNDS; 3, quick: 1)")
	f.StringVar(&o.kbench, "kbench", "../shared/bench", "folder with the source of kbench")
	f.StringVar(&o.dir, "dir", env("BENCH_DIR", filepath.Join(os.TempDir(), "ottla-bench")), "scratch `folder`, on the disk to measure (BENCH_DIR)")
	f.StringVar(&o.docs, "docs", "docs", "`folder` of performance.md and performance/results.jsonl")
	f.BoolVar(&o.list, "list", false, "list the workloads and how long they take")
	f.BoolVar(&o.render, "render", false, "write the document from the results file again, measure nothing")
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.list {
		return list(os.Stdout)
	}
	if o.render {
		return render(o.docs)
	}
	if o.rounds == 0 && os.Getenv("ROUNDS") != "" {
		n, err := strconv.Atoi(os.Getenv("ROUNDS"))
		if err != nil || n < 1 {
			return fmt.Errorf("ROUNDS=%s is no number of rounds; give 1 or more", os.Getenv("ROUNDS"))
		}
		o.rounds = n
	}
	rounds, size := 3, [2]string{"2GiB", "5GiB"}
	if o.quick {
		rounds, size = 1, [2]string{"32MiB", "32MiB"}
		o.docs = filepath.Join(o.dir, "docs")
	}
	o.rounds, o.bytes, o.warm = cmp.Or(o.rounds, rounds), cmp.Or(o.bytes, size[0]), cmp.Or(o.warm, size[1])

	chosen, err := choose(o.workloads)
	if err != nil {
		return err
	}
	var brokers []party
	for _, a := range f.Args() {
		name, command, ok := strings.Cut(a, "=")
		if !ok || name != report.Apache && name != report.Ottla {
			return fmt.Errorf("%q names no broker; give %s='COMMAND' or %s='COMMAND'", a, report.Apache, report.Ottla)
		}
		brokers = append(brokers, party{name: name, command: command})
	}
	return measure(ctx, o, chosen, brokers)
}

// measure runs the workloads one after the other. Each is filed when its last round is over, so that a run that is broken
// off keeps what it has.
func measure(ctx context.Context, o options, chosen []workload, brokers []party) error {
	bytes, err := parseSize(o.bytes)
	if err != nil {
		return err
	}
	work := filepath.Join(o.dir, "run")
	if err := errors.Join(os.RemoveAll(work), os.MkdirAll(work, 0o755), os.MkdirAll(filepath.Join(o.docs, "performance"), 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	kbench, err := filepath.Abs(filepath.Join(o.dir, "kbench"))
	if err != nil {
		return err
	}
	load := filepath.Join(filepath.Dir(kbench), "load")
	for _, p := range []struct{ path, source, folder string }{{kbench, ".", o.kbench}, {load, "ottla/bench/load", ""}} {
		build := exec.CommandContext(ctx, "go", "build", "-o", p.path, p.source)
		build.Dir = p.folder
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", filepath.Base(p.path), err, out)
		}
	}
	fresh, err := os.Create(filepath.Join(o.dir, "fresh.jsonl"))
	if err != nil {
		return err
	}
	defer fresh.Close()

	r := &runner{options: o, size: bytes, kbenchPath: kbench, loadPath: load, work: work, port: firstPort, raw: fresh,
		id: time.Now().UTC().Format("2006-01-02T15:04:05Z"), log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if r.scale = full; o.quick {
		r.scale = quick
	} else if r.shelf, err = newShelf(filepath.Join(work, "shelf")); err != nil {
		return err
	}
	minutes := 0.0
	for _, w := range chosen {
		minutes += w.minutes * float64(o.rounds)
	}
	if !o.quick {
		r.log.Info("measuring", "workloads", len(chosen), "rounds", o.rounds, "minutes at default sizes on a quiet machine", int(minutes+0.5))
	}
	failed := 0
	for _, w := range chosen {
		lines, err := r.workload(ctx, w, brokers)
		if err != nil {
			return err
		}
		for _, l := range lines {
			if l.Error != "" {
				failed++
			}
		}
		if err := file(o.docs, append(report.Results{r.about(ctx)}, lines...)); err != nil {
			return err
		}
	}
	r.log.Info("written", "document", filepath.Join(o.docs, "performance.md"), "results", resultsPath(o.docs))
	if failed > 0 {
		return fmt.Errorf("%d measurements failed; the document lists them, the brokers' logs are in %s", failed, o.dir)
	}
	return nil
}

func resultsPath(docs string) string { return filepath.Join(docs, "performance", "results.jsonl") }

// file merges lines into the results file and writes the document.
func file(docs string, lines report.Results) error {
	old, err := readResults(docs)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if _, err := old.Merge(lines).WriteTo(&b); err != nil {
		return err
	}
	path := resultsPath(docs)
	if err := os.WriteFile(path+".new", b.Bytes(), 0o644); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return render(docs)
}

// readResults reads the results file; that there is none yet is no error.
func readResults(docs string) (report.Results, error) {
	b, err := os.ReadFile(resultsPath(docs))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	rs, err := report.Parse(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", resultsPath(docs), err)
	}
	return rs, nil
}

// render writes the document and its pictures from the results file, and removes pictures that it no longer has.
func render(docs string) error {
	rs, err := readResults(docs)
	if err != nil {
		return err
	}
	folder := filepath.Join(docs, "performance")
	notes, err := os.ReadFile(filepath.Join(folder, "notes.md"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d := report.Render(rs, string(notes))
	old, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if _, ok := d.Pictures[filepath.Base(path)]; !ok {
			err = errors.Join(err, os.Remove(path))
		}
	}
	for name, svg := range d.Pictures {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, name), svg, 0o644))
	}
	return errors.Join(err, os.WriteFile(filepath.Join(docs, "performance.md"), d.Markdown, 0o644))
}

// parseSize reads a count of bytes as kbench does.
func parseSize(s string) (int64, error) {
	for _, u := range []struct {
		suffix string
		factor float64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1}} {
		if n, ok := strings.CutSuffix(s, u.suffix); ok {
			v, err := strconv.ParseFloat(n, 64)
			if err != nil || v <= 0 {
				break
			}
			return int64(v * u.factor), nil
		}
	}
	return 0, fmt.Errorf("%q is no size; give one such as 2GiB or 500MB", s)
}
