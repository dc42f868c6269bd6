package group

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A crowd is many clients of one group, of one protocol.
type crowd struct {
	*world
	ids    []string
	epochs []int32
	owns   []*kmsg.ConsumerGroupHeartbeatResponseAssignment
}

func newCrowd(t tester, members int, partitions int32, set ...string) *crowd {
	c := &crowd{world: newWorld(t, append([]string{"group.initial.rebalance.delay.ms=0"}, set...)...), ids: make([]string, members), epochs: make([]int32, members),
		owns: make([]*kmsg.ConsumerGroupHeartbeatResponseAssignment, members)}
	c.topic("t", partitions)
	return c
}

// ask performs a request and keeps no record of it: the log of a crowd is long.
func (c *crowd) ask(req kmsg.Request) []Answer {
	c.tickets++
	return c.machine.Step(c.now, Op{Ticket: c.tickets, Request: req, ClientID: "c", ClientHost: "/10.0.0.1"}).Answers
}

func (c *crowd) tick() []Answer {
	c.now = c.now.Add(time.Millisecond)
	return c.machine.Tick(c.now).Answers
}

// joinClassically has all members join, together or once more, and fetch their assignment.
func (c *crowd) joinClassically() {
	tickets := map[Ticket]int{}
	var answers []Answer
	for i := range c.ids {
		r := kmsg.NewPtrJoinGroupRequest()
		r.Version, r.Group, r.MemberID, r.ProtocolType, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 9, "g", c.ids[i], consumerProtocol, 45000, 300000
		r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription("t")}}
		for {
			got := c.ask(r)
			tickets[c.tickets] = i
			answers = append(answers, got...)
			if len(got) == 0 || got[len(got)-1].Ticket != c.tickets {
				break
			}
			if resp := got[len(got)-1].Response.(*kmsg.JoinGroupResponse); resp.ErrorCode == kerr.MemberIDRequired.Code {
				answers = answers[:len(answers)-1]
				r.MemberID = resp.MemberID
				continue
			}
			break
		}
	}
	answers = append(answers, c.tick()...)
	var leader *kmsg.JoinGroupResponse
	joined := 0
	for _, a := range answers {
		resp := a.Response.(*kmsg.JoinGroupResponse)
		if resp.ErrorCode != 0 {
			c.t.Fatalf("a member joins: %s", code(resp.ErrorCode))
		}
		joined++
		i := tickets[a.Ticket]
		c.ids[i], c.epochs[i] = resp.MemberID, resp.Generation
		if resp.LeaderID == resp.MemberID {
			leader = resp
		}
	}
	if joined != len(c.ids) || leader == nil || len(leader.Members) != len(c.ids) {
		c.t.Fatalf("%d of %d members joined, the leader's answer: %+v", joined, len(c.ids), leader)
	}
	synced := 0
	for i := range c.ids {
		r := kmsg.NewPtrSyncGroupRequest()
		r.Version, r.Group, r.MemberID, r.Generation = 5, "g", c.ids[i], c.epochs[i]
		if c.ids[i] == leader.MemberID {
			for _, mem := range leader.Members {
				r.GroupAssignment = append(r.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: mem.MemberID, MemberAssignment: []byte(mem.MemberID)})
			}
		}
		for _, a := range c.ask(r) {
			if resp := a.Response.(*kmsg.SyncGroupResponse); resp.ErrorCode != 0 || len(resp.MemberAssignment) == 0 {
				c.t.Fatalf("a member syncs: %s", code(resp.ErrorCode))
			}
			synced++
		}
	}
	if synced != len(c.ids) {
		c.t.Fatalf("%d of %d members got an assignment", synced, len(c.ids))
	}
}

func (c *crowd) leaveClassically() {
	for i, id := range c.ids {
		r := kmsg.NewPtrLeaveGroupRequest()
		r.Version, r.Group, r.Members = 5, "g", []kmsg.LeaveGroupRequestMember{{MemberID: id}}
		for _, a := range c.ask(r) {
			if resp := a.Response.(*kmsg.LeaveGroupResponse); resp.Members[0].ErrorCode != 0 {
				c.t.Fatalf("a member leaves: %s", code(resp.Members[0].ErrorCode))
			}
		}
		c.ids[i] = ""
	}
	c.tick()
}

