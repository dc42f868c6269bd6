package storage

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"ottla/internal/vfs"
)

// An AbortedTxn is an entry of a transaction index: a transaction that was aborted.
type AbortedTxn struct {
	ProducerID       int64
	FirstOffset      int64
	LastOffset       int64 // of the abort marker
	LastStableOffset int64 // once the marker was written
}

// An entry of a .txnindex file, big endian: int16 version 0, then the four fields. Source: Kafka's AbortedTxn.
const abortedTxnSize = 34

func (a AbortedTxn) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, 0)
	dst = binary.BigEndian.AppendUint64(dst, uint64(a.ProducerID))
	dst = binary.BigEndian.AppendUint64(dst, uint64(a.FirstOffset))
	dst = binary.BigEndian.AppendUint64(dst, uint64(a.LastOffset))
	return binary.BigEndian.AppendUint64(dst, uint64(a.LastStableOffset))
}

// decodeAborted reads the entries at the front of b that can be entries of the segment at base.
func decodeAborted(b []byte, base int64) []AbortedTxn {
	var list []AbortedTxn
	for ; len(b) >= abortedTxnSize; b = b[abortedTxnSize:] {
		a := AbortedTxn{
			ProducerID:       int64(binary.BigEndian.Uint64(b[2:])),
			FirstOffset:      int64(binary.BigEndian.Uint64(b[10:])),
			LastOffset:       int64(binary.BigEndian.Uint64(b[18:])),
			LastStableOffset: int64(binary.BigEndian.Uint64(b[26:])),
		}
		after := base
		if len(list) > 0 {
			after = list[len(list)-1].LastOffset + 1
		}
		if binary.BigEndian.Uint16(b) != 0 || a.FirstOffset < 0 || a.FirstOffset > a.LastOffset || a.LastOffset < after {
			break
		}
		list = append(list, a)
	}
	return list
}

// aborted returns the segment's entries, read from the file the first time.
func (s *segment) aborted() ([]AbortedTxn, error) {
	if t := s.txns.Load(); t != nil {
		return *t, nil
	}
	b, err := vfs.ReadFile(s.fs, s.stem+txnIndexSuffix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read transaction index: %w", err)
	}
	list := decodeAborted(b, s.base)
	s.txns.CompareAndSwap(nil, &list)
	return *s.txns.Load(), nil
}

// appendAborted adds an entry to the active segment's transaction index and its file.
func (l *Log) appendAborted(s *segment, a AbortedTxn) error {
	list, err := s.aborted()
	if err != nil {
		return err
	}
	f, err := s.fs.OpenReadWrite(s.stem + txnIndexSuffix)
	if err != nil {
		return fmt.Errorf("open transaction index: %w", err)
	}
	l.dirChanged.Store(true)
	_, err = f.WriteAt(a.append(nil), int64(len(list)*abortedTxnSize))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("append to transaction index: %w", err)
	}
	list = append(list, a)
	s.txns.Store(&list)
	return nil
}

// restoreAborted puts an entry into the transaction index that a crash took from it. Only recovery calls it.
func (s *segment) restoreAborted(a AbortedTxn) error {
	list, err := s.aborted()
	if err != nil {
		return err
	}
	i, there := slices.BinarySearchFunc(list, a, func(x, y AbortedTxn) int { return cmp.Compare(x.LastOffset, y.LastOffset) })
	if there {
		return nil
	}
	list = slices.Insert(slices.Clone(list), i, a)
	b := make([]byte, 0, len(list)*abortedTxnSize)
	for _, a := range list {
		b = a.append(b)
	}
	if err := vfs.WriteFileAtomic(s.fs, s.stem+txnIndexSuffix, b); err != nil {
		return fmt.Errorf("write transaction index: %w", err)
	}
	s.txns.Store(&list)
	return nil
}

// truncateAborted drops the entries whose marker is at offset or behind it.
func (s *segment) truncateAborted(offset int64) error {
	list, err := s.aborted()
	if err != nil {
		return err
	}
	n := len(list)
	for n > 0 && list[n-1].LastOffset >= offset {
		n--
	}
	f, err := s.fs.Open(s.stem + txnIndexSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open transaction index: %w", err)
	}
	size, err := f.Size()
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("size transaction index: %w", err)
	}
	if n == len(list) && size == int64(n*abortedTxnSize) {
		return nil
	}
	f, err = s.fs.OpenReadWrite(s.stem + txnIndexSuffix)
	if err != nil {
		return fmt.Errorf("open transaction index: %w", err)
	}
	if err = errors.Join(f.Truncate(int64(n*abortedTxnSize)), f.Close()); err != nil {
		return fmt.Errorf("truncate transaction index: %w", err)
	}
	list = list[:n:n]
	s.txns.Store(&list)
	return nil
}

// AbortedTransactions returns the aborted transactions that touch offsets [from, upTo), in the order of their markers: what a
// read_committed fetch of that range must tell the client. Source: Kafka's TransactionIndex.collectAbortedTxns.
func (l *Log) AbortedTransactions(from, upTo int64) ([]AbortedTxn, error) {
	segments := *l.segments.Load()
	var found []AbortedTxn
	for _, s := range segments[max(0, segmentAt(segments, from)):] {
		list, err := s.aborted()
		if err != nil {
			return nil, err
		}
		for _, a := range list {
			if a.LastOffset >= from && a.FirstOffset < upTo {
				found = append(found, a)
			}
			if a.LastStableOffset >= upTo {
				return found, nil
			}
		}
	}
	return found, nil
}
