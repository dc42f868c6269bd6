package controller

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"ottla/internal/config"
	"ottla/internal/metadata"
	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
	"ottla/internal/quorum"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeQuorum commits what it is given after delay, as the log would have it.
type fakeQuorum struct {
	delay  time.Duration
	events chan quorum.Event
	broken chan error // ends the events

	mu        sync.Mutex
	epoch     int32 // led; 0 none
	next      int64 // offset
	queue     []quorum.Batch
	types     []records.Message // all that was committed
	snapshots []quorum.SnapshotID
}

func newFakeQuorum(delay time.Duration) *fakeQuorum {
	return &fakeQuorum{delay: delay, events: make(chan quorum.Event, 1000), broken: make(chan error), next: 3} // after a leader's control batch
}

func (q *fakeQuorum) Next(ctx context.Context) (quorum.Event, error) {
	select {
	case e := <-q.events:
		return e, nil
	case err := <-q.broken:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (q *fakeQuorum) lead(id, epoch int32) {
	q.mu.Lock()
	q.epoch = epoch
	q.mu.Unlock()
	q.events <- quorum.LeaderChange{ID: id, Epoch: epoch}
}

// lose makes q forget everything that was proposed and not committed.
func (q *fakeQuorum) lose() {
	q.mu.Lock()
	q.epoch, q.queue = 0, nil
	q.mu.Unlock()
	q.events <- quorum.LeaderChange{ID: quorum.NoLeader, Epoch: 1}
}

func (q *fakeQuorum) Propose(epoch int32, values [][]byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if epoch != q.epoch {
		return quorum.ErrNotLeader
	}
	q.queue = append(q.queue, quorum.Batch{Epoch: epoch, Values: values, Timestamp: time.Now().UnixMilli(), Bytes: 100})
	time.AfterFunc(q.delay, q.commit)
	return nil
}

// commit commits the first of the queue.
func (q *fakeQuorum) commit() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		return
	}
	b := q.queue[0]
	q.queue = q.queue[1:]
	b.BaseOffset, b.LastOffset = q.next, q.next+int64(len(b.Values))-1
	for i, v := range b.Values {
		m, version, err := records.DecodeMetadata(v)
		if err != nil {
			panic(err)
		}
		if r, ok := m.(*records.RegisterBrokerRecord); ok && r.BrokerEpoch == stampedEpoch {
			r.BrokerEpoch = q.next + int64(i)
			b.Values[i] = records.AppendMetadata(nil, r, version)
		}
		q.types = append(q.types, m)
	}
	q.next = b.LastOffset + 1
	q.events <- b // of room enough
}

func (q *fakeQuorum) Bootstrap() ([][]byte, error) { return nil, nil }

func (q *fakeQuorum) SaveSnapshot(id quorum.SnapshotID, write func(func([]byte)) error) error {
	q.mu.Lock()
	q.snapshots = append(q.snapshots, id)
	q.mu.Unlock()
	return write(func(v []byte) {
		if _, _, err := records.DecodeMetadata(v); err != nil {
			panic(err)
		}
	})
}

func (q *fakeQuorum) count(match func(records.Message) bool) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, m := range q.types {
		if match(m) {
			n++
		}
	}
	return n
}

func isNoOpRecord(m records.Message) bool { _, ok := m.(*records.NoOpRecord); return ok }

func start(t *testing.T, q *fakeQuorum, settings ...string) *Controller {
	return New(Options{
		NodeID: 1, ClusterID: testCluster, Config: testConfig(t, settings...), Quorum: q, Events: q,
		Listeners: []config.Endpoint{{Name: "CONTROLLER", Host: "localhost", Port: 9093, SecurityProtocol: "PLAINTEXT"}},
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)), OnFailure: func(err error) { panic(err) },
	})
}

