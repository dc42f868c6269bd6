// Package ottla is an event-streaming broker that speaks Apache Kafka's protocol and keeps Kafka's files. [Start] is
// the only way a node begins, for `ottla serve` and for a Go program or test that wants a real broker inside itself.
//
// What runs inside, and in which order to read it, is drawn in ARCHITECTURE.md.
package ottla

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"ottla/internal/broker"
	"ottla/internal/config"
	"ottla/internal/console"
	"ottla/internal/vfs"
)

// Version is the version of ottla, by semantic versioning.
const Version = "0.1.0"

// A Config says how a node is started. The zero value is a lone broker and controller on free loopback ports, with
// its data in a temporary directory that Close removes.
type Config struct {
	// Dir is the data directory, log.dirs. Empty, and without log.dirs in Properties or Sources, the data goes to a
	// temporary directory.
	Dir string
	// Properties are settings under Kafka's own names, as in server.properties.
	Properties map[string]string
	// Sources, if set, are all that the configuration is made of; Dir and Properties must then be empty and no default
	// of embedding applies: listeners are fixed ports, data stays. `ottla serve` starts so.
	Sources *Sources
	// Logger takes the log. Nil discards it.
	Logger *slog.Logger
}

// Sources are the places that `ottla serve` takes its configuration from, the later one winning.
type Sources struct {
	File string   // path of a server.properties, or empty
	Env  []string // as os.Environ gives it: OTTLA_… and the Apache image's KAFKA_…
	Set  []string // key=value, from the command line
}

// A Broker is a running node.
type Broker struct {
	node      *broker.Broker
	console   *console.Server // nil if it is off
	config    *config.Config
	temporary string // directory to remove, or empty
}

// Start starts a node and returns when it serves clients: it is registered, has caught up with the metadata and is
// unfenced. Data directories are formatted if they are empty. If ctx ends first, the start is undone and ctx's
// error returned; a node that runs is not bound to ctx.
//
// Errors say which key, directory or address is at fault. The caller ends the node with [Broker.Close].
func Start(ctx context.Context, c Config) (*Broker, error) {
	b := &Broker{}
	if err := b.configure(c); err != nil {
		return nil, err
	}
	if err := b.start(ctx, c.Logger); err != nil {
		return nil, errors.Join(err, b.removeTemporary())
	}
	return b, nil
}

// configure reads the configuration and decides where the data goes.
func (b *Broker) configure(c Config) (err error) {
	if c.Sources != nil {
		if c.Dir != "" || len(c.Properties) > 0 {
			return errors.New("ottla.Config: Sources stands alone, without Dir and Properties")
		}
		b.config, err = config.Parse(config.Sources{File: c.Sources.File, Env: c.Sources.Env, Set: c.Sources.Set})
		return err
	}
	properties := map[string]string{
		"listeners":              "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
		"ottla.console.listener": "",
		// A test's own topics come first: one replica and few partitions unless it says otherwise.
		"offsets.topic.num.partitions": "5",
	}
	maps.Copy(properties, c.Properties)
	if c.Dir != "" {
		properties["log.dirs"] = c.Dir
	}
	if properties["log.dirs"] == "" && properties["log.dir"] == "" {
		if b.temporary, err = os.MkdirTemp("", "ottla-"); err != nil {
			return fmt.Errorf("make a temporary data directory: %w", err)
		}
		properties["log.dirs"] = filepath.Join(b.temporary, "data")
	}
	if b.config, err = config.Parse(config.Sources{Properties: properties}); err != nil {
		return errors.Join(err, b.removeTemporary())
	}
	return nil
}

func (b *Broker) start(ctx context.Context, logger *slog.Logger) (err error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	for _, w := range b.config.Warnings() {
		logger.Warn("configuration", "key", w.Key, "warning", w.Message, "origin", w.Origin.From)
	}
	listener, err := b.listenConsole(logger)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	b.node, err = broker.Start(ctx, broker.Options{
		Config: b.config, FS: vfs.OS, Logger: logger, Registerer: registry,
		OnOpened: func(node *broker.Broker) error { return b.startConsole(listener, node, registry) },
	})
	if err != nil {
		return errors.Join(err, b.closeConsole(listener))
	}
	return nil
}

// startConsole has the console answer. The node may take long from here on, while its logs are recovered or there is no
// controller, and whoever watches it must be able to tell that from one that hangs.
func (b *Broker) startConsole(listener net.Listener, node *broker.Broker, registry *prometheus.Registry) (err error) {
	if listener == nil {
		return nil
	}
	info := node.Info()
	b.console, err = console.Start(listener, console.Options{
		Node: node, Registry: registry, Logger: node.Logger("console"), Info: console.Info{
			Version: Version, Revision: revision(), NodeID: info.NodeID, ClusterID: info.ClusterID,
			Rack: b.config.String("broker.rack"), Roles: b.config.List("process.roles"),
		},
	})
	return err
}

// closeConsole ends the console, or lets go of its address if it was not started.
func (b *Broker) closeConsole(listener net.Listener) error {
	switch {
	case b.console != nil:
		return b.console.Close()
	case listener == nil:
		return nil
	}
	if err := listener.Close(); !errors.Is(err, net.ErrClosed) { // it closed when the console could not be started
		return err
	}
	return nil
}

// listenConsole binds the console's address, before anything else happens, as a port that is taken is the likeliest
// reason not to start. It returns nil if the console is off.
func (b *Broker) listenConsole(logger *slog.Logger) (net.Listener, error) {
	address := b.config.String("ottla.console.listener")
	if address == "" {
		return nil, nil
	}
	return console.Listen(address, !b.config.IsSet("ottla.console.listener"), logger)
}

// revision is the commit that the binary was built from, as far as the Go toolchain recorded it.
func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}

// Addr returns host:port of the first client listener as it is advertised, with the port that was found if 0 was asked
// for: what a client takes as its bootstrap server.
func (b *Broker) Addr() string { return b.node.Addr("") }

// ListenerAddr returns the advertised host:port of the listener of that name, such as PLAINTEXT; empty if there is none.
func (b *Broker) ListenerAddr(name string) string { return b.node.Addr(name) }

// ConsoleURL returns the address of metrics, health and console; empty if they are off.
func (b *Broker) ConsoleURL() string {
	if b.console == nil {
		return ""
	}
	return b.console.URL()
}

// NodeID returns node.id.
func (b *Broker) NodeID() int32 { return b.config.NodeID() }

// Info tells what the node is, for a greeting.
func (b *Broker) Info() broker.Info { return b.node.Info() }

// Done is closed when the node has ended by itself, because all its log directories failed or its metadata is gone;
// [Broker.Err] then says why.
func (b *Broker) Done() <-chan struct{} { return b.node.Done() }

// Err returns why the node ended by itself, or nil.
func (b *Broker) Err() error { return b.node.Err() }

// Close stops the node in order: it hands its leaderships over, answers what it can, makes everything durable, marks its
// directories as cleanly shut and ends every goroutine. The data stays, except in a temporary directory.
func (b *Broker) Close() error {
	var err error
	if b.console != nil {
		err = b.console.Close()
	}
	return errors.Join(err, b.node.Close(), b.removeTemporary())
}

func (b *Broker) removeTemporary() error {
	if b.temporary == "" {
		return nil
	}
	return os.RemoveAll(b.temporary)
}
