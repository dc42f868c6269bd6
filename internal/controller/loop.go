package controller

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/config"
	"ottla/internal/metadata"
	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
	"ottla/internal/quorum"
	"ottla/internal/uuid"
)

// A loop owns the state of a controller. All its methods but read and save run on its one goroutine.
//
// While it leads, three things hold: image is what committed becomes when pending is applied to it; every waiter sits in the
// entry, the last of those, that the image its answer was computed from contains; entries are
// committed in the order of pending.
type loop struct {
	c           *Controller
	quorum      Quorum
	logger      *slog.Logger
	onFailure   func(error)
	world       world
	incarnation uuid.UUID
	endpoints   []metadata.Endpoint
	loader      *metadata.Loader // committed
	source      Events
	events      chan event
	wg          sync.WaitGroup // read and save

	leading bool
	epoch   int32           // in which it leads
	image   *metadata.Image // speculative
	pending []*entry        // proposed, not yet committed
	parked  []*operation    // see awaitsEpoch

	idle      timer // until a NoOpRecord is due (metadata.max.idle.interval.ms)
	balancing timer // until the next look for preferred leaders (leader.imbalance.check.interval.seconds)

	snapshots snapshots
}

// A timer is due when interval has passed since last. An interval of 0 or less is never.
type timer struct {
	interval time.Duration
	last     time.Time
}

func (t *timer) due(now time.Time) bool {
	return t.interval > 0 && !now.Before(t.last.Add(t.interval))
}

// An event is one of the quorum's, or the error that ended them.
type event struct {
	quorum.Event
	err error
}

// An entry is one batch of the metadata log to be.
type entry struct {
	messages []records.Message
	values   [][]byte // the same, framed
	waiters  []waiter
}

// A waiter is a request whose answer leaves when its entry is committed.
type waiter struct {
	op     *operation
	answer answer
	first  int // index in the entry of the request's first record
}

const (
	// maxEntryRecords is how many records an entry may have before no more requests are put into it.
	maxEntryRecords = 10_000
	// maxEntryRequests is the same for requests.
	maxEntryRequests = 1_000
)

func newLoop(o Options, c *Controller) *loop {
	l := &loop{
		c: c, quorum: o.Quorum, logger: o.Logger, onFailure: o.OnFailure, incarnation: uuid.Random(),
		loader: metadata.NewLoader(metadata.Empty), source: o.Events, events: make(chan event),
		world: world{
			nodeID: o.NodeID, clusterID: o.ClusterID, config: o.Config, newID: uuid.Random,
			sessions: newSessions(o.Config.Duration("broker.session.timeout.ms")),
		},
		idle: timer{interval: o.Config.Duration("metadata.max.idle.interval.ms")},
		snapshots: snapshots{
			maxBytes: o.Config.Bytes("metadata.log.max.record.bytes.between.snapshots"),
			due:      timer{interval: o.Config.Duration("metadata.log.max.snapshot.interval.ms"), last: time.Now()},
			done:     make(chan error, 1),
		},
	}
	if o.Config.Bool("auto.leader.rebalance.enable") {
		l.balancing.interval = o.Config.Duration("leader.imbalance.check.interval.seconds")
	}
	l.endpoints = endpoints(o.Listeners)
	if o.Listeners == nil {
		l.endpoints = endpoints(o.Config.AdvertisedControllerListeners())
	}
	// Our quorum has kraft.version 1, by control records that the loader is not shown.
	l.loader.SetKRaftVersion(1)
	return l
}

func endpoints(listeners []config.Endpoint) []metadata.Endpoint {
	var out []metadata.Endpoint
	for _, e := range listeners {
		if e.Port == 0 { // Apache's controllers and brokers cannot live with it
			continue
		}
		out = append(out, metadata.Endpoint{Name: e.Name, Host: e.Host, Port: uint16(e.Port), SecurityProtocol: securityProtocols[e.SecurityProtocol]})
	}
	return out
}

// run is the loop's goroutine. It ends with ctx or when the controller cannot go on.
func (l *loop) run(ctx context.Context) {
	l.wg.Go(func() { l.read(ctx) })
	err := l.serveAll(ctx)
	wanted := ctx.Err() != nil || errors.Is(err, quorum.ErrClosed)
	l.stop()
	if !wanted && l.onFailure != nil {
		l.onFailure(fmt.Errorf("controller %d: %w", l.world.nodeID, err))
	}
	close(l.c.stopped)
}

// serveAll takes one thing after the other, until ctx ends or it meets an error after which the controller cannot go on.
func (l *loop) serveAll(ctx context.Context) error {
	wake := time.NewTimer(leastSleep)
	defer wake.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-l.events:
			if err := l.apply(e); err != nil {
				return err
			}
		case op := <-l.c.ops:
			l.serve(op)
		case err := <-l.snapshots.done:
			l.snapshotDone(err)
		case <-wake.C:
			l.tick()
		}
		wake.Reset(l.untilNext())
	}
}

