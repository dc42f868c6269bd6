package config

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDefaults(t *testing.T) {
	c := Default()
	want := []Endpoint{
		{"PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"},
		{"CONTROLLER", "127.0.0.1", 9093, "PLAINTEXT"},
	}
	if diff := cmp.Diff(want, c.Listeners()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Voter{{1, "127.0.0.1", 9093}}, c.Voters()); diff != "" {
		t.Error(diff)
	}
	if !c.LoneNode() || !c.IsBroker() || !c.IsController() || c.NodeID() != 1 || c.Int("broker.id") != 1 {
		t.Errorf("lone %v, broker %v, controller %v, node %d, broker.id %d", c.LoneNode(), c.IsBroker(), c.IsController(), c.NodeID(), c.Int("broker.id"))
	}
	for _, name := range []string{"offsets.topic.replication.factor", "transaction.state.log.replication.factor", "transaction.state.log.min.isr"} {
		if c.Int(name) != 1 || c.IsSet(name) {
			t.Errorf("%s = %d, set %v; a lone node needs 1 by default", name, c.Int(name), c.IsSet(name))
		}
	}
	if diff := cmp.Diff([]string{"./ottla-data"}, c.LogDirs()); diff != "" {
		t.Error(diff)
	}
	if len(c.Warnings()) > 0 {
		t.Error(c.Warnings())
	}
}

func set(t *testing.T, kvs ...string) *Config {
	t.Helper()
	c, err := Parse(Sources{Set: kvs})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLoneNode(t *testing.T) {
	for _, test := range []struct {
		set    []string
		factor int
		lone   bool
	}{
		{[]string{"controller.quorum.bootstrap.servers=localhost:9093"}, 1, true},
		{[]string{"controller.quorum.voters=1@h1:9093"}, 1, true},
		{[]string{"controller.quorum.voters=1@h1:9093,2@h2:9093,3@h3:9093"}, 3, false},
		{[]string{"controller.quorum.bootstrap.servers=h2:9093"}, 3, false},
		{[]string{"process.roles=broker", "controller.quorum.bootstrap.servers=localhost:9093"}, 3, false},
		{[]string{"offsets.topic.replication.factor=2"}, 2, true},
	} {
		c := set(t, test.set...)
		if c.LoneNode() != test.lone || c.Int("offsets.topic.replication.factor") != test.factor {
			t.Errorf("%v: lone %v, factor %d; want %v, %d", test.set, c.LoneNode(), c.Int("offsets.topic.replication.factor"), test.lone, test.factor)
		}
	}
}

func TestDefaultListenersFollowRoles(t *testing.T) {
	for _, test := range []struct {
		set  []string
		want string
	}{
		{[]string{"listeners=PLAINTEXT://:9000"}, "PLAINTEXT://:9000 CONTROLLER://127.0.0.1:9093"},
		{[]string{"process.roles=broker", "controller.quorum.voters=2@h:9093"}, "PLAINTEXT://127.0.0.1:9092"},
		{[]string{"process.roles=controller", "controller.quorum.voters=1@h:9093"}, "CONTROLLER://127.0.0.1:9093"},
		{[]string{"controller.listener.names=C"}, "PLAINTEXT://127.0.0.1:9092 C://127.0.0.1:9093"},
	} {
		var got []string
		for _, e := range set(t, test.set...).Listeners() {
			got = append(got, e.String())
		}
		if s := strings.Join(got, " "); s != test.want {
			t.Errorf("%v: %s, want %s", test.set, s, test.want)
		}
	}
}

// apacheRow is a line of testdata/apache-4.4.0.jsonl, written by DumpTable.java from Apache's jars.
type apacheRow struct {
	Kind, Name, Type, Importance, Mode string
	Default, Validator                 *string
	Internal                           bool
}

// ourDefaults are the keys whose default differs from Apache's, each for a reason in its row.
var ourDefaults = map[string]string{
	"controller.listener.names":   "CONTROLLER",
	"listeners":                   "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
	"log.dir":                     "./ottla-data",
	"node.id":                     "1",
	"process.roles":               "broker,controller",
	"socket.receive.buffer.bytes": "262144",
}

func TestTableIsApaches(t *testing.T) {
	f, err := os.Open("testdata/apache-4.4.0.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tables := map[string]*table{"broker": brokerTable, "quota-broker": brokerTable, "topic": topicTable, "group": groupTable, "client-metrics": clientMetricsTable}
	seen := map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var row apacheRow
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		tab, ok := tables[row.Kind]
		if !ok {
			continue
		}
		seen[row.Kind]++
		k := tab.find(row.Name)
		if k == nil {
			t.Errorf("%s key %s is missing", row.Kind, row.Name)
			continue
		}
		want := row.Default
		if own, ok := ourDefaults[row.Name]; ok && row.Kind == "broker" {
			want = &own
		}
		if diff := cmp.Diff(want, k.Default); diff != "" {
			t.Errorf("%s: default %s", row.Name, diff)
		}
		if kafkaTypes[k.Type] != row.Type || !strings.EqualFold(k.Importance.String(), row.Importance) || k.Internal != row.Internal {
			t.Errorf("%s: type %s importance %s internal %v, want %+v", row.Name, kafkaTypes[k.Type], k.Importance, k.Internal, row)
		}
		if row.Mode != "" && k.Mode.String() != row.Mode {
			t.Errorf("%s: mode %s, want %s", row.Name, k.Mode, row.Mode)
		}
	}
	if want := map[string]int{"broker": 379, "quota-broker": 3, "topic": 38, "group": 27, "client-metrics": 3}; !cmp.Equal(seen, want) {
		t.Errorf("Apache has %v, want %v", seen, want)
	}
}

func TestRowsAreComplete(t *testing.T) {
	for _, tab := range []*table{brokerTable, topicTable, groupTable, clientMetricsTable} {
		for i := range tab.keys {
			k := &tab.keys[i]
			if k.Doc == "" || !strings.HasSuffix(k.Doc, ".") {
				t.Errorf("%s: %q is no sentence", k.Name, k.Doc)
			}
			if (k.State == Honoured) != (k.Why == "") {
				t.Errorf("%s is %s; why: %q", k.Name, k.State, k.Why)
			}
			if own := ourDefaults[k.Name] != "" && tab == brokerTable; own && k.DefaultWhy == "" {
				t.Errorf("%s has a default of its own, but not why", k.Name)
			}
			if v := k.defaultValue(); k.Default != nil && v.text != *k.Default {
				t.Errorf("%s: default %q is not canonical, %q is", k.Name, *k.Default, v.text)
			}
			for _, s := range k.Synonyms {
				if brokerTable.find(s.Name) == nil {
					t.Errorf("%s: no broker key %s", k.Name, s.Name)
				}
			}
		}
	}
}

// readProbes reads a file of what was asked of Apache and what it said.
func readProbes(t *testing.T, path string) (asked, said []string) {
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		if answer, ok := strings.CutPrefix(line, "   => "); ok {
			said = append(said, answer)
		} else {
			asked = append(asked, line)
		}
	}
	return asked, said
}

