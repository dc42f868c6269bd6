package quorum

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"ottla/internal/record"
	"ottla/internal/storage"
)

// cacheBytes bounds the entries kept in memory for followers that are close behind; others are read
// from the file.
const cacheBytes = 4 << 20

// A raftLog holds raft's entries in a log of Kafka's format: entry i is the batch at offset i, its
// leader epoch is the entry's term. It is raft's [raft.Storage] too. Only the driver uses it.
type raftLog struct {
	log *storage.Log
	// state has the hard state, the members, base and snapshot; the driver changes and saves it.
	state *raftState
	last  uint64 // index of the last entry; base.index if there is none
	// terms are where terms begin, ascending in index and term; the first begins at base.index.
	terms []termStart
	// cache are the last entries, ascending; contiguous, up to last.
	cache      []*pb.Entry
	cacheBytes int
}

type termStart struct{ index, term uint64 }

// openRaftLog reads the entries behind state's base. It returns an error if there are fewer than were
// committed, for those this voter had promised to keep.
//
// A power failure can leave a hole in the entries that were being written, the later ones whole. They were not confirmed
// to anyone, and are cut off. Any other hole was not there when the entries behind it were written: the disk lost
// what it had confirmed. Hence each entry says with which it was written.
func openRaftLog(log *storage.Log, state *raftState) (*raftLog, error) {
	r := &raftLog{log: log, state: state}
	r.forget()
	if end := uint64(log.End().Offset); end <= state.base.index || uint64(log.StartOffset()) > state.base.index+1 {
		// A crash came between saving a base and emptying the log behind it.
		if err := r.restart(); err != nil {
			return nil, err
		}
	}
	for r.last+1 < uint64(log.End().Offset) {
		entries, err := r.load(r.last+1, scanBytes)
		if hole := new(holeError); errors.As(err, &hole) && hole.group <= r.last+1 {
			err = log.TruncateTo(int64(r.last) + 1)
		}
		if err != nil {
			return nil, err
		}
		r.remember(entries)
	}
	if r.last < state.commit {
		return nil, fmt.Errorf("raft's log ends at entry %d, but %d entries were committed: the disk lost what it had confirmed; "+
			"restore the directory, or empty it to join as a new voter", r.last, state.commit)
	}
	return r, nil
}

// A holeError says that entry want is missing, although entry got, the first behind the hole, is: it was written together with
// those from group on.
type holeError struct{ want, got, group uint64 }

func (e *holeError) Error() string {
	return fmt.Sprintf("raft's log has entry %d where %d was to follow: the disk lost what it had confirmed; "+
		"restore the directory, or empty it to join as a new voter", e.got, e.want)
}

// restart empties the log, to go on behind the base.
func (r *raftLog) restart() error {
	r.forget()
	if err := r.log.TruncateFullyAndStartAt(int64(r.state.base.index) + 1); err != nil {
		return fmt.Errorf("empty raft's log: %w", err)
	}
	return nil
}

func (r *raftLog) forget() {
	r.last = r.state.base.index
	r.terms = []termStart{{r.state.base.index, r.state.base.term}}
	r.cache, r.cacheBytes = nil, 0
}

// append makes entries durable, replacing those from the first one's index on.
func (r *raftLog) append(entries []*pb.Entry) error {
	first := entries[0].GetIndex()
	if first <= r.last {
		if err := r.log.TruncateTo(int64(first)); err != nil {
			return fmt.Errorf("truncate raft's log to entry %d: %w", first, err)
		}
		r.cut(first)
	}
	var batches []byte
	for _, e := range entries {
		batches = appendEntry(batches, e, first)
	}
	if _, err := r.log.AppendAsFollower(batches); err != nil {
		return fmt.Errorf("append entry %d to raft's log: %w", first, err)
	}
	r.remember(entries)
	if err := r.log.Flush(int64(r.last) + 1); err != nil {
		return fmt.Errorf("flush raft's log: %w", err)
	}
	return nil
}

// cut forgets the entries from index on.
func (r *raftLog) cut(index uint64) {
	r.last = index - 1
	for len(r.terms) > 1 && r.terms[len(r.terms)-1].index >= index {
		r.terms = r.terms[:len(r.terms)-1]
	}
	for len(r.cache) > 0 && r.cache[len(r.cache)-1].GetIndex() >= index {
		r.cacheBytes -= len(r.cache[len(r.cache)-1].GetData())
		r.cache = r.cache[:len(r.cache)-1]
	}
	r.cache = r.cache[:len(r.cache):len(r.cache)] // raft may hold the rest: the next append must not write there
}

// remember takes note of entries that are in the log, the next ones after last.
func (r *raftLog) remember(entries []*pb.Entry) {
	for _, e := range entries {
		r.last = e.GetIndex()
		if e.GetTerm() != r.terms[len(r.terms)-1].term {
			r.terms = append(r.terms, termStart{e.GetIndex(), e.GetTerm()})
		}
		r.cacheBytes += len(e.GetData())
	}
	r.cache = append(r.cache, entries...)
	drop := 0
	for ; r.cacheBytes > cacheBytes && drop < len(r.cache)-1; drop++ {
		r.cacheBytes -= len(r.cache[drop].GetData())
	}
	if drop > 0 {
		r.cache = append([]*pb.Entry(nil), r.cache[drop:]...) // a copy, so that the dropped ones can be freed
	}
}

