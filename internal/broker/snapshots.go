package broker

import (
	"context"
	"sync/atomic"
	"time"

	"ottla/internal/metadata"
	"ottla/internal/quorum"
)

// snapshots says when a node that is no controller writes its next snapshot of the metadata, without which its metadata log would
// only ever grow. A controller's own loop does that, as it reads the same log. The applier owns it. Source: Kafka's
// SnapshotGenerator, which likewise looks when there is something new.
type snapshots struct {
	maxBytes int64         // metadata.log.max.record.bytes.between.snapshots
	interval time.Duration // metadata.log.max.snapshot.interval.ms; 0: never by time
	bytes    int64         // of the log since the last one
	last     time.Time
	busy     atomic.Bool // one is being written
}

// read notes what was read of the metadata log.
func (s *snapshots) read(event quorum.Event, now time.Time) {
	switch e := event.(type) {
	case quorum.Batch:
		s.bytes += int64(e.Bytes)
	case quorum.Snapshot:
		s.bytes, s.last = 0, now
	}
}

func (s *snapshots) due(now time.Time) bool {
	return s.bytes > 0 && !s.busy.Load() && (s.bytes >= s.maxBytes || s.interval > 0 && now.Sub(s.last) >= s.interval)
}

// snapshotIfDue begins to write a snapshot of what was applied, in a goroutine of its own since disks are slow.
func (b *Broker) snapshotIfDue(ctx context.Context, s *snapshots, loader *metadata.Loader) {
	now := time.Now()
	if loader.InTransaction() || !s.due(now) {
		return
	}
	s.bytes, s.last = 0, now
	s.busy.Store(true)
	img := loader.Image()
	b.wait.Go(func() {
		defer s.busy.Store(false)
		err := b.quorum.SaveSnapshot(quorum.SnapshotID{EndOffset: img.Offset + 1, Epoch: img.Epoch}, img.WriteSnapshot)
		if err != nil && ctx.Err() == nil { // the log is whole without it; the next attempt comes when the next one is due
			b.logger.Error("no snapshot of the metadata was written", "error", err)
		}
	})
}
