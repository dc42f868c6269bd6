package replica

import (
	"time"

	"ottla/internal/replica/state"
	"ottla/internal/storage"
	"ottla/internal/wake"
)

// Fetchers follow leaders on other brokers.
type Fetchers interface {
	// Settled says that a partition has a new leader, or leader epoch, or that the local replica leads it now. No append of
	// an older leadership is in flight. It is called by the worker of a log directory and must not block.
	Settled(p *Partition)
	// Removed says that a partition is not hosted here any more.
	Removed(p *Partition)
}

// follower returns the log if the replica follows in the given leader epoch. The following slot is held.
func (p *Partition) follower(epoch int32) (*storage.Log, error) {
	v := p.view.Load()
	switch {
	case v.err != nil:
		return nil, v.err
	case v.role != state.Follower || v.leaderEpoch != epoch:
		return nil, &LeaderEpochError{Requested: epoch, Known: v.leaderEpoch, Leader: v.leader}
	}
	return v.log, nil
}

// AppendAsFollower appends what the leader of the given epoch sent, and takes over its high watermark and log start offset.
// Errors are those of [storage.Log.AppendAsFollower], *LeaderEpochError if the leadership is another by now, ErrOpening and
// *OfflineError.
func (p *Partition) AppendAsFollower(epoch int32, batches []byte, leaderHW, leaderLogStart int64) error {
	p.following <- struct{}{}
	defer func() { <-p.following }()
	log, err := p.follower(epoch)
	if err != nil {
		return err
	}
	if len(batches) > 0 {
		if _, err := log.AppendAsFollower(batches); err != nil {
			return err
		}
	}
	if end := log.End(); leaderLogStart > log.StartOffset() && leaderLogStart <= end.Offset {
		if _, err := log.DeleteRecordsBefore(leaderLogStart); err != nil {
			return err
		}
	}
	var w wake.List
	p.mu.Lock()
	end := log.End()
	p.rememberLocked(end)
	if now := time.Since(p.set.started); end.Offset >= leaderHW {
		p.mu.ages.Append(end.Offset, now) // as the leader has just done
	} else {
		p.mu.ages.Begin(end.Offset, now) // who catches up does not know when the leader did
	}
	if p.mu.state.Followed(end.Offset, leaderHW) {
		p.publishBoundsLocked(&w)
	}
	p.mu.Unlock()
	w.Go()
	return nil
}

// Truncate cuts a follower's log that parted from its leader's, as the leader's EpochEnd says, and returns its new end.
func (p *Partition) Truncate(epoch int32, leader EpochEnd) (int64, error) {
	p.following <- struct{}{}
	defer func() { <-p.following }()
	log, err := p.follower(epoch)
	if err != nil {
		return 0, err
	}
	end := log.End().Offset
	ownEpoch, ownEnd := log.EpochEndOffset(leader.Epoch, end)
	to := state.TruncateTo(leader, state.EpochEnd{Epoch: ownEpoch, Offset: ownEnd}, end)
	if hw := p.HighWatermark(); to < hw {
		p.set.logger.Warn("truncating below the high watermark", "topic", p.topic, "partition", p.id, "offset", to, "highWatermark", hw)
	}
	if err := log.TruncateTo(to); err != nil {
		return 0, err
	}
	var w wake.List
	p.mu.Lock()
	p.mu.ends = nil
	p.mu.ages.Truncate(log.End().Offset)
	p.mu.state.Truncated(log.End().Offset)
	p.publishBoundsLocked(&w)
	p.mu.Unlock()
	w.Go()
	return to, nil
}
