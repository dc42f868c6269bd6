package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"

	"ottla/internal/record"
	"ottla/internal/vfs"
)

// A Finding is something in a log directory that no correct broker left there.
type Finding struct {
	Path   string
	Pos    int64 // bytes from the start of Path; -1 if that has no meaning
	Offset int64 // the offset that was due there; -1 if that has no meaning
	Reason string
	// Loss says that records are unreadable or missing. Otherwise the broker puts it right by itself: an index, a
	// checkpoint, bytes behind the last batch.
	Loss bool
}

// A Verified counts what was read.
type Verified struct {
	Partitions, Segments, Batches, Records int
	Bytes                                  int64
}

// VerifyDir reads every segment, index, snapshot and checkpoint of the log directory and calls report with all that is
// wrong. It only reads and takes no lock; under a running broker the end of an active segment may look torn. An error
// means that the directory could not be read.
func VerifyDir(fsys vfs.FS, path string, report func(Finding)) (Verified, error) {
	v := verifier{fs: fsys, report: report}
	err := v.dir(path)
	return v.Verified, err
}

// VerifyPath is [VerifyDir] for a log directory, and does the same for a partition's directory or a single .log or
// .checkpoint file with the indexes beside it.
func VerifyPath(fsys vfs.FS, path string, report func(Finding)) (Verified, error) {
	v := verifier{fs: fsys, report: report}
	info, err := fsys.Stat(path)
	if err != nil {
		return v.Verified, err
	}
	if !info.IsDir() {
		if kind, ok := KindOf(path); !ok || kind != KindBatches {
			return v.Verified, fmt.Errorf("%s holds no batches: name a log directory, a partition's directory, a .log or a .checkpoint file", path)
		}
		base, _, _ := parseSegmentFile(filepath.Base(path))
		_, err := v.segment(path, base, true)
		return v.Verified, err
	}
	entries, err := fsys.ReadDir(path)
	if err != nil {
		return v.Verified, fmt.Errorf("list %s: %w", path, err)
	}
	for _, e := range entries {
		if _, _, ok := parseSegmentFile(e.Name()); ok || e.Name() == partitionMetadataFile {
			_, err := v.partition(path, v.compacted(path))
			return v.Verified, err
		}
	}
	if err := v.dir(path); err != nil {
		return v.Verified, err
	}
	if v.Segments == 0 {
		if _, err := fsys.Stat(filepath.Join(path, metaPropertiesFile)); err != nil {
			return v.Verified, fmt.Errorf("%s is no log directory: it has neither meta.properties nor segments", path)
		}
	}
	return v.Verified, nil
}

type verifier struct {
	Verified
	fs     vfs.FS
	report func(Finding)
	torn   bool // the last segment read ends in damage, so what was behind is not known
}

// found reports what is wrong with a whole file.
func (v *verifier) found(path, format string, args ...any) {
	v.report(Finding{Path: path, Pos: -1, Offset: -1, Reason: fmt.Sprintf(format, args...)})
}

// dir verifies a log directory.
func (v *verifier) dir(path string) error {
	entries, err := v.fs.ReadDir(path)
	if err != nil {
		return fmt.Errorf("list log directory: %w", err)
	}
	if b, err := vfs.ReadFile(v.fs, filepath.Join(path, metaPropertiesFile)); err == nil {
		if _, err := parseMetaProperties(b); err != nil {
			v.found(filepath.Join(path, metaPropertiesFile), "%v", err)
		}
	}
	checkpoints := map[string]map[TopicPartition]int64{}
	for _, name := range []string{recoveryPointFile, highWatermarkFile, logStartFile, cleanerFile} {
		if checkpoints[name], err = readOffsets(v.fs, filepath.Join(path, name)); err != nil {
			v.found(filepath.Join(path, name), "%v", err)
		}
	}
	for _, e := range entries {
		tp, ok := parsePartitionDir(e.Name())
		if !ok || !e.IsDir() {
			continue
		}
		_, compacted := checkpoints[cleanerFile][tp]
		end, err := v.partition(filepath.Join(path, e.Name()), compacted)
		if err != nil {
			return err
		}
		if point := checkpoints[recoveryPointFile][tp]; point > end {
			v.report(Finding{Path: filepath.Join(path, e.Name()), Pos: -1, Offset: end, Loss: true,
				Reason: fmt.Sprintf("log ends at offset %d, but it was on the disk up to %d", end, point)})
		}
	}
	return nil
}

// compacted reports whether the cleaner has been at work on a partition, which leaves gaps between its offsets.
func (v *verifier) compacted(partition string) bool {
	tp, ok := parsePartitionDir(filepath.Base(partition))
	offsets, err := readOffsets(v.fs, filepath.Join(filepath.Dir(partition), cleanerFile))
	_, compacted := offsets[tp]
	return ok && err == nil && compacted
}

