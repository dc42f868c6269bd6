package record

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// BatchOptions say what a [Builder] puts into the header of its batch.
type BatchOptions struct {
	Compression Compression // Codec none to zstd
	// Flags are FlagTransactional, FlagControl and FlagLogAppendTime as wanted.
	Flags       Attributes
	BaseOffset  int64
	LeaderEpoch int32
	Producer    *ProducerState // nil: not idempotent
	// MaxTimestamp, in ms, is used under FlagLogAppendTime; otherwise it follows from the records.
	MaxTimestamp int64
}

// ProducerState is who wrote a batch, and where it stands among that producer's batches.
type ProducerState struct {
	ID           int64
	Epoch        int16
	BaseSequence int32
}

// A Builder builds one record batch. It serves one goroutine.
type Builder struct {
	o         BatchOptions
	buf       []byte // a header's room, then the records
	start     int    // of the batch in buf
	count     int32
	base, max int64 // timestamps
	lastDelta int32
}

// NewBuilder returns a builder that appends its batch to dst, whose memory it uses while it suffices.
func NewBuilder(dst []byte, o BatchOptions) *Builder {
	if !o.Compression.Codec.known() {
		panic(fmt.Sprintf("record: building a batch with codec %s", o.Compression.Codec)) // a caller's mistake
	}
	b := &Builder{o: o, buf: dst, start: len(dst)}
	b.buf = append(b.buf, make([]byte, HeaderSize)...)
	return b
}

// Append adds a record behind those already there, copying it. Its offset is the next one; r.Offset is not looked at.
func (b *Builder) Append(r Record) {
	if b.count > 0 {
		b.lastDelta++
	}
	if b.count == 0 {
		b.base, b.max = r.Timestamp, r.Timestamp
	}
	b.max = max(b.max, r.Timestamp)
	b.buf = appendRecord(b.buf, r.Timestamp-b.base, int64(b.lastDelta), &r)
	b.count++
}

// Count returns how many records were appended.
func (b *Builder) Count() int { return int(b.count) }

// Size returns the batch's size in bytes so far, before compression.
func (b *Builder) Size() int { return len(b.buf) - b.start }

// Bytes returns dst with the finished batch behind it. The builder must not be used afterwards.
func (b *Builder) Bytes() []byte {
	if b.o.Flags.LogAppendTime() {
		b.max = b.o.MaxTimestamp
	}
	if b.count == 0 {
		b.base, b.max = NoTimestamp, NoTimestamp
	}
	h := Header{
		BaseOffset:      b.o.BaseOffset,
		LeaderEpoch:     b.o.LeaderEpoch,
		Attributes:      b.o.Flags&^(codecMask|FlagDeleteHorizon) | Attributes(b.o.Compression.Codec),
		LastOffsetDelta: b.lastDelta,
		BaseTimestamp:   b.base,
		MaxTimestamp:    b.max,
		ProducerID:      NoProducerID,
		ProducerEpoch:   NoProducerEpoch,
		BaseSequence:    NoSequence,
		Count:           b.count,
	}
	if p := b.o.Producer; p != nil {
		h.ProducerID, h.ProducerEpoch, h.BaseSequence = p.ID, p.Epoch, p.BaseSequence
	}
	if b.o.Compression.Codec != None {
		b.compress()
	}
	if len(b.buf)-b.start > math.MaxInt32 {
		panic(fmt.Sprintf("record: batch of %d bytes", len(b.buf)-b.start)) // callers bound what they append
	}
	h.finish(b.buf[b.start:])
	return b.buf
}

func (b *Builder) compress() {
	records := b.buf[b.start+HeaderSize:]
	out := make([]byte, b.start+HeaderSize, b.start+HeaderSize+len(records)/2)
	copy(out, b.buf[:b.start])
	out, err := compress(out, b.o.Compression, func(w io.Writer) error {
		_, err := w.Write(records)
		return err
	})
	if err != nil {
		panic(fmt.Sprintf("record: compress in memory with %v: %v", b.o.Compression, err)) // nothing there can fail
	}
	b.buf = out
}

func appendRecord(dst []byte, timestampDelta, offsetDelta int64, r *Record) []byte {
	size := 1 + varintSize(timestampDelta) + varintSize(offsetDelta) + bytesSize(r.Key) + bytesSize(r.Value) + varintSize(int64(len(r.Headers)))
	for i := range r.Headers {
		size += varintSize(int64(len(r.Headers[i].Key))) + len(r.Headers[i].Key) + bytesSize(r.Headers[i].Value)
	}
	dst = binary.AppendVarint(dst, int64(size))
	dst = append(dst, 0) // attributes
	dst = binary.AppendVarint(dst, timestampDelta)
	dst = binary.AppendVarint(dst, offsetDelta)
	dst = appendNullable(dst, r.Key)
	dst = appendNullable(dst, r.Value)
	dst = binary.AppendVarint(dst, int64(len(r.Headers)))
	for i := range r.Headers {
		dst = binary.AppendVarint(dst, int64(len(r.Headers[i].Key)))
		dst = append(dst, r.Headers[i].Key...)
		dst = appendNullable(dst, r.Headers[i].Value)
	}
	return dst
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

func varintSize(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	n := 1
	for ; u >= 0x80; u >>= 7 {
		n++
	}
	return n
}

func bytesSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintSize(int64(len(b))) + len(b)
}
