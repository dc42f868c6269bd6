package replica

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"ottla/internal/storage"
	"ottla/internal/uuid"
)

// A directory is a log directory and its worker, the one goroutine that makes, deletes and changes logs in it, in the order in
// which it was asked. A disk that hangs holds up the worker, and nobody else.
type directory struct {
	set     *Set
	dir     *storage.Dir
	id      uuid.UUID
	path    string
	failure atomic.Pointer[error] // nil while it is online
	count   int                   // replicas placed here; the goroutine's that applies metadata

	wake chan struct{} // one slot
	mu   struct {
		sync.Mutex
		tasks          []func()
		found          map[storage.TopicPartition]*storage.Log // loaded, and claimed by no replica yet
		highWatermarks map[storage.TopicPartition]int64        // as of the last checkpoint before the start
	}
}

func newDirectory(s *Set, d *storage.Dir) *directory {
	return &directory{set: s, dir: d, id: d.ID(), path: d.Path(), wake: make(chan struct{}, 1)}
}

func (d *directory) load(ctx context.Context) error {
	logs, err := d.dir.Load(ctx)
	if err != nil {
		return fmt.Errorf("load log directory %s: %w", d.path, err)
	}
	found := make(map[storage.TopicPartition]*storage.Log, len(logs))
	for _, log := range logs {
		found[log.TopicPartition()] = log
	}
	d.mu.Lock()
	d.mu.found, d.mu.highWatermarks = found, d.dir.HighWatermarks()
	d.mu.Unlock()
	d.dir.SetHighWatermarks(d.currentHighWatermarks)
	return nil
}

// do asks the worker for something.
func (d *directory) do(task func()) {
	d.mu.Lock()
	d.mu.tasks = append(d.mu.tasks, task)
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// work does what it is asked for until ctx ends and nothing is left.
func (d *directory) work(ctx context.Context) {
	for {
		d.mu.Lock()
		tasks := d.mu.tasks
		d.mu.tasks = nil
		d.mu.Unlock()
		for _, task := range tasks {
			task()
		}
		if len(tasks) > 0 {
			continue
		}
		select {
		case <-d.wake:
		case <-ctx.Done():
			return
		}
	}
}

// holds reports whether a log of the partition was found that no replica has claimed yet.
func (d *directory) holds(tp storage.TopicPartition, topicID uuid.UUID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	log := d.mu.found[tp]
	return log != nil && sameTopic(log, topicID)
}

// sameTopic reports whether a log is of the topic with that id; one without an id is older than topic ids.
func sameTopic(log *storage.Log, topicID uuid.UUID) bool {
	return log.TopicID() == topicID || log.TopicID().IsZero()
}

// claim takes a log that was found, nil if there is none.
func (d *directory) claim(tp storage.TopicPartition) *storage.Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	log := d.mu.found[tp]
	delete(d.mu.found, tp)
	return log
}

// highWatermark returns what the last checkpoint before the start says of a partition, 0 if nothing.
func (d *directory) highWatermark(tp storage.TopicPartition) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.highWatermarks[tp]
}

// forgetHighWatermark keeps a topic's high watermark from one that is made anew under its name.
func (d *directory) forgetHighWatermark(tp storage.TopicPartition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.highWatermarks, tp)
}

// open returns the log of a partition: the one found on the disk if it is of this topic, else a new one. One of a former topic
// of that name is set aside.
func (d *directory) open(p *Partition) (*storage.Log, error) {
	if failure := d.failure.Load(); failure != nil {
		return nil, *failure
	}
	tp := p.topicPartition()
	c := p.config.Load().Log
	log := d.claim(tp)
	if log != nil && sameTopic(log, p.topicID) {
		if err := log.AdoptTopicID(p.topicID); err != nil {
			return nil, err
		}
		log.SetConfig(c)
		d.report(log)
		return log, nil
	}
	if log != nil {
		if err := d.dir.MarkStray(log); err != nil {
			return nil, err
		}
	}
	d.forgetHighWatermark(tp)
	return d.dir.Create(p.topic, p.id, p.topicID, c)
}