// partition verifies one partition's directory and the log inside it, and returns its log end offset,
// math.MaxInt64 if damage hides it.
func (v *verifier) partition(dir string, compacted bool) (end int64, err error) {
	v.Partitions++
	entries, err := v.fs.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("list partition directory: %w", err)
	}
	if end, err = v.segments(dir, entries, compacted); err != nil {
		return 0, err
	}
	if v.torn {
		end = math.MaxInt64
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		base, suffix, ok := parseSegmentFile(e.Name())
		switch {
		case e.IsDir():
			_, err = v.nested(path)
		case e.Name() == epochFile:
			err = v.epochs(path, end)
		case e.Name() == partitionMetadataFile:
			err = v.topicID(dir)
		case strings.HasSuffix(e.Name(), checkpointSuffix) && !ok:
			_, err = v.segment(path, 0, true)
		case ok && suffix == snapshotSuffix:
			err = v.snapshot(path, base, end)
		case strings.HasSuffix(e.Name(), tornSuffix) || strings.HasSuffix(e.Name(), asideSuffix):
			v.found(path, "kept by an earlier recovery: records that were not whole, or did not belong")
		}
		if err != nil {
			return 0, err
		}
	}
	return end, nil
}

// nested verifies a directory inside a partition's, the one of raft's own log.
func (v *verifier) nested(dir string) (end int64, err error) {
	entries, err := v.fs.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("list %s: %w", dir, err)
	}
	return v.segments(dir, entries, false)
}

// segments verifies a directory's segments in order and returns the first offset behind them.
func (v *verifier) segments(dir string, entries []fs.DirEntry, compacted bool) (end int64, err error) {
	v.torn = false
	var bases []int64
	for _, e := range entries {
		if base, suffix, ok := parseSegmentFile(e.Name()); ok && suffix == logSuffix && !e.IsDir() {
			bases = append(bases, base) // ReadDir sorts, and so do 20 digits
		}
	}
	for i, base := range bases {
		path := newSegment(v.fs, dir, base, nil).path()
		switch {
		case i > 0 && end > base:
			v.report(Finding{Path: path, Pos: -1, Offset: base, Reason: fmt.Sprintf("segment begins at offset %d, but the one before it reaches %d", base, end)})
		case i > 0 && end < base && !compacted && !v.torn:
			v.report(Finding{Path: path, Pos: -1, Offset: end, Reason: fmt.Sprintf("segment begins at offset %d, but the one before it ends at %d", base, end), Loss: true})
		}
		if end, err = v.segment(path, base, i == len(bases)-1); err != nil {
			return 0, err
		}
	}
	return end, nil
}

func (v *verifier) epochs(path string, end int64) error {
	starts, err := ReadEpochFile(v.fs, path)
	var damaged *CorruptError
	if errors.As(err, &damaged) {
		v.found(path, "%s", damaged.Reason)
		return nil
	}
	if n := len(starts); n > 0 && starts[n-1].Offset > end {
		v.found(path, "leader epoch %d begins at offset %d, but the log ends at %d", starts[n-1].Epoch, starts[n-1].Offset, end)
	}
	return err
}

func (v *verifier) topicID(dir string) error {
	_, err := readTopicID(v.fs, dir)
	var damaged *CorruptError
	if errors.As(err, &damaged) {
		v.found(damaged.Path, "%s", damaged.Reason)
		return nil
	}
	return err
}

func (v *verifier) snapshot(path string, offset, end int64) error {
	_, err := ReadProducerFile(v.fs, path)
	var damaged *CorruptError
	if errors.As(err, &damaged) {
		v.report(Finding{Path: path, Pos: -1, Offset: offset, Reason: damaged.Reason})
		return nil
	}
	if err == nil && offset > end {
		v.report(Finding{Path: path, Pos: -1, Offset: offset, Reason: fmt.Sprintf("is of a time behind the log's end, %d", end)})
	}
	return err
}

