package ottla_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// killsFlag is how often TestGroupsSurviveKill kills the broker; make chaos says 50.
var killsFlag = flag.Int("kills", 1, "how often TestGroupsSurviveKill kills the broker")

// TestGroupsSurviveKill kills the broker with SIGKILL in the middle of rebalances and commits of three groups: one of each protocol,
// with a static member and members that come and go, and one of somebody who only commits. No acknowledged commit is lost or moves
// back, not for an instant, and soon after each restart every partition has one owner.
func TestGroupsSurviveKill(t *testing.T) {
	k := &killing{t: t, dir: t.TempDir()}
	k.start()
	asks := k.client()
	defer asks.Close()
	k.admin = kadm.NewClient(asks)
	if r, err := k.admin.CreateTopic(t.Context(), killPartitions, 1, nil, killTopic); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	var groups []*killGroup
	for _, protocol := range []string{"classic", "consumer"} {
		g := k.group(protocol)
		groups = append(groups, g)
		for i := range 3 {
			instance := ""
			if i == 0 {
				instance = protocol + "-static"
			}
			m := k.join(g, instance)
			g.members = append(g.members, m)
			defer abandon(m.client)
		}
	}
	alone := k.group("alone")
	for _, g := range groups {
		k.awaitOwners(g)
	}
	for round := range *killsFlag {
		enough := make(chan struct{})
		left := atomic.Int64{}
		left.Store(20 + rand.Int64N(200)) // commits until the broker dies
		k.acknowledged = func() {
			if left.Add(-1) == 0 {
				close(enough)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, g := range groups {
			for _, m := range g.members {
				running.Go(func() { m.commit(ctx) })
			}
			running.Go(func() { k.comeAndGo(ctx, g) })
		}
		running.Go(func() { k.commitAlone(ctx, alone) })
		running.Go(func() { k.watch(ctx, append([]*killGroup{alone}, groups...)) })
		select {
		case <-enough:
		case <-time.After(killPatience):
			t.Errorf("round %d: %d commits are missing after %s", round, left.Load(), killPatience)
		}
		k.broker.kill()
		k.start()
		stop()
		running.Wait()
		for _, g := range append([]*killGroup{alone}, groups...) {
			k.checkCommitted(g, fmt.Sprintf("after kill %d", round+1))
		}
		for _, g := range groups {
			k.awaitOwners(g)
		}
		if t.Failed() {
			t.Fatalf("in round %d; the broker said\n%.20000s", round, k.log.String())
		}
	}
	t.Logf("%d kills; acknowledged commits: classic %d, consumer %d, alone %d", *killsFlag, groups[0].acknowledged.Load(), groups[1].acknowledged.Load(), alone.acknowledged.Load())
}

const (
	killTopic      = "contended"
	killPatience   = 2 * time.Minute // of a machine that has more to do than this
	killPartitions = 6
)

// A killing is a broker that is killed and started again, on other ports each time: whoever dials it is led to where it is.
type killing struct {
	t            *testing.T
	dir          string
	admin        *kadm.Client
	broker       *process
	log          lockedBuffer
	address      atomic.Pointer[string]
	acknowledged func() // called with each commit that is
}

func (k *killing) start() {
	k.t.Helper()
	k.broker = serve(k.t, &k.log, k.dir,
		"offsets.topic.num.partitions=5", "group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1000",
		"group.consumer.min.session.timeout.ms=1000", "group.consumer.session.timeout.ms=2000", "group.consumer.min.heartbeat.interval.ms=100",
		"group.consumer.heartbeat.interval.ms=200", "group.consumer.min.assignment.interval.ms=100", "group.consumer.assignment.interval.ms=100")
	k.address.Store(&k.broker.address)
}

// client returns a client that finds the broker wherever it is.
func (k *killing) client(options ...kgo.Opt) *kgo.Client {
	k.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers("127.0.0.1:9"), kgo.MetadataMinAge(20 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, *k.address.Load())
		})}, options...)...)
	if err != nil {
		k.t.Fatal(err)
	}
	return cl
}

// abandon closes a client that need not say goodbye.
func abandon(cl *kgo.Client) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = cl.LeaveGroupContext(over) // says that the context is over
	cl.Close()
}

