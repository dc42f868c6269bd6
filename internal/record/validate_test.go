package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const now = 1700000001000

// produce returns Kafka's defaults, with an hour for timestamps in the future.
func produce() *Produce {
	return &Produce{MaxMessageBytes: 1048588, Now: now, BeforeMaxMs: math.MaxInt64, AfterMaxMs: 3600000,
		Compression: Compression{Codec: Producer}, MaxDecompressedBytes: 32 << 20}
}

// A batch is built by kmsg from records that need not be right.
type batch struct {
	kmsg.RecordBatch
}

// of returns an uncompressed batch around raw records.
func of(count int32, raw ...[]byte) *batch {
	b := &batch{kmsg.NewRecordBatch()}
	b.PartitionLeaderEpoch, b.Magic, b.NumRecords, b.LastOffsetDelta = -1, 2, count, count-1
	b.FirstTimestamp, b.MaxTimestamp = now, now
	b.ProducerID, b.ProducerEpoch, b.FirstSequence = -1, -1, -1
	b.Records = bytes.Join(raw, nil)
	return b
}

// bytes encodes the batch with the right length and CRC.
func (b *batch) bytes() []byte {
	b.Length = int32(MinLength + len(b.Records))
	out := b.AppendTo(nil)
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

func rec(offsetDelta int32, timestampDelta int64, value string) []byte {
	return raw(offsetDelta, timestampDelta, []byte("k"), []byte(value))
}

// raw encodes a record with kmsg.
func raw(offsetDelta int32, timestampDelta int64, key, value []byte) []byte {
	r := kmsg.NewRecord()
	r.OffsetDelta, r.TimestampDelta64, r.Key, r.Value = offsetDelta, timestampDelta, key, value
	r.Length = int32(len(r.AppendTo(nil)) - 1)
	return r.AppendTo(nil)
}

// patched returns the bytes of a good batch of two records after f, with the CRC made right again.
func patched(f func([]byte)) []byte {
	b := of(2, rec(0, 0, "a"), rec(1, 1, "b")).bytes()
	f(b)
	binary.BigEndian.PutUint32(b[17:], Checksum(b))
	return b
}

func compressed(codec Codec, body []byte, count int32) []byte {
	b := of(count, body)
	b.Attributes = int16(codec)
	return b.bytes()
}

// TestProduceValidation holds the answers of reliability.md §3, measured at Apache Kafka 4.4.0, and
// where Apache gave UNKNOWN_SERVER_ERROR or accepted what it should not, the ones chosen there.
func TestProduceValidation(t *testing.T) {
	good := of(2, rec(0, 0, "a"), rec(1, 1, "b")).bytes()
	garbage := bytes.Repeat([]byte{0xde, 0xad, 0xbe, 0xef}, 50)
	const (
		none         = 0
		corrupt      = 2
		tooLarge     = 10
		badTimestamp = 32
		badCodec     = 76
		invalid      = 87
	)
	tests := []struct {
		name string
		in   []byte
		with func(*Produce)
		want int
	}{
		{"good", good, nil, none},
		{"null records", nil, nil, invalid},
		{"empty records", []byte{}, nil, invalid},
		{"CRC flip", func() []byte { b := bytes.Clone(good); b[len(b)-1] ^= 1; return b }(), nil, corrupt},
		{"batchLength 10", patched(func(b []byte) { b[11] = 10 }), nil, corrupt},
		{"batchLength -1", patched(func(b []byte) { copy(b[8:], []byte{255, 255, 255, 255}) }), nil, corrupt},
		{"batchLength 2³¹-1", patched(func(b []byte) { copy(b[8:], []byte{127, 255, 255, 255}) }), nil, corrupt},
		{"batchLength 20", patched(func(b []byte) { b[11] = 20 }), nil, corrupt},
		{"16 B garbage", garbage[:16], nil, corrupt},
		{"200 B garbage", garbage, nil, corrupt},
		{"batch cut off", good[:len(good)-3], nil, corrupt},
		{"magic 0", patched(func(b []byte) { b[16] = 0 }), nil, invalid},
		{"magic 1", patched(func(b []byte) { b[16] = 1 }), nil, invalid},
		{"magic 3", patched(func(b []byte) { b[16] = 3 }), nil, corrupt},
		{"magic -1", patched(func(b []byte) { b[16] = 255 }), nil, corrupt},
		{"count 10 with 1 record", of(10, rec(0, 0, "a")).bytes(), nil, invalid},
		{"count 0", of(0, rec(0, 0, "a")).bytes(), nil, invalid},
		{"count -5", of(-5, rec(0, 0, "a")).bytes(), nil, invalid},
		{"count 2³¹-1", of(math.MaxInt32, rec(0, 0, "a")).bytes(), nil, invalid},
		{"count 1 with 2 records", of(1, rec(0, 0, "a"), rec(1, 0, "b")).bytes(), nil, invalid},
		{"no records", of(0).bytes(), nil, invalid},
		{"lastOffsetDelta≠count-1", patched(func(b []byte) { b[26] = 5 }), nil, invalid},
		{"lastOffsetDelta -2³¹", patched(func(b []byte) { b[23] = 0x80 }), nil, invalid},
		{"junk inside batch", of(1, rec(0, 0, "a"), garbage).bytes(), nil, invalid},
		{"record length past end", of(1, append([]byte{100}, rec(0, 0, "a")[1:]...)).bytes(), nil, invalid},
		{"record length short", of(1, append([]byte{2}, rec(0, 0, "a")[1:]...)).bytes(), nil, invalid},
		{"record length negative", of(1, append([]byte{1}, rec(0, 0, "a")[1:]...)).bytes(), nil, invalid},
		{"record length 2³² varint", of(1, []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1}).bytes(), nil, invalid},
		{"header count 2³¹-1", of(1, []byte{24, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0}).bytes(), nil, invalid},
		{"header key null", of(1, []byte{16, 0, 0, 0, 1, 1, 2, 1, 1}).bytes(), nil, invalid},
		{"key length -2", of(1, []byte{12, 0, 0, 0, 3, 1, 0}).bytes(), nil, invalid},
		{"key beyond its record", of(2, []byte{12, 0, 0, 0, 20, 1, 0}, rec(1, 0, "aaaaaaaaaaaaaaaaaaaaaaaa")).bytes(), nil, invalid},
		{"two batches", append(bytes.Clone(good), good...), nil, invalid},
		{"5 junk bytes after it", append(bytes.Clone(good), garbage[:5]...), nil, none},
		{"an unfinished batch after it", append(bytes.Clone(good), good[:70]...), nil, none},
		{"garbage after it", append(bytes.Clone(good), garbage...), nil, corrupt},
		{"control batch", patched(func(b []byte) { b[22] = 0x20 }), nil, invalid},
		{"control batch of a broker", patched(func(b []byte) { b[22] = 0x20 }), func(p *Produce) { p.AllowControl = true }, none},
		{"baseOffset≠0", patched(func(b []byte) { b[7] = 5 }), nil, invalid},
		{"seq -1 with pid", patched(func(b []byte) { copy(b[43:], make([]byte, 8)) }), nil, invalid},
		{"both deltas 0", of(2, rec(0, 0, "a"), rec(0, 0, "b")).bytes(), nil, invalid},
		{"deltas 1,0", of(2, rec(1, 0, "a"), rec(0, 0, "b")).bytes(), nil, invalid},
		{"deltas 0,2", of(2, rec(0, 0, "a"), rec(2, 0, "b")).bytes(), nil, invalid},
		{"codec 5", patched(func(b []byte) { b[22] = 5 }), nil, badCodec},
		{"codec 7", patched(func(b []byte) { b[22] = 7 }), nil, badCodec},
		{"zstd at Produce below 7", golden(t, "zstd"), func(p *Produce) { p.NoZstd = true }, badCodec},
		{"gzip garbage", compressed(Gzip, garbage, 2), nil, corrupt},
		{"snappy garbage", compressed(Snappy, garbage, 2), nil, corrupt},
		{"snappy xerial garbage", compressed(Snappy, append(append(bytes.Clone(xerialMagic), 0, 0, 0, 1, 0, 0, 0, 1), garbage...), 2), nil, corrupt},
		{"lz4 garbage", compressed(LZ4, garbage, 2), nil, corrupt},
		{"zstd garbage", compressed(Zstd, garbage, 2), nil, corrupt},
		{"gzip nothing", compressed(Gzip, nil, 2), nil, corrupt},
		{"gzip cut off", compressed(Gzip, golden(t, "gzip")[HeaderSize:200], 4), nil, corrupt},
		{"gzip good, count wrong", compressed(Gzip, golden(t, "gzip")[HeaderSize:], 3), nil, invalid},
		{"gzip bomb", bomb(Gzip), nil, tooLarge},
		{"lz4 bomb", bomb(LZ4), nil, tooLarge},
		{"zstd bomb", bomb(Zstd), nil, tooLarge},
		{"snappy bomb", bomb(Snappy), func(p *Produce) { p.MaxMessageBytes = 16 << 20 }, tooLarge},
		{"raw snappy", compressed(Snappy, s2.EncodeSnappy(nil, rec(0, 0, "a")), 1), nil, none},
		{"timestamp +3 h", of(1, rec(0, 3*3600000, "a")).bytes(), nil, badTimestamp},
		{"timestamp 2⁶³-1", of(1, rec(0, math.MaxInt64-now, "a")).bytes(), nil, badTimestamp},
		{"timestamp -5", of(1, rec(0, -5-now, "a")).bytes(), nil, none},
		{"timestamp too old", of(1, rec(0, -2000, "a")).bytes(), func(p *Produce) { p.BeforeMaxMs = 1000 }, badTimestamp},
		{"timestamp none", of(1, rec(0, -1-now, "a")).bytes(), func(p *Produce) { p.BeforeMaxMs = 1000 }, none},
		{"timestamp +3 h, LogAppendTime topic", of(1, rec(0, 3*3600000, "a")).bytes(), func(p *Produce) { p.TimestampType = LogAppendTime }, none},
		{"LogAppendTime from a client", patched(func(b []byte) { b[22] = 8 }), nil, badTimestamp},
		{"null key, compacted", of(1, raw(0, 0, nil, []byte("v"))).bytes(), func(p *Produce) { p.Compacted = true }, invalid},
		{"value above max.message.bytes", of(1, rec(0, 0, strings.Repeat("x", 1<<20))).bytes(), nil, tooLarge},
		{"just max.message.bytes", good, func(p *Produce) { p.MaxMessageBytes = int32(len(good)) }, none},
		{"above max.message.bytes by one", good, func(p *Produce) { p.MaxMessageBytes = int32(len(good)) - 1 }, tooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := produce()
			if tt.with != nil {
				tt.with(p)
			}
			_, err := p.Validate(bytes.Clone(tt.in))
			if got := code(t, err); got != tt.want {
				t.Errorf("error code %d, want %d (%v)", got, tt.want, err)
			}
		})
	}
}

