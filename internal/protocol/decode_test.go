package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestDecodeRoundTrip: what kmsg encodes, with a value in every field, passes the
// walk along Apache's schema and decodes to the same bytes, at every version.
func TestDecodeRoundTrip(t *testing.T) {
	eachVersion(func(a *API, req kmsg.Request) {
		for seed := range uint64(3) {
			newFiller(seed, 3).fill(req)
			Gate(req)
			body := req.AppendTo(nil)
			h := RequestHeader{Key: a.Key, Version: req.GetVersion()}
			got, err := Decode(h, body)
			if err != nil {
				t.Errorf("%s v%d: %v", a.Name, h.Version, err)
				return
			}
			if again := got.AppendTo(nil); !bytes.Equal(body, again) {
				t.Errorf("%s v%d: decoded and encoded again gives %x, want %x", a.Name, h.Version, again, body)
			}
			if got.GetVersion() != h.Version {
				t.Errorf("%s v%d: decoded at version %d", a.Name, h.Version, got.GetVersion())
			}
			// The walk ends where the message does: one byte less is refused.
			if _, err := Decode(h, body[:max(0, len(body)-1)]); len(body) > 0 && !errors.Is(err, ErrTruncated) {
				t.Errorf("%s v%d without its last byte: %v, want ErrTruncated", a.Name, h.Version, err)
			}
			if _, err := Decode(h, append(body, make([]byte, 100)...)); err != nil {
				t.Errorf("%s v%d with 100 bytes behind it: %v, want it accepted", a.Name, h.Version, err)
			}
		}
	})
}

// allocated returns the bytes that do allocates: the least of three runs, for the
// runtime allocates on its own account now and then.
func allocated(do func()) int64 {
	least := int64(math.MaxInt64)
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		least = min(least, int64(after.TotalAlloc-before.TotalAlloc))
	}
	return least
}

// slack is what a decoding may allocate beyond its cost: the allocator's size
// classes waste up to a quarter, and there are fixed expenses.
func slack(cost int64) int64 { return cost/4 + 4096 }

// TestCostCoversDecoding holds the estimate against what the decoder allocates,
// for large requests of every API.
func TestCostCoversDecoding(t *testing.T) {
	eachVersion(func(a *API, req kmsg.Request) {
		newFiller(1, 12).fill(req)
		Gate(req)
		h := RequestHeader{Key: a.Key, Version: req.GetVersion()}
		checkCost(t, h, req.AppendTo(nil))
	})
}

func checkCost(t *testing.T, h RequestHeader, body []byte) {
	t.Helper()
	cost, err := Cost(h, body)
	if err != nil {
		t.Fatalf("%s v%d: %v", apiName(h.Key), h.Version, err)
	}
	got := allocated(func() {
		if _, err := Decode(h, body); err != nil {
			t.Fatalf("%s v%d: %v", apiName(h.Key), h.Version, err)
		}
	})
	if got > raceFactor*(cost+slack(cost)) {
		t.Errorf("%s v%d of %d bytes: decoding allocated %d bytes, Cost said %d", apiName(h.Key), h.Version, len(body), got, cost)
	}
}

// TestCostOfBloat: the messages that swell most when decoded are charged for it.
func TestCostOfBloat(t *testing.T) {
	const n = 10_000
	emptyTopics := binary.AppendUvarint(make([]byte, 2+4+1), n+1) // Produce: transactional id "", acks, timeout
	emptyTopics[0] = 1
	for range n {
		emptyTopics = append(emptyTopics, 1, 1, 0) // name "", no partitions, no tags
	}
	emptyTopics = append(emptyTopics, 0)
	tags := []byte{1, 1} // ApiVersions: two empty strings
	tags = binary.AppendUvarint(tags, n)
	for i := range n {
		tags = append(binary.AppendUvarint(tags, uint64(i)), 0)
	}
	taggedTopics := binary.AppendUvarint(nil, n+1) // Metadata
	for range n {
		taggedTopics = append(taggedTopics, 1, 1, 9, 0) // name "", one unknown tag, empty
	}
	taggedTopics = append(taggedTopics, 0, 0, 0, 0)
	for _, c := range []struct {
		name string
		h    RequestHeader
		body []byte
	}{
		{"topics with an unknown tagged field each", RequestHeader{Key: 3, Version: 9}, taggedTopics},
		{"topics without names", RequestHeader{Key: 0, Version: 9}, emptyTopics},
		{"unknown tagged fields", RequestHeader{Key: 18, Version: 3}, tags},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkCost(t, c.h, c.body)
			if cost, _ := Cost(c.h, c.body); cost < int64(10*len(c.body)) {
				t.Errorf("Cost = %d for %d bytes, want at least 10 times as much", cost, len(c.body))
			}
		})
	}
}

