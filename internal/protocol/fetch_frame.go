package protocol

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A FetchFrame encodes a Fetch response, versions 4 to 18, around records that it
// never touches: it yields the bytes that stand between them. A connection keeps
// one and reuses it for every answer, so that a warm one allocates nothing.
//
//	f.Reset(version, correlationID)
//	f.SessionID = id
//	f.Topic(name, id)
//	f.Partition(FetchPartition{…, RecordsSize: slice.Size()})
//	for _, part := range f.Encode() {
//		write part.Bytes, then the records of f's part.Partition'th partition
//	}
//
// The bytes are those of kmsg.FetchResponse.AppendTo behind a size and a header.
// A FetchFrame is not safe for concurrent use.
type FetchFrame struct {
	// Set between Reset, which clears them, and Encode.
	ThrottleMillis int32
	ErrorCode      int16 // version 7 and later
	SessionID      int32 // version 7 and later

	version       int16
	correlationID int32
	topics        []fetchTopic
	partitions    []FetchPartition
	nodes         []FetchNode

	buf   []byte
	cuts  []fetchCut
	parts []FetchPart
}

type fetchTopic struct {
	name  string
	id    [16]byte
	count int // of partitions, which follow those of the topic before
}

// A FetchPartition is one partition of a Fetch response.
type FetchPartition struct {
	Partition            int32
	ErrorCode            int16
	HighWatermark        int64
	LastStableOffset     int64
	LogStartOffset       int64                                                // version 5 and later
	AbortedTransactions  []kmsg.FetchResponseTopicPartitionAbortedTransaction // nil is sent as null
	PreferredReadReplica int32                                                // version 11 and later; -1 none
	RecordsSize          int                                                  // bytes of record batches, 0 for none

	// Version 12 and later; left out while at their "none".
	DivergingEpoch EpochEndOffset // none: -1, -1
	CurrentLeader  LeaderAndEpoch // none: -1, -1
	SnapshotID     EpochEndOffset // none: -1, -1; of the metadata log
}

// An EpochEndOffset is the end of a leader epoch, or the name of a snapshot.
type EpochEndOffset struct {
	Epoch     int32
	EndOffset int64
}

// A LeaderAndEpoch names a partition's leader.
type LeaderAndEpoch struct {
	LeaderID, LeaderEpoch int32
}

// NewFetchPartition returns a partition whose fields are all at "none": no
// records, offsets -1.
func NewFetchPartition(partition int32) FetchPartition {
	return FetchPartition{
		Partition:            partition,
		HighWatermark:        -1,
		LastStableOffset:     -1,
		LogStartOffset:       -1,
		PreferredReadReplica: -1,
		DivergingEpoch:       EpochEndOffset{-1, -1},
		CurrentLeader:        LeaderAndEpoch{-1, -1},
		SnapshotID:           EpochEndOffset{-1, -1},
	}
}

// A FetchNode is where a current leader can be reached (KIP-951), version 16 and
// later.
type FetchNode struct {
	NodeID int32
	Host   string
	Port   int32
	Rack   *string
}

// A FetchPart is a stretch of the frame and the partition, in the order of calls
// to Partition, whose records follow it; -1 if none do, which is so of the last stretch only.
type FetchPart struct {
	Bytes     []byte
	Partition int
}

// fetchCut says that records of a partition come in at a position of buf.
type fetchCut struct{ pos, partition int }

// Reset begins an answer. Parts that Encode returned before are no longer valid.
func (f *FetchFrame) Reset(version int16, correlationID int32) {
	clear(f.topics) // let go of names and slices
	clear(f.partitions)
	clear(f.nodes)
	*f = FetchFrame{
		version: version, correlationID: correlationID,
		topics: f.topics[:0], partitions: f.partitions[:0], nodes: f.nodes[:0],
		buf: f.buf[:0], cuts: f.cuts[:0], parts: f.parts[:0],
	}
}

// Topic begins a topic, sent by name up to version 12 and by id from 13.
func (f *FetchFrame) Topic(name string, id [16]byte) {
	f.topics = append(f.topics, fetchTopic{name: name, id: id})
}

// Partition adds a partition to the last topic.
func (f *FetchFrame) Partition(p FetchPartition) {
	f.topics[len(f.topics)-1].count++
	f.partitions = append(f.partitions, p)
}

// Node adds an endpoint of a leader named in some CurrentLeader.
func (f *FetchFrame) Node(n FetchNode) { f.nodes = append(f.nodes, n) }

// Len returns the number of partitions added.
func (f *FetchFrame) Len() int { return len(f.partitions) }

// Encode returns the frame, its size in front, as parts to be written one after
// the other with records between them. They stay valid until Reset.
func (f *FetchFrame) Encode() []FetchPart {
	flexible := f.flexible()
	f.cuts, f.parts = f.cuts[:0], f.parts[:0]
	b := AppendResponseHeader(append(f.buf[:0], 0, 0, 0, 0), fetchKey, flexible, f.correlationID)
	b = appendInt32(b, f.ThrottleMillis)
	if f.version >= 7 {
		b = appendInt16(b, f.ErrorCode)
		b = appendInt32(b, f.SessionID)
	}
	b = appendArrayLen(b, len(f.topics), flexible)
	next, records := 0, 0
	for i := range f.topics {
		t := &f.topics[i]
		if f.version >= 13 {
			b = append(b, t.id[:]...)
		} else {
			b = appendString(b, t.name, flexible)
		}
		b = appendArrayLen(b, t.count, flexible)
		for range t.count {
			b = f.appendPartition(b, next)
			records += f.partitions[next].RecordsSize
			next++
		}
		if flexible {
			b = append(b, 0) // no tagged fields
		}
	}
	if flexible {
		b = f.appendNodes(b)
	}
	f.buf = b
	binary.BigEndian.PutUint32(b, uint32(len(b)-4+records))
	return f.cut()
}

