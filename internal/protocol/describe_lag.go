package protocol

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeLagKey is the API key of [DescribeLagRequest], far above Kafka's.
const DescribeLagKey = 10001

// OwnSoftware is what ottla's command line calls itself in ApiVersions (KIP-511). Private APIs of broker listeners are advertised
// to no other client.
const OwnSoftware = "ottla-cli"

// A DescribeLagRequest asks the leaders of partitions for the age of the oldest record that a consumer has yet to read, which
// Kafka's protocol has no question for. It is no part of Kafka and has version 0 only:
//
//	[Topics] => Topic [Partitions]
//	  Topic => STRING
//	  Partitions => Partition Offset
//	    Partition => INT32
//	    Offset => INT64
type DescribeLagRequest struct {
	Version int16
	Topics  []DescribeLagRequestTopic
}

// A DescribeLagRequestTopic is a topic of a [DescribeLagRequest].
type DescribeLagRequestTopic struct {
	Topic      string
	Partitions []DescribeLagRequestPartition
}

// A DescribeLagRequestPartition is a partition with the offset that a consumer committed, its first unread record.
type DescribeLagRequestPartition struct {
	Partition int32
	Offset    int64
}

// A DescribeLagResponse has the ages, in the order of the request:
//
//	[Topics] => Topic [Partitions]
//	  Topic => STRING
//	  Partitions => Partition ErrorCode AgeMs Estimated
//	    Partition => INT32
//	    ErrorCode => INT16
//	    AgeMs => INT64
//	    Estimated => BOOLEAN
type DescribeLagResponse struct {
	Version int16
	Topics  []DescribeLagResponseTopic
}

// A DescribeLagResponseTopic is a topic of a [DescribeLagResponse].
type DescribeLagResponseTopic struct {
	Topic      string
	Partitions []DescribeLagResponsePartition
}

// A DescribeLagResponsePartition is the age of a partition's oldest unread record.
type DescribeLagResponsePartition struct {
	Partition int32
	ErrorCode int16
	AgeMs     int64 // 0 if all is read, -1 if unknown
	Estimated bool  // AgeMs comes from the record's timestamp
}

// describeLagSchema is the shape of a DescribeLagRequest's body.
var describeLagSchema = schema{flexible: none, fields: []field{
	{name: "Topics", kind: arrayKind, elem: structKind, memory: 40, in: versions{0, 0}, nullable: none, tag: -1, fields: []field{
		{name: "Topic", kind: stringKind, in: versions{0, 0}, nullable: none, tag: -1},
		{name: "Partitions", kind: arrayKind, elem: structKind, memory: 16, in: versions{0, 0}, nullable: none, tag: -1, fields: []field{
			{name: "Partition", kind: fixedKind, wire: 4, in: versions{0, 0}, nullable: none, tag: -1},
			{name: "Offset", kind: fixedKind, wire: 8, in: versions{0, 0}, nullable: none, tag: -1},
		}},
	}},
}}

// The methods below make both a kmsg.Request and a kmsg.Response.

func (*DescribeLagRequest) Key() int16           { return DescribeLagKey }
func (*DescribeLagRequest) MaxVersion() int16    { return 0 }
func (r *DescribeLagRequest) SetVersion(v int16) { r.Version = v }
func (r *DescribeLagRequest) GetVersion() int16  { return r.Version }
func (*DescribeLagRequest) IsFlexible() bool     { return false }
func (r *DescribeLagRequest) ResponseKind() kmsg.Response {
	return &DescribeLagResponse{Version: r.Version}
}

// AppendTo appends the body in wire form.
func (r *DescribeLagRequest) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(r.Topics)))
	for _, t := range r.Topics {
		dst = kbin.AppendString(dst, t.Topic)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(t.Partitions)))
		for _, p := range t.Partitions {
			dst = binary.BigEndian.AppendUint32(dst, uint32(p.Partition))
			dst = binary.BigEndian.AppendUint64(dst, uint64(p.Offset))
		}
	}
	return dst
}

// ReadFrom reads a body.
func (r *DescribeLagRequest) ReadFrom(src []byte) error {
	b := kbin.Reader{Src: src}
	r.Topics = make([]DescribeLagRequestTopic, max(b.ArrayLen(), 0))
	for i := range r.Topics {
		t := &r.Topics[i]
		t.Topic = b.String()
		t.Partitions = make([]DescribeLagRequestPartition, max(b.ArrayLen(), 0))
		for j := range t.Partitions {
			t.Partitions[j] = DescribeLagRequestPartition{b.Int32(), b.Int64()}
		}
	}
	return b.Complete()
}

func (*DescribeLagResponse) Key() int16           { return DescribeLagKey }
func (*DescribeLagResponse) MaxVersion() int16    { return 0 }
func (r *DescribeLagResponse) SetVersion(v int16) { r.Version = v }
func (r *DescribeLagResponse) GetVersion() int16  { return r.Version }
func (*DescribeLagResponse) IsFlexible() bool     { return false }
func (r *DescribeLagResponse) RequestKind() kmsg.Request {
	return &DescribeLagRequest{Version: r.Version}
}

// AppendTo appends the body in wire form.
func (r *DescribeLagResponse) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(r.Topics)))
	for _, t := range r.Topics {
		dst = kbin.AppendString(dst, t.Topic)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(t.Partitions)))
		for _, p := range t.Partitions {
			dst = binary.BigEndian.AppendUint32(dst, uint32(p.Partition))
			dst = binary.BigEndian.AppendUint16(dst, uint16(p.ErrorCode))
			dst = binary.BigEndian.AppendUint64(dst, uint64(p.AgeMs))
			dst = kbin.AppendBool(dst, p.Estimated)
		}
	}
	return dst
}

// ReadFrom reads a body.
func (r *DescribeLagResponse) ReadFrom(src []byte) error {
	b := kbin.Reader{Src: src}
	r.Topics = make([]DescribeLagResponseTopic, max(b.ArrayLen(), 0))
	for i := range r.Topics {
		t := &r.Topics[i]
		t.Topic = b.String()
		t.Partitions = make([]DescribeLagResponsePartition, max(b.ArrayLen(), 0))
		for j := range t.Partitions {
			t.Partitions[j] = DescribeLagResponsePartition{b.Int32(), b.Int16(), b.Int64(), b.Bool()}
		}
	}
	return b.Complete()
}

// describeLagErrors answers a request with one code for all partitions.
func describeLagErrors(req *DescribeLagRequest, code int16) *DescribeLagResponse {
	return &DescribeLagResponse{Topics: each(req.Topics, func(t *DescribeLagRequestTopic) DescribeLagResponseTopic {
		return DescribeLagResponseTopic{t.Topic, each(t.Partitions, func(p *DescribeLagRequestPartition) DescribeLagResponsePartition {
			return DescribeLagResponsePartition{Partition: p.Partition, ErrorCode: code, AgeMs: -1}
		})}
	})}
}