// stricter are the configurations that Apache takes, or gives another reason for, and why ottla's
// answer differs.
var stricter = map[string]string{
	"node.id=3000000000":          "Apache complains about broker.id, which nobody set",
	"-process.roles":              "has a default",
	"-node.id":                    "has a default",
	"-controller.listener.names":  "has a default",
	"-controller.quorum.voters":   "a lone node is its own voter",
	"controller.quorum.voters=":   "a lone node is its own voter",
	"authorizer.class.name=foo":   "protection that is not there",
	"connections.max.reauth.ms=1": "protection that is not there",
	"listeners=PLAINTEXT://localhost:999999,CONTROLLER://localhost:9093": "there are no such ports",
	"early.start.listeners=FOO":                                        "has no effect yet",
	"log.cleaner.threads=0":                                            "Apache divides by zero",
	"principal.builder.class=foo.Bar":                                  "classes are not loaded",
	"listener.security.protocol.map=PLAINTEXT":                         "Apache shows a Java index error",
	"max.connections.per.ip.overrides=a":                               "Apache shows a Java index error",
	"listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9092": "one sentence for both cases of a shared port",
}

func TestParseAnswersAsApache(t *testing.T) {
	base := map[string]string{
		"process.roles": "broker,controller", "node.id": "1", "controller.quorum.voters": "1@localhost:9093",
		"listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093", "controller.listener.names": "CONTROLLER",
	}
	asked, said := readProbes(t, "testdata/apache-parse.txt")
	for i, line := range asked {
		props := map[string]string{}
		for k, v := range base {
			props[k] = v
		}
		for _, kv := range strings.Split(line, "|") {
			if name, ok := strings.CutPrefix(kv, "-"); ok {
				delete(props, name)
			} else if k, v, ok := strings.Cut(kv, "="); ok {
				props[k] = v
			}
		}
		_, err := Parse(Sources{Properties: props})
		_, sentence, _ := strings.Cut(said[i], ": ")
		sentence = strings.TrimPrefix(sentence, "requirement failed: ")
		if why := stricter[line]; why != "" {
			continue
		}
		switch {
		case said[i] == "OK" && err != nil:
			t.Errorf("%s: %v, but Apache takes it", line, err)
		case said[i] != "OK" && err == nil:
			t.Errorf("%s: taken, but Apache says %s", line, sentence)
		case said[i] != "OK" && !strings.Contains(err.Error(), sentence):
			t.Errorf("%s:\n got  %v\n want %s", line, err, sentence)
		}
	}
}

