package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"ottla/internal/record"
	"ottla/internal/storage"
	"ottla/internal/vfs"
)

// A metaLog is the metadata log of this node with its snapshots, as readers see it: it knows how far the log is
// committed and who leads. The voter's driver or the observer's fetcher is its only writer, but for an observer's
// snapshots and what of the log they let go; cursors and fetches read it as they like, and wait on it without the writer's knowing.
type metaLog struct {
	fs     vfs.FS
	dir    string // …/__cluster_metadata-0
	log    *storage.Log
	limits LogOptions // none of them zero
	logger *slog.Logger

	mu struct {
		sync.Mutex
		view
	}
}

// A view is what a reader needs to know, of one moment.
type view struct {
	end       storage.Position // of what is committed: the high watermark
	leader    leadership
	voters    []Replica     // as the log last said
	snapshots []SnapshotID  // ascending, that of the format (0-0) left out
	changed   chan struct{} // closed when a later view is there
	err       error         // why there will be none
}

// A leadership is a leader, its epoch, and the offset at which the log says so.
type leadership struct {
	id     int32
	epoch  int32
	offset int64 // -1 if the log did not say it to us
	// endpoint is where an observer was told that the leader listens.
	endpoint Endpoint
}

var nobody = leadership{id: NoLeader, epoch: 0, offset: -1}

func newMetaLog(fs vfs.FS, dir string, log *storage.Log, limits LogOptions, snapshots []SnapshotID, logger *slog.Logger) *metaLog {
	m := &metaLog{fs: fs, dir: dir, log: log, limits: limits, logger: logger}
	m.mu.view = view{leader: nobody, snapshots: snapshots, changed: make(chan struct{})}
	return m
}

func (m *metaLog) view() view {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.view
}

// update lets change make the next view and wakes those who wait for it.
func (m *metaLog) update(change func(*view)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.err != nil {
		return
	}
	change(&m.mu.view)
	close(m.mu.changed)
	m.mu.changed = make(chan struct{})
}

// fail ends all waiting: there will be no further view.
func (m *metaLog) fail(err error) { m.update(func(v *view) { v.err = err }) }

