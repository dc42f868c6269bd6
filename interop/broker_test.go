//go:build interop

package interop

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A broker is under test: ottla's built binary, or Apache Kafka.
type broker struct {
	address    string
	controller string
	client     *kgo.Client
	admin      *kadm.Client
	log        *log
	process    *os.Process   // nil if it runs in the host JVM
	terminate  func()        // asks it to stop
	gone       chan struct{} // closed once it has
	err        error         // how it went, once it is gone
}

// binary is the ottla under test.
var binary = os.Getenv("INTEROP_OTTLA")

func TestMain(m *testing.M) {
	if cache == "" || binary == "" {
		fmt.Fprintln(os.Stderr, "INTEROP_CACHE or INTEROP_OTTLA is not set: these tests are run by interop/run.sh")
		os.Exit(1)
	}
	code := m.Run()
	for _, h := range hosts {
		h.in.Close()
		<-h.ended
	}
	os.Exit(code)
}

// startBroker starts the broker under test on directory dir; the test's end stops it.
func startBroker(t *testing.T, dir string, more ...string) *broker {
	t.Helper()
	if os.Getenv("AGAINST") == "apache" {
		return startApacheProcess(t, dir, more...)
	}
	return startOttla(t, dir, more...)
}

// settings are those both brokers get, so that either can take over the other's directory. The tests' records have
// timestamps long past, hence no retention by time.
func settings(port int, dir string, more []string) []string {
	return append([]string{
		"process.roles=broker,controller", "node.id=1",
		fmt.Sprintf("controller.quorum.bootstrap.servers=127.0.0.1:%d", port+1),
		"controller.listener.names=CONTROLLER",
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", port, port+1),
		"log.dirs=" + dir, "offsets.topic.replication.factor=1", "num.partitions=3", "log.retention.ms=-1",
	}, more...)
}

func startOttla(t *testing.T, dir string, more ...string) *broker {
	t.Helper()
	port := freePort(t)
	args := []string{"serve", "--set", "ottla.console.listener="}
	for _, s := range settings(port, dir, more) {
		args = append(args, "--set", s)
	}
	return startedProcess(t, exec.Command(binary, args...), port)
}

// startApache starts a broker of Apache Kafka in the host JVM.
func startApache(t *testing.T, dir string, more ...string) *broker {
	t.Helper()
	port, file := apacheSettings(t, dir, more)
	p := startHosted(t, "2>&1 Broker "+file)
	b := newBroker(t, port)
	b.terminate = func() { p.in.Close() }
	go func() {
		if _, b.err = io.Copy(b.log, p.out); b.err == nil {
			b.err = p.end()
		}
		close(b.gone)
	}()
	b.await(t)
	return b
}

// startApacheProcess starts one in a process of its own, which can be killed.
func startApacheProcess(t *testing.T, dir string, more ...string) *broker {
	t.Helper()
	port, file := apacheSettings(t, dir, more)
	return startedProcess(t, java("kafka.Kafka", file), port)
}

// apacheSettings writes the settings of an Apache broker to a file, and formats dir if nobody has.
func apacheSettings(t *testing.T, dir string, more []string) (port int, file string) {
	t.Helper()
	port, file = freePort(t), filepath.Join(t.TempDir(), "server.properties")
	more = append([]string{"log.cleaner.dedupe.buffer.size=8388608"}, more...) // by default half the heap that it gets here
	if err := os.WriteFile(file, []byte(strings.Join(settings(port, dir, more), "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "meta.properties")); err != nil {
		if out, status := runHosted(t, "kafka.tools.StorageTool format --standalone -t AAAAAAAAAAAAAAAAAAAAAQ -c "+file); status != 0 {
			t.Fatalf("format %s: %s", dir, out)
		}
	}
	return port, file
}

func startedProcess(t *testing.T, cmd *exec.Cmd, port int) *broker {
	t.Helper()
	b := newBroker(t, port)
	cmd.Stdout, cmd.Stderr = b.log, b.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.process, b.terminate = cmd.Process, func() { cmd.Process.Signal(syscall.SIGTERM) }
	go func() {
		b.err = cmd.Wait()
		if cmd.ProcessState.ExitCode() == 143 { // so a JVM ends at SIGTERM
			b.err = nil
		}
		close(b.gone)
	}()
	b.await(t)
	return b
}

func newBroker(t *testing.T, port int) *broker {
	t.Helper()
	b := &broker{address: fmt.Sprintf("127.0.0.1:%d", port), controller: fmt.Sprintf("127.0.0.1:%d", port+1), log: new(log), gone: make(chan struct{})}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.MetadataMinAge(10*time.Millisecond)) // for so long it believes its cache
	if err != nil {
		t.Fatal(err)
	}
	b.client, b.admin = cl, kadm.NewClient(cl)
	return b
}

// await waits until the broker answers, and has the test's end stop it.
func (b *broker) await(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		b.client.Close()
		select {
		case <-b.gone:
		default:
			b.stop(t)
		}
		if t.Failed() {
			t.Logf("broker's log:\n%.20000s", b.log)
		}
	})
	eventually(t, "the broker answers", func() bool {
		select {
		case <-b.gone:
			t.Fatalf("the broker does not start: %v", b.err)
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		_, err := b.admin.ListTopics(ctx)
		return err == nil
	})
}

// stop ends the broker with SIGTERM, which must lead to exit status 0.
func (b *broker) stop(t *testing.T) {
	t.Helper()
	b.terminate()
	select {
	case <-b.gone:
	case <-time.After(patience):
		t.Fatalf("the broker has not stopped within %v\n%s", patience, tail(b.log.String()))
	}
	if b.err != nil {
		t.Errorf("the broker stops: %v\n%s", b.err, tail(b.log.String()))
	}
}

// kill ends the broker, a process, as a fault would.
func (b *broker) kill(t *testing.T) {
	t.Helper()
	if err := b.process.Kill(); err != nil {
		t.Error(err)
	}
	<-b.gone
}

func (b *broker) createTopic(t *testing.T, topic string) {
	t.Helper()
	if r, err := b.admin.CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
}

// nextPort is where freePort goes on looking: below the ports that the system gives to clients, which could take one
// before the broker does.
var nextPort = 15000 + os.Getpid()%7000*2

// freePort returns a port that, like the next one, nobody listens on and no broker of this run had.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := nextPort
		nextPort += 2
		if isFree(port) && isFree(port+1) {
			return port
		}
	}
	t.Fatalf("no two neighbouring free ports below %d", nextPort)
	return 0
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
