package transport

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
	"ottla/internal/protocol"
	"ottla/internal/wake"
)

const (
	// gatherFor is how old the oldest answer that is kept back may be for another to be. The handling of one request comes on top.
	gatherFor = 100 * time.Microsecond
	// gatherUpTo is how many bytes the requests of answers that are kept back may have for another to be. A client has but some requests
	// under way, and must hear early that it may send more, for its bytes to be there when they can be read.
	gatherUpTo = 64 << 10

	// maxSlots is how many requests of a connection may be unanswered.
	maxSlots = 128

	// Whatever a request is made of, decoding takes at most this many times its bytes
	// (measured over kmsg's structs). Small requests are charged so, without looking.
	decodeFactor = 24
	smallBody    = 4 << 10

	keySaslHandshake    = 17
	keyApiVersions      = 18
	keySaslAuthenticate = 36

	illegalSaslState = 34
)

// A Conn is the server's end of a connection.
//
// Its reader (run) is the goroutine that reads frames and calls the handler, and sends what is answered at once. A request that
// must wait goes into the queue of slots, and from then on until the queue is empty all answers are sent by a writer, which runs only while the
// answer at the queue's head may be known: a wake or that answer's deadline starts it. So at any time one goroutine at
// most writes, and a long poll costs none. The writer need not be a goroutine of its own: what is small the reader of the connection that brought the news may
// write on its way, as long as the socket takes it.
type Conn struct {
	server *Server
	door   *door
	nc     net.Conn
	host   string
	ctx    context.Context // ends when the connection is to end
	cancel context.CancelFunc

	// Of the reader alone.
	frames    frameReader
	clientID  *string         // of the last request
	session   context.Context // ctx with the auth.Session, nil if that is to be made anew
	software  software        // as the client named it
	announced bool            // counted in ottla_connections_total
	unsent    []*slot         // whose answers are in out, and which are not in the queue; see mayWait
	later     wake.List       // see Request.Later
	heard     int             // mu.wakes when the request that is handled had its turn

	node       atomic.Bool   // see MarkNode
	lastActive atomic.Int64  // UnixNano of the last request
	wake       wake.Func     // c.wakeUp
	popped     chan struct{} // one token: the queue has become shorter
	writers    sync.WaitGroup

	// Of whoever writes.
	out      FrameConn
	gathered int // slots at the queue's head whose answers are in out

	mu struct {
		sync.Mutex
		queue      []*slot     // in the order of requests
		writing    bool        // a writer runs
		woken      bool        // the head of the queue is to be asked for its answer
		wakes      int         // so many there were
		timer      *time.Timer // wakes when the answer of the head is due; made when first needed
		mutedUntil time.Time
		why        error // the first reason to end
	}
}

// software is what a client calls itself (KIP-511).
type software struct{ name, version string }

// A slot is the place of one request among the answers of its connection.
type slot struct {
	req      Request
	frame    frame
	decoded  claim    // memory of req.Body
	response Response // nil with pending nil: there is no answer
	pending  Pending  // nil once response is known
	lent     Recycler // see Request.Lend

	handling, handled, known time.Time

	// See Request.Throttle. heldUntil is zero if the answer leaves as soon as it is known.
	throttle                  time.Duration
	throttledUntil, heldUntil time.Time
}

var slots = sync.Pool{New: func() any { return new(slot) }}

