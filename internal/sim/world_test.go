// Package sim runs whole clusters in one process, each in a testing/synctest bubble: brokers and controllers as they
// are started for real, on a network and on disks in memory that fail as they are told. It is made of tests only.
//
// The faults of a run follow from its seed, which a failing test prints; which goroutine runs first does not. So a seed
// that failed may pass: run it again some hundred times (-seed N -count 100) and say how often it fails.
package sim

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/broker"
	"ottla/internal/config"
	"ottla/internal/record"
	"ottla/internal/transport"
	"ottla/internal/transport/memnet"
	"ottla/internal/vfs"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run this seed only; 0: the usual ones")
	seedsFlag = flag.Uint64("seeds", 5, "how many seeds, from 1 on")
	logFlag   = flag.Bool("log", false, "write the nodes' log to stderr")
	crashFlag = flag.Int("crashes", 40, "at how many of the file operations of a controller its power is cut, in a run of its own each; 0: at all")
)

// seeds calls run with each seed, in a bubble and a subtest of its own. With -short it is two of them.
func seeds(t *testing.T, run func(t *testing.T, seed uint64)) {
	first, count := uint64(1), *seedsFlag
	if testing.Short() {
		count = min(count, 2)
	}
	if *seedFlag != 0 {
		first, count = *seedFlag, 1
	}
	for seed := first; seed < first+count; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { run(t, seed) })
		})
	}
}

// errPower is what a disk says once its node has lost its power.
var errPower = errors.New("the power was cut")

// A world is a cluster of controllers and brokers, and what may befall it.
type world struct {
	t     *testing.T
	seed  uint64
	rng   *rand.Rand
	net   *memnet.Network
	nodes []*node // controllers first

	made []string // topics whose creation was confirmed
}

// A node is a machine: a disk, a place in the network, and while it is up a process.
type node struct {
	w          *world
	id         int
	controller bool
	fs         *vfs.Mem
	process    *broker.Broker // nil while it is down
	ops        atomic.Int64   // file operations since the node was made
	dark       atomic.Bool    // the power is off: the disk fails
	lost       chan struct{}  // closed when the power goes at an operation; see cutPowerAt
	cut        chan struct{}  // closed once the network has noticed that, too
}

const clusterID = "AAAAAAAAAAAAAAAAAAAAAQ"

func newWorld(t *testing.T, seed uint64, controllers, brokers int) *world {
	w := &world{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, seed)), net: memnet.New()}
	for id := 1; id <= controllers+brokers; id++ {
		n := &node{w: w, id: id, controller: id <= controllers, fs: vfs.NewMem()}
		if err := errors.Join(n.fs.MkdirAll("/data", 0o755), n.fs.SyncDir("/")); err != nil { // as a disk is mounted
			t.Fatal(err)
		}
		n.countOperations()
		w.nodes = append(w.nodes, n)
	}
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			if a.id < b.id {
				w.net.Delay(a.host(), b.host(), time.Duration(100+w.rng.IntN(900))*time.Microsecond)
			}
		}
	}
	return w
}

func (n *node) host() string { return fmt.Sprintf("node%d", n.id) }

func (n *node) address() string {
	if n.controller {
		return n.host() + ":9093"
	}
	return n.host() + ":9092"
}

func (w *world) controllers() []*node {
	var list []*node
	for _, n := range w.nodes {
		if n.controller {
			list = append(list, n)
		}
	}
	return list
}

func (w *world) brokers() []*node { return w.nodes[len(w.controllers()):] }

// properties are the node's server.properties.
func (n *node) properties() map[string]string {
	var voters []string
	for _, c := range n.w.controllers() {
		voters = append(voters, fmt.Sprintf("%d@%s", c.id, c.address()))
	}
	p := map[string]string{
		"node.id": fmt.Sprint(n.id), "process.roles": "broker", "ottla.cluster.id": clusterID,
		"controller.quorum.voters": strings.Join(voters, ","), "controller.listener.names": "CONTROLLER",
		"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
		"listeners":                      "PLAINTEXT://" + n.address(), "log.dirs": "/data", "ottla.console.listener": "",
		"offsets.topic.num.partitions": "1", "default.replication.factor": "1",
	}
	if n.controller {
		p["process.roles"], p["listeners"] = "controller", "CONTROLLER://"+n.address()
	}
	return p
}

