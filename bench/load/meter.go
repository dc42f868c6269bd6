//go:build linux

package main

import (
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/prometheus/procfs"
)

// A meter reads what a span of work costs this program, the broker and everybody else, out of /proc.
type meter struct {
	broker *procfs.Proc // nil: not asked for
	fs     procfs.FS
	start  reading
}

// A reading is the CPU time spent until an instant, in seconds.
type reading struct {
	at                   time.Time
	own, broker, machine float64
}

func newMeter(pid int) (*meter, error) {
	m := &meter{}
	if pid == 0 {
		return m, nil
	}
	p, err := procfs.NewProc(pid)
	if err != nil {
		return nil, err
	}
	m.broker = &p
	if m.fs, err = procfs.NewDefaultFS(); err != nil {
		return nil, err
	}
	return m, m.begin()
}

// begin begins the span.
func (m *meter) begin() (err error) {
	m.start, err = m.read()
	return err
}

func (m *meter) read() (reading, error) {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return reading{}, err
	}
	r := reading{at: time.Now(), own: float64(ru.Utime.Nano()+ru.Stime.Nano()) / 1e9}
	if m.broker == nil {
		return r, nil
	}
	stat, err := m.broker.Stat()
	if err != nil {
		return reading{}, err
	}
	all, err := m.fs.Stat()
	if err != nil {
		return reading{}, err
	}
	t := all.CPUTotal
	r.broker, r.machine = stat.CPUTime(), t.User+t.Nice+t.System+t.IRQ+t.SoftIRQ+t.Steal
	return r, nil
}

// report adds what was spent until end, and the broker's memory as it is now.
func (m *meter) report(r result, end reading) error {
	wall := end.at.Sub(m.start.at).Seconds()
	own := end.own - m.start.own
	r["wall_s"], r["client_cpu_s"], r["client_cores"] = wall, own, own/wall
	if m.broker == nil {
		return nil
	}
	cpu := end.broker - m.start.broker
	r["broker_cpu_s"], r["broker_cores"] = cpu, cpu/wall
	r["other_cores"] = max(end.machine-m.start.machine-own-cpu, 0) / wall
	status, err := m.broker.NewStatus()
	if err != nil {
		return err
	}
	r["rss_mb"], r["rss_anon_mb"], r["rss_peak_mb"] = float64(status.VmRSS)/1e6, float64(status.RssAnon)/1e6, float64(status.VmHWM)/1e6
	return nil
}

// newHistogram counts microseconds up to ten minutes, to three digits.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, 600e6, 3) }

func observe(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(d.Microseconds(), 1), h.HighestTrackableValue())) // within its range it cannot fail
}

// percentiles adds those of a histogram in milliseconds, if it has counted anything.
func percentiles(r result, prefix string, h *hdrhistogram.Histogram) {
	if h.TotalCount() == 0 {
		return
	}
	for name, q := range map[string]float64{"p50_ms": 50, "p99_ms": 99, "p999_ms": 99.9, "max_ms": 100} {
		r[prefix+name] = float64(h.ValueAtQuantile(q)) / 1e3
	}
}
