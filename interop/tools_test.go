//go:build interop

package interop

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A toolRun is one call of a command line tool of Apache Kafka's: what it is given, its exit status, and what its
// output must hold. In args {B} is the broker, {C} its controller listener, {D} its log directory.
type toolRun struct {
	args   string
	status int
	want   []string // regular expressions, each found in standard output and error together
}

const (
	toolPackage   = "org.apache.kafka.tools."
	topicCommand  = "TopicCommand --bootstrap-server {B} "
	configCommand = "ConfigCommand --bootstrap-server {B} "
	offsets       = "GetOffsetShell --bootstrap-server {B} --topic tools "
	reassign      = "reassign.ReassignPartitionsCommand --bootstrap-server {B} "
	election      = "LeaderElectionCommand --bootstrap-server {B} --election-type "
)

// toolRuns build on each other, in this order.
var toolRuns = []toolRun{
	{topicCommand + "--create --topic tools --partitions 2 --replication-factor 1 --config segment.bytes=1048576 --config retention.ms=-1", 0,
		[]string{`^Created topic tools\.\n$`}},
	{topicCommand + "--create --topic tools", 1, []string{`Topic 'tools' already exists\.`, `TopicExistsException`}},
	{topicCommand + "--create --topic tools --if-not-exists", 0, nil},
	{topicCommand + "--create --topic assigned --replica-assignment 1,1,1", 0, []string{`Created topic assigned\.`}},
	{topicCommand + "--create --topic bad --replication-factor 2", 1,
		[]string{`InvalidReplicationFactorException: Unable to replicate the partition 2 time\(s\): The target replication factor of 2 cannot be reached because only 1 broker\(s\) are registered`}},
	{topicCommand + "--create --topic bad --config nosuch.key=1", 1, []string{`InvalidConfigurationException: Unknown topic config name: nosuch\.key`}},
	{topicCommand + "--create --topic ../bad", 1, []string{`InvalidTopicException: Topic name is invalid: '\.\./bad' contains one or more characters other than ASCII alphanumerics, '\.', '_' and '-'`}},
	{topicCommand + "--describe --topic tools", 0, []string{
		`^Topic: tools\tTopicId: [\w-]{22}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: min\.insync\.replicas=1,`,
		`segment\.bytes=1048576`, `retention\.ms=-1`,
		`(?m)^\tTopic: tools\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: $`}},
	{topicCommand + "--alter --topic tools --partitions 4", 0, nil},
	{topicCommand + "--alter --topic tools --partitions 1", 1,
		[]string{`InvalidPartitionsException: The topic tools currently has 4 partition\(s\); 1 would not be an increase\.`}},
	{topicCommand + "--list", 0, []string{`^assigned\ntools\n$`}},
	{topicCommand + "--describe --unavailable-partitions", 0, []string{`^$`}},

	{"ProducerPerformance --topic tools --num-records 20000 --record-size 100 --throughput -1 --command-property bootstrap.servers={B} acks=all compression.type=lz4 batch.size=1000",
		0, []string{`(?m)^20000 records sent, [\d.]+ records/sec`}},
	{"GetOffsetShell --bootstrap-server {B} --topic-partitions assigned:0-2", 0, []string{`^assigned:0:0\nassigned:1:0\n$`}},
	{offsets + "--time earliest", 0, []string{`^tools:0:0\ntools:1:0\ntools:2:0\ntools:3:0\n$`}},
	{offsets + "--time max-timestamp", 0, []string{`^(tools:\d:\d+\n){4}$`}},
	{offsets + "--time 1", 0, []string{`^tools:0:0\ntools:1:0\ntools:2:0\ntools:3:0\n$`}},
	{offsets + "--time earliest-local", 0, []string{`^tools:0:0\ntools:1:0\ntools:2:0\ntools:3:0\n$`}},
	{"DeleteRecordsCommand --bootstrap-server {B} --offset-json-file {F}delete.json", 0, []string{`partition: tools-0\tlow_watermark: 10\n`}},
	{offsets + "--time earliest", 0, []string{`^tools:0:10\ntools:1:0\ntools:2:0\ntools:3:0\n$`}},
	{"DeleteRecordsCommand --bootstrap-server {B} --offset-json-file {F}delete-too-far.json", 0, []string{`partition: tools-1\terror: .*OffsetOutOfRangeException`}},

	{configCommand + "--describe --entity-type topics --entity-name tools", 0, []string{
		`Dynamic configs for topic tools are:\n`,
		`(?m)^  segment\.bytes=1048576 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:segment\.bytes=1048576, DEFAULT_CONFIG:log\.segment\.bytes=1073741824\}$`,
		`(?m)^  retention\.ms=-1 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:retention\.ms=-1, STATIC_BROKER_CONFIG:log\.retention\.ms=-1, DEFAULT_CONFIG:log\.retention\.hours=168\}$`}},
	{configCommand + "--alter --entity-type topics --entity-name tools --add-config max.message.bytes=123456,cleanup.policy=[compact,delete]", 0,
		[]string{`Completed updating config for topic tools\.`}},
	{configCommand + "--alter --entity-type topics --entity-name tools --add-config max.message.bytes=abc", 1,
		[]string{`InvalidConfigurationException: Invalid value abc for configuration max\.message\.bytes: Not a number of type INT`}},
	{configCommand + "--describe --all --entity-type topics --entity-name tools", 0, []string{
		`(?m)^  cleanup\.policy=compact,delete sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:cleanup\.policy=compact,delete, DEFAULT_CONFIG:log\.cleanup\.policy=delete\}$`,
		`(?m)^  max\.message\.bytes=123456 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:max\.message\.bytes=123456, DEFAULT_CONFIG:message\.max\.bytes=1048588\}$`,
		`(?m)^  min\.insync\.replicas=1 sensitive=false synonyms=\{DYNAMIC_DEFAULT_BROKER_CONFIG:min\.insync\.replicas=1, DEFAULT_CONFIG:min\.insync\.replicas=1\}$`,
		`(?m)^  segment\.ms=604800000 sensitive=false synonyms=\{\}$`}},
	{configCommand + "--alter --entity-type topics --entity-name tools --delete-config cleanup.policy,max.message.bytes", 0,
		[]string{`Completed updating config for topic tools\.`}},
	{configCommand + "--alter --entity-type topics --entity-name nosuch --add-config retention.ms=1", 1, []string{`UnknownTopicOrPartitionException|nosuch`}},
	{configCommand + "--alter --entity-type brokers --entity-default --add-config log.cleaner.threads=2", 0,
		[]string{`Completed updating default config for brokers in the cluster\.`}},
	{configCommand + "--alter --entity-type brokers --entity-name 1 --add-config message.max.bytes=2000000", 0,
		[]string{`Completed updating config for broker 1\.`}},
	{configCommand + "--alter --entity-type brokers --entity-name 1 --add-config node.id=7", 1, []string{`Cannot update these configs dynamically: \[node\.id\]`}},
	{configCommand + "--describe --entity-type brokers --entity-name 1", 0, []string{
		`(?m)^  message\.max\.bytes=2000000 sensitive=false synonyms=\{DYNAMIC_BROKER_CONFIG:message\.max\.bytes=2000000, DEFAULT_CONFIG:message\.max\.bytes=1048588\}$`}},
	{configCommand + "--describe --entity-type brokers --entity-default", 0, []string{
		`(?m)^  log\.cleaner\.threads=2 sensitive=false synonyms=\{DYNAMIC_DEFAULT_BROKER_CONFIG:log\.cleaner\.threads=2\}$`,
		`(?m)^  min\.insync\.replicas=1 sensitive=false synonyms=\{DYNAMIC_DEFAULT_BROKER_CONFIG:min\.insync\.replicas=1\}$`}},
	{configCommand + "--describe --all --entity-type brokers --entity-name 1", 0, []string{
		`(?m)^  log\.retention\.ms=-1 sensitive=false synonyms=\{STATIC_BROKER_CONFIG:log\.retention\.ms=-1, DEFAULT_CONFIG:log\.retention\.hours=168\}$`,
		`(?m)^  num\.partitions=3 sensitive=false synonyms=\{STATIC_BROKER_CONFIG:num\.partitions=3, DEFAULT_CONFIG:num\.partitions=1\}$`,
		`(?m)^  background\.threads=10 sensitive=false synonyms=\{DEFAULT_CONFIG:background\.threads=10\}$`}},

	{"LogDirsCommand --bootstrap-server {B} --describe --topic-list tools", 0, []string{
		`"broker":1`, `"partition":"tools-3","size":[1-9]\d*,"offsetLag":0,"isFuture":false`, `"error":null,"logDir":"{D}"`}},
	{"ClusterTool cluster-id --bootstrap-server {B}", 0, []string{`^Cluster ID: [\w-]{22}\n$`}},
	{"ClusterTool list-endpoints --bootstrap-server {B}", 0, []string{`(?m)^1 +127\.0\.0\.1 +\d+ +null +unfenced +broker *$`}},
	{"ClusterTool list-endpoints --bootstrap-controller {C}", 0, []string{`(?m)^1 +127\.0\.0\.1 +\d+ +null +controller *$`}},
	{"FeatureCommand --bootstrap-server {B} describe", 0, []string{
		`Feature: metadata\.version\s+SupportedMinVersion: 3\.3-IV3\s+SupportedMaxVersion: 4\.4-IV2\s+FinalizedVersionLevel: 4\.4-IV2\s+Epoch: \d+`,
		`Feature: kraft\.version\s+SupportedMinVersion: 0\s+SupportedMaxVersion: 1\s+FinalizedVersionLevel: 1\s`,
		`Feature: transaction\.version\s+SupportedMinVersion: 0\s+SupportedMaxVersion: 2\s+FinalizedVersionLevel: 2\s`,
		`Feature: eligible\.leader\.replicas\.version\s+SupportedMinVersion: 0\s+SupportedMaxVersion: 1\s+FinalizedVersionLevel: 1\s`,
		`Feature: share\.version\s+SupportedMinVersion: 0\s+SupportedMaxVersion: 2\s+FinalizedVersionLevel: 2\s`}},
	{"FeatureCommand --bootstrap-server {B} upgrade --feature group.version=1", 0, []string{`group\.version was upgraded to 1\.`}},
	{"FeatureCommand --bootstrap-server {B} downgrade --feature metadata.version=20 --dry-run", 1,
		[]string{`Can not downgrade metadata\.version to 20\.`, `1 out of 1 operation\(s\) failed\.`}},
	{"MetadataQuorumCommand --bootstrap-server {B} describe --status", 0, []string{
		`(?m)^LeaderId: +1$`, `(?m)^MaxFollowerLag: +0$`, `(?m)^CurrentVoters: +\[\{"id": 1, "directoryId": "[\w-]{22}", "endpoints": \["CONTROLLER://{C}"\]\}\]$`,
		`(?m)^CurrentObservers: +\[\]$`}},
	{"MetadataQuorumCommand --bootstrap-server {B} describe --replication", 0, []string{`(?m)^1\s+[\w-]{22}\s+\d+\s+0\s+\d+\s+\d+\s+Leader\s*$`}},
	{"MetadataQuorumCommand --bootstrap-controller {C} describe --status", 0, []string{`(?m)^LeaderId: +1$`}},
	{election + "preferred --all-topic-partitions", 0, []string{`^$`}},
	{election + "preferred --topic tools --partition 0", 0, []string{`Valid replica already elected for partitions tools-0`}},
	{election + "unclean --topic tools --partition 9", 1, []string{`tools-9: org\.apache\.kafka\.common\.errors\.UnknownTopicOrPartitionException`, `1 replica\(s\) could not be elected`}},
	{"BrokerApiVersionsCommand --bootstrap-server {B}", 0, []string{
		`^{B} \(id: 1 rack: null isFenced: false\) -> \(\n`, `Produce\(0\): 0 to 13 \[usable: 13\]`, `Fetch\(1\): 4 to 18 \[usable: 18\]`,
		`Metadata\(3\): 0 to 13 \[usable: 13\]`, `DescribeTopicPartitions\(75\): 0 \[usable: 0\]`}},
	{reassign + "--list", 0, []string{`No partition reassignments found\.`}},
	{reassign + "--reassignment-json-file {F}reassign.json --verify", 0, []string{`Reassignment of partition tools-0 is completed\.`}},
	{reassign + "--reassignment-json-file {F}reassign.json --execute", 0, []string{
		`"topic":"tools","partition":0,"replicas":\[1\],"log_dirs":\["{D}"\]`, `Successfully started partition reassignment for tools-0`}},
	{reassign + "--reassignment-json-file {F}reassign.json --cancel", 0, []string{`None of the specified partition reassignments are active\.`}},
	{reassign + "--topics-to-move-json-file {F}move.json --broker-list 1 --generate", 0, []string{
		`Proposed partition reassignment configuration\n\{"version":1,"partitions":\[\{"topic":"tools","partition":0,"replicas":\[1\]`}},
	{"TransactionsCommand --bootstrap-server {B} describe-producers --topic tools --partition 0", 0, []string{`(?m)^\d+\s+0\s+-1\s+\d+\s+\d+\s+None\s*$`}},

	{topicCommand + "--delete --topic assigned", 0, nil},
	{topicCommand + "--delete --topic assigned", 1, []string{`Topic 'assigned' does not exist as expected`}},
	{topicCommand + "--list", 0, []string{`^tools\n$`}},
}

