package broker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ottla/internal/coordinator"
	"ottla/internal/metadata"
)

var (
	groupLagRecords = prometheus.NewDesc("ottla_group_lag_records",
		"Records that a group has yet to read of a topic. Told by the group's coordinator, if it has replicas of all partitions that the group committed.",
		[]string{"group", "topic"}, nil)
	groupLagSeconds = prometheus.NewDesc("ottla_group_lag_seconds",
		"Age of the oldest record of a topic that a group has yet to read, over all partitions; 0 if it has read all.",
		[]string{"group", "topic"}, nil)
)

// groupsWait is how long a scrape waits for the group coordinator.
const groupsWait = time.Second

// groupMetrics are counted when they are asked for: what the groups coordinated here committed, against the replicas here.
type groupMetrics struct{ *Broker }

// registerGroupMetrics lets the groups be measured until the broker closes.
func (b *Broker) registerGroupMetrics() error {
	if b.registerer == nil {
		return nil
	}
	m := groupMetrics{b}
	if err := b.registerer.Register(m); err != nil {
		return fmt.Errorf("register the metrics of groups: %w", err)
	}
	b.undo = append(b.undo, func() error { b.registerer.Unregister(m); return nil })
	return nil
}

// Describe implements prometheus.Collector.
func (groupMetrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- groupLagRecords
	descs <- groupLagSeconds
}

// Collect implements prometheus.Collector.
func (m groupMetrics) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), groupsWait)
	defer cancel()
	committed := m.groups.Committed(ctx)
	slices.SortFunc(committed, func(a, b coordinator.CommittedTopic) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic))
	})
	room := m.config().Int("ottla.metrics.max.series") / 2
	var others groupLag
	for _, c := range committed {
		lag, ok := m.lag(m.image(), c)
		switch {
		case !ok:
		case room > 0:
			room--
			lag.tell(metrics, c.Group, c.Topic)
		default:
			others.add(lag)
		}
	}
	if others != (groupLag{}) {
		others.tell(metrics, other, other)
	}
}

// other is the group and topic of those that are beyond ottla.metrics.max.series. It is no name of a topic.
const other = "(other)"

// A groupLag is how far behind a group is in a topic.
type groupLag struct {
	records int64
	age     time.Duration
	timed   bool // age is known of some partition
}

func (l *groupLag) add(more groupLag) {
	l.records += more.records
	l.age, l.timed = max(l.age, more.age), l.timed || more.timed
}

func (l groupLag) tell(metrics chan<- prometheus.Metric, group, topic string) {
	metrics <- prometheus.MustNewConstMetric(groupLagRecords, prometheus.GaugeValue, float64(l.records), group, topic)
	if l.timed {
		metrics <- prometheus.MustNewConstMetric(groupLagSeconds, prometheus.GaugeValue, l.age.Seconds(), group, topic)
	}
}

// lag measures a group against the replicas here; ok is false if one is missing, as part of a sum would mislead.
func (m groupMetrics) lag(img *metadata.Image, c coordinator.CommittedTopic) (lag groupLag, ok bool) {
	topic := img.TopicByName(c.Topic)
	if topic == nil {
		return lag, false
	}
	for partition, offset := range c.Offsets {
		part, err := m.replicas.Get(topic.ID, partition)
		if err != nil {
			return lag, false
		}
		age, err := part.Age(offset, true)
		if err != nil {
			return lag, false
		}
		lag.add(groupLag{max(part.HighWatermark()-offset, 0), age.Duration, age.Known})
	}
	return lag, true
}
