package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/config"
	"ottla/internal/protocol"
	"ottla/internal/quorum"
	"ottla/internal/storage"
	"ottla/internal/uuid"
)

// openDirs takes the log directories, checks that they belong to this node and to one cluster, and formats those that are
// empty.
func (b *Broker) openDirs(ctx, _ context.Context) error {
	c := b.static
	for _, path := range b.paths() {
		d, err := storage.OpenDir(ctx, storage.DirOptions{
			FS: b.fs, Path: path, NodeID: b.nodeID, RecoveryThreads: c.Int("num.recovery.threads.per.data.dir"),
			MaxProducers:  maxProducers(c, len(b.paths())),
			ScrubRate:     cmp.Or(c.Bytes("ottla.log.scrub.bytes.per.second"), -1),
			FlushInterval: flushInterval(c), CheckpointInterval: checkpointInterval(c),
			RetentionInterval: c.Duration("log.retention.check.interval.ms"), Registerer: b.registerer, Logger: b.loggers.named("storage"),
			OnFailure: func(err error) { b.dirFailed(path, err) },
			LogConfig: func(topic string) storage.LogConfig { return b.stored(topic) },
		})
		if err != nil {
			return err
		}
		b.dirs = append(b.dirs, d)
		b.undo = append(b.undo, func() error { return b.closeDir(d) })
	}
	return b.settleClusterID(ctx)
}

// flushInterval is how long records wait for the background flush; negative, for ever.
func flushInterval(c *config.Config) time.Duration {
	return cmp.Or(c.Duration("ottla.log.flush.background.ms"), -1) // to package storage 0 is its default
}

// checkpointInterval is the shortest time that one of the files may go without being written: a log directory writes recovery points, log
// start offsets and high watermarks together.
func checkpointInterval(c *config.Config) time.Duration {
	shortest := min(c.Duration("log.flush.offset.checkpoint.interval.ms"), c.Duration("log.flush.start.offset.checkpoint.interval.ms"),
		c.Duration("replica.high.watermark.checkpoint.interval.ms"))
	return max(shortest, 0) // of which package storage makes its default
}

// maxProducers is how many producers each of so many log directories may remember.
func maxProducers(c *config.Config, dirs int) int64 {
	const entry = 200 // bytes, of package storage for each
	all := c.Bytes("ottla.max.producer.ids")
	if all == 0 {
		all = memoryLimit(c.Bytes("ottla.memory.limit")) / 16 / entry
	}
	return max(1, all/int64(dirs))
}

// paths are the log directories and that of the metadata log, each once.
func (b *Broker) paths() []string {
	paths := b.static.LogDirs()
	for _, p := range paths {
		if p == b.static.MetadataLogDir() {
			return paths
		}
	}
	return append(paths, b.static.MetadataLogDir())
}

// metadataDir is the directory that holds the metadata log.
func (b *Broker) metadataDir() *storage.Dir {
	for _, d := range b.dirs {
		if d.Path() == b.static.MetadataLogDir() {
			return d
		}
	}
	panic("broker: the directory of the metadata log was not opened: " + b.static.MetadataLogDir())
}

// settleClusterID finds out which cluster this node belongs to and formats empty directories for it.
func (b *Broker) settleClusterID(ctx context.Context) error {
	var named *storage.Dir
	for _, d := range b.dirs {
		switch id := d.ClusterID(); {
		case id == "":
		case named == nil:
			named, b.clusterID = d, id
		case id != b.clusterID:
			return fmt.Errorf("%s belongs to cluster %s, but %s to cluster %s: log.dirs must all be of one cluster", named.Path(), b.clusterID, d.Path(), id)
		}
	}
	configured := b.static.String("ottla.cluster.id")
	switch {
	case named != nil && configured != "" && configured != b.clusterID:
		return fmt.Errorf("%s belongs to cluster %s, but ottla.cluster.id is %s: point log.dirs at another directory, or take the key out", named.Path(), b.clusterID, configured)
	case named == nil:
		id, err := b.newClusterID(ctx, configured)
		if err != nil {
			return err
		}
		b.clusterID = id
	}
	for _, d := range b.dirs {
		if d.Formatted() {
			continue
		}
		if err := d.Format(b.clusterID, b.nodeID); err != nil {
			return err
		}
		b.formatted = true
	}
	return nil
}

// newClusterID decides the cluster of a node whose directories are all empty: the one configured, a new one if this node
// is the only controller there is, else that of the controllers.
func (b *Broker) newClusterID(ctx context.Context, configured string) (string, error) {
	switch {
	case configured != "":
		return configured, nil
	case !b.static.IsController():
		return b.askClusterID(ctx)
	case b.isLoneVoter():
		return uuid.Random().String(), nil
	}
	return "", fmt.Errorf("the log directories are empty and there are other controllers: which cluster is this? "+
		"Set ottla.cluster.id to the same id on every node; for a new cluster take %s", uuid.Random())
}