func (f *FetchFrame) flexible() bool { return f.version >= 12 }

// appendPartition appends partition i and notes where its records belong.
func (f *FetchFrame) appendPartition(b []byte, i int) []byte {
	p := &f.partitions[i]
	flexible := f.flexible()
	b = appendInt32(b, p.Partition)
	b = appendInt16(b, p.ErrorCode)
	b = appendInt64(b, p.HighWatermark)
	b = appendInt64(b, p.LastStableOffset)
	if f.version >= 5 {
		b = appendInt64(b, p.LogStartOffset)
	}
	b = appendAborted(b, p.AbortedTransactions, flexible)
	if f.version >= 11 {
		b = appendInt32(b, p.PreferredReadReplica)
	}
	b = appendArrayLen(b, p.RecordsSize, flexible) // bytes have their length encoded alike
	if p.RecordsSize > 0 {
		f.cuts = append(f.cuts, fetchCut{len(b), i})
	}
	if flexible {
		b = p.appendTags(b)
	}
	return b
}

func appendAborted(b []byte, aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction, flexible bool) []byte {
	if aborted == nil {
		return appendArrayLen(b, -1, flexible)
	}
	b = appendArrayLen(b, len(aborted), flexible)
	for i := range aborted {
		b = appendInt64(b, aborted[i].ProducerID)
		b = appendInt64(b, aborted[i].FirstOffset)
		if flexible {
			b = append(b, 0) // no tagged fields
		}
	}
	return b
}

// appendTags appends the partition's tagged fields. Each is a struct of fixed size,
// which counts the zero that ends it: no tagged fields of its own.
func (p *FetchPartition) appendTags(b []byte) []byte {
	none := EpochEndOffset{-1, -1}
	count := len(b)
	b = append(b, 0)
	if d := p.DivergingEpoch; d != none {
		b[count]++
		b = append(b, 0, 4+8+1)
		b = append(appendInt64(appendInt32(b, d.Epoch), d.EndOffset), 0)
	}
	if l := p.CurrentLeader; l != (LeaderAndEpoch{-1, -1}) {
		b[count]++
		b = append(b, 1, 4+4+1)
		b = append(appendInt32(appendInt32(b, l.LeaderID), l.LeaderEpoch), 0)
	}
	if s := p.SnapshotID; s != none {
		b[count]++
		b = append(b, 2, 8+4+1)
		b = append(appendInt32(appendInt64(b, s.EndOffset), s.Epoch), 0)
	}
	return b
}

// appendNodes appends the response's own tagged fields: the endpoints, if any.
func (f *FetchFrame) appendNodes(b []byte) []byte {
	if len(f.nodes) == 0 || f.version < 16 {
		return append(b, 0)
	}
	size := uvarintLen(uint64(len(f.nodes) + 1))
	for i := range f.nodes {
		size += f.nodes[i].size()
	}
	b = append(b, 1, 0) // one tagged field, number 0
	b = binary.AppendUvarint(b, uint64(size))
	b = appendArrayLen(b, len(f.nodes), true)
	for i := range f.nodes {
		n := &f.nodes[i]
		b = appendInt32(b, n.NodeID)
		b = appendString(b, n.Host, true)
		b = appendInt32(b, n.Port)
		if n.Rack == nil {
			b = append(b, 0)
		} else {
			b = appendString(b, *n.Rack, true)
		}
		b = append(b, 0) // no tagged fields
	}
	return b
}

// size is the length of the node's encoding.
func (n *FetchNode) size() int {
	size := 4 + uvarintLen(uint64(len(n.Host)+1)) + len(n.Host) + 4 + 1 + 1
	if n.Rack != nil {
		size += uvarintLen(uint64(len(*n.Rack)+1)) + len(*n.Rack) - 1
	}
	return size
}

// cut divides buf at the records.
func (f *FetchFrame) cut() []FetchPart {
	start := 0
	for _, c := range f.cuts {
		f.parts = append(f.parts, FetchPart{f.buf[start:c.pos:c.pos], c.partition})
		start = c.pos
	}
	if start < len(f.buf) {
		f.parts = append(f.parts, FetchPart{f.buf[start:], -1})
	}
	return f.parts
}

// Size returns the bytes of the whole frame, size field and records included. Only
// after Encode.
func (f *FetchFrame) Size() int64 {
	return int64(binary.BigEndian.Uint32(f.buf)) + 4
}

func appendInt16(b []byte, n int16) []byte { return binary.BigEndian.AppendUint16(b, uint16(n)) }
func appendInt32(b []byte, n int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) }
func appendInt64(b []byte, n int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(n)) }

// appendArrayLen appends the length of an array or of bytes; -1 is null.
func appendArrayLen(b []byte, n int, flexible bool) []byte {
	if flexible {
		return binary.AppendUvarint(b, uint64(n+1))
	}
	return appendInt32(b, int32(n))
}

func appendString(b []byte, s string, flexible bool) []byte {
	if flexible {
		b = binary.AppendUvarint(b, uint64(len(s)+1))
	} else {
		b = appendInt16(b, int16(len(s)))
	}
	return append(b, s...)
}

// uvarintLen is the length of n as an unsigned varint.
func uvarintLen(n uint64) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}
