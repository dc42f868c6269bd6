package broker

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

var topicSize = prometheus.NewDesc("ottla_topic_size_bytes",
	"Bytes of a topic's record batches in the replicas on this node, by where they are: local is this node's log directories.", []string{"topic", "tier"}, nil)

// topicMetrics are counted when they are asked for.
type topicMetrics struct{ *Broker }

// registerTopicMetrics lets topics be measured until the broker closes.
func (b *Broker) registerTopicMetrics() error {
	if b.registerer == nil {
		return nil
	}
	m := topicMetrics{b}
	if err := b.registerer.Register(m); err != nil {
		return fmt.Errorf("register the metrics of topics: %w", err)
	}
	b.undo = append(b.undo, func() error { b.registerer.Unregister(m); return nil })
	return nil
}

// Describe implements prometheus.Collector.
func (topicMetrics) Describe(descs chan<- *prometheus.Desc) { descs <- topicSize }

// Collect implements prometheus.Collector.
func (m topicMetrics) Collect(metrics chan<- prometheus.Metric) {
	sizes := map[string]int64{}
	for _, d := range m.dataDirs() {
		for _, l := range d.Logs() {
			sizes[l.Topic()] += l.Size()
		}
	}
	for topic, size := range sizes {
		metrics <- prometheus.MustNewConstMetric(topicSize, prometheus.GaugeValue, float64(size), topic, "local")
	}
}
