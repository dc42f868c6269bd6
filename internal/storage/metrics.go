package storage

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of one log directory; without a Registerer they count for nobody.
type metrics struct {
	fsync    prometheus.Histogram
	scrubbed prometheus.Counter
	rotten   prometheus.Counter
}

func newMetrics(r prometheus.Registerer, path string) metrics {
	m := metrics{fsync: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:        "ottla_log_fsync_duration_seconds",
		Help:        "Time an fsync of a segment took.",
		ConstLabels: prometheus.Labels{"dir": path},
		Buckets:     prometheus.ExponentialBuckets(0.0001, 4, 9), // 0.1 ms to 6.5 s
	})}
	m.scrubbed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ottla_log_scrubbed_bytes_total", Help: "Bytes of cold segments that were read to see whether they are sound.",
		ConstLabels: prometheus.Labels{"dir": path},
	})
	m.rotten = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ottla_log_rotten_batches_total", Help: "Stretches of batches that were found to be rotten on the disk.",
		ConstLabels: prometheus.Labels{"dir": path},
	})
	if r != nil {
		r.MustRegister(m.all()...)
	}
	return m
}

func (m *metrics) unregister(r prometheus.Registerer) {
	if r != nil {
		for _, c := range m.all() {
			r.Unregister(c)
		}
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.fsync, m.scrubbed, m.rotten}
}

// foundRot counts a stretch of rotten batches.
func (m *metrics) foundRot() {
	if m != nil {
		m.rotten.Inc()
	}
}

// synced counts an fsync that began at the given time.
func (m *metrics) synced(begun time.Time) {
	if m != nil {
		m.fsync.Observe(time.Since(begun).Seconds())
	}
}
