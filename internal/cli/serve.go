package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ottla"
)

// A Greeting is what `serve` says when it is ready.
type Greeting struct {
	Version    string   `json:"version"`
	Kafka      string   `json:"kafka" doc:"Apache Kafka release it is compatible with"`
	Metadata   string   `json:"metadata_version"`
	ClusterID  string   `json:"cluster_id"`
	NewCluster bool     `json:"new_cluster" doc:"this start made it"`
	NodeID     int32    `json:"node_id"`
	Roles      []string `json:"roles"`
	Listeners  []string `json:"listeners" doc:"of clients, as advertised: NAME://host:port"`
	Console    string   `json:"console" doc:"address of metrics and health; empty if off"`
	LogDirs    []string `json:"log_dirs"`
	Partitions int      `json:"partitions" doc:"replicas that this node keeps"`
	Bytes      int64    `json:"bytes" doc:"that they hold"`
	Millis     int64    `json:"ready_ms"`
}

func (a *app) serve() *cobra.Command {
	var set []string
	return a.leaf(leaf{
		use: "serve [server.properties]", short: "Start a broker, with data in ./ottla-data unless told otherwise.",
		example: "ottla serve\nottla serve server.properties --set log.dirs=/data\nottla serve --set listeners=PLAINTEXT://0.0.0.0:9092 --set advertised.listeners=PLAINTEXT://host:9092",
		args:    cobra.MaximumNArgs(1), result: Greeting{},
		flags: func(f *pflag.FlagSet) {
			f.StringArrayVar(&set, "set", nil, "a setting `key=value` over file and environment; may be repeated")
			f.StringArrayVar(&set, "override", nil, "the same, as kafka-server-start has it")
		},
		run: func(ctx context.Context, args []string) error {
			sources := ottla.Sources{Env: a.Env, Set: set}
			if len(args) > 0 {
				sources.File = args[0]
			}
			defer tuneRuntime()()
			b, err := ottla.Start(ctx, ottla.Config{Sources: &sources, Logger: a.logger()})
			if err != nil {
				return err
			}
			err = errors.Join(a.greet(greeting(b)), a.out.Flush())
			if err == nil {
				err = a.attend(ctx, b)
			}
			return errors.Join(err, b.Close())
		},
	})
}

// logger writes text from WARN on for a person, JSON from INFO on for a machine.
func (a *app) logger() *slog.Logger {
	level := slog.LevelInfo
	if a.Terminal {
		level = slog.LevelWarn
	}
	if a.verbose {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	if a.Terminal {
		return slog.New(slog.NewTextHandler(a.err, options))
	}
	return slog.New(slog.NewJSONHandler(a.err, options))
}

// attend waits until the operator or the node itself ends it.
func (a *app) attend(ctx context.Context, b *ottla.Broker) error {
	select {
	case <-ctx.Done():
		a.note("stopping; once more to stop at once")
		return nil
	case <-b.Done():
		return b.Err()
	}
}

func greeting(b *ottla.Broker) Greeting {
	info := b.Info()
	g := Greeting{Version: ottla.Version, Kafka: KafkaVersion, Metadata: info.MetadataVersion.String(), ClusterID: info.ClusterID, NewCluster: info.Formatted,
		NodeID: info.NodeID, Roles: []string{}, Listeners: []string{}, Console: b.ConsoleURL(), LogDirs: info.LogDirs,
		Partitions: info.Partitions, Bytes: info.Bytes, Millis: info.Took.Milliseconds()}
	if info.Broker {
		g.Roles = append(g.Roles, "broker")
	}
	if info.Controller {
		g.Roles = append(g.Roles, "controller")
	}
	for _, e := range info.Endpoints {
		g.Listeners = append(g.Listeners, e.String())
	}
	return g
}

func (a *app) greet(g Greeting) error {
	return a.showOne(g, number(g.NodeID), func(w io.Writer) {
		fmt.Fprintf(w, "ottla %s · %s/%s · Kafka %s protocol, metadata.version %s\n", g.Version, runtime.GOOS, runtime.GOARCH, g.Kafka, g.Metadata)
		writeTable(w, g.rows(), []bool{false, false, false, false})
		fmt.Fprintf(w, "ready in %s   next: ottla topic create hello · Ctrl-C stops, data stays\n", time.Duration(g.Millis)*time.Millisecond)
	})
}

// rows are the addresses and places of the greeting.
func (g Greeting) rows() [][]string {
	var rows [][]string
	for i, l := range g.Listeners {
		protocol, address, _ := strings.Cut(l, "://")
		note := protocol
		if i == 0 && strings.HasPrefix(address, "127.") {
			note += ", this machine only (--set listeners=… to change)"
		}
		rows = append(rows, []string{"", map[bool]string{true: "clients"}[i == 0], address, note})
	}
	if g.Console != "" {
		rows = append(rows, []string{"", "console", g.Console, "metrics at /metrics, health at /readyz"})
	}
	state := "cluster " + g.ClusterID
	if g.NewCluster {
		state = "new cluster " + g.ClusterID
	} else if g.Partitions > 0 {
		state = fmt.Sprintf("%s, %s, of cluster %s", plenty(int64(g.Partitions), "partition"), size(float64(g.Bytes)), g.ClusterID)
	}
	return append(rows, []string{"", "data", strings.Join(g.LogDirs, ", "), fmt.Sprintf("%s, node %d = %s", state, g.NodeID, strings.Join(g.Roles, " + "))})
}
