package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// A schema is the shape of one request, generated from Apache Kafka's JSON by gen
// into schema_table.go.
type schema struct {
	flexible versions // KIP-482 encoding; none: {0, -1}
	fields   []field
}

// versions is an inclusive range.
type versions struct{ min, max int16 }

func (v versions) has(version int16) bool { return v.min <= version && version <= v.max }

type kind uint8

const (
	fixedKind  kind = iota // size bytes: integers, bool, float64, uuid
	stringKind             // UTF-8 up to 32,767 bytes
	bytesKind              // bytes and records
	structKind
	arrayKind // elements of kind elem
)

// A field of a schema, in wire order.
type field struct {
	name     string
	kind     kind
	elem     kind  // of an array
	wire     int32 // bytes on the wire of a fixedKind field or element
	memory   int32 // bytes that one element of an array, or one pointee, takes in kmsg's structs
	in       versions
	nullable versions // none: {0, -1}
	tag      int16    // -1: no tagged field
	fields   []field  // of a struct or of an array's structs
}

// none is the empty range of versions.
var none = versions{0, -1}

// Costs of what kmsg makes beside the structs themselves, in bytes.
const (
	// stringPointerCost is the string header that a *string points to.
	stringPointerCost = 16
	// Unknown tagged fields land in a map of kmsg.Tags: its first entry makes room
	// for eight (measured: 300), each counts for its share of the map's growth
	// (measured: up to 166).
	tagMapCost     = 320
	unknownTagCost = 168
	// knownTagCost is the reader that kmsg makes for a tagged field it knows.
	knownTagCost = 32
	// maxString is the longest string Kafka reads, in either encoding.
	maxString = math.MaxInt16
)

// Reasons why a message is malformed; each costs its sender the connection.
var (
	errVarint = errors.New("a varint is longer than five bytes")
	errNull   = errors.New("null in a field that cannot be null")
	errLength = errors.New("a length below -1")
	errString = errors.New("a string longer than 32,767 bytes")
	errTag    = errors.New("a tagged field that its version lacks, or whose size is not its own")
)

// A walker runs over an encoded message without building it. The first mistake
// sticks in err and empties rest, so that callers test it once a loop.
type walker struct {
	rest []byte
	cost int64 // bytes that decoding will allocate for what has been walked over
	err  error
}

func (w *walker) fail(err error) {
	if w.err == nil {
		w.err = err
	}
	w.rest = nil
}

// skip passes over n bytes, n >= 0.
func (w *walker) skip(n int) {
	if n > len(w.rest) {
		w.fail(ErrTruncated)
		return
	}
	w.rest = w.rest[n:]
}

// span returns the next n bytes; n = -1 is null, which gives nil if allowed. An
// empty span is never nil.
func (w *walker) span(n int, nullable bool) ([]byte, error) {
	switch {
	case w.err != nil:
		return nil, w.err
	case n == -1 && nullable:
		return nil, nil
	case n == -1:
		w.fail(errNull)
	case n < 0:
		w.fail(errLength)
	case n > len(w.rest):
		w.fail(ErrTruncated)
	default:
		b := w.rest[:n:n]
		w.rest = w.rest[n:]
		return b, nil
	}
	return nil, w.err
}

func (w *walker) uint16() uint16 {
	if len(w.rest) < 2 {
		w.fail(ErrTruncated)
		return 0
	}
	n := binary.BigEndian.Uint16(w.rest)
	w.rest = w.rest[2:]
	return n
}

func (w *walker) uint32() uint32 {
	if len(w.rest) < 4 {
		w.fail(ErrTruncated)
		return 0
	}
	n := binary.BigEndian.Uint32(w.rest)
	w.rest = w.rest[4:]
	return n
}

// uvarint reads an unsigned varint of at most 32 bits.
func (w *walker) uvarint() uint32 {
	if len(w.rest) > 0 && w.rest[0] < 0x80 {
		n := w.rest[0]
		w.rest = w.rest[1:]
		return uint32(n)
	}
	n, size := binary.Uvarint(w.rest)
	if size == 0 && len(w.rest) < binary.MaxVarintLen32 {
		w.fail(ErrTruncated)
		return 0
	}
	if size <= 0 || size > binary.MaxVarintLen32 || n > math.MaxUint32 {
		w.fail(errVarint)
		return 0
	}
	w.rest = w.rest[size:]
	return uint32(n)
}

