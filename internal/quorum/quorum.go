// Package quorum keeps the cluster metadata log, __cluster_metadata-0, on one node: either as a
// [Voter], which decides with the other controllers what the log holds, or as an [Observer], which
// follows it. Both keep the same bytes at the same offsets in Kafka's own file layout and hand
// committed events to any number of readers; nothing that can still be rolled back is ever handed out.
//
// Between ottla's controllers the deciding is done by etcd's raft; towards brokers, ours and Apache's,
// the log is served and followed by KRaft's Fetch and FetchSnapshot. Read [Quorum], then [Voter], whose
// file voter.go shows the driver. Its files are drawn in doc/format/raft.md.
//
// The package decides nothing: what the records say is the controller's and the metadata package's.
package quorum

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/uuid"
)

// Topic is the name of the only topic this package knows; it has one partition, 0, and the id
// [uuid.Metadata].
const Topic = "__cluster_metadata"

// NoLeader is the leader id while none is known.
const NoLeader int32 = -1

// ErrNotLeader says that this node is not, or no longer, the leader in the epoch it was asked to act in.
// Clients see it as NOT_CONTROLLER (error code 41).
var ErrNotLeader = errors.New("this controller is not the leader of the metadata quorum in that epoch")

// ErrClosed is returned by everything that waits once Close was called.
var ErrClosed = errors.New("the metadata quorum is closed")

// An Endpoint is where a controller listens, under the name of its listener.
type Endpoint struct {
	Name string // listener name, such as CONTROLLER
	Host string
	Port uint16
}

// String returns host:port.
func (e Endpoint) String() string { return fmt.Sprintf("%s:%d", e.Host, e.Port) }

// A Replica is one controller of the quorum.
type Replica struct {
	NodeID      int32
	DirectoryID uuid.UUID // Zero while not learnt
	Endpoints   []Endpoint
}

// A SnapshotID names a snapshot by what it covers: everything below EndOffset, the last of it written
// in Epoch. In a file name it reads <EndOffset %020d>-<Epoch %010d>.
type SnapshotID struct {
	EndOffset int64
	Epoch     int32
}

// String returns the id as it stands in the name of a checkpoint file.
func (id SnapshotID) String() string { return fmt.Sprintf("%020d-%010d", id.EndOffset, id.Epoch) }

// An Event is what a [Cursor] yields: a [Batch], a [Snapshot] or a [LeaderChange].
type Event interface{ isEvent() }

// A Batch is one committed record batch. Offsets have no gaps: each batch begins where the one before
// it, or the snapshot before it, ended.
type Batch struct {
	BaseOffset int64
	LastOffset int64
	Epoch      int32    // leader epoch in which it was written
	Timestamp  int64    // ms since 1970, by the leader's clock when it proposed
	Values     [][]byte // metadata records, framed; none in a control batch. The reader's own.
	Bytes      int      // size of the batch in the log
}

// A Snapshot replaces all that was read before it: it holds the whole state below ID.EndOffset, where
// the next Batch begins. It is yielded first when there is one, and again when this node fell
// behind the start of the log.
type Snapshot struct {
	ID        SnapshotID
	Timestamp int64 // ms since 1970: that of the last record it covers
	read      func(yield func(value []byte) error) error
}

// Values calls yield with each metadata record of the snapshot, in order, and stops at yield's
// first error, which it returns. The bytes are only valid until yield returns. It reads the file; a file
// that was deleted meanwhile, since a newer snapshot is there, gives an error that wraps
// [io/fs.ErrNotExist], and the cursor's next event will then be the newer one.
func (s Snapshot) Values(yield func(value []byte) error) error { return s.read(yield) }

// A LeaderChange says who leads from here on. It comes after everything that earlier leaders
// committed, so a node that reads its own id has read the whole log it is about to add to.
type LeaderChange struct {
	ID     int32 // NoLeader: this node led Epoch and leads no longer; what it proposed may be lost
	Epoch  int32
	Voters []Replica // as the log last said; empty before it said anything
}

func (Batch) isEvent()        {}
func (Snapshot) isEvent()     {}
func (LeaderChange) isEvent() {}

// Quorum is what a node sees of the metadata quorum, whichever side it is on. All methods may be
// called by many goroutines.
type Quorum interface {
	// Leader returns the leader and its epoch as of the last LeaderChange that was applied here.
	// On a node that led that epoch and lost it the id is NoLeader.
	Leader() (id, epoch int32)
	// LeaderEndpoint returns where the leader listens; false while that is unknown.
	LeaderEndpoint() (Endpoint, bool)
	// Voters returns the controllers as the log last named them; not to be changed.
	Voters() []Replica
	// Cursor returns a new reader that begins at the newest snapshot, or at offset 0.
	Cursor() *Cursor
	// Stored calls yield with what this node's files hold at the moment: the newest snapshot and the batches behind it. It
	// waits for nobody, and does not ask what is committed, which an observer has yet to be told: so it is for opening files
	// as they were written, not for acting on. It stops at yield's first error, which it returns.
	Stored(yield func(Event) error) error
	// HighWatermark returns the offset below which everything is committed and readable here.
	HighWatermark() int64
	// Describe answers DescribeQuorum; a node that does not lead answers NOT_LEADER_OR_FOLLOWER
	// (6) with the leader it knows.
	Describe(*kmsg.DescribeQuorumRequest) *kmsg.DescribeQuorumResponse
	// SaveSnapshot writes the snapshot id, durably, and lets go what of older ones, and of the log they cover, is beyond the
	// limits of LogOptions. write calls emit with each metadata record. id.EndOffset must be where a batch ended, at or below HighWatermark.
	// It does nothing if the same or a newer snapshot is there.
	SaveSnapshot(id SnapshotID, write func(emit func(value []byte)) error) error
	// Close stops the goroutines, makes everything durable and closes the files.
	Close() error
}

// A Caller sends a request to a controller and returns its answer. It may block until ctx ends.
type Caller func(ctx context.Context, to Endpoint, req kmsg.Request) (kmsg.Response, error)