// TestTools runs Apache's command line tools against the broker and looks at what they say.
func TestTools(t *testing.T) {
	dir, files := t.TempDir(), t.TempDir()
	b := startBroker(t, dir)
	for name, content := range map[string]string{
		"delete.json":         `{"version":1,"partitions":[{"topic":"tools","partition":0,"offset":10}]}`,
		"delete-too-far.json": `{"version":1,"partitions":[{"topic":"tools","partition":1,"offset":1000000}]}`,
		"reassign.json":       `{"version":1,"partitions":[{"topic":"tools","partition":0,"replicas":[1]}]}`,
		"move.json":           `{"version":1,"topics":[{"topic":"tools"}]}`,
	} {
		if err := os.WriteFile(filepath.Join(files, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fill := func(s string, quote func(string) string) string {
		return strings.NewReplacer("{B}", quote(b.address), "{C}", quote(b.controller), "{D}", quote(dir), "{F}", files+"/").Replace(s)
	}
	asIs := func(s string) string { return s }
	for _, run := range toolRuns {
		t.Run(run.args, func(t *testing.T) {
			out, status := runHosted(t, toolPackage+fill(run.args, asIs))
			if status != run.status {
				t.Fatalf("exit status %d, want %d:\n%s", status, run.status, tail(out))
			}
			for _, want := range run.want {
				if !regexp.MustCompile(fill(want, regexp.QuoteMeta)).MatchString(out) {
					t.Errorf("no %s in:\n%s", want, tail(out))
				}
			}
		})
	}
}
