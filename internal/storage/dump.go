package storage

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"ottla/internal/record"
	"ottla/internal/vfs"
)

// A DumpedBatch is a batch as it stands in a segment's file, or a stretch of bytes that is none.
type DumpedBatch struct {
	Pos    int64 // bytes from the start of the file
	Header record.Header
	Bytes  []byte // the whole batch; nil if Err is set. It lasts until the function that was given it returns.
	Err    error  // a *CorruptError: no sound batch is here; Size says how far the damage goes
	Size   int64  // bytes
}

// DumpSegment calls f with each batch of the .log file at path, in order, and with each stretch of damage between them. It
// only reads, and goes on behind damage. It stops at f's first error, which it returns.
func DumpSegment(fsys vfs.FS, path string, f func(DumpedBatch) error) (err error) {
	file, err := fsys.Open(path)
	if err != nil {
		return fmt.Errorf("open segment: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	size, err := file.Size()
	if err != nil {
		return fmt.Errorf("size segment: %w", err)
	}
	sc := newScanner(file, size)
	next := int64(math.MinInt64)
	if base, _, ok := parseSegmentFile(filepath.Base(path)); ok {
		next = base
	}
	var buf []byte
	for pos := int64(0); pos < size; {
		b, err := sc.dump(pos, next, &buf)
		if err != nil {
			return err
		}
		if err := f(b); err != nil {
			return err
		}
		pos += b.Size
		if b.Err == nil {
			next = b.Header.NextOffset()
		}
	}
	return nil
}

// dump returns what stands at pos, where a batch from offset next on is due.
func (r *scanner) dump(pos, next int64, buf *[]byte) (DumpedBatch, error) {
	h, bad, err := r.batch(pos, next)
	if err != nil {
		return DumpedBatch{}, err
	}
	if bad != "" {
		to, err := r.resync(pos+1, next)
		if err != nil {
			return DumpedBatch{}, err
		}
		if to < 0 {
			to = r.end
		}
		return DumpedBatch{Pos: pos, Header: h, Size: to - pos, Err: &CorruptError{Path: r.f.Name(), Pos: pos, Reason: bad}}, nil
	}
	if cap(*buf) < h.Size() {
		*buf = make([]byte, h.Size())
	}
	b := (*buf)[:h.Size()]
	if _, err := r.f.ReadAt(b, pos); err != nil {
		return DumpedBatch{}, fmt.Errorf("read %s at %d: %w", r.f.Name(), pos, err)
	}
	return DumpedBatch{Pos: pos, Header: h, Bytes: b, Size: int64(len(b))}, nil
}

// A Finding is something in a log directory that no correct broker left there.
type Finding struct {
	Path   string
	Pos    int64 // bytes from the start of Path
	Offset int64 // the offset that was due there, -1 if that has no meaning
	Reason string
	// Loss says that records are unreadable or missing. Otherwise the broker puts it right by itself: an index, a
	// checkpoint, bytes behind the last batch.
	Loss bool
}

// A Verified counts what VerifyDir has read.
type Verified struct {
	Partitions, Segments, Batches, Records int
	Bytes                                  int64
}

// VerifyDir reads every segment, index, snapshot and checkpoint of the log directory and calls report with all that is
// wrong. It only reads and takes no lock; under a running broker the end of an active segment may look torn. An error
// means that the directory could not be read.
func VerifyDir(fsys vfs.FS, path string, report func(Finding)) (Verified, error) {
	v := verifier{fs: fsys, report: report}
	entries, err := fsys.ReadDir(path)
	if err != nil {
		return v.Verified, fmt.Errorf("list log directory: %w", err)
	}
	for _, name := range []string{recoveryPointFile, highWatermarkFile, logStartFile, cleanerFile} {
		if _, err := readOffsets(fsys, filepath.Join(path, name)); err != nil {
			report(Finding{Path: filepath.Join(path, name), Offset: -1, Reason: err.Error()})
		}
	}
	for _, e := range entries {
		if _, ok := parsePartitionDir(e.Name()); !ok || !e.IsDir() {
			continue
		}
		v.Partitions++
		if err := v.partition(filepath.Join(path, e.Name())); err != nil {
			return v.Verified, err
		}
	}
	return v.Verified, nil
}

type verifier struct {
	Verified
	fs     vfs.FS
	report func(Finding)
}

// partition verifies one partition's directory.
func (v *verifier) partition(dir string) error {
	entries, err := v.fs.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list partition directory: %w", err)
	}
	next := int64(-1)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		base, suffix, ok := parseSegmentFile(e.Name())
		switch {
		case e.Name() == epochFile:
			err = v.epochs(path)
		case ok && suffix == snapshotSuffix:
			err = v.snapshot(path, base)
		case ok && suffix == logSuffix:
			if next > base {
				v.report(Finding{Path: path, Offset: base, Reason: fmt.Sprintf("segment begins at offset %d, but the one before it reaches %d", base, next)})
			}
			next, err = v.segment(path, base)
		case strings.HasSuffix(e.Name(), tornSuffix) || strings.HasSuffix(e.Name(), asideSuffix):
			v.report(Finding{Path: path, Offset: -1, Reason: "kept by an earlier recovery: records that were not whole, or did not belong"})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) epochs(path string) error {
	b, err := vfs.ReadFile(v.fs, path)
	if err != nil {
		return fmt.Errorf("read leader epochs: %w", err)
	}
	if _, err := readEpochs(b); err != nil {
		v.report(Finding{Path: path, Offset: -1, Reason: err.Error()})
	}
	return nil
}

func (v *verifier) snapshot(path string, offset int64) error {
	b, err := vfs.ReadFile(v.fs, path)
	if err != nil {
		return fmt.Errorf("read producer snapshot: %w", err)
	}
	if _, err := decodeProducers(b, offset, 0, math.MaxInt64); err != nil {
		v.report(Finding{Path: path, Offset: offset, Reason: err.Error()})
	}
	return nil
}

// segment verifies a segment's batches, records included, and its indexes, and returns the first offset behind it.
func (v *verifier) segment(path string, base int64) (next int64, err error) {
	v.Segments++
	next = base
	starts := map[int64]record.Header{} // by position
	var damaged []Finding
	err = DumpSegment(v.fs, path, func(b DumpedBatch) error {
		v.Bytes += b.Size
		if b.Err != nil {
			starts[b.Pos] = record.Header{BaseOffset: next} // an entry for the batch that was here is no fault of the index
			damaged = append(damaged, Finding{Path: path, Pos: b.Pos, Offset: next, Reason: fmt.Sprintf("%v; %d bytes", b.Err, b.Size), Loss: true})
			return nil
		}
		v.Batches++
		starts[b.Pos] = b.Header
		next = b.Header.NextOffset()
		err := record.Iterate(b.Bytes, func(record.Record) error { v.Records++; return nil })
		if err != nil {
			damaged = append(damaged, Finding{Path: path, Pos: b.Pos, Offset: b.Header.BaseOffset, Reason: err.Error(), Loss: true})
		}
		return nil
	})
	for _, f := range damaged {
		v.report(f)
	}
	if err != nil {
		return next, err
	}
	stem := strings.TrimSuffix(path, logSuffix)
	return next, v.offsetIndex(stem+indexSuffix, base, starts)
}

// offsetIndex reports the first entry that does not lead to a batch which its offset lies in or behind.
func (v *verifier) offsetIndex(path string, base int64, starts map[int64]record.Header) error {
	b, err := vfs.ReadFile(v.fs, path)
	if err != nil {
		v.report(Finding{Path: path, Offset: -1, Reason: "index can not be read: " + err.Error()})
		return nil
	}
	for pos := 0; pos+offsetLayout.size <= len(b); pos += offsetLayout.size {
		e := offsetLayout.decode(b[pos:])
		if e == (entry{}) {
			return nil // preallocated
		}
		if h, ok := starts[int64(e.value)]; !ok || h.BaseOffset > base+e.key {
			v.report(Finding{Path: path, Pos: int64(pos), Offset: base + e.key, Reason: fmt.Sprintf("entry leads to byte %d, where no batch with that offset begins", e.value)})
			return nil
		}
	}
	return nil
}
