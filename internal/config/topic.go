package config

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A Topic is the effective configuration of one topic on one node, parsed. It never changes.
type Topic struct {
	CleanupCompact, CleanupDelete bool
	CompressionType               string // producer, uncompressed, gzip, snappy, lz4 or zstd
	CompressionGzipLevel          int
	CompressionLz4Level           int
	CompressionZstdLevel          int
	DeleteRetention               time.Duration
	FileDeleteDelay               time.Duration
	FlushMessages                 int64
	FlushInterval                 time.Duration // flush.ms; the longest Duration is never
	IndexIntervalBytes            int
	MaxCompactionLag              time.Duration
	MaxDecompressedMessageBytes   int
	MaxMessageBytes               int
	MessageTimestampAfterMaxMs    int64
	MessageTimestampBeforeMaxMs   int64
	LogAppendTime                 bool // message.timestamp.type
	MinCleanableDirtyRatio        float64
	MinCompactionLag              time.Duration
	MinInsyncReplicas             int
	Preallocate                   bool
	RemoteStorageEnable           bool
	RetentionBytes                int64         // negative is no limit
	RetentionMs                   int64         // -1 is no limit
	Retention                     time.Duration // the same; negative is no limit
	SegmentBytes                  int
	SegmentIndexBytes             int
	SegmentJitter                 time.Duration
	SegmentAge                    time.Duration // segment.ms
	UncleanLeaderElectionEnable   bool

	settings map[string]setting // every topic key
	own      map[string]string  // what the topic itself sets
}

// Topic returns the configuration of a topic that sets overrides for itself. Overrides that are unknown
// or do not parse have no effect. The map is not kept.
func (c *Config) Topic(overrides map[string]string) *Topic {
	if len(overrides) == 0 {
		return c.topic
	}
	return c.deriveTopic(overrides)
}

// Get returns a topic key in Kafka's canonical form, and whether the topic itself sets it.
func (t *Topic) Get(name string) (text string, own bool) {
	_, own = t.own[name]
	return t.settings[name].text, own
}

// TopicDefaults returns the values of all topic keys of a topic that sets none, as Kafka prints them.
// Keys without a value are left out.
func (c *Config) TopicDefaults() map[string]string {
	out := make(map[string]string, len(topicTable.keys))
	for name, s := range c.topic.settings {
		if !s.null {
			out[name] = s.text
		}
	}
	return out
}

func (c *Config) deriveTopic(overrides map[string]string) *Topic {
	t := &Topic{settings: make(map[string]setting, len(topicTable.keys)), own: map[string]string{}}
	for i := range topicTable.keys {
		k := &topicTable.keys[i]
		t.settings[k.Name] = c.inherited(k)
		text, ok := overrides[k.Name]
		if !ok {
			continue
		}
		if v, err := k.parse(text); err == nil {
			t.settings[k.Name] = setting{v, Origin{kmsg.ConfigSourceDynamicTopicConfig, "the topic"}}
			t.own[k.Name] = v.text
		}
	}
	t.fill()
	return t
}

// inherited returns what a topic or group key is when nobody set it there: the first synonym among the
// broker keys that has a value, or the key's own default.
func (c *Config) inherited(k *Key) setting {
	for _, syn := range k.Synonyms {
		s := c.settings[syn.Name]
		if s.null {
			continue
		}
		if brokerTable.find(syn.Name).Type == List && k.Type == String { // the first assignor
			s.text = ""
			if len(s.list) > 0 {
				s.text = s.list[0]
			}
		}
		if syn.Factor > 1 {
			s.value = times(s.value, syn.Factor)
		}
		if k.Name == "retention.ms" {
			s.integer = max(s.integer, -1)
			s.text = strconv.FormatInt(s.integer, 10)
		}
		return s
	}
	return k.defaultSetting()
}

