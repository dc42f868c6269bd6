package metadata

import (
	"errors"
	"fmt"

	"ottla/internal/protocol/records"
)

// A Loader turns what a quorum hands out, batch after batch, into images and deltas. Records of a
// metadata transaction are held back until it ends, and dropped if it is aborted: an image never
// shows half of one. It is for one goroutine. Source: Kafka's MetadataBatchLoader.
type Loader struct {
	image *Image
	// open: a transaction has begun; held are its records so far.
	open bool
	held []records.Message
}

// NewLoader returns a loader that begins with an image, [Empty] at the start of a log.
func NewLoader(image *Image) *Loader { return &Loader{image: image} }

// Image returns the newest image.
func (l *Loader) Image() *Image { return l.image }

// A Batch is one batch of the metadata log.
type Batch struct {
	BaseOffset int64
	LastOffset int64
	Epoch      int32
	Timestamp  int64    // ms since 1970
	Values     [][]byte // framed records; none in a control batch
}

// Batch adds a batch and returns what it changed; its image is Image from now on. The delta is nil
// while a transaction is open and nothing came before it. After an error the loader stays at the image it
// had, and the log cannot be followed further: it is damaged, or a newer release wrote it.
func (l *Loader) Batch(b Batch) (*Delta, error) {
	if b.BaseOffset <= l.image.Offset {
		return nil, fmt.Errorf("metadata batch at offset %d comes again: offset %d was applied", b.BaseOffset, l.image.Offset)
	}
	d := NewDelta(l.image)
	end := b.LastOffset // of what d will hold
	if l.open {
		end = l.image.Offset
	}
	for i, value := range b.Values {
		offset := b.BaseOffset + int64(i)
		m, _, err := records.DecodeMetadata(value)
		if err == nil {
			err = l.add(d, m)
		}
		if err != nil {
			return nil, fmt.Errorf("metadata record at offset %d: %w", offset, err)
		}
		switch m.(type) {
		case *records.BeginTransactionRecord:
			end = max(offset-1, l.image.Offset)
		case *records.EndTransactionRecord, *records.AbortTransactionRecord:
			end = b.LastOffset
		}
	}
	if end == l.image.Offset {
		return nil, nil
	}
	return l.publish(d, end, b.Epoch, b.Timestamp), nil
}

func (l *Loader) publish(d *Delta, offset int64, epoch int32, timestamp int64) *Delta {
	l.image = d.Apply(offset, epoch)
	l.image.Timestamp = timestamp
	return d
}

// add replays a record on d, or holds it back.
func (l *Loader) add(d *Delta, m records.Message) error {
	switch m.(type) {
	case *records.BeginTransactionRecord:
		if l.open {
			return errors.New("it begins a metadata transaction inside another")
		}
		l.open = true
		return nil
	case *records.EndTransactionRecord:
		return l.end(d)
	case *records.AbortTransactionRecord:
		if !l.open {
			return errors.New("it aborts a metadata transaction that was not begun")
		}
		l.open, l.held = false, nil
		return nil
	}
	if l.open {
		l.held = append(l.held, m)
		return nil
	}
	return d.Replay(m)
}

func (l *Loader) end(d *Delta) error {
	if !l.open {
		return errors.New("it ends a metadata transaction that was not begun")
	}
	for _, m := range l.held {
		if err := d.Replay(m); err != nil {
			return err
		}
	}
	l.open, l.held = false, nil
	return nil
}

// InTransaction reports whether a metadata transaction is open. A controller that finds one when it
// becomes active has to abort it.
func (l *Loader) InTransaction() bool { return l.open }

// Snapshot replaces the image by one that a snapshot holds and returns what differs. The snapshot
// covers the log up to the offset last, written in the leader epoch epoch at timestamp. values
// calls yield with each of its framed records and returns yield's error. Topics are compared with those of the image
// before; of all else, which is little, the delta reports everything that either image has.
func (l *Loader) Snapshot(last int64, epoch int32, timestamp int64, values func(yield func(value []byte) error) error) (*Delta, error) {
	d := NewDelta(Empty)
	d.next.KRaftVersion = l.image.KRaftVersion
	err := values(func(value []byte) error {
		m, _, err := records.DecodeMetadata(value)
		if err != nil {
			return err
		}
		return d.Replay(m)
	})
	if err != nil {
		return nil, fmt.Errorf("metadata snapshot of offset %d: %w", last, err)
	}
	prev := l.image
	l.open, l.held = false, nil
	l.publish(d, last, epoch, timestamp)
	return diff(prev, l.image), nil
}

// SetKRaftVersion changes the level of kraft.version, which control records carry; it returns nil if
// that is the level already.
func (l *Loader) SetKRaftVersion(level int16) *Delta {
	if level == l.image.KRaftVersion {
		return nil
	}
	d := NewDelta(l.image)
	d.SetKRaftVersion(level)
	return l.publish(d, l.image.Offset, l.image.Epoch, l.image.Timestamp)
}

// diff returns the delta that leads from prev to next. It looks at all that both hold.
func diff(prev, next *Image) *Delta {
	d := &Delta{prev: prev, next: next, applied: true}
	for _, img := range []*Image{prev, next} {
		for b := range img.Brokers() {
			mark(&d.brokers, b.ID)
		}
		for c := range img.Controllers() {
			mark(&d.controllers, c.ID)
		}
		for name := range img.Features() {
			mark(&d.features, name)
		}
		for r := range img.Configs() {
			mark(&d.configs, r)
		}
		for a := range img.ACLs() {
			mark(&d.acls, a.ID)
		}
		for user := range all(img.scram) {
			mark(&d.scram, user)
		}
		for id := range all(img.tokens) {
			mark(&d.tokens, id)
		}
		for key, q := range all(img.quotas) {
			if d.quotas == nil {
				d.quotas = map[string]QuotaEntity{}
			}
			d.quotas[key] = q.Entity
		}
	}
	d.diffTopics()
	return d
}

func (d *Delta) diffTopics() {
	for t := range d.prev.Topics() {
		now := d.next.Topic(t.ID)
		if now == nil {
			d.addTopic(t.ID, &topicDelta{old: t, deleted: true})
			continue
		}
		if changed := t.diff(now); len(changed) > 0 {
			d.addTopic(t.ID, &topicDelta{old: t, partitions: changed})
		}
	}
	for t := range d.next.Topics() {
		if d.prev.Topic(t.ID) == nil {
			d.addTopic(t.ID, &topicDelta{partitions: newTopic(t.ID, t.Name).diff(t)})
		}
	}
}

// diff returns the partitions of next that t lacks or has otherwise.
func (t *Topic) diff(next *Topic) map[int32]*Partition {
	changed := map[int32]*Partition{}
	for id, p := range next.Partitions() {
		if old := t.Partition(id); old == nil || !old.Equal(p) {
			changed[id] = p
		}
	}
	return changed
}
