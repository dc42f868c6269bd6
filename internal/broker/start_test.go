package broker

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/storage"
	"ottla/internal/transport/memnet"
	"ottla/internal/vfs"
)

// A start that fails, at whichever step, leaves nothing behind: no goroutine (or the bubble does not end), no listener, no lock,
// no metric; and the log directory is found as it was left, the clean-shutdown marker and the epoch in it included.
func TestStartFails(t *testing.T) {
	broker := map[string]string{
		"process.roles": "broker", "listeners": "PLAINTEXT://node:9092", "controller.quorum.voters": "9@elsewhere:9093",
		"controller.listener.names": "CONTROLLER", "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
	}
	with := func(settings map[string]string, key, value string) map[string]string {
		out := map[string]string{key: value}
		for k, v := range settings {
			if k != key {
				out[k] = v
			}
		}
		return out
	}
	errDisk := errors.New("disk is broken")
	for _, test := range []struct {
		name     string
		settings map[string]string
		fails    string // the file operation on which path fails
		want     string // in the error
	}{
		{name: "a listener's address is taken", settings: with(nil, "listeners", "PLAINTEXT://node:9092,CONTROLLER://node:9099"), want: "node:9099"},
		{name: "another node's directory", settings: with(nil, "node.id", "7"), want: "belongs to node 1"},
		{name: "another cluster", settings: with(nil, "ottla.cluster.id", "AAAAAAAAAAAAAAAAAAAAAQ"), want: "ottla.cluster.id is AAAAAAAAAAAAAAAAAAAAAQ"},
		{name: "no metadata log", fails: "/__cluster_metadata-0", want: "metadata log"},
		{name: "no partitions", fails: "/t-0", want: "open the partitions"},
		{name: "no controller", settings: broker, want: "wait to be unfenced"},
		{name: "no controller in time", settings: with(broker, "initial.broker.registration.timeout.ms", "500"), want: "initial.broker.registration.timeout.ms"},
		{name: "too slow", settings: with(broker, "server.max.startup.time.ms", "500"), want: "server.max.startup.time.ms"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk, network, registry := newDisk(t), memnet.New(), prometheus.NewRegistry()
				epoch := leaveCleanly(t, disk)
				disk.Inject(func(op vfs.Op) error {
					if test.fails != "" && strings.Contains(op.Path, test.fails) {
						return errDisk
					}
					return nil
				})
				taken, err := network.Listen("node:9099")
				if err != nil {
					t.Fatal(err)
				}
				o := options(t, disk, with(test.settings, "ottla.console.listener", ""))
				if test.settings["listeners"] == "" {
					o.Config = parse(t, with(test.settings, "listeners", "PLAINTEXT://node:9092,CONTROLLER://node:9093"))
				}
				o.Registerer = registry
				o.Listen = func(_ context.Context, _, address string) (net.Listener, error) { return network.Listen(address) }
				o.Dial = network.Dialer("node")
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				b, err := Start(ctx, o)
				if b != nil {
					t.Fatal("the node started")
				}
				if !strings.Contains(err.Error(), test.want) {
					t.Errorf("error %q, want one about %q", err, test.want)
				}
				taken.Close()
				for _, address := range []string{"node:9092", "node:9093", "node:9099"} {
					l, err := network.Listen(address)
					if err != nil {
						t.Errorf("the start has left a listener: %v", err)
						continue
					}
					l.Close()
				}
				if families, err := registry.Gather(); err != nil || len(families) > 0 {
					t.Errorf("the start has left %d metrics (%v)", len(families), err)
				}
				disk.Inject(nil)
				if test.fails != "" {
					return // a failed disk is left as a crash leaves it
				}
				d, err := storage.OpenDir(t.Context(), storage.DirOptions{FS: disk, Path: "/data", NodeID: 1})
				if err != nil {
					t.Fatal(err)
				}
				if !d.Clean() || d.CleanShutdownEpoch() != epoch {
					t.Errorf("clean %v with epoch %d, want true with %d", d.Clean(), d.CleanShutdownEpoch(), epoch)
				}
				if err := d.Close(t.Context(), epoch, true); err != nil {
					t.Error(err)
				}
				checkTopic(t, disk)
			})
		})
	}
}

// leaveCleanly runs a node on disk that makes a topic of three records, the first deleted. It returns its broker epoch.
func leaveCleanly(t *testing.T, disk *vfs.Mem) int64 {
	t.Helper()
	b, connect := startInBubble(t, disk, nil)
	c := connect()
	topic := c.createTopic("t", 1)
	for range 3 {
		c.produce(topic, 0, batch(10))
	}
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.SetVersion(2)
	req.TimeoutMillis = 1000
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: 1}}}}
	if p := ask[*kmsg.DeleteRecordsResponse](c, req).Topics[0].Partitions[0]; p.ErrorCode != 0 || p.LowWatermark != 1 {
		t.Fatalf("deleting records was answered with error code %d and low watermark %d", p.ErrorCode, p.LowWatermark)
	}
	epoch := b.lifecycle.epoch.Load()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return epoch
}

