package config

import (
	"strings"
	"testing"
)

// FuzzParse throws text at the whole way in: it must not panic, and what it takes must come out of
// the described form unchanged.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"num.partitions=3\n", "listeners=PLAINTEXT://:9092\\\n,CONTROLLER://[::1]:9093", "a=\\u0041\\", "! c\n# d\nk v",
		"controller.quorum.voters=1@h:9093,2@[::1]:9", "log.retention.ms=-1", "broker.rack=${env:HOME}${x:y:z}",
		"listener.name.x.plain.sasl.jaas.config=y", "max.connections.per.ip.overrides=a:1,b", "process.roles=controller",
		"leader.replication.throttled.rate=9223372036854775807", "log.cleaner.min.cleanable.ratio=1e-400", "ottla.memory.limit=1e30TiB",
		"advertised.listeners=PLAINTEXT://h:9092", "inter.broker.listener.name=x\nlistener.security.protocol.map=X:PLAINTEXT",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseProperties([]byte(text))
		if err != nil {
			return
		}
		for k, v := range m {
			if strings.Contains(v, "${") { // files are not to be read at a fuzzer's word
				delete(m, k)
			}
		}
		c, err := Parse(Sources{Properties: m})
		if err != nil {
			_ = err.Error()
			return
		}
		c.DescribeBroker(Describe{Synonyms: true})
		again := map[string]string{}
		for i := range brokerTable.keys {
			if name := brokerTable.keys[i].Name; c.IsSet(name) {
				again[name] = c.String(name)
			}
		}
		d, err := Parse(Sources{Properties: again})
		if err != nil {
			t.Fatalf("%q does not parse again: %v", again, err)
		}
		for name, text := range again {
			if d.String(name) != text {
				t.Fatalf("%s: %q became %q", name, text, d.String(name))
			}
		}
		c.WithDynamic(m, m).Topic(m)
		_ = c.ValidateBroker(m, true)
	})
}

// FuzzTopic throws settings at the checks that clients can reach.
func FuzzTopic(f *testing.F) {
	f.Add("retention.ms", "7")
	f.Add("leader.replication.throttled.replicas", "0:1,*")
	f.Add("cleanup.policy", ",compact")
	f.Add("share.auto.offset.reset", "by_duration:P1DT")
	f.Add("match", "client_id=(")
	f.Add("min.cleanable.dirty.ratio", "NaN")
	c := Default()
	f.Fuzz(func(t *testing.T, name, text string) {
		m := map[string]string{name: text}
		if err := c.ValidateTopic(m); err == nil {
			if got, own := c.Topic(m).Get(name); !own {
				t.Fatalf("%s=%q passes but has no effect: %q", name, text, got)
			}
		}
		_ = c.ValidateGroup(m)
		_ = ValidateClientMetrics(m)
		c.DescribeGroup(m, Describe{Synonyms: true})
	})
}
