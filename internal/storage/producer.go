package storage

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"sync/atomic"

	"ottla/internal/record"
)

// keptBatches is how many of a producer's last batches are recognised when they come again
// (Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
const keptBatches = 5

// A ProducerState is what a partition knows of one idempotent producer.
type ProducerState struct {
	ProducerID            int64
	ProducerEpoch         int16
	LastSequence          int32 // -1 none
	LastTimestamp         int64 // ms
	CoordinatorEpoch      int32 // of the last transaction marker, -1 none
	CurrentTxnStartOffset int64 // -1 none open
}

// A sentBatch is one of a producer's last batches.
type sentBatch struct {
	lastOffset   int64
	timestamp    int64 // ms
	lastSequence int32
	offsetDelta  int32 // last offset minus first
}

func (b *sentBatch) firstOffset() int64 { return b.lastOffset - int64(b.offsetDelta) }

// firstSequence wraps as sequences do, from 0 to 2³¹-1.
func (b *sentBatch) firstSequence() int32 {
	return int32((int64(b.lastSequence) - int64(b.offsetDelta)) & (1<<31 - 1))
}

// A producer is the state of one producer id: 168 bytes.
type producer struct {
	batches          [keptBatches]sentBatch // the oldest first
	lastTimestamp    int64
	txnFirst         int64 // first offset of the open transaction, -1 none
	coordinatorEpoch int32
	epoch            int16 // -1 none known
	count            uint8 // of batches
}

func newProducer() *producer {
	return &producer{txnFirst: -1, coordinatorEpoch: -1, epoch: record.NoProducerEpoch, lastTimestamp: record.NoTimestamp}
}

func (p *producer) lastSequence() int32 {
	if p.count == 0 {
		return record.NoSequence
	}
	return p.batches[p.count-1].lastSequence
}

// setEpoch begins a new epoch, in which no batch is known.
func (p *producer) setEpoch(epoch int16) {
	if p.epoch != epoch {
		p.epoch, p.count = epoch, 0
	}
}

func (p *producer) add(b sentBatch) {
	if p.count == keptBatches {
		copy(p.batches[:], p.batches[1:])
		p.count--
	}
	p.batches[p.count] = b
	p.count++
}

// A txn is a transaction that is open, or ended but not yet below the high watermark.
type txn struct {
	producerID int64
	first      Position
	last       int64 // offset of the marker that ended it, -1 while open
}

// producers is the producer state of one partition as of mapEnd. Source: Kafka's ProducerStateManager and
// ProducerAppendInfo. Its owner serialises the calls.
type producers struct {
	byID   map[int64]*producer
	txns   []txn           // by first offset
	mapEnd int64           // next offset that the state does not know of
	budget *producerBudget // that byID counts in; nil while no log has this state
}

// A producerBudget is how many producers the logs of a directory remember together. See [Dir.trimProducers] for who is
// forgotten when there are too many.
type producerBudget struct {
	max   int64 // 0: no bound
	count atomic.Int64
}

func (b *producerBudget) exhausted() bool { return b.max > 0 && b.count.Load() >= b.max }

// adopt makes the state count in a budget.
func (s *producers) adopt(b *producerBudget) {
	s.budget = b
	b.count.Add(int64(len(s.byID)))
}

// release takes the state, which is not used any more, out of its budget.
func (s *producers) release() {
	if s.budget != nil {
		s.budget.count.Add(-int64(len(s.byID)))
		s.budget = nil
	}
}

func newProducers(start int64) *producers {
	return &producers{byID: map[int64]*producer{}, mapEnd: start}
}

// check applies Kafka's rules to a client's data batch before it is written. It returns the batch's earlier self if
// it is a duplicate.
func (s *producers) check(h *record.Header) (*sentBatch, error) {
	p := s.byID[h.ProducerID]
	if p == nil {
		return nil, nil // never seen, or expired: any sequence will do
	}
	first, last := h.BaseSequence, h.LastSequence()
	if p.epoch == h.ProducerEpoch {
		for i := range p.batches[:p.count] {
			if b := &p.batches[i]; b.lastSequence == last && b.firstSequence() == first {
				return b, nil
			}
		}
	}
	if h.ProducerEpoch < p.epoch {
		return nil, &InvalidProducerEpochError{ProducerID: h.ProducerID, Epoch: h.ProducerEpoch, Current: p.epoch}
	}
	if p.epoch != record.NoProducerEpoch && !p.follows(h.ProducerEpoch, first) {
		return nil, &OutOfOrderSequenceError{ProducerID: h.ProducerID, Sequence: first, Last: p.lastSequence()}
	}
	if p.txnFirst >= 0 && !h.Attributes.Transactional() {
		return nil, &InvalidTxnStateError{ProducerID: h.ProducerID}
	}
	return nil, nil
}

