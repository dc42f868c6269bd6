// Package broker is one node: it alone knows all other packages, starts and stops them in order, applies the metadata,
// and turns requests into calls on the packages below. What those find out it turns into error codes, in errors.go
// and nowhere else. It holds no partition's state and no metadata of its own.
//
// Read [Start], then apis.go, then the file of an API: each has the name of its API.
package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ottla/internal/auth"
	"ottla/internal/config"
	"ottla/internal/controller"
	"ottla/internal/coordinator"
	"ottla/internal/metadata"
	"ottla/internal/protocol"
	"ottla/internal/quorum"
	"ottla/internal/replica"
	"ottla/internal/storage"
	"ottla/internal/transport"
	"ottla/internal/uuid"
	"ottla/internal/vfs"
)

// Options say which node to start and on what.
type Options struct {
	Config *config.Config
	FS     vfs.FS
	Logger *slog.Logger
	// Registerer takes the node's metrics.
	Registerer prometheus.Registerer
	// Listen and Dial are the network; nil for the machine's own.
	Listen func(ctx context.Context, network, address string) (net.Listener, error)
	Dial   transport.DialFunc
	// OnOpened, if set, is called by Start once the node knows what it is, and before it reads its logs and waits for the
	// controllers, both of which may take long: from then on the Broker tells others how it is. An error fails the start.
	OnOpened func(*Broker) error
}

// A Broker is a running node: broker, controller, or both.
type Broker struct {
	nodeID      int32
	clusterID   string
	incarnation uuid.UUID
	static      *config.Config // of file, environment and command line
	effective   atomic.Pointer[config.Config]
	fs          vfs.FS
	loggers     *loggers
	logger      *slog.Logger // of this package
	registerer  prometheus.Registerer
	listen      func(ctx context.Context, network, address string) (net.Listener, error)
	dial        transport.DialFunc
	authorizer  auth.Authorizer
	onOpened    func(*Broker) error
	began       time.Time
	took        time.Duration // from began to ready

	dirs        []*storage.Dir
	formatted   bool // by this start
	listeners   []listener
	server      *transport.Server
	quorum      quorum.Quorum
	quorumEnded chan struct{}          // closed when the quorum has written its last; nil if it was never opened
	voter       *quorum.Voter          // nil unless the node is a controller
	controller  *controller.Controller // likewise
	raft        *raftLinks
	controllers *controllers
	images      *images
	replicas    *replica.Set                         // nil unless the node is a broker
	stored      func(topic string) storage.LogConfig // by the metadata in this node's files; nil once the logs of the replicas were opened
	recovered   bool                                 // the logs of the replicas were opened
	caughtUp    bool                                 // the replicas follow the metadata; the applier's
	groups      *coordinator.Groups                  // likewise
	changes     *partitionChanges
	lifecycle   *lifecycle
	sessions    *sessionCache
	producerIDs *producerIDs

	cancel context.CancelFunc // ends the goroutines below
	wait   sync.WaitGroup
	undo   []func() error // what Close does, last first

	end struct {
		sync.Once
		done chan struct{}
		err  error
	}
	closing sync.Once
	closed  error
}

// Start starts a node and returns when it serves: a broker is registered, caught up and unfenced by then, a
// controller follows the metadata log. If that fails, or ctx ends first, everything is stopped again.
func Start(ctx context.Context, o Options) (*Broker, error) {
	b := newBroker(o)
	ctx, cancel := context.WithTimeoutCause(ctx, o.Config.Duration("server.max.startup.time.ms"), errSlowStart)
	defer cancel()
	err := b.start(ctx)
	if err == nil {
		return b, nil
	}
	if context.Cause(ctx) == errSlowStart {
		err = fmt.Errorf("%w: %w", errSlowStart, err)
	}
	return nil, errors.Join(err, b.Close())
}

var errSlowStart = errors.New("the start takes longer than server.max.startup.time.ms allows")

func newBroker(o Options) *Broker {
	c := o.Config
	b := &Broker{
		nodeID: c.NodeID(), incarnation: uuid.Random(), static: c, fs: o.FS, loggers: newLoggers(o.Logger.Handler()), registerer: o.Registerer,
		listen: o.Listen, dial: o.Dial, onOpened: o.OnOpened, authorizer: auth.AllowAll, began: time.Now(),
		images: newImages(), changes: newPartitionChanges(),
		sessions: newSessionCache(c.Int("max.incremental.fetch.session.cache.slots"), memoryLimit(c.Bytes("ottla.memory.limit"))),
	}
	b.logger = b.loggers.named("broker")
	if b.listen == nil {
		b.listen = new(net.ListenConfig).Listen
	}
	if b.dial == nil {
		b.dial = (&net.Dialer{Timeout: c.Duration("socket.connection.setup.timeout.ms")}).DialContext
	}
	b.effective.Store(c)
	b.end.done = make(chan struct{})
	b.server = b.newServer()
	return b
}

