package metadata

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// TestHistory draws a history of records that fit one another, cuts it into deltas, and holds images and
// deltas against each other after each.
func TestHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		img, _ := after(t, Empty, &records.FeatureLevelRecord{Name: protocol.FeatureMetadataVersion, FeatureLevel: 33})
		var history []records.Message
		used := map[uuid.UUID]bool{} // topic ids: none is given out twice
		for range rapid.IntRange(1, 6).Draw(t, "deltas") {
			prev := img
			d := NewDelta(prev)
			for range rapid.IntRange(0, 12).Draw(t, "records") {
				if m := drawRecord(t, d, used); m != nil {
					mustReplay(t, d, m)
					history = append(history, m)
				}
			}
			img = d.Apply(int64(len(history)), 1)
			checkTopicChanges(t, d)
			checkEqual(t, "the image from a snapshot", fromSnapshot(t, img), img)
		}
		scratch, _ := after(t, Empty, &records.FeatureLevelRecord{Name: protocol.FeatureMetadataVersion, FeatureLevel: 33})
		scratch, _ = after(t, scratch, history...)
		checkEqual(t, "the image from one delta", scratch, img)
	})
}

func checkEqual(t *rapid.T, what string, got, want *Image) {
	if diff := cmp.Diff(dump(want), dump(got)); diff != "" {
		t.Fatalf("%s is another:\n%s", what, diff)
	}
}

func fromSnapshot(t *rapid.T, img *Image) *Image {
	l := NewLoader(Empty)
	_, err := l.Snapshot(img.Offset, img.Epoch, 0, func(yield func([]byte) error) error {
		var err error
		unwritten := img.WriteSnapshot(func(value []byte) {
			if err == nil {
				err = yield(value)
			}
		})
		return errors.Join(err, unwritten)
	})
	if err != nil {
		t.Fatal(err)
	}
	return l.Image()
}

// checkTopicChanges compares what a delta reports of topics with a comparison of its two images.
func checkTopicChanges(t *rapid.T, d *Delta) {
	reported := map[string]PartitionChange{}
	for c := range d.Topics() {
		if c.Old != d.Prev().Topic(c.ID()) || c.New != d.Image().Topic(c.ID()) {
			t.Fatalf("topic %s: reported %p → %p", c.Name(), c.Old, c.New)
		}
		for p := range c.Partitions() {
			reported[fmt.Sprint(c.ID(), p.ID)] = p
		}
	}
	for id := range topicIDs(d.Prev(), d.Image()) {
		for n := range int32(4) {
			old, now := d.Prev().Partition(id, n), d.Image().Partition(id, n)
			p, ok := reported[fmt.Sprint(id, n)]
			switch {
			case ok && (p.Old != old || p.New != now):
				t.Fatalf("partition %d of %s: reported %+v, it is %p → %p", n, id, p, old, now)
			case !ok && old != now:
				t.Fatalf("partition %d of %s changed and is not reported", n, id)
			}
		}
	}
}

func topicIDs(images ...*Image) map[uuid.UUID]bool {
	ids := map[uuid.UUID]bool{}
	for _, img := range images {
		for t := range img.Topics() {
			ids[t.ID] = true
		}
	}
	return ids
}

