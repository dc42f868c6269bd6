package broker

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/vfs"
)

// While a disk takes its time to make replicas, a Produce waits for all of them together, a fetch for as long as it wants to,
// and then they are served.
func TestReplicasBeingOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 3
		disk, opened := newDisk(t), make(chan struct{})
		b, connect := startInBubble(t, disk, nil)
		disk.Inject(func(op vfs.Op) error {
			if strings.Contains(op.Path, "/slow-") {
				<-opened
			}
			return nil
		})
		producer, consumer := connect(), connect()
		defer b.Close()
		topic := producer.createTopic("slow", partitions)

		fetch := fetchRequest(0, initialEpoch, from(topic, 0, 0))
		fetch.MaxWaitMillis = 60_000
		consumer.send(fetch)

		req := produceRequest(topic, 0, batch(10))
		for p := int32(1); p < partitions; p++ {
			req.Topics = append(req.Topics, produceRequest(topic, p, batch(10)).Topics...)
		}
		began := time.Now()
		resp := ask[*kmsg.ProduceResponse](producer, req)
		if took := time.Since(began); took != readyWait {
			t.Errorf("the producer waited for %s, want %s", took, readyWait)
		}
		for i := range resp.Topics {
			if code := resp.Topics[i].Partitions[0].ErrorCode; code != kerr.NotLeaderForPartition.Code {
				t.Errorf("partition %d: error code %d, want NOT_LEADER_OR_FOLLOWER", i, code)
			}
		}

		close(opened)
		one := batch(10)
		producer.produce(topic, 0, one)
		if d := cmp.Diff(map[int32]int{0: len(one)}, fetched(answerTo[*kmsg.FetchResponse](consumer, fetch))); d != "" {
			t.Errorf("bytes by partition (-want +got):\n%s", d)
		}
	})
}
