package quorum

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/uuid"
	"ottla/internal/vfs"
)

var errUnreachable = errors.New("connection refused")

// call sends a request over the wire, as it were, to the voter that listens at an endpoint.
func (c *cluster) call(ctx context.Context, to Endpoint, req kmsg.Request) (kmsg.Response, error) {
	time.Sleep(time.Millisecond)
	wire := kmsg.RequestForKey(req.Key())
	wire.SetVersion(req.GetVersion())
	if err := wire.ReadFrom(req.AppendTo(nil)); err != nil {
		return nil, err
	}
	c.mu.Lock()
	var voter *Voter
	for _, n := range c.nodes {
		if c.set[n.id].Endpoints[0].Host == to.Host {
			voter = n.voter
		}
	}
	c.mu.Unlock()
	if voter == nil {
		return nil, errUnreachable
	}
	resp := wire.ResponseKind()
	switch r := wire.(type) {
	case *kmsg.ApiVersionsRequest:
		resp.(*kmsg.ApiVersionsResponse).ApiKeys = []kmsg.ApiVersionsResponseApiKey{
			{ApiKey: 1, MinVersion: 4, MaxVersion: 18}, {ApiKey: 59, MinVersion: 0, MaxVersion: 1},
		}
	case *kmsg.FetchRequest:
		resp = voter.ServeFetch(ctx, r)
	case *kmsg.FetchSnapshotRequest:
		resp = voter.ServeFetchSnapshot(r)
	default:
		return nil, fmt.Errorf("request %T", req)
	}
	back := wire.ResponseKind()
	return back, back.ReadFrom(resp.AppendTo(nil))
}

// observe starts an observer that knows one controller only.
func (c *cluster) observe(fs vfs.FS) *Observer {
	c.t.Helper()
	return c.observeBy(fs, c.call)
}

func (c *cluster) observeBy(fs vfs.FS, call Caller) *Observer {
	c.t.Helper()
	return c.observeWith(ObserverOptions{FS: fs, Call: call})
}

// observeWith is observeBy with options of the test's own.
func (c *cluster) observeWith(options ObserverOptions) *Observer {
	c.t.Helper()
	options.Dir, options.ClusterID, options.NodeID, options.DirectoryID = "/data", testCluster, 100, uuid.UUID{100}
	options.Controllers = []Replica{{NodeID: -1, Endpoints: c.set[0].Endpoints}, {NodeID: -1, Endpoints: c.set[len(c.set)-1].Endpoints}}
	options.Logger, options.OnFailure = slog.New(slog.DiscardHandler), func(err error) { c.t.Error(err) }
	o, err := OpenObserver(context.Background(), options)
	if err != nil {
		c.t.Fatal(err)
	}
	return o
}

// catchUp waits until the observer has what the leader has.
func (c *cluster) catchUp(o *Observer) {
	c.t.Helper()
	for range 30_000 {
		n, _ := c.leader(-1)
		if o.HighWatermark() == n.voter.HighWatermark() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	c.t.Fatalf("the observer is at offset %d", o.HighWatermark())
}

func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 1)
		c.startAll()
		defer c.stopAll()
		disk := vfs.NewMem()
		o := c.observe(disk)
		c.propose(0)
		c.catchUp(o)
		began := time.Now()
		c.propose(1)
		c.catchUp(o)
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("a record took %v to the observer", took)
		}
		leader, epoch := c.leader(-1)
		if id, e := o.Leader(); id != leader.id || e != epoch {
			t.Errorf("the observer follows %d in epoch %d, and %d leads in %d", id, e, leader.id, epoch)
		}
		if e, ok := o.LeaderEndpoint(); !ok || e.Host != c.set[leader.id].Endpoints[0].Host {
			t.Errorf("leader at %v", e)
		}
		if !sameVoters(o.Voters(), leader.voter.Voters()) || len(o.Voters()) != 3 {
			t.Errorf("voters %+v", o.Voters())
		}
		leader.crash()
		c.leader(epoch)
		c.propose(2)
		c.catchUp(o)
		leader.start()
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
		for i := 3; i < 6; i++ {
			c.propose(i)
		}
		alone := c.observeBy(disk.Crash(1, nil), func(context.Context, Endpoint, kmsg.Request) (kmsg.Response, error) { return nil, errUnreachable })
		if got := storedTopics(t, alone); alone.HighWatermark() != 0 || !slices.Equal(got, topicNames(3)) {
			t.Errorf("below %d is committed, and stored are the topics %v", alone.HighWatermark(), got)
		}
		if err := alone.Close(); err != nil {
			t.Fatal(err)
		}
		o = c.observe(disk.Crash(0.5, c.rng))
		defer o.Close()
		c.catchUp(o)
		if got := topics(t, o); !slices.Equal(got, topicNames(6)) {
			t.Errorf("topics %v", got)
		}
	})
}

