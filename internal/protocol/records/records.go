// Package records holds the records Kafka writes into its own topics and files, as Go structs
// generated from Kafka's schemas: the cluster metadata log, KRaft's control records, group,
// transaction and share coordinators, producer snapshots, and the principal in an Envelope.
// Everything that reads or writes such bytes comes through here; the bytes are Apache Kafka's.
//
// Names are Kafka's, with Go's capitals in fields (TopicID, ISR, LastKnownELR). A nil slice or pointer is null
// where a field may be null, and empty elsewhere. Where a default is not Go's zero value there is a
// constructor, NewPartitionChangeRecord say, and it must be used: a field left at zero would be sent.
// Decoded messages share no memory with the bytes they come from.
package records

//go:generate go run ./gen

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
)

// A Message is one of the generated structs, by pointer.
type Message interface {
	// APIKey returns the number that tells a message from the others of its group, -1 if the
	// group has none (control records, producer snapshots, principals).
	APIKey() int16
	// Versions returns the versions that the schema has, both inclusive.
	Versions() (lowest, highest int16)

	flexible(v int16) bool
	encode(w *writer, v int16)
	decode(r *reader, v int16)
}

// Append appends a message alone, without any frame: the value of a control record, a producer
// snapshot. Fields that the version lacks are left out. The version must be one of the message's.
func Append(dst []byte, m Message, version int16) []byte {
	if err := checkVersion(m, version); err != nil {
		panic(err.Error())
	}
	w := writers.Get().(*writer)
	w.b, w.flexible = dst, m.flexible(version)
	m.encode(w, version)
	dst, w.b = w.b, nil
	writers.Put(w)
	return dst
}

// writers are kept, as one that is handed to an interface is on the heap.
var writers = sync.Pool{New: func() any { return new(writer) }}

// Decode reads a message alone, and all of b, into m. Tagged fields that are not known are passed over; on
// an error m is in no useful state.
func Decode(b []byte, m Message, version int16) error {
	if err := checkVersion(m, version); err != nil {
		return err
	}
	r := reader{b: b, flexible: m.flexible(version)}
	m.decode(&r, version)
	if r.err == nil && len(r.b) > 0 {
		r.err = fmt.Errorf("%d bytes follow it", len(r.b))
	}
	if r.err != nil {
		return &MalformedError{Message: m, Version: version, Err: r.err}
	}
	return nil
}

// A MalformedError reports bytes that are not the message they should be.
type MalformedError struct {
	Message Message // its type only
	Version int16
	Err     error
}

// Error implements error.
func (e *MalformedError) Error() string {
	return fmt.Sprintf("%s version %d is malformed: %v", name(e.Message), e.Version, e.Err)
}

// Unwrap returns what is wrong with the bytes.
func (e *MalformedError) Unwrap() error { return e.Err }

// An UnknownError reports a record of a kind or a version that this release does not know: a newer
// release wrote it.
type UnknownError struct {
	Key     int16
	Version int16   // -1 if the kind is unknown
	Message Message // nil if the kind is unknown
}

// Error implements error.
func (e *UnknownError) Error() string {
	if e.Message == nil {
		return fmt.Sprintf("record of kind %d is unknown: a newer release wrote it, which this node cannot follow", e.Key)
	}
	lowest, highest := e.Message.Versions()
	return fmt.Sprintf("%s version %d is unknown (%d to %d are known): another release wrote it, which this node cannot follow",
		name(e.Message), e.Version, lowest, highest)
}

func name(m Message) string { return fmt.Sprintf("%T", m)[len("*records."):] }

func checkVersion(m Message, version int16) error {
	if lowest, highest := m.Versions(); version < lowest || version > highest {
		return &UnknownError{Key: m.APIKey(), Version: version, Message: m}
	}
	return nil
}

// metadataFrame is the version of the frame around metadata records
// (AbstractApiMessageSerde.DEFAULT_FRAME_VERSION).
const metadataFrame = 1

// AppendMetadata appends a metadata record as it stands in the value of a record of the metadata log
// or a snapshot: frame version, API key and version as uvarints, then the message. The version must be one of
// the message's; [MetadataRecordVersion] says which.
func AppendMetadata(dst []byte, m Message, version int16) []byte {
	dst = binary.AppendUvarint(dst, metadataFrame)
	dst = binary.AppendUvarint(dst, uint64(m.APIKey()))
	dst = binary.AppendUvarint(dst, uint64(version))
	return Append(dst, m, version)
}

// DecodeMetadata reads what AppendMetadata writes, all of b. A kind or a version that is not known is an
// *UnknownError, anything else that is wrong wraps a *MalformedError or says what it is.
func DecodeMetadata(b []byte) (m Message, version int16, err error) {
	var head [3]int16
	for i := range head {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > 1<<15-1 {
			return nil, 0, errors.New("metadata record has no whole frame: it is cut off or no metadata record")
		}
		head[i], b = int16(v), b[n:]
	}
	frame, key, version := head[0], head[1], head[2]
	if frame != metadataFrame {
		return nil, 0, fmt.Errorf("metadata record has frame version %d, and only %d is known", frame, metadataFrame)
	}
	if m = newMetadata(key); m == nil {
		return nil, 0, &UnknownError{Key: key, Version: -1}
	}
	if err := Decode(b, m, version); err != nil {
		return nil, 0, err
	}
	return m, version, nil
}

// AppendKey appends the key of a coordinator's record: its kind as an int16, then the message. All keys
// have one version, 0.
func AppendKey(dst []byte, key Message) []byte {
	return Append(binary.BigEndian.AppendUint16(dst, uint16(key.APIKey())), key, 0)
}

// AppendValue appends the value of a coordinator's record: its version as an int16, then the message.
func AppendValue(dst []byte, value Message, version int16) []byte {
	return Append(binary.BigEndian.AppendUint16(dst, uint16(version)), value, version)
}

// DecodeGroup reads a record of __consumer_offsets. A nil value, a tombstone, gives a nil
// Message. A key of an unknown kind is an *UnknownError; Kafka passes such a record over.
func DecodeGroup(key, value []byte) (k, v Message, err error) {
	return decodeRecord(key, value, newGroupKey, newGroupValue)
}

// DecodeTransaction reads a record of __transaction_state; see [DecodeGroup].
func DecodeTransaction(key, value []byte) (k, v Message, err error) {
	return decodeRecord(key, value, newTransactionKey, newTransactionValue)
}

// DecodeShare reads a record of __share_group_state; see [DecodeGroup].
func DecodeShare(key, value []byte) (k, v Message, err error) {
	return decodeRecord(key, value, newShareKey, newShareValue)
}

func decodeRecord(key, value []byte, newKey, newValue func(int16) Message) (k, v Message, err error) {
	if len(key) < 2 {
		return nil, nil, errors.New("a coordinator's record has a key without kind: it is cut off or null")
	}
	kind := int16(binary.BigEndian.Uint16(key))
	if k = newKey(kind); k == nil {
		return nil, nil, &UnknownError{Key: kind, Version: -1}
	}
	if err := Decode(key[2:], k, 0); err != nil {
		return nil, nil, err
	}
	if value == nil {
		return k, nil, nil
	}
	v = newValue(kind)
	if len(value) < 2 {
		return nil, nil, fmt.Errorf("the value that belongs to a %s has no version: it is cut off", name(k))
	}
	if err := Decode(value[2:], v, int16(binary.BigEndian.Uint16(value))); err != nil {
		return nil, nil, err
	}
	return k, v, nil
}
