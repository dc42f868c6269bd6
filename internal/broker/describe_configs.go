package broker

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/config"
	"ottla/internal/metadata"
)

// describeConfigs tells the effective configuration of topics, brokers, groups and client metrics subscriptions, and who
// set each value (ConfigHelper); and the levels of this node's loggers.
func (b *Broker) describeConfigs(ctx context.Context, req *kmsg.DescribeConfigsRequest) *kmsg.DescribeConfigsResponse {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	resp.Resources = []kmsg.DescribeConfigsResponseResource{}
	for i := range req.Resources {
		r := &req.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName, out.ErrorMessage = r.ResourceType, r.ResourceName, new(string)
		entries, err := b.describeConfig(ctx, r, config.Describe{Names: r.ConfigNames, Synonyms: req.IncludeSynonyms, Documentation: req.IncludeDocumentation})
		if err != nil {
			out.ErrorCode = code(err)
			if e := new(refusedError); errors.As(err, &e) {
				out.ErrorMessage = &e.text // Apache says nothing where the code says it all
			}
		}
		out.Configs = entries
		if entries == nil {
			out.Configs = []config.Entry{}
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

func (b *Broker) describeConfig(ctx context.Context, r *kmsg.DescribeConfigsRequestResource, d config.Describe) ([]config.Entry, error) {
	img := b.image()
	switch resource := (metadata.Resource{Type: metadata.ResourceType(r.ResourceType), Name: r.ResourceName}); resource.Type {
	case metadata.TopicConfig:
		if !b.authorizeTopic(ctx, auth.DescribeConfigs, resource.Name) {
			return nil, kerr.TopicAuthorizationFailed
		}
		if invalidTopicName(resource.Name) {
			return nil, kerr.InvalidTopicException
		}
		if img.TopicByName(resource.Name) == nil {
			return nil, kerr.UnknownTopicOrPartition
		}
		return b.config().DescribeTopic(img.Config(resource), d), nil
	case metadata.BrokerConfig:
		if !b.authorizeCluster(ctx, auth.DescribeConfigs) {
			return nil, kerr.ClusterAuthorizationFailed
		}
		return b.describeBrokerConfig(resource.Name, d)
	case metadata.GroupConfig:
		if !b.authorize(ctx, auth.DescribeConfigs, auth.Group, resource.Name) {
			return nil, kerr.GroupAuthorizationFailed
		}
		if resource.Name == "" {
			return nil, refusal(kerr.InvalidRequest, "Group name must not be empty")
		}
		return b.config().DescribeGroup(img.Config(resource), d), nil
	case metadata.ClientMetricsConfig:
		if !b.authorizeCluster(ctx, auth.DescribeConfigs) {
			return nil, kerr.ClusterAuthorizationFailed
		}
		if resource.Name == "" {
			return nil, refusal(kerr.InvalidRequest, "Client metrics subscription name must not be empty")
		}
		return config.DescribeClientMetrics(img.Config(resource), d), nil
	case brokerLoggerConfig:
		return b.describeLoggers(ctx, resource.Name, d)
	}
	return nil, refusal(kerr.InvalidRequest, "Resource type %d has no configuration that can be described.", r.ResourceType)
}

// describeBrokerConfig describes this broker, or with an empty name the defaults of all brokers. Only the broker itself
// knows what is in its file.
func (b *Broker) describeBrokerConfig(name string, d config.Describe) ([]config.Entry, error) {
	if name == "" {
		return b.config().DescribeClusterDefault(d), nil
	}
	if err := b.checkBrokerName("Broker", name); err != nil {
		return nil, err
	}
	return b.config().DescribeBroker(d), nil
}
