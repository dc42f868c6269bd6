package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/coordinator/group"
	"ottla/internal/metadata"
	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
	"ottla/internal/record"
)

// A call is one operation on one partition, or the question what groups there are, and who waits for its answer: done or survey, which
// is called once and must not block.
type call struct {
	op     group.Op
	done   func(kmsg.Response)
	survey func([]group.Status) // of nothing if it is refused
}

func (c *call) refuse(code int16) {
	if c.survey != nil {
		c.survey(nil)
		return
	}
	c.done(refusal(c.op.Request, code))
}

// A loop serves one led partition. The work is done in turns, one at a time: by who brings an operation, if nobody is at one, as to wake a
// goroutine would cost more than most operations do; else by run, the loop's own goroutine, which also loads, keeps the time and hears of
// the high watermark. submit and changed are for anybody, and whose turn it is has the rest.
type loop struct {
	groups    *Groups
	partition int32
	epoch     atomic.Int32 // leader epoch, which may go up while this broker stays the leader
	log       Log
	logger    *slog.Logger

	ctx    context.Context // ends when the leadership does
	stop   context.CancelFunc
	signal chan struct{} // of one: run is to take a turn

	mu struct {
		sync.Mutex
		state   loopState
		inbox   []*call
		deleted []group.DeletedTopic // that the log does not know of yet
		changed bool                 // image or settings, likewise
		turning bool                 // somebody has the turn
		again   bool                 // there is something to do that this turn may not have seen
		failure error                // of a turn: run has the turn now, and drops everything
	}

	// What follows belongs to whose turn it is.
	machine *group.Machine
	known   *shared                // what the machine knows: no older than what the calls of a turn were looked up in
	calls   map[group.Ticket]*call // not answered by the machine yet
	ticket  group.Ticket
	held    []heldAnswer // answered, but not replicated; in the order of end and of deadline
	end     int64        // log end that the machine's state is at
	sub     Subscription // to the high watermark
	timer   *time.Timer  // wakes run when there is something to do
	armed   time.Time    // when that is, or earlier
	buf     []byte       // of the batch
	scratch []byte       // of a record
	pending []group.Record
}

type loopState int8

const (
	opening loopState = iota // loading, for less than patience: calls wait
	loading                  // calls are refused
	serving
	closed
)

// patience is how long calls wait for a partition that begins to load. When the first consumer comes all 50 have just been
// created, which takes 100 ms on an idle machine; a client that is refused would ask as often as every 100 ms.
const patience = 500 * time.Millisecond

// A heldAnswer waits for the high watermark. It is a response, or what a survey found.
type heldAnswer struct {
	call     *call
	response kmsg.Response
	groups   []group.Status
	end      int64 // it leaves at a high watermark of this
	deadline time.Time
}

func (h *heldAnswer) leave() {
	if h.call.survey != nil {
		h.call.survey(h.groups)
		return
	}
	h.call.done(h.response)
}

// start begins to serve a partition.
func (g *Groups) start(partition, epoch int32, log Log) *loop {
	l := &loop{groups: g, partition: partition, log: log, signal: make(chan struct{}, 1),
		logger: g.logger.With("topic", GroupTopic, "partition", partition)}
	l.epoch.Store(epoch)
	l.mu.turning = true // run's, until it serves
	l.ctx, l.stop = context.WithCancel(context.Background())
	g.wait.Go(l.run)
	return l
}

// submit hands in an operation, which is done before it returns if nobody else has the turn. A survey is left to run: who asks for one
// does not wait for a disk.
func (l *loop) submit(c *call) {
	l.mu.Lock()
	state := l.mu.state
	if state == serving || state == opening {
		l.mu.inbox = append(l.mu.inbox, c)
	}
	mine := state == serving && c.survey == nil && l.enterLocked()
	l.mu.Unlock()
	switch state {
	case serving:
		if mine {
			l.takeTurn()
		} else if c.survey != nil {
			l.wake()
		}
	case opening:
	case loading:
		c.refuse(kerr.CoordinatorLoadInProgress.Code)
	default:
		c.refuse(kerr.NotCoordinator.Code)
	}
}

// enterLocked gives the caller the turn. If somebody else has it, run takes another after that.
func (l *loop) enterLocked() bool {
	if l.mu.turning {
		l.mu.again = true
		return false
	}
	l.mu.turning = true
	return true
}

func (l *loop) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.enterLocked()
}

// leave ends the caller's turn.
func (l *loop) leave() {
	l.mu.Lock()
	again := l.mu.again
	l.mu.turning, l.mu.again = false, false
	l.mu.Unlock()
	if again {
		l.wake()
	}
}