// segment verifies a file of batches, records included, and the indexes beside it, and returns the first offset behind
// it. The last segment of a log may lack its indexes, which are written when it is sealed.
func (v *verifier) segment(path string, base int64, last bool) (next int64, err error) {
	v.Segments++
	stem := strings.TrimSuffix(path, logSuffix)
	offsets, err := v.index(stem+indexSuffix, last)
	if err != nil {
		return base, err
	}
	times, err := v.index(stem+timeIndexSuffix, last)
	if err != nil {
		return base, err
	}
	next, v.torn = base, false
	err = DumpSegment(v.fs, path, func(b DumpedBatch) error {
		v.Bytes += b.Size
		v.torn = b.Err != nil
		if b.Err != nil {
			reason := b.Err.Error()
			var damaged *CorruptError
			if errors.As(b.Err, &damaged) {
				reason = damaged.Reason
			}
			v.report(Finding{Path: path, Pos: b.Pos, Offset: next, Reason: fmt.Sprintf("%s; %d bytes are unreadable", reason, b.Size), Loss: true})
			offsets.pass(b.Pos + b.Size)
			times.damaged = true
			return nil
		}
		v.Batches++
		next = b.Header.NextOffset()
		offsets.lead(&b.Header, b.Pos)
		times.time(&b.Header)
		err := record.Iterate(b.Bytes, func(record.Record) error { v.Records++; return nil })
		if err != nil {
			v.report(Finding{Path: path, Pos: b.Pos, Offset: b.Header.BaseOffset, Reason: err.Error(), Loss: true})
		}
		return nil
	})
	if err != nil {
		return next, err
	}
	offsets.end()
	times.end()
	return next, v.transactions(stem+txnIndexSuffix, next)
}

// transactions verifies a transaction index, if there is one.
func (v *verifier) transactions(path string, end int64) error {
	list, rest, err := ReadTxnIndexFile(v.fs, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case rest > 0:
		v.found(path, "%d bytes are no entries", rest)
	case len(list) > 0 && list[len(list)-1].LastOffset >= end:
		v.found(path, "names a marker at offset %d, but the segment ends at %d", list[len(list)-1].LastOffset, end)
	}
	return nil
}

// An indexCheck holds an index against the batches as they come. It reports the first entry that is wrong and no more.
type indexCheck struct {
	v       *verifier
	path    string
	entries []IndexEntry // not yet met
	damaged bool         // of a time index: the batches before the next were unreadable
}

// index reads an index for checking. Files that are no segments, snapshots of the metadata log, have none.
func (v *verifier) index(path string, mayLack bool) (*indexCheck, error) {
	c := &indexCheck{v: v, path: path}
	if _, suffix, ok := parseSegmentFile(filepath.Base(path)); !ok || suffix != indexSuffix && suffix != timeIndexSuffix {
		return c, nil
	}
	list, rest, err := ReadIndexFile(v.fs, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if !mayLack {
			v.found(path, "is missing; the broker builds it anew")
		}
		return c, nil
	case err != nil:
		return nil, err
	case rest > 0:
		v.found(path, "%d bytes behind entry %d are no entries in order", rest, len(list))
	}
	c.entries = list
	return c, nil
}

func (c *indexCheck) wrong(e IndexEntry, format string, args ...any) {
	c.v.report(Finding{Path: c.path, Pos: -1, Offset: e.Offset, Reason: "entry of offset " + fmt.Sprint(e.Offset) + " " + fmt.Sprintf(format, args...)})
	c.entries = nil
}

// pass leaves out the entries of unreadable batches below pos.
func (c *indexCheck) pass(pos int64) {
	for len(c.entries) > 0 && c.entries[0].Pos < pos {
		c.entries = c.entries[1:]
	}
}

// end reports an entry that is left when all batches have been met.
func (c *indexCheck) end() {
	if len(c.entries) > 0 && !c.damaged {
		c.wrong(c.entries[0], "leads behind the segment's last batch")
	}
}

// lead checks the entries of an offset index that lead to the batch at pos: a lookup must meet the offset from there on.
func (c *indexCheck) lead(h *record.Header, pos int64) {
	if len(c.entries) > 0 && c.entries[0].Pos < pos {
		c.wrong(c.entries[0], "leads to byte %d, where no batch begins", c.entries[0].Pos)
	}
	for len(c.entries) > 0 && c.entries[0].Pos == pos {
		e := c.entries[0]
		if h.BaseOffset > e.Offset {
			c.wrong(e, "leads to byte %d, where the batch begins at offset %d", e.Pos, h.BaseOffset)
			return
		}
		c.entries = c.entries[1:]
	}
}

// time checks the entries of a time index whose offset is in the batch: it must hold that timestamp and none above.
func (c *indexCheck) time(h *record.Header) {
	for len(c.entries) > 0 && c.entries[0].Offset <= h.LastOffset() {
		e := c.entries[0]
		if e.Offset < h.BaseOffset && c.damaged {
			c.entries = c.entries[1:]
			continue
		}
		if e.Offset < h.BaseOffset || e.Timestamp != h.MaxTimestamp {
			c.wrong(e, "has timestamp %d, but no batch there has", e.Timestamp)
			return
		}
		c.entries = c.entries[1:]
	}
	c.damaged = false
}
