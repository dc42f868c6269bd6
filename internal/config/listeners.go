package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// An Endpoint is an address of a listener.
type Endpoint struct {
	Name             string // of the listener, in upper case
	Host             string // "" is every interface, or, advertised, this machine's own name
	Port             int    // 0 is any free one
	SecurityProtocol string // PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
}

// String returns the form that server.properties has.
func (e Endpoint) String() string { return e.Name + "://" + e.HostPort() }

// HostPort returns host:port, with brackets around an IPv6 address.
func (e Endpoint) HostPort() string {
	if strings.Contains(e.Host, ":") {
		return "[" + e.Host + "]:" + strconv.Itoa(e.Port)
	}
	return e.Host + ":" + strconv.Itoa(e.Port)
}

// A Voter is one of the fixed set of controllers in controller.quorum.voters.
type Voter struct {
	ID   int32
	Host string
	Port int
}

// A Server is an address of controller.quorum.bootstrap.servers.
type Server struct {
	Host string
	Port int
}

// network is all that a Config knows of roles and addresses.
type network struct {
	broker, controller    bool
	listeners             []Endpoint
	advertised            []Endpoint // of the broker's listeners
	advertisedControllers []Endpoint
	interBroker           string
	protocols             map[string]string // by listener name
	voters                []Voter
	servers               []Server
}

// NodeID returns node.id.
func (c *Config) NodeID() int32 { return int32(c.Int("node.id")) }

// IsBroker reports whether process.roles has broker.
func (c *Config) IsBroker() bool { return c.net.broker }

// IsController reports whether process.roles has controller.
func (c *Config) IsController() bool { return c.net.controller }

// Listeners returns every listener of this node, those of the controller included.
func (c *Config) Listeners() []Endpoint { return c.net.listeners }

// BrokerListeners returns the listeners that serve clients and other brokers.
func (c *Config) BrokerListeners() []Endpoint {
	return slices.DeleteFunc(slices.Clone(c.net.listeners), c.isController)
}

// ControllerListeners returns the listeners that this node's controller serves.
func (c *Config) ControllerListeners() []Endpoint {
	return slices.DeleteFunc(slices.Clone(c.net.listeners), func(e Endpoint) bool { return !c.isController(e) })
}

func (c *Config) isController(e Endpoint) bool {
	return slices.Contains(c.ControllerListenerNames(), e.Name)
}

// AdvertisedListeners returns the addresses to give to clients, one for each broker listener. An empty
// Host stands for this machine's own name.
func (c *Config) AdvertisedListeners() []Endpoint { return c.net.advertised }

// AdvertisedControllerListeners returns the addresses to give for this node's controller.
func (c *Config) AdvertisedControllerListeners() []Endpoint { return c.net.advertisedControllers }

// ControllerListenerNames returns controller.listener.names; brokers use the first.
func (c *Config) ControllerListenerNames() []string { return c.List("controller.listener.names") }

// InterBrokerListenerName returns the name of the listener over which brokers talk.
func (c *Config) InterBrokerListenerName() string { return c.net.interBroker }

// SecurityProtocol returns the protocol of a listener name; "" if the map has none.
func (c *Config) SecurityProtocol(listener string) string { return c.net.protocols[listener] }

// Voters returns controller.quorum.voters. A lone node that names none is its own voter, at its own
// controller listener.
func (c *Config) Voters() []Voter { return c.net.voters }

// BootstrapServers returns controller.quorum.bootstrap.servers.
func (c *Config) BootstrapServers() []Server { return c.net.servers }

// LoneNode reports whether this node is broker and controller and knows of no other.
func (c *Config) LoneNode() bool {
	n := &c.net
	if !n.broker || !n.controller || len(n.servers) > 1 {
		return false
	}
	for _, v := range n.voters {
		if v.ID != c.NodeID() {
			return false
		}
	}
	return len(n.servers) == 0 || c.isOwn(n.servers[0])
}