func (b *Broker) isLoneVoter() bool {
	voters := b.static.Voters()
	return len(voters) == 0 && b.static.LoneNode() || len(voters) == 1 && voters[0].ID == b.nodeID
}

// askClusterID asks the controllers which cluster they are.
func (b *Broker) askClusterID(ctx context.Context) (string, error) {
	c := controllers{nodeID: b.nodeID, dial: b.dial}
	c.reset()
	defer c.close()
	req := kmsg.NewPtrDescribeClusterRequest()
	req.SetVersion(1)
	req.EndpointType = controllerEndpoints
	var errs []error
	for _, known := range b.knownControllers() {
		for _, e := range known.Endpoints {
			answer, err := c.at(ctx, e, req)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if resp := answer.(*kmsg.DescribeClusterResponse); resp.ClusterID != "" {
				return resp.ClusterID, nil
			}
		}
	}
	return "", fmt.Errorf("the log directories are empty and no controller says which cluster this is: %w", errors.Join(errs...))
}

// knownControllers are the controllers that the configuration names.
func (b *Broker) knownControllers() (out []quorum.Replica) {
	name := b.static.ControllerListenerNames()[0]
	for _, v := range b.static.Voters() {
		out = append(out, quorum.Replica{NodeID: v.ID, Endpoints: []quorum.Endpoint{{Name: name, Host: v.Host, Port: uint16(v.Port)}}})
	}
	for _, s := range b.static.BootstrapServers() {
		if len(b.static.Voters()) == 0 {
			out = append(out, quorum.Replica{NodeID: -1, Endpoints: []quorum.Endpoint{{Name: name, Host: s.Host, Port: uint16(s.Port)}}})
		}
	}
	return out
}

// voters are the controllers that decide together, this one with its directory and the addresses it really listens at.
func (b *Broker) voters(dir uuid.UUID) []quorum.Replica {
	self := quorum.Replica{NodeID: b.nodeID, DirectoryID: dir}
	for _, e := range b.advertised(protocol.OnController) {
		self.Endpoints = append(self.Endpoints, quorum.Endpoint{Name: e.Name, Host: e.Host, Port: uint16(e.Port)})
	}
	out := []quorum.Replica{self}
	for _, known := range b.knownControllers() {
		if known.NodeID >= 0 && known.NodeID != b.nodeID {
			out = append(out, known)
		}
	}
	return out
}

// dirFailed reacts to a log directory whose disk failed: its partitions are out of service, and the next heartbeat tells
// the controller, which elects others. A node that has no directory left, or lost that of the metadata, cannot go on.
func (b *Broker) dirFailed(path string, err error) {
	b.logger.Error("a log directory is out of service", "dir", path, "error", err)
	if path == b.static.MetadataLogDir() {
		b.fail(fmt.Errorf("log directory %s, which holds the metadata log, failed: %w", path, err))
		return
	}
	if b.replicas == nil {
		return // the start fails, or the replicas' own
	}
	b.replicas.DirFailed(path, err)
	if !slices.ContainsFunc(b.dataDirs(), func(d *storage.Dir) bool { return d.Err() == nil }) {
		b.fail(fmt.Errorf("no log directory is left, the last was %s: %w", path, err))
	}
}

// dataDirs are the log directories, that of the metadata log only if it is one of them.
func (b *Broker) dataDirs() (out []*storage.Dir) {
	for _, path := range b.static.LogDirs() {
		for _, d := range b.dirs {
			if d.Path() == path {
				out = append(out, d)
			}
		}
	}
	return out
}

// failedDirs are the ids of the log directories that are out of service.
func (b *Broker) failedDirs() (ids []uuid.UUID) {
	for _, d := range b.dirs {
		if d.Err() != nil {
			ids = append(ids, d.ID())
		}
	}
	return ids
}

// closeDir leaves a log directory: as cleanly shut if its logs were opened, else as it was found. A broker that never registered
// took nothing in: what the last one lost or kept is still what counts.
func (b *Broker) closeDir(d *storage.Dir) error {
	clean, epoch := d.Clean(), d.CleanShutdownEpoch()
	if b.recovered {
		clean = true
		if registered := b.lifecycle.epoch.Load(); registered >= 0 {
			epoch = registered
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), dirCloseWait)
	defer cancel()
	if b.quorumEnded == nil || d != b.metadataDir() {
		return d.Close(ctx, epoch, clean)
	}
	closed := make(chan error, 1)
	go func() {
		<-b.quorumEnded // or another process might take the directory while the metadata log is still written to
		closed <- d.Close(ctx, epoch, clean)
	}()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("close log directory %s, with the metadata log in it: %w", d.Path(), errHangs)
	}
}