// TestObserverSnapshot: an observer that comes late begins with the snapshot, and one that fell behind gets it too.
func TestObserverSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.startAll()
		defer c.stopAll()
		behind := vfs.NewMem()
		c.propose(0)
		o := c.observe(behind)
		c.catchUp(o)
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
		next := 1
		for range 2 {
			for range 20 {
				c.propose(next)
				next++
			}
			saveTopics(t, c.nodes[0], next)
		}
		c.propose(next)
		for _, disk := range []*vfs.Mem{behind, vfs.NewMem()} {
			o := c.observe(disk)
			c.catchUp(o)
			if got := topics(t, o); !slices.Equal(got, topicNames(next+1)) {
				t.Errorf("topics %v", got)
			}
			v := o.log.view()
			if got := storedTopics(t, o); !slices.Equal(got, topicNames(next+1)) {
				t.Errorf("stored topics %v", got)
			}
			if newest, _ := newestOf(c.nodes[0].voter.log); len(v.snapshots) != 1 || v.snapshots[0] != newest {
				t.Errorf("snapshots %v", v.snapshots)
			}
			if err := o.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestObserverSavesSnapshots: what an observer's own snapshots cover leaves its log, which goes on all the same, also after a crash.
func TestObserverSavesSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.startAll()
		defer c.stopAll()
		disk := vfs.NewMem()
		open := func() *Observer {
			o := c.observeWith(ObserverOptions{FS: disk, Call: c.call, Log: LogOptions{SegmentBytes: 100, MaxBytes: 1}}) // a batch in each segment
			c.catchUp(o)
			return o
		}
		o := open()
		for i := range 9 {
			c.propose(i)
			c.catchUp(o)
			if i%2 == 0 {
				continue
			}
			saveSnapshot(t, o, o.log)
			v := o.log.view()
			if i > 1 && (len(v.snapshots) != 1 || v.snapshots[0].EndOffset != v.end.Offset || o.log.log.StartOffset() != v.end.Offset) {
				t.Errorf("at %d topics the snapshots are %v, and the log holds %d to %d", i+1, v.snapshots, o.log.log.StartOffset(), v.end.Offset)
			}
			if i == 5 {
				disk = disk.Crash(0.5, c.rng)
				if err := o.Close(); err != nil {
					t.Fatal(err)
				}
				o = open()
			}
			if got := topics(t, o); !slices.Equal(got, topicNames(i+1)) {
				t.Errorf("at %d topics: %v", i+1, got)
			}
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestObserverSavesNoneWhileFetching: a snapshot that comes from the leader is not got in the way of by one of the observer's own.
func TestObserverSavesNoneWhileFetching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.startAll()
		defer c.stopAll()
		for i := range 2 {
			c.propose(i)
			saveTopics(t, c.nodes[0], i+1)
		}
		opened, asked := make(chan *Observer, 1), 0
		o := c.observeBy(vfs.NewMem(), func(ctx context.Context, to Endpoint, req kmsg.Request) (kmsg.Response, error) {
			if _, ok := req.(*kmsg.FetchSnapshotRequest); ok && asked == 0 {
				asked++
				if err := (<-opened).SaveSnapshot(SnapshotID{EndOffset: 1, Epoch: 1}, nil); err != nil {
					t.Errorf("a snapshot while one is fetched: %v", err)
				}
			}
			return c.call(ctx, to, req)
		})
		opened <- o
		defer o.Close()
		c.catchUp(o)
		if got := topics(t, o); asked == 0 || !slices.Equal(got, topicNames(2)) {
			t.Errorf("topics %v, a snapshot was fetched: %v", got, asked > 0)
		}
	})
}

