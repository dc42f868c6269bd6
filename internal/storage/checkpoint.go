package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"ottla/internal/uuid"
	"ottla/internal/vfs"
)

// The files of a log directory and of a partition in it, as Kafka names them.
const (
	lockFile               = ".lock"
	metaPropertiesFile     = "meta.properties"
	cleanShutdownFile      = ".kafka_cleanshutdown"
	recoveryPointFile      = "recovery-point-offset-checkpoint"
	highWatermarkFile      = "replication-offset-checkpoint"
	logStartFile           = "log-start-offset-checkpoint"
	cleanerFile            = "cleaner-offset-checkpoint"
	epochFile              = "leader-epoch-checkpoint"
	partitionMetadataFile  = "partition.metadata"
	checkpointVersion      = "0"
	metaPropertiesVersion  = "1"
	partitionMetadataStart = "version: 0\ntopic_id: "
)

// A TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String returns the name Kafka prints and gives to the partition's directory.
func (tp TopicPartition) String() string { return tp.Topic + "-" + strconv.Itoa(int(tp.Partition)) }

// A parentDir makes the names in a directory durable, at once for all logs in it that wait for that.
type parentDir struct {
	fs      vfs.FS
	path    string
	syncing chan struct{} // one slot: who syncs, and how that failed
	failed  error
	made    atomic.Int64 // names so far
	synced  atomic.Int64 // how many of them are durable
}

func newParentDir(fsys vfs.FS, path string) *parentDir {
	return &parentDir{fs: fsys, path: path, syncing: make(chan struct{}, 1)}
}

// sync returns when all names that were made before it was called are durable.
func (d *parentDir) sync() error {
	made := d.made.Load()
	d.syncing <- struct{}{}
	defer func() { <-d.syncing }()
	if d.failed != nil || d.synced.Load() >= made {
		return d.failed // an fsync that failed is not tried again
	}
	made = d.made.Load()
	if err := d.fs.SyncDir(d.path); err != nil {
		d.failed = fmt.Errorf("sync %s: %w", d.path, err)
		return d.failed
	}
	d.synced.Store(made)
	return nil
}

// lines reads a checkpoint: the version, the number of entries, an entry a line. Source: Kafka's CheckpointFile.
func lines(b []byte) ([]string, error) {
	l := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if len(b) == 0 {
		return nil, nil // an empty file holds nothing, says Kafka
	}
	if len(l) < 2 || l[0] != checkpointVersion {
		return nil, fmt.Errorf("checkpoint does not begin with version %s and a count", checkpointVersion)
	}
	n, err := strconv.Atoi(l[1])
	if err != nil || n != len(l)-2 {
		return nil, fmt.Errorf("checkpoint has %d lines but says %q", len(l)-2, l[1])
	}
	return l[2:], nil
}