// start brings the node up step by step; what each step begins, b.undo ends.
func (b *Broker) start(ctx context.Context) error {
	background, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	for _, step := range []func(ctx, background context.Context) error{
		b.openListeners, b.openDirs, b.openQuorum, b.startController, b.startRaftLinks, b.opened, b.recoverLogs, b.followMetadata, b.serve,
	} {
		if err := step(ctx, background); err != nil {
			return err
		}
	}
	return nil
}

// config returns the configuration as it is now, dynamic settings included.
func (b *Broker) config() *config.Config { return b.effective.Load() }

// image returns the metadata as it is now.
func (b *Broker) image() *metadata.Image { return b.images.newest.Load() }

// goes runs f until the node stops; an error that f ends with before that ends the node.
func (b *Broker) goes(background context.Context, what string, f func(ctx context.Context) error) {
	b.wait.Go(func() {
		if err := f(background); err != nil && background.Err() == nil {
			b.fail(fmt.Errorf("%s: %w", what, err))
		}
	})
}

// fail ends the node: it cannot do its work any more.
func (b *Broker) fail(err error) {
	b.end.Do(func() {
		b.logger.Error("this node cannot go on", "error", err)
		b.end.err = err
		close(b.end.done)
	})
}

// Done is closed when the node cannot go on; Err then says why. It is still to be closed.
func (b *Broker) Done() <-chan struct{} { return b.end.done }

// Err returns why the node cannot go on, or nil.
func (b *Broker) Err() error {
	select {
	case <-b.end.done:
		return b.end.err
	default:
		return nil
	}
}

// openQuorum opens the metadata log, as a voter if this node is a controller, else as an observer.
func (b *Broker) openQuorum(ctx, _ context.Context) error {
	c := b.static
	dir := b.metadataDir()
	b.controllers = &controllers{nodeID: b.nodeID, dial: b.dial, timeout: c.Duration("controller.socket.timeout.ms")}
	b.controllers.reset()
	b.raft = b.newRaftLinks()
	b.undo = append(b.undo, func() error { b.controllers.close(); return nil })
	onFailure := func(err error) { b.fail(fmt.Errorf("the metadata log: %w", err)) }
	var err error
	if c.IsController() {
		b.voter, err = quorum.OpenVoter(quorum.VoterOptions{
			FS: b.fs, Dir: c.MetadataLogDir(), ClusterID: b.clusterID, NodeID: b.nodeID, DirectoryID: dir.ID(), Voters: b.voters(dir.ID()),
			Send: b.raft.send, ElectionTimeout: c.Duration("controller.quorum.election.timeout.ms"), Log: metadataLog(c),
			Logger: b.loggers.named("quorum"), Registerer: b.registerer, OnFailure: onFailure,
		})
		b.quorum = b.voter
	} else {
		b.quorum, err = quorum.OpenObserver(ctx, quorum.ObserverOptions{
			FS: b.fs, Dir: c.MetadataLogDir(), ClusterID: b.clusterID, NodeID: b.nodeID, DirectoryID: dir.ID(), Controllers: b.knownControllers(),
			Call: b.controllers.at, Log: metadataLog(c), RequestTimeout: c.Duration("controller.quorum.request.timeout.ms"),
			RetryBackoff:  max(c.Duration("controller.quorum.retry.backoff.ms"), time.Millisecond), // 0 would keep a processor busy
			FetchMaxBytes: int32(c.Int("controller.quorum.fetch.max.bytes")), FetchSnapshotMaxBytes: int32(c.Int("controller.quorum.fetch.snapshot.max.bytes")),
			Logger: b.loggers.named("quorum"), OnFailure: onFailure,
		})
	}
	if err != nil {
		return fmt.Errorf("open the metadata log in %s: %w", c.MetadataLogDir(), err)
	}
	b.controllers.quorum = b.quorum
	b.quorumEnded = make(chan struct{})
	b.undo = append(b.undo, func() error {
		var err error
		hangs := within("close the metadata log", func() {
			err = b.quorum.Close()
			close(b.quorumEnded)
		})
		if hangs != nil {
			return hangs
		}
		return err
	})
	return nil
}

// metadataLog says how a node keeps the metadata log.
func metadataLog(c *config.Config) quorum.LogOptions {
	o := quorum.LogOptions{
		SegmentBytes: c.Bytes("metadata.log.segment.bytes"), SegmentAge: max(c.Duration("metadata.log.segment.ms"), time.Millisecond),
		MaxBytes: c.Bytes("metadata.max.retention.bytes"), MaxAge: c.Duration("metadata.max.retention.ms"),
	}
	if !c.IsNull("internal.metadata.log.segment.bytes") {
		o.SegmentBytes = c.Bytes("internal.metadata.log.segment.bytes")
	}
	// Zero is as little as can be in Kafka, and stands for the default in LogOptions.
	o.MaxBytes, o.MaxAge = cmp.Or(o.MaxBytes, 1), cmp.Or(o.MaxAge, 1)
	return o
}

