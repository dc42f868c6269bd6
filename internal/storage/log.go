// Package storage keeps partitions' record batches on disk, in Apache Kafka's own file layout, and gives them back by
// offset. Read [Log], then [Log.AppendAsLeader], [Log.Read], [OpenLog] (recovery) and [Dir], which owns the logs of
// one log directory, its checkpoints and its background work.
//
// Replicas append and read through a Log, the quorum keeps the metadata log and raft's entries in one of its own, and
// the command line dumps and verifies with [DumpSegment] and [VerifyDir]. The package knows no leader, follower or
// request: it is told what to stamp and up to where to read.
//
// What always holds: offsets in a log rise and are never handed out twice; a reader never blocks the appender nor the
// reverse, and keeps what it pinned although the segment is deleted; a write or fsync that failed is not tried again,
// the directory takes nothing more; recovery yields a prefix of what was appended, except where damage lies below what
// was known to be on the disk, which it reports ([Log.Damage]) and keeps the rest; what it cuts out it keeps aside.
package storage

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"ottla/internal/uuid"
	"ottla/internal/vfs"
)

// A Position is an offset and where in the log's files its batch starts, or would start.
type Position struct {
	Offset      int64
	SegmentBase int64 // base offset of the segment; meaningless while Pos is -1
	Pos         int32 // byte in the segment's .log file; -1 unknown
}

// LogOptions say what [OpenLog] opens.
type LogOptions struct {
	FS        vfs.FS
	Path      string // the partition's directory; made if it is not there
	Topic     string
	Partition int32
	// TopicID is written to partition.metadata of a new log; Zero writes none. The id of a log that has one stands.
	TopicID uuid.UUID
	Config  LogConfig
	// Clean says that the log was closed by Close: only what follows the last index entry is checked. Otherwise
	// everything from RecoveryPoint on is read and checked again.
	Clean         bool
	RecoveryPoint int64 // everything below was synced; 0 if not known
	StartOffset   int64 // log start offset known from outside; 0 if none
	Logger        *slog.Logger
	// OnFailure, if set, is told of the first write or fsync that failed. It may be called by any goroutine that
	// appends or flushes, which holds no lock but the log's own.
	OnFailure func(error)

	health *health         // of the Dir; nil makes one from OnFailure
	parent *parentDir      // of the Dir; nil: the log is on its own
	budget *producerBudget // of the Dir; nil: no bound
	attend func(*Log)      // asks the Dir's flusher for attention; may be nil
	// lowered has the Dir's checkpoint say no more than offset is durable; nil without a Dir.
	lowered func(tp TopicPartition, offset int64) error
	remove  func([]removal) // takes over files to be removed later; nil removes them at once
}

// health is shared by the logs of a directory: they fail together.
type health struct {
	path      string
	failed    atomic.Pointer[DirFailedError]
	onFailure func(error)
	metrics   *metrics // nil without a Dir
}

// fail marks the directory as failed for good and tells its owner, once.
func (h *health) fail(err error) error {
	failure := &DirFailedError{Path: h.path, Err: err}
	if !h.failed.CompareAndSwap(nil, failure) {
		return h.failed.Load()
	}
	if h.onFailure != nil {
		h.onFailure(failure)
	}
	return failure
}

func (h *health) err() error {
	if f := h.failed.Load(); f != nil {
		return f
	}
	return nil
}

// A removal is a file that was renamed and may go once delay has passed.
type removal struct {
	path  string
	delay time.Duration
}

// A Log is one partition's replica on disk: segments of record batches with rising offsets. It may be used by many
// goroutines and starts none. Appends and truncations exclude each other; reads take no lock.
type Log struct {
	fs      vfs.FS
	path    string
	tp      TopicPartition
	topicID uuid.UUID
	logger  *slog.Logger
	health  *health
	parent  *parentDir
	attend  func(*Log)
	lowered func(tp TopicPartition, offset int64) error
	remove  func([]removal)

	config    atomic.Pointer[LogConfig]
	appending chan struct{} // one slot: whoever changes segments, epochs or the end holds it, also over file calls
	flushing  chan struct{} // one slot: whoever syncs; taken before appending if both are needed

	segments      atomic.Pointer[[]*segment] // by base offset, never empty; the last takes the appends
	start         atomic.Int64               // log start offset
	end           atomic.Pointer[logEnd]     // what was written
	recoveryPoint atomic.Int64               // everything below is on the disk
	epochs        *epochs
	closed        atomic.Bool
	unsettled     atomic.Bool  // what the first append relies on may not be durable yet, see settle
	topicIDKept   bool         // partition.metadata says topicID; of who holds the append slot
	dirChanged    atomic.Bool  // a file was made since the directory was last synced
	epochsChanged atomic.Bool  // the leader-epoch checkpoint does not say what epochs says
	step          atomic.Int64 // of writebackStep that the end lies in
	attended      atomic.Int32 // attend was called and Flush has not begun since
	wantFlush     atomic.Bool  // the flusher wants a worker to flush it
	lastFlush     atomic.Int64 // when it began, ms
	doubted       atomic.Bool  // a segment's indexes wait to be built anew
	flusher       *flusher     // of the Dir; nil: nobody flushes it by itself
	listed        atomic.Bool  // the flusher looks at it
	due           bool         // it waits for its turn at the flusher; of the flusher alone
	lost          int64        // offset up to which the log once was durable, if it ends below that; else -1

	mu struct {
		sync.Mutex
		producers *producers
		snapshots []pendingSnapshot
		onDurable func()
		damage    []Damage
	}
}