func times(v value, factor int64) value {
	if v.integer > math.MaxInt64/factor {
		v.integer = math.MaxInt64
	} else {
		v.integer *= factor
	}
	v.text = strconv.FormatInt(v.integer, 10)
	return v
}

// fill sets the fields from the settings.
func (t *Topic) fill() {
	num := func(name string) int64 { return t.settings[name].integer }
	ms := func(name string) time.Duration { return saturate(num(name), time.Millisecond) }
	is := func(name string) bool { return t.settings[name].boolean }
	policies := t.settings["cleanup.policy"].list
	t.CleanupCompact, t.CleanupDelete = slices.Contains(policies, "compact"), slices.Contains(policies, "delete")
	t.CompressionType = t.settings["compression.type"].text
	t.CompressionGzipLevel = int(num("compression.gzip.level"))
	t.CompressionLz4Level = int(num("compression.lz4.level"))
	t.CompressionZstdLevel = int(num("compression.zstd.level"))
	t.DeleteRetention = ms("delete.retention.ms")
	t.FileDeleteDelay = ms("file.delete.delay.ms")
	t.FlushMessages, t.FlushInterval = num("flush.messages"), ms("flush.ms")
	t.IndexIntervalBytes = int(num("index.interval.bytes"))
	t.MaxCompactionLag, t.MinCompactionLag = ms("max.compaction.lag.ms"), ms("min.compaction.lag.ms")
	t.MaxDecompressedMessageBytes = int(num("max.decompressed.message.bytes"))
	t.MaxMessageBytes = int(num("max.message.bytes"))
	t.MessageTimestampAfterMaxMs = num("message.timestamp.after.max.ms")
	t.MessageTimestampBeforeMaxMs = num("message.timestamp.before.max.ms")
	t.LogAppendTime = t.settings["message.timestamp.type"].text == "LogAppendTime"
	t.MinCleanableDirtyRatio = t.settings["min.cleanable.dirty.ratio"].double
	t.MinInsyncReplicas = int(num("min.insync.replicas"))
	t.Preallocate = is("preallocate")
	t.RemoteStorageEnable = is("remote.storage.enable")
	t.RetentionBytes, t.RetentionMs, t.Retention = num("retention.bytes"), num("retention.ms"), ms("retention.ms")
	t.SegmentBytes = int(num("segment.bytes"))
	if s := t.settings["internal.segment.bytes"]; !s.null {
		t.SegmentBytes = int(s.integer)
	}
	t.SegmentIndexBytes = int(num("segment.index.bytes"))
	t.SegmentJitter, t.SegmentAge = ms("segment.jitter.ms"), ms("segment.ms")
	t.UncleanLeaderElectionEnable = is("unclean.leader.election.enable")
}

// A Group is the effective configuration of one group. It never changes.
type Group struct {
	settings map[string]setting
}

// Group returns the configuration of a group that sets overrides for itself. Overrides that are unknown
// or do not parse have no effect.
func (c *Config) Group(overrides map[string]string) *Group {
	g := &Group{settings: make(map[string]setting, len(groupTable.keys))}
	for i := range groupTable.keys {
		k := &groupTable.keys[i]
		g.settings[k.Name] = c.inherited(k)
		if text, ok := overrides[k.Name]; ok {
			if v, err := k.parse(text); err == nil {
				g.settings[k.Name] = setting{v, Origin{kmsg.ConfigSourceGroupConfig, "the group"}}
			}
		}
	}
	return g
}

// Int returns a number of the group, such as consumer.session.timeout.ms. It panics on names that are
// not in the table.
func (g *Group) Int(name string) int { return int(g.get(name).integer) }

// Bool returns a switch of the group.
func (g *Group) Bool(name string) bool { return g.get(name).boolean }

// String returns any key of the group in Kafka's canonical form.
func (g *Group) String(name string) string { return g.get(name).text }

func (g *Group) get(name string) setting {
	s, ok := g.settings[name]
	if !ok {
		panic("config: there is no group key named " + name)
	}
	return s
}
