package config

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Entry is one line of a DescribeConfigs answer; Synonym one of its sources.
type (
	Entry        = kmsg.DescribeConfigsResponseResourceConfig
	EntrySynonym = kmsg.DescribeConfigsResponseResourceConfigConfigSynonym
)

// Describe says what a DescribeConfigs request wants to see.
type Describe struct {
	Names         []string // nil is all; unknown ones are left out
	Synonyms      bool
	Documentation bool
}

func (d *Describe) wants(name string) bool { return d.Names == nil || slices.Contains(d.Names, name) }

// entry makes a line. The value and those of its synonyms must be hidden already.
func (d *Describe) entry(name string, k *Key, text *string, synonyms []EntrySynonym) Entry {
	e := kmsg.NewDescribeConfigsResponseResourceConfig()
	e.Name, e.Value = name, text
	e.Source = kmsg.ConfigSourceDefaultConfig
	if len(synonyms) > 0 {
		e.Source = synonyms[0].Source
	}
	e.IsDefault = e.Source == kmsg.ConfigSourceDefaultConfig
	if d.Synonyms {
		e.ConfigSynonyms = synonyms
	}
	if k == nil {
		e.IsSensitive = true // nobody knows what an unknown key holds
		return e
	}
	e.ConfigType, e.IsSensitive = k.Type, k.Sensitive()
	if d.Documentation {
		e.Documentation = &k.Doc
	}
	return e
}

func synonym(name string, text *string, source kmsg.ConfigSource) EntrySynonym {
	s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
	s.Name, s.Value, s.Source = name, text, source
	return s
}

// shown returns a value as a client may see it: null if it has none or is a secret.
func (v value) shown(k *Key) *string {
	if v.null || k == nil || k.Sensitive() {
		return nil
	}
	return &v.text
}

// DescribeBroker answers for this node, by name: every key of the table, and what else was set.
// Source: ConfigHelper.createBrokerConfigEntry.
func (c *Config) DescribeBroker(d Describe) []Entry {
	var out []Entry
	for i := range brokerTable.keys {
		k := &brokerTable.keys[i]
		if d.wants(k.Name) && (!k.Internal && k.Mode != DynamicOnly || c.IsSet(k.Name)) {
			out = append(out, c.brokerEntry(&d, k.Name, k, c.settings[k.Name], true))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.others)) {
		if d.wants(name) {
			k, _ := Lookup(name)
			out = append(out, c.brokerEntry(&d, name, k, c.others[name], true))
		}
	}
	return out
}

// DescribeClusterDefault answers for the broker resource without a name: what is set dynamically for
// all nodes.
func (c *Config) DescribeClusterDefault(d Describe) []Entry {
	var out []Entry
	for _, name := range slices.Sorted(maps.Keys(c.cluster)) {
		if !d.wants(name) {
			continue
		}
		k, _ := Lookup(name)
		out = append(out, c.brokerEntry(&d, name, k, setting{value: value{text: c.cluster[name]}}, false))
	}
	return out
}

func (c *Config) brokerEntry(d *Describe, name string, k *Key, s setting, perBroker bool) Entry {
	synonyms := c.brokerSynonyms(name)
	if !perBroker {
		synonyms = slices.DeleteFunc(synonyms, func(s EntrySynonym) bool {
			return s.Source != kmsg.ConfigSourceDynamicDefaultBrokerConfig
		})
	}
	e := d.entry(name, k, s.shown(k), synonyms)
	e.ReadOnly = k == nil || k.Name != name || k.Mode == ReadOnly
	return e
}

