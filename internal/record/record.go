// Package record reads, checks, stamps and builds Kafka's record batches (format v2, magic 2). It
// knows the bytes of one batch and nothing of partitions: brokers check what producers send with
// [Produce.Validate], logs stamp batches in place and look at their [Header], coordinators read
// them with [Iterate] and write them with a [Builder].
//
// What always holds: nothing here panics on any input; no record costs an allocation of its own; a compressed batch
// is read through a window of 64 KiB and never held decompressed as a whole, except a snappy
// block, whose format demands it.
//
// The layout, big endian, is that of Kafka's DefaultRecordBatch:
//
//	 0 baseOffset      int64     21 attributes      int16     43 producerId     int64
//	 8 batchLength     int32     23 lastOffsetDelta int32     51 producerEpoch  int16
//	12 leaderEpoch     int32     27 baseTimestamp   int64     53 baseSequence   int32
//	16 magic           int8      35 maxTimestamp    int64     57 count          int32
//	17 crc             uint32                                 61 records, compressed as one
//
// batchLength counts what follows it; crc is the CRC-32C of everything from attributes to the end.
package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

const (
	// HeaderSize is the size in bytes of a batch without its records.
	HeaderSize = 61
	// Overhead is the size in bytes of base offset and length, which the length does not count.
	Overhead = 12
	// MinLength is the smallest length field of a batch: a header and no record bytes.
	MinLength = HeaderSize - Overhead
	// Magic is the only batch format that Kafka 4 writes.
	Magic int8 = 2
	// NoTimestamp stands for "no timestamp".
	NoTimestamp int64 = -1
	// NoProducerID, NoProducerEpoch and NoSequence stand in a batch whose producer is not idempotent.
	NoProducerID    int64 = -1
	NoProducerEpoch int16 = -1
	NoSequence      int32 = -1
)

// Positions of the fields in a batch.
const (
	posLength        = 8
	posLeaderEpoch   = 12
	posMagic         = 16
	posCRC           = 17
	posAttributes    = 21
	posLastDelta     = 23
	posBaseTimestamp = 27
	posMaxTimestamp  = 35
	posProducerID    = 43
	posProducerEpoch = 51
	posBaseSequence  = 53
	posCount         = 57
)

// Attributes are the flags of a batch.
type Attributes uint16

// The bits of Attributes above the codec.
const (
	// FlagLogAppendTime says that the records carry the time of the append: each record's
	// timestamp is the batch's MaxTimestamp.
	FlagLogAppendTime Attributes = 1 << 3
	// FlagTransactional says that the batch belongs to a transaction.
	FlagTransactional Attributes = 1 << 4
	// FlagControl says that the batch holds control records, which consumers do not see.
	FlagControl Attributes = 1 << 5
	// FlagDeleteHorizon says that BaseTimestamp is the time from which the cleaner may drop tombstones.
	FlagDeleteHorizon Attributes = 1 << 6

	codecMask Attributes = 7
)

// Codec returns how the records are compressed; it may be a value Kafka does not define.
func (a Attributes) Codec() Codec { return Codec(a & codecMask) }

// LogAppendTime reports whether every record's timestamp is the batch's MaxTimestamp.
func (a Attributes) LogAppendTime() bool { return a&FlagLogAppendTime != 0 }

// Transactional reports whether the batch belongs to a transaction.
func (a Attributes) Transactional() bool { return a&FlagTransactional != 0 }

// Control reports whether the batch holds control records.
func (a Attributes) Control() bool { return a&FlagControl != 0 }

// DeleteHorizon reports whether BaseTimestamp is a delete horizon.
func (a Attributes) DeleteHorizon() bool { return a&FlagDeleteHorizon != 0 }

