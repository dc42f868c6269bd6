package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// findCoordinator answers that there is none yet, which clients take for "ask again later". Up to version 3 it is asked
// for one key at a time.
func (b *Broker) findCoordinator(_ context.Context, req *kmsg.FindCoordinatorRequest) *kmsg.FindCoordinatorResponse {
	return failed[*kmsg.FindCoordinatorResponse](req, kerr.CoordinatorNotAvailable)
}
