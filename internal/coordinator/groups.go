package coordinator

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"ottla/internal/auth"
	"ottla/internal/config"
	"ottla/internal/coordinator/group"
	"ottla/internal/metadata"
	"ottla/internal/record"
)

// Options say which broker's group coordinator this is.
type Options struct {
	NodeID int32
	Config *config.Config
	// Log finds the partitions of __consumer_offsets.
	Log LogFinder
	// Authorize is asked about groups and topics; nil allows all.
	Authorize auth.Authorizer
	Logger    *slog.Logger
}

// Groups is the group coordinator of a broker: the groups of all partitions of __consumer_offsets that it leads. It may be
// used by many goroutines.
type Groups struct {
	nodeID         int32
	find           LogFinder
	authorize      auth.Authorizer
	logger         *slog.Logger
	loadBufferSize int // bytes

	shared  atomic.Pointer[shared]
	loading semaphore
	wait    sync.WaitGroup

	mu struct {
		sync.RWMutex
		loops  map[int32]*loop
		closed bool
	}
}

// concurrentLoads bounds how many partitions are loaded at a time; each takes offsets.load.buffer.size bytes.
const concurrentLoads = 4

// NewGroups returns a coordinator that leads nothing yet. Apply tells it what to lead; Close ends it.
func NewGroups(o Options) *Groups {
	g := &Groups{nodeID: o.NodeID, find: o.Log, authorize: o.Authorize, logger: o.Logger, loading: make(semaphore, concurrentLoads),
		loadBufferSize: o.Config.Int("offsets.load.buffer.size")}
	if g.authorize == nil {
		g.authorize = auth.AllowAll
	}
	g.mu.loops = map[int32]*loop{}
	g.shared.Store(sharedOf(metadata.Empty, o.Config))
	return g
}

func sharedOf(img *metadata.Image, c *config.Config) *shared {
	return &shared{
		image: img, settings: group.NewSettings(c), commitTimeout: c.Duration("offsets.commit.timeout.ms"),
		compression:   record.Compression{Codec: record.Codec(c.Int("offsets.topic.compression.codec"))},
		maxBatchBytes: c.Int("message.max.bytes"), consumer: slices.Contains(c.List("group.coordinator.rebalance.protocols"), "consumer"),
	}
}

// Configure takes over a changed configuration. It and Apply are called by one goroutine at a time: that which applies
// metadata.
func (g *Groups) Configure(c *config.Config) {
	g.shared.Store(sharedOf(g.shared.Load().image, c))
	for _, l := range g.all() {
		l.changed(nil)
	}
}

// Apply tells what the metadata says now: which partitions of __consumer_offsets this broker leads, and which topics are
// gone, whose offsets are forgotten. It is called when the replicas know of delta, and does not wait for a disk.
func (g *Groups) Apply(delta *metadata.Delta, img *metadata.Image) {
	if delta.Empty() {
		return
	}
	s := *g.shared.Load()
	s.image = img
	g.shared.Store(&s)
	var deleted []group.DeletedTopic
	for change := range delta.Topics() {
		switch {
		case change.Name() == GroupTopic:
			g.lead(change)
		case change.New == nil:
			deleted = append(deleted, group.DeletedTopic{ID: change.ID(), Name: change.Name()})
		}
	}
	for _, l := range g.all() {
		l.changed(deleted)
	}
}

// lead starts and stops loops as the leaders of __consumer_offsets change.
func (g *Groups) lead(change metadata.TopicChange) {
	for p := range change.Partitions() {
		if p.New == nil || p.New.Leader != g.nodeID {
			g.resign(p.ID)
			continue
		}
		if l := g.loop(p.ID); l != nil && p.Old != nil && p.New.LeaderEpoch <= p.Old.LeaderEpoch+1 {
			l.epoch.Store(p.New.LeaderEpoch)
			continue
		}
		g.resign(p.ID) // between the epochs of one delta another broker may have led, and written
		log, err := g.find(change.ID(), p.ID)
		if err != nil {
			g.logger.Error("cannot coordinate the groups of a partition: its log is not here", "topic", GroupTopic, "partition", p.ID, "error", err)
			continue
		}
		g.mu.Lock()
		if !g.mu.closed {
			g.mu.loops[p.ID] = g.start(p.ID, p.New.LeaderEpoch, log)
		}
		g.mu.Unlock()
	}
}

// resign ends a loop, if there is one. What waits there is answered NOT_COORDINATOR soon.
func (g *Groups) resign(partition int32) {
	g.mu.Lock()
	l := g.mu.loops[partition]
	delete(g.mu.loops, partition)
	g.mu.Unlock()
	if l != nil {
		l.stop()
	}
}

func (g *Groups) loop(partition int32) *loop {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.mu.loops[partition]
}

func (g *Groups) all() []*loop {
	g.mu.RLock()
	defer g.mu.RUnlock()
	out := make([]*loop, 0, len(g.mu.loops))
	for _, l := range g.mu.loops {
		out = append(out, l)
	}
	return out
}

// Close ends all loops and waits for them. Requests are refused from then on.
func (g *Groups) Close() {
	g.mu.Lock()
	g.mu.closed = true
	loops := g.mu.loops
	g.mu.loops = map[int32]*loop{}
	g.mu.Unlock()
	for _, l := range loops {
		l.stop()
	}
	g.wait.Wait()
}
