//go:build interop

package interop

import (
	"bufio"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestReadWhileDeleted has Apache's consumer read a topic while segments roll ahead of it and retention deletes them
// behind it, or under it. It sees offsets that only grow, each with its own record, up to the last; it may miss only
// what was deleted before it came there.
func TestReadWhileDeleted(t *testing.T) {
	const topic, count = "rolling", 400
	b := startBroker(t, t.TempDir(), "log.retention.check.interval.ms=100", "log.initial.task.delay.ms=0")
	b.create(t, topic, 1, "segment.bytes=1048576", "retention.bytes=3145728", "file.delete.delay.ms=100")

	consumer := startHosted(t, fmt.Sprintf("Client follow %s %s %d", b.address, topic, count-1))
	defer time.AfterFunc(patience, consumer.kill).Stop()
	seen := bufio.NewScanner(consumer.out)

	p := b.newProducer(t, kgo.NoCompression())
	write := func(i int) {
		t.Helper()
		r := &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: make([]byte, 100_000)}
		if err := p.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	if !seen.Scan() || seen.Text() != "0 0" { // the consumer is there: now both run
		t.Fatalf("first record: %q, %v", seen.Text(), seen.Err())
	}
	for i := 1; i < count; i++ {
		write(i)
	}
	last, read := 0, 1
	for seen.Scan() && seen.Text() != "" { // an empty line precedes the exit status
		var offset, key int
		if _, err := fmt.Sscan(seen.Text(), &offset, &key); err != nil || key != offset || offset <= last {
			t.Errorf("behind offset %d: %q", last, seen.Text())
		}
		last, read = offset, read+1
	}
	if _, err := io.Copy(io.Discard, consumer.out); err != nil {
		t.Error(err)
	}
	if err := consumer.end(); err != nil || last != count-1 {
		t.Errorf("the consumer saw %d records, the last at %d: %v", read, last, err)
	}
	if read < 50 {
		t.Errorf("the consumer saw only %d of %d records", read, count)
	}
	var start kadm.ListedOffset
	eventually(t, "retention has caught up", func() bool {
		starts, err := b.admin.ListStartOffsets(t.Context(), topic)
		start, _ = starts.Lookup(topic, 0)
		return err == nil && start.Offset > count-60
	})
	t.Logf("read %d of %d, log starts at %d", read, count, start.Offset)
}
