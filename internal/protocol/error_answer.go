package protocol

import (
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrorAnswer answers req, at its version, with an error code in every place that
// a client looks for one: at the top, and for each topic, partition, resource,
// group or user that req names. Fields that say what went well are at "none". The
// caller owns the answer. For a Produce with acks=0, which nothing answers, it
// still returns what acks=1 would get. Source: getErrorResponse of Kafka's requests.
func ErrorAnswer(req kmsg.Request, code int16) kmsg.Response {
	resp := entityErrors(req, code)
	if resp == nil {
		resp = req.ResponseKind()
		if d, ok := resp.(interface{ Default() }); ok {
			d.Default()
		}
	}
	resp.SetVersion(req.GetVersion())
	if top := reflect.ValueOf(resp).Elem().FieldByName("ErrorCode"); top.IsValid() {
		top.SetInt(int64(code))
	}
	return resp
}

// HasCode reports whether an error code stands in an answer, in any of the places where ErrorAnswer puts it.
// Source: AbstractResponse.errorCounts.
func HasCode(resp kmsg.Response, code int16) bool {
	return hasCode(reflect.ValueOf(resp).Elem(), code)
}

func hasCode(v reflect.Value, code int16) bool {
	switch v.Kind() {
	case reflect.Struct:
		if f := v.FieldByName("ErrorCode"); f.IsValid() && f.Int() == int64(code) {
			return true
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && hasCode(v.Field(i), code) {
				return true
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Struct {
			return false
		}
		for i := range v.Len() {
			if hasCode(v.Index(i), code) {
				return true
			}
		}
	}
	return false
}

// entityErrors returns the answer to a request whose answer has codes below its
// top, those set, or nil for any other request.
func entityErrors(req kmsg.Request, code int16) kmsg.Response {
	for _, family := range []func(kmsg.Request, int16) kmsg.Response{dataErrors, adminErrors, groupErrors, shareStateErrors} {
		if resp := family(req, code); resp != nil {
			return resp
		}
	}
	return nil
}

// each maps the elements of in to those of an answer; the result is not nil.
func each[T, U any](in []T, answer func(*T) U) []U {
	out := make([]U, len(in))
	for i := range in {
		out[i] = answer(&in[i])
	}
	return out
}

// dataErrors answers the requests of producers, consumers and replicas.
func dataErrors(req kmsg.Request, code int16) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.ProduceRequest:
		resp := kmsg.NewPtrProduceResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.ProduceRequestTopic) kmsg.ProduceResponseTopic {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			rt.Partitions = each(t.Partitions, func(p *kmsg.ProduceRequestTopicPartition) kmsg.ProduceResponseTopicPartition {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode, rp.BaseOffset = p.Partition, code, -1
				return rp
			})
			return rt
		})
		return resp
	case *kmsg.FetchRequest:
		return fetchErrors(req, code)
	case *DescribeLagRequest:
		return describeLagErrors(req, code)
	case *kmsg.ListOffsetsRequest:
		resp := kmsg.NewPtrListOffsetsResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.ListOffsetsRequestTopic) kmsg.ListOffsetsResponseTopic {
			rt := kmsg.NewListOffsetsResponseTopic()
			rt.Topic = t.Topic
			rt.Partitions = each(t.Partitions, func(p *kmsg.ListOffsetsRequestTopicPartition) kmsg.ListOffsetsResponseTopicPartition {
				rp := kmsg.NewListOffsetsResponseTopicPartition()
				rp.Partition, rp.ErrorCode, rp.Offset, rp.Timestamp = p.Partition, code, -1, -1
				return rp
			})
			return rt
		})
		return resp
	case *kmsg.MetadataRequest:
		resp := kmsg.NewPtrMetadataResponse()
		resp.ControllerID = -1
		resp.Brokers = []kmsg.MetadataResponseBroker{}
		resp.Topics = each(req.Topics, func(t *kmsg.MetadataRequestTopic) kmsg.MetadataResponseTopic {
			rt := kmsg.NewMetadataResponseTopic()
			rt.Topic, rt.TopicID, rt.ErrorCode = t.Topic, t.TopicID, code
			if rt.Topic == nil && req.Version < 12 { // not nullable below
				rt.Topic = kmsg.StringPtr("")
			}
			return rt
		})
		return resp
	case *kmsg.OffsetForLeaderEpochRequest:
		resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.OffsetForLeaderEpochRequestTopic) kmsg.OffsetForLeaderEpochResponseTopic {
			rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
			rt.Topic = t.Topic
			rt.Partitions = each(t.Partitions, func(p *kmsg.OffsetForLeaderEpochRequestTopicPartition) kmsg.OffsetForLeaderEpochResponseTopicPartition {
				rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				rp.Partition, rp.ErrorCode, rp.LeaderEpoch, rp.EndOffset = p.Partition, code, -1, -1
				return rp
			})
			return rt
		})
		return resp
	case *kmsg.InitProducerIDRequest:
		resp := kmsg.NewPtrInitProducerIDResponse()
		resp.ProducerID, resp.ProducerEpoch = -1, -1
		return resp
	case *kmsg.AddPartitionsToTxnRequest:
		resp := kmsg.NewPtrAddPartitionsToTxnResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.AddPartitionsToTxnRequestTopic) kmsg.AddPartitionsToTxnResponseTopic {
			rt := kmsg.NewAddPartitionsToTxnResponseTopic()
			rt.Topic = t.Topic
			rt.Partitions = each(t.Partitions, func(p *int32) kmsg.AddPartitionsToTxnResponseTopicPartition {
				rp := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
				rp.Partition, rp.ErrorCode = *p, code
				return rp
			})
			return rt
		})
		return resp
	case *kmsg.WriteTxnMarkersRequest:
		resp := kmsg.NewPtrWriteTxnMarkersResponse()
		resp.Markers = each(req.Markers, func(m *kmsg.WriteTxnMarkersRequestMarker) kmsg.WriteTxnMarkersResponseMarker {
			rm := kmsg.NewWriteTxnMarkersResponseMarker()
			rm.ProducerID = m.ProducerID
			rm.Topics = each(m.Topics, func(t *kmsg.WriteTxnMarkersRequestMarkerTopic) kmsg.WriteTxnMarkersResponseMarkerTopic {
				rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
				rt.Topic = t.Topic
				rt.Partitions = each(t.Partitions, func(p *int32) kmsg.WriteTxnMarkersResponseMarkerTopicPartition {
					rp := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
					rp.Partition, rp.ErrorCode = *p, code
					return rp
				})
				return rt
			})
			return rm
		})
		return resp
	}
	return nil
}

