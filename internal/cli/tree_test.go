package cli

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "rewrite the golden files; read the diff")

// run runs a command line that needs no broker.
func run(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = Run(context.Background(), IO{Args: args, In: strings.NewReader(stdin), Out: &out, Err: &err})
	return code, out.String(), err.String()
}

// leaves returns the commands that do something, but for those that cobra makes.
func leaves(cmd *cobra.Command) []*cobra.Command {
	if cmd.Name() == "completion" || cmd.Name() == "help" {
		return nil
	}
	if !cmd.HasSubCommands() {
		return []*cobra.Command{cmd}
	}
	var out []*cobra.Command
	for _, c := range cmd.Commands() {
		out = append(out, leaves(c)...)
	}
	return out
}

func TestEveryLeaf(t *testing.T) {
	root := newApp(IO{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}).root()
	seen := map[string]bool{}
	for _, cmd := range leaves(root) {
		path := cmd.CommandPath()
		if cmd.Flags().Lookup("output") == nil || cmd.Flags().ShorthandLookup("o") == nil {
			t.Errorf("%s has no -o", path)
		}
		if !strings.Contains(cmd.Example, path) {
			t.Errorf("%s has no example", path)
		}
		if !strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: its line %q is no sentence", path, cmd.Short)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no line", path, f.Name)
			}
		})
		golden := filepath.Join("testdata", "schema", strings.ReplaceAll(strings.TrimPrefix(path, "ottla "), " ", "-")+".json")
		seen[golden] = true
		checkGolden(t, golden, cmd.Annotations[schemaAnnotation]+"\n")
	}
	files, err := filepath.Glob("testdata/schema/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !seen[f] {
			t.Errorf("%s belongs to no command", f)
		}
	}
}

func checkGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./internal/cli -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: the JSON is a contract; %s", path, diff)
	}
}

func TestBareCommandPrintsTenLines(t *testing.T) {
	code, stdout, stderr := run(t, "")
	if n := strings.Count(stdout, "\n"); code != 0 || n != 10 || stderr != "" {
		t.Errorf("code %d, %d lines, stderr %q:\n%s", code, n, stderr, stdout)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{"topik", "ottla has no command topik; did you mean topic?"},
		{"topik list -o json", "ottla has no command topik; did you mean topic?"},
		{"topic lst", "ottla topic has no command lst; did you mean list?"},
		{"topic frobnicate", "ottla topic has no command frobnicate (see: ottla topic --help)"},
		{"topic create a --partitons 3", "ottla topic create has no flag --partitons; did you mean --partitions?"},
		{"topic create a -Q", "ottla topic create has no flag -Q (see: ottla topic create --help)"},
		{"topic create", "topic create: name a topic, as in: ottla topic create hello"},
		{"topic create a -c retention.ms", "--config retention.ms: write key=value"},
		{"topic create a -c retention.ms=soon", `--config retention.ms: "soon" is no time (write 250ms, 90s, 1h30m, 7d)`},
		{"topic list -o jsn", "-o jsn: did you mean json?"},
		{"topic list -o xml", "-o xml: choose one of table, wide, json, jsonl, name"},
		{"topic add-partitions", "ottla topic add-partitions: accepts 1 arg(s), received 0 (usage: ottla topic add-partitions NAME [flags])"},
		{"topic add-partitions a", "topic add-partitions: say --to N or --add N"},
		{"topic trim a", "topic trim: say one of --offset, --before and --all"},
		{"topic alter a", "topic alter: nothing to change; add -c key=value or --delete-config key"},
		{"consume", "consume: name a topic, as in: ottla consume hello"},
		{"consume a --offset soon", "--offset soon: write start, end, 42, -10, +10 or @2h"},
		{"consume a -f %q", "-f %q: unknown escape sequence %q"},
		{"produce a -i xml", "-i xml: choose one of lines, jsonl"},
		{"produce a --acks 2", "--acks 2: choose all, 1 or 0"},
		{"config get plant a", "plant has no settings; name topic NAME, broker ID, cluster, group NAME or client-metrics NAME"},
		{"config get broker x", "broker x: write a node id, or cluster for all brokers"},
		{"config set topic a b", "b: write key=value"},
		{"partition elect", "partition elect: name partitions, or say --all"},
		{"partition elect a:b", "a:b: write TOPIC or TOPIC:PARTITION"},
		{"group seek g a", "group seek: say one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --by-duration, --to-datetime and --from-file"},
		{"group seek g a --to-earliest --to-offset 0", "group seek: say one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --by-duration, --to-datetime and --from-file"},
		{"group seek g --to-earliest", "group seek: name topics, as in: ottla group seek g hello --to-earliest, or say --all-topics"},
		{"group seek g a --by-duration soon", `--by-duration: "soon" is no time (write 250ms, 90s, 1h30m, 7d)`},
		{"group seek g a:-1 --to-earliest", "a:-1: write TOPIC or TOPIC:PARTITION"},
		{"group delete-offsets g", "group delete-offsets: name topics, as in: ottla group delete-offsets g hello"},
		{"group describe g -w --max-lag 1", "group describe: -w goes on for ever; leave --max-lag and --max-behind out"},
		{"bench produce --records x", "--records x: write a number, such as 200000 or 5M"},
		{"topic list -X acks", "-X acks: write key=value"},
		{"topic list -X acks=2", "client property acks=2: choose all, 1 or 0"},
		{"topic list -X security.protocol=SASL_PLAINTEXT", `client property sasl.jaas.config has no username="…"`},
	} {
		code, stdout, stderr := run(t, "", strings.Fields(test.line)...)
		if code != ExitUsage || stdout != "" || stderr != "ottla: "+test.want+"\n" {
			t.Errorf("ottla %s: code %d, stdout %q, stderr\n got  %s want ottla: %s", test.line, code, stdout, stderr, test.want)
		}
	}
}

