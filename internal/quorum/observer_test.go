package quorum

import (
	"context"
	"errors"
	"fmt"
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
	o, err := OpenObserver(context.Background(), ObserverOptions{
		FS: fs, Dir: "/data", ClusterID: testCluster, NodeID: 100, DirectoryID: uuid.UUID{100},
		Controllers: []Replica{{NodeID: -1, Endpoints: c.set[0].Endpoints}, {NodeID: -1, Endpoints: c.set[len(c.set)-1].Endpoints}},
		Call:        call, Logger: slog.New(slog.DiscardHandler), OnFailure: func(err error) { c.t.Error(err) },
	})
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
			if len(v.snapshots) != 1 || v.snapshots[0].EndOffset != c.nodes[0].voter.log.view().snapshots[1].EndOffset {
				t.Errorf("snapshots %v", v.snapshots)
			}
			if err := o.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
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