// takeTurn does all there is to do, and ends the caller's turn, or leaves it to run with the reason why everything is to be dropped.
func (l *loop) takeTurn() {
	err := l.turn(time.Now())
	if err == nil {
		l.leave()
		return
	}
	l.mu.Lock()
	l.mu.failure = err
	l.mu.Unlock()
	l.wake()
}

// changed tells the loop that there is a new image or configuration, and which topics are gone.
func (l *loop) changed(deleted []group.DeletedTopic) {
	l.mu.Lock()
	l.mu.changed = true
	l.mu.deleted = append(l.mu.deleted, deleted...)
	l.mu.Unlock()
	l.wake()
}

func (l *loop) wake() {
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// The pauses between attempts to load a partition.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

// run loads and serves until the leadership goes.
func (l *loop) run() {
	impatient := time.AfterFunc(patience, l.losePatience)
	defer impatient.Stop()
	pause := firstPause
	for l.ctx.Err() == nil {
		began := time.Now()
		err := l.load()
		if err == nil {
			l.logger.Info("loaded the groups", "took", time.Since(began))
			pause = firstPause
			err = l.serve()
		}
		if err == nil || l.ctx.Err() != nil {
			break
		}
		l.logger.Warn("dropped the groups of this partition, they will be loaded again", "error", err, "in", pause)
		select {
		case <-time.After(pause):
		case <-l.ctx.Done():
		}
		pause = min(2*pause, lastPause)
	}
	l.drop(closed, kerr.NotCoordinator.Code)
}

// losePatience refuses the calls that wait if the partition still loads.
func (l *loop) losePatience() {
	l.mu.Lock()
	if l.mu.state != opening {
		l.mu.Unlock()
		return
	}
	inbox := l.mu.inbox
	l.mu.inbox, l.mu.state = nil, loading
	l.mu.Unlock()
	for _, c := range inbox {
		c.refuse(kerr.CoordinatorLoadInProgress.Code)
	}
}

// drop forgets the machine; all who wait are refused. It is run's turn.
func (l *loop) drop(next loopState, code int16) {
	l.mu.Lock()
	inbox := l.mu.inbox
	l.mu.inbox, l.mu.state = nil, next
	l.mu.Unlock()
	for _, c := range inbox {
		c.refuse(code)
	}
	for _, h := range l.held {
		h.call.refuse(code)
	}
	for _, c := range l.calls {
		c.refuse(code)
	}
	l.machine, l.calls, l.held, l.pending = nil, nil, nil, nil
}

// load replays the partition into a new machine.
func (l *loop) load() error {
	if err := l.log.Ready(l.ctx); err != nil {
		return fmt.Errorf("wait for the partition: %w", err)
	}
	if err := l.groups.loading.acquire(l.ctx); err != nil {
		return err
	}
	defer l.groups.loading.release()
	l.mu.Lock()
	l.mu.changed = len(l.mu.deleted) > 0
	l.mu.Unlock()
	s := l.groups.shared.Load()
	l.known = s
	l.machine = group.New(group.Options{Settings: s.settings, Image: s.image})
	l.calls = map[group.Ticket]*call{}
	if err := l.replay(l.groups.loadBufferSize); err != nil {
		l.machine = nil
		return err
	}
	l.collect(l.machine.Loaded(time.Now()))
	l.mu.Lock()
	l.mu.state = serving
	l.mu.Unlock()
	return nil
}

// replay reads the log from its start to its end, some bytes at a time.
func (l *loop) replay(bufferSize int) error {
	offset, end := l.log.Bounds()
	var buf []byte
	for offset < end && l.ctx.Err() == nil {
		b, err := l.log.Read(offset, bufferSize, buf)
		if err != nil {
			return fmt.Errorf("read at offset %d: %w", offset, err)
		}
		if len(b) == 0 {
			break
		}
		buf = b[:0]
		next, err := l.replayBatches(b, offset)
		if err != nil {
			return fmt.Errorf("replay from offset %d (ottla log dump shows the records): %w", offset, err)
		}
		if next <= offset {
			return fmt.Errorf("replay from offset %d: no whole batch in %d bytes", offset, len(b))
		}
		offset = next
	}
	l.end = max(offset, end)
	return l.ctx.Err()
}

// replayBatches replays the whole batches in b from an offset on, and returns the offset behind them.
func (l *loop) replayBatches(b []byte, from int64) (next int64, err error) {
	next = from
	for len(b) >= record.HeaderSize {
		h, err := record.ParseHeader(b)
		if err != nil {
			return 0, err
		}
		if len(b) < h.Size() {
			break
		}
		batch := b[:h.Size()]
		b = b[h.Size():]
		if h.NextOffset() <= from {
			continue
		}
		if err := record.CheckCRC(batch); err != nil {
			return 0, err
		}
		if err := l.replayBatch(batch, &h); err != nil {
			return 0, err
		}
		next = h.NextOffset()
	}
	return next, nil
}

func (l *loop) replayBatch(batch []byte, h *record.Header) error {
	if h.Attributes.Control() {
		marker, ok, err := record.ParseEndTxnMarker(batch)
		if ok && err == nil {
			l.machine.ReplayMarker(h.ProducerID, marker.Commit)
		}
		return err
	}
	producerID := int64(record.NoProducerID)
	if h.Attributes.Transactional() {
		producerID = h.ProducerID
	}
	return record.Iterate(batch, func(r record.Record) error {
		k, v, err := records.DecodeGroup(r.Key, r.Value)
		var unknown *records.UnknownError
		if errors.As(err, &unknown) && unknown.Message == nil {
			return nil // a kind of record that a newer release keeps here
		}
		if err != nil {
			return fmt.Errorf("record at offset %d: %w", r.Offset, err)
		}
		l.machine.Replay(k, v, producerID)
		return nil
	})
}

// rest is how long run waits if there is no time to keep.
const rest = time.Hour

// serve gives the turn away until the leadership goes, nil, or something fails; then it is run's again, and all state is dropped.
func (l *loop) serve() error {
	l.sub = l.log.Subscribe(l.wake)
	defer l.sub.Close()
	l.timer = time.AfterFunc(rest, l.wake)
	defer l.timer.Stop()
	l.armed = time.Now().Add(rest)
	l.leave()
	l.wake() // for a first turn
	over := l.ctx.Done()
	for {
		select {
		case <-over:
			over = nil // whoever has the turn wakes run after it
		case <-l.signal:
		}
		if err := l.takeFailure(); err != nil {
			code := kerr.CoordinatorNotAvailable.Code
			if errors.Is(err, ErrNotLeader) {
				code = kerr.NotCoordinator.Code
			}
			l.drop(loading, code)
			return err
		}
		if !l.enter() {
			continue
		}
		if l.ctx.Err() != nil {
			return nil
		}
		l.takeTurn()
	}
}

// takeFailure returns why a turn failed, nil if none did. Then it is run's turn.
func (l *loop) takeFailure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.mu.failure
	l.mu.failure = nil
	return err
}

