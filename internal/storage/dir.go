package storage

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ottla/internal/uuid"
	"ottla/internal/vfs"
)

// The suffixes of partition directories that are no longer, or not yet, in use, behind a dot and 32 hex digits.
const (
	deleteDirSuffix = "-delete"
	strayDirSuffix  = "-stray"
	futureDirSuffix = "-future"
)

// metadataDir is the directory of the metadata log, which is the quorum's to open.
const metadataDir = "__cluster_metadata-0"

// DirOptions say how [OpenDir] opens a log directory. Durations that are 0 take the default named.
type DirOptions struct {
	FS     vfs.FS // default vfs.OS
	Path   string
	NodeID int32
	// ClusterID must be that of meta.properties; empty takes whatever is there.
	ClusterID string
	// RecoveryThreads is num.recovery.threads.per.data.dir: how many logs are opened at once; default, one for each CPU.
	RecoveryThreads int
	// LogConfig gives the settings of a topic's logs when they are loaded. They should be the topic's own: recovery builds
	// indexes by them. It is called by many goroutines. Default: Kafka's defaults.
	LogConfig func(topic string) LogConfig
	// FlushInterval is how long an appended record may wait for its fsync when flush.messages and flush.ms do not ask
	// for more; default 1 s. Negative leaves it to the kernel, as Apache does.
	FlushInterval      time.Duration
	FlushThreads       int           // concurrent fsyncs; default 8
	CheckpointInterval time.Duration // of the three offset checkpoints; default 5 s
	RetentionInterval  time.Duration // log.retention.check.interval.ms; default 5 min
	// MaxProducers is how many producers the logs remember together, a producer counting once for each log that it wrote to;
	// 0 is no bound. Beyond it those are forgotten that have written nothing for longest.
	MaxProducers int64
	// ScrubRate is how many bytes a second are read of segments that nobody reads, to find what rots there; default 10 MiB.
	// Negative: they are not read.
	ScrubRate     int64
	ScrubInterval time.Duration // in which each segment is read once, if the rate allows; default a week
	Registerer    prometheus.Registerer
	Logger        *slog.Logger
	// OnFailure is told, once, that the directory is offline. It is called by whoever met the failure: it must not
	// call back into the Dir.
	OnFailure func(error)
}

func (o *DirOptions) defaults() {
	o.FS = cmp.Or(o.FS, vfs.OS)
	o.RecoveryThreads = cmp.Or(o.RecoveryThreads, min(runtime.GOMAXPROCS(0), runtime.NumCPU()))
	o.FlushInterval = cmp.Or(o.FlushInterval, time.Second)
	o.FlushThreads = cmp.Or(o.FlushThreads, 8)
	o.CheckpointInterval = cmp.Or(o.CheckpointInterval, 5*time.Second)
	o.RetentionInterval = cmp.Or(o.RetentionInterval, 5*time.Minute)
	o.ScrubRate = cmp.Or(o.ScrubRate, defaultScrubRate)
	o.ScrubInterval = cmp.Or(o.ScrubInterval, defaultScrubInterval)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.LogConfig == nil {
		o.LogConfig = func(string) LogConfig { return DefaultLogConfig() }
	}
}

// A Dir is one log directory (an entry of log.dirs). It holds the directory's lock, opens and makes the logs of its
// partitions, and runs their background work from Load to Close: flushing, retention, checkpoints, removing what was
// deleted. It may be used by many goroutines.
type Dir struct {
	o          DirOptions
	lock       io.Closer
	meta       metaProperties
	formatted  bool
	clean      bool  // the last shutdown was
	cleanEpoch int64 // broker epoch in the clean-shutdown marker, -1 none
	health     *health
	parent     *parentDir // of its logs: the Dir itself
	budget     producerBudget
	metrics    metrics

	stop    context.CancelFunc
	workers sync.WaitGroup
	queue   workQueue
	flusher flusher
	janitor janitor

	mu struct {
		sync.Mutex
		logs           map[TopicPartition]*Log
		list           []*Log                   // what logs holds; nil: not made since that changed
		recorded       map[TopicPartition]int64 // recovery points at start, of partitions that were not found
		highWatermarks map[TopicPartition]int64 // as read at start
		current        func() map[TopicPartition]int64
	}
	checkpointing chan struct{}                       // one slot: who writes checkpoints, and what was written last
	written       map[string]map[TopicPartition]int64 // of the recovery points also what was found at start
}