func newConn(s *Server, nc net.Conn, door *door, host string) *Conn {
	c := &Conn{server: s, door: door, nc: nc, host: host, popped: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	socket := newSocket(nc)
	c.frames.conn, c.frames.socket = nc, socket
	c.out.conn, c.out.socket, c.out.stall = nc, socket, s.options.Stall
	c.wake = c.wakeUp
	c.lastActive.Store(time.Now().UnixNano())
	if tcp, ok := nc.(*net.TCPConn); ok {
		setSocketBuffers(tcp, s.options)
	}
	return c
}

// setSocketBuffers applies what is configured. It is advice to the system: a refusal
// changes nothing that anybody could act on, so errors are left.
func setSocketBuffers(c *net.TCPConn, o Options) {
	if o.SendBufferBytes > 0 {
		_ = c.SetWriteBuffer(o.SendBufferBytes)
	}
	if o.ReceiveBufferBytes > 0 {
		_ = c.SetReadBuffer(o.ReceiveBufferBytes)
	}
}

// Listener returns the listener the connection came in by.
func (c *Conn) Listener() Listener { return c.door.Listener }

// Host returns the client's address, without port.
func (c *Conn) Host() string { return c.host }

// MarkNode says that the peer was found to be another node of this cluster (it may
// do ClusterAction). From then on its requests draw from the nodes' part of the budget.
func (c *Conn) MarkNode() { c.node.Store(true) }

// Principal returns who the peer is: nobody in particular, as long as there is no
// authentication.
func (c *Conn) Principal() auth.Principal { return auth.Anonymous }

// run is the reader.
func (c *Conn) run() {
	err := c.readRequests()
	_ = c.sendUnsent() // if it fails, err says why the connection ends
	c.fail(err)
	c.writers.Wait()
	c.abandon()
	c.mu.Lock()
	why := c.mu.why
	c.mu.Unlock()
	c.server.ended(c, why)
}

// fail ends the connection; the first reason given is the one that is reported.
func (c *Conn) fail(why error) {
	c.mu.Lock()
	first := c.mu.why == nil
	if first {
		c.mu.why = why
	}
	c.mu.Unlock()
	if first {
		c.cancel()
		c.nc.Close() // the connection is given up: its error tells nothing more than why does
	}
}

// abandon lets go of what was never answered.
func (c *Conn) abandon() {
	c.mu.Lock()
	queue := c.mu.queue
	c.mu.queue = nil
	if c.mu.timer != nil {
		c.mu.timer.Stop()
	}
	c.mu.Unlock()
	for _, s := range queue {
		s.abandon()
	}
}

func (c *Conn) readRequests() error {
	o := &c.server.options
	wait := o.FirstFrame
	for {
		if err := c.waitUnmuted(); err != nil {
			return err
		}
		size, err := c.frames.next(wait, o.Progress, o.MaxRequestBytes)
		if err == errIdle && c.unanswered() > 0 {
			continue // a long poll is not idle
		}
		if err != nil {
			return err
		}
		if err := c.readRequest(size); err != nil {
			return err
		}
		wait = o.MaxIdle
	}
}

// readRequest reads the frame of the given size and serves the request in it.
func (c *Conn) readRequest(size int) error {
	s := slots.Get().(*slot)
	if err := c.frames.body(c.ctx, &s.frame, c.pool(), size, c.server.options.Progress); err != nil {
		s.recycle()
		return err
	}
	s.req.Received = time.Now()
	c.lastActive.Store(s.req.Received.UnixNano())
	kept, err := c.serve(s)
	if !kept {
		s.recycle()
	}
	if c.frames.buffered() { // the client shall not wait for what others are sent
		c.later.Go()
	} else {
		c.later.Try()
	}
	return err
}

func (c *Conn) pool() *pool {
	b := c.server.options.Budget
	if c.door.Internal || c.node.Load() {
		return &b.nodes
	}
	return &b.clients
}

// serve handles the request in s and answers it, unless it reports that s is kept: in the queue, or among the unsent.
func (c *Conn) serve(s *slot) (kept bool, err error) {
	body, err := c.parseHeader(s)
	if err != nil {
		return false, err
	}
	if len(c.unsent) > 0 && s.req.API != c.unsent[0].req.API { // it may take long
		if err := c.sendUnsent(); err != nil {
			return false, err
		}
	}
	if err := c.waitTurn(s.req.API); err != nil {
		return false, err
	}
	if err := c.waitUnmuted(); err != nil {
		return false, err
	}
	if err := c.handle(s, body); err != nil {
		return false, err
	}
	if s.response == nil && s.pending == nil {
		s.known = s.handled
		c.observe(s, s.handled) // acks=0: nothing to send, nothing to wait for
		return false, c.sendUnsent()
	}
	if s.pending == nil {
		s.settleThrottle()
	}
	if s.pending != nil || !s.heldUntil.IsZero() { // what is unsent must not wait for it
		if err := c.sendUnsent(); err != nil {
			return false, err
		}
	}
	if c.enqueue(s) {
		return true, nil
	}
	return c.answer(s)
}

// parseHeader fills in the header and refuses what this listener does not serve.
func (c *Conn) parseHeader(s *slot) (body []byte, err error) {
	h, body, err := protocol.ParseRequestHeader(s.frame.bytes(), c.clientID)
	if err != nil {
		return nil, &refusal{reasonMalformed, err}
	}
	api, ok := protocol.Lookup(h.Key)
	if !ok || h.Key != keyApiVersions && !api.Serves(c.door.Kind, h.Version) {
		return nil, refuse("unserved_api", "%w on this listener", &protocol.UnsupportedError{Key: h.Key, Version: h.Version})
	}
	if h.ClientID != c.clientID {
		c.clientID = h.ClientID
		c.session = nil
	}
	s.req.Header, s.req.API, s.req.Conn, s.req.Wake, s.req.slot = h, api, c, c.wake, s
	return body, nil
}

// handle decodes the request and has it answered, by the handler or, what no handler needs
// to see, by itself.
func (c *Conn) handle(s *slot, body []byte) error {
	h := &s.req.Header
	if !s.req.API.Supports(h.Version) { // ApiVersions only: see parseHeader
		h.Version = 0 // of the answer, which the client can read in any case
		s.handling = time.Now()
		s.response, s.handled = protocol.UnsupportedApiVersions(), s.handling
		return nil
	}
	if err := c.decode(s, body); err != nil {
		return err
	}
	c.announce(s.req.Body)
	s.handling = time.Now()
	if h.Key == keySaslHandshake || h.Key == keySaslAuthenticate {
		s.response = protocol.ErrorAnswer(s.req.Body, illegalSaslState) // no listener has SASL yet
	} else {
		s.response, s.pending = c.server.options.Handler.Handle(c.handlerContext(), &s.req)
	}
	s.handled = time.Now()
	return nil
}

// decode makes the request's struct, within the budget.
func (c *Conn) decode(s *slot, body []byte) error {
	cost := int64(smallBody) // for the outermost struct
	if len(body) <= smallBody {
		cost = decodeFactor * int64(len(body))
	} else if walked, err := protocol.Cost(s.req.Header, body); err != nil {
		return &refusal{reasonMalformed, err}
	} else {
		cost += walked
	}
	p := c.pool()
	if limit := max(p.capacity, int64(c.server.options.MaxRequestBytes)); cost > limit {
		return refuse("decoded_too_large", "a %s of %d bytes would take %d in memory, more than queued.max.request.bytes allows (%d)",
			s.req.API.Name, len(body), cost, limit)
	}
	err := s.decoded.take(c.ctx, p, cost)
	s.decoded.settle()
	if err != nil {
		return err
	}
	s.req.Body, err = protocol.Decode(s.req.Header, body)
	if err != nil {
		return &refusal{reasonMalformed, err}
	}
	return nil
}

// announce notes what the client calls itself and counts the connection, once.
func (c *Conn) announce(req kmsg.Request) {
	if v, ok := req.(*kmsg.ApiVersionsRequest); ok && v.Version >= 3 {
		c.software = software{v.ClientSoftwareName, v.ClientSoftwareVersion}
		c.session = nil
	}
	if !c.announced {
		c.announced = true
		c.server.metrics.connected(c.door.Name, c.software.name)
	}
}

// handlerContext returns ctx with the session of the connection.
func (c *Conn) handlerContext() context.Context {
	if c.session != nil {
		return c.session
	}
	s := &auth.Session{Principal: c.Principal(), Listener: c.door.Name, Host: c.host,
		SoftwareName: c.software.name, SoftwareVersion: c.software.version}
	if c.clientID != nil {
		s.ClientID = *c.clientID
	}
	c.session = auth.With(c.ctx, s)
	return c.session
}

// waitUnmuted waits until no quota forbids to read on.
func (c *Conn) waitUnmuted() error {
	for {
		c.mu.Lock()
		until := c.mu.mutedUntil
		c.mu.Unlock()
		if until.IsZero() {
			return nil
		}
		if !sleepUntil(c.ctx, until) {
			return c.ctx.Err()
		}
		c.mu.Lock()
		if c.mu.mutedUntil.Equal(until) {
			c.mu.mutedUntil = time.Time{}
		}
		c.mu.Unlock()
	}
}

// waitTurn waits until a request of the API may be handled.
func (c *Conn) waitTurn(api *protocol.API) error {
	for !c.hasTurn(api) {
		select {
		case <-c.popped:
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
	return nil
}

func (c *Conn) hasTurn(api *protocol.API) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = c.mu.wakes
	queue := c.mu.queue
	// All of a queue longer than one are of one API, for none other was let in.
	return len(queue) == 0 || api.Pipelined && len(queue) < maxSlots && queue[0].req.API == api
}

func (c *Conn) unanswered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.queue)
}

