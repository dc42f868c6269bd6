package record

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".batch"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// goldenRecords are the records that testdata/Golden.java wrote.
func goldenRecords(name string) []Record {
	repeat := 50000
	if name == "none" {
		repeat = 5
	}
	return []Record{
		{Offset: 0, Timestamp: 1700000000000, Key: []byte("k0"), Value: []byte("value zero")},
		{Offset: 1, Timestamp: 1700000000500, Value: []byte("v1"), Headers: []RecordHeader{{Key: []byte("h"), Value: []byte("x")}, {Key: []byte("nil")}}},
		{Offset: 2, Timestamp: 1700000000250, Key: []byte("k2")},
		{Offset: 3, Timestamp: 1700000000100, Key: []byte{}, Value: []byte(strings.Repeat("abc", repeat))},
	}
}

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// collect copies what Iterate yields.
func collect(t testing.TB, batch []byte) []Record {
	t.Helper()
	var got []Record
	err := Iterate(batch, func(r Record) error {
		r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
		var headers []RecordHeader
		for _, h := range r.Headers {
			headers = append(headers, RecordHeader{Key: bytes.Clone(h.Key), Value: bytes.Clone(h.Value)})
		}
		r.Headers = headers
		got = append(got, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestApacheBatches reads batches that Apache Kafka built.
func TestApacheBatches(t *testing.T) {
	for i, name := range codecs {
		t.Run(name, func(t *testing.T) {
			b := golden(t, name)
			h, err := ParseHeader(b)
			if err != nil {
				t.Fatal(err)
			}
			want := Header{Length: int32(len(b) - 12), LeaderEpoch: -1, Magic: 2, CRC: h.CRC, Attributes: Attributes(i), LastOffsetDelta: 3,
				BaseTimestamp: 1700000000000, MaxTimestamp: 1700000000500, ProducerID: 4242, ProducerEpoch: 7, BaseSequence: 100, Count: 4}
			if diff := cmp.Diff(want, h); diff != "" {
				t.Fatal(diff)
			}
			if h.LastSequence() != 103 || h.NextOffset() != 4 || h.Size() != len(b) {
				t.Fatalf("last sequence %d, next offset %d, size %d", h.LastSequence(), h.NextOffset(), h.Size())
			}
			if err := CheckCRC(b); err != nil {
				t.Fatal(err)
			}
			if got := collect(t, b); !reflect.DeepEqual(got, goldenRecords(name)) {
				t.Fatal("the records are not those that were written")
			}
			v, err := produce().Validate(bytes.Clone(b))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(v.Batch, b) || v.MaxTimestampDelta != 1 {
				t.Fatalf("batch changed or record %d, not 1, has the maximum timestamp", v.MaxTimestampDelta)
			}
		})
	}
}

// TestBuilderEqualsApache builds the same batch and the same marker, byte for byte.
func TestBuilderEqualsApache(t *testing.T) {
	b := NewBuilder([]byte("before"), BatchOptions{LeaderEpoch: -1, Producer: &ProducerState{ID: 4242, Epoch: 7, BaseSequence: 100}})
	for _, r := range goldenRecords("none") {
		b.Append(r)
	}
	if got := b.Bytes(); !bytes.Equal(got, append([]byte("before"), golden(t, "none")...)) {
		t.Errorf("got  %x\nwant %x", got, golden(t, "none"))
	}
	marker := AppendEndTxnBatch(nil, 4242, 8, EndTxnMarker{Commit: true, CoordinatorEpoch: 3}, 1700000000000)
	if !bytes.Equal(marker, golden(t, "commit")) {
		t.Errorf("got  %x\nwant %x", marker, golden(t, "commit"))
	}
	m, ok, err := ParseEndTxnMarker(golden(t, "commit"))
	if want := (EndTxnMarker{Commit: true, CoordinatorEpoch: 3}); m != want || !ok || err != nil {
		t.Errorf("ParseEndTxnMarker = %v %v %v, want %v", m, ok, err, want)
	}
}

func TestBuilderCodecs(t *testing.T) {
	for i, name := range codecs {
		t.Run(name, func(t *testing.T) {
			for _, level := range []int{0, 1, 9, 17, 22, -5} {
				b := NewBuilder(nil, BatchOptions{Compression: Compression{Codec: Codec(i), Level: level}, BaseOffset: 40})
				for _, r := range goldenRecords(name) {
					b.Append(r)
				}
				batch := b.Bytes()
				if err := CheckCRC(batch); err != nil {
					t.Fatal(err)
				}
				want := goldenRecords(name)
				for i := range want {
					want[i].Offset += 40
				}
				if got := collect(t, batch); !reflect.DeepEqual(got, want) {
					t.Fatal("the records are not those that were written")
				}
			}
		})
	}
}

// The framing of snappy-java, integers big endian: a header with versions 1 and 1, then chunks.
func TestSnappyFraming(t *testing.T) {
	b := NewBuilder(nil, BatchOptions{Compression: Compression{Codec: Snappy}})
	b.Append(Record{Value: []byte("a")})
	got := b.Bytes()[HeaderSize:]
	want := append([]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 10},
		8, 7<<2, 14, 0, 0, 0, 1, 2, 'a', 0)
	if !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

func TestSetMaxTimestamp(t *testing.T) {
	b := golden(t, "none")
	SetMaxTimestamp(b, LogAppendTime, 1800000000000)
	SetBaseOffset(b, 77)
	SetLeaderEpoch(b, 5)
	if err := CheckCRC(b); err != nil {
		t.Fatal(err)
	}
	for i, r := range collect(t, b) {
		if r.Timestamp != 1800000000000 || r.Offset != 77+int64(i) {
			t.Errorf("record %d: offset %d, timestamp %d", i, r.Offset, r.Timestamp)
		}
	}
	SetMaxTimestamp(b, CreateTime, 1700000000500)
	SetBaseOffset(b, 0)
	SetLeaderEpoch(b, -1)
	if !bytes.Equal(b, golden(t, "none")) {
		t.Error("stamping back does not give the batch as it was")
	}
}

func TestLastSequenceWraps(t *testing.T) {
	h := Header{BaseSequence: 1<<31 - 1, LastOffsetDelta: 3}
	if got := h.LastSequence(); got != 2 {
		t.Errorf("last sequence %d, want 2", got)
	}
}