// follows reports whether a batch that begins with sequence first in the given epoch may come next.
func (p *producer) follows(epoch int16, first int32) bool {
	last := p.lastSequence()
	if epoch != p.epoch {
		last = record.NoSequence
	}
	return int64(first) == int64(last)+1 || first == 0 && last == 1<<31-1
}

// checkMarker applies Kafka's rules to a transaction marker before it is written on the leader.
func (s *producers) checkMarker(h *record.Header, m record.EndTxnMarker) error {
	p := s.byID[h.ProducerID]
	if p == nil {
		return nil
	}
	if h.ProducerEpoch < p.epoch {
		return &InvalidProducerEpochError{ProducerID: h.ProducerID, Epoch: h.ProducerEpoch, Current: p.epoch}
	}
	if m.CoordinatorEpoch < p.coordinatorEpoch {
		return &CoordinatorFencedError{ProducerID: h.ProducerID, Epoch: m.CoordinatorEpoch, Current: p.coordinatorEpoch}
	}
	return nil
}

// entry returns the state of a producer id, made if there was none.
func (s *producers) entry(id int64) *producer {
	p := s.byID[id]
	if p == nil {
		if s.budget != nil {
			if s.budget.exhausted() {
				s.forgetOne()
			}
			s.budget.count.Add(1)
		}
		p = newProducer()
		s.byID[id] = p
	}
	return p
}

func (s *producers) forget(id int64) {
	delete(s.byID, id)
	if s.budget != nil {
		s.budget.count.Add(-1)
	}
}

// forgetOne forgets the producer that has written nothing for longest among a few of those without an open transaction.
func (s *producers) forgetOne() {
	const few = 16
	oldest, seen := int64(-1), 0
	for id, p := range s.byID { // in random order
		if p.txnFirst >= 0 {
			continue
		}
		if oldest < 0 || p.lastTimestamp < s.byID[oldest].lastTimestamp {
			oldest = id
		}
		if seen++; seen == few {
			break
		}
	}
	if oldest >= 0 {
		s.forget(oldest)
	}
}

// data takes in a data batch that is in the log at pos.
func (s *producers) data(h *record.Header, pos Position) {
	p := s.entry(h.ProducerID)
	p.setEpoch(h.ProducerEpoch)
	p.add(sentBatch{
		lastOffset: h.LastOffset(), offsetDelta: h.LastOffsetDelta,
		lastSequence: h.LastSequence(), timestamp: h.MaxTimestamp,
	})
	p.lastTimestamp = h.MaxTimestamp
	if p.txnFirst < 0 && h.Attributes.Transactional() {
		p.txnFirst = h.BaseOffset
		s.txns = append(s.txns, txn{producerID: h.ProducerID, first: pos, last: -1})
	}
}

// marker takes in a transaction marker that is in the log. If it aborts an open transaction, the entry for the
// transaction index is returned.
func (s *producers) marker(h *record.Header, m record.EndTxnMarker) (aborted AbortedTxn, ok bool) {
	p := s.entry(h.ProducerID)
	first := p.txnFirst
	p.setEpoch(h.ProducerEpoch)
	p.txnFirst = -1
	p.coordinatorEpoch = m.CoordinatorEpoch
	p.lastTimestamp = h.MaxTimestamp
	if first < 0 {
		return AbortedTxn{}, false
	}
	for i := range s.txns {
		if s.txns[i].first.Offset == first && s.txns[i].producerID == h.ProducerID {
			s.txns[i].last = h.LastOffset()
		}
	}
	if m.Commit {
		return AbortedTxn{}, false
	}
	lso := h.LastOffset() + 1
	if i := slices.IndexFunc(s.txns, func(t txn) bool { return t.last < 0 }); i >= 0 {
		lso = s.txns[i].first.Offset
	}
	return AbortedTxn{ProducerID: h.ProducerID, FirstOffset: first, LastOffset: h.LastOffset(), LastStableOffset: lso}, true
}

// firstUnstable returns where the first transaction begins that is open or whose marker is not below hw.
func (s *producers) firstUnstable(hw int64) (Position, bool) {
	if len(s.txns) == 0 {
		return Position{}, false
	}
	s.txns = slices.DeleteFunc(s.txns, func(t txn) bool { return t.last >= 0 && t.last < hw })
	if len(s.txns) == 0 {
		return Position{}, false
	}
	return s.txns[0].first, true
}

// expire forgets producers that wrote nothing for long and have no transaction open.
func (s *producers) expire(now, after int64) {
	for id, p := range s.byID {
		if p.txnFirst < 0 && now-p.lastTimestamp >= after {
			s.forget(id)
		}
	}
}

