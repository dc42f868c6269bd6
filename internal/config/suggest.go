package config

import (
	"fmt"
	"strings"
)

// Suggest returns the name among names that text is most likely a slip of, or "".
func Suggest(text string, names []string) string {
	best, least := "", len(text)/3+1 // more changes than that are another word
	for _, name := range names {
		if d := distance(text, name, least); d < least {
			best, least = name, d
		}
	}
	return best
}

// distance counts the insertions, deletions, changes and swaps of neighbours between a and b; it gives
// up at limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	two, one := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range one {
		one[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(one[j]+1, row[j-1]+1, one[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], two[j-2]+1)
			}
		}
		two, one = one, row
	}
	return one[len(b)]
}

func (t *table) names() []string {
	out := make([]string, len(t.keys))
	for i := range t.keys {
		out[i] = t.keys[i].Name
	}
	return out
}

// unknown says what to tell about a name that is not in the table; "" is nothing.
func unknown(name string, t *table) string {
	if why := formerKey(name); why != "" {
		return "is ignored: " + why
	}
	for _, prefix := range []string{"config.providers.", "rlmm.config.", "rsm.config."} {
		if strings.HasPrefix(name, prefix) {
			return ""
		}
	}
	if s := Suggest(name, t.names()); s != "" {
		return fmt.Sprintf("is no known key; did you mean %s?", s)
	}
	if t == brokerTable {
		if k := topicTable.find(name); k != nil && len(k.Synonyms) > 0 {
			return fmt.Sprintf("is a key of topics; the broker's default for it is %s", k.Synonyms[0].Name)
		}
	}
	return "is no known key"
}

// formerKeys are keys that configuration files of earlier Kafka versions have, with the reason why they
// mean nothing today. A name ending in a dot stands for all that begin with it.
var formerKeys = map[string]string{
	"zookeeper.":                                "there is no ZooKeeper; the metadata is in the cluster's own log",
	"confluent.":                                "it belongs to Confluent's own server",
	"log4j.":                                    "there is no log4j; see the flags of ottla serve for logs",
	"advertised.host.name":                      "advertised.listeners replaced it",
	"advertised.port":                           "advertised.listeners replaced it",
	"allow.everyone.if.no.acl.found":            "it belongs to an authorizer, and none is configured",
	"broker.id.generation.enable":               "node ids are always set",
	"control.plane.listener.name":               "controllers have listeners of their own, see controller.listener.names",
	"controlled.shutdown.max.retries":           "the controller decides when leaderships are handed over",
	"controlled.shutdown.retry.backoff.ms":      "the controller decides when leaderships are handed over",
	"controller.quota.callback.class":           "Java classes cannot run in ottla",
	"delegation.token.master.key":               "delegation.token.secret.key replaced it",
	"host.name":                                 "listeners replaced it",
	"inter.broker.protocol.version":             "the cluster's metadata.version feature replaced it",
	"leader.imbalance.per.broker.percentage":    "Kafka 4 balances by partition",
	"log.message.downconversion.enable":         "Kafka 4 has no down-conversion",
	"log.message.format.version":                "Kafka 4 has one message format",
	"log.message.timestamp.difference.max.ms":   "log.message.timestamp.before.max.ms and .after.max.ms replaced it",
	"max.incremental.fetch.session.cache.bytes": "max.incremental.fetch.session.cache.slots counts sessions",
	"offsets.commit.required.acks":              "offset commits always wait for all replicas in sync",
	"password.encoder.":                         "secrets in the metadata log are not encoded since KRaft",
	"port":                                      "listeners replaced it",
	"reserved.broker.max.id":                    "node ids are always set",
	"super.users":                               "it belongs to an authorizer, and none is configured",
}

// formerKey returns why a name of earlier versions means nothing, or "".
func formerKey(name string) string {
	if why, ok := formerKeys[name]; ok {
		return why
	}
	for prefix, why := range formerKeys {
		if prefix[len(prefix)-1] == '.' && strings.HasPrefix(name, prefix) {
			return why
		}
	}
	return ""
}
