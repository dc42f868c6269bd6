package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ottla/internal/record"
	"ottla/internal/uuid"
	"ottla/internal/vfs"
)

// OpenLog opens the log in o.Path, recovering it from whatever a crash, a disk or another broker left there, or makes
// an empty one. What it does for each kind of damage is the table of TestRecovery; the principles: bytes that were
// never whole are cut and kept in a .torn file; bad batches with good ones behind are taken out into one; what can be
// derived from the log (indexes, producer state, leader epochs) is; whole segments that do not belong are renamed to
// .aside. An error means that the disk itself failed.
func OpenLog(o LogOptions) (*Log, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.health == nil {
		o.health = &health{path: o.Path, onFailure: o.OnFailure}
	}
	l := &Log{
		fs: o.FS, path: o.Path, tp: TopicPartition{o.Topic, o.Partition}, health: o.health,
		parent: o.parent, attend: o.attend, lowered: o.lowered, remove: o.remove,
		appending: make(chan struct{}, 1), flushing: make(chan struct{}, 1), lost: -1,
		logger: o.Logger.With("topic", o.Topic, "partition", o.Partition),
	}
	l.config.Store(&o.Config)
	l.mu.producers = newProducers(0)
	l.mu.producers.adopt(cmp.Or(o.budget, new(producerBudget)))
	if l.parent == nil {
		l.parent = newParentDir(l.fs, filepath.Dir(l.path))
	}
	made, err := l.makeDir()
	if err != nil {
		return nil, fmt.Errorf("make log directory: %w", err)
	}
	// What was never flushed may not have been settled either.
	l.unsettled.Store(made || !o.Clean && o.RecoveryPoint == 0)
	r := &recovery{l: l, clean: o.Clean, point: o.RecoveryPoint}
	if err := r.run(&o); err != nil {
		for _, s := range r.segments {
			s.drop()
		}
		l.mu.producers.release()
		return nil, fmt.Errorf("recover %s in %s: %w", l.tp, o.Path, err)
	}
	return l, nil
}

// makeDir makes the log's directory if it is not there. It is durable once the log has settled.
func (l *Log) makeDir() (made bool, err error) {
	if _, err := l.fs.Stat(l.path); !errors.Is(err, fs.ErrNotExist) {
		l.parent.made.Add(1) // by an earlier process, which need not have synced it
		return false, err
	}
	err = l.fs.MkdirAll(l.path, 0o755)
	l.parent.made.Add(1)
	return true, err
}

// A recovery is one run of OpenLog. Nobody else has the log yet, so it takes no lock.
type recovery struct {
	l        *Log
	clean    bool
	point    int64 // recovery point
	segments []*segment

	snapshots    []int64 // offsets of the producer snapshots there are, rising
	indexSize    map[int64][2]int64
	epochBytes   []byte // of the leader-epoch checkpoint
	deriveEpochs bool   // from all batches
}

func (r *recovery) run(o *LogOptions) error {
	if err := r.topicID(o.TopicID); err != nil {
		return err
	}
	if err := r.files(); err != nil {
		return err
	}
	if err := r.epochs(); err != nil {
		return err
	}
	if err := r.misplaced(); err != nil {
		return err
	}
	end, err := r.scanSegments()
	if err != nil {
		return err
	}
	if end < o.StartOffset && len(r.segments) > 0 {
		r.l.logger.Warn("log ends below its start, setting its segments aside", "logEndOffset", end, "logStartOffset", o.StartOffset)
		if err := r.setAside(0); err != nil {
			return err
		}
		end = o.StartOffset
	}
	return r.finish(o, max(end, o.StartOffset))
}

// topicID reads the topic's id, or takes the one the caller knows where there is none to be read.
func (r *recovery) topicID(known uuid.UUID) error {
	id, err := readTopicID(r.l.fs, r.l.path)
	var c *CorruptError
	if errors.As(err, &c) {
		r.l.logger.Warn("partition.metadata is damaged", "reason", c.Reason)
	} else if err != nil {
		return err
	}
	r.l.topicID, r.l.topicIDKept = id, !id.IsZero()
	if id.IsZero() && !known.IsZero() {
		r.l.topicID = known
		r.l.unsettled.Store(true)
	}
	return nil
}