func checkpoint(entries []string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%d\n", checkpointVersion, len(entries))
	for _, e := range entries {
		b.WriteString(e)
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

// readOffsets reads a checkpoint of offsets by partition. A file that is not there holds nothing.
func readOffsets(fsys vfs.FS, path string) (map[TopicPartition]int64, error) {
	offsets := map[TopicPartition]int64{}
	b, err := vfs.ReadFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return offsets, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	entries, err := lines(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, line := range entries {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("%s: %q is not topic, partition, offset", path, line)
		}
		p, err1 := strconv.ParseInt(f[1], 10, 32)
		o, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 != nil || err2 != nil || p < 0 || o < 0 {
			return nil, fmt.Errorf("%s: %q is not topic, partition, offset", path, line)
		}
		offsets[TopicPartition{f[0], int32(p)}] = o
	}
	return offsets, nil
}

func writeOffsets(fsys vfs.FS, path string, offsets map[TopicPartition]int64) error {
	entries := make([]string, 0, len(offsets))
	for tp, o := range offsets {
		entries = append(entries, fmt.Sprintf("%s %d %d", tp.Topic, tp.Partition, o))
	}
	sort.Strings(entries)
	if err := vfs.WriteFileAtomic(fsys, path, checkpoint(entries)); err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return nil
}

// readEpochs reads a leader-epoch-checkpoint. Entries that do not rise are an error.
func readEpochs(b []byte) ([]epochEntry, error) {
	l, err := lines(b)
	if err != nil {
		return nil, err
	}
	entries := make([]epochEntry, 0, len(l))
	for _, line := range l {
		f := strings.Fields(line)
		if len(f) != 2 {
			return nil, fmt.Errorf("%q is not epoch, start offset", line)
		}
		epoch, err1 := strconv.ParseInt(f[0], 10, 32)
		start, err2 := strconv.ParseInt(f[1], 10, 64)
		if err1 != nil || err2 != nil || epoch < 0 || start < 0 {
			return nil, fmt.Errorf("%q is not epoch, start offset", line)
		}
		e := epochEntry{int32(epoch), start}
		if n := len(entries); n > 0 && (entries[n-1].epoch >= e.epoch || entries[n-1].start >= e.start) {
			return nil, fmt.Errorf("%q does not follow %v", line, entries[n-1])
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func encodeEpochs(entries []epochEntry) []byte {
	l := make([]string, len(entries))
	for i, e := range entries {
		l[i] = fmt.Sprintf("%d %d", e.epoch, e.start)
	}
	return checkpoint(l)
}

// readTopicID reads partition.metadata; Zero if it is not there or not readable, for the topic's id is also known to
// the cluster metadata.
func readTopicID(fsys vfs.FS, dir string) (uuid.UUID, error) {
	path := filepath.Join(dir, partitionMetadataFile)
	b, err := vfs.ReadFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return uuid.Zero, nil
	}
	if err != nil {
		return uuid.Zero, fmt.Errorf("read topic id: %w", err)
	}
	id, ok := strings.CutPrefix(strings.TrimSpace(string(b)), partitionMetadataStart)
	if !ok {
		return uuid.Zero, &CorruptError{Path: path, Reason: "it does not read version: 0, topic_id: …"}
	}
	u, err := uuid.Parse(id)
	if err != nil {
		return uuid.Zero, &CorruptError{Path: path, Reason: err.Error()}
	}
	return u, nil
}

func writeTopicID(fsys vfs.FS, dir string, id uuid.UUID) error {
	err := vfs.WriteFileAtomic(fsys, filepath.Join(dir, partitionMetadataFile), []byte(partitionMetadataStart+id.String()))
	if err != nil {
		return fmt.Errorf("write topic id: %w", err)
	}
	return nil
}

// metaProperties is what meta.properties says of a log directory.
type metaProperties struct {
	clusterID string
	nodeID    int32
	directory uuid.UUID
}

func parseMetaProperties(b []byte) (metaProperties, error) {
	m := metaProperties{nodeID: -1}
	values := map[string]string{}
	for _, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		values[strings.TrimSpace(key)] = strings.ReplaceAll(strings.TrimSpace(value), `\`, "")
	}
	if v := values["version"]; v != metaPropertiesVersion {
		return m, fmt.Errorf("version is %q, not %s", v, metaPropertiesVersion)
	}
	id, err := strconv.ParseInt(values["node.id"], 10, 32)
	if err != nil || id < 0 {
		return m, fmt.Errorf("node.id is %q", values["node.id"])
	}
	m.nodeID = int32(id)
	if m.clusterID = values["cluster.id"]; m.clusterID == "" {
		return m, errors.New("cluster.id is missing")
	}
	if v, ok := values["directory.id"]; ok {
		if m.directory, err = uuid.Parse(v); err != nil {
			return m, fmt.Errorf("directory.id: %w", err)
		}
	}
	return m, nil
}

func (m metaProperties) encode(now time.Time) []byte {
	return fmt.Appendf(nil, "#\n#%s\ncluster.id=%s\ndirectory.id=%s\nnode.id=%d\nversion=%s\n",
		now.UTC().Format("Mon Jan 02 15:04:05 MST 2006"), m.clusterID, m.directory, m.nodeID, metaPropertiesVersion)
}

type cleanShutdown struct {
	Version     int   `json:"version"`
	BrokerEpoch int64 `json:"brokerEpoch"`
}

// takeCleanShutdown reads the clean-shutdown marker and removes it, for from now on the shutdown is not clean. The
// epoch is -1 when there is none in it; clean is false when there is no marker.
func takeCleanShutdown(fsys vfs.FS, dir string) (epoch int64, clean bool, err error) {
	path := filepath.Join(dir, cleanShutdownFile)
	b, err := vfs.ReadFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return -1, false, nil
	}
	if err != nil {
		return -1, false, fmt.Errorf("read clean shutdown marker: %w", err)
	}
	if err := fsys.Remove(path); err != nil {
		return -1, false, fmt.Errorf("remove clean shutdown marker: %w", err)
	}
	if err := fsys.SyncDir(dir); err != nil {
		return -1, false, fmt.Errorf("sync %s: %w", dir, err)
	}
	var c cleanShutdown
	if len(b) > 0 && json.Unmarshal(b, &c) != nil {
		return -1, false, nil // torn: not a marker one can trust
	}
	if len(b) == 0 {
		c.BrokerEpoch = -1
	}
	return c.BrokerEpoch, true, nil
}

func writeCleanShutdown(fsys vfs.FS, dir string, epoch int64) error {
	b := fmt.Appendf(nil, `{"version":0,"brokerEpoch":%d}`, epoch)
	if err := vfs.WriteFileAtomic(fsys, filepath.Join(dir, cleanShutdownFile), b); err != nil {
		return fmt.Errorf("write clean shutdown marker: %w", err)
	}
	return nil
}

// parsePartitionDir reads the name of a partition's directory.
func parsePartitionDir(name string) (TopicPartition, bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 {
		return TopicPartition{}, false
	}
	digits := name[i+1:]
	if digits == "" || len(digits) > 1 && digits[0] == '0' || slices.ContainsFunc([]byte(digits), func(c byte) bool { return c < '0' || c > '9' }) {
		return TopicPartition{}, false
	}
	p, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return TopicPartition{}, false
	}
	return TopicPartition{name[:i], int32(p)}, true
}

// parseSegmentFile reads the name of a segment's file: 20 digits and a suffix.
func parseSegmentFile(name string) (base int64, suffix string, ok bool) {
	if len(name) < 21 || name[20] != '.' {
		return 0, "", false
	}
	base, err := strconv.ParseInt(name[:20], 10, 64)
	if err != nil || base < 0 {
		return 0, "", false
	}
	return base, name[20:], true
}
