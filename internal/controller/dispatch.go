package controller

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Handles reports whether Handle knows the API with that key.
func Handles(key int16) bool {
	switch kmsg.Key(key) {
	case kmsg.CreateTopics, kmsg.DeleteTopics, kmsg.AlterConfigs, kmsg.CreatePartitions, kmsg.ElectLeaders, kmsg.IncrementalAlterConfigs,
		kmsg.AlterPartitionAssignments, kmsg.ListPartitionReassignments, kmsg.AlterPartition, kmsg.UpdateFeatures, kmsg.DescribeCluster,
		kmsg.BrokerRegistration, kmsg.BrokerHeartbeat, kmsg.UnregisterBroker, kmsg.AllocateProducerIDs, kmsg.ControllerRegistration,
		kmsg.AssignReplicasToDirs, kmsg.UnregisterController, kmsg.AlterClientQuotas:
		return true
	}
	return false
}

// handle evaluates a request that Handles knows.
func (t *turn) handle(req kmsg.Request) answer {
	switch req := req.(type) {
	case *kmsg.CreateTopicsRequest:
		return t.createTopics(req)
	case *kmsg.DeleteTopicsRequest:
		return t.deleteTopics(req)
	case *kmsg.AlterConfigsRequest:
		return t.alterConfigs(req)
	case *kmsg.CreatePartitionsRequest:
		return t.createPartitions(req)
	case *kmsg.ElectLeadersRequest:
		return t.electLeaders(req)
	case *kmsg.IncrementalAlterConfigsRequest:
		return t.incrementalAlterConfigs(req)
	case *kmsg.AlterPartitionAssignmentsRequest:
		return t.alterPartitionReassignments(req)
	case *kmsg.ListPartitionReassignmentsRequest:
		return t.listPartitionReassignments(req)
	case *kmsg.AlterPartitionRequest:
		return t.alterPartition(req)
	case *kmsg.UpdateFeaturesRequest:
		return t.updateFeatures(req)
	case *kmsg.DescribeClusterRequest:
		return t.describeCluster(req)
	case *kmsg.BrokerRegistrationRequest:
		return t.brokerRegistration(req)
	case *kmsg.BrokerHeartbeatRequest:
		return t.brokerHeartbeat(req)
	case *kmsg.UnregisterBrokerRequest:
		return t.unregisterBroker(req)
	case *kmsg.AllocateProducerIDsRequest:
		return t.allocateProducerIDs(req)
	case *kmsg.ControllerRegistrationRequest:
		return t.controllerRegistration(req)
	case *kmsg.AssignReplicasToDirsRequest:
		return t.assignReplicasToDirs(req)
	case *kmsg.AlterClientQuotasRequest:
		return t.alterClientQuotas(req)
	case *kmsg.UnregisterControllerRequest:
		return t.unregisterController(req)
	}
	panic("controller: no handler for a request of key " + kmsg.NameForKey(req.Key())) // Handles says otherwise
}
