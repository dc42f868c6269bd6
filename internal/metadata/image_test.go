package metadata

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
	"ottla/internal/record"
	"ottla/internal/uuid"
)

// id is the topic id with that number.
func id(n byte) uuid.UUID { return uuid.UUID{15: n} }

func ptr[T any](v T) *T { return &v }

// A tester is a testing.TB or a *rapid.T.
type tester interface {
	Helper()
	Fatal(...any)
}

func mustReplay(t tester, d *Delta, messages ...records.Message) {
	t.Helper()
	for _, m := range messages {
		if err := d.Replay(m); err != nil {
			t.Fatal(err)
		}
	}
}

// after returns the image and the delta after records.
func after(t tester, img *Image, messages ...records.Message) (*Image, *Delta) {
	t.Helper()
	d := NewDelta(img)
	mustReplay(t, d, messages...)
	return d.Apply(img.Offset+int64(len(messages)), 1), d
}

func partition(topic uuid.UUID, n int32, replicas ...int32) *records.PartitionRecord {
	return &records.PartitionRecord{TopicID: topic, PartitionID: n, Replicas: replicas, ISR: replicas, Leader: replicas[0]}
}

func change(topic uuid.UUID, n int32, f func(*records.PartitionChangeRecord)) *records.PartitionChangeRecord {
	r := records.NewPartitionChangeRecord()
	r.TopicID, r.PartitionID = topic, n
	f(r)
	return r
}

// dump is everything an image holds, as text that can be compared.
func dump(img *Image) []string {
	lines := []string{fmt.Sprintf("topics %d by name %d partitions %d kraft %d", img.TopicCount(), img.names.Len(), img.PartitionCount(), img.KRaftVersion)}
	for t := range img.Topics() {
		if img.Topic(t.ID) != t {
			lines = append(lines, "by id another: "+t.Name)
		}
	}
	var body []string
	img.Snapshot(func(m records.Message) {
		version := maxVersion(m)
		body = append(body, fmt.Sprintf("%T %x", m, records.AppendMetadata(nil, m, version)))
	})
	slices.Sort(body) // ACLs have no order
	return append(lines, body...)
}

func maxVersion(m records.Message) int16 {
	_, highest := m.Versions()
	return highest
}

func TestPartitionEpochs(t *testing.T) {
	img, _ := after(t, Empty, &records.TopicRecord{Name: "a", TopicID: id(1)}, partition(id(1), 0, 1, 2, 3))
	type C = records.PartitionChangeRecord
	for _, step := range []struct {
		what                        string
		change                      func(*C)
		leader                      int32
		leaderEpoch, partitionEpoch int32
	}{
		{"an ISR shrink leaves the leader epoch", func(c *C) { c.ISR = []int32{1, 2} }, 1, 0, 1},
		{"the same leader again raises it", func(c *C) { c.Leader = 1 }, 1, 1, 2},
		{"another leader raises it", func(c *C) { c.Leader, c.ISR = 2, []int32{2} }, 2, 2, 3},
		{"no leader raises it", func(c *C) {
			c.Leader, c.ISR, c.EligibleLeaderReplicas, c.LastKnownELR = -1, []int32{}, []int32{2}, []int32{2}
		}, -1, 3, 4},
		{"unclean election", func(c *C) {
			c.Leader, c.ISR, c.LeaderRecoveryState, c.EligibleLeaderReplicas = 2, []int32{2}, 1, []int32{}
		}, 2, 4, 5},
		{"recovered", func(c *C) { c.LeaderRecoveryState = 0 }, 2, 4, 6},
	} {
		img, _ = after(t, img, change(id(1), 0, step.change))
		p := img.Partition(id(1), 0)
		if p.Leader != step.leader || p.LeaderEpoch != step.leaderEpoch || p.PartitionEpoch != step.partitionEpoch {
			t.Errorf("%s: leader %d, leader epoch %d, partition epoch %d; Kafka has %d, %d, %d", step.what,
				p.Leader, p.LeaderEpoch, p.PartitionEpoch, step.leader, step.leaderEpoch, step.partitionEpoch)
		}
	}
	p := img.PartitionByName("a", 0)
	if !slices.Equal(p.LastKnownELR, []int32{2}) || len(p.ELR) != 0 || p.LeaderRecoveryState != Recovered {
		t.Errorf("%+v", p)
	}
	// ClearElr counts as a change of the partitions that had any.
	img, d := after(t, img, &records.ClearElrRecord{TopicName: "a"})
	if p := img.Partition(id(1), 0); len(p.LastKnownELR) != 0 || p.PartitionEpoch != 7 || p.LeaderEpoch != 4 {
		t.Errorf("after ClearElr: %+v", p)
	}
	if n := len(slices.Collect(d.Topics())); n != 1 {
		t.Errorf("ClearElr changed %d topics", n)
	}
	if _, d := after(t, img, &records.ClearElrRecord{}); len(slices.Collect(d.Topics())) != 0 {
		t.Error("ClearElr changed a topic that had no ELR")
	}
}

