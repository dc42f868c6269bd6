package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"ottla/internal/record"
	"ottla/internal/storage"
	"ottla/internal/uuid"
	"ottla/internal/vfs"
)

// How a voter finds itself again. What raft confirmed to others is in its own log and the state file, which were
// synced before the messages left; the metadata log follows from them. So it is cut to the mark and built
// again from there. The one exception is a log that Apache Kafka went on writing: then raft begins anew behind its
// end, which only a lone voter may do, for nobody else can have confirmed anything to it.

const (
	raftDir         = "ottla-raft" // in the directory of the metadata log; Apache Kafka ignores it
	stateFile       = "state"
	quorumStateFile = "quorum-state"
)

func (v *Voter) recoverAll() error {
	dir := filepath.Join(v.o.Dir, Topic+"-0")
	if err := v.checkOptions(); err != nil {
		return err
	}
	state, err := readState(v.o.FS, dir)
	if err != nil {
		return err
	}
	quorum, err := readQuorumState(v.o.FS, dir)
	if err != nil {
		return err
	}
	var synced int64 // all below is known to have been on disk
	if state != nil {
		synced = state.mark.offset
	}
	if state == nil {
		if err := checkSound(v.o.FS, dir); err != nil {
			return err
		}
	}
	if v.log, err = openMetaLog(v.o.FS, dir, v.o.Log, synced, v.o.Logger); err != nil {
		return err
	}
	if err := v.recoverRaft(dir, state, quorum); err != nil {
		return errors.Join(err, v.log.close())
	}
	return nil
}

func (v *Voter) checkOptions() error {
	if v.self.raftID() == 0 || v.self.directory.IsReserved() {
		return fmt.Errorf("directory.id %s in meta.properties of %s cannot be a voter's: format the directory anew", v.self.directory, v.o.Dir)
	}
	if !slices.ContainsFunc(v.o.Voters, func(r Replica) bool { return r.NodeID == v.self.nodeID }) {
		return fmt.Errorf("node %d is a controller but not among the configured voters: add it to controller.quorum.voters", v.self.nodeID)
	}
	return nil
}

// recoverRaft opens raft's log and brings it and the metadata log to agree.
func (v *Voter) recoverRaft(dir string, state *raftState, quorum *quorumState) error {
	var durable int64
	if state != nil {
		durable = int64(state.commit) + 1
	}
	log, err := openLog(v.o.FS, filepath.Join(dir, raftDir), raftDir, uuid.Zero, raftLogConfig(), durable, v.o.Logger)
	if err != nil {
		return err
	}
	v.state = state
	if state == nil {
		err = v.adoptLog(log, quorum)
	} else {
		err = v.continueLog(log, quorum)
	}
	if err != nil {
		return errors.Join(err, log.Close())
	}
	v.applied = v.state.mark
	return v.showRecovered()
}

// adoptLog makes a state where there is none: for an empty log, or one that Apache Kafka wrote.
func (v *Voter) adoptLog(log *storage.Log, quorum *quorumState) error {
	v.state = new(raftState)
	if newest, ok := newestOf(v.log); ok && v.log.log.End().Offset < newest.EndOffset {
		if err := v.log.beginBehind(newest); err != nil { // a crash came before the log was made to
			return err
		}
	}
	if v.log.log.End().Offset > 0 {
		if quorum == nil {
			return fmt.Errorf("%s has a metadata log but no quorum-state file: restore the file, or write one with the leaderEpoch "+
				"that other controllers or brokers last saw", v.log.dir)
		}
		if err := v.seed(quorum); err != nil {
			return err
		}
	} else if quorum != nil {
		if quorum.LeaderEpoch > 0 && len(v.o.Voters) > 1 {
			return fmt.Errorf("%s has a quorum-state file of epoch %d but no raft state: this voter may have voted, and forgot it; "+
				"restore the directory, or empty it to join as a new voter", v.log.dir, quorum.LeaderEpoch)
		}
		v.state.term = uint64(max(0, quorum.LeaderEpoch)) // epochs only grow
	}
	return v.openRaft(log)
}