// beat is a heartbeat of each member with the new protocol, which joins if it is none yet. It returns how many partitions all
// have.
func (c *crowd) beat() (partitions int) {
	for i := range c.ids {
		r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		r.Version, r.Group, r.RebalanceTimeoutMillis, r.MemberEpoch = 1, "g", -1, c.epochs[i]
		if c.epochs[i] == 0 {
			c.ids[i] = fmt.Sprintf("member-%04d", i)
			r.RebalanceTimeoutMillis, r.SubscribedTopicNames, r.Topics = 60000, []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		} else if c.owns[i] != nil {
			r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
			for _, t := range c.owns[i].Topics {
				r.Topics = append(r.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
			}
		}
		r.MemberID = c.ids[i]
		resp := c.ask(r)[0].Response.(*kmsg.ConsumerGroupHeartbeatResponse)
		if resp.ErrorCode != 0 {
			c.t.Fatalf("a heartbeat: %s %s", code(resp.ErrorCode), str(resp.ErrorMessage))
		}
		c.epochs[i] = resp.MemberEpoch
		if resp.Assignment != nil {
			c.owns[i] = resp.Assignment
		}
		if c.owns[i] != nil {
			for _, t := range c.owns[i].Topics {
				partitions += len(t.Partitions)
			}
		}
	}
	c.now = c.now.Add(time.Second)
	return partitions
}

// settle beats until the group is stable and all partitions are assigned, and returns how often that took.
func (c *crowd) settle(want int) int {
	for n := 1; n <= 10; n++ {
		if got := c.beat(); got == want && c.machine.groups["g"].stateName() == "Stable" {
			return n
		}
	}
	c.t.Fatalf("after 10 heartbeats of each member the group is %s", c.machine.groups["g"].stateName())
	return 0
}

func (c *crowd) leaveConsumers() {
	for i := range c.ids {
		r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		r.Version, r.Group, r.MemberID, r.MemberEpoch, r.RebalanceTimeoutMillis = 1, "g", c.ids[i], -1, -1
		if resp := c.ask(r)[0].Response.(*kmsg.ConsumerGroupHeartbeatResponse); resp.ErrorCode != 0 {
			c.t.Fatalf("a member leaves: %s", code(resp.ErrorCode))
		}
		c.epochs[i], c.owns[i] = 0, nil
	}
}

// TestThousandMembers: they come and leave at once, again and again. Meanwhile each costs a few KiB; when they are gone nothing is left
// but the room in tables, which the next crowd uses again.
func TestThousandMembers(t *testing.T) {
	const members, partitions = 1000, 2000
	for protocol, round := range map[string]func(c *crowd) (leave func()){
		"classic":  func(c *crowd) func() { c.joinClassically(); return c.leaveClassically },
		"consumer": func(c *crowd) func() { c.settle(partitions); return c.leaveConsumers },
	} {
		t.Run(protocol, func(t *testing.T) {
			c := newCrowd(t, members, partitions)
			empty, first := heapBytes(), int64(0)
			for n := range 5 {
				leave := round(c)
				if perMember := (heapBytes() - empty) / members; perMember > 8<<10 {
					t.Errorf("a member takes %d bytes", perMember)
				}
				leave()
				if g := c.machine.Survey()[0]; g.State != "Empty" || g.Members != 0 {
					t.Fatalf("all have left, and the group is %+v", g)
				}
				if n := len(c.machine.timers.heap); n != 1 {
					t.Errorf("%d timers run for nobody", n-1)
				}
				left := heapBytes() - empty
				if n == 0 {
					first = left
				}
				if left > members<<9 || left > first+16<<10 {
					t.Errorf("all have left, and %d bytes are not given back; after the first time %d", left, first)
				}
			}
		})
	}
}

// heapBytes is what lives on the heap.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC() // what finalizers held on to
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestPendingMembersAreForgotten: ids that were handed out and never used cost nothing when their session is over.
func TestPendingMembersAreForgotten(t *testing.T) {
	c := newCrowd(t, 0, 1)
	for range 1000 {
		r := kmsg.NewPtrJoinGroupRequest()
		r.Version, r.Group, r.ProtocolType, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 9, "g", consumerProtocol, 45000, 300000
		r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription("t")}}
		c.ask(r)
	}
	g := c.machine.classic("g")
	if len(g.pendingJoin) != 1000 {
		t.Fatalf("%d ids await their member", len(g.pendingJoin))
	}
	c.machine.Tick(c.now.Add(45 * time.Second))
	if len(g.pendingJoin) != 0 || len(c.machine.timers.heap) != 1 {
		t.Errorf("%d ids and %d timers are left", len(g.pendingJoin), len(c.machine.timers.heap)-1)
	}
}

// BenchmarkRebalance is the work of the coordinator for one rebalance of 500 members: all that they ask, until each has what it is
// to have.
func BenchmarkRebalance(b *testing.B) {
	const members, partitions = 500, 1000
	b.Run("classic", func(b *testing.B) {
		c := newCrowd(b, members, partitions)
		c.joinClassically()
		for b.Loop() {
			c.joinClassically()
		}
	})
	b.Run("consumer", func(b *testing.B) { // a member comes, and leaves again
		c := newCrowd(b, members, partitions)
		c.settle(partitions)
		for b.Loop() {
			c.settle(partitions)
			r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
			r.Version, r.Group, r.MemberID, r.MemberEpoch, r.RebalanceTimeoutMillis = 1, "g", c.ids[0], -1, -1
			c.ask(r)
			c.epochs[0], c.owns[0] = 0, nil
		}
	})
	b.Run("consumer/all come and leave", func(b *testing.B) {
		c := newCrowd(b, members, partitions)
		for b.Loop() {
			c.settle(partitions)
			c.leaveConsumers()
		}
	})
	b.Run("consumer/a heartbeat", func(b *testing.B) {
		c := newCrowd(b, members, partitions)
		c.settle(partitions)
		for b.Loop() {
			r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
			r.Version, r.Group, r.RebalanceTimeoutMillis, r.MemberEpoch, r.MemberID = 1, "g", -1, c.epochs[7], c.ids[7]
			c.ask(r)
		}
	})
}
