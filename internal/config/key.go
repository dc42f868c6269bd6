package config

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The types of a key, with the numbers that DescribeConfigs gives them.
const (
	Boolean  = kmsg.ConfigTypeBoolean
	String   = kmsg.ConfigTypeString
	Int      = kmsg.ConfigTypeInt
	Short    = kmsg.ConfigTypeShort
	Long     = kmsg.ConfigTypeLong
	Double   = kmsg.ConfigTypeDouble
	List     = kmsg.ConfigTypeList
	Class    = kmsg.ConfigTypeClass
	Password = kmsg.ConfigTypePassword
)

// Importance is how much Apache's documentation makes of a key.
type Importance int8

// The three importances, most important first.
const (
	High Importance = iota
	Medium
	Low
)

func (i Importance) String() string { return [...]string{"high", "medium", "low"}[i] }

// Mode says whether a broker key can be changed while the broker runs, and for whom.
type Mode int8

// The update modes, with the names that Apache's documentation uses.
const (
	ReadOnly    Mode = iota // only in the file, the environment or by --set
	PerBroker               // for one broker at a time
	ClusterWide             // for one broker, or for all as the cluster default
	DynamicOnly             // as ClusterWide, but never from the file, and not described until it is set
)

func (m Mode) String() string {
	return [...]string{"read-only", "per-broker", "cluster-wide", "dynamic only"}[m]
}

// State is what ottla makes of a key. Every key has one, so that nothing is silently ignored.
type State int8

// The states of a key. All but Honoured come with a reason in [Key.Why].
const (
	Honoured  State = iota
	Different       // honoured, but not quite as Apache does
	Ignored         // without meaning here, for good
	NotYet          // accepted and checked, but without effect so far
	// Refused: any value but the default refuses the start. It asks for protection that is not there: a check of who may
	// come in, TLS, a limit, a policy. What only tunes such a protection, such as a cipher suite, or opens it, such as
	// the password of a key store, is NotYet: it means nothing without the key that asks.
	Refused
)

// What is not built yet, as a reason for NotYet.
const (
	noCompaction        = "compaction is not built yet"
	noDirMoves          = "moving replicas between log directories is not built yet"
	noPreallocation     = "files of segments grow as they are written so far"
	noQuotas            = "quotas are not built yet"
	noReplication       = "following a leader on another broker is not built yet"
	noReplicationQuotas = "throttling of replication is not built yet"
	noSASL              = "SASL is not built yet"
	noShare             = "share groups are not built yet"
	noStreams           = "Streams groups are not built yet"
	noTelemetry         = "client telemetry is not built yet"
	noTiers             = "tiered storage is not built yet"
	noTLS               = "TLS is not built yet"
	noTokens            = "delegation tokens are not built yet"
	noTransactions      = "transactions are not built yet"
)

// What a start without the protection would do, as a reason for Refused.
const (
	refusedSASL      = noSASL + ", and clients would be let in without it"
	refusedSASLNodes = noSASL + ", and nodes would be let in without it"
	refusedTLS       = noTLS + ", and connections would be in plain text"
)

func (s State) String() string {
	return [...]string{"used", "used differently", "ignored", "not yet", "refused"}[s]
}

// A Key is one row of the table of configuration keys.
type Key struct {
	Name       string
	Type       kmsg.ConfigType
	Default    *string // in canonical form; nil is Java's null
	Rule       Rule    // what a value must satisfy beyond its type; nil is anything
	Importance Importance
	Mode       Mode // of broker keys; the others are dynamic by nature
	Internal   bool // not listed by DescribeConfigs unless set
	State      State
	Why        string // the reason for the State, a clause without full stop
	DefaultWhy string // how the default differs from Apache's and why, likewise; "" if it does not
	Doc        string
	Synonyms   []Synonym // broker keys that give a topic or group key its default; the first that is set wins
}

// A Synonym is a broker key that gives a topic or group key its default, in milliseconds where both
// are times.
type Synonym struct {
	Name   string
	Factor int64 // one unit of the broker key in units of the other, such as 3_600_000 for hours
}

// Sensitive reports whether the value must not be shown.
func (k *Key) Sensitive() bool { return k.Type == Password }

