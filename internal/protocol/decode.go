package protocol

import (
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cost walks over a request's body and returns how many bytes [Decode] will
// allocate for it, an upper estimate: structs, strings and unknown tagged fields,
// but not byte fields (records among them), which alias the body. It allocates
// nothing itself, and fails where Decode fails.
func Cost(h RequestHeader, body []byte) (int64, error) {
	s := schemaFor(h.Key)
	if s == nil {
		return 0, &UnsupportedError{h.Key, h.Version}
	}
	if a, ok := Lookup(h.Key); !ok || !a.Supports(h.Version) {
		return 0, &UnsupportedError{h.Key, h.Version}
	}
	w := walker{rest: body, cost: requestCost}
	w.fields(s.fields, h.Version, s.flexible.has(h.Version))
	if w.err != nil {
		return 0, fmt.Errorf("%s request, version %d, %d bytes: %w", apiName(h.Key), h.Version, len(body), w.err)
	}
	return w.cost, nil
}

// requestCost is an upper bound on the size of a request's outermost struct.
const requestCost = 256

// Decode turns a body into a request. Byte fields (records among them) alias
// body, strings do not.
//
// It accepts what Apache Kafka accepts: unknown tagged fields, bytes behind the
// message, invalid UTF-8. It refuses what Apache refuses: null in a field that the
// schema does not make nullable at this version, a truncated message, an array
// longer than the bytes left, a string over 32,767 bytes, a varint over 32 bits, a
// tagged field of a later version; and, stricter than Apache, a length below -1
// and a tagged field whose size is not its own. The body is checked as a whole
// before anything is built from it, so that an absurd length costs nothing.
func Decode(h RequestHeader, body []byte) (kmsg.Request, error) {
	if _, err := Cost(h, body); err != nil {
		return nil, err
	}
	req := newRequest(h.Key)
	req.SetVersion(h.Version)
	if err := req.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%s request, version %d, %d bytes: %w", apiName(h.Key), h.Version, len(body), err)
	}
	return req, nil
}

// newRequest returns an empty request for a key of the table.
func newRequest(key int16) kmsg.Request {
	switch key {
	case RaftMessageKey:
		return &RaftMessageRequest{}
	case DescribeLagKey:
		return &DescribeLagRequest{}
	case int16(kmsg.Produce):
		return produceRequests.Get().(*kmsg.ProduceRequest)
	}
	return kmsg.RequestForKey(key)
}

// produceRequests keeps the structs of the most frequent request, each as a new one but for the room in Topics.
var produceRequests = sync.Pool{New: func() any { return kmsg.NewPtrProduceRequest() }}

// Recycle takes back a request that [Decode] returned, and of which nobody uses any part any more. It may be nil.
func Recycle(req kmsg.Request) {
	if p, ok := req.(*kmsg.ProduceRequest); ok {
		clear(p.Topics)
		*p = kmsg.ProduceRequest{Topics: p.Topics[:0]}
		produceRequests.Put(p)
	}
}

func schemaFor(key int16) *schema {
	switch key {
	case RaftMessageKey:
		return &raftMessageSchema
	case DescribeLagKey:
		return &describeLagSchema
	}
	if key < 0 || int(key) >= len(requestSchemas) {
		return nil
	}
	return requestSchemas[key]
}

// apiName returns the table's name of a key, for messages to people.
func apiName(key int16) string {
	if a, ok := Lookup(key); ok {
		return a.Name
	}
	return fmt.Sprintf("API %d", key)
}
