package storage

import (
	"fmt"
	"math"
	"time"

	"ottla/internal/record"
)

// writebackStep is how much is appended to a segment before the kernel is asked to start writing it out: small
// enough that an fsync finds little left, large enough for the disk to write long runs.
const writebackStep = 4 << 20

// A LeaderAppend says how a leader appends.
type LeaderAppend struct {
	LeaderEpoch int32 // stamped into the batch
	// Check, if set, is called under the append slot before anything is looked at; its error is returned as it is. It
	// must not call into the log.
	Check func() error
	Now   int64 // ms; 0 is the present
	// Coordinator says that the batch comes from within the broker (a transaction or group coordinator, the quorum):
	// sequence numbers are not checked.
	Coordinator bool
}

// Appended tells where a batch went.
type Appended struct {
	FirstOffset, LastOffset int64
	End                     Position // of the log, after it
	StartOffset             int64    // log start offset
	// Duplicate says that nothing was written: the batch is one of its producer's last five, and the offsets are those it
	// got then.
	Duplicate bool
}

// AppendAsLeader appends b, one batch that was validated and whose header is h, with the next offsets, which it stamps into
// b in place together with the leader epoch. One write, no fsync: see [Log.Durable]. b may be used again afterwards.
//
// Errors of the batch are *OutOfOrderSequenceError, *InvalidProducerEpochError, *InvalidTxnStateError,
// *CoordinatorFencedError and *TooLargeError; nothing was written then. After a *DirFailedError part of the batch may be
// in the file, but no reader sees it.
func (l *Log) AppendAsLeader(b []byte, h record.Header, a LeaderAppend) (Appended, error) {
	if err := l.lock(); err != nil {
		return Appended{}, err
	}
	result, err := l.appendAsLeader(b, &h, &a)
	l.unlock()
	if err == nil && !result.Duplicate {
		l.appended(result.End)
	}
	return result, err
}

func (l *Log) appendAsLeader(b []byte, h *record.Header, a *LeaderAppend) (Appended, error) {
	if a.Check != nil {
		if err := a.Check(); err != nil {
			return Appended{}, err
		}
	}
	if len(b) != h.Size() {
		return Appended{}, fmt.Errorf("append to %s: header says %d bytes, %d were given", l.tp, h.Size(), len(b))
	}
	end := l.End()
	marker, err := l.admit(b, h, a)
	if err != nil {
		return Appended{}, err
	}
	if marker.duplicate != nil {
		d := marker.duplicate
		return Appended{FirstOffset: d.firstOffset(), LastOffset: d.lastOffset, End: end, StartOffset: l.start.Load(), Duplicate: true}, nil
	}
	h.BaseOffset, h.LeaderEpoch = end.Offset, a.LeaderEpoch
	record.SetBaseOffset(b, h.BaseOffset)
	record.SetLeaderEpoch(b, h.LeaderEpoch)
	l.assignEpoch(h.LeaderEpoch, h.BaseOffset)
	s, err := l.room(int64(len(b)), h.BaseOffset, h.LastOffset(), h.MaxTimestamp, nowMs(a.Now))
	if err != nil {
		return Appended{}, err
	}
	pos := s.size.Load()
	if err := l.write(s, b, pos); err != nil {
		return Appended{}, err
	}
	if err := l.note(s, h, pos, &marker); err != nil {
		return Appended{}, err
	}
	p := l.publish(s, pos+int64(len(b)), h.NextOffset(), lastBatch{h.BaseOffset, int32(pos)})
	return Appended{FirstOffset: h.BaseOffset, LastOffset: h.LastOffset(), End: p, StartOffset: l.start.Load()}, nil
}

// An admission is what the producer state has to say of a batch before it is written.
type admission struct {
	duplicate *sentBatch
	marker    record.EndTxnMarker
	isMarker  bool
}