// A pendingSnapshot is a producer snapshot that the next Flush writes.
type pendingSnapshot struct {
	offset int64
	data   []byte
}

// Damage is a stretch of offsets that recovery or scrubbing found missing or unreadable although they had been written; what
// lies behind it is readable. A replica with peers should truncate to From and fetch again.
type Damage struct {
	From, To int64  // offsets [From, To)
	Kept     string // file that holds the unreadable bytes; empty if there are none
	Reason   string
}

// Topic returns the topic's name.
func (l *Log) Topic() string { return l.tp.Topic }

// Partition returns the partition's number.
func (l *Log) Partition() int32 { return l.tp.Partition }

// TopicPartition returns both.
func (l *Log) TopicPartition() TopicPartition { return l.tp }

// TopicID returns the id of the log's topic, which is or will be in partition.metadata; Zero if it is not known.
func (l *Log) TopicID() uuid.UUID { return l.topicID }

// AdoptTopicID gives the id to a log that has none: one that was made just before a crash, or by a broker older than topic ids.
// It is in partition.metadata before the next append. Nobody may ask for the topic id meanwhile.
func (l *Log) AdoptTopicID(id uuid.UUID) error {
	if err := l.lock(); err != nil {
		return err
	}
	defer l.unlock()
	if l.topicID.IsZero() && !id.IsZero() {
		l.topicID = id
		l.unsettled.Store(true)
		l.tellFlusher()
	}
	return nil
}

// Path returns the log's directory.
func (l *Log) Path() string { return l.path }

// Config returns the settings in force; they are not to be changed.
func (l *Log) Config() *LogConfig { return l.config.Load() }

// SetConfig replaces the settings, from the next append on.
func (l *Log) SetConfig(c LogConfig) {
	l.config.Store(&c)
	if l.flusher != nil && !l.quiet() {
		l.flusher.tell(l) // its records may have less time now
	}
}

// StartOffset returns the log start offset, the first that can be read.
func (l *Log) StartOffset() int64 { return l.start.Load() }

// End returns the log end offset, the one the next record gets, and where.
func (l *Log) End() Position { return l.end.Load().Position }

// Durable returns the offset below which everything is on the disk. It advances when a flush has come back.
func (l *Log) Durable() int64 { return l.recoveryPoint.Load() }

// RecoveryPoint returns the offset from which recovery after a crash would read again: [Log.Durable] by Kafka's name.
func (l *Log) RecoveryPoint() int64 { return l.recoveryPoint.Load() }

// OnDurable sets the one function that is called each time Durable has advanced, from the goroutine that flushed,
// with no lock of the log held but the flush's.
func (l *Log) OnDurable(f func()) {
	l.mu.Lock()
	l.mu.onDurable = f
	l.mu.Unlock()
}

// LostTo returns the offset up to which the log was once known to be on the disk if it now ends below: its tail, or all
// of it, is gone, and a replica that lost it must not lead before it caught up. Otherwise ok is false.
func (l *Log) LostTo() (offset int64, ok bool) { return l.lost, l.lost >= 0 && l.lost > l.End().Offset }

// Damage returns what recovery and scrubbing have found.
func (l *Log) Damage() []Damage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.mu.damage)
}

func (l *Log) addDamage(d Damage) {
	l.mu.Lock()
	l.mu.damage = append(l.mu.damage, d)
	l.mu.Unlock()
}

// Size returns the bytes of all .log files.
func (l *Log) Size() int64 {
	var n int64
	for _, s := range *l.segments.Load() {
		n += s.size.Load()
	}
	return n
}

// A SegmentInfo describes one segment.
type SegmentInfo struct {
	BaseOffset int64
	Bytes      int64
	Path       string // of the .log file
}

// Segments lists the segments by base offset.
func (l *Log) Segments() []SegmentInfo {
	segments := *l.segments.Load()
	out := make([]SegmentInfo, len(segments))
	for i, s := range segments {
		out[i] = SegmentInfo{BaseOffset: s.base, Bytes: s.size.Load(), Path: s.path()}
	}
	return out
}