// A Header is a batch without its records.
type Header struct {
	BaseOffset      int64
	Length          int32 // bytes after the length field
	LeaderEpoch     int32
	Magic           int8
	CRC             uint32 // CRC-32C from Attributes to the end
	Attributes      Attributes
	LastOffsetDelta int32
	BaseTimestamp   int64 // ms since 1970, or the delete horizon
	MaxTimestamp    int64 // ms since 1970
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	Count           int32 // records present; less than LastOffsetDelta+1 after compaction
}

// Size returns the size of the whole batch in bytes.
func (h *Header) Size() int { return Overhead + int(h.Length) }

// LastOffset returns the offset of the batch's last record, present or compacted away.
func (h *Header) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// NextOffset returns the offset of the batch that follows.
func (h *Header) NextOffset() int64 { return h.LastOffset() + 1 }

// HasProducer reports whether the batch carries a producer id, sequence numbers included.
func (h *Header) HasProducer() bool { return h.ProducerID > NoProducerID }

// LastSequence returns the sequence number of the last record, which wraps from 2³¹-1 to 0
// (Kafka's DefaultRecordBatch.incrementSequence), or NoSequence.
func (h *Header) LastSequence() int32 {
	if h.BaseSequence == NoSequence {
		return NoSequence
	}
	return int32((int64(h.BaseSequence) + int64(h.LastOffsetDelta)) & (1<<31 - 1))
}

// ParseHeader reads the header at the start of b, which holds at least HeaderSize bytes. It checks the
// magic and that the length is at least MinLength, nothing else: not that the whole batch is there, not the
// CRC. Errors are of type *CorruptError.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, corrupt("%d bytes are less than the %d of a batch header", len(b), HeaderSize)
	}
	h := Header{
		BaseOffset:      int64(binary.BigEndian.Uint64(b)),
		Length:          int32(binary.BigEndian.Uint32(b[posLength:])),
		LeaderEpoch:     int32(binary.BigEndian.Uint32(b[posLeaderEpoch:])),
		Magic:           int8(b[posMagic]),
		CRC:             binary.BigEndian.Uint32(b[posCRC:]),
		Attributes:      Attributes(binary.BigEndian.Uint16(b[posAttributes:])),
		LastOffsetDelta: int32(binary.BigEndian.Uint32(b[posLastDelta:])),
		BaseTimestamp:   int64(binary.BigEndian.Uint64(b[posBaseTimestamp:])),
		MaxTimestamp:    int64(binary.BigEndian.Uint64(b[posMaxTimestamp:])),
		ProducerID:      int64(binary.BigEndian.Uint64(b[posProducerID:])),
		ProducerEpoch:   int16(binary.BigEndian.Uint16(b[posProducerEpoch:])),
		BaseSequence:    int32(binary.BigEndian.Uint32(b[posBaseSequence:])),
		Count:           int32(binary.BigEndian.Uint32(b[posCount:])),
	}
	if h.Length < MinLength {
		return h, corrupt("batch length %d is less than %d", h.Length, MinLength)
	}
	if h.Magic != Magic {
		return h, corrupt("batch magic is %d, not %d", h.Magic, Magic)
	}
	return h, nil
}

// put writes the header over the first HeaderSize bytes of b.
func (h *Header) put(b []byte) {
	binary.BigEndian.PutUint64(b, uint64(h.BaseOffset))
	binary.BigEndian.PutUint32(b[posLength:], uint32(h.Length))
	binary.BigEndian.PutUint32(b[posLeaderEpoch:], uint32(h.LeaderEpoch))
	b[posMagic] = byte(h.Magic)
	binary.BigEndian.PutUint32(b[posCRC:], h.CRC)
	binary.BigEndian.PutUint16(b[posAttributes:], uint16(h.Attributes))
	binary.BigEndian.PutUint32(b[posLastDelta:], uint32(h.LastOffsetDelta))
	binary.BigEndian.PutUint64(b[posBaseTimestamp:], uint64(h.BaseTimestamp))
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(h.MaxTimestamp))
	binary.BigEndian.PutUint64(b[posProducerID:], uint64(h.ProducerID))
	binary.BigEndian.PutUint16(b[posProducerEpoch:], uint16(h.ProducerEpoch))
	binary.BigEndian.PutUint32(b[posBaseSequence:], uint32(h.BaseSequence))
	binary.BigEndian.PutUint32(b[posCount:], uint32(h.Count))
}

