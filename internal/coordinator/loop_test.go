package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/config"
	"ottla/internal/metadata"
	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
	"ottla/internal/record"
	"ottla/internal/uuid"
)

// A memLog is a partition in memory whose high watermark follows at once or when the test says so.
type memLog struct {
	mu     sync.Mutex
	b      []byte
	ends   []int64 // next offset of each batch
	starts []int   // byte of each batch
	end    int64
	hw     int64
	hold   bool          // the high watermark stays
	fail   error         // of Append
	hang   chan struct{} // Append returns once it is closed; nil: at once
	wake   func()
	armed  bool
	reads  int
	ready  chan struct{} // closed when it is; nil: it is
}

func (l *memLog) Ready(ctx context.Context) error {
	if l.ready == nil {
		return nil
	}
	select {
	case <-l.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *memLog) Append(batch []byte, epoch int32) (int64, error) {
	l.mu.Lock()
	hang := l.hang
	l.mu.Unlock()
	if hang != nil {
		<-hang
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return 0, l.fail
	}
	h, err := record.ParseHeader(batch)
	if err != nil {
		return 0, err
	}
	record.SetBaseOffset(batch, l.end)
	record.SetLeaderEpoch(batch, epoch)
	l.starts = append(l.starts, len(l.b))
	l.b = append(l.b, batch...)
	l.end += int64(h.LastOffsetDelta) + 1
	l.ends = append(l.ends, l.end)
	if !l.hold {
		l.hw = l.end
	}
	return l.end, nil
}

func (l *memLog) HighWatermark() int64 { l.mu.Lock(); defer l.mu.Unlock(); return l.hw }

func (l *memLog) Bounds() (start, end int64) { l.mu.Lock(); defer l.mu.Unlock(); return 0, l.end }

func (l *memLog) Read(offset int64, maxBytes int, buf []byte) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	for i, end := range l.ends {
		if offset < end {
			h, err := record.ParseHeader(l.b[l.starts[i]:])
			if err != nil {
				return nil, err
			}
			n := min(max(maxBytes, h.Size()), len(l.b)-l.starts[i])
			return append(buf[:0], l.b[l.starts[i]:l.starts[i]+n]...), nil
		}
	}
	return nil, nil
}

func (l *memLog) Subscribe(wake func()) Subscription {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wake, l.armed = wake, true
	return l
}

func (l *memLog) Arm()   { l.mu.Lock(); l.armed = true; l.mu.Unlock() }
func (l *memLog) Close() { l.mu.Lock(); l.wake = nil; l.mu.Unlock() }

