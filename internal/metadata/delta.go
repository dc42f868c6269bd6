package metadata

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// A Delta is what records change about an image. Make it of the image before, Replay records in
// order, Apply it, then ask what changed. It costs what the records change, not what the image
// holds. It is for one goroutine until it is applied, and is not changed after.
type Delta struct {
	prev, next *Image // next is being built until Apply
	applied    bool

	topics      map[uuid.UUID]*topicDelta
	brokers     map[int32]struct{}
	controllers map[int32]struct{}
	features    map[string]struct{}
	configs     map[Resource]struct{}
	quotas      map[string]QuotaEntity
	acls        map[uuid.UUID]struct{}
	scram       map[ScramUser]struct{}
	tokens      map[string]struct{}
}

// NewDelta returns a delta on prev, the image before it.
func NewDelta(prev *Image) *Delta {
	next := *prev
	return &Delta{prev: prev, next: &next}
}

// Prev returns the image before the delta.
func (d *Delta) Prev() *Image { return d.prev }

// Image returns the image that Apply made, or nil before.
func (d *Delta) Image() *Image {
	if !d.applied {
		return nil
	}
	return d.next
}

// Apply ends the delta and returns the image that holds the records up to offset, which was written
// in the leader epoch epoch.
func (d *Delta) Apply(offset int64, epoch int32) *Image {
	if d.applied {
		panic("metadata: a delta was applied twice")
	}
	d.applied = true
	d.next.Offset, d.next.Epoch = offset, epoch
	d.applyTopics()
	return d.next
}

// Replay adds what a record changes. An error says that the record does not fit the image: the log
// is not what a correct controller can have written, and the delta must not be applied. The record's slices become
// the image's: the caller must not change them afterwards.
// Begin-, End- and AbortTransactionRecord are [Loader]'s to deal with and change nothing here.
func (d *Delta) Replay(m records.Message) error {
	if err := d.replay(m); err != nil {
		return fmt.Errorf("replay %T%+v: %w", m, m, err)
	}
	return nil
}

func (d *Delta) replay(m records.Message) error {
	switch r := m.(type) {
	case *records.RegisterBrokerRecord:
		d.setBroker(newBroker(r))
	case *records.UnregisterBrokerRecord:
		d.next.brokers = d.next.brokers.Delete(r.BrokerID)
		mark(&d.brokers, r.BrokerID)
	case *records.BrokerRegistrationChangeRecord:
		return d.changeBroker(r)
	case *records.FenceBrokerRecord:
		return d.fenceBroker(r.ID, r.Epoch, true)
	case *records.UnfenceBrokerRecord:
		return d.fenceBroker(r.ID, r.Epoch, false)
	case *records.RegisterControllerRecord:
		d.next.controllers = d.next.controllers.Set(r.ControllerID, newController(r))
		mark(&d.controllers, r.ControllerID)
	case *records.UnregisterControllerRecord:
		d.next.controllers = d.next.controllers.Delete(r.ControllerID)
		mark(&d.controllers, r.ControllerID)
	case *records.TopicRecord:
		return d.createTopic(r)
	case *records.PartitionRecord:
		return d.setPartition(r)
	case *records.PartitionChangeRecord:
		return d.changePartition(r)
	case *records.RemoveTopicRecord:
		return d.deleteTopic(r.TopicID)
	case *records.ClearElrRecord:
		return d.clearELR(r.TopicName)
	case *records.ConfigRecord:
		d.setConfig(Resource{ResourceType(r.ResourceType), r.ResourceName}, r.Name, r.Value)
	case *records.FeatureLevelRecord:
		d.setFeature(r.Name, r.FeatureLevel)
	case *records.ProducerIdsRecord:
		d.next.NextProducerID = r.NextProducerID
	default:
		return d.replaySecurity(m)
	}
	return nil
}