func (v *Voter) openRaft(log *storage.Log) (err error) {
	v.raft, err = openRaftLog(log, v.state)
	return err
}

// continueLog takes up the state that is there.
func (v *Voter) continueLog(log *storage.Log, quorum *quorumState) error {
	s := v.state
	if err := v.checkGroup(); err != nil {
		return err
	}
	if err := v.openRaft(log); err != nil {
		return err
	}
	if quorum == nil {
		quorum = new(quorumState)
	}
	foreign, err := v.foreignTail(quorum.LeaderEpoch)
	if err != nil {
		return err
	}
	if foreign {
		if err := v.seed(quorum); err != nil {
			return err
		}
		return v.raft.restart()
	}
	if quorum.LeaderEpoch > int32(s.term) {
		s.term, s.vote = uint64(quorum.LeaderEpoch), 0
	}
	if err := v.log.dropSnapshotsBehind(s.mark.offset); err != nil {
		return err
	}
	if v.log.log.End().Offset <= s.mark.offset {
		return nil
	}
	return v.log.log.TruncateTo(s.mark.offset)
}

// dropSnapshotsBehind removes the snapshots that end behind offset: a crash came before they were put to use.
func (m *metaLog) dropSnapshotsBehind(offset int64) error {
	v := m.view()
	keep := len(v.snapshots)
	for ; keep > 0 && v.snapshots[keep-1].EndOffset > offset; keep-- {
		if err := m.fs.Remove(checkpointPath(m.dir, v.snapshots[keep-1])); err != nil {
			return err
		}
	}
	m.update(func(v *view) { v.snapshots = v.snapshots[:keep] })
	return nil
}

// checkGroup compares the raft group of the state file with this node and its configuration.
func (v *Voter) checkGroup() error {
	if !slices.Contains(v.state.voters, v.self) {
		return fmt.Errorf("the raft state in %s belongs to other voters than node %d with directory %s: it was copied or meta.properties "+
			"was changed; restore what was there, or empty the directory", v.log.dir, v.self.nodeID, v.self.directory)
	}
	for _, r := range v.o.Voters {
		i := slices.IndexFunc(v.state.voters, func(m member) bool { return m.nodeID == r.NodeID })
		if i < 0 || len(v.state.voters) != len(v.o.Voters) {
			return fmt.Errorf("the configured voters are not those of the quorum that %s belongs to (%d of them): ottla cannot change the "+
				"voters of a quorum yet; configure those it was founded with", v.log.dir, len(v.state.voters))
		}
		if known := v.state.voters[i].directory; !r.DirectoryID.IsZero() && r.DirectoryID != known {
			return fmt.Errorf("controller %d is configured with directory %s, and the quorum knows it with %s: configure the latter",
				r.NodeID, r.DirectoryID, known)
		}
	}
	return nil
}

// foreignTail reports whether the metadata log holds something that does not follow from raft's log: another
// program went on writing it. epoch is that of quorum-state. It returns an error if the log lacks what was synced.
func (v *Voter) foreignTail(epoch int32) (bool, error) {
	s, log := v.state, v.log.log
	end := log.End()
	if log.StartOffset() > s.mark.offset {
		return true, nil
	}
	if end.Offset < s.mark.offset {
		if newest, ok := newestOf(v.log); ok && s.mark == s.snapshot && newest.EndOffset == s.mark.offset {
			return false, v.log.beginBehind(newest) // a crash came while the snapshot was being installed
		}
		return false, fmt.Errorf("%s ends at offset %d, although %d was on disk: the log is damaged or older than its raft state; "+
			"restore the directory, or empty it to join as a new voter", v.log.dir, end.Offset, s.mark.offset)
	}
	index, offset := s.mark.index, s.mark.offset
	foreign := errors.New("not ours")
	err := v.log.scan(s.mark.offset, end, func(h record.Header, batch []byte) error {
		var ours []byte
		for ours == nil {
			if index == v.raft.last {
				return foreign
			}
			entry, err := v.entry(index + 1)
			if err != nil {
				return err
			}
			if ours, err = materialise(entry, offset); err != nil {
				return err
			}
			index++
		}
		if !slices.Equal(ours, batch) {
			return foreign
		}
		offset = h.NextOffset()
		return nil
	})
	if errors.Is(err, foreign) {
		return true, nil
	}
	if damage := new(damageError); errors.As(err, &damage) && uint64(max(0, epoch)) <= s.term {
		return false, nil // a power failure tore what was not synced yet, and nobody has written since
	}
	return false, err
}