// drawRecord draws a record that fits what d has so far, or nil.
func drawRecord(t *rapid.T, d *Delta, used map[uuid.UUID]bool) records.Message {
	small := rapid.Int32Range(0, 3)
	brokers := rapid.SliceOfNDistinct(small, 1, 3, rapid.ID[int32])
	name := rapid.SampledFrom([]string{"a", "b", "c"})
	topic := id(byte(rapid.IntRange(1, 6).Draw(t, "topic")))
	c := d.topic(topic)
	switch rapid.IntRange(0, 14).Draw(t, "kind") {
	case 0, 1:
		n := name.Draw(t, "name")
		if used[topic] || d.topicByName(n) != nil {
			return nil
		}
		used[topic] = true
		return &records.TopicRecord{Name: n, TopicID: topic}
	case 2, 3, 4:
		if c == nil {
			return nil
		}
		p := partition(topic, small.Draw(t, "partition"), brokers.Draw(t, "replicas")...)
		if rapid.Bool().Draw(t, "with directories") {
			p.Directories = make([]uuid.UUID, len(p.Replicas))
			p.Directories[0] = id(100)
		}
		return p
	case 5, 6, 7:
		n := small.Draw(t, "partition")
		if c == nil || c.partition(n) == nil {
			return nil
		}
		return drawChange(t, topic, n, brokers)
	case 8:
		if c == nil {
			return nil
		}
		return &records.RemoveTopicRecord{TopicID: topic}
	case 9:
		value := rapid.Ptr(rapid.SampledFrom([]string{"1", "2"}), true).Draw(t, "value")
		return &records.ConfigRecord{ResourceType: int8(TopicConfig), ResourceName: name.Draw(t, "name"), Name: name.Draw(t, "key"), Value: value}
	case 10:
		return drawBroker(t, d, small.Draw(t, "broker"))
	case 11:
		parts := []records.EntityData{{EntityType: "user", EntityName: rapid.Ptr(name, true).Draw(t, "user")}}
		return &records.ClientQuotaRecord{Entity: parts, Key: name.Draw(t, "key"), Value: 1, Remove: rapid.Bool().Draw(t, "remove")}
	case 12:
		if rapid.Bool().Draw(t, "remove") {
			return &records.RemoveAccessControlEntryRecord{ID: topic}
		}
		return &records.AccessControlEntryRecord{ID: topic, ResourceName: name.Draw(t, "resource")}
	case 13:
		return &records.ProducerIdsRecord{NextProducerID: rapid.Int64Range(0, 9).Draw(t, "id")}
	default:
		return drawRare(t, d, name.Draw(t, "name"))
	}
}

func drawChange(t *rapid.T, topic uuid.UUID, n int32, brokers *rapid.Generator[[]int32]) records.Message {
	return change(topic, n, func(c *records.PartitionChangeRecord) {
		maybe := func(what string) []int32 {
			if rapid.Bool().Draw(t, "set "+what) {
				return brokers.Draw(t, what)
			}
			return nil
		}
		c.ISR, c.Replicas, c.EligibleLeaderReplicas, c.LastKnownELR = maybe("isr"), maybe("replicas"), maybe("elr"), maybe("last known elr")
		c.AddingReplicas, c.RemovingReplicas = maybe("adding"), maybe("removing")
		c.Leader = rapid.Int32Range(-2, 3).Draw(t, "leader")
		c.LeaderRecoveryState = int8(rapid.IntRange(-1, 1).Draw(t, "recovery"))
	})
}

func drawBroker(t *rapid.T, d *Delta, broker int32) records.Message {
	b := d.next.Broker(broker)
	if b == nil || rapid.Bool().Draw(t, "register") {
		return &records.RegisterBrokerRecord{BrokerID: broker, BrokerEpoch: rapid.Int64Range(0, 9).Draw(t, "epoch"), Fenced: true,
			EndPoints: []records.BrokerEndpoint{{Name: "L", Host: "h", Port: 1}}, LogDirs: []uuid.UUID{id(100)}}
	}
	if rapid.Bool().Draw(t, "unregister") {
		return &records.UnregisterBrokerRecord{BrokerID: broker, BrokerEpoch: b.Epoch}
	}
	return &records.BrokerRegistrationChangeRecord{BrokerID: broker, BrokerEpoch: b.Epoch, Fenced: int8(rapid.IntRange(-1, 1).Draw(t, "fenced")),
		InControlledShutdown: int8(rapid.IntRange(0, 1).Draw(t, "shutdown"))}
}

func drawRare(t *rapid.T, d *Delta, name string) records.Message {
	switch rapid.IntRange(0, 7).Draw(t, "rare kind") {
	case 0:
		return &records.UserScramCredentialRecord{Name: name, Mechanism: 1, Salt: []byte{1}, Iterations: 4096}
	case 1:
		return &records.RemoveUserScramCredentialRecord{Name: name, Mechanism: 1}
	case 2:
		return &records.DelegationTokenRecord{TokenID: name, Owner: "o"}
	case 3:
		return &records.RemoveDelegationTokenRecord{TokenID: name}
	case 4:
		return &records.RegisterControllerRecord{ControllerID: 1, EndPoints: []records.ControllerEndpoint{{Name: "C"}}}
	case 5:
		return &records.UnregisterControllerRecord{ControllerID: 1}
	case 6:
		if d.topicByName(name) == nil {
			name = ""
		}
		return &records.ClearElrRecord{TopicName: name}
	default:
		return &records.FeatureLevelRecord{Name: name, FeatureLevel: rapid.Int16Range(0, 2).Draw(t, "level")}
	}
}

