package controller

import (
	"time"

	"ottla/internal/quorum"
)

// snapshots says when this node writes its next snapshot of the metadata. Every controller writes its own.
type snapshots struct {
	maxBytes int64 // metadata.log.max.record.bytes.between.snapshots
	bytes    int64 // of the log since the last one
	due      timer // metadata.log.max.snapshot.interval.ms
	busy     bool  // one is being written
	done     chan error
}

// taken notes that a snapshot is there.
func (s *snapshots) taken(now time.Time) { s.bytes, s.due.last = 0, now }

// snapshotIfDue begins to write a snapshot of what is committed, in a goroutine of its own since disks are slow.
func (l *loop) snapshotIfDue(now time.Time) {
	s := &l.snapshots
	if s.busy || s.bytes == 0 || l.loader.InTransaction() || s.bytes < s.maxBytes && !s.due.due(now) {
		return
	}
	img := l.loader.Image()
	s.busy = true
	s.taken(now)
	l.wg.Go(func() {
		err := l.quorum.SaveSnapshot(quorum.SnapshotID{EndOffset: img.Offset + 1, Epoch: img.Epoch}, img.WriteSnapshot)
		s.done <- err // of one slot, and busy keeps it empty
	})
}

func (l *loop) snapshotDone(err error) {
	l.snapshots.busy = false
	if err != nil {
		// The log is whole without it; the next attempt comes when the next one is due.
		l.logger.Error("no snapshot of the metadata was written", "error", err)
	}
}
