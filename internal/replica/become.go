package replica

import (
	"errors"
	"slices"
	"time"

	"ottla/internal/metadata"
	"ottla/internal/replica/state"
	"ottla/internal/storage"
	"ottla/internal/uuid"
	"ottla/internal/wake"
)

func newPartition(s *Set, topic string, topicID uuid.UUID, id int32, dir *directory, c *Config, m *topicMetrics) *Partition {
	p := &Partition{set: s, topic: topic, topicID: topicID, id: id, dir: dir, metrics: m, following: make(chan struct{}, 1)}
	p.config.Store(c)
	p.bounds.Store(&bounds{})
	p.view.Store(&view{err: ErrOpening, leader: -1, leaderEpoch: -1, partitionEpoch: -1})
	p.mu.ready = make(chan struct{})
	return p
}

func (p *Partition) topicPartition() storage.TopicPartition {
	return storage.TopicPartition{Topic: p.topic, Partition: p.id}
}

// follow makes target what the replica is to become. What needs no disk happens at once: a leadership that went ends here,
// and a change within a leader epoch is complete. The rest is left to the directory's worker.
func (p *Partition) follow(target *metadata.Partition) {
	var w wake.List
	p.mu.Lock()
	p.mu.target = target
	if p.mu.gone != nil {
		p.mu.Unlock()
		return
	}
	if p.mu.state != nil && p.mu.ready == nil && target.LeaderEpoch == p.mu.state.Registration().LeaderEpoch {
		p.stepLocked(target, &w)
		p.mu.Unlock()
		w.Go()
		return
	}
	if p.mu.ready == nil {
		p.mu.ready = make(chan struct{})
	}
	if p.mu.state != nil && target.Leader != p.set.nodeID {
		p.resignLocked(&NotLeaderError{Leader: target.Leader, LeaderEpoch: target.LeaderEpoch}, &w)
	}
	p.hideLocked(target, ErrOpening)
	ask := !p.mu.queued
	p.mu.queued = true
	p.mu.Unlock()
	w.Go()
	if ask {
		p.dir.do(p.settle)
	}
}

// stepLocked brings the state to target, whose log work is done, and shows it.
func (p *Partition) stepLocked(target *metadata.Partition, w *wake.List) {
	env := p.env()
	wasLeader := p.mu.state.Role() == state.Leader
	p.mu.state.Become(registration(target), p.mu.log.End().Offset, p.countedEnd(), &env)
	if p.mu.state.Role() == state.Leader && !wasLeader {
		p.mu.since = target.LeaderEpoch
	}
	p.showLocked()
	p.publishBoundsLocked(w)
}

// resignLocked ends the local leadership, and the waits for it.
func (p *Partition) resignLocked(err error, w *wake.List) {
	p.mu.since = p.mu.state.Registration().LeaderEpoch + 1
	p.mu.waiters.fail(err, w)
	p.mu.subs.fire(w, false)
}

// hideLocked stops serving, for err, until showLocked.
func (p *Partition) hideLocked(target *metadata.Partition, err error) {
	p.view.Store(&view{log: p.mu.log, err: err, leader: target.Leader, leaderEpoch: target.LeaderEpoch, partitionEpoch: target.PartitionEpoch})
}

// showLocked lets the hot paths see the state.
func (p *Partition) showLocked() {
	r := p.mu.state.Registration()
	minISR := p.config.Load().MinInSyncReplicas
	v := &view{
		log: p.mu.log, role: p.mu.state.Role(), leader: r.Leader, leaderEpoch: r.LeaderEpoch, partitionEpoch: r.PartitionEpoch,
		epochStart: p.mu.state.EpochStart(), isr: len(r.ISR), replicas: len(r.Replicas), minISR: minISR,
		underMinISR: p.mu.state.UnderMinISR(minISR),
	}
	v.check = func() error {
		now := p.view.Load()
		if now.err == nil && now.role == state.Leader && now.leaderEpoch == v.leaderEpoch {
			return nil
		}
		return now.notLeader()
	}
	p.view.Store(v)
}

func registration(m *metadata.Partition) state.Registration {
	return state.Registration{Replicas: m.Replicas, ISR: m.ISR, Leader: m.Leader, LeaderEpoch: m.LeaderEpoch, PartitionEpoch: m.PartitionEpoch}
}

