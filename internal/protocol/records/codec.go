package records

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"ottla/internal/uuid"
)

// A writer appends Kafka's primitive types to b. Source of the encodings: Kafka's protocol guide and
// KIP-482 (flexible versions).
type writer struct {
	b        []byte
	flexible bool  // lengths are varints plus one, structs end with tagged fields
	open     []int // where the counts of tagged fields, and the field being written, begin
}

func (w *writer) bool(v bool) {
	if v {
		w.b = append(w.b, 1)
		return
	}
	w.b = append(w.b, 0)
}

func (w *writer) int8(v int8)       { w.b = append(w.b, byte(v)) }
func (w *writer) int16(v int16)     { w.b = binary.BigEndian.AppendUint16(w.b, uint16(v)) }
func (w *writer) uint16(v uint16)   { w.b = binary.BigEndian.AppendUint16(w.b, v) }
func (w *writer) int32(v int32)     { w.b = binary.BigEndian.AppendUint32(w.b, uint32(v)) }
func (w *writer) uint32(v uint32)   { w.b = binary.BigEndian.AppendUint32(w.b, v) }
func (w *writer) int64(v int64)     { w.b = binary.BigEndian.AppendUint64(w.b, uint64(v)) }
func (w *writer) float64(v float64) { w.b = binary.BigEndian.AppendUint64(w.b, math.Float64bits(v)) }
func (w *writer) uuid(v uuid.UUID)  { w.b = append(w.b, v[:]...) }

func (w *writer) string(v string) {
	w.stringLength(len(v))
	w.b = append(w.b, v...)
}

func (w *writer) nullableString(v *string) {
	if v == nil {
		w.stringLength(-1)
		return
	}
	w.string(*v)
}

func (w *writer) bytes(v []byte) {
	w.length(len(v))
	w.b = append(w.b, v...)
}

// stringLength writes the length of a string, -1 for null.
func (w *writer) stringLength(n int) {
	if w.flexible {
		w.uvarint(uint32(n + 1))
		return
	}
	if n > math.MaxInt16 {
		panic(fmt.Sprintf("a string of %d bytes does not fit this version of its record (at most %d): its length is to be checked before", n, math.MaxInt16))
	}
	w.int16(int16(n))
}

// length writes the length of bytes or of an array, -1 for null.
func (w *writer) length(n int) {
	if w.flexible {
		w.uvarint(uint32(n + 1))
		return
	}
	w.int32(int32(n))
}

func (w *writer) uvarint(v uint32) { w.b = binary.AppendUvarint(w.b, uint64(v)) }

// present writes whether a nullable struct follows, which it returns.
func (w *writer) present(v bool) bool {
	if v {
		w.int8(1)
	} else {
		w.int8(-1)
	}
	return v
}

// presentTagged is present for a tagged field, where Kafka writes it otherwise.
func (w *writer) presentTagged(v bool) bool {
	if v {
		w.uvarint(1)
	} else {
		w.uvarint(0)
	}
	return v
}

func (w *writer) noTags() {
	if w.flexible {
		w.b = append(w.b, 0)
	}
}

// beginTags, then for each field beginTag, its value and endTag, then endTags write the tagged fields of
// a struct. No struct has more than 127, so their count is one byte that each field adds to.
func (w *writer) beginTags() {
	w.open = append(w.open, len(w.b))
	w.b = append(w.b, 0)
}

func (w *writer) beginTag(tag uint32) {
	w.b[w.open[len(w.open)-1]]++
	w.uvarint(tag)
	w.open = append(w.open, len(w.b))
}

// endTag puts the size of the field before its bytes.
func (w *writer) endTag() {
	start := w.open[len(w.open)-1]
	w.open = w.open[:len(w.open)-1]
	var size [binary.MaxVarintLen32]byte
	n := binary.PutUvarint(size[:], uint64(len(w.b)-start))
	w.b = slices.Insert(w.b, start, size[:n]...)
}

// endTags ends the tagged fields; a version that is not flexible has none.
func (w *writer) endTags() {
	start := w.open[len(w.open)-1]
	w.open = w.open[:len(w.open)-1]
	if !w.flexible {
		w.b = w.b[:start]
	}
}

func writeArray[T any](w *writer, s []T, nullable bool, one func(*writer, T)) {
	if nullable && s == nil {
		w.length(-1)
		return
	}
	w.length(len(s))
	for _, v := range s {
		one(w, v)
	}
}