func newestOf(m *metaLog) (SnapshotID, bool) {
	v := m.view()
	return v.newestSnapshot()
}

func (v *Voter) entry(index uint64) (*pb.Entry, error) {
	entries, err := v.raft.Entries(index, index+1, maxBatchBytes)
	if err != nil {
		return nil, fmt.Errorf("read raft entry %d: %w", index, err)
	}
	return entries[0], nil
}

// seed lets raft begin behind the end of the metadata log, in an epoch that no other program has used.
func (v *Voter) seed(quorum *quorumState) error {
	if len(v.o.Voters) > 1 {
		return fmt.Errorf("another program, Apache Kafka it seems, wrote the metadata log in %s: only a lone controller can take such a log over, and "+
			"%d voters are configured; run this node as the only controller, or begin with empty directories", v.log.dir, len(v.o.Voters))
	}
	log := v.log.log
	if err := log.Flush(log.End().Offset); err != nil {
		return fmt.Errorf("flush %s: %w", v.log.dir, err)
	}
	view := v.log.view()
	epoch := v.log.lastEpoch(&view)
	s := v.state
	s.term = max(s.term, uint64(max(0, quorum.LeaderEpoch)), uint64(epoch))
	s.vote = 0
	index := max(s.mark.index, s.commit) + 1
	if v.raft != nil {
		index = max(index, v.raft.last+1)
	}
	s.base = raftMark{index: index, term: s.term, offset: log.End().Offset, epoch: epoch}
	s.mark, s.snapshot, s.commit = s.base, raftMark{}, index
	s.voters = []member{v.self}
	v.o.Logger.Info("taking over a metadata log that another program wrote", "offset", s.base.offset, "epoch", s.term)
	return v.saveStateIn(v.log.dir)
}

// showRecovered shows what is in the metadata log: it is all committed.
func (v *Voter) showRecovered() error {
	var before []Replica // as the newest snapshot names them, should the log not
	if newest, ok := newestOf(v.log); ok {
		head, err := readCheckpointHead(v.o.FS, v.log.dir, newest)
		if err != nil {
			return err
		}
		before = head.voters
	}
	leader, voters, err := v.log.readControl(before)
	if err != nil {
		return err
	}
	if leader.id == v.self.nodeID {
		leader.id = NoLeader // it was another life of this node
	}
	v.log.update(func(view *view) {
		view.end, view.leader, view.voters = v.log.log.End(), leader, voters
	})
	return v.learnConfigured()
}

// learnConfigured takes the directories of the voters from the configuration and from the checkpoint of the format.
func (v *Voter) learnConfigured() error {
	head, err := readCheckpointHead(v.o.FS, v.log.dir, bootstrapID)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, r := range append(head.voters, v.o.Voters...) {
		if !r.DirectoryID.IsZero() {
			v.learn(member{r.NodeID, r.DirectoryID})
		}
	}
	return nil
}

// saveState writes the state file. Commit is what is certainly on disk.
func (v *Voter) saveState() error { return v.saveStateIn(v.log.dir) }

