package broker

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/uuid"
)

// TestUsedParts: of answers that are made of parts of earlier ones, also of other connections, none says what an earlier one said.
func TestUsedParts(t *testing.T) {
	const connections, rounds = 4, 200
	b := startNode(t, newDisk(t), nil)
	var wg sync.WaitGroup
	for i := range connections {
		c := dial(t, b)
		topic := c.createTopic(fmt.Sprintf("t%d", i), 1)
		wg.Go(func() {
			for n := range rounds {
				rotten := batch(100)
				rotten[len(rotten)-1]++
				for _, try := range []struct {
					partition int32
					batch     []byte
					want      int16
					offset    int64
				}{
					{0, batch(100), 0, int64(n)},
					{0, rotten, kerr.CorruptMessage.Code, -1},
					{7, batch(100), kerr.UnknownTopicOrPartition.Code, -1},
				} {
					checkProduced(t, ask[*kmsg.ProduceResponse](c, produceRequest(topic, try.partition, try.batch)), topic, try.partition, try.want, try.offset)
				}
				metadata := kmsg.NewPtrMetadataRequest()
				metadata.Version = 12
				names := map[string]int{}
				for _, rt := range ask[*kmsg.MetadataResponse](c, metadata).Topics {
					names[*rt.Topic] += len(rt.Partitions)
				}
				if names[fmt.Sprintf("t%d", i)] != 1 || len(names) > connections {
					t.Errorf("topics and how many partitions they have: %v", names)
				}
			}
		})
	}
	wg.Wait()
}

func checkProduced(t *testing.T, got *kmsg.ProduceResponse, topic uuid.UUID, partition int32, code int16, offset int64) {
	want := kmsg.NewProduceResponseTopicPartition()
	want.Partition, want.ErrorCode, want.BaseOffset, want.LogAppendTime, want.LogStartOffset = partition, code, offset, -1, -1
	if code == 0 {
		want.LogStartOffset = 0
	}
	if len(got.Topics) != 1 || got.Topics[0].TopicID != topic || len(got.Topics[0].Partitions) != 1 || len(got.Brokers) != 0 || got.ThrottleMillis != 0 {
		t.Errorf("answer %+v", got)
		return
	}
	p := got.Topics[0].Partitions[0]
	if (p.ErrorMessage == nil) != (code == 0) {
		t.Errorf("error code %d without a message, or a message without one: %v", code, p.ErrorMessage)
	}
	p.ErrorMessage = nil
	if d := cmp.Diff(want, p, cmp.AllowUnexported(kmsg.Tags{})); d != "" {
		t.Error(d)
	}
}
