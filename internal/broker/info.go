package broker

import (
	"fmt"
	"time"

	"ottla/internal/config"
	"ottla/internal/protocol"
)

// An Info tells what a node is, for people.
type Info struct {
	NodeID             int32
	ClusterID          string
	Formatted          bool // by this start: the log directories were empty
	Broker, Controller bool
	Endpoints          []config.Endpoint // for clients, as advertised
	LogDirs            []string
	MetadataVersion    protocol.MetadataVersion
	Partitions         int   // replicas here
	Bytes              int64 // that they hold
	Took               time.Duration
}

// Info returns what this node is. Took is the time from Start to ready.
func (b *Broker) Info() Info {
	info := Info{
		NodeID: b.nodeID, ClusterID: b.clusterID, Formatted: b.formatted, Broker: b.static.IsBroker(), Controller: b.static.IsController(),
		Endpoints: b.advertised(protocol.OnBroker), LogDirs: b.static.LogDirs(), MetadataVersion: b.image().MetadataVersion(), Took: b.took,
	}
	if b.replicas != nil {
		for _, d := range b.dataDirs() {
			info.Partitions += len(d.Logs())
			info.Bytes += d.Size()
		}
	}
	return info
}

// Ready says why the broker does not serve, or nil.
func (b *Broker) Ready() error {
	if err := b.Err(); err != nil {
		return err
	}
	if state := b.lifecycle.State(); b.static.IsBroker() && state != StateRunning {
		return fmt.Errorf("the broker does not serve: it is in state %q", state)
	}
	return nil
}

// Live says why the node should be restarted, or nil.
func (b *Broker) Live() error { return b.Err() }

// State is what the broker is doing, by Kafka's names of BrokerState in lower case.
func (b *Broker) State() string { return b.lifecycle.State().String() }
