//go:build interop

package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Group members of other people's libraries run in drivers, a process for each library (sarama's in this one). A line of a
// driver's standard input is
//
//	start NAME BOOTSTRAP GROUP TOPIC key=value…   starts a member, whose client id is NAME (settings: Java only)
//	stop NAME                                     has it commit and leave
//
// and the end of input stops all. A line of its standard output is
//
//	NAME owns PARTITION…               what it owns now, whenever that changes
//	NAME read PARTITION OFFSET VALUE   each record
//	NAME failed COUNT                  a commit failed that was to cover COUNT records: those may be read once more
//	NAME left                          the end
//
// and anything else is a complaint. A member commits now and then, before it gives partitions up, and before it leaves.

// groupSettings make rebalances quick.
var groupSettings = []string{"group.initial.rebalance.delay.ms=100", "offsets.topic.num.partitions=3",
	"group.consumer.heartbeat.interval.ms=300", "group.consumer.min.heartbeat.interval.ms=300"}

// TestMixedGroup has members of five libraries come to and go from one classic group, while a producer goes on. Whenever the
// group has settled, each partition has one owner, as the broker and the members say; in the end all records were read, none
// twice that had been committed.
func TestMixedGroup(t *testing.T) {
	const partitions = 8
	g := newGroup(t, "mixed", partitions)
	java := []string{"heartbeat.interval.ms=300", "partition.assignment.strategy=org.apache.kafka.clients.consumer.RoundRobinAssignor"} // which all have
	for _, library := range []string{"java", "confluent", "aiokafka", "kafkajs", "sarama"} {
		var settings []string
		if library == "java" {
			settings = java
		}
		g.start(t, library, library+"-1", settings...)
		g.settle(t, "classic")
	}
	g.everyoneReads(t)
	for _, library := range []string{"confluent", "kafkajs", "java"} {
		g.stop(t, library+"-1")
		g.settle(t, "classic")
	}
	for _, library := range []string{"sarama", "aiokafka", "kafkajs"} { // all at once
		g.start(t, library, library+"-2")
	}
	g.settle(t, "classic")
	g.everyoneReads(t)
	for _, name := range []string{"aiokafka-1", "sarama-1", "kafkajs-2"} {
		g.stop(t, name)
	}
	g.settle(t, "classic")
	g.finish(t)
}

// TestMigration moves one group of Java consumers from the classic protocol to the consumer protocol and back, a member at a
// time, while a producer goes on.
func TestMigration(t *testing.T) {
	const partitions = 6
	for _, assignor := range []string{"CooperativeStickyAssignor", "RangeAssignor"} {
		t.Run(assignor, func(t *testing.T) {
			g := newGroup(t, "migrating", partitions)
			classic := []string{"group.protocol=classic", "heartbeat.interval.ms=300",
				"partition.assignment.strategy=org.apache.kafka.clients.consumer." + assignor}
			consumer := []string{"group.protocol=consumer"}
			for _, step := range []struct {
				start    []string // names, of classic members with a c
				stop     []string
				protocol string // the group's then
			}{
				{start: []string{"c1", "c2"}, protocol: "classic"},
				{start: []string{"k1"}, protocol: "consumer"}, // mixed
				{stop: []string{"c1"}, start: []string{"k2"}, protocol: "consumer"},
				{stop: []string{"c2"}, protocol: "consumer"},
				{start: []string{"c3"}, protocol: "consumer"}, // mixed
				{stop: []string{"k1"}, start: []string{"c4"}, protocol: "consumer"},
				{stop: []string{"k2"}, protocol: "classic"},
				{start: []string{"k3"}, protocol: "consumer"},
				{stop: []string{"c3", "c4"}, protocol: "consumer"},
			} {
				for _, name := range step.stop {
					g.stop(t, name)
				}
				for _, name := range step.start {
					settings := classic
					if name[0] == 'k' {
						settings = consumer
					}
					g.start(t, "java", name, settings...)
				}
				g.settle(t, step.protocol)
				g.everyoneReads(t)
			}
			g.finish(t)
		})
	}
}

// A group is a consumer group under test, its topic of the same name, and what its members said.
type group struct {
	broker     *broker
	name       string
	partitions int
	drivers    map[string]driver // by library
	members    map[string]driver // those that run, by name
	producer   *steadyProducer

	mu     sync.Mutex
	owned  map[string][]int // by member
	read   map[string]int   // how often each "PARTITION OFFSET VALUE" was read
	reads  map[string]int   // how many records each member read since everyoneReads began
	failed int              // records whose commit failed
	left   map[string]bool
	wrong  []string // complaints
}

