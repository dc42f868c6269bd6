package replica

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ottla/internal/metadata"
	"ottla/internal/record"
	"ottla/internal/storage"
	"ottla/internal/uuid"
)

// A Config is what is set on a topic, as far as replicas and those who validate batches for them heed it. It never changes.
type Config struct {
	Log               storage.LogConfig
	MinInSyncReplicas int
	// Produce says what is taken from producers; its Now and NoZstd are for each request to set, in a copy.
	Produce record.Produce
}

// Options say what a [Set] hosts and where.
type Options struct {
	NodeID int32
	Dirs   []*storage.Dir // opened and formatted; the Set loads them, the caller closes them, after the Set
	// Config gives a topic's settings as of an image.
	Config func(topic string, img *metadata.Image) Config
	// LagTimeMax is replica.lag.time.max.ms; default 30 s.
	LagTimeMax time.Duration
	// AlterPartition sends an ISR change to the controller. It is called with no lock held and must not block. nil: this
	// broker changes no ISR.
	AlterPartition func(ISRChange)
	Fetchers       Fetchers // nil: nothing is followed
	// OnDirFailure is told, once for each, that the partitions of a log directory have been taken offline.
	OnDirFailure func(dir uuid.UUID, err error)
	Registerer   prometheus.Registerer
	Logger       *slog.Logger
}

// A Set is all replicas of this broker. Load it, then Apply the metadata, delta by delta, from one goroutine; everything else
// may be called by many.
type Set struct {
	o        Options
	nodeID   int32
	logger   *slog.Logger
	started  time.Time    // what the times of ages.Ring count from, by a clock that never goes back
	lagMax   atomic.Int64 // ms
	eligible func(broker int32, epoch int64) bool
	image    atomic.Pointer[metadata.Image]
	byID     index[uuid.UUID]
	byName   index[string]
	metrics  *metrics
	dirs     []*directory

	stop    context.CancelFunc
	stopped context.Context
	workers sync.WaitGroup
	mu      struct {
		sync.Mutex
		closed bool // no worker may be added any more
	}
}

