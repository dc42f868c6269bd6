package record

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// maxRecordErrors is how many records at fault an error lists.
const maxRecordErrors = 1000

// Produce says what a partition takes. It is read only, and may serve many goroutines.
type Produce struct {
	MaxMessageBytes int32         // max.message.bytes: size of a batch, header included
	TimestampType   TimestampType // message.timestamp.type
	Now             int64         // ms since 1970
	BeforeMaxMs     int64         // message.timestamp.before.max.ms, 0 to MaxInt64
	AfterMaxMs      int64         // message.timestamp.after.max.ms, 0 to MaxInt64
	Compression     Compression   // compression.type; codec Producer keeps the batch's own
	// MaxDecompressedBytes bounds what a compressed batch may decompress to
	// (ottla.produce.max.decompressed.bytes).
	MaxDecompressedBytes int64
	Compacted            bool // cleanup.policy holds compact: every record needs a key
	NoZstd               bool // the request is of a version below 7, whose clients know no zstd
	AllowControl         bool // the batch is a coordinator's or a broker's own
}

// Validated is a batch that may be appended.
type Validated struct {
	Header Header // as the batch now says
	// Batch is the sender's bytes, stamped in place if timestamps asked for it, or a new batch if
	// it was compressed anew.
	Batch []byte
	// MaxTimestampDelta is the offset, relative to the batch's, of the first record with the maximum
	// timestamp; under LogAppendTime of the last record.
	MaxTimestampDelta int32
}

// Validate checks what a producer sent to one partition: exactly one batch, whole and right, as Apache Kafka checks it
// (ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator), and stricter where that
// lets offset deltas out of order pass or answers with UNKNOWN_SERVER_ERROR. Bytes behind the batch that
// cannot be a second one are cut off. Compressed batches are read as a stream; memory does not depend on
// what they decompress to. Errors are of the types *CorruptError, *InvalidRecordError,
// *InvalidTimestampError, *TooLargeError and *UnsupportedCodecError, and then records were not changed.
func (p *Produce) Validate(records []byte) (Validated, error) {
	batch, err := oneBatch(records)
	if err != nil {
		return Validated{}, err
	}
	h, err := ParseHeader(batch)
	if err != nil {
		return Validated{}, err
	}
	if err := p.checkBatch(batch, &h); err != nil {
		return Validated{}, err
	}
	w := walk{p: p, h: &h}
	if err := w.run(batch); err != nil {
		return Validated{}, err
	}
	v := Validated{Batch: batch, MaxTimestampDelta: w.maxDelta}
	if p.Compression.Codec != Producer && p.Compression.Codec != h.Attributes.Codec() {
		if v.Batch, err = p.recompress(batch, h); err != nil {
			return Validated{}, err
		}
	}
	timestamp := w.maxTimestamp
	if p.TimestampType == LogAppendTime {
		timestamp, v.MaxTimestampDelta = p.Now, h.LastOffsetDelta
	}
	SetMaxTimestamp(v.Batch, p.TimestampType, timestamp)
	v.Header, err = ParseHeader(v.Batch)
	return v, err
}

// oneBatch cuts the one batch out of records.
func oneBatch(records []byte) ([]byte, error) {
	if len(records) == 0 {
		return nil, invalid("there is no record batch in the request")
	}
	size, err := batchSize(records)
	if err != nil {
		return nil, err
	}
	if size > int64(len(records)) {
		return nil, corrupt("batch of %d bytes is cut off after %d", size, len(records))
	}
	rest := records[size:]
	if len(rest) <= posMagic {
		return records[:size], nil
	}
	next, err := batchSize(rest)
	if err != nil {
		return nil, err
	}
	if next <= int64(len(rest)) {
		return nil, invalid("a request carries exactly one record batch per partition, this one more")
	}
	return records[:size], nil
}

// batchSize returns the size that the batch at the start of b says it has, if its format is magic 2.
func batchSize(b []byte) (int64, error) {
	// minLegacyLength is the smallest length of any format: that of a message of magic 0.
	const minLegacyLength = 14
	if len(b) <= posMagic {
		return 0, corrupt("%d bytes are less than a record batch", len(b))
	}
	length := int32(binary.BigEndian.Uint32(b[posLength:]))
	if length < minLegacyLength {
		return 0, corrupt("batch length %d is less than %d", length, minLegacyLength)
	}
	magic := int8(b[posMagic])
	if magic == 0 || magic == 1 {
		return 0, invalid("magic %d is the format of clients before Kafka 0.11; batches of magic 2 are needed", magic)
	}
	if magic != Magic {
		return 0, corrupt("batch magic is %d, not %d", magic, Magic)
	}
	return Overhead + int64(length), nil
}