// fetchErrors fills the partitions as well below version 13; from there on, with
// topic ids, the code at the top is all a client looks at.
func fetchErrors(req *kmsg.FetchRequest, code int16) kmsg.Response {
	resp := kmsg.NewPtrFetchResponse()
	if req.Version >= 13 {
		return resp
	}
	resp.Topics = each(req.Topics, func(t *kmsg.FetchRequestTopic) kmsg.FetchResponseTopic {
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = each(t.Partitions, func(p *kmsg.FetchRequestTopicPartition) kmsg.FetchResponseTopicPartition {
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, code
			rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = -1, -1, -1
			rp.RecordBatches = []byte{} // null would be new to some clients
			return rp
		})
		return rt
	})
	return resp
}

// adminErrors answers what admin clients send about topics, configurations,
// ACLs, quotas and users.
func adminErrors(req kmsg.Request, code int16) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.CreateTopicsRequest:
		resp := kmsg.NewPtrCreateTopicsResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.CreateTopicsRequestTopic) kmsg.CreateTopicsResponseTopic {
			rt := kmsg.NewCreateTopicsResponseTopic()
			rt.Topic, rt.ErrorCode = t.Topic, code
			rt.Configs = []kmsg.CreateTopicsResponseTopicConfig{} // null crashes Apache's admin client
			return rt
		})
		return resp
	case *kmsg.DeleteTopicsRequest:
		return deleteTopicsErrors(req, code)
	case *kmsg.DeleteRecordsRequest:
		resp := kmsg.NewPtrDeleteRecordsResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.DeleteRecordsRequestTopic) kmsg.DeleteRecordsResponseTopic {
			rt := kmsg.NewDeleteRecordsResponseTopic()
			rt.Topic = t.Topic
			rt.Partitions = each(t.Partitions, func(p *kmsg.DeleteRecordsRequestTopicPartition) kmsg.DeleteRecordsResponseTopicPartition {
				rp := kmsg.NewDeleteRecordsResponseTopicPartition()
				rp.Partition, rp.ErrorCode, rp.LowWatermark = p.Partition, code, -1
				return rp
			})
			return rt
		})
		return resp
	case *kmsg.CreatePartitionsRequest:
		resp := kmsg.NewPtrCreatePartitionsResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.CreatePartitionsRequestTopic) kmsg.CreatePartitionsResponseTopic {
			rt := kmsg.NewCreatePartitionsResponseTopic()
			rt.Topic, rt.ErrorCode = t.Topic, code
			return rt
		})
		return resp
	case *kmsg.DescribeConfigsRequest:
		resp := kmsg.NewPtrDescribeConfigsResponse()
		resp.Resources = each(req.Resources, func(r *kmsg.DescribeConfigsRequestResource) kmsg.DescribeConfigsResponseResource {
			rr := kmsg.NewDescribeConfigsResponseResource()
			rr.ResourceType, rr.ResourceName, rr.ErrorCode = r.ResourceType, r.ResourceName, code
			return rr
		})
		return resp
	case *kmsg.AlterConfigsRequest:
		resp := kmsg.NewPtrAlterConfigsResponse()
		resp.Resources = each(req.Resources, func(r *kmsg.AlterConfigsRequestResource) kmsg.AlterConfigsResponseResource {
			rr := kmsg.NewAlterConfigsResponseResource()
			rr.ResourceType, rr.ResourceName, rr.ErrorCode = r.ResourceType, r.ResourceName, code
			return rr
		})
		return resp
	case *kmsg.IncrementalAlterConfigsRequest:
		resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
		resp.Resources = each(req.Resources, func(r *kmsg.IncrementalAlterConfigsRequestResource) kmsg.IncrementalAlterConfigsResponseResource {
			rr := kmsg.NewIncrementalAlterConfigsResponseResource()
			rr.ResourceType, rr.ResourceName, rr.ErrorCode = r.ResourceType, r.ResourceName, code
			return rr
		})
		return resp
	case *kmsg.AlterReplicaLogDirsRequest:
		resp := kmsg.NewPtrAlterReplicaLogDirsResponse()
		for _, d := range req.Dirs {
			for _, t := range d.Topics {
				rt := kmsg.NewAlterReplicaLogDirsResponseTopic()
				rt.Topic = t.Topic
				rt.Partitions = each(t.Partitions, func(p *int32) kmsg.AlterReplicaLogDirsResponseTopicPartition {
					rp := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
					rp.Partition, rp.ErrorCode = *p, code
					return rp
				})
				resp.Topics = append(resp.Topics, rt)
			}
		}
		return resp
	case *kmsg.DescribeLogDirsRequest:
		resp := kmsg.NewPtrDescribeLogDirsResponse()
		if req.Version < 3 { // no code at the top
			dir := kmsg.NewDescribeLogDirsResponseDir()
			dir.ErrorCode = code
			resp.Dirs = append(resp.Dirs, dir)
		}
		return resp
	case *kmsg.ElectLeadersRequest:
		resp := kmsg.NewPtrElectLeadersResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.ElectLeadersRequestTopic) kmsg.ElectLeadersResponseTopic {
			rt := kmsg.NewElectLeadersResponseTopic()
			rt.Topic = t.Topic
			rt.Partitions = each(t.Partitions, func(p *int32) kmsg.ElectLeadersResponseTopicPartition {
				rp := kmsg.NewElectLeadersResponseTopicPartition()
				rp.Partition, rp.ErrorCode = *p, code
				return rp
			})
			return rt
		})
		return resp
	case *kmsg.AlterPartitionAssignmentsRequest:
		resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.AlterPartitionAssignmentsRequestTopic) kmsg.AlterPartitionAssignmentsResponseTopic {
			rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
			rt.Topic = t.Topic
			rt.Partitions = each(t.Partitions, func(p *kmsg.AlterPartitionAssignmentsRequestTopicPartition) kmsg.AlterPartitionAssignmentsResponseTopicPartition {
				rp := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, code
				return rp
			})
			return rt
		})
		return resp
	case *kmsg.DescribeProducersRequest:
		resp := kmsg.NewPtrDescribeProducersResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.DescribeProducersRequestTopic) kmsg.DescribeProducersResponseTopic {
			rt := kmsg.NewDescribeProducersResponseTopic()
			rt.Topic = t.Topic
			rt.Partitions = each(t.Partitions, func(p *int32) kmsg.DescribeProducersResponseTopicPartition {
				rp := kmsg.NewDescribeProducersResponseTopicPartition()
				rp.Partition, rp.ErrorCode = *p, code
				return rp
			})
			return rt
		})
		return resp
	case *kmsg.DescribeTopicPartitionsRequest:
		resp := kmsg.NewPtrDescribeTopicPartitionsResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.DescribeTopicPartitionsRequestTopic) kmsg.DescribeTopicPartitionsResponseTopic {
			rt := kmsg.NewDescribeTopicPartitionsResponseTopic()
			rt.Topic, rt.ErrorCode = kmsg.StringPtr(t.Topic), code
			return rt
		})
		return resp
	case *kmsg.CreateACLsRequest:
		resp := kmsg.NewPtrCreateACLsResponse()
		resp.Results = each(req.Creations, func(*kmsg.CreateACLsRequestCreation) kmsg.CreateACLsResponseResult {
			r := kmsg.NewCreateACLsResponseResult()
			r.ErrorCode = code
			return r
		})
		return resp
	case *kmsg.DeleteACLsRequest:
		resp := kmsg.NewPtrDeleteACLsResponse()
		resp.Results = each(req.Filters, func(*kmsg.DeleteACLsRequestFilter) kmsg.DeleteACLsResponseResult {
			r := kmsg.NewDeleteACLsResponseResult()
			r.ErrorCode = code
			return r
		})
		return resp
	case *kmsg.AlterClientQuotasRequest:
		resp := kmsg.NewPtrAlterClientQuotasResponse()
		resp.Entries = each(req.Entries, func(e *kmsg.AlterClientQuotasRequestEntry) kmsg.AlterClientQuotasResponseEntry {
			re := kmsg.NewAlterClientQuotasResponseEntry()
			re.ErrorCode = code
			re.Entity = each(e.Entity, func(n *kmsg.AlterClientQuotasRequestEntryEntity) kmsg.AlterClientQuotasResponseEntryEntity {
				rn := kmsg.NewAlterClientQuotasResponseEntryEntity()
				rn.Type, rn.Name = n.Type, n.Name
				return rn
			})
			return re
		})
		return resp
	case *kmsg.AlterUserSCRAMCredentialsRequest:
		return alterUserErrors(req, code)
	case *kmsg.DescribeTransactionsRequest:
		resp := kmsg.NewPtrDescribeTransactionsResponse()
		resp.TransactionStates = each(req.TransactionalIDs, func(id *string) kmsg.DescribeTransactionsResponseTransactionState {
			s := kmsg.NewDescribeTransactionsResponseTransactionState()
			s.TransactionalID, s.ErrorCode = *id, code
			return s
		})
		return resp
	}
	return nil
}

