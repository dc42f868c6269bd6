package ottla_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla"
)

// await asks until the answer is what is wanted, and fails after answerWithin: Apache Kafka's brokers apply what its
// controller has answered a moment later. Each try costs a round trip.
func await(t *testing.T, want string, ask func() string) {
	t.Helper()
	for deadline := time.Now().Add(answerWithin); ; {
		got := ask()
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// words prints values with a space between any two.
func words(values ...any) string { return strings.TrimSuffix(fmt.Sprintln(values...), "\n") }

// each runs subtests beside each other, each with a topic of its own.
func each(t *testing.T, g target, tests map[string]func(t *testing.T, w *wire, topic string)) {
	var topics []kmsg.CreateTopicsRequestTopic
	for range tests {
		topics = append(topics, newTopic(topicName(strings.ToLower(t.Name()), len(topics))))
	}
	dial(t, g.addr).createTopics(topics...)
	i := 0
	for name, test := range tests {
		topic := topics[i].Topic
		i++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, dial(t, g.addr), topic)
		})
	}
}

// metadataOf asks for one topic by name.
func metadataOf(w *wire, topic string) kmsg.MetadataResponseTopic {
	w.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = &topic
	req.Topics = []kmsg.MetadataRequestTopic{mt}
	return call[*kmsg.MetadataResponse](w, req).Topics[0]
}

func topicConfig(name, value string) kmsg.CreateTopicsRequestTopicConfig {
	c := kmsg.NewCreateTopicsRequestTopicConfig()
	c.Name, c.Value = name, &value
	return c
}

func with(ct kmsg.CreateTopicsRequestTopic, configs ...kmsg.CreateTopicsRequestTopicConfig) kmsg.CreateTopicsRequestTopic {
	ct.Configs = configs
	return ct
}

// createdConfig prints one config of a CreateTopics answer: value and where it comes from, by the number of Kafka's ConfigSource.
func createdConfig(ct kmsg.CreateTopicsResponseTopic, name string) string {
	for _, c := range ct.Configs {
		if c.Name == name {
			return fmt.Sprintf("%s from %d", *c.Value, c.Source)
		}
	}
	return "absent"
}

func TestCreateTopics(t *testing.T) {
	g := underTest(t, ottla.Config{})
	each(t, g, map[string]func(t *testing.T, w *wire, topic string){
		"validate only": func(t *testing.T, w *wire, topic string) {
			req := createTopicsOf(newTopic(topic + "-new"))
			req.ValidateOnly, req.Topics[0].NumPartitions = true, 3
			ct := call[*kmsg.CreateTopicsResponse](w, req).Topics[0]
			equal(t, "answer", words(errorName(ct.ErrorCode), ct.NumPartitions, ct.ReplicationFactor), "NONE 3 1")
			equal(t, "Metadata", metadataCode(w, topic+"-new"), "UNKNOWN_TOPIC_OR_PARTITION")
		},
		"defaults": func(t *testing.T, w *wire, topic string) {
			ct := newTopic(topic + "-new")
			ct.NumPartitions, ct.ReplicationFactor = -1, -1
			answer := w.createTopics(ct)[0]
			equal(t, "answer", fmt.Sprint(answer.NumPartitions, answer.ReplicationFactor), "1 1")
			equal(t, "retention.ms", createdConfig(answer, "retention.ms"), "604800000 from 5")
			equal(t, "cleanup.policy", createdConfig(answer, "cleanup.policy"), "delete from 5")
		},
		"configs": func(t *testing.T, w *wire, topic string) {
			answer := w.createTopics(with(newTopic(topic+"-new"), topicConfig("retention.ms", "1000"), topicConfig("cleanup.policy", "compact")))[0]
			equal(t, "retention.ms", createdConfig(answer, "retention.ms"), "1000 from 1")
			equal(t, "cleanup.policy", createdConfig(answer, "cleanup.policy"), "compact from 1")
			equal(t, "max.message.bytes", createdConfig(answer, "max.message.bytes"), "1048588 from 5")
		},
		"assignment": func(t *testing.T, w *wire, topic string) {
			ct := newTopic(topic + "-new")
			ct.NumPartitions, ct.ReplicationFactor = -1, -1
			for p := range int32(3) {
				a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
				a.Partition, a.Replicas = p, []int32{1}
				ct.ReplicaAssignment = append(ct.ReplicaAssignment, a)
			}
			answer := w.createTopics(ct)[0]
			equal(t, "answer", fmt.Sprint(answer.NumPartitions, answer.ReplicationFactor), "3 1")
			for _, p := range metadataOf(w, ct.Topic).Partitions {
				equal(t, "partition", fmt.Sprint(p.Leader, p.Replicas, p.ISR, p.LeaderEpoch), "1 [1] [1] 0")
			}
		},
		"assignment beside a count": func(t *testing.T, w *wire, topic string) {
			ct := newTopic(topic + "-new")
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Replicas = []int32{1}
			ct.ReplicaAssignment = append(ct.ReplicaAssignment, a)
			equal(t, "answer", errorName(call[*kmsg.CreateTopicsResponse](w, createTopicsOf(ct)).Topics[0].ErrorCode), "INVALID_REQUEST")
		},
		"assignment with a hole": func(t *testing.T, w *wire, topic string) {
			ct := newTopic(topic + "-new")
			ct.NumPartitions, ct.ReplicationFactor = -1, -1
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition, a.Replicas = 1, []int32{1}
			ct.ReplicaAssignment = append(ct.ReplicaAssignment, a)
			equal(t, "answer", errorName(call[*kmsg.CreateTopicsResponse](w, createTopicsOf(ct)).Topics[0].ErrorCode), "INVALID_REPLICA_ASSIGNMENT")
		},
		"topic id": func(t *testing.T, w *wire, topic string) {
			answer := w.createTopics(newTopic(topic + "-new"))[0]
			if answer.TopicID == [16]byte{} || answer.TopicID != metadataOf(w, topic+"-new").TopicID {
				t.Errorf("CreateTopics says id %x, Metadata %x", answer.TopicID, metadataOf(w, topic+"-new").TopicID)
			}
		},
	})
}

func TestDeleteTopics(t *testing.T) {
	g := underTest(t, ottla.Config{})
	byID := func(id [16]byte) *kmsg.DeleteTopicsRequest {
		dt := kmsg.NewDeleteTopicsRequestTopic()
		dt.TopicID = id
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Version, req.TimeoutMillis, req.Topics = 6, 30_000, []kmsg.DeleteTopicsRequestTopic{dt}
		return req
	}
	each(t, g, map[string]func(t *testing.T, w *wire, topic string){
		"by id, then created anew": func(t *testing.T, w *wire, topic string) {
			old := metadataOf(w, topic).TopicID
			w.produce(topic, newBatch("old").bytes())
			answer := call[*kmsg.DeleteTopicsResponse](w, byID(old)).Topics[0]
			if errorName(answer.ErrorCode) != none || answer.TopicID != old || answer.Topic == nil || *answer.Topic != topic {
				t.Errorf("answer %+v", answer)
			}
			await(t, "UNKNOWN_TOPIC_OR_PARTITION", func() string { return metadataCode(w, topic) })
			equal(t, "Fetch of the old id", errorName(fetchCode(call[*kmsg.FetchResponse](w, fetchByID(old, 0)))), "UNKNOWN_TOPIC_ID")
			equal(t, "once more", errorName(call[*kmsg.DeleteTopicsResponse](w, byID(old)).Topics[0].ErrorCode), "UNKNOWN_TOPIC_ID")
			created := w.createTopics(newTopic(topic))[0]
			if created.TopicID == old {
				t.Error("the new topic has the id of the deleted one")
			}
			equal(t, "end of the new topic", fmt.Sprint(w.endOffset(topic)), "0")
			equal(t, "Fetch of the old id", errorName(fetchCode(call[*kmsg.FetchResponse](w, fetchByID(old, 0)))), "UNKNOWN_TOPIC_ID")
		},
		"by name": func(t *testing.T, w *wire, topic string) {
			answer := call[*kmsg.DeleteTopicsResponse](w, deleteTopicsOf(topic)).Topics[0]
			equal(t, "answer", errorName(answer.ErrorCode), none)
			if answer.TopicID == [16]byte{} {
				t.Error("the answer has no topic id")
			}
			await(t, "UNKNOWN_TOPIC_OR_PARTITION", func() string { return outcome(w, produceOf(topic, newBatch("v").bytes()), produceCode) })
		},
	})
}

