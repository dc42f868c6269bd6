package controller

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/uuid"
)

// assignReplicasToDirs notes in which log directories a broker keeps its replicas (KIP-858).
// Source: Kafka's ReplicationControlManager.handleAssignReplicasToDirs.
func (t *turn) assignReplicasToDirs(req *kmsg.AssignReplicasToDirsRequest) answer {
	resp := req.ResponseKind().(*kmsg.AssignReplicasToDirsResponse)
	if err := t.checkBroker(req.BrokerID, req.BrokerEpoch); err != nil {
		resp.ErrorCode, _ = codeOf(err)
		return reply(resp)
	}
	for _, d := range req.Directories {
		rd := kmsg.NewAssignReplicasToDirsResponseDirectory()
		rd.ID = d.ID
		for _, topic := range d.Topics {
			rt := kmsg.NewAssignReplicasToDirsResponseDirectoryTopic()
			rt.TopicID = topic.TopicID
			for _, p := range topic.Partitions {
				rp := kmsg.NewAssignReplicasToDirsResponseDirectoryTopicPartition()
				rp.Partition = p.Partition
				rp.ErrorCode, _ = codeOf(t.assignDirectory(req.BrokerID, d.ID, topic.TopicID, p.Partition))
				rt.Partitions = append(rt.Partitions, rp)
			}
			rd.Topics = append(rd.Topics, rt)
		}
		resp.Directories = append(resp.Directories, rd)
	}
	return reply(resp)
}

func (t *turn) assignDirectory(broker int32, dir, topicID uuid.UUID, partition int32) error {
	topic := t.image().Topic(topicID)
	if topic == nil {
		return refuse(kerr.UnknownTopicID, "no topic has this id")
	}
	p := topic.Partition(partition)
	if p == nil {
		return refuse(kerr.UnknownTopicOrPartition, "no partition %d", partition)
	}
	was, ok := p.Directory(broker)
	if !ok {
		return refuse(kerr.NotLeaderForPartition, "broker %d has no replica", broker)
	}
	if was == dir {
		return nil
	}
	c := t.change(topic, partition)
	c.directories = map[int32]uuid.UUID{broker: dir}
	if dir == uuid.LostDir || !dir.IsReserved() && !t.image().Broker(broker).HasLogDir(dir) {
		c.isr = without(p.ISR, broker)
		c.mayLead = func(id int32) bool { return id != broker && t.active(id) && t.dirOnline(p, id) }
	}
	if r := c.record(); r != nil {
		t.emit(r)
	}
	return nil
}
