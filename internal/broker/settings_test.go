package broker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"ottla/internal/quorum"
	"ottla/internal/transport"
)

// A cluster id is made up by a lone voter only. A node that has others to ask, and gets no answer, formats nothing.
func TestClusterIDIsNotMadeUp(t *testing.T) {
	for name, test := range map[string]struct {
		settings map[string]string
		want     string
	}{
		"one of two voters": {map[string]string{"controller.quorum.voters": "1@127.0.0.1:9093,2@127.0.0.1:9094"}, "ottla.cluster.id"},
		"broker without a controller": {map[string]string{
			"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:0", "controller.quorum.voters": "9@127.0.0.1:1",
		}, "no controller says which cluster this is"},
	} {
		t.Run(name, func(t *testing.T) {
			disk := newDisk(t)
			ctx, cancel := context.WithTimeout(t.Context(), answerWithin)
			defer cancel()
			b, err := Start(ctx, options(t, disk, test.settings))
			if err == nil {
				t.Fatal("it started", b.Close())
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q, want one about %q", err, test.want)
			}
			if _, err := disk.Stat("/data/meta.properties"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the directory was formatted (%v)", err)
			}
		})
	}
}

// The background flush can be turned off.
func TestFlushInterval(t *testing.T) {
	for setting, want := range map[string]time.Duration{"0": -1, "1000": time.Second, "250": 250 * time.Millisecond} {
		b := newBroker(options(t, newDisk(t), map[string]string{"ottla.log.flush.background.ms": setting}))
		if got := flushInterval(b.static); got != want {
			t.Errorf("with %s ms: %v, want %v", setting, got, want)
		}
	}
}

// Internal topics that a client asks for before a coordinator does are made as Apache Kafka 4.4 makes them.
func TestInternalTopicsMadeOnTheFly(t *testing.T) {
	b := newBroker(options(t, newDisk(t), map[string]string{"offsets.topic.num.partitions": "7", "default.replication.factor": "2"}))
	for name, want := range map[string]string{
		"t":                   "-1 partitions, -1 replicas",
		"__consumer_offsets":  "7 partitions, 1 replicas, cleanup.policy=compact, compression.type=producer, segment.bytes=104857600",
		"__transaction_state": "50 partitions, 1 replicas, cleanup.policy=compact, compression.type=uncompressed, unclean.leader.election.enable=false, min.insync.replicas=1, segment.bytes=104857600",
		"__share_group_state": "50 partitions, 1 replicas, cleanup.policy=delete, compression.type=producer, retention.ms=-1, min.insync.replicas=1, segment.bytes=104857600",
	} {
		topic := b.newTopic(name)
		got := fmt.Sprintf("%d partitions, %d replicas", topic.NumPartitions, topic.ReplicationFactor)
		for _, c := range topic.Configs {
			got += fmt.Sprintf(", %s=%s", c.Name, *c.Value)
		}
		if got != want {
			t.Errorf("%s is made with\n %s, want\n %s", name, got, want)
		}
	}
}

// A batch may become as large as the topic allows, and no larger than the node does.
func TestMaxDecompressed(t *testing.T) {
	for _, test := range []struct {
		node, topic string
		want        int64
	}{
		{"1000", "", 1000},
		{"1000", "900", 900},
		{"1000", "2000", 1000},
	} {
		c := parse(t, map[string]string{"ottla.produce.max.decompressed.bytes": test.node})
		own := map[string]string{}
		if test.topic != "" {
			own["max.decompressed.message.bytes"] = test.topic
		}
		if got := produceRules(c, c.Topic(own)).MaxDecompressedBytes; got != test.want {
			t.Errorf("node %s, topic %q: %d, want %d", test.node, test.topic, got, test.want)
		}
	}
	c := parse(t, map[string]string{"max.decompressed.message.bytes": "800"})
	if got := produceRules(c, c.Topic(nil)).MaxDecompressedBytes; got != 800 {
		t.Errorf("by the broker's key: %d, want 800", got)
	}
}

func TestMetadataLogSettings(t *testing.T) {
	const week = 7 * 24 * time.Hour
	for _, test := range []struct {
		settings map[string]string
		want     quorum.LogOptions
	}{
		{nil, quorum.LogOptions{SegmentBytes: 1 << 30, SegmentAge: week, MaxBytes: 100 << 20, MaxAge: week}},
		{
			map[string]string{"metadata.log.segment.bytes": "8388608", "metadata.log.segment.ms": "1000", "metadata.max.retention.bytes": "5", "metadata.max.retention.ms": "6"},
			quorum.LogOptions{SegmentBytes: 8 << 20, SegmentAge: time.Second, MaxBytes: 5, MaxAge: 6 * time.Millisecond},
		},
		{
			map[string]string{"metadata.max.retention.bytes": "-1", "metadata.max.retention.ms": "-1", "internal.metadata.log.segment.bytes": "100"},
			quorum.LogOptions{SegmentBytes: 100, SegmentAge: week, MaxBytes: -1, MaxAge: -time.Millisecond},
		},
		{ // nothing, and not the default
			map[string]string{"metadata.max.retention.bytes": "0", "metadata.max.retention.ms": "0"},
			quorum.LogOptions{SegmentBytes: 1 << 30, SegmentAge: week, MaxBytes: 1, MaxAge: 1},
		},
	} {
		if diff := cmp.Diff(test.want, metadataLog(parse(t, test.settings))); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.settings, diff)
		}
	}
}

func TestConnectionLimits(t *testing.T) {
	got := connectionLimits(parse(t, map[string]string{
		"max.connections": "100", "max.connections.per.ip": "10", "max.connections.per.ip.overrides": "10.0.0.1:20", "max.connection.creation.rate": "50",
		"listener.name.plaintext.max.connections": "7", "listener.name.controller.max.connection.creation.rate": "3",
	}))
	want := transport.Limits{
		MaxConnections: 100, MaxConnectionsPerIP: 10, PerIPOverrides: map[string]int{"10.0.0.1": 20}, CreationRate: 50,
		Listeners: map[string]transport.ListenerLimits{"PLAINTEXT": {MaxConnections: 7}, "CONTROLLER": {CreationRate: 3}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A topic's size is that of all its partitions here.
func TestTopicSize(t *testing.T) {
	b := startNode(t, newDisk(t), nil)
	c := dial(t, b)
	one := batch(100)
	for name, partitions := range map[string]int32{"a": 1, "b": 3, "empty": 1} {
		topic := c.createTopic(name, partitions)
		for p := range partitions {
			if name != "empty" {
				c.produce(topic, p, one)
			}
		}
	}
	// What nothing was written to need not have been made yet.
	empty, err := b.replicas.GetByName("empty", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := empty.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	families, err := b.registerer.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, family := range families {
		for _, m := range family.Metric {
			if family.GetName() == "ottla_topic_size_bytes" {
				// The labels are sorted by name: tier, topic.
				got[m.Label[1].GetValue()+" "+m.Label[0].GetValue()] = int(m.GetGauge().GetValue())
			}
		}
	}
	if diff := cmp.Diff(map[string]int{"a local": len(one), "b local": 3 * len(one), "empty local": 0}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
