package ottla_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"ottla"
)

// TestEmbeddedLeavesNothing: after Close no goroutine and, without a directory given, no file is left.
func TestEmbeddedLeavesNothing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)

	b, err := ottla.Start(t.Context(), ottla.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if found := files(t, temporary); len(found) == 0 {
		t.Error("the broker keeps its data elsewhere than in the temporary directory, so this test shows nothing")
	}
	idle, waiting := dial(t, b.Addr()), dial(t, b.Addr())
	waiting.createTopics(newTopic("t"))
	waiting.produce("t", newBatch("v").bytes())
	fetch := fetchOf("t", 1)
	fetch.MaxWaitMillis = 60_000
	waiting.send(fetch) // Close must not wait for it
	begin := time.Now()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("Close took %s", took)
	}
	if found := files(t, temporary); len(found) > 0 {
		t.Errorf("Close left %v", found)
	}
	if err := b.Err(); err != nil {
		t.Errorf("a broker that was closed says it ended by itself: %v", err)
	}
	if _, err := idle.read(); err != errClosed {
		t.Errorf("a connection of a closed broker: %v", err)
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	for key, value := range map[string]string{
		"num.partitions": "many",
		"listeners":      "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:-5",
	} {
		if b, err := ottla.Start(t.Context(), ottla.Config{Properties: map[string]string{key: value}}); err == nil {
			t.Errorf("%s=%s was taken: %v", key, value, b.Close())
		}
	}
	taken, err := ottla.Start(t.Context(), ottla.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := ottla.Start(t.Context(), ottla.Config{Properties: map[string]string{"listeners": "PLAINTEXT://" + taken.Addr() + ",CONTROLLER://127.0.0.1:0"}}); err == nil {
		t.Errorf("a port in use was taken: %v", b.Close())
	}
	if err := taken.Close(); err != nil {
		t.Error(err)
	}
	if found := files(t, temporary); len(found) > 0 {
		t.Errorf("it left %v", found)
	}
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestSoonReady: from Start to the first acknowledged record of a client library in less than a second.
func TestSoonReady(t *testing.T) {
	const within = time.Second
	begin := time.Now()
	b := start(t, ottla.Config{})
	started := time.Since(begin)
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), kgo.StringRecord("v")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > within {
		t.Errorf("the first record was acknowledged after %s (Start took %s), want %s", took, started, within)
	}
}