// enqueue puts s into the queue, where its answer is looked for when it is due or after a wake; also one that came while s was
// handled, which a writer may have taken for one of an earlier request. It declines if s can be answered at once by the reader itself.
func (c *Conn) enqueue(s *slot) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.writing && len(c.mu.queue) == 0 && s.pending == nil && s.heldUntil.IsZero() {
		return false
	}
	c.mu.queue = append(c.mu.queue, s)
	if c.mu.wakes != c.heard {
		if c.startWriterLocked() {
			go c.write(true)
		}
	} else if len(c.mu.queue) == 1 && !c.mu.writing {
		c.wakeAtLocked(s.due())
	}
	return true
}

// wakeUp has the head of the queue asked for its answer, by a writer that runs or by the caller.
func (c *Conn) wakeUp() wake.Work {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.woken = true
	c.mu.wakes++
	if !c.startWriterLocked() {
		return nil
	}
	return (*writer)(c)
}

// A writer is a Conn whose writer is yet to run.
type writer Conn

func (w *writer) Run() { (*Conn)(w).write(true) }
func (w *writer) Try() { (*Conn)(w).write(false) }

// wakeAtLocked has a writer run at the given time, if that is not zero, unless one starts before.
func (c *Conn) wakeAtLocked(t time.Time) {
	if t.IsZero() {
		return
	}
	if c.mu.timer == nil {
		c.mu.timer = time.AfterFunc(time.Until(t), c.wake.Run)
	} else {
		c.mu.timer.Reset(time.Until(t))
	}
}

