//go:build interop

package interop

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestSendfile watches the broker's system calls while a client fetches a large range: the kernel sends the record
// bytes from the file, and the broker reads no more than batch headers, to find where ranges end.
func TestSendfile(t *testing.T) {
	const topic, count, size = "large", 64, 500_000
	b := startBroker(t, t.TempDir())
	b.create(t, topic, 1)
	p := b.newProducer(t, kgo.NoCompression())
	for range count {
		if err := p.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: make([]byte, size)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	var sent, read int64
	for call := range strings.Lines(strace(t, b, func() { fetchAll(t, b, topic, count) })) {
		m := onSegment.FindStringSubmatch(call)
		if m == nil {
			continue
		}
		n, err := strconv.ParseInt(m[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if m[1] == "sendfile" {
			sent += n
		} else {
			read += n
		}
	}
	t.Logf("%d bytes by sendfile, %d by read", sent, read)
	if sent < count*size {
		t.Errorf("sendfile sent %d bytes of %d", sent, count*size)
	}
	if most := int64(count * 1000); read > most { // a header has 61 bytes, and is read with a little of what follows
		t.Errorf("%d bytes of the segment were read, more than %d", read, most)
	}
}

// onSegment matches a call that moved bytes out of a segment file: its name and how many.
var onSegment = regexp.MustCompile(`\b(sendfile|read|pread64|readv|preadv2?)\(.*/\d{20}\.log>.* = (\d+)`)

// strace returns the calls that the broker makes to read files while f runs, each with the names of its files.
func strace(t *testing.T, b *broker, f func()) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("strace", "-ff", "-y", "-s", "0", "-e", "trace=sendfile,read,pread64,readv,preadv,preadv2", "-o", filepath.Join(dir, "thread"), "-p", strconv.Itoa(b.process.Pid))
	told, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(told).ReadString('\n'); err != nil || !strings.Contains(line, "attached") {
		t.Fatalf("strace: %q, %v", line, err)
	}
	f()
	cmd.Process.Signal(syscall.SIGINT)
	io.Copy(io.Discard, told)
	cmd.Wait() // tells of the signal
	threads, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var calls strings.Builder
	for _, file := range threads { // one each: then no call is printed in two pieces
		of, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		calls.Write(of)
	}
	return calls.String()
}

func fetchAll(t *testing.T, b *broker, topic string, count int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchMaxPartitionBytes(16<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for left := count; left > 0; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(fmt.Errorf("%d records left: %w", left, err))
		}
		left -= fetches.NumRecords()
	}
}
