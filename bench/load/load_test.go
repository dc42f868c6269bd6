//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"ottla"
)

// startBroker starts a broker whose groups go through their states fast, and returns its address.
func startBroker(t *testing.T) string {
	b, err := ottla.Start(t.Context(), ottla.Config{Dir: t.TempDir(), Properties: map[string]string{
		"group.initial.rebalance.delay.ms": "0", "group.consumer.heartbeat.interval.ms": "100", "group.consumer.min.heartbeat.interval.ms": "100",
		"group.consumer.assignment.interval.ms": "0",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b.Addr()
}

// lines runs a command and returns its results.
func lines(t *testing.T, command func(context.Context, []string, *bytes.Buffer) error, args ...string) (out []map[string]any) {
	t.Helper()
	var text bytes.Buffer
	if err := command(t.Context(), args, &text); err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(&text); d.More(); {
		var r map[string]any
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func holds(t *testing.T, r map[string]any, want map[string]any) {
	t.Helper()
	for k, v := range want {
		if r[k] != v {
			t.Errorf("%s is %v, want %v, in %v", k, r[k], v, r)
		}
	}
}

func TestCommits(t *testing.T) {
	addr := startBroker(t)
	for _, protocol := range []string{"classic", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			r := lines(t, func(ctx context.Context, args []string, out *bytes.Buffer) error { return commits(ctx, args, out) },
				"-addr", addr, "-topic", protocol, "-protocol", protocol, "-groups", "5", "-members", "3", "-partitions", "6", "-heartbeat", "100ms",
				"-every", "50ms", "-warm", "100ms", "-time", "500ms", "-labels", "broker=ottla workload=commit round=1")
			if len(r) != 1 {
				t.Fatalf("%d lines, want 1", len(r))
			}
			holds(t, r[0], map[string]any{"broker": "ottla", "workload": "commit", "round": "1", "protocol": protocol,
				"commits": float64(5 * 3 * 10), "commits_due_s": float64(5 * 3 * 20), "errors": 0., "lost": 0.})
			if r[0]["p50_ms"].(float64) <= 0 || r[0]["heartbeats"].(float64) < 5*3*4 {
				t.Errorf("no latency or too few heartbeats in %v", r[0])
			}
		})
	}
}

func TestProduces(t *testing.T) {
	addr := startBroker(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 3, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	run := func(ctx context.Context, args []string, out *bytes.Buffer) error { return produces(ctx, args, out) }
	r := lines(t, run, "-addr", addr, "-topic", "t", "-partitions", "3", "-conns", "20", "-rate", "1", "-records", "2", "-warm", "100ms", "-time", "300ms")
	if len(r) != 1 {
		t.Fatalf("%d lines, want 1", len(r))
	}
	holds(t, r[0], map[string]any{"cmd": "produce", "conns": 20., "errors": 0., "lost": 0.})
	// A batch of two records takes 2,079 bytes, so one is due every 2.079 ms.
	if n := r[0]["requests"].(float64); n != 145 || math.Abs(r[0]["bytes"].(float64)-n*2079) > 50 || r[0]["p50_ms"].(float64) <= 0 {
		t.Errorf("%v", r[0])
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-addr", addr, "-topic", "absent", "-partitions", "3"}, &out); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("of a topic that is not there: %v", err)
	}
	if err := run(t.Context(), []string{"-addr", addr, "-topic", "t", "-conns", "100", "-rate", "1", "-warm", "1s"}, &out); err == nil || !strings.Contains(err.Error(), "has had its turn") {
		t.Errorf("where not all connections have their turn in -warm: %v", err)
	}
}

func TestRebalances(t *testing.T) {
	addr := startBroker(t)
	for _, protocol := range []string{"classic", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			const members, partitions = 7, 16
			r := lines(t, func(ctx context.Context, args []string, out *bytes.Buffer) error { return rebalances(ctx, args, out) },
				"-addr", addr, "-topic", protocol, "-protocol", protocol, "-members", "7", "-partitions", "16", "-heartbeat", "100ms",
				"-pace", "20ms", "-down", "50ms", "-quiet", "500ms", "-group", protocol, "-labels", "workload=large")
			if len(r) != 2 {
				t.Fatalf("%d lines, want 2", len(r))
			}
			holds(t, r[0], map[string]any{"workload": "large/start", "double_owned": 0.})
			holds(t, r[1], map[string]any{"workload": "large/rolling", "double_owned": 0.})
			if n := r[0]["unowned"].(float64); n < partitions {
				t.Errorf("%v partitions found an owner, want at least %d", n, partitions)
			}
			if n := r[1]["joins"].(float64); n < members {
				t.Errorf("%v joins in a restart of %d members", n, members)
			}
			if r[1]["rebalances"].(float64) < 1 || r[1]["stable_s"].(float64) < (6*20+50)*1e-3 || r[1]["unowned_max_s"].(float64) < 0.02 {
				t.Errorf("a restart that took no time: %v", r[1])
			}
		})
	}
}

// TestVerify: an offset that was acknowledged and is not there is found.
func TestVerify(t *testing.T) {
	f := newGroupFlags("commit", 2, 4)
	if err := f.parse([]string{"-addr", startBroker(t), "-heartbeat", "100ms"}); err != nil {
		t.Fatal(err)
	}
	members, err := form(t.Context(), f, 2, result{})
	if err != nil {
		t.Fatal(err)
	}
	l := newCommitLoad(members, 20*time.Millisecond)
	if err := l.run(t.Context(), 100*time.Millisecond, l.plan()); err != nil {
		t.Fatal(err)
	}
	if lost, err := l.verify(t.Context(), f.addr); lost != 0 || err != nil {
		t.Errorf("%d partitions lost, %v; want none", lost, err)
	}
	l.members[0].offset++
	want := len(l.members[0].partitions())
	if lost, err := l.verify(t.Context(), f.addr); lost != want || err != nil {
		t.Errorf("%d partitions lost, %v; want the %d that member 0 has", lost, err, want)
	}
	// A member whose generation the coordinator does not know is refused.
	i := slices.IndexFunc(l.members, func(m *committer) bool { return m.member == members[1] })
	l.members[i].member.(*classicMember).generation--
	if err := l.run(t.Context(), 100*time.Millisecond, l.plan()); err != nil {
		t.Fatal(err)
	}
	if l.errors == 0 || l.first == nil {
		t.Error("a commit of an old generation counted as done")
	}
}
