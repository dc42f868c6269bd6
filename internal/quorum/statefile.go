package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"ottla/internal/uuid"
)

// raftState is what a voter must not forget, beside the entries themselves: one file, replaced whole. Its
// bytes are drawn in doc/format/raft.md.
type raftState struct {
	term, vote, commit uint64 // raft's HardState

	// voters are the members of the raft group at mark; never empty once the group exists.
	voters []member

	// base is where the raft log begins: its first entry is base.index+1, and the entries up to base
	// are in the metadata log below base.offset.
	base raftMark
	// snapshot is the newest checkpoint whose raft index is known; what a follower is given that needs
	// entries at or below base. Its index is 0 when there is none.
	snapshot raftMark
	// mark is the last point up to which the metadata log is known to be on disk: base ≤ mark ≤ commit.
	mark raftMark
}

// A raftMark ties a raft index to the metadata log: the entries up to index end at offset, and the last
// batch below it is of epoch.
type raftMark struct {
	index, term uint64
	offset      int64
	epoch       int32
}

// A member is a voter's place in the raft group.
type member struct {
	nodeID    int32
	directory uuid.UUID
}

// raftID is the voter's identity towards raft: the first 8 bytes of its directory id, which is
// random, so an emptied disk is another voter. Node ids would not do: 0 is one, and stands for
// nobody in raft.
func (m member) raftID() uint64 { return raftID(m.directory) }

func raftID(directory uuid.UUID) uint64 { return binary.BigEndian.Uint64(directory[:8]) }

const (
	stateMagic   = 0x4f545251 // "OTRQ"
	stateVersion = 1
	// maxVoters bounds what a damaged count can make us allocate. Kafka's quorums have 3 or 5.
	maxVoters = 1000

	stateHeadSize   = 12         // magic, crc, version
	stateFixedSize  = 8*3 + 28*3 // hard state, three marks
	stateMemberSize = 4 + 16     // node id, directory id
	stateMinSize    = stateHeadSize + stateFixedSize + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errStateSize = errors.New("wrong size")

func (s *raftState) encode() []byte {
	b := make([]byte, stateHeadSize, stateMinSize+len(s.voters)*stateMemberSize)
	for _, n := range []uint64{s.term, s.vote, s.commit} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	for _, m := range []raftMark{s.base, s.snapshot, s.mark} {
		b = binary.BigEndian.AppendUint64(b, m.index)
		b = binary.BigEndian.AppendUint64(b, m.term)
		b = binary.BigEndian.AppendUint64(b, uint64(m.offset))
		b = binary.BigEndian.AppendUint32(b, uint32(m.epoch))
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.voters)))
	for _, v := range s.voters {
		b = binary.BigEndian.AppendUint32(b, uint32(v.nodeID))
		b = append(b, v.directory[:]...)
	}
	binary.BigEndian.PutUint32(b[0:], stateMagic)
	binary.BigEndian.PutUint32(b[8:], stateVersion)
	binary.BigEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return b
}

func decodeRaftState(b []byte) (*raftState, error) {
	if len(b) < stateMinSize {
		return nil, errStateSize
	}
	if binary.BigEndian.Uint32(b) != stateMagic {
		return nil, errors.New("it does not begin as such a file does")
	}
	if binary.BigEndian.Uint32(b[4:]) != crc32.Checksum(b[8:], castagnoli) {
		return nil, errors.New("its checksum is wrong")
	}
	if version := binary.BigEndian.Uint32(b[8:]); version != stateVersion {
		return nil, fmt.Errorf("it has version %d, and this ottla knows version %d", version, stateVersion)
	}
	b = b[stateHeadSize:]
	next := func() uint64 {
		n := binary.BigEndian.Uint64(b)
		b = b[8:]
		return n
	}
	s := &raftState{term: next(), vote: next(), commit: next()}
	for _, m := range []*raftMark{&s.base, &s.snapshot, &s.mark} {
		*m = raftMark{index: next(), term: next(), offset: int64(next()), epoch: int32(binary.BigEndian.Uint32(b))}
		b = b[4:]
	}
	count := binary.BigEndian.Uint32(b)
	b = b[4:]
	if count > maxVoters || len(b) != int(count)*stateMemberSize {
		return nil, errStateSize
	}
	for ; count > 0; count-- {
		m := member{nodeID: int32(binary.BigEndian.Uint32(b))}
		copy(m.directory[:], b[4:])
		s.voters = append(s.voters, m)
		b = b[stateMemberSize:]
	}
	return s, s.check()
}

// check holds the inequalities that every state this package wrote satisfies.
func (s *raftState) check() error {
	switch {
	case s.mark.index < s.base.index || s.mark.offset < s.base.offset || s.base.offset < 0:
		return fmt.Errorf("its mark (%d, offset %d) lies before its base (%d, offset %d)",
			s.mark.index, s.mark.offset, s.base.index, s.base.offset)
	case s.commit < s.mark.index:
		return fmt.Errorf("it has committed up to %d, less than its mark %d", s.commit, s.mark.index)
	case s.snapshot.index > s.mark.index || s.snapshot.offset > s.mark.offset:
		return fmt.Errorf("its snapshot (%d, offset %d) lies behind its mark (%d, offset %d)",
			s.snapshot.index, s.snapshot.offset, s.mark.index, s.mark.offset)
	}
	return nil
}