// set changes the log and wakes who subscribed.
func (l *memLog) set(f func()) {
	l.mu.Lock()
	f()
	wake := l.wake
	if !l.armed {
		wake = nil
	}
	l.armed = false
	l.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// A broker is a group coordinator over logs in memory.
type broker struct {
	t      *testing.T
	groups *Groups
	logs   []*memLog
	image  *metadata.Image
}

const partitions = 3

// parse returns the configuration of a broker with some settings.
func parse(t testing.TB, set ...string) *config.Config {
	t.Helper()
	c, err := config.Parse(config.Sources{Set: append([]string{"node.id=1", "process.roles=broker,controller", "controller.quorum.voters=1@localhost:9093",
		"listeners=PLAINTEXT://:9092,CONTROLLER://:9093", "controller.listener.names=CONTROLLER", "log.dirs=/d", "group.initial.rebalance.delay.ms=0"}, set...)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newBroker(t *testing.T, set ...string) *broker {
	b := &broker{t: t, image: metadata.Empty}
	for range partitions {
		b.logs = append(b.logs, &memLog{})
	}
	b.groups = NewGroups(Options{NodeID: 1, Config: parse(t, set...), Logger: slog.New(slog.DiscardHandler),
		Log: func(_ uuid.UUID, p int32) (Log, error) { return b.logs[p], nil }})
	t.Cleanup(b.groups.Close)
	b.apply(&records.FeatureLevelRecord{Name: protocol.FeatureGroup, FeatureLevel: 1})
	b.apply(newTopic(GroupTopic, partitions, 1)...)
	b.apply(newTopic("t", 2, 1)...)
	return b
}

func newTopic(name string, n int32, leader int32) []records.Message {
	id := uuid.UUID{0: name[0], 15: 200}
	out := []records.Message{&records.TopicRecord{Name: name, TopicID: id}}
	for p := range n {
		out = append(out, &records.PartitionRecord{TopicID: id, PartitionID: p, Replicas: []int32{1, 2}, ISR: []int32{1, 2},
			Directories: []uuid.UUID{{15: 201}, {15: 202}}, Leader: leader})
	}
	return out
}

// leader moves the leadership of all partitions of __consumer_offsets.
func (b *broker) leader(id int32) { b.apply(leaderChanges(id)...) }

func leaderChanges(id int32) (out []records.Message) {
	for p := range int32(partitions) {
		r := records.NewPartitionChangeRecord()
		r.TopicID, r.PartitionID, r.Leader = uuid.UUID{0: '_', 15: 200}, p, id
		out = append(out, r)
	}
	return out
}

func (b *broker) apply(changes ...records.Message) {
	d := metadata.NewDelta(b.image)
	for _, m := range changes {
		if err := d.Replay(m); err != nil {
			b.t.Fatal(err)
		}
	}
	b.image = d.Apply(b.image.Offset+1, 1)
	b.groups.Apply(d, b.image)
	synctest.Wait()
}

// ask hands in a request; what it returns tells the answer, nil while there is none.
func (b *broker) ask(req kmsg.Request) func() kmsg.Response {
	var mu sync.Mutex
	var got kmsg.Response
	go b.groups.Handle(b.t.Context(), req, func(resp kmsg.Response) { // it may have to wait for the log
		mu.Lock()
		defer mu.Unlock()
		if got != nil {
			b.t.Errorf("%T is answered twice", req)
		}
		got = resp
	})
	synctest.Wait()
	return func() kmsg.Response {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return got
	}
}

func commit(group string, offset int64) *kmsg.OffsetCommitRequest {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group = 9, group
	r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: offset}}}}
	return r
}

func commitCode(resp kmsg.Response) int16 {
	return resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
}

func (b *broker) committed(group string) string {
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Version, r.Group = 5, group
	r.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	resp := b.ask(r)()
	if resp == nil {
		return "waits"
	}
	f := resp.(*kmsg.OffsetFetchResponse)
	if f.ErrorCode != 0 {
		return kerr.ErrorForCode(f.ErrorCode).(*kerr.Error).Message
	}
	return fmt.Sprint(f.Topics[0].Partitions[0].Offset)
}

func (b *broker) logOf(group string) *memLog { return b.logs[PartitionFor(group, partitions)] }

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestAnswersWaitForTheHighWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		want(t, "commit", commitCode(b.ask(commit("g", 5))()), 0)
		want(t, "fetch", b.committed("g"), "5")

		log := b.logOf("g")
		log.hold = true
		second := b.ask(commit("g", 6))
		if second() != nil {
			t.Error("a commit was answered before it was replicated")
		}
		want(t, "a read of what is not replicated", b.committed("g"), "waits")
		log.set(func() { log.hw = log.end })
		want(t, "commit", commitCode(second()), 0)
		want(t, "fetch", b.committed("g"), "6")
	})
}

func TestCommitTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		log := b.logOf("g")
		log.hold = true
		c := b.ask(commit("g", 6))
		time.Sleep(5*time.Second - time.Nanosecond)
		if c() != nil {
			t.Error("the commit was answered before offsets.commit.timeout.ms")
		}
		time.Sleep(time.Nanosecond)
		want(t, "commit", commitCode(c()), kerr.CoordinatorNotAvailable.Code)
	})
}

func join(group string) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.ProtocolType, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 3, group, "consumer", 10000, 10000
	r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
	return r
}

func TestLeadershipGoesAndComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		want(t, "commit", commitCode(b.ask(commit("g", 5))()), 0)
		log := b.logOf("g")
		log.hold = true
		c := b.ask(commit("g", 6))
		log.hold = false
		b.leader(2)
		want(t, "commit that waited", commitCode(c()), kerr.NotCoordinator.Code)
		want(t, "commit elsewhere", commitCode(b.ask(commit("g", 7))()), kerr.NotCoordinator.Code)
		log.hw = log.end
		b.leader(1)
		want(t, "fetch after loading", b.committed("g"), "6") // it was in the log after all
		b.groups.Close()
		want(t, "fetch after the end", b.committed("g"), "NOT_COORDINATOR")
	})
}

// TestLeadershipGoesAndComesInOneDelta: what another broker wrote meanwhile counts, even if this one hears of it when it leads again.
func TestLeadershipGoesAndComesInOneDelta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		want(t, "commit", commitCode(b.ask(commit("g", 5))()), 0)
		other := newBroker(t)
		want(t, "a commit that makes the log longer", commitCode(other.ask(commit("g", 5))()), 0)
		want(t, "commit elsewhere", commitCode(other.ask(commit("g", 6))()), 0)
		log, is := b.logOf("g"), other.logOf("g")
		log.b, log.starts, log.ends, log.end, log.hw = is.b, is.starts, is.ends, is.end, is.hw

		b.apply(append(leaderChanges(2), leaderChanges(1)...)...)
		want(t, "fetch", b.committed("g"), "6")
		want(t, "commit", commitCode(b.ask(commit("g", 7))()), 0)
	})
}

func TestFailedAppendDropsTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		want(t, "commit", commitCode(b.ask(commit("g", 5))()), 0)
		first := b.ask(join("g"))
		time.Sleep(time.Millisecond)
		want(t, "first member", first().(*kmsg.JoinGroupResponse).ErrorCode, 0)
		parked := b.ask(join("g")) // waits for the first member to come again
		if parked() != nil {
			t.Error("the second member did not have to wait")
		}
		log := b.logOf("g")
		log.set(func() { log.fail = errors.New("2 replicas are in sync, 3 are needed") })
		other := b.ask(commit("simple"+sameAs("g"), 1))
		want(t, "commit that cannot be written", commitCode(other()), kerr.CoordinatorNotAvailable.Code)
		if got := parked(); got == nil || got.(*kmsg.JoinGroupResponse).ErrorCode == 0 {
			t.Errorf("the parked JoinGroup got %+v", got)
		}
		beat := kmsg.NewPtrHeartbeatRequest()
		beat.Group = "g"
		want(t, "fetch while it loads", b.committed("g"), "COORDINATOR_LOAD_IN_PROGRESS")
		want(t, "heartbeat while it loads", b.ask(beat)().(*kmsg.HeartbeatResponse).ErrorCode, 0)
		log.set(func() { log.fail = nil })
		time.Sleep(20 * time.Second)
		want(t, "fetch after loading", b.committed("g"), "5")
	})
}

// TestTurns: while one operation is held up by the disk, others wait for it, and none is forgotten: not what came meanwhile, nor the
// time, nor that the leadership went.
func TestTurns(t *testing.T) {
	for _, x := range []struct {
		name      string
		meanwhile func(*broker, *memLog)
		code      int16 // of those that waited
	}{
		{"others come", func(*broker, *memLog) {}, 0},
		{"time passes", func(*broker, *memLog) { time.Sleep(time.Hour) }, 0},
		{"the leadership goes", func(b *broker, _ *memLog) { b.leader(2) }, kerr.NotCoordinator.Code},
		{"the leadership goes and comes", func(b *broker, _ *memLog) { b.leader(2); b.leader(1) }, kerr.NotCoordinator.Code},
		{"the append fails", func(_ *broker, log *memLog) { log.set(func() { log.fail = errors.New("the disk failed") }) }, kerr.CoordinatorNotAvailable.Code},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t)
				log, hang := b.logOf("g"), make(chan struct{})
				want(t, "commit", commitCode(b.ask(commit("g", 5))()), 0)
				log.set(func() { log.hang = hang })
				first := b.ask(commit("g", 6))
				var rest []func() kmsg.Response
				for i := range 10 {
					rest = append(rest, b.ask(commit("simple"+sameAs("g"), int64(i))))
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				want(t, "groups told by a survey that does not wait", len(b.groups.Survey(ctx)), 0)
				x.meanwhile(b, log)
				for _, answer := range append(rest, first) {
					if answer() != nil {
						t.Fatal("a commit is answered that is not written")
					}
				}
				log.set(func() { log.hang = nil })
				close(hang)
				if code := commitCode(first()); code != 0 && code != x.code {
					t.Errorf("the one that was held up got %d", code)
				}
				for _, answer := range rest {
					want(t, "one that waited", commitCode(answer()), x.code)
				}
				log.set(func() { log.fail = nil })
				time.Sleep(20 * time.Second)
				b.leader(1)
				want(t, "commit afterwards", commitCode(b.ask(commit("g", 7))()), 0)
				groups := 1
				if x.code == 0 {
					groups = 2
				}
				want(t, "groups told by a survey", len(b.groups.Survey(t.Context())), groups)
			})
		})
	}
}

