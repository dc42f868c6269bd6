package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Every listener is PLAINTEXT until SASL is built, and a PLAINTEXT listener answers SASL as Apache does.

func (b *Broker) saslHandshake(_ context.Context, req *kmsg.SASLHandshakeRequest) *kmsg.SASLHandshakeResponse {
	return failed[*kmsg.SASLHandshakeResponse](req, kerr.IllegalSaslState)
}

func (b *Broker) saslAuthenticate(_ context.Context, req *kmsg.SASLAuthenticateRequest) *kmsg.SASLAuthenticateResponse {
	resp := failed[*kmsg.SASLAuthenticateResponse](req, kerr.IllegalSaslState)
	resp.ErrorMessage = kmsg.StringPtr("SaslAuthenticate request received on a listener without SASL: set the client's security.protocol to PLAINTEXT.")
	return resp
}