// TestManyTopics goes past the size at which the persistent maps split their nodes.
func TestManyTopics(t *testing.T) {
	img := Empty
	for i := range 3000 {
		topic := uuid.UUID{0: byte(i), 1: byte(i >> 8), 12: byte(i), 13: byte(i >> 8), 15: 200}
		img, _ = after(t, img, &records.TopicRecord{Name: fmt.Sprint("topic-", i), TopicID: topic}, partition(topic, 0, 1))
	}
	if img.TopicCount() != 3000 || img.PartitionCount() != 3000 {
		t.Fatalf("%d topics, %d partitions", img.TopicCount(), img.PartitionCount())
	}
	var names []string
	for topic := range img.Topics() {
		names = append(names, topic.Name)
		if img.Topic(topic.ID) != topic || topic.Partition(0) == nil {
			t.Fatalf("topic %s is not whole", topic.Name)
		}
	}
	if len(names) != 3000 || !slices.IsSorted(names) {
		t.Errorf("%d names, sorted %t", len(names), slices.IsSorted(names))
	}
	for topic := range img.Topics() {
		img, _ = after(t, img, &records.RemoveTopicRecord{TopicID: topic.ID})
	}
	if img.TopicCount() != 0 || img.PartitionCount() != 0 || img.names.Len() != 0 {
		t.Errorf("%d topics, %d partitions are left", img.TopicCount(), img.PartitionCount())
	}
}

// TestPartitionChangeAllocations holds what it allocates to publish one changed partition to 20 kB. That is asked for at 100,000
// partitions, where BenchmarkPartitionChange measures it; a fifth of them takes a fifth of the time to set up, and is enough
// to find out whatever copies a word of each.
func TestPartitionChangeAllocations(t *testing.T) {
	const partitions, changes, most = 20_000, 100, 20_000
	for _, perTopic := range []int{1, partitions} {
		img, last := largeImage(t, partitions, perTopic)
		r := change(last, int32(perTopic-1), func(c *records.PartitionChangeRecord) { c.ISR = []int32{1, 2} })
		var before, now runtime.MemStats
		runtime.ReadMemStats(&before)
		for range changes {
			img, _ = after(t, img, r)
		}
		runtime.ReadMemStats(&now)
		if each := (now.TotalAlloc - before.TotalAlloc) / changes; each > most {
			t.Errorf("%d partitions a topic: %d bytes a change, want at most %d", perTopic, each, most)
		} else {
			t.Logf("%d partitions a topic: %d bytes a change", perTopic, each)
		}
	}
}

// BenchmarkPartitionChange publishes one changed partition of 100,000, in one topic and in a topic each.
func BenchmarkPartitionChange(b *testing.B) {
	const partitions = 100_000
	for _, perTopic := range []int{1, partitions} {
		b.Run(fmt.Sprintf("%d-per-topic", perTopic), func(b *testing.B) {
			img, last := largeImage(b, partitions, perTopic)
			r := change(last, int32(perTopic-1), func(c *records.PartitionChangeRecord) { c.ISR = []int32{1, 2} })
			b.ReportAllocs()
			for b.Loop() {
				img, _ = after(b, img, r)
			}
		})
	}
}

// BenchmarkSnapshot loads and compares 100,000 partitions.
func BenchmarkSnapshot(b *testing.B) {
	img, _ := largeImage(b, 100_000, 10)
	var values [][]byte
	if err := img.WriteSnapshot(func(v []byte) { values = append(values, slices.Clone(v)) }); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		l := NewLoader(img)
		if _, err := l.Snapshot(1, 1, 1, func(yield func([]byte) error) error {
			for _, v := range values {
				if err := yield(v); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
}

func largeImage(b tester, partitions, perTopic int) (*Image, uuid.UUID) {
	d := NewDelta(Empty)
	var topic uuid.UUID
	for i := range partitions {
		if i%perTopic == 0 {
			topic = uuid.Random()
			mustReplay(b, d, &records.TopicRecord{Name: fmt.Sprint("topic-", i), TopicID: topic})
		}
		mustReplay(b, d, partition(topic, int32(i%perTopic), 1, 2, 3))
	}
	return d.Apply(0, 1), topic
}
