package broker

import (
	"strings"

	"ottla/internal/metadata"
)

// Kafka's internal topics, which only coordinators write to (Topic.INTERNAL_TOPICS).
const (
	offsetsTopic      = "__consumer_offsets"
	transactionsTopic = "__transaction_state"
	shareStateTopic   = "__share_group_state"
)

func isInternal(topic string) bool {
	return topic == offsetsTopic || topic == transactionsTopic || topic == shareStateTopic
}

// maxTopicName is the longest name of a topic, in bytes, so that its directories' names fit a file system.
const maxTopicName = 249

// invalidTopicName reports whether no topic can have this name (Topic.validate): names become names of directories.
func invalidTopicName(name string) bool {
	return name == "" || name == "." || name == ".." || len(name) > maxTopicName || strings.ContainsFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '.' || r == '_' || r == '-')
	})
}

// topicIn finds a topic as requests name it: by id where the version has ids, else by name.
func topicIn(img *metadata.Image, byID bool, name string, id [16]byte) *metadata.Topic {
	if byID {
		return img.Topic(id)
	}
	return img.TopicByName(name)
}

// each maps a list; the result is never nil, for kmsg writes nil as null and some clients stumble over that.
func each[T, U any](in []T, f func(T) U) []U {
	out := make([]U, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	return out
}
