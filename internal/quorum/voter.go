package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"ottla/internal/record"
	"ottla/internal/storage"
	"ottla/internal/uuid"
	"ottla/internal/vfs"
)

// VoterOptions says who this controller is and how it reaches the others.
type VoterOptions struct {
	FS          vfs.FS
	Dir         string // the metadata log directory, which holds __cluster_metadata-0
	ClusterID   string
	NodeID      int32
	DirectoryID uuid.UUID // of Dir, from its meta.properties
	// Voters are all controllers, this one included, as configured. A directory id that is Zero is
	// learnt from that controller at the first start, for which every voter must be up once.
	Voters []Replica
	// Send hands one message of the voters' own protocol to a connection to node, where it goes to
	// Step. It must not block; a message that cannot be sent is dropped. Unused by a lone voter.
	Send func(node int32, message []byte)
	// ElectionTimeout is how long the followers wait for a silent leader before they elect another
	// (controller.quorum.election.timeout.ms). Default 1 s.
	ElectionTimeout time.Duration
	Log             LogOptions
	Logger          *slog.Logger
	Registerer      prometheus.Registerer // nil: no metrics
	// OnFailure is called once, on a goroutine of its own, when the voter cannot go on: its disk
	// failed. It has stopped taking part by then.
	OnFailure func(error)
}

const (
	// ticksPerElection divides the election timeout into raft's ticks; a leader sends a heartbeat every tick.
	ticksPerElection = 10
	// markEvery is after how many entries the metadata log is flushed and the mark moved, which bounds what
	// is built anew at start. Ten thousand small batches take some 10 ms.
	markEvery = 10_000
	// maxInbox bounds the messages that wait for the driver; raft sends again what is dropped.
	maxInbox = 4096
	// transferTicks is after how many ticks without a sign of life the sending of a checkpoint to a follower counts
	// as failed.
	transferTicks = 5 * ticksPerElection
	// hurryTicks is for how long a voter tries to be elected after a leader's connection broke, before it leaves
	// that to raft's own timer: three times, two ticks apart.
	hurryTicks = 7
)

// A Voter is one of the controllers that decide what the metadata log holds.
//
// One goroutine, the driver, owns raft and everything on disk. It takes what the others leave in the inbox, lets raft
// think, and then, in this order, makes durable what raft wants kept, sends raft's messages, and appends what is
// committed to the metadata log.
type Voter struct {
	o         VoterOptions
	self      member
	log       *metaLog
	observers observers
	metrics   *voterMetrics

	wake chan struct{} // capacity 1
	stop chan struct{} // closed by Close
	done chan struct{} // closed when the driver has ended

	mu struct {
		sync.Mutex
		inbox inbox
		ended bool // the driver takes no more
	}

	// What follows is the driver's.

	state *raftState
	raft  *raftLog
	node  *raft.RawNode // nil until the directory ids of all voters are known
	known map[int32]uuid.UUID
	// applied is how far the metadata log has come.
	applied raftMark
	leading uint64 // term in which this voter leads; 0: it does not
	// announced is the last term whose LeaderChange was proposed.
	announced uint64
	leader    uint64 // raft's idea of the leader
	// hurry counts the ticks to an election that was called because the leader's connection broke.
	hurry int
	// incoming is the checkpoint that a leader wants to give us; nil if there is none.
	incoming *transfer
	// outgoing are the ticks since followers that are being given a checkpoint last asked for a piece.
	outgoing map[uint64]int
}

// An inbox is what other goroutines have for the driver.
type inbox struct {
	messages  []message
	proposals []proposal
	calls     []func() error // an error ends the driver
}

type proposal struct {
	epoch int32
	batch []byte
	at    time.Time
}

