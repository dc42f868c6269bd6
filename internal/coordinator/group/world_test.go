package group

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/config"
	"ottla/internal/metadata"
	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// A world is a machine in virtual time with the log of its records.
type world struct {
	t        tester
	machine  *Machine
	log      []Record // as decoded from their bytes
	shadow   *Machine // has replayed the log and does nothing else
	lose     bool     // the records of the next request cannot be appended
	now      time.Time
	ids      uint32
	topicIDs byte
	tickets  Ticket
	image    *metadata.Image
	config   *config.Config
	started  map[Ticket]kmsg.Request
	topics   map[string]int32 // partitions by topic
	ofTopic  map[string]uuid.UUID
}

// A tester is a *testing.T or a *rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// parse returns the configuration of a broker with some settings.
func parse(t tester, set ...string) *config.Config {
	t.Helper()
	c, err := config.Parse(config.Sources{Set: append([]string{"node.id=1", "process.roles=broker,controller", "controller.quorum.voters=1@localhost:9093",
		"listeners=PLAINTEXT://:9092,CONTROLLER://:9093", "controller.listener.names=CONTROLLER", "log.dirs=/d"}, set...)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newWorld(t tester, set ...string) *world {
	w := &world{t: t, now: time.UnixMilli(1_000_000), image: metadata.Empty, config: parse(t, set...), started: map[Ticket]kmsg.Request{}, topics: map[string]int32{}, ofTopic: map[string]uuid.UUID{}}
	w.machine, w.shadow = w.newMachine(), w.newMachine()
	w.take(w.machine.Loaded(w.now))
	return w
}

func (w *world) newMachine() *Machine {
	return New(Options{Settings: NewSettings(w.config), Image: w.image, NewID: func() uuid.UUID {
		w.ids++
		return uuid.UUID{13: byte(w.ids >> 16), 14: byte(w.ids >> 8), 15: byte(w.ids)}
	}})
}

// topic creates a topic, deletes it (0 partitions), or gives it more partitions.
func (w *world) topic(name string, partitions int32) []Answer {
	var deleted []DeletedTopic
	d := metadata.NewDelta(w.image)
	replay := func(m records.Message) {
		if err := d.Replay(m); err != nil {
			w.t.Fatal(err)
		}
	}
	if partitions == 0 {
		replay(&records.RemoveTopicRecord{TopicID: w.ofTopic[name]})
		deleted = append(deleted, DeletedTopic{w.ofTopic[name], name})
		delete(w.topics, name)
	} else {
		if w.topics[name] == 0 {
			w.topicIDs++
			w.ofTopic[name] = uuid.UUID{0: 't', 15: w.topicIDs}
			replay(&records.TopicRecord{Name: name, TopicID: w.ofTopic[name]})
		}
		for p := w.topics[name]; p < partitions; p++ {
			replay(&records.PartitionRecord{TopicID: w.ofTopic[name], PartitionID: p, Replicas: []int32{1}, ISR: []int32{1}, Directories: []uuid.UUID{{15: 200}}, Leader: 1})
		}
		w.topics[name] = partitions
	}
	w.image = d.Apply(w.image.Offset+1, 1)
	return w.take(w.machine.SetImage(w.now, w.image, deleted))
}

// do performs a request and returns the answers it brings about.
func (w *world) do(req kmsg.Request, client string) (Ticket, []Answer) {
	w.tickets++
	w.started[w.tickets] = req
	out := w.machine.Step(w.now, Op{Ticket: w.tickets, Request: req, ClientID: client, ClientHost: "/10.0.0.1"})
	if !w.lose {
		return w.tickets, w.take(out)
	}
	w.lose = false
	answers := w.restart()
	for _, a := range out.Answers {
		answers = append(answers, Answer{a.Ticket, protocol.ErrorAnswer(w.started[a.Ticket], kerr.NotCoordinator.Code)})
		delete(w.started, a.Ticket)
	}
	return w.tickets, answers
}

// take keeps an output's records in the log, by way of their bytes.
func (w *world) take(out Output) []Answer {
	for _, r := range out.Records {
		var value []byte
		if r.Value != nil {
			value = records.AppendValue(nil, r.Value, r.Version)
		}
		k, v, err := records.DecodeGroup(records.AppendKey(nil, r.Key), value)
		if err != nil {
			w.t.Fatalf("%T: %v", r.Key, err)
		}
		w.log = append(w.log, Record{k, v, r.Version})
		w.shadow.Replay(k, v, noProducerID)
	}
	for _, a := range out.Answers {
		if w.started[a.Ticket] == nil {
			w.t.Fatalf("ticket %d is answered twice: %+v", a.Ticket, a.Response)
		}
		if got, want := a.Response.GetVersion(), w.started[a.Ticket].GetVersion(); got != want {
			w.t.Fatalf("%T of version %d answered in version %d", a.Response, want, got)
		}
		a.Response.AppendTo(nil)
		delete(w.started, a.Ticket)
	}
	return out.Answers
}

// advance lets time pass, timer by timer; the clock goes back if d is negative.
func (w *world) advance(d time.Duration) (answers []Answer) {
	end := w.now.Add(d)
	for {
		due, ok := w.machine.Due()
		if !ok || due.After(end) {
			w.now = end
			return answers
		}
		w.now = due
		answers = append(answers, w.take(w.machine.Tick(due))...)
	}
}

// checkReplay fails the test if the log says something else than the machine.
func (w *world) checkReplay() {
	w.t.Helper()
	if diff := cmp.Diff(durable(w.machine, w.machine), durable(w.shadow, w.machine)); diff != "" {
		w.t.Fatalf("the log replayed (+) is not what lives (-):\n%s", diff)
	}
}

// restart gives the partition to another broker, which loads it.
func (w *world) restart() []Answer {
	for _, g := range w.machine.sorted() {
		if g.classic != nil {
			g.classic.abandon(w.machine, kerr.NotCoordinator.Code)
		}
	}
	answers := w.machine.take().Answers
	for _, a := range answers {
		delete(w.started, a.Ticket)
	}
	w.machine = w.newMachine()
	for _, r := range w.log {
		w.machine.Replay(r.Key, r.Value, noProducerID)
	}
	w.machine.SetImage(w.now, w.image, nil)
	return append(answers, w.take(w.machine.Loaded(w.now))...)
}

// durable prints what of a machine is durable. A classic group of which live says that it rebalances is left out.
func durable(m, live *Machine) []string {
	var out []string
	for _, g := range m.sorted() {
		if c := live.classic(g.id); c != nil && c.state != stateStable && c.state != stateEmpty {
			continue
		}
		lines := describe(g, false)
		slices.Sort(lines[1:]) // of the order in which members came the log knows nothing
		out = append(out, lines...)
	}
	for _, g := range slices.Sorted(maps.Keys(m.offsets.committed)) {
		for _, k := range m.offsets.keys(g) {
			o, _ := m.offsets.get(k)
			o.seq = 0
			out = append(out, fmt.Sprintf("%s %s-%d %+v", g, k.topic, k.partition, o))
		}
	}
	return out
}

func str(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

// describe prints a group, what is soft as well or not.
func describe(g *group, soft bool) []string {
	if g.consumer != nil {
		out := g.consumer.describeForTest()
		if !soft {
			out = append(out, g.consumer.describeFully()...)
		}
		return out
	}
	c := g.classic
	out := []string{fmt.Sprintf("%s %s generation %d type %s protocol %s leader %s", g.id, c.state, c.generation, str(c.protocolType), str(c.protocol), str(c.leader))}
	if !soft {
		out = append(out, fmt.Sprintf("  subscribed to %v", slices.Sorted(maps.Keys(c.subscribed))))
	}
	for _, mem := range c.order {
		s := fmt.Sprintf("  %s", mem.id)
		if mem.instanceID != nil {
			s += " instance " + *mem.instanceID
		}
		s += fmt.Sprintf(" assigned %q", mem.assignment)
		if !soft && c.protocol != nil {
			s += fmt.Sprintf(" metadata %q session %d rebalance %d", mem.metadata(*c.protocol), mem.sessionTimeoutMs, mem.rebalanceTimeoutMs)
		}
		if soft && mem.join != nil {
			s += " joining"
		}
		if soft && mem.sync != nil {
			s += " syncing"
		}
		out = append(out, s)
	}
	if soft {
		for _, id := range slices.Sorted(maps.Keys(c.pendingJoin)) {
			out = append(out, "  "+id+" pending")
		}
	}
	return out
}

// Ids made by newMachine print as #n.
var madeID = regexp.MustCompile(`-00000000-0000-0000-0000-000000([0-9a-f]{6})`)

func short(s string) string {
	return madeID.ReplaceAllStringFunc(s, func(id string) string {
		var n int
		fmt.Sscanf(id[len(id)-6:], "%x", &n)
		return fmt.Sprintf("#%d", n)
	})
}

var shortID = regexp.MustCompile(`#(\d+)$`)

func long(s string) string {
	return shortID.ReplaceAllStringFunc(s, func(id string) string {
		var n int
		fmt.Sscanf(id, "#%d", &n)
		return fmt.Sprintf("-00000000-0000-0000-0000-%012x", n)
	})
}

// subscription is a consumer's metadata, version 0.
func subscription(topics ...string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Topics = topics
	return m.AppendTo(nil)
}

func joined(lines []string) string { return short(strings.Join(lines, "\n")) + "\n" }