// admit checks an idempotent producer's batch. The duplicate is only valid under the append slot.
func (l *Log) admit(b []byte, h *record.Header, a *LeaderAppend) (admission, error) {
	if !h.HasProducer() {
		return admission{}, nil
	}
	adm, err := readMarker(b, h)
	if err != nil {
		return admission{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case adm.isMarker:
		err = l.mu.producers.checkMarker(h, adm.marker)
	case !a.Coordinator:
		adm.duplicate, err = l.mu.producers.check(h)
	}
	return adm, err
}

// readMarker reads the transaction marker of a control batch.
func readMarker(b []byte, h *record.Header) (adm admission, err error) {
	if !h.Attributes.Control() || !h.HasProducer() {
		return adm, nil
	}
	adm.marker, adm.isMarker, err = record.ParseEndTxnMarker(b)
	return adm, err
}

// room returns the segment that takes a batch, rolled if need be.
func (l *Log) room(size, base, lastOffset, maxTimestamp, now int64) (*segment, error) {
	if size > math.MaxInt32 {
		return nil, &TooLargeError{Size: size, Max: math.MaxInt32}
	}
	s := l.active()
	if !s.shouldRoll(l.Config(), s.size.Load(), size, maxTimestamp, lastOffset, now) {
		return s, nil
	}
	if s.size.Load() > 0 || s.base != base {
		return l.roll(base, now)
	}
	return s, nil
}

// write puts b at pos of the segment's file, where nothing is published yet.
func (l *Log) write(s *segment, b []byte, pos int64) error {
	if err := l.settle(); err != nil {
		return err
	}
	h, err := s.acquireToWrite()
	if err != nil {
		return l.health.fail(err)
	}
	defer h.release()
	if _, err := h.log.WriteAt(b, pos); err != nil {
		return l.health.fail(fmt.Errorf("append to %s: %w", l.tp, err))
	}
	return nil
}

// note takes a written batch into the indexes and the producer state.
func (l *Log) note(s *segment, h *record.Header, pos int64, adm *admission) error {
	s.note(h, pos, l.Config().IndexInterval)
	if !h.HasProducer() {
		return nil
	}
	at := Position{Offset: h.BaseOffset, SegmentBase: s.base, Pos: int32(pos)}
	l.mu.Lock()
	aborted, ok := l.mu.producers.note(h, adm, at)
	l.mu.Unlock()
	if !ok {
		return nil
	}
	if err := l.appendAborted(s, aborted); err != nil {
		return l.health.fail(err)
	}
	return nil
}

// note takes in a batch of a producer that is in the log.
func (s *producers) note(h *record.Header, adm *admission, at Position) (AbortedTxn, bool) {
	s.mapEnd = h.NextOffset()
	if adm.isMarker {
		return s.marker(h, adm.marker)
	}
	if !h.Attributes.Control() {
		s.data(h, at)
	}
	return AbortedTxn{}, false
}

// note takes a batch at pos into the segment's indexes. As in Kafka, the entry is made before the batch is counted,
// so the first batch of a segment has none, and it names the last offset of the batch that begins at its position.
func (s *segment) note(h *record.Header, pos, interval int64) {
	if pos == 0 {
		s.firstTimestamp = h.MaxTimestamp
	}
	if h.MaxTimestamp > s.maxTimestamp.Load() {
		s.maxTimestamp.Store(h.MaxTimestamp)
		s.maxTimestampOffset = h.LastOffset()
	}
	if s.sinceIndexEntry > interval {
		s.offsets.add(entry{h.LastOffset() - s.base, int32(pos)})
		s.noteTime()
		s.sinceIndexEntry = 0
	}
	s.sinceIndexEntry += int64(h.Size())
}

// noteTime adds the largest timestamp so far to the time index, if it is news.
func (s *segment) noteTime() {
	t := s.maxTimestamp.Load()
	last, ok := s.times.state.Load().lastEntry()
	if t < 0 || ok && t <= last.key {
		return
	}
	s.times.add(entry{t, int32(s.maxTimestampOffset - s.base)})
}

// AppendAsFollower appends what a leader sent: whole batches, their offsets and leader epochs kept, that continue the log
// (gaps are allowed, they come from compaction). A batch cut off at the end, as a fetch may bring it, is left out. Every
// batch is checked against its CRC before anything is written. Errors are *record.CorruptError, *UnexpectedOffsetError and
// *DirFailedError; only after the last may part of the batches have been written. b is not changed.
func (l *Log) AppendAsFollower(b []byte) (Appended, error) {
	if err := l.lock(); err != nil {
		return Appended{}, err
	}
	result, err := l.appendAsFollower(b)
	l.unlock()
	if err == nil {
		l.appended(result.End)
	}
	return result, err
}

func (l *Log) appendAsFollower(b []byte) (Appended, error) {
	end := l.End().Offset
	n, err := checkBatches(b, end)
	if err != nil {
		return Appended{}, err
	}
	b = b[:n]
	result := Appended{FirstOffset: end, LastOffset: end - 1}
	now := nowMs(0)
	for i := 0; len(b) > 0; i++ {
		h, err := record.ParseHeader(b)
		if err != nil {
			return Appended{}, err
		}
		if i == 0 {
			result.FirstOffset = h.BaseOffset
		}
		s, err := l.room(int64(h.Size()), h.BaseOffset, h.LastOffset(), h.MaxTimestamp, now)
		if err != nil {
			return Appended{}, err
		}
		run := l.fitting(s, b, now)
		if result.LastOffset, err = l.appendRun(s, b[:run]); err != nil {
			return Appended{}, err
		}
		b = b[run:]
	}
	result.End = l.End()
	result.StartOffset = l.start.Load()
	return result, nil
}

// checkBatches checks the whole batches at the front of b, which must continue a log that ends at end, and returns their
// size.
func checkBatches(b []byte, end int64) (int, error) {
	n := 0
	for len(b)-n >= record.HeaderSize {
		h, err := record.ParseHeader(b[n:])
		if err != nil {
			return 0, err
		}
		if h.Size() > len(b)-n {
			break
		}
		if err := record.CheckCRC(b[n:]); err != nil {
			return 0, err
		}
		if h.BaseOffset < end || h.LastOffsetDelta < 0 {
			return 0, &UnexpectedOffsetError{Got: h.BaseOffset, Want: end}
		}
		end = h.NextOffset()
		n += h.Size()
	}
	return n, nil
}

// fitting returns the size of the batches at the front of b, at least one, that go to segment s in one write.
func (l *Log) fitting(s *segment, b []byte, now int64) int {
	run := 0
	for run < len(b) {
		h, err := record.ParseHeader(b[run:])
		if err != nil { // checked before
			break
		}
		if run > 0 && s.shouldRoll(l.Config(), s.size.Load()+int64(run), int64(h.Size()), h.MaxTimestamp, h.LastOffset(), now) {
			break
		}
		run += h.Size()
	}
	return run
}

// appendRun writes checked batches to segment s at once and returns their last offset.
func (l *Log) appendRun(s *segment, b []byte) (last int64, err error) {
	start := s.size.Load()
	if err := l.write(s, b, start); err != nil {
		return 0, err
	}
	pos, end := start, noLastBatch
	for len(b) > 0 {
		h, err := record.ParseHeader(b)
		if err != nil {
			return 0, err
		}
		adm, err := readMarker(b, &h)
		if err != nil {
			return 0, err
		}
		l.assignEpoch(h.LeaderEpoch, h.BaseOffset)
		if err := l.note(s, &h, pos, &adm); err != nil {
			return 0, err
		}
		last, end = h.LastOffset(), lastBatch{h.BaseOffset, int32(pos)}
		pos += int64(h.Size())
		b = b[h.Size():]
	}
	l.publish(s, pos, last+1, end)
	return last, nil
}

// appended asks the Dir's flusher for what an append up to end made due: write-back, or a flush.
func (l *Log) appended(end Position) {
	l.tellFlusher()
	if l.attend == nil {
		return
	}
	step := int64(end.Pos) / writebackStep
	crossed := l.step.Load() != step
	if crossed {
		l.step.Store(step)
	}
	if !crossed && end.Offset-l.recoveryPoint.Load() < l.Config().FlushMessages {
		return
	}
	if l.attended.Swap(attendedUrgent) != attendedUrgent { // it may wait already, but as one that is only due
		l.attend(l)
	}
}

func nowMs(given int64) int64 {
	if given != 0 {
		return given
	}
	return time.Now().UnixMilli()
}