// settle does the disk's part of following the metadata. The directory's worker runs it.
func (p *Partition) settle() {
	p.mu.Lock()
	p.mu.queued = false
	log, done := p.mu.log, p.mu.gone != nil || p.mu.ready == nil // by an earlier call, which met a newer target
	p.mu.Unlock()
	if done || p.set.stopped.Err() != nil { // what is not done when the set closes is left to the next start
		return
	}
	if log == nil {
		var err error
		if log, err = p.open(); err != nil {
			p.failed("opening a replica", err)
			return
		}
	}
	for {
		p.mu.Lock()
		target := p.mu.target
		p.mu.Unlock()
		done, err := p.settleAs(log, target)
		if err != nil {
			p.failed("taking over a replica", err)
			return
		}
		if done {
			break
		}
	}
	if f := p.set.o.Fetchers; f != nil {
		f.Settled(p)
	}
}

// settleAs makes the log fit target and steps the state to it. It reports whether target is still what the metadata says.
func (p *Partition) settleAs(log *storage.Log, target *metadata.Partition) (done bool, err error) {
	p.following <- struct{}{}
	defer func() { <-p.following }()
	if err := p.prepare(log, target); err != nil {
		return false, err
	}
	return p.settled(target), nil
}

// open finds or makes the log.
func (p *Partition) open() (*storage.Log, error) {
	log, err := p.dir.open(p)
	if err != nil {
		return nil, err
	}
	hw := max(p.dir.highWatermark(p.topicPartition()), log.StartOffset())
	log.OnDurable(func() {
		if log.Config().FlushMessages == 1 {
			p.durable()
		}
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.log = log
	p.mu.ages.Begin(log.End().Offset, time.Since(p.set.started))
	p.mu.state = state.New(p.set.nodeID, hw, log.End().Offset)
	start := p.positionLocked(p.mu.state.HighWatermark())
	p.bounds.Store(&bounds{start, start})
	p.opened.Store(true)
	return log, nil
}

// prepare makes the log ready for target: no append of an older leadership is in flight any more, and the epoch of a
// leadership of ours is noted.
func (p *Partition) prepare(log *storage.Log, target *metadata.Partition) error {
	// Assigning no epoch takes the append slot and gives it back: an append that began before the view was hidden is over.
	if err := log.AssignEpoch(storage.UnknownEpoch, storage.UnknownOffset); err != nil {
		return err
	}
	if target.Leader != p.set.nodeID {
		return nil
	}
	return log.AssignEpoch(target.LeaderEpoch, log.End().Offset)
}

// settled steps the state to target and reports whether that is still what the metadata says.
func (p *Partition) settled(target *metadata.Partition) bool {
	var w wake.List
	p.mu.Lock()
	if p.mu.target.LeaderEpoch != target.LeaderEpoch {
		p.mu.Unlock()
		return false
	}
	if p.mu.gone != nil {
		p.mu.Unlock()
		return true
	}
	p.stepLocked(p.mu.target, &w)
	p.mu.subs.fire(&w, false)
	close(p.mu.ready)
	p.mu.ready = nil
	p.mu.Unlock()
	w.Go()
	return true
}

// failed takes the replica offline because its log could not be opened or changed.
func (p *Partition) failed(doing string, err error) {
	if errors.Is(err, storage.ErrClosed) {
		p.retire(ErrClosed)
		return
	}
	if failure := p.dir.failure.Load(); failure != nil { // which was told already
		p.retire(&OfflineError{Dir: p.dir.path, Err: *failure})
		return
	}
	p.set.logger.Error(doing, "topic", p.topic, "partition", p.id, "error", err.Error())
	p.retire(&OfflineError{Dir: p.dir.path, Err: err})
}

// retire ends the replica for good: it serves nothing any more, for err. It returns the log, nil if it was never opened.
func (p *Partition) retire(err error) *storage.Log {
	var w wake.List
	p.mu.Lock()
	if p.mu.gone == nil {
		p.mu.gone = err
		last := p.view.Load()
		p.view.Store(&view{err: err, leader: last.leader, leaderEpoch: last.leaderEpoch, partitionEpoch: last.partitionEpoch})
		p.mu.waiters.fail(err, &w)
		p.mu.subs.fire(&w, false)
		if p.mu.ready != nil {
			close(p.mu.ready)
			p.mu.ready = nil
		}
	}
	log := p.mu.log
	p.mu.Unlock()
	w.Go()
	return log
}

// configure replaces the settings.
func (p *Partition) configure(c *Config) {
	p.config.Store(c)
	p.mu.Lock()
	if p.mu.log != nil {
		p.mu.log.SetConfig(c.Log)
	}
	if p.mu.state != nil && p.mu.ready == nil && p.mu.gone == nil {
		p.showLocked() // min.insync.replicas may be another
	}
	p.mu.Unlock()
	p.recheck()
}

// hosts reports whether a broker has a replica of a partition.
func hosts(p *metadata.Partition, broker int32) bool {
	return p != nil && slices.Contains(p.Replicas, broker)
}