// NewSet returns a set that hosts nothing yet.
func NewSet(o Options) *Set {
	if o.LagTimeMax == 0 {
		o.LagTimeMax = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Set{o: o, nodeID: o.NodeID, logger: o.Logger, started: time.Now(), byID: newIndex(hashID), byName: newIndex(hashName)}
	s.lagMax.Store(o.LagTimeMax.Milliseconds())
	s.image.Store(metadata.Empty)
	s.eligible = s.mayJoin
	s.metrics = newMetrics(s, o.Registerer)
	s.stopped, s.stop = context.WithCancel(context.Background())
	for _, d := range o.Dirs {
		s.dirs = append(s.dirs, newDirectory(s, d))
	}
	return s
}

// Load opens the logs that are on the disks and begins the background work. A directory that fails goes offline; it is an error
// if none is left.
func (s *Set) Load(ctx context.Context) error {
	errs := make([]error, len(s.dirs))
	var loading sync.WaitGroup
	for i, d := range s.dirs {
		loading.Go(func() { errs[i] = d.load(ctx) })
	}
	loading.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	online := 0
	for i, d := range s.dirs {
		if errs[i] != nil {
			s.DirFailed(d.path, errs[i])
			continue
		}
		online++
	}
	if online == 0 {
		return errors.Join(errs...)
	}
	for _, d := range s.dirs {
		s.workers.Go(func() { d.work(s.stopped) })
	}
	if s.o.AlterPartition != nil {
		s.workers.Go(s.shrinkLoop)
	}
	return nil
}

// Close ends the background work, once what the directories' workers have been asked for is done or ctx ends, and takes the
// partitions offline: whoever waits is woken. High watermarks can still be read, for the directories' last checkpoint.
func (s *Set) Close(ctx context.Context) error {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	s.stop()
	done := make(chan struct{})
	go func() {
		s.workers.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err() // a disk hangs; its worker ends when the disk does
	}
	for p := range s.Partitions {
		p.retire(ErrClosed)
	}
	s.metrics.unregister()
	return err
}

// Image returns the metadata that was applied last.
func (s *Set) Image() *metadata.Image { return s.image.Load() }

// SetLagTimeMax changes replica.lag.time.max.ms.
func (s *Set) SetLagTimeMax(d time.Duration) { s.lagMax.Store(d.Milliseconds()) }

// Get returns the replica of a partition, or ErrUnknownPartition. It allocates nothing and takes no lock.
func (s *Set) Get(topicID uuid.UUID, partition int32) (*Partition, error) {
	return at(s.byID.get(topicID), partition)
}

// GetByName is Get for clients that name topics.
func (s *Set) GetByName(topic string, partition int32) (*Partition, error) {
	return at(s.byName.get(topic), partition)
}

func at(partitions []*Partition, id int32) (*Partition, error) {
	if id < 0 || int(id) >= len(partitions) || partitions[id] == nil {
		return nil, ErrUnknownPartition
	}
	return partitions[id], nil
}

// Partitions yields all replicas, in no order.
func (s *Set) Partitions(yield func(*Partition) bool) {
	s.byID.all(func(partitions []*Partition) bool {
		for _, p := range partitions {
			if p != nil && !yield(p) {
				return false
			}
		}
		return true
	})
}

// Apply follows the metadata: it makes the replicas that are placed here, leads and follows, reconfigures, and deletes what
// the metadata deletes. It does not wait for a disk: the directories' workers do what is left, and meanwhile a partition
// answers with ErrOpening.
//
// Data is deleted and set aside by what a delta says. So the first one must come from a whole image that a quorum has
// committed (the broker has caught up with the metadata log), never from a log that is still being read.
func (s *Set) Apply(d *metadata.Delta) {
	img := d.Image()
	first := s.image.Swap(img) == metadata.Empty
	for c := range d.Topics() {
		if c.New == nil {
			s.deleteTopic(c.ID(), c.Name())
		} else {
			s.changeTopic(c, img, first)
		}
	}
	s.reconfigure(d, img)
	for range d.Brokers() {
		s.recheck()
		break
	}
}

// recheck looks which high watermarks may move now that a broker's state has changed: a follower that was about to join an ISR,
// and held it up, may be gone.
func (s *Set) recheck() {
	for p := range s.Partitions {
		if p.view.Load().replicas > 1 {
			p.recheck()
		}
	}
}

func (s *Set) deleteTopic(id uuid.UUID, name string) {
	partitions := s.byID.get(id)
	s.byID.set(id, nil)
	s.byName.set(name, nil)
	for _, p := range partitions {
		if p != nil {
			s.remove(p)
		}
	}
	s.metrics.forget(name)
}

// remove deletes a replica, which nobody finds any more.
func (s *Set) remove(p *Partition) {
	p.retire(ErrUnknownPartition)
	p.dir.count--
	p.dir.do(func() { p.dir.delete(p) })
	if s.o.Fetchers != nil {
		s.o.Fetchers.Removed(p)
	}
}

func (s *Set) changeTopic(c metadata.TopicChange, img *metadata.Image, first bool) {
	partitions := slices.Clone(s.byID.get(c.ID()))
	var config *Config
	changed := false
	var follow []func()
	for pc := range c.Partitions() {
		for int(pc.ID) >= len(partitions) {
			partitions = append(partitions, nil)
		}
		p := partitions[pc.ID]
		if !hosts(pc.New, s.nodeID) {
			if p != nil {
				partitions[pc.ID], changed = nil, true
				follow = append(follow, func() { s.remove(p) })
			}
			continue
		}
		if p == nil {
			if config == nil {
				made := s.o.Config(c.Name(), img)
				config = &made
			}
			p = newPartition(s, c.Name(), c.ID(), pc.ID, s.place(c, pc, first), config, s.metrics.topic(c.Name()))
			partitions[pc.ID], changed = p, true
		}
		target := pc.New
		follow = append(follow, func() { p.follow(target) })
	}
	if changed {
		if !slices.ContainsFunc(partitions, func(p *Partition) bool { return p != nil }) {
			partitions = nil
		}
		s.byID.set(c.ID(), partitions)
		s.byName.set(c.Name(), partitions)
	}
	for _, f := range follow {
		f()
	}
}

// place chooses the directory of a new replica: where it is already, where the metadata says, or where there are fewest. A replica
// that may be in a directory which failed is placed there, offline: made anew elsewhere, it would have lost what it holds.
func (s *Set) place(c metadata.TopicChange, pc metadata.PartitionChange, first bool) *directory {
	tp := storage.TopicPartition{Topic: c.Name(), Partition: pc.ID}
	assigned, _ := pc.New.Directory(s.nodeID)
	var fewest, failed, named *directory
	for _, d := range s.dirs {
		switch {
		case d.holds(tp, c.ID()):
			d.count++
			return d
		case d.id == assigned:
			named = d
		case d.failure.Load() != nil:
			failed = d
		case fewest == nil || d.count < fewest.count:
			fewest = d
		}
	}
	switch {
	case named != nil:
	case failed != nil && (first || fewest == nil):
		named = failed
	default:
		named = fewest
	}
	named.count++
	return named
}

// reconfigure hands out settings that changed.
func (s *Set) reconfigure(d *metadata.Delta, img *metadata.Image) {
	everything := false
	for c := range d.Configs() {
		switch c.Key.Type {
		case metadata.TopicConfig:
			s.configureTopic(c.Key.Name, img)
		case metadata.BrokerConfig:
			everything = everything || c.Key == metadata.ClusterDefaults || c.Key == metadata.BrokerResource(s.nodeID)
		}
	}
	if everything {
		s.Reconfigure()
	}
}

// Reconfigure hands out the settings of all topics anew, after the broker's own defaults changed.
func (s *Set) Reconfigure() {
	img := s.Image()
	s.byID.all(func(partitions []*Partition) bool {
		for _, p := range partitions {
			if p != nil {
				s.configureTopic(p.topic, img)
				break
			}
		}
		return true
	})
}

func (s *Set) configureTopic(topic string, img *metadata.Image) {
	partitions := s.byName.get(topic)
	if len(partitions) == 0 {
		return
	}
	c := s.o.Config(topic, img)
	for _, p := range partitions {
		if p != nil {
			p.configure(&c)
		}
	}
}

// SetStraysAside takes what is on the disks but not placed here by the metadata out of the way: the directories are renamed,
// nothing is deleted. It must only be called once the first image was applied. It waits for the disks' workers or for ctx.
func (s *Set) SetStraysAside(ctx context.Context) error {
	done := make(chan struct{}, len(s.dirs))
	asked := 0
	for _, d := range s.dirs {
		if d.failure.Load() == nil {
			d.do(func() {
				d.setStraysAside()
				done <- struct{}{}
			})
			asked++
		}
	}
	for range asked {
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.stopped.Done():
			return ErrClosed
		}
	}
	return nil
}

