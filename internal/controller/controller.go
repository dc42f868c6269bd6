// Package controller is the active controller: it alone decides what the cluster metadata says. It
// answers the requests of administrators and brokers, fences brokers that fell silent, elects leaders, and
// writes what it decides as records into the metadata log.
//
// Read [Controller.Handle], then loop.go. One goroutine, the loop, owns all state. A request is evaluated against the
// speculative image (all that is committed or proposed) by a function that has no side effect: (state, request) →
// (records, answer), one file per API. Requests that wait together become one entry of the log, several entries are
// in flight, and an answer leaves when the entry it depends on is committed. On losing the leadership the speculation
// is dropped and whatever waits is answered NOT_CONTROLLER (41).
//
// The package trusts its callers to have authorised a request. It does not trust brokers to be
// right: what would break the metadata log is refused.
package controller

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/config"
	"ottla/internal/quorum"
)

// A Quorum is what the controller needs of the metadata quorum; [*quorum.Voter] is one.
type Quorum interface {
	// Propose hands records, framed, to the quorum as one batch. It does not wait.
	Propose(epoch int32, values [][]byte) error
	// Bootstrap returns the records with which the cluster was formatted, framed; none if it was not.
	Bootstrap() ([][]byte, error)
	// SaveSnapshot writes a snapshot of everything below id.EndOffset.
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
	Quorum Quorum
	Events Events // a cursor of its own; the controller does not close it
	Logger *slog.Logger
	// OnFailure is called once, on a goroutine of its own, when the controller cannot go on: the
	// metadata log cannot be read or holds what no controller writes. All requests are answered
	// NOT_CONTROLLER by then.
	OnFailure func(error)
}

// A Controller is one controller of the cluster; its Handle is for any number of goroutines.
type Controller struct{}

// New returns a controller that follows the metadata log, and decides while it leads. It runs until Close.
func New(o Options) *Controller { return &Controller{} }

// Handle answers one request of an administrator or a broker, at any version of it; the answer has the
// request's version. It returns an error only when ctx ends, and then the request may still take
// effect, or when the controller is closed. A controller that is not active answers NOT_CONTROLLER (41).
// The request must be authorised, and must not be changed afterwards.
func (c *Controller) Handle(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return nil, nil
}

// Handles reports whether Handle knows the API.
func Handles(key int16) bool { return false }

// Disconnected says that the last connection of a broker to this controller broke, which a process that dies
// does at once: unless it heartbeats again within a moment, the broker is fenced without waiting for its
// session to time out.
func (c *Controller) Disconnected(brokerID int32) {}

// Active reports whether this controller is the active one, and since which epoch.
func (c *Controller) Active() (epoch int32, active bool) { return 0, false }

// Close stops the loop and answers everything that waits with NOT_CONTROLLER. It waits for both.
func (c *Controller) Close() {}

