package broker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"ottla/internal/metadata"
	"ottla/internal/protocol/records"
	"ottla/internal/quorum"
)

// The applier follows the committed metadata and puts it into effect, in this order: configurations change, partitions
// become leaders or followers, then the image is published that requests are answered from. So no client is told of a leader
// that does not know it yet. It never waits for a disk: package replica does that on goroutines of its own.
//
// Replicas are not touched before this broker has seen its own registration in the log: then all that was committed before
// it is applied too, and what the metadata does not mention really is not there.

// follow applies what the quorum yields until ctx ends. The error says why the metadata can be followed no further.
func (b *Broker) follow(ctx context.Context) error {
	cursor := b.quorum.Cursor()
	loader := metadata.NewLoader(metadata.Empty)
	snapshots := &snapshots{
		maxBytes: b.static.Bytes("metadata.log.max.record.bytes.between.snapshots"),
		interval: b.static.Duration("metadata.log.max.snapshot.interval.ms"), last: time.Now(),
	}
	for {
		event, err := cursor.Next(ctx)
		if err != nil {
			return err
		}
		delta, err := load(loader, event)
		if err != nil {
			return err
		}
		if delta != nil {
			b.apply(ctx, delta, loader.Image())
		}
		if snapshots.read(event, time.Now()); b.voter == nil {
			b.snapshotIfDue(ctx, snapshots, loader)
		}
	}
}

// load turns an event into a delta; nil if it changes nothing.
func load(loader *metadata.Loader, event quorum.Event) (*metadata.Delta, error) {
	switch e := event.(type) {
	case quorum.Batch:
		return loader.Batch(metadata.Batch{BaseOffset: e.BaseOffset, LastOffset: e.LastOffset, Epoch: e.Epoch, Timestamp: e.Timestamp, Values: e.Values})
	case quorum.Snapshot:
		delta, err := loader.Snapshot(e.ID.EndOffset-1, e.ID.Epoch, e.Timestamp, e.Values)
		if errors.Is(err, fs.ErrNotExist) { // deleted meanwhile, since a newer one is there, which comes next
			return nil, nil
		}
		return delta, err
	case quorum.LeaderChange:
		return loader.SetKRaftVersion(1), nil // the only level that ottla's own log has and that it joins at
	}
	return nil, fmt.Errorf("the metadata quorum yielded a %T", event)
}

// apply puts one delta into effect.
func (b *Broker) apply(background context.Context, delta *metadata.Delta, img *metadata.Image) {
	b.applyConfigs(delta, img)
	switch {
	case b.replicas == nil:
	case b.caughtUp:
		b.host(delta, img)
	case b.isRegistered(img):
		b.caughtUp = true
		b.host(whole(img), img)
		b.goes(background, "set stray partitions aside", b.replicas.SetStraysAside)
	}
	b.images.publish(img)
	b.lifecycle.applied()
}

// host has replicas, and then what is coordinated on them, follow the metadata.
func (b *Broker) host(delta *metadata.Delta, img *metadata.Image) {
	b.replicas.Apply(delta)
	b.groups.Apply(delta, img)
	b.endRecoveries(delta)
}

// isRegistered reports whether the image holds the registration of this very process.
func (b *Broker) isRegistered(img *metadata.Image) bool {
	br := img.Broker(b.nodeID)
	return br != nil && br.Incarnation == b.incarnation
}

// whole is the delta that leads from nothing to an image.
func whole(img *metadata.Image) *metadata.Delta {
	d := metadata.NewDelta(metadata.Empty)
	img.Snapshot(func(m records.Message) {
		if err := d.Replay(m); err != nil {
			panic(fmt.Sprintf("broker: an image's own records do not make an image: %v", err))
		}
	})
	d.Apply(img.Offset, img.Epoch)
	return d
}

// applyConfigs recomputes this node's configuration if a dynamic setting of it, or of all brokers, changed.
func (b *Broker) applyConfigs(delta *metadata.Delta, img *metadata.Image) {
	own := metadata.BrokerResource(b.nodeID)
	for change := range delta.Configs() {
		if change.Key == own || change.Key == metadata.ClusterDefaults {
			b.reconfigure(img.Config(own), img.Config(metadata.ClusterDefaults))
			return
		}
	}
}

// reconfigure lays dynamic settings over the static configuration and tells those who keep a value of it.
func (b *Broker) reconfigure(own, defaults map[string]string) {
	c := b.static.WithDynamic(own, defaults)
	b.effective.Store(c)
	b.server.SetLimits(connectionLimits(c))
	if b.replicas != nil {
		b.replicas.SetLagTimeMax(c.Duration("replica.lag.time.max.ms"))
		b.replicas.Reconfigure()
		b.groups.Configure(c)
	}
}
