package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"ottla/internal/record"
	"ottla/internal/vfs"
)

// A checkpoint is a snapshot in Kafka's format: record batches whose offsets begin at 0 in each file. The first is a
// control batch of snapshot header, KRaft version and voters; data batches follow; a control batch with the
// snapshot footer comes last. A file without it is not whole.

const (
	checkpointSuffix = ".checkpoint"
	partSuffix       = ".part" // while it is being written
	// checkpointBatchBytes is the size at which a data batch of a checkpoint is closed.
	checkpointBatchBytes = 256 << 10
)

// bootstrapID names the checkpoint that formatting a controller's directory writes. It holds the records a new
// cluster begins with, which are no part of the log.
var bootstrapID = SnapshotID{}

func checkpointPath(dir string, id SnapshotID) string {
	return filepath.Join(dir, id.String()+checkpointSuffix)
}

func parseSnapshotID(name string) (SnapshotID, bool) {
	offset, epoch, ok := strings.Cut(strings.TrimSuffix(name, checkpointSuffix), "-")
	if !ok || len(offset) != 20 || len(epoch) != 10 {
		return SnapshotID{}, false
	}
	end, err1 := strconv.ParseInt(offset, 10, 64)
	e, err2 := strconv.ParseInt(epoch, 10, 32)
	return SnapshotID{EndOffset: end, Epoch: int32(e)}, err1 == nil && err2 == nil && end >= 0 && e >= 0
}

// listSnapshots returns the checkpoints in dir, ascending, without that of the format, and removes what
// writers left unfinished.
func listSnapshots(fsys vfs.FS, dir string) ([]SnapshotID, error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var ids []SnapshotID
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), checkpointSuffix+partSuffix) {
			if err := fsys.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, err
			}
			continue
		}
		if !strings.HasSuffix(e.Name(), checkpointSuffix) {
			continue
		}
		if id, ok := parseSnapshotID(e.Name()); ok && id != bootstrapID {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, compareSnapshots)
	return ids, nil
}

func compareSnapshots(a, b SnapshotID) int {
	if a.EndOffset != b.EndOffset {
		return int(max(-1, min(1, a.EndOffset-b.EndOffset)))
	}
	return int(a.Epoch) - int(b.Epoch)
}

// checkpointHead is what the first batch of a checkpoint says beside the voters.
type checkpointHead struct {
	timestamp int64     // ms: of the last record the snapshot covers
	voters    []Replica // none: then neither they nor a KRaft version are written
}

// writeCheckpoint writes the checkpoint id in dir, durably: it is there whole or not at all.
func writeCheckpoint(fsys vfs.FS, dir string, id SnapshotID, head checkpointHead, now int64, write func(emit func(value []byte)) error) error {
	path := checkpointPath(dir, id)
	file, err := fsys.Create(path + partSuffix)
	if err != nil {
		return fmt.Errorf("create snapshot: %w", err)
	}
	w := &checkpointWriter{file: file, epoch: id.Epoch, now: now}
	err = w.writeAll(head, write)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = fsys.Rename(path+partSuffix, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write snapshot %s: %w", path, err), ignoreNotExist(fsys.Remove(path+partSuffix)))
	}
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("write snapshot %s: %w", path, err)
	}
	return nil
}

// A checkpointWriter writes the batches of a checkpoint.
type checkpointWriter struct {
	file   vfs.File
	epoch  int32
	now    int64 // timestamp of the batches, ms
	pos    int64
	offset int64
	err    error // the first one; nothing is written after it
}

func (w *checkpointWriter) writeAll(head checkpointHead, write func(emit func([]byte)) error) error {
	w.batch(appendSnapshotHead(w.builder(record.FlagControl), w.now, head))
	data := w.builder(0)
	err := write(func(value []byte) {
		data.Append(record.Record{Timestamp: w.now, Value: value})
		if data.Size() >= checkpointBatchBytes {
			w.batch(data)
			data = w.builder(0)
		}
	})
	if err != nil {
		return err
	}
	if data.Count() > 0 {
		w.batch(data)
	}
	w.batch(appendSnapshotFooter(w.builder(record.FlagControl), w.now))
	return w.err
}

