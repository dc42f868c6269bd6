package quorum

import (
	"fmt"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
)

// How the raft group is founded. The configuration names the voters by node id and address; raft knows them by
// their directories. Where the configuration, or the checkpoint of the format, does not say which directory a
// voter has, that voter is asked (hello, welcome) until all are known; then each founds the same group, once,
// and keeps it in its state file. An emptied disk brings a directory that no group knows: its voter is told
// the group it is not in, and refuses to start.

// learn takes note of a voter's directory.
func (v *Voter) learn(m member) { v.known[m.nodeID] = m.directory }

// found founds the raft group if the directories of all voters are known, and starts raft; otherwise it asks for them.
func (v *Voter) found() error {
	var group []member
	for _, r := range v.o.Voters {
		directory, ok := v.known[r.NodeID]
		if !ok {
			v.sendHellos()
			return nil
		}
		group = append(group, member{r.NodeID, directory})
	}
	if i := duplicateRaftID(group); i >= 0 {
		return fmt.Errorf("controller %d has the directory id %s, which another has as well: one directory was copied to two nodes",
			group[i].nodeID, group[i].directory)
	}
	v.state.voters = group
	if err := v.saveState(); err != nil {
		return err
	}
	v.o.Logger.Info("founded the metadata quorum", "voters", len(group))
	return v.startRaft()
}

func duplicateRaftID(group []member) int {
	for i, m := range group {
		if slices.ContainsFunc(group[:i], func(o member) bool { return o.raftID() == m.raftID() }) {
			return i
		}
	}
	return -1
}

// sendHellos asks the voters whose directory is not known for it.
func (v *Voter) sendHellos() {
	for _, r := range v.o.Voters {
		if _, ok := v.known[r.NodeID]; !ok {
			v.send(member{nodeID: r.NodeID}, helloKind, nil)
		}
	}
}

// welcome learns who another voter is, and the group it is in, if that is founded already.
func (v *Voter) welcome(m *message) error {
	if len(v.state.voters) > 0 {
		return nil
	}
	group, err := decodeMembers(m.body)
	if err != nil {
		v.o.Logger.Warn("dropped a message of another controller that makes no sense", "node", m.from.nodeID, "error", err)
		return nil
	}
	if len(group) > 0 && !slices.Contains(group, v.self) {
		return fmt.Errorf("controller %d is in a metadata quorum that does not know node %d with directory %s: "+
			"this disk was emptied or swapped; bring the old one back, or found a new cluster with all voters empty",
			m.from.nodeID, v.self.nodeID, v.self.directory)
	}
	for _, other := range append(group, m.from) {
		v.learn(other)
	}
	return v.found()
}

// confState returns the members as raft wants them.
func (s *raftState) confState() *pb.ConfState {
	cs := new(pb.ConfState)
	for _, m := range s.voters {
		cs.Voters = append(cs.Voters, m.raftID())
	}
	return cs
}
