package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// crossCheck holds keys against each other, in Kafka's words. Source: KafkaConfig.validateValues,
// GroupCoordinatorConfig.
func (c *Config) crossCheck() []error {
	var errs []error
	need := func(ok bool, key, sentence string) {
		if !ok {
			errs = append(errs, c.problem(key, sentence))
		}
	}
	need(c.String("node.id") == c.String("broker.id"), "broker.id",
		"`node.id` and `broker.id` must be set to the same value. `broker.id` is deprecated, please use `node.id` instead.")
	c.checkRoles(need)
	c.checkLogs(need)
	c.checkGroups(need)
	need(c.Long("replica.fetch.wait.max.ms") <= c.Long("replica.socket.timeout.ms"), "replica.socket.timeout.ms",
		"replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary socket timeouts")
	need(c.Long("replica.fetch.wait.max.ms") <= c.Long("replica.lag.time.max.ms"), "replica.fetch.wait.max.ms",
		"replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent frequent changes in ISR")
	queued := c.Long("queued.max.request.bytes")
	need(queued <= 0 || queued >= c.Long("socket.request.max.bytes"), "queued.max.request.bytes",
		"queued.max.request.bytes must be larger or equal to socket.request.max.bytes")
	need(c.Int("max.connections.per.ip") > 0 || c.String("max.connections.per.ip.overrides") != "", "max.connections.per.ip",
		"max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.")
	if _, err := parseOverrides(c.String("max.connections.per.ip.overrides")); err != nil {
		need(false, "max.connections.per.ip.overrides", err.Error())
	}
	codec := c.Int("offsets.topic.compression.codec")
	need(codec >= 0 && codec <= 4, "offsets.topic.compression.codec", "Unknown compression type id: "+strconv.Itoa(codec))
	return errs
}

func (c *Config) checkRoles(need func(ok bool, key, sentence string)) {
	if !c.IsSet("process.roles") {
		zk := c.others["zookeeper.connect"]
		need(zk.text == "", "process.roles", fmt.Sprintf("zookeeper.connect=%s is of a broker that keeps its metadata in ZooKeeper; migrate that cluster to KRaft with Apache Kafka 3.9 first, or set process.roles to start a new one here", zk.text))
	}
	own := strconv.Itoa(int(c.NodeID()))
	ids := make([]string, 0, len(c.net.voters))
	for _, v := range c.net.voters {
		ids = append(ids, strconv.Itoa(int(v.ID)))
	}
	set := "Set(" + strings.Join(ids, ", ") + ")"
	voters, names := len(ids) > 0, c.ControllerListenerNames()
	switch {
	case !c.net.controller:
		need(!slices.Contains(ids, own), "controller.quorum.voters",
			"If process.roles contains just the 'broker' role, the node id "+own+" must not be included in the set of voters controller.quorum.voters="+set)
		need(len(c.ControllerListeners()) == 0, "controller.listener.names",
			"controller.listener.names must not contain a value appearing in the 'listeners' configuration when running KRaft with just the broker role")
		for _, name := range names {
			need(c.net.protocols[name] != "", "controller.listener.names", fmt.Sprintf("Controller listener with name %s defined in controller.listener.names not found in listener.security.protocol.map  (an explicit security mapping for each controller listener is required if listener.security.protocol.map is non-empty, or if there are security protocols other than PLAINTEXT in use)", name))
		}
	case !c.net.broker:
		need(len(c.BrokerListeners()) == 0, "listeners",
			"The listeners config must only contain KRaft controller listeners from controller.listener.names when process.roles=controller")
		fallthrough
	default:
		need(!voters || slices.Contains(ids, own), "controller.quorum.voters",
			"If process.roles contains the 'controller' role, the node id "+own+" must be included in the set of voters controller.quorum.voters="+set)
		listening := c.ControllerListeners()
		need(len(listening) > 0, "controller.listener.names",
			"controller.listener.names must contain at least one value appearing in the 'listeners' configuration when running the KRaft controller role")
		need(len(listening) == 0 || len(listening) == len(names), "controller.listener.names",
			"controller.listener.names must only contain values appearing in the 'listeners' configuration when running the KRaft controller role")
	}
	if c.net.broker {
		c.checkAdvertised(need)
	}
}

func (c *Config) checkAdvertised(need func(ok bool, key, sentence string)) {
	if len(c.net.advertised) == 0 {
		need(false, "advertised.listeners", "There must be at least one broker advertised listener. Perhaps all listeners appear in controller.listener.names?")
		return
	}
	var names []string
	for _, e := range c.net.advertised {
		names = append(names, e.Name)
		need(e.Host != "0.0.0.0", "advertised.listeners",
			"advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.")
		need(slices.ContainsFunc(c.net.listeners, func(l Endpoint) bool { return l.Name == e.Name }), "advertised.listeners",
			fmt.Sprintf("advertised.listeners names %s, which listeners does not have", e.Name))
	}
	need(slices.Contains(names, c.net.interBroker), "inter.broker.listener.name",
		"inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options based on currently configured listeners are "+strings.Join(names, ","))
}

