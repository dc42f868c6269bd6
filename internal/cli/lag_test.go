package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"ottla"
	"ottla/internal/cli"
	"ottla/internal/protocol"
)

// command runs a command line that must succeed and returns what it prints.
func command(t *testing.T, address, stdin string, args ...string) string {
	t.Helper()
	var out, err bytes.Buffer
	code := cli.Run(t.Context(), cli.IO{Args: append(args, "-b", address), Env: os.Environ(), In: strings.NewReader(stdin), Out: &out, Err: &err})
	if code != cli.ExitDone {
		t.Fatalf("ottla %s: code %d, %s", strings.Join(args, " "), code, err.String())
	}
	return out.String()
}

// describe returns the only group that there is.
func describe(t *testing.T, address string) cli.GroupDetail {
	t.Helper()
	var groups []cli.GroupDetail
	if err := json.Unmarshal([]byte(command(t, address, "", "group", "describe", "-o", "json")), &groups); err != nil {
		t.Fatal(err)
	}
	if len(groups) != 1 {
		t.Fatalf("%d groups: %+v", len(groups), groups)
	}
	return groups[0]
}

// TestLagInSeconds: the age of the oldest unread record is exact while the broker remembers its append, an estimate after a
// restart, and 0 when all is read.
func TestLagInSeconds(t *testing.T) {
	dir := t.TempDir()
	b, err := ottla.Start(t.Context(), ottla.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	command(t, b.Addr(), "", "topic", "create", "hello")
	started := time.Now()
	command(t, b.Addr(), "1\n2\n3\n", "produce", "hello")
	produced := time.Now()
	command(t, b.Addr(), "", "group", "seek", "readers", "hello", "--to-offset", "1", "--yes")

	before := time.Now()
	g := describe(t, b.Addr())
	if g.Lag != 2 || g.LagSeconds == nil || g.LagEstimated {
		t.Fatalf("%+v", g)
	}
	if low, high := before.Sub(produced).Seconds()-0.01, time.Since(started).Seconds(); *g.LagSeconds < low || *g.LagSeconds > high {
		t.Errorf("the record is said to be %v s old; it is between %v and %v", *g.LagSeconds, low, high)
	}
	if text := command(t, b.Addr(), "", "group", "describe"); !regexp.MustCompile(`(?m)^readers   Empty   0 members   lag 2 records, [0-9.]+ s$`).MatchString(text) ||
		!regexp.MustCompile(`(?m)^hello +0 +1 +3 +2 +[0-9.]+ s +- +-$`).MatchString(text) {
		t.Errorf("%s", text)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}

	b, err = ottla.Start(t.Context(), ottla.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if after := describe(t, b.Addr()); !after.LagEstimated || after.LagSeconds == nil || *after.LagSeconds < *g.LagSeconds || *after.LagSeconds > time.Since(started).Seconds() {
		t.Errorf("after a restart %+v", after)
	}
	if text := command(t, b.Addr(), "", "group", "describe"); !regexp.MustCompile(`(?m)^hello +0 +1 +3 +2 +~[0-9.]+ s +- +-$`).MatchString(text) {
		t.Errorf("%s", text)
	}
	command(t, b.Addr(), "", "group", "seek", "readers", "hello", "--to-latest", "--yes")
	if g := describe(t, b.Addr()); g.Lag != 0 || g.LagSeconds == nil || *g.LagSeconds != 0 || g.LagEstimated {
		t.Errorf("when all is read %+v", g)
	}
}

// TestGroupMetrics: the same figures for Prometheus, and one sum for the groups beyond the limit.
func TestGroupMetrics(t *testing.T) {
	b, err := ottla.Start(t.Context(), ottla.Config{Properties: map[string]string{"ottla.metrics.max.series": "5", "ottla.console.listener": "127.0.0.1:0",
		"group.initial.rebalance.delay.ms": "0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	command(t, b.Addr(), "", "topic", "create", "hello", "-p", "2")
	command(t, b.Addr(), "1\n2\n3\n", "produce", "hello", "-p", "0")
	for group, offset := range map[string]string{"a": "0", "b": "1", "c": "3"} {
		command(t, b.Addr(), "", "group", "seek", group, "hello:0", "--to-offset", offset, "--yes")
	}
	// a gets a member.
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.ConsumerGroup("a"), kgo.ConsumeTopics("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.PollFetches(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}

	text := scrape(t, b.ConsoleURL())
	for _, want := range []string{
		`ottla_group_members\{group="a"\} 1`, `ottla_group_state\{group="a",state="Stable"\} 1`, `ottla_group_rebalances_total\{group="a"\} 1`,
		`ottla_group_lag_records\{group="a",topic="hello"\} 3`, `ottla_group_lag_seconds\{group="a",topic="hello"\} [0-9.e-]+`,
		`ottla_group_members\{group="\(other\)"\} 0`, `ottla_group_state\{group="\(other\)",state="Empty"\} 2`,
		`ottla_group_lag_records\{group="\(other\)",topic="\(other\)"\} 2`, `ottla_group_lag_seconds\{group="\(other\)",topic="\(other\)"\} [0-9.e-]+`,
	} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(text) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, `{group="b"`) {
		t.Error("there are more series than may be")
	}
}

// scrape returns what a console's /metrics says, which promlint must have nothing to say about.
func scrape(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "ottla_group") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	return string(text)
}

// TestDescribeLagIsPrivate: another client is not told of the API, so that it cannot ask.
func TestDescribeLagIsPrivate(t *testing.T) {
	b, err := ottla.Start(t.Context(), ottla.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(protocol.DescribeLagKey, 0)
	for software, want := range map[string]bool{protocol.OwnSoftware: true, "kgo": false} {
		client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.SoftwareNameAndVersion(software, "1"), kgo.MaxVersions(versions))
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Request(t.Context(), new(protocol.DescribeLagRequest))
		client.Close()
		if (err == nil) != want {
			t.Errorf("%s: %v", software, err)
		}
	}
}

// TestGroupDescribeRefreshes until it is interrupted.
func TestGroupDescribeRefreshes(t *testing.T) {
	b, err := ottla.Start(t.Context(), ottla.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	command(t, b.Addr(), "", "topic", "create", "hello")
	command(t, b.Addr(), "", "group", "seek", "readers", "hello", "--to-latest", "--yes")
	ctx, cancel := context.WithCancel(t.Context())
	out := &refreshes{then: cancel}
	code := cli.Run(ctx, cli.IO{Args: []string{"group", "describe", "readers", "-w", "--interval", "1ms", "-b", b.Addr()}, In: strings.NewReader(""), Out: out, Err: io.Discard})
	if n := strings.Count(out.String(), "readers   Empty"); code != cli.ExitInterrupted || n < 2 {
		t.Errorf("code %d after %d refreshes:\n%s", code, n, out.String())
	}
}

// refreshes calls then at the second write.
type refreshes struct {
	bytes.Buffer
	then func()
	n    int
}

func (r *refreshes) Write(b []byte) (int, error) {
	if r.n++; r.n == 2 {
		r.then()
	}
	return r.Buffer.Write(b)
}
