// Package config owns the configuration keys: one table ([Key]) says for each its type, default, range,
// meaning, and what ottla makes of it. Parsing, validation, DescribeConfigs, `ottla config check` and the
// documentation all come from that table, so that nothing is said twice and nothing silently ignored.
//
// Start with [Parse]: it reads server.properties, environment and command line into a [Config], an
// immutable view that any number of goroutines may read. [Config.WithDynamic] lays the dynamic
// configuration of the metadata log over it, [Config.Topic] and [Config.Group] derive the configuration
// of one topic or group. The package knows nothing of who uses a key.
package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Sources are the places a static configuration comes from. A later one wins over an earlier one:
// defaults < File < Properties < Env < Set.
type Sources struct {
	File       string            // path of a server.properties; "" is none
	Properties map[string]string // settings of an embedding program
	Env        []string          // as os.Environ gives it; nil is none
	Set        []string          // "key=value", from the command line
}

// An Origin says where a value was set.
type Origin struct {
	Source kmsg.ConfigSource // as DescribeConfigs answers it
	From   string            // for people: "server.properties", "KAFKA_NUM_PARTITIONS", "--set", "default"
}

// A Warning is something in a configuration that the reader should know but that stops nothing.
type Warning struct {
	Key     string
	Message string // a sentence without full stop
	Origin  Origin
}

func (w Warning) String() string {
	return fmt.Sprintf("%s: %s (from %s)", w.Key, w.Message, w.Origin.From)
}

// A RefusedError is a key that asks for protection that is not built yet. Starting without it would
// leave a door open that the operator believes shut.
type RefusedError struct {
	Key, Value string
	Why        string
	Origin     Origin
}

// Error returns one line with the way out.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s=%s refuses the start: %s; take the key out to run without it, from %s",
		e.Key, e.Value, e.Why, e.Origin.From)
}

// setting is a value with its origin.
type setting struct {
	value
	origin Origin
}

// A Config is the effective configuration of one node at one moment. It never changes.
//
// The getters take the name of a key in the table and panic on any other, or on one of another type:
// names are constants of the program.
type Config struct {
	settings map[string]setting // every key of the broker table
	others   map[string]setting // set, but not in the table: listener.name.…, plug-ins' keys, mistakes
	static   *Config            // before the dynamic layers; itself if there are none
	broker   map[string]string  // dynamic settings of this node
	cluster  map[string]string  // dynamic settings of all nodes
	net      network
	topic    *Topic // of a topic that overrides nothing
	warnings []Warning
}

// Default returns the configuration of a node that was told nothing: a lone broker and controller on
// loopback, with its data in ./ottla-data.
func Default() *Config {
	c, err := Parse(Sources{})
	if err != nil {
		panic(fmt.Sprintf("config: the defaults do not pass: %v", err))
	}
	return c
}

// Parse reads the sources into a configuration. It reads the file and those that ${file:…} and ${dir:…}
// name, nothing else. All that is wrong is reported at once: the error joins *InvalidError and
// *RefusedError, each one line. Unknown keys are warnings, as in Kafka.
func Parse(s Sources) (*Config, error) {
	raw, err := s.read()
	if err != nil {
		return nil, err
	}
	c, errs := build(raw)
	return c, errors.Join(errs...)
}

// build turns raw settings into a Config and tells all that is wrong with them; the Config is good if
// nothing is.
func build(raw map[string]rawSetting) (*Config, []error) {
	c := &Config{settings: make(map[string]setting, len(brokerTable.keys)), others: map[string]setting{}}
	c.static = c
	var errs []error
	for i := range brokerTable.keys {
		k := &brokerTable.keys[i]
		c.settings[k.Name] = k.defaultSetting()
		r, ok := raw[k.Name]
		if !ok {
			continue
		}
		s, err := k.set(r)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.settings[k.Name] = s
	}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		if brokerTable.find(name) == nil {
			errs = append(errs, c.setOther(name, raw[name])...)
		}
	}
	if len(errs) > 0 { // what follows looks at several keys at once
		return c, errs
	}
	if errs = c.derive(); len(errs) == 0 {
		errs = c.crossCheck()
	}
	errs = append(errs, c.refusals()...)
	c.topic = c.deriveTopic(nil)
	c.warn()
	return c, errs
}

// setOther takes a setting whose name is not in the table.
func (c *Config) setOther(name string, r rawSetting) []error {
	k, known := Lookup(name)
	if !known {
		c.others[name] = setting{value: value{text: r.text}, origin: r.origin}
		return nil
	}
	s, err := k.set(r)
	if err != nil {
		return []error{err}
	}
	c.others[name] = s
	return nil
}

func (k *Key) set(r rawSetting) (setting, error) {
	text := r.text
	if strings.HasPrefix(k.Name, "ottla.") {
		if human, err := k.FromHuman(text); err == nil {
			text = human
		}
	}
	v, err := k.parse(text)
	var bad *InvalidError
	if errors.As(err, &bad) {
		bad.Origin = r.origin
	}
	return setting{v, r.origin}, err
}

var defaultOrigin = Origin{Source: kmsg.ConfigSourceDefaultConfig, From: "default"}

func (k *Key) defaultSetting() setting { return setting{k.defaultValue(), defaultOrigin} }

func (k *Key) defaultValue() value {
	if k.Default == nil {
		return value{null: true}
	}
	v, err := k.parseType(*k.Default)
	if err != nil {
		panic(fmt.Sprintf("config: default of %s: %v", k.Name, err))
	}
	return v
}

