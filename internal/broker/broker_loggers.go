package broker

import (
	"context"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/config"
	"ottla/internal/metadata"
)

// brokerLoggerConfig is a resource type that only exists in requests: the log levels of one node. They are described and
// altered by the node itself and kept nowhere. Source: KIP-412, KIP-919; ConfigHelper, RuntimeLoggerManager.
const brokerLoggerConfig metadata.ResourceType = 8

// describeLoggers tells the level that holds for each logger of this node.
func (b *Broker) describeLoggers(ctx context.Context, name string, d config.Describe) ([]config.Entry, error) {
	if !b.authorizeCluster(ctx, auth.DescribeConfigs) {
		return nil, kerr.ClusterAuthorizationFailed
	}
	if name == "" {
		return nil, refusal(kerr.InvalidRequest, "Broker id must not be empty")
	}
	switch id, err := strconv.ParseInt(name, 10, 32); {
	case err != nil:
		return nil, refusal(kerr.InvalidRequest, "Broker id must be an integer, but it is: %s", name)
	case int32(id) != b.nodeID:
		return nil, refusal(kerr.InvalidRequest, "Unexpected broker id, expected %d but received %s", b.nodeID, name)
	}
	entries := []config.Entry{}
	for _, logger := range loggerNames {
		if len(d.Names) > 0 && !slices.Contains(d.Names, logger) {
			continue
		}
		e := kmsg.NewDescribeConfigsResponseResourceConfig()
		level := b.loggers.level(logger)
		e.Name, e.Value, e.Source, e.Documentation = logger, &level, kmsg.ConfigSourceDynamicBrokerLoggerConfig, new(string)
		entries = append(entries, e)
	}
	return entries, nil
}

// alterLoggers changes the levels of loggers of this node, all or, if one of the changes is refused, none.
func (b *Broker) alterLoggers(ctx context.Context, r *kmsg.IncrementalAlterConfigsRequestResource, validateOnly bool) error {
	named := map[string]bool{}
	for _, c := range r.Configs {
		if named[c.Name] {
			return refusal(kerr.InvalidRequest, "Error due to duplicate config keys")
		}
		named[c.Name] = true
	}
	for _, c := range r.Configs {
		if c.Value == nil && c.Op != kmsg.IncrementalAlterConfigOpDelete {
			return refusal(kerr.InvalidRequest, "Null value not supported for : %s", c.Name)
		}
	}
	if !b.authorizeCluster(ctx, auth.AlterConfigs) {
		return kerr.ClusterAuthorizationFailed
	}
	switch id, err := strconv.ParseInt(r.ResourceName, 10, 32); {
	case err != nil:
		return refusal(kerr.InvalidRequest, "Node id must be an integer, but it is: %s", r.ResourceName)
	case int32(id) != b.nodeID:
		return refusal(kerr.InvalidRequest, "Unexpected node id. Expected %d, but received %s", b.nodeID, r.ResourceName)
	}
	for _, c := range r.Configs {
		if err := b.checkLogger(&c); err != nil {
			return err
		}
	}
	if validateOnly {
		return nil
	}
	for _, c := range r.Configs {
		if c.Op == kmsg.IncrementalAlterConfigOpDelete {
			b.loggers.set(c.Name, nil)
		} else {
			b.loggers.set(c.Name, &logLevels[levelNamed(*c.Value)].level)
		}
		b.logger.Info("log level", "name", c.Name, "level", b.loggers.level(c.Name))
	}
	return nil
}

// checkLogger says what is wrong with one change.
func (b *Broker) checkLogger(c *kmsg.IncrementalAlterConfigsRequestResourceConfig) error {
	switch c.Op {
	case kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete:
	case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
		return refusal(kerr.InvalidRequest, "%s operation is not allowed for the BROKER_LOGGER resource", c.Op)
	default:
		return refusal(kerr.InvalidRequest, "Unknown operation type %d is not allowed for the BROKER_LOGGER resource", c.Op)
	}
	switch {
	case !b.loggers.has(c.Name):
		return refusal(kerr.InvalidConfig, "Logger %s does not exist!", c.Name)
	case c.Op == kmsg.IncrementalAlterConfigOpDelete && c.Name == rootLogger:
		return refusal(kerr.InvalidRequest, "Removing the log level of the root logger is not allowed")
	case c.Op == kmsg.IncrementalAlterConfigOpSet && levelNamed(*c.Value) < 0:
		return refusal(kerr.InvalidConfig, "Cannot set the log level of %s to %s as it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN", c.Name, *c.Value)
	}
	return nil
}

// levelNamed finds a level in logLevels, -1 for none.
func levelNamed(name string) int {
	return slices.IndexFunc(logLevels, func(l logLevel) bool { return l.name == name })
}
