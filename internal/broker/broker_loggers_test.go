package broker

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol"
)

// A logText is a log that is read while it is written.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// take returns the messages written since the last call.
func (l *logText) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}

func TestLoggers(t *testing.T) {
	var text logText
	l := newLoggers(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	storage, quorum := l.named("storage").With("topic", "t"), l.named("quorum").WithGroup("g")
	log := func() string {
		for _, logger := range []*slog.Logger{storage, quorum} {
			for _, v := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
				logger.Log(t.Context(), v, "m", "k", "v")
			}
		}
		return strings.ReplaceAll(text.take(), "msg=m ", "")
	}
	lines := func(levels string, attributes string) string {
		var b strings.Builder
		for _, level := range strings.Fields(levels) {
			fmt.Fprintf(&b, "level=%s %s\n", level, attributes)
		}
		return b.String()
	}
	debug, info, fatal := slog.LevelDebug, slog.LevelInfo, logLevels[5].level
	for _, step := range []struct {
		logger          string
		level           *slog.Level
		storage, quorum string // levels that are written
		says            string // levels of storage, quorum and root
	}{
		{"storage", nil, "WARN ERROR", "WARN ERROR", "WARN WARN WARN"}, // the handler's own
		{"storage", &debug, "DEBUG INFO WARN ERROR", "WARN ERROR", "DEBUG WARN WARN"},
		{rootLogger, &info, "DEBUG INFO WARN ERROR", "INFO WARN ERROR", "DEBUG INFO INFO"},
		{"quorum", &fatal, "DEBUG INFO WARN ERROR", "", "DEBUG FATAL INFO"},
		{"storage", nil, "INFO WARN ERROR", "", "INFO FATAL INFO"},
	} {
		l.set(step.logger, step.level)
		want := lines(step.storage, "logger=storage topic=t k=v") + lines(step.quorum, "logger=quorum g.k=v")
		if d := cmp.Diff(want, log()); d != "" {
			t.Errorf("after %s: (-want +got):\n%s", step.logger, d)
		}
		if says := strings.Join([]string{l.level("storage"), l.level("quorum"), l.level(rootLogger)}, " "); says != step.says {
			t.Errorf("after %s the levels are %s, want %s", step.logger, says, step.says)
		}
	}
	if level := newLoggers(slog.DiscardHandler).level("storage"); level != "FATAL" {
		t.Errorf("a log that is thrown away has level %s, want FATAL", level)
	}
}

