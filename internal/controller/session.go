package controller

import (
	"math"
	"slices"
	"time"

	"ottla/internal/metadata"
	"ottla/internal/uuid"
)

// brokenGrace is how long a broker whose connection broke may take to heartbeat again. Reconnecting takes it a
// few milliseconds, unless it is dead.
const brokenGrace = 300 * time.Millisecond

// A session is what the active controller knows of a registered broker from its heartbeats alone. It is not in the
// metadata: a new active controller begins it anew.
type session struct {
	deadline time.Time // when it ends
	heard    bool      // this controller has had word of the incarnation itself
	broken   bool      // its connection broke since the last word
	offset   int64     // up to which the broker has applied metadata, as it last said
	// shutdownOffset is what the other brokers must have applied before this one stops: they know
	// the new leaders then. 0 while it does not want to stop.
	shutdownOffset int64
}

// sessions are those of all registered brokers. Source: Kafka's BrokerHeartbeatManager.
type sessions struct {
	timeout time.Duration // broker.session.timeout.ms
	of      map[int32]*session
}

func newSessions(timeout time.Duration) *sessions {
	return &sessions{timeout: timeout, of: map[int32]*session{}}
}

// reset begins a session for each broker, none of which was heard of.
func (s *sessions) reset(img *metadata.Image, now time.Time) {
	clear(s.of)
	for b := range img.Brokers() {
		s.of[b.ID] = &session{deadline: now.Add(s.timeout), offset: -1}
	}
}

// begin begins the session of a new incarnation.
func (s *sessions) begin(id int32, now time.Time) {
	s.of[id] = &session{deadline: now.Add(s.timeout), heard: true, offset: -1}
}

// touch notes a heartbeat.
func (s *sessions) touch(id int32, offset int64, now time.Time) *session {
	if s.of[id] == nil {
		s.begin(id, now)
	}
	x := s.of[id]
	x.deadline, x.heard, x.broken, x.offset = now.Add(s.timeout), true, false, offset
	return x
}

// disconnected notes that a broker's connection broke.
func (s *sessions) disconnected(id int32, now time.Time) {
	x := s.of[id]
	if x == nil {
		return
	}
	x.broken = true
	if soon := now.Add(brokenGrace); x.deadline.After(soon) {
		x.deadline = soon
	}
}

// replaceable reports whether another incarnation may take the place of a registered broker: when that is fenced, wants to
// stop, or was not heard of for the session timeout. One with the same log directories need not wait for that unless the old one was
// heard of on a connection that still stands, since a process locks its directories.
func (s *sessions) replaceable(b *metadata.Broker, dirs []uuid.UUID, now time.Time) bool {
	x := s.of[b.ID]
	if b.Fenced || b.InControlledShutdown || x == nil || !now.Before(x.deadline) {
		return true
	}
	sameDirs := len(dirs) > 0 && !slices.ContainsFunc(dirs, func(d uuid.UUID) bool { return !slices.Contains(b.LogDirs, d) })
	return sameDirs && (!x.heard || x.broken)
}

// expired returns an unfenced broker whose session has ended, if there is one.
func (s *sessions) expired(img *metadata.Image, now time.Time) (id int32, ok bool) {
	for b := range img.UnfencedBrokers() {
		if x := s.of[b.ID]; x != nil && !now.Before(x.deadline) {
			return b.ID, true
		}
	}
	return 0, false
}

// next returns when the first session of an unfenced broker ends; ok is false if there is none.
func (s *sessions) next(img *metadata.Image) (at time.Time, ok bool) {
	for b := range img.UnfencedBrokers() {
		if x := s.of[b.ID]; x != nil && (!ok || x.deadline.Before(at)) {
			at, ok = x.deadline, true
		}
	}
	return at, ok
}

// lowestOffset returns the lowest metadata offset that an active broker has said to have applied.
func (s *sessions) lowestOffset(img *metadata.Image) int64 {
	lowest := int64(math.MaxInt64)
	for b := range img.UnfencedBrokers() {
		if x := s.of[b.ID]; x != nil && !b.InControlledShutdown {
			lowest = min(lowest, x.offset)
		}
	}
	return lowest
}
