package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
)

// alterPartitionReassignments begins, replaces or cancels reassignments (KIP-455). Source: Kafka's
// ReplicationControlManager.alterPartitionReassignments.
func (t *turn) alterPartitionReassignments(req *kmsg.AlterPartitionAssignmentsRequest) answer {
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.Topics = []kmsg.AlterPartitionAssignmentsResponseTopic{}
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	for _, topic := range req.Topics {
		rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		rt.Topic = topic.Topic
		for _, p := range topic.Partitions {
			rp := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			rp.Partition = p.Partition
			rp.ErrorCode, rp.ErrorMessage = codeOf(t.reassign(topic.Topic, p.Partition, p.Replicas, req.AllowReplicationFactorChange))
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return reply(resp)
}

// reassign moves a partition to replicas, or back if replicas is nil.
func (t *turn) reassign(name string, id int32, replicas []int32, anyFactor bool) error {
	topic, err := t.topicFor(name)
	if err != nil {
		return err
	}
	p := topic.Partition(id)
	if p == nil {
		return refuse(kerr.UnknownTopicOrPartition, "Unable to find partition %s:%d.", name, id)
	}
	c := t.change(topic, id)
	if replicas == nil {
		err = cancelReassignment(c, p)
	} else {
		err = t.beginReassignment(c, p, replicas, anyFactor)
	}
	if err != nil {
		return err
	}
	if r := c.record(); r != nil {
		t.emit(r)
	}
	return nil
}

func reassigning(p *metadata.Partition) bool { return len(p.Adding) > 0 || len(p.Removing) > 0 }

func cancelReassignment(c *change, p *metadata.Partition) error {
	if !reassigning(p) {
		return refuse(kerr.NoReassignmentInProgress, "No partition reassignment is in progress.")
	}
	isr := without(p.ISR, p.Adding...)
	if len(isr) == 0 && c.mode != electUnclean {
		return refuse(kerr.InvalidReplicaAssignment, "Unable to revert partition assignment, because the ISR would become empty: all its members are being added.")
	}
	c.replicas, c.isr, c.adding, c.removing = without(p.Replicas, p.Adding...), isr, nil, nil
	return nil
}

func (t *turn) beginReassignment(c *change, p *metadata.Partition, target []int32, anyFactor bool) error {
	factor := 0
	if !anyFactor {
		factor = len(without(p.Replicas, p.Adding...))
	}
	if err := t.checkAssignment(target, factor); err != nil {
		if factor > 0 && len(target) != factor {
			return refuse(kerr.InvalidReplicationFactor, "The replication factor is changed from %d to %d", factor, len(target))
		}
		return err
	}
	// Replicas that an earlier reassignment was to add and this one does not want are dropped at once.
	current := without(p.Replicas, without(p.Adding, target...)...)
	c.removing = without(current, target...)
	c.adding = without(target, without(p.Replicas, p.Adding...)...)
	c.replicas = append(slices.Clone(target), c.removing...)
	c.isr = within(p.ISR, c.replicas)
	return nil
}

// listPartitionReassignments lists the reassignments in progress.
func (t *turn) listPartitionReassignments(req *kmsg.ListPartitionReassignmentsRequest) answer {
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	resp.Topics = []kmsg.ListPartitionReassignmentsResponseTopic{}
	if req.Topics == nil {
		for topic := range t.image().Topics() {
			var ids []int32
			for id := range topic.Partitions() {
				ids = append(ids, id)
			}
			listReassignments(resp, topic, ids)
		}
		return reply(resp)
	}
	for _, rt := range req.Topics {
		if topic := t.image().TopicByName(rt.Topic); topic != nil {
			listReassignments(resp, topic, rt.Partitions)
		}
	}
	return reply(resp)
}

func listReassignments(resp *kmsg.ListPartitionReassignmentsResponse, topic *metadata.Topic, ids []int32) {
	rt := kmsg.NewListPartitionReassignmentsResponseTopic()
	rt.Topic = topic.Name
	for _, id := range ids {
		p := topic.Partition(id)
		if p == nil || !reassigning(p) {
			continue
		}
		rp := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
		rp.Partition, rp.Replicas, rp.AddingReplicas, rp.RemovingReplicas = id, p.Replicas, notNil(p.Adding), notNil(p.Removing)
		rt.Partitions = append(rt.Partitions, rp)
	}
	if len(rt.Partitions) > 0 {
		resp.Topics = append(resp.Topics, rt)
	}
}
