package broker

import (
	"context"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/controller"
	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
)

// askController answers a request as this node's controller, whether it came over a controller listener or from this
// node's own broker. An error closes the connection it came by.
func (b *Broker) askController(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	switch req := req.(type) {
	case *kmsg.ApiVersionsRequest:
		return apiVersions(req, protocol.OnController, b.image()), nil
	case *kmsg.SASLHandshakeRequest:
		return b.saslHandshake(ctx, req), nil
	case *kmsg.SASLAuthenticateRequest:
		return b.saslAuthenticate(ctx, req), nil
	case *kmsg.FetchRequest:
		return b.voter.ServeFetch(ctx, req), nil
	case *kmsg.FetchSnapshotRequest:
		return b.voter.ServeFetchSnapshot(req), nil
	case *kmsg.DescribeQuorumRequest:
		return b.voter.Describe(req), nil
	case *kmsg.DescribeConfigsRequest:
		return b.describeConfigs(ctx, req), nil
	case *kmsg.IncrementalAlterConfigsRequest:
		return b.alterHereFirst(ctx, req, func(kmsg.ConfigResourceType, string) error { return nil }, b.controller.Handle)
	case *protocol.RaftMessageRequest:
		return b.raftMessage(req)
	case *kmsg.EnvelopeRequest:
		return b.envelope(ctx, req), nil
	}
	return b.controller.Handle(ctx, req)
}

// raftMessage hands a message of another voter to ours.
func (b *Broker) raftMessage(req *protocol.RaftMessageRequest) (kmsg.Response, error) {
	if err := b.voter.Step(req.Payload); err != nil {
		return nil, err
	}
	return req.ResponseKind(), nil
}

// envelope answers a request that another broker passes on, in the name of its client.
func (b *Broker) envelope(ctx context.Context, e *kmsg.EnvelopeRequest) *kmsg.EnvelopeResponse {
	resp := e.ResponseKind().(*kmsg.EnvelopeResponse)
	if !b.authorize(ctx, auth.ClusterAction, auth.Cluster, auth.ClusterName) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return resp
	}
	h, req, session, err := open(e)
	if err != nil {
		b.logger.Warn("an envelope cannot be read", "error", err)
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	}
	answer, err := b.answerForwarded(auth.With(ctx, session), req)
	if err != nil || protocol.HasCode(answer, kerr.NotController.Code) { // for the broker to ask again, not for its client to see
		resp.ErrorCode = kerr.NotController.Code
		return resp
	}
	answer.SetVersion(req.GetVersion())
	protocol.Gate(answer)
	resp.ResponseData = answer.AppendTo(protocol.AppendResponseHeader(nil, h.Key, answer.IsFlexible(), h.CorrelationID))
	return resp
}

// answerForwarded answers what came out of an envelope. Only what the table calls Forwarded may come that way, so
// that no envelope hides another.
func (b *Broker) answerForwarded(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	api, ok := protocol.Lookup(req.Key())
	if !ok || !api.Forwarded {
		return protocol.ErrorAnswer(req, kerr.InvalidRequest.Code), nil
	}
	if refused := b.refuseUnauthorized(ctx, req); refused != nil {
		return refused, nil
	}
	if q, ok := req.(*kmsg.DescribeQuorumRequest); ok {
		return b.voter.Describe(q), nil
	}
	if !controller.Handles(req.Key()) {
		return protocol.ErrorAnswer(req, kerr.UnsupportedVersion.Code), nil
	}
	return b.controller.Handle(ctx, req)
}

// open takes the client's request and who sent it out of an envelope.
func open(e *kmsg.EnvelopeRequest) (h protocol.RequestHeader, req kmsg.Request, session *auth.Session, err error) {
	h, body, err := protocol.ParseRequestHeader(e.RequestData, nil)
	if err != nil {
		return h, nil, nil, err
	}
	if req, err = protocol.Decode(h, body); err != nil {
		return h, nil, nil, err
	}
	principal, err := openPrincipal(e.RequestPrincipal)
	if err != nil {
		return h, nil, nil, err
	}
	session = &auth.Session{
		Principal: principal,
		Host:      net.IP(e.ClientHostAddress).String(),
	}
	if h.ClientID != nil {
		session.ClientID = *h.ClientID
	}
	return h, req, session, nil
}

// openPrincipal reads a principal as DefaultKafkaPrincipalBuilder writes it: its version, 0, then the struct.
func openPrincipal(b []byte) (auth.Principal, error) {
	if len(b) < 2 || b[0] != 0 || b[1] != 0 {
		return auth.Principal{}, fmt.Errorf("principal of %d bytes is not of version 0", len(b))
	}
	var p records.DefaultPrincipalData
	if err := records.Decode(b[2:], &p, 0); err != nil {
		return auth.Principal{}, fmt.Errorf("principal: %w", err)
	}
	return auth.Principal{Type: p.Type, Name: p.Name}, nil
}
