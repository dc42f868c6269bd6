package config

import (
	"regexp"
	"slices"
	"strings"
)

// ReservedEnv are the variables beginning with OTTLA_ that the command line reads for itself; they set
// no key.
var ReservedEnv = []string{"OTTLA_BOOTSTRAP_SERVER", "OTTLA_COMMAND_CONFIG", "OTTLA_PROFILE"}

// imageEnv are the variables beginning with KAFKA_ that steer the scripts of Apache's image rather than
// the broker. Source: the image's README, docker/examples.
var imageEnv = []string{
	"KAFKA_DEBUG", "KAFKA_GC_LOG_OPTS", "KAFKA_HEAP_OPTS", "KAFKA_HOME", "KAFKA_JMX_HOSTNAME", "KAFKA_JMX_OPTS",
	"KAFKA_JMX_PORT", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_LOG4J_CMD_OPTS", "KAFKA_LOG4J_LOGGERS",
	"KAFKA_LOG4J_OPTS", "KAFKA_LOG4J_ROOT_LOGLEVEL", "KAFKA_MODE", "KAFKA_OPTS",
	"KAFKA_TOOLS_LOG4J_LOGLEVEL", "KAFKA_VERSION",
}

// serviceEnv matches what Kubernetes and old Docker links put into the environment for a service that
// happens to be named kafka or ottla, such as KAFKA_PORT=tcp://10.0.0.1:9092.
var serviceEnv = regexp.MustCompile(`^(KAFKA|OTTLA)_(SERVICE_(HOST|PORT)(_.*)?|PORT(_[0-9]+_(TCP|UDP)(_.*)?)?)$`)

type envSetting struct{ name, key, text string }

// readEnv maps environment variables to keys: KAFKA_… as Apache's image does, then OTTLA_…, which wins.
// CLUSTER_ID, the image's name for the id to format with, counts when any KAFKA_ variable sets a key.
func readEnv(env []string) []envSetting {
	var kafka, ottla []envSetting
	cluster := ""
	for _, e := range env {
		name, text, _ := strings.Cut(e, "=")
		switch {
		case name == "CLUSTER_ID":
			cluster = text
		case slices.Contains(imageEnv, name), slices.Contains(ReservedEnv, name), serviceEnv.MatchString(name):
		case strings.HasPrefix(name, "KAFKA_"):
			kafka = append(kafka, envSetting{name, envKey(name[len("KAFKA_"):]), text})
		case strings.HasPrefix(name, "OTTLA_"):
			ottla = append(ottla, envSetting{name, ownEnvKey(name[len("OTTLA_"):]), text})
		}
	}
	if cluster != "" && len(kafka) > 0 {
		kafka = append(kafka, envSetting{"CLUSTER_ID", "ottla.cluster.id", cluster})
	}
	return append(kafka, ottla...)
}

// envKey undoes the image's mapping: one underscore is a dot, two are an underscore, three a dash.
func envKey(name string) string {
	return strings.NewReplacer("___", "-", "__", "_", "_", ".").Replace(strings.ToLower(name))
}

// ownEnvKey lets OTTLA_MEMORY_LIMIT mean ottla.memory.limit, beside OTTLA_NUM_PARTITIONS for
// num.partitions.
func ownEnvKey(name string) string {
	key := envKey(name)
	if own := "ottla." + key; brokerTable.find(key) == nil && brokerTable.find(own) != nil {
		return own
	}
	return key
}
