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
	groupMembers = prometheus.NewDesc("ottla_group_members", "Members of a group.", []string{"group"}, nil)
	groupState   = prometheus.NewDesc("ottla_group_state",
		"1 for the state that a group is in, in Kafka's words. Of the groups that are told of as one, the number in each state.", []string{"group", "state"}, nil)
	groupRebalances = prometheus.NewDesc("ottla_group_rebalances_total",
		"Rebalances of a group since it was made: its generation, or its epoch if it speaks the consumer protocol.", []string{"group"}, nil)
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
	for _, d := range []*prometheus.Desc{groupMembers, groupState, groupRebalances, groupLagRecords, groupLagSeconds} {
		descs <- d
	}
}

// Collect implements prometheus.Collector. The groups that come first by name get series of their own, as many as
// ottla.metrics.max.series allows; the others are told of as one.
func (m groupMetrics) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), groupsWait)
	defer cancel()
	groups := m.groups.Survey(ctx)
	slices.SortFunc(groups, func(a, b coordinator.GroupStatus) int { return cmp.Compare(a.Group, b.Group) })
	room, img := m.config().Int("ottla.metrics.max.series"), m.image()
	n := 0
	for ; n < len(groups); n++ {
		if room -= groupSeries + topicSeries*len(groups[n].Offsets); room < 0 {
			break
		}
		m.tellGroup(metrics, img, groups[n])
	}
	if n < len(groups) {
		m.tellOthers(metrics, img, groups[n:])
	}
}

// Series of a group, and of each topic that it reads.
const (
	groupSeries = 3
	topicSeries = 2
)

func (m groupMetrics) tellGroup(metrics chan<- prometheus.Metric, img *metadata.Image, g coordinator.GroupStatus) {
	metrics <- prometheus.MustNewConstMetric(groupMembers, prometheus.GaugeValue, float64(g.Members), g.Group)
	metrics <- prometheus.MustNewConstMetric(groupState, prometheus.GaugeValue, 1, g.Group, g.State)
	metrics <- prometheus.MustNewConstMetric(groupRebalances, prometheus.CounterValue, float64(g.Rebalances), g.Group)
	for topic, offsets := range g.Offsets {
		if lag, ok := m.lag(img, topic, offsets); ok {
			lag.tell(metrics, g.Group, topic)
		}
	}
}

// tellOthers tells of several groups as one. Their rebalances are left out: the sum would go down when a group is deleted.
func (m groupMetrics) tellOthers(metrics chan<- prometheus.Metric, img *metadata.Image, groups []coordinator.GroupStatus) {
	members, states := 0, map[string]int{}
	var sum groupLag
	known := false
	for _, g := range groups {
		members += g.Members
		states[g.State]++
		for topic, offsets := range g.Offsets {
			if lag, ok := m.lag(img, topic, offsets); ok {
				sum.add(lag)
				known = true
			}
		}
	}
	metrics <- prometheus.MustNewConstMetric(groupMembers, prometheus.GaugeValue, float64(members), other)
	for state, n := range states {
		metrics <- prometheus.MustNewConstMetric(groupState, prometheus.GaugeValue, float64(n), other, state)
	}
	if known {
		sum.tell(metrics, other, other)
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

// lag measures what a group committed of a topic against the replicas here; ok is false if one is missing, as part of a sum
// would mislead.
func (m groupMetrics) lag(img *metadata.Image, name string, offsets map[int32]int64) (lag groupLag, ok bool) {
	topic := img.TopicByName(name)
	if topic == nil {
		return lag, false
	}
	for partition, offset := range offsets {
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
