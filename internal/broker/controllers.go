package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
	"ottla/internal/quorum"
	"ottla/internal/transport"
)

// controllers is how this node reaches the controllers: the active one in this process by a function call, any other
// over TCP. No caller knows which.
type controllers struct {
	quorum  quorum.Quorum
	nodeID  int32
	local   call // this node's own controller; nil if it has none
	dial    transport.DialFunc
	timeout time.Duration // controller.socket.timeout.ms: how long forward goes on asking

	mu struct {
		sync.Mutex
		clients map[string]*transport.Client // by address
		closed  bool
	}
}

func (c *controllers) reset() { c.mu.clients = make(map[string]*transport.Client) }

// attemptTimeout bounds one attempt to have the controller answer; a controller that has vanished without a word is given
// up, if there is another by then.
const attemptTimeout = 5 * time.Second

// controllerPause is how long forward waits before it asks again while the quorum has no leader.
const controllerPause = 20 * time.Millisecond

// errNoController says that the quorum has no leader that this node knows of.
var errNoController = errors.New("the active controller is not known: the metadata quorum has no leader, or it cannot be reached")

// active sends req to the active controller, once.
func (c *controllers) active(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	leader, _ := c.quorum.Leader()
	if leader == c.nodeID && c.local != nil {
		return c.local(ctx, req)
	}
	endpoint, ok := c.quorum.LeaderEndpoint()
	if !ok {
		return nil, errNoController
	}
	return c.at(ctx, endpoint, req)
}

// at sends req to the controller that listens at an endpoint. It is what an Observer calls.
func (c *controllers) at(ctx context.Context, endpoint quorum.Endpoint, req kmsg.Request) (kmsg.Response, error) {
	client, err := c.client(ctx, endpoint.String())
	if err != nil {
		return nil, err
	}
	return client.Call(ctx, req)
}

// client returns the connection to an address, dialled if there is none or the last one broke.
func (c *controllers) client(ctx context.Context, address string) (*transport.Client, error) {
	c.mu.Lock()
	client, closed := c.mu.clients[address], c.mu.closed
	c.mu.Unlock()
	if closed {
		return nil, net.ErrClosed
	}
	if client != nil && !ended(client) {
		return client, nil
	}
	fresh, err := transport.Dial(ctx, address, transport.ClientOptions{Dial: c.dial, ClientID: fmt.Sprintf("ottla-broker-%d", c.nodeID)})
	if err != nil {
		return nil, err
	}
	return c.keep(address, fresh)
}

// keep enters a fresh connection, unless another goroutine was quicker.
func (c *controllers) keep(address string, fresh *transport.Client) (*transport.Client, error) {
	c.mu.Lock()
	other, closed := c.mu.clients[address], c.mu.closed
	use := fresh
	switch {
	case closed:
	case other != nil && !ended(other):
		use = other
	default:
		c.mu.clients[address] = fresh
	}
	c.mu.Unlock()
	if closed || use != fresh {
		fresh.Close()
	}
	if closed {
		return nil, net.ErrClosed
	}
	return use, nil
}

func ended(client *transport.Client) bool {
	select {
	case <-client.Done():
		return true
	default:
		return false
	}
}

// close ends all connections and lets none begin.
func (c *controllers) close() {
	c.mu.Lock()
	clients := c.mu.clients
	c.mu.clients, c.mu.closed = nil, true
	c.mu.Unlock()
	for _, client := range clients {
		client.Close()
	}
}

// forward has the active controller answer a client's request: it travels in an Envelope with the client's principal
// and address (KIP-590). While there is no active controller it goes on asking, up to the timeout.
func (c *controllers) forward(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	envelope := seal(ctx, req)
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	for {
		asked, epoch := c.quorum.Leader()
		resp, err := c.attempt(ctx, envelope)
		if err == nil {
			e := resp.(*kmsg.EnvelopeResponse)
			if err = kerr.ErrorForCode(e.ErrorCode); err == nil {
				return unseal(e, req)
			}
		}
		now, nowEpoch := c.quorum.Leader()
		vanished := errors.Is(err, context.DeadlineExceeded) && (now != asked || nowEpoch != epoch)
		if !vanished && !worthAskingAgain(err) {
			return nil, err
		}
		if !pause(ctx, controllerPause) {
			return nil, fmt.Errorf("%w (last: %w)", ctx.Err(), err)
		}
	}
}

// attempt is active, given up if it takes too long.
func (c *controllers) attempt(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return c.active(ctx, req)
}

// worthAskingAgain tells a controller that is not there, or not the active one any more, from an answer.
func worthAskingAgain(err error) bool {
	var broken *transport.ConnectionError
	return errors.As(err, &broken) || errors.Is(err, errNoController) || errors.Is(err, kerr.NotController)
}

// seal makes the Envelope of a client's request.
func seal(ctx context.Context, req kmsg.Request) *kmsg.EnvelopeRequest {
	session := auth.From(ctx)
	e := kmsg.NewPtrEnvelopeRequest()
	e.RequestData = req.AppendTo(protocol.AppendRequestHeader(nil, req, 0, &session.ClientID))
	e.RequestPrincipal = records.AppendValue(nil, &records.DefaultPrincipalData{Type: session.Principal.Type, Name: session.Principal.Name}, 0)
	e.ClientHostAddress = net.ParseIP(session.Host)
	if ip := net.ParseIP(session.Host).To4(); ip != nil {
		e.ClientHostAddress = ip
	}
	return e
}

// unseal takes the answer to req out of an Envelope's.
func unseal(e *kmsg.EnvelopeResponse, req kmsg.Request) (kmsg.Response, error) {
	_, resp, err := protocol.ParseResponse(e.ResponseData, req)
	if err != nil {
		return nil, fmt.Errorf("answer of the controller: %w", err)
	}
	return resp, nil
}