func (c *Config) checkLogs(need func(ok bool, key, sentence string)) {
	ms := c.retentionMs()
	need(ms == -1 || ms >= 1, "log.retention.ms", "log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
	need(c.IsNull("log.roll.ms") || c.Long("log.roll.ms") >= 1, "log.roll.ms", "log.roll.ms must be greater than or equal to 1")
	need(c.IsNull("log.roll.jitter.ms") || c.Long("log.roll.jitter.ms") >= 0, "log.roll.jitter.ms", "log.roll.jitter.ms must be greater than or equal to 0")
	threads := int64(max(c.Int("log.cleaner.threads"), 1))
	need(c.Long("log.cleaner.dedupe.buffer.size")/threads > 1<<20, "log.cleaner.dedupe.buffer.size",
		"log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.")
	dirs := c.LogDirs()
	for _, dir := range c.List("cordoned.log.dirs") {
		need(dir == "*" || slices.Contains(dirs, dir), "cordoned.log.dirs",
			"All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : "+dir)
	}
}

func (c *Config) checkGroups(need func(ok bool, key, sentence string)) {
	need(slices.Contains(c.List("group.coordinator.rebalance.protocols"), "classic"), "group.coordinator.rebalance.protocols",
		"Disabling the 'classic' protocol is not supported.")
	for _, kind := range []string{"consumer", "share", "streams"} {
		for _, what := range []string{"heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"} {
			name := func(infix string) string { return "group." + kind + "." + infix + what }
			need(c.Int(name("")) <= c.Int(name("max.")), name(""), name("")+" must be less than or equal to "+name("max."))
			need(c.Int(name("")) >= c.Int(name("min.")), name(""), name("")+" must be greater than or equal to "+name("min."))
		}
		heartbeat, session := "group."+kind+".heartbeat.interval.ms", "group."+kind+".session.timeout.ms"
		need(c.Int(heartbeat) < c.Int(session), heartbeat, heartbeat+" must be less than "+session)
	}
}

// parseOverrides reads max.connections.per.ip.overrides.
func parseOverrides(text string) (map[string]int, error) {
	out := map[string]int{}
	for _, pair := range splitList(text) {
		i := strings.LastIndexByte(pair, ':')
		if i < 0 {
			return nil, said("Error parsing configuration property 'max.connections.per.ip.overrides': %q is not host:count", pair)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(pair[i+1:]), 10, 32)
		if err != nil || n < 0 {
			return nil, said("Error parsing configuration property 'max.connections.per.ip.overrides': %q is not host:count", pair)
		}
		out[strings.TrimSpace(pair[:i])] = int(n)
	}
	return out, nil
}

// ConnectionsPerIPOverrides returns max.connections.per.ip.overrides: limits by address or host name.
func (c *Config) ConnectionsPerIPOverrides() map[string]int {
	m, err := parseOverrides(c.String("max.connections.per.ip.overrides"))
	if err != nil {
		return nil // an invalid dynamic value has no effect; a static one did not pass Parse
	}
	return m
}

// LogDirs returns the log directories: log.dirs, or log.dir if that is unset.
func (c *Config) LogDirs() []string {
	if c.IsNull("log.dirs") {
		return c.List("log.dir")
	}
	return c.List("log.dirs")
}

// MetadataLogDir returns the directory of the metadata log.
func (c *Config) MetadataLogDir() string {
	if c.IsNull("metadata.log.dir") {
		return c.LogDirs()[0]
	}
	return c.String("metadata.log.dir")
}

// retentionMs is log.retention.ms, or .minutes, or .hours, whichever is set first; negative is -1.
func (c *Config) retentionMs() int64 {
	ms := c.firstSet(Synonym{"log.retention.ms", 1}, Synonym{"log.retention.minutes", 60_000}, Synonym{"log.retention.hours", 3_600_000})
	return max(ms, -1)
}

// firstSet returns the first of the keys that is not null, in units of the first.
func (c *Config) firstSet(keys ...Synonym) int64 {
	for _, s := range keys {
		if c.IsNull(s.Name) {
			continue
		}
		n := c.Long(s.Name)
		if s.Factor > 1 && n > math.MaxInt64/s.Factor {
			return math.MaxInt64
		}
		return n * s.Factor
	}
	return 0
}
