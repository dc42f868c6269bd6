package ottla_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
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

// TestRefusedConfiguration: what cannot be honoured refuses the start with an error that names it, and leaves nothing.
func TestRefusedConfiguration(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	for _, row := range []struct {
		says       string
		properties map[string]string
	}{
		{"num.partitions", map[string]string{"num.partitions": "many"}},
		{"num.partitions", map[string]string{"num.partitions": "0"}},
		{"listeners", map[string]string{"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:-5"}},
		{"OTHER", map[string]string{"listeners": "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0,CONTROLLER://127.0.0.1:0"}},
		{"SASL_PLAINTEXT", map[string]string{
			"listeners":                      "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
			"listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
			"inter.broker.listener.name":     "SASL_PLAINTEXT",
		}},
		{"authorizer.class.name", map[string]string{"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}},
		{"ssl.client.auth", map[string]string{"ssl.client.auth": "required"}},
		{"sasl.enabled.mechanisms", map[string]string{"sasl.enabled.mechanisms": "PLAIN"}},
	} {
		b, err := ottla.Start(t.Context(), ottla.Config{Properties: row.properties})
		if err == nil {
			t.Errorf("%v was taken: %v", row.properties, b.Close())
			continue
		}
		if !strings.Contains(err.Error(), row.says) {
			t.Errorf("%v: the error does not name %s: %v", row.properties, row.says, err)
		}
	}
	if found := files(t, temporary); len(found) > 0 {
		t.Errorf("left %v", found)
	}
}

// TestUnknownKeyStarts: as in Kafka, a key that nobody knows is a warning.
func TestUnknownKeyStarts(t *testing.T) {
	log := new(lines)
	b := start(t, ottla.Config{
		Properties: map[string]string{"log.retention.huors": "5", "my.own.plugin": "on"},
		Logger:     slog.New(slog.NewTextHandler(log, nil)),
	})
	log.await(t, "log.retention.huors")
	log.await(t, "log.retention.hours") // what was meant
	dial(t, b.Addr()).createTopics(newTopic("t"))
}

// TestPortInUse: the start is undone, with the ports that it had already.
func TestPortInUse(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free := freeAddress(t)
	for _, listeners := range []string{
		"PLAINTEXT://" + taken.Addr().String() + ",CONTROLLER://" + free,
		"PLAINTEXT://" + free + ",CONTROLLER://" + taken.Addr().String(),
	} {
		b, err := ottla.Start(t.Context(), ottla.Config{Properties: map[string]string{"listeners": listeners}})
		if err == nil {
			t.Fatalf("a port in use was taken: %v", b.Close())
		}
		if _, port, _ := net.SplitHostPort(taken.Addr().String()); !strings.Contains(err.Error(), port) {
			t.Errorf("the error does not name the port %s: %v", port, err)
		}
		again, err := net.Listen("tcp", free)
		if err != nil {
			t.Fatalf("after the failed start: %v", err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestConsoleWhileStarting: a node that waits, here for controllers that are not there, says so to who asks, and that it need not be
// started again.
func TestConsoleWhileStarting(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	address := freeAddress(t)
	config := ottla.Config{Dir: t.TempDir(), Properties: map[string]string{
		"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:0", "controller.listener.names": "CONTROLLER",
		"controller.quorum.voters": "9@" + freeAddress(t), "ottla.cluster.id": "q1Zr9aAtRk2xWb0hK3m7Ag", "ottla.console.listener": address,
	}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		b, err := ottla.Start(ctx, config)
		if b != nil {
			err = errors.Join(errors.New("it started"), b.Close())
		}
		ended <- err
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: answerWithin}
	ask := func(path string) string {
		resp, err := client.Get("http://" + address + path)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%d %s", resp.StatusCode, body)
	}
	await(t, "200 ok\n", func() string { return ask("/livez") })
	equal(t, "/readyz", ask("/readyz"), "503 the broker does not serve: it is in state \"starting\"\n")
	if page := ask("/metrics"); !strings.Contains(page, "ottla_broker_state{state=\"starting\"} 1") {
		t.Errorf("/metrics does not say that the broker is starting: %.300s", page)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the start ended with %v, want what it waited for, and that it was cancelled", err)
	}
}

// TestConnectionsPerAddress: max.connections.per.ip closes what goes beyond it, and only that.
func TestConnectionsPerAddress(t *testing.T) {
	const most, tried = 5, 12
	b := start(t, ottla.Config{Properties: map[string]string{"max.connections.per.ip": strconv.Itoa(most)}})
	open := 0
	for range tried {
		if got := apiVersions(99)(dial(t, b.Addr()), ""); got != closed {
			open++
		}
	}
	if open != most {
		t.Errorf("%d of %d connections were served, want %d", open, tried, most)
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

// TestSoonReady: from Start to the first acknowledged record of a client library in less than a second. A machine that has something
// else to do gets five attempts, of which the fastest tells what ottla takes.
func TestSoonReady(t *testing.T) {
	const within, attempts = time.Second, 5
	var took []time.Duration
	for range attempts {
		d := timeToFirstRecord(t)
		if d <= within {
			return
		}
		took = append(took, d)
	}
	t.Errorf("the first record was acknowledged after %v, want %s", took, within)
}

// timeToFirstRecord starts a broker and returns how long it took until a client had a record acknowledged.
func timeToFirstRecord(t *testing.T) time.Duration {
	t.Helper()
	begin := time.Now()
	b := start(t, ottla.Config{})
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), kgo.StringRecord("v")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return time.Since(begin)
}