// deleteTopicsErrors answers for names, below version 6, or for names and ids.
func deleteTopicsErrors(req *kmsg.DeleteTopicsRequest, code int16) kmsg.Response {
	resp := kmsg.NewPtrDeleteTopicsResponse()
	for _, name := range req.TopicNames {
		rt := kmsg.NewDeleteTopicsResponseTopic()
		rt.Topic, rt.ErrorCode = kmsg.StringPtr(name), code
		resp.Topics = append(resp.Topics, rt)
	}
	for _, t := range req.Topics {
		rt := kmsg.NewDeleteTopicsResponseTopic()
		rt.Topic, rt.TopicID, rt.ErrorCode = t.Topic, t.TopicID, code
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// alterUserErrors answers once for each user named.
func alterUserErrors(req *kmsg.AlterUserSCRAMCredentialsRequest, code int16) kmsg.Response {
	resp := kmsg.NewPtrAlterUserSCRAMCredentialsResponse()
	seen := make(map[string]bool, len(req.Deletions)+len(req.Upsertions))
	add := func(user string) {
		if seen[user] {
			return
		}
		seen[user] = true
		r := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
		r.User, r.ErrorCode = user, code
		resp.Results = append(resp.Results, r)
	}
	for _, d := range req.Deletions {
		add(d.Name)
	}
	for _, u := range req.Upsertions {
		add(u.Name)
	}
	return resp
}

// groupErrors answers the requests to coordinators.
func groupErrors(req kmsg.Request, code int16) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.FindCoordinatorRequest:
		resp := kmsg.NewPtrFindCoordinatorResponse()
		resp.NodeID, resp.Port = -1, -1
		resp.Coordinators = each(req.CoordinatorKeys, func(key *string) kmsg.FindCoordinatorResponseCoordinator {
			c := kmsg.NewFindCoordinatorResponseCoordinator()
			c.Key, c.NodeID, c.Port, c.ErrorCode = *key, -1, -1, code
			return c
		})
		return resp
	case *kmsg.OffsetCommitRequest:
		resp := kmsg.NewPtrOffsetCommitResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.OffsetCommitRequestTopic) kmsg.OffsetCommitResponseTopic {
			rt := kmsg.NewOffsetCommitResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			rt.Partitions = each(t.Partitions, func(p *kmsg.OffsetCommitRequestTopicPartition) kmsg.OffsetCommitResponseTopicPartition {
				rp := kmsg.NewOffsetCommitResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, code
				return rp
			})
			return rt
		})
		return resp
	case *kmsg.TxnOffsetCommitRequest:
		resp := kmsg.NewPtrTxnOffsetCommitResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.TxnOffsetCommitRequestTopic) kmsg.TxnOffsetCommitResponseTopic {
			rt := kmsg.NewTxnOffsetCommitResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			rt.Partitions = each(t.Partitions, func(p *kmsg.TxnOffsetCommitRequestTopicPartition) kmsg.TxnOffsetCommitResponseTopicPartition {
				rp := kmsg.NewTxnOffsetCommitResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, code
				return rp
			})
			return rt
		})
		return resp
	case *kmsg.OffsetFetchRequest:
		return offsetFetchErrors(req, code)
	case *kmsg.DescribeGroupsRequest:
		resp := kmsg.NewPtrDescribeGroupsResponse()
		resp.Groups = each(req.Groups, func(group *string) kmsg.DescribeGroupsResponseGroup {
			g := kmsg.NewDescribeGroupsResponseGroup()
			g.Group, g.ErrorCode = *group, code
			return g
		})
		return resp
	case *kmsg.DeleteGroupsRequest:
		resp := kmsg.NewPtrDeleteGroupsResponse()
		resp.Groups = each(req.Groups, func(group *string) kmsg.DeleteGroupsResponseGroup {
			g := kmsg.NewDeleteGroupsResponseGroup()
			g.Group, g.ErrorCode = *group, code
			return g
		})
		return resp
	case *kmsg.ConsumerGroupDescribeRequest:
		resp := kmsg.NewPtrConsumerGroupDescribeResponse()
		resp.Groups = each(req.Groups, func(group *string) kmsg.ConsumerGroupDescribeResponseGroup {
			g := kmsg.NewConsumerGroupDescribeResponseGroup()
			g.Group, g.ErrorCode = *group, code
			return g
		})
		return resp
	case *kmsg.ShareGroupDescribeRequest:
		resp := kmsg.NewPtrShareGroupDescribeResponse()
		resp.Groups = each(req.GroupIDs, func(group *string) kmsg.ShareGroupDescribeResponseGroup {
			g := kmsg.NewShareGroupDescribeResponseGroup()
			g.GroupID, g.ErrorCode = *group, code
			return g
		})
		return resp
	case *kmsg.StreamsGroupDescribeRequest:
		resp := kmsg.NewPtrStreamsGroupDescribeResponse()
		resp.Groups = each(req.Groups, func(group *string) kmsg.StreamsGroupDescribeResponseGroup {
			g := kmsg.NewStreamsGroupDescribeResponseGroup()
			g.Group, g.ErrorCode = *group, code
			return g
		})
		return resp
	case *kmsg.DescribeShareGroupOffsetsRequest:
		resp := kmsg.NewPtrDescribeShareGroupOffsetsResponse()
		resp.Groups = each(req.Groups, func(group *kmsg.DescribeShareGroupOffsetsRequestGroup) kmsg.DescribeShareGroupOffsetsResponseGroup {
			g := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
			g.GroupID, g.ErrorCode = group.GroupID, code
			return g
		})
		return resp
	}
	return nil
}