// finish writes the header over the start of batch, whose records are in place, with the length and the CRC that
// follow from them, and keeps both in h.
func (h *Header) finish(batch []byte) {
	h.Magic = Magic
	h.Length = int32(len(batch) - Overhead)
	h.put(batch)
	h.CRC = Checksum(batch)
	binary.BigEndian.PutUint32(batch[posCRC:], h.CRC)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C that belongs into batch, which is exactly one batch of at least
// HeaderSize bytes.
func Checksum(batch []byte) uint32 { return crc32.Checksum(batch[posAttributes:], castagnoli) }

// CheckCRC compares the CRC of the batch at the start of b, which must be there whole, with its bytes.
// Errors are of type *CorruptError.
func CheckCRC(b []byte) error {
	h, err := ParseHeader(b)
	if err != nil {
		return err
	}
	if len(b) < h.Size() {
		return corrupt("batch of %d bytes is cut off after %d", h.Size(), len(b))
	}
	return checkCRC(b[:h.Size()], h.CRC)
}

func checkCRC(batch []byte, want uint32) error {
	if got := Checksum(batch); got != want {
		return corrupt("batch CRC is %08x but its bytes give %08x", want, got)
	}
	return nil
}

// SetBaseOffset stamps the base offset into batch. It lies outside the CRC.
func SetBaseOffset(batch []byte, offset int64) {
	binary.BigEndian.PutUint64(batch, uint64(offset))
}

// SetLeaderEpoch stamps the leader epoch into batch. It lies outside the CRC.
func SetLeaderEpoch(batch []byte, epoch int32) {
	binary.BigEndian.PutUint32(batch[posLeaderEpoch:], uint32(epoch))
}

// SetMaxTimestamp stamps the timestamp type and the maximum timestamp (ms) into batch, exactly one
// batch, and computes its CRC anew if that changed anything.
func SetMaxTimestamp(batch []byte, t TimestampType, timestamp int64) {
	old := Attributes(binary.BigEndian.Uint16(batch[posAttributes:]))
	attributes := old &^ FlagLogAppendTime
	if t == LogAppendTime {
		attributes |= FlagLogAppendTime
	}
	if attributes == old && int64(binary.BigEndian.Uint64(batch[posMaxTimestamp:])) == timestamp {
		return
	}
	binary.BigEndian.PutUint16(batch[posAttributes:], uint16(attributes))
	binary.BigEndian.PutUint64(batch[posMaxTimestamp:], uint64(timestamp))
	binary.BigEndian.PutUint32(batch[posCRC:], Checksum(batch))
}

// A TimestampType says whose clock a topic's records carry (message.timestamp.type).
type TimestampType int8

const (
	// CreateTime keeps the producer's timestamps.
	CreateTime TimestampType = 0
	// LogAppendTime gives all records of a batch the time of the append.
	LogAppendTime TimestampType = 1
)

// String returns the type as the configuration spells it.
func (t TimestampType) String() string {
	switch t {
	case CreateTime:
		return "CreateTime"
	case LogAppendTime:
		return "LogAppendTime"
	}
	return fmt.Sprintf("TimestampType(%d)", int8(t))
}

// A Record is one record of a batch. What [Iterate] yields is valid until its function returns.
type Record struct {
	Offset    int64
	Timestamp int64  // ms since 1970; the batch's MaxTimestamp under LogAppendTime
	Key       []byte // nil: none
	Value     []byte // nil: none, a tombstone in a compacted topic
	Headers   []RecordHeader
}

// A RecordHeader is a key-value pair beside a record's value.
type RecordHeader struct {
	Key   []byte // UTF-8, never null
	Value []byte // nil: null
}
