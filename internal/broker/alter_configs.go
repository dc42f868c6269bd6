package broker

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
)

// The two requests that alter configurations go to the controller, except what this broker itself has to refuse: only a
// broker knows which keys mean something to it, so a client asks each for its own (ConfigAdminManager).

// incrementalAlterConfigs changes single keys of resources (KIP-339).
func (b *Broker) incrementalAlterConfigs(ctx context.Context, req *kmsg.IncrementalAlterConfigsRequest) *kmsg.IncrementalAlterConfigsResponse {
	rest := *req
	rest.Resources = nil
	refused := make([]error, len(req.Resources))
	for i := range req.Resources {
		r := &req.Resources[i]
		if refused[i] = b.refuseOtherBroker(r.ResourceType, r.ResourceName); refused[i] == nil {
			rest.Resources = append(rest.Resources, *r)
		}
	}
	resp := b.forward(ctx, &rest).(*kmsg.IncrementalAlterConfigsResponse)
	answers := resp.Resources
	resp.Resources = nil
	for i := range req.Resources {
		if refused[i] == nil {
			resp.Resources, answers = append(resp.Resources, answers[0]), answers[1:]
			continue
		}
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
		out.ErrorCode, out.ErrorMessage = codeAndText(refused[i])
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

// alterConfigs replaces all that is set on resources; clients before KIP-339 know nothing else.
func (b *Broker) alterConfigs(ctx context.Context, req *kmsg.AlterConfigsRequest) *kmsg.AlterConfigsResponse {
	rest := *req
	rest.Resources = nil
	refused := make([]error, len(req.Resources))
	for i := range req.Resources {
		r := &req.Resources[i]
		if refused[i] = b.refuseOtherBroker(r.ResourceType, r.ResourceName); refused[i] == nil {
			rest.Resources = append(rest.Resources, *r)
		}
	}
	resp := b.forward(ctx, &rest).(*kmsg.AlterConfigsResponse)
	answers := resp.Resources
	resp.Resources = nil
	for i := range req.Resources {
		if refused[i] == nil {
			resp.Resources, answers = append(resp.Resources, answers[0]), answers[1:]
			continue
		}
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
		out.ErrorCode, out.ErrorMessage = codeAndText(refused[i])
		resp.Resources = append(resp.Resources, out)
	}
	return resp
}

// refuseOtherBroker says why the configuration of a broker is not this one's to change.
func (b *Broker) refuseOtherBroker(t kmsg.ConfigResourceType, name string) error {
	if metadata.ResourceType(t) != metadata.BrokerConfig || name == "" {
		return nil
	}
	return b.checkBrokerName("Node", name)
}

// checkBrokerName says why a broker resource's name is not this broker's, in Apache's words for it.
func (b *Broker) checkBrokerName(what, name string) error {
	if _, err := strconv.ParseInt(name, 10, 32); err != nil {
		return refusal(kerr.InvalidRequest, "%s id must be an integer, but it is: %s", what, name)
	}
	if name != metadata.BrokerResource(b.nodeID).Name {
		return refusal(kerr.InvalidRequest, "Unexpected broker id, expected %d or empty string, but received %s", b.nodeID, name)
	}
	return nil
}