func (w *checkpointWriter) builder(flags record.Attributes) *record.Builder {
	return record.NewBuilder(nil, record.BatchOptions{Flags: flags, BaseOffset: w.offset, LeaderEpoch: w.epoch})
}

func (w *checkpointWriter) batch(b *record.Builder) {
	if w.err != nil {
		return
	}
	w.offset += int64(b.Count())
	bytes := b.Bytes()
	_, w.err = w.file.WriteAt(bytes, w.pos)
	w.pos += int64(len(bytes))
}

// openSnapshot reads the head of a checkpoint and returns it as an event.
func openSnapshot(fsys vfs.FS, dir string, id SnapshotID) (Snapshot, error) {
	head, err := readCheckpointHead(fsys, dir, id)
	if err != nil {
		return Snapshot{}, err
	}
	read := func(yield func([]byte) error) error {
		return eachValue(fsys, checkpointPath(dir, id), yield)
	}
	return Snapshot{ID: id, Timestamp: head.timestamp, read: read}, nil
}

var errFirstBatch = errors.New("only the first batch was wanted")

func readCheckpointHead(fsys vfs.FS, dir string, id SnapshotID) (checkpointHead, error) {
	var head checkpointHead
	path := checkpointPath(dir, id)
	err := eachCheckpointBatch(fsys, path, func(h record.Header, batch []byte) error {
		var err error
		if head, err = parseSnapshotHead(h, batch); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return errFirstBatch
	})
	if !errors.Is(err, errFirstBatch) && err == nil {
		err = fmt.Errorf("%s is empty: remove it if an older snapshot or the whole log is there", path)
	}
	if errors.Is(err, errFirstBatch) {
		err = nil
	}
	return head, err
}

// eachValue calls yield with each metadata record of a checkpoint and checks that it is whole.
func eachValue(fsys vfs.FS, path string, yield func(value []byte) error) error {
	whole := false
	err := eachCheckpointBatch(fsys, path, func(h record.Header, batch []byte) error {
		if h.Attributes.Control() {
			last, err := endsSnapshot(batch)
			whole = last
			return err
		}
		whole = false
		return record.Iterate(batch, func(r record.Record) error { return yield(r.Value) })
	})
	if err != nil {
		return err
	}
	if !whole {
		return fmt.Errorf("snapshot %s is cut off: remove it if an older one or the whole log is there", path)
	}
	return nil
}

// eachCheckpointBatch calls visit with each batch of a checkpoint, its CRC checked.
func eachCheckpointBatch(fsys vfs.FS, path string, visit func(record.Header, []byte) error) error {
	file, err := fsys.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	end, reason, err := walkFile(file, visit)
	if err == nil && reason != nil {
		err = fmt.Errorf("snapshot %s is damaged at byte %d: %w", path, end, reason)
	}
	return err
}

// errPosition says that a piece of a checkpoint was asked for that begins behind its end.
var errPosition = errors.New("position outside of the snapshot")

// readSnapshot returns up to maxBytes of a checkpoint file from position on, and the size of the file.
func readSnapshot(fsys vfs.FS, dir string, id SnapshotID, position int64, maxBytes int) ([]byte, int64, error) {
	if id == bootstrapID {
		return nil, 0, errPosition
	}
	file, err := fsys.Open(checkpointPath(dir, id))
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return nil, 0, err
	}
	if position < 0 || position >= size {
		return nil, size, errPosition
	}
	b := make([]byte, min(int64(maxBytes), size-position))
	if err := readFull(file, b, position); err != nil {
		return nil, size, err
	}
	return b, size, nil
}

// saveSnapshot writes the checkpoint of what the log says up to id. It returns false if that or a newer one is there.
func (m *metaLog) saveSnapshot(id SnapshotID, now int64, write func(emit func(value []byte)) error) (bool, error) {
	v := m.view()
	if newest, ok := v.newestSnapshot(); ok && newest.EndOffset >= id.EndOffset {
		return false, nil
	}
	if id.EndOffset <= m.log.StartOffset() || id.EndOffset > v.end.Offset {
		return false, fmt.Errorf("a snapshot %v cannot be taken: the log holds the offsets from %d to %d", id, m.log.StartOffset(), v.end.Offset)
	}
	last, err := m.batches(id.EndOffset-1, v.end, 1)
	if err != nil {
		return false, err
	}
	h, err := record.ParseHeader(last)
	if err != nil {
		return false, err
	}
	if h.NextOffset() != id.EndOffset || h.LeaderEpoch != id.Epoch {
		return false, fmt.Errorf("a snapshot %v cannot be taken: the batch there ends at %d and is of epoch %d", id, h.NextOffset(), h.LeaderEpoch)
	}
	return true, writeCheckpoint(m.fs, m.dir, id, checkpointHead{h.MaxTimestamp, v.voters}, now, write)
}