// startWriterLocked reports whether the caller is to run a writer: there is something for it to look at, and none runs yet.
func (c *Conn) startWriterLocked() bool {
	if c.mu.writing || len(c.mu.queue) == 0 || c.mu.why != nil {
		return false
	}
	if c.mu.timer != nil {
		c.mu.timer.Stop()
	}
	c.mu.writing, c.mu.woken = true, false
	c.writers.Add(1)
	return true
}

// answer sends the answer of s, all earlier ones being sent or unsent, or keeps it with those.
func (c *Conn) answer(s *slot) (kept bool, err error) {
	s.known = s.handled
	gathered, err := c.out.gather(s)
	if err != nil {
		return false, err
	}
	if gathered {
		c.unsent = append(c.unsent, s)
		if c.mayWait(s) {
			return true, nil
		}
		return true, c.sendUnsent()
	}
	if err := c.sendUnsent(); err != nil {
		return false, err
	}
	defer c.out.free()
	c.later.Go()
	if err := c.out.send(s); err != nil {
		return false, err
	}
	c.observe(s, time.Now())
	return false, nil
}

// mayWait reports whether the answer of s, the last of the unsent, will soon have that of the next request to leave with: a client that has several
// requests under way is woken, and its socket written to, once for some of them. It must not wait for anything but the
// handling of a request like this one, and not for long.
func (c *Conn) mayWait(s *slot) bool {
	return s.req.API.Pipelined && s.throttle <= 0 && len(c.unsent)*c.frames.usual <= gatherUpTo &&
		s.handled.Sub(c.unsent[0].handled) <= gatherFor && c.pool().hasRoom() && c.frames.arrived()
}

// sendUnsent sends the answers that were kept back, and lets go of them in any case.
func (c *Conn) sendUnsent() error {
	if len(c.unsent) == 0 {
		return nil
	}
	defer c.out.free()
	err := c.out.flush(false)
	if err == errWait {
		c.later.Go()
		err = c.out.flush(true)
	}
	now := time.Now()
	for i, s := range c.unsent {
		if err == nil {
			c.observe(s, now)
		}
		s.recycle()
		c.unsent[i] = nil
	}
	c.unsent = c.unsent[:0]
	return err
}

// write is the writer. It ends when there is nothing that could be sent, or the connection fails. One that is not patient leaves what
// would take waiting for the client, or much sending, to a goroutine.
func (c *Conn) write(patient bool) {
	switch err := c.writeAnswers(patient); err {
	case errWait:
		go c.write(true)
		return
	case nil:
	default:
		c.out.free()
		c.fail(err)
	}
	c.writers.Done()
}

