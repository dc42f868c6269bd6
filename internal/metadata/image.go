// Package metadata keeps what the cluster has agreed on, as the metadata log says it: features,
// brokers, topics and their partitions, configurations, producer ids, quotas, ACLs, credentials.
//
// An [Image] never changes, and costs what differs from the one before it: its maps are persistent. A [Delta]
// replays records on an image and says what they changed. A [Loader] makes deltas of the batches
// and snapshots that a quorum hands out; brokers and controllers own one each. The package does not
// know who writes records, nor where they are kept.
//
// Nothing that is reached from an Image may be changed by its reader, slices and maps included.
package metadata

import (
	"cmp"
	"encoding/binary"
	"iter"
	"strconv"
	"strings"

	"github.com/benbjohnson/immutable"

	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// An Image is the whole metadata at one offset of the metadata log. Its methods may be called by many
// goroutines. Source: Kafka's MetadataImage.
type Image struct {
	Offset    int64 // of the last record it contains; -1 before any
	Epoch     int32 // leader epoch of that record; -1 before any
	Timestamp int64 // ms since 1970, of that record's batch

	// NextProducerID is the first producer id that no broker was given; -1 before any was.
	NextProducerID int64
	// KRaftVersion is the finalized level of kraft.version, which control records carry.
	KRaftVersion int16

	features    *immutable.SortedMap[string, int16]
	brokers     *immutable.SortedMap[int32, *Broker]
	controllers *immutable.SortedMap[int32, *Controller]
	topics      *immutable.Map[uuid.UUID, *Topic]
	names       *immutable.SortedMap[string, *Topic] // the same topics
	partitions  int                                  // of all topics
	configs     *immutable.SortedMap[Resource, map[string]string]
	quotas      *immutable.SortedMap[string, *ClientQuota] // by QuotaEntity.key
	acls        *immutable.Map[uuid.UUID, *records.AccessControlEntryRecord]
	scram       *immutable.SortedMap[ScramUser, *records.UserScramCredentialRecord]
	tokens      *immutable.SortedMap[string, *records.DelegationTokenRecord] // by token id
}

// Empty is the image before the first record.
var Empty = &Image{
	Offset:         -1,
	Epoch:          -1,
	NextProducerID: -1,
	features:       immutable.NewSortedMap[string, int16](ordered[string]{}),
	brokers:        immutable.NewSortedMap[int32, *Broker](ordered[int32]{}),
	controllers:    immutable.NewSortedMap[int32, *Controller](ordered[int32]{}),
	topics:         immutable.NewMap[uuid.UUID, *Topic](ids{}),
	names:          immutable.NewSortedMap[string, *Topic](ordered[string]{}),
	configs:        immutable.NewSortedMap[Resource, map[string]string](resources{}),
	quotas:         immutable.NewSortedMap[string, *ClientQuota](ordered[string]{}),
	acls:           immutable.NewMap[uuid.UUID, *records.AccessControlEntryRecord](ids{}),
	scram:          immutable.NewSortedMap[ScramUser, *records.UserScramCredentialRecord](scramUsers{}),
	tokens:         immutable.NewSortedMap[string, *records.DelegationTokenRecord](ordered[string]{}),
}

// MetadataVersion returns the finalized level of metadata.version, 0 before there is one.
func (img *Image) MetadataVersion() protocol.MetadataVersion {
	return protocol.MetadataVersion(img.FeatureLevel(protocol.FeatureMetadataVersion))
}

// FeatureLevel returns the finalized level of a feature, 0 if it has none.
func (img *Image) FeatureLevel(name string) int16 {
	if name == protocol.FeatureKRaftVersion {
		return img.KRaftVersion
	}
	level, _ := img.features.Get(name)
	return level
}

// Features yields the finalized features that have a level above 0 and their levels, by name;
// kraft.version is among them.
func (img *Image) Features() iter.Seq2[string, int16] {
	return func(yield func(string, int16) bool) {
		kraft := img.KRaftVersion > 0
		for name, level := range all(img.features) {
			if kraft && name > protocol.FeatureKRaftVersion {
				kraft = false
				if !yield(protocol.FeatureKRaftVersion, img.KRaftVersion) {
					return
				}
			}
			if !yield(name, level) {
				return
			}
		}
		if kraft {
			yield(protocol.FeatureKRaftVersion, img.KRaftVersion)
		}
	}
}

// Broker returns a registered broker, fenced ones included, or nil.
func (img *Image) Broker(id int32) *Broker {
	b, _ := img.brokers.Get(id)
	return b
}

// Brokers yields all registered brokers by id.
func (img *Image) Brokers() iter.Seq[*Broker] { return values(img.brokers) }

// UnfencedBrokers yields, by id, the brokers that clients are told of and replicas are placed on.
func (img *Image) UnfencedBrokers() iter.Seq[*Broker] {
	return func(yield func(*Broker) bool) {
		for b := range values(img.brokers) {
			if !b.Fenced && !yield(b) {
				return
			}
		}
	}
}

// Controller returns a registered controller, or nil.
func (img *Image) Controller(id int32) *Controller {
	c, _ := img.controllers.Get(id)
	return c
}

// Controllers yields all registered controllers by id.
func (img *Image) Controllers() iter.Seq[*Controller] { return values(img.controllers) }

// Topic returns the topic with that id, or nil.
func (img *Image) Topic(id uuid.UUID) *Topic {
	t, _ := img.topics.Get(id)
	return t
}

// TopicByName returns the topic of that name, or nil.
func (img *Image) TopicByName(name string) *Topic {
	t, _ := img.names.Get(name)
	return t
}

// Partition returns a partition by its topic's id, or nil.
func (img *Image) Partition(topicID uuid.UUID, partition int32) *Partition {
	if t := img.Topic(topicID); t != nil {
		return t.Partition(partition)
	}
	return nil
}

// PartitionByName returns a partition by its topic's name, or nil.
func (img *Image) PartitionByName(topic string, partition int32) *Partition {
	if t := img.TopicByName(topic); t != nil {
		return t.Partition(partition)
	}
	return nil
}

// Topics yields all topics by name.
func (img *Image) Topics() iter.Seq[*Topic] { return values(img.names) }

// TopicsFrom yields by name the topics whose name is at or after a name: the cursor of
// DescribeTopicPartitions.
func (img *Image) TopicsFrom(name string) iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		it := img.names.Iterator()
		it.Seek(name)
		for _, t, ok := it.Next(); ok && yield(t); _, t, ok = it.Next() {
		}
	}
}