// OpenDir makes the directory if it is not there, locks it, reads meta.properties and takes the clean-shutdown marker. A
// directory without meta.properties is not formatted: see [Dir.Format]. One of another node or cluster is an error, as
// is one that another process holds (vfs.ErrLocked).
func OpenDir(ctx context.Context, o DirOptions) (*Dir, error) {
	o.defaults()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := makeDir(o.FS, o.Path); err != nil {
		return nil, fmt.Errorf("make log directory: %w", err)
	}
	lock, err := o.FS.Lock(filepath.Join(o.Path, lockFile))
	if err != nil {
		return nil, fmt.Errorf("log directory %s is in use (stop the other broker): %w", o.Path, err)
	}
	d := &Dir{
		o: o, lock: lock, health: &health{path: o.Path, onFailure: o.OnFailure},
		parent: newParentDir(o.FS, o.Path), checkpointing: make(chan struct{}, 1), written: map[string]map[TopicPartition]int64{},
	}
	d.metrics = newMetrics(o.Registerer, o.Path)
	d.health.metrics = &d.metrics
	d.budget.max = o.MaxProducers
	d.queue.wake = make(chan struct{}, 1)
	d.janitor.wake = make(chan struct{}, 1)
	d.flusher.init(d)
	d.mu.logs = map[TopicPartition]*Log{}
	if err := d.open(); err != nil {
		d.metrics.unregister(o.Registerer)
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// makeDir makes a directory if it is not there, and makes sure that it stays: a power cut that took it would take the
// identity in it, by which others know this node.
func makeDir(fsys vfs.FS, path string) error {
	if _, err := fsys.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := fsys.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(path))
}

func (d *Dir) open() error {
	path := filepath.Join(d.o.Path, metaPropertiesFile)
	b, err := vfs.ReadFile(d.o.FS, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read meta.properties: %w", err)
	}
	if err == nil {
		if d.meta, err = parseMetaProperties(b); err != nil {
			return fmt.Errorf("%s is damaged (restore it, or copy the cluster.id from another node): %w", path, err)
		}
		if err := d.checkMeta(path); err != nil {
			return err
		}
		d.formatted = true
	}
	d.cleanEpoch, d.clean, err = takeCleanShutdown(d.o.FS, d.o.Path)
	return err
}

func (d *Dir) checkMeta(path string) error {
	if d.meta.nodeID != d.o.NodeID {
		return fmt.Errorf("%s belongs to node %d, not to %d (check node.id and log.dirs)", path, d.meta.nodeID, d.o.NodeID)
	}
	if d.o.ClusterID != "" && d.meta.clusterID != d.o.ClusterID {
		return fmt.Errorf("%s belongs to cluster %s, not to %s (check log.dirs)", path, d.meta.clusterID, d.o.ClusterID)
	}
	if d.meta.directory.IsReserved() { // an early KRaft directory has none
		d.meta.directory = uuid.Random()
		return d.writeMeta()
	}
	return nil
}

func (d *Dir) writeMeta() error {
	err := vfs.WriteFileAtomic(d.o.FS, filepath.Join(d.o.Path, metaPropertiesFile), d.meta.encode(time.Now()))
	if err != nil {
		return fmt.Errorf("write meta.properties: %w", err)
	}
	return nil
}

// Formatted reports whether meta.properties is there.
func (d *Dir) Formatted() bool { return d.formatted }

// Format writes meta.properties with a new directory id. It must not be called on a formatted directory.
func (d *Dir) Format(clusterID string, nodeID int32) error {
	if d.formatted {
		return fmt.Errorf("log directory %s is already formatted for cluster %s", d.o.Path, d.meta.clusterID)
	}
	d.meta = metaProperties{clusterID: clusterID, nodeID: nodeID, directory: uuid.Random()}
	if err := d.writeMeta(); err != nil {
		return err
	}
	d.formatted = true
	return nil
}

// ID returns directory.id, Zero while the directory is not formatted.
func (d *Dir) ID() uuid.UUID { return d.meta.directory }

// Path returns the directory's path.
func (d *Dir) Path() string { return d.o.Path }

// ClusterID returns cluster.id, empty while the directory is not formatted.
func (d *Dir) ClusterID() string { return d.meta.clusterID }

// CleanShutdownEpoch returns the broker epoch that the last process here had if it shut down cleanly, else -1.
func (d *Dir) CleanShutdownEpoch() int64 { return d.cleanEpoch }

// Clean reports whether the last shutdown was clean.
func (d *Dir) Clean() bool { return d.clean }

// Err returns a *DirFailedError once the directory is offline.
func (d *Dir) Err() error { return d.health.err() }

// Load opens the logs of all partition directories, recovering several at a time, and starts the background work. It
// leaves alone what is no partition's directory. It is to be called once. The logs come sorted by topic and partition. A
// log that can not be opened, because the disk fails, fails the whole directory.
func (d *Dir) Load(ctx context.Context) ([]*Log, error) {
	points := d.readCheckpoint(recoveryPointFile)
	starts := d.readCheckpoint(logStartFile)
	d.mu.highWatermarks = d.readCheckpoint(highWatermarkFile)
	if len(points) > 0 {
		d.written[recoveryPointFile] = maps.Clone(points)
	}
	found, err := d.partitions()
	if err != nil {
		return nil, d.health.fail(err)
	}
	begun := time.Now()
	logs, err := d.openAll(ctx, found, points, starts)
	if err != nil {
		return nil, err
	}
	d.o.Logger.Info("loaded log directory", "path", d.o.Path, "logs", len(logs), "clean", d.clean, "duration", time.Since(begun).String())
	d.mu.Lock()
	for _, l := range logs {
		d.admitLocked(l)
		delete(points, l.tp)
	}
	d.mu.recorded = points
	d.mu.Unlock()
	d.start()
	return logs, nil
}

// readCheckpoint reads an offset checkpoint; a damaged one is as good as none, for all of them only save work or are
// known better by the log.
func (d *Dir) readCheckpoint(name string) map[TopicPartition]int64 {
	offsets, err := readOffsets(d.o.FS, filepath.Join(d.o.Path, name))
	if err != nil {
		d.o.Logger.Warn("checkpoint is not readable, going by the logs", "error", err.Error())
		return map[TopicPartition]int64{}
	}
	return offsets
}

// partitions lists the partition directories, sorted, and has those removed that were deleted.
func (d *Dir) partitions() ([]TopicPartition, error) {
	entries, err := d.o.FS.ReadDir(d.o.Path)
	if err != nil {
		return nil, fmt.Errorf("list log directory: %w", err)
	}
	var found []TopicPartition
	for _, e := range entries {
		name := e.Name()
		tp, ok := parsePartitionDir(name)
		switch {
		case !e.IsDir() || name == metadataDir:
		case strings.HasSuffix(name, deleteDirSuffix):
			d.janitor.add([]removal{{path: filepath.Join(d.o.Path, name)}})
		case strings.HasSuffix(name, strayDirSuffix) || strings.HasSuffix(name, futureDirSuffix) || !ok:
			d.o.Logger.Warn("ignoring a directory that is no partition's", "path", filepath.Join(d.o.Path, name))
		default:
			found = append(found, tp)
		}
	}
	slices.SortFunc(found, func(a, b TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return found, nil
}

func (d *Dir) openAll(ctx context.Context, found []TopicPartition, points, starts map[TopicPartition]int64) ([]*Log, error) {
	logs := make([]*Log, len(found))
	errs := make([]error, len(found))
	next := make(chan int)
	var openers sync.WaitGroup
	for range min(d.o.RecoveryThreads, len(found)) {
		openers.Go(func() {
			for i := range next {
				tp := found[i]
				logs[i], errs[i] = OpenLog(d.logOptions(tp, uuid.Zero, d.o.LogConfig(tp.Topic), points[tp], starts[tp]))
			}
		})
	}
	reported := time.Now()
	for i := range found {
		if ctx.Err() != nil {
			break
		}
		next <- i
		if time.Since(reported) > 10*time.Second {
			reported = time.Now()
			d.o.Logger.Info("loading logs", "path", d.o.Path, "done", i, "of", len(found))
		}
	}
	close(next)
	openers.Wait()
	err := errors.Join(errs...)
	if err != nil {
		err = d.health.fail(err)
	}
	if err = cmp.Or(err, ctx.Err()); err == nil {
		return logs, nil
	}
	for _, l := range logs {
		if l != nil {
			l.abandon()
		}
	}
	return nil, err
}

func (d *Dir) logOptions(tp TopicPartition, id uuid.UUID, c LogConfig, point, start int64) LogOptions {
	return LogOptions{
		FS: d.o.FS, Path: filepath.Join(d.o.Path, tp.String()), Topic: tp.Topic, Partition: tp.Partition, TopicID: id,
		Config: c, Clean: d.clean, RecoveryPoint: point, StartOffset: start, Logger: d.o.Logger,
		health: d.health, parent: d.parent, budget: &d.budget, attend: d.queue.push, lowered: d.lowerRecoveryPoint, remove: d.janitor.add,
	}
}

// Create makes the log of a partition that the directory does not hold yet.
func (d *Dir) Create(topic string, partition int32, topicID uuid.UUID, c LogConfig) (*Log, error) {
	tp := TopicPartition{topic, partition}
	if err := d.health.err(); err != nil {
		return nil, err
	}
	if _, ok := parsePartitionDir(tp.String()); !ok || strings.ContainsAny(topic, "/\\\x00") || topic == "." || topic == ".." {
		return nil, fmt.Errorf("%q can not be a partition's directory", tp.String())
	}
	if d.Log(tp) != nil {
		return nil, fmt.Errorf("log directory %s already holds %s", d.o.Path, tp)
	}
	l, err := OpenLog(d.logOptions(tp, topicID, c, 0, 0))
	if err != nil {
		return nil, d.health.fail(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.logs[tp] != nil {
		return nil, fmt.Errorf("log directory %s already holds %s", d.o.Path, tp)
	}
	if point, ok := d.mu.recorded[tp]; ok {
		l.lost = point
		delete(d.mu.recorded, tp)
	}
	d.admitLocked(l)
	return l, nil
}

// admitLocked takes in a log that nobody else has yet.
func (d *Dir) admitLocked(l *Log) {
	d.mu.logs[l.tp], d.mu.list = l, nil
	l.flusher = &d.flusher
	if !l.quiet() {
		l.tellFlusher()
	}
}

// Log returns the log of a partition, nil if the directory does not hold it.
func (d *Dir) Log(tp TopicPartition) *Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.logs[tp]
}

// Logs returns all logs, in no order. It must not be changed.
func (d *Dir) Logs() []*Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.list == nil {
		d.mu.list = slices.Collect(maps.Values(d.mu.logs))
	}
	return d.mu.list
}

// Delete takes a log out of the directory; its files are removed after file.delete.delay.ms. Readers in flight go on.
func (d *Dir) Delete(l *Log) error {
	path, err := d.retire(l, deleteDirSuffix)
	if err != nil {
		return err
	}
	d.janitor.add([]removal{{path: path, delay: l.Config().FileDeleteDelay}})
	return nil
}

// MarkStray takes a log out of the directory whose partition the cluster does not place here. Its files stay under another
// name, for somebody to look at.
func (d *Dir) MarkStray(l *Log) error {
	path, err := d.retire(l, strayDirSuffix)
	if err == nil {
		d.o.Logger.Warn("partition does not belong here, setting its directory aside", "topic", l.tp.Topic, "partition", l.tp.Partition, "path", path)
	}
	return err
}

// maxFileName is the longest name that file systems take.
const maxFileName = 255

// retire closes a log without writing anything more and renames its directory as Kafka does.
func (d *Dir) retire(l *Log, suffix string) (string, error) {
	d.mu.Lock()
	delete(d.mu.logs, l.tp)
	d.mu.list = nil
	delete(d.mu.recorded, l.tp)
	d.mu.Unlock()
	l.abandon()
	u := uuid.Random()
	tail := fmt.Sprintf("-%d.%s%s", l.tp.Partition, hex.EncodeToString(u[:]), suffix)
	name := l.tp.Topic[:min(len(l.tp.Topic), maxFileName-len(tail))] + tail
	path := filepath.Join(d.o.Path, name)
	if err := d.o.FS.Rename(l.path, path); err != nil {
		return "", d.health.fail(fmt.Errorf("delete %s: %w", l.tp, err))
	}
	d.parent.made.Add(1)
	if err := d.parent.sync(); err != nil {
		return "", d.health.fail(fmt.Errorf("delete %s: %w", l.tp, err))
	}
	return path, nil
}

// HighWatermarks returns the high watermarks that were checkpointed by the last process. The map is the caller's.
func (d *Dir) HighWatermarks() map[TopicPartition]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.mu.highWatermarks)
}

// SetHighWatermarks sets the function that tells the present high watermarks, which are checkpointed and which retention
// must not pass. It is called from the Dir's goroutines, with no lock held.
func (d *Dir) SetHighWatermarks(current func() map[TopicPartition]int64) {
	d.mu.Lock()
	d.mu.current = current
	d.mu.Unlock()
}

// currentHighWatermarks returns what SetHighWatermarks' function says, over what was known at start.
func (d *Dir) currentHighWatermarks() map[TopicPartition]int64 {
	d.mu.Lock()
	current := d.mu.current
	offsets := maps.Clone(d.mu.highWatermarks)
	d.mu.Unlock()
	if offsets == nil {
		offsets = map[TopicPartition]int64{}
	}
	if current != nil {
		maps.Copy(offsets, current())
	}
	return offsets
}

// Size returns the bytes of all segments.
func (d *Dir) Size() int64 {
	var n int64
	for _, l := range d.Logs() {
		n += l.Size()
	}
	return n
}

// Space returns the size of the file system and what of it is free, in bytes.
func (d *Dir) Space() (total, free uint64, err error) { return d.o.FS.Space(d.o.Path) }

// checkpoint writes the offset checkpoints that changed.
func (d *Dir) checkpoint() error {
	d.checkpointing <- struct{}{}
	defer func() { <-d.checkpointing }()
	if err := d.health.err(); err != nil {
		return err
	}
	points, starts, marks := map[TopicPartition]int64{}, map[TopicPartition]int64{}, map[TopicPartition]int64{}
	hw := d.currentHighWatermarks()
	for _, l := range d.Logs() {
		points[l.tp] = l.RecoveryPoint()
		if start := l.StartOffset(); start > (*l.segments.Load())[0].base {
			starts[l.tp] = start
		}
		if offset, ok := hw[l.tp]; ok {
			marks[l.tp] = offset
		}
	}
	d.mu.Lock()
	maps.Copy(points, d.mu.recorded) // what went missing stays known until it is made anew
	d.mu.Unlock()
	for _, c := range []struct {
		name    string
		offsets map[TopicPartition]int64
	}{{recoveryPointFile, points}, {logStartFile, starts}, {highWatermarkFile, marks}} {
		if maps.Equal(d.written[c.name], c.offsets) && d.written[c.name] != nil {
			continue
		}
		if err := writeOffsets(d.o.FS, filepath.Join(d.o.Path, c.name), c.offsets); err != nil {
			return d.health.fail(err)
		}
		d.written[c.name] = c.offsets
	}
	return nil
}

// lowerRecoveryPoint writes the checkpoints if a recovery point stands there that is behind offset, where the log is about to be cut.
func (d *Dir) lowerRecoveryPoint(tp TopicPartition, offset int64) error {
	d.checkpointing <- struct{}{}
	behind := d.written[recoveryPointFile][tp] > offset
	<-d.checkpointing
	if !behind {
		return nil
	}
	return d.checkpoint()
}

// Close ends the background work, closes all logs, several at a time, and gives the lock back. If clean is set and all
// went well it leaves the clean-shutdown marker with the broker's epoch, and the next start reads nothing again; without
// it nothing is written, as if the process had been killed. Of a directory that was not loaded only the marker is written.
//
// A disk that hangs holds Close up until ctx ends at most. The lock is then given back when the disk answers, or the
// process ends.
func (d *Dir) Close(ctx context.Context, brokerEpoch int64, clean bool) error {
	if d.stop != nil {
		d.stop()
	}
	closed := make(chan error, 1)
	go func() { closed <- d.close(ctx, brokerEpoch, clean) }()
	var err error
	select {
	case err = <-closed:
	case <-ctx.Done():
		err = fmt.Errorf("close log directory %s: its disk does not answer: %w", d.o.Path, ctx.Err())
	}
	d.metrics.unregister(d.o.Registerer)
	return err
}

func (d *Dir) close(ctx context.Context, brokerEpoch int64, clean bool) error {
	d.workers.Wait()
	var err error
	if clean && d.stop != nil {
		err = d.closeLogs(ctx)
	}
	if clean && err == nil {
		err = d.markClean(brokerEpoch)
	}
	for _, l := range d.Logs() {
		l.abandon()
	}
	return errors.Join(err, d.lock.Close())
}

// closeLogs closes all logs and checkpoints where they ended.
func (d *Dir) closeLogs(ctx context.Context) error {
	next := make(chan *Log)
	var closers sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for range d.o.FlushThreads {
		closers.Go(func() {
			for l := range next {
				if err := l.Close(); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, l := range d.Logs() {
		if ctx.Err() != nil {
			break
		}
		next <- l
	}
	close(next)
	closers.Wait()
	if err := cmp.Or(ctx.Err(), errors.Join(errs...)); err != nil {
		return err
	}
	return d.checkpoint()
}

// markClean leaves the clean-shutdown marker, unless the disk failed.
func (d *Dir) markClean(brokerEpoch int64) error {
	if err := d.health.err(); err != nil {
		return err
	}
	if err := writeCleanShutdown(d.o.FS, d.o.Path, brokerEpoch); err != nil {
		return d.health.fail(err)
	}
	return nil
}
