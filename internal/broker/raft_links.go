package broker

import (
	"context"
	"time"

	"ottla/internal/protocol"
	"ottla/internal/transport"
)

// raftLinks carry the voters' messages between controllers, one link to each other voter. A link is a queue and a goroutine
// that sends what is in it, in order, over a connection of its own, so that a voter that is slow or gone holds up
// nobody; what does not fit the queue is dropped, and raft sends it again.
type raftLinks struct {
	queues map[int32]chan []byte // by node id
}

const (
	raftQueue   = 256                    // messages of a link that may wait
	raftTimeout = 2 * time.Second        // for one message to be taken
	raftRedial  = 100 * time.Millisecond // after a connection could not be made, or ended
)

// startRaftLinks begins a link to each other voter.
func (b *Broker) startRaftLinks(_, background context.Context) error {
	if b.voter == nil {
		return nil
	}
	for _, v := range b.knownControllers() {
		queue, ok := b.raft.queues[v.NodeID]
		if !ok {
			continue
		}
		address := v.Endpoints[0].String()
		b.goes(background, "carry raft messages", func(ctx context.Context) error {
			b.carryRaft(ctx, v.NodeID, address, queue)
			return nil
		})
	}
	return nil
}

func (b *Broker) newRaftLinks() *raftLinks {
	links := &raftLinks{queues: make(map[int32]chan []byte)}
	for _, v := range b.knownControllers() {
		if v.NodeID >= 0 && v.NodeID != b.nodeID {
			links.queues[v.NodeID] = make(chan []byte, raftQueue)
		}
	}
	return links
}

// send queues a message for a voter.
func (l *raftLinks) send(node int32, message []byte) {
	select {
	case l.queues[node] <- message:
	default: // the queue is full, or there is no such voter
	}
}

// carryRaft sends what is queued for a voter until ctx ends.
func (b *Broker) carryRaft(ctx context.Context, node int32, address string, queue <-chan []byte) {
	for ctx.Err() == nil {
		client, err := transport.Dial(ctx, address, transport.ClientOptions{Dial: b.dial, ClientID: "ottla-raft"})
		if err != nil {
			b.logger.Debug("another controller cannot be reached", "nodeId", node, "error", err)
			if !pause(ctx, raftRedial) {
				return
			}
			drain(queue) // stale by now
			continue
		}
		b.carryOver(ctx, client, queue)
		client.Close()
		b.voter.Disconnected(node)
		if !pause(ctx, raftRedial) { // who hangs up at once is not asked all the time
			return
		}
	}
}

// carryOver sends what is queued over one connection until that or ctx ends. It waits for each answer: what
// follows meanwhile is in the queue.
func (b *Broker) carryOver(ctx context.Context, client *transport.Client, queue <-chan []byte) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-client.Done():
			return
		case message := <-queue:
			once, cancel := context.WithTimeout(ctx, raftTimeout)
			_, err := client.Call(once, &protocol.RaftMessageRequest{Payload: message})
			cancel()
			if err != nil {
				return
			}
		}
	}
}

func drain(queue <-chan []byte) {
	for {
		select {
		case <-queue:
		default:
			return
		}
	}
}

// pause waits for d; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
