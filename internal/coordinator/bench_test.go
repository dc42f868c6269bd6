package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
	"ottla/internal/record"
	"ottla/internal/uuid"
)

// A sinkLog is a partition that keeps nothing and replicates at once.
type sinkLog struct{ end int64 }

func (l *sinkLog) Ready(context.Context) error             { return nil }
func (l *sinkLog) HighWatermark() int64                    { return l.end }
func (l *sinkLog) Bounds() (start, end int64)              { return 0, 0 }
func (l *sinkLog) Read(int64, int, []byte) ([]byte, error) { return nil, nil }
func (l *sinkLog) Subscribe(func()) Subscription           { return l }
func (l *sinkLog) Arm()                                    {}
func (l *sinkLog) Close()                                  {}
func (l *sinkLog) Append(b []byte, _ int32) (int64, error) {
	h, err := record.ParseHeader(b)
	l.end += int64(h.Count)
	return l.end, err
}

// A fleet is 1,000 groups of four members each, over the 50 partitions of a coordinator.
type fleet struct {
	b       *testing.B
	groups  *Groups
	members []fleetMember
}

type fleetMember struct {
	group, id string
	epoch     int32
}

const (
	fleetGroups     = 1000
	fleetMembers    = 4 // of each group
	fleetPartitions = 4 // of the topic that it reads, t
)

// newFleet returns a fleet at rest. Groups have settings of their own or not.
func newFleet(b *testing.B, settings bool) *fleet {
	f := &fleet{b: b, groups: NewGroups(Options{NodeID: 1, Logger: slog.New(slog.DiscardHandler),
		Config: parse(b, "group.consumer.assignment.interval.ms=0", "group.consumer.max.session.timeout.ms=3600000", "group.consumer.session.timeout.ms=3600000"),
		Log:    func(uuid.UUID, int32) (Log, error) { return &sinkLog{}, nil }})}
	b.Cleanup(f.groups.Close)
	changes := slices.Concat([]records.Message{&records.FeatureLevelRecord{Name: protocol.FeatureGroup, FeatureLevel: 1}},
		newTopic(GroupTopic, 50, 1), newTopic("t", fleetPartitions, 1))
	for g := range fleetGroups {
		for i := range fleetMembers {
			f.members = append(f.members, fleetMember{group: fmt.Sprintf("group-%d", g), id: fmt.Sprintf("member-%d-%d", g, i)})
		}
		if settings {
			changes = append(changes, &records.ConfigRecord{ResourceType: int8(metadata.GroupConfig), ResourceName: fmt.Sprintf("group-%d", g),
				Name: "consumer.heartbeat.interval.ms", Value: kmsg.StringPtr("7000")})
		}
	}
	d := metadata.NewDelta(metadata.Empty)
	for _, m := range changes {
		if err := d.Replay(m); err != nil {
			b.Fatal(err)
		}
	}
	f.groups.Apply(d, d.Apply(1, 1))
	f.join()
	return f
}

// all hands in a request of each member and waits for the answers.
func (f *fleet) all(ask func(m *fleetMember) kmsg.Request, told func(m *fleetMember, resp kmsg.Response)) {
	var wait sync.WaitGroup
	wait.Add(len(f.members))
	for i := range f.members {
		m := &f.members[i]
		f.groups.Handle(context.Background(), ask(m), func(resp kmsg.Response) { told(m, resp); wait.Done() })
	}
	wait.Wait()
}

// join has all members join, and beat until each has what it is to have.
func (f *fleet) join() {
	loading := true
	for loading {
		done := make(chan kmsg.Response, 1)
		f.groups.Handle(context.Background(), &kmsg.ListGroupsRequest{Version: 5}, func(resp kmsg.Response) { done <- resp })
		loading = (<-done).(*kmsg.ListGroupsResponse).ErrorCode != 0
	}
	for range 4 { // a round to join, to compute the target, to give back, to get
		f.all(func(m *fleetMember) kmsg.Request {
			r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
			r.Version, r.Group, r.MemberID, r.MemberEpoch, r.RebalanceTimeoutMillis = 1, m.group, m.id, m.epoch, 60000
			r.SubscribedTopicNames, r.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
			return r
		}, f.beaten)
	}
	f.all(func(m *fleetMember) kmsg.Request {
		return &kmsg.ConsumerGroupDescribeRequest{Version: 1, Groups: []string{m.group}}
	}, func(m *fleetMember, resp kmsg.Response) {
		if d := resp.(*kmsg.ConsumerGroupDescribeResponse).Groups[0]; d.State != "Stable" || len(d.Members) != fleetMembers {
			f.b.Errorf("%s is %s with %d members", m.group, d.State, len(d.Members))
		}
	})
}

func (f *fleet) beaten(m *fleetMember, resp kmsg.Response) {
	r := resp.(*kmsg.ConsumerGroupHeartbeatResponse)
	if r.ErrorCode != 0 {
		f.b.Errorf("heartbeat of %s: code %d", m.id, r.ErrorCode)
	}
	m.epoch = r.MemberEpoch
}

// BenchmarkFleet: an operation is one of each of 4,000 members.
func BenchmarkFleet(b *testing.B) {
	beat := func(m *fleetMember) kmsg.Request {
		r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		r.Version, r.Group, r.MemberID, r.MemberEpoch, r.RebalanceTimeoutMillis = 1, m.group, m.id, m.epoch, -1
		return r
	}
	b.Run("heartbeat", func(b *testing.B) {
		f := newFleet(b, false)
		for b.Loop() {
			f.all(beat, f.beaten)
		}
	})
	b.Run("heartbeat, groups with settings", func(b *testing.B) {
		f := newFleet(b, true)
		for b.Loop() {
			f.all(beat, f.beaten)
		}
	})
	b.Run("commit", func(b *testing.B) {
		f := newFleet(b, false)
		at := int64(0)
		for b.Loop() {
			at++
			f.all(func(m *fleetMember) kmsg.Request {
				r := kmsg.NewPtrOffsetCommitRequest()
				r.Version, r.Group, r.MemberID, r.Generation = 9, m.group, m.id, m.epoch
				t := kmsg.OffsetCommitRequestTopic{Topic: "t"}
				for p := range int32(fleetPartitions) {
					t.Partitions = append(t.Partitions, kmsg.OffsetCommitRequestTopicPartition{Partition: p, Offset: at, LeaderEpoch: 1})
				}
				r.Topics = append(r.Topics, t)
				return r
			}, func(m *fleetMember, resp kmsg.Response) {
				if code := commitCode(resp); code != 0 {
					b.Errorf("commit of %s: code %d", m.id, code)
				}
			})
		}
	})
}