// TestDecodeRefuses has the rows of bad input that Apache 4.4.0 closes the
// connection for.
func TestDecodeRefuses(t *testing.T) {
	be32 := func(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	cat := func(parts ...any) []byte {
		var b []byte
		for _, p := range parts {
			switch p := p.(type) {
			case []byte:
				b = append(b, p...)
			case int:
				b = append(b, byte(p))
			case string:
				b = append(b, p...)
			}
		}
		return b
	}
	for _, c := range []struct {
		name         string
		key, version int16
		body         []byte
		want         error
	}{
		{"array of 2^30", 3, 1, be32(1 << 30), ErrTruncated},
		{"array of 2^31-1", 3, 0, be32(1<<31 - 1), ErrTruncated},
		{"array of -2", 3, 1, be32(-2), errLength},
		{"null array, not nullable", 3, 0, be32(-1), errNull},
		{"null array, not nullable, flexible", 20, 6, cat(0, be32(0), 0), errNull},
		{"compact array of 2^30", 3, 9, cat(0x81, 0x80, 0x80, 0x80, 0x04), ErrTruncated},
		{"null string, not nullable", 3, 1, cat(be32(1), 0xff, 0xff), errNull},
		{"null compact string, not nullable", 3, 9, cat(2, 0, 0), errNull},
		{"string of 32767 bytes, truncated", 3, 1, cat(be32(1), 0x7f, 0xff, strings.Repeat("x", 100)), ErrTruncated},
		{"compact string of 32768 bytes", 3, 9, cat(2, 0x81, 0x80, 0x02, strings.Repeat("x", 40000)), errString},
		{"varint of 6 bytes", 3, 9, cat(0x80, 0x80, 0x80, 0x80, 0x80, 0x01), errVarint},
		{"varint over 32 bits", 3, 9, cat(0xff, 0xff, 0xff, 0xff, 0x7f), errVarint},
		{"tagged field of a later version (v18's at v17)", 1, 17, fetchWithHighWatermark(17), errTag},
		{"tagged field longer than its content", 1, 18, fetchTag(18, cat(1, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0)), errTag},
		{"tagged field shorter than its content", 1, 18, fetchTag(18, cat(1, 7, 0, 0, 0, 0, 0, 0, 1)), ErrTruncated},
		{"empty body", 0, 9, nil, ErrTruncated},
		{"records longer than the frame", 0, 3, cat(0xff, 0xff, 0, 1, be32(1000), be32(1), 0, 1, "t", be32(1), be32(0), be32(1<<30)), ErrTruncated},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			got := allocated(func() { _, err = Decode(RequestHeader{Key: c.key, Version: c.version}, c.body) })
			if !errors.Is(err, c.want) {
				t.Errorf("Decode: %v, want %v", err, c.want)
			}
			if limit := int64(4*len(c.body) + 4096); got > limit {
				t.Errorf("allocated %d bytes for a body of %d, want at most %d", got, len(c.body), limit)
			}
		})
	}
}

// fetchTag is a Fetch of one partition whose tagged fields are these bytes, one in
// number.
func fetchTag(version int16, tag []byte) []byte {
	req := kmsg.NewPtrFetchRequest()
	req.Version = version
	topic := kmsg.NewFetchRequestTopic()
	topic.Partitions = []kmsg.FetchRequestTopicPartition{kmsg.NewFetchRequestTopicPartition()}
	req.Topics = []kmsg.FetchRequestTopic{topic}
	body := req.AppendTo(nil)
	// Behind the partition's tags: the topic's, no forgotten topics, no rack, the request's.
	const behind = 4
	at := len(body) - behind - 1
	out := append(bytes.Clone(body[:at]), 1)
	out = append(out, tag...)
	return append(out, body[at+1:]...)
}