// checkTopic checks that the topic of leaveCleanly is still what it was.
func checkTopic(t *testing.T, disk *vfs.Mem) {
	t.Helper()
	b, _ := startInBubble(t, disk, nil)
	defer b.Close()
	p, err := b.replicas.GetByName("t", 0)
	if err != nil {
		t.Fatal(err)
	}
	if start, hw, end := p.LogStartOffset(), p.HighWatermark(), p.LogEndOffset(); start != 1 || hw != 3 || end != 3 {
		t.Errorf("log start %d, high watermark %d, log end %d; want 1, 3, 3", start, hw, end)
	}
}

// Recovery builds a topic's indexes by the topic's own settings, which are in the metadata that the node has stored, in its log or
// in a snapshot: with others the index comes out otherwise, and Apache Kafka refuses a directory whose index is larger than
// segment.index.bytes allows.
func TestRecoveryBySettingsOfTopic(t *testing.T) {
	const index = "/data/t-0/00000000000000000000.index"
	for name, settings := range map[string]map[string]string{
		"in the log":    nil,
		"in a snapshot": {"metadata.log.max.record.bytes.between.snapshots": "1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := newDisk(t)
				b, connect := startInBubble(t, disk, settings)
				c := connect()
				topic := c.createTopic("t", 1, "index.interval.bytes", "40000", "segment.index.bytes", "80")
				for range 300 {
					c.produce(topic, 0, batch(1000))
				}
				time.Sleep(time.Second) // what is to be written in the background is
				killed := disk.Crash(1, nil)
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
				if b, _ = startInBubble(t, killed, nil); b.Close() != nil {
					t.Fatal("the node that was killed does not close")
				}
				want, err := vfs.ReadFile(disk, index)
				if err != nil || len(want) != 7*8 { // 300 kB at 40 kB an entry
					t.Fatalf("an index of %d bytes (%v)", len(want), err)
				}
				if got, err := vfs.ReadFile(killed, index); err != nil || !bytes.Equal(got, want) {
					t.Errorf("recovery built an index of %d bytes, %x (%v), and it was one of %d, %x", len(got), got, err, len(want), want)
				}
				snapshots := 0
				entries, err := killed.ReadDir("/data/__cluster_metadata-0")
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					if strings.HasSuffix(e.Name(), ".checkpoint") {
						snapshots++
					}
				}
				if (snapshots > 0) != (settings != nil) {
					t.Errorf("there are %d snapshots", snapshots)
				}
			})
		})
	}
}

// A node without a log directory that works ends by itself.
func TestLastDirectoryFails(t *testing.T) {
	disk := newDisk(t)
	for _, dir := range []string{"/a", "/b"} {
		if err := disk.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), answerWithin)
	defer cancel()
	b, err := Start(ctx, options(t, disk, map[string]string{"log.dirs": "/a,/b", "metadata.log.dir": "/data"}))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close() // which reports the broken disks
	errDisk := errors.New("disk is broken")
	c := dial(t, b)
	for _, dir := range []string{"/a", "/b"} {
		if err := b.Err(); err != nil {
			t.Fatalf("the node ended before %s failed: %v", dir, err)
		}
		name := "in" + dir[1:]
		disk.Inject(func(op vfs.Op) error {
			if strings.HasPrefix(op.Path, dir) {
				return errDisk
			}
			return nil
		})
		c.createTopic(name, 2) // in both directories, or in the one that is left
		await(t, dir+" to be found broken", func() bool {
			for _, d := range b.dataDirs() {
				if d.Path() == dir {
					return d.Err() != nil
				}
			}
			return false
		})
	}
	select {
	case <-b.Done():
	case <-time.After(answerWithin):
		t.Fatal("the node goes on without a log directory")
	}
	if !errors.Is(b.Err(), errDisk) {
		t.Errorf("the node ended with %v, want the disk's error", b.Err())
	}
}

// A disk that hangs, with a partition being made, another being flushed and a batch being appended, does not keep a node from ending;
// nor does one that has the metadata log as well.
func TestCloseWithHungDisk(t *testing.T) {
	for name, test := range map[string]struct {
		settings map[string]string
		hangs    string
		want     error
	}{
		"of partitions": {map[string]string{"log.dirs": "/disk", "metadata.log.dir": "/data"}, "/disk", context.DeadlineExceeded},
		"of everything": {nil, "/data", errHangs},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := newDisk(t)
				b, connect := startInBubble(t, disk, test.settings)
				c := connect()
				topicID := c.createTopic("written", 1)
				c.produce(topicID, 0, batch(10))
				thaw := make(chan struct{})
				defer close(thaw)
				disk.Inject(func(op vfs.Op) error {
					if strings.HasPrefix(op.Path, test.hangs) {
						<-thaw
					}
					return nil
				})
				time.Sleep(2 * time.Second) // until the flusher waits for the disk
				req := kmsg.NewPtrCreateTopicsRequest()
				req.SetVersion(createTopicsVersion)
				topic := kmsg.NewCreateTopicsRequestTopic()
				topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "made", 1, 1
				req.Topics = append(req.Topics, topic)
				c.send(req)
				connect().send(produceRequest(topicID, 0, batch(10)))
				synctest.Wait()
				began := time.Now()
				err := b.Close()
				if took := time.Since(began); took > controlledShutdownWait+5*closeWait+dirCloseWait+time.Second {
					t.Errorf("closing took %v", took)
				}
				if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.hangs) {
					t.Errorf("closing ended with %v", err)
				}
			})
		})
	}
}
