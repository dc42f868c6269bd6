package broker

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/replica"
	"ottla/internal/uuid"
	"ottla/internal/wake"
)

// Fetch sessions (KIP-227): the broker remembers which partitions a client follows and from where, so that a fetch names
// only what changed and is answered only with what has news.
//
// A session stays subscribed to its partitions between fetches. What happens to a partition marks it dirty in the session,
// and a fetch looks at dirty partitions only, oldest mark first: ten thousand quiet partitions cost nothing, and no
// busy one starves another. A fetch without a session is a session that lives as long as the request.

// Epochs that stand for something else than the next request of a session.
const (
	initialEpoch int32 = 0  // a full fetch, and a new session
	finalEpoch   int32 = -1 // a full fetch, and no session
)

// sessionEvictionAge is how long a session must have been unused before any new one may take its slot (Kafka's
// MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS).
const sessionEvictionAge = 2 * time.Minute

// nextEpoch is the epoch of the request after the one with epoch; it wraps around to 1.
func nextEpoch(epoch int32) int32 {
	if epoch < 0 || epoch == 1<<31-1 {
		return 1
	}
	return epoch + 1
}

// A fetchKey names a partition within a session: by topic id since Fetch 13, by name before.
type fetchKey struct {
	topicID   uuid.UUID
	topic     string
	partition int32
}

// A fetchWant is what a client wants of a partition.
type fetchWant struct {
	fetchKey
	offset           int64
	maxBytes         int32
	leaderEpoch      int32 // -1: it named none
	lastFetchedEpoch int32 // -1: it named none
	logStartOffset   int64 // a follower's; -1 from a consumer
}

func want(t *kmsg.FetchRequestTopic, p *kmsg.FetchRequestTopicPartition) fetchWant {
	return fetchWant{
		fetchKey: fetchKey{t.TopicID, t.Topic, p.Partition}, offset: p.FetchOffset, maxBytes: p.PartitionMaxBytes,
		leaderEpoch: p.CurrentLeaderEpoch, lastFetchedEpoch: p.LastFetchedEpoch, logStartOffset: p.LogStartOffset,
	}
}

// A fetchPartition is a partition of a session. Its fields are guarded by session.mu, except following, which has a lock of
// its own; wake is set once.
type fetchPartition struct {
	want  fetchWant
	dirty bool // it is in the queue
	gone  bool // forgotten, or the session is closed

	sentHighWatermark, sentLogStart int64 // as last told; -1 never

	wake wake.Func // marks the partition

	// following is where news comes from. A request looks at the partition while another, on another connection, may end
	// the session or take its slot.
	following struct {
		sync.Mutex
		replica.Subscription
		over bool // never again
	}
}

// follow has news of part mark the partition from now on: who reads part afterwards misses none. Under the lock wake may be
// called, which takes the session's lock only.
func (p *fetchPartition) follow(part *replica.Partition, asReplica bool) {
	f := &p.following
	f.Lock()
	defer f.Unlock()
	switch {
	case f.over:
	case f.Partition() == part:
		f.Arm()
	default:
		f.Close() // the topic was deleted and made again
		part.Subscribe(&f.Subscription, asReplica, p.wake)
	}
}

// unfollow lets go of a replica that is not to be read any more.
func (p *fetchPartition) unfollow() {
	p.following.Lock()
	p.following.Close()
	p.following.Unlock()
}

// leave is unfollow for good.
func (p *fetchPartition) leave() {
	p.following.Lock()
	p.following.over = true
	p.following.Close()
	p.following.Unlock()
}

// A session remembers what one client fetches. Marks come from any goroutine. Requests come one after the other, as each names
// the epoch that the one before it led to; but who breaks its connection and goes on over another may have one waiting there
// still, and news wakes the later one only.
type session struct {
	id           int32 // 0 unless kept; like kept never changed once others know the session
	usesTopicIDs bool
	privileged   bool // a follower's: it may take a consumer's slot, never the reverse
	kept         bool // it lives on after the request

	mu struct {
		sync.Mutex
		epoch  int32                        // of the next request
		parts  map[fetchKey]*fetchPartition // nil once closed
		queue  []*fetchPartition            // dirty, oldest mark first
		waiter *fetchWaiter                 // nil when no request waits
	}

	lastUsed time.Time // guarded by sessionCache.mu, like counted
	counted  int       // partitions, as the cache counts them
}

// A fetchWaiter is who is woken by news. It is part of the request that waits.
type fetchWaiter struct{ wake wake.Func }

