package controller

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
	"ottla/internal/protocol/records"
)

// createPartitions gives topics more partitions. Source: Kafka's ReplicationControlManager.createPartitions.
func (t *turn) createPartitions(req *kmsg.CreatePartitionsRequest) answer {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	resp.Topics = []kmsg.CreatePartitionsResponseTopic{}
	times := map[string]int{}
	for i := range req.Topics {
		times[req.Topics[i].Topic]++
	}
	dry := newTurn(t.world, t.image(), t.now)
	if !req.ValidateOnly {
		dry = t
	}
	budget := maxPartitionsPerRequest
	answered := map[string]bool{}
	for i := range req.Topics {
		topic := &req.Topics[i]
		if answered[topic.Topic] {
			continue
		}
		answered[topic.Topic] = true
		var err error
		if times[topic.Topic] > 1 {
			err = refuse(kerr.InvalidRequest, "Duplicate topic name.")
		} else {
			err = dry.morePartitions(topic, &budget)
		}
		rt := kmsg.NewCreatePartitionsResponseTopic()
		rt.Topic = topic.Topic
		rt.ErrorCode, rt.ErrorMessage = codeOf(err)
		resp.Topics = append(resp.Topics, rt)
	}
	return reply(resp)
}

// morePartitions emits the partitions that one topic gets and takes their number off budget.
func (t *turn) morePartitions(req *kmsg.CreatePartitionsRequestTopic, budget *int) error {
	topic, err := t.topicFor(req.Topic)
	if err != nil {
		return err
	}
	have := topic.PartitionCount()
	more := int(req.Count) - have
	switch {
	case more == 0:
		return refuse(kerr.InvalidPartitions, "Topic already has %d partition(s).", have)
	case more < 0:
		return refuse(kerr.InvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", req.Topic, have, req.Count)
	case more > *budget:
		return refuse(kerr.PolicyViolation, "Excessively large number of partitions per request.")
	case req.Assignment != nil && len(req.Assignment) != more:
		return refuse(kerr.InvalidReplicaAssignment, "Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", more, len(req.Assignment))
	}
	assignment, err := t.moreReplicas(topic, req, more)
	if err != nil {
		return err
	}
	partitions := make([]*records.PartitionRecord, more)
	for i, replicas := range assignment {
		if partitions[i], err = t.newPartition(topic.ID, int32(have+i), replicas); err != nil {
			return err
		}
	}
	*budget -= more
	for _, p := range partitions {
		t.emit(p)
	}
	return nil
}

func (t *turn) moreReplicas(topic *metadata.Topic, req *kmsg.CreatePartitionsRequestTopic, more int) ([][]int32, error) {
	factor := len(topic.Partition(0).Replicas)
	if req.Assignment == nil {
		return t.place(more, factor)
	}
	out := make([][]int32, more)
	for i, a := range req.Assignment {
		if err := t.checkAssignment(a.Replicas, factor); err != nil {
			return nil, err
		}
		out[i] = a.Replicas
	}
	return out, nil
}