// writeAnswers sends answers in the order of requests. Those that are known and small
// are gathered and sent in one write. If it is not patient and ends with errWait another call can go on from there.
func (c *Conn) writeAnswers(patient bool) error {
	for {
		s := c.slot(c.gathered)
		now := time.Now()
		if s != nil && s.poll(now) {
			gathered, err := c.out.gather(s)
			if err != nil {
				return err
			}
			if gathered {
				c.gathered++
				continue
			}
		}
		switch {
		case c.gathered > 0:
			if err := c.out.flush(patient); err != nil {
				return err
			}
			c.pop(c.gathered)
			c.gathered = 0
		case s == nil || s.pending != nil || s.heldUntil.After(now):
			if c.rest(s, now) {
				return nil
			}
		case !patient:
			return errWait
		default:
			if err := c.out.send(s); err != nil {
				return err
			}
			c.pop(1)
		}
	}
}

// rest ends the writer's duty if nothing has changed since the head of the queue, s, was found to have no answer at now.
func (c *Conn) rest(s *slot, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.woken || s == nil && len(c.mu.queue) > 0 {
		c.mu.woken = false
		return false
	}
	c.out.free()
	c.mu.writing = false
	if s != nil && s.due().After(now) { // what was due when it was last asked is not waited for again
		c.wakeAtLocked(s.due())
	}
	return true
}

// due is when the answer is known, or may leave, at the latest. Zero: only after a wake.
func (s *slot) due() time.Time {
	if s.pending != nil {
		return s.pending.Deadline()
	}
	return s.heldUntil
}

// slot returns the i'th unanswered slot, or nil.
func (c *Conn) slot(i int) *slot {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i >= len(c.mu.queue) {
		return nil
	}
	return c.mu.queue[i]
}

// pop takes the first n slots, which are answered, out of the queue.
func (c *Conn) pop(n int) {
	now := time.Now()
	for i := range n {
		c.observe(c.slot(i), now)
	}
	var done [maxSlots]*slot
	c.mu.Lock()
	copy(done[:], c.mu.queue[:n])
	c.mu.queue = slices.Delete(c.mu.queue, 0, n)
	c.mu.Unlock()
	signal(c.popped)
	for _, s := range done[:n] {
		s.recycle()
	}
}

// observe reports an answered request.
func (c *Conn) observe(s *slot, sent time.Time) {
	p := Phases{
		Queue:  s.handling.Sub(s.req.Received),
		Local:  s.handled.Sub(s.handling),
		Remote: s.known.Sub(s.handled),
		Send:   sent.Sub(s.known),
		Total:  sent.Sub(s.req.Received),
	}
	var held bool
	if p.Throttle, held = s.throttlePhase(); held {
		p.Send -= p.Throttle
	}
	code := s.req.ErrorCode
	if code == 0 && s.response != nil {
		code = errorCodeOf(s.response)
	}
	c.server.metrics.answered(s.req.API, p, code)
	if o := c.server.options.Observer; o != nil {
		o.Answered(c, &s.req.Header, p, code)
	}
}

// poll reports whether the answer is known and may leave. The writer calls it when
// all earlier answers may.
func (s *slot) poll(now time.Time) bool {
	if s.pending == nil {
		if s.known.IsZero() {
			s.known = s.handled
		}
		return !s.heldUntil.After(now)
	}
	response, ok := s.pending.Poll(now)
	if !ok {
		return false
	}
	s.response, s.pending, s.known = response, nil, now
	s.settleThrottle()
	return !s.heldUntil.After(now)
}

// recycle releases what an answered request holds and keeps the slot for another.
func (s *slot) recycle() {
	s.frame.release()
	s.decoded.release()
	if s.lent != nil {
		s.lent.Recycle()
	}
	protocol.Recycle(s.req.Body)
	*s = slot{}
	slots.Put(s)
}

// abandon lets go of a request that will not be answered.
func (s *slot) abandon() {
	if s.pending != nil {
		s.pending.Cancel()
	}
	if w, ok := s.response.(FrameWriter); ok {
		w.Abandon()
	}
	s.recycle()
}
