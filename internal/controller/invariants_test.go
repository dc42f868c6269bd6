package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"ottla/internal/metadata"
)

// TestInvariants runs brokers up, down and away, ISR changes, elections and reassignments in any order, and checks
// after each step what must hold of every partition.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newScript(t)
		s.do(func(turn *turn) {
			if err := turn.bootstrap(nil); err != nil {
				rt.Fatal(err)
			}
		})
		for id := range int32(4) {
			s.ask(registrationOf(id, 1))
			s.ask(heartbeatOf(id, s.epochOf(id), s.img.Offset))
		}
		create := creationOf("t")
		create.Topics[0].NumPartitions, create.Topics[0].ReplicationFactor = 4, 3
		minISR := "2"
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = minISRKey, &minISR
		create.Topics[0].Configs = append(create.Topics[0].Configs, c)
		s.ask(create)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			before := s.img
			s.vouched = nil
			step := s.randomStep(rt)
			if problem := check(before, s.img, s.vouched); problem != "" {
				rt.Fatalf("after %s: %s", step, problem)
			}
		}
	})
}

func (s *script) do(what func(*turn)) {
	turn := newTurn(&s.world, s.img, s.now)
	what(turn)
	var discard strings.Builder
	s.commit(turn, &discard)
}

func (s *script) ask(req kmsg.Request) kmsg.Response {
	var resp kmsg.Response
	s.do(func(turn *turn) { resp = turn.handle(req)(s.img.Offset + 1) })
	return resp
}

func (s *script) randomStep(rt *rapid.T) string {
	id := rapid.Int32Range(0, 3).Draw(rt, "broker")
	partition := rapid.Int32Range(0, 3).Draw(rt, "partition")
	p := s.img.PartitionByName("t", partition)
	switch kind := rapid.IntRange(0, 7).Draw(rt, "kind"); kind {
	case 0:
		s.now = s.now.Add(10 * time.Second) // everybody who does not heartbeat now is fenced
		for b := range s.img.Brokers() {
			if b.ID != id {
				s.world.sessions.touch(b.ID, s.img.Offset, s.now)
			}
		}
		s.do(func(t *turn) {
			if gone, ok := s.world.sessions.expired(t.image(), s.now); ok {
				t.fence(gone)
			}
		})
		return fmt.Sprintf("broker %d falls silent", id)
	case 1:
		s.ask(heartbeatOf(id, s.epochOf(id), s.img.Offset))
		return fmt.Sprintf("broker %d heartbeats", id)
	case 2:
		req := heartbeatOf(id, s.epochOf(id), s.img.Offset)
		req.WantShutdown = true
		s.ask(req)
		return fmt.Sprintf("broker %d wants to stop", id)
	case 3:
		req := registrationOf(id, byte(rapid.IntRange(2, 200).Draw(rt, "incarnation")))
		if rapid.Bool().Draw(rt, "clean") {
			req.PreviousBrokerEpoch = s.epochOf(id)
		}
		s.world.sessions.disconnected(id, s.now)
		s.ask(req)
		return fmt.Sprintf("broker %d starts anew, previous epoch %d", id, req.PreviousBrokerEpoch)
	case 4:
		req := kmsg.NewPtrElectLeadersRequest()
		req.SetVersion(2)
		req.ElectionType = preferredElection
		s.ask(req)
		return "preferred elections"
	case 5:
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		req.SetVersion(1)
		rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		rp.Partition = partition
		if rapid.Bool().Draw(rt, "move") {
			rp.Replicas = rapid.Permutation([]int32{0, 1, 2, 3}).Draw(rt, "to")[:3]
		}
		topic := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		topic.Topic, topic.Partitions = "t", append(topic.Partitions, rp)
		req.Topics = append(req.Topics, topic)
		s.ask(req)
		return fmt.Sprintf("reassign %d to %v", partition, rp.Replicas)
	default:
		isr := []int32{}
		for _, r := range p.Replicas {
			if r == p.Leader || rapid.Bool().Draw(rt, "in") {
				isr = append(isr, r)
			}
		}
		s.alter(p, partition, isr)
		return fmt.Sprintf("leader %d of %d wants ISR %v", p.Leader, partition, isr)
	}
}