// code maps an error to the code a client sees.
func code(t testing.TB, err error) int {
	var (
		corrupt   *CorruptError
		invalid   *InvalidRecordError
		timestamp *InvalidTimestampError
		tooLarge  *TooLargeError
		codec     *UnsupportedCodecError
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &corrupt):
		return 2
	case errors.As(err, &tooLarge):
		return 10
	case errors.As(err, &timestamp):
		return 32
	case errors.As(err, &codec):
		return 76
	case errors.As(err, &invalid):
		return 87
	}
	t.Fatalf("error of type %T: %v", err, err)
	return -1
}

// bomb is a batch of one record with a value of 64 MiB of zeros (snappy, which packs less tight,
// of 33 MiB), so far above the limit of 32 MiB.
func bomb(codec Codec) []byte {
	size := 64 << 20
	if codec == Snappy {
		size = 33 << 20
	}
	b := NewBuilder(nil, BatchOptions{Compression: Compression{Codec: codec}, LeaderEpoch: -1})
	b.Append(Record{Timestamp: now, Value: make([]byte, size)})
	return b.Bytes()
}

func TestRecordErrors(t *testing.T) {
	in := of(4, rec(0, 0, "a"), rec(1, 4*3600000, "b"), raw(2, 0, nil, nil), rec(3, 0, "c")).bytes()
	p := produce()
	p.Compacted = true
	_, err := p.Validate(in)
	var e *InvalidTimestampError
	if !errors.As(err, &e) {
		t.Fatalf("error %v", err)
	}
	if len(e.Records) != 2 || e.Records[0].Index != 1 || e.Records[1].Index != 2 {
		t.Errorf("records at fault %v, want 1 and 2", e.Records)
	}
}

