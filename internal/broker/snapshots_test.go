package broker

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ottla/internal/metadata"
	"ottla/internal/quorum"
	"ottla/internal/transport/memnet"
	"ottla/internal/vfs"
)

// A node that is no controller keeps its metadata log short by snapshots of its own, and begins with the newest.
func TestBrokerWritesSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		start := func(disk vfs.FS, host string, settings map[string]string) *Broker {
			t.Helper()
			all := map[string]string{
				"controller.quorum.voters": "1@controller:9093", "controller.listener.names": "CONTROLLER", "ottla.cluster.id": "AAAAAAAAAAAAAAAAAAAAAQ",
				"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
			}
			maps.Copy(all, settings)
			o := options(t, disk, all)
			o.Listen = func(_ context.Context, _, address string) (net.Listener, error) { return network.Listen(address) }
			o.Dial = network.Dialer(host)
			b, err := Start(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		defer start(newDisk(t), "controller", map[string]string{
			"node.id": "1", "process.roles": "controller", "listeners": "CONTROLLER://controller:9093",
		}).Close()
		disk, settings := newDisk(t), map[string]string{
			"node.id": "2", "process.roles": "broker", "listeners": "PLAINTEXT://broker:9092",
			"metadata.log.max.record.bytes.between.snapshots": "300", "metadata.max.retention.bytes": "1", "internal.metadata.log.segment.bytes": "300",
		}
		b := start(disk, "broker", settings)
		conn, err := network.Dialer("client")(t.Context(), "tcp", "broker:9092")
		if err != nil {
			t.Fatal(err)
		}
		c := &client{t: t, conn: conn}
		const topics = 10
		for i := range topics {
			c.createTopic(fmt.Sprint("t", i), 1)
			time.Sleep(10 * time.Millisecond) // a snapshot is written meanwhile
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		entries, err := disk.ReadDir("/data/__cluster_metadata-0")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		snapshots := 0
		for _, e := range entries {
			names = append(names, e.Name())
			if strings.HasSuffix(e.Name(), ".checkpoint") {
				snapshots++
			}
			if strings.HasPrefix(e.Name(), "00000000000000000000") {
				t.Errorf("the first segment is still there: %s", e.Name())
			}
		}
		if snapshots != 1 {
			t.Errorf("%d snapshots are among %v, want the newest", snapshots, names)
		}
		b = start(disk, "broker", settings)
		defer b.Close()
		for i := range topics {
			if b.image().TopicByName(fmt.Sprint("t", i)) == nil {
				t.Errorf("topic t%d is not known after a restart", i)
			}
		}
	})
}

// A snapshot is due by what was read of the log since the last, or by time, if there is anything new.
func TestSnapshotsDue(t *testing.T) {
	s := &snapshots{maxBytes: 100, interval: time.Hour, last: time.Unix(0, 0)}
	for _, step := range []struct {
		at    time.Duration
		event quorum.Event
		due   bool
	}{
		{2 * time.Hour, quorum.LeaderChange{}, false},
		{2 * time.Hour, quorum.Batch{Bytes: 1}, true},
		{2 * time.Hour, quorum.Snapshot{}, false},
		{2*time.Hour + time.Minute, quorum.Batch{Bytes: 99}, false},
		{2*time.Hour + time.Minute, quorum.Batch{Bytes: 1}, true},
		{2*time.Hour + time.Minute, quorum.Snapshot{}, false},
		{3 * time.Hour, quorum.Batch{Bytes: 1}, false},
		{3*time.Hour + time.Minute, quorum.LeaderChange{}, true},
	} {
		now := time.Unix(0, 0).Add(step.at)
		if s.read(step.event, now); s.due(now) != step.due {
			t.Errorf("at %v after %+v a snapshot is due: %v", step.at, step.event, !step.due)
		}
	}
	s.busy.Store(true)
	if s.due(time.Unix(1<<40, 0)) {
		t.Error("a snapshot is due while one is being written")
	}
}

// A snapshot that is deleted before it was read, since a newer one is there, does not end who follows the metadata.
func TestSnapshotGoneWhileLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, connect := startInBubble(t, newDisk(t), map[string]string{
			"metadata.log.max.record.bytes.between.snapshots": "1", "metadata.max.retention.bytes": "1",
		})
		defer b.Close()
		c := connect()
		c.createTopic("a", 1)
		time.Sleep(time.Second)
		cursor, loader := b.quorum.Cursor(), metadata.NewLoader(metadata.Empty)
		for i, topic := range []string{"", "b"} {
			event, err := cursor.Next(t.Context())
			for _, change := event.(quorum.LeaderChange); change && err == nil; _, change = event.(quorum.LeaderChange) {
				event, err = cursor.Next(t.Context())
			}
			if _, ok := event.(quorum.Snapshot); !ok || err != nil {
				t.Fatalf("event %d is a %T, not a snapshot (%v)", i, event, err)
			}
			if i == 0 {
				c.createTopic("b", 1)
				time.Sleep(time.Second) // a newer one takes its place
			}
			if _, err := load(loader, event); err != nil {
				t.Fatalf("snapshot %d: %v", i, err)
			}
			if got := loader.Image().TopicByName(topic); (got != nil) != (topic != "") {
				t.Errorf("after snapshot %d topic %q is %v", i, topic, got)
			}
		}
	})
}