func TestAlterAnswersAsApache(t *testing.T) {
	c := Default()
	codes := map[string]int16{"ConfigException": 40, "InvalidConfigurationException": 40, "InvalidRequestException": 42}
	asked, said := readProbes(t, "testdata/apache-alter.txt")
	for i, line := range asked {
		f := strings.Split(line, "|")
		overrides := map[string]string{}
		for _, kv := range f[2:] {
			k, v, _ := strings.Cut(kv, "=")
			overrides[k] = v
		}
		if strings.Contains(line, "NULL") || f[1] == "" || f[1] == "a b" {
			continue // names and nulls are checked where requests are read
		}
		var err error
		switch f[0] {
		case "TOPIC":
			err = c.ValidateTopic(overrides)
		case "GROUP":
			err = c.ValidateGroup(overrides)
		case "CLIENT_METRICS":
			err = ValidateClientMetrics(overrides)
		default:
			continue
		}
		kind, sentence, _ := strings.Cut(said[i], ": ")
		if said[i] == "OK" {
			if err != nil {
				t.Errorf("%s: %v, but Apache takes it", line, err)
			}
			continue
		}
		if strings.Contains(line, "foo=1|bar=2") {
			sentence = "Unknown topic config name: bar"
		}
		want := &AlterError{codes[kind], sentence}
		var got *AlterError
		if !errors.As(err, &got) || *got != *want {
			t.Errorf("%s:\n got  %v\n want %v", line, err, want)
		}
	}
}

func TestValidateBroker(t *testing.T) {
	c := Default()
	for _, test := range []struct {
		name, value string
		perBroker   bool
		want        string
	}{
		{"num.io.threads", "4", true, ""},
		{"num.io.threads", "abc", true, "Invalid value abc for configuration num.io.threads: Not a number of type INT"},
		{"num.io.threads", "0", true, "Invalid value 0 for configuration num.io.threads: Value must be at least 1"},
		{"node.id", "5", true, "Cannot update these configs dynamically: [node.id]"},
		{"log.retention.hours", "5", true, "Cannot update these configs dynamically: [log.retention.hours]"},
		{"foo.bar", "5", false, ""},
		{"ssl.keystore.location", "/x", false, "These security configs can be dynamically updated only per-listener using the listener prefix: [ssl.keystore.location]"},
		{"listener.name.plaintext.max.connections", "7", false, ""},
		{"min.insync.replicas", "0", false, "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1"},
		{"leader.replication.throttled.rate", "100", false, ""},
		{"listeners", "PLAINTEXT://127.0.0.1:9092, CONTROLLER://127.0.0.1:9093", true, ""}, // as they are
		{"listeners", "PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:9093", true,
			"listeners cannot be changed while the broker runs yet: set it in the broker's file and start it again"},
	} {
		err := c.ValidateBroker(map[string]string{test.name: test.value}, test.perBroker)
		var got *AlterError
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s=%s: %v", test.name, test.value, err)
		case test.want != "" && (!errors.As(err, &got) || got.Code != 42 || got.Message != test.want):
			t.Errorf("%s=%s: %v, want 42 %s", test.name, test.value, err, test.want)
		}
	}
}