// startController starts this node's controller and its listeners, if it is one.
func (b *Broker) startController(_, background context.Context) error {
	if b.voter == nil {
		return nil
	}
	b.controller = controller.New(controller.Options{
		NodeID: b.nodeID, ClusterID: b.clusterID, Config: b.static, Listeners: b.advertised(protocol.OnController), Quorum: b.voter, Events: b.voter.Cursor(), Logger: b.loggers.named("controller"),
		OnFailure: b.fail,
	})
	b.controllers.local = b.askController
	b.undo = append(b.undo, func() error { return within("stop the controller", b.controller.Close) })
	b.serveListeners(background, protocol.OnController)
	return nil
}

// opened lets others ask how the node is.
func (b *Broker) opened(_, _ context.Context) error {
	b.lifecycle = b.newLifecycle()
	if b.onOpened == nil {
		return nil
	}
	return b.onOpened(b)
}

// recoverLogs opens the partitions in the log directories.
func (b *Broker) recoverLogs(ctx, _ context.Context) error {
	if !b.static.IsBroker() {
		return nil
	}
	replicas := replica.NewSet(replica.Options{
		NodeID: b.nodeID, Dirs: b.dataDirs(), Config: b.replicaConfig, LagTimeMax: b.static.Duration("replica.lag.time.max.ms"),
		AlterPartition: b.alterISR, OnDirFailure: func(uuid.UUID, error) { b.lifecycle.kick() }, Registerer: b.registerer, Logger: b.loggers.named("replica"),
	})
	b.replicas = replicas // at once: a directory may fail while others are still being read
	b.undo = append(b.undo, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeWait)
		defer cancel()
		return replicas.Close(ctx)
	})
	b.stored = b.storedLogConfig()
	if err := replicas.Load(ctx); err != nil {
		return fmt.Errorf("open the partitions in %v: %w", b.static.LogDirs(), err)
	}
	b.stored = nil
	b.recovered = true
	b.groups = coordinator.NewGroups(coordinator.Options{
		NodeID: b.nodeID, Config: b.static, Log: b.internalLog, Authorize: b.authorize, Logger: b.loggers.named("coordinator"),
	})
	b.undo = append(b.undo, func() error { return within("stop the groups", b.groups.Close) })
	return errors.Join(b.registerTopicMetrics(), b.registerGroupMetrics())
}

// followMetadata applies the metadata, registers the broker, and waits until it is unfenced.
func (b *Broker) followMetadata(ctx, background context.Context) error {
	b.producerIDs = newProducerIDs(b.allocateProducerIDs)
	b.goes(background, "follow the metadata", b.follow)
	if !b.static.IsBroker() {
		return nil
	}
	b.goes(background, "keep the registration", b.lifecycle.run)
	b.goes(background, "send partition changes", b.sendChanges)
	return b.awaitUnfenced(ctx)
}

// awaitUnfenced waits until the controller has unfenced this broker, and until the broker itself has read so: then it has
// applied what it leads from here on.
func (b *Broker) awaitUnfenced(ctx context.Context) error {
	said := b.lifecycle.unfenced
	for {
		img, changed := b.images.current()
		if br := img.Broker(b.nodeID); said == nil && br != nil && !br.Fenced {
			return nil
		}
		select {
		case <-said:
			said = nil
		case <-changed:
		case <-b.end.done:
			return b.end.err
		case <-ctx.Done():
			return fmt.Errorf("wait to be unfenced by the controller (%w); it last answered: %v", ctx.Err(), b.lifecycle.lastError())
		}
	}
}

// serve lets clients in.
func (b *Broker) serve(_, background context.Context) error {
	b.serveListeners(background, protocol.OnBroker)
	b.took = time.Since(b.began)
	b.logger.Info("ready", "nodeId", b.nodeID, "clusterId", b.clusterID, "took", b.took.String())
	return nil
}

// Close stops the node: the controller moves its leaderships away, clients are disconnected, what was appended is made
// durable and the log directories are marked as cleanly shut. It returns when no goroutine is left, but for those that wait for a
// disk that does not answer: that is an error.
func (b *Broker) Close() error {
	b.closing.Do(func() { b.closed = b.stop() })
	return b.closed
}

func (b *Broker) stop() error {
	if b.lifecycle != nil {
		ctx, cancel := context.WithTimeout(context.Background(), controlledShutdownWait)
		b.lifecycle.shutDown(ctx)
		cancel()
	}
	if b.cancel != nil {
		b.cancel()
	}
	errs := []error{
		within("end the connections", func() { b.server.Close() }),
		within("stop following the metadata", b.wait.Wait), // or it would be applied to replicas that are closed
	}
	for i := len(b.undo) - 1; i >= 0; i-- {
		errs = append(errs, b.undo[i]())
	}
	return errors.Join(errs...)
}

const (
	// controlledShutdownWait bounds how long Close waits for the controller.
	controlledShutdownWait = 5 * time.Second
	// closeWait bounds how long it waits for each part of the node to end, and dirCloseWait for a log directory to have everything
	// written out: a disk that hangs must not keep a node from ending.
	closeWait    = 10 * time.Second
	dirCloseWait = 2 * time.Minute
)

var errHangs = errors.New("a disk does not answer")

// within runs f, for closeWait at most. Nothing but a disk keeps f longer, and then it ends when the disk answers, or with the process.
func within(doing string, f func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s within %v: %w", doing, closeWait, errHangs)
	}
}
