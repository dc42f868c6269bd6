package broker

import (
	"context"
	"errors"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol"
	"ottla/internal/transport"
)

// A handler answers one API on the listeners for clients and brokers. What it may return is transport.Handler's.
type handler func(b *Broker, ctx context.Context, r *transport.Request) (transport.Response, transport.Pending)

// handlers are all APIs that this broker answers by itself; those that the table of package protocol calls Forwarded
// go to the active controller instead. Each stands in the file of its name.
var handlers = map[int16]handler{
	int16(kmsg.Produce):                 (*Broker).produce,
	int16(kmsg.Fetch):                   (*Broker).fetch,
	int16(kmsg.DeleteRecords):           (*Broker).deleteRecords,
	int16(kmsg.ApiVersions):             answer((*Broker).apiVersions),
	int16(kmsg.Metadata):                (*Broker).metadata,
	int16(kmsg.ListOffsets):             answer((*Broker).listOffsets),
	int16(kmsg.OffsetForLeaderEpoch):    answer((*Broker).offsetForLeaderEpoch),
	int16(kmsg.InitProducerID):          answer((*Broker).initProducerID),
	int16(kmsg.FindCoordinator):         answer((*Broker).findCoordinator),
	int16(kmsg.JoinGroup):               (*Broker).group,
	int16(kmsg.SyncGroup):               (*Broker).group,
	int16(kmsg.Heartbeat):               (*Broker).group,
	int16(kmsg.LeaveGroup):              (*Broker).group,
	int16(kmsg.OffsetCommit):            (*Broker).group,
	int16(kmsg.OffsetFetch):             (*Broker).group,
	int16(kmsg.OffsetDelete):            (*Broker).group,
	int16(kmsg.ListGroups):              (*Broker).group,
	int16(kmsg.DescribeGroups):          (*Broker).group,
	int16(kmsg.DeleteGroups):            (*Broker).group,
	int16(kmsg.ConsumerGroupHeartbeat):  (*Broker).group,
	int16(kmsg.ConsumerGroupDescribe):   (*Broker).group,
	int16(kmsg.DescribeConfigs):         answer((*Broker).describeConfigs),
	int16(kmsg.DescribeCluster):         answer((*Broker).describeCluster),
	int16(kmsg.DescribeLogDirs):         answer((*Broker).describeLogDirs),
	int16(kmsg.DescribeProducers):       answer((*Broker).describeProducers),
	int16(kmsg.DescribeTopicPartitions): answer((*Broker).describeTopicPartitions),
	int16(kmsg.ListConfigResources):     answer((*Broker).listConfigResources),
	int16(kmsg.CreateTopics):            answer((*Broker).createTopics),
	int16(kmsg.AlterConfigs):            answer((*Broker).alterConfigs),
	int16(kmsg.IncrementalAlterConfigs): answer((*Broker).incrementalAlterConfigs),
	int16(kmsg.SASLHandshake):           answer((*Broker).saslHandshake),
	int16(kmsg.SASLAuthenticate):        answer((*Broker).saslAuthenticate),
	protocol.DescribeLagKey:             answer((*Broker).describeLag),
}

// answer makes a handler of a function that knows the answer when it returns.
func answer[Req kmsg.Request, Resp kmsg.Response](f func(b *Broker, ctx context.Context, req Req) Resp) handler {
	return func(b *Broker, ctx context.Context, r *transport.Request) (transport.Response, transport.Pending) {
		return f(b, ctx, r.Body.(Req)), nil
	}
}

// apis is the transport.Handler of all listeners.
type apis struct{ *Broker }

// Handle answers r as the broker or as the controller, by the listener that it came by.
func (a apis) Handle(ctx context.Context, r *transport.Request) (transport.Response, transport.Pending) {
	if r.Conn.Listener().Kind == protocol.OnController {
		return a.answerAsController(ctx, r), nil
	}
	if h, ok := handlers[r.Header.Key]; ok {
		return h(a.Broker, ctx, r)
	}
	if r.API.Forwarded {
		return a.forward(ctx, r.Body), nil
	}
	return transport.Close("the broker has no handler for " + r.API.Name), nil
}

// answerAsController may take until a record is committed, or, for a Fetch, as long as the request is willing to wait,
// which holds up its connection alone.
func (b *Broker) answerAsController(ctx context.Context, r *transport.Request) transport.Response {
	if refused := b.refuseUnauthorized(ctx, r.Body); refused != nil {
		return refused
	}
	resp, err := b.askController(ctx, r.Body)
	if err != nil {
		return transport.Close(err.Error())
	}
	return resp
}

// forward has the active controller answer a client's request, wherever it is.
func (b *Broker) forward(ctx context.Context, req kmsg.Request) kmsg.Response {
	resp, err := b.controllers.forward(ctx, req)
	if err != nil {
		b.logger.Debug("forward to the controller", "api", kmsg.NameForKey(req.Key()), "error", err)
		return protocol.ErrorAnswer(req, code(err))
	}
	return resp
}

// failed answers req with the error's code in every place that a client looks for one.
func failed[Resp kmsg.Response](req kmsg.Request, err error) Resp {
	return protocol.ErrorAnswer(req, code(err)).(Resp)
}

// unexpected logs an error that no client caused.
func unexpected(logger *slog.Logger, what string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		logger.Error(what, "error", err)
	}
}
