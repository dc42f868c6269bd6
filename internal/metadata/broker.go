package metadata

import (
	"slices"
	"strings"

	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// A Broker is a broker's registration as of the last change of it. Source: Kafka's
// BrokerRegistration.
type Broker struct {
	ID int32
	// Epoch is the offset of the record that registered this incarnation; a request that names
	// another is STALE_BROKER_EPOCH.
	Epoch       int64
	Incarnation uuid.UUID // chosen by the process at its start
	Endpoints   []Endpoint
	Features    []FeatureRange // by name
	Rack        *string        // nil if it has none
	// Fenced: it leads nothing and clients do not see it; every broker begins so.
	Fenced bool
	// InControlledShutdown: it keeps its replicas but is to lead nothing.
	InControlledShutdown bool
	// LogDirs are the ids of its online log directories; empty below metadata.version 17.
	LogDirs []uuid.UUID
	// CordonedLogDirs take no new replicas; nil while the broker did not say, which is not the
	// same as having none.
	CordonedLogDirs []uuid.UUID
}

// An Endpoint is where a node listens.
type Endpoint struct {
	Name             string // of the listener
	Host             string
	Port             uint16
	SecurityProtocol int16 // Kafka's code: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL
}

// A FeatureRange says which levels of a feature a node supports, both inclusive.
type FeatureRange struct {
	Name     string
	Min, Max int16
}

// Endpoint returns where the broker listens under a listener's name.
func (b *Broker) Endpoint(listener string) (Endpoint, bool) { return endpoint(b.Endpoints, listener) }

// HasLogDir reports whether a log directory is one of the broker's online ones. It is true for
// every id while the broker did not list any, as below metadata.version 17.
func (b *Broker) HasLogDir(id uuid.UUID) bool {
	return len(b.LogDirs) == 0 || slices.Contains(b.LogDirs, id)
}

// A Controller is a controller's registration (KIP-919).
type Controller struct {
	ID          int32
	Incarnation uuid.UUID
	Endpoints   []Endpoint
	Features    []FeatureRange // by name
	// ZkMigrationReady is carried along for Apache's sake.
	ZkMigrationReady bool
}

// Endpoint returns where the controller listens under a listener's name.
func (c *Controller) Endpoint(listener string) (Endpoint, bool) {
	return endpoint(c.Endpoints, listener)
}

func endpoint(all []Endpoint, listener string) (Endpoint, bool) {
	i := slices.IndexFunc(all, func(e Endpoint) bool { return e.Name == listener })
	if i < 0 {
		return Endpoint{}, false
	}
	return all[i], true
}

func newBroker(r *records.RegisterBrokerRecord) *Broker {
	b := &Broker{
		ID: r.BrokerID, Epoch: r.BrokerEpoch, Incarnation: r.IncarnationID, Rack: r.Rack,
		Fenced: r.Fenced, InControlledShutdown: r.InControlledShutdown,
		LogDirs: r.LogDirs, CordonedLogDirs: r.CordonedLogDirs,
	}
	for _, e := range r.EndPoints {
		b.Endpoints = append(b.Endpoints, Endpoint(e))
	}
	for _, f := range r.Features {
		b.Features = append(b.Features, FeatureRange{f.Name, f.MinSupportedVersion, f.MaxSupportedVersion})
	}
	sortFeatures(b.Features)
	return b
}

// record returns the record that newBroker makes b of.
func (b *Broker) record() *records.RegisterBrokerRecord {
	r := &records.RegisterBrokerRecord{
		BrokerID: b.ID, BrokerEpoch: b.Epoch, IncarnationID: b.Incarnation, Rack: b.Rack,
		Fenced: b.Fenced, InControlledShutdown: b.InControlledShutdown,
		LogDirs: b.LogDirs, CordonedLogDirs: b.CordonedLogDirs,
	}
	for _, e := range b.Endpoints {
		r.EndPoints = append(r.EndPoints, records.BrokerEndpoint(e))
	}
	for _, f := range b.Features {
		r.Features = append(r.Features, records.BrokerFeature{Name: f.Name, MinSupportedVersion: f.Min, MaxSupportedVersion: f.Max})
	}
	return r
}

func newController(r *records.RegisterControllerRecord) *Controller {
	c := &Controller{ID: r.ControllerID, Incarnation: r.IncarnationID, ZkMigrationReady: r.ZkMigrationReady}
	for _, e := range r.EndPoints {
		c.Endpoints = append(c.Endpoints, Endpoint(e))
	}
	for _, f := range r.Features {
		c.Features = append(c.Features, FeatureRange{f.Name, f.MinSupportedVersion, f.MaxSupportedVersion})
	}
	sortFeatures(c.Features)
	return c
}

// record returns the record that newController makes c of.
func (c *Controller) record() *records.RegisterControllerRecord {
	r := &records.RegisterControllerRecord{ControllerID: c.ID, IncarnationID: c.Incarnation, ZkMigrationReady: c.ZkMigrationReady}
	for _, e := range c.Endpoints {
		r.EndPoints = append(r.EndPoints, records.ControllerEndpoint(e))
	}
	for _, f := range c.Features {
		r.Features = append(r.Features, records.ControllerFeature{Name: f.Name, MinSupportedVersion: f.Min, MaxSupportedVersion: f.Max})
	}
	return r
}

// sortFeatures gives an order to what records hold in none.
func sortFeatures(f []FeatureRange) {
	slices.SortFunc(f, func(a, b FeatureRange) int { return strings.Compare(a.Name, b.Name) })
}
