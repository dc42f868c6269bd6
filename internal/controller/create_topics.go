package controller

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/config"
	"ottla/internal/metadata"
	"ottla/internal/protocol/records"
)

// createTopics creates topics, each or not on its own account. Source: Kafka's
// ReplicationControlManager.createTopics, ControllerApis.createTopics.
func (t *turn) createTopics(req *kmsg.CreateTopicsRequest) answer {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	resp.Topics = []kmsg.CreateTopicsResponseTopic{}
	times := map[string]int{}
	for i := range req.Topics {
		times[req.Topics[i].Topic]++
	}
	dry := newTurn(t.world, t.image(), t.now) // a request that only asks changes nothing
	if !req.ValidateOnly {
		dry = t
	}
	tooMany := t.tooManyPartitions(req)
	describer := &topicDescriber{config: t.config.WithDynamic(nil, t.image().Config(metadata.ClusterDefaults))}
	answered := map[string]bool{}
	for i := range req.Topics {
		topic := &req.Topics[i]
		if answered[topic.Topic] {
			continue
		}
		answered[topic.Topic] = true
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor, rt.Configs = topic.Topic, -1, -1, []kmsg.CreateTopicsResponseTopicConfig{}
		err := tooMany
		if times[topic.Topic] > 1 {
			err = refuse(kerr.InvalidRequest, "Duplicate topic name.")
		}
		if err == nil {
			err = dry.createTopic(topic, &rt, describer)
		}
		rt.ErrorCode, rt.ErrorMessage = codeOf(err)
		resp.Topics = append(resp.Topics, rt)
	}
	return reply(resp)
}

// tooManyPartitions refuses a request that would make one entry of the metadata log too large.
func (t *turn) tooManyPartitions(req *kmsg.CreateTopicsRequest) error {
	total := 0
	for i := range req.Topics {
		topic := &req.Topics[i]
		switch {
		case len(topic.ReplicaAssignment) > 0:
			total += len(topic.ReplicaAssignment)
		case topic.NumPartitions > 0:
			total += int(topic.NumPartitions)
		default:
			total += t.config.Int("num.partitions")
		}
	}
	if total > maxPartitionsPerRequest {
		return refuse(kerr.PolicyViolation, "Excessively large number of partitions per request.")
	}
	return nil
}

// createTopic emits one topic and describes it in rt, or says why not.
func (t *turn) createTopic(req *kmsg.CreateTopicsRequestTopic, rt *kmsg.CreateTopicsResponseTopic, describer *topicDescriber) error {
	if req.Topic == metadataTopic {
		return refuse(kerr.InvalidRequest, "Creation of internal topic %s is prohibited.", metadataTopic)
	}
	if err := checkTopicName(req.Topic); err != nil {
		return err
	}
	if t.image().TopicByName(req.Topic) != nil {
		return refuse(kerr.TopicAlreadyExists, "Topic '%s' already exists.", req.Topic)
	}
	if other := t.colliding(req.Topic); other != "" {
		return refuse(kerr.InvalidTopicException, "Topic '%s' collides with existing topic: %s", req.Topic, other)
	}
	settings, err := t.newTopicConfig(req)
	if err != nil {
		return err
	}
	assignment, err := t.assignment(req)
	if err != nil {
		return err
	}
	id := t.newID()
	partitions := make([]*records.PartitionRecord, len(assignment))
	for i, replicas := range assignment {
		if partitions[i], err = t.newPartition(id, int32(i), replicas); err != nil {
			return err
		}
	}
	t.emit(&records.TopicRecord{Name: req.Topic, TopicID: id})
	for _, c := range req.Configs {
		t.emit(&records.ConfigRecord{ResourceType: int8(metadata.TopicConfig), ResourceName: req.Topic, Name: c.Name, Value: c.Value})
	}
	for _, p := range partitions {
		t.emit(p)
	}
	rt.TopicID = id
	rt.NumPartitions, rt.ReplicationFactor = int32(len(assignment)), int16(len(assignment[0]))
	rt.Configs = describer.describe(settings)
	return nil
}

