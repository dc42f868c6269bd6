package broker

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// createTopicsVersion is the version at which this broker itself asks for topics.
const createTopicsVersion = 7

// createTopics passes the request on to the controller, and answers when this broker knows the topics too, or the
// request's time is over: who creates a topic and then asks the same broker for it finds it. Apache answers without
// that wait, and clients make up for it by asking again.
func (b *Broker) createTopics(ctx context.Context, req *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
	resp := b.forward(ctx, req).(*kmsg.CreateTopicsResponse)
	if req.ValidateOnly {
		return resp
	}
	ctx, cancel := context.WithTimeout(ctx, creationWait)
	defer cancel()
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			continue
		}
		if b.awaitTopic(ctx, t.Topic) != nil {
			break
		}
	}
	return resp
}

// awaitTopic waits until this broker's image has the topic.
func (b *Broker) awaitTopic(ctx context.Context, topic string) error {
	for {
		img, changed := b.images.current()
		if img.TopicByName(topic) != nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