// DirFailed takes the partitions of a log directory offline. storage.DirOptions.OnFailure calls it; it returns at once.
func (s *Set) DirFailed(path string, err error) {
	for _, d := range s.dirs {
		if d.path != path || !d.failure.CompareAndSwap(nil, &err) {
			continue
		}
		s.mu.Lock()
		if !s.mu.closed {
			s.workers.Go(func() { s.takeOffline(d, err) })
		}
		s.mu.Unlock()
	}
}

func (s *Set) takeOffline(d *directory, err error) {
	s.logger.Error("log directory is offline", "path", d.path, "error", err.Error())
	for p := range s.Partitions {
		if p.dir == d {
			p.retire(&OfflineError{Dir: d.path, Err: err})
		}
	}
	if s.o.OnDirFailure != nil {
		s.o.OnDirFailure(d.id, err)
	}
}

// OnlineDirs returns the ids of the log directories that have not failed.
func (s *Set) OnlineDirs() []uuid.UUID {
	var ids []uuid.UUID
	for _, d := range s.dirs {
		if d.failure.Load() == nil {
			ids = append(ids, d.id)
		}
	}
	return ids
}

// mayJoin reports whether a follower may join an ISR: registered, unfenced, not shutting down, and not restarted since it
// fetched (KIP-903).
func (s *Set) mayJoin(broker int32, epoch int64) bool {
	b := s.Image().Broker(broker)
	return b != nil && !b.Fenced && !b.InControlledShutdown && (epoch < 0 || epoch == b.Epoch)
}

// shrinkLoop looks for followers that fell behind, twice in replica.lag.time.max.ms as Kafka does.
func (s *Set) shrinkLoop() {
	for {
		select {
		case <-s.stopped.Done():
			return
		case <-time.After(time.Duration(s.lagMax.Load()) * time.Millisecond / 2):
		}
		for p := range s.Partitions {
			p.shrink()
		}
	}
}
