package controller

import (
	"slices"

	"ottla/internal/metadata"
	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// An election says which replicas may become leader. Source: Kafka's PartitionChangeBuilder.Election.
type election int8

const (
	// electOnline keeps a good leader, and else takes an ISR or ELR member.
	electOnline election = iota
	// electPreferred takes the first replica if it is in the ISR.
	electPreferred
	// electUnclean takes any living replica when nothing better is there.
	electUnclean
)

const (
	// leaderUnchanged and recoveryUnchanged stand in a PartitionChangeRecord that does not speak of them.
	leaderUnchanged   int32 = -2
	recoveryUnchanged int8  = -1
	// nobody is no broker's id.
	nobody int32 = -1
)

// A change turns what is wanted of a partition into the record that says it, leader election included. Its fields begin as
// the partition is; whoever wants a change sets them. Source: Kafka's PartitionChangeBuilder; KIP-966 for the ELR.
type change struct {
	topicID   uuid.UUID
	id        int32
	was       *metadata.Partition
	level     protocol.MetadataVersion
	useELR    bool
	minISR    int
	mode      election
	mayLead   func(broker int32) bool
	directory func(broker int32) uuid.UUID // where a replica that is new there goes

	replicas, isr, adding, removing []int32
	elr, lastKnown                  []int32
	directories                     map[int32]uuid.UUID // those that were moved, by broker
	recovery                        metadata.RecoveryState
	uncleanShutdown                 int32 // a broker that may have lost its tail, or nobody
}

// change begins a change of a partition, to be led by active brokers whose log directory is online.
func (t *turn) change(topic *metadata.Topic, id int32) *change {
	p := topic.Partition(id)
	c := &change{
		topicID: topic.ID, id: id, was: p, level: t.version, useELR: t.elr(), minISR: t.minISR(topic.Name), directory: t.directory,
		replicas: p.Replicas, isr: p.ISR, adding: p.Adding, removing: p.Removing, elr: p.ELR, lastKnown: p.LastKnownELR,
		recovery: p.LeaderRecoveryState, uncleanShutdown: nobody, mode: electOnline,
	}
	c.mayLead = func(broker int32) bool { return t.active(broker) && t.dirOnline(p, broker) }
	if t.unclean(topic.Name) {
		c.mode = electUnclean
	}
	return c
}

// dirOnline reports whether the log directory of a broker's replica is not known to have failed.
func (t *turn) dirOnline(p *metadata.Partition, broker int32) bool {
	dir, ok := p.Directory(broker)
	if !ok || dir == uuid.Zero || dir == uuid.Metadata {
		return true
	}
	return t.image().Broker(broker).HasLogDir(dir)
}

// directory returns where a new replica goes: the broker's only log directory, and otherwise where the broker
// says later (AssignReplicasToDirs).
func (t *turn) directory(broker int32) uuid.UUID {
	if b := t.image().Broker(broker); b != nil && len(b.LogDirs) == 1 {
		return b.LogDirs[0]
	}
	return uuid.Metadata // as a directory: UNASSIGNED
}

// record returns the record of the change, or nil if nothing changes.
func (c *change) record() *records.PartitionChangeRecord {
	r := records.NewPartitionChangeRecord()
	r.TopicID, r.PartitionID = c.topicID, c.id
	c.completeReassignment()
	c.keepELR()
	c.elect(r)
	if r.Leader == leaderUnchanged && c.bumpsEpoch() {
		r.Leader = c.was.Leader
	}
	// Without an ELR the last member stays in the ISR: it says who may lead.
	if (len(c.isr) > 0 || c.useELR) && !slices.Equal(c.isr, c.was.ISR) {
		r.ISR = notNil(c.isr)
	}
	r.Replicas = changed(c.replicas, c.was.Replicas)
	r.AddingReplicas = changed(c.adding, c.was.Adding)
	r.RemovingReplicas = changed(c.removing, c.was.Removing)
	if c.level >= protocol.DirectoriesSince {
		if dirs := c.allDirectories(); !slices.Equal(dirs, c.was.Directories) {
			r.Directories = dirs
		}
	}
	if c.recovery != c.was.LeaderRecoveryState {
		r.LeaderRecoveryState = int8(c.recovery)
	}
	if c.useELR {
		c.rememberLeader(r)
		r.EligibleLeaderReplicas = changed(c.elr, c.was.ELR)
		r.LastKnownELR = changed(c.lastKnown, c.was.LastKnownELR)
	}
	if isNoOp(r) {
		return nil
	}
	return r
}

func isNoOp(r *records.PartitionChangeRecord) bool {
	return r.ISR == nil && r.Leader == leaderUnchanged && r.Replicas == nil && r.RemovingReplicas == nil && r.AddingReplicas == nil &&
		r.LeaderRecoveryState == recoveryUnchanged && r.Directories == nil && r.EligibleLeaderReplicas == nil && r.LastKnownELR == nil
}

func notNil(ids []int32) []int32 {
	if ids == nil {
		return []int32{}
	}
	return ids
}

// changed returns now as a record wants it: nil where it equals before.
func changed(now, before []int32) []int32 {
	if slices.Equal(now, before) {
		return nil
	}
	return notNil(now)
}

// completeReassignment ends a reassignment whose new replicas have all caught up.
func (c *change) completeReassignment() {
	if len(c.adding) == 0 && len(c.removing) == 0 {
		return
	}
	replicas := without(c.replicas, c.removing...)
	isr := within(c.isr, replicas)
	if len(isr) == 0 || !containsAll(isr, c.adding) {
		return
	}
	c.replicas, c.isr, c.adding, c.removing = replicas, isr, nil, nil
}

// keepELR keeps those that leave the ISR while it is below min.insync.replicas: the high watermark does not move then, so
// they hold everything that was acknowledged.
func (c *change) keepELR() {
	if !c.useELR {
		return
	}
	if len(c.isr) >= min(c.minISR, len(c.replicas)) {
		c.elr, c.lastKnown = nil, nil
		return
	}
	var elr []int32
	for _, id := range slices.Concat(c.was.ELR, c.was.ISR) {
		if !slices.Contains(elr, id) && !slices.Contains(c.isr, id) && slices.Contains(c.replicas, id) && id != c.uncleanShutdown {
			elr = append(elr, id)
		}
	}
	c.elr = elr
}

// elect decides who leads and puts it into r if that is another than before.
func (c *change) elect(r *records.PartitionChangeRecord) {
	leader, unclean := c.choose()
	if leader == c.was.Leader {
		return
	}
	r.Leader = leader
	switch {
	case unclean:
		// The others may hold what the new leader lacks: none of them may lead before it has caught up.
		c.isr, c.elr = []int32{leader}, nil
		c.recovery = metadata.Recovering
	case slices.Contains(c.elr, leader):
		c.isr, c.elr = []int32{leader}, without(c.elr, leader)
	}
}

// choose returns the leader, and whether it may lack acknowledged records.
func (c *change) choose() (leader int32, unclean bool) {
	if c.mode == electPreferred && len(c.replicas) > 0 && slices.Contains(c.isr, c.replicas[0]) && c.mayLead(c.replicas[0]) {
		return c.replicas[0], false
	}
	if c.was.Leader != metadata.NoLeader && slices.Contains(c.replicas, c.was.Leader) && c.clean(c.was.Leader) {
		return c.was.Leader, false
	}
	for _, good := range [][]int32{c.isr, c.elr} {
		for _, id := range c.replicas {
			if slices.Contains(good, id) && c.clean(id) {
				return id, false
			}
		}
	}
	// Nobody is known to be whole. The one that led last is at least as good as any other.
	if c.useELR && len(c.isr) == 0 && len(c.elr) == 0 && len(c.was.LastKnownELR) == 1 && c.mayLead(c.was.LastKnownELR[0]) {
		return c.was.LastKnownELR[0], true
	}
	if c.mode == electUnclean {
		for _, id := range c.replicas {
			if c.mayLead(id) {
				return id, true
			}
		}
	}
	return metadata.NoLeader, false
}

// clean reports whether a broker may lead and is known to hold everything that was acknowledged.
func (c *change) clean(broker int32) bool {
	return (slices.Contains(c.isr, broker) || c.useELR && slices.Contains(c.elr, broker)) && c.mayLead(broker)
}

// bumpsEpoch reports whether the same leader must begin a new epoch: when a replica is taken away, so that it stops
// fetching, and, in clusters of old, when the ISR shrinks.
func (c *change) bumpsEpoch() bool {
	if !containsAll(c.replicas, c.was.Replicas) {
		return true
	}
	return c.level < protocol.NoEpochBumpOnShrinkSince && !containsAll(c.isr, c.was.ISR)
}

// rememberLeader notes who led when the last member left, and forgets it when somebody leads again.
func (c *change) rememberLeader(r *records.PartitionChangeRecord) {
	switch {
	case r.ISR != nil && len(r.ISR) == 0:
		if c.was.Leader != metadata.NoLeader {
			c.lastKnown = []int32{c.was.Leader}
		}
	case r.Leader >= 0, c.was.Leader != metadata.NoLeader && r.Leader == leaderUnchanged:
		c.lastKnown = nil
	}
}

// allDirectories returns the log directories of the replicas as they will be.
func (c *change) allDirectories() []uuid.UUID {
	dirs := make([]uuid.UUID, len(c.replicas))
	for i, broker := range c.replicas {
		dir, ok := c.directories[broker]
		if !ok {
			dir, ok = c.was.Directory(broker)
		}
		if !ok {
			dir = c.directory(broker)
		}
		dirs[i] = dir
	}
	return dirs
}

// A departure is a broker's change of state, as partitions see it. Fields that do not apply are nobody.
type departure struct {
	remove  int32 // leaves every ISR and must not lead
	unclean int32 // may have lost its tail: leaves every ISR and ELR
}

// elections emits the changes of all partitions that concerned selects, in the order of topics' names.
// Source: Kafka's ReplicationControlManager.generateLeaderAndIsrUpdates.
func (t *turn) elections(d departure, concerned func(*metadata.Partition) bool) {
	img := t.image() // the records emitted below are about other partitions
	var changes []*records.PartitionChangeRecord
	for topic := range img.Topics() {
		for id, p := range topic.Partitions() {
			if !concerned(p) {
				continue
			}
			c := t.change(topic, id)
			c.isr = without(p.ISR, d.remove, d.unclean)
			c.uncleanShutdown = d.unclean
			c.mayLead = func(broker int32) bool {
				return broker != d.remove && t.active(broker) && t.dirOnline(p, broker)
			}
			if r := c.record(); r != nil {
				changes = append(changes, r)
			}
		}
	}
	for _, r := range changes {
		t.emit(r)
	}
}

// inISR selects the partitions whose ISR has the broker.
func inISR(broker int32) func(*metadata.Partition) bool {
	return func(p *metadata.Partition) bool { return slices.Contains(p.ISR, broker) }
}

// leaderless selects the partitions without a leader.
func leaderless(p *metadata.Partition) bool { return p.Leader == metadata.NoLeader }

// fence emits that a broker leads nothing and is not to be seen by clients.
func (t *turn) fence(id int32) {
	t.elections(departure{remove: id, unclean: nobody}, inISR(id))
	t.emit(&records.BrokerRegistrationChangeRecord{BrokerID: id, BrokerEpoch: t.image().Broker(id).Epoch, Fenced: fenced})
}

// Values of BrokerRegistrationChangeRecord; zero says that nothing changes.
const (
	fenced               int8 = 1
	unfenced             int8 = -1
	inControlledShutdown int8 = 1
)

// unfence emits that a broker has caught up, and makes it leader where one is missing.
func (t *turn) unfence(id int32) {
	t.emit(&records.BrokerRegistrationChangeRecord{BrokerID: id, BrokerEpoch: t.image().Broker(id).Epoch, Fenced: unfenced})
	t.elections(departure{remove: nobody, unclean: nobody}, leaderless)
}

// shutDown emits that a broker wants to stop, and moves its leaderships away.
func (t *turn) shutDown(id int32) {
	t.emit(&records.BrokerRegistrationChangeRecord{BrokerID: id, BrokerEpoch: t.image().Broker(id).Epoch, InControlledShutdown: inControlledShutdown})
	t.elections(departure{remove: id, unclean: nobody}, inISR(id))
}

// leads reports whether a broker leads any partition.
func (t *turn) leads(id int32) bool {
	for topic := range t.image().Topics() {
		for _, p := range topic.Partitions() {
			if p.Leader == id {
				return true
			}
		}
	}
	return false
}
