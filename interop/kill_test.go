//go:build interop

package interop

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestKill kills the broker with SIGKILL while a producer writes, and starts one on the same directory, ottla and
// Apache Kafka in turn. What was acknowledged is there, at the offset that was told, and once.
func TestKill(t *testing.T) {
	const topic, perRound = "killed", 3000
	dir := t.TempDir()
	acked := map[string]string{} // record by "partition offset"
	for round, kind := range []string{"ottla", "ottla", "apache", "ottla", "apache", "ottla", "ottla"} {
		var b *broker
		if kind == "apache" {
			b = startApacheProcess(t, dir)
		} else {
			b = startBroker(t, dir)
		}
		if round == 0 {
			b.create(t, topic, partitions, "segment.ms=50")
		} else {
			b.lead(t, topic, partitions)
			checkAcked(t, b.read(t, topic), acked, fmt.Sprintf("%s in round %d", kind, round))
		}
		b.killUnderLoad(t, topic, fmt.Sprintf("round-%d", round), perRound, acked)
	}
	b := startBroker(t, dir)
	b.lead(t, topic, partitions)
	checkAcked(t, b.read(t, topic), acked, "at the end")
}

// lead waits until every partition of topic has a leader.
func (b *broker) lead(t *testing.T, topic string, partitions int) {
	t.Helper()
	eventually(t, topic+" is led", func() bool {
		ends, err := b.admin.ListEndOffsets(t.Context(), topic)
		return err == nil && ends.Error() == nil && len(ends[topic]) == partitions
	})
}

// killUnderLoad produces until count records are acknowledged, kills the broker while it goes on, and notes all
// acknowledged ones in acked.
func (b *broker) killUnderLoad(t *testing.T, topic, prefix string, count int, acked map[string]string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.ProducerBatchMaxBytes(4096), kgo.ProducerLinger(time.Millisecond),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerBatchCompression(kgo.SnappyCompression(), kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var mu sync.Mutex
	enough, left := make(chan struct{}), count
	var producing, promised sync.WaitGroup
	producing.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			promised.Add(1)
			cl.Produce(ctx, &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%s-%d", prefix, i)}, func(r *kgo.Record, err error) {
				defer promised.Done()
				if err != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				acked[fmt.Sprint(r.Partition, r.Offset)] = string(r.Value)
				if left--; left == 0 {
					close(enough)
				}
			})
		}
	})
	select {
	case <-enough:
	case <-ctx.Done():
		t.Error("not enough records acknowledged")
	}
	b.kill(t)
	cancel()
	cl.Close()
	producing.Wait()
	promised.Wait()
}

// checkAcked holds what was read against what was acknowledged. Records without an acknowledgement may be there.
func checkAcked(t *testing.T, lines string, acked map[string]string, when string) {
	t.Helper()
	read, offsets := map[string]string{}, map[string]string{}
	for l := range strings.Lines(lines) {
		f := strings.Fields(l) // partition, offset, timestamp, value: there is no key
		at, value := f[0]+" "+f[1], f[3]
		if other, twice := offsets[value]; twice {
			t.Errorf("%s: %s is at %s and at %s", when, value, other, at)
		}
		read[at], offsets[value] = value, at
	}
	missing := 0
	for at, value := range acked {
		if read[at] != value {
			if missing++; missing < 5 {
				t.Errorf("%s: acknowledged %s at %s, there is %q", when, value, at, read[at])
			}
		}
	}
	if t.Failed() {
		t.Fatalf("%s: %d of %d acknowledged records are missing", when, missing, len(acked))
	}
	t.Logf("%s: %d acknowledged, %d read", when, len(acked), len(read))
}