// read hands the quorum's events to the loop, one at a time, until ctx ends or there are no more.
func (l *loop) read(ctx context.Context) {
	for {
		e, err := l.source.Next(ctx)
		select {
		case l.events <- event{e, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// stop ends the loop's other goroutines and answers all that waits.
func (l *loop) stop() {
	l.c.cancel()
	l.deactivate()
	l.wg.Wait()
	for {
		select {
		case op := <-l.c.ops:
			op.refuse()
		default:
			return
		}
	}
}

func (op *operation) refuse() {
	if op.req != nil {
		op.done <- notController(op.req)
	}
}

// apply takes an event of the quorum. After an error the controller cannot go on.
func (l *loop) apply(e event) error {
	if e.err != nil {
		return e.err
	}
	switch e := e.Event.(type) {
	case quorum.Batch:
		return l.applyBatch(e)
	case quorum.Snapshot:
		_, err := l.loader.Snapshot(e.ID.EndOffset-1, e.ID.Epoch, e.Timestamp, e.Values)
		if errors.Is(err, fs.ErrNotExist) { // a newer one is there and comes next
			return nil
		}
		l.snapshots.taken(time.Now())
		return err
	case quorum.LeaderChange:
		l.deactivate()
		if e.ID == l.world.nodeID {
			return l.activate(e.Epoch)
		}
	}
	return nil
}

func (l *loop) applyBatch(b quorum.Batch) error {
	_, err := l.loader.Batch(metadata.Batch{BaseOffset: b.BaseOffset, LastOffset: b.LastOffset, Epoch: b.Epoch, Timestamp: b.Timestamp, Values: b.Values})
	if err != nil {
		return err
	}
	l.snapshots.bytes += int64(b.Bytes)
	if l.leading && b.Epoch == l.epoch && len(b.Values) > 0 {
		return l.settle(b)
	}
	return nil
}

// settle sends the answers that waited for a batch of ours.
func (l *loop) settle(b quorum.Batch) error {
	if len(l.pending) == 0 || len(l.pending[0].values) != len(b.Values) {
		return fmt.Errorf("batch at offset %d with %d records of epoch %d is not the one this controller proposed", b.BaseOffset, len(b.Values), b.Epoch)
	}
	e := l.pending[0]
	l.pending = l.pending[1:]
	l.answer(e.waiters, b.BaseOffset)
	switch {
	case len(l.pending) == 0:
		l.image = l.loader.Image()
	case e.registers():
		// The speculation knew the broker's epoch by its placeholder only.
		l.rebase()
	}
	parked := l.parked
	l.parked = nil
	for _, op := range parked {
		l.serve(op)
	}
	return nil
}

// awaitsEpoch reports whether a request is about a broker whose registration is on its way: its epoch, which the
// records to come must name, is known once that is committed.
func (l *loop) awaitsEpoch(req kmsg.Request) bool {
	var id int32
	switch req := req.(type) {
	case *kmsg.BrokerRegistrationRequest:
		id = req.BrokerID
	case *kmsg.UnregisterBrokerRequest:
		id = req.BrokerID
	default:
		return false
	}
	b := l.image.Broker(id)
	return b != nil && b.Epoch == stampedEpoch
}

func (l *loop) answer(waiters []waiter, base int64) {
	for _, w := range waiters {
		w.op.done <- w.answer(base + int64(w.first))
	}
}

// registers reports whether an entry holds a record that is stamped with its own offset.
func (e *entry) registers() bool {
	for _, m := range e.messages {
		if r, ok := m.(*records.RegisterBrokerRecord); ok && r.BrokerEpoch == stampedEpoch {
			return true
		}
	}
	return false
}

// rebase computes the speculative image anew.
func (l *loop) rebase() {
	t := newTurn(&l.world, l.loader.Image(), time.Now())
	for _, e := range l.pending {
		for _, m := range e.messages {
			t.replay(m)
		}
	}
	l.image = t.image()
}

// activate begins to lead.
func (l *loop) activate(epoch int32) error {
	now := time.Now()
	l.leading, l.epoch, l.image = true, epoch, l.loader.Image()
	l.world.sessions.reset(l.image, now)
	l.world.spread = l.image.PartitionCount()
	l.idle.last, l.balancing.last = now, now
	l.c.epoch.Store(int64(epoch))
	l.logger.Info("active controller", "epoch", epoch, "offset", l.image.Offset)
	if l.loader.InTransaction() {
		reason := "a new controller became active"
		l.decide(func(t *turn) { t.emit(&records.AbortTransactionRecord{Reason: &reason}) })
	}
	if l.image.MetadataVersion() == 0 {
		formatted, err := l.quorum.Bootstrap()
		if err != nil {
			return err
		}
		l.decide(func(t *turn) { err = t.bootstrap(formatted) })
		if err != nil {
			return err
		}
	}
	l.decide(func(t *turn) { t.registerSelf(l.incarnation, l.endpoints) })
	return nil
}

// deactivate drops the speculation.
func (l *loop) deactivate() {
	if !l.leading {
		return
	}
	l.leading, l.image = false, nil
	l.c.epoch.Store(-1)
	for _, e := range l.pending {
		e.refuse()
	}
	for _, op := range l.parked {
		op.refuse()
	}
	l.pending, l.parked = nil, nil
}

func (e *entry) refuse() {
	for _, w := range e.waiters {
		w.op.refuse()
	}
}

// serve evaluates an operation and those that wait behind it, and proposes what they come to as one entry.
func (l *loop) serve(op *operation) {
	e := &entry{}
	for n := 0; ; n++ {
		l.evaluate(op, e)
		if n >= maxEntryRequests || len(e.values) >= maxEntryRecords {
			break
		}
		select {
		case op = <-l.c.ops:
			continue
		default:
		}
		break
	}
	l.propose(e)
}

// evaluate adds an operation's records and its answer to an entry.
func (l *loop) evaluate(op *operation, e *entry) {
	if !l.leading {
		op.refuse()
		return
	}
	now := time.Now()
	if op.req == nil {
		l.world.sessions.disconnected(op.disconnected, now)
		return
	}
	if l.awaitsEpoch(op.req) {
		l.parked = append(l.parked, op)
		return
	}
	t := newTurn(&l.world, l.image, now)
	answer, ok := l.handle(t, op.req)
	if !ok {
		op.done <- protocol.ErrorAnswer(op.req, kerr.UnknownServerError.Code)
		return
	}
	e.waiters = append(e.waiters, waiter{op: op, answer: answer, first: len(e.values)})
	l.add(t, e)
}

// handle evaluates a request. ok is false if that panicked: a mistake of ours, which costs the sender its request
// but not the cluster its controller, since a turn that is thrown away leaves nothing behind.
func (l *loop) handle(t *turn, req kmsg.Request) (a answer, ok bool) {
	defer func() {
		if p := recover(); p != nil {
			l.logger.Error("a request cannot be evaluated; this is a bug in ottla", "request", kmsg.NameForKey(req.Key()), "panic", p, "stack", string(debug.Stack()))
			a, ok = nil, false
		}
	}()
	a = t.handle(req)
	t.image() // whatever does not fit shows here
	return a, true
}

func (l *loop) add(t *turn, e *entry) {
	l.image = t.image()
	e.messages = append(e.messages, t.emitted...)
	e.values = append(e.values, t.values...)
}

// decide proposes what a turn without a request emits.
func (l *loop) decide(what func(*turn)) {
	if !l.leading {
		return
	}
	t := newTurn(&l.world, l.image, time.Now())
	what(t)
	e := &entry{}
	l.add(t, e)
	l.propose(e)
}

// propose hands an entry to the quorum. An entry without records waits with the last that has some.
func (l *loop) propose(e *entry) {
	if !l.leading {
		e.refuse()
		return
	}
	if len(e.values) == 0 {
		if n := len(l.pending); n > 0 {
			last := l.pending[n-1]
			last.waiters = append(last.waiters, e.waiters...)
			return
		}
		l.answer(e.waiters, l.image.Offset)
		return
	}
	if err := l.quorum.Propose(l.epoch, e.values); err != nil {
		l.logger.Info("no longer the active controller", "epoch", l.epoch, "error", err)
		e.refuse()
		l.deactivate()
		return
	}
	l.pending = append(l.pending, e)
	l.idle.last = time.Now()
}

// tick does what is due by time.
func (l *loop) tick() {
	now := time.Now()
	l.snapshotIfDue(now)
	if !l.leading {
		return
	}
	for {
		id, ok := l.world.sessions.expired(l.image, now)
		if !ok {
			break
		}
		l.logger.Info("a broker fell silent: fenced", "broker", id)
		l.decide(func(t *turn) { t.fence(id) })
		if !l.leading {
			return
		}
	}
	if l.balancing.due(now) {
		l.balancing.last = now
		l.decide((*turn).balance)
	}
	if l.idle.due(now) {
		l.decide(func(t *turn) { t.emit(&records.NoOpRecord{}) })
	}
}

const (
	maxSleep   = time.Minute     // how long the loop sleeps when nothing is due
	leastSleep = time.Nanosecond // and when something is: see ARCHITECTURE.md on timers of 0
)

// untilNext returns how long nothing is due.
func (l *loop) untilNext() time.Duration {
	now := time.Now()
	next := now.Add(maxSleep)
	consider := func(at time.Time) {
		if at.Before(next) {
			next = at
		}
	}
	if l.snapshots.due.interval > 0 && l.snapshots.bytes > 0 && !l.snapshots.busy {
		consider(l.snapshots.due.last.Add(l.snapshots.due.interval))
		if l.snapshots.bytes >= l.snapshots.maxBytes {
			consider(now)
		}
	}
	if l.leading {
		for _, t := range []timer{l.idle, l.balancing} {
			if t.interval > 0 {
				consider(t.last.Add(t.interval))
			}
		}
		if at, ok := l.world.sessions.next(l.image); ok {
			consider(at)
		}
	}
	return max(leastSleep, next.Sub(now))
}
