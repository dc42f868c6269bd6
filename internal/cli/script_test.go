package cli_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla"
	"ottla/internal/cli"
)

var bootstrap = flag.String("bootstrap", "", "run the scripts against this broker, Apache's for instance, instead of ottla; one at a time: -run TestScript/NAME on an empty broker")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"ottla": func() { os.Exit(cli.Main()) }})
}

// TestScript runs testdata/script: command lines against a broker of their own, with what they must print.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			address := *bootstrap
			if address == "" {
				b, err := ottla.Start(t.Context(), ottla.Config{Properties: map[string]string{"group.initial.rebalance.delay.ms": "0",
					"group.consumer.heartbeat.interval.ms": "100", "group.consumer.min.heartbeat.interval.ms": "100"}})
				if err != nil {
					return err
				}
				env.Defer(func() {
					if err := b.Close(); err != nil {
						t.Error(err)
					}
				})
				address = b.Addr()
			}
			env.Setenv("OTTLA_BOOTSTRAP_SERVER", address)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "joins": joins, "leaves": leaves},
	})
}

// joins PROTOCOL GROUP TOPIC starts a member, with the client id "reader", and waits until it has been given all partitions
// and committed their offsets.
func joins(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: joins PROTOCOL GROUP TOPIC")
	}
	protocol, group, topic := args[0], args[1], args[2]
	assigned := make(chan map[string][]int32, 1)
	opts := []kgo.Opt{
		kgo.SeedBrokers(ts.Getenv("OTTLA_BOOTSTRAP_SERVER")), kgo.ClientID("reader"), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			if len(partitions) > 0 {
				assigned <- partitions
			}
		}),
	}
	if protocol == "consumer" {
		//lint:ignore SA1029 the client looks for this very string
		opts = append(opts, kgo.WithContext(context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)))
	}
	member, err := kgo.NewClient(opts...)
	ts.Check(err)
	ts.Defer(member.Close)
	members.Store(ts.Getenv("WORK")+group, member)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	select {
	case partitions := <-assigned:
		offsets := map[string]map[int32]kgo.EpochOffset{topic: {}}
		for _, p := range partitions[topic] {
			offsets[topic][p] = kgo.EpochOffset{Epoch: -1, Offset: 0}
		}
		member.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			ts.Check(err)
			for _, t := range resp.Topics {
				for _, p := range t.Partitions {
					ts.Check(kerr.ErrorForCode(p.ErrorCode))
				}
			}
		})
	case <-ctx.Done():
		ts.Fatalf("group %s has given its member nothing", group)
	}
}

// members are those that joins started, by directory of the script and group.
var members sync.Map

// leaves GROUP ends the member that joins started.
func leaves(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: leaves GROUP")
	}
	member, ok := members.LoadAndDelete(ts.Getenv("WORK") + args[0])
	if !ok {
		ts.Fatalf("nobody joined group %s", args[0])
	}
	member.(*kgo.Client).LeaveGroup()
}

// exits CODE COMMAND… runs a command that must end with that code; its output is there for stdout and stderr.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	code, err := strconv.Atoi(args[0])
	if neg || err != nil {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		ts.Fatalf("%v: %v, want exit code %d", args[1:], err, code)
	}
}