// replaySecurity is the part of replay that concerns who may do what, and how much of it.
func (d *Delta) replaySecurity(m records.Message) error {
	switch r := m.(type) {
	case *records.ClientQuotaRecord:
		d.setQuota(r)
	case *records.AccessControlEntryRecord:
		d.next.acls = d.next.acls.Set(r.ID, r)
		mark(&d.acls, r.ID)
	case *records.RemoveAccessControlEntryRecord:
		d.next.acls = d.next.acls.Delete(r.ID)
		mark(&d.acls, r.ID)
	case *records.UserScramCredentialRecord:
		user := ScramUser{r.Name, r.Mechanism}
		d.next.scram = d.next.scram.Set(user, r)
		mark(&d.scram, user)
	case *records.RemoveUserScramCredentialRecord:
		user := ScramUser{r.Name, r.Mechanism}
		d.next.scram = d.next.scram.Delete(user)
		mark(&d.scram, user)
	case *records.DelegationTokenRecord:
		d.next.tokens = d.next.tokens.Set(r.TokenID, r)
		mark(&d.tokens, r.TokenID)
	case *records.RemoveDelegationTokenRecord:
		d.next.tokens = d.next.tokens.Delete(r.TokenID)
		mark(&d.tokens, r.TokenID)
	case *records.NoOpRecord, *records.ZkMigrationStateRecord,
		*records.BeginTransactionRecord, *records.EndTransactionRecord, *records.AbortTransactionRecord:
		// The state of a migration from ZooKeeper means nothing since Kafka 4.0.
	default:
		return errors.New("it is no metadata record")
	}
	return nil
}

// SetKRaftVersion changes the level of kraft.version, which control records carry.
func (d *Delta) SetKRaftVersion(level int16) { d.setFeature(protocol.FeatureKRaftVersion, level) }

func (d *Delta) setFeature(name string, level int16) {
	mark(&d.features, name)
	switch {
	case name == protocol.FeatureKRaftVersion:
		d.next.KRaftVersion = level
	case level == 0:
		d.next.features = d.next.features.Delete(name)
	default:
		d.next.features = d.next.features.Set(name, level)
	}
}

func (d *Delta) setBroker(b *Broker) {
	d.next.brokers = d.next.brokers.Set(b.ID, b)
	mark(&d.brokers, b.ID)
}

// brokerToChange returns a copy of a broker.
func (d *Delta) brokerToChange(id int32, epoch int64) (*Broker, error) {
	b := d.next.Broker(id)
	if b == nil {
		return nil, fmt.Errorf("broker %d is not registered", id)
	}
	if b.Epoch != epoch {
		return nil, fmt.Errorf("broker %d has epoch %d", id, b.Epoch)
	}
	next := *b
	return &next, nil
}

func (d *Delta) fenceBroker(id int32, epoch int64, fenced bool) error {
	b, err := d.brokerToChange(id, epoch)
	if err != nil {
		return err
	}
	b.Fenced = fenced
	d.setBroker(b)
	return nil
}

// Values of the fields of a BrokerRegistrationChangeRecord; 0 is no change. Source: Kafka's
// BrokerRegistrationFencingChange and BrokerRegistrationInControlledShutdownChange.
const (
	// Fence and Unfence are the values of Fenced.
	Fence   int8 = 1
	Unfence int8 = -1
	// EnterControlledShutdown is the value of InControlledShutdown; only a new registration ends one.
	EnterControlledShutdown int8 = 1
)

func (d *Delta) changeBroker(r *records.BrokerRegistrationChangeRecord) error {
	b, err := d.brokerToChange(r.BrokerID, r.BrokerEpoch)
	if err != nil {
		return err
	}
	switch r.Fenced {
	case Fence, Unfence:
		b.Fenced = r.Fenced == Fence
	case 0:
	default:
		return fmt.Errorf("fenced is %d, which is unknown", r.Fenced)
	}
	switch r.InControlledShutdown {
	case EnterControlledShutdown:
		b.InControlledShutdown = true
	case 0:
	default:
		return fmt.Errorf("inControlledShutdown is %d, which is unknown", r.InControlledShutdown)
	}
	if len(r.LogDirs) > 0 {
		b.LogDirs = r.LogDirs
	}
	if r.CordonedLogDirs != nil {
		b.CordonedLogDirs = r.CordonedLogDirs
	}
	d.setBroker(b)
	return nil
}

func (d *Delta) setConfig(r Resource, key string, value *string) {
	mark(&d.configs, r)
	config := maps.Clone(d.next.Config(r))
	if value == nil {
		delete(config, key)
	} else {
		if config == nil {
			config = map[string]string{}
		}
		config[key] = *value
	}
	if len(config) == 0 {
		d.next.configs = d.next.configs.Delete(r)
		return
	}
	d.next.configs = d.next.configs.Set(r, config)
}

