// Package protocol knows Kafka's wire protocol and does no I/O: the one table of
// APIs, request and response headers, decoding that cannot be made to allocate
// more than it announces, the gate that keeps tagged fields out of versions that
// lack them, error answers, and the frame of a Fetch response. The message
// structs are kmsg's. Transport calls it for every frame, the broker and the
// controller for answers. Everything derives from two definitions: the table in
// this file and the schemas generated from Apache Kafka's own (see gen).
//
// Read [API], then [Decode], then [FetchFrame].
package protocol

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

//go:generate go run ./gen

// A Listener is a set of the two kinds of listener a node has; most uses hold one.
type Listener uint8

const (
	// OnBroker is a listener for clients and other brokers (KafkaApis).
	OnBroker Listener = 1 << iota
	// OnController is a listener named by controller.listener.names (ControllerApis).
	OnController

	onBoth = OnBroker | OnController
)

// An API is one row of the table: what a node must know of a request before it
// looks at its body.
type API struct {
	Key  int16
	Name string // as Kafka's ApiKeys prints it
	// Min and Max bound, both inclusive, the versions Apache Kafka 4.4.0 serves.
	// They are the same on both kinds of listener.
	Min, Max int16
	// Listeners on which Apache serves the API, and those on which ottla does so
	// already. Only what is built is advertised or let in; setting Built is all it
	// takes to switch an API on. Built is a subset of Listeners.
	Listeners, Built Listener
	// Pipelined: a request may begin while earlier ones of the same API on its
	// connection are unanswered. True of Produce only.
	Pipelined bool
	// Forwarded: a broker passes the request on to the active controller in an
	// Envelope (ApiKeys.forwardable).
	Forwarded bool
	// Operation on Resource that the sender needs (KafkaApis, ControllerApis); a
	// handler may ask for more, e.g. ClusterAction of a Fetch by a replica.
	// Unknown: the request needs none.
	Operation kmsg.ACLOperation
	Resource  kmsg.ACLResourceType
	// Private APIs are ottla's own: between its controllers, and from its command line, which alone is told of them.
	Private bool
}

// produceAdvertisedMin is the oldest Produce version in ApiVersions answers,
// although nothing below Min is served: librdkafka up to 2.x takes a higher one
// for a broker without message format support (KAFKA-18659).
const produceAdvertisedMin = 0

// Short names that keep the table below readable as one.
const (
	read           = kmsg.ACLOperationRead
	write          = kmsg.ACLOperationWrite
	create         = kmsg.ACLOperationCreate
	remove         = kmsg.ACLOperationDelete
	alter          = kmsg.ACLOperationAlter
	describe       = kmsg.ACLOperationDescribe
	clusterAction  = kmsg.ACLOperationClusterAction
	describeConfig = kmsg.ACLOperationDescribeConfigs
	alterConfig    = kmsg.ACLOperationAlterConfigs
	noOperation    = kmsg.ACLOperationUnknown

	topic         = kmsg.ACLResourceTypeTopic
	group         = kmsg.ACLResourceTypeGroup
	cluster       = kmsg.ACLResourceTypeCluster
	transactional = kmsg.ACLResourceTypeTransactionalId
	noResource    = kmsg.ACLResourceTypeUnknown
)