func fetchWithHighWatermark(version int16) []byte {
	return fetchTag(version, []byte{1, 8, 0, 0, 0, 0, 0, 0, 0, 1})
}

// TestDecodeAccepts: what looks odd and is fine.
func TestDecodeAccepts(t *testing.T) {
	req, err := Decode(RequestHeader{Key: 3, Version: 1}, []byte{0xff, 0xff, 0xff, 0xff})
	if err != nil || req.(*kmsg.MetadataRequest).Topics != nil {
		t.Errorf("Metadata v1 of all topics: %v, %v; want nil topics", req, err)
	}
	req, err = Decode(RequestHeader{Key: 1, Version: 18}, fetchWithHighWatermark(18))
	if err != nil || req.(*kmsg.FetchRequest).Topics[0].Partitions[0].HighWatermark != 1 {
		t.Errorf("Fetch v18 with a high watermark: %v; want it read", err)
	}
	if _, err = Decode(RequestHeader{Key: 1, Version: 18}, fetchTag(18, []byte{77, 3, 1, 2, 3})); err != nil {
		t.Errorf("an unknown tagged field: %v; want it passed over", err)
	}
	req, err = Decode(RequestHeader{Key: 3, Version: 1}, []byte{0, 0, 0, 1, 0, 2, 0xff, 0xfe})
	if err != nil || *req.(*kmsg.MetadataRequest).Topics[0].Topic != "\xff\xfe" {
		t.Errorf("a topic that is not UTF-8: %v; want it passed on for the handler to refuse", err)
	}
	body := []byte{0xff, 0xff, 0, 1, 0, 0, 3, 0xe8, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}
	req, err = Decode(RequestHeader{Key: 0, Version: 3}, body)
	if err != nil || req.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records != nil {
		t.Errorf("null records: %v; want nil for the handler to answer", err)
	}
}

// TestProduceAliases: record bytes are the frame's own, and a small Produce costs
// few allocations.
func TestProduceAliases(t *testing.T) {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 13, -1
	topic := kmsg.NewProduceRequestTopic()
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = bytes.Repeat([]byte{0xaa}, 1000)
	topic.Partitions = []kmsg.ProduceRequestTopicPartition{p}
	req.Topics = []kmsg.ProduceRequestTopic{topic}
	client := "client"
	frame := AppendRequest(nil, req, 5, &client)[4:]

	last := &client
	allocs := testing.AllocsPerRun(100, func() {
		h, body, err := ParseRequestHeader(frame, last)
		if err != nil || h.ClientID != last {
			t.Fatal(h, err)
		}
		got, err := Decode(h, body)
		if err != nil {
			t.Fatal(err)
		}
		records := got.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records
		if &records[0] != &frame[bytes.IndexByte(frame, 0xaa)] {
			t.Fatal("records were copied")
		}
	})
	if allocs > 3*raceFactor { // the request, its topics, its partitions
		t.Errorf("%v allocations, want at most 3", allocs)
	}
}

func FuzzDecode(f *testing.F) {
	eachVersion(func(a *API, req kmsg.Request) {
		newFiller(7, 2).fill(req)
		Gate(req)
		f.Add(a.Key, req.GetVersion(), req.AppendTo(nil))
	})
	f.Add(int16(3), int16(9), []byte{0x81, 0x80, 0x80, 0x80, 0x04})
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		h := RequestHeader{Key: key, Version: version}
		cost, err := Cost(h, body)
		if limit := int64((tagMapCost+unknownTagCost)*len(body) + requestCost); cost > limit {
			t.Fatalf("Cost = %d for %d bytes, more than %d", cost, len(body), limit)
		}
		req, decodeErr := Decode(h, body)
		if (err == nil) != (decodeErr == nil) {
			t.Fatalf("Cost says %v, Decode says %v", err, decodeErr)
		}
		if err != nil {
			return
		}
		again, err := Decode(h, req.AppendTo(nil))
		if err != nil {
			t.Fatalf("decoded, encoded, and then refused: %v", err)
		}
		if a, b := req.AppendTo(nil), again.AppendTo(nil); !bytes.Equal(a, b) {
			t.Fatalf("encodes to %x, then to %x", a, b)
		}
		ErrorAnswer(req, 1).AppendTo(nil)
	})
}