func (d *Delta) deleteConfig(r Resource) {
	if d.next.Config(r) == nil {
		return
	}
	mark(&d.configs, r)
	d.next.configs = d.next.configs.Delete(r)
}

func (d *Delta) setQuota(r *records.ClientQuotaRecord) {
	entity := quotaEntity(r)
	key := entity.key()
	if d.quotas == nil {
		d.quotas = map[string]QuotaEntity{}
	}
	d.quotas[key] = entity
	if q := d.next.ClientQuota(entity).with(entity, r); q != nil {
		d.next.quotas = d.next.quotas.Set(key, q)
		return
	}
	d.next.quotas = d.next.quotas.Delete(key)
}

func mark[K comparable](set *map[K]struct{}, k K) {
	if *set == nil {
		*set = map[K]struct{}{}
	}
	(*set)[k] = struct{}{}
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// Empty reports whether nothing changed but the offset; false may be said of a change that came to nothing.
func (d *Delta) Empty() bool {
	return len(d.topics) == 0 && len(d.brokers) == 0 && len(d.controllers) == 0 && len(d.features) == 0 &&
		len(d.configs) == 0 && len(d.quotas) == 0 && len(d.acls) == 0 && len(d.scram) == 0 && len(d.tokens) == 0 &&
		d.prev.NextProducerID == d.next.NextProducerID
}

// A Change is the value of one key before and after; the zero value of V stands for none.
type Change[K, V any] struct {
	Key      K
	Old, New V
}

// changes yields the keys whose value changed, with their values.
func changes[K comparable, V any](keys map[K]struct{}, compare func(a, b K) int, before, after func(K) V) iter.Seq[Change[K, V]] {
	order := slices.SortedFunc(maps.Keys(keys), compare)
	return func(yield func(Change[K, V]) bool) {
		for _, k := range order {
			if !yield(Change[K, V]{k, before(k), after(k)}) {
				return
			}
		}
	}
}

// Brokers yields, by id, the brokers that were registered, changed or unregistered.
func (d *Delta) Brokers() iter.Seq[Change[int32, *Broker]] {
	return changes(d.brokers, cmp.Compare, d.prev.Broker, d.next.Broker)
}

// Controllers yields, by id, the controllers that were registered or unregistered.
func (d *Delta) Controllers() iter.Seq[Change[int32, *Controller]] {
	return changes(d.controllers, cmp.Compare, d.prev.Controller, d.next.Controller)
}

// Features yields, by name, the features whose level was set; 0 is none.
func (d *Delta) Features() iter.Seq[Change[string, int16]] {
	return changes(d.features, cmp.Compare, d.prev.FeatureLevel, d.next.FeatureLevel)
}

// Configs yields, by type and name, the resources whose configuration was set, with all of it.
func (d *Delta) Configs() iter.Seq[Change[Resource, map[string]string]] {
	return changes(d.configs, resources{}.Compare, d.prev.Config, d.next.Config)
}

// ClientQuotas yields the quotas that were set or removed; the key is opaque.
func (d *Delta) ClientQuotas() iter.Seq[Change[string, *ClientQuota]] {
	get := func(img *Image) func(string) *ClientQuota {
		return func(key string) *ClientQuota { return img.ClientQuota(d.quotas[key]) }
	}
	keys := make(map[string]struct{}, len(d.quotas))
	for key := range d.quotas {
		keys[key] = struct{}{}
	}
	return changes(keys, cmp.Compare, get(d.prev), get(d.next))
}

// ACLs yields the access control entries that were added or removed.
func (d *Delta) ACLs() iter.Seq[Change[uuid.UUID, *records.AccessControlEntryRecord]] {
	return changes(d.acls, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }, d.prev.ACL, d.next.ACL)
}

// ScramCredentials yields the credentials that were set or removed.
func (d *Delta) ScramCredentials() iter.Seq[Change[ScramUser, *records.UserScramCredentialRecord]] {
	return changes(d.scram, scramUsers{}.Compare, d.prev.ScramCredential, d.next.ScramCredential)
}

// DelegationTokens yields the tokens that were made, renewed or removed.
func (d *Delta) DelegationTokens() iter.Seq[Change[string, *records.DelegationTokenRecord]] {
	return changes(d.tokens, cmp.Compare, d.prev.DelegationToken, d.next.DelegationToken)
}