// length reads the length of an array or a byte string: -1 is null.
func (w *walker) length(flexible bool) int {
	if flexible {
		return int(w.uvarint()) - 1
	}
	return int(int32(w.uint32()))
}

// fields walks over the fields of a struct that stand in line, then, in a
// flexible message, over its tagged ones.
func (w *walker) fields(fields []field, version int16, flexible bool) {
	for i := range fields {
		f := &fields[i]
		if f.tag >= 0 || !f.in.has(version) {
			continue
		}
		w.value(f, f.kind, version, flexible)
		if w.err != nil {
			w.err = fmt.Errorf("%s: %w", f.name, w.err)
			return
		}
	}
	if flexible {
		w.tags(fields, version)
	}
}

// value walks over one value of kind k: that of f or, in an array, an element.
func (w *walker) value(f *field, k kind, version int16, flexible bool) {
	switch k {
	case fixedKind:
		w.skip(int(f.wire))
	case stringKind:
		w.str(f, version, flexible)
	case bytesKind:
		w.span(w.length(flexible), f.nullable.has(version))
	case structKind:
		w.structure(f, version, flexible)
	case arrayKind:
		w.array(f, version, flexible)
	}
}

func (w *walker) str(f *field, version int16, flexible bool) {
	n := 0
	if flexible {
		n = int(w.uvarint()) - 1
	} else {
		n = int(int16(w.uint16()))
	}
	if n > maxString {
		w.fail(errString)
		return
	}
	// An array's elements are never null; nullable is then the array's own.
	b, _ := w.span(n, f.kind == stringKind && f.nullable.has(version))
	w.cost += int64(len(b))
	if f.nullable.max >= 0 && f.kind == stringKind {
		w.cost += stringPointerCost
	}
}

// structure walks over a struct; one that may be null is preceded by a byte,
// negative for null.
func (w *walker) structure(f *field, version int16, flexible bool) {
	if f.kind == structKind && f.nullable.has(version) {
		if len(w.rest) == 0 {
			w.fail(ErrTruncated)
			return
		}
		present := int8(w.rest[0]) >= 0
		w.rest = w.rest[1:]
		if !present {
			return
		}
		w.cost += int64(f.memory)
	}
	w.fields(f.fields, version, flexible)
}

func (w *walker) array(f *field, version int16, flexible bool) {
	n := w.length(flexible)
	switch {
	case w.err != nil:
		return
	case n == -1 && f.nullable.has(version):
		return
	case n == -1:
		w.fail(errNull)
		return
	case n < 0:
		w.fail(errLength)
		return
	case n > len(w.rest): // no element is shorter than a byte
		w.fail(ErrTruncated)
		return
	}
	w.cost += int64(n) * int64(f.memory)
	if f.elem == fixedKind {
		w.skip(n * int(f.wire))
		return
	}
	for i := 0; i < n && w.err == nil; i++ {
		w.value(f, f.elem, version, flexible)
	}
}

// tags walks over the tagged fields that end a struct: those of fields are
// checked, others are passed over as KIP-482 asks for.
func (w *walker) tags(fields []field, version int16) error {
	unknown := false
	for n := w.uvarint(); n > 0 && w.err == nil; n-- {
		tag := w.uvarint()
		b, err := w.span(int(w.uvarint()), false)
		if err != nil {
			break
		}
		f := tagged(fields, tag)
		if f == nil {
			if !unknown {
				w.cost += tagMapCost
			}
			unknown = true
			w.cost += unknownTagCost
			continue
		}
		if !f.in.has(version) {
			w.fail(fmt.Errorf("%s: %w", f.name, errTag))
			break
		}
		inner := walker{rest: b}
		inner.value(f, f.kind, version, true)
		if inner.err == nil && len(inner.rest) > 0 {
			inner.err = errTag
		}
		if inner.err != nil {
			w.fail(fmt.Errorf("%s: %w", f.name, inner.err))
		}
		w.cost += knownTagCost + inner.cost
	}
	return w.err
}

func tagged(fields []field, tag uint32) *field {
	for i := range fields {
		if f := &fields[i]; f.tag >= 0 && uint32(f.tag) == tag {
			return f
		}
	}
	return nil
}