// TestDirectories: replicas that stay keep their directory, new ones have none, and what was written before
// directories existed is migrating.
func TestDirectories(t *testing.T) {
	r := partition(id(1), 0, 1, 2)
	r.Directories = []uuid.UUID{id(101), id(102)}
	img, _ := after(t, Empty, &records.TopicRecord{Name: "a", TopicID: id(1)}, r, partition(id(1), 1, 1),
		change(id(1), 0, func(c *records.PartitionChangeRecord) { c.Replicas = []int32{2, 3} }))
	if got, want := img.Partition(id(1), 0).Directories, []uuid.UUID{id(102), uuid.Metadata}; !slices.Equal(got, want) {
		t.Errorf("directories %v, Kafka has %v", got, want)
	}
	if dir, ok := img.Partition(id(1), 1).Directory(1); !ok || dir != uuid.Zero {
		t.Errorf("directory %s, %t: Kafka has MIGRATING", dir, ok)
	}
	if _, ok := img.Partition(id(1), 1).Directory(9); ok {
		t.Error("a broker without a replica has a directory")
	}
}

func TestBrokers(t *testing.T) {
	register := &records.RegisterBrokerRecord{BrokerID: 4, BrokerEpoch: 10, IncarnationID: id(9), Fenced: true, Rack: ptr("r"),
		EndPoints: []records.BrokerEndpoint{{Name: "PLAINTEXT", Host: "h", Port: 9092}, {Name: "SSL", Host: "h", Port: 9093, SecurityProtocol: 1}},
		LogDirs:   []uuid.UUID{id(200), id(201)}}
	img, d := after(t, Empty, register)
	if changes := slices.Collect(d.Brokers()); len(changes) != 1 || changes[0].Key != 4 || changes[0].Old != nil || changes[0].New != img.Broker(4) {
		t.Errorf("changed brokers %+v", changes)
	}
	if n := len(slices.Collect(img.UnfencedBrokers())); n != 0 {
		t.Errorf("%d unfenced brokers, a broker begins fenced", n)
	}
	img2, d := after(t, img, &records.BrokerRegistrationChangeRecord{BrokerID: 4, BrokerEpoch: 10, Fenced: Unfence, CordonedLogDirs: []uuid.UUID{}})
	b := img2.Broker(4)
	if b.Fenced || b.CordonedLogDirs == nil || len(b.LogDirs) != 2 || !img.Broker(4).Fenced {
		t.Errorf("after unfencing: %+v; before: %+v", b, img.Broker(4))
	}
	if e, ok := b.Endpoint("SSL"); !ok || e.Port != 9093 {
		t.Errorf("endpoint of SSL: %+v %t", e, ok)
	}
	if _, ok := b.Endpoint("NONE"); ok {
		t.Error("endpoint of a listener that the broker has not got")
	}
	for change := range d.Brokers() {
		if !change.Old.Fenced || change.New.Fenced {
			t.Errorf("change of broker: %+v", change)
		}
	}
	img3, _ := after(t, img2, &records.BrokerRegistrationChangeRecord{BrokerID: 4, BrokerEpoch: 10, InControlledShutdown: EnterControlledShutdown},
		&records.BrokerRegistrationChangeRecord{BrokerID: 4, BrokerEpoch: 10, LogDirs: []uuid.UUID{id(201)}},
		&records.FenceBrokerRecord{ID: 4, Epoch: 10})
	if b := img3.Broker(4); !b.Fenced || !b.InControlledShutdown || b.HasLogDir(id(200)) || !b.HasLogDir(id(201)) {
		t.Errorf("%+v", b)
	}
	if err := NewDelta(img3).Replay(&records.UnfenceBrokerRecord{ID: 4, Epoch: 11}); err == nil || !strings.Contains(err.Error(), "epoch 10") {
		t.Errorf("unfence with another epoch: %v", err)
	}
	if img4, _ := after(t, img3, &records.UnregisterBrokerRecord{BrokerID: 4}); img4.Broker(4) != nil {
		t.Error("unregistered broker is there")
	}
}