// LatestEpoch returns the newest leader epoch known, UnknownEpoch if there is none.
func (l *Log) LatestEpoch() int32 { return l.epochs.latest() }

// EpochEndOffset answers OffsetForLeaderEpoch: the largest epoch known that is not above requested, and the offset where it
// ends, which for the newest is leo. It is (UnknownEpoch, UnknownOffset) if requested is newer than all; if it is older
// than all, requested itself and the start of the oldest. Source: Kafka's LeaderEpochFileCache.endOffsetFor.
func (l *Log) EpochEndOffset(requested int32, leo int64) (epoch int32, end int64) {
	return l.epochs.end(requested, leo)
}

// EpochAt returns the leader epoch in which the batch at offset was written, UnknownEpoch if that is not known.
func (l *Log) EpochAt(offset int64) int32 { return l.epochs.at(offset) }

// AssignEpoch notes that a leader epoch began at offset start. A new leader calls it with the log end offset before its first
// append. It does nothing if the epoch is already known to start there or earlier.
func (l *Log) AssignEpoch(epoch int32, start int64) error {
	if err := l.lock(); err != nil {
		return err
	}
	defer l.unlock()
	l.assignEpoch(epoch, start)
	return nil
}

func (l *Log) assignEpoch(epoch int32, start int64) {
	if l.epochs.assign(epoch, start) {
		l.epochsChanged.Store(true)
	}
}

// writeEpochs makes the leader-epoch checkpoint say, durably, what epochs says. The flush slot is held.
//
// It is written by a flush, ahead of the batches, and not when a leader epoch begins, as Kafka does: below the recovery point the
// checkpoint then names all epochs, above it recovery reads every batch and takes the epochs from them, and of an epoch
// without a batch nothing is kept over a restart anyway, here as there. So a leader takes over without an fsync.
func (l *Log) writeEpochs() error {
	if !l.epochsChanged.Swap(false) {
		return nil
	}
	l.dirChanged.Store(false) // the directory is synced now
	if err := vfs.WriteFileAtomic(l.fs, filepath.Join(l.path, epochFile), encodeEpochs(l.epochs.list())); err != nil {
		return fmt.Errorf("write leader epochs of %s: %w", l.tp, err)
	}
	return nil
}

// cutEpochs writes the checkpoint at once, after epochs at the end of the log were taken back: they may lie below the recovery
// point that recovery will go by, and batches of older epochs that are appended next would count as theirs.
func (l *Log) cutEpochs() error {
	l.epochsChanged.Store(true)
	if err := l.writeEpochs(); err != nil {
		return l.health.fail(err)
	}
	return nil
}

// syncNames makes durable what was made and renamed in the log's directory. The flush slot is held.
func (l *Log) syncNames() error {
	if !l.dirChanged.Swap(false) {
		return nil
	}
	if err := l.fs.SyncDir(l.path); err != nil {
		return fmt.Errorf("sync %s: %w", l.path, err)
	}
	return nil
}

// settle makes durable what an append relies on, if that is not done yet: that the log's directory is there, and whose topic it is,
// or its records could come up in a topic of the same name that is made later. To make or open many logs therefore costs no
// fsync each. The flusher does it soon, the first append if it comes earlier; as in Kafka, whose partition.metadata
// is written by a task of its own, or by the first append (UnifiedLog.maybeFlushMetadataFile). The append slot is held.
func (l *Log) settle() error {
	if !l.unsettled.Load() {
		return nil
	}
	if err := l.keepTopicID(); err != nil {
		return l.health.fail(err)
	}
	if err := l.parent.sync(); err != nil {
		return l.health.fail(err)
	}
	l.unsettled.Store(false)
	return nil
}

// keepTopicID makes partition.metadata durable. It is never there in part, which would keep an Apache broker from starting.
func (l *Log) keepTopicID() error {
	if l.topicIDKept || l.topicID.IsZero() {
		if err := l.fs.SyncDir(l.path); err != nil { // an earlier process need not have come to that
			return fmt.Errorf("sync %s: %w", l.path, err)
		}
		return nil
	}
	if err := writeTopicID(l.fs, l.path, l.topicID); err != nil {
		return err
	}
	l.topicIDKept = true
	return nil
}

// Producers lists the idempotent producers known, by id.
func (l *Log) Producers() []ProducerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.producers.list()
}

// ExpireProducers forgets the producers that wrote nothing for producer.id.expiration.ms and have no open transaction.
func (l *Log) ExpireProducers(now time.Time) {
	after := l.Config().ProducerIDExpiration.Milliseconds()
	l.mu.Lock()
	l.mu.producers.expire(now.UnixMilli(), after)
	l.mu.Unlock()
}