func newSession(req *kmsg.FetchRequest) *session {
	s := &session{usesTopicIDs: req.Version >= 13, privileged: fetchReplica(req) >= 0}
	s.mu.epoch = nextEpoch(initialEpoch)
	partitions := 0
	for i := range req.Topics {
		partitions += len(req.Topics[i].Partitions)
	}
	s.mu.parts = make(map[fetchKey]*fetchPartition, partitions)
	s.mu.queue = make([]*fetchPartition, 0, partitions)
	s.updateLocked(req) // nobody else knows it yet
	return s
}

// updateLocked takes in what a request says: partitions that are forgotten, new or changed. Those it names are looked at,
// with or without news.
func (s *session) updateLocked(req *kmsg.FetchRequest) (forgotten []*fetchPartition) {
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, partition := range t.Partitions {
			key := fetchKey{t.TopicID, t.Topic, partition}
			if p, ok := s.mu.parts[key]; ok {
				p.gone = true
				delete(s.mu.parts, key)
				forgotten = append(forgotten, p)
			}
		}
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			w := want(t, &t.Partitions[j])
			p, ok := s.mu.parts[w.fetchKey]
			if !ok {
				p = &fetchPartition{sentHighWatermark: -1, sentLogStart: -1}
				p.wake = func() wake.Work { return s.mark(p) }
				s.mu.parts[w.fetchKey] = p
			}
			p.want = w
			s.queueLocked(p)
		}
	}
	return forgotten
}

func (s *session) queueLocked(p *fetchPartition) {
	if !p.dirty && !p.gone {
		p.dirty = true
		s.mu.queue = append(s.mu.queue, p)
	}
}

// mark queues a partition that has news and wakes the request that waits.
func (s *session) mark(p *fetchPartition) wake.Work {
	s.mu.Lock()
	s.queueLocked(p)
	var waiting wake.Func
	if s.mu.waiter != nil {
		waiting = s.mu.waiter.wake
	}
	s.mu.Unlock()
	if waiting == nil {
		return nil
	}
	return waiting()
}

// requeue keeps a partition dirty, for the next look.
func (s *session) requeue(p *fetchPartition) {
	s.mu.Lock()
	s.queueLocked(p)
	s.mu.Unlock()
}

// A candidate is a dirty partition and what was wanted of it when it was taken.
type candidate struct {
	part                            *fetchPartition
	want                            fetchWant
	sentHighWatermark, sentLogStart int64
}

// take empties the queue into dst, and has w woken at the next mark.
func (s *session) take(dst []candidate, w *fetchWaiter) []candidate {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.mu.queue {
		p.dirty = false
		if !p.gone {
			dst = append(dst, candidate{p, p.want, p.sentHighWatermark, p.sentLogStart})
		}
	}
	clear(s.mu.queue)
	s.mu.queue, s.mu.waiter = s.mu.queue[:0], w
	return dst
}

// told notes what the client is told of a partition.
func (s *session) told(p *fetchPartition, highWatermark, logStart int64) {
	s.mu.Lock()
	p.sentHighWatermark, p.sentLogStart = highWatermark, logStart
	s.mu.Unlock()
}

// idle says that w waits no longer.
func (s *session) idle(w *fetchWaiter) {
	s.mu.Lock()
	if s.mu.waiter == w {
		s.mu.waiter = nil
	}
	s.mu.Unlock()
}

// size returns the number of partitions.
func (s *session) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.parts)
}

// close forgets all partitions. A request of the session that is under way is answered with what it has.
func (s *session) close() {
	s.mu.Lock()
	parts := s.mu.parts
	s.mu.parts = nil
	for _, p := range parts {
		p.gone = true
	}
	s.mu.Unlock()
	for _, p := range parts {
		p.leave()
	}
}

// sessionCache holds the sessions of all connections, at most slots of them with at most maxPartitions partitions together.
// Beyond, clients do without: they name all partitions in each fetch.
type sessionCache struct {
	slots         int // max.incremental.fetch.session.cache.slots
	maxPartitions int
	mu            struct {
		sync.Mutex
		sessions   map[int32]*session
		partitions int // of all sessions
	}
}

const (
	partitionBytes = 512 // that a session remembers of a partition, name included
	sessionsShare  = 32  // part of ottla.memory.limit, one in so many, that sessions may take
)

func newSessionCache(slots int, memoryLimit int64) *sessionCache {
	c := &sessionCache{slots: slots, maxPartitions: int(memoryLimit / sessionsShare / partitionBytes)}
	c.mu.sessions = make(map[int32]*session)
	return c
}