// TestFailureIsSaidLast: a metadata log that cannot be read any more ends the controller, which says so when it has answered what
// waited; Close waits for that to be said. A log that is closed is no failure.
func TestFailureIsSaidLast(t *testing.T) {
	for _, test := range []struct {
		name   string
		broken error
		fails  bool
	}{{"unreadable", io.ErrUnexpectedEOF, true}, {"closed", quorum.ErrClosed, false}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newFakeQuorum(time.Hour) // nothing is committed in time
				var code atomic.Int32         // of the answer to the request that waits
				var said []error
				c := New(Options{
					NodeID: 1, ClusterID: testCluster, Config: testConfig(t), Quorum: q, Events: q, Logger: slog.New(slog.DiscardHandler),
					OnFailure: func(err error) {
						time.Sleep(time.Second)
						if code.Load() != 41 {
							t.Error("the failure is said before the request is answered")
						}
						said = append(said, err)
					},
				})
				q.lead(1, 1)
				synctest.Wait()
				go func() {
					code.Store(int32(ask[*kmsg.BrokerRegistrationResponse](t, c, registrationOf(1, 1)).ErrorCode))
				}()
				synctest.Wait()
				q.broken <- test.broken
				synctest.Wait()
				c.Close()
				if code.Load() != 41 {
					t.Errorf("the request that waited is answered with error code %d, want NOT_CONTROLLER", code.Load())
				}
				if test.fails && (len(said) != 1 || !errors.Is(said[0], test.broken)) || !test.fails && len(said) > 0 {
					t.Errorf("said %v when Close returns", said)
				}
			})
		})
	}
}

func ask[R kmsg.Response](t *testing.T, c *Controller, req kmsg.Request) R {
	t.Helper()
	resp, err := c.Handle(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(R)
}

func registrationOf(id int32, incarnation byte) *kmsg.BrokerRegistrationRequest {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.SetVersion(req.MaxVersion())
	req.BrokerID, req.ClusterID, req.IncarnationID = id, testCluster, [16]byte{0: 7, 15: incarnation}
	l := kmsg.NewBrokerRegistrationRequestListener()
	l.Name, l.Host, l.Port = "PLAINTEXT", "localhost", 9092
	req.Listeners = append(req.Listeners, l)
	for _, f := range protocol.Features() {
		rf := kmsg.NewBrokerRegistrationRequestFeature()
		rf.Name, rf.MinSupportedVersion, rf.MaxSupportedVersion = f.Name, f.Min, f.Max
		req.Features = append(req.Features, rf)
	}
	req.LogDirs = [][16]byte{dir(id, 1)}
	return req
}

func heartbeatOf(id int32, epoch, offset int64) *kmsg.BrokerHeartbeatRequest {
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.SetVersion(req.MaxVersion())
	req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset = id, epoch, offset
	return req
}

func creationOf(name string) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(req.MaxVersion())
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 1, 1
	req.Topics = append(req.Topics, topic)
	return req
}

// unfenced brings a broker up and returns its epoch.
func unfencedBroker(t *testing.T, c *Controller) int64 {
	t.Helper()
	reg := ask[*kmsg.BrokerRegistrationResponse](t, c, registrationOf(1, 1))
	if reg.ErrorCode != 0 {
		t.Fatalf("registration: error code %d", reg.ErrorCode)
	}
	hb := ask[*kmsg.BrokerHeartbeatResponse](t, c, heartbeatOf(1, reg.BrokerEpoch, reg.BrokerEpoch))
	if hb.ErrorCode != 0 || hb.IsFenced || !hb.IsCaughtUp {
		t.Fatalf("heartbeat: %+v", hb)
	}
	return reg.BrokerEpoch
}

// A lone node's broker is up as soon as the log took two entries; its epoch is its record's offset.
func TestLoneBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQuorum(time.Millisecond)
		c := start(t, q)
		defer c.Close()
		if resp := ask[*kmsg.BrokerRegistrationResponse](t, c, registrationOf(1, 1)); resp.ErrorCode != 41 {
			t.Fatalf("before there is a leader: error code %d, not 41", resp.ErrorCode)
		}
		q.lead(1, 1)
		synctest.Wait()
		began := time.Now()
		// Offsets 3–11 are the bootstrap transaction, 12 this controller.
		if epoch := unfencedBroker(t, c); epoch != 13 {
			t.Errorf("broker epoch %d, want 13", epoch)
		}
		if took := time.Since(began); took > 5*time.Millisecond {
			t.Errorf("took %s", took)
		}
		created := ask[*kmsg.CreateTopicsResponse](t, c, creationOf("orders"))
		if created.Topics[0].ErrorCode != 0 {
			t.Errorf("%+v", created.Topics[0])
		}
		if epoch, active := c.Active(); epoch != 1 || !active {
			t.Errorf("Active() = %d, %v", epoch, active)
		}
	})
}

