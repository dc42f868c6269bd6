package protocol

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func fromHex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseRequestHeader(t *testing.T) {
	id := "go"
	for _, c := range []struct {
		name, frame string
		want        RequestHeader
		body        string
	}{
		{"Metadata v1, header v1", "0003 0001 00000007 0002676f ffffffff", RequestHeader{3, 1, 7, &id}, "ffffffff"},
		{"Metadata v9, header v2", "0003 0009 00000007 0002676f 00 00", RequestHeader{3, 9, 7, &id}, "00"},
		{"no client id", "0003 0001 00000007 ffff ffffffff", RequestHeader{3, 1, 7, nil}, "ffffffff"},
		{"unknown tagged field", "0003 0009 00000007 ffff 01 05 02 abcd 00", RequestHeader{3, 9, 7, nil}, "00"},
		{"ApiVersions v99", "0012 0063 00000001 ffff 00 0101", RequestHeader{18, 99, 1, nil}, "0101"},
		{"ApiVersions v-1", "0012 ffff 00000001 ffff", RequestHeader{18, -1, 1, nil}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			frame := fromHex(t, string(bytes.ReplaceAll([]byte(c.frame), []byte(" "), nil)))
			h, body, err := ParseRequestHeader(frame, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, h); diff != "" {
				t.Error(diff)
			}
			if got := hex.EncodeToString(body); got != c.body {
				t.Errorf("body %s, want %s", got, c.body)
			}
		})
	}
}

func TestParseRequestHeaderRefuses(t *testing.T) {
	for _, c := range []struct {
		name, frame string
		unsupported bool
		want        error
	}{
		{"empty", "", false, ErrTruncated},
		{"seven bytes", "00030001000000", false, ErrTruncated},
		{"no client id length", "0003000100000007", false, ErrTruncated},
		{"client id past the end", "00030001000000077fff61", false, ErrTruncated},
		{"client id of length -2", "0003000100000007fffe", false, errLength},
		{"tags past the end", "0003000900000007ffff7f", false, ErrTruncated},
		{"API 9999", "270f000000000001ffff", true, nil},
		{"API -1", "ffff000000000001ffff", true, nil},
		{"Metadata v99", "0003006300000001ffff", true, nil},
		{"Metadata v-1", "0003ffff00000001ffff", true, nil},
		{"Produce v2", "0000000200000001ffff", true, nil},
		{"LeaderAndIsr", "0004000000000001ffff", true, nil},
		{"256 zero bytes", hex.EncodeToString(make([]byte, 256)), true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := ParseRequestHeader(fromHex(t, c.frame), nil)
			if c.unsupported {
				if _, ok := errors.AsType[*UnsupportedError](err); !ok {
					t.Errorf("%v, want an UnsupportedError", err)
				}
				return
			}
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// TestRequestFrames: our frames are those of kmsg's client, and come back whole.
func TestRequestFrames(t *testing.T) {
	id := "ottla-test"
	eachVersion(func(a *API, req kmsg.Request) {
		newFiller(3, 2).fill(req)
		got := AppendRequest(nil, req, 77, &id)
		if want := kmsg.NewRequestFormatter(kmsg.FormatterClientID(id)).AppendRequest(nil, req, 77); !bytes.Equal(got, want) {
			t.Errorf("%s v%d: frame %x, kmsg's %x", a.Name, req.GetVersion(), got, want)
		}
		h, body, err := ParseRequestHeader(got[4:], nil)
		if err != nil || h.Key != a.Key || h.Version != req.GetVersion() || h.CorrelationID != 77 || *h.ClientID != id {
			t.Errorf("%s v%d: header %+v, %v", a.Name, req.GetVersion(), h, err)
		}
		if !bytes.Equal(body, req.AppendTo(nil)) {
			t.Errorf("%s v%d: body %x", a.Name, req.GetVersion(), body)
		}
	})
}

func TestResponseFrames(t *testing.T) {
	eachVersion(func(a *API, req kmsg.Request) {
		resp := req.ResponseKind()
		newFiller(4, 2).fill(resp)
		frame := AppendResponse([]byte("before"), resp, -5)[len("before"):]
		if size := int(frame[2])<<8 | int(frame[3]); frame[0] == 0 && frame[1] == 0 && size != len(frame)-4 {
			t.Errorf("%s v%d: size %d before %d bytes", a.Name, req.GetVersion(), size, len(frame)-4)
		}
		id, got, err := ParseResponse(frame[4:], req)
		if err != nil || id != -5 {
			t.Errorf("%s v%d: %d, %v", a.Name, req.GetVersion(), id, err)
			return
		}
		if !bytes.Equal(got.AppendTo(nil), resp.AppendTo(nil)) {
			t.Errorf("%s v%d: decoded and encoded again, it differs", a.Name, req.GetVersion())
		}
	})
}

// TestApiVersionsHeader: header version 0, without tagged fields, also when the
// body is flexible (KIP-511).
func TestApiVersionsHeader(t *testing.T) {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = 4
	// size, correlation id, error 0, no keys, throttle 0, no tags
	want := fromHex(t, "0000000c"+"00000009"+"0000"+"01"+"00000000"+"00")
	if got := AppendResponse(nil, resp, 9); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// TestUnsupportedApiVersions has the bytes with which Apache 4.4.0 answers
// ApiVersions v99: error 35 and the one range 18: 0-5, in a version 0 body.
func TestUnsupportedApiVersions(t *testing.T) {
	want := fromHex(t, "00000010"+"00000001"+"0023"+"00000001"+"001200000005")
	if got := AppendResponse(nil, UnsupportedApiVersions(), 1); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// TestGate: a tagged field of version 18 does not leave at 17, and does at 18.
func TestGate(t *testing.T) {
	for _, c := range []struct {
		version       int16
		hw            int64
		dir, replicas bool
	}{{18, 5, true, true}, {17, 1<<63 - 1, true, true}, {16, 1<<63 - 1, false, true}, {14, 1<<63 - 1, false, false}} {
		req := kmsg.NewPtrFetchRequest()
		req.Version = c.version
		req.ReplicaState.ID, req.ReplicaState.Epoch = 1, 2
		p := kmsg.NewFetchRequestTopicPartition()
		p.HighWatermark, p.ReplicaDirectoryID = 5, [16]byte{1}
		req.Topics = []kmsg.FetchRequestTopic{{Partitions: []kmsg.FetchRequestTopicPartition{p}}}
		Gate(req)
		got := req.Topics[0].Partitions[0]
		if got.HighWatermark != c.hw || (got.ReplicaDirectoryID == [16]byte{1}) != c.dir || (req.ReplicaState.ID == 1) != c.replicas {
			t.Errorf("version %d: %+v, replica %+v", c.version, got, req.ReplicaState)
		}
	}
}

func FuzzParseRequestHeader(f *testing.F) {
	f.Add([]byte{0, 3, 0, 9, 0, 0, 0, 7, 0, 2, 'g', 'o', 0, 0})
	f.Add([]byte{0, 18, 0, 99, 0, 0, 0, 1, 0xff, 0xff, 0})
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, body, err := ParseRequestHeader(frame, nil)
		if err != nil {
			return
		}
		if len(body) > len(frame) {
			t.Fatalf("a body of %d bytes in a frame of %d", len(body), len(frame))
		}
		if again, _, err := ParseRequestHeader(frame, h.ClientID); err != nil || again != h {
			t.Fatalf("%+v, then %+v, %v", h, again, err)
		}
	})
}