func (v *Voter) saveStateIn(dir string) error {
	s := *v.state
	if v.raft != nil {
		s.commit = min(s.commit, v.raft.last)
	}
	path := filepath.Join(dir, raftDir, stateFile)
	if err := vfs.WriteFileAtomic(v.o.FS, path, s.encode()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func (v *Voter) saveQuorumState() error {
	return saveQuorumState(v.o.FS, v.log.dir, quorumState{LeaderID: NoLeader, LeaderEpoch: int32(v.state.term), VotedID: NoLeader})
}

func saveQuorumState(fs vfs.FS, dir string, q quorumState) error {
	path := filepath.Join(dir, quorumStateFile)
	if err := vfs.WriteFileAtomic(fs, path, q.encode()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// saveMark makes the metadata log durable and notes how far it is.
func (v *Voter) saveMark() error {
	if v.state.mark == v.applied {
		return nil
	}
	if err := v.log.log.Flush(v.applied.offset); err != nil {
		return fmt.Errorf("flush %s: %w", v.log.dir, err)
	}
	v.state.mark = v.applied
	return v.saveState()
}

func readState(fsys vfs.FS, dir string) (*raftState, error) {
	path := filepath.Join(dir, raftDir, stateFile)
	b, err := vfs.ReadFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s, err := decodeRaftState(b)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be used: %w. It holds this voter's votes, so it cannot be done without: restore the directory, "+
			"or empty it to join as a new voter", path, err)
	}
	return s, nil
}

func readQuorumState(fsys vfs.FS, dir string) (*quorumState, error) {
	path := filepath.Join(dir, quorumStateFile)
	b, err := vfs.ReadFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	q, err := decodeQuorumState(b)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be used: %w. Restore it, or write one with the leaderEpoch that other controllers or brokers last saw", path, err)
	}
	return &q, nil
}

// SaveSnapshot implements [Quorum]. It also lets go the raft entries that the snapshot before this one covered.
func (v *Voter) SaveSnapshot(id SnapshotID, write func(emit func(value []byte)) error) error {
	saved, err := v.log.saveSnapshot(id, time.Now().UnixMilli(), write)
	if err != nil || !saved {
		return err
	}
	err = ErrClosed
	v.call(func() error {
		var mark raftMark
		if mark, err = v.markAt(id); err == nil {
			err = v.compact(id, mark)
			return err
		}
		return nil
	})
	return err
}

// compact lets raft's log begin at the snapshot before id, and notes id, which ends at mark, as what is given to
// followers that need more. An error means that the disk failed.
func (v *Voter) compact(id SnapshotID, mark raftMark) error {
	if err := v.saveMark(); err != nil {
		return err
	}
	s := v.state
	if s.snapshot.index > s.base.index {
		s.base = s.snapshot
	}
	s.snapshot = mark
	if err := v.saveState(); err != nil {
		return err
	}
	if err := v.raft.release(); err != nil {
		return err
	}
	return v.log.adopt(id)
}

// markAt returns the raft index whose entries end where a snapshot does.
func (v *Voter) markAt(id SnapshotID) (raftMark, error) {
	at := v.state.base
	if s := v.state.snapshot; s.index > at.index && s.offset <= id.EndOffset {
		at = s
	}
	at.epoch = id.Epoch
	found := errors.New("found")
	err := v.raft.walk(at.index, v.applied.index, func(e *pb.Entry) error {
		if at.offset >= id.EndOffset {
			return found
		}
		count, err := batchCount(e)
		at.index, at.term, at.offset = e.GetIndex(), e.GetTerm(), at.offset+count
		return err
	})
	if err != nil && !errors.Is(err, found) {
		return at, err
	}
	if at.offset != id.EndOffset {
		return at, fmt.Errorf("snapshot %v does not end where an entry does, but within one that ends at %d", id, at.offset)
	}
	return at, nil
}

// openMetaLog opens the metadata log of a node, repairing what a crash left behind offset synced. Damage before it that
// has sound batches behind is no crash's doing: then it refuses, for what a repair would leave is not the metadata.
func openMetaLog(fsys vfs.FS, dir string, limits LogOptions, synced int64, logger *slog.Logger) (*metaLog, error) {
	limits = limits.withDefaults()
	if err := makeDir(fsys, dir); err != nil {
		return nil, err
	}
	snapshots, err := listSnapshots(fsys, dir)
	if err != nil {
		return nil, err
	}
	log, err := openLog(fsys, dir, Topic, uuid.Metadata, limits.config(), synced, logger)
	if err != nil {
		return nil, err
	}
	if snapshots, err = dropCovered(fsys, dir, snapshots, log.StartOffset()); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	m := newMetaLog(fsys, dir, log, limits, snapshots, logger)
	if newest, _ := newestOf(m); log.StartOffset() > newest.EndOffset {
		return nil, errors.Join(log.Close(), &damageError{dir, newest.EndOffset,
			fmt.Sprintf("the log begins at offset %d, and no snapshot covers what was before", log.StartOffset())})
	}
	return m, nil
}

// dropCovered removes the snapshots that end before the log begins, which a crash left while they were being deleted; unless
// there is none that the log follows on, for then none is to be missed.
func dropCovered(fsys vfs.FS, dir string, snapshots []SnapshotID, start int64) ([]SnapshotID, error) {
	for len(snapshots) > 1 && snapshots[0].EndOffset < start && snapshots[len(snapshots)-1].EndOffset >= start {
		if err := fsys.Remove(checkpointPath(dir, snapshots[0])); err != nil {
			return nil, err
		}
		snapshots = snapshots[1:]
	}
	return snapshots, nil
}

// makeDir makes a directory, durably, for files in a directory that a crash takes are lost with it.
func makeDir(fsys vfs.FS, dir string) error {
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(dir))
}

