package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
)

// Kinds of endpoints that DescribeCluster is asked for.
const (
	brokerEndpoints     = 1
	controllerEndpoints = 2
)

// describeCluster tells the cluster's id and its brokers, by the endpoints of the listener that the client came by.
func (b *Broker) describeCluster(ctx context.Context, req *kmsg.DescribeClusterRequest) *kmsg.DescribeClusterResponse {
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	if req.EndpointType != brokerEndpoints {
		resp.ErrorCode = kerr.UnsupportedEndpointType.Code
		if req.EndpointType == controllerEndpoints {
			resp.ErrorCode = kerr.MismatchedEndpointType.Code
		}
		return resp
	}
	v := view{b, b.image(), auth.From(ctx).Listener}
	resp.EndpointType, resp.ClusterID, resp.ControllerID = brokerEndpoints, b.clusterID, b.nodeID
	resp.Brokers = []kmsg.DescribeClusterResponseBroker{}
	for br := range v.img.Brokers() {
		e, ok := br.Endpoint(v.listener)
		if !ok || br.Fenced && !req.IncludeFencedBrokers {
			continue
		}
		rb := kmsg.NewDescribeClusterResponseBroker()
		rb.NodeID, rb.Host, rb.Port, rb.Rack, rb.IsFenced = br.ID, e.Host, int32(e.Port), br.Rack, br.Fenced
		resp.Brokers = append(resp.Brokers, rb)
	}
	resp.ClusterAuthorizedOperations = operationsNotAsked
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = b.authorizedClusterOperations(ctx)
	}
	return resp
}