// brokerSynonyms lists where a broker key, or another key that means the same, was set, strongest
// first. As in Kafka those before the first of the very name are left out.
func (c *Config) brokerSynonyms(name string) []EntrySynonym {
	names := sameSetting(name)
	var out []EntrySynonym
	for _, layer := range []struct {
		of     func(name string) (*string, bool)
		source kmsg.ConfigSource
	}{
		{c.dynamicOf(c.broker), kmsg.ConfigSourceDynamicBrokerConfig},
		{c.dynamicOf(c.cluster), kmsg.ConfigSourceDynamicDefaultBrokerConfig},
		{c.staticOf, kmsg.ConfigSourceStaticBrokerConfig},
		{defaultOf(c.static), kmsg.ConfigSourceDefaultConfig},
	} {
		for _, n := range names {
			if text, ok := layer.of(n); ok && (len(out) > 0 || n == name) {
				out = append(out, synonym(n, text, layer.source))
			}
		}
	}
	return out
}

// dynamicOf looks into a dynamic layer.
func (c *Config) dynamicOf(layer map[string]string) func(string) (*string, bool) {
	return func(name string) (*string, bool) {
		text, ok := layer[name]
		k, _ := Lookup(name)
		return value{text: text}.shown(k), ok
	}
}

// staticOf looks into file, environment and command line.
func (c *Config) staticOf(name string) (*string, bool) {
	s, ok := c.static.settings[name]
	if !ok {
		s, ok = c.static.others[name]
	}
	k, _ := Lookup(name)
	return s.shown(k), ok && s.origin.Source == kmsg.ConfigSourceStaticBrokerConfig
}

// defaultOf looks into the defaults, those that depend on other keys included.
func defaultOf(static *Config) func(string) (*string, bool) {
	return func(name string) (*string, bool) {
		k := brokerTable.find(name)
		if k == nil || k.Mode == DynamicOnly {
			return nil, false
		}
		v := static.settings[name].value
		if static.IsSet(name) {
			v = k.defaultValue()
		}
		return v.shown(k), !v.null
	}
}

// DescribeTopic answers for a topic that sets overrides for itself, by name.
// Source: ConfigHelper.createTopicConfigEntry.
func (c *Config) DescribeTopic(overrides map[string]string, d Describe) []Entry {
	t := c.Topic(overrides)
	return c.describeLike(topicTable, t.settings, kmsg.ConfigSourceDynamicTopicConfig, &d)
}

// DescribeGroup answers for a group that sets overrides for itself, by name.
// Source: ConfigHelper.createGroupConfigEntry.
func (c *Config) DescribeGroup(overrides map[string]string, d Describe) []Entry {
	g := c.Group(overrides)
	return c.describeLike(groupTable, g.settings, kmsg.ConfigSourceGroupConfig, &d)
}

// DescribeClientMetrics answers for a client metrics subscription, by name.
func DescribeClientMetrics(overrides map[string]string, d Describe) []Entry {
	settings := map[string]setting{}
	for i := range clientMetricsTable.keys {
		k := &clientMetricsTable.keys[i]
		settings[k.Name] = k.defaultSetting()
		if v, err := k.parse(overrides[k.Name]); err == nil && overrides[k.Name] != "" {
			settings[k.Name] = setting{v, Origin{Source: kmsg.ConfigSourceClientMetricsConfig}}
		}
	}
	return (*Config)(nil).describeLike(clientMetricsTable, settings, kmsg.ConfigSourceClientMetricsConfig, &d)
}

// describeLike describes a resource whose keys may inherit from broker keys.
func (c *Config) describeLike(t *table, settings map[string]setting, own kmsg.ConfigSource, d *Describe) []Entry {
	var out []Entry
	for i := range t.keys {
		k := &t.keys[i]
		if k.Internal || !d.wants(k.Name) {
			continue
		}
		s := settings[k.Name]
		var synonyms []EntrySynonym
		if s.origin.Source == own {
			synonyms = append(synonyms, synonym(k.Name, s.shown(k), own))
		}
		switch {
		case len(k.Synonyms) > 0:
			synonyms = append(synonyms, c.brokerSynonyms(k.Synonyms[0].Name)...)
		case t == groupTable:
			synonyms = append(synonyms, synonym(k.Name, k.defaultValue().shown(k), kmsg.ConfigSourceDefaultConfig))
		}
		out = append(out, d.entry(k.Name, k, s.shown(k), synonyms))
	}
	return out
}