// report tells of what recovery found missing.
func (d *directory) report(log *storage.Log) {
	if lost, ok := log.LostTo(); ok {
		d.set.logger.Warn("the end of a log is gone that was once on the disk", "topic", log.Topic(), "partition", log.Partition(),
			"logEndOffset", log.End().Offset, "was", lost)
	}
	for _, damage := range log.Damage() {
		d.set.logger.Warn("records are missing from a log", "topic", log.Topic(), "partition", log.Partition(),
			"from", damage.From, "to", damage.To, "reason", damage.Reason)
	}
}

// delete deletes a replica's log, if it was ever opened.
func (d *directory) delete(p *Partition) {
	p.mu.Lock()
	log := p.mu.log
	p.mu.Unlock()
	tp := p.topicPartition()
	if log == nil {
		if !d.holds(tp, p.topicID) { // a former topic's of that name stays, for the next to set aside
			return
		}
		log = d.claim(tp)
	}
	d.forgetHighWatermark(tp)
	if err := d.dir.Delete(log); err != nil {
		d.set.logger.Error("deleting a replica", "topic", p.topic, "partition", p.id, "error", err.Error())
	}
}

// setStraysAside renames the directories of the logs that no replica has claimed.
func (d *directory) setStraysAside() {
	d.mu.Lock()
	strays := d.mu.found
	d.mu.found = nil
	d.mu.Unlock()
	for _, log := range strays {
		if err := d.dir.MarkStray(log); err != nil {
			d.set.logger.Error("setting a stray replica aside", "topic", log.Topic(), "partition", log.Partition(), "error", err.Error())
		}
	}
}

// currentHighWatermarks is what the directory's checkpoint writes.
func (d *directory) currentHighWatermarks() map[storage.TopicPartition]int64 {
	offsets := map[storage.TopicPartition]int64{}
	for p := range d.set.Partitions {
		if p.dir == d && p.opened.Load() {
			offsets[p.topicPartition()] = p.HighWatermark()
		}
	}
	return offsets
}

// A DirInfo describes a log directory, for DescribeLogDirs.
type DirInfo struct {
	ID          uuid.UUID
	Path        string
	Err         error // why it is offline; nil while it is online
	Total, Free int64 // bytes of the file system; -1 unknown
	Replicas    []ReplicaInfo
}

// A ReplicaInfo describes a replica in a log directory.
type ReplicaInfo struct {
	Topic     string
	TopicID   uuid.UUID
	Partition int32
	Bytes     int64
	Lag       int64 // high watermark minus log end, if the log ends below it; else 0
}

// DescribeDirs describes the log directories and the replicas for which include is true; nil includes all. It asks the file
// systems for their space.
func (s *Set) DescribeDirs(include func(topic string, partition int32) bool) []DirInfo {
	infos := make([]DirInfo, len(s.dirs))
	at := make(map[*directory]*DirInfo, len(s.dirs))
	for i, d := range s.dirs {
		infos[i] = d.describe()
		at[d] = &infos[i]
	}
	for p := range s.Partitions {
		log := p.view.Load().log
		info := at[p.dir]
		if log == nil || info.Err != nil || include != nil && !include(p.topic, p.id) {
			continue
		}
		info.Replicas = append(info.Replicas, ReplicaInfo{
			Topic: p.topic, TopicID: p.topicID, Partition: p.id, Bytes: log.Size(), Lag: max(0, p.HighWatermark()-log.End().Offset),
		})
	}
	return infos
}

func (d *directory) describe() DirInfo {
	info := DirInfo{ID: d.id, Path: d.path, Total: -1, Free: -1}
	if failure := d.failure.Load(); failure != nil {
		info.Err = *failure
		return info
	}
	total, free, err := d.dir.Space()
	if err != nil {
		d.set.logger.Warn("asking for the space of a log directory", "path", d.path, "error", err.Error())
		return info
	}
	info.Total, info.Free = int64(total), int64(free)
	return info
}