// openLog opens the metadata log or raft's.
func openLog(fsys vfs.FS, dir, topic string, id uuid.UUID, config storage.LogConfig, synced int64, logger *slog.Logger) (*storage.Log, error) {
	if err := makeDir(fsys, dir); err != nil {
		return nil, err
	}
	log, err := storage.OpenLog(storage.LogOptions{
		FS: fsys, Path: dir, Topic: topic, TopicID: id, Config: config, RecoveryPoint: synced, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	for _, d := range log.Damage() {
		if d.From < synced {
			return nil, errors.Join(log.Close(), &damageError{dir, d.From, d.Reason})
		}
	}
	return log, nil
}

// close closes the files.
func (m *metaLog) close() error { return m.log.Close() }

// openObserverLog opens the metadata log of an observer. Nothing of it is shown until the leader says what is committed,
// but for the newest snapshot.
func openObserverLog(o *ObserverOptions) (*metaLog, error) {
	dir := filepath.Join(o.Dir, Topic+"-0")
	quorum, err := readQuorumState(o.FS, dir)
	if err != nil {
		return nil, err
	}
	m, err := openMetaLog(o.FS, dir, o.Log, 0, o.Logger)
	if err != nil {
		return nil, err
	}
	return m, m.prepareToFollow(quorum)
}

// prepareToFollow shows the newest snapshot and the epoch last seen, and lets the log begin where it can be continued.
func (m *metaLog) prepareToFollow(quorum *quorumState) error {
	if quorum != nil {
		m.update(func(v *view) { v.leader.epoch = max(0, quorum.LeaderEpoch) })
	}
	v := m.view()
	newest, ok := v.newestSnapshot()
	if !ok {
		return nil
	}
	if m.log.End().Offset < newest.EndOffset || m.log.StartOffset() > newest.EndOffset {
		return m.beginBehind(newest)
	}
	head, err := readCheckpointHead(m.fs, m.dir, newest)
	if err != nil {
		return err
	}
	end, err := m.log.Position(newest.EndOffset)
	if err != nil {
		return err
	}
	m.update(func(v *view) { v.end, v.voters = end, head.voters })
	return nil
}
