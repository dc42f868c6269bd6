package coordinator

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/coordinator/group"
)

// A CommittedTopic is what a group committed for the partitions of a topic.
type CommittedTopic struct {
	Group, Topic string
	Offsets      map[int32]int64 // by partition; the first record that is yet to be read
}

// Committed tells the offsets of all groups that this broker coordinates, for metrics: nobody is asked for leave. It waits for
// the loops, until ctx ends; a partition that is still being loaded, or whose loop is late, is left out.
func (g *Groups) Committed(ctx context.Context) []CommittedTopic {
	loops := g.all()
	parts := make(chan []CommittedTopic, len(loops)) // each has room, so that no loop ever waits
	for _, l := range loops {
		l.listCommitted(func(c []CommittedTopic) { parts <- c })
	}
	var all []CommittedTopic
	for range loops {
		select {
		case part := <-parts:
			all = append(all, part...)
		case <-ctx.Done():
			return all
		}
	}
	return all
}

// listCommitted asks a loop which groups it has, and then for their offsets. done is called once and must not block.
func (l *loop) listCommitted(done func([]CommittedTopic)) {
	l.submit(&call{op: group.Op{Request: kmsg.NewPtrListGroupsRequest()}, done: func(resp kmsg.Response) {
		fetch := &kmsg.OffsetFetchRequest{Version: 9}
		for _, g := range resp.(*kmsg.ListGroupsResponse).Groups {
			of := kmsg.NewOffsetFetchRequestGroup()
			of.Group, of.MemberEpoch = g.Group, -1
			fetch.Groups = append(fetch.Groups, of)
		}
		if len(fetch.Groups) == 0 {
			done(nil)
			return
		}
		l.submit(&call{op: group.Op{Request: fetch}, done: func(resp kmsg.Response) { done(committedTopics(resp.(*kmsg.OffsetFetchResponse))) }})
	}})
}

func committedTopics(resp *kmsg.OffsetFetchResponse) (out []CommittedTopic) {
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			c := CommittedTopic{g.Group, t.Topic, map[int32]int64{}}
			for _, p := range t.Partitions {
				if p.ErrorCode == 0 && p.Offset >= 0 {
					c.Offsets[p.Partition] = p.Offset
				}
			}
			if len(c.Offsets) > 0 {
				out = append(out, c)
			}
		}
	}
	return out
}
