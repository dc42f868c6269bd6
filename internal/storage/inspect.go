package storage

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"ottla/internal/vfs"
)

// A FileKind says what a file in a log directory holds.
type FileKind string

// The kinds of file that can be dumped.
const (
	KindBatches   FileKind = "batches"       // .log, .checkpoint of the metadata log, .torn of recovery
	KindIndex     FileKind = "offset index"  // .index
	KindTimeIndex FileKind = "time index"    // .timeindex
	KindTxnIndex  FileKind = "txn index"     // .txnindex
	KindProducers FileKind = "producers"     // .snapshot
	KindEpochs    FileKind = "leader epochs" // leader-epoch-checkpoint
	KindOffsets   FileKind = "offsets"       // the offset checkpoints of a log directory
)

// checkpointSuffix ends the name of a snapshot of the metadata log, which holds batches as a segment does.
const checkpointSuffix = ".checkpoint"

// KindOf goes by the file's name; ok is false for a file that holds none of these, or that is about to go (.deleted).
func KindOf(path string) (kind FileKind, ok bool) {
	name := filepath.Base(path)
	switch name {
	case epochFile:
		return KindEpochs, true
	case recoveryPointFile, highWatermarkFile, logStartFile, cleanerFile:
		return KindOffsets, true
	}
	_, suffix, ok := parseSegmentFile(name)
	switch {
	case strings.HasSuffix(name, checkpointSuffix), strings.HasSuffix(name, tornSuffix):
		return KindBatches, true
	case !ok:
		return "", false
	}
	kind, ok = map[string]FileKind{
		logSuffix: KindBatches, indexSuffix: KindIndex, timeIndexSuffix: KindTimeIndex, txnIndexSuffix: KindTxnIndex, snapshotSuffix: KindProducers,
	}[suffix]
	return kind, ok
}

// An IndexEntry is one of an .index or a .timeindex file.
type IndexEntry struct {
	Offset    int64
	Pos       int64 // of the offset's batch in the .log file, bytes; -1 in a time index
	Timestamp int64 // ms; -1 in an offset index
}

// ReadIndexFile reads the entries of an .index or .timeindex file that are in order. rest is how many bytes follow them,
// without the zeros at the end that Apache Kafka preallocates: if it is not 0 the index is damaged.
func ReadIndexFile(fsys vfs.FS, path string) (entries []IndexEntry, rest int64, err error) {
	base, suffix, ok := parseSegmentFile(filepath.Base(path))
	y := offsetLayout
	if suffix == timeIndexSuffix {
		y = timeLayout
	}
	if !ok || suffix != y.suffix {
		return nil, 0, fmt.Errorf("%s is not named as an index is", path)
	}
	b, err := vfs.ReadFile(fsys, path)
	if err != nil {
		return nil, 0, fmt.Errorf("read index: %w", err)
	}
	list, err := readIndex(bytes.NewReader(b), int64(len(b)), y)
	if err != nil {
		return nil, 0, fmt.Errorf("read index: %w", err)
	}
	for _, e := range list {
		entry := IndexEntry{Offset: base + e.key, Pos: int64(e.value), Timestamp: -1}
		if y.size == timeLayout.size {
			entry = IndexEntry{Offset: base + int64(e.value), Pos: -1, Timestamp: e.key}
		}
		entries = append(entries, entry)
	}
	return entries, int64(len(bytes.TrimRight(b[len(list)*y.size:], "\x00"))), nil
}

// ReadTxnIndexFile reads the sound entries of a .txnindex file; rest is what follows them, in bytes.
func ReadTxnIndexFile(fsys vfs.FS, path string) (entries []AbortedTxn, rest int64, err error) {
	b, err := vfs.ReadFile(fsys, path)
	if err != nil {
		return nil, 0, fmt.Errorf("read transaction index: %w", err)
	}
	base, _, _ := parseSegmentFile(filepath.Base(path))
	entries = decodeAborted(b, base)
	return entries, int64(len(b) - len(entries)*abortedTxnSize), nil
}

// ReadProducerFile reads a .snapshot file, expired producers included. One that is damaged is a *CorruptError.
func ReadProducerFile(fsys vfs.FS, path string) ([]ProducerState, error) {
	b, err := vfs.ReadFile(fsys, path)
	if err != nil {
		return nil, fmt.Errorf("read producer snapshot: %w", err)
	}
	offset, _, _ := parseSegmentFile(filepath.Base(path))
	s, err := decodeProducers(b, offset, 0, math.MaxInt64)
	if err != nil {
		return nil, &CorruptError{Path: path, Reason: err.Error()}
	}
	return s.list(), nil
}

// An EpochStart says at which offset a leader epoch began.
type EpochStart struct {
	Epoch  int32
	Offset int64
}

// ReadEpochFile reads a leader-epoch-checkpoint. One that is damaged is a *CorruptError.
func ReadEpochFile(fsys vfs.FS, path string) ([]EpochStart, error) {
	b, err := vfs.ReadFile(fsys, path)
	if err != nil {
		return nil, fmt.Errorf("read leader epochs: %w", err)
	}
	list, err := readEpochs(b)
	if err != nil {
		return nil, &CorruptError{Path: path, Reason: err.Error()}
	}
	starts := make([]EpochStart, len(list))
	for i, e := range list {
		starts[i] = EpochStart{e.epoch, e.start}
	}
	return starts, nil
}

// ReadOffsetFile reads one of a log directory's offset checkpoints.
func ReadOffsetFile(fsys vfs.FS, path string) (map[TopicPartition]int64, error) {
	return readOffsets(fsys, path)
}