// TestTopicReplaced deletes a topic and creates one of the same name within one delta.
func TestTopicReplaced(t *testing.T) {
	img, _ := after(t, Empty, &records.TopicRecord{Name: "a", TopicID: id(1)}, partition(id(1), 0, 1), partition(id(1), 1, 1),
		&records.ConfigRecord{ResourceType: int8(TopicConfig), ResourceName: "a", Name: "retention.ms", Value: ptr("5")})
	next, d := after(t, img, &records.RemoveTopicRecord{TopicID: id(1)}, &records.TopicRecord{Name: "a", TopicID: id(2)}, partition(id(2), 0, 3))
	if next.TopicByName("a") != next.Topic(id(2)) || next.Topic(id(1)) != nil || next.PartitionCount() != 1 || next.TopicCount() != 1 {
		t.Errorf("%v", dump(next))
	}
	var got []string
	for c := range d.Topics() {
		for p := range c.Partitions() {
			got = append(got, fmt.Sprintf("%d %d %t %t", c.ID()[15], p.ID, p.Old != nil, p.New != nil))
		}
	}
	if want := []string{"1 0 true false", "1 1 true false", "2 0 false true"}; !slices.Equal(got, want) {
		t.Errorf("changes %q, want %q", got, want)
	}
	if next.Config(TopicResource("a")) != nil {
		t.Error("the configuration outlived its topic")
	}
	for c := range d.Configs() {
		if c.Old["retention.ms"] != "5" || c.New != nil {
			t.Errorf("%+v", c)
		}
	}
	if _, d := after(t, img, &records.TopicRecord{Name: "b", TopicID: id(3)}, &records.RemoveTopicRecord{TopicID: id(3)}); len(slices.Collect(d.Topics())) != 0 {
		t.Error("a topic that came and went is reported")
	}
}

func TestConfigs(t *testing.T) {
	set := func(r Resource, key string, value *string) *records.ConfigRecord {
		return &records.ConfigRecord{ResourceType: int8(r.Type), ResourceName: r.Name, Name: key, Value: value}
	}
	img, _ := after(t, Empty, set(ClusterDefaults, "a", ptr("all")), set(ClusterDefaults, "b", ptr("all")), set(BrokerResource(3), "a", ptr("mine")))
	for key, want := range map[string]string{"a": "mine", "b": "all", "c": ""} {
		if got, ok := img.ConfigValue(key, BrokerResource(3), ClusterDefaults); got != want || ok != (want != "") {
			t.Errorf("%s is %q, %t", key, got, ok)
		}
	}
	next, _ := after(t, img, set(BrokerResource(3), "a", nil))
	if next.Config(BrokerResource(3)) != nil || img.Config(BrokerResource(3)) == nil {
		t.Error("a key was not deleted, or in the image before as well")
	}
}