func TestNoBroker(t *testing.T) {
	code, _, stderr := run(t, "", "topic", "list", "-b", "127.0.0.1:1")
	want := "ottla: no broker answers at 127.0.0.1:1: connect: connection refused (start one: ottla serve; or name another: -b host:port)\n"
	if code != ExitNoBroker || stderr != want {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if code := Run(ctx, IO{Args: []string{"topic", "list", "-b", "127.0.0.1:1"}, In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}); code != ExitInterrupted {
		t.Errorf("code %d", code)
	}
}

func TestConfigCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server.properties")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("num.partitions=3\nnum.io.threads=9\nnum.partitons=4\nssl.key.password=geheim\n")
	code, stdout, stderr := run(t, "", "config", "check", file, "--no-env")
	want := `KEY               VALUE  VERDICT  WHY
num.io.threads    9      ignored  requests run on their connection's goroutine
num.partitions    3      used
num.partitons     4      unknown  is no known key; did you mean num.partitions?
ssl.key.password  ****   not yet  TLS is not built yet
`
	if diff := cmp.Diff(want, stdout); code != 0 || diff != "" {
		t.Errorf("code %d, %s", code, diff)
	}
	if stderr != "1 used, 1 not yet, 1 ignored, 1 unknown; ottla starts with this\n" {
		t.Errorf("stderr %q", stderr)
	}
	code, stdout, _ = run(t, "", "config", "show", file, "--no-env", "--set", "num.partitions=5")
	if code != 0 || stdout != "num.io.threads=9\nnum.partitions=5\nnum.partitons=4\nssl.key.password=****\n" {
		t.Errorf("code %d, %q", code, stdout)
	}
	write("num.partitions=0\nauthorizer.class.name=x\n")
	code, _, stderr = run(t, "", "config", "check", file, "--no-env")
	if code != ExitFailed || stderr != "ottla: Invalid value 0 for configuration num.partitions: Value must be at least 1, from "+file+"\n" {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
}