// turn does all there is to do: what came in becomes one batch, or a few.
func (l *loop) turn(now time.Time) error {
	l.mu.Lock()
	inbox, changed, deleted := l.mu.inbox, l.mu.changed, l.mu.deleted
	l.mu.inbox, l.mu.changed, l.mu.deleted = nil, false, nil
	l.mu.Unlock()
	if s := l.groups.shared.Load(); changed || s != l.known {
		l.known = s
		l.machine.Configure(s.settings)
		l.collect(l.machine.SetImage(now, s.image, deleted))
	}
	for _, c := range inbox {
		if c.survey != nil {
			l.held = append(l.held, heldAnswer{call: c, groups: l.machine.Survey(), end: unknownEnd})
			continue
		}
		l.ticket++
		c.op.Ticket = l.ticket
		l.calls[l.ticket] = c
		l.collect(l.machine.Step(now, c.op))
	}
	if due, ok := l.machine.Due(); ok && !due.After(now) {
		l.collect(l.machine.Tick(now))
	}
	if err := l.flush(now); err != nil {
		l.mu.Lock()
		l.mu.deleted = append(deleted, l.mu.deleted...) // their offsets are in the log still
		l.mu.Unlock()
		return err
	}
	l.release(now)
	if len(l.held) > 0 {
		l.sub.Arm()
		l.release(now) // what was replicated meanwhile woke nobody
	}
	l.arm(now)
	return nil
}

// arm has run take a turn when there is something to do if nothing happens before.
func (l *loop) arm(now time.Time) {
	next, ok := l.next()
	if !ok || !next.Before(l.armed) && l.armed.After(now) {
		return
	}
	l.armed = next
	if wait := time.Until(next); wait > 0 {
		l.timer.Reset(wait)
	} else {
		l.wake()
	}
}

// collect takes what a step brought about. The answers leave no earlier than all records of this turn, be they of later
// steps: they go into one batch.
func (l *loop) collect(out group.Output) {
	l.pending = append(l.pending, out.Records...)
	for _, a := range out.Answers {
		c := l.calls[a.Ticket]
		delete(l.calls, a.Ticket)
		l.held = append(l.held, heldAnswer{call: c, response: a.Response, end: unknownEnd})
	}
}

