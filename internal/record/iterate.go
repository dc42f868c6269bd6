package record

import (
	"encoding/binary"
	"math"
	"sync"
)

// headerScratch holds the memory of Record.Headers between calls of Iterate.
var headerScratch = sync.Pool{New: func() any { return new([]RecordHeader) }}

// Iterate calls f with each record of the batch at the start of b, which must be there whole, and
// stops at f's first error, which it returns. It does not check the CRC: call [CheckCRC] where that has not been done
// since the bytes were read. The record f is given lasts until f returns. Bytes that are no records give
// a *CorruptError or *UnsupportedCodecError. Memory is that of the largest record, at least a window of 64 KiB.
func Iterate(b []byte, f func(Record) error) error {
	h, err := ParseHeader(b)
	if err != nil {
		return err
	}
	if len(b) < h.Size() {
		return corrupt("batch of %d bytes is cut off after %d", h.Size(), len(b))
	}
	if !h.Attributes.Codec().known() {
		return &UnsupportedCodecError{Codec: h.Attributes.Codec()}
	}
	r, err := openReader(b[:h.Size()], h.Attributes.Codec(), math.MaxInt64)
	if err != nil {
		return err
	}
	defer r.close()
	scratch := headerScratch.Get().(*[]RecordHeader)
	defer func() {
		clear(*scratch)
		headerScratch.Put(scratch)
	}()
	for i := range h.Count {
		n, ok, err := r.varint()
		if err != nil {
			return err
		}
		if !ok || n < 0 {
			return corrupt("record %d has no valid length", i)
		}
		body, ok, err := r.bytes(n)
		if err != nil {
			return err
		}
		if !ok {
			return corrupt("record %d of %d bytes is cut off", i, n)
		}
		rec, ok := parseRecord(&h, body, scratch)
		if !ok {
			return corrupt("record %d does not fit its length of %d bytes", i, n)
		}
		if err := f(rec); err != nil {
			return err
		}
	}
	end, err := r.end()
	if err != nil {
		return err
	}
	if !end {
		return corrupt("bytes are left after the batch's %d records", h.Count)
	}
	return nil
}

// parseRecord reads a record without its length; ok is false if the bytes are not exactly one.
func parseRecord(h *Header, b []byte, scratch *[]RecordHeader) (rec Record, ok bool) {
	if len(b) < 1 {
		return rec, false
	}
	p := parser{b: b[1:], ok: true} // the attributes of a record mean nothing so far
	rec.Timestamp = h.BaseTimestamp + p.varint()
	if h.Attributes.LogAppendTime() {
		rec.Timestamp = h.MaxTimestamp
	}
	rec.Offset = h.BaseOffset + p.varint()
	rec.Key = p.nullable()
	rec.Value = p.nullable()
	count := p.varint()
	if count < 0 || count > int64(len(p.b)) { // a header takes two bytes
		return rec, false
	}
	headers := (*scratch)[:0]
	for range count {
		key, value := p.nullable(), p.nullable()
		if !p.ok || key == nil {
			return rec, false
		}
		headers = append(headers, RecordHeader{Key: key, Value: value})
	}
	*scratch = headers
	if count > 0 {
		rec.Headers = headers
	}
	return rec, p.ok && len(p.b) == 0
}

// A parser reads fields off the front of b until one does not fit; then ok is false for good.
type parser struct {
	b  []byte
	ok bool
}

func (p *parser) varint() int64 {
	v, n := binary.Varint(p.b)
	if n <= 0 {
		p.ok, p.b = false, nil
		return 0
	}
	p.b = p.b[n:]
	return v
}

// nullable reads bytes behind their length; nil where the length is -1.
func (p *parser) nullable() []byte {
	n := p.varint()
	if n == -1 {
		return nil
	}
	if n < 0 || n > int64(len(p.b)) {
		p.ok, p.b = false, nil
		return nil
	}
	v := p.b[:n:n]
	p.b = p.b[n:]
	return v
}
