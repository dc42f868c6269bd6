package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A RequestHeader is what stands before a request's body (RequestHeader.json,
// versions 1 and 2).
type RequestHeader struct {
	Key, Version  int16
	CorrelationID int32
	// ClientID is nil when the client sent null. It does not alias the frame.
	ClientID *string
}

// Flexible reports whether the request of this header, and so its answer, is in
// the flexible encoding (KIP-482). Only meaningful for keys of the table.
func (h RequestHeader) Flexible() bool {
	s := schemaFor(h.Key)
	return s != nil && s.flexible.has(h.Version)
}

// ErrTruncated says that a frame ends before its message does.
var ErrTruncated = errors.New("the frame ends before its message does")

// An UnsupportedError is a request that no listener of a Kafka 4.4 broker
// serves. Its connection is closed, as Apache does.
type UnsupportedError struct {
	Key, Version int16
}

func (e *UnsupportedError) Error() string {
	if a, ok := Lookup(e.Key); ok {
		return fmt.Sprintf("%s version %d is not supported, only %d to %d", a.Name, e.Version, a.Min, a.Max)
	}
	return fmt.Sprintf("API key %d is unknown", e.Key)
}

// ParseRequestHeader splits a frame, without its size, into header and body.
// Body aliases frame. A client id equal to *lastClientID (nil for none) reuses
// that pointer: a connection that hands in its last one parses headers without
// allocating.
//
// With an *UnsupportedError h holds all but the client id, for the log. ApiVersions passes at every version, negative ones
// included: ask [API.Supports], and answer [UnsupportedApiVersions] if it says no.
func ParseRequestHeader(frame []byte, lastClientID *string) (h RequestHeader, body []byte, err error) {
	const fixed = 8
	if len(frame) < fixed {
		return h, nil, fmt.Errorf("request header of %d bytes: %w", len(frame), ErrTruncated)
	}
	h.Key = int16(binary.BigEndian.Uint16(frame))
	h.Version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.CorrelationID = int32(binary.BigEndian.Uint32(frame[4:]))
	if a, ok := Lookup(h.Key); !ok || h.Key != apiVersionsKey && !a.Supports(h.Version) {
		return h, nil, &UnsupportedError{h.Key, h.Version}
	}

	w := walker{rest: frame[fixed:]}
	id, err := w.span(int(int16(w.uint16())), true)
	if err != nil {
		return h, nil, fmt.Errorf("client id: %w", err)
	}
	h.ClientID = clientID(id, lastClientID)
	if h.Flexible() {
		if err := w.tags(nil, h.Version); err != nil {
			return h, nil, fmt.Errorf("request header: %w", err)
		}
	}
	return h, w.rest, w.err
}

func clientID(id []byte, last *string) *string {
	if id == nil {
		return nil
	}
	if last != nil && *last == string(id) {
		return last
	}
	s := string(id)
	return &s
}

// AppendRequestHeader appends the header of req. A nil clientID is sent as null.
func AppendRequestHeader(dst []byte, req kmsg.Request, correlationID int32, clientID *string) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.Key()))
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.GetVersion()))
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if clientID == nil {
		dst = append(dst, 0xff, 0xff)
	} else {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(*clientID)))
		dst = append(dst, *clientID...)
	}
	if req.IsFlexible() {
		dst = append(dst, 0) // no tagged fields
	}
	return dst
}

// AppendResponseHeader appends the header of a response to an API key. An
// ApiVersions answer has header version 0 even when its body is flexible, for the
// client does not yet know what we speak (KIP-511).
func AppendResponseHeader(dst []byte, key int16, flexible bool, correlationID int32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if flexible && key != apiVersionsKey {
		dst = append(dst, 0) // no tagged fields
	}
	return dst
}

// AppendRequest appends a whole request frame, size included, and gates req.
func AppendRequest(dst []byte, req kmsg.Request, correlationID int32, clientID *string) []byte {
	Gate(req)
	start := len(dst)
	dst = AppendRequestHeader(append(dst, 0, 0, 0, 0), req, correlationID, clientID)
	return putSize(req.AppendTo(dst), start)
}

// AppendResponse appends a whole response frame, size included, and gates resp.
func AppendResponse(dst []byte, resp kmsg.Response, correlationID int32) []byte {
	Gate(resp)
	start := len(dst)
	dst = AppendResponseHeader(append(dst, 0, 0, 0, 0), resp.Key(), resp.IsFlexible(), correlationID)
	return putSize(resp.AppendTo(dst), start)
}

// putSize writes the size of the frame that begins at start into its first four
// bytes, which that size does not count.
func putSize(frame []byte, start int) []byte {
	binary.BigEndian.PutUint32(frame[start:], uint32(len(frame)-start-4))
	return frame
}

// ParseResponse decodes a response frame, without its size, into the answer that
// req expects, and returns its correlation id. Byte fields alias frame; strings do
// not. It trusts the sender no further than to bound allocation by a small
// multiple of the frame's length.
func ParseResponse(frame []byte, req kmsg.Request) (correlationID int32, resp kmsg.Response, err error) {
	if len(frame) < 4 {
		return 0, nil, fmt.Errorf("response header of %d bytes: %w", len(frame), ErrTruncated)
	}
	correlationID = int32(binary.BigEndian.Uint32(frame))
	w := walker{rest: frame[4:]}
	resp = req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != apiVersionsKey {
		if err := w.tags(nil, resp.GetVersion()); err != nil {
			return correlationID, nil, fmt.Errorf("response header: %w", err)
		}
	}
	if err := resp.ReadFrom(w.rest); err != nil {
		return correlationID, nil, fmt.Errorf("%s answer, version %d, of %d bytes: %w", apiName(req.Key()), req.GetVersion(), len(w.rest), err)
	}
	return correlationID, resp, nil
}
