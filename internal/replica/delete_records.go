package replica

import (
	"ottla/internal/replica/state"
	"ottla/internal/storage"
	"ottla/internal/wake"
)

// DeleteRecords raises the log start offset to offset, or to the high watermark if offset is -1, and returns the offset that
// was meant and the low watermark: the smallest log start of all replicas that are alive. The request is fulfilled once the low
// watermark is not below that offset: until then the caller subscribes and asks [Partition.LowWatermark].
//
// An offset beyond the high watermark is a *storage.OffsetOutOfRangeError. Other errors are those of Append, and
// ErrNotDeletable. It waits for the disk. Source: KIP-107, Kafka's Partition.deleteRecordsOnLeader.
func (p *Partition) DeleteRecords(offset int64) (meant, low int64, err error) {
	v, err := p.serve(-1, true)
	if err != nil {
		return 0, 0, err
	}
	if !p.config.Load().Log.CleanupDelete {
		return 0, 0, ErrNotDeletable
	}
	hw := p.HighWatermark()
	if offset == -1 {
		offset = hw
	}
	if offset < 0 || offset > hw {
		return 0, 0, &storage.OffsetOutOfRangeError{Offset: offset, Start: v.log.StartOffset(), End: hw}
	}
	if _, err := v.log.DeleteRecordsBefore(offset); err != nil {
		return 0, 0, err
	}
	p.logStartMoved()
	low, err = p.LowWatermark()
	return offset, low, err
}

// logStartMoved tells sessions, which hand the log start on.
func (p *Partition) logStartMoved() {
	var w wake.List
	p.mu.Lock()
	p.mu.subs.fire(&w, false)
	p.mu.Unlock()
	w.Go()
}

// LowWatermark returns the smallest log start offset of all replicas that are alive, -1 if one has not said yet. Only the
// leader answers.
func (p *Partition) LowWatermark() (int64, error) {
	v, err := p.serve(-1, true)
	if err != nil {
		return 0, err
	}
	img := p.set.Image()
	alive := func(id int32) bool {
		b := img.Broker(id)
		return b != nil && !b.Fenced
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.gone != nil || p.mu.state.Role() != state.Leader {
		return 0, p.view.Load().notLeader()
	}
	return p.mu.state.LowWatermark(v.log.StartOffset(), alive), nil
}
