package group

import (
	"fmt"
	"testing"

	"ottla/internal/metadata"
	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// TestMetadataHash holds digests against those that testdata/GroupHash.java got out of Apache Kafka 4.4.
func TestMetadataHash(t *testing.T) {
	w := newWorld(t)
	d := metadata.NewDelta(w.image)
	brokers := map[string]int32{}
	replay := func(m records.Message) {
		if err := d.Replay(m); err != nil {
			t.Fatal(err)
		}
	}
	topic := func(name string, id uuid.UUID, partitions ...[]string) {
		replay(&records.TopicRecord{Name: name, TopicID: id})
		for i, racks := range partitions {
			var replicas []int32
			for _, rack := range racks {
				if brokers[rack] == 0 {
					brokers[rack] = int32(len(brokers) + 1)
					r := records.NewRegisterBrokerRecord()
					r.BrokerID, r.Rack, r.BrokerEpoch = brokers[rack], &rack, 1
					replay(r)
				}
				replicas = append(replicas, brokers[rack])
			}
			replicas = append(replicas, 100) // which has no rack
			replay(&records.PartitionRecord{TopicID: id, PartitionID: int32(i), Replicas: replicas, ISR: replicas, Directories: make([]uuid.UUID, len(replicas)), Leader: 100})
		}
	}
	r := records.NewRegisterBrokerRecord()
	r.BrokerID, r.BrokerEpoch = 100, 1
	replay(r)
	topic("t", uuid.UUID{7: 1, 15: 2}, nil)
	topic("orders", uuid.UUID{0x81, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfb}, []string{"b", "a"}, []string{"größe-𝄞"}, nil)
	var many [][]string
	for i := range 200 {
		many = append(many, []string{fmt.Sprint("rack-", i%3), fmt.Sprint("rack-", i%3)})
	}
	topic("many", uuid.UUID{7: 7, 15: 7}, many...)
	w.image = d.Apply(1, 1)
	w.machine.SetImage(w.now, w.image, nil)

	g := newConsumerGroup("g")
	if got := w.machine.metadataHash(g); got != 0 {
		t.Errorf("without topics: %d, want 0", got)
	}
	for _, row := range []struct {
		name         string
		topic, group int64 // group: with the topics before as well
	}{
		{"t", 677983168519007417, 8175066812797282553},
		{"orders", -2489485680929619294, -2939932381106369364},
		{"many", 2648565137333469289, -8220780874374660455},
		{"missing", 0, -8220780874374660455},
	} {
		g.tally.topics[row.name] = 1
		if got := w.machine.metadataHash(g); got != row.group {
			t.Errorf("the group with %s: %d, want %d", row.name, got, row.group)
		}
		if t1 := w.image.TopicByName(row.name); t1 != nil && int64(w.machine.topicHash(t1)) != row.topic {
			t.Errorf("%s: %d, want %d", row.name, int64(w.machine.topicHash(t1)), row.topic)
		}
	}

	// What changes it: the rack of a broker, a partition more. What does not: another leader.
	before := w.machine.metadataHash(g)
	change := func(what string, changes bool, m records.Message) {
		d := metadata.NewDelta(w.image)
		if err := d.Replay(m); err != nil {
			t.Fatal(err)
		}
		w.image = d.Apply(w.image.Offset+1, 1)
		w.machine.SetImage(w.now, w.image, nil)
		after := w.machine.metadataHash(g)
		if (after != before) != changes {
			t.Errorf("%s: the digest went from %d to %d", what, before, after)
		}
		before = after
	}
	lead := records.NewPartitionChangeRecord()
	lead.TopicID, lead.PartitionID, lead.Leader, lead.ISR = uuid.UUID{7: 1, 15: 2}, 0, 100, []int32{100}
	change("the leader is elected anew", false, lead)
	rack := "c"
	moved := records.NewRegisterBrokerRecord()
	moved.BrokerID, moved.BrokerEpoch, moved.Rack = brokers["a"], 2, &rack
	change("a broker is in another rack", true, moved)
	change("a partition is added", true, &records.PartitionRecord{TopicID: uuid.UUID{7: 1, 15: 2}, PartitionID: 1, Replicas: []int32{100}, ISR: []int32{100},
		Directories: []uuid.UUID{{}}, Leader: 100})
}