// TestStoredWhileSnapshotGoes: a snapshot that is deleted before it was read is followed by the one that took its place.
func TestStoredWhileSnapshotGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.log = LogOptions{SegmentBytes: 100, MaxBytes: 1}
		c.startAll()
		defer c.stopAll()
		n := c.nodes[0]
		c.propose(0)
		saveTopics(t, n, 1)
		c.propose(1)
		var seen []SnapshotID
		err := n.voter.Stored(func(event Event) error {
			s, ok := event.(Snapshot)
			if !ok {
				return fmt.Errorf("an event %T", event)
			}
			if seen = append(seen, s.ID); len(seen) == 1 {
				saveTopics(t, n, 2)
				if err := s.Values(func([]byte) error { return nil }); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("reading the snapshot that is gone: %v", err)
				}
			}
			return nil
		})
		if err != nil || len(seen) != 2 || seen[1].EndOffset != n.voter.HighWatermark() {
			t.Errorf("the snapshots %v were seen below %d, %v", seen, n.voter.HighWatermark(), err)
		}
	})
}

// TestObserverOptions: what an observer asks for at a time, how long it waits for an answer and before it asks again, by Kafka's
// defaults and as configured.
func TestObserverOptions(t *testing.T) {
	for name, test := range map[string]struct {
		options         ObserverOptions
		bytes, piece    int32
		answer, backoff time.Duration
	}{
		"defaults": {ObserverOptions{}, 1 << 20, 1 << 20, 2 * time.Second, 20 * time.Millisecond},
		"configured": {
			ObserverOptions{FetchMaxBytes: 3000, FetchSnapshotMaxBytes: 77, RequestTimeout: 5 * time.Second, RetryBackoff: 300 * time.Millisecond},
			3000, 77, 5 * time.Second, 300 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, 1)
				c.startAll()
				defer c.stopAll()
				c.propose(0)
				saveTopics(t, c.nodes[0], 1)
				c.propose(1)
				var asked []time.Time // the first ones, which are not answered
				options := test.options
				options.FS = vfs.NewMem()
				options.Call = func(ctx context.Context, to Endpoint, req kmsg.Request) (kmsg.Response, error) {
					if len(asked) < 3 {
						asked = append(asked, time.Now())
						if len(asked) == 1 {
							<-ctx.Done()
						}
						return nil, errUnreachable
					}
					switch req := req.(type) {
					case *kmsg.FetchRequest:
						if p := req.Topics[0].Partitions[0]; req.MaxBytes != test.bytes || p.PartitionMaxBytes != test.bytes {
							t.Errorf("a fetch of %d bytes, %d of the partition; want %d", req.MaxBytes, p.PartitionMaxBytes, test.bytes)
						}
					case *kmsg.FetchSnapshotRequest:
						if req.MaxBytes != test.piece {
							t.Errorf("a piece of %d bytes of a snapshot, want %d", req.MaxBytes, test.piece)
						}
					}
					return c.call(ctx, to, req)
				}
				o := c.observeWith(options)
				defer o.Close()
				c.catchUp(o)
				if got := topics(t, o); !slices.Equal(got, topicNames(2)) {
					t.Errorf("topics %v", got)
				}
				if took := asked[1].Sub(asked[0]); took != test.answer+test.backoff {
					t.Errorf("asked again after %v, want %v for the answer and %v more", took, test.answer, test.backoff)
				}
				if took := asked[2].Sub(asked[1]); took != 2*test.backoff {
					t.Errorf("and then after %v, want %v", took, 2*test.backoff)
				}
			})
		})
	}
}

// fetchOf returns a Fetch v17 as an observer sends it.
func fetchOf(epoch int32, offset int64, last int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(17)
	req.MaxBytes = 1 << 20
	req.ReplicaState.ID, req.ReplicaState.Epoch = 100, -1
	p := kmsg.NewFetchRequestTopicPartition()
	p.CurrentLeaderEpoch, p.FetchOffset, p.LastFetchedEpoch = epoch, offset, last
	topic := kmsg.NewFetchRequestTopic()
	topic.TopicID = uuid.Metadata
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	return req
}