// files sorts out what lies in the directory: it ends what a crash interrupted, and lists segments and snapshots.
func (r *recovery) files() error {
	names, err := r.list()
	if err != nil {
		return err
	}
	if err := r.interrupted(names); err != nil {
		return err
	}
	entries, err := r.l.fs.ReadDir(r.l.path)
	if err != nil {
		return fmt.Errorf("list log directory: %w", err)
	}
	r.indexSize = map[int64][2]int64{}
	orphans := map[string]int64{}
	for _, e := range entries {
		base, suffix, ok := parseSegmentFile(e.Name())
		if !ok || e.IsDir() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return fmt.Errorf("stat %s: %w", e.Name(), err)
		}
		sizes := r.indexSize[base]
		switch suffix {
		case logSuffix:
			r.addSegment(base, info)
		case indexSuffix:
			sizes[0] = info.Size()
			orphans[e.Name()] = base
		case timeIndexSuffix:
			sizes[1] = info.Size()
			orphans[e.Name()] = base
		case txnIndexSuffix:
			orphans[e.Name()] = base
		case snapshotSuffix:
			r.snapshots = append(r.snapshots, base)
		}
		r.indexSize[base] = sizes
	}
	for name, base := range orphans {
		if slices.ContainsFunc(r.segments, func(s *segment) bool { return s.base == base }) {
			continue
		}
		if err := r.l.fs.Remove(filepath.Join(r.l.path, name)); err != nil {
			return fmt.Errorf("remove index without a segment: %w", err)
		}
	}
	return nil
}

func (r *recovery) addSegment(base int64, info fs.FileInfo) {
	s := newSegment(r.l.fs, r.l.path, base, r.l.indexDoubted)
	s.size.Store(info.Size())
	s.created = info.ModTime().UnixMilli()
	s.sealed.Store(true)
	s.indexed.Store(true)
	r.segments = append(r.segments, s) // ReadDir sorts, and so do 20 digits
}