// TestTurnsOfMany: whoever has the turn, each operation is done once.
func TestTurnsOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, each = 8, 200
		b := newBroker(t)
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				for n := range each {
					answered := make(chan kmsg.Response, 2)
					b.groups.Handle(t.Context(), commit(fmt.Sprint("g", i), int64(n)), func(resp kmsg.Response) { answered <- resp })
					select {
					case resp := <-answered:
						want(t, "commit", commitCode(resp), 0)
					case <-time.After(time.Second): // of the bubble: all are at rest
						t.Errorf("commit %d of client %d has no answer", n, i)
						return
					}
					if len(answered) > 0 {
						t.Errorf("commit %d of client %d has two answers", n, i)
					}
				}
			})
		}
		wg.Wait()
		var written int64
		for _, log := range b.logs {
			written += log.end
		}
		want(t, "records", written, clients*each)
	})
}

// TestCallsWaitForLoading: a call waits for a partition that has just begun to load, but not for long.
func TestCallsWaitForLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		want(t, "commit", commitCode(b.ask(commit("g", 5))()), 0)
		load := func() chan struct{} {
			b.leader(2)
			b.logOf("g").ready = make(chan struct{})
			b.leader(1)
			return b.logOf("g").ready
		}
		ready := load()
		soon := b.ask(commit("g", 6))
		if soon() != nil {
			t.Error("a commit did not wait for the partition")
		}
		close(ready)
		want(t, "commit that waited", commitCode(soon()), 0)
		want(t, "fetch", b.committed("g"), "6")

		ready = load()
		late := b.ask(commit("g", 7))
		time.Sleep(patience)
		want(t, "commit that waited too long", commitCode(late()), kerr.CoordinatorLoadInProgress.Code)
		want(t, "fetch while it loads", b.committed("g"), "COORDINATOR_LOAD_IN_PROGRESS")
		close(ready)
		synctest.Wait()
		want(t, "fetch after loading", b.committed("g"), "6")
	})
}

// sameAs returns a suffix that puts "simple"+suffix into the partition of group.
func sameAs(group string) string {
	for i := 0; ; i++ {
		if s := fmt.Sprint(i); PartitionFor("simple"+s, partitions) == PartitionFor(group, partitions) {
			return s
		}
	}
}

func TestSeveralGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		names := []string{"a", "b", "c", "d", "e", ""}
		for i, n := range names {
			want(t, "commit for "+n, commitCode(b.ask(commit(n, int64(i)))()), 0)
		}
		list := b.ask(&kmsg.ListGroupsRequest{Version: 5})().(*kmsg.ListGroupsResponse)
		want(t, "groups", len(list.Groups), len(names))
		fetch := kmsg.NewPtrOffsetFetchRequest()
		fetch.Version = 10
		for _, n := range names {
			g := kmsg.NewOffsetFetchRequestGroup()
			g.Group = n
			fetch.Groups = append(fetch.Groups, g)
		}
		named := kmsg.NewOffsetFetchRequestGroup()
		named.Group, named.Topics = "b", []kmsg.OffsetFetchRequestGroupTopic{{TopicID: [16]byte{9}, Partitions: []int32{4}}, {TopicID: b.image.TopicByName("t").ID, Partitions: []int32{0}}}
		fetch.Groups = append(fetch.Groups, named)
		got := b.ask(fetch)().(*kmsg.OffsetFetchResponse)
		for i, n := range names {
			g := got.Groups[i]
			if g.Group != n || g.Topics[0].TopicID != b.image.TopicByName("t").ID || g.Topics[0].Partitions[0].Offset != int64(i) {
				t.Errorf("fetch of %q gave %+v", n, g)
			}
		}
		last := got.Groups[len(names)]
		want(t, "unknown topic id", last.Topics[1].Partitions[0].ErrorCode, kerr.UnknownTopicID.Code)
		want(t, "known topic id", last.Topics[0].Partitions[0].Offset, 1)

		describe := b.ask(&kmsg.DescribeGroupsRequest{Version: 6, Groups: []string{"e", "none", "a"}, IncludeAuthorizedOperations: true})().(*kmsg.DescribeGroupsResponse)
		want(t, "state of e", describe.Groups[0].State, "Empty")
		want(t, "operations on e", describe.Groups[0].AuthorizedOperations, 1<<3|1<<6|1<<8|1<<10|1<<11)
		want(t, "none", describe.Groups[1].ErrorCode, kerr.GroupIDNotFound.Code)
		remove := b.ask(&kmsg.DeleteGroupsRequest{Version: 2, Groups: []string{"a", "none", "b", "a"}})().(*kmsg.DeleteGroupsResponse)
		want(t, "delete a", remove.Groups[0].ErrorCode, 0)
		want(t, "delete none", remove.Groups[1].ErrorCode, kerr.GroupIDNotFound.Code)
		want(t, "answers for four names, one of them twice", len(remove.Groups), 3)
		want(t, "a is gone", b.committed("a"), "-1")

		b.apply(&records.RemoveTopicRecord{TopicID: b.image.TopicByName("t").ID})
		time.Sleep(time.Millisecond)
		want(t, "offset of a deleted topic", b.committed("c"), "-1")
	})
}

// TestCommitOfANewTopic: who has heard of a topic may commit for it, even if its group's partition has not heard yet.
func TestCommitOfANewTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		d := metadata.NewDelta(b.image)
		for _, m := range newTopic("n", 1, 1) {
			if err := d.Replay(m); err != nil {
				t.Fatal(err)
			}
		}
		s := *b.groups.shared.Load()
		s.image = d.Apply(b.image.Offset+1, 1)
		b.groups.shared.Store(&s)
		c := commit("g", 5)
		c.Topics[0].Topic = "n"
		want(t, "commit", commitCode(b.ask(c)()), 0)
	})
}

// TestTopicDeletedWhileNothingCanBeWritten: its offsets go when they can.
func TestTopicDeletedWhileNothingCanBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		want(t, "commit", commitCode(b.ask(commit("g", 5))()), 0)
		log := b.logOf("g")
		log.set(func() { log.fail = errors.New("2 replicas are in sync, 3 are needed") })
		b.apply(&records.RemoveTopicRecord{TopicID: b.image.TopicByName("t").ID})
		time.Sleep(time.Second)
		synctest.Wait() // for the attempt of this very instant
		want(t, "fetch while it loads", b.committed("g"), "COORDINATOR_LOAD_IN_PROGRESS")
		log.set(func() { log.fail = nil })
		time.Sleep(20 * time.Second)
		want(t, "fetch after loading", b.committed("g"), "-1")
		b.leader(2)
		b.leader(1)
		want(t, "fetch after loading again", b.committed("g"), "-1")
	})
}