// Unit returns what a number of this key counts, judged by its name: "ms", "s", "min", "h", "bytes", or "".
func (k *Key) Unit() string {
	switch {
	case k.Type != Int && k.Type != Long && k.Type != Short && k.Type != Double:
		return ""
	case strings.HasSuffix(k.Name, ".ms"), strings.HasSuffix(k.Name, ".millis"):
		return "ms"
	case strings.HasSuffix(k.Name, ".seconds"), strings.HasSuffix(k.Name, ".secs"):
		return "s"
	case strings.HasSuffix(k.Name, ".minutes"):
		return "min"
	case strings.HasSuffix(k.Name, ".hours"):
		return "h"
	case strings.Contains(k.Name, "bytes"), strings.HasSuffix(k.Name, ".memory.limit"),
		strings.HasSuffix(k.Name, "buffer.size"):
		return "bytes"
	}
	return ""
}

// BrokerKeys returns the keys of a node's configuration, ours included, by name. The caller must not
// change them.
func BrokerKeys() []Key { return brokerTable.keys }

// TopicKeys returns the keys of a topic's configuration, by name. The caller must not change them.
func TopicKeys() []Key { return topicTable.keys }

// GroupKeys returns the keys of a group's configuration, by name. The caller must not change them.
func GroupKeys() []Key { return groupTable.keys }

// ClientMetricsKeys returns the keys of a client metrics subscription, by name. The caller must not
// change them.
func ClientMetricsKeys() []Key { return clientMetricsTable.keys }

// Lookup returns the row of a broker key. A listener's own key, listener.name.NAME.KEY, has the row of
// KEY.
func Lookup(name string) (*Key, bool) {
	if k := brokerTable.find(name); k != nil {
		return k, true
	}
	if k := brokerTable.find(withoutListener(name)); k != nil {
		return k, true
	}
	return nil, false
}

// LookupTopic returns the row of a topic key.
func LookupTopic(name string) (*Key, bool) { k := topicTable.find(name); return k, k != nil }

// LookupGroup returns the row of a group key.
func LookupGroup(name string) (*Key, bool) { k := groupTable.find(name); return k, k != nil }

// withoutListener turns listener.name.NAME.KEY into KEY, and listener.name.NAME.MECHANISM.KEY into KEY
// where KEY is one of the five that a SASL mechanism may have for itself. Any other name comes back as
// it is. Source: DynamicBrokerConfig.
func withoutListener(name string) string {
	rest, ok := strings.CutPrefix(name, "listener.name.")
	if !ok {
		return name
	}
	_, key, ok := strings.Cut(rest, ".")
	if !ok {
		return name
	}
	for _, own := range mechanismKeys {
		if strings.HasSuffix(key, "."+own) {
			return own
		}
	}
	return key
}

// mechanismKeys may stand behind a listener's and a SASL mechanism's prefix.
var mechanismKeys = []string{
	"connections.max.reauth.ms", "sasl.jaas.config", "sasl.login.callback.handler.class",
	"sasl.login.class", "sasl.server.callback.handler.class",
}

// perListener are the keys that ottla heeds behind a listener's prefix. The other ones that mean something there in Kafka are
// those of TLS and SASL, which are not built, and of Java's threads and classes.
var perListener = []string{"max.connections", "max.connection.creation.rate"}

// stateOf says what ottla makes of a setting, and why: what the row says of its key, unless the setting is for one listener of what
// all have in common, or of a listener in capitals, which nobody looks for.
func (k *Key) stateOf(name string) (State, string) {
	switch {
	case name == k.Name, k.State != Honoured && k.State != Different:
	case !slices.Contains(perListener, k.Name):
		return Ignored, "it cannot be set for one listener alone; set " + k.Name
	case name != strings.ToLower(name):
		return Ignored, "a listener's prefix is written in small letters; set " + strings.ToLower(name)
	}
	return k.State, k.Why
}

// table is a sorted list of keys with an index.
type table struct {
	keys  []Key
	index map[string]int // by name, into keys
}

func newTable(lists ...[]Key) *table {
	t := &table{keys: slices.Concat(lists...)}
	slices.SortFunc(t.keys, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	t.index = make(map[string]int, len(t.keys))
	for i := range t.keys {
		t.index[t.keys[i].Name] = i
	}
	return t
}

// find returns the row of name, or nil.
func (t *table) find(name string) *Key {
	if i, ok := t.index[name]; ok {
		return &t.keys[i]
	}
	return nil
}

var (
	brokerTable        = newTable(brokerKeys, ottlaKeys)
	topicTable         = newTable(topicKeys)
	groupTable         = newTable(groupKeys)
	clientMetricsTable = newTable(clientMetricsKeys)
)

// to makes the pointer that Key.Default wants.
func to(s string) *string { return &s }
