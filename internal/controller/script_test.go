package controller

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/config"
	"ottla/internal/metadata"
	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// TestScripts runs testdata/scripts/*.txt against the pure part: each command is one request, its records are committed at once, and
// what is printed are those records and the answer. The clock stands still unless a script moves it.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := newScript(t)
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct {
	t     *testing.T
	world world
	img   *metadata.Image
	now   time.Time
	ids   byte
	// vouched are the members of the ISR that a leader asked for last.
	vouched []int32
}

const testCluster = "test-cluster"

func testConfig(t testing.TB, settings ...string) *config.Config {
	t.Helper()
	c, err := config.Parse(config.Sources{Set: settings})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newScript(t *testing.T) *script {
	s := &script{t: t, img: metadata.Empty, now: time.UnixMilli(1700000000000)}
	s.world = world{nodeID: 3000, clusterID: testCluster, config: testConfig(t, "offsets.topic.replication.factor=1"), sessions: newSessions(9 * time.Second), newID: s.newID}
	return s
}

// newID counts: script topics have the ids 200, 201…
func (s *script) newID() uuid.UUID {
	s.ids++
	return uuid.UUID{15: 199 + s.ids}
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.t = t
	turn := newTurn(&s.world, s.img, s.now)
	var out strings.Builder
	switch d.Cmd {
	case "bootstrap":
		if err := turn.bootstrap(nil); err != nil {
			return err.Error()
		}
	case "config":
		s.world.config = testConfig(t, strings.Fields(d.Input)...)
		return ""
	case "advance":
		step, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		s.now = s.now.Add(step)
		turn.now = s.now
		for {
			id, ok := s.world.sessions.expired(turn.image(), s.now)
			if !ok {
				break
			}
			turn.fence(id)
		}
	case "balance":
		turn.balance()
	case "new-controller":
		s.world.sessions.reset(s.img, s.now)
		return ""
	case "disconnected":
		s.world.sessions.disconnected(int32(number(t, d.CmdArgs[0].Key)), s.now)
		return ""
	case "partitions":
		return s.partitions()
	default:
		req := s.request(d)
		resp := turn.handle(req)(s.img.Offset + 1)
		if resp.GetVersion() != req.GetVersion() {
			t.Fatalf("request of version %d, answer of version %d", req.GetVersion(), resp.GetVersion())
		}
		s.commit(turn, &out)
		fmt.Fprintf(&out, "%s\n", show(resp))
		return out.String()
	}
	s.commit(turn, &out)
	return out.String()
}

// commit prints the records of a turn and applies them the way the log does.
func (s *script) commit(turn *turn, out *strings.Builder) {
	if len(turn.emitted) == 0 {
		return
	}
	d := metadata.NewDelta(s.img)
	offset := s.img.Offset
	for _, m := range turn.emitted {
		offset++
		fmt.Fprintf(out, "%s\n", show(m))
		if r, ok := m.(*records.RegisterBrokerRecord); ok && r.BrokerEpoch == stampedEpoch {
			stamped := *r
			stamped.BrokerEpoch = offset
			m = &stamped
		}
		if bracket(m) {
			continue
		}
		if err := d.Replay(m); err != nil {
			s.t.Fatal(err)
		}
	}
	s.img = d.Apply(offset, 1)
	s.img.KRaftVersion = 1
}

func (s *script) partitions() string {
	var out strings.Builder
	for topic := range s.img.Topics() {
		for id, p := range topic.Partitions() {
			fmt.Fprintf(&out, "%s-%d replicas=%v isr=%v leader=%d epoch=%d/%d", topic.Name, id, p.Replicas, p.ISR, p.Leader, p.LeaderEpoch, p.PartitionEpoch)
			for name, ids := range map[string][]int32{" elr": p.ELR} {
				if len(ids) > 0 {
					fmt.Fprintf(&out, "%s=%v", name, ids)
				}
			}
			if len(p.LastKnownELR) > 0 {
				fmt.Fprintf(&out, " lastKnown=%v", p.LastKnownELR)
			}
			if reassigning(p) {
				fmt.Fprintf(&out, " adding=%v removing=%v", p.Adding, p.Removing)
			}
			if p.LeaderRecoveryState != metadata.Recovered {
				out.WriteString(" recovering")
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}

// args are the arguments of a command: key=value, and words.
type args struct {
	t     *testing.T
	words []string
	named map[string]string
}

func parseArgs(t *testing.T, d *datadriven.TestData) args {
	a := args{t: t, named: map[string]string{}}
	for _, c := range d.CmdArgs {
		if len(c.Vals) == 0 {
			a.words = append(a.words, c.Key)
			continue
		}
		a.named[c.Key] = strings.Join(c.Vals, ",")
	}
	return a
}

func number(t *testing.T, s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatalf("%q is no number", s)
	}
	return n
}

func (a args) int(name string, otherwise int64) int64 {
	if v, ok := a.named[name]; ok {
		return number(a.t, v)
	}
	return otherwise
}

func (a args) has(word string) bool { return slices.Contains(a.words, word) }

func (a args) ids(name string) []int32 {
	v, ok := a.named[name]
	if !ok {
		return nil
	}
	out := []int32{}
	for _, s := range strings.FieldsFunc(v, func(r rune) bool { return r == ',' }) {
		out = append(out, int32(number(a.t, s)))
	}
	return out
}

// topicPartition splits topic:partition.
func (a args) topicPartition(i int) (string, int32) {
	topic, p, _ := strings.Cut(a.words[i], ":")
	return topic, int32(number(a.t, p))
}

func (s *script) topicID(name string) uuid.UUID {
	if topic := s.img.TopicByName(name); topic != nil {
		return topic.ID
	}
	return uuid.UUID{0: 9, 15: 9}
}

func (s *script) epochOf(broker int32) int64 {
	if b := s.img.Broker(broker); b != nil {
		return b.Epoch
	}
	return -1
}

// dir is the id of a broker's n-th log directory.
func dir(broker int32, n byte) uuid.UUID { return uuid.UUID{0: 1, 14: byte(broker), 15: n} }

func (s *script) request(d *datadriven.TestData) kmsg.Request {
	a := parseArgs(s.t, d)
	req := s.build(d, a)
	version := map[string]int16{"delete": 6, "update-features": 1}[d.Cmd]
	if version == 0 {
		version = req.MaxVersion()
	}
	req.SetVersion(int16(a.int("version", int64(version))))
	return req
}

func (s *script) build(d *datadriven.TestData, a args) kmsg.Request {
	switch d.Cmd {
	case "register":
		return s.register(a)
	case "heartbeat":
		req := kmsg.NewPtrBrokerHeartbeatRequest()
		req.BrokerID = int32(a.int("id", 1))
		req.BrokerEpoch = a.int("epoch", s.epochOf(req.BrokerID))
		req.CurrentMetadataOffset = a.int("offset", s.img.Offset)
		req.WantFence, req.WantShutdown = a.has("fence"), a.has("shutdown")
		if n := a.int("offline", 0); n > 0 {
			req.OfflineLogDirs = [][16]byte{dir(req.BrokerID, byte(n))}
		}
		if a.has("cordoned-none") {
			req.CordonedLogDirs = [][16]byte{}
		}
		return req
	case "unregister":
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = int32(a.int("id", 1))
		return req
	case "create":
		return s.create(a, d.Input)
	case "delete":
		req := kmsg.NewPtrDeleteTopicsRequest()
		for _, w := range a.words {
			topic := kmsg.NewDeleteTopicsRequestTopic()
			topic.Topic = &w
			req.Topics = append(req.Topics, topic)
		}
		if id, ok := a.named["id"]; ok {
			topic := kmsg.NewDeleteTopicsRequestTopic()
			topic.TopicID = s.topicID(id)
			req.Topics = append(req.Topics, topic)
		}
		return req
	case "add-partitions":
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.ValidateOnly = a.has("validate-only")
		topic := kmsg.NewCreatePartitionsRequestTopic()
		topic.Topic, topic.Count = a.words[0], int32(a.int("count", 0))
		for _, assignment := range assignments(a) {
			x := kmsg.NewCreatePartitionsRequestTopicAssignment()
			x.Replicas = assignment
			topic.Assignment = append(topic.Assignment, x)
		}
		req.Topics = append(req.Topics, topic)
		return req
	case "alter-config", "replace-config":
		return s.alterConfig(d, a)
	case "isr":
		return s.isr(a)
	case "producer-ids":
		req := kmsg.NewPtrAllocateProducerIDsRequest()
		req.BrokerID = int32(a.int("id", 1))
		req.BrokerEpoch = a.int("epoch", s.epochOf(req.BrokerID))
		return req
	case "assign-dir":
		return s.assignDir(a)
	case "elect":
		req := kmsg.NewPtrElectLeadersRequest()
		if a.has("unclean") {
			req.ElectionType = uncleanElection
		}
		req.ElectionType = int8(a.int("type", int64(req.ElectionType)))
		for i, w := range a.words {
			if !strings.Contains(w, ":") {
				continue
			}
			topic := kmsg.NewElectLeadersRequestTopic()
			name, p := a.topicPartition(i)
			topic.Topic, topic.Partitions = name, []int32{p}
			req.Topics = append(req.Topics, topic)
		}
		return req
	case "reassign":
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		req.AllowReplicationFactorChange = !a.has("same-factor")
		name, id := a.topicPartition(0)
		p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		p.Partition, p.Replicas = id, a.ids("to")
		topic := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		topic.Topic, topic.Partitions = name, append(topic.Partitions, p)
		req.Topics = append(req.Topics, topic)
		return req
	case "reassignments":
		return kmsg.NewPtrListPartitionReassignmentsRequest()
	case "update-features":
		req := kmsg.NewPtrUpdateFeaturesRequest()
		req.ValidateOnly = a.has("validate-only")
		for name, level := range a.named {
			if name == "type" || name == "version" {
				continue
			}
			u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
			u.Feature, u.MaxVersionLevel, u.UpgradeType = name, int16(number(s.t, level)), int8(a.int("type", 1))
			req.FeatureUpdates = append(req.FeatureUpdates, u)
		}
		return req
	case "quota":
		return s.quota(a)
	case "describe-cluster":
		req := kmsg.NewPtrDescribeClusterRequest()
		req.EndpointType = int8(a.int("type", 2))
		return req
	}
	s.t.Fatalf("unknown command %s", d.Cmd)
	return nil
}

func (s *script) register(a args) kmsg.Request {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID = int32(a.int("id", 1))
	req.ClusterID = testCluster
	if v, ok := a.named["cluster"]; ok {
		req.ClusterID = v
	}
	req.IncarnationID = uuid.UUID{0: 7, 14: byte(req.BrokerID), 15: byte(a.int("incarnation", 1))}
	if a.has("no-incarnation") {
		req.IncarnationID = uuid.Zero
	}
	req.PreviousBrokerEpoch = a.int("previous", -1)
	if rack, ok := a.named["rack"]; ok {
		req.Rack = &rack
	}
	l := kmsg.NewBrokerRegistrationRequestListener()
	l.Name, l.Host, l.Port = "PLAINTEXT", "localhost", uint16(a.int("port", 9092))
	req.Listeners = append(req.Listeners, l)
	for _, f := range protocol.Features() {
		if a.has("no-" + f.Name) {
			continue
		}
		rf := kmsg.NewBrokerRegistrationRequestFeature()
		rf.Name, rf.MinSupportedVersion, rf.MaxSupportedVersion = f.Name, f.Min, int16(a.int(f.Name, int64(f.Max)))
		req.Features = append(req.Features, rf)
	}
	for n := range byte(a.int("dirs", 1)) {
		req.LogDirs = append(req.LogDirs, dir(int32(a.int("dirs-of", int64(req.BrokerID))), n+1))
	}
	if a.has("twice-dir") {
		req.LogDirs = append(req.LogDirs, req.LogDirs[0])
	}
	if a.has("reserved-dir") {
		req.LogDirs = append(req.LogDirs, uuid.LostDir)
	}
	req.IsMigratingZkBroker = a.has("zk")
	return req
}

// assignments reads assign=1,2/2,1: the replicas of each partition.
func assignments(a args) [][]int32 {
	v, ok := a.named["assign"]
	if !ok {
		return nil
	}
	var out [][]int32
	for part := range strings.SplitSeq(v, "/") {
		ids := []int32{}
		for _, s := range strings.FieldsFunc(part, func(r rune) bool { return r == ',' }) {
			ids = append(ids, int32(number(a.t, s)))
		}
		out = append(out, ids)
	}
	return out
}

// create reads one topic a word; configurations stand in the lines below, key=value.
func (s *script) create(a args, input string) kmsg.Request {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.ValidateOnly = a.has("validate-only")
	for _, w := range a.words {
		if w == "validate-only" {
			continue
		}
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic = strings.Trim(w, `"`)
		topic.NumPartitions, topic.ReplicationFactor = int32(a.int("partitions", -1)), int16(a.int("factor", -1))
		for i, replicas := range assignments(a) {
			ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			ra.Partition, ra.Replicas = int32(i)+int32(a.int("first", 0)), replicas
			topic.ReplicaAssignment = append(topic.ReplicaAssignment, ra)
		}
		for line := range strings.Lines(input) {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			name, value, set := strings.Cut(strings.TrimSpace(line), "=")
			c.Name = name
			if set {
				c.Value = &value
			}
			topic.Configs = append(topic.Configs, c)
		}
		req.Topics = append(req.Topics, topic)
	}
	return req
}

var kinds = map[string]kmsg.ConfigResourceType{
	"topic": kmsg.ConfigResourceTypeTopic, "broker": kmsg.ConfigResourceTypeBroker, "group": kmsg.ConfigResourceTypeGroupConfig,
	"client-metrics": kmsg.ConfigResourceTypeClientMetrics, "logger": kmsg.ConfigResourceTypeBrokerLogger,
}

// alterConfig reads operations from the lines below: key=value, -key, key+=item, key-=item.
func (s *script) alterConfig(d *datadriven.TestData, a args) kmsg.Request {
	name := ""
	if len(a.words) > 1 {
		name = a.words[1]
	}
	if d.Cmd == "replace-config" {
		req := kmsg.NewPtrAlterConfigsRequest()
		r := kmsg.NewAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kinds[a.words[0]], name
		for line := range strings.Lines(d.Input) {
			c := kmsg.NewAlterConfigsRequestResourceConfig()
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			c.Name, c.Value = key, &value
			r.Configs = append(r.Configs, c)
		}
		req.Resources = append(req.Resources, r)
		return req
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kinds[a.words[0]], name
	for line := range strings.Lines(d.Input) {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		line = strings.TrimSpace(line)
		if key, ok := strings.CutPrefix(line, "-"); ok {
			c.Name, c.Op = key, kmsg.IncrementalAlterConfigOpDelete
		} else {
			key, value, _ := strings.Cut(line, "=")
			c.Name, c.Value = strings.TrimRight(key, "+-"), &value
			if strings.HasSuffix(key, "+") {
				c.Op = kmsg.IncrementalAlterConfigOpAppend
			}
			if strings.HasSuffix(key, "-") {
				c.Op = kmsg.IncrementalAlterConfigOpSubtract
			}
		}
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	return req
}

// isr reads an AlterPartition of one partition; leader, epochs and broker epochs default to what is right.
func (s *script) isr(a args) kmsg.Request {
	name, id := a.topicPartition(0)
	now := s.img.PartitionByName(name, id)
	if now == nil {
		now = &metadata.Partition{}
	}
	req := kmsg.NewPtrAlterPartitionRequest()
	req.BrokerID = int32(a.int("from", int64(now.Leader)))
	req.BrokerEpoch = a.int("broker-epoch", s.epochOf(req.BrokerID))
	p := kmsg.NewAlterPartitionRequestTopicPartition()
	p.Partition = id
	p.LeaderEpoch = now.LeaderEpoch + int32(a.int("leader-epoch", 0))
	p.PartitionEpoch = now.PartitionEpoch + int32(a.int("partition-epoch", 0))
	p.LeaderRecoveryState = int8(a.int("recovery", 0))
	for _, b := range a.ids("isr") {
		x := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		x.BrokerID, x.BrokerEpoch = b, a.int("member-epoch", s.epochOf(b))
		p.NewEpochISR = append(p.NewEpochISR, x)
	}
	topic := kmsg.NewAlterPartitionRequestTopic()
	topic.TopicID, topic.Partitions = s.topicID(name), append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	return req
}

// quota reads user=u client-id=c ip=i, of which "-" is the default, and key=value or remove=key.
func (s *script) quota(a args) kmsg.Request {
	req := kmsg.NewPtrAlterClientQuotasRequest()
	req.ValidateOnly = a.has("validate-only")
	e := kmsg.NewAlterClientQuotasRequestEntry()
	for _, name := range slices.Sorted(maps.Keys(a.named)) {
		value := a.named[name]
		switch name {
		case quotaUser, quotaClientID, quotaIP, "planet":
			x := kmsg.NewAlterClientQuotasRequestEntryEntity()
			x.Type, x.Name = name, &value
			if value == "-" {
				x.Name = nil
			}
			e.Entity = append(e.Entity, x)
		case "remove":
			op := kmsg.NewAlterClientQuotasRequestEntryOp()
			op.Key, op.Remove = value, true
			e.Ops = append(e.Ops, op)
		default:
			op := kmsg.NewAlterClientQuotasRequestEntryOp()
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			op.Key, op.Value = name, n
			e.Ops = append(e.Ops, op)
		}
	}
	req.Entries = append(req.Entries, e)
	return req
}

func (s *script) assignDir(a args) kmsg.Request {
	name, id := a.topicPartition(0)
	req := kmsg.NewPtrAssignReplicasToDirsRequest()
	req.BrokerID = int32(a.int("id", 1))
	req.BrokerEpoch = s.epochOf(req.BrokerID)
	p := kmsg.NewAssignReplicasToDirsRequestDirectoryTopicPartition()
	p.Partition = id
	topic := kmsg.NewAssignReplicasToDirsRequestDirectoryTopic()
	topic.TopicID, topic.Partitions = s.topicID(name), append(topic.Partitions, p)
	d := kmsg.NewAssignReplicasToDirsRequestDirectory()
	d.ID, d.Topics = dir(req.BrokerID, byte(a.int("dir", 1))), append(d.Topics, topic)
	req.Directories = append(req.Directories, d)
	return req
}

// show prints a record or an answer: the fields that differ from their defaults.
func show(v any) string {
	var out strings.Builder
	showValue(&out, reflect.ValueOf(v))
	return out.String()
}

// hidden are fields that say nothing here.
var hidden = []string{"Version", "UnknownTags", "ThrottleMillis", "Features", "EndPoints"}

func showValue(out *strings.Builder, v reflect.Value) {
	if id, ok := asUUID(v); ok {
		fmt.Fprintf(out, "#%s", shortID(id))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			out.WriteString("null")
			return
		}
		showValue(out, v.Elem())
	case reflect.Struct:
		showStruct(out, v)
	case reflect.Slice:
		out.WriteString("[")
		for i := range v.Len() {
			if i > 0 {
				out.WriteString(" ")
			}
			showValue(out, v.Index(i))
		}
		out.WriteString("]")
	case reflect.String:
		fmt.Fprintf(out, "%q", v.String())
	default:
		fmt.Fprintf(out, "%v", v.Interface())
	}
}

func asUUID(v reflect.Value) (uuid.UUID, bool) {
	if v.Kind() != reflect.Array || v.Len() != 16 {
		return uuid.Zero, false
	}
	return v.Convert(reflect.TypeFor[uuid.UUID]()).Interface().(uuid.UUID), true
}

// shortID prints the bytes that tell the ids of a script apart.
func shortID(id uuid.UUID) string { return fmt.Sprintf("%d.%d.%d", id[0], id[14], id[15]) }

func showStruct(out *strings.Builder, v reflect.Value) {
	name := v.Type().Name()
	if i := strings.Index(name, "Response"); i >= 0 {
		name = name[i+len("Response"):]
	}
	out.WriteString(strings.TrimSuffix(name, "Record"))
	out.WriteString("{")
	defaults := defaultsOf(v.Type())
	first := true
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if slices.Contains(hidden, f.Name) || reflect.DeepEqual(v.Field(i).Interface(), defaults.Field(i).Interface()) {
			continue
		}
		if f.Name == "Configs" && v.Field(i).Len() == 0 {
			continue
		}
		if !first {
			out.WriteString(" ")
		}
		first = false
		out.WriteString(f.Name)
		out.WriteString(":")
		if f.Name == "Configs" && name == "Topic" {
			out.WriteString(strconv.Itoa(v.Field(i).Len()))
			continue
		}
		showValue(out, v.Field(i))
	}
	out.WriteString("}")
}

func defaultsOf(t reflect.Type) reflect.Value {
	if t == reflect.TypeFor[records.PartitionChangeRecord]() {
		return reflect.ValueOf(records.NewPartitionChangeRecord()).Elem()
	}
	v := reflect.New(t)
	if d, ok := v.Interface().(interface{ Default() }); ok {
		d.Default()
	}
	return v.Elem()
}