// asksForProtection are the keys any value of which, but the default, asks for protection that is not built: with a value
// that does.
var asksForProtection = map[string]string{
	"alter.config.policy.class.name":       "a.B",
	"authorizer.class.name":                "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
	"client.quota.callback.class":          "a.B",
	"connections.max.reauth.ms":            "3600000",
	"create.topic.policy.class.name":       "a.B",
	"sasl.enabled.mechanisms":              "SCRAM-SHA-256",
	"sasl.jaas.config":                     "org.apache.kafka.common.security.plain.PlainLoginModule required password=geheim;",
	"sasl.mechanism.controller.protocol":   "PLAIN",
	"sasl.mechanism.inter.broker.protocol": "PLAIN",
	"sasl.oauthbearer.jwt.validator.class": "a.B",
	"sasl.server.callback.handler.class":   "a.B",
	"ssl.client.auth":                      "required",
	"ssl.engine.factory.class":             "a.B",
	"ssl.keystore.certificate.chain":       "-----BEGIN CERTIFICATE----- geheim",
	"ssl.keystore.key":                     "-----BEGIN PRIVATE KEY----- geheim",
	"ssl.keystore.location":                "/etc/kafka/keystore.jks",
	"ssl.truststore.certificates":          "-----BEGIN CERTIFICATE----- geheim",
	"ssl.truststore.location":              "/etc/kafka/truststore.jks",
}

// TestRefusals: what asks for protection that is not built refuses the start, alone and behind a listener's prefix, and is
// not let in at run time either; its default does not.
func TestRefusals(t *testing.T) {
	wantRefused := func(names string, sets ...string) {
		t.Helper()
		_, err := Parse(Sources{Set: sets})
		var refused *RefusedError
		if !errors.As(err, &refused) || !strings.HasPrefix(err.Error(), names) {
			t.Errorf("%q: %v, want a refusal of %s", sets, err, names)
		} else if strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: the refusal shows the secret: %v", sets, err)
		}
	}
	for _, k := range BrokerKeys() {
		value, asks := asksForProtection[k.Name]
		if asks != (k.State == Refused) {
			t.Errorf("%s is %s, asks for protection: %t", k.Name, k.State, asks)
		}
		if !asks {
			continue
		}
		wantRefused(k.Name, k.Name+"="+value)
		wantRefused("listener.name.plaintext."+k.Name, "listener.name.plaintext."+k.Name+"="+value)
		if err := Default().ValidateBroker(map[string]string{"listener.name.plaintext." + k.Name: value}, true); err == nil {
			t.Errorf("%s: the dynamic change is taken", k.Name)
		}
		if k.Default != nil {
			set(t, k.Name+"="+*k.Default)
		}
	}
	wantRefused("listener.name.plaintext.plain.sasl.jaas.config", "listener.name.plaintext.plain.sasl.jaas.config="+asksForProtection["sasl.jaas.config"])
	for _, protocol := range []string{"SSL", "SASL_PLAINTEXT", "SASL_SSL"} {
		protocols := "listener.security.protocol.map=" + protocol + ":" + protocol + ",PLAINTEXT:PLAINTEXT,C:PLAINTEXT"
		wantRefused("listeners="+protocol, "controller.listener.names=C", "inter.broker.listener.name="+protocol, protocols, "listeners="+protocol+"://:9092,C://:9093")
		wantRefused("controller.listener.names=C", "process.roles=broker", "controller.listener.names=C", "controller.quorum.voters=9@localhost:9093",
			"listeners=PLAINTEXT://:9092", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,C:"+protocol)
	}
}

