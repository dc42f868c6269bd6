package record

import "fmt"

// A CorruptError reports bytes that no correct client or broker can have written.
// Clients see it as CORRUPT_MESSAGE (error code 2).
type CorruptError struct{ Reason string }

func (e *CorruptError) Error() string { return "corrupt record batch: " + e.Reason }

func corrupt(format string, args ...any) error {
	return &CorruptError{Reason: fmt.Sprintf(format, args...)}
}

// A RecordError says what is wrong with one record of a batch.
type RecordError struct {
	Index   int32 // of the record in its batch, from 0
	Message string
}

// An InvalidRecordError reports a batch whose bytes arrived as they were sent but which breaks a rule
// for records. Clients see it as INVALID_RECORD (error code 87).
type InvalidRecordError struct {
	Reason  string
	Records []RecordError // the records at fault, at most maxRecordErrors; nil when the whole batch is
}

func (e *InvalidRecordError) Error() string { return "invalid record batch: " + e.Reason }

func invalid(format string, args ...any) error {
	return &InvalidRecordError{Reason: fmt.Sprintf(format, args...)}
}

// An InvalidTimestampError reports records whose timestamps the topic does not take.
// Clients see it as INVALID_TIMESTAMP (error code 32).
type InvalidTimestampError struct {
	Reason  string
	Records []RecordError // the records at fault, at most maxRecordErrors
}

func (e *InvalidTimestampError) Error() string { return "invalid timestamp: " + e.Reason }

// A TooLargeError reports a batch above max.message.bytes, or one that decompresses to more than
// ottla.produce.max.decompressed.bytes. Clients see it as MESSAGE_TOO_LARGE (error code 10).
type TooLargeError struct {
	Size, Max    int64 // bytes; when decompressing, Size is only known to be above Max
	Decompressed bool
}

func (e *TooLargeError) Error() string {
	if e.Decompressed {
		return fmt.Sprintf("record batch decompresses to more than %d bytes, see ottla.produce.max.decompressed.bytes", e.Max)
	}
	return fmt.Sprintf("record batch of %d bytes is larger than the %d that max.message.bytes allows", e.Size, e.Max)
}

// An UnsupportedCodecError reports a compression codec that is unknown, or unknown to the version
// of the request. Clients see it as UNSUPPORTED_COMPRESSION_TYPE (error code 76).
type UnsupportedCodecError struct{ Codec Codec }

func (e *UnsupportedCodecError) Error() string {
	return fmt.Sprintf("compression codec %s is not supported here", e.Codec)
}
