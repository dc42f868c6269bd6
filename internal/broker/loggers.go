package broker

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
)

// rootLogger names the level of every logger that has none of its own.
const rootLogger = "root"

// loggerNames are all loggers of a node, by name: one for each package that logs, and root.
var loggerNames = []string{"broker", "console", "controller", "coordinator", "quorum", "replica", rootLogger, "storage", "transport"}

// A logLevel is a level by its name in Kafka (LogLevelConfig).
type logLevel struct {
	name  string
	level slog.Level
}

// logLevels are all levels, the one that lets most through first. Nothing is logged at TRACE and FATAL; they mean
// everything, and nothing.
var logLevels = []logLevel{
	{"TRACE", slog.LevelDebug - 4}, {"DEBUG", slog.LevelDebug}, {"INFO", slog.LevelInfo}, {"WARN", slog.LevelWarn},
	{"ERROR", slog.LevelError}, {"FATAL", slog.LevelError + 4},
}

// loggers are the loggers of a node with their levels, which clients may change while it runs and which last until it stops
// (KIP-412; the levels are those of Kafka's RuntimeLoggerManager). Until root is given a level, the handler that they
// all write to decides what to let through; a level that was set wins over the handler's own.
type loggers struct {
	to     slog.Handler
	levels map[string]*setLevel // of each of loggerNames; the map never changes
}

// A setLevel is the level that a logger was given, nil for none.
type setLevel struct{ atomic.Pointer[slog.Level] }

func newLoggers(to slog.Handler) *loggers {
	l := &loggers{to: to, levels: make(map[string]*setLevel, len(loggerNames))}
	for _, name := range loggerNames {
		l.levels[name] = &setLevel{}
	}
	return l
}

// named returns the logger of that name, one of loggerNames but root. Its lines say the name.
func (l *loggers) named(name string) *slog.Logger {
	own, ok := l.levels[name]
	if !ok {
		panic("broker: there is no logger named " + name)
	}
	return slog.New(leveledHandler{l.to, own, l.levels[rootLogger]}).With("logger", name)
}

// has reports whether there is a logger of that name.
func (l *loggers) has(name string) bool { return l.levels[name] != nil }

// set gives a logger a level; nil takes it back.
func (l *loggers) set(name string, level *slog.Level) { l.levels[name].Store(level) }

// level returns the name of the level that holds for a logger.
func (l *loggers) level(name string) string {
	h := leveledHandler{l.to, l.levels[name], l.levels[rootLogger]}
	i := slices.IndexFunc(logLevels, func(v logLevel) bool { return h.Enabled(context.Background(), v.level) })
	if i < 0 {
		i = len(logLevels) - 1
	}
	return logLevels[i].name
}

// A leveledHandler lets through what its logger's level, or else root's, allows.
type leveledHandler struct {
	slog.Handler
	own, root *setLevel
}

// Enabled implements slog.Handler.
func (h leveledHandler) Enabled(ctx context.Context, level slog.Level) bool {
	for _, set := range [...]*setLevel{h.own, h.root} {
		if least := set.Load(); least != nil {
			return level >= *least
		}
	}
	return h.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h leveledHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return leveledHandler{h.Handler.WithAttrs(attrs), h.own, h.root}
}

// WithGroup implements slog.Handler.
func (h leveledHandler) WithGroup(name string) slog.Handler {
	return leveledHandler{h.Handler.WithGroup(name), h.own, h.root}
}

// Logger returns the node's logger of that name, for who is part of the node but not started by it: "console".
func (b *Broker) Logger(name string) *slog.Logger { return b.loggers.named(name) }
