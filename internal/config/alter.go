package config

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// An AlterError is what a client is told about a change that was not made. Code and message are those
// of Apache Kafka.
type AlterError struct {
	Code    int16
	Message string
}

func (e *AlterError) Error() string { return kerr.ErrorForCode(e.Code).Error() + " " + e.Message }

func alterError(code *kerr.Error, format string, args ...any) *AlterError {
	return &AlterError{Code: code.Code, Message: fmt.Sprintf(format, args...)}
}

// orAlterError turns a complaint about a value into the answer with the given code.
func orAlterError(err error, code *kerr.Error) *AlterError {
	var bad *InvalidError
	if errors.As(err, &bad) {
		return &AlterError{Code: code.Code, Message: bad.Kafka()}
	}
	return &AlterError{Code: code.Code, Message: err.Error()}
}

// IsList reports whether APPEND and SUBTRACT make sense for a key of the resource type.
func IsList(resource kmsg.ConfigResourceType, name string) bool {
	k := lookupIn(resource, name)
	return k != nil && k.Type == List
}

// IsSensitive reports whether values of the key must not be logged or answered. Unknown keys are
// sensitive, for nobody knows what they hold.
func IsSensitive(resource kmsg.ConfigResourceType, name string) bool {
	k := lookupIn(resource, name)
	return k == nil || k.Sensitive()
}

func lookupIn(resource kmsg.ConfigResourceType, name string) *Key {
	switch resource {
	case kmsg.ConfigResourceTypeBroker:
		k, _ := Lookup(name)
		return k
	case kmsg.ConfigResourceTypeTopic:
		return topicTable.find(name)
	case kmsg.ConfigResourceTypeGroupConfig:
		return groupTable.find(name)
	case kmsg.ConfigResourceTypeClientMetrics:
		return clientMetricsTable.find(name)
	}
	return nil
}

// ValidateTopic checks all that a topic would set for itself after a change, or at its creation. The
// error is an *AlterError. Source: LogConfig.validate, ControllerConfigurationValidator.
func (c *Config) ValidateTopic(overrides map[string]string) error {
	values, err := validateAll(topicTable, overrides, func(name string) *AlterError {
		return alterError(kerr.InvalidConfig, "Unknown topic config name: %s", name)
	})
	if err != nil {
		return err
	}
	number := func(name string) int64 {
		if v, ok := values[name]; ok {
			return v.integer
		}
		return c.topic.settings[name].integer
	}
	if low, high := number("min.compaction.lag.ms"), number("max.compaction.lag.ms"); low > high {
		return alterError(kerr.InvalidConfig, "conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)", low, high)
	}
	if values["remote.storage.enable"].boolean && !c.Bool("remote.log.storage.system.enable") {
		return alterError(kerr.InvalidConfig, "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.")
	}
	return nil
}

// validateAll parses every setting; unknown makes the error for a name that is not in the table.
func validateAll(t *table, overrides map[string]string, unknown func(name string) *AlterError) (map[string]value, error) {
	values := map[string]value{}
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		if t.find(name) == nil {
			return nil, unknown(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		v, err := t.find(name).parse(overrides[name])
		if err != nil {
			return nil, orAlterError(err, kerr.InvalidConfig)
		}
		values[name] = v
	}
	return values, nil
}

// ValidateGroup checks all that a group would set for itself after a change. The error is an
// *AlterError. Source: GroupConfig.validate.
func (c *Config) ValidateGroup(overrides map[string]string) error {
	values, err := validateAll(groupTable, overrides, func(name string) *AlterError {
		return alterError(kerr.InvalidConfig, "Unknown group config name: %s", name)
	})
	if err != nil {
		return err
	}
	if tags := splitList(overrides["streams.rack.aware.assignment.tags"]); len(withoutRepeats(tags)) < len(tags) {
		return alterError(kerr.InvalidConfig, "streams.rack.aware.assignment.tags must not contain duplicate tag keys.")
	}
	if err := c.withinGroupLimits(values); err != nil {
		return err
	}
	if name, ok := values["streams.assignor.name"]; ok && !slices.Contains(c.List("group.streams.assignors"), name.text) {
		return alterError(kerr.InvalidConfig, "streams.assignor.name '%s' is not a registered task assignor. Registered assignors are: [%s].",
			name.text, strings.Join(c.List("group.streams.assignors"), ", "))
	}
	if strings.HasPrefix(values["errors.deadletterqueue.topic.name"].text, "__") {
		return alterError(kerr.InvalidConfig, "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'")
	}
	return c.sessionsExceedHeartbeats(values)
}

// withinGroupLimits holds a group's numbers against the group.*.min.… and max.… keys of the broker.
func (c *Config) withinGroupLimits(values map[string]value) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		kind, rest, _ := strings.Cut(name, ".")
		low, high := brokerTable.find("group."+kind+".min."+rest), brokerTable.find("group."+kind+".max."+strings.TrimPrefix(rest, "num."))
		n := values[name].integer
		switch {
		case low != nil && high != nil:
			if from, to := c.Long(low.Name), c.Long(high.Name); n < from || n > to {
				return alterError(kerr.InvalidConfig, "%s must be in the range %d to %d inclusive.", name, from, to)
			}
		case high != nil && n > c.Long(high.Name):
			return alterError(kerr.InvalidConfig, "%s must be less than or equal to %d", name, c.Long(high.Name))
		case low != nil && n < c.Long(low.Name):
			return alterError(kerr.InvalidConfig, "%s must be greater than or equal to %d", name, c.Long(low.Name))
		}
	}
	return nil
}