// adopt shows a new checkpoint to the readers, and lets go what is beyond the limits now.
func (m *metaLog) adopt(id SnapshotID) error {
	m.update(func(v *view) { v.snapshots = append(slices.Clip(v.snapshots), id) })
	return m.clean(time.Now())
}

// clean deletes the oldest snapshot, and the whole segments of the log that the next one covers, for as long as log and
// snapshots are too large or that snapshot too old. The newest always stays. Apache Kafka looks once a minute, ottla
// when there is a new snapshot, which is at least once an hour unless configured otherwise. Source: KafkaMetadataLog.maybeClean.
func (m *metaLog) clean(now time.Time) error {
	for {
		v := m.view()
		if len(v.snapshots) < 2 {
			return nil
		}
		reason, err := m.outgrown(v.snapshots, now)
		if reason == "" || err != nil {
			return err
		}
		oldest, next := v.snapshots[0], v.snapshots[1]
		m.logger.Debug("deleting a snapshot of the metadata", "snapshot", oldest, "reason", reason, "logStartOffset", next.EndOffset)
		m.update(func(v *view) { v.snapshots = slices.Clone(v.snapshots[1:]) })
		if m.log.StartOffset() < next.EndOffset {
			if _, err := m.log.DeleteRecordsBefore(next.EndOffset); err != nil {
				return err
			}
		}
		if err := m.fs.Remove(checkpointPath(m.dir, oldest)); err != nil {
			return err
		}
	}
}

// outgrown says by which key the oldest of the snapshots is to go; empty if it may stay.
func (m *metaLog) outgrown(snapshots []SnapshotID, now time.Time) (reason string, err error) {
	if m.limits.MaxBytes >= 0 {
		total := m.log.Size()
		for _, id := range snapshots {
			info, err := m.fs.Stat(checkpointPath(m.dir, id))
			if err != nil {
				return "", err
			}
			total += info.Size()
		}
		if total > m.limits.MaxBytes {
			return "metadata.max.retention.bytes", nil
		}
	}
	if m.limits.MaxAge >= 0 {
		head, err := readCheckpointHead(m.fs, m.dir, snapshots[0])
		if err != nil {
			return "", err
		}
		if now.Sub(time.UnixMilli(head.timestamp)) > m.limits.MaxAge {
			return "metadata.max.retention.ms", nil
		}
	}
	return "", nil
}

// Format writes the checkpoint with which a controller's directory is formatted: the voters, and the records, framed,
// with which the cluster will begin. dir is the log directory. It returns an error that wraps [io/fs.ErrExist] if there is
// a metadata log or a checkpoint already.
func Format(fsys vfs.FS, dir string, voters []Replica, values [][]byte) error {
	dir = filepath.Join(dir, Topic+"-0")
	if err := makeDir(fsys, dir); err != nil {
		return err
	}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".log") || strings.HasSuffix(e.Name(), checkpointSuffix) {
			return fmt.Errorf("%s holds metadata already (%s): %w", dir, e.Name(), fs.ErrExist)
		}
	}
	now := time.Now().UnixMilli()
	return writeCheckpoint(fsys, dir, bootstrapID, checkpointHead{now, voters}, now, func(emit func([]byte)) error {
		for _, value := range values {
			emit(value)
		}
		return nil
	})
}

// Bootstrap returns the records with which the cluster was formatted (the checkpoint 0-0). They are
// no part of the log: a controller that leads an empty log proposes them. Empty if there are none.
func (v *Voter) Bootstrap() ([][]byte, error) {
	var values [][]byte
	err := eachValue(v.o.FS, checkpointPath(v.log.dir, bootstrapID), func(value []byte) error {
		values = append(values, slices.Clone(value))
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return values, err
}