// OpenVoter recovers the voter of a directory and starts it. A lone voter has begun to lead, or will
// within milliseconds.
func OpenVoter(o VoterOptions) (*Voter, error) {
	if o.ElectionTimeout <= 0 {
		o.ElectionTimeout = time.Second
	}
	o.Voters = slices.Clone(o.Voters)
	slices.SortFunc(o.Voters, func(a, b Replica) int { return cmp.Compare(a.NodeID, b.NodeID) }) // on all nodes alike
	v := &Voter{
		o: o, self: member{o.NodeID, o.DirectoryID}, known: make(map[int32]uuid.UUID), outgoing: make(map[uint64]int),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := v.recoverAll(); err != nil {
		return nil, err
	}
	var err error
	if v.metrics, err = newVoterMetrics(v, o.Registerer); err != nil {
		return nil, errors.Join(err, v.raft.log.Close(), v.log.close())
	}
	go v.run()
	return v, nil
}

// Propose hands values, framed metadata records, to the quorum as one batch, if this node leads epoch; otherwise it
// returns ErrNotLeader. It does not wait: batches proposed in one epoch are committed in the order
// of the calls, and come back through the Cursor; those that have not when LeaderChange arrives may
// be lost. Propose keeps nothing of values.
func (v *Voter) Propose(epoch int32, values [][]byte) error {
	now := time.Now()
	batch := appendBatch(nil, now.UnixMilli(), values)
	if len(batch) > maxBatchBytes {
		return fmt.Errorf("a metadata change of %d bytes is larger than the %d that fit into one batch; make it in smaller steps",
			len(batch), maxBatchBytes)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if l := v.log.view().leader; v.mu.ended || l.id != v.self.nodeID || l.epoch != epoch {
		return ErrNotLeader
	}
	v.mu.inbox.proposals = append(v.mu.inbox.proposals, proposal{epoch, batch, now})
	v.signal()
	return nil
}

// Step takes a message that another voter's Send was given. It does not wait. The error says what is wrong
// with the message; it costs the sender nothing but the message.
func (v *Voter) Step(b []byte) error {
	m, err := decodeMessage(b)
	if err != nil {
		return err
	}
	if err := v.accept(&m); err != nil {
		return err
	}
	m.body = slices.Clone(m.body)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.ended || len(v.mu.inbox.messages) >= maxInbox {
		return nil
	}
	v.mu.inbox.messages = append(v.mu.inbox.messages, m)
	v.signal()
	return nil
}

// Disconnected says that the connection to a voter broke, which a process that dies does at
// once: if that voter leads, the others elect a new leader without waiting for its silence to time out.
func (v *Voter) Disconnected(node int32) {
	v.post(func() error { v.leaderLost(node); return nil })
}

// Resign gives the leadership up in favour of the voter that is furthest, if this node leads. It returns
// when another leads or ctx ends. A lone voter returns at once.
func (v *Voter) Resign(ctx context.Context) {
	var begun bool
	if !v.call(func() error { begun = v.transferLeadership(); return nil }) || !begun {
		return
	}
	for {
		view := v.log.view()
		if view.err != nil || view.leader.id != v.self.nodeID {
			return
		}
		if view.wait(ctx) != nil {
			return
		}
	}
}

// Leader implements [Quorum].
func (v *Voter) Leader() (id, epoch int32) {
	l := v.log.view().leader
	return l.id, l.epoch
}

// LeaderEndpoint implements [Quorum].
func (v *Voter) LeaderEndpoint() (Endpoint, bool) {
	view := v.log.view()
	return view.endpoint(view.leader.id)
}

// Voters implements [Quorum].
func (v *Voter) Voters() []Replica { return v.log.view().voters }

// Cursor implements [Quorum].
func (v *Voter) Cursor() *Cursor { return newCursor(v.log) }

// Stored implements [Quorum]. What raft's log has beyond the metadata log, which is much of it just after the start, comes last.
func (v *Voter) Stored(yield func(Event) error) error {
	var end storage.Position
	var ahead []Batch
	var err error
	if !v.call(func() error { end, ahead, err = v.storedAhead(); return nil }) {
		return ErrClosed
	}
	if err == nil {
		err = v.log.stored(end, yield)
	}
	for i := 0; i < len(ahead) && err == nil; i++ {
		err = yield(ahead[i])
	}
	return err
}

// storedAhead returns where the metadata log ends, and the batches that raft's log has for it from there on.
func (v *Voter) storedAhead() (end storage.Position, ahead []Batch, err error) {
	end = v.log.log.End()
	at := end.Offset
	err = v.raft.walk(v.applied.index, v.raft.last, func(e *pb.Entry) error {
		batch, err := materialise(e, at)
		if err != nil || batch == nil {
			return err
		}
		h, err := record.ParseHeader(batch)
		if err != nil {
			return err
		}
		event, err := batchEvent(&h, batch)
		ahead, at = append(ahead, event), h.NextOffset()
		return err
	})
	return end, ahead, err
}

// HighWatermark implements [Quorum].
func (v *Voter) HighWatermark() int64 { return v.log.view().end.Offset }

// Close implements [Quorum]. It does not give the leadership up first: see [Voter.Resign].
func (v *Voter) Close() error {
	v.mu.Lock()
	first := !v.mu.ended
	v.mu.ended = true
	v.mu.Unlock()
	if first {
		close(v.stop)
	}
	<-v.done
	v.metrics.unregister(v.o.Registerer)
	return errors.Join(v.raft.log.Close(), v.log.close())
}

// signal wakes the driver; the caller holds mu.
func (v *Voter) signal() {
	select {
	case v.wake <- struct{}{}:
	default: // it is awake already
	}
}

// post lets the driver run f, soon; an error of f ends the driver. It returns false if the driver has ended.
func (v *Voter) post(f func() error) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.ended {
		return false
	}
	v.mu.inbox.calls = append(v.mu.inbox.calls, f)
	v.signal()
	return true
}

// call lets the driver run f and waits for it; an error of f ends the driver. It returns false if the driver
// ended before f was run.
func (v *Voter) call(f func() error) bool {
	ran := make(chan struct{})
	if !v.post(func() error { defer close(ran); return f() }) {
		return false
	}
	select {
	case <-ran:
		return true
	case <-v.done:
		return false
	}
}

func (v *Voter) take() inbox {
	v.mu.Lock()
	defer v.mu.Unlock()
	in := v.mu.inbox
	v.mu.inbox = inbox{}
	return in
}

// run is the driver's goroutine.
func (v *Voter) run() {
	err := v.drive()
	v.mu.Lock()
	v.mu.ended = true
	v.mu.Unlock()
	if err == nil {
		v.log.fail(ErrClosed)
		close(v.done)
		return
	}
	v.o.Logger.Error("the metadata quorum lost this voter", "error", err)
	v.log.fail(err)
	close(v.done)
	if v.o.OnFailure != nil {
		v.o.OnFailure(err)
	}
}

func (v *Voter) drive() (err error) {
	defer recoverRaft(&err)
	var ticks <-chan time.Time
	if len(v.o.Voters) > 1 { // a lone voter has nobody to time
		ticker := time.NewTicker(v.o.ElectionTimeout / ticksPerElection)
		defer ticker.Stop()
		ticks = ticker.C
	}
	if err := v.begin(); err != nil {
		return err
	}
	for {
		if err := v.work(); err != nil {
			return err
		}
		select {
		case <-v.wake:
		case <-ticks:
			v.tick()
		case <-v.stop:
			return v.saveMark()
		}
	}
}

// begin starts raft if the voters are known, and asks them otherwise.
func (v *Voter) begin() error {
	if len(v.state.voters) == 0 {
		v.learn(v.self)
		return v.found()
	}
	return v.startRaft()
}

// startRaft starts raft where state and log stand.
func (v *Voter) startRaft() error {
	node, err := raft.NewRawNode(&raft.Config{
		ID:                        v.self.raftID(),
		ElectionTick:              ticksPerElection,
		HeartbeatTick:             1,
		Storage:                   v.raft,
		Applied:                   v.applied.index,
		MaxSizePerMsg:             1 << 20,
		MaxInflightMsgs:           64,
		CheckQuorum:               true,
		PreVote:                   true,
		DisableProposalForwarding: true,
		Logger:                    raftLogger{v.o.Logger},
	})
	if err != nil {
		return err
	}
	v.node = node
	if v.o.Voters[0].NodeID == v.self.nodeID {
		// Somebody must be first; the others would turn us down if they had a leader.
		return v.node.Campaign()
	}
	return nil
}

// work does everything that can be done now.
func (v *Voter) work() error {
	in := v.take()
	for i := range in.messages {
		if err := v.receive(&in.messages[i]); err != nil {
			return err
		}
	}
	for _, p := range in.proposals {
		if uint64(p.epoch) != v.leading {
			continue // the proposer reads of the change
		}
		if err := v.node.Propose(p.batch); err != nil {
			return fmt.Errorf("propose in epoch %d: %w", p.epoch, err)
		}
		v.metrics.proposed = append(v.metrics.proposed, p.at)
	}
	for _, f := range in.calls {
		if err := f(); err != nil {
			return err
		}
	}
	for v.node != nil && v.node.HasReady() {
		if err := v.ready(v.node.Ready()); err != nil {
			return err
		}
		v.node.Advance(raft.Ready{})
		if err := v.announce(); err != nil {
			return err
		}
	}
	return nil
}

// ready does what raft asks for.
func (v *Voter) ready(rd raft.Ready) error {
	if err := v.persist(&rd); err != nil {
		return err
	}
	if rd.SoftState != nil {
		v.leader, v.leading = rd.SoftState.Lead, 0
		v.metrics.proposed = nil
		if rd.SoftState.RaftState == raft.StateLeader {
			v.leading = v.state.term
		}
	}
	for _, m := range rd.Messages {
		v.sendRaft(m)
	}
	return v.apply(rd.CommittedEntries)
}

// persist makes durable what raft must not forget before its messages leave.
func (v *Voter) persist(rd *raft.Ready) error {
	if hard := rd.HardState; !raft.IsEmptyHardState(hard) {
		changed := hard.GetTerm() != v.state.term || hard.GetVote() != v.state.vote
		newTerm := hard.GetTerm() != v.state.term
		v.state.term, v.state.vote, v.state.commit = hard.GetTerm(), hard.GetVote(), hard.GetCommit()
		// A commit index that moved is not worth a write: raft finds it again.
		if changed {
			if err := v.saveState(); err != nil {
				return err
			}
		}
		if newTerm {
			if err := v.saveQuorumState(); err != nil {
				return err
			}
		}
	}
	if !raft.IsEmptySnap(rd.Snapshot) {
		if err := v.install(rd.Snapshot); err != nil {
			return err
		}
	}
	if len(rd.Entries) > 0 {
		return v.raft.append(rd.Entries)
	}
	return nil
}

// apply appends committed entries to the metadata log and shows them to its readers.
func (v *Voter) apply(entries []*pb.Entry) error {
	var batches []byte
	applied, ours := v.applied, 0
	for _, e := range entries {
		if e.GetType() != pb.EntryNormal {
			return fmt.Errorf("raft entry %d changes the voters, which this release of ottla does not know how to do", e.GetIndex())
		}
		batch, err := materialise(e, applied.offset)
		if err != nil {
			return err
		}
		count, err := batchCount(e)
		if err != nil {
			return err
		}
		if applied.index, applied.term = e.GetIndex(), e.GetTerm(); count > 0 {
			applied.offset, applied.epoch = applied.offset+count, int32(e.GetTerm())
		}
		batches = append(batches, batch...)
		if count > 0 && e.GetTerm() == v.leading && e.GetTerm() == uint64(v.log.view().leader.epoch) {
			ours++
		}
	}
	if len(batches) > 0 {
		if _, err := v.log.log.AppendAsFollower(batches); err != nil {
			return fmt.Errorf("append to %s: %w", v.log.dir, err)
		}
	}
	v.applied = applied
	if err := v.show(batches); err != nil {
		return err
	}
	v.metrics.committed(ours)
	if v.applied.index-v.state.mark.index >= markEvery {
		return v.saveMark()
	}
	return nil
}

// show makes batches, the last ones of the metadata log, visible, and who leads by them.
func (v *Voter) show(batches []byte) error {
	old := v.log.view()
	leader, voters := old.leader, old.voters
	if err := absorb(batches, &leader, &voters); err != nil {
		return err
	}
	if leader.id == v.self.nodeID && uint64(leader.epoch) != v.leading {
		leader.id = NoLeader // we led that epoch, and do not any more
	}
	if len(batches) == 0 && leader == old.leader {
		return nil
	}
	v.log.update(func(view *view) {
		view.end, view.leader, view.voters = v.log.log.End(), leader, voters
	})
	return nil
}

// announce proposes, first thing after winning, the control batch that tells everyone who leads now.
func (v *Voter) announce() error {
	if v.leading == 0 || v.announced == v.leading {
		return nil
	}
	v.announced = v.leading
	voters := v.voters()
	if sameVoters(v.log.view().voters, voters) {
		voters = nil
	}
	return v.node.Propose(appendLeaderChange(nil, time.Now().UnixMilli(), v.self.nodeID, v.state.voters, voters))
}

// voters are the controllers as configured, with the directory ids of the raft group.
func (v *Voter) voters() []Replica {
	voters := slices.Clone(v.o.Voters)
	for i := range voters {
		for _, m := range v.state.voters {
			if m.nodeID == voters[i].NodeID {
				voters[i].DirectoryID = m.directory
			}
		}
	}
	return voters
}

// tick passes raft's time.
func (v *Voter) tick() {
	if v.node == nil {
		v.sendHellos()
		return
	}
	v.node.Tick()
	if v.hurry > 0 {
		v.hurry--
		if v.leader != raft.None {
			v.hurry = 0
		} else if v.hurry < hurryTicks && v.hurry%2 == 0 {
			_ = v.node.Campaign() // an error says that it cannot now, which is no news
		}
	}
	v.tickTransfers()
}

// leaderLost lets an election begin if node leads.
func (v *Voter) leaderLost(node int32) {
	if v.node == nil || v.leading != 0 || v.leader == raft.None || v.leader != v.raftIDOf(node) {
		return
	}
	// Now we would vote for another; those that noticed do so as well. One voter after the other tries.
	_ = v.node.ForgetLeader()
	rank := slices.IndexFunc(v.state.voters, func(m member) bool { return m == v.self })
	v.hurry = hurryTicks + rank
}

// transferLeadership asks raft to pass the leadership to the follower that is furthest.
func (v *Voter) transferLeadership() bool {
	if v.leading == 0 {
		return false
	}
	var best, match uint64
	v.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if id != v.self.raftID() && p.RecentActive && p.Match >= match {
			best, match = id, p.Match
		}
	})
	if best != 0 {
		v.node.TransferLeader(best)
	}
	return best != 0
}

