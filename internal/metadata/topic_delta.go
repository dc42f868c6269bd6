package metadata

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/benbjohnson/immutable"

	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// A topicDelta collects the changes of one topic until Apply.
type topicDelta struct {
	old        *Topic // nil: created
	created    *Topic // without partitions; nil if it was there before
	deleted    bool
	partitions map[int32]*Partition // new and changed ones
}

// topic returns the changes of a topic that exists as of now, or nil.
func (d *Delta) topic(id uuid.UUID) *topicDelta {
	if c := d.topics[id]; c != nil {
		if c.deleted {
			return nil
		}
		return c
	}
	old := d.prev.Topic(id)
	if old == nil {
		return nil
	}
	return d.addTopic(id, &topicDelta{old: old})
}

func (d *Delta) addTopic(id uuid.UUID, c *topicDelta) *topicDelta {
	if d.topics == nil {
		d.topics = map[uuid.UUID]*topicDelta{}
	}
	d.topics[id] = c
	return c
}

func (d *Delta) createTopic(r *records.TopicRecord) error {
	if d.topic(r.TopicID) != nil {
		return errors.New("a topic with that id is there already")
	}
	if c := d.topics[r.TopicID]; c != nil {
		return errors.New("a topic with that id was just deleted")
	}
	d.addTopic(r.TopicID, &topicDelta{created: newTopic(r.TopicID, r.Name)})
	return nil
}

func (d *Delta) deleteTopic(id uuid.UUID) error {
	c := d.topic(id)
	if c == nil {
		return errNoTopic
	}
	c.deleted, c.partitions = true, nil
	d.deleteConfig(TopicResource(c.name()))
	return nil
}

var errNoTopic = errors.New("there is no such topic")

func (c *topicDelta) name() string {
	if c.old != nil {
		return c.old.Name
	}
	return c.created.Name
}

func (d *Delta) setPartition(r *records.PartitionRecord) error {
	c := d.topic(r.TopicID)
	if c == nil {
		return errNoTopic
	}
	p, err := newPartition(r)
	if err != nil {
		return err
	}
	c.set(r.PartitionID, p)
	return nil
}

func (d *Delta) changePartition(r *records.PartitionChangeRecord) error {
	c := d.topic(r.TopicID)
	if c == nil {
		return errNoTopic
	}
	p := c.partition(r.PartitionID)
	if p == nil {
		return fmt.Errorf("topic %s has no such partition", c.name())
	}
	p, err := p.changedBy(r)
	if err != nil {
		return err
	}
	c.set(r.PartitionID, p)
	return nil
}

func (c *topicDelta) set(id int32, p *Partition) {
	if c.partitions == nil {
		c.partitions = map[int32]*Partition{}
	}
	c.partitions[id] = p
}

// topicByName returns the changes of a topic that exists as of now, or nil.
func (d *Delta) topicByName(name string) *topicDelta {
	for _, c := range d.topics {
		if !c.deleted && c.name() == name {
			return c
		}
	}
	if t := d.prev.TopicByName(name); t != nil {
		return d.topic(t.ID)
	}
	return nil
}

// clearELR empties ELR and LastKnownELR of a topic, or of all topics if the name is empty.
func (d *Delta) clearELR(name string) error {
	if name != "" {
		c := d.topicByName(name)
		if c == nil {
			return errNoTopic
		}
		return c.clearELR()
	}
	for t := range d.prev.Topics() {
		if c := d.topic(t.ID); c != nil {
			if err := c.clearELR(); err != nil {
				return err
			}
		}
	}
	for _, c := range d.topics {
		if c.deleted || c.old != nil {
			continue
		}
		if err := c.clearELR(); err != nil {
			return err
		}
	}
	return nil
}

// clearELR counts as a change of each partition that had any.
func (c *topicDelta) clearELR() error {
	current := maps.Clone(c.partitions)
	if current == nil {
		current = map[int32]*Partition{}
	}
	if c.old != nil {
		for id, p := range c.old.Partitions() {
			if current[id] == nil {
				current[id] = p
			}
		}
	}
	for id, p := range current {
		if len(p.ELR) == 0 && len(p.LastKnownELR) == 0 {
			continue
		}
		r := records.NewPartitionChangeRecord()
		r.EligibleLeaderReplicas, r.LastKnownELR = []int32{}, []int32{}
		p, err := p.changedBy(r)
		if err != nil {
			return err
		}
		c.set(id, p)
	}
	return nil
}