func (t *turn) newTopicConfig(req *kmsg.CreateTopicsRequestTopic) (map[string]string, error) {
	settings := map[string]string{}
	for _, c := range req.Configs {
		if c.Value == nil {
			return nil, refuse(kerr.InvalidConfig, "Null value not supported for topic configs: %s", c.Name)
		}
		if _, twice := settings[c.Name]; twice {
			return nil, refuse(kerr.InvalidRequest, "Topic config %s is given twice.", c.Name)
		}
		settings[c.Name] = *c.Value
	}
	return settings, t.config.ValidateTopic(settings)
}

// assignment returns the replicas of each partition, as the request gives them or as they are placed.
func (t *turn) assignment(req *kmsg.CreateTopicsRequestTopic) ([][]int32, error) {
	if len(req.ReplicaAssignment) > 0 {
		return t.manualAssignment(req)
	}
	if req.ReplicationFactor < -1 || req.ReplicationFactor == 0 {
		return nil, refuse(kerr.InvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	}
	if req.NumPartitions < -1 || req.NumPartitions == 0 {
		return nil, refuse(kerr.InvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	}
	partitions, factor := int(req.NumPartitions), int(req.ReplicationFactor)
	if partitions == -1 {
		partitions = t.brokerSetting("num.partitions")
	}
	if factor == -1 {
		factor = t.brokerSetting("default.replication.factor")
	}
	return t.place(partitions, factor)
}

// brokerSetting returns the value in force of a whole number that the cluster may set for all brokers.
func (t *turn) brokerSetting(key string) int {
	if v, ok := t.image().ConfigValue(key, metadata.ClusterDefaults); ok {
		if n, err := strconv.Atoi(v); err == nil {
			return n
		}
	}
	return t.config.Int(key)
}

func (t *turn) manualAssignment(req *kmsg.CreateTopicsRequestTopic) ([][]int32, error) {
	if req.ReplicationFactor != -1 {
		return nil, refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	}
	if req.NumPartitions != -1 {
		return nil, refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	out := make([][]int32, len(req.ReplicaAssignment))
	for _, a := range req.ReplicaAssignment {
		if a.Partition < 0 || int(a.Partition) >= len(out) || out[a.Partition] != nil {
			return nil, refuse(kerr.InvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence, each once; partition %d is not.", a.Partition)
		}
		if err := t.checkAssignment(a.Replicas, len(out[0])); err != nil {
			return nil, err
		}
		out[a.Partition] = a.Replicas
	}
	for _, replicas := range out {
		if len(replicas) != len(out[0]) {
			return nil, t.checkAssignment(replicas, len(out[0]))
		}
	}
	return out, nil
}

// A topicDescriber lists the configurations of topics as the answer to their creation does.
type topicDescriber struct {
	config *config.Config                         // with the cluster's dynamic part
	plain  []kmsg.CreateTopicsResponseTopicConfig // of a topic without settings of its own; made when first needed
}

func (d *topicDescriber) describe(settings map[string]string) []kmsg.CreateTopicsResponseTopicConfig {
	if len(settings) == 0 && d.plain != nil {
		return d.plain
	}
	entries := d.config.DescribeTopic(settings, config.Describe{})
	out := make([]kmsg.CreateTopicsResponseTopicConfig, 0, len(entries))
	for _, e := range entries {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value, c.ReadOnly, c.Source, c.IsSensitive = e.Name, e.Value, e.ReadOnly, int8(e.Source), e.IsSensitive
		out = append(out, c)
	}
	if len(settings) == 0 {
		d.plain = out
	}
	return out
}

// topicFor finds a topic by name, for an answer.
func (t *turn) topicFor(name string) (*metadata.Topic, error) {
	if topic := t.image().TopicByName(name); topic != nil {
		return topic, nil
	}
	return nil, refuse(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", name)
}