// apis is the one table of APIs, ordered by key. Versions, listeners and
// Forwarded were read out of Apache Kafka 4.4.0's ApiKeys.
var apis = []API{
	{Key: 0, Name: "Produce", Min: 3, Max: 13, Listeners: OnBroker, Built: OnBroker, Pipelined: true, Operation: write, Resource: topic},
	{Key: 1, Name: "Fetch", Min: 4, Max: 18, Listeners: onBoth, Built: onBoth, Operation: read, Resource: topic},
	{Key: 2, Name: "ListOffsets", Min: 1, Max: 11, Listeners: OnBroker, Built: OnBroker, Operation: describe, Resource: topic},
	{Key: 3, Name: "Metadata", Min: 0, Max: 13, Listeners: OnBroker, Built: OnBroker, Operation: describe, Resource: topic},
	{Key: 8, Name: "OffsetCommit", Min: 2, Max: 10, Listeners: OnBroker, Built: OnBroker, Operation: read, Resource: group},
	{Key: 9, Name: "OffsetFetch", Min: 1, Max: 10, Listeners: OnBroker, Built: OnBroker, Operation: describe, Resource: group},
	{Key: 10, Name: "FindCoordinator", Min: 0, Max: 6, Listeners: OnBroker, Built: OnBroker, Operation: describe, Resource: group},
	{Key: 11, Name: "JoinGroup", Min: 0, Max: 9, Listeners: OnBroker, Built: OnBroker, Operation: read, Resource: group},
	{Key: 12, Name: "Heartbeat", Min: 0, Max: 4, Listeners: OnBroker, Built: OnBroker, Operation: read, Resource: group},
	{Key: 13, Name: "LeaveGroup", Min: 0, Max: 5, Listeners: OnBroker, Built: OnBroker, Operation: read, Resource: group},
	{Key: 14, Name: "SyncGroup", Min: 0, Max: 5, Listeners: OnBroker, Built: OnBroker, Operation: read, Resource: group},
	{Key: 15, Name: "DescribeGroups", Min: 0, Max: 6, Listeners: OnBroker, Built: OnBroker, Operation: describe, Resource: group},
	{Key: 16, Name: "ListGroups", Min: 0, Max: 5, Listeners: OnBroker, Built: OnBroker, Operation: describe, Resource: group},
	{Key: 17, Name: "SaslHandshake", Min: 0, Max: 1, Listeners: onBoth, Built: onBoth},
	{Key: 18, Name: "ApiVersions", Min: 0, Max: 5, Listeners: onBoth, Built: onBoth},
	{Key: 19, Name: "CreateTopics", Min: 2, Max: 7, Listeners: onBoth, Built: onBoth, Forwarded: true, Operation: create, Resource: topic},
	{Key: 20, Name: "DeleteTopics", Min: 1, Max: 6, Listeners: onBoth, Built: onBoth, Forwarded: true, Operation: remove, Resource: topic},
	{Key: 21, Name: "DeleteRecords", Min: 0, Max: 2, Listeners: OnBroker, Built: OnBroker, Operation: remove, Resource: topic},
	{Key: 22, Name: "InitProducerId", Min: 0, Max: 5, Listeners: OnBroker, Built: OnBroker, Operation: write, Resource: transactional},
	{Key: 23, Name: "OffsetForLeaderEpoch", Min: 2, Max: 4, Listeners: OnBroker, Built: OnBroker, Operation: describe, Resource: topic},
	{Key: 24, Name: "AddPartitionsToTxn", Min: 0, Max: 5, Listeners: OnBroker, Operation: write, Resource: transactional},
	{Key: 25, Name: "AddOffsetsToTxn", Min: 0, Max: 4, Listeners: OnBroker, Operation: write, Resource: transactional},
	{Key: 26, Name: "EndTxn", Min: 0, Max: 5, Listeners: OnBroker, Operation: write, Resource: transactional},
	{Key: 27, Name: "WriteTxnMarkers", Min: 1, Max: 2, Listeners: OnBroker, Operation: clusterAction, Resource: cluster},
	{Key: 28, Name: "TxnOffsetCommit", Min: 0, Max: 6, Listeners: OnBroker, Operation: write, Resource: transactional},
	{Key: 29, Name: "DescribeAcls", Min: 1, Max: 3, Listeners: onBoth, Operation: describe, Resource: cluster},
	{Key: 30, Name: "CreateAcls", Min: 1, Max: 3, Listeners: onBoth, Forwarded: true, Operation: alter, Resource: cluster},
	{Key: 31, Name: "DeleteAcls", Min: 1, Max: 3, Listeners: onBoth, Forwarded: true, Operation: alter, Resource: cluster},
	{Key: 32, Name: "DescribeConfigs", Min: 1, Max: 4, Listeners: onBoth, Built: onBoth, Operation: describeConfig, Resource: topic},
	{Key: 33, Name: "AlterConfigs", Min: 0, Max: 2, Listeners: onBoth, Built: onBoth, Forwarded: true, Operation: alterConfig, Resource: topic},
	{Key: 34, Name: "AlterReplicaLogDirs", Min: 1, Max: 2, Listeners: OnBroker, Operation: alter, Resource: cluster},
	{Key: 35, Name: "DescribeLogDirs", Min: 1, Max: 5, Listeners: OnBroker, Built: OnBroker, Operation: describe, Resource: cluster},
	{Key: 36, Name: "SaslAuthenticate", Min: 0, Max: 2, Listeners: onBoth, Built: onBoth},
	{Key: 37, Name: "CreatePartitions", Min: 0, Max: 3, Listeners: onBoth, Built: onBoth, Forwarded: true, Operation: alter, Resource: topic},
	{Key: 38, Name: "CreateDelegationToken", Min: 1, Max: 3, Listeners: onBoth, Forwarded: true},
	{Key: 39, Name: "RenewDelegationToken", Min: 1, Max: 2, Listeners: onBoth, Forwarded: true},
	{Key: 40, Name: "ExpireDelegationToken", Min: 1, Max: 2, Listeners: onBoth, Forwarded: true},
	{Key: 41, Name: "DescribeDelegationToken", Min: 1, Max: 3, Listeners: onBoth},
	{Key: 42, Name: "DeleteGroups", Min: 0, Max: 3, Listeners: OnBroker, Built: OnBroker, Operation: remove, Resource: group},
	{Key: 43, Name: "ElectLeaders", Min: 0, Max: 2, Listeners: onBoth, Built: onBoth, Forwarded: true, Operation: alter, Resource: cluster},
	{Key: 44, Name: "IncrementalAlterConfigs", Min: 0, Max: 1, Listeners: onBoth, Built: onBoth, Forwarded: true, Operation: alterConfig, Resource: topic},
	{Key: 45, Name: "AlterPartitionReassignments", Min: 0, Max: 1, Listeners: onBoth, Built: onBoth, Forwarded: true, Operation: alter, Resource: cluster},
	{Key: 46, Name: "ListPartitionReassignments", Min: 0, Max: 0, Listeners: onBoth, Built: onBoth, Forwarded: true, Operation: describe, Resource: cluster},
	{Key: 47, Name: "OffsetDelete", Min: 0, Max: 0, Listeners: OnBroker, Built: OnBroker, Operation: remove, Resource: group},
	{Key: 48, Name: "DescribeClientQuotas", Min: 0, Max: 1, Listeners: OnBroker, Operation: describeConfig, Resource: cluster},
	{Key: 49, Name: "AlterClientQuotas", Min: 0, Max: 1, Listeners: onBoth, Forwarded: true, Operation: alterConfig, Resource: cluster},
	{Key: 50, Name: "DescribeUserScramCredentials", Min: 0, Max: 0, Listeners: onBoth, Operation: describe, Resource: cluster},
	{Key: 51, Name: "AlterUserScramCredentials", Min: 0, Max: 0, Listeners: onBoth, Forwarded: true, Operation: alter, Resource: cluster},
	{Key: 52, Name: "Vote", Min: 0, Max: 2, Listeners: OnController, Operation: clusterAction, Resource: cluster},
	{Key: 53, Name: "BeginQuorumEpoch", Min: 0, Max: 1, Listeners: OnController, Operation: clusterAction, Resource: cluster},
	{Key: 54, Name: "EndQuorumEpoch", Min: 0, Max: 1, Listeners: OnController, Operation: clusterAction, Resource: cluster},
	{Key: 55, Name: "DescribeQuorum", Min: 0, Max: 2, Listeners: onBoth, Built: onBoth, Forwarded: true, Operation: describe, Resource: cluster},
	{Key: 56, Name: "AlterPartition", Min: 2, Max: 3, Listeners: OnController, Built: OnController, Operation: clusterAction, Resource: cluster},
	{Key: 57, Name: "UpdateFeatures", Min: 0, Max: 2, Listeners: onBoth, Built: onBoth, Forwarded: true, Operation: alter, Resource: cluster},
	{Key: 58, Name: "Envelope", Min: 0, Max: 0, Listeners: OnController, Built: OnController, Operation: clusterAction, Resource: cluster},
	{Key: 59, Name: "FetchSnapshot", Min: 0, Max: 1, Listeners: OnController, Built: OnController, Operation: clusterAction, Resource: cluster},
	{Key: 60, Name: "DescribeCluster", Min: 0, Max: 2, Listeners: onBoth, Built: onBoth},
	{Key: 61, Name: "DescribeProducers", Min: 0, Max: 0, Listeners: OnBroker, Built: OnBroker, Operation: read, Resource: topic},
	{Key: 62, Name: "BrokerRegistration", Min: 0, Max: 4, Listeners: OnController, Built: OnController, Operation: clusterAction, Resource: cluster},
	{Key: 63, Name: "BrokerHeartbeat", Min: 0, Max: 2, Listeners: OnController, Built: OnController, Operation: clusterAction, Resource: cluster},
	{Key: 64, Name: "UnregisterBroker", Min: 0, Max: 0, Listeners: onBoth, Built: onBoth, Forwarded: true, Operation: alter, Resource: cluster},
	{Key: 65, Name: "DescribeTransactions", Min: 0, Max: 0, Listeners: OnBroker, Operation: describe, Resource: transactional},
	{Key: 66, Name: "ListTransactions", Min: 0, Max: 2, Listeners: OnBroker, Operation: describe, Resource: transactional},
	{Key: 67, Name: "AllocateProducerIds", Min: 0, Max: 0, Listeners: OnController, Built: OnController, Forwarded: true, Operation: clusterAction, Resource: cluster},
	{Key: 68, Name: "ConsumerGroupHeartbeat", Min: 0, Max: 1, Listeners: OnBroker, Built: OnBroker, Operation: read, Resource: group},
	{Key: 69, Name: "ConsumerGroupDescribe", Min: 0, Max: 1, Listeners: OnBroker, Built: OnBroker, Operation: describe, Resource: group},
	{Key: 70, Name: "ControllerRegistration", Min: 0, Max: 0, Listeners: OnController, Built: OnController, Operation: clusterAction, Resource: cluster},
	{Key: 71, Name: "GetTelemetrySubscriptions", Min: 0, Max: 0, Listeners: OnBroker},
	{Key: 72, Name: "PushTelemetry", Min: 0, Max: 0, Listeners: OnBroker},
	{Key: 73, Name: "AssignReplicasToDirs", Min: 0, Max: 0, Listeners: OnController, Built: OnController, Operation: clusterAction, Resource: cluster},
	{Key: 74, Name: "ListConfigResources", Min: 0, Max: 1, Listeners: OnBroker, Built: OnBroker, Operation: describeConfig, Resource: cluster},
	{Key: 75, Name: "DescribeTopicPartitions", Min: 0, Max: 0, Listeners: OnBroker, Built: OnBroker, Operation: describe, Resource: topic},
	{Key: 76, Name: "ShareGroupHeartbeat", Min: 1, Max: 1, Listeners: OnBroker, Operation: read, Resource: group},
	{Key: 77, Name: "ShareGroupDescribe", Min: 1, Max: 1, Listeners: OnBroker, Operation: describe, Resource: group},
	{Key: 78, Name: "ShareFetch", Min: 1, Max: 2, Listeners: OnBroker, Operation: read, Resource: group},
	{Key: 79, Name: "ShareAcknowledge", Min: 1, Max: 2, Listeners: OnBroker, Operation: read, Resource: group},
	{Key: 80, Name: "AddRaftVoter", Min: 0, Max: 1, Listeners: onBoth, Forwarded: true, Operation: alter, Resource: cluster},
	{Key: 81, Name: "RemoveRaftVoter", Min: 0, Max: 0, Listeners: onBoth, Forwarded: true, Operation: alter, Resource: cluster},
	{Key: 82, Name: "UpdateRaftVoter", Min: 0, Max: 0, Listeners: OnController, Operation: clusterAction, Resource: cluster},
	{Key: 83, Name: "InitializeShareGroupState", Min: 0, Max: 0, Listeners: OnBroker, Operation: clusterAction, Resource: cluster},
	{Key: 84, Name: "ReadShareGroupState", Min: 0, Max: 0, Listeners: OnBroker, Operation: clusterAction, Resource: cluster},
	{Key: 85, Name: "WriteShareGroupState", Min: 0, Max: 1, Listeners: OnBroker, Operation: clusterAction, Resource: cluster},
	{Key: 86, Name: "DeleteShareGroupState", Min: 0, Max: 0, Listeners: OnBroker, Operation: clusterAction, Resource: cluster},
	{Key: 87, Name: "ReadShareGroupStateSummary", Min: 0, Max: 1, Listeners: OnBroker, Operation: clusterAction, Resource: cluster},
	{Key: 88, Name: "StreamsGroupHeartbeat", Min: 0, Max: 1, Listeners: OnBroker, Operation: read, Resource: group},
	{Key: 89, Name: "StreamsGroupDescribe", Min: 0, Max: 1, Listeners: OnBroker, Operation: describe, Resource: group},
	{Key: 90, Name: "DescribeShareGroupOffsets", Min: 0, Max: 1, Listeners: OnBroker, Operation: describe, Resource: group},
	{Key: 91, Name: "AlterShareGroupOffsets", Min: 0, Max: 0, Listeners: OnBroker, Operation: read, Resource: group},
	{Key: 92, Name: "DeleteShareGroupOffsets", Min: 0, Max: 0, Listeners: OnBroker, Operation: remove, Resource: group},
	{Key: 93, Name: "StreamsGroupTopologyDescriptionUpdate", Min: 0, Max: 0, Listeners: OnBroker, Operation: read, Resource: group},
	{Key: 94, Name: "UnregisterController", Min: 0, Max: 0, Listeners: onBoth, Forwarded: true, Operation: alter, Resource: cluster},
	{Key: RaftMessageKey, Name: "RaftMessage", Min: 0, Max: 0, Listeners: OnController, Built: OnController, Operation: clusterAction, Resource: cluster, Private: true},
	{Key: DescribeLagKey, Name: "DescribeLag", Min: 0, Max: 0, Listeners: OnBroker, Built: OnBroker, Operation: describe, Resource: topic, Private: true},
}

