package broker

import (
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/uuid"
)

// A partition that an answer had no room for is not forgotten: its data comes with the next ones, though nothing
// happens to it any more.
func TestFetchLeavesNothingBehind(t *testing.T) {
	const partitions = 5
	b := startNode(t, newDisk(t), nil)
	c := dial(t, b)
	topic := c.createTopic("t", partitions)
	one := batch(1000)
	wants, want := []fetchWant{}, map[int32]int{}
	for p := range int32(partitions) {
		c.produce(topic, p, one)
		wants = append(wants, from(topic, p, 0))
		want[p] = len(one)
	}
	for _, room := range []int{1, len(one), len(one) + len(one)/2, 2 * len(one)} {
		t.Run(fmt.Sprint(room), func(t *testing.T) {
			req := fetchRequest(0, initialEpoch, wants...)
			got := map[int32]int{}
			for epoch := int32(1); len(got) < partitions && epoch < 2*partitions; epoch++ {
				req.MaxBytes = int32(room)
				resp := ask[*kmsg.FetchResponse](c, req)
				if resp.ErrorCode != 0 {
					t.Fatalf("error code %d", resp.ErrorCode)
				}
				var ahead []fetchWant
				for p, n := range fetched(resp) {
					if n > 0 {
						got[p] = n
						ahead = append(ahead, from(topic, p, 1))
					}
				}
				req = fetchRequest(resp.SessionID, epoch, ahead...)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("bytes by partition (-want +got):\n%s", d)
			}
		})
	}
}

// A session whose last partition is forgotten ends, and a fetch that asks for nothing does not wait.
func TestFetchOfNothing(t *testing.T) {
	b := startNode(t, newDisk(t), nil)
	c := dial(t, b)
	topic := c.createTopic("t", 1)
	first := ask[*kmsg.FetchResponse](c, fetchRequest(0, initialEpoch, from(topic, 0, 0)))
	if first.SessionID == 0 {
		t.Fatal("no session was made")
	}
	req := fetchRequest(first.SessionID, 1)
	req.MaxWaitMillis = int32(2 * answerWithin / time.Millisecond)
	req.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{TopicID: topic, Partitions: []int32{0}}}
	if resp := ask[*kmsg.FetchResponse](c, req); resp.ErrorCode != 0 || resp.SessionID != 0 || len(resp.Topics) != 0 {
		t.Errorf("forgetting everything was answered with %+v, want no error, session or topics", resp)
	}
	if resp := ask[*kmsg.FetchResponse](c, fetchRequest(first.SessionID, 2)); resp.ErrorCode != kerr.FetchSessionIDNotFound.Code {
		t.Errorf("error code %d, want FETCH_SESSION_ID_NOT_FOUND", resp.ErrorCode)
	}
}

// A fetch that waits is woken by news on whichever connection the session goes on.
func TestFetchWokenOnLaterConnection(t *testing.T) {
	b := startNode(t, newDisk(t), nil)
	producer, old, later := dial(t, b), dial(t, b), dial(t, b)
	topic := producer.createTopic("t", 1)
	first := ask[*kmsg.FetchResponse](old, fetchRequest(0, initialEpoch, from(topic, 0, 0)))
	wait := func(c *client, epoch int32) *kmsg.FetchRequest {
		req := fetchRequest(first.SessionID, epoch, from(topic, 0, 0))
		req.MaxWaitMillis = int32(2 * answerWithin / time.Millisecond)
		c.send(req)
		awaitWaiter(t, b, first.SessionID, epoch)
		return req
	}
	wait(old, 1)
	req := wait(later, 2)
	old.conn.Close()
	awaitConnections(t, b, 2)
	one := batch(10)
	producer.produce(topic, 0, one)
	if d := cmp.Diff(map[int32]int{0: len(one)}, fetched(answerTo[*kmsg.FetchResponse](later, req))); d != "" {
		t.Errorf("bytes by partition (-want +got):\n%s", d)
	}
}