// A killGroup is a group and what is known of its offsets.
type killGroup struct {
	id           string
	options      []kgo.Opt
	members      []*killMember
	acknowledged atomic.Int64

	mu     sync.Mutex
	tried  map[int32]int64           // by partition: the largest offset that somebody has tried to commit
	acked  map[int32]int64           // that was acknowledged
	owners map[int32]map[string]bool // by their own word
}

func (k *killing) group(protocol string) *killGroup {
	g := &killGroup{id: "group-" + protocol, tried: map[int32]int64{}, acked: map[int32]int64{}, owners: map[int32]map[string]bool{}}
	switch protocol {
	case "classic":
		g.options = []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.SessionTimeout(2 * time.Second), kgo.HeartbeatInterval(200 * time.Millisecond)}
	case "consumer":
		g.options = []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())} // which is uniform
	}
	return g
}

// try returns the next offset to commit for a partition.
func (g *killGroup) try(partition int32) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tried[partition]++
	return g.tried[partition]
}

func (k *killing) acknowledge(g *killGroup, partition int32, offset int64) {
	g.mu.Lock()
	g.acked[partition] = max(g.acked[partition], offset)
	g.mu.Unlock()
	g.acknowledged.Add(1)
	k.acknowledged()
}

// bounds returns the least and the largest that each committed offset can be from now on.
func (g *killGroup) bounds() (least, most map[int32]int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.acked), maps.Clone(g.tried)
}

// A killMember is a member of a group. Under mu it commits, and gives partitions back.
type killMember struct {
	k      *killing
	group  *killGroup
	name   string
	client *kgo.Client

	mu   sync.Mutex
	owns []int32
}

var killMembers atomic.Int64

func (k *killing) join(g *killGroup, instance string) *killMember {
	m := &killMember{k: k, group: g, name: fmt.Sprintf("%s-%d", g.id, killMembers.Add(1))}
	options := append([]kgo.Opt{kgo.ConsumerGroup(g.id), kgo.ConsumeTopics(killTopic), kgo.DisableAutoCommit(), kgo.ClientID(m.name),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { m.change(p[killTopic], true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { m.change(p[killTopic], false) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { m.change(p[killTopic], false) })}, g.options...)
	if instance != "" {
		options = append(options, kgo.InstanceID(instance))
	}
	m.client = k.client(options...)
	return m
}

func (m *killMember) change(partitions []int32, mine bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	for _, p := range partitions {
		if m.group.owners[p] == nil {
			m.group.owners[p] = map[string]bool{}
		}
		if mine {
			m.owns = append(m.owns, p)
			m.group.owners[p][m.name] = true
			continue
		}
		m.owns = slices.DeleteFunc(m.owns, func(o int32) bool { return o == p })
		delete(m.group.owners[p], m.name)
	}
}

// commit commits what the member owns, again and again.
func (m *killMember) commit(ctx context.Context) {
	for ctx.Err() == nil {
		m.commitOnce(ctx)
	}
}

func (m *killMember) commitOnce(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	offsets := map[int32]kgo.EpochOffset{}
	for _, p := range m.owns {
		offsets[p] = kgo.EpochOffset{Epoch: -1, Offset: m.group.try(p)}
	}
	if len(offsets) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	m.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{killTopic: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			if err != nil {
				return
			}
			for _, t := range resp.Topics {
				for _, p := range t.Partitions {
					if p.ErrorCode == 0 {
						m.k.acknowledge(m.group, p.Partition, offsets[p.Partition].Offset)
					}
				}
			}
		})
}

// comeAndGo has members join and leave, each after one commit or a while.
func (k *killing) comeAndGo(ctx context.Context, g *killGroup) {
	for ctx.Err() == nil {
		m := k.join(g, "")
		for until := time.Now().Add(300 * time.Millisecond); ctx.Err() == nil && time.Now().Before(until); {
			m.commitOnce(ctx)
			pause(ctx, 10*time.Millisecond)
		}
		leaving, cancel := context.WithTimeout(ctx, time.Second)
		_ = m.client.LeaveGroupContext(leaving) // or its session ends
		cancel()
		abandon(m.client)
		m.change(slices.Collect(maps.Keys(g.ownersNow())), false)
	}
}

// pause waits a while, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// ownersNow returns who owns what by their own word.
func (g *killGroup) ownersNow() map[int32][]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[int32][]string{}
	for p, names := range g.owners {
		out[p] = slices.Sorted(maps.Keys(names))
	}
	return out
}