// FirstUnstable returns where the first transaction begins that is open or whose marker is not below the high watermark
// hw: the last stable offset. ok is false if there is none, and the last stable offset is hw. hw must not go back.
func (l *Log) FirstUnstable(hw int64) (p Position, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.producers.firstUnstable(hw)
}

// lock takes the append slot, or says why nothing can be appended any more.
func (l *Log) lock() error {
	l.appending <- struct{}{}
	err := l.health.err()
	if l.closed.Load() {
		err = ErrClosed
	}
	if err != nil {
		l.unlock()
	}
	return err
}

func (l *Log) unlock() { <-l.appending }

// active returns the segment that takes the appends.
func (l *Log) active() *segment {
	segments := *l.segments.Load()
	return segments[len(segments)-1]
}

// segmentAt returns the index of the segment that would hold offset: the last whose base is not above it; -1 if all
// are.
func segmentAt(segments []*segment, offset int64) int {
	return sort.Search(len(segments), func(i int) bool { return segments[i].base > offset }) - 1
}

// A logEnd is where a log ends, Offset being the log end offset, and where its last batch lies, for those who read nothing else: then
// no index is asked and no header read.
type logEnd struct {
	Position
	last lastBatch
}

// A lastBatch reaches from pos to the end of its segment, and from offset base to the log end. At -1 it is not known.
type lastBatch struct {
	base int64
	pos  int32
}

var noLastBatch = lastBatch{-1, -1}

// publish makes what was appended to the active segment visible to readers.
func (l *Log) publish(s *segment, size, end int64, last lastBatch) Position {
	s.size.Store(size)
	e := &logEnd{Position{Offset: end, SegmentBase: s.base, Pos: int32(size)}, last}
	l.end.Store(e)
	return e.Position
}

// roll seals the active segment and begins one at base, the log end offset or behind it.
func (l *Log) roll(base, now int64) (*segment, error) {
	old := l.active()
	if old.base == base && old.size.Load() > 0 {
		return nil, fmt.Errorf("segment %d of %s can not be rolled at its own base offset", base, l.tp)
	}
	if old.base == base {
		return old, nil
	}
	old.noteTime()
	old.scrubbed.Store(now)
	old.sealed.Store(true)
	l.snapshotProducers(base)
	s, err := l.newSegment(base, now)
	if err != nil {
		return nil, l.health.fail(err)
	}
	segments := *l.segments.Load()
	next := append(segments[:len(segments):len(segments)], s)
	l.segments.Store(&next)
	return s, nil
}

// newSegment makes the file of an empty segment; why that is not done ahead of a roll: ARCHITECTURE.md.
func (l *Log) newSegment(base, now int64) (*segment, error) {
	s := newSegment(l.fs, l.path, base, l.indexDoubted)
	f, err := l.fs.Create(s.path())
	if err != nil {
		return nil, fmt.Errorf("create segment: %w", err)
	}
	h := newHandle(s, f, 1)
	h.writable = true
	s.handle.Store(h)
	s.maxTimestamp.Store(-1)
	s.txns.Store(&[]AbortedTxn{})
	s.begin(now, l.Config())
	l.dirChanged.Store(true)
	return s, nil
}

// begin sets what rolling by time goes by.
func (s *segment) begin(now int64, c *LogConfig) {
	s.created = now
	if j := c.SegmentJitter.Milliseconds(); j > 0 {
		s.jitter = rand.Int64N(j)
	}
}

// shouldRoll reports whether a batch of size bytes must go to a new segment. Source: Kafka's LogSegment.shouldRoll.
func (s *segment) shouldRoll(c *LogConfig, at, size, maxTimestamp, lastOffset, now int64) bool {
	if at == 0 {
		return lastOffset-s.base > math.MaxInt32
	}
	waited := now - s.created
	if s.firstTimestamp >= 0 {
		waited = maxTimestamp - s.firstTimestamp
	}
	return at > min(c.SegmentBytes, math.MaxInt32)-size ||
		waited > c.SegmentAge.Milliseconds()-s.jitter ||
		int64(s.offsets.state.Load().len()) >= c.SegmentIndexBytes/int64(offsetLayout.size) ||
		int64(s.times.state.Load().len()) >= c.SegmentIndexBytes/int64(timeLayout.size)-1 ||
		lastOffset-s.base > math.MaxInt32
}

// snapshotProducers encodes the producer state as of offset, for the next Flush to write.
func (l *Log) snapshotProducers(offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.producers.mapEnd = offset
	l.mu.snapshots = append(l.mu.snapshots, pendingSnapshot{offset: offset, data: l.mu.producers.encode()})
}
