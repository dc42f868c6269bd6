package record

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func seed(f *testing.F) {
	for _, name := range append([]string{"commit"}, codecs...) {
		b := golden(f, name)
		f.Add(b)
		f.Add(b[:len(b)/2])
		f.Add(append(b[:len(b):len(b)], b...))
	}
	f.Add(of(2, rec(1, 0, "a"), rec(0, 0, "b")).bytes())
	f.Add([]byte{})
}

// FuzzParseHeader compares the header with kmsg's reading of it.
func FuzzParseHeader(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			return
		}
		// kmsg wants the whole batch.
		whole := append(bytes.Clone(b), make([]byte, max(0, min(1<<20, h.Size()-len(b))))...)
		if len(whole) < h.Size() {
			return
		}
		k := kmsg.NewRecordBatch()
		if err := k.ReadFrom(whole[:h.Size()]); err != nil {
			t.Fatal(err)
		}
		got := Header{BaseOffset: k.FirstOffset, Length: k.Length, LeaderEpoch: k.PartitionLeaderEpoch, Magic: k.Magic, CRC: uint32(k.CRC),
			Attributes: Attributes(k.Attributes), LastOffsetDelta: k.LastOffsetDelta, BaseTimestamp: k.FirstTimestamp, MaxTimestamp: k.MaxTimestamp,
			ProducerID: k.ProducerID, ProducerEpoch: k.ProducerEpoch, BaseSequence: k.FirstSequence, Count: k.NumRecords}
		if got != h {
			t.Fatalf("kmsg %+v, ours %+v", got, h)
		}
		out := bytes.Clone(b)
		h.put(out)
		if !bytes.Equal(out, b) {
			t.Fatal("put does not give back what ParseHeader read")
		}
	})
}

// FuzzValidate checks that what Validate takes can be read with Iterate, and by kmsg.
func FuzzValidate(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= HeaderSize { // most inputs would otherwise end at the CRC
			h, err := ParseHeader(b)
			if err == nil && h.Size() <= len(b) {
				binary.BigEndian.PutUint32(b[posCRC:], Checksum(b[:h.Size()]))
			}
		}
		in := bytes.Clone(b)
		p := produce()
		p.MaxDecompressedBytes = 1 << 20
		v, err := p.Validate(in)
		if err != nil {
			code(t, err)
			if !bytes.Equal(in, b) {
				t.Fatal("a rejected batch was changed")
			}
			return
		}
		if err := CheckCRC(v.Batch); err != nil {
			t.Fatal(err)
		}
		compare(t, v.Header, v.Batch)
	})
}

// FuzzIterate checks that Iterate reads what kmsg reads, and that what it reads can be built again.
func FuzzIterate(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil || h.Size() > len(b) {
			return
		}
		n := 0
		if Iterate(b, func(Record) error { n++; return nil }) == nil && n != int(max(h.Count, 0)) {
			t.Fatalf("%d records of %d", n, h.Count)
		}
	})
}

// compare reads the valid batch with Iterate and, when it is not compressed, with kmsg.
func compare(t *testing.T, h Header, batch []byte) {
	records := collect(t, batch)
	if len(records) != int(h.Count) {
		t.Fatalf("%d records of %d", len(records), h.Count)
	}
	if h.Attributes.Codec() != None {
		return
	}
	rest := batch[HeaderSize:]
	for i, ours := range records {
		size, n := binary.Varint(rest)
		var k kmsg.Record
		if err := k.ReadFrom(rest[:n+int(size)]); err != nil {
			t.Fatalf("kmsg rejects record %d: %v", i, err)
		}
		rest = rest[n+int(size):]
		if ours.Timestamp != h.BaseTimestamp+k.TimestampDelta64 || ours.Offset != h.BaseOffset+int64(k.OffsetDelta) ||
			!bytes.Equal(ours.Key, k.Key) || !bytes.Equal(ours.Value, k.Value) || (ours.Value == nil) != (k.Value == nil) || len(ours.Headers) != len(k.Headers) {
			t.Fatalf("record %d: kmsg %+v, ours %+v", i, k, ours)
		}
		for j, h := range k.Headers {
			if h.Key != string(ours.Headers[j].Key) || !bytes.Equal(h.Value, ours.Headers[j].Value) {
				t.Fatalf("record %d header %d: kmsg %+v, ours %+v", i, j, h, ours.Headers[j])
			}
		}
	}
}