func (s *producers) list() []ProducerState {
	out := make([]ProducerState, 0, len(s.byID))
	for id, p := range s.byID {
		out = append(out, ProducerState{
			ProducerID: id, ProducerEpoch: p.epoch, LastSequence: p.lastSequence(), LastTimestamp: p.lastTimestamp,
			CoordinatorEpoch: p.coordinatorEpoch, CurrentTxnStartOffset: p.txnFirst,
		})
	}
	slices.SortFunc(out, func(a, b ProducerState) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
	return out
}

// A producer snapshot, big endian (Kafka's ProducerSnapshot, version 1): int16 version, uint32 CRC-32C of what
// follows it, int32 count, then per producer int64 id, int16 epoch, int32 last sequence, int64 last offset, int32
// offset delta, int64 timestamp, int32 coordinator epoch, int64 first offset of the open transaction.
const (
	snapshotVersion    = 1
	snapshotHeaderSize = 10
	snapshotEntrySize  = 46
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns the state as a producer snapshot.
func (s *producers) encode() []byte {
	b := make([]byte, 0, snapshotHeaderSize+len(s.byID)*snapshotEntrySize)
	b = binary.BigEndian.AppendUint16(b, snapshotVersion)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.byID)))
	for id, p := range s.byID {
		last := sentBatch{lastOffset: -1, lastSequence: record.NoSequence, timestamp: p.lastTimestamp}
		if p.count > 0 {
			last = p.batches[p.count-1]
		}
		b = binary.BigEndian.AppendUint64(b, uint64(id))
		b = binary.BigEndian.AppendUint16(b, uint16(p.epoch))
		b = binary.BigEndian.AppendUint32(b, uint32(last.lastSequence))
		b = binary.BigEndian.AppendUint64(b, uint64(last.lastOffset))
		b = binary.BigEndian.AppendUint32(b, uint32(last.offsetDelta))
		b = binary.BigEndian.AppendUint64(b, uint64(p.lastTimestamp))
		b = binary.BigEndian.AppendUint32(b, uint32(p.coordinatorEpoch))
		b = binary.BigEndian.AppendUint64(b, uint64(p.txnFirst))
	}
	binary.BigEndian.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli))
	return b
}

// decodeProducers reads the snapshot taken at offset. Entries that expired at now (ms) are left out; an open
// transaction keeps its producer.
func decodeProducers(b []byte, offset, now, expiration int64) (*producers, error) {
	if len(b) < snapshotHeaderSize {
		return nil, fmt.Errorf("producer snapshot of %d bytes is cut off", len(b))
	}
	if v := binary.BigEndian.Uint16(b); v != snapshotVersion {
		return nil, fmt.Errorf("producer snapshot has version %d, not %d", v, snapshotVersion)
	}
	if want, got := binary.BigEndian.Uint32(b[2:]), crc32.Checksum(b[6:], castagnoli); want != got {
		return nil, fmt.Errorf("producer snapshot CRC is %08x but its bytes give %08x", want, got)
	}
	n := int(int32(binary.BigEndian.Uint32(b[6:])))
	if b = b[snapshotHeaderSize:]; n < 0 || len(b) != n*snapshotEntrySize {
		return nil, fmt.Errorf("producer snapshot says %d producers in %d bytes", n, len(b))
	}
	s := newProducers(offset)
	for ; len(b) > 0; b = b[snapshotEntrySize:] {
		id, p := decodeProducer(b)
		if p.txnFirst < 0 && now-p.lastTimestamp >= expiration {
			continue
		}
		s.byID[id] = p
		if p.txnFirst >= 0 {
			s.txns = append(s.txns, txn{producerID: id, first: Position{Offset: p.txnFirst, Pos: -1}, last: -1})
		}
	}
	slices.SortFunc(s.txns, func(a, b txn) int { return cmp.Compare(a.first.Offset, b.first.Offset) })
	return s, nil
}

func decodeProducer(b []byte) (id int64, p *producer) {
	p = newProducer()
	p.epoch = int16(binary.BigEndian.Uint16(b[8:]))
	p.lastTimestamp = int64(binary.BigEndian.Uint64(b[26:]))
	p.coordinatorEpoch = int32(binary.BigEndian.Uint32(b[34:]))
	p.txnFirst = int64(binary.BigEndian.Uint64(b[38:]))
	last := sentBatch{
		lastSequence: int32(binary.BigEndian.Uint32(b[10:])),
		lastOffset:   int64(binary.BigEndian.Uint64(b[14:])),
		offsetDelta:  int32(binary.BigEndian.Uint32(b[22:])),
		timestamp:    p.lastTimestamp,
	}
	if last.lastOffset >= 0 {
		p.add(last)
	}
	return int64(binary.BigEndian.Uint64(b)), p
}
