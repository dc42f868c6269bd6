package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"

	"ottla/internal/uuid"
)

// Voters speak to each other in one-way messages: raft's own, and those with which they learn each other's
// directory ids and hand over checkpoints. Every message names the cluster and the directories it goes
// from and to, so that a swapped or emptied disk, or a node of another cluster, is noticed by whoever
// receives it.
//
//	Version => INT8 (0)  Kind => INT8  ClusterID => STRING
//	From => INT32 UUID   To => INT32 UUID (Zero in hello and welcome)
//	Body => the rest
type message struct {
	kind      messageKind
	clusterID string
	from, to  member
	body      []byte // aliases the message it was decoded from
}

type messageKind int8

const (
	// raftKind: Body is a raftpb.Message.
	raftKind messageKind = iota
	// helloKind asks who the receiver is; Body is empty.
	helloKind
	// welcomeKind answers: Body is the sender's raft group, [INT32 UUID], empty if it has none yet.
	welcomeKind
	// chunkRequestKind asks for a piece of a checkpoint: a chunk without bytes and size.
	chunkRequestKind
	// chunkKind is the piece: end offset INT64, epoch INT32, position INT64, size of the file INT64, then the bytes.
	chunkKind
	messageKinds
)

var errMessageSize = errors.New("message from another controller is cut off")

func (m *message) encode() []byte {
	b := make([]byte, 0, 2+2+len(m.clusterID)+2*stateMemberSize+len(m.body))
	b = append(b, 0, byte(m.kind))
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.clusterID)))
	b = append(b, m.clusterID...)
	b = appendMember(b, m.from)
	b = appendMember(b, m.to)
	return append(b, m.body...)
}

func decodeMessage(b []byte) (message, error) {
	var m message
	if len(b) < 4 {
		return m, errMessageSize
	}
	if b[0] != 0 || b[1] >= byte(messageKinds) {
		return m, fmt.Errorf("message of version %d and kind %d from another controller: it runs another release of ottla", b[0], b[1])
	}
	m.kind = messageKind(b[1])
	length := int(binary.BigEndian.Uint16(b[2:]))
	if b = b[4:]; len(b) < length+2*stateMemberSize {
		return m, errMessageSize
	}
	m.clusterID, b = string(b[:length]), b[length:]
	m.from, b = takeMember(b)
	m.to, m.body = takeMember(b)
	return m, nil
}

func appendMember(b []byte, m member) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(m.nodeID)), m.directory[:]...)
}

// takeMember reads what appendMember wrote; b must be long enough.
func takeMember(b []byte) (member, []byte) {
	return member{nodeID: int32(binary.BigEndian.Uint32(b)), directory: uuid.UUID(b[4:stateMemberSize])}, b[stateMemberSize:]
}

func encodeMembers(members []member) []byte {
	var b []byte
	for _, m := range members {
		b = appendMember(b, m)
	}
	return b
}

func decodeMembers(b []byte) ([]member, error) {
	if len(b)%stateMemberSize != 0 {
		return nil, errMessageSize
	}
	var members []member
	for len(b) > 0 {
		var m member
		m, b = takeMember(b)
		members = append(members, m)
	}
	return members, nil
}

// A chunk is a piece of a checkpoint file, or the request for it.
type chunk struct {
	id       SnapshotID
	position int64
	size     int64  // of the whole file; in an answer
	bytes    []byte // in an answer
}

const (
	snapshotIDSize = 12
	// chunkBytes is the size of a piece: small enough not to hold raft's heartbeats up.
	chunkBytes = 256 << 10
)

func appendSnapshotID(b []byte, id SnapshotID) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(id.EndOffset))
	return binary.BigEndian.AppendUint32(b, uint32(id.Epoch))
}

func decodeSnapshotID(b []byte) (SnapshotID, error) {
	if len(b) < snapshotIDSize {
		return SnapshotID{}, errMessageSize
	}
	id := SnapshotID{EndOffset: int64(binary.BigEndian.Uint64(b)), Epoch: int32(binary.BigEndian.Uint32(b[8:]))}
	if id.EndOffset < 0 || id.Epoch < 0 {
		return SnapshotID{}, fmt.Errorf("snapshot id %v from another controller", id)
	}
	return id, nil
}

func (c *chunk) encode() []byte {
	b := appendSnapshotID(make([]byte, 0, snapshotIDSize+16+len(c.bytes)), c.id)
	b = binary.BigEndian.AppendUint64(b, uint64(c.position))
	b = binary.BigEndian.AppendUint64(b, uint64(c.size))
	return append(b, c.bytes...)
}

func decodeChunk(b []byte) (chunk, error) {
	id, err := decodeSnapshotID(b)
	if err != nil {
		return chunk{}, err
	}
	if b = b[snapshotIDSize:]; len(b) < 16 {
		return chunk{}, errMessageSize
	}
	return chunk{id: id, position: int64(binary.BigEndian.Uint64(b)), size: int64(binary.BigEndian.Uint64(b[8:])), bytes: b[16:]}, nil
}