// offsetFetchErrors: versions 0 and 1 have codes at the partitions only, 2 to 7 at
// the top as well, 8 and later one for each group.
func offsetFetchErrors(req *kmsg.OffsetFetchRequest, code int16) kmsg.Response {
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Groups = each(req.Groups, func(group *kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
		g := kmsg.NewOffsetFetchResponseGroup()
		g.Group, g.ErrorCode = group.Group, code
		return g
	})
	if req.Version >= 2 {
		return resp
	}
	resp.Topics = each(req.Topics, func(t *kmsg.OffsetFetchRequestTopic) kmsg.OffsetFetchResponseTopic {
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		rt.Partitions = each(t.Partitions, func(p *int32) kmsg.OffsetFetchResponseTopicPartition {
			rp := kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.Offset, rp.Metadata = *p, code, -1, kmsg.StringPtr("")
			return rp
		})
		return rt
	})
	return resp
}

// shareStateErrors answers the requests to the share coordinator (KIP-932).
func shareStateErrors(req kmsg.Request, code int16) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.InitializeShareGroupStateRequest:
		resp := kmsg.NewPtrInitializeShareGroupStateResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.InitializeShareGroupStateRequestTopic) kmsg.InitializeShareGroupStateResponseTopic {
			rt := kmsg.NewInitializeShareGroupStateResponseTopic()
			rt.TopicID = t.TopicID
			rt.Partitions = each(t.Partitions, func(p *kmsg.InitializeShareGroupStateRequestTopicPartition) kmsg.InitializeShareGroupStateResponseTopicPartition {
				rp := kmsg.NewInitializeShareGroupStateResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, code
				return rp
			})
			return rt
		})
		return resp
	case *kmsg.ReadShareGroupStateRequest:
		resp := kmsg.NewPtrReadShareGroupStateResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.ReadShareGroupStateRequestTopic) kmsg.ReadShareGroupStateResponseTopic {
			rt := kmsg.NewReadShareGroupStateResponseTopic()
			rt.TopicID = t.TopicID
			rt.Partitions = each(t.Partitions, func(p *kmsg.ReadShareGroupStateRequestTopicPartition) kmsg.ReadShareGroupStateResponseTopicPartition {
				rp := kmsg.NewReadShareGroupStateResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, code
				return rp
			})
			return rt
		})
		return resp
	case *kmsg.WriteShareGroupStateRequest:
		resp := kmsg.NewPtrWriteShareGroupStateResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.WriteShareGroupStateRequestTopic) kmsg.WriteShareGroupStateResponseTopic {
			rt := kmsg.NewWriteShareGroupStateResponseTopic()
			rt.TopicID = t.TopicID
			rt.Partitions = each(t.Partitions, func(p *kmsg.WriteShareGroupStateRequestTopicPartition) kmsg.WriteShareGroupStateResponseTopicPartition {
				rp := kmsg.NewWriteShareGroupStateResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, code
				return rp
			})
			return rt
		})
		return resp
	case *kmsg.DeleteShareGroupStateRequest:
		resp := kmsg.NewPtrDeleteShareGroupStateResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.DeleteShareGroupStateRequestTopic) kmsg.DeleteShareGroupStateResponseTopic {
			rt := kmsg.NewDeleteShareGroupStateResponseTopic()
			rt.TopicID = t.TopicID
			rt.Partitions = each(t.Partitions, func(p *kmsg.DeleteShareGroupStateRequestTopicPartition) kmsg.DeleteShareGroupStateResponseTopicPartition {
				rp := kmsg.NewDeleteShareGroupStateResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, code
				return rp
			})
			return rt
		})
		return resp
	case *kmsg.ReadShareGroupStateSummaryRequest:
		resp := kmsg.NewPtrReadShareGroupStateSummaryResponse()
		resp.Topics = each(req.Topics, func(t *kmsg.ReadShareGroupStateSummaryRequestTopic) kmsg.ReadShareGroupStateSummaryResponseTopic {
			rt := kmsg.NewReadShareGroupStateSummaryResponseTopic()
			rt.TopicID = t.TopicID
			rt.Partitions = each(t.Partitions, func(p *kmsg.ReadShareGroupStateSummaryRequestTopicPartition) kmsg.ReadShareGroupStateSummaryResponseTopicPartition {
				rp := kmsg.NewReadShareGroupStateSummaryResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, code
				return rp
			})
			return rt
		})
		return resp
	}
	return nil
}