func TestDeleteTopicsDisabled(t *testing.T) {
	b := start(t, ottla.Config{Properties: map[string]string{"delete.topic.enable": "false"}})
	w := dial(t, b.Addr())
	w.createTopics(newTopic("kept"))
	equal(t, "answer", errorName(call[*kmsg.DeleteTopicsResponse](w, deleteTopicsOf("kept")).Topics[0].ErrorCode), "TOPIC_DELETION_DISABLED")
	equal(t, "topic", metadataCode(w, "kept"), none)
}

func TestCreatePartitions(t *testing.T) {
	g := underTest(t, ottla.Config{})
	code := func(r *kmsg.CreatePartitionsResponse) int16 { return r.Topics[0].ErrorCode }
	assigned := func(topic string, count int32, replicas ...[]int32) *kmsg.CreatePartitionsRequest {
		req := createPartitionsOf(topic, count)
		for _, of := range replicas {
			a := kmsg.NewCreatePartitionsRequestTopicAssignment()
			a.Replicas = of
			req.Topics[0].Assignment = append(req.Topics[0].Assignment, a)
		}
		return req
	}
	each(t, g, map[string]func(t *testing.T, w *wire, topic string){
		"more": func(t *testing.T, w *wire, topic string) {
			w.produce(topic, newBatch("kept").bytes())
			equal(t, "answer", outcome(w, createPartitionsOf(topic, 3), code), none)
			await(t, "3", func() string { return fmt.Sprint(len(metadataOf(w, topic).Partitions)) })
			equal(t, "end of partition 0", fmt.Sprint(w.endOffset(topic)), "1")
		},
		"validate only": func(t *testing.T, w *wire, topic string) {
			req := createPartitionsOf(topic, 3)
			req.ValidateOnly = true
			equal(t, "answer", outcome(w, req, code), none)
			equal(t, "partitions", fmt.Sprint(len(metadataOf(w, topic).Partitions)), "1")
		},
		"assignment": func(t *testing.T, w *wire, topic string) {
			equal(t, "one too few", outcome(w, assigned(topic, 3, []int32{1}), code), "INVALID_REPLICA_ASSIGNMENT")
			equal(t, "unknown broker", outcome(w, assigned(topic, 2, []int32{99}), code), "INVALID_REPLICA_ASSIGNMENT")
			equal(t, "right", outcome(w, assigned(topic, 2, []int32{1}), code), none)
		},
		"unknown topic": func(t *testing.T, w *wire, topic string) {
			equal(t, "answer", outcome(w, createPartitionsOf(topic+"-not", 3), code), "UNKNOWN_TOPIC_OR_PARTITION")
		},
	})
}