// checkBatch checks what the header alone, and the CRC, can tell, in Apache Kafka's order.
func (p *Produce) checkBatch(batch []byte, h *Header) error {
	codec := h.Attributes.Codec()
	if codec == Zstd && p.NoZstd {
		return &UnsupportedCodecError{Codec: codec}
	}
	if h.BaseOffset != 0 {
		return invalid("base offset is %d; producers send 0", h.BaseOffset)
	}
	if len(batch) > int(p.MaxMessageBytes) {
		return &TooLargeError{Size: int64(len(batch)), Max: int64(p.MaxMessageBytes)}
	}
	if err := checkCRC(batch, h.CRC); err != nil {
		return err
	}
	if !codec.known() {
		return &UnsupportedCodecError{Codec: codec}
	}
	if h.Count <= 0 {
		return invalid("record count is %d", h.Count)
	}
	if int64(h.LastOffsetDelta) != int64(h.Count)-1 {
		return invalid("last offset delta %d does not fit %d records", h.LastOffsetDelta, h.Count)
	}
	if p.AllowControl {
		return nil
	}
	if h.Attributes.Control() {
		return invalid("clients must not write control records")
	}
	if h.HasProducer() && h.BaseSequence < 0 {
		return invalid("producer %d sent base sequence %d", h.ProducerID, h.BaseSequence)
	}
	return nil
}

// A walk checks the records of one batch.
type walk struct {
	p            *Produce
	h            *Header
	maxTimestamp int64
	maxDelta     int32
	faults       *faults // nil while there are none, so that a good batch allocates nothing
}

// faults are what is wrong with the records of one batch.
type faults struct {
	listed       []RecordError
	badTimestamp bool // one of them is about a timestamp
	count        int  // listed or not
}

func (w *walk) run(batch []byte) error {
	r, err := openReader(batch, w.h.Attributes.Codec(), w.p.MaxDecompressedBytes)
	if err != nil {
		return err
	}
	defer r.close()
	w.maxTimestamp = NoTimestamp
	for i := range w.h.Count {
		if err := w.record(r, i); err != nil {
			return err
		}
	}
	end, err := r.end()
	if err != nil {
		return err
	}
	if !end {
		return invalid("bytes are left after the batch's %d records", w.h.Count)
	}
	return w.verdict()
}

// record checks record i, at which r stands.
func (w *walk) record(r *reader, i int32) error {
	size, ok, err := r.varint()
	if err != nil {
		return err
	}
	if !ok || size < 0 || size > math.MaxInt32 {
		return invalid("record %d of %d has no valid length", i, w.h.Count)
	}
	end := r.at() + size
	f, ok, err := readFields(r, end)
	if err != nil {
		return err
	}
	if !ok || r.at() != end {
		return invalid("record %d of %d does not fit its length of %d bytes", i, w.h.Count, size)
	}
	w.check(i, f)
	return nil
}

// fields is what a rule looks at in a record.
type fields struct {
	timestampDelta, offsetDelta int64
	hasKey                      bool
}

// readFields passes over a record without its length, which ends at end; ok is false if it is malformed.
func readFields(r *reader, end int64) (f fields, ok bool, err error) {
	if ok, err = r.skip(1); !ok || err != nil { // attributes
		return f, false, err
	}
	if f.timestampDelta, ok, err = r.varint(); !ok || err != nil {
		return f, false, err
	}
	if f.offsetDelta, ok, err = r.varint(); !ok || err != nil {
		return f, false, err
	}
	if f.hasKey, ok, err = skipNullable(r, end); !ok || err != nil {
		return f, false, err
	}
	if _, ok, err = skipNullable(r, end); !ok || err != nil {
		return f, false, err
	}
	headers, ok, err := r.varint()
	if !ok || err != nil || headers < 0 {
		return f, false, err
	}
	for range headers {
		present, ok, err := skipNullable(r, end)
		if !ok || err != nil || !present {
			return f, false, err
		}
		if _, ok, err = skipNullable(r, end); !ok || err != nil {
			return f, false, err
		}
	}
	return f, true, nil
}

// skipNullable passes over bytes behind their length, -1 for null, that do not reach beyond end.
func skipNullable(r *reader, end int64) (present, ok bool, err error) {
	n, ok, err := r.varint()
	if !ok || err != nil || n < -1 || n > end-r.at() {
		return false, false, err
	}
	if n <= 0 {
		return n == 0, true, nil
	}
	ok, err = r.skip(n)
	return true, ok, err
}