// isOwn reports whether s is one of this node's own controller listeners, as far as the names tell.
func (c *Config) isOwn(s Server) bool {
	for _, e := range slices.Concat(c.ControllerListeners(), c.net.advertisedControllers) {
		if e.Port == s.Port && (e.Host == s.Host || isLoopback(s.Host) && (isLoopback(e.Host) || e.Host == "" || e.Host == "0.0.0.0")) {
			return true
		}
	}
	return false
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// derive computes the network from the keys, and the defaults that depend on it.
func (c *Config) derive() []error {
	c.sameNodeID()
	roles := c.List("process.roles")
	c.net = network{broker: slices.Contains(roles, "broker"), controller: slices.Contains(roles, "controller")}
	c.defaultListeners()
	for _, step := range []func() error{
		c.deriveProtocols, c.deriveListeners, c.deriveInterBroker, c.deriveQuorum,
	} {
		if err := step(); err != nil {
			return []error{err}
		}
	}
	if c.LoneNode() {
		c.defaultsOfLoneNode()
	}
	return nil
}

// sameNodeID lets broker.id stand for node.id and the reverse. Source: KafkaConfig.populateSynonyms.
func (c *Config) sameNodeID() {
	node, broker := c.settings["node.id"], c.settings["broker.id"]
	switch {
	case c.IsSet("node.id") && !c.IsSet("broker.id"):
		broker = node
	case c.IsSet("broker.id") && !c.IsSet("node.id"):
		node = broker
	case !c.IsSet("node.id"):
		broker.value = node.value
	}
	c.settings["node.id"], c.settings["broker.id"] = node, broker
}

// defaultListeners gives an unset listeners key what the roles need. When listeners is set but neither
// the roles nor the controller listener names are, the controller that ottla has by default gets its
// default listener, for `--set listeners=PLAINTEXT://:9092` must not need to know of it.
func (c *Config) defaultListeners() {
	const broker, controller = "PLAINTEXT://127.0.0.1:9092", "CONTROLLER://127.0.0.1:9093"
	s := c.settings["listeners"]
	set := func(list ...string) {
		s.list, s.text = list, strings.Join(list, ",")
		c.settings["listeners"] = s
	}
	ownName := !c.IsSet("controller.listener.names")
	switch {
	case c.IsSet("listeners"):
		named := slices.ContainsFunc(s.list, func(l string) bool {
			return strings.HasPrefix(strings.ToUpper(l), "CONTROLLER://")
		})
		if ownName && !named && !c.IsSet("process.roles") {
			set(append(slices.Clone(s.list), controller)...)
		}
	case c.net.broker && !c.net.controller:
		set(broker)
	case c.net.controller && ownName && !c.net.broker:
		set(controller)
	case c.net.controller && !ownName:
		list := []string{c.ControllerListenerNames()[0] + "://127.0.0.1:9093"}
		if c.net.broker {
			list = append([]string{broker}, list...)
		}
		set(list...)
	}
}

var protocols = []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}

// deriveProtocols reads listener.security.protocol.map. Left alone, it lets controller listeners of any
// name be PLAINTEXT, unless a listener's name is that of another protocol.
func (c *Config) deriveProtocols() error {
	const key = "listener.security.protocol.map"
	c.net.protocols = map[string]string{}
	for _, pair := range splitList(c.String(key)) {
		name, protocol, ok := strings.Cut(pair, ":")
		protocol = strings.ToUpper(strings.TrimSpace(protocol))
		if !ok {
			return c.problem(key, fmt.Sprintf("Error parsing configuration property '%s': %q is not NAME:PROTOCOL", key, pair))
		}
		if !slices.Contains(protocols, protocol) {
			return c.problem(key, fmt.Sprintf("Invalid security protocol `%s` defined in %s (allowed: %s)", protocol, key, strings.Join(protocols, ", ")))
		}
		c.net.protocols[strings.ToUpper(strings.TrimSpace(name))] = protocol
	}
	if c.IsSet(key) {
		return nil
	}
	secured := func(name string) bool { return slices.Contains(protocols[1:], strings.ToUpper(name)) }
	for _, l := range c.List("listeners") {
		if name, _, _ := strings.Cut(l, "://"); secured(name) {
			return nil
		}
	}
	if slices.ContainsFunc(c.ControllerListenerNames(), secured) {
		return nil
	}
	for _, name := range c.ControllerListenerNames() {
		c.net.protocols[name] = "PLAINTEXT"
	}
	return nil
}