// resolve returns the session that a request begins, goes on with, or makes do without.
func (c *sessionCache) resolve(req *kmsg.FetchRequest, now time.Time) (*session, error) {
	if req.SessionEpoch == initialEpoch || req.SessionEpoch == finalEpoch || req.Version < 7 {
		if req.SessionID != 0 {
			c.remove(req.SessionID)
		}
		s := newSession(req)
		if req.SessionEpoch == initialEpoch && req.Version >= 7 && s.size() > 0 {
			c.add(s, now)
		}
		return s, nil
	}
	s, err := c.resume(req, now)
	if err != nil {
		return nil, err
	}
	switch n := s.size(); {
	case n == 0: // there is nothing left to remember
		c.remove(s.id)
		return newSession(req), nil
	case !c.count(s, n): // it has grown too much: the client names everything once more, and is not remembered
		c.remove(s.id)
		return nil, kerr.FetchSessionIDNotFound
	}
	return s, nil
}

// resume finds the session that a request goes on with, and applies what it says.
func (c *sessionCache) resume(req *kmsg.FetchRequest, now time.Time) (*session, error) {
	c.mu.Lock()
	s, ok := c.mu.sessions[req.SessionID]
	if ok {
		s.lastUsed = now
	}
	c.mu.Unlock()
	if !ok {
		return nil, kerr.FetchSessionIDNotFound
	}
	s.mu.Lock()
	if s.mu.parts == nil { // it lost its slot meanwhile
		s.mu.Unlock()
		return nil, kerr.FetchSessionIDNotFound
	}
	if s.usesTopicIDs != (req.Version >= 13) {
		s.mu.Unlock()
		return nil, kerr.FetchSessionTopicIDError
	}
	if s.mu.epoch != req.SessionEpoch {
		s.mu.Unlock()
		return nil, kerr.InvalidFetchSessionEpoch
	}
	s.mu.epoch = nextEpoch(s.mu.epoch)
	forgotten := s.updateLocked(req)
	s.mu.Unlock()
	for _, p := range forgotten {
		p.leave()
	}
	return s, nil
}

// add gives the session an id and a slot, if there is one or another session has the lesser right to its own.
func (c *sessionCache) add(s *session, now time.Time) {
	if victim := c.enter(s, now); victim != nil {
		victim.close()
	}
}

func (c *sessionCache) enter(s *session, now time.Time) (victim *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := s.size()
	full := len(c.mu.sessions) >= c.slots || c.mu.partitions+size > c.maxPartitions
	if full {
		victim = c.victimLocked(s, now)
	}
	if full && (victim == nil || c.mu.partitions-victim.counted+size > c.maxPartitions) {
		return nil
	}
	if victim != nil {
		c.dropLocked(victim)
	}
	for s.id == 0 || c.mu.sessions[s.id] != nil {
		s.id = rand.Int32()
	}
	s.kept, s.lastUsed, s.counted = true, now, size
	c.mu.sessions[s.id] = s
	c.mu.partitions += size
	return victim
}

// victimLocked picks the session that has to make room for s: the longest unused one if that is two minutes, else, for a
// follower, a consumer's, else one with fewer partitions.
func (c *sessionCache) victimLocked(s *session, now time.Time) *session {
	var stale, lesser *session
	size, lesserSize := s.size(), 0
	for _, old := range c.mu.sessions {
		if now.Sub(old.lastUsed) > sessionEvictionAge && (stale == nil || old.lastUsed.Before(stale.lastUsed)) {
			stale = old
		}
		n := old.counted
		if s.privileged && !old.privileged || s.privileged == old.privileged && n < size {
			if lesser == nil || n < lesserSize {
				lesser, lesserSize = old, n
			}
		}
	}
	if stale != nil {
		return stale
	}
	return lesser
}

func (c *sessionCache) remove(id int32) {
	c.mu.Lock()
	s := c.mu.sessions[id]
	if s != nil {
		c.dropLocked(s)
	}
	c.mu.Unlock()
	if s != nil {
		s.close()
	}
}

func (c *sessionCache) dropLocked(s *session) {
	delete(c.mu.sessions, s.id)
	c.mu.partitions -= s.counted
}

// count notes how many partitions a session has now, and reports whether there is room for them.
func (c *sessionCache) count(s *session, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.sessions[s.id] != s {
		return true // it lost its slot meanwhile; this request is answered all the same
	}
	c.mu.partitions += n - s.counted
	s.counted = n
	return c.mu.partitions <= c.maxPartitions
}
