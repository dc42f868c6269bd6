package metadata

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"ottla/internal/protocol/records"
)

func batch(base int64, messages ...records.Message) Batch {
	b := Batch{BaseOffset: base, LastOffset: base + max(int64(len(messages)), 1) - 1, Epoch: 1, Timestamp: base * 10}
	for _, m := range messages {
		b.Values = append(b.Values, records.AppendMetadata(nil, m, maxVersion(m)))
	}
	return b
}

func topicNumbered(n byte) *records.TopicRecord {
	return &records.TopicRecord{Name: fmt.Sprint("t", n), TopicID: id(n)}
}

// TestTransactions feeds batches and looks at what may be seen after each.
func TestTransactions(t *testing.T) {
	begin, end, abort := &records.BeginTransactionRecord{}, &records.EndTransactionRecord{}, &records.AbortTransactionRecord{}
	l := NewLoader(Empty)
	for _, step := range []struct {
		what   string
		batch  Batch
		offset int64 // of the image after it
		topics int
		delta  bool
	}{
		{"control batch", batch(0), 0, 0, true},
		{"one whole transaction", batch(1, begin, topicNumbered(1), end), 3, 1, true},
		{"a record, then the beginning of one", batch(4, topicNumbered(2), begin, topicNumbered(3)), 4, 2, true},
		{"more of it", batch(7, topicNumbered(4)), 4, 2, false},
		{"a leader change in it", batch(8), 4, 2, false},
		{"its end and a record", batch(9, end, topicNumbered(5)), 10, 5, true},
		{"nothing but a beginning", batch(11, begin), 10, 5, false},
		{"aborted", batch(12, topicNumbered(6), abort, topicNumbered(7)), 14, 6, true},
		{"no-op", batch(15, &records.NoOpRecord{}), 15, 6, true},
	} {
		d, err := l.Batch(step.batch)
		if err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		img := l.Image()
		if img.Offset != step.offset || img.TopicCount() != step.topics || (d != nil) != step.delta {
			t.Errorf("%s: offset %d, %d topics, delta %t; want %d, %d, %t", step.what, img.Offset, img.TopicCount(), d != nil, step.offset, step.topics, step.delta)
		}
		if d != nil && d.Image() != img {
			t.Errorf("%s: the delta leads to another image", step.what)
		}
	}
	if l.InTransaction() || l.Image().Timestamp != 150 || l.Image().Topic(id(6)) != nil {
		t.Errorf("%+v", l.Image())
	}
	for what, b := range map[string]Batch{"end of none": batch(16, end), "abort of none": batch(16, abort), "two beginnings": batch(16, begin, begin), "offset again": batch(15)} {
		if _, err := NewLoader(l.Image()).Batch(b); err == nil {
			t.Errorf("%s was accepted", what)
		}
	}
}

// TestNoOpPublishesItsOffset: everything but the offset is shared.
func TestNoOpPublishesItsOffset(t *testing.T) {
	l := NewLoader(Empty)
	if _, err := l.Batch(batch(0, topicNumbered(1))); err != nil {
		t.Fatal(err)
	}
	before := l.Image()
	d, err := l.Batch(batch(1, &records.NoOpRecord{}))
	if err != nil || !d.Empty() {
		t.Fatalf("%v, %v", d, err)
	}
	now := l.Image()
	if now.Offset != 1 || now.topics != before.topics || now.names != before.names {
		t.Errorf("%+v", now)
	}
}

// TestSnapshotOverImage: a snapshot that replaces an image reports topics it lacks as deleted, and
// equal ones not at all.
func TestSnapshotOverImage(t *testing.T) {
	old, _ := after(t, Empty, topicNumbered(1), partition(id(1), 0, 1), topicNumbered(2), partition(id(2), 0, 1), partition(id(2), 1, 1), topicNumbered(3), partition(id(3), 0, 1))
	target, _ := after(t, Empty, topicNumbered(2), partition(id(2), 0, 1), partition(id(2), 1, 2), topicNumbered(3), partition(id(3), 0, 1), topicNumbered(4), partition(id(4), 0, 1))
	l := NewLoader(old)
	d, err := l.Snapshot(99, 7, 5, func(yield func([]byte) error) error {
		var err error
		unwritten := target.WriteSnapshot(func(value []byte) {
			if err == nil {
				err = yield(value)
			}
		})
		return errors.Join(err, unwritten)
	})
	if err != nil {
		t.Fatal(err)
	}
	if img := l.Image(); img.Offset != 99 || img.Epoch != 7 || img.Timestamp != 5 || d.Prev() != old || d.Image() != img {
		t.Errorf("%+v", img)
	}
	var got []string
	for c := range d.Topics() {
		for p := range c.Partitions() {
			got = append(got, fmt.Sprintf("%s-%d %t %t", c.Name(), p.ID, p.Old != nil, p.New != nil))
		}
	}
	if want := []string{"t1-0 true false", "t2-1 true true", "t4-0 false true"}; !slices.Equal(got, want) {
		t.Errorf("changes %q, want %q", got, want)
	}
}
