package quorum

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/uuid"
)

// VoterOptions says who this controller is and how it reaches the others.
type VoterOptions struct {
	Dir         string // the metadata log directory, which holds __cluster_metadata-0
	ClusterID   string
	NodeID      int32
	DirectoryID uuid.UUID // of Dir, from its meta.properties
	// Voters are all controllers, this one included, as configured. A directory id that is Zero is
	// learnt from that controller at the first start, for which every voter must be up once.
	Voters []Replica
	// Send hands one message of the voters' own protocol to a connection to node, where it goes to
	// Step. It must not block; a message that cannot be sent is dropped. Unused by a lone voter.
	Send func(node int32, message []byte)
	// ElectionTimeout is how long the followers wait for a silent leader before they elect another
	// (controller.quorum.election.timeout.ms). Default 1 s.
	ElectionTimeout time.Duration
	Logger          *slog.Logger
	// OnFailure is called once, on a goroutine of its own, when the voter cannot go on: its disk
	// failed. It has stopped taking part by then.
	OnFailure func(error)
}

// A Voter is one of the controllers that decide what the metadata log holds.
type Voter struct{}

// OpenVoter recovers the voter of a directory and starts it. A lone voter has begun to lead, or will
// within milliseconds.
func OpenVoter(ctx context.Context, o VoterOptions) (*Voter, error) { return nil, ErrClosed }

// Propose hands values, framed metadata records, to the quorum as one batch, if this node leads epoch; otherwise it
// returns ErrNotLeader. It does not wait: batches proposed in one epoch are committed in the order
// of the calls, and come back through the Cursor; those that have not when LeaderChange arrives may
// be lost. Propose keeps nothing of values.
func (v *Voter) Propose(epoch int32, values [][]byte) error { return ErrNotLeader }

// Step takes a message that another voter's Send was given. It does not wait. The error says what is wrong
// with the message; it costs the sender nothing but the message.
func (v *Voter) Step(message []byte) error { return nil }

// Disconnected says that the connection to a voter broke, which a process that dies does at
// once: if that voter leads, the others elect a new leader without waiting for its silence to time out.
func (v *Voter) Disconnected(node int32) {}

// Resign gives the leadership up in favour of the voter that is furthest, if this node leads. It returns
// when another leads or ctx ends. A lone voter returns at once.
func (v *Voter) Resign(ctx context.Context) {}

// Bootstrap returns the records with which the cluster was formatted (the checkpoint 0-0). They are
// no part of the log: a controller that leads an empty log proposes them. Empty if there are none.
func (v *Voter) Bootstrap() ([][]byte, error) { return nil, nil }

// ServeFetch answers an observer's Fetch; it waits as the request says while there is nothing new.
func (v *Voter) ServeFetch(ctx context.Context, req *kmsg.FetchRequest) *kmsg.FetchResponse {
	return nil
}

// ServeFetchSnapshot answers an observer's FetchSnapshot.
func (v *Voter) ServeFetchSnapshot(req *kmsg.FetchSnapshotRequest) *kmsg.FetchSnapshotResponse {
	return nil
}
