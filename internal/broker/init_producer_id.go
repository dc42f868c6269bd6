package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
)

// initProducerID gives an idempotent producer an id that no other has. Transactional ids need their coordinator, which
// is not there yet.
func (b *Broker) initProducerID(ctx context.Context, req *kmsg.InitProducerIDRequest) *kmsg.InitProducerIDResponse {
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	switch {
	case req.TransactionalID != nil && *req.TransactionalID == "":
		resp.ErrorCode = kerr.InvalidRequest.Code
	case req.TransactionalID != nil:
		resp.ErrorCode = b.initTransactionalID(ctx, req)
	case !b.authorizeCluster(ctx, auth.IdempotentWrite) && !b.mayWriteSomeTopic(ctx):
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
	default:
		id, err := b.producerIDs.next(ctx)
		if err != nil {
			b.logger.Warn("no producer id to give", "error", err)
			resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code // what a client retries (KAFKA-10305)
			return resp
		}
		resp.ProducerID, resp.ProducerEpoch = id, 0
	}
	return resp
}

func (b *Broker) initTransactionalID(ctx context.Context, req *kmsg.InitProducerIDRequest) int16 {
	if !b.authorize(ctx, auth.Write, auth.TransactionalID, *req.TransactionalID) {
		return kerr.TransactionalIDAuthorizationFailed.Code
	}
	if req.TransactionTimeoutMillis <= 0 || int(req.TransactionTimeoutMillis) > b.config().Int("transaction.max.timeout.ms") {
		return kerr.InvalidTransactionTimeout.Code
	}
	return kerr.CoordinatorNotAvailable.Code
}

// mayWriteSomeTopic: whoever may write some topic may do so idempotently (KIP-679).
func (b *Broker) mayWriteSomeTopic(ctx context.Context) bool {
	for t := range b.image().Topics() {
		if b.authorizeTopic(ctx, auth.Write, t.Name) {
			return true
		}
	}
	return false
}

// producerIDs hands out producer ids from blocks of a thousand that the controller gives this broker (KIP-730). The next
// block is asked for when the present one is used up; one caller asks, the others wait for it.
type producerIDs struct {
	allocate func(ctx context.Context) (first int64, count int32, err error)
	asking   chan struct{} // one token: the right to ask for a block

	mu struct {
		sync.Mutex
		next, end int64
	}
}

func newProducerIDs(allocate func(context.Context) (int64, int32, error)) *producerIDs {
	return &producerIDs{allocate: allocate, asking: make(chan struct{}, 1)}
}

// next returns an id that was never returned before, by any broker.
func (p *producerIDs) next(ctx context.Context) (int64, error) {
	for {
		if id, ok := p.take(); ok {
			return id, nil
		}
		select {
		case p.asking <- struct{}{}:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		err := p.refill(ctx)
		<-p.asking
		if err != nil {
			return 0, fmt.Errorf("allocate a block of producer ids: %w", err)
		}
	}
}

func (p *producerIDs) take() (id int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.next == p.mu.end {
		return 0, false
	}
	p.mu.next++
	return p.mu.next - 1, true
}

// refill gets the next block, unless somebody else just did. The caller holds the token.
func (p *producerIDs) refill(ctx context.Context) error {
	p.mu.Lock()
	empty := p.mu.next == p.mu.end
	p.mu.Unlock()
	if !empty {
		return nil
	}
	first, count, err := p.allocate(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.mu.next, p.mu.end = first, first+int64(count)
	p.mu.Unlock()
	return nil
}

// allocateProducerIDs asks the controller for a block.
func (b *Broker) allocateProducerIDs(ctx context.Context) (first int64, count int32, err error) {
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = b.nodeID, b.lifecycle.epoch.Load()
	answer, err := b.controllers.attempt(ctx, req)
	if err != nil {
		return 0, 0, err
	}
	resp, ok := answer.(*kmsg.AllocateProducerIDsResponse)
	if !ok {
		return 0, 0, errors.New("the controller answered something else")
	}
	return resp.ProducerIDStart, resp.ProducerIDLen, kerr.ErrorForCode(resp.ErrorCode)
}
