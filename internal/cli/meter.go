package cli

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A meter gathers what a bench measures: latencies in a histogram, and what happened in each second.
// Any goroutine may record.
type meter struct {
	start time.Time // seconds are counted from here

	mu      sync.Mutex
	latency *hdrhistogram.Histogram // microseconds
	seconds []BenchSecond
	records int64
	bytes   int64
	errors  int64
	err     error // the first
	last    time.Time
}

// The histogram reaches from 1 µs to an hour with three digits.
const maxLatencyMicros = 3_600_000_000

func newMeter(start time.Time) *meter {
	return &meter{start: start, last: start, latency: hdrhistogram.New(1, maxLatencyMicros, 3)}
}

// add records one record of n bytes that was due at intended and is done now.
func (m *meter) add(n int, intended, now time.Time) {
	micros := max(now.Sub(intended).Microseconds(), 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records++
	m.bytes += int64(n)
	m.last = now
	_ = m.latency.RecordValue(min(micros, maxLatencyMicros)) // within the bounds it cannot fail
	s := m.second(now)
	s.Records++
	s.Bytes += int64(n)
	s.MaxMillis = max(s.MaxMillis, float64(micros)/1000)
}

// addBytes records records of a consumer, which have no latency of their own.
func (m *meter) addBytes(records, n int, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records += int64(records)
	m.bytes += int64(n)
	m.last = now
	s := m.second(now)
	s.Records += int64(records)
	s.Bytes += int64(n)
}

// second returns the row of a moment. The lock must be held.
func (m *meter) second(now time.Time) *BenchSecond {
	i := int(max(now.Sub(m.start), 0) / time.Second)
	for len(m.seconds) <= i {
		m.seconds = append(m.seconds, BenchSecond{})
	}
	return &m.seconds[i]
}

func (m *meter) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errors++
	if m.err == nil {
		m.err = err
	}
}

// now returns the totals so far, for progress.
func (m *meter) now() (records, bytes int64, p99 float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records, m.bytes, float64(m.latency.ValueAtPercentile(99)) / 1000
}

// result sums up. The meter must be at rest.
func (m *meter) result() BenchResult {
	m.mu.Lock()
	defer m.mu.Unlock()
	elapsed := m.last.Sub(m.start).Seconds()
	r := BenchResult{Started: m.start.UTC(), Records: m.records, Bytes: m.bytes, Errors: m.errors, Seconds: elapsed, PerSecond: m.seconds}
	if elapsed > 0 {
		r.RecordsPerSecond, r.BytesPerSecond = float64(m.records)/elapsed, float64(m.bytes)/elapsed
	}
	if m.latency.TotalCount() > 0 {
		at := func(p float64) float64 { return float64(m.latency.ValueAtPercentile(p)) / 1000 }
		r.Latency = &BenchLatency{Min: float64(m.latency.Min()) / 1000, Mean: m.latency.Mean() / 1000,
			P50: at(50), P95: at(95), P99: at(99), P999: at(99.9), Max: float64(m.latency.Max()) / 1000}
		r.Histogram = bars(m.latency)
	}
	return r
}

// bounds of the printed histogram, in milliseconds: each step about a half more.
var barBounds = []float64{
	0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512,
	768, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 12000, 16000, 32000, 64000, 3600000,
}

// bars groups a histogram by barBounds; empty ends are left out.
func bars(h *hdrhistogram.Histogram) []BenchBar {
	counts := make([]int64, len(barBounds))
	for _, b := range h.Distribution() {
		if b.Count == 0 {
			continue
		}
		i := 0
		for i < len(barBounds)-1 && float64(b.To) > barBounds[i]*1000 {
			i++
		}
		counts[i] += b.Count
	}
	var out []BenchBar
	total, seen := h.TotalCount(), int64(0)
	for i, n := range counts {
		if seen += n; seen == 0 || n == 0 && (seen == total || len(out) == 0) {
			continue
		}
		out = append(out, BenchBar{barBounds[i], n, float64(n) / float64(total), float64(seen) / float64(total)})
	}
	return out
}

// pace spaces events evenly: event i of a pace is due at start + i/rate. A rate of 0 or less makes all
// due at once.
type pace struct {
	start time.Time
	rate  float64
}

// due returns when event i should happen; now if there is no rate.
func (p pace) due(i int64) time.Time {
	if p.rate <= 0 {
		return time.Now()
	}
	return p.start.Add(time.Duration(float64(i) / p.rate * float64(time.Second)))
}