// raftIDOf returns the raft id of a voter by its node id; 0 if it is none.
func (v *Voter) raftIDOf(node int32) uint64 {
	for _, m := range v.state.voters {
		if m.nodeID == node {
			return m.raftID()
		}
	}
	return raft.None
}

// accept refuses what is not meant for this voter.
func (v *Voter) accept(m *message) error {
	switch {
	case m.clusterID != v.o.ClusterID:
		return fmt.Errorf("controller %d belongs to cluster %s, this one to %s: check the configured voters",
			m.from.nodeID, m.clusterID, v.o.ClusterID)
	case m.to.nodeID != v.self.nodeID:
		return fmt.Errorf("controller %d meant controller %d and reached %d: check the configured voters",
			m.from.nodeID, m.to.nodeID, v.self.nodeID)
	case m.kind != helloKind && m.to.directory != v.self.directory:
		return fmt.Errorf("controller %d expects directory %s on node %d, whose directory is %s: its disk was emptied or swapped, "+
			"and the voters do not know the new one", m.from.nodeID, m.to.directory, v.self.nodeID, v.self.directory)
	}
	return nil
}

// receive takes one message of another voter.
func (v *Voter) receive(m *message) error {
	switch m.kind {
	case helloKind:
		v.send(m.from, welcomeKind, encodeMembers(v.state.voters))
		return nil
	case welcomeKind:
		return v.welcome(m)
	case chunkRequestKind:
		v.serveChunk(m)
		return nil
	case chunkKind:
		return v.receiveChunk(m)
	}
	return v.receiveRaft(m)
}