// TestOrderOfRefusals: what is wrong with a request is said in Kafka's order, so that who may not know of a group does not learn of it.
func TestOrderOfRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.groups.authorize = func(_ context.Context, _ auth.Operation, kind auth.ResourceType, _ string) bool {
			return kind == auth.Group
		}
		beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		beat.Version, beat.SubscribedTopicNames = 1, []string{"t"}
		code := func() int16 { return b.ask(beat)().(*kmsg.ConsumerGroupHeartbeatResponse).ErrorCode }
		want(t, "the topic may not be seen", code(), kerr.TopicAuthorizationFailed.Code)
		b.groups.authorize = func(context.Context, auth.Operation, auth.ResourceType, string) bool { return false }
		want(t, "nor the group, which has no name", code(), kerr.GroupAuthorizationFailed.Code)
		b.groups.authorize = auth.AllowAll
		want(t, "the group has no name", code(), kerr.InvalidRequest.Code)

		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Version, sync.Protocol = 5, kmsg.StringPtr("range")
		want(t, "no protocol type", b.ask(sync)().(*kmsg.SyncGroupResponse).ErrorCode, kerr.InconsistentGroupProtocol.Code)
		sync.ProtocolType = kmsg.StringPtr("consumer")
		want(t, "no group", b.ask(sync)().(*kmsg.SyncGroupResponse).ErrorCode, kerr.InvalidGroupID.Code)
	})
}

func TestConsumerGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		beat.Version, beat.Group, beat.MemberID, beat.RebalanceTimeoutMillis = 1, "g", "m", 30000
		beat.SubscribedTopicNames, beat.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		b := newBroker(t)
		resp := b.ask(beat)().(*kmsg.ConsumerGroupHeartbeatResponse)
		want(t, "partitions of t", len(resp.Assignment.Topics[0].Partitions), 2)
		d := b.ask(&kmsg.ConsumerGroupDescribeRequest{Version: 1, Groups: []string{"", "g", "none"}})().(*kmsg.ConsumerGroupDescribeResponse)
		want(t, "no name", d.Groups[0].ErrorCode, kerr.InvalidGroupID.Code)
		want(t, "g", d.Groups[1].State, "Stable")
		want(t, "none", d.Groups[2].ErrorCode, kerr.GroupIDNotFound.Code)
		b.leader(2)
		b.leader(1)
		beat.MemberEpoch, beat.RebalanceTimeoutMillis, beat.SubscribedTopicNames, beat.Topics = 2, -1, nil, nil
		want(t, "heartbeat after loading", b.ask(beat)().(*kmsg.ConsumerGroupHeartbeatResponse).MemberEpoch, 2)

		off := newBroker(t, "group.coordinator.rebalance.protocols=classic")
		want(t, "switched off", off.ask(beat)().(*kmsg.ConsumerGroupHeartbeatResponse).ErrorCode, kerr.UnsupportedVersion.Code)
	})
}

// TestLoadIsBounded loads more than the buffer holds, with batches cut off at its end.
func TestLoadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, "offsets.load.buffer.size=700")
		for i := range 500 {
			b.ask(commit("g", int64(i)))
		}
		b.leader(2)
		log := b.logOf("g")
		log.reads = 0
		b.leader(1)
		want(t, "fetch", b.committed("g"), "499")
		if log.reads < 80 {
			t.Errorf("the log was read in %d pieces, which can not be of 700 bytes", log.reads)
		}
	})
}

// TestUnknownRecords: a kind of record from a newer release is passed over, a broken one keeps the partition from being served.
func TestUnknownRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.ask(commit("g", 5))
		b.leader(2)
		log := b.logOf("g")
		put := func(key, value []byte) {
			batch := record.NewBuilder(nil, record.BatchOptions{})
			batch.Append(record.Record{Key: key, Value: value})
			if _, err := log.Append(batch.Bytes(), 1); err != nil {
				t.Fatal(err)
			}
		}
		put([]byte{3, 3, 0}, nil)
		b.leader(1)
		want(t, "fetch", b.committed("g"), "5")
		b.leader(2)
		put([]byte{0, 1, 9}, nil)
		b.leader(1)
		time.Sleep(patience)
		want(t, "fetch of what cannot be read", b.committed("g"), "COORDINATOR_LOAD_IN_PROGRESS")
	})
}

func TestPartitionFor(t *testing.T) {
	// As Java prints Utils.abs(s.hashCode()) % 50; one of the hashes is the least int.
	for group, p := range map[string]int32{"": 0, "g": 3, "console-consumer-1": 24, "connect-sink": 22, "polygenelubricants": 0, "grüße-ключ": 48, "𝄞": 44} {
		want(t, group, PartitionFor(group, 50), p)
	}
	want(t, "hash beyond the BMP", javaHash("𝄞"), 1772394)
}