func TestStamping(t *testing.T) {
	t.Run("LogAppendTime", func(t *testing.T) {
		for _, name := range codecs {
			p := produce()
			p.TimestampType = LogAppendTime
			v, err := p.Validate(golden(t, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := CheckCRC(v.Batch); err != nil {
				t.Fatal(err)
			}
			if !v.Header.Attributes.LogAppendTime() || v.Header.MaxTimestamp != now || v.MaxTimestampDelta != 3 {
				t.Errorf("%s: header %+v, max timestamp at %d", name, v.Header, v.MaxTimestampDelta)
			}
		}
	})
	t.Run("a wrong maxTimestamp is put right", func(t *testing.T) {
		b := of(2, rec(0, 0, "a"), rec(1, 7, "b"))
		b.MaxTimestamp = 12345
		v, err := produce().Validate(b.bytes())
		if err != nil {
			t.Fatal(err)
		}
		if v.Header.MaxTimestamp != now+7 || v.MaxTimestampDelta != 1 || CheckCRC(v.Batch) != nil {
			t.Errorf("header %+v, max timestamp at %d", v.Header, v.MaxTimestampDelta)
		}
	})
}

func TestRecompress(t *testing.T) {
	for from, name := range codecs {
		for to := range codecs {
			p := produce()
			p.Compression = Compression{Codec: Codec(to)}
			in := golden(t, name)
			v, err := p.Validate(in)
			if err != nil {
				t.Fatalf("%s to %s: %v", name, codecs[to], err)
			}
			if same := &v.Batch[0] == &in[0]; same != (from == to) {
				t.Errorf("%s to %s: same bytes %v", name, codecs[to], same)
			}
			if got := v.Header.Attributes.Codec(); got != Codec(to) || CheckCRC(v.Batch) != nil || v.Header.Size() != len(v.Batch) {
				t.Errorf("%s to %s: header %+v", name, codecs[to], v.Header)
			}
			want := goldenRecords(name)
			for i, r := range collect(t, v.Batch) {
				if !bytes.Equal(r.Value, want[i].Value) || r.Timestamp != want[i].Timestamp {
					t.Errorf("%s to %s: record %d differs", name, codecs[to], i)
				}
			}
		}
	}
	p := produce()
	p.Compression, p.MaxMessageBytes = Compression{Codec: None}, 10000
	if _, err := p.Validate(golden(t, "zstd")); code(t, err) != 10 {
		t.Errorf("decompressed above max.message.bytes: %v", err)
	}
}

// TestBombMemory reads a bomb: what it costs must not depend on what it decompresses to.
func TestBombMemory(t *testing.T) {
	for _, codec := range []Codec{Gzip, LZ4, Zstd} {
		in := bomb(codec)
		p := produce()
		run := func() {
			if _, err := p.Validate(in); code(t, err) != 10 {
				t.Fatal(err)
			}
		}
		run() // fills the pools
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		run()
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 {
			t.Errorf("%s: %d bytes allocated", codec, got)
		}
	}
}

func TestNoAllocationPerRecord(t *testing.T) {
	for i, name := range codecs {
		b := NewBuilder(nil, BatchOptions{Compression: Compression{Codec: Codec(i)}, LeaderEpoch: -1})
		for range 10000 {
			b.Append(Record{Timestamp: now, Key: []byte("key"), Value: []byte("a value"), Headers: []RecordHeader{{Key: []byte("h"), Value: []byte("v")}}})
		}
		batch := b.Bytes()
		p := produce()
		allocs := testing.AllocsPerRun(3, func() {
			if _, err := p.Validate(batch); err != nil {
				t.Fatal(err)
			}
			if err := Iterate(batch, func(Record) error { return nil }); err != nil {
				t.Fatal(err)
			}
		})
		if allocs > 200 {
			t.Errorf("%s: %v allocations for 10000 records", name, allocs)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	for i, name := range codecs {
		b.Run(name, func(b *testing.B) {
			builder := NewBuilder(nil, BatchOptions{Compression: Compression{Codec: Codec(i)}, LeaderEpoch: -1})
			for j := range 1000 {
				builder.Append(Record{Timestamp: now, Value: bytes.Repeat([]byte{byte(j), byte(j >> 3), 'x', 'y'}, 250)})
			}
			size := int64(builder.Size())
			batch := builder.Bytes()
			p := produce()
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Validate(batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
