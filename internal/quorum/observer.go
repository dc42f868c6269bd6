package quorum

import (
	"context"
	"log/slog"

	"ottla/internal/uuid"
)

// ObserverOptions says who this node is and where it may find the controllers.
type ObserverOptions struct {
	Dir         string // the metadata log directory, which holds __cluster_metadata-0
	ClusterID   string
	NodeID      int32
	DirectoryID uuid.UUID // of Dir
	// Bootstrap are controllers to ask for the leader (controller.quorum.bootstrap.servers or .voters).
	Bootstrap []Endpoint
	Call      Caller
	Logger    *slog.Logger
	OnFailure func(error) // called once, on a goroutine of its own, when the disk failed
}

// An Observer follows the metadata log of the controllers, Apache's or ours.
type Observer struct{}

// OpenObserver recovers the log of a directory and begins to follow.
func OpenObserver(ctx context.Context, o ObserverOptions) (*Observer, error) { return nil, ErrClosed }