// start starts the node's process on what its disk holds.
func (n *node) start(ctx context.Context) error {
	c, err := config.Parse(config.Sources{Properties: n.properties()})
	if err != nil {
		return err
	}
	logger := slog.New(slog.DiscardHandler)
	if *logFlag {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", n.id)
	}
	process, err := broker.Start(ctx, broker.Options{
		Config: c, FS: n.fs, Logger: logger, Registerer: prometheus.NewRegistry(),
		Listen: func(_ context.Context, _, address string) (net.Listener, error) { return n.w.net.Listen(address) },
		Dial:   n.dial,
	})
	if err != nil {
		return fmt.Errorf("start node %d: %w", n.id, err)
	}
	n.process = process
	return nil
}

// startAll starts the nodes that are down, all at once.
func (w *world) startAll() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var wait sync.WaitGroup
	errs := make([]error, len(w.nodes))
	for i, n := range w.nodes {
		if n.process == nil {
			wait.Go(func() { errs[i] = n.start(ctx) })
		}
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		w.stopAll()
		w.t.Fatalf("seed %d: %v", w.seed, err)
	}
}

func (w *world) stopAll() {
	for i := len(w.nodes) - 1; i >= 0; i-- { // brokers first: they take leave of the controllers
		w.nodes[i].stop()
	}
}

func (n *node) stop() {
	if n.process == nil {
		return
	}
	if err := n.process.Close(); err != nil && n.process.Err() == nil {
		n.w.t.Errorf("seed %d: stop node %d: %v", n.w.seed, n.id, err)
	}
	n.process = nil
}

// crash ends the node as a power cut does: the network and everything that was not synced are gone.
func (n *node) crash() {
	if n.lost != nil && n.dark.Load() {
		<-n.cut
	}
	n.dark.Store(true)
	disk := n.fs.Crash(n.w.rng.Float64(), n.w.rng)
	n.vanish()
	if n.process != nil {
		_ = n.process.Close() // its disk is dead
	}
	n.isolate(false)
	n.process, n.fs, n.lost = nil, disk, nil
	n.dark.Store(false)
	n.countOperations()
}

// vanish takes the node off the network without a word: no connection is reset, nothing gets to it or from it.
func (n *node) vanish() { n.isolate(true) }

// connectTimeout is Kafka's socket.connection.setup.timeout.ms, which the machine's own dialer heeds.
const connectTimeout = 10 * time.Second

func (n *node) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return n.w.net.Dialer(n.host())(ctx, network, address)
}

// isolate cuts or heals all links of a node.
func (n *node) isolate(cut bool) {
	for _, other := range n.w.nodes {
		if other != n && cut {
			n.w.net.Cut(n.host(), other.host())
		}
		if other != n && !cut {
			n.w.net.Heal(n.host(), other.host())
		}
	}
}

// countOperations counts what the disk is asked to do, and lets it fail while the power is off.
func (n *node) countOperations() {
	n.fs.Inject(func(vfs.Op) error {
		n.ops.Add(1)
		if n.dark.Load() {
			return errPower
		}
		return nil
	})
}

// cutPowerAt lets the power go at the node's file operation number at. The function it returns calls that off.
func (n *node) cutPowerAt(at int64) (callOff func()) {
	lost, cut, off := make(chan struct{}), make(chan struct{}), make(chan struct{})
	n.lost, n.cut = lost, cut
	n.fs.Inject(func(vfs.Op) error {
		if n.ops.Add(1) == at {
			n.dark.Store(true)
			close(lost)
		}
		if n.dark.Load() {
			return errPower
		}
		return nil
	})
	go func() {
		defer close(cut)
		select {
		case <-lost:
			n.vanish()
		case <-off:
		}
	}()
	return func() {
		close(off)
		<-cut
	}
}

// ask sends a request to a node from a host of the test's own.
func (w *world) ask(ctx context.Context, to *node, req kmsg.Request) (kmsg.Response, error) {
	client, err := transport.Dial(ctx, to.address(), transport.ClientOptions{Dial: w.net.Dialer("client"), ClientID: "sim"})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Call(ctx, req)
}

