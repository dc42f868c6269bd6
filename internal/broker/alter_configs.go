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
	type resource = kmsg.IncrementalAlterConfigsRequestResource
	type answer = kmsg.IncrementalAlterConfigsResponseResource
	var resp *kmsg.IncrementalAlterConfigsResponse
	answers := answerEach(req.Resources,
		func(r *resource) error { return b.refuseOtherBroker(r.ResourceType, r.ResourceName) },
		func(rest []resource) []answer {
			forwarded := *req
			forwarded.Resources = rest
			resp = b.forward(ctx, &forwarded).(*kmsg.IncrementalAlterConfigsResponse)
			return resp.Resources
		},
		func(r *resource, err error) answer {
			out := kmsg.NewIncrementalAlterConfigsResponseResource()
			out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
			out.ErrorCode, out.ErrorMessage = codeAndText(err)
			return out
		})
	resp.Resources = answers
	return resp
}

// alterConfigs replaces all that is set on resources; clients before KIP-339 know nothing else.
func (b *Broker) alterConfigs(ctx context.Context, req *kmsg.AlterConfigsRequest) *kmsg.AlterConfigsResponse {
	type resource = kmsg.AlterConfigsRequestResource
	type answer = kmsg.AlterConfigsResponseResource
	var resp *kmsg.AlterConfigsResponse
	answers := answerEach(req.Resources,
		func(r *resource) error { return b.refuseOtherBroker(r.ResourceType, r.ResourceName) },
		func(rest []resource) []answer {
			forwarded := *req
			forwarded.Resources = rest
			resp = b.forward(ctx, &forwarded).(*kmsg.AlterConfigsResponse)
			return resp.Resources
		},
		func(r *resource, err error) answer {
			out := kmsg.NewAlterConfigsResponseResource()
			out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
			out.ErrorCode, out.ErrorMessage = codeAndText(err)
			return out
		})
	resp.Resources = answers
	return resp
}

// answerEach answers resources in their order: those that are refused here by refusal, the others by what forward answers,
// in its order.
func answerEach[R, A any](resources []R, refuse func(*R) error, forward func([]R) []A, refusal func(*R, error) A) []A {
	var rest []R
	refused := make([]error, len(resources))
	for i := range resources {
		if refused[i] = refuse(&resources[i]); refused[i] == nil {
			rest = append(rest, resources[i])
		}
	}
	forwarded := forward(rest)
	answers := make([]A, 0, len(resources))
	for i := range resources {
		switch {
		case refused[i] != nil:
			answers = append(answers, refusal(&resources[i], refused[i]))
		case len(forwarded) > 0:
			answers, forwarded = append(answers, forwarded[0]), forwarded[1:]
		}
	}
	return answers
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