// TestFetchErrors: the answers are those measured at Apache Kafka 4.4.0.
func TestFetchErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.startAll()
		defer c.stopAll()
		n := c.nodes[0]
		for range 3 { // to epoch 3
			c.propose(0)
			n.stop()
			n.start()
			c.leader(-1)
		}
		_, epoch := c.leader(3)
		end := n.voter.HighWatermark()
		for _, test := range []struct {
			name   string
			epoch  int32
			offset int64
			last   int32
			want   int16
		}{
			{"leader epoch -1", -1, 0, 0, kerr.InvalidRequest.Code},
			{"old epoch", epoch - 1, 0, 0, kerr.FencedLeaderEpoch.Code},
			{"old epoch, newer last fetched", epoch - 1, 0, epoch, kerr.InvalidRequest.Code},
			{"last fetched -1", epoch, 0, -1, kerr.InvalidRequest.Code},
			{"last fetched in the future", epoch, 0, epoch + 1, kerr.InvalidRequest.Code},
			{"epoch in the future", epoch + 1, 0, 0, kerr.UnknownLeaderEpoch.Code},
			{"good", epoch, 0, 0, 0},
		} {
			resp := n.voter.ServeFetch(context.Background(), fetchOf(test.epoch, test.offset, test.last))
			p := resp.Topics[0].Partitions[0]
			if p.ErrorCode != test.want {
				t.Errorf("%s: error %d, want %d", test.name, p.ErrorCode, test.want)
			}
			if p.CurrentLeader.LeaderID != n.id || p.CurrentLeader.LeaderEpoch != epoch || len(resp.Brokers) != 1 {
				t.Errorf("%s: leader %+v at %+v", test.name, p.CurrentLeader, resp.Brokers)
			}
		}
		p := n.voter.ServeFetch(context.Background(), fetchOf(epoch, 3, 0)).Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.DivergingEpoch.Epoch != 0 || p.DivergingEpoch.EndOffset != 0 {
			t.Errorf("offset 3 of epoch 0: %+v", p)
		}
		p = n.voter.ServeFetch(context.Background(), fetchOf(epoch, 1<<40, epoch)).Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.DivergingEpoch.Epoch != epoch || p.DivergingEpoch.EndOffset != end {
			t.Errorf("offset 2^40: %+v", p)
		}
		req := fetchOf(epoch, 0, 0)
		req.Topics[0].TopicID = uuid.UUID{1}
		if resp := n.voter.ServeFetch(context.Background(), req); resp.ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("wrong topic: %d", resp.ErrorCode)
		}
		other := "another"
		req = fetchOf(epoch, 0, 0)
		req.ClusterID = &other
		if resp := n.voter.ServeFetch(context.Background(), req); resp.ErrorCode != kerr.InconsistentClusterID.Code {
			t.Errorf("wrong cluster: %d", resp.ErrorCode)
		}
		// Nothing new: the answer takes as long as the request allows.
		req = fetchOf(epoch, end, epoch)
		req.MaxWaitMillis = 500
		began := time.Now()
		if resp := n.voter.ServeFetch(context.Background(), req); len(resp.Topics[0].Partitions[0].RecordBatches) != 0 || time.Since(began) != 500*time.Millisecond {
			t.Errorf("an empty fetch took %v: %+v", time.Since(began), resp)
		}
		describe := kmsg.NewPtrDescribeQuorumRequest()
		describe.SetVersion(2)
		topic := kmsg.NewDescribeQuorumRequestTopic()
		topic.Topic = Topic
		topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
		describe.Topics = append(describe.Topics, topic)
		d := n.voter.Describe(describe).Topics[0].Partitions[0]
		if d.LeaderID != n.id || d.LeaderEpoch != epoch || d.HighWatermark != end || len(d.CurrentVoters) != 1 ||
			d.CurrentVoters[0].LogEndOffset != end || len(d.Observers) != 1 || d.Observers[0].ReplicaID != 100 {
			t.Errorf("described as %+v", d)
		}
	})
}