// createTopic asks a broker to create a topic, and again until that is confirmed.
func (w *world) createTopic(through *node, name string) {
	w.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(7)
	req.TimeoutMillis = 10_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 2, 1
	req.Topics = append(req.Topics, topic)
	deadline := time.Now().Add(2 * time.Minute)
	var last error
	for time.Now().Before(deadline) {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		resp, err := w.ask(ctx, through, req)
		cancel()
		if err == nil {
			err = kerr.ErrorForCode(resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
		}
		if err == nil || errors.Is(err, kerr.TopicAlreadyExists) { // an earlier try whose answer got lost
			w.made = append(w.made, name)
			return
		}
		last = err
		time.Sleep(100 * time.Millisecond)
	}
	if *logFlag {
		stacks := make([]byte, 16<<20)
		os.Stderr.Write(stacks[:runtime.Stack(stacks, true)])
	}
	w.t.Fatalf("seed %d: topic %s was not created through node %d within two minutes: %v", w.seed, name, through.id, last)
}

// topicsOf returns the topics that a broker knows.
func (w *world) topicsOf(n *node) map[string]bool {
	w.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(12)
	req.Topics = nil // all
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	resp, err := w.ask(ctx, n, req)
	if err != nil {
		w.t.Fatalf("seed %d: metadata of node %d: %v", w.seed, n.id, err)
	}
	names := make(map[string]bool)
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		names[*t.Topic] = t.ErrorCode == 0
	}
	return names
}

// settle heals all links, starts what is down, and waits until every broker knows every topic that was confirmed.
func (w *world) settle() {
	w.t.Helper()
	for _, n := range w.nodes {
		n.isolate(false)
	}
	w.startAll()
	deadline := time.Now().Add(time.Minute)
	for _, n := range w.brokers() {
		for {
			missing := w.missing(n)
			if missing == "" {
				break
			}
			if time.Now().After(deadline) {
				w.t.Fatalf("seed %d: node %d does not know topic %s, whose creation was confirmed", w.seed, n.id, missing)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	time.Sleep(5 * time.Second)
}

func (w *world) missing(n *node) string {
	known := w.topicsOf(n)
	for _, name := range w.made {
		if !known[name] {
			return name
		}
	}
	return ""
}

// compareLogs stops all nodes and compares the metadata logs on their disks byte by byte: each is a prefix of the longest, and
// none lacks what the first to be stopped had.
func (w *world) compareLogs() {
	w.t.Helper()
	w.stopAll()
	longest, whose := []byte(nil), 0
	logs := make(map[int][]byte)
	for _, n := range w.nodes {
		n.fs.Inject(nil)
		logs[n.id] = w.metadataLog(n)
		if len(logs[n.id]) > len(longest) {
			longest, whose = logs[n.id], n.id
		}
	}
	for id, log := range logs {
		if !bytes.HasPrefix(longest, log) {
			w.t.Errorf("seed %d: the metadata logs of nodes %d and %d differ at byte %d", w.seed, id, whose, firstDifference(longest, log))
		}
	}
	if len(longest) == 0 {
		w.t.Errorf("seed %d: no node has a metadata log", w.seed)
	}
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// metadataLog returns the metadata log of a node, its segments put together, and checks its batches.
func (w *world) metadataLog(n *node) []byte {
	w.t.Helper()
	const dir = "/data/__cluster_metadata-0"
	entries, err := n.fs.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	var log []byte
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".log") {
			continue
		}
		b, err := vfs.ReadFile(n.fs, filepath.Join(dir, e.Name()))
		if err != nil {
			w.t.Fatal(err)
		}
		log = append(log, b...)
	}
	for at := 0; at < len(log); {
		h, err := record.ParseHeader(log[at:])
		if err != nil {
			w.t.Fatalf("seed %d: metadata log of node %d at byte %d: %v", w.seed, n.id, at, err)
		}
		if err := record.CheckCRC(log[at:]); err != nil {
			w.t.Fatalf("seed %d: metadata log of node %d at byte %d: %v", w.seed, n.id, at, err)
		}
		at += h.Size()
	}
	return log
}

// startAllBut starts all nodes. If the victim's power goes before the others are up it is started again, for the first
// start of a quorum needs all voters.
func (w *world) startAllBut(victim *node) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var others, all sync.WaitGroup
	errs := make([]error, len(w.nodes))
	for i, n := range w.nodes {
		if n != victim {
			others.Go(func() { errs[i] = n.start(ctx) })
		}
	}
	up := make(chan struct{})
	all.Go(func() {
		others.Wait()
		close(up)
	})
	all.Go(func() {
		lost := victim.lost
		err := victim.start(ctx)
		select {
		case <-lost:
			victim.crash()
			err = victim.start(ctx)
		case <-up:
		}
		errs[victim.id-1] = err
	})
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		w.stopAll()
		w.t.Fatalf("seed %d: %v", w.seed, err)
	}
}
