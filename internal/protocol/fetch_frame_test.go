package protocol

import (
	"bytes"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// drawFetch draws a response, with null and "none" in places.
func drawFetch(t *rapid.T) *kmsg.FetchResponse {
	i16 := func(name string) int16 { return rapid.Int16().Draw(t, name) }
	i32 := func(name string) int32 { return rapid.Int32().Draw(t, name) }
	i64 := func(name string) int64 { return rapid.Int64().Draw(t, name) }
	some := func(name string) bool { return rapid.Bool().Draw(t, name) }

	resp := kmsg.NewPtrFetchResponse()
	resp.Version = rapid.Int16Range(4, 18).Draw(t, "version")
	resp.ThrottleMillis, resp.ErrorCode, resp.SessionID = i32("throttle"), i16("error"), i32("session")
	for range rapid.IntRange(0, 3).Draw(t, "topics") {
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic = rapid.StringN(0, 130, 200).Draw(t, "topic")
		copy(topic.TopicID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		for range rapid.IntRange(0, 3).Draw(t, "partitions") {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.ErrorCode = i32("partition"), i16("code")
			p.HighWatermark, p.LastStableOffset, p.LogStartOffset = i64("hw"), i64("lso"), i64("start")
			p.PreferredReadReplica = i32("preferred")
			p.RecordBatches = rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "records")
			if some("aborted") {
				p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
				for range rapid.IntRange(0, 2).Draw(t, "aborted") {
					a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
					a.ProducerID, a.FirstOffset = i64("pid"), i64("first")
					p.AbortedTransactions = append(p.AbortedTransactions, a)
				}
			}
			if some("diverging") {
				p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = i32("de"), i64("deo")
			}
			if some("leader") {
				p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = i32("l"), i32("le")
			}
			if some("snapshot") {
				p.SnapshotID.EndOffset, p.SnapshotID.Epoch = i64("so"), i32("se")
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	for range rapid.IntRange(0, 2).Draw(t, "nodes") {
		n := kmsg.NewFetchResponseBroker()
		n.NodeID, n.Host, n.Port = i32("node"), rapid.StringN(0, 130, 200).Draw(t, "host"), i32("port")
		if some("rack") {
			n.Rack = kmsg.StringPtr(rapid.StringN(0, 130, 200).Draw(t, "rack"))
		}
		resp.Brokers = append(resp.Brokers, n)
	}
	return resp
}

// load puts a response into f and returns the records of its partitions.
func load(f *FetchFrame, resp *kmsg.FetchResponse, correlationID int32) (records [][]byte) {
	f.Reset(resp.Version, correlationID)
	f.ThrottleMillis, f.ErrorCode, f.SessionID = resp.ThrottleMillis, resp.ErrorCode, resp.SessionID
	for _, t := range resp.Topics {
		f.Topic(t.Topic, t.TopicID)
		for _, p := range t.Partitions {
			records = append(records, p.RecordBatches)
			f.Partition(FetchPartition{
				Partition: p.Partition, ErrorCode: p.ErrorCode,
				HighWatermark: p.HighWatermark, LastStableOffset: p.LastStableOffset, LogStartOffset: p.LogStartOffset,
				AbortedTransactions: p.AbortedTransactions, PreferredReadReplica: p.PreferredReadReplica, RecordsSize: len(p.RecordBatches),
				DivergingEpoch: EpochEndOffset{p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset},
				CurrentLeader:  LeaderAndEpoch{p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch},
				SnapshotID:     EpochEndOffset{p.SnapshotID.Epoch, p.SnapshotID.EndOffset},
			})
		}
	}
	for _, n := range resp.Brokers {
		f.Node(FetchNode{n.NodeID, n.Host, n.Port, n.Rack})
	}
	return records
}

// join writes parts and records out as a connection would.
func join(parts []FetchPart, records [][]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p.Bytes...)
		if p.Partition >= 0 {
			b = append(b, records[p.Partition]...)
		}
	}
	return b
}

// TestFetchFrameIsKmsgs: byte for byte what kmsg encodes, at every version, with
// one frame used for all.
func TestFetchFrameIsKmsgs(t *testing.T) {
	var f FetchFrame
	rapid.Check(t, func(t *rapid.T) {
		resp := drawFetch(t)
		id := rapid.Int32().Draw(t, "correlation")
		records := load(&f, resp, id)
		got := join(f.Encode(), records)
		want := AppendResponse(nil, resp, id)
		if !bytes.Equal(got, want) {
			t.Fatalf("version %d\n got %x\nwant %x", resp.Version, got, want)
		}
		if f.Size() != int64(len(want)) || f.Len() != len(records) {
			t.Fatalf("Size %d, Len %d; want %d and %d", f.Size(), f.Len(), len(want), len(records))
		}
	})
}

// TestFetchFrameReuse: a warm frame allocates nothing, and Encode twice is once.
func TestFetchFrameReuse(t *testing.T) {
	var f FetchFrame
	aborted := []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 1, FirstOffset: 2}}
	build := func() []FetchPart {
		f.Reset(18, 1)
		for range 3 {
			f.Topic("topic", [16]byte{1})
			for i := range 10 {
				p := NewFetchPartition(int32(i))
				p.HighWatermark, p.AbortedTransactions, p.RecordsSize = math.MaxInt64, aborted, 1<<20
				f.Partition(p)
			}
		}
		return f.Encode()
	}
	first := join(build(), make([][]byte, 30))
	if again := join(f.Encode(), make([][]byte, 30)); !bytes.Equal(first, again) {
		t.Error("Encode gives something else the second time")
	}
	if n := testing.AllocsPerRun(100, func() { build() }); n > 0 {
		t.Errorf("%v allocations for a warm frame, want none", n)
	}
	if want := int64(30<<20 + len(first)); f.Size() != want {
		t.Errorf("Size = %d, want %d", f.Size(), want)
	}
}

// TestFetchFrameEmpty has the bytes of an empty answer of a session, as Apache
// sends them while nothing is new.
func TestFetchFrameEmpty(t *testing.T) {
	var f FetchFrame
	f.Reset(17, 6)
	f.SessionID = 0x01020304
	// size, correlation id, tags; throttle, error, session, no topics, no tags
	want := fromHex(t, "00000011"+"00000006"+"00"+"00000000"+"0000"+"01020304"+"01"+"00")
	if got := join(f.Encode(), nil); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

func BenchmarkFetchFrame(b *testing.B) {
	var f FetchFrame
	b.ReportAllocs()
	for b.Loop() {
		f.Reset(18, 1)
		f.Topic("topic", [16]byte{1})
		for i := range 10 {
			p := NewFetchPartition(int32(i))
			p.RecordsSize = 1 << 20
			f.Partition(p)
		}
		f.Encode()
	}
}