// A broker that stays silent is fenced after broker.session.timeout.ms, and one whose connection broke at once.
func TestFencing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQuorum(time.Millisecond)
		c := start(t, q)
		defer c.Close()
		q.lead(1, 1)
		synctest.Wait()
		epoch := unfencedBroker(t, c)
		fences := func() int {
			return q.count(func(m records.Message) bool {
				r, ok := m.(*records.BrokerRegistrationChangeRecord)
				return ok && r.Fenced == fenced
			})
		}
		time.Sleep(8900 * time.Millisecond)
		if fences() != 0 {
			t.Fatal("fenced too early")
		}
		time.Sleep(200 * time.Millisecond)
		if fences() != 1 {
			t.Fatal("not fenced after 9 s")
		}
		ask[*kmsg.BrokerHeartbeatResponse](t, c, heartbeatOf(1, epoch, epoch))
		c.Disconnected(1)
		time.Sleep(brokenGrace + 10*time.Millisecond)
		if fences() != 2 {
			t.Fatal("not fenced after its connection broke")
		}
	})
}

// Requests that come while an entry is on its way see what it decides, and share entries.
func TestSpeculation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQuorum(50 * time.Millisecond)
		c := start(t, q)
		defer c.Close()
		q.lead(1, 1)
		synctest.Wait()
		unfencedBroker(t, c)
		began := time.Now()
		codes := make(chan int16, 20)
		for range 20 {
			go func() {
				resp, err := c.Handle(t.Context(), creationOf("same"))
				if err != nil {
					panic(err)
				}
				codes <- resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode
			}()
		}
		created := 0
		for range 20 {
			switch code := <-codes; code {
			case 0:
				created++
			case 36: // exists
			default:
				t.Errorf("error code %d", code)
			}
		}
		if created != 1 {
			t.Errorf("created %d times", created)
		}
		if took := time.Since(began); took != 50*time.Millisecond {
			t.Errorf("answers after %s, want those of one entry", took)
		}
	})
}

// What was proposed when the leadership goes is answered NOT_CONTROLLER and forgotten.
func TestLosingLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQuorum(50 * time.Millisecond)
		c := start(t, q)
		defer c.Close()
		q.lead(1, 1)
		synctest.Wait()
		unfencedBroker(t, c)
		answered := make(chan int16, 1)
		go func() {
			resp, err := c.Handle(t.Context(), creationOf("lost"))
			if err != nil {
				panic(err)
			}
			answered <- resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode
		}()
		synctest.Wait()
		q.lose()
		if code := <-answered; code != 41 {
			t.Fatalf("error code %d, want 41", code)
		}
		if _, active := c.Active(); active {
			t.Error("still active")
		}
		q.lead(1, 3)
		synctest.Wait()
		created := ask[*kmsg.CreateTopicsResponse](t, c, creationOf("lost"))
		if created.Topics[0].ErrorCode != 0 {
			t.Errorf("after the return: %+v", created.Topics[0])
		}
	})
}

// While nothing happens a NoOpRecord is written every 500 ms, so that brokers know that they are up to date.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQuorum(time.Millisecond)
		c := start(t, q)
		defer c.Close()
		q.lead(1, 1)
		time.Sleep(5*time.Second + 10*time.Millisecond)
		if n := q.count(isNoOpRecord); n != 10 && n != 9 {
			t.Errorf("%d NoOpRecords in 5 s, want one each 500 ms", n)
		}
	})
}

func TestSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQuorum(time.Millisecond)
		c := start(t, q, "metadata.log.max.record.bytes.between.snapshots=1000")
		q.lead(1, 1)
		time.Sleep(6 * time.Second) // a batch of the fake has 100 bytes
		c.Close()
		if len(q.snapshots) != 1 {
			t.Fatalf("%d snapshots, want 1: %v", len(q.snapshots), q.snapshots)
		}
		// 10 batches: 9 records of the bootstrap from offset 3 on, the controller, 8 NoOps.
		if want := (quorum.SnapshotID{EndOffset: 21, Epoch: 1}); q.snapshots[0] != want {
			t.Errorf("snapshot %v, want %v", q.snapshots[0], want)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQuorum(time.Hour)
		c := start(t, q)
		q.lead(1, 1)
		synctest.Wait()
		answered := make(chan int16, 1)
		go func() {
			resp, err := c.Handle(t.Context(), registrationOf(1, 1))
			if err != nil {
				panic(err)
			}
			answered <- resp.(*kmsg.BrokerRegistrationResponse).ErrorCode
		}()
		synctest.Wait()
		c.Close()
		if code := <-answered; code != 41 {
			t.Errorf("error code %d, want 41", code)
		}
		if resp := ask[*kmsg.BrokerRegistrationResponse](t, c, registrationOf(1, 1)); resp.ErrorCode != 41 {
			t.Errorf("after Close: error code %d, want 41", resp.ErrorCode)
		}
	})
}

// The log cannot be followed: the node is told, once.
func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQuorum(0)
		failed := make(chan error, 2)
		c := New(Options{NodeID: 1, Config: testConfig(t), Quorum: q, Events: q, Logger: slog.New(slog.DiscardHandler), OnFailure: func(err error) { failed <- err }})
		q.events <- quorum.Batch{BaseOffset: 0, Values: [][]byte{{0xff}}}
		if err := <-failed; err == nil {
			t.Error("no error")
		}
		c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Handle(ctx, creationOf("x")); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A request that nothing answers is a mistake of ours: every API that Handles knows has a handler.
func TestEveryAPIHasAHandler(t *testing.T) {
	handled := 0
	for key := range int16(kmsg.MaxKey + 1) {
		if !Handles(key) {
			continue
		}
		handled++
		req := kmsg.RequestForKey(key)
		s := newScript(t)
		turn := newTurn(&s.world, metadata.Empty, s.now)
		if err := turn.bootstrap(nil); err != nil {
			t.Fatal(err)
		}
		for v := range req.MaxVersion() + 1 {
			req.SetVersion(v)
			resp := turn.handle(req)(0)
			resp.AppendTo(nil)
			if resp.Key() != key || resp.GetVersion() != v {
				t.Errorf("%s v%d is answered with %T v%d", kmsg.NameForKey(key), v, resp, resp.GetVersion())
			}
		}
	}
	if handled != 19 {
		t.Errorf("%d APIs", handled)
	}
}

func BenchmarkCreateTopics(b *testing.B) {
	w := world{nodeID: 1, clusterID: testCluster, config: testConfig(b), sessions: newSessions(9 * time.Second), newID: newLoop(Options{Config: testConfig(b)}, nil).world.newID}
	t := newTurn(&w, metadata.Empty, time.Now())
	if err := t.bootstrap(nil); err != nil {
		b.Fatal(err)
	}
	t.handle(registrationOf(1, 1))
	t.unfence(1)
	img := t.image()
	req := creationOf("t")
	req.Topics[0].NumPartitions = 10000
	b.ReportAllocs()
	for b.Loop() {
		t := newTurn(&w, img, time.Now())
		t.handle(req)
		t.image()
	}
}

// A broker that repeats its registration while the first is on its way gets the same epoch.
func TestRegistrationInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQuorum(50 * time.Millisecond)
		c := start(t, q)
		defer c.Close()
		q.lead(1, 1)
		synctest.Wait()
		epochs := make(chan int64, 3)
		for range 3 {
			go func() {
				resp, err := c.Handle(t.Context(), registrationOf(1, 1))
				if err != nil {
					panic(err)
				}
				epochs <- resp.(*kmsg.BrokerRegistrationResponse).BrokerEpoch
			}()
		}
		first := <-epochs
		for range 2 {
			if epoch := <-epochs; epoch != first || epoch < 0 {
				t.Errorf("epochs %d and %d", first, epoch)
			}
		}
		if resp := ask[*kmsg.BrokerHeartbeatResponse](t, c, heartbeatOf(1, first, first)); resp.ErrorCode != 0 || resp.IsFenced {
			t.Errorf("%+v", resp)
		}
		if resp := ask[*kmsg.BrokerHeartbeatResponse](t, c, heartbeatOf(1, -1, first)); resp.ErrorCode != 77 {
			t.Errorf("%+v", resp)
		}
	})
}