func (c *Config) sessionsExceedHeartbeats(values map[string]value) error {
	number := func(name string) int64 {
		if v, ok := values[name]; ok {
			return v.integer
		}
		return c.Long("group." + name)
	}
	for _, kind := range []string{"consumer", "share", "streams"} {
		session, heartbeat := kind+".session.timeout.ms", kind+".heartbeat.interval.ms"
		if number(session) <= number(heartbeat) {
			return alterError(kerr.InvalidConfig, "%s must be greater than %s", session, heartbeat)
		}
	}
	return nil
}

// clientMatchers are the names that a client metrics subscription may match by. Source: KIP-714.
var clientMatchers = []string{
	"client_id", "client_instance_id", "client_software_name", "client_software_version",
	"client_source_address", "client_source_port",
}

// ValidateClientMetrics checks all that a client metrics subscription would be after a change. The
// error is an *AlterError. Source: ClientMetricsConfigs.validate.
func ValidateClientMetrics(overrides map[string]string) error {
	values, err := validateAll(clientMetricsTable, overrides, func(name string) *AlterError {
		return alterError(kerr.InvalidRequest, "Unknown client metrics configuration: %s", name)
	})
	if err != nil {
		return err
	}
	if v, ok := values["interval.ms"]; ok && (v.integer < 100 || v.integer > 3_600_000) {
		return alterError(kerr.InvalidRequest, "Invalid value %d for interval.ms, interval must be between 100 and 3600000 (1 hour)", v.integer)
	}
	for _, pattern := range values["match"].list {
		name, expr, ok := strings.Cut(pattern, "=")
		_, err := regexp.Compile(expr)
		if !ok || err != nil || !slices.Contains(clientMatchers, strings.TrimSpace(name)) {
			return alterError(kerr.InvalidConfig, "Illegal client matching pattern: %s", pattern)
		}
	}
	return nil
}

// ValidateBroker checks what would be set dynamically for one node, or for the whole cluster if
// perBroker is false, after a change. c is the node's present configuration. The error is an
// *AlterError. Unknown keys pass, as in Kafka: a plug-in may know them. Source: DynamicBrokerConfig.
func (c *Config) ValidateBroker(overrides map[string]string, perBroker bool) error {
	var readOnly, listenerOnly, brokerOnly []string
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		k, known := Lookup(name)
		switch {
		case !known:
		case k.Mode == ReadOnly:
			readOnly = append(readOnly, name)
		case k.Name == name && slices.Contains(listenerSecurity, name):
			listenerOnly = append(listenerOnly, name)
		case !perBroker && k.Mode == PerBroker:
			brokerOnly = append(brokerOnly, name)
		}
	}
	for _, bad := range []struct {
		names []string
		why   string
	}{
		{readOnly, "Cannot update these configs dynamically"},
		{listenerOnly, "These security configs can be dynamically updated only per-listener using the listener prefix"},
		{brokerOnly, "Cannot update these configs at default cluster level, broker id must be specified"},
	} {
		if len(bad.names) > 0 {
			return alterError(kerr.InvalidRequest, "%s: [%s]", bad.why, strings.Join(bad.names, ", "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		if err := c.validateDynamic(name, overrides[name]); err != nil {
			return err
		}
	}
	return nil
}

// listenerSecurity are the keys that are dynamic behind a listener's prefix only.
var listenerSecurity = []string{
	"ssl.key.password", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location",
	"ssl.keystore.password", "ssl.keystore.type", "ssl.truststore.certificates", "ssl.truststore.location",
	"ssl.truststore.password", "ssl.truststore.type",
}

// atStart are keys that Kafka lets change at run time and that ottla heeds when it starts only, and then those of the file. A
// change is refused rather than taken without effect.
var atStart = []string{"listener.security.protocol.map", "listeners"}

func (c *Config) validateDynamic(name, text string) error {
	k, known := Lookup(name)
	if !known {
		return nil
	}
	v, err := k.parse(text)
	if err != nil {
		return orAlterError(err, kerr.InvalidRequest)
	}
	if k.State == Refused && v.text != "" && v.text != k.defaultValue().text {
		return alterError(kerr.InvalidRequest, "%s: %s", name, k.Why)
	}
	if slices.Contains(atStart, name) && v.text != c.String(name) {
		return alterError(kerr.InvalidRequest, "%s cannot be changed while the broker runs yet: set it in the broker's file and start it again", name)
	}
	if name == "max.connections.per.ip.overrides" {
		if _, err := parseOverrides(text); err != nil {
			return orAlterError(err, kerr.InvalidRequest)
		}
	}
	if strings.HasPrefix(name, "num.") && strings.Contains(name, ".threads") || name == "num.replica.fetchers" || name == "background.threads" {
		return c.validateThreads(name, v.integer)
	}
	return nil
}

// validateThreads keeps a number of threads within half and double of what it is. Source:
// DynamicThreadPool.
func (c *Config) validateThreads(name string, n int64) error {
	now := c.Long(name)
	problem := ""
	switch {
	case n < now/2:
		problem = "value should be at least half the current value "
	case n > now*2:
		problem = "value should not be greater than double the current value "
	default:
		return nil
	}
	return alterError(kerr.InvalidRequest, "Dynamic thread count update validation failed for %s=%d, %s%d", name, n, problem, now)
}

// BrokerResource reads the resource name of a broker: a node id, or "" for the cluster default, then ok
// is true and id is -1. The error is an *AlterError.
func BrokerResource(name string) (id int32, clusterDefault bool, err error) {
	if name == "" {
		return -1, true, nil
	}
	n, parseErr := strconv.ParseInt(name, 10, 32)
	if parseErr != nil {
		return 0, false, alterError(kerr.InvalidRequest, "Unable to parse broker name as a base 10 number.")
	}
	if n < 0 {
		return 0, false, alterError(kerr.InvalidRequest, "Invalid negative broker ID.")
	}
	return int32(n), false, nil
}
