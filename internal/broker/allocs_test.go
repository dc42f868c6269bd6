//go:build !race

// The race detector has pools forget what they hold, so that allocations cannot be counted.

package broker

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol"
	"ottla/internal/vfs"
)

// The bounds on what one request may allocate, from the socket through transport, broker, replica and storage and back.
const (
	produceAllocs  = 12
	fetchAllocs    = 8
	metadataAllocs = 20 // however many topics
)

// oneProduce returns a function that appends one batch to one partition of a topic with settings, and waits for the answer.
func oneProduce(tb testing.TB, acks int16, settings ...string) func() {
	b := startNode(tb, vfs.OS, map[string]string{"log.dirs": tb.TempDir()}) // the twin in memory allocates what it writes
	c := dial(tb, b)
	topic := c.createTopic("t", 1, settings...)
	req := produceRequest(topic, 0, batch(100))
	req.Acks = acks
	frame := protocol.AppendRequest(nil, req, 1, kmsg.StringPtr("test"))
	return func() { c.exchange(frame) }
}

// oneFetch returns a function that fetches incrementally, from a partition that has a record of size bytes.
func oneFetch(tb testing.TB, size int) func() {
	b := startNode(tb, vfs.OS, map[string]string{"log.dirs": tb.TempDir()}) // the twin in memory allocates what it writes
	c := dial(tb, b)
	topic := c.createTopic("t", 1)
	c.produce(topic, 0, batch(size))
	id := ask[*kmsg.FetchResponse](c, fetchRequest(0, initialEpoch, from(topic, 0, 0))).SessionID
	req := fetchRequest(id, 0, from(topic, 0, 0))
	var frame []byte
	epoch := initialEpoch
	return func() {
		epoch = nextEpoch(epoch)
		req.SessionEpoch = epoch
		frame = protocol.AppendRequest(frame[:0], req, 1, nil)
		if n := len(c.exchange(frame)); n < size {
			tb.Fatalf("an answer of %d bytes has no records", n)
		}
	}
}

// oneMetadata returns a function that asks for all of 100 topics.
func oneMetadata(tb testing.TB) func() {
	b := startNode(tb, vfs.NewMem(), nil)
	c := dial(tb, b)
	for i := range 100 {
		c.createTopic(fmt.Sprintf("t%d", i), 1)
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	frame := protocol.AppendRequest(nil, req, 1, nil)
	return func() { c.exchange(frame) }
}

func TestAllocations(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func()
		most float64
	}{
		{"Produce", oneProduce(t, acksAll), produceAllocs},
		{"Produce acks=1", oneProduce(t, acksLeader), produceAllocs},
		{"Metadata", oneMetadata(t), metadataAllocs},
		{"Produce that waits", oneProduce(t, acksAll, "flush.messages", "1"), produceAllocs},
		{"Fetch of a copy", oneFetch(t, 100), fetchAllocs},
		{"Fetch by sendfile", oneFetch(t, 100_000), fetchAllocs},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range 100 { // so that pools are filled
				test.do()
			}
			got := testing.AllocsPerRun(50, test.do)
			for range 5 { // heartbeats and the like allocate, too
				got = min(got, testing.AllocsPerRun(50, test.do))
			}
			if got > test.most {
				t.Errorf("%.0f allocations a request, want at most %.0f", got, test.most)
			}
		})
	}
}

func BenchmarkProduce(b *testing.B) { benchmark(b, oneProduce(b, acksAll)) }

func BenchmarkFetch(b *testing.B) { benchmark(b, oneFetch(b, 100)) }

func benchmark(b *testing.B, do func()) {
	do()
	b.ReportAllocs()
	for b.Loop() {
		do()
	}
}

func BenchmarkProduceThatWaits(b *testing.B) {
	benchmark(b, oneProduce(b, acksAll, "flush.messages", "1"))
}
