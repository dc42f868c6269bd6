package protocol

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// RaftMessageKey is the API key of [RaftMessageRequest], far above Kafka's.
const RaftMessageKey = 10000

// A RaftMessageRequest carries etcd raft's messages from one ottla controller to
// another over the controller listener. It is no part of Kafka, is not advertised,
// and has version 0 only:
//
//	From => INT64, To => INT64, Payload => BYTES
type RaftMessageRequest struct {
	Version int16
	// From and To are raft ids. A receiver whose own id is not To must drop the
	// message: it came to an address whose disk was emptied or swapped.
	From, To uint64
	// Payload is opaque here. After ReadFrom it aliases the source.
	Payload []byte
}

// A RaftMessageResponse says whether the messages were taken, not what became of
// them: raft answers with messages of its own.
//
//	ErrorCode => INT16
type RaftMessageResponse struct {
	Version   int16
	ErrorCode int16
}

// raftMessageSchema is the shape of a RaftMessageRequest's body.
var raftMessageSchema = schema{flexible: none, fields: []field{
	{name: "From", kind: fixedKind, wire: 8, nullable: none, tag: -1},
	{name: "To", kind: fixedKind, wire: 8, nullable: none, tag: -1},
	{name: "Payload", kind: bytesKind, nullable: none, tag: -1},
}}

// The methods below make both a kmsg.Request and a kmsg.Response.

func (*RaftMessageRequest) Key() int16           { return RaftMessageKey }
func (*RaftMessageRequest) MaxVersion() int16    { return 0 }
func (r *RaftMessageRequest) SetVersion(v int16) { r.Version = v }
func (r *RaftMessageRequest) GetVersion() int16  { return r.Version }
func (*RaftMessageRequest) IsFlexible() bool     { return false }
func (r *RaftMessageRequest) ResponseKind() kmsg.Response {
	return &RaftMessageResponse{Version: r.Version}
}

// AppendTo appends the body in wire form.
func (r *RaftMessageRequest) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, r.From)
	dst = binary.BigEndian.AppendUint64(dst, r.To)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(r.Payload)))
	return append(dst, r.Payload...)
}

// ReadFrom reads a body; Payload aliases src.
func (r *RaftMessageRequest) ReadFrom(src []byte) error {
	const fixed = 8 + 8 + 4
	if len(src) < fixed {
		return ErrTruncated
	}
	w := walker{rest: src[fixed:]}
	payload, err := w.span(int(int32(binary.BigEndian.Uint32(src[16:]))), false)
	if err != nil {
		return err
	}
	r.From, r.To = binary.BigEndian.Uint64(src), binary.BigEndian.Uint64(src[8:])
	r.Payload = payload
	return nil
}

func (*RaftMessageResponse) Key() int16           { return RaftMessageKey }
func (*RaftMessageResponse) MaxVersion() int16    { return 0 }
func (r *RaftMessageResponse) SetVersion(v int16) { r.Version = v }
func (r *RaftMessageResponse) GetVersion() int16  { return r.Version }
func (*RaftMessageResponse) IsFlexible() bool     { return false }
func (r *RaftMessageResponse) RequestKind() kmsg.Request {
	return &RaftMessageRequest{Version: r.Version}
}

// AppendTo appends the body in wire form.
func (r *RaftMessageResponse) AppendTo(dst []byte) []byte {
	return binary.BigEndian.AppendUint16(dst, uint16(r.ErrorCode))
}

// ReadFrom reads a body.
func (r *RaftMessageResponse) ReadFrom(src []byte) error {
	if len(src) < 2 {
		return ErrTruncated
	}
	r.ErrorCode = int16(binary.BigEndian.Uint16(src))
	return nil
}