// describeConfigs asks for some configs of a resource and prints them: value, source, flags and synonyms.
func describeConfigs(w *wire, kind kmsg.ConfigResourceType, resource string, names ...string) string {
	w.t.Helper()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, resource, names
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms, req.IncludeDocumentation = 4, true, true
	req.Resources = []kmsg.DescribeConfigsRequestResource{r}
	answer := call[*kmsg.DescribeConfigsResponse](w, req).Resources[0]
	if answer.ErrorCode != 0 {
		return errorName(answer.ErrorCode)
	}
	value := func(v *string) string {
		if v == nil {
			return "null"
		}
		return *v
	}
	var lines []string
	for _, c := range answer.Configs {
		line := fmt.Sprintf("%s=%s %s %s", c.Name, value(c.Value), c.Source, c.ConfigType)
		if c.ReadOnly {
			line += " read-only"
		}
		if c.IsSensitive {
			line += " sensitive"
		}
		if value(c.Documentation) == "" || c.Documentation == nil {
			line += " undocumented"
		}
		for _, s := range c.ConfigSynonyms {
			line += fmt.Sprintf("; %s=%s %s", s.Name, value(s.Value), s.Source)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestDescribeConfigs(t *testing.T) {
	g := underTest(t, ottla.Config{Properties: map[string]string{"offsets.topic.replication.factor": "1"}})
	each(t, g, map[string]func(t *testing.T, w *wire, topic string){
		"topic": func(t *testing.T, w *wire, topic string) {
			w.createTopics(with(newTopic(topic+"-new"), topicConfig("max.message.bytes", "1000")))
			equal(t, "configs", describeConfigs(w, kmsg.ConfigResourceTypeTopic, topic+"-new", "max.message.bytes", "cleanup.policy"),
				"cleanup.policy=delete DEFAULT_CONFIG LIST; log.cleanup.policy=delete DEFAULT_CONFIG\n"+
					"max.message.bytes=1000 DYNAMIC_TOPIC_CONFIG INT; max.message.bytes=1000 DYNAMIC_TOPIC_CONFIG; message.max.bytes=1048588 DEFAULT_CONFIG")
		},
		"retention.ms, whose default is in log.retention.hours": func(t *testing.T, w *wire, topic string) {
			equal(t, "configs", describeConfigs(w, kmsg.ConfigResourceTypeTopic, topic, "retention.ms"), "retention.ms=604800000 DEFAULT_CONFIG LONG")
		},
		"unknown topic": func(t *testing.T, w *wire, topic string) {
			equal(t, "answer", describeConfigs(w, kmsg.ConfigResourceTypeTopic, topic+"-not"), "UNKNOWN_TOPIC_OR_PARTITION")
		},
		"broker": func(t *testing.T, w *wire, _ string) {
			equal(t, "configs", describeConfigs(w, kmsg.ConfigResourceTypeBroker, "1", "num.partitions", "offsets.topic.replication.factor", "message.max.bytes", "ssl.keystore.password"),
				"message.max.bytes=1048588 DEFAULT_CONFIG INT; message.max.bytes=1048588 DEFAULT_CONFIG\n"+
					"num.partitions=1 DEFAULT_CONFIG INT read-only; num.partitions=1 DEFAULT_CONFIG\n"+
					"offsets.topic.replication.factor=1 STATIC_BROKER_CONFIG SHORT read-only; offsets.topic.replication.factor=1 STATIC_BROKER_CONFIG; offsets.topic.replication.factor=3 DEFAULT_CONFIG\n"+
					"ssl.keystore.password=null DEFAULT_CONFIG PASSWORD sensitive")
		},
		"another broker": func(t *testing.T, w *wire, _ string) {
			equal(t, "answer", describeConfigs(w, kmsg.ConfigResourceTypeBroker, "99", "num.partitions"), "INVALID_REQUEST")
		},
	})
}

// TestAlterConfigs changes settings of a running broker; its steps share the broker's own settings and so come one after the other.
func TestAlterConfigs(t *testing.T) {
	g := underTest(t, ottla.Config{})
	w := dial(t, g.addr)
	topic := topicName("alter", 0)
	w.createTopics(newTopic(topic))
	const set, remove = kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete
	alter := func(kind kmsg.ConfigResourceType, resource, name string, op kmsg.IncrementalAlterConfigOp, value string) string {
		return outcome(w, alterConfigsOf(kind, resource, name, op, value), func(r *kmsg.IncrementalAlterConfigsResponse) int16 { return r.Resources[0].ErrorCode })
	}
	produce := func() string {
		return outcome(w, produceOf(topic, newBatch(strings.Repeat("v", 1000)).bytes()), produceCode)
	}
	const tooLarge = "MESSAGE_TOO_LARGE"
	topicKind, brokerKind := kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker

	equal(t, "Produce before", produce(), none)

	equal(t, "topic", alter(topicKind, topic, "max.message.bytes", set, "500"), none)
	await(t, tooLarge, produce)
	equal(t, "topic, back", alter(topicKind, topic, "max.message.bytes", remove, ""), none)
	await(t, none, produce)

	equal(t, "all brokers", alter(brokerKind, "", "message.max.bytes", set, "400"), none)
	await(t, tooLarge, produce)
	await(t, "message.max.bytes=400 DYNAMIC_DEFAULT_BROKER_CONFIG INT; message.max.bytes=400 DYNAMIC_DEFAULT_BROKER_CONFIG; message.max.bytes=1048588 DEFAULT_CONFIG",
		func() string { return describeConfigs(w, brokerKind, "1", "message.max.bytes") })
	await(t, "max.message.bytes=400 DYNAMIC_DEFAULT_BROKER_CONFIG INT; message.max.bytes=400 DYNAMIC_DEFAULT_BROKER_CONFIG; message.max.bytes=1048588 DEFAULT_CONFIG",
		func() string { return describeConfigs(w, topicKind, topic, "max.message.bytes") })

	equal(t, "this broker", alter(brokerKind, "1", "message.max.bytes", set, "2000"), none)
	await(t, none, produce)
	await(t, "message.max.bytes=2000 DYNAMIC_BROKER_CONFIG INT; message.max.bytes=2000 DYNAMIC_BROKER_CONFIG; message.max.bytes=400 DYNAMIC_DEFAULT_BROKER_CONFIG; message.max.bytes=1048588 DEFAULT_CONFIG",
		func() string { return describeConfigs(w, brokerKind, "1", "message.max.bytes") })
	equal(t, "this broker, back", alter(brokerKind, "1", "message.max.bytes", remove, ""), none)
	await(t, tooLarge, produce)
	equal(t, "all brokers, back", alter(brokerKind, "", "message.max.bytes", remove, ""), none)
	await(t, none, produce)

	equal(t, "append to a list", alter(topicKind, topic, "cleanup.policy", kmsg.IncrementalAlterConfigOpAppend, "compact"), none)
	await(t, "cleanup.policy=delete,compact DYNAMIC_TOPIC_CONFIG LIST; cleanup.policy=delete,compact DYNAMIC_TOPIC_CONFIG; log.cleanup.policy=delete DEFAULT_CONFIG",
		func() string { return describeConfigs(w, topicKind, topic, "cleanup.policy") })
	await(t, "INVALID_RECORD", produce) // a compacted topic takes no record without a key
	equal(t, "subtract from it", alter(topicKind, topic, "cleanup.policy", kmsg.IncrementalAlterConfigOpSubtract, "compact"), none)
	await(t, none, produce)
	equal(t, "append to what is no list", alter(topicKind, topic, "retention.ms", kmsg.IncrementalAlterConfigOpAppend, "1"), "INVALID_CONFIG")

	dry := alterConfigsOf(topicKind, topic, "max.message.bytes", set, "500")
	dry.ValidateOnly = true
	equal(t, "validate only", outcome(w, dry, func(r *kmsg.IncrementalAlterConfigsResponse) int16 { return r.Resources[0].ErrorCode }), none)
	equal(t, "Produce after it", produce(), none)
	equal(t, "read-only key", alter(brokerKind, "1", "process.roles", set, "broker"), "INVALID_REQUEST")
	equal(t, "another broker", alter(brokerKind, "99", "message.max.bytes", set, "2000"), "INVALID_REQUEST")
}

// TestLegacyAlterConfigs: AlterConfigs sets what it names and takes all else back.
func TestLegacyAlterConfigs(t *testing.T) {
	w := dial(t, underTest(t, ottla.Config{}).addr)
	topic := topicName("legacy-alter", 0)
	w.createTopics(with(newTopic(topic), topicConfig("retention.ms", "1000"), topicConfig("segment.ms", "2000")))
	value := "3000"
	c := kmsg.NewAlterConfigsRequestResourceConfig()
	c.Name, c.Value = "segment.ms", &value
	r := kmsg.NewAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.Configs = kmsg.ConfigResourceTypeTopic, topic, []kmsg.AlterConfigsRequestResourceConfig{c}
	req := kmsg.NewPtrAlterConfigsRequest()
	req.Version, req.Resources = 2, []kmsg.AlterConfigsRequestResource{r}
	equal(t, "answer", outcome(w, req, func(r *kmsg.AlterConfigsResponse) int16 { return r.Resources[0].ErrorCode }), none)
	await(t, "retention.ms=604800000 DEFAULT_CONFIG LONG\nsegment.ms=3000 DYNAMIC_TOPIC_CONFIG LONG; segment.ms=3000 DYNAMIC_TOPIC_CONFIG",
		func() string {
			return describeConfigs(w, kmsg.ConfigResourceTypeTopic, topic, "retention.ms", "segment.ms")
		})
}

// TestMetadata asks for topics in each way that there is.
func TestMetadata(t *testing.T) {
	w := dial(t, underTest(t, ottla.Config{}).addr)
	topic := topicName("metadata", 0)
	w.createTopics(newTopic(topic))
	id := metadataOf(w, topic).TopicID
	ask := func(version int16, topics ...kmsg.MetadataRequestTopic) []kmsg.MetadataResponseTopic {
		req := kmsg.NewPtrMetadataRequest()
		req.Version, req.Topics = version, topics
		return call[*kmsg.MetadataResponse](w, req).Topics
	}
	describe := func(mt kmsg.MetadataResponseTopic) string {
		name := "null"
		if mt.Topic != nil {
			name = *mt.Topic
		}
		return words(errorName(mt.ErrorCode), name, len(mt.Partitions), mt.IsInternal)
	}
	byID := func(id [16]byte) kmsg.MetadataRequestTopic {
		mt := kmsg.NewMetadataRequestTopic()
		mt.TopicID = id
		return mt
	}
	equal(t, "by id", describe(ask(13, byID(id))[0]), words(none, topic, 1, false))
	equal(t, "by an unknown id", describe(ask(13, byID([16]byte{1, 2, 3}))[0]), "UNKNOWN_TOPIC_ID null 0 false")
	for _, version := range []int16{1, 4, 9, 12} {
		all := ask(version)
		i := slices.IndexFunc(all, func(mt kmsg.MetadataResponseTopic) bool { return *mt.Topic == topic })
		if i < 0 {
			t.Fatalf("all topics, v%d: %s is not among %d", version, topic, len(all))
		}
		equal(t, fmt.Sprintf("among all, v%d", version), describe(all[i]), words(none, topic, 1, false))
	}
	p := metadataOf(w, topic).Partitions[0]
	equal(t, "partition", words(errorName(p.ErrorCode), p.Partition, p.Leader, p.Replicas, p.ISR, p.OfflineReplicas), "NONE 0 1 [1] [1] []")
}

func TestListOffsets(t *testing.T) {
	g := underTest(t, ottla.Config{})
	w := dial(t, g.addr)
	topic := topicName("list-offsets", 0)
	w.createTopics(newTopic(topic))
	at := batchTime - 100_000
	// Offsets 0 and 1 at +0, 2 at +2000, 3 at +1000: times need not rise.
	for _, b := range []*batch{
		newBatch("0", "1").with(func(b *batch) { b.baseTimestamp, b.maxTimestamp = at, at }),
		newBatch("2").with(func(b *batch) { b.baseTimestamp, b.maxTimestamp = at+2000, at+2000 }),
		newBatch("3").with(func(b *batch) { b.baseTimestamp, b.maxTimestamp = at+1000, at+1000 }),
	} {
		w.produce(topic, b.bytes())
	}
	list := func(timestamp int64) string {
		req := listOffsetsOf(topic, timestamp)
		req.Version = 11
		p := call[*kmsg.ListOffsetsResponse](w, req).Topics[0].Partitions[0]
		if p.ErrorCode != 0 {
			return errorName(p.ErrorCode)
		}
		if p.Timestamp >= 0 {
			p.Timestamp -= at
		}
		return fmt.Sprintf("offset %d, timestamp %d, leader epoch %d", p.Offset, p.Timestamp, p.LeaderEpoch)
	}
	rows := []struct {
		what      string
		timestamp int64
		want      string
	}{
		{"latest", -1, "offset 4, timestamp -1, leader epoch 0"},
		{"earliest", -2, "offset 0, timestamp -1, leader epoch 0"},
		{"greatest timestamp", -3, "offset 2, timestamp 2000, leader epoch 0"},
		{"earliest local", -4, "offset 0, timestamp -1, leader epoch 0"},
		{"latest tiered", -5, "offset -1, timestamp -1, leader epoch -1"},
		{"earliest not yet tiered", -6, "offset -1, timestamp -1, leader epoch -1"},
		{"of a time with records", at, "offset 0, timestamp 0, leader epoch 0"},
		{"of a time between", at + 500, "offset 2, timestamp 2000, leader epoch 0"},
		{"of a time before all", at - 500, "offset 0, timestamp 0, leader epoch 0"},
		{"of a time behind all", at + 5000, "offset -1, timestamp -1, leader epoch -1"},
	}
	for _, row := range rows {
		equal(t, row.what, list(row.timestamp), row.want)
	}
	d := call[*kmsg.DeleteRecordsResponse](w, deleteRecordsOf(topic, 1)).Topics[0].Partitions[0]
	equal(t, "DeleteRecords", words(errorName(d.ErrorCode), d.LowWatermark), "NONE 1")
	equal(t, "earliest after DeleteRecords", list(-2), "offset 1, timestamp -1, leader epoch 0")
	equal(t, "Fetch before it", errorName(fetchCode(call[*kmsg.FetchResponse](w, fetchOf(topic, 0)))), "OFFSET_OUT_OF_RANGE")
	all := call[*kmsg.DeleteRecordsResponse](w, deleteRecordsOf(topic, -1)).Topics[0].Partitions[0]
	equal(t, "DeleteRecords up to the high watermark", words(errorName(all.ErrorCode), all.LowWatermark), "NONE 4")
	equal(t, "earliest after that", list(-2), "offset 4, timestamp -1, leader epoch 0")

	e := call[*kmsg.OffsetForLeaderEpochResponse](w, leaderEpochOf(topic, 0, 0)).Topics[0].Partitions[0]
	equal(t, "OffsetForLeaderEpoch", words(errorName(e.ErrorCode), e.LeaderEpoch, e.EndOffset), "NONE 0 4")
	e = call[*kmsg.OffsetForLeaderEpochResponse](w, leaderEpochOf(topic, 0, 5)).Topics[0].Partitions[0]
	equal(t, "OffsetForLeaderEpoch of a later epoch", words(errorName(e.ErrorCode), e.LeaderEpoch, e.EndOffset), "NONE -1 -1")
}

func TestProduce(t *testing.T) {
	g := underTest(t, ottla.Config{})
	each(t, g, map[string]func(t *testing.T, w *wire, topic string){
		"acks 0": func(t *testing.T, w *wire, topic string) {
			req := produceOf(topic, newBatch("v").bytes())
			req.Acks = 0
			w.send(req)
			// The next answer is that of the next request, and the record is there.
			equal(t, "end", fmt.Sprint(w.endOffset(topic)), "1")
		},
		"acks 1": func(t *testing.T, w *wire, topic string) {
			w.produce(topic, newBatch("v").bytes())
			req := produceOf(topic, newBatch("v").bytes())
			req.Acks = 1
			p := call[*kmsg.ProduceResponse](w, req).Topics[0].Partitions[0]
			equal(t, "answer", words(errorName(p.ErrorCode), p.BaseOffset, p.LogAppendTime, p.LogStartOffset), "NONE 1 -1 0")
		},
		"min.insync.replicas beyond the replication factor": func(t *testing.T, w *wire, topic string) {
			topic += "-new"
			w.createTopics(with(newTopic(topic), topicConfig("min.insync.replicas", "2")))
			// It counts as the replication factor (Kafka's Partition.effectiveMinIsr).
			equal(t, "acks all", outcome(w, produceOf(topic, newBatch("v").bytes()), produceCode), none)
			equal(t, "high watermark", fmt.Sprint(w.endOffset(topic)), "1")
		},
		"LogAppendTime": func(t *testing.T, w *wire, topic string) {
			topic += "-new"
			w.createTopics(with(newTopic(topic), topicConfig("message.timestamp.type", "LogAppendTime")))
			before := time.Now().UnixMilli()
			p := call[*kmsg.ProduceResponse](w, produceOf(topic, newBatch("v", "w").bytes())).Topics[0].Partitions[0]
			if p.LogAppendTime < before || p.LogAppendTime > time.Now().UnixMilli() {
				t.Errorf("log append time %d, want it between %d and now", p.LogAppendTime, before)
			}
			stored := call[*kmsg.FetchResponse](w, fetchOf(topic, 0)).Topics[0].Partitions[0].RecordBatches
			attributes, most := binary.BigEndian.Uint16(stored[21:]), int64(binary.BigEndian.Uint64(stored[35:]))
			if attributes&0x08 == 0 || most != p.LogAppendTime {
				t.Errorf("attributes %#x and maximum timestamp %d, want the log append bit and %d", attributes, most, p.LogAppendTime)
			}
		},
		"compression.type gzip": func(t *testing.T, w *wire, topic string) {
			topic += "-new"
			w.createTopics(with(newTopic(topic), topicConfig("compression.type", "gzip")))
			w.produce(topic, newBatch("v").bytes())
			stored := call[*kmsg.FetchResponse](w, fetchOf(topic, 0)).Topics[0].Partitions[0].RecordBatches
			equal(t, "codec", fmt.Sprint(binary.BigEndian.Uint16(stored[21:])&7), "1")
		},
		"topic by id": func(t *testing.T, w *wire, topic string) {
			req := produceOf(topic, newBatch("v").bytes())
			req.Version, req.Topics[0].Topic, req.Topics[0].TopicID = 13, "", metadataOf(w, topic).TopicID
			equal(t, "answer", outcome(w, req, produceCode), none)
			req.Topics[0].TopicID = [16]byte{1, 2, 3}
			equal(t, "unknown id", outcome(w, req, produceCode), "UNKNOWN_TOPIC_ID")
		},
		"producer ids": func(t *testing.T, w *wire, topic string) {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.Version = 5
			// Apache Kafka's first answer is COORDINATOR_LOAD_IN_PROGRESS, until it has a block of ids.
			await(t, none, func() string {
				return outcome(w, req, func(r *kmsg.InitProducerIDResponse) int16 { return r.ErrorCode })
			})
			one, two := call[*kmsg.InitProducerIDResponse](w, req), call[*kmsg.InitProducerIDResponse](w, req)
			if one.ErrorCode != 0 || one.ProducerID < 0 || one.ProducerEpoch != 0 || two.ProducerID == one.ProducerID {
				t.Fatalf("answers %+v and %+v", one, two)
			}
			sequenced := func(sequence int32, values ...string) []byte {
				return newBatch(values...).with(func(b *batch) { b.producerID, b.producerEpoch, b.baseSequence = one.ProducerID, 0, sequence }).bytes()
			}
			w.produce(topic, sequenced(0, "0", "1", "2"))
			w.produce(topic, sequenced(3, "3"))
			equal(t, "first again", fmt.Sprint(w.produce(topic, sequenced(0, "0", "1", "2"))), "0")
			equal(t, "second again", fmt.Sprint(w.produce(topic, sequenced(3, "3"))), "3")
			equal(t, "end", fmt.Sprint(w.endOffset(topic)), "4")

			dp := kmsg.NewDescribeProducersRequestTopic()
			dp.Topic, dp.Partitions = topic, []int32{0}
			describe := kmsg.NewPtrDescribeProducersRequest()
			describe.Topics = []kmsg.DescribeProducersRequestTopic{dp}
			p := call[*kmsg.DescribeProducersResponse](w, describe).Topics[0].Partitions[0]
			equal(t, "DescribeProducers", errorName(p.ErrorCode), none)
			want := kmsg.DescribeProducersResponseTopicPartitionActiveProducer{
				ProducerID: one.ProducerID, LastSequence: 3, LastTimestamp: batchTime, CoordinatorEpoch: -1, CurrentTxnStartOffset: -1}
			if len(p.ActiveProducers) != 1 || fmt.Sprint(p.ActiveProducers[0]) != fmt.Sprint(want) {
				t.Errorf("DescribeProducers: %+v, want %+v", p.ActiveProducers, want)
			}
		},
	})
}

// fetchByID is a Fetch outside of sessions of partition 0, version 13 (topics by id).
func fetchByID(id [16]byte, offset int64) *kmsg.FetchRequest {
	req := fetchOf("", offset)
	req.Version, req.Topics[0].TopicID, req.MaxWaitMillis = 13, id, 0
	return req
}

// inSession turns a Fetch into one of a session.
func inSession(req *kmsg.FetchRequest, id, epoch int32) *kmsg.FetchRequest {
	req.SessionID, req.SessionEpoch, req.MaxWaitMillis, req.MinBytes = id, epoch, 0, 0
	return req
}

// answered prints what a Fetch gave: its error, and of each partition the bytes of its records.
func answered(r *kmsg.FetchResponse) string {
	text := errorName(r.ErrorCode)
	for _, ft := range r.Topics {
		for _, p := range ft.Partitions {
			text += fmt.Sprintf(" %d:%d", p.Partition, len(p.RecordBatches))
			if p.ErrorCode != 0 {
				text += "(" + errorName(p.ErrorCode) + ")"
			}
		}
	}
	return text
}

func TestFetch(t *testing.T) {
	g := underTest(t, ottla.Config{})
	sized := func(n int) []byte { return newBatch(strings.Repeat("v", n)).bytes() }
	partitions := func(req *kmsg.FetchRequest, n int32) *kmsg.FetchRequest {
		one := req.Topics[0].Partitions[0]
		for p := int32(1); p < n; p++ {
			one.Partition = p
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, one)
		}
		return req
	}
	produceTo := func(w *wire, topic string, partition int32, records []byte) {
		w.t.Helper()
		req := produceOf(topic, records)
		req.Topics[0].Partitions[0].Partition = partition
		if got := outcome(w, req, produceCode); got != none {
			w.t.Fatal(got)
		}
	}
	two := func(w *wire, topic string) string {
		ct := newTopic(topic + "-two")
		ct.NumPartitions = 2
		w.createTopics(ct)
		for p := range int32(2) { // Apache Kafka may have one of them a moment later
			req := listOffsetsOf(ct.Topic, -1)
			req.Topics[0].Partitions[0].Partition = p
			for deadline := time.Now().Add(answerWithin); call[*kmsg.ListOffsetsResponse](w, req).Topics[0].Partitions[0].ErrorCode != 0; {
				if time.Now().After(deadline) {
					w.t.Fatalf("partition %d has no leader", p)
				}
			}
		}
		return ct.Topic
	}
	get := func(w *wire, req *kmsg.FetchRequest) string { return answered(call[*kmsg.FetchResponse](w, req)) }

	each(t, g, map[string]func(t *testing.T, w *wire, topic string){
		"session": func(t *testing.T, w *wire, topic string) {
			topic = two(w, topic)
			full := call[*kmsg.FetchResponse](w, inSession(partitions(fetchOf(topic, 0), 2), 0, 0))
			equal(t, "full", answered(full), "NONE 0:0 1:0")
			id := full.SessionID
			if id == 0 {
				t.Fatal("no session was made")
			}
			incremental := func(epoch int32) *kmsg.FetchRequest {
				req := inSession(fetchOf(topic, 0), id, epoch)
				req.Topics = nil
				return req
			}
			equal(t, "nothing new", get(w, incremental(1)), "NONE")
			record := sized(10)
			produceTo(w, topic, 1, record)
			equal(t, "one of two has news", get(w, incremental(2)), fmt.Sprintf("NONE 1:%d", len(record)))
			// The offset of partition 1 has not moved, so its record comes again; now it moves.
			moved := incremental(3)
			ft := kmsg.NewFetchRequestTopic()
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.FetchOffset, p.PartitionMaxBytes = 1, 1, 1<<20
			ft.Topic, ft.Partitions = topic, []kmsg.FetchRequestTopicPartition{p}
			moved.Topics = []kmsg.FetchRequestTopic{ft}
			equal(t, "its offset moved", get(w, moved), "NONE")
			produceTo(w, topic, 0, record)
			produceTo(w, topic, 1, record)
			forget := incremental(4)
			gone := kmsg.NewFetchRequestForgottenTopic()
			gone.Topic, gone.Partitions = topic, []int32{0}
			forget.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{gone}
			equal(t, "the other forgotten", get(w, forget), fmt.Sprintf("NONE 1:%d", len(record)))
			equal(t, "epoch left out", get(w, incremental(7)), "INVALID_FETCH_SESSION_EPOCH")
			equal(t, "right epoch after it", get(w, incremental(5)), fmt.Sprintf("NONE 1:%d", len(record)))
			equal(t, "closed and fetched outside", get(w, inSession(partitions(fetchOf(topic, 0), 2), id, -1)), fmt.Sprintf("NONE 0:%d 1:%d", len(record), 2*len(record)))
			equal(t, "after it was closed", get(w, incremental(6)), "FETCH_SESSION_ID_NOT_FOUND")
		},
		"session by topic id": func(t *testing.T, w *wire, topic string) {
			id := metadataOf(w, topic).TopicID
			full := call[*kmsg.FetchResponse](w, inSession(fetchByID(id, 0), 0, 0))
			equal(t, "full", answered(full), "NONE 0:0")
			record := sized(10)
			w.produce(topic, record)
			req := inSession(fetchByID(id, 0), full.SessionID, 1)
			req.Topics = nil
			equal(t, "news", get(w, req), fmt.Sprintf("NONE 0:%d", len(record)))
		},
		"maximum bytes": func(t *testing.T, w *wire, topic string) {
			topic = two(w, topic)
			record := sized(1000)
			for p := range int32(2) {
				produceTo(w, topic, p, record)
				produceTo(w, topic, p, record)
			}
			n := len(record)
			req := partitions(fetchOf(topic, 0), 2)
			equal(t, "all", get(w, req), fmt.Sprintf("NONE 0:%d 1:%d", 2*n, 2*n))
			req.MaxBytes = 1
			equal(t, "1 byte: the first batch whole, and no more", get(w, req), fmt.Sprintf("NONE 0:%d 1:0", n))
			req.MaxBytes = 0
			equal(t, "0 bytes: likewise", get(w, req), fmt.Sprintf("NONE 0:%d 1:0", n))
			req.MaxBytes = int32(3 * n)
			equal(t, "3 batches", get(w, req), fmt.Sprintf("NONE 0:%d 1:%d", 2*n, n))
			req.MaxBytes = 50 << 20
			for i := range req.Topics[0].Partitions {
				req.Topics[0].Partitions[i].PartitionMaxBytes = 1
			}
			equal(t, "1 byte of each", get(w, req), fmt.Sprintf("NONE 0:%d 1:0", n))
		},
		"maximum wait": func(t *testing.T, w *wire, topic string) {
			req := fetchOf(topic, 0)
			req.MaxWaitMillis = 150
			begin := time.Now()
			equal(t, "no record", get(w, req), "NONE 0:0")
			if took := time.Since(begin); took < 150*time.Millisecond || took > 2*time.Second {
				t.Errorf("an empty fetch waited for %s, want 150 ms", took)
			}
		},
		"minimum bytes": func(t *testing.T, w *wire, topic string) {
			record := sized(1000)
			req := fetchOf(topic, 0)
			req.MaxWaitMillis, req.MinBytes = 30_000, int32(2*len(record))
			w.send(req)
			other := dial(t, g.addr)
			other.produce(topic, record)
			other.produce(topic, record)
			resp, err := w.receive(req)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "woken by the second record", answered(resp.(*kmsg.FetchResponse)), fmt.Sprintf("NONE 0:%d", 2*len(record)))
		},
		"topics by name and by id": func(t *testing.T, w *wire, topic string) {
			record := sized(10)
			w.produce(topic, record)
			equal(t, "v12", get(w, fetchOf(topic, 0)), fmt.Sprintf("NONE 0:%d", len(record)))
			equal(t, "v13", get(w, fetchByID(metadataOf(w, topic).TopicID, 0)), fmt.Sprintf("NONE 0:%d", len(record)))
			equal(t, "unknown id", get(w, fetchByID([16]byte{1, 2, 3}, 0)), "NONE 0:0(UNKNOWN_TOPIC_ID)")
			equal(t, "v4", get(w, func() *kmsg.FetchRequest { r := fetchOf(topic, 0); r.Version = 4; return r }()), fmt.Sprintf("NONE 0:%d", len(record)))
			equal(t, "v18", get(w, func() *kmsg.FetchRequest {
				r := fetchByID(metadataOf(w, topic).TopicID, 0)
				r.Version = 18
				return r
			}()), fmt.Sprintf("NONE 0:%d", len(record)))
		},
		"offsets in the answer": func(t *testing.T, w *wire, topic string) {
			for range 3 {
				w.produce(topic, sized(10))
			}
			call[*kmsg.DeleteRecordsResponse](w, deleteRecordsOf(topic, 1))
			p := call[*kmsg.FetchResponse](w, fetchOf(topic, 1)).Topics[0].Partitions[0]
			equal(t, "high watermark, last stable, log start", fmt.Sprint(p.HighWatermark, p.LastStableOffset, p.LogStartOffset), "3 3 1")
			at := fetchOf(topic, 3)
			at.MaxWaitMillis = 0
			equal(t, "at the end", get(w, at), "NONE 0:0")
			at.Topics[0].Partitions[0].FetchOffset = 4
			equal(t, "past the end", get(w, at), "NONE 0:0(OFFSET_OUT_OF_RANGE)")
			committed := fetchOf(topic, 1)
			committed.IsolationLevel = 1
			p = call[*kmsg.FetchResponse](w, committed).Topics[0].Partitions[0]
			if p.ErrorCode != 0 || len(p.RecordBatches) == 0 || len(p.AbortedTransactions) != 0 {
				t.Errorf("read_committed: %+v", p)
			}
		},
		"from within a batch": func(t *testing.T, w *wire, topic string) {
			records := newBatch("0", "1", "2").bytes()
			w.produce(topic, records)
			p := call[*kmsg.FetchResponse](w, fetchOf(topic, 2)).Topics[0].Partitions[0]
			if !bytes.Equal(p.RecordBatches, storedBatch(records, 0, 0)) {
				t.Errorf("got %x, want the whole batch", p.RecordBatches)
			}
		},
	})
}

func TestDescribe(t *testing.T) {
	g := underTest(t, ottla.Config{})
	each(t, g, map[string]func(t *testing.T, w *wire, topic string){
		"DescribeTopicPartitions by pages": func(t *testing.T, w *wire, topic string) {
			a, b := newTopic(topic+"-a"), newTopic(topic+"-b")
			a.NumPartitions, b.NumPartitions = 3, 2
			w.createTopics(a, b)
			req := kmsg.NewPtrDescribeTopicPartitionsRequest()
			req.ResponsePartitionLimit = 2
			for _, name := range []string{b.Topic, a.Topic} { // answered in the order of names
				rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
				rt.Topic = name
				req.Topics = append(req.Topics, rt)
			}
			var pages []string
			for range 5 {
				resp := call[*kmsg.DescribeTopicPartitionsResponse](w, req)
				page := ""
				for _, rt := range resp.Topics {
					page += strings.TrimPrefix(*rt.Topic, topic) + ":"
					for _, p := range rt.Partitions {
						page += fmt.Sprintf(" %d(leader %d isr %v elr %v)", p.Partition, p.LeaderID, p.ISR, p.EligibleLeaderReplicas)
					}
				}
				pages = append(pages, page)
				if resp.NextCursor == nil {
					break
				}
				cursor := kmsg.NewDescribeTopicPartitionsRequestCursor()
				cursor.Topic, cursor.Partition = resp.NextCursor.Topic, resp.NextCursor.Partition
				req.Cursor = &cursor
			}
			want := []string{
				"-a: 0(leader 1 isr [1] elr []) 1(leader 1 isr [1] elr [])",
				"-a: 2(leader 1 isr [1] elr [])-b: 0(leader 1 isr [1] elr [])",
				"-b: 1(leader 1 isr [1] elr [])",
			}
			if diff := cmp.Diff(want, pages); diff != "" {
				t.Error(diff)
			}
		},
		"DescribeTopicPartitions of an unknown topic": func(t *testing.T, w *wire, topic string) {
			req := kmsg.NewPtrDescribeTopicPartitionsRequest()
			req.ResponsePartitionLimit = 2000
			rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
			rt.Topic = topic + "-not"
			req.Topics = append(req.Topics, rt)
			equal(t, "answer", outcome(w, req, func(r *kmsg.DescribeTopicPartitionsResponse) int16 { return r.Topics[0].ErrorCode }), "UNKNOWN_TOPIC_OR_PARTITION")
		},
		"DescribeCluster": func(t *testing.T, w *wire, _ string) {
			req := kmsg.NewPtrDescribeClusterRequest()
			req.Version = 2
			req.EndpointType = 1
			r := call[*kmsg.DescribeClusterResponse](w, req)
			if r.ErrorCode != 0 || len(r.ClusterID) != 22 || len(r.Brokers) != 1 {
				t.Fatalf("%+v", r)
			}
			b := r.Brokers[0]
			equal(t, "broker", fmt.Sprintf("%d %s:%d fenced %t", b.NodeID, b.Host, b.Port, b.IsFenced), "1 "+g.addr+" fenced false")
			m := kmsg.NewPtrMetadataRequest()
			m.Version, m.Topics = 12, []kmsg.MetadataRequestTopic{}
			meta := call[*kmsg.MetadataResponse](w, m)
			equal(t, "Metadata", fmt.Sprintf("%s %d %s:%d", *meta.ClusterID, meta.ControllerID, meta.Brokers[0].Host, meta.Brokers[0].Port), fmt.Sprintf("%s 1 %s", r.ClusterID, g.addr))
		},
		"DescribeLogDirs": func(t *testing.T, w *wire, topic string) {
			records := newBatch("v").bytes()
			w.produce(topic, records)
			req := kmsg.NewPtrDescribeLogDirsRequest()
			req.Version = 4
			dt := kmsg.NewDescribeLogDirsRequestTopic()
			dt.Topic, dt.Partitions = topic, []int32{0}
			req.Topics = []kmsg.DescribeLogDirsRequestTopic{dt}
			r := call[*kmsg.DescribeLogDirsResponse](w, req)
			if r.ErrorCode != 0 || len(r.Dirs) != 1 || len(r.Dirs[0].Topics) != 1 {
				t.Fatalf("%+v", r)
			}
			d := r.Dirs[0]
			if d.ErrorCode != 0 || d.Dir == "" || d.TotalBytes <= 0 || d.UsableBytes <= 0 || d.UsableBytes > d.TotalBytes {
				t.Errorf("%+v", d)
			}
			equal(t, "partition", fmt.Sprint(d.Topics[0].Partitions[0].Size, d.Topics[0].Partitions[0].OffsetLag, d.Topics[0].Partitions[0].IsFuture), fmt.Sprint(len(records), 0, false))
		},
		"ListConfigResources": func(t *testing.T, w *wire, topic string) {
			list := func(version int16, types ...int8) *kmsg.ListConfigResourcesResponse {
				req := kmsg.NewPtrListConfigResourcesRequest()
				req.Version, req.ResourceTypes = version, types
				return call[*kmsg.ListConfigResourcesResponse](w, req)
			}
			names := func(r *kmsg.ListConfigResourcesResponse, kind kmsg.ConfigResourceType) (names []string) {
				for _, c := range r.ConfigResources {
					if c.Type == int8(kind) {
						names = append(names, c.Name)
					}
				}
				return names
			}
			all, topics := list(1), list(1, int8(kmsg.ConfigResourceTypeTopic))
			for what, r := range map[string]*kmsg.ListConfigResourcesResponse{"all": all, "topics": topics} {
				if r.ErrorCode != 0 || !slices.Contains(names(r, kmsg.ConfigResourceTypeTopic), topic) {
					t.Errorf("%s: %s, without topic %s: %+v", what, errorName(r.ErrorCode), topic, r.ConfigResources)
				}
			}
			equal(t, "brokers among all", words(names(all, kmsg.ConfigResourceTypeBroker)), "[1]")
			equal(t, "brokers among topics", words(len(names(topics, kmsg.ConfigResourceTypeBroker))), "0")
			equal(t, "version 0, of client metrics alone", words(len(list(0).ConfigResources)), "0")
			equal(t, "no such type", errorName(list(1, 99).ErrorCode), "UNSUPPORTED_VERSION")
		},
		"features in ApiVersions": func(t *testing.T, w *wire, _ string) {
			req := kmsg.NewPtrApiVersionsRequest()
			req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 4, "test", "1"
			r := call[*kmsg.ApiVersionsResponse](w, req)
			supported, finalized := map[string]string{}, map[string]int16{}
			for _, f := range r.SupportedFeatures {
				supported[f.Name] = fmt.Sprintf("%d-%d", f.MinVersion, f.MaxVersion)
			}
			for _, f := range r.FinalizedFeatures {
				finalized[f.Name] = f.MaxVersionLevel
			}
			equal(t, "supported", words(supported["metadata.version"], supported["kraft.version"], supported["group.version"]), "7-33 0-1 0-1")
			equal(t, "finalized", words(finalized["metadata.version"], finalized["kraft.version"], finalized["group.version"]), "33 1 1")
			if r.FinalizedFeaturesEpoch <= 0 {
				t.Errorf("the finalized features are of metadata offset %d", r.FinalizedFeaturesEpoch)
			}
		},
		"DescribeQuorum": func(t *testing.T, w *wire, _ string) {
			req := kmsg.NewPtrDescribeQuorumRequest()
			req.Version = 2
			dt := kmsg.NewDescribeQuorumRequestTopic()
			dt.Topic, dt.Partitions = "__cluster_metadata", []kmsg.DescribeQuorumRequestTopicPartition{kmsg.NewDescribeQuorumRequestTopicPartition()}
			req.Topics = []kmsg.DescribeQuorumRequestTopic{dt}
			r := call[*kmsg.DescribeQuorumResponse](w, req)
			if r.ErrorCode != 0 || len(r.Topics) != 1 || len(r.Nodes) != 1 {
				t.Fatalf("%+v", r)
			}
			p := r.Topics[0].Partitions[0]
			if p.ErrorCode != 0 || p.LeaderID != 1 || p.LeaderEpoch < 1 || p.HighWatermark <= 0 || len(p.CurrentVoters) != 1 || p.CurrentVoters[0].ReplicaID != 1 || len(p.Observers) != 0 {
				t.Errorf("%+v", p)
			}
			dt.Topic = "other"
			req.Topics = []kmsg.DescribeQuorumRequestTopic{dt}
			other := call[*kmsg.DescribeQuorumResponse](w, req)
			equal(t, "another topic", errorName(other.Topics[0].Partitions[0].ErrorCode), "UNKNOWN_TOPIC_OR_PARTITION")
		},
		"ElectLeaders": func(t *testing.T, w *wire, topic string) {
			req := kmsg.NewPtrElectLeadersRequest()
			req.Version, req.TimeoutMillis = 2, 10_000
			et := kmsg.NewElectLeadersRequestTopic()
			et.Topic, et.Partitions = topic, []int32{0}
			req.Topics = []kmsg.ElectLeadersRequestTopic{et}
			code := func(r *kmsg.ElectLeadersResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode }
			equal(t, "preferred", outcome(w, req, code), "ELECTION_NOT_NEEDED")
			req.ElectionType = 1
			equal(t, "unclean", outcome(w, req, code), "ELECTION_NOT_NEEDED")
			req.Topics[0].Topic = topic + "-not"
			equal(t, "unknown topic", outcome(w, req, code), "UNKNOWN_TOPIC_OR_PARTITION")
		},
		"reassignments": func(t *testing.T, w *wire, topic string) {
			alter := func(replicas ...int32) string {
				req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
				req.Version, req.TimeoutMillis = 1, 10_000
				p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
				p.Replicas = replicas
				at := kmsg.NewAlterPartitionAssignmentsRequestTopic()
				at.Topic, at.Partitions = topic, []kmsg.AlterPartitionAssignmentsRequestTopicPartition{p}
				req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{at}
				return outcome(w, req, func(r *kmsg.AlterPartitionAssignmentsResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode })
			}
			equal(t, "to where it is", alter(1), none)
			equal(t, "to an unknown broker", alter(99), "INVALID_REPLICA_ASSIGNMENT")
			equal(t, "cancel", alter(), "NO_REASSIGNMENT_IN_PROGRESS")
			list := kmsg.NewPtrListPartitionReassignmentsRequest()
			list.TimeoutMillis = 10_000
			r := call[*kmsg.ListPartitionReassignmentsResponse](w, list)
			equal(t, "list", words(errorName(r.ErrorCode), len(r.Topics)), "NONE 0")
		},
		"UpdateFeatures": func(t *testing.T, w *wire, _ string) {
			update := func(feature string, level int16, dry bool) string {
				req := kmsg.NewPtrUpdateFeaturesRequest()
				req.Version, req.TimeoutMillis, req.ValidateOnly = 2, 10_000, dry
				f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
				f.Feature, f.MaxVersionLevel, f.UpgradeType = feature, level, 1
				req.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{f}
				return outcome(w, req, func(r *kmsg.UpdateFeaturesResponse) int16 { return r.ErrorCode })
			}
			equal(t, "metadata.version to what it is", update("metadata.version", 33, true), none)
			equal(t, "metadata.version beyond", update("metadata.version", 99, true), "INVALID_UPDATE_VERSION")
			equal(t, "unknown feature", update("no.such.version", 1, true), "INVALID_UPDATE_VERSION")
			equal(t, "metadata.version down as an upgrade", update("metadata.version", 20, true), "INVALID_UPDATE_VERSION")
		},
	})
}

func TestAutoTopicCreation(t *testing.T) {
	g := underTest(t, ottla.Config{})
	w := dial(t, g.addr)
	ask := func(topic string, allow bool) string {
		req := kmsg.NewPtrMetadataRequest()
		req.Version, req.AllowAutoTopicCreation = 12, allow
		mt := kmsg.NewMetadataRequestTopic()
		mt.Topic = &topic
		req.Topics = []kmsg.MetadataRequestTopic{mt}
		return outcome(w, req, func(r *kmsg.MetadataResponse) int16 { return r.Topics[0].ErrorCode })
	}
	topic := topicName("auto", 0)
	equal(t, "not allowed by the client", ask(topic, false), "UNKNOWN_TOPIC_OR_PARTITION")
	await(t, none, func() string { return ask(topic, true) })
	equal(t, "illegal name", ask("a/b", true), "INVALID_TOPIC_EXCEPTION")
	equal(t, "partitions", fmt.Sprint(len(metadataOf(w, topic).Partitions)), "1")
	w.awaitLeader(topic)
	equal(t, "first offset", fmt.Sprint(w.produce(topic, newBatch("v").bytes())), "0")
	if g.apache {
		return
	}
	off := start(t, ottla.Config{Properties: map[string]string{"auto.create.topics.enable": "false"}})
	w = dial(t, off.Addr())
	equal(t, "not allowed by the broker", ask(topic, true), "UNKNOWN_TOPIC_OR_PARTITION")
	equal(t, "and not made", ask(topic, true), "UNKNOWN_TOPIC_OR_PARTITION")
}

// freeAddress is a loopback address that nothing listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// TestListeners: each listener tells its own advertised address, where port 0 is the port that was found.
func TestListeners(t *testing.T) {
	third := freeAddress(t)
	b := start(t, ottla.Config{Properties: map[string]string{
		"listeners":                      "PLAINTEXT://127.0.0.1:0,SECOND://127.0.0.1:0,THIRD://" + third + ",CONTROLLER://127.0.0.1:0",
		"advertised.listeners":           "PLAINTEXT://127.0.0.1:0,SECOND://localhost:0,THIRD://broker.example:19093",
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT,THIRD:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":     "PLAINTEXT",
		"controller.listener.names":      "CONTROLLER",
	}})
	port := func(name string) string {
		_, port, err := net.SplitHostPort(b.ListenerAddr(name))
		if err != nil || port == "0" {
			t.Fatalf("listener %s is at %q", name, b.ListenerAddr(name))
		}
		return port
	}
	for _, row := range []struct{ name, dial, want string }{
		{"PLAINTEXT", "127.0.0.1:" + port("PLAINTEXT"), "127.0.0.1:" + port("PLAINTEXT")},
		{"SECOND", "127.0.0.1:" + port("SECOND"), "localhost:" + port("SECOND")},
		{"THIRD", third, "broker.example:19093"},
	} {
		w := dial(t, row.dial)
		req := kmsg.NewPtrMetadataRequest()
		req.Version, req.Topics = 12, []kmsg.MetadataRequestTopic{}
		brokers := call[*kmsg.MetadataResponse](w, req).Brokers
		cluster := kmsg.NewPtrDescribeClusterRequest()
		cluster.Version, cluster.EndpointType = 2, 1
		described := call[*kmsg.DescribeClusterResponse](w, cluster).Brokers
		if len(brokers) != 1 || len(described) != 1 {
			t.Fatalf("%d and %d brokers by %s", len(brokers), len(described), row.name)
		}
		equal(t, "Metadata by "+row.name, fmt.Sprintf("%s:%d", brokers[0].Host, brokers[0].Port), row.want)
		equal(t, "DescribeCluster by "+row.name, fmt.Sprintf("%s:%d", described[0].Host, described[0].Port), row.want)
		equal(t, "ListenerAddr of "+row.name, b.ListenerAddr(row.name), row.want)
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.Version, find.CoordinatorKeys = 4, []string{"g"}
		await(t, "NONE "+row.want, func() string {
			c := call[*kmsg.FindCoordinatorResponse](w, find).Coordinators[0]
			return fmt.Sprintf("%s %s:%d", errorName(c.ErrorCode), c.Host, c.Port)
		})
	}
	if b.ListenerAddr("FOURTH") != "" {
		t.Error("a listener that is not there has an address")
	}
}

// TestRestart: what was acknowledged before Close is there after Start on the same directory, and so is what the broker knew.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	b, err := ottla.Start(t.Context(), ottla.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	w := dial(t, b.Addr())
	const topic, trimmed, gone = "kept", "trimmed", "gone"
	w.createTopics(with(newTopic(topic), topicConfig("retention.ms", "86400000")), newTopic(trimmed), newTopic(gone))
	id := metadataOf(w, topic).TopicID
	const pid = 7_000_000
	sequenced := func(sequence int32, values ...string) []byte {
		return newBatch(values...).with(func(b *batch) { b.producerID, b.producerEpoch, b.baseSequence = pid, 2, sequence }).bytes()
	}
	first, second := sequenced(0, "0", "1", "2"), sequenced(3, "3")
	w.produce(topic, first)
	w.produce(topic, second)
	for range 3 {
		w.produce(trimmed, newBatch("v").bytes())
	}
	call[*kmsg.DeleteRecordsResponse](w, deleteRecordsOf(trimmed, 2))
	call[*kmsg.DeleteTopicsResponse](w, deleteTopicsOf(gone))
	w.conn.Close()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}

	w = dial(t, start(t, ottla.Config{Dir: dir}).Addr())
	w.awaitLeader(topic)
	after := metadataOf(w, topic)
	if after.TopicID != id {
		t.Errorf("topic id %x, before %x", after.TopicID, id)
	}
	equal(t, "config", describeConfigs(w, kmsg.ConfigResourceTypeTopic, topic, "retention.ms"), "retention.ms=86400000 DYNAMIC_TOPIC_CONFIG LONG; retention.ms=86400000 DYNAMIC_TOPIC_CONFIG")
	epoch := after.Partitions[0].LeaderEpoch
	p := call[*kmsg.FetchResponse](w, fetchOf(topic, 0)).Topics[0].Partitions[0]
	// The batches keep the leader epoch that they were written under, the first.
	if want := append(storedBatch(first, 0, 0), storedBatch(second, 3, 0)...); !bytes.Equal(p.RecordBatches, want) {
		t.Errorf("records\n%x, want\n%x", p.RecordBatches, want)
	}
	// Of each producer, Kafka's .snapshot file holds the last batch alone.
	equal(t, "first batch again", outcome(w, produceOf(topic, first), produceCode), "OUT_OF_ORDER_SEQUENCE_NUMBER")
	equal(t, "second batch again", fmt.Sprint(w.produce(topic, second)), "3")
	equal(t, "gap", outcome(w, produceOf(topic, sequenced(9, "9")), produceCode), "OUT_OF_ORDER_SEQUENCE_NUMBER")
	equal(t, "next batch", fmt.Sprint(w.produce(topic, sequenced(4, "4"))), "4")
	if epoch < 0 {
		t.Errorf("leader epoch %d", epoch)
	}
	w.awaitLeader(trimmed)
	p = call[*kmsg.FetchResponse](w, fetchOf(trimmed, 2)).Topics[0].Partitions[0]
	equal(t, "trimmed topic", words(errorName(p.ErrorCode), p.LogStartOffset, p.HighWatermark), "NONE 2 3")
	equal(t, "deleted topic", metadataCode(w, gone), "UNKNOWN_TOPIC_OR_PARTITION")
}

