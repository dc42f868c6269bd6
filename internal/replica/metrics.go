package replica

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"ottla/internal/replica/state"
)

// metrics are what the replicas tell Prometheus. Gauges are counted when they are asked for.
type metrics struct {
	registerer prometheus.Registerer // nil: nobody asks
	collectors []prometheus.Collector
	inBytes    *prometheus.CounterVec
	inRecords  *prometheus.CounterVec
	outBytes   *prometheus.CounterVec

	mu struct {
		sync.Mutex
		topics map[string]*topicMetrics
	}
}

// topicMetrics are the counters of one topic, shared by its partitions.
type topicMetrics struct {
	inBytes, inRecords   prometheus.Counter
	toClients, toReplica prometheus.Counter
}

func newMetrics(s *Set, r prometheus.Registerer) *metrics {
	m := &metrics{
		registerer: r,
		inBytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ottla_topic_received_bytes_total", Help: "Bytes of record batches that producers wrote to the topic's partitions led here.",
		}, []string{"topic"}),
		inRecords: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ottla_topic_received_records_total", Help: "Records that producers wrote to the topic's partitions led here.",
		}, []string{"topic"}),
		outBytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ottla_topic_sent_bytes_total", Help: "Bytes of record batches read from the topic, by who reads: consumer or replica.",
		}, []string{"topic", "to"}),
	}
	m.mu.topics = map[string]*topicMetrics{}
	gauge := func(name, help string, counts func(*view) bool) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			n := 0
			for p := range s.Partitions {
				if counts(p.view.Load()) {
					n++
				}
			}
			return float64(n)
		})
	}
	leads := func(v *view) bool { return v.err == nil && v.role == state.Leader }
	m.collectors = []prometheus.Collector{
		m.inBytes, m.inRecords, m.outBytes,
		gauge("ottla_replicas", "Replicas on this broker.", func(*view) bool { return true }),
		gauge("ottla_leaders", "Partitions that this broker leads.", leads),
		gauge("ottla_under_replicated_partitions", "Partitions led here whose replicas are not all in sync.",
			func(v *view) bool { return leads(v) && v.isr < v.replicas }),
		gauge("ottla_under_min_isr_partitions", "Partitions led here with fewer than min.insync.replicas in sync.",
			func(v *view) bool { return leads(v) && v.underMinISR }),
	}
	if r != nil {
		r.MustRegister(m.collectors...)
	}
	return m
}

func (m *metrics) unregister() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.collectors {
		m.registerer.Unregister(c)
	}
}

func (m *metrics) topic(name string) *topicMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.mu.topics[name]
	if t == nil {
		t = &topicMetrics{
			inBytes: m.inBytes.WithLabelValues(name), inRecords: m.inRecords.WithLabelValues(name),
			toClients: m.outBytes.WithLabelValues(name, "client"), toReplica: m.outBytes.WithLabelValues(name, "replica"),
		}
		m.mu.topics[name] = t
	}
	return t
}

// forget drops the counters of a topic that was deleted.
func (m *metrics) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.topics, name)
	topic := prometheus.Labels{"topic": name}
	m.inBytes.DeletePartialMatch(topic)
	m.inRecords.DeletePartialMatch(topic)
	m.outBytes.DeletePartialMatch(topic)
}

func (t *topicMetrics) received(bytes, records int) {
	t.inBytes.Add(float64(bytes))
	t.inRecords.Add(float64(records))
}

func (t *topicMetrics) sent(bytes int, replica bool) {
	switch {
	case bytes == 0:
	case replica:
		t.toReplica.Add(float64(bytes))
	default:
		t.toClients.Add(float64(bytes))
	}
}