// awaitWaiter waits until the request of a session's epoch waits for news.
func awaitWaiter(t *testing.T, b *Broker, id, epoch int32) {
	t.Helper()
	await(t, fmt.Sprintf("the fetch of epoch %d to wait", epoch), func() bool {
		b.sessions.mu.Lock()
		s := b.sessions.mu.sessions[id]
		b.sessions.mu.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.mu.waiter != nil && s.mu.epoch == nextEpoch(epoch)
	})
}

func awaitConnections(t *testing.T, b *Broker, n int) {
	t.Helper()
	await(t, fmt.Sprintf("%d connections", n), func() bool { return b.server.Connections() == n })
}

// await polls for what no call reports.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(answerWithin); !is(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// A topic that is deleted and made again is a new one for a session by topic id, and the same for one by name. Nothing of the
// session holds on to the partition that went.
func TestFetchOfRecreatedTopic(t *testing.T) {
	b := startNode(t, newDisk(t), nil)
	c := dial(t, b)
	topic := c.createTopic("t", 1)
	byName := func(req *kmsg.FetchRequest) *kmsg.FetchRequest {
		req.SetVersion(12)
		for i := range req.Topics {
			req.Topics[i].Topic = "t"
		}
		return req
	}
	ids := ask[*kmsg.FetchResponse](c, fetchRequest(0, initialEpoch, from(topic, 0, 0))).SessionID
	names := ask[*kmsg.FetchResponse](c, byName(fetchRequest(0, initialEpoch, from(topic, 0, 0)))).SessionID

	c.deleteTopic("t")
	await(t, "the topic to go", func() bool { return b.image().TopicByName("t") == nil })
	gone := ask[*kmsg.FetchResponse](c, fetchRequest(ids, 1))
	if d := cmp.Diff(map[int32]int{0: -int(kerr.UnknownTopicID.Code)}, fetched(gone)); d != "" {
		t.Errorf("by id, after deletion (-want +got):\n%s", d)
	}
	gone = ask[*kmsg.FetchResponse](c, byName(fetchRequest(names, 1)))
	if d := cmp.Diff(map[int32]int{0: -int(kerr.UnknownTopicOrPartition.Code)}, fetched(gone)); d != "" {
		t.Errorf("by name, after deletion (-want +got):\n%s", d)
	}
	for s := range maps.Values(b.sessions.mu.sessions) {
		for _, p := range s.mu.parts {
			if p.following.Partition() != nil {
				t.Errorf("session %d still follows the deleted partition", s.id)
			}
		}
	}

	again := c.createTopic("t", 1)
	one := batch(10)
	c.produce(again, 0, one)
	if d := cmp.Diff(map[int32]int{0: -int(kerr.UnknownTopicID.Code)}, fetched(ask[*kmsg.FetchResponse](c, fetchRequest(ids, 2)))); d != "" {
		t.Errorf("by id, made again (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[int32]int{0: len(one)}, fetched(ask[*kmsg.FetchResponse](c, byName(fetchRequest(names, 2))))); d != "" {
		t.Errorf("by name, made again (-want +got):\n%s", d)
	}
}

// Sessions are taken over, closed and evicted by other connections while a request of theirs is under way. The race detector
// is what looks on.
func TestFetchSessionsUnderContention(t *testing.T) {
	b := startNode(t, newDisk(t), map[string]string{"max.incremental.fetch.session.cache.slots": "2"})
	topic := dial(t, b).createTopic("t", 3)
	var running sync.WaitGroup
	var last atomic.Uint64 // session id, epoch
	for i := range 4 {
		c := dial(t, b)
		running.Go(func() { contend(c, topic, i, &last) })
	}
	producer := dial(t, b)
	for i := range int32(60) {
		producer.produce(topic, i%3, batch(200))
	}
	running.Wait()
	b.sessions.mu.Lock()
	defer b.sessions.mu.Unlock()
	if n := len(b.sessions.mu.sessions); n > 2 {
		t.Errorf("%d sessions are kept, want at most 2", n)
	}
}

// contend goes on with the session that was heard of last, its own or another's.
func contend(c *client, topic uuid.UUID, seed int, last *atomic.Uint64) {
	for i := range 60 {
		known := last.Load()
		id, epoch := int32(known>>32), int32(uint32(known))
		if i%7 == seed {
			epoch = initialEpoch // closes that session and makes another
		}
		req := fetchRequest(id, epoch, from(topic, int32(i%3), 0), from(topic, int32((i+seed)%3), 0))
		req.MaxWaitMillis, req.MinBytes = int32(i%5), 1<<20
		resp := ask[*kmsg.FetchResponse](c, req)
		if resp.ErrorCode != 0 {
			last.CompareAndSwap(known, 0)
			continue
		}
		last.Store(uint64(resp.SessionID)<<32 | uint64(uint32(nextEpoch(epoch))))
	}
}

// A fetch's answer says how long the client is throttled, and whether the client keeps still by itself, as kmsg's answer
// of the same version does.
func TestFetchThrottle(t *testing.T) {
	for version := int16(4); version <= 18; version++ {
		f := &fetching{req: &kmsg.FetchRequest{Version: version}}
		f.frame.Reset(version, 1)
		f.SetThrottle(1234)
		var frame []byte
		for _, part := range f.frame.Encode() {
			frame = append(frame, part.Bytes...)
		}
		resp := &kmsg.FetchResponse{Version: version}
		head := 8 // size, correlation id
		if resp.IsFlexible() {
			head++
		}
		if err := resp.ReadFrom(frame[head:]); err != nil {
			t.Fatal(err)
		}
		wantMillis, wantClient := resp.Throttle()
		if millis, client := f.Throttle(); millis != 1234 || wantMillis != 1234 || client != wantClient {
			t.Errorf("version %d: %d ms, client throttles %t; on the wire %d, %t", version, millis, client, wantMillis, wantClient)
		}
	}
}

// A fetch that asks for more than an older segment has is answered with that at once: it grows no more.
func TestFetchOfOlderSegmentDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, connect := startInBubble(t, newDisk(t), nil)
		defer b.Close()
		c := connect()
		one := batch(900)
		topic := c.createTopic("t", 1, "segment.bytes", strconv.Itoa(1<<20), "segment.ms", "1000")
		c.produce(topic, 0, one)
		time.Sleep(2 * time.Second)
		c.produce(topic, 0, batch(900)) // rolls the segment
		for offset, wait := range []time.Duration{0, 5 * time.Second} {
			req := fetchRequest(0, -1, from(topic, 0, int64(offset)))
			req.MinBytes, req.MaxWaitMillis = 1<<20, 5000
			began := time.Now()
			got := fetched(ask[*kmsg.FetchResponse](c, req))
			if took := time.Since(began); took != wait {
				t.Errorf("the fetch from offset %d took %v, want %v", offset, took, wait)
			}
			if d := cmp.Diff(map[int32]int{0: len(one)}, got); d != "" {
				t.Errorf("from offset %d, bytes by partition (-want +got):\n%s", offset, d)
			}
		}
	})
}

// What is wrong with a fetch as a whole is said for each partition where the answer has no other place, or clients would not see it.
func TestFetchRefusedAsAWhole(t *testing.T) {
	b := startNode(t, newDisk(t), nil)
	c := dial(t, b)
	topic := c.createTopic("t", 2)
	for version := int16(4); version <= 18; version++ {
		req := fetchRequest(0, -1, from(topic, 0, 0), from(topic, 1, 0))
		req.SetVersion(version)
		req.MaxBytes = -1
		for i := range req.Topics {
			req.Topics[i].Topic = "t"
		}
		resp := ask[*kmsg.FetchResponse](c, req)
		want := map[int32]int{}
		if version <= 12 {
			want = map[int32]int{0: -int(kerr.InvalidRequest.Code), 1: -int(kerr.InvalidRequest.Code)}
		}
		if d := cmp.Diff(want, fetched(resp)); d != "" {
			t.Errorf("version %d, error codes by partition (-want +got):\n%s", version, d)
		}
		if version >= 7 && resp.ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("version %d: error code %d, want INVALID_REQUEST", version, resp.ErrorCode)
		}
	}
}