func TestQuotas(t *testing.T) {
	quota := func(value float64, remove bool, parts ...records.EntityData) *records.ClientQuotaRecord {
		return &records.ClientQuotaRecord{Entity: parts, Key: "producer_byte_rate", Value: value, Remove: remove}
	}
	user, client := records.EntityData{EntityType: "user", EntityName: ptr("u")}, records.EntityData{EntityType: "client-id"}
	img, _ := after(t, Empty, quota(1, false, user, client), quota(2, false, user), quota(3, false, client, user))
	q := img.ClientQuota(QuotaEntity{{"user", ptr("u")}, {"client-id", nil}})
	if q == nil || q.Limits["producer_byte_rate"] != 3 || len(slices.Collect(img.ClientQuotas())) != 2 {
		t.Errorf("%+v", q)
	}
	img, d := after(t, img, quota(0, true, user))
	if img.ClientQuota(QuotaEntity{{"user", ptr("u")}}) != nil {
		t.Error("removed quota is there")
	}
	for c := range d.ClientQuotas() {
		if c.Old == nil || c.New != nil || c.Old.Limits["producer_byte_rate"] != 2 {
			t.Errorf("%+v", c)
		}
	}
}

func TestFeatures(t *testing.T) {
	d := NewDelta(Empty)
	mustReplay(t, d, &records.FeatureLevelRecord{Name: protocol.FeatureMetadataVersion, FeatureLevel: 33},
		&records.FeatureLevelRecord{Name: protocol.FeatureGroup, FeatureLevel: 1}, &records.FeatureLevelRecord{Name: protocol.FeatureShare, FeatureLevel: 1},
		&records.FeatureLevelRecord{Name: protocol.FeatureShare, FeatureLevel: 0})
	d.SetKRaftVersion(1)
	img := d.Apply(3, 1)
	got := maps.Collect(img.Features())
	want := map[string]int16{protocol.FeatureMetadataVersion: 33, protocol.FeatureGroup: 1, protocol.FeatureKRaftVersion: 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var names []string
	for name := range img.Features() {
		names = append(names, name)
	}
	if !slices.IsSorted(names) {
		t.Errorf("features in order %q", names)
	}
	if img.MetadataVersion() != protocol.MetadataVersionLatest {
		t.Errorf("metadata.version %d", img.MetadataVersion())
	}
	if n := len(slices.Collect(d.Features())); n != 4 {
		t.Errorf("%d features changed", n)
	}
}

func TestCursors(t *testing.T) {
	img := Empty
	for i, name := range []string{"c", "a", "d", "b"} {
		img, _ = after(t, img, &records.TopicRecord{Name: name, TopicID: id(byte(i))}, partition(id(byte(i)), 1, 1), partition(id(byte(i)), 0, 1))
	}
	for from, want := range map[string]string{"": "abcd", "b": "bcd", "bb": "cd", "e": ""} {
		got := ""
		for topic := range img.TopicsFrom(from) {
			got += topic.Name
		}
		if got != want {
			t.Errorf("topics from %q: %q", from, got)
		}
	}
	for p := range img.TopicByName("a").PartitionsFrom(1) {
		if p != 1 {
			t.Errorf("partition %d from 1 on", p)
		}
	}
}

// TestUnfit has records that no correct controller writes.
func TestUnfit(t *testing.T) {
	img, _ := after(t, Empty, &records.TopicRecord{Name: "a", TopicID: id(1)}, partition(id(1), 0, 1))
	bad := partition(id(1), 1, 1, 2)
	bad.Directories = []uuid.UUID{id(3)}
	for what, m := range map[string]records.Message{
		"topic again":             &records.TopicRecord{Name: "a", TopicID: id(1)},
		"partition of no topic":   partition(id(2), 0, 1),
		"change of no partition":  change(id(1), 7, func(*records.PartitionChangeRecord) {}),
		"change of no topic":      change(id(2), 0, func(*records.PartitionChangeRecord) {}),
		"removal of no topic":     &records.RemoveTopicRecord{TopicID: id(2)},
		"broker that is not":      &records.BrokerRegistrationChangeRecord{BrokerID: 1},
		"directories to replicas": bad,
		"recovery state":          change(id(1), 0, func(c *records.PartitionChangeRecord) { c.LeaderRecoveryState = 5 }),
		"no metadata record":      &records.VotersRecord{},
	} {
		if err := NewDelta(img).Replay(m); err == nil {
			t.Errorf("%s was accepted", what)
		}
	}
}

// TestApache loads a metadata log and a snapshot of it that Apache Kafka wrote (records/testdata/make.sh). The
// snapshot was made before the end of the log; up to it both must say the same.
func TestApache(t *testing.T) {
	const dir = "../protocol/records/testdata/"
	var snapshot [][]byte
	eachBatch(t, dir+"metadata.checkpoint", func(b Batch) { snapshot = append(snapshot, b.Values...) })
	fromSnapshot := NewLoader(Empty)
	if _, err := fromSnapshot.Snapshot(0, 1, 0, func(yield func([]byte) error) error {
		for _, v := range snapshot {
			if err := yield(v); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := dump(fromSnapshot.Image())
	fromLog := NewLoader(Empty)
	same := false
	eachBatch(t, dir+"metadata.log", func(b Batch) {
		if _, err := fromLog.Batch(b); err != nil {
			t.Fatal(err)
		}
		same = same || slices.Equal(dump(fromLog.Image()), want)
	})
	if !same {
		t.Errorf("at no offset was the log at the snapshot's state: %s", cmp.Diff(want, dump(fromLog.Image())))
	}
	img := fromLog.Image()
	orders := img.TopicByName("orders")
	if orders == nil || orders.PartitionCount() != 5 || img.TopicByName("gone") != nil {
		t.Fatal("topic orders of 5 partitions is to be there, topic gone not")
	}
	if c := img.Config(TopicResource("orders")); c["retention.ms"] != "86400000" || c["max.message.bytes"] != "2000000" || len(c) != 2 {
		t.Errorf("configuration of orders: %v", c)
	}
	if b := img.Broker(1); b == nil || len(b.Endpoints) != 1 || len(b.LogDirs) != 1 {
		t.Errorf("broker 1: %+v", b)
	}
	if n := len(slices.Collect(img.ACLs())); n != 1 {
		t.Errorf("%d ACLs", n)
	}
}

func eachBatch(t *testing.T, file string, f func(Batch)) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for len(b) > 0 {
		h, err := record.ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		batch := Batch{BaseOffset: h.BaseOffset, LastOffset: h.LastOffset(), Epoch: h.LeaderEpoch, Timestamp: h.MaxTimestamp}
		if !h.Attributes.Control() {
			err = record.Iterate(b, func(r record.Record) error {
				batch.Values = append(batch.Values, slices.Clone(r.Value))
				return nil
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		f(batch)
		b = b[h.Size():]
	}
}

// TestSnapshotAtOldLevel: nodes of the release that the level belongs to must be able to read it all.
func TestSnapshotAtOldLevel(t *testing.T) {
	r := partition(id(1), 0, 1)
	r.Directories, r.EligibleLeaderReplicas = []uuid.UUID{id(100)}, []int32{2}
	img, _ := after(t, Empty, &records.FeatureLevelRecord{Name: protocol.FeatureMetadataVersion, FeatureLevel: 10},
		&records.TopicRecord{Name: "a", TopicID: id(1)}, r, &records.UserScramCredentialRecord{Name: "u", Mechanism: 1},
		&records.RegisterBrokerRecord{BrokerID: 1, LogDirs: []uuid.UUID{id(100)}}, &records.RegisterControllerRecord{ControllerID: 1})
	versions := map[string]int16{}
	err := img.WriteSnapshot(func(value []byte) {
		m, version, err := records.DecodeMetadata(value)
		if err != nil {
			t.Fatal(err)
		}
		versions[fmt.Sprintf("%T", m)] = version
	})
	if err == nil {
		t.Error("a snapshot that lacks a SCRAM credential and a controller is taken for whole")
	}
	want := map[string]int16{"*records.FeatureLevelRecord": 0, "*records.TopicRecord": 0, "*records.PartitionRecord": 0, "*records.RegisterBrokerRecord": 2}
	if diff := cmp.Diff(want, versions); diff != "" {
		t.Error(diff)
	}
}
