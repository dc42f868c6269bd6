package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"ottla/internal/record"
)

// A raft entry that says something holds one record batch of the metadata log, as its leader built it, with base
// offset and leader epoch 0: where it will stand is only known when it is committed. Raft's log holds the entry, in
// turn, as the single record of a batch: the key is one byte, the entry's type, the value its data. The record's timestamp
// is the index of the first entry that was written with it, before the same fsync: see [openRaftLog].

// maxBatchBytes is the largest batch that is proposed. A fetching broker takes any single batch whole;
// Kafka's own controllers stay below 8 MiB (KafkaRaftClient.MAX_BATCH_SIZE_BYTES).
const maxBatchBytes = 8 << 20

// entryOverhead is what an entry costs in raft's accounts beside its data: type, term and index.
const entryOverhead = 32

func entrySize(e *pb.Entry) uint64 { return uint64(len(e.GetData())) + entryOverhead }

// appendEntry appends the batch that holds e in raft's log. first is the index of the first entry written with it.
func appendEntry(dst []byte, e *pb.Entry, first uint64) []byte {
	b := record.NewBuilder(dst, record.BatchOptions{BaseOffset: int64(e.GetIndex()), LeaderEpoch: int32(e.GetTerm())})
	b.Append(record.Record{Timestamp: int64(first), Key: []byte{byte(e.GetType())}, Value: e.GetData()})
	return b.Bytes()
}

// decodeEntry reads what appendEntry wrote. It checks the CRC; the entry does not alias batch.
func decodeEntry(h record.Header, batch []byte) (*pb.Entry, error) {
	if err := record.CheckCRC(batch); err != nil {
		return nil, err
	}
	if h.Count != 1 || h.LastOffsetDelta != 0 || h.BaseOffset < 0 || h.LeaderEpoch < 0 {
		return nil, errors.New("a batch that is no raft entry")
	}
	index, term := uint64(h.BaseOffset), uint64(h.LeaderEpoch)
	e := &pb.Entry{Index: &index, Term: &term}
	err := record.Iterate(batch, func(r record.Record) error {
		if len(r.Key) != 1 || r.Key[0] > byte(pb.EntryConfChangeV2) {
			return errors.New("a batch that is no raft entry")
		}
		e.Type = pb.EntryType(r.Key[0]).Enum()
		if r.Value != nil {
			e.Data = append([]byte{}, r.Value...)
		}
		return nil
	})
	return e, err
}

// appendBatch appends a batch of metadata records, not yet placed in the log.
func appendBatch(dst []byte, timestamp int64, values [][]byte) []byte {
	b := record.NewBuilder(dst, record.BatchOptions{})
	for _, value := range values {
		b.Append(record.Record{Timestamp: timestamp, Value: value})
	}
	return b.Bytes()
}

// batchCount returns how many offsets of the metadata log an entry takes.
func batchCount(e *pb.Entry) (int64, error) {
	if e.GetType() != pb.EntryNormal || len(e.GetData()) == 0 {
		return 0, nil
	}
	h, err := record.ParseHeader(e.GetData())
	if err != nil {
		return 0, fmt.Errorf("raft entry %d: %w", e.GetIndex(), err)
	}
	return int64(h.LastOffsetDelta) + 1, nil
}

// materialise returns the batch of an entry as it stands in the metadata log at offset: the same bytes on every
// voter. It returns nil for an entry that says nothing there.
func materialise(e *pb.Entry, offset int64) ([]byte, error) {
	if e.GetType() != pb.EntryNormal || len(e.GetData()) == 0 {
		return nil, nil
	}
	h, err := record.ParseHeader(e.GetData())
	if err != nil {
		return nil, fmt.Errorf("raft entry %d: %w", e.GetIndex(), err)
	}
	if h.Size() != len(e.GetData()) || h.Count != h.LastOffsetDelta+1 {
		return nil, fmt.Errorf("raft entry %d is not one whole record batch", e.GetIndex())
	}
	if err := record.CheckCRC(e.GetData()); err != nil {
		return nil, fmt.Errorf("raft entry %d: %w", e.GetIndex(), err)
	}
	batch, err := stampBrokerEpochs(e.GetData(), h, offset)
	if err != nil {
		return nil, fmt.Errorf("raft entry %d: %w", e.GetIndex(), err)
	}
	record.SetBaseOffset(batch, offset)
	record.SetLeaderEpoch(batch, int32(e.GetTerm()))
	return batch, nil
}

// stampBrokerEpochs returns a copy of a batch, to stand at offset, in which each broker registration that does
// not know its epoch (-1) has got it: the offset of the record itself.
func stampBrokerEpochs(data []byte, h record.Header, offset int64) ([]byte, error) {
	waiting := 0
	if !h.Attributes.Control() {
		err := record.Iterate(data, func(r record.Record) error {
			if _, ok := unsetBrokerEpoch(r.Value); ok {
				waiting++
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if waiting == 0 {
		return append([]byte{}, data...), nil
	}
	b := record.NewBuilder(make([]byte, 0, len(data)), record.BatchOptions{})
	err := record.Iterate(data, func(r record.Record) error {
		if at, ok := unsetBrokerEpoch(r.Value); ok {
			r.Value = append([]byte{}, r.Value...)
			binary.BigEndian.PutUint64(r.Value[at:], uint64(offset+r.Offset-h.BaseOffset))
		}
		b.Append(r)
		return nil
	})
	return b.Bytes(), err
}

// unsetBrokerEpoch returns where the broker epoch stands in a framed RegisterBrokerRecord whose epoch is -1;
// false for any other record. The frame is version 1, API key 0 and the record's version, a byte each; the
// record begins with broker id int32, IsMigratingZkBroker bool (from version 2 on), incarnation id uuid, broker
// epoch int64.
func unsetBrokerEpoch(value []byte) (at int, ok bool) {
	if len(value) < 3 || value[0] != 1 || value[1] != 0 {
		return 0, false
	}
	at = 3 + 4 + 16
	if value[2] >= 2 {
		at++
	}
	return at, len(value) >= at+8 && int64(binary.BigEndian.Uint64(value[at:])) == -1
}

// values returns the records' values of a batch, copied.
func values(batch []byte) ([][]byte, error) {
	arena := make([]byte, 0, len(batch))
	var values [][]byte
	err := record.Iterate(batch, func(r record.Record) error {
		start := len(arena)
		arena = append(arena, r.Value...)
		values = append(values, arena[start:len(arena):len(arena)])
		return nil
	})
	return values, err
}