// byKey finds the rows of Kafka's own keys, which are dense and small.
var byKey = func() (rows [128]*API) {
	for i := range apis {
		if key := apis[i].Key; int(key) < len(rows) {
			rows[key] = &apis[i]
		}
	}
	return rows
}()

// Lookup returns the row of an API key, or false for a key that neither Kafka
// 4.4 nor ottla has. The row is shared and must not be changed.
func Lookup(key int16) (*API, bool) {
	if key >= 0 && int(key) < len(byKey) {
		return byKey[key], byKey[key] != nil
	}
	i, ok := slices.BinarySearchFunc(apis, key, func(a API, key int16) int { return int(a.Key) - int(key) })
	if !ok {
		return nil, false
	}
	return &apis[i], true
}

// Serves reports whether ottla answers the API at this version on listener. A
// connection that asks for anything else is closed, as Apache does; ApiVersions
// alone is answered at every version ([UnsupportedApiVersions]).
func (a *API) Serves(listener Listener, version int16) bool {
	return a.Built&listener != 0 && a.Supports(version)
}

// Supports reports whether version is one that Apache Kafka 4.4 speaks.
func (a *API) Supports(version int16) bool { return a.Min <= version && version <= a.Max }

// Advertised returns the API ranges of an ApiVersions answer on listener, by
// key: what is built and, but for [OwnSoftware] on a listener for clients, not private. Software is what the client calls
// itself. The caller owns the slice.
func Advertised(listener Listener, software string) []kmsg.ApiVersionsResponseApiKey {
	keys := make([]kmsg.ApiVersionsResponseApiKey, 0, len(apis))
	for i := range apis {
		a := &apis[i]
		if a.Built&listener == 0 || a.Private && (listener != OnBroker || software != OwnSoftware) {
			continue
		}
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.Key, a.Min, a.Max
		if a.Key == produceKey {
			k.MinVersion = produceAdvertisedMin
		}
		keys = append(keys, k)
	}
	return keys
}

// Keys that this package treats apart from the rest.
const (
	produceKey     = 0
	fetchKey       = 1
	apiVersionsKey = 18
)

// UnsupportedApiVersions answers an ApiVersions request at a version we do not
// know: a version 0 body with UNSUPPORTED_VERSION and the range of ApiVersions
// alone, from which the client picks the version of its second attempt (KIP-511).
func UnsupportedApiVersions() *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = CodeUnsupportedVersion
	k := kmsg.NewApiVersionsResponseApiKey()
	a := byKey[apiVersionsKey]
	k.ApiKey, k.MinVersion, k.MaxVersion = a.Key, a.Min, a.Max
	resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{k}
	return resp
}

// CodeUnsupportedVersion is Kafka's error UNSUPPORTED_VERSION.
const CodeUnsupportedVersion int16 = 35