// structPointer is what the generated structs have in common.
type structPointer[T any] interface {
	*T
	encode(w *writer, v int16)
	decode(r *reader, v int16)
}

func writeStructs[T any, P structPointer[T]](w *writer, s []T, nullable bool, v int16) {
	if nullable && s == nil {
		w.length(-1)
		return
	}
	w.length(len(s))
	for i := range s {
		P(&s[i]).encode(w, v)
	}
}

// A reader takes Kafka's primitive types from b. After the first error it gives zero values. What
// it returns does not alias b.
type reader struct {
	b        []byte
	flexible bool
	err      error
}

var (
	errShort = errors.New("it is cut off")
	errNull  = errors.New("it has a null where none may be")
)

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

// take returns the next n bytes, or nil after an error.
func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.fail(errShort)
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) int8() int8 {
	if b := r.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) int64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *reader) bool() bool       { return r.int8() != 0 }
func (r *reader) int16() int16     { return int16(r.uint16()) }
func (r *reader) int32() int32     { return int32(r.uint32()) }
func (r *reader) float64() float64 { return math.Float64frombits(uint64(r.int64())) }

func (r *reader) uuid() (u uuid.UUID) {
	copy(u[:], r.take(len(u)))
	return u
}

func (r *reader) string() string {
	return string(r.take(r.notNull(r.stringLength())))
}

func (r *reader) nullableString() *string {
	n := r.stringLength()
	if n < 0 || r.err != nil {
		return nil
	}
	s := string(r.take(n))
	return &s
}

func (r *reader) bytes() []byte {
	return slices.Clone(r.take(r.notNull(r.length())))
}

// stringLength reads the length of a string, -1 for null.
func (r *reader) stringLength() int {
	if r.flexible {
		return r.length()
	}
	return r.checkLength(int64(r.int16()))
}

// length reads the length of bytes or of an array, -1 for null. It is never above the number of bytes
// left, for every element takes at least one.
func (r *reader) length() int {
	if r.flexible {
		return r.checkLength(int64(r.uvarint()) - 1)
	}
	return r.checkLength(int64(r.int32()))
}

func (r *reader) checkLength(n int64) int {
	if r.err == nil && (n < -1 || n > int64(len(r.b))) {
		r.fail(errShort)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

func (r *reader) notNull(n int) int {
	if n < 0 {
		r.fail(errNull)
		return 0
	}
	return n
}

func (r *reader) uvarint() uint32 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > math.MaxUint32 {
		r.fail(errShort)
		return 0
	}
	r.b = r.b[n:]
	return uint32(v)
}

// present reads whether a nullable struct follows.
func (r *reader) present() bool { return r.int8() >= 0 && r.err == nil }

// presentTagged is present for a tagged field.
func (r *reader) presentTagged() bool { return r.uvarint() > 0 && r.err == nil }

// tags calls one with the tag of each tagged field. What one leaves of the field's bytes is an
// error, unless it takes none: then the field is not known to this version and passed over.
func (r *reader) tags(one func(tag uint32)) {
	if !r.flexible {
		return
	}
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		tag, size := r.uvarint(), r.uvarint()
		field := r.take(int(size))
		if r.err != nil {
			return
		}
		rest := r.b
		r.b = field
		one(tag)
		if r.err == nil && len(r.b) > 0 && len(r.b) < len(field) {
			r.fail(fmt.Errorf("its tagged field %d is %d bytes too long", tag, len(r.b)))
		}
		if r.err == nil {
			r.b = rest
		}
	}
}

func (r *reader) skipTags() { r.tags(func(uint32) {}) }

// grow is the number of elements an array is made for before any was read: a length that lies
// costs no more than that, however long it says the array is.
const grow = 16

func readArray[T any](r *reader, nullable bool, one func(*reader) T) []T {
	n := r.length()
	if n < 0 && nullable {
		return nil
	}
	if n = r.notNull(n); n == 0 && (!nullable || r.err != nil) {
		return nil
	}
	s := make([]T, 0, min(n, grow))
	for ; n > 0 && r.err == nil; n-- {
		s = append(s, one(r))
	}
	return s
}

func readStructs[T any, P structPointer[T]](r *reader, nullable bool, v int16) []T {
	return readArray(r, nullable, func(r *reader) (t T) {
		P(&t).decode(r, v)
		return t
	})
}
