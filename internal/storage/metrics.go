package storage

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of one log directory; without a Registerer they count for nobody.
type metrics struct {
	fsync prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, path string) metrics {
	m := metrics{fsync: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:        "ottla_log_fsync_duration_seconds",
		Help:        "Time an fsync of a segment took.",
		ConstLabels: prometheus.Labels{"dir": path},
		Buckets:     prometheus.ExponentialBuckets(0.0001, 4, 9), // 0.1 ms to 6.5 s
	})}
	if r != nil {
		r.MustRegister(m.fsync)
	}
	return m
}

func (m *metrics) unregister(r prometheus.Registerer) {
	if r != nil {
		r.Unregister(m.fsync)
	}
}

// synced counts an fsync that began at the given time.
func (m *metrics) synced(begun time.Time) {
	if m != nil {
		m.fsync.Observe(time.Since(begun).Seconds())
	}
}