// check applies the rules for one record and notes what breaks them.
func (w *walk) check(i int32, f fields) {
	if f.offsetDelta != int64(i) {
		w.fault(i, "offset delta is %d; those of a batch go up by one from 0", f.offsetDelta)
		return
	}
	if w.p.Compacted && !f.hasKey && !w.h.Attributes.Control() {
		w.fault(i, "Compacted topic cannot accept message without key")
		return
	}
	if w.h.Attributes.LogAppendTime() && !w.p.AllowControl {
		w.fault(i, "producers must not set the timestamp type LogAppendTime")
		w.faults.badTimestamp = true
		return
	}
	timestamp := w.h.BaseTimestamp + f.timestampDelta
	if w.p.TimestampType == CreateTime && timestamp != NoTimestamp && !w.inRange(timestamp) {
		w.fault(i, "timestamp %d is not within [%d, %d]", timestamp, sub(w.p.Now, w.p.BeforeMaxMs), sub(w.p.Now, -w.p.AfterMaxMs))
		w.faults.badTimestamp = true
		return
	}
	if timestamp > w.maxTimestamp || i == 0 {
		w.maxTimestamp, w.maxDelta = timestamp, i
	}
}

func (w *walk) inRange(timestamp int64) bool {
	return timestamp >= sub(w.p.Now, w.p.BeforeMaxMs) && timestamp <= sub(w.p.Now, -w.p.AfterMaxMs)
}

// sub returns a-b, held within int64.
func sub(a, b int64) int64 {
	d := a - b
	if (a < 0) != (b < 0) && (d < 0) != (a < 0) {
		if a < 0 {
			return math.MinInt64
		}
		return math.MaxInt64
	}
	return d
}

func (w *walk) fault(i int32, format string, args ...any) {
	if w.faults == nil {
		w.faults = new(faults)
	}
	w.faults.count++
	if len(w.faults.listed) < maxRecordErrors {
		w.faults.listed = append(w.faults.listed, RecordError{Index: i, Message: fmt.Sprintf(format, args...)})
	}
}

// verdict turns the faults into an error. One bad timestamp makes the batch's error about timestamps, as in
// Kafka's LogValidator.processRecordErrors.
func (w *walk) verdict() error {
	f := w.faults
	if f == nil {
		return nil
	}
	reason := fmt.Sprintf("%d of %d records are rejected, the first, record %d: %s", f.count, w.h.Count, f.listed[0].Index, f.listed[0].Message)
	if f.badTimestamp {
		return &InvalidTimestampError{Reason: reason, Records: f.listed}
	}
	return &InvalidRecordError{Reason: reason, Records: f.listed}
}

// recompress returns batch, whose records were checked, compressed as the topic wants it.
func (p *Produce) recompress(batch []byte, h Header) ([]byte, error) {
	r, err := openReader(batch, h.Attributes.Codec(), p.MaxDecompressedBytes)
	if err != nil {
		return nil, err
	}
	defer r.close()
	out := make([]byte, HeaderSize, len(batch))
	if p.Compression.Codec == None {
		l := limited{b: out, max: int64(p.MaxMessageBytes)}
		err = r.copyTo(&l)
		out = l.b
	} else {
		out, err = compress(out, p.Compression, r.copyTo)
	}
	if err != nil {
		return nil, err
	}
	if len(out) > int(p.MaxMessageBytes) {
		return nil, &TooLargeError{Size: int64(len(out)), Max: int64(p.MaxMessageBytes)}
	}
	h.Attributes = h.Attributes&^codecMask | Attributes(p.Compression.Codec)
	h.finish(out)
	return out, nil
}

// copyTo writes all that is left in r to w.
func (r *reader) copyTo(w io.Writer) error {
	for {
		if err := r.fill(1); err != nil {
			return err
		}
		if r.pos == len(r.buf) {
			return nil
		}
		if _, err := w.Write(r.buf[r.pos:]); err != nil {
			return err
		}
		r.pos = len(r.buf)
	}
}

// limited collects what is written to it, up to max bytes in all.
type limited struct {
	b   []byte
	max int64
}

func (l *limited) Write(p []byte) (int, error) {
	if size := int64(len(l.b)) + int64(len(p)); size > l.max {
		return 0, &TooLargeError{Size: size, Max: l.max}
	}
	l.b = append(l.b, p...)
	return len(p), nil
}
