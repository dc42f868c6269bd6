package auth

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestCodes compares with the codes of Kafka's AclOperation and ResourceType, which kmsg carries.
func TestCodes(t *testing.T) {
	for ours, kafka := range map[Operation]kmsg.ACLOperation{
		AnyOperation: kmsg.ACLOperationAny, All: kmsg.ACLOperationAll, Read: kmsg.ACLOperationRead, Write: kmsg.ACLOperationWrite,
		Create: kmsg.ACLOperationCreate, Delete: kmsg.ACLOperationDelete, Alter: kmsg.ACLOperationAlter,
		Describe: kmsg.ACLOperationDescribe, ClusterAction: kmsg.ACLOperationClusterAction,
		DescribeConfigs: kmsg.ACLOperationDescribeConfigs, AlterConfigs: kmsg.ACLOperationAlterConfigs,
		IdempotentWrite: kmsg.ACLOperationIdempotentWrite, CreateTokens: kmsg.ACLOperationCreateTokens,
		DescribeTokens: kmsg.ACLOperationDescribeTokens,
	} {
		if int8(ours) != int8(kafka) {
			t.Errorf("operation %v is %d, in Kafka %d", kafka, ours, kafka)
		}
	}
	for ours, kafka := range map[ResourceType]kmsg.ACLResourceType{
		AnyResource: kmsg.ACLResourceTypeAny, Topic: kmsg.ACLResourceTypeTopic, Group: kmsg.ACLResourceTypeGroup,
		Cluster: kmsg.ACLResourceTypeCluster, TransactionalID: kmsg.ACLResourceTypeTransactionalId,
		DelegationToken: kmsg.ACLResourceTypeDelegationToken, User: kmsg.ACLResourceTypeUser,
	} {
		if int8(ours) != int8(kafka) {
			t.Errorf("resource type %v is %d, in Kafka %d", kafka, ours, kafka)
		}
	}
}

func TestSession(t *testing.T) {
	if p := From(context.Background()).Principal; p.String() != "User:ANONYMOUS" {
		t.Errorf("a context without session has principal %s", p)
	}
	s := &Session{Principal: Principal{UserType, "alice"}, Listener: "SASL"}
	if got := From(With(context.Background(), s)); got != s {
		t.Errorf("From gave %+v, With took %+v", got, s)
	}
}
