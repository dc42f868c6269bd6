package quorum

import (
	"errors"
	"fmt"
	"io/fs"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"ottla/internal/vfs"
)

// How a follower gets a checkpoint that needs entries its leader no longer has. Raft's snapshot message only names the
// checkpoint; the follower keeps the message back, asks for the file piece by piece, and gives the message to
// raft when the file is there. A piece that gets lost is asked for again.

// A transfer is a checkpoint on its way in.
type transfer struct {
	from     member
	message  *pb.Message // raft's, which waits for the file
	id       SnapshotID
	file     vfs.File
	position int64 // bytes that are there
	idle     int   // ticks since the last piece came
}

// beginTransfer takes raft's snapshot message.
func (v *Voter) beginTransfer(from member, m *pb.Message) error {
	id, err := decodeSnapshotID(m.GetSnapshot().GetData())
	if err != nil {
		v.o.Logger.Warn("dropped a message of another controller that makes no sense", "node", from.nodeID, "error", err)
		return nil
	}
	if t := v.incoming; t != nil && t.id == id && t.from == from {
		t.message = m // it may carry a later term
		return nil
	}
	if err := v.dropTransfer(); err != nil {
		return err
	}
	file, err := v.o.FS.Create(checkpointPath(v.log.dir, id) + partSuffix)
	if err != nil {
		return fmt.Errorf("create snapshot: %w", err)
	}
	v.incoming = &transfer{from: from, message: m, id: id, file: file}
	v.askForChunk()
	return nil
}

// dropTransfer forgets an incoming checkpoint that is not whole.
func (v *Voter) dropTransfer() error {
	t := v.incoming
	if t == nil {
		return nil
	}
	v.incoming = nil
	return errors.Join(t.file.Close(), ignoreNotExist(v.o.FS.Remove(checkpointPath(v.log.dir, t.id)+partSuffix)))
}

func (v *Voter) askForChunk() {
	c := chunk{id: v.incoming.id, position: v.incoming.position}
	v.send(v.incoming.from, chunkRequestKind, c.encode())
}

// serveChunk answers with the piece that a follower asked for.
func (v *Voter) serveChunk(m *message) {
	c, err := decodeChunk(m.body)
	if err == nil {
		c.bytes, c.size, err = readSnapshot(v.o.FS, v.log.dir, c.id, c.position, chunkBytes)
	}
	if err != nil {
		v.o.Logger.Warn("another controller asked for a piece of a snapshot that is not here", "node", m.from.nodeID, "snapshot", c.id, "error", err)
		return
	}
	if _, ok := v.outgoing[m.from.raftID()]; ok {
		v.outgoing[m.from.raftID()] = 0
	}
	v.send(m.from, chunkKind, c.encode())
}

// receiveChunk takes a piece and asks for the next, or lets raft have its message.
func (v *Voter) receiveChunk(m *message) error {
	c, err := decodeChunk(m.body)
	t := v.incoming
	if err != nil || t == nil || c.id != t.id || c.position != t.position || len(c.bytes) == 0 {
		return nil // one that came twice, or too late
	}
	if _, err := t.file.WriteAt(c.bytes, t.position); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	t.position, t.idle = t.position+int64(len(c.bytes)), 0
	if t.position < c.size {
		v.askForChunk()
		return nil
	}
	if err := t.file.Sync(); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	if err := v.node.Step(t.message); err != nil {
		return v.dropTransfer()
	}
	if !v.node.HasReady() {
		return v.dropTransfer()
	}
	return nil
}

// install makes a checkpoint that is there the beginning of both logs. A crash in between is repaired at
// start: the state file says where they must begin.
func (v *Voter) install(s *pb.Snapshot) error {
	id, err := decodeSnapshotID(s.GetData())
	if err != nil {
		return err
	}
	t := v.incoming
	if t == nil || t.id != id {
		return fmt.Errorf("raft restores the snapshot %v, which was not fetched", id)
	}
	v.incoming = nil
	path := checkpointPath(v.log.dir, id)
	if err := t.file.Close(); err != nil {
		return fmt.Errorf("write snapshot %s: %w", path, err)
	}
	if err := v.o.FS.Rename(path+partSuffix, path); err != nil {
		return fmt.Errorf("write snapshot %s: %w", path, err)
	}
	if err := v.o.FS.SyncDir(v.log.dir); err != nil {
		return fmt.Errorf("write snapshot %s: %w", path, err)
	}
	mark := raftMark{index: s.GetMetadata().GetIndex(), term: s.GetMetadata().GetTerm(), offset: id.EndOffset, epoch: id.Epoch}
	v.state.base, v.state.snapshot, v.state.mark, v.applied = mark, mark, mark, mark
	v.raft.forget()
	if err := v.saveState(); err != nil {
		return err
	}
	if err := v.raft.restart(); err != nil {
		return err
	}
	return v.log.beginBehind(id)
}

// tickTransfers repeats requests for pieces that did not come, and tells raft of followers that stopped asking.
func (v *Voter) tickTransfers() {
	if t := v.incoming; t != nil {
		if t.idle++; t.idle%ticksPerElection == 0 {
			v.askForChunk()
		}
	}
	for id, idle := range v.outgoing {
		if v.outgoing[id]++; idle >= transferTicks {
			delete(v.outgoing, id)
			v.node.ReportSnapshot(id, raft.SnapshotFailure)
		}
	}
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
