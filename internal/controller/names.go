package controller

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

const (
	maxTopicName  = 249
	metadataTopic = "__cluster_metadata"
)

// checkTopicName applies Kafka's rules for names of topics (Topic.validate): they become names of
// directories.
func checkTopicName(name string) error {
	switch {
	case name == "":
		return refuse(kerr.InvalidTopicException, "Topic name is invalid: the empty string is not allowed")
	case name == "." || name == "..":
		return refuse(kerr.InvalidTopicException, "Topic name is invalid: '.' or '..' is not allowed")
	case len(name) > maxTopicName:
		return refuse(kerr.InvalidTopicException, "Topic name is invalid: the length of '%s' is longer than the max allowed length %d", name, maxTopicName)
	}
	for _, c := range []byte(name) {
		if !legalInName(c) {
			return refuse(kerr.InvalidTopicException, "Topic name is invalid: '%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
		}
	}
	return nil
}

func legalInName(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// colliding returns an existing topic whose name differs from name only in '.' and '_', which names of metrics cannot
// tell apart, or "". Names are looked up from their longest prefix without either character.
func (t *turn) colliding(name string) string {
	i := strings.IndexAny(name, "._")
	if i < 0 {
		return ""
	}
	prefix, key := name[:i], strings.ReplaceAll(name, ".", "_")
	for topic := range t.image().TopicsFrom(prefix) {
		if !strings.HasPrefix(topic.Name, prefix) {
			return ""
		}
		if topic.Name != name && len(topic.Name) == len(name) && strings.ReplaceAll(topic.Name, ".", "_") == key {
			return topic.Name
		}
	}
	return ""
}