// TestBrokerLoggers alters and describes the levels of loggers. The answers are those of Apache Kafka 4.4 to the same requests,
// with ottla's names of loggers; the controller listener has them too (KIP-919).
func TestBrokerLoggers(t *testing.T) {
	var text logText
	o := options(t, newDisk(t), nil)
	o.Logger = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn}))
	b, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()

	const set, remove, add, subtract = kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete, kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract
	type change struct {
		op    kmsg.IncrementalAlterConfigOp
		name  string
		value string // "-": null
	}
	one := func(op kmsg.IncrementalAlterConfigOp, name, value string) []change {
		return []change{{op, name, value}}
	}
	resource := func(name string, changes ...change) kmsg.IncrementalAlterConfigsRequestResource {
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeBrokerLogger, name
		for _, ch := range changes {
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			c.Op, c.Name, c.Value = ch.op, ch.name, &ch.value
			if ch.value == "-" {
				c.Value = nil
			}
			r.Configs = append(r.Configs, c)
		}
		return r
	}
	answer := func(code int16, message *string) string {
		if message == nil {
			return fmt.Sprint(code)
		}
		return fmt.Sprint(code, " ", *message)
	}
	alter := func(c *client, validateOnly bool, resources ...kmsg.IncrementalAlterConfigsRequestResource) string {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.Version, req.ValidateOnly, req.Resources = 1, validateOnly, resources
		var all []string
		for _, r := range ask[*kmsg.IncrementalAlterConfigsResponse](c, req).Resources {
			all = append(all, answer(r.ErrorCode, r.ErrorMessage))
		}
		return strings.Join(all, "; ")
	}
	describe := func(c *client, name string, names ...string) string {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeBrokerLogger, name, names
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Version, req.IncludeDocumentation, req.IncludeSynonyms = 4, true, true
		req.Resources = []kmsg.DescribeConfigsRequestResource{r}
		out := ask[*kmsg.DescribeConfigsResponse](c, req).Resources[0]
		if out.ErrorCode != 0 {
			return answer(out.ErrorCode, out.ErrorMessage)
		}
		var levels []string
		for _, e := range out.Configs {
			levels = append(levels, e.Name+"="+*e.Value)
			if e.Source != kmsg.ConfigSourceDynamicBrokerLoggerConfig || e.ReadOnly || e.IsSensitive || len(e.ConfigSynonyms) > 0 || *e.Documentation != "" || e.ConfigType != 0 {
				t.Errorf("entry %+v", e)
			}
		}
		slices.Sort(levels)
		return strings.Join(levels, " ")
	}

	onController, err := net.Dial("tcp", b.advertised(protocol.OnController)[0].HostPort())
	if err != nil {
		t.Fatal(err)
	}
	defer onController.Close()
	for listener, c := range map[string]*client{"clients": dial(t, b), "controllers": {t: t, conn: onController}} {
		t.Run(listener, func(t *testing.T) {
			expect := func(what, got, want string) {
				t.Helper()
				if got != want {
					t.Errorf("%s:\n got  %s\n want %s", what, got, want)
				}
			}
			all := "broker=WARN console=WARN controller=WARN coordinator=WARN quorum=WARN replica=WARN root=WARN storage=WARN transport=WARN"
			expect("all", describe(c, "1"), all)
			expect("of an empty list", describe(c, "1", []string{}...), all)
			expect("by name", describe(c, "1", "nope", "storage"), "storage=WARN")
			for name, want := range map[string]string{
				"":            "42 Broker id must not be empty",
				"2":           "42 Unexpected broker id, expected 1 but received 2",
				"abc":         "42 Broker id must be an integer, but it is: abc",
				"-1":          "42 Unexpected broker id, expected 1 but received -1",
				"99999999999": "42 Broker id must be an integer, but it is: 99999999999",
				"01":          "storage=WARN",
				"+1":          "storage=WARN",
			} {
				expect("describe "+name, describe(c, name, "storage"), want)
			}
			for name, want := range map[string]string{
				"":            "42 Node id must be an integer, but it is: ",
				"2":           "42 Unexpected node id. Expected 1, but received 2",
				"abc":         "42 Node id must be an integer, but it is: abc",
				"99999999999": "42 Node id must be an integer, but it is: 99999999999",
				"01":          "0",
			} {
				expect("alter "+name, alter(c, false, resource(name, change{set, "storage", "WARN"})), want)
			}
			for _, level := range []string{"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"} {
				expect(level, alter(c, false, resource("1", change{set, "storage", level})), "0")
				expect(level, describe(c, "1", "storage"), "storage="+level)
			}
			unsupported := func(level string) string {
				return "40 Cannot set the log level of storage to " + level + " as it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
			}
			for _, row := range []struct {
				changes []change
				want    string
			}{
				{one(set, "storage", "OFF"), unsupported("OFF")},
				{one(set, "storage", "debug"), unsupported("debug")},
				{one(set, "storage", ""), unsupported("")},
				{one(set, "storage", "-"), "42 Null value not supported for : storage"},
				{one(add, "storage", "DEBUG"), "42 APPEND operation is not allowed for the BROKER_LOGGER resource"},
				{one(subtract, "nope", "DEBUG"), "42 SUBTRACT operation is not allowed for the BROKER_LOGGER resource"},
				{one(7, "storage", "DEBUG"), "42 Unknown operation type 7 is not allowed for the BROKER_LOGGER resource"},
				{one(set, "nope", "DEBUG"), "40 Logger nope does not exist!"},
				{one(set, "nope", "loud"), "40 Logger nope does not exist!"},
				{one(remove, "nope", "-"), "40 Logger nope does not exist!"},
				{one(set, "ROOT", "DEBUG"), "40 Logger ROOT does not exist!"},
				{one(remove, "root", "-"), "42 Removing the log level of the root logger is not allowed"},
				{[]change{{set, "storage", "DEBUG"}, {set, "storage", "INFO"}}, "42 Error due to duplicate config keys"},
				{[]change{{set, "storage", "DEBUG"}, {set, "nope", "INFO"}}, "40 Logger nope does not exist!"},
				{nil, "0"},
			} {
				expect(fmt.Sprint(row.changes), alter(c, false, resource("1", row.changes...)), row.want)
				expect(fmt.Sprint("after ", row.changes), describe(c, "1", "storage"), "storage=FATAL")
			}
			expect("validate only", alter(c, true, resource("1", change{set, "storage", "DEBUG"})), "0")
			expect("after it", describe(c, "1", "storage"), "storage=FATAL")
			expect("bad, validate only", alter(c, true, resource("1", change{set, "storage", "loud"})), unsupported("loud"))

			topic := resource("nope", change{set, "retention.ms", "5"})
			topic.ResourceType = kmsg.ConfigResourceTypeTopic
			expect("twice, beside others", alter(c, false, resource("1", change{set, "storage", "INFO"}), topic, resource("1", change{set, "storage", "DEBUG"})),
				"42 Each resource must appear at most once.; 3 The topic 'nope' does not exist.; 42 Each resource must appear at most once.")
			expect("beside another", alter(c, false, resource("1", change{set, "storage", "INFO"}), topic), "0; 3 The topic 'nope' does not exist.")
			expect("after it", describe(c, "1", "storage"), "storage=INFO")

			expect("root", alter(c, false, resource("1", change{set, "root", "ERROR"})), "0")
			expect("after it", describe(c, "1", "quorum", "root", "storage"), "quorum=ERROR root=ERROR storage=INFO")
			expect("take back", alter(c, false, resource("1", change{remove, "storage", "WARN"})), "0")
			expect("after it", describe(c, "1", "storage"), "storage=ERROR")
			expect("once more", alter(c, false, resource("1", change{remove, "storage", "-"}, change{set, "root", "WARN"})), "0")
		})
	}

	c := dial(t, b)
	value := "INFO"
	legacy := kmsg.NewAlterConfigsRequestResource()
	legacy.ResourceType, legacy.ResourceName = kmsg.ConfigResourceTypeBrokerLogger, "1"
	legacy.Configs = []kmsg.AlterConfigsRequestResourceConfig{{Name: "storage", Value: &value}}
	req := kmsg.NewPtrAlterConfigsRequest()
	req.Version, req.Resources = 2, []kmsg.AlterConfigsRequestResource{legacy}
	if r := ask[*kmsg.AlterConfigsResponse](c, req).Resources[0]; answer(r.ErrorCode, r.ErrorMessage) != "42 Unknown resource type 8" {
		t.Errorf("AlterConfigs: %s", answer(r.ErrorCode, r.ErrorMessage))
	}

	text.take()
	alter(c, false, resource("1", change{set, "broker", "INFO"}))
	if got := text.take(); !strings.Contains(got, `level=INFO msg="log level" logger=broker name=broker level=INFO`) {
		t.Errorf("logged: %s", got)
	}
}
