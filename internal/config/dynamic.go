package config

import (
	"maps"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// WithDynamic lays the dynamic configuration of this node and of the whole cluster over the static one
// and returns the result; c stays as it is. Settings that are read-only or do not parse have no effect,
// as in Kafka: the controller let them in for other versions, not for this one. The maps are copied.
func (c *Config) WithDynamic(broker, clusterDefault map[string]string) *Config {
	d := *c.static
	d.settings, d.others = maps.Clone(d.settings), maps.Clone(d.others)
	d.broker, d.cluster = maps.Clone(broker), maps.Clone(clusterDefault)
	d.overlay(clusterDefault, Origin{kmsg.ConfigSourceDynamicDefaultBrokerConfig, "the cluster's dynamic configuration"})
	d.overlay(broker, Origin{kmsg.ConfigSourceDynamicBrokerConfig, "this node's dynamic configuration"})
	if errs := d.derive(); len(errs) > 0 { // listeners that cannot be: keep those that are
		for _, name := range []string{"listeners", "listener.security.protocol.map"} {
			d.settings[name] = c.static.settings[name]
		}
		d.net = c.static.net
	}
	d.topic = d.deriveTopic(nil)
	return &d
}

func (c *Config) overlay(layer map[string]string, origin Origin) {
	for name, text := range layer {
		k, known := Lookup(name)
		if !known {
			c.others[name] = setting{value{text: text}, origin}
			continue
		}
		s, err := k.set(rawSetting{text, origin})
		if err != nil || k.Mode == ReadOnly {
			continue
		}
		if k.Name != name {
			c.others[name] = s
			continue
		}
		for _, weaker := range sameSetting(name) { // Kafka forgets their static values
			if weaker != name {
				c.settings[weaker] = setting{brokerTable.find(weaker).defaultValue(), c.settings[weaker].origin}
			}
		}
		c.settings[name] = s
	}
}

// families are the broker keys that set the same thing, strongest first. Source: DynamicBrokerConfig.
var families = [][]string{
	{"log.roll.ms", "log.roll.hours"},
	{"log.roll.jitter.ms", "log.roll.jitter.hours"},
	{"log.flush.interval.ms", "log.flush.scheduler.interval.ms"},
	{"log.retention.ms", "log.retention.minutes", "log.retention.hours"},
}

// sameSetting returns the names under which a broker key is described, strongest first.
func sameSetting(name string) []string {
	for i, family := range families {
		for _, member := range family {
			if member != name {
				continue
			}
			if i == 2 && name != family[0] { // the scheduler's interval is a key of its own as well
				return []string{name}
			}
			return family
		}
	}
	if base := withoutListener(name); base != name {
		return []string{name, base}
	}
	return []string{name}
}
