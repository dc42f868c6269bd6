package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A limit that lets no partition through would have the client ask for ever; Apache raises it to one. A cursor must be one that
// the broker can have given.
func TestDescribeTopicPartitionsPages(t *testing.T) {
	b := startNode(t, newDisk(t), nil)
	c := dial(t, b)
	c.createTopic("t", 3)
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = 0
	var got []int32
	for range 5 {
		resp := ask[*kmsg.DescribeTopicPartitionsResponse](c, req)
		for i := range resp.Topics {
			for _, p := range resp.Topics[i].Partitions {
				got = append(got, p.Partition)
			}
		}
		if resp.NextCursor == nil {
			break
		}
		req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
	}
	if len(got) != 3 || got[0] != 0 || got[1] != 1 || got[2] != 2 {
		t.Errorf("partitions %v, want 0, 1, 2", got)
	}
	req.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "t"}}
	req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: "t", Partition: -1}
	resp := ask[*kmsg.DescribeTopicPartitionsResponse](c, req)
	if len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("a cursor at partition -1 was answered with %+v, want INVALID_REQUEST", resp.Topics)
	}
}