func TestOrderOfSources(t *testing.T) {
	dir := t.TempDir()
	file, secrets := dir+"/server.properties", dir+"/secrets.properties"
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("OTTLA_TEST_RACK", "r1")
	write(secrets, "pw = geheim\n")
	write(file, "num.partitions = 2\nbackground.threads : 3\nnum.io.threads 4\nlog.dirs=/a,\\\n  /b\nbroker.rack=${env:OTTLA_TEST_RACK}\n"+
		"ssl.key.password=${file:"+secrets+":pw}\nlog.retention.ms=5\nlog.retention.ms=6\nmessage.max.bytes=\\u0031000\nnum.partition=7\n")
	c, err := Parse(Sources{
		File: file,
		Env:  []string{"KAFKA_NUM_IO_THREADS=5", "OTTLA_BACKGROUND_THREADS=6", "KAFKA_BACKGROUND_THREADS=7", "OTTLA_MEMORY_LIMIT=1GiB", "KAFKA_HEAP_OPTS=-Xmx1g", "KAFKA_PORT=tcp://10.0.0.1:9092", "CLUSTER_ID=AAAAAAAAAAAAAAAAAAAAAQ"},
		Set:  []string{"num.io.threads=8"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]string{
		"num.partitions":       {"2", file},
		"num.io.threads":       {"8", "--set"},
		"background.threads":   {"6", "the environment, OTTLA_BACKGROUND_THREADS"},
		"log.dirs":             {"/a,/b", file},
		"broker.rack":          {"r1", file},
		"ssl.key.password":     {"geheim", file},
		"log.retention.ms":     {"6", file},
		"message.max.bytes":    {"1000", file},
		"ottla.memory.limit":   {"1073741824", "the environment, OTTLA_MEMORY_LIMIT"},
		"ottla.cluster.id":     {"AAAAAAAAAAAAAAAAAAAAAQ", "the environment, CLUSTER_ID"},
		"num.replica.fetchers": {"1", "default"},
	} {
		if got := [2]string{c.String(name), c.Origin(name).From}; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	var unknown []string
	for _, w := range c.Warnings() {
		if strings.Contains(w.Message, "no known key") {
			unknown = append(unknown, w.String())
		}
	}
	if diff := cmp.Diff([]string{"num.partition: is no known key; did you mean num.partitions? (from " + file + ")"}, unknown); diff != "" {
		t.Error(diff)
	}
	for _, l := range c.Show() {
		if l.Key == "ssl.key.password" && l.Value != "****" {
			t.Errorf("%+v shows a secret", l)
		}
	}
}

func TestUnresolvedVariable(t *testing.T) {
	for _, text := range []string{"${env:OTTLA_NO_SUCH_VARIABLE}", "${file:/no/such/file:k}"} {
		if _, err := Parse(Sources{Set: []string{"broker.rack=" + text}}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if c := set(t, "broker.rack=${vault:x:y}"); c.String("broker.rack") != "${vault:x:y}" {
		t.Errorf("unknown provider: %q", c.String("broker.rack"))
	}
}

func TestEnvNames(t *testing.T) {
	for name, want := range map[string]string{
		"ADVERTISED_LISTENERS": "advertised.listeners",
		"A__B___C_D":           "a_b-c.d",
	} {
		if got := envKey(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestAllErrorsAtOnce(t *testing.T) {
	_, err := Parse(Sources{Set: []string{"num.partitions=0", "log.segment.bytes=x"}})
	want := "Invalid value x for configuration log.segment.bytes: Not a number of type INT, from --set\n" +
		"Invalid value 0 for configuration num.partitions: Value must be at least 1, from --set"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestZooKeeperFileIsNotANewCluster(t *testing.T) {
	_, err := Parse(Sources{Set: []string{"broker.id=1", "zookeeper.connect=zk:2181"}})
	if err == nil || !strings.Contains(err.Error(), "zookeeper.connect") {
		t.Error(err)
	}
}

func TestDurations(t *testing.T) {
	c := set(t, "log.roll.hours=2")
	for name, want := range map[string]time.Duration{
		"log.roll.hours":                  2 * time.Hour,
		"replica.lag.time.max.ms":         30 * time.Second,
		"log.flush.scheduler.interval.ms": 1<<63 - 1,
		"quota.window.size.seconds":       time.Second,
	} {
		if got := c.Duration(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestTopicInherits(t *testing.T) {
	for _, test := range []struct {
		set       []string
		overrides map[string]string
		ms        int64
	}{
		{nil, nil, 604_800_000},
		{[]string{"log.retention.hours=1"}, nil, 3_600_000},
		{[]string{"log.retention.hours=1", "log.retention.minutes=10"}, nil, 600_000},
		{[]string{"log.retention.hours=1", "log.retention.minutes=10", "log.retention.ms=5"}, nil, 5},
		{[]string{"log.retention.ms=-7"}, nil, -1},
		{[]string{"log.retention.ms=5"}, map[string]string{"retention.ms": "9"}, 9},
		{nil, map[string]string{"retention.ms": "abc", "nope": "1"}, 604_800_000},
	} {
		topic := set(t, test.set...).Topic(test.overrides)
		if topic.RetentionMs != test.ms {
			t.Errorf("%v %v: retention.ms %d, want %d", test.set, test.overrides, topic.RetentionMs, test.ms)
		}
	}
	c := set(t, "log.flush.scheduler.interval.ms=100", "log.roll.hours=3")
	if topic := c.Topic(nil); topic.FlushInterval != 100*time.Millisecond || topic.SegmentAge != 3*time.Hour {
		t.Errorf("flush.ms %s, segment.ms %s", topic.FlushInterval, topic.SegmentAge)
	}
	c = c.WithDynamic(map[string]string{"log.flush.interval.ms": "7"}, map[string]string{"log.flush.interval.ms": "8", "min.insync.replicas": "2"})
	if topic := c.Topic(nil); topic.FlushInterval != 7*time.Millisecond || topic.MinInsyncReplicas != 2 {
		t.Errorf("flush.ms %s, min.insync.replicas %d", topic.FlushInterval, topic.MinInsyncReplicas)
	}
}

func TestGroupInherits(t *testing.T) {
	c := set(t, "group.consumer.session.timeout.ms=46000")
	g := c.Group(map[string]string{"consumer.heartbeat.interval.ms": "6000"})
	if g.Int("consumer.session.timeout.ms") != 46000 || g.Int("consumer.heartbeat.interval.ms") != 6000 || g.String("streams.assignor.name") != "sticky" {
		t.Errorf("%v", g)
	}
}

// TestDescribeAsApache repeats what an Apache 4.4.0 broker answered that was started with
// log.retention.minutes=600, num.partitions=3 and my.unknown=foo and given the dynamic settings below.
func TestDescribeAsApache(t *testing.T) {
	c := set(t, "log.retention.minutes=600", "num.partitions=3", "my.unknown=foo")
	c = c.WithDynamic(map[string]string{
		"num.io.threads": "4", "foo.bar": "5", "listener.name.plaintext.max.connections": "8",
		"listener.name.plaintext.ssl.keystore.password": "geheim",
	}, map[string]string{
		"log.retention.ms": "700000", "log.flush.interval.ms": "500", "foo.bar": "5",
		"listener.name.plaintext.max.connections": "7", "leader.replication.throttled.rate": "100", "min.insync.replicas": "1",
	})
	topic := map[string]string{"retention.ms": "100000", "cleanup.policy": "delete"}
	broker := c.DescribeBroker(Describe{Synonyms: true})
	cluster := c.DescribeClusterDefault(Describe{Synonyms: true})
	topics := c.DescribeTopic(topic, Describe{Synonyms: true})
	groups := c.DescribeGroup(map[string]string{"consumer.session.timeout.ms": "50000"}, Describe{Synonyms: true})
	metrics := DescribeClientMetrics(map[string]string{"interval.ms": "1000"}, Describe{Synonyms: true})
	if len(topics) != 37 || len(groups) != 21 || len(metrics) != 3 || len(cluster) != 6 {
		t.Errorf("%d topic, %d group, %d client metrics, %d cluster entries", len(topics), len(groups), len(metrics), len(cluster))
	}
	for _, test := range []struct {
		in   []Entry
		want string
	}{
		{topics, "flush.ms=500 src=3 ro=false sens=false type=5 syn=[log.flush.interval.ms=500 3][log.flush.scheduler.interval.ms=9223372036854775807 5]"},
		{topics, "cleanup.policy=delete src=1 ro=false sens=false type=7 syn=[cleanup.policy=delete 1][log.cleanup.policy=delete 5]"},
		{topics, "retention.ms=100000 src=1 ro=false sens=false type=5 syn=[retention.ms=100000 1][log.retention.ms=700000 3][log.retention.minutes=600 4][log.retention.hours=168 5]"},
		{topics, "segment.ms=604800000 src=5 ro=false sens=false type=5 syn="},
		{topics, "remote.storage.enable=false src=5 ro=false sens=false type=1 syn="},
		{topics, "min.cleanable.dirty.ratio=0.5 src=5 ro=false sens=false type=6 syn=[log.cleaner.min.cleanable.ratio=0.5 5]"},
		{topics, "min.insync.replicas=1 src=3 ro=false sens=false type=3 syn=[min.insync.replicas=1 3][min.insync.replicas=1 5]"},
		{broker, "my.unknown=<null> src=4 ro=true sens=true type=0 syn=[my.unknown=<null> 4]"},
		{broker, "listener.name.plaintext.max.connections=8 src=2 ro=true sens=false type=3 syn=[listener.name.plaintext.max.connections=8 2][listener.name.plaintext.max.connections=7 3][max.connections=2147483647 5]"},
		{broker, "listener.name.plaintext.ssl.keystore.password=<null> src=2 ro=true sens=true type=9 syn=[listener.name.plaintext.ssl.keystore.password=<null> 2]"},
		{broker, "foo.bar=<null> src=2 ro=true sens=true type=0 syn=[foo.bar=<null> 2][foo.bar=<null> 3]"},
		{broker, "log.retention.minutes=<null> src=4 ro=true sens=false type=3 syn=[log.retention.minutes=600 4][log.retention.hours=168 5]"},
		{broker, "log.retention.ms=700000 src=3 ro=false sens=false type=5 syn=[log.retention.ms=700000 3][log.retention.minutes=600 4][log.retention.hours=168 5]"},
		{broker, "log.retention.hours=168 src=5 ro=true sens=false type=3 syn=[log.retention.hours=168 5]"},
		{broker, "log.flush.scheduler.interval.ms=9223372036854775807 src=5 ro=true sens=false type=5 syn=[log.flush.scheduler.interval.ms=9223372036854775807 5]"},
		{broker, "log.roll.ms=<null> src=5 ro=false sens=false type=5 syn="},
		{broker, "ssl.key.password=<null> src=5 ro=false sens=true type=9 syn="},
		{broker, "num.io.threads=4 src=2 ro=false sens=false type=3 syn=[num.io.threads=4 2][num.io.threads=8 5]"},
		{broker, "num.partitions=3 src=4 ro=true sens=false type=3 syn=[num.partitions=3 4][num.partitions=1 5]"},
		{broker, "leader.replication.throttled.rate=100 src=3 ro=false sens=false type=5 syn=[leader.replication.throttled.rate=100 3]"},
		{broker, "log.cleaner.io.max.bytes.per.second=1.7976931348623157E308 src=5 ro=false sens=false type=6 syn=[log.cleaner.io.max.bytes.per.second=1.7976931348623157E308 5]"},
		{cluster, "log.retention.ms=700000 src=3 ro=false sens=false type=5 syn=[log.retention.ms=700000 3]"},
		{cluster, "listener.name.plaintext.max.connections=7 src=3 ro=true sens=false type=3 syn=[listener.name.plaintext.max.connections=7 3]"},
		{cluster, "foo.bar=<null> src=3 ro=true sens=true type=0 syn=[foo.bar=<null> 3]"},
		{groups, "consumer.session.timeout.ms=50000 src=8 ro=false sens=false type=3 syn=[consumer.session.timeout.ms=50000 8][group.consumer.session.timeout.ms=45000 5]"},
		{groups, "streams.assignor.name=sticky src=5 ro=false sens=false type=2 syn=[group.streams.assignors=sticky 5]"},
		{groups, "share.auto.offset.reset=latest src=5 ro=false sens=false type=2 syn=[share.auto.offset.reset=latest 5]"},
		{groups, "errors.deadletterqueue.topic.name= src=5 ro=false sens=false type=2 syn=[errors.deadletterqueue.topic.name= 5]"},
		{metrics, "interval.ms=1000 src=7 ro=false sens=false type=3 syn=[interval.ms=1000 7]"},
		{metrics, "match= src=5 ro=false sens=false type=7 syn="},
	} {
		name, _, _ := strings.Cut(test.want, "=")
		got := "nothing"
		for _, e := range test.in {
			if e.Name == name {
				got = show(e)
			}
		}
		if got != test.want {
			t.Errorf("\n got  %s\n want %s", got, test.want)
		}
	}
}

func show(e Entry) string {
	text := func(p *string) string {
		if p == nil {
			return "<null>"
		}
		return *p
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s=%s src=%d ro=%v sens=%v type=%d syn=", e.Name, text(e.Value), e.Source, e.ReadOnly, e.IsSensitive, e.ConfigType)
	for _, s := range e.ConfigSynonyms {
		fmt.Fprintf(&b, "[%s=%s %d]", s.Name, text(s.Value), s.Source)
	}
	return b.String()
}

func TestDescribeNamesAndDocumentation(t *testing.T) {
	got := Default().DescribeTopic(nil, Describe{Names: []string{"retention.ms", "foo", "internal.segment.bytes"}, Documentation: true})
	if len(got) != 1 || got[0].Name != "retention.ms" || got[0].Documentation == nil || got[0].ConfigSynonyms != nil || got[0].Source != kmsg.ConfigSourceDefaultConfig {
		t.Errorf("%+v", got)
	}
}

func TestCheck(t *testing.T) {
	r, err := Check(Sources{Set: []string{
		"num.partitions=3", "num.io.threads=9", "log.cleaner.threads=2", "queued.max.requests=7", "num.partitons=3",
		"zookeeper.session.timeout.ms=1", "authorizer.class.name=x", "ssl.key.password=geheim", "log.segment.bytes=1", "retention.ms=5",
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range r.Findings {
		got[f.Key] = f.Verdict
		if strings.Contains(f.Value, "geheim") {
			t.Errorf("%+v shows a secret", f)
		}
	}
	want := map[string]string{
		"num.partitions": "used", "num.io.threads": "ignored", "log.cleaner.threads": "not yet", "queued.max.requests": "used differently",
		"num.partitons": "unknown", "zookeeper.session.timeout.ms": "ignored", "authorizer.class.name": "refused",
		"ssl.key.password": "not yet", "log.segment.bytes": "invalid", "retention.ms": "unknown",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(r.Errors) != 1 || !strings.Contains(r.Errors[0], "log.segment.bytes") {
		t.Errorf("errors %q", r.Errors)
	}
}

// TestForOneListener: what is set behind a listener's prefix counts if it is one of the few that can be, and else is said to be
// ignored, in the report and at the start.
func TestForOneListener(t *testing.T) {
	const prefix = "listener.name.plaintext."
	sets := []string{prefix + "max.connections=7", prefix + "max.connection.creation.rate=3", prefix + "connections.max.idle.ms=9",
		prefix + "num.network.threads=9", prefix + "ssl.key.password=geheim", "listener.name.OTHER.max.connections=7"}
	c := set(t, sets...)
	for key, want := range map[string]int{"max.connections": 7, "max.connection.creation.rate": 3} {
		if n, ok := c.ListenerInt("PLAINTEXT", key); n != want || !ok {
			t.Errorf("%s of PLAINTEXT is %d, %t", key, n, ok)
		}
	}
	if _, ok := c.ListenerInt("OTHER", "max.connections"); ok {
		t.Error("another listener has the setting, too")
	}
	dynamic := c.WithDynamic(nil, map[string]string{prefix + "max.connections": "8"})
	if n, _ := dynamic.ListenerInt("PLAINTEXT", "max.connections"); n != 8 {
		t.Errorf("with a dynamic setting of 8 max.connections of PLAINTEXT is %d", n)
	}
	r, err := Check(Sources{Set: sets})
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]string{}
	for _, f := range r.Findings {
		verdicts[strings.TrimPrefix(f.Key, prefix)] = f.Verdict
	}
	want := map[string]string{"max.connections": "used", "max.connection.creation.rate": "used", "connections.max.idle.ms": "ignored",
		"num.network.threads": "ignored", "ssl.key.password": "not yet", "listener.name.OTHER.max.connections": "ignored"}
	if diff := cmp.Diff(want, verdicts); diff != "" {
		t.Error(diff)
	}
	var warned []string
	for _, w := range c.Warnings() {
		warned = append(warned, strings.TrimPrefix(w.Key, prefix))
	}
	if diff := cmp.Diff([]string{"listener.name.OTHER.max.connections", "connections.max.idle.ms", "num.network.threads", "ssl.key.password"}, warned); diff != "" {
		t.Error(diff)
	}
}

func TestHuman(t *testing.T) {
	for _, test := range []struct{ key, text, want string }{
		{"retention.ms", "7d", "604800000"}, {"retention.ms", "1h30m", "5400000"}, {"retention.ms", "unlimited", "-1"},
		{"retention.ms", "5", "5"}, {"retention.ms", "soon", ""}, {"segment.bytes", "512MiB", "536870912"},
		{"segment.bytes", "1.5K", "1536"}, {"segment.bytes", "10MB", "10000000"}, {"segment.bytes", "lots", ""},
		{"cleanup.policy", "7d", "7d"},
	} {
		k, _ := LookupTopic(test.key)
		got, err := k.FromHuman(test.text)
		if (err != nil) != (test.want == "") || err == nil && got != test.want {
			t.Errorf("%s=%s: %q, %v, want %q", test.key, test.text, got, err, test.want)
		}
	}
}

func TestSuggest(t *testing.T) {
	names := topicTable.names()
	for text, want := range map[string]string{"retention.sm": "retention.ms", "min.in.sync.replicas": "min.insync.replicas", "xyzzy": ""} {
		if got := Suggest(text, names); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestJavaDoubles(t *testing.T) {
	for text, want := range map[string]string{
		"0.5f": "0.5", "1": "1.0", "1e7": "1.0E7", "0.0001": "1.0E-4", "1.7976931348623157E308": "1.7976931348623157E308",
		"Infinity": "Infinity", "-Infinity": "-Infinity", "NaN": "NaN", "12345.25": "12345.25", "0": "0.0",
	} {
		d, err := parseJavaDouble(text)
		if got := formatJavaDouble(d); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "inf", "0x1p3", "1_0", "f", "1ff"} {
		if d, err := parseJavaDouble(text); err == nil {
			t.Errorf("%q: %v, want an error", text, d)
		}
	}
}