// newGroup starts a broker with a topic and a producer to it.
func newGroup(t *testing.T, name string, partitions int) *group {
	t.Helper()
	g := &group{
		broker: startBroker(t, t.TempDir(), groupSettings...), name: name, partitions: partitions,
		drivers: map[string]driver{}, members: map[string]driver{},
		owned: map[string][]int{}, read: map[string]int{}, reads: map[string]int{}, left: map[string]bool{},
	}
	g.broker.create(t, name, int32(partitions))
	g.producer = startProducer(t, g.broker, name, partitions)
	return g
}

func (g *group) start(t *testing.T, library, name string, settings ...string) {
	t.Helper()
	d, ok := g.drivers[library]
	if !ok {
		d = newDriver(t, library, g.note)
		g.drivers[library] = d
	}
	g.members[name] = d
	d.start(name, g.broker.address, g.name, g.name, settings)
}

func (g *group) stop(t *testing.T, name string) {
	t.Helper()
	g.members[name].stop(name)
	delete(g.members, name)
	g.eventually(t, name+" leaves", func() string {
		if !g.left[name] {
			return "it has not"
		}
		return ""
	})
}

// note takes one line of a driver.
func (g *group) note(line string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	name, what, _ := strings.Cut(line, " ")
	verb, rest, _ := strings.Cut(what, " ")
	count := 0
	switch verb {
	case "owns":
		g.owned[name] = nil
		for _, p := range strings.Fields(rest) {
			n, err := strconv.Atoi(p)
			if err != nil {
				g.wrong = append(g.wrong, line)
			}
			g.owned[name] = append(g.owned[name], n)
		}
	case "read":
		g.read[rest]++
		g.reads[name]++
	case "failed":
		if _, err := fmt.Sscan(rest, &count); err != nil {
			g.wrong = append(g.wrong, line)
		}
		g.failed += count
	case "left":
		g.left[name] = true
		delete(g.owned, name)
	default:
		g.wrong = append(g.wrong, line)
	}
}

// eventually waits until missing returns nothing. It is called under the lock.
func (g *group) eventually(t *testing.T, what string, missing func() string) {
	t.Helper()
	last := ""
	defer func() {
		if t.Failed() {
			t.Logf("%s: %s", what, last)
		}
	}()
	eventually(t, what, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.wrong) > 0 {
			t.Fatalf("complaints: %s", strings.Join(g.wrong, "\n"))
		}
		last = missing()
		return last == ""
	})
}

// settle waits until the group is stable, in the protocol that is asked for, and each partition has one owner: the broker and
// the members say the same.
func (g *group) settle(t *testing.T, protocol string) {
	t.Helper()
	began, last := time.Now(), ""
	defer func() {
		if t.Failed() {
			t.Logf("the group has not settled: %s", last)
		}
	}()
	eventually(t, fmt.Sprintf("the group settles with %d members", len(g.members)), func() bool {
		described, err := g.describe(t.Context(), protocol)
		if err != nil {
			last = err.Error()
			return false
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.wrong) > 0 {
			t.Fatalf("complaints: %s", strings.Join(g.wrong, "\n"))
		}
		last = g.unsettled(described)
		return last == ""
	})
	t.Logf("%d members settled after %.1f s", len(g.members), time.Since(began).Seconds())
}

// unsettled returns what keeps the group from being as the broker describes it, each partition with one owner. It is called
// under the lock.
func (g *group) unsettled(described map[string][]int) string {
	owners := make([]string, g.partitions)
	for name := range g.members {
		slices.Sort(described[name])
		if !slices.Equal(described[name], g.owned[name]) {
			return fmt.Sprintf("%s owns %v, as the broker says %v", name, g.owned[name], described[name])
		}
		for _, p := range g.owned[name] {
			if owners[p] != "" {
				return fmt.Sprintf("%d belongs to %s and %s", p, owners[p], name)
			}
			owners[p] = name
		}
	}
	if len(described) != len(g.members) || slices.Contains(owners, "") {
		return fmt.Sprintf("members %v, owners %v", described, owners)
	}
	return ""
}