func (s *script) alter(p *metadata.Partition, id int32, isr []int32) {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.SetVersion(3)
	req.BrokerID, req.BrokerEpoch = p.Leader, s.epochOf(p.Leader)
	rp := kmsg.NewAlterPartitionRequestTopicPartition()
	rp.Partition, rp.LeaderEpoch, rp.PartitionEpoch = id, p.LeaderEpoch, p.PartitionEpoch
	for _, b := range isr {
		x := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		x.BrokerID, x.BrokerEpoch = b, s.epochOf(b)
		rp.NewEpochISR = append(rp.NewEpochISR, x)
	}
	topic := kmsg.NewAlterPartitionRequestTopic()
	topic.TopicID, topic.Partitions = s.topicID("t"), append(topic.Partitions, rp)
	req.Topics = append(req.Topics, topic)
	s.vouched = isr
	s.ask(req)
}

// check returns what is wrong with the partitions after a step, or "". A leader of before vouched for some replicas.
func check(before, after *metadata.Image, vouched []int32) string {
	active := func(id int32) bool {
		b := after.Broker(id)
		return b != nil && !b.Fenced && !b.InControlledShutdown
	}
	for id, p := range after.TopicByName("t").Partitions() {
		was := before.PartitionByName("t", id)
		bad := func(format string, args ...any) string {
			return fmt.Sprintf("partition %d %s: before %+v, after %+v", id, fmt.Sprintf(format, args...), *was, *p)
		}
		switch {
		case p.Leader != metadata.NoLeader && !slices.Contains(p.ISR, p.Leader):
			return bad("is led from outside of its ISR")
		case p.Leader != metadata.NoLeader && !active(p.Leader):
			return bad("is led by a broker that is not active")
		case !containsAll(p.Replicas, p.ISR) || !containsAll(p.Replicas, p.ELR) || hasDuplicates(p.Replicas) || hasDuplicates(p.ISR):
			return bad("has an ISR or ELR that is not of its replicas, or something twice")
		case len(within(p.ISR, p.ELR)) > 0:
			return bad("has members in both ISR and ELR")
		case slices.ContainsFunc(p.ISR, func(b int32) bool { return !active(b) }):
			return bad("has a member in the ISR that is not active")
		case p.LeaderEpoch < was.LeaderEpoch || p.PartitionEpoch < was.PartitionEpoch:
			return bad("has an epoch that went back")
		case p.Leader != was.Leader && p.LeaderEpoch == was.LeaderEpoch:
			return bad("has another leader in the same epoch")
		case p.Leader == metadata.NoLeader && slices.ContainsFunc(slices.Concat(p.ISR, p.ELR), active):
			return bad("has no leader though a good one is there")
		case len(p.ISR) >= 2 && len(p.ELR) > 0:
			return bad("has an ELR beside an ISR of min.insync.replicas")
		}
		if p.Leader != metadata.NoLeader && p.Leader != was.Leader && !slices.Contains(was.ISR, p.Leader) && !slices.Contains(was.ELR, p.Leader) &&
			!slices.Contains(vouched, p.Leader) && (len(p.ELR) > 0 || p.LeaderRecoveryState != metadata.Recovering) {
			return bad("is led by a replica that may lack acknowledged records")
		}
	}
	return ""
}

// Placement spreads leaders and followers evenly, and puts replicas into different racks.
func TestPlacement(t *testing.T) {
	s := newScript(t)
	s.do(func(turn *turn) {
		if err := turn.bootstrap(nil); err != nil {
			t.Fatal(err)
		}
	})
	for id := range int32(6) {
		req := registrationOf(id, 1)
		rack := string(rune('a' + id/2))
		req.Rack = &rack
		s.ask(req)
		s.ask(heartbeatOf(id, s.epochOf(id), s.img.Offset))
	}
	create := creationOf("t")
	create.Topics[0].NumPartitions, create.Topics[0].ReplicationFactor = 60, 3
	s.ask(create)
	leads, holds := map[int32]int{}, map[int32]int{}
	for id, p := range s.img.TopicByName("t").Partitions() {
		leads[p.Leader]++
		racks := map[int32]bool{}
		for _, r := range p.Replicas {
			holds[r]++
			racks[r/2] = true
		}
		if hasDuplicates(p.Replicas) || len(racks) < 2 {
			t.Errorf("partition %d: replicas %v", id, p.Replicas)
		}
	}
	for id := range int32(6) {
		if leads[id] != 10 || holds[id] != 30 {
			t.Errorf("broker %d leads %d and holds %d of 60 partitions, want 10 and 30", id, leads[id], holds[id])
		}
	}
}