// deriveListeners reads listeners and advertised.listeners.
func (c *Config) deriveListeners() (err error) {
	if c.net.listeners, err = c.endpoints("listeners", true); err != nil {
		return err
	}
	advertised := c.net.listeners
	if !c.IsNull("advertised.listeners") {
		if advertised, err = c.endpoints("advertised.listeners", false); err != nil {
			return err
		}
	}
	for _, e := range advertised {
		if !c.isController(e) {
			c.net.advertised = append(c.net.advertised, e)
		}
	}
	for _, e := range c.ControllerListeners() {
		if i := slices.IndexFunc(advertised, func(a Endpoint) bool { return a.Name == e.Name }); i >= 0 {
			e = advertised[i]
		}
		c.net.advertisedControllers = append(c.net.advertisedControllers, e)
	}
	return nil
}

// endpointForm is NAME://host:port, with an IPv6 address in brackets. Source: SocketServerConfigs.
var endpointForm = regexp.MustCompile(`^(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)$`)

func (c *Config) endpoints(key string, distinctPorts bool) ([]Endpoint, error) {
	list := c.List(key)
	var out []Endpoint
	for _, text := range list {
		m := endpointForm.FindStringSubmatch(text)
		port, err := -1, error(nil)
		if m != nil {
			port, err = strconv.Atoi(m[3])
		}
		if m == nil || err != nil || port < 0 || port > 65535 {
			return nil, c.problem(key, fmt.Sprintf("Unable to parse %s to a broker endpoint (write NAME://host:port)", text))
		}
		e := Endpoint{Name: strings.ToUpper(m[1]), Host: m[2], Port: port}
		if e.SecurityProtocol = c.net.protocols[e.Name]; e.SecurityProtocol == "" {
			return nil, c.problem(key, fmt.Sprintf("No security protocol defined for listener %s (add %s:PLAINTEXT to listener.security.protocol.map)", e.Name, e.Name))
		}
		out = append(out, e)
	}
	return out, c.distinct(key, out, list, distinctPorts)
}

// distinct holds names and ports apart; two listeners may share a port if one is on IPv4 and the
// other on IPv6.
func (c *Config) distinct(key string, endpoints []Endpoint, list []string, ports bool) error {
	shown := "[" + strings.Join(list, ", ") + "]"
	for i, a := range endpoints {
		for _, b := range endpoints[:i] {
			if a.Name == b.Name {
				return c.problem(key, "Each listener must have a different name, listeners: "+shown)
			}
			if !ports || a.Port != b.Port || a.Port == 0 {
				continue
			}
			ipA, errA := netip.ParseAddr(a.Host)
			ipB, errB := netip.ParseAddr(b.Host)
			if errA != nil || errB != nil || ipA.Is4() == ipB.Is4() {
				return c.problem(key, "Each listener must have a different port unless exactly one listener has an IPv4 address and the other IPv6 address, listeners: "+shown+", port: "+strconv.Itoa(a.Port))
			}
		}
	}
	return nil
}

func (c *Config) deriveInterBroker() error {
	const name, protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
	if c.IsNull(name) {
		c.net.interBroker = c.String(protocol)
		return nil
	}
	if c.IsSet(protocol) {
		return c.problem(name, fmt.Sprintf("Only one of %s and %s should be set.", name, protocol))
	}
	c.net.interBroker = strings.ToUpper(c.String(name))
	if c.net.protocols[c.net.interBroker] == "" {
		return c.problem(name, fmt.Sprintf("Listener with name %s defined in %s not found in listener.security.protocol.map.", c.net.interBroker, name))
	}
	return nil
}