// describe asks the broker what each member, by client id, is assigned; it is an error if the group is not stable or of
// another protocol.
func (g *group) describe(ctx context.Context, protocol string) (map[string][]int, error) {
	assigned := map[string][]int{}
	add := func(client string, topic string, partitions []int32) {
		for _, p := range partitions {
			assigned[client] = append(assigned[client], int(p))
		}
	}
	listed, err := g.broker.admin.ListGroups(ctx)
	if err != nil {
		return nil, err
	}
	if got := listed[g.name]; got.GroupType != protocol || got.State != "Stable" {
		return nil, fmt.Errorf("a group of type %s in state %s", got.GroupType, got.State)
	}
	if protocol == "classic" {
		described, err := g.broker.admin.DescribeGroups(ctx, g.name)
		if err != nil {
			return nil, err
		}
		for _, m := range described[g.name].Members {
			assigned[m.ClientID] = nil
			a, ok := m.Assigned.AsConsumer()
			if !ok {
				return nil, fmt.Errorf("%s has no consumer's assignment", m.ClientID)
			}
			for _, topic := range a.Topics {
				add(m.ClientID, topic.Topic, topic.Partitions)
			}
		}
		return assigned, nil
	}
	described, err := g.broker.admin.DescribeConsumerGroups(ctx, g.name)
	if err != nil {
		return nil, err
	}
	for _, m := range described[g.name].Members {
		assigned[m.ClientID] = nil
		for topic, partitions := range m.Assignment {
			add(m.ClientID, topic, slices.Collect(maps.Keys(partitions)))
		}
	}
	return assigned, nil
}

// everyoneReads waits until each member that owns a partition has read a record that was produced since.
func (g *group) everyoneReads(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	g.reads = map[string]int{}
	g.mu.Unlock()
	g.eventually(t, "every member reads", func() string {
		for name := range g.members {
			if g.reads[name] == 0 && len(g.owned[name]) > 0 {
				return name + " does not"
			}
		}
		return ""
	})
}

// finish ends the producer and looks at what was read: all, and what was committed once.
func (g *group) finish(t *testing.T) {
	t.Helper()
	written := g.producer.stop(t)
	g.eventually(t, "everything is read", func() string {
		for record := range written {
			if g.read[record] == 0 {
				return "not " + record
			}
		}
		return ""
	})
	for name := range maps.Clone(g.members) {
		g.stop(t, name)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	again := 0
	for record, times := range g.read {
		again += times - 1
		if !written[record] {
			t.Errorf("%s was read and never written", record)
		}
	}
	if again > g.failed {
		t.Errorf("%d records read again; commits of %d failed", again, g.failed)
	}
	committed, err := g.broker.admin.FetchOffsets(t.Context(), g.name)
	if err != nil {
		t.Fatal(err)
	}
	ends, err := g.broker.admin.ListEndOffsets(t.Context(), g.name)
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(end kadm.ListedOffset) {
		if c, ok := committed.Lookup(g.name, end.Partition); !ok || c.At != end.Offset {
			t.Errorf("partition %d is committed at %d, want %d", end.Partition, c.At, end.Offset)
		}
	})
	t.Logf("%d records, %d read again, commits of %d failed", len(written), again, g.failed)
}

// A steadyProducer writes to all partitions in turn until it is stopped.
type steadyProducer struct {
	cancel  context.CancelFunc
	written chan map[string]bool // "PARTITION OFFSET VALUE" of every record, once it is stopped
	failed  error                // valid behind written
}

func startProducer(t *testing.T, b *broker, topic string, partitions int) *steadyProducer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p, cl := &steadyProducer{cancel: cancel, written: make(chan map[string]bool, 1)}, b.newProducer(t, kgo.NoCompression())
	go func() {
		written := map[string]bool{}
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for i := 0; ctx.Err() == nil && p.failed == nil; i++ {
			r := &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: fmt.Append(nil, i)}
			p.failed = cl.ProduceSync(context.WithoutCancel(ctx), r).FirstErr()
			written[fmt.Sprintf("%d %d %d", r.Partition, r.Offset, i)] = true
			<-ticker.C
		}
		p.written <- written
	}()
	t.Cleanup(cancel)
	return p
}

// stop returns what was written.
func (p *steadyProducer) stop(t *testing.T) map[string]bool {
	t.Helper()
	p.cancel()
	written := <-p.written
	if p.failed != nil {
		t.Fatal(p.failed)
	}
	return written
}

// A driver starts and stops the members of one library.
type driver interface {
	start(name, bootstrap, group, topic string, settings []string)
	stop(name string)
}

