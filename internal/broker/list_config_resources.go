package broker

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/metadata"
)

// listConfigResources lists what has, or can have, a configuration (KIP-1142). Version 0 knows client metrics only.
func (b *Broker) listConfigResources(ctx context.Context, req *kmsg.ListConfigResourcesRequest) *kmsg.ListConfigResourcesResponse {
	resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	resp.ConfigResources = []kmsg.ListConfigResourcesResponseConfigResource{}
	if !b.authorizeCluster(ctx, auth.DescribeConfigs) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return resp
	}
	all := []metadata.ResourceType{metadata.TopicConfig, metadata.BrokerConfig, brokerLoggerConfig, metadata.ClientMetricsConfig, metadata.GroupConfig}
	wanted := all
	if req.Version == 0 {
		wanted = []metadata.ResourceType{metadata.ClientMetricsConfig}
	} else if len(req.ResourceTypes) > 0 {
		wanted = nil
		for _, t := range req.ResourceTypes {
			if !slices.Contains(all, metadata.ResourceType(t)) {
				resp.ErrorCode = kerr.UnsupportedVersion.Code
				return resp
			}
			wanted = append(wanted, metadata.ResourceType(t))
		}
	}
	img := b.image()
	for _, t := range wanted {
		for _, name := range resourceNames(img, t) {
			r := kmsg.NewListConfigResourcesResponseConfigResource()
			r.Name, r.Type = name, int8(t)
			resp.ConfigResources = append(resp.ConfigResources, r)
		}
	}
	return resp
}

// resourceNames lists the resources of a type: topics and brokers that exist, and anything else that has a setting.
func resourceNames(img *metadata.Image, t metadata.ResourceType) (names []string) {
	switch t {
	case metadata.TopicConfig:
		for topic := range img.Topics() {
			names = append(names, topic.Name)
		}
	case metadata.BrokerConfig, brokerLoggerConfig:
		for br := range img.Brokers() {
			names = append(names, metadata.BrokerResource(br.ID).Name)
		}
	default:
		for r := range img.Configs() {
			if r.Type == t {
				names = append(names, r.Name)
			}
		}
	}
	return names
}