// unknownEnd marks an answer whose records are not appended yet.
const unknownEnd = -1

// flush appends the records of this turn.
func (l *loop) flush(now time.Time) error {
	for len(l.pending) > 0 {
		if err := l.appendSome(now); err != nil {
			return err
		}
	}
	deadline := now.Add(l.groups.shared.Load().commitTimeout)
	for i := len(l.held) - 1; i >= 0 && l.held[i].end == unknownEnd; i-- {
		l.held[i].end, l.held[i].deadline = l.end, deadline
	}
	return nil
}

// appendSome appends as many of the records as go into one batch.
func (l *loop) appendSome(now time.Time) error {
	s := l.groups.shared.Load()
	b := record.NewBuilder(l.buf[:0], record.BatchOptions{Compression: s.compression, LeaderEpoch: l.epoch.Load()})
	n := 0
	for ; n < len(l.pending); n++ {
		r := &l.pending[n]
		buf := records.AppendKey(l.scratch[:0], r.Key)
		out := record.Record{Timestamp: now.UnixMilli(), Key: buf}
		if r.Value != nil {
			buf = records.AppendValue(buf, r.Value, r.Version)
			out.Key, out.Value = buf[:len(out.Key)], buf[len(out.Key):]
		}
		l.scratch = buf
		if n > 0 && b.Size()+len(out.Key)+len(out.Value)+recordOverhead > s.maxBatchBytes {
			break
		}
		b.Append(out)
	}
	batch := b.Bytes()
	l.buf = batch
	if cap(l.buf) > keptBuffer {
		l.buf = nil
	}
	if cap(l.scratch) > keptBuffer {
		l.scratch = nil
	}
	end, err := l.log.Append(batch, l.epoch.Load())
	if err != nil {
		return fmt.Errorf("append %d records: %w", n, err)
	}
	l.pending = l.pending[n:]
	if len(l.pending) == 0 {
		l.pending = nil
	}
	l.end = end
	return nil
}

const (
	recordOverhead = 32      // bytes of a record beside key and value, at most
	keptBuffer     = 1 << 20 // bytes of a buffer that is kept between turns
)

// release lets out the answers whose records are replicated, and refuses those that waited too long.
func (l *loop) release(now time.Time) {
	hw := l.log.HighWatermark()
	n := 0
	for ; n < len(l.held); n++ {
		h := &l.held[n]
		if h.end <= hw {
			h.leave()
			continue
		}
		if now.Before(h.deadline) {
			break
		}
		h.call.refuse(timeoutCode(h.call.op.Request))
	}
	clear(l.held[:n])
	l.held = l.held[n:]
	if len(l.held) == 0 {
		l.held = nil
	}
}

// timeoutCode is what an operation is told that was not replicated in offsets.commit.timeout.ms. Consumers before 3.9
// know no other for OffsetFetch.
func timeoutCode(req kmsg.Request) int16 {
	if _, ok := req.(*kmsg.OffsetFetchRequest); ok {
		return kerr.NotCoordinator.Code
	}
	return kerr.CoordinatorNotAvailable.Code
}

// next returns when there is something to do if nothing happens.
func (l *loop) next() (time.Time, bool) {
	at, ok := l.machine.Due()
	if len(l.held) > 0 && (!ok || l.held[0].deadline.Before(at)) {
		return l.held[0].deadline, true
	}
	return at, ok
}

// refusal answers an operation with a code.
func refusal(req kmsg.Request, code int16) kmsg.Response {
	switch r := req.(type) {
	case *kmsg.HeartbeatRequest:
		if code == kerr.CoordinatorLoadInProgress.Code {
			return req.ResponseKind() // the member is alive for all we know; it keeps its assignment while the group loads
		}
	case *kmsg.JoinGroupRequest:
		resp := protocol.ErrorAnswer(req, code).(*kmsg.JoinGroupResponse)
		resp.MemberID = r.MemberID
		return resp
	}
	return protocol.ErrorAnswer(req, code)
}

// shared is what all loops see, replaced as a whole.
type shared struct {
	image         *metadata.Image
	settings      *group.Settings
	commitTimeout time.Duration
	compression   record.Compression
	maxBatchBytes int
	consumer      bool // the consumer protocol is on
}

// A semaphore bounds how many partitions load at a time.
type semaphore chan struct{}

func (s semaphore) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s semaphore) release() { <-s }