// newDriver returns the driver of a library; note gets its lines.
func newDriver(t *testing.T, library string, note func(line string)) driver {
	t.Helper()
	switch library {
	case "java":
		return startDriver(t, startHosted(t, "Members"), note)
	case "confluent", "aiokafka":
		return startDriver(t, startProcess(t, python("members.py", library)), note)
	case "kafkajs":
		return startDriver(t, startProcess(t, node("members.js")), note)
	case "sarama":
		return newSaramaDriver(t, note)
	}
	t.Fatalf("no driver for %s", library)
	return nil
}

// A processDriver is a driver in a program of its own.
type processDriver struct{ in io.Writer }

// startDriver runs a driver until the end of the test, when it must exit with 0.
func startDriver(t *testing.T, p *program, note func(line string)) *processDriver {
	t.Helper()
	read := make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(p.out)
		for lines.Scan() {
			if lines.Text() != "" { // such a line precedes an exit status
				note(lines.Text())
			}
		}
		read <- lines.Err()
	}()
	t.Cleanup(func() {
		p.in.Close()
		defer time.AfterFunc(patience, p.kill).Stop()
		if err := errors.Join(<-read, p.end()); err != nil || t.Failed() {
			t.Errorf("%s: %v\n%s", p.name, err, tail(p.errs.String()))
		}
	})
	return &processDriver{p.in}
}

func (d *processDriver) start(name, bootstrap, group, topic string, settings []string) {
	fmt.Fprintln(d.in, strings.Join(append([]string{"start", name, bootstrap, group, topic}, settings...), " "))
}

func (d *processDriver) stop(name string) { fmt.Fprintln(d.in, "stop", name) }

// A saramaDriver runs members in this process.
type saramaDriver struct {
	t       *testing.T
	note    func(line string)
	running map[string]context.CancelFunc
	done    sync.WaitGroup
}

func newSaramaDriver(t *testing.T, note func(line string)) *saramaDriver {
	d := &saramaDriver{t: t, note: note, running: map[string]context.CancelFunc{}}
	t.Cleanup(func() {
		for _, cancel := range d.running {
			cancel()
		}
		d.done.Wait()
	})
	return d
}

func (d *saramaDriver) start(name, bootstrap, group, topic string, _ []string) {
	ctx, cancel := context.WithCancel(context.Background())
	d.running[name] = cancel
	d.done.Go(func() {
		m := saramaMember{name, d.note}
		if err := m.run(ctx, bootstrap, group, topic); err != nil {
			m.say("died %v", err)
		}
		m.say("left")
	})
}

func (d *saramaDriver) stop(name string) {
	d.running[name]()
	delete(d.running, name)
}

type saramaMember struct {
	name string
	note func(line string)
}

func (m saramaMember) say(format string, args ...any) {
	m.note(m.name + " " + fmt.Sprintf(format, args...))
}

func (m saramaMember) run(ctx context.Context, bootstrap, group, topic string) error {
	c := sarama.NewConfig()
	c.ClientID = m.name
	c.Version = sarama.V3_6_0_0
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	c.Consumer.Group.Session.Timeout = 45 * time.Second // no member is to be lost on a slow machine
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRoundRobin()}
	consumer, err := sarama.NewConsumerGroup([]string{bootstrap}, group, c)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := consumer.Consume(ctx, []string{topic}, m); err != nil { // one generation
			return errors.Join(err, consumer.Close())
		}
	}
	return consumer.Close()
}

// Setup is told of a new generation.
func (m saramaMember) Setup(s sarama.ConsumerGroupSession) error {
	m.owns(s.Claims())
	return nil
}

// Cleanup comes when all claims have ended, before the generation does.
func (m saramaMember) Cleanup(s sarama.ConsumerGroupSession) error {
	s.Commit()
	m.owns(nil)
	return nil
}

func (m saramaMember) owns(claims map[string][]int32) {
	what := "owns"
	for _, partitions := range claims {
		slices.Sort(partitions)
		for _, p := range partitions {
			what += fmt.Sprint(" ", p)
		}
	}
	m.say("%s", what)
}

// ConsumeClaim reads one partition for a generation.
func (m saramaMember) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for {
		select {
		case r, ok := <-c.Messages():
			if !ok {
				return nil
			}
			m.say("read %d %d %s", r.Partition, r.Offset, r.Value)
			s.MarkMessage(r, "")
		case <-s.Context().Done():
			return nil
		}
	}
}
