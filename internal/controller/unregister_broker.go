package controller

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
)

// unregisterBroker forgets a broker that is gone for good.
func (t *turn) unregisterBroker(req *kmsg.UnregisterBrokerRequest) answer {
	resp := req.ResponseKind().(*kmsg.UnregisterBrokerResponse)
	b := t.image().Broker(req.BrokerID)
	if b == nil {
		resp.ErrorCode, resp.ErrorMessage = codeOf(refuse(kerr.BrokerIDNotRegistered, "Broker ID %d is not currently registered", req.BrokerID))
		return reply(resp)
	}
	t.elections(departure{remove: b.ID, unclean: nobody}, inISR(b.ID))
	t.emit(&records.UnregisterBrokerRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch})
	delete(t.sessions.of, b.ID)
	return reply(resp)
}

// unregisterController forgets a controller that is gone for good.
func (t *turn) unregisterController(req *kmsg.UnregisterControllerRequest) answer {
	resp := req.ResponseKind().(*kmsg.UnregisterControllerResponse)
	switch {
	case t.version < protocol.ControllerUnregistrationSince:
		resp.ErrorCode, resp.ErrorMessage = codeOf(refuse(kerr.UnsupportedVersion, "metadata.version %s has no record for it", t.version))
	case t.image().Controller(req.ControllerID) == nil:
		resp.ErrorCode, resp.ErrorMessage = codeOf(refuse(kerr.InvalidRequest, "Controller ID %d is not currently registered", req.ControllerID))
	default:
		t.emit(&records.UnregisterControllerRecord{ControllerID: req.ControllerID})
	}
	return reply(resp)
}
