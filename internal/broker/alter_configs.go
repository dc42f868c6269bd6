package broker

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
)

// The two requests that alter configurations go to the controller, except what this broker itself has to refuse: only a
// broker knows which keys mean something to it, so a client asks each for its own (ConfigAdminManager). The levels of a
// node's loggers are its own affair.

// incrementalAlterConfigs changes single keys of resources (KIP-339).
func (b *Broker) incrementalAlterConfigs(ctx context.Context, req *kmsg.IncrementalAlterConfigsRequest) *kmsg.IncrementalAlterConfigsResponse {
	resp, _ := b.alterHereFirst(ctx, req, b.refuseOtherBroker, func(ctx context.Context, rest kmsg.Request) (kmsg.Response, error) {
		return b.forward(ctx, rest), nil
	})
	return resp
}

// alterHereFirst refuses what refuse does, changes what is this node's alone, its loggers, and has the rest done by others. The
// only error is theirs.
func (b *Broker) alterHereFirst(ctx context.Context, req *kmsg.IncrementalAlterConfigsRequest, refuse func(kmsg.ConfigResourceType, string) error,
	others func(context.Context, kmsg.Request) (kmsg.Response, error)) (*kmsg.IncrementalAlterConfigsResponse, error) {
	times := map[configResource]int{}
	for _, r := range req.Resources {
		times[configResource{r.ResourceType, r.ResourceName}]++
	}
	here := map[configResource]error{} // those that are not for others
	rest := *req
	rest.Resources = nil
	for i := range req.Resources {
		r := &req.Resources[i]
		key := configResource{r.ResourceType, r.ResourceName}
		if err := refuse(r.ResourceType, r.ResourceName); err != nil {
			here[key] = err
		} else if metadata.ResourceType(r.ResourceType) != brokerLoggerConfig {
			rest.Resources = append(rest.Resources, *r)
		} else if times[key] > 1 {
			here[key] = refusal(kerr.InvalidRequest, "Each resource must appear at most once.")
		} else {
			here[key] = b.alterLoggers(ctx, r, req.ValidateOnly)
		}
	}
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	if len(rest.Resources) > 0 {
		answer, err := others(ctx, &rest)
		if err != nil {
			return nil, err
		}
		resp = answer.(*kmsg.IncrementalAlterConfigsResponse)
	}
	answers := map[configResource]kmsg.IncrementalAlterConfigsResponseResource{}
	for _, r := range resp.Resources {
		answers[configResource{r.ResourceType, r.ResourceName}] = r
	}
	resp.Resources = each(req.Resources, func(r kmsg.IncrementalAlterConfigsRequestResource) kmsg.IncrementalAlterConfigsResponseResource {
		key := configResource{r.ResourceType, r.ResourceName}
		err, isHere := here[key]
		if answer, ok := answers[key]; ok && !isHere {
			return answer
		} else if !isHere {
			err = errNotAnswered
		}
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		if err != nil {
			out.ErrorCode, out.ErrorMessage = codeAndText(err)
		}
		return out
	})
	return resp, nil
}

// alterConfigs replaces all that is set on resources; clients before KIP-339 know nothing else.
func (b *Broker) alterConfigs(ctx context.Context, req *kmsg.AlterConfigsRequest) *kmsg.AlterConfigsResponse {
	rest := *req
	rest.Resources = slices.DeleteFunc(slices.Clone(req.Resources), func(r kmsg.AlterConfigsRequestResource) bool {
		return b.refuseToReplace(r.ResourceType, r.ResourceName) != nil
	})
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	if len(rest.Resources) > 0 {
		resp = b.forward(ctx, &rest).(*kmsg.AlterConfigsResponse)
	}
	answers := map[configResource]kmsg.AlterConfigsResponseResource{}
	for _, r := range resp.Resources {
		answers[configResource{r.ResourceType, r.ResourceName}] = r
	}
	resp.Resources = each(req.Resources, func(r kmsg.AlterConfigsRequestResource) kmsg.AlterConfigsResponseResource {
		err := b.refuseToReplace(r.ResourceType, r.ResourceName)
		answer, ok := answers[configResource{r.ResourceType, r.ResourceName}]
		switch {
		case err == nil && ok:
			return answer
		case err == nil:
			err = errNotAnswered
		}
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		out.ErrorCode, out.ErrorMessage = codeAndText(err)
		return out
	})
	return resp
}

// A configResource names what has a configuration. By it, and not by their order, the controller's answers are found:
// Apache's controllers answer in any.
type configResource struct {
	kind kmsg.ConfigResourceType
	name string
}

var errNotAnswered = errors.New("the controller did not say what became of it")

// refuseOtherBroker says why the configuration of a broker is not this one's to change.
func (b *Broker) refuseOtherBroker(t kmsg.ConfigResourceType, name string) error {
	if metadata.ResourceType(t) != metadata.BrokerConfig || name == "" {
		return nil
	}
	return b.checkBrokerName("Node", name)
}

// refuseToReplace says why all that is set on a resource cannot be replaced here; levels of loggers are changed one by one only.
func (b *Broker) refuseToReplace(t kmsg.ConfigResourceType, name string) error {
	if metadata.ResourceType(t) == brokerLoggerConfig {
		return refusal(kerr.InvalidRequest, "Unknown resource type %d", t)
	}
	return b.refuseOtherBroker(t, name)
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
