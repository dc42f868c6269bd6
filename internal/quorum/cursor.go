package quorum

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"ottla/internal/record"
	"ottla/internal/storage"
)

// A Cursor reads committed events in order, at its reader's own pace: it holds no event back and
// costs nothing while nobody calls Next. One goroutine at a time may use it.
type Cursor struct {
	log  *metaLog
	next int64 // offset of the next event
	// begun: the first event was chosen, which is the newest snapshot if there is one.
	begun bool
	// told is the last LeaderChange that was yielded.
	told leadership
	// ahead are the batches from next on that were read together with the one before.
	ahead []byte
}

func newCursor(log *metaLog) *Cursor { return &Cursor{log: log, told: nobody} }

// Offset returns the offset at which the next event begins: everything below it was yielded.
func (c *Cursor) Offset() int64 { return c.next }

// Next returns the next event, waiting for it until ctx ends. It returns ErrClosed after the
// quorum was closed, and an error that says which file is damaged when the log cannot be read.
func (c *Cursor) Next(ctx context.Context) (Event, error) {
	for {
		v := c.log.view()
		if v.err != nil {
			return nil, v.err
		}
		event, err := c.take(&v)
		if event != nil || err != nil {
			return event, err
		}
		if err := v.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// take returns the next event of a view, or nil if the reader has seen all of it.
func (c *Cursor) take(v *view) (Event, error) {
	if event := c.leaderChange(v); event != nil {
		return event, nil
	}
	if snapshot, ok := v.newestSnapshot(); ok && (!c.begun || c.next < c.log.log.StartOffset() && c.next < snapshot.EndOffset) {
		return c.snapshot(snapshot)
	}
	c.begun = true
	if c.next >= v.end.Offset {
		return nil, nil
	}
	return c.batch(v)
}

// leaderChange returns the leadership of v once everything before it was read.
func (c *Cursor) leaderChange(v *view) Event {
	l := v.leader
	if l.id == c.told.id && l.epoch == c.told.epoch || c.next <= l.offset {
		return nil
	}
	if !c.begun && v.end.Offset > 0 { // the log, or a snapshot, comes first
		return nil
	}
	c.told = l
	return LeaderChange{ID: l.id, Epoch: l.epoch, Voters: v.voters}
}

func (c *Cursor) snapshot(id SnapshotID) (Event, error) {
	s, err := openSnapshot(c.log.fs, c.log.dir, id)
	if newest, _ := newestOf(c.log); errors.Is(err, fs.ErrNotExist) && newest != id {
		return nil, nil // deleted meanwhile: the view that follows has the newer one
	}
	if err != nil {
		return nil, err
	}
	c.begun, c.ahead, c.next = true, nil, id.EndOffset
	return s, nil
}

func (c *Cursor) batch(v *view) (Event, error) {
	if len(c.ahead) == 0 {
		b, err := c.log.batches(c.next, v.end, scanBytes)
		if gone := new(storage.OffsetOutOfRangeError); errors.As(err, &gone) && c.next < c.log.log.StartOffset() {
			if snapshot, ok := v.newestSnapshot(); ok && c.next < snapshot.EndOffset {
				return c.snapshot(snapshot)
			}
			return nil, nil // deleted meanwhile: the view that follows has the snapshot that covers it
		}
		if err != nil {
			return nil, err
		}
		c.ahead = b
	}
	h, err := record.ParseHeader(c.ahead)
	if err != nil {
		return nil, err
	}
	batch := c.ahead[:h.Size()]
	if err := c.log.check(&h, batch, c.next); err != nil {
		return nil, err
	}
	event, err := batchEvent(&h, batch)
	if err != nil {
		return nil, fmt.Errorf("%s at offset %d: %w", c.log.dir, c.next, err)
	}
	c.ahead, c.next = c.ahead[len(batch):], h.LastOffset()+1
	return event, nil
}

// batchEvent is the event of a batch of the metadata log. It keeps nothing of batch.
func batchEvent(h *record.Header, batch []byte) (Batch, error) {
	event := Batch{BaseOffset: h.BaseOffset, LastOffset: h.LastOffset(), Epoch: h.LeaderEpoch,
		Timestamp: h.MaxTimestamp, Bytes: len(batch)}
	var err error
	if !h.Attributes.Control() {
		event.Values, err = values(batch)
	}
	return event, err
}

// stored yields the newest snapshot and the batches behind it, up to end, committed or not.
func (m *metaLog) stored(end storage.Position, yield func(Event) error) error {
	v := m.view()
	v.end, v.leader = end, nobody
	c := newCursor(m)
	for {
		event, err := c.take(&v)
		if event == nil && err == nil && c.next < end.Offset { // what was to come next was deleted, since a newer snapshot is there
			v.snapshots = m.view().snapshots
			continue
		}
		if event == nil || err != nil {
			return err
		}
		if err := yield(event); err != nil {
			return err
		}
	}
}
