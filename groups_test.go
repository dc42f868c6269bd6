package ottla_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ottla"
)

// TestGroups: two members of a group share a topic's partitions under either protocol; one leaves, and the other gets all;
// what they committed lasts through a restart of the broker.
func TestGroups(t *testing.T) {
	//lint:ignore SA1029 the client looks for this very string
	consumer := context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)
	for protocol, options := range map[string][]kgo.Opt{
		"classic":  {kgo.Balancers(kgo.CooperativeStickyBalancer())},
		"consumer": {kgo.WithContext(consumer)},
	} {
		t.Run(protocol, func(t *testing.T) {
			const topic, group, partitions, records = "shared", "readers", 4, 40
			dir := t.TempDir()
			properties := map[string]string{"group.initial.rebalance.delay.ms": "0",
				"group.consumer.heartbeat.interval.ms": "100", "group.consumer.min.heartbeat.interval.ms": "100"}
			b, err := ottla.Start(t.Context(), ottla.Config{Dir: dir, Properties: properties})
			if err != nil {
				t.Fatal(err)
			}
			createTopic(t, b, topic, partitions)
			produceNumbers(t, b, topic, partitions, records)

			first := joinGroup(t, b, group, topic, options)
			consumeAll(t, first, records)
			second := joinGroup(t, b, group, topic, options)
			awaitAssignment(t, b, protocol, group, 2, partitions)
			second.LeaveGroup()
			awaitAssignment(t, b, protocol, group, 1, partitions)
			first.LeaveGroup()
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}

			b = start(t, ottla.Config{Dir: dir, Properties: properties})
			committed, err := adminOf(t, b).FetchOffsets(t.Context(), group)
			if err != nil {
				t.Fatal(err)
			}
			for p := range int32(partitions) {
				if o, ok := committed.Lookup(topic, p); !ok || o.At != records/partitions {
					t.Errorf("after a restart partition %d is committed at %d (%v), want %d", p, o.At, ok, records/partitions)
				}
			}
		})
	}
}

func produceNumbers(t *testing.T, b *ottla.Broker, topic string, partitions int32, n int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i := range n {
		r := &kgo.Record{Topic: topic, Partition: int32(i) % partitions, Value: fmt.Appendf(nil, "%d", i)}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func joinGroup(t *testing.T, b *ottla.Broker, group, topic string, options []kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.Addr()), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100 * time.Millisecond)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// consumeAll has a member read n different values, and commits.
func consumeAll(t *testing.T, member *kgo.Client, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	seen := map[string]bool{}
	for len(seen) < n {
		fetches := member.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(seen), n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { seen[string(r.Value)] = true })
	}
	if err := member.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
}

// awaitAssignment waits until the group has so many members that share all partitions.
func awaitAssignment(t *testing.T, b *ottla.Broker, protocol, group string, members, partitions int) {
	t.Helper()
	adm := adminOf(t, b)
	want := fmt.Sprintf("Stable, %d members, %d partitions", members, partitions)
	last := ""
	for deadline := time.Now().Add(20 * time.Second); last != want && time.Now().Before(deadline); {
		last = describeGroup(t, adm, protocol, group)
	}
	if last != want {
		t.Fatalf("the group is %s; want %s", last, want)
	}
}

func describeGroup(t *testing.T, adm *kadm.Client, protocol, group string) string {
	t.Helper()
	members, assigned, state := 0, 0, ""
	if protocol == "consumer" {
		described, err := adm.DescribeConsumerGroups(t.Context(), group)
		if err != nil {
			t.Fatal(err)
		}
		members, state = len(described[group].Members), described[group].State
		for _, m := range described[group].Members {
			for _, topic := range m.Assignment {
				assigned += len(topic)
			}
		}
	} else {
		described, err := adm.DescribeGroups(t.Context(), group)
		if err != nil {
			t.Fatal(err)
		}
		members, state = len(described[group].Members), described[group].State
		for _, m := range described[group].Members {
			if c, ok := m.Assigned.AsConsumer(); ok {
				for _, topic := range c.Topics {
					assigned += len(topic.Partitions)
				}
			}
		}
	}
	return fmt.Sprintf("%s, %d members, %d partitions", state, members, assigned)
}

func adminOf(t *testing.T, b *ottla.Broker) *kadm.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}
