package quorum

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"ottla/internal/record"
	"ottla/internal/vfs"
)

// checkSound looks at a metadata log that has no raft state before anything is repaired in it. All of it may have been
// committed, so a log is refused that has sound batches behind damage, or in which nothing can be read. Bytes behind the last
// sound batch are what a crash leaves.
func checkSound(fsys vfs.FS, dir string) error {
	if err := makeDir(fsys, dir); err != nil {
		return err
	}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	var paths []string // by base offset, for ReadDir sorts
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".log") {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	for i, path := range paths {
		if err := checkSoundFile(fsys, path, i == 0, i == len(paths)-1); err != nil {
			return err
		}
	}
	return nil
}

// checkSoundFile looks at one segment; first and last say whether it is that of the log.
func checkSoundFile(fsys vfs.FS, path string, first, last bool) error {
	file, err := fsys.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	var next int64
	end, reason, err := walkFile(file, func(h record.Header, _ []byte) error {
		next = h.NextOffset()
		return nil
	})
	if err != nil || reason == nil {
		return err
	}
	behind := !last
	if last {
		if behind, err = soundBehind(file, end, next); err != nil {
			return err
		}
	}
	if behind || first && end == 0 {
		return fmt.Errorf("%s is damaged at byte %d: %w; this is no crash's doing, and what a repair would leave is not the cluster's metadata: "+
			"restore the file from another controller or a backup", path, end, reason)
	}
	return nil
}

// walkFile calls visit with each sound batch from the start of a file on, and returns where they end. reason says why there
// is no sound batch; nil at the end of the file. visit may keep the bytes.
func walkFile(file vfs.File, visit func(record.Header, []byte) error) (end int64, reason, err error) {
	size, err := file.Size()
	if err != nil {
		return 0, nil, err
	}
	var head [record.HeaderSize]byte
	for end < size {
		if size-end < record.HeaderSize {
			return end, errors.New("a record batch is cut off"), nil
		}
		if err := readFull(file, head[:], end); err != nil {
			return end, nil, err
		}
		h, err := record.ParseHeader(head[:])
		if err != nil {
			return end, err, nil
		}
		if int64(h.Size()) > size-end {
			return end, errors.New("a record batch is cut off"), nil
		}
		batch := make([]byte, h.Size())
		if err := readFull(file, batch, end); err != nil {
			return end, nil, err
		}
		if err := record.CheckCRC(batch); err != nil {
			return end, err, nil
		}
		if err := visit(h, batch); err != nil {
			return end, nil, err
		}
		end += int64(len(batch))
	}
	return end, nil, nil
}

// readFull fills b from position on.
func readFull(file vfs.File, b []byte, position int64) error {
	if n, err := file.ReadAt(b, position); err != nil && !(err == io.EOF && n == len(b)) {
		return fmt.Errorf("read %s: %w", file.Name(), err)
	}
	return nil
}

// soundBehind reports whether a sound batch of offset next or later begins anywhere behind position.
func soundBehind(file vfs.File, position, next int64) (bool, error) {
	size, err := file.Size()
	if err != nil {
		return false, err
	}
	b := make([]byte, size-position)
	if err := readFull(file, b, position); err != nil {
		return false, err
	}
	for i := 1; i+record.HeaderSize <= len(b); i++ {
		h, err := record.ParseHeader(b[i:])
		if err != nil || h.BaseOffset < next || h.Size() > len(b)-i {
			continue
		}
		if record.CheckCRC(b[i:]) == nil {
			return true, nil
		}
	}
	return false, nil
}
