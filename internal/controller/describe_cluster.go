package controller

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// endpointControllers is a value of DescribeClusterRequest.EndpointType (KIP-919).
const endpointControllers int8 = 2

// describeCluster lists the controllers, for tools that connect to one directly.
func (t *turn) describeCluster(req *kmsg.DescribeClusterRequest) answer {
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.EndpointType, resp.Brokers, resp.ControllerID = req.EndpointType, []kmsg.DescribeClusterResponseBroker{}, -1
	if req.EndpointType != endpointControllers {
		resp.ErrorCode, resp.ErrorMessage = codeOf(refuse(kerr.MismatchedEndpointType,
			"The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"))
		return reply(resp)
	}
	resp.ClusterID, resp.ControllerID = t.clusterID, t.nodeID
	names := t.config.ControllerListenerNames()
	for c := range t.image().Controllers() {
		for _, name := range names {
			if e, ok := c.Endpoint(name); ok {
				rb := kmsg.NewDescribeClusterResponseBroker()
				rb.NodeID, rb.Host, rb.Port = c.ID, e.Host, int32(e.Port)
				resp.Brokers = append(resp.Brokers, rb)
				break
			}
		}
	}
	return reply(resp)
}
