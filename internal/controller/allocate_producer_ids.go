package controller

import (
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol/records"
)

// producerIDBlock is how many producer ids a broker gets at a time. Source: ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE.
const producerIDBlock = 1000

// allocateProducerIDs gives a broker the next block of producer ids.
func (t *turn) allocateProducerIDs(req *kmsg.AllocateProducerIDsRequest) answer {
	resp := req.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
	start := max(0, t.image().NextProducerID)
	err := t.checkBroker(req.BrokerID, req.BrokerEpoch)
	switch {
	case t.image().Broker(req.BrokerID) == nil:
		err = refuse(kerr.BrokerIDNotRegistered, "no broker with id %d is registered", req.BrokerID)
	case err == nil && start > math.MaxInt64-producerIDBlock:
		err = refuse(kerr.UnknownServerError, "all producer ids are used up")
	}
	if err != nil {
		resp.ErrorCode, _ = codeOf(err)
		return reply(resp)
	}
	t.emit(&records.ProducerIdsRecord{BrokerID: req.BrokerID, BrokerEpoch: req.BrokerEpoch, NextProducerID: start + producerIDBlock})
	resp.ProducerIDStart, resp.ProducerIDLen = start, producerIDBlock
	return reply(resp)
}