// Warnings returns what the reader of the configuration should be told: unknown keys, and keys that
// were set but have no effect.
func (c *Config) Warnings() []Warning { return c.static.warnings }

func (c *Config) warn() {
	for _, name := range slices.Sorted(maps.Keys(c.others)) {
		if k, known := Lookup(name); known {
			c.warnOfState(k, name, c.others[name])
		} else if message := unknown(name, brokerTable); message != "" {
			c.warnings = append(c.warnings, Warning{name, message, c.others[name].origin})
		}
	}
	for i := range brokerTable.keys {
		k := &brokerTable.keys[i]
		c.warnOfState(k, k.Name, c.settings[k.Name])
	}
}

// warnOfState warns if a setting, under the name it was given, has no effect; unless that is what the default has as well.
func (c *Config) warnOfState(k *Key, name string, s setting) {
	if s.origin.Source == kmsg.ConfigSourceDefaultConfig || s.text == k.defaultValue().text {
		return
	}
	switch state, why := k.stateOf(name); state {
	case NotYet:
		c.warnings = append(c.warnings, Warning{name, "has no effect yet: " + why, s.origin})
	case Ignored:
		c.warnings = append(c.warnings, Warning{name, "is ignored: " + why, s.origin})
	}
}

// refusals lists the keys that ask for protection that is not there.
func (c *Config) refusals() []error {
	var errs []error
	refuse := func(name string, k *Key, s setting) {
		if k.State != Refused || s.null || s.text == "" || s.text == k.defaultValue().text {
			return
		}
		shown := s.text
		if k.Sensitive() {
			shown = "****"
		}
		errs = append(errs, &RefusedError{Key: name, Value: shown, Why: k.Why, Origin: s.origin})
	}
	for i := range brokerTable.keys {
		k := &brokerTable.keys[i]
		refuse(k.Name, k, c.settings[k.Name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.others)) {
		if k, known := Lookup(name); known {
			refuse(name, k, c.others[name])
		}
	}
	return append(errs, c.net.refusals(c)...)
}

// get returns a setting of the table and holds the program to its types.
func (c *Config) get(name string, types ...kmsg.ConfigType) setting {
	s, ok := c.settings[name]
	if !ok {
		panic("config: there is no key named " + name)
	}
	if k := brokerTable.find(name); len(types) > 0 && !slices.Contains(types, k.Type) {
		panic(fmt.Sprintf("config: %s is of type %s", name, kafkaTypes[k.Type]))
	}
	return s
}

// Int returns a key of type INT or SHORT; 0 if it is null.
func (c *Config) Int(name string) int { return int(c.get(name, Int, Short).integer) }

// ListenerInt returns what listener.name.<listener>.<key> says, a key of type INT that one listener may have for itself; ok is
// false if nobody set that.
func (c *Config) ListenerInt(listener, key string) (n int, ok bool) {
	s, ok := c.others["listener.name."+strings.ToLower(listener)+"."+key]
	return int(s.integer), ok
}

// Long returns a key of any whole type; 0 if it is null.
func (c *Config) Long(name string) int64 { return c.get(name, Int, Short, Long).integer }

// Bytes is Long, for keys that count bytes.
func (c *Config) Bytes(name string) int64 { return c.Long(name) }

// Double returns a key of type DOUBLE.
func (c *Config) Double(name string) float64 { return c.get(name, Double).double }

// Bool returns a key of type BOOLEAN.
func (c *Config) Bool(name string) bool { return c.get(name, Boolean).boolean }

// String returns any key in Kafka's canonical form; "" if it is null.
func (c *Config) String(name string) string { return c.get(name).text }

// List returns a key of type LIST. The caller must not change it.
func (c *Config) List(name string) []string { return c.get(name, List).list }

// IsNull reports whether a key has no value, Java's null.
func (c *Config) IsNull(name string) bool { return c.get(name).null }

// IsSet reports whether anybody set the key, as opposed to its default.
func (c *Config) IsSet(name string) bool {
	return c.get(name).origin.Source != kmsg.ConfigSourceDefaultConfig
}

// Origin returns where the value of a key was set.
func (c *Config) Origin(name string) Origin { return c.get(name).origin }

// Duration returns a key that counts a time, in the unit its name ends with. Times too long for a
// time.Duration become the longest; negative ones, Kafka's "without limit", stay negative.
func (c *Config) Duration(name string) time.Duration {
	k := brokerTable.find(name)
	n := c.Long(name)
	switch k.Unit() {
	case "ms":
		return saturate(n, time.Millisecond)
	case "s":
		return saturate(n, time.Second)
	case "min":
		return saturate(n, time.Minute)
	case "h":
		return saturate(n, time.Hour)
	}
	panic("config: " + name + " is no time")
}

func saturate(n int64, unit time.Duration) time.Duration {
	if n > math.MaxInt64/int64(unit) {
		return math.MaxInt64
	}
	if n < math.MinInt64/int64(unit) {
		return math.MinInt64
	}
	return time.Duration(n) * unit
}

// Prefixed returns the settings whose names begin with prefix, without it: a plug-in's own keys.
func (c *Config) Prefixed(prefix string) map[string]string {
	out := map[string]string{}
	for name, s := range c.others {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			out[rest] = s.text
		}
	}
	return out
}
