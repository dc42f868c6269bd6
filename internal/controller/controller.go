// Package controller is the active controller: it alone decides what the cluster metadata says. It
// answers the requests of administrators and brokers, fences brokers that fell silent, elects leaders, and
// writes what it decides as records into the metadata log.
//
// Read [Controller.Handle], then loop.go, then turn.go. One goroutine, the loop, owns all state. A request is evaluated
// against the speculative image (all that is committed or proposed) in a turn: (state, request) → (records, answer),
// one file per API, without any effect outside of the turn. Requests that wait together become one entry of the log,
// several entries are in flight, and an answer leaves when the entry it depends on is committed. On losing the
// leadership the speculation is dropped and whatever waits is answered NOT_CONTROLLER (41).
//
// The package trusts its callers to have authorised a request. It does not trust brokers to be
// right: what would break the metadata log is refused.
package controller

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/config"
	"ottla/internal/protocol"
	"ottla/internal/quorum"
)

// A Quorum is what the controller needs of the metadata quorum; [*quorum.Voter] is one.
type Quorum interface {
	// Propose hands records, framed, to the quorum as one batch. It does not wait. Batches of one epoch are
	// committed in order.
	Propose(epoch int32, values [][]byte) error
	// Bootstrap returns the records with which the cluster was formatted, framed; none if it was not.
	Bootstrap() ([][]byte, error)
	// SaveSnapshot writes a snapshot of everything below id.EndOffset. It may take long.
	SaveSnapshot(id quorum.SnapshotID, write func(emit func(value []byte)) error) error
}

// Events yields what was committed, in order; [*quorum.Cursor] does.
type Events interface {
	Next(ctx context.Context) (quorum.Event, error)
}

// Options say who this controller is.
type Options struct {
	NodeID    int32
	ClusterID string
	// Config is the node's own configuration, dynamic layers excluded: the controller reads those from
	// the metadata it writes.
	Config *config.Config
	// Listeners are where this controller listens, with the ports it really has; they are written into the
	// metadata. Nil: where Config advertises its controller listeners, those with port 0 left out.
	Listeners []config.Endpoint
	Quorum    Quorum
	Events    Events // a cursor of its own; the controller does not close it
	Logger    *slog.Logger
	// OnFailure is called once, as the loop's last act, when the controller cannot go on: the
	// metadata log cannot be read or holds what no controller writes. All requests are answered
	// NOT_CONTROLLER by then. It must not call Close, which waits for it. It may be nil.
	OnFailure func(error)
}

// A Controller is one controller of the cluster; its methods are for any number of goroutines.
type Controller struct {
	ops     chan *operation
	cancel  context.CancelFunc
	stopped chan struct{} // closed when the loop has ended and answered everything
	epoch   atomic.Int64  // of which it is the active one, or -1
}

// queueLength is how many requests wait for the loop before Handle blocks.
const queueLength = 1024

// New returns a controller that follows the metadata log, and decides while it leads. It runs until Close.
func New(o Options) *Controller {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Controller{ops: make(chan *operation, queueLength), cancel: cancel, stopped: make(chan struct{})}
	c.epoch.Store(-1)
	l := newLoop(o, c)
	go l.run(ctx)
	return c
}

// An operation is one thing the loop is asked to do: answer a request, or note that a broker's connection broke.
type operation struct {
	req          kmsg.Request
	done         chan kmsg.Response // of one slot
	disconnected int32              // a broker, if req is nil
}

// Handle answers one request of an administrator or a broker, at any version of it; the answer has the
// request's version. An API that Handles does not know is answered UNSUPPORTED_VERSION (35); a controller that is not
// active answers NOT_CONTROLLER (41). An error is ctx's, and then the request may still take effect. The request must
// be authorised, and must not be changed afterwards.
func (c *Controller) Handle(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if !Handles(req.Key()) {
		return protocol.ErrorAnswer(req, kerr.UnsupportedVersion.Code), nil
	}
	op := &operation{req: req, done: make(chan kmsg.Response, 1)}
	select {
	case c.ops <- op:
	case <-c.stopped:
		return notController(req), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case resp := <-op.done:
		return resp, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.stopped:
	}
	select {
	case resp := <-op.done:
		return resp, nil
	default: // it came into the queue too late
		return notController(req), nil
	}
}

func notController(req kmsg.Request) kmsg.Response {
	return protocol.ErrorAnswer(req, kerr.NotController.Code)
}

// Disconnected says that the last connection of a broker to this controller broke, which a process that dies
// does at once: unless it heartbeats again within a moment, the broker is fenced without waiting for its
// session to time out.
func (c *Controller) Disconnected(brokerID int32) {
	select {
	case c.ops <- &operation{disconnected: brokerID}:
	case <-c.stopped:
	}
}

// Active reports whether this controller is the active one, and in which epoch.
func (c *Controller) Active() (epoch int32, active bool) {
	e := c.epoch.Load()
	return int32(e), e >= 0
}

// Close stops the loop and answers everything that waits with NOT_CONTROLLER. It waits for the loop's goroutines.
func (c *Controller) Close() {
	c.cancel()
	<-c.stopped
}