// wait blocks until there is a view later than v.
func (v *view) wait(ctx context.Context) error {
	select {
	case <-v.changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// newestSnapshot returns the snapshot that covers most.
func (v *view) newestSnapshot() (SnapshotID, bool) {
	if len(v.snapshots) == 0 {
		return SnapshotID{}, false
	}
	return v.snapshots[len(v.snapshots)-1], true
}

// endpoint returns where a voter listens.
func (v *view) endpoint(node int32) (Endpoint, bool) {
	for _, r := range v.voters {
		if r.NodeID == node && len(r.Endpoints) > 0 {
			return r.Endpoints[0], true
		}
	}
	return Endpoint{}, false
}

// batches returns whole record batches from the one that holds from, below upTo; at most maxBytes, but at least one.
// The bytes are the caller's.
func (m *metaLog) batches(from int64, upTo storage.Position, maxBytes int) ([]byte, error) {
	b, err := readBatches(m.log, from, upTo, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("read %s at offset %d: %w", m.dir, from, err)
	}
	return b, nil
}

// readBatches returns whole record batches of a log, as [metaLog.batches] does.
func readBatches(log *storage.Log, from int64, upTo storage.Position, maxBytes int) ([]byte, error) {
	slice, err := log.Read(from, maxBytes, upTo, true)
	if err != nil {
		return nil, err
	}
	defer slice.Release()
	b := make([]byte, slice.Size())
	if _, err := slice.ReadInto(b); err != nil {
		return nil, err
	}
	n, err := wholeBatches(b)
	if err == nil && n == 0 {
		err = errors.New("there is no whole record batch")
	}
	return b[:n], err
}

// wholeBatches returns the size of the whole batches at the front of b.
func wholeBatches(b []byte) (int, error) {
	n := 0
	for len(b)-n >= record.HeaderSize {
		h, err := record.ParseHeader(b[n:])
		if err != nil {
			return n, err
		}
		if h.Size() > len(b)-n {
			break
		}
		n += h.Size()
	}
	return n, nil
}

// scanBytes is how much of the log is read at once.
const scanBytes = 1 << 20

// scan calls visit with each batch in [from, upTo), checked.
func (m *metaLog) scan(from int64, upTo storage.Position, visit func(record.Header, []byte) error) error {
	for from < upTo.Offset {
		b, err := m.batches(from, upTo, scanBytes)
		if err != nil {
			return err
		}
		err = eachBatch(b, func(h record.Header, batch []byte) error {
			if err := m.check(&h, batch, from); err != nil {
				return err
			}
			from = h.LastOffset() + 1
			return visit(h, batch)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// A damageError says that the metadata log cannot be read at an offset.
type damageError struct {
	dir    string
	offset int64
	reason string
}

func (e *damageError) Error() string {
	return fmt.Sprintf("%s is damaged at offset %d: %s; restore it from another controller or a backup", e.dir, e.offset, e.reason)
}

// check returns a *damageError if the batch is not sound or not the one at offset.
func (m *metaLog) check(h *record.Header, batch []byte, offset int64) error {
	if h.BaseOffset != offset {
		return &damageError{m.dir, offset, fmt.Sprintf("the next batch is that at offset %d", h.BaseOffset)}
	}
	if err := record.CheckCRC(batch); err != nil {
		return &damageError{m.dir, offset, err.Error()}
	}
	return nil
}

// eachBatch calls visit with each of the whole batches that b is made of.
func eachBatch(b []byte, visit func(record.Header, []byte) error) error {
	for len(b) > 0 {
		h, err := record.ParseHeader(b)
		if err != nil {
			return err
		}
		size := h.Size()
		if size > len(b) {
			return fmt.Errorf("a record batch of %d bytes stands in the last %d", size, len(b))
		}
		if err := visit(h, b[:size:size]); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// LogOptions say how a node keeps the metadata log and the snapshots beside it. What is zero is Kafka's default; a negative
// retention is without limit.
type LogOptions struct {
	SegmentBytes int64         // metadata.log.segment.bytes; default 1 GiB
	SegmentAge   time.Duration // metadata.log.segment.ms; default 7 days
	// MaxBytes is how much log and snapshots may take together before the oldest go (metadata.max.retention.bytes); default
	// 100 MiB. The newest snapshot stays, and so does the segment that is written to.
	MaxBytes int64
	MaxAge   time.Duration // how old what a snapshot covers may be (metadata.max.retention.ms); default 7 days
}

func (o LogOptions) withDefaults() LogOptions {
	const week = 7 * 24 * time.Hour
	o.SegmentBytes, o.SegmentAge = cmp.Or(o.SegmentBytes, 1<<30), cmp.Or(o.SegmentAge, week)
	o.MaxBytes, o.MaxAge = cmp.Or(o.MaxBytes, 100<<20), cmp.Or(o.MaxAge, week)
	return o
}

// config is how the metadata log's files are kept. What is deleted of it, clean says.
func (o *LogOptions) config() storage.LogConfig {
	c := ownerDeletes()
	c.SegmentBytes, c.SegmentAge = o.SegmentBytes, o.SegmentAge
	return c
}

// raftSegmentBytes is the size of a segment of raft's log, which needs no more than what the last snapshot does not cover.
const raftSegmentBytes = 64 << 20

func raftLogConfig() storage.LogConfig {
	c := ownerDeletes()
	c.SegmentBytes = raftSegmentBytes
	return c
}

// ownerDeletes is how a log is kept whose owner says what may be deleted.
func ownerDeletes() storage.LogConfig {
	c := storage.DefaultLogConfig()
	c.CleanupDelete, c.CleanupCompact = false, false
	c.RetentionBytes, c.Retention = -1, -1
	return c
}

// lastEpoch returns the epoch of the last batch in the log, or of the snapshot that the log begins behind; 0 if
// there is neither.
func (m *metaLog) lastEpoch(v *view) int32 {
	end := m.log.End().Offset
	if newest, ok := v.newestSnapshot(); ok && newest.EndOffset == end {
		return newest.Epoch
	}
	return max(0, m.log.LatestEpoch())
}

// readControl reads through the whole log, checks it, and returns the last leader and voters it names; voters
// are those of the snapshot before it.
func (m *metaLog) readControl(voters []Replica) (leadership, []Replica, error) {
	leader := nobody
	end := m.log.End()
	err := m.scan(m.log.StartOffset(), end, func(_ record.Header, batch []byte) error {
		return absorb(batch, &leader, &voters)
	})
	return leader, voters, err
}

// beginBehind lets the log begin anew behind a snapshot that is in the directory, and shows it.
func (m *metaLog) beginBehind(id SnapshotID) error {
	head, err := readCheckpointHead(m.fs, m.dir, id)
	if err != nil {
		return err
	}
	if err := m.log.TruncateFullyAndStartAt(id.EndOffset); err != nil {
		return fmt.Errorf("empty %s: %w", m.dir, err)
	}
	m.update(func(v *view) {
		v.end, v.voters, v.snapshots = m.log.End(), head.voters, []SnapshotID{id}
	})
	return nil
}