func (v *Voter) receiveRaft(m *message) error {
	if v.node == nil || !slices.Contains(v.state.voters, m.from) {
		return nil
	}
	rm := new(pb.Message)
	if err := proto.Unmarshal(m.body, rm); err != nil || rm.GetFrom() != m.from.raftID() || rm.GetType() == pb.MsgProp {
		v.o.Logger.Warn("dropped a message of another controller that makes no sense", "node", m.from.nodeID, "error", err)
		return nil
	}
	if rm.GetType() == pb.MsgSnap {
		return v.beginTransfer(m.from, rm)
	}
	_ = v.node.Step(rm) // an error says that the message came too late, which messages may
	return nil
}

func (v *Voter) sendRaft(rm *pb.Message) {
	to := slices.IndexFunc(v.state.voters, func(m member) bool { return m.raftID() == rm.GetTo() })
	if to < 0 {
		return
	}
	body, err := proto.Marshal(rm)
	if err != nil {
		panic(fmt.Sprintf("quorum: marshal %v: %v", rm.GetType(), err)) // raft's own messages always can be
	}
	if rm.GetType() == pb.MsgSnap {
		v.outgoing[rm.GetTo()] = 0
	}
	v.send(v.state.voters[to], raftKind, body)
}

func (v *Voter) send(to member, kind messageKind, body []byte) {
	if v.o.Send == nil {
		return
	}
	m := message{kind: kind, clusterID: v.o.ClusterID, from: v.self, to: to, body: body}
	v.o.Send(to.nodeID, m.encode())
}