func TestOneDirectoryTwoBrokers(t *testing.T) {
	dir := t.TempDir()
	b := start(t, ottla.Config{Dir: dir})
	refusal := func(t *testing.T, text string) {
		t.Helper()
		if !strings.Contains(text, dir) || strings.Contains(text, "panic") {
			t.Errorf("the error does not name the directory %s: %s", dir, text)
		}
	}
	t.Run("in one process", func(t *testing.T) {
		other, err := ottla.Start(t.Context(), ottla.Config{Dir: dir})
		if err == nil {
			t.Fatal("a second broker took the directory", other.Close())
		}
		refusal(t, err.Error())
	})
	t.Run("in two processes", func(t *testing.T) {
		out, err := ottlaCommand(t.Context(), t, "serve", "--set", "log.dirs="+dir, "--set", "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0").CombinedOutput()
		if err == nil {
			t.Fatal("a second broker took the directory")
		}
		refusal(t, string(out))
	})
	w := dial(t, b.Addr())
	w.createTopics(newTopic("unharmed"))
	w.produce("unharmed", newBatch("v").bytes())
}

// TestForeignDirectory: a directory of another cluster or node is refused, and the error says both values.
func TestForeignDirectory(t *testing.T) {
	const cluster, otherCluster = "q1Zr9aAtRk2xWb0hK3m7Ag", "AAAAAAAAAAAAAAAAAAAAEQ"
	for _, row := range []struct{ key, before, after string }{
		{"ottla.cluster.id", cluster, otherCluster},
		{"node.id", "7", "8"},
	} {
		t.Run(row.key, func(t *testing.T) {
			dir := t.TempDir()
			b, err := ottla.Start(t.Context(), ottla.Config{Dir: dir, Properties: map[string]string{row.key: row.before}})
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			other, err := ottla.Start(t.Context(), ottla.Config{Dir: dir, Properties: map[string]string{row.key: row.after}})
			if err == nil {
				t.Fatal("it was taken", other.Close())
			}
			for _, part := range []string{row.before, row.after, dir} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %s: %v", part, err)
				}
			}
			again := start(t, ottla.Config{Dir: dir, Properties: map[string]string{row.key: row.before}})
			dial(t, again.Addr()).createTopics(newTopic("unharmed"))
		})
	}
}