func (r *recovery) list() ([]string, error) {
	entries, err := r.l.fs.ReadDir(r.l.path)
	if err != nil {
		return nil, fmt.Errorf("list log directory: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// interrupted removes deleted and half-written files and puts complete swap files into place, as Kafka's LogLoader does:
// a swap file is worthless if a .cleaned one at or below its base says that its group was not complete.
func (r *recovery) interrupted(names []string) error {
	minCleaned := int64(math.MaxInt64)
	var swaps []string
	for _, name := range names {
		switch filepath.Ext(name) {
		case swapSuffix:
			swaps = append(swaps, name)
		case cleanedSuffix:
			if base, _, ok := parseSegmentFile(name); ok {
				minCleaned = min(minCleaned, base)
			}
			fallthrough
		case deletedSuffix, ".tmp":
			if err := r.l.fs.Remove(filepath.Join(r.l.path, name)); err != nil {
				return fmt.Errorf("remove left-over file: %w", err)
			}
		}
	}
	for _, name := range swaps {
		base, _, ok := parseSegmentFile(name)
		if ok && base < minCleaned && strings.HasSuffix(name, logSuffix+swapSuffix) {
			if err := r.covered(filepath.Join(r.l.path, name), base, names); err != nil {
				return err
			}
		}
	}
	for _, name := range swaps {
		base, _, ok := parseSegmentFile(name)
		path := filepath.Join(r.l.path, name)
		if !ok || base >= minCleaned {
			if err := r.l.fs.Remove(path); err != nil {
				return fmt.Errorf("remove left-over file: %w", err)
			}
			continue
		}
		if err := r.l.fs.Rename(path, strings.TrimSuffix(path, swapSuffix)); err != nil {
			return fmt.Errorf("put swap file into place: %w", err)
		}
	}
	if len(swaps) == 0 {
		return nil
	}
	return r.l.fs.SyncDir(r.l.path)
}

// covered removes the segments whose records the swap file at path holds, all but the one of its own base.
func (r *recovery) covered(path string, base int64, names []string) error {
	f, err := r.l.fs.Open(path)
	if err != nil {
		return fmt.Errorf("open swap file: %w", err)
	}
	size, err := f.Size()
	if err != nil {
		return errors.Join(fmt.Errorf("size swap file: %w", err), f.Close())
	}
	next := base
	w := walk(f, 0, size)
	for {
		h, _, err := w.next()
		if err != nil {
			break // the end, or damage that recovery will meet again
		}
		next = h.NextOffset()
	}
	w.close()
	if err := f.Close(); err != nil {
		return fmt.Errorf("close swap file: %w", err)
	}
	for _, name := range names {
		other, suffix, ok := parseSegmentFile(name)
		if !ok || other <= base || other >= next || filepath.Ext(suffix) == swapSuffix || suffix == snapshotSuffix {
			continue
		}
		if err := r.l.fs.Remove(filepath.Join(r.l.path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove replaced segment: %w", err)
		}
	}
	return nil
}

// epochs reads the leader-epoch checkpoint; one that is damaged or gone is derived from the batches. What it says of offsets that will
// be read again is left to the batches there: after a crash it may name an epoch that was taken back.
func (r *recovery) epochs() error {
	r.l.epochs = newEpochs(nil)
	b, err := vfs.ReadFile(r.l.fs, filepath.Join(r.l.path, epochFile))
	r.epochBytes = b
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
		r.deriveEpochs = len(r.segments) > 0
		return nil
	}
	if err != nil {
		return fmt.Errorf("read leader epochs: %w", err)
	}
	entries, err := readEpochs(b)
	if err != nil {
		r.l.logger.Warn("leader-epoch-checkpoint is damaged, deriving it from the log", "reason", err.Error())
		r.deriveEpochs = true
		return nil
	}
	r.l.epochs = newEpochs(entries)
	if !r.clean {
		r.l.epochs.truncateEnd(r.point)
	}
	return nil
}

// misplaced sets segments aside whose first batch does not belong under their name: copies of another.
func (r *recovery) misplaced() error {
	for i := 0; i < len(r.segments); i++ {
		s := r.segments[i]
		first, err := s.firstBatch()
		if err != nil {
			return err
		}
		if first.Magic != record.Magic || first.BaseOffset >= s.base || i == 0 {
			continue
		}
		r.l.logger.Warn("segment holds offsets below its name, setting it aside", "segment", s.path(), "baseOffset", first.BaseOffset)
		if err := r.aside(s); err != nil {
			return err
		}
		r.segments = slices.Delete(r.segments, i, i+1)
		i--
	}
	return nil
}

// firstBatch returns the segment's first header, or a zero one if there is none that can be read.
func (s *segment) firstBatch() (record.Header, error) {
	h, err := s.acquire()
	if err != nil {
		return record.Header{}, err
	}
	defer h.release()
	return h.firstBatch(s.size.Load())
}

func (h *handle) firstBatch(size int64) (record.Header, error) {
	if size < record.HeaderSize {
		return record.Header{}, nil
	}
	var b [record.HeaderSize]byte
	if _, err := h.log.ReadAt(b[:], 0); err != nil {
		return record.Header{}, fmt.Errorf("read %s: %w", h.log.Name(), err)
	}
	header, err := record.ParseHeader(b[:])
	if err != nil {
		return record.Header{}, nil // damage is the scan's to deal with
	}
	return header, nil
}

// setAside renames segment i and all behind it.
func (r *recovery) setAside(i int) error {
	for _, s := range r.segments[i:] {
		if err := r.aside(s); err != nil {
			return err
		}
	}
	r.segments = r.segments[:i]
	return nil
}

// aside renames a segment's files so that no broker takes them for part of the log.
func (r *recovery) aside(s *segment) error {
	s.drop()
	for _, suffix := range []string{logSuffix, indexSuffix, timeIndexSuffix, txnIndexSuffix} {
		if _, err := renameIfThere(r.l.fs, s.stem+suffix, s.stem+suffix+asideSuffix); err != nil {
			return fmt.Errorf("set segment aside: %w", err)
		}
	}
	return r.l.fs.SyncDir(r.l.path)
}

// renameIfThere renames a file and reports whether it was there.
func renameIfThere(fsys vfs.FS, from, to string) (bool, error) {
	err := fsys.Rename(from, to)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// scanSegments checks every segment as far as it has to be, and returns the log end offset.
func (r *recovery) scanSegments() (end int64, err error) {
	for i := 0; i < len(r.segments); i++ {
		s := r.segments[i]
		last := i == len(r.segments)-1
		if !last && (r.clean || r.segments[i+1].base <= r.point) {
			if end, err = r.trusted(s, r.segments[i+1].base); err != nil {
				return 0, err
			}
		} else if end, err = r.scan(s, last); err != nil {
			return 0, err
		}
		if i+1 < len(r.segments) {
			if err := r.join(i, end); err != nil {
				return 0, err
			}
		}
	}
	return end, nil
}

// join compares the end of segment i with the start of the next. A gap is a hole, unless it is what compaction leaves, or
// the rest was never durable; an overlap is left to the segment that covers it.
func (r *recovery) join(i int, end int64) error {
	next := r.segments[i+1]
	switch {
	case end > next.base:
		r.l.logger.Warn("segments overlap, setting the later aside", "segment", next.path(), "end", end)
		if err := r.aside(next); err != nil {
			return err
		}
		r.segments = slices.Delete(r.segments, i+1, i+2)
	case end == next.base || r.l.Config().CleanupCompact:
	case !r.clean && end >= r.point:
		r.l.logger.Warn("log was not yet durable and lost its middle, setting what follows aside", "logEndOffset", end, "segment", next.path())
		return r.setAside(i + 1)
	default:
		r.damaged(Damage{From: end, To: next.base, Reason: "segment is missing or cut off"})
	}
	return nil
}

func (r *recovery) damaged(d Damage) {
	r.l.addDamage(d)
	r.l.logger.Error("log has a hole", "from", d.From, "to", d.To, "reason", d.Reason, "kept", d.Kept)
}

// trusted takes a segment whose records are known to be on the disk without reading it again, except, after a crash, for
// the last stretch, to see whether it reaches the next segment at offset next.
func (r *recovery) trusted(s *segment, next int64) (end int64, err error) {
	sizes := r.indexSize[s.base]
	size := s.size.Load()
	s.flushed.Store(size)
	s.offsets.adopt(int(sizes[0]) / offsetLayout.size)
	s.times.adopt(int(sizes[1]) / timeLayout.size)
	odd := sizes[0]%int64(offsetLayout.size) != 0 || sizes[1]%int64(timeLayout.size) != 0
	if size > 0 && (odd || sizes[1] == 0 || sizes[0] == 0 && size > scanChunk) {
		s.doubt()
	}
	if r.deriveEpochs {
		return next, r.walkEpochs(s)
	}
	if r.clean || s.rebuild.Load() || size == 0 {
		return next, nil
	}
	h, err := s.acquire()
	if err != nil {
		return 0, err
	}
	defer h.release()
	return r.lastOf(s, h, next)
}

// lastOf returns the first offset behind the segment's last batch, or next if that can not be told cheaply.
func (r *recovery) lastOf(s *segment, h *handle, next int64) (int64, error) {
	e, ok, err := s.offsets.floor(h, math.MaxInt32)
	if err != nil || !ok || e.value <= 0 || int64(e.value) >= s.size.Load() {
		return next, nil // the index is at fault; a lookup will find out
	}
	w := walk(h.log, int64(e.value), s.size.Load())
	defer w.close()
	end := next
	for {
		header, _, err := w.next()
		if err != nil {
			return end, nil // the end, or damage that a reader will meet
		}
		end = header.NextOffset()
	}
}

// walkEpochs derives leader epochs from a segment's headers.
func (r *recovery) walkEpochs(s *segment) error {
	h, err := s.acquire()
	if err != nil {
		return err
	}
	defer h.release()
	w := walk(h.log, 0, s.size.Load())
	defer w.close()
	for {
		header, _, err := w.next()
		if err != nil {
			return nil // the end, or damage that a reader will meet
		}
		r.noteEpoch(&header)
	}
}

func (r *recovery) noteEpoch(h *record.Header) {
	if h.LeaderEpoch > r.l.epochs.latest() {
		r.l.epochs.assign(h.LeaderEpoch, h.BaseOffset)
	}
}

// badRange is a stretch of a segment's file that holds no sound batch, with sound ones behind it.
type badRange struct {
	from, to int64 // bytes
	damage   Damage
}

// scan checks a segment's batches from the recovery point on, or only behind the last index entry after a clean
// shutdown; cuts what is torn, takes out what is bad. It returns the first offset behind it.
func (r *recovery) scan(s *segment, last bool) (end int64, err error) {
	h, err := s.acquireToWrite()
	if err != nil {
		return 0, err
	}
	defer func() { h.release() }()
	limit := r.point
	if r.clean {
		limit = math.MaxInt64
	}
	start, end, err := s.resume(h, limit)
	if err != nil {
		return 0, err
	}
	if r.deriveEpochs && start > 0 {
		if err := r.walkEpochs(s); err != nil {
			return 0, err
		}
	}
	for {
		bad, cut, next, err := r.batches(s, h, start, end)
		if err != nil {
			return 0, err
		}
		if cut < 0 { // the index led astray: once more from the start
			s.forget()
			start, end = 0, s.base
			continue
		}
		if cut < s.size.Load() {
			if err := r.cut(s, h, cut); err != nil {
				return 0, err
			}
		}
		if len(bad) > 0 {
			if err := r.quarantine(s, h, bad); err != nil {
				return 0, err
			}
			rewritten, err := s.acquireToWrite()
			if err != nil {
				return 0, err
			}
			h.release()
			h = rewritten
			if err := s.reindex(h, r.l.Config().IndexInterval, s.size.Load()); err != nil {
				return 0, err
			}
		}
		if !last {
			s.noteTime()
		}
		if r.clean || next <= r.point {
			s.flushed.Store(s.size.Load())
		}
		return next, s.truncateAborted(next)
	}
}

// forget empties the indexes.
func (s *segment) forget() {
	s.offsets.replace(nil)
	s.times.replace(nil)
	s.maxTimestamp.Store(-1)
	s.maxTimestampOffset, s.firstTimestamp, s.sinceIndexEntry = s.base, -1, 0
}

// resume loads the index entries of batches below offset limit and returns the position and offset that the last of
// them leads to, from which on batches are to be noted anew; 0 and the base if there is none.
func (s *segment) resume(h *handle, limit int64) (pos, offset int64, err error) {
	offsets, err := s.entries(offsetLayout)
	if err != nil {
		return 0, 0, err
	}
	times, err := s.entries(timeLayout)
	if err != nil {
		return 0, 0, err
	}
	s.forget()
	offsets, times, header, err := s.resumable(h, offsets, times, limit)
	if err != nil || len(offsets) == 0 {
		return 0, s.base, err
	}
	s.offsets.load(offsets)
	s.times.load(times)
	return int64(offsets[len(offsets)-1].value), header.BaseOffset, nil
}

// resumable cuts the entries down to those of batches below offset limit, and returns the header that the last leads to.
// What the last time entry says becomes the segment's largest timestamp. Without a fitting header nothing is left.
func (s *segment) resumable(h *handle, offsets, times []entry, limit int64) (o, t []entry, header record.Header, err error) {
	n := len(offsets)
	for n > 0 && (s.base+offsets[n-1].key >= limit || int64(offsets[n-1].value) >= s.size.Load()) {
		n--
	}
	if n == 0 {
		return nil, nil, header, nil
	}
	e := offsets[n-1]
	m := len(times)
	for m > 0 && int64(times[m-1].value) > e.key {
		m--
	}
	if m == 0 { // each entry of the offset index has one beside it, unless records have no timestamps
		return nil, nil, header, nil
	}
	w := walk(h.log, int64(e.value), s.size.Load())
	header, _, err = w.next()
	w.close()
	if err != nil || header.LastOffset() != s.base+e.key {
		return nil, nil, header, nil // whatever it is, reading from the start finds out
	}
	first, err := h.firstBatch(s.size.Load())
	if err != nil {
		return nil, nil, header, err
	}
	s.maxTimestamp.Store(times[m-1].key)
	s.maxTimestampOffset = s.base + int64(times[m-1].value)
	s.firstTimestamp = first.MaxTimestamp
	return offsets[:n], times[:m], header, nil
}

// current returns all entries of an index of this segment, from the file and from memory, and how many are in the file.
func (s *segment) current(x *index) (entries []entry, onDisk int, err error) {
	state := x.state.Load()
	if state.onDisk > 0 {
		if entries, err = s.entries(x.layout); err != nil {
			return nil, 0, err
		}
		entries = entries[:min(len(entries), state.onDisk)]
	}
	onDisk = len(entries)
	for _, c := range state.tail {
		entries = append(entries, c.e[:c.n.Load()]...)
	}
	return entries, onDisk, nil
}

// entries reads an index file's sound entries; none if there is no file.
func (s *segment) entries(y layout) ([]entry, error) {
	f, err := s.fs.Open(s.stem + y.suffix)
	if errors.Is(err, fs.ErrNotExist) {
		s.indexed.Store(false)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open index: %w", err)
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("size index: %w", err), f.Close())
	}
	entries, err := readIndex(f, size, y)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	return entries, nil
}

// batches checks and notes the batches from start on, the first of which has offset next or more. It returns the bad
// stretches with good batches behind them, where to cut the file (its size if nowhere; -1 if already the batch at
// start > 0 is bad), and the first offset behind what stays.
func (r *recovery) batches(s *segment, h *handle, start, next int64) (bad []badRange, cut, end int64, err error) {
	size := s.size.Load()
	sc := newScanner(h.log, s.base, size)
	interval := r.l.Config().IndexInterval
	for pos := start; pos < size; {
		header, reason, err := sc.batch(pos, next)
		if err != nil {
			return nil, 0, 0, err
		}
		if reason == "" {
			s.note(&header, pos, interval)
			r.noteEpoch(&header)
			pos += int64(header.Size())
			next = header.NextOffset()
			continue
		}
		if pos == start && start > 0 {
			return nil, -1, 0, nil
		}
		to, err := sc.resync(pos+1, next)
		if err != nil || to < 0 {
			return bad, pos, next, err
		}
		lost, err := sc.lostWrite(pos, to)
		if err != nil {
			return nil, 0, 0, err
		}
		if lost && !r.clean && next >= r.point {
			return bad, pos, next, nil
		}
		after, _, err := sc.batch(to, next)
		if err != nil {
			return nil, 0, 0, err
		}
		bad = append(bad, badRange{from: pos, to: to, damage: Damage{From: next, To: after.BaseOffset, Reason: reason}})
		pos, next = to, after.BaseOffset
	}
	return bad, size, next, nil
}

func (s *segment) tornPath(pos int64) string {
	return fmt.Sprintf("%s.%d%s", s.path(), pos, tornSuffix)
}

// cut truncates a segment's file and keeps the bytes behind, unless they are but zeros.
func (r *recovery) cut(s *segment, h *handle, pos int64) error {
	size := s.size.Load()
	zeros, err := newScanner(h.log, s.base, size).zeros(pos, size)
	if err != nil {
		return err
	}
	kept := ""
	if !zeros {
		kept = s.tornPath(pos)
		if err := copyRange(r.l.fs, kept, h.log, pos, size); err != nil {
			return err
		}
		if err := r.l.fs.SyncDir(r.l.path); err != nil {
			return fmt.Errorf("sync %s: %w", r.l.path, err)
		}
	}
	r.l.logger.Warn("segment ends in bytes that are no whole batch, cutting them", "segment", s.path(), "position", pos, "bytes", size-pos, "kept", kept)
	if err := h.log.Truncate(pos); err != nil {
		return fmt.Errorf("cut segment: %w", err)
	}
	if err := h.log.Sync(); err != nil {
		return fmt.Errorf("sync segment: %w", err)
	}
	s.size.Store(pos)
	return nil
}

// quarantine takes bad stretches out of a segment's file into files of their own. The segment is written anew under
// another name first, so that a crash leaves one or the other.
func (r *recovery) quarantine(s *segment, h *handle, bad []badRange) error {
	cleaned := s.path() + cleanedSuffix
	out, err := r.l.fs.Create(cleaned)
	if err != nil {
		return fmt.Errorf("create %s: %w", cleaned, err)
	}
	pos, at := int64(0), int64(0)
	for _, b := range append(bad, badRange{from: s.size.Load()}) {
		if err == nil {
			err = copyAt(out, at, h.log, pos, b.from)
		}
		at += b.from - pos
		pos = b.to
	}
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("write %s: %w", cleaned, err)
	}
	for _, b := range bad {
		b.damage.Kept = s.tornPath(b.from)
		if err := copyRange(r.l.fs, b.damage.Kept, h.log, b.from, b.to); err != nil {
			return err
		}
		r.damaged(b.damage)
	}
	if err := r.l.fs.SyncDir(r.l.path); err != nil {
		return fmt.Errorf("sync %s: %w", r.l.path, err)
	}
	if err := r.l.fs.Rename(cleaned, s.path()); err != nil {
		return fmt.Errorf("replace segment: %w", err)
	}
	s.drop()
	s.size.Store(at)
	return r.l.fs.SyncDir(r.l.path)
}

// copyRange writes bytes [from, to) of a file to a new one and syncs it.
func copyRange(fsys vfs.FS, path string, f vfs.File, from, to int64) error {
	out, err := fsys.Create(path)
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	err = copyAt(out, 0, f, from, to)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// copyAt writes bytes [from, to) of in to out at the given position.
func copyAt(out vfs.File, at int64, in vfs.File, from, to int64) error {
	buf := make([]byte, min(scanChunk, max(0, to-from)))
	for from < to {
		b := buf[:min(int64(len(buf)), to-from)]
		n, err := in.ReadAt(b, from)
		if err != nil && (err != io.EOF || n < len(b)) {
			return err
		}
		if _, err := out.WriteAt(b, at); err != nil {
			return err
		}
		from += int64(len(b))
		at += int64(len(b))
	}
	return nil
}

// finish puts the log together once its segments are sound.
func (r *recovery) finish(o *LogOptions, end int64) error {
	l := r.l
	now := time.Now().UnixMilli()
	if len(r.segments) == 0 {
		s, err := l.newSegment(end, now)
		if err != nil {
			return err
		}
		r.segments = append(r.segments, s)
	}
	active := r.segments[len(r.segments)-1]
	active.sealed.Store(false)
	active.begin(now, l.Config())
	active.writtenBack.Store(active.size.Load())
	l.segments.Store(&r.segments)
	if !r.clean {
		l.dirChanged.Store(true) // a process that was killed may have made files whose names no crash survives yet
	}
	for _, s := range r.segments[:len(r.segments)-1] {
		s.drop() // a log may have many, and nobody reads them yet
	}
	l.start.Store(max(o.StartOffset, r.segments[0].base))
	l.publish(active, active.size.Load(), end, noLastBatch)
	l.recoveryPoint.Store(end)
	if !r.clean {
		l.recoveryPoint.Store(min(r.point, end))
	}
	if r.point > end {
		l.lost = r.point
		l.logger.Error("log lost its tail: it was durable further than it reaches", "logEndOffset", end, "recoveryPoint", r.point)
	}
	r.finishEpochs()
	return r.l.loadProducers(r.snapshots, now)
}

func (r *recovery) finishEpochs() {
	l := r.l
	l.epochs.truncateEnd(l.End().Offset)
	l.epochs.truncateStart(l.StartOffset())
	none := len(r.epochBytes) == 0 && len(l.epochs.list()) == 0
	if !none && string(r.epochBytes) != string(encodeEpochs(l.epochs.list())) {
		l.epochsChanged.Store(true)
	}
}

// loadProducers builds the producer state at the log's end from the newest sound snapshot and the batches behind it.
// Snapshots that are unsound or of another time are removed.
func (l *Log) loadProducers(snapshots []int64, now int64) error {
	end, start := l.End().Offset, l.StartOffset()
	expiration := l.Config().ProducerIDExpiration.Milliseconds()
	first := (*l.segments.Load())[0].base
	state := newProducers(start)
	found := false
	for _, offset := range slices.Backward(snapshots) {
		if found && offset >= first {
			continue
		}
		if offset <= end && offset >= first {
			b, err := vfs.ReadFile(l.fs, l.snapshotPath(offset))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("read producer snapshot: %w", err)
			}
			s, err := decodeProducers(b, offset, now, expiration)
			if err == nil {
				state, found = s, true
				continue
			}
			l.logger.Warn("producer snapshot is damaged, building the state from the log", "offset", offset, "reason", err.Error())
		}
		if err := l.fs.Remove(l.snapshotPath(offset)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove producer snapshot: %w", err)
		}
	}
	if err := l.replayProducers(state, now, expiration); err != nil {
		return err
	}
	l.mu.Lock()
	state.adopt(l.mu.producers.budget)
	l.mu.producers.release()
	l.mu.producers, l.mu.snapshots = state, nil
	l.mu.Unlock()
	return nil
}

// replayProducers takes in the batches between the state's and the log's end.
func (l *Log) replayProducers(state *producers, now, expiration int64) error {
	end := l.End()
	segments := *l.segments.Load()
	from := state.mapEnd
	for _, s := range segments[max(0, segmentAt(segments, from)):] {
		if err := s.replay(state, from, end.Offset); err != nil {
			return err
		}
	}
	state.mapEnd = end.Offset
	state.expire(now, expiration)
	return nil
}

func (s *segment) replay(state *producers, from, end int64) error {
	h, err := s.acquire()
	if err != nil {
		return err
	}
	defer h.release()
	size := s.size.Load()
	header, pos, err := s.find(h, from, size)
	if err != nil {
		return ignoreDamage(err)
	}
	w := s.walk(h, pos, size)
	defer w.close()
	for {
		header, pos, err = w.next()
		if err != nil {
			return ignoreDamage(err)
		}
		if !header.HasProducer() || header.LastOffset() < from || header.BaseOffset >= end {
			continue
		}
		var adm admission
		if header.Attributes.Control() {
			if adm, err = readMarkerAt(h.log, pos, &header); err != nil {
				return ignoreDamage(err)
			}
		}
		// An abort is already in the transaction index, unless a crash took that.
		if a, ok := state.note(&header, &adm, Position{Offset: header.BaseOffset, SegmentBase: s.base, Pos: int32(pos)}); ok {
			if err := s.restoreAborted(a); err != nil {
				return err
			}
		}
	}
}

// ignoreDamage drops io.EOF and what says that bytes in an old segment are rotten: that is for readers to meet.
func ignoreDamage(err error) error {
	var ours *CorruptError
	var records *record.CorruptError
	if err == io.EOF || errors.As(err, &ours) || errors.As(err, &records) {
		return nil
	}
	return err
}
