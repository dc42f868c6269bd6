package group

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol/records"
)

// FuzzReplay loads logs that no coordinator may have written, and works on what comes of it. Whatever a log holds, the machine
// must not panic. The input is keys and values one after the other, each behind a byte of length; 255 is a null.
func FuzzReplay(f *testing.F) {
	w := newWorld(f)
	w.topic("t", 2)
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType, join.SessionTimeoutMillis = 3, "c", "consumer", 10000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription("t")}}
	w.do(join, "a")
	w.advance(3 * time.Second)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.MemberID, sync.Generation = 3, "c", "a-00000000-0000-0000-0000-000000000001", 1
	w.do(sync, "a")
	beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	beat.Version, beat.Group, beat.MemberID, beat.RebalanceTimeoutMillis = 1, "n", "m", 30000
	beat.SubscribedTopicNames, beat.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	w.do(beat, "m")
	if len(w.log) < 7 {
		f.Fatalf("only %d records to begin with", len(w.log))
	}
	var seed []byte
	for _, r := range w.log {
		k := records.AppendKey(nil, r.Key)
		v := records.AppendValue(nil, r.Value, r.Version)
		one := append(append(append([]byte{byte(len(k))}, k...), byte(len(v))), v...)
		f.Add(one)
		seed = append(seed, one...)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newWorld(t)
		m := w.newMachine()
		next := func() (out []byte) {
			if len(b) == 0 || b[0] == 255 || int(b[0]) >= len(b) {
				b = b[min(1, len(b)):]
				return nil
			}
			out, b = b[1:1+b[0]], b[1+b[0]:]
			return out
		}
		for len(b) > 0 {
			k, v, err := records.DecodeGroup(next(), next())
			if err == nil {
				m.Replay(k, v, noProducerID)
			}
		}
		m.Loaded(w.now)
		for _, group := range []string{"c", "n", ""} {
			for ticket, req := range []kmsg.Request{
				&kmsg.DescribeGroupsRequest{Version: 6, Groups: []string{group}}, &kmsg.ConsumerGroupDescribeRequest{Version: 1, Groups: []string{group}},
				&kmsg.ListGroupsRequest{Version: 5}, join, sync, beat, &kmsg.HeartbeatRequest{Version: 4, Group: group, MemberID: "m"},
				&kmsg.DeleteGroupsRequest{Version: 2, Groups: []string{group}},
			} {
				m.Step(w.now, Op{Ticket: Ticket(ticket), Request: req})
			}
		}
		m.Tick(w.now.Add(time.Hour))
	})
}