func (c *Config) deriveQuorum() (err error) {
	if c.net.voters, err = parseVoters(c.List("controller.quorum.voters")); err != nil {
		return c.problem("controller.quorum.voters", err.Error())
	}
	if c.net.servers, err = parseServers(c.List("controller.quorum.bootstrap.servers")); err != nil {
		return c.problem("controller.quorum.bootstrap.servers", err.Error())
	}
	if len(c.net.voters) > 0 || len(c.net.servers) > 0 {
		return nil
	}
	if own := c.net.advertisedControllers; c.net.broker && c.net.controller && len(own) > 0 {
		c.net.voters = []Voter{{ID: c.NodeID(), Host: own[0].Host, Port: own[0].Port}}
		return nil
	}
	return c.problem("controller.quorum.voters", "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap controllers or controller.quorum.voters must contain a parseable set of controllers.")
}

// defaultsOfLoneNode makes the internal topics fit on one node where nobody said otherwise.
func (c *Config) defaultsOfLoneNode() {
	for _, name := range []string{
		"offsets.topic.replication.factor", "transaction.state.log.replication.factor",
		"transaction.state.log.min.isr", "share.coordinator.state.topic.replication.factor",
		"share.coordinator.state.topic.min.isr",
	} {
		if !c.IsSet(name) {
			s := c.settings[name]
			s.integer, s.text = 1, "1"
			c.settings[name] = s
		}
	}
}

// refusals lists the listeners whose protocol is not built yet: this node's own, and those of the controllers that a
// broker without one would speak to.
func (n *network) refusals(c *Config) []error {
	var errs []error
	refuse := func(key, value, protocol string) {
		if protocol != "PLAINTEXT" {
			errs = append(errs, &RefusedError{Key: key, Value: value, Origin: c.Origin(key),
				Why: "its protocol " + protocol + " is not built yet, and plain text would be an open door"})
		}
	}
	for _, e := range n.listeners {
		refuse("listeners", e.String(), e.SecurityProtocol)
	}
	if !n.controller {
		for _, name := range c.ControllerListenerNames() {
			refuse("controller.listener.names", name, n.protocols[name])
		}
	}
	return errs
}

// problem is an error about the value of a key in the light of others.
func (c *Config) problem(key, sentence string) error {
	return &InvalidError{Key: key, Value: c.String(key), Problem: sentence, Origin: c.Origin(key), bare: true}
}

func parseVoters(list []string) ([]Voter, error) {
	var out []Voter
	for _, text := range list {
		if text == "" {
			continue
		}
		id, address, ok := strings.Cut(text, "@")
		n, err := strconv.ParseInt(id, 10, 32)
		if !ok || err != nil {
			return nil, wholeError{"Invalid configuration value for controller.quorum.voters. Each entry should be in the form `{id}@{host}:{port}`."}
		}
		s, ok := parseServer(address)
		if !ok {
			return nil, wholeError{fmt.Sprintf("Failed to parse host name from entry %s for the configuration controller.quorum.voters. Each entry should be in the form `{id}@{host}:{port}`.", text)}
		}
		out = append(out, Voter{int32(n), s.Host, s.Port})
	}
	return out, nil
}

func parseServers(list []string) ([]Server, error) {
	var out []Server
	for _, text := range list {
		if text == "" {
			continue
		}
		s, ok := parseServer(text)
		if !ok {
			return nil, wholeError{fmt.Sprintf(`Failed to parse host name from %s for the configuration controller.quorum.bootstrap.servers. Each entry should be in the form "{host}:{port}"`, text)}
		}
		out = append(out, s)
	}
	return out, nil
}

var serverForm = regexp.MustCompile(`^(?:[A-Za-z_]+://)?(?:\[([0-9a-fA-F:.%]+)\]|([0-9a-zA-Z\-._]+)):([0-9]+)$`)

func parseServer(text string) (Server, bool) {
	m := serverForm.FindStringSubmatch(text)
	if m == nil {
		return Server{}, false
	}
	port, err := strconv.ParseUint(m[3], 10, 16)
	return Server{m[1] + m[2], int(port)}, err == nil
}