func (d *Delta) applyTopics() {
	if d.prev.topics.Len() == 0 && len(d.topics) > 0 {
		d.buildTopics()
		return
	}
	for id, c := range d.topics {
		if c.deleted {
			d.removeTopic(id, c)
			continue
		}
		t := c.topic()
		d.next.partitions += t.PartitionCount()
		if c.old != nil {
			d.next.partitions -= c.old.PartitionCount()
		}
		d.next.topics = d.next.topics.Set(id, t)
	}
	for id, c := range d.topics {
		if !c.deleted {
			t := d.next.Topic(id)
			d.next.names = d.next.names.Set(t.Name, t)
		}
	}
}

// removeTopic comes before a topic of the same name is added: see applyTopics.
func (d *Delta) removeTopic(id uuid.UUID, c *topicDelta) {
	if c.old == nil {
		return
	}
	d.next.topics = d.next.topics.Delete(id)
	d.next.names = d.next.names.Delete(c.old.Name)
	d.next.partitions -= c.old.PartitionCount()
}

// buildTopics is applyTopics for a first image, without the garbage of a persistent map per topic.
func (d *Delta) buildTopics() {
	topics := immutable.NewMapBuilder[uuid.UUID, *Topic](ids{})
	names := immutable.NewSortedMapBuilder[string, *Topic](ordered[string]{})
	for id, c := range d.topics {
		if c.deleted {
			continue
		}
		t := c.topic()
		topics.Set(id, t)
		names.Set(t.Name, t)
		d.next.partitions += t.PartitionCount()
	}
	d.next.topics, d.next.names = topics.Map(), names.Map()
}

func (c *topicDelta) topic() *Topic {
	base := c.old
	if base == nil {
		base = c.created
	}
	if len(c.partitions) == 0 {
		return base
	}
	return base.with(c.partitions)
}

// partition returns a partition as the delta has it so far, or nil.
func (c *topicDelta) partition(id int32) *Partition {
	if p := c.partitions[id]; p != nil || c.old == nil {
		return p
	}
	return c.old.Partition(id)
}

// A TopicChange says what happened to one topic.
type TopicChange struct {
	Old, New *Topic // Old is nil if it was created, New if it was deleted

	changed map[int32]*Partition
}

// ID returns the topic's id.
func (c TopicChange) ID() uuid.UUID { return c.either().ID }

// Name returns the topic's name.
func (c TopicChange) Name() string { return c.either().Name }

func (c TopicChange) either() *Topic {
	if c.New != nil {
		return c.New
	}
	return c.Old
}

// A PartitionChange says what happened to one partition.
type PartitionChange struct {
	ID       int32
	Old, New *Partition // Old is nil if it was created, New if its topic was deleted
}

// Partitions yields, by id, what happened to the topic's partitions: all of them if the topic was
// created or deleted, else those that are new or had a record.
func (c TopicChange) Partitions() iter.Seq[PartitionChange] {
	return func(yield func(PartitionChange) bool) {
		if c.New == nil {
			for id, p := range c.Old.Partitions() {
				if !yield(PartitionChange{ID: id, Old: p}) {
					return
				}
			}
			return
		}
		for _, id := range sorted(c.changed) {
			change := PartitionChange{ID: id, New: c.changed[id]}
			if c.Old != nil {
				change.Old = c.Old.Partition(id)
			}
			if !yield(change) {
				return
			}
		}
	}
}

// Topics yields the topics that were created, deleted or changed, deleted ones first, by name. A
// topic that was created and deleted within the delta is not among them.
func (d *Delta) Topics() iter.Seq[TopicChange] {
	var changes []TopicChange
	for id, c := range d.topics {
		change := TopicChange{Old: c.old, changed: c.partitions}
		if !c.deleted {
			change.New = d.next.Topic(id)
		}
		if change.Old == change.New { // also if both are nil
			continue
		}
		changes = append(changes, change)
	}
	slices.SortFunc(changes, func(a, b TopicChange) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.Name(), b.Name()))
	})
	return slices.Values(changes)
}

func order(c TopicChange) int {
	if c.New == nil {
		return 0
	}
	return 1
}