// commitAlone commits for a group without members.
func (k *killing) commitAlone(ctx context.Context, g *killGroup) {
	for ctx.Err() == nil {
		offsets := kadm.Offsets{}
		for p := range int32(killPartitions) {
			offsets.AddOffset(killTopic, p, g.try(p), -1)
		}
		each, cancel := context.WithTimeout(ctx, 2*time.Second)
		resp, err := k.admin.CommitOffsets(each, g.id, offsets)
		cancel()
		if err != nil {
			continue
		}
		for _, o := range resp[killTopic] {
			if o.Err == nil {
				k.acknowledge(g, o.Partition, o.At)
			}
		}
	}
}

// watch reads the offsets all the while: each is at least what was acknowledged before it was asked for.
func (k *killing) watch(ctx context.Context, groups []*killGroup) {
	for ctx.Err() == nil {
		for _, g := range groups {
			each, cancel := context.WithTimeout(ctx, 2*time.Second)
			k.compare(each, g, "while it runs")
			cancel()
		}
	}
}

// compare reports whether the group could be asked for its offsets.
func (k *killing) compare(ctx context.Context, g *killGroup, when string) bool {
	least, _ := g.bounds()
	committed, err := k.admin.FetchOffsets(ctx, g.id)
	if err != nil || committed.Error() != nil {
		return false
	}
	_, most := g.bounds()
	for p := range int32(killPartitions) {
		o, ok := committed.Lookup(killTopic, p)
		if at := o.At; ok && at > most[p] || (!ok || at < least[p]) && least[p] > 0 {
			k.t.Errorf("%s: %s has committed %d of partition %d; %d was acknowledged and %d tried", when, g.id, at, p, least[p], most[p])
		}
	}
	return true
}

func (k *killing) checkCommitted(g *killGroup, when string) {
	k.t.Helper()
	for deadline := time.Now().Add(killPatience); !k.compare(k.t.Context(), g, when); {
		if time.Now().After(deadline) {
			k.t.Fatalf("%s: the offsets of %s are not told", when, g.id)
		}
	}
}

// awaitOwners waits until every partition has one owner by the members' own word, and, by the coordinator's, all are the members'
// that are there to stay.
func (k *killing) awaitOwners(g *killGroup) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), killPatience)
	defer cancel()
	want := fmt.Sprintf("Stable, %d members, %d partitions", len(g.members), killPartitions)
	for {
		state := k.describe(ctx, g)
		owners := g.ownersNow()
		settled := state == want && len(owners) == killPartitions
		for _, names := range owners {
			settled = settled && len(names) == 1
		}
		switch {
		case settled:
			return
		case ctx.Err() != nil:
			k.t.Fatalf("%s is %s, want %s; its partitions are owned by %v\n%.20000s", g.id, state, want, owners, k.log.String())
		}
		pause(ctx, 20*time.Millisecond)
	}
}

func (k *killing) describe(ctx context.Context, g *killGroup) string {
	members, partitions := 0, 0
	if strings.HasSuffix(g.id, "consumer") {
		d, err := k.admin.DescribeConsumerGroups(ctx, g.id)
		if err != nil {
			return err.Error()
		}
		for _, m := range d[g.id].Members {
			partitions += len(m.Assignment[killTopic])
			members++
		}
		return fmt.Sprintf("%s, %d members, %d partitions", d[g.id].State, members, partitions)
	}
	d, err := k.admin.DescribeGroups(ctx, g.id)
	if err != nil {
		return err.Error()
	}
	for _, m := range d[g.id].Members {
		members++
		if c, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range c.Topics {
				partitions += len(t.Partitions)
			}
		}
	}
	return fmt.Sprintf("%s, %d members, %d partitions", d[g.id].State, members, partitions)
}