// load reads entries from the file, from index on: at most maxBytes of them, but at least one.
func (r *raftLog) load(index uint64, maxBytes int) ([]*pb.Entry, error) {
	b, err := readBatches(r.log, int64(index), r.log.End(), maxBytes)
	if err != nil {
		return nil, fmt.Errorf("read raft's log at entry %d: %w", index, err)
	}
	var entries []*pb.Entry
	err = eachBatch(b, func(h record.Header, batch []byte) error {
		if h.BaseOffset < int64(index) {
			return nil
		}
		e, err := decodeEntry(h, batch)
		if err != nil {
			return fmt.Errorf("raft's log at entry %d: %w", h.BaseOffset, err)
		}
		if want := index + uint64(len(entries)); e.GetIndex() != want {
			return &holeError{want: want, got: e.GetIndex(), group: uint64(h.BaseTimestamp)}
		}
		entries = append(entries, e)
		return nil
	})
	if len(entries) > 0 {
		return entries, nil // what is wrong behind them is met again
	}
	return nil, err
}

// release lets the entries up to the base go; whole segments of them leave the disk.
func (r *raftLog) release() error {
	base := r.state.base
	if _, err := r.log.DeleteRecordsBefore(int64(base.index) + 1); err != nil {
		return fmt.Errorf("delete raft's entries up to %d: %w", base.index, err)
	}
	drop := 0
	for drop < len(r.terms)-1 && r.terms[drop+1].index <= base.index {
		drop++
	}
	r.terms = append([]termStart{{base.index, r.terms[drop].term}}, r.terms[drop+1:]...)
	for len(r.cache) > 0 && r.cache[0].GetIndex() <= base.index {
		r.cacheBytes -= len(r.cache[0].GetData())
		r.cache = r.cache[1:]
	}
	return nil
}

// walk calls visit with each entry in (from, to], from the oldest on.
func (r *raftLog) walk(from, to uint64, visit func(*pb.Entry) error) error {
	for from < to {
		entries, err := r.Entries(from+1, to+1, scanBytes)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := visit(e); err != nil {
				return err
			}
		}
		from += uint64(len(entries))
	}
	return nil
}

// InitialState implements [raft.Storage].
func (r *raftLog) InitialState() (*pb.HardState, *pb.ConfState, error) {
	s := r.state
	return &pb.HardState{Term: &s.term, Vote: &s.vote, Commit: &s.commit}, s.confState(), nil
}

// Entries implements [raft.Storage].
func (r *raftLog) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	if lo <= r.state.base.index {
		return nil, raft.ErrCompacted
	}
	if hi > r.last+1 {
		return nil, raft.ErrUnavailable
	}
	if len(r.cache) > 0 && lo >= r.cache[0].GetIndex() {
		first := r.cache[0].GetIndex()
		return limit(r.cache[lo-first:hi-first:hi-first], maxSize), nil
	}
	entries, err := r.load(lo, int(min(maxSize, scanBytes)))
	if err != nil {
		return nil, err
	}
	return limit(entries[:min(uint64(len(entries)), hi-lo)], maxSize), nil
}

// limit cuts entries to maxSize bytes, but to no less than one.
func limit(entries []*pb.Entry, maxSize uint64) []*pb.Entry {
	var size uint64
	for i, e := range entries {
		if size += entrySize(e); size > maxSize && i > 0 {
			return entries[:i:i]
		}
	}
	return entries
}

// Term implements [raft.Storage].
func (r *raftLog) Term(i uint64) (uint64, error) {
	if i < r.state.base.index {
		return 0, raft.ErrCompacted
	}
	if i > r.last {
		return 0, raft.ErrUnavailable
	}
	for n := len(r.terms) - 1; ; n-- {
		if r.terms[n].index <= i {
			return r.terms[n].term, nil
		}
	}
}

// LastIndex implements [raft.Storage].
func (r *raftLog) LastIndex() (uint64, error) { return r.last, nil }

// FirstIndex implements [raft.Storage].
func (r *raftLog) FirstIndex() (uint64, error) { return r.state.base.index + 1, nil }

// Snapshot implements [raft.Storage]: it names the checkpoint, which the follower then reads in pieces.
func (r *raftLog) Snapshot() (*pb.Snapshot, error) {
	s := r.state.snapshot
	if s.index < r.state.base.index || s.index == 0 {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &pb.Snapshot{
		Data:     appendSnapshotID(nil, SnapshotID{EndOffset: s.offset, Epoch: s.epoch}),
		Metadata: &pb.SnapshotMetadata{Index: &s.index, Term: &s.term, ConfState: r.state.confState()},
	}, nil
}