// TopicCount returns the number of topics.
func (img *Image) TopicCount() int { return img.topics.Len() }

// PartitionCount returns the number of partitions of all topics.
func (img *Image) PartitionCount() int { return img.partitions }

// A ResourceType is a kind of thing that has a configuration. The codes are Kafka's
// (ConfigResource.Type).
type ResourceType int8

// The resource types of configurations.
const (
	TopicConfig         ResourceType = 2
	BrokerConfig        ResourceType = 4
	ClientMetricsConfig ResourceType = 16
	GroupConfig         ResourceType = 32
)

// A Resource is something that has a configuration.
type Resource struct {
	Type ResourceType
	Name string // a broker's is its id, that of the cluster-wide defaults of brokers is empty
}

// TopicResource is the resource of a topic's configuration.
func TopicResource(topic string) Resource { return Resource{TopicConfig, topic} }

// BrokerResource is the resource of one broker's dynamic configuration.
func BrokerResource(id int32) Resource { return Resource{BrokerConfig, strconv.Itoa(int(id))} }

// ClusterDefaults is the resource of the dynamic configuration of all brokers.
var ClusterDefaults = Resource{Type: BrokerConfig}

// Config returns what is set on a resource, nil if nothing is.
func (img *Image) Config(r Resource) map[string]string {
	c, _ := img.configs.Get(r)
	return c
}

// ConfigValue returns the value of a key on the first of the resources that has it:
// ConfigValue("log.retention.ms", BrokerResource(id), ClusterDefaults).
func (img *Image) ConfigValue(key string, from ...Resource) (value string, ok bool) {
	for _, r := range from {
		if value, ok = img.Config(r)[key]; ok {
			return value, true
		}
	}
	return "", false
}

// Configs yields the resources that have a configuration, by type and name.
func (img *Image) Configs() iter.Seq2[Resource, map[string]string] { return all(img.configs) }

// ClientQuotas yields all quotas, by entity.
func (img *Image) ClientQuotas() iter.Seq[*ClientQuota] { return values(img.quotas) }

// ClientQuota returns the limits of exactly that entity, or nil.
func (img *Image) ClientQuota(entity QuotaEntity) *ClientQuota {
	q, _ := img.quotas.Get(entity.key())
	return q
}

// ACL returns the access control entry with that id, or nil.
func (img *Image) ACL(id uuid.UUID) *records.AccessControlEntryRecord {
	a, _ := img.acls.Get(id)
	return a
}

// ACLs yields all access control entries, in no order.
func (img *Image) ACLs() iter.Seq[*records.AccessControlEntryRecord] {
	return func(yield func(*records.AccessControlEntryRecord) bool) {
		it := img.acls.Iterator()
		for _, a, ok := it.Next(); ok && yield(a); _, a, ok = it.Next() {
		}
	}
}

// A ScramUser names a SCRAM credential.
type ScramUser struct {
	Name      string
	Mechanism int8 // Kafka's ScramMechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
}

// ScramCredential returns the credential of a user for one mechanism, or nil.
func (img *Image) ScramCredential(user ScramUser) *records.UserScramCredentialRecord {
	c, _ := img.scram.Get(user)
	return c
}

// ScramCredentials yields all credentials by user and mechanism.
func (img *Image) ScramCredentials() iter.Seq[*records.UserScramCredentialRecord] {
	return values(img.scram)
}

// DelegationToken returns the token with that id, or nil. Its secret is not in the metadata: it is
// computed from the id and the cluster's secret key.
func (img *Image) DelegationToken(id string) *records.DelegationTokenRecord {
	t, _ := img.tokens.Get(id)
	return t
}

// DelegationTokens yields all tokens by id.
func (img *Image) DelegationTokens() iter.Seq[*records.DelegationTokenRecord] {
	return values(img.tokens)
}

// ordered compares keys that have an order of their own.
type ordered[K cmp.Ordered] struct{}

func (ordered[K]) Compare(a, b K) int { return cmp.Compare(a, b) }

type resources struct{}

func (resources) Compare(a, b Resource) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), strings.Compare(a.Name, b.Name))
}

type scramUsers struct{}

func (scramUsers) Compare(a, b ScramUser) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Mechanism, b.Mechanism))
}

// ids hashes ids. The controller makes them at random, so their own bits do.
type ids struct{}

func (ids) Hash(u uuid.UUID) uint32   { return binary.BigEndian.Uint32(u[12:]) }
func (ids) Equal(a, b uuid.UUID) bool { return a == b }

// all yields a sorted map in order.
func all[K, V any](m *immutable.SortedMap[K, V]) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		it := m.Iterator()
		for k, v, ok := it.Next(); ok && yield(k, v); k, v, ok = it.Next() {
		}
	}
}

// values yields the values of a sorted map in the order of their keys.
func values[K, V any](m *immutable.SortedMap[K, V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range all(m) {
			if !yield(v) {
				return
			}
		}
	}
}
