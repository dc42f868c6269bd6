package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// stampedEpoch is the broker epoch in a RegisterBrokerRecord whose own offset is to take its place when the
// record gets one; every replica of the log does that alike.
const stampedEpoch int64 = -1

// brokerRegistration registers a broker's incarnation. Source: Kafka's ClusterControlManager.registerBroker.
func (t *turn) brokerRegistration(req *kmsg.BrokerRegistrationRequest) answer {
	resp := req.ResponseKind().(*kmsg.BrokerRegistrationResponse)
	resp.BrokerEpoch = -1
	if err := t.checkRegistration(req); err != nil {
		resp.ErrorCode, _ = codeOf(err)
		return reply(resp)
	}
	old := t.image().Broker(req.BrokerID)
	again := old != nil && old.Incarnation == req.IncarnationID
	r := registration(req)
	if t.version < protocol.DirectoriesSince {
		r.LogDirs = nil
	}
	r.BrokerEpoch = stampedEpoch
	if again {
		r.BrokerEpoch, r.Fenced, r.InControlledShutdown = old.Epoch, old.Fenced, old.InControlledShutdown
		r.CordonedLogDirs = old.CordonedLogDirs
	} else {
		t.sessions.begin(req.BrokerID, t.now)
	}
	t.emit(r)
	if old != nil && !again {
		t.succeed(old, req)
	}
	return func(offset int64) kmsg.Response {
		resp.BrokerEpoch = offset
		if again {
			resp.BrokerEpoch = old.Epoch
		}
		return resp
	}
}

// succeed takes the leaderships of a former incarnation away, and its place in the ISRs: where the new one cannot
// say that the old one stopped cleanly, it may have lost what was not yet on its disk.
func (t *turn) succeed(old *metadata.Broker, req *kmsg.BrokerRegistrationRequest) {
	id := req.BrokerID
	if !t.elr() || req.PreviousBrokerEpoch == old.Epoch {
		t.elections(departure{remove: id, unclean: nobody}, inISR(id))
		return
	}
	t.elections(departure{remove: nobody, unclean: id}, func(p *metadata.Partition) bool {
		return slices.Contains(p.ISR, id) || slices.Contains(p.ELR, id)
	})
}

func registration(req *kmsg.BrokerRegistrationRequest) *records.RegisterBrokerRecord {
	r := records.NewRegisterBrokerRecord()
	r.BrokerID, r.IncarnationID, r.Rack, r.IsMigratingZkBroker = req.BrokerID, req.IncarnationID, req.Rack, false
	r.Fenced = true
	for _, l := range req.Listeners {
		r.EndPoints = append(r.EndPoints, records.BrokerEndpoint{Name: l.Name, Host: l.Host, Port: l.Port, SecurityProtocol: l.SecurityProtocol})
	}
	for _, f := range req.Features {
		r.Features = append(r.Features, records.BrokerFeature{Name: f.Name, MinSupportedVersion: f.MinSupportedVersion, MaxSupportedVersion: f.MaxSupportedVersion})
	}
	for _, d := range req.LogDirs {
		r.LogDirs = append(r.LogDirs, d)
	}
	return r
}

// checkRegistration refuses what Apache Kafka refuses, and what it lets in to its own harm: names, ids and ports that
// nothing can be reached by.
func (t *turn) checkRegistration(req *kmsg.BrokerRegistrationRequest) error {
	if req.ClusterID != t.clusterID {
		return refuse(kerr.InconsistentClusterID, "broker %d belongs to cluster %q, not to %q", req.BrokerID, req.ClusterID, t.clusterID)
	}
	if req.IsMigratingZkBroker {
		return refuse(kerr.BrokerIDNotRegistered, "broker %d migrates from ZooKeeper, which is gone", req.BrokerID)
	}
	if err := checkIdentity(req); err != nil {
		return err
	}
	old := t.image().Broker(req.BrokerID)
	if old != nil && old.Incarnation != req.IncarnationID && !t.sessions.replaceable(old, directoryIDs(req.LogDirs), t.now) {
		return refuse(kerr.DuplicateBrokerRegistration, "another process is registered as broker %d; if it is gone its session ends within %s", req.BrokerID, t.sessions.timeout)
	}
	ranges := make([]metadata.FeatureRange, len(req.Features))
	for i, f := range req.Features {
		ranges[i] = metadata.FeatureRange{Name: f.Name, Min: f.MinSupportedVersion, Max: f.MaxSupportedVersion}
	}
	if err := t.checkFeatures(ranges); err != nil {
		return err
	}
	return t.checkLogDirs(req)
}

func checkIdentity(req *kmsg.BrokerRegistrationRequest) error {
	if req.BrokerID < 0 {
		return refuse(kerr.InvalidRegistration, "broker id %d is negative", req.BrokerID)
	}
	if req.IncarnationID == uuid.Zero {
		return refuse(kerr.InvalidRegistration, "broker %d sent no incarnation id", req.BrokerID)
	}
	if len(req.Listeners) == 0 {
		return refuse(kerr.InvalidRegistration, "broker %d advertises no listener", req.BrokerID)
	}
	for i, l := range req.Listeners {
		if l.Name == "" || l.Host == "" || l.Port == 0 {
			return refuse(kerr.InvalidRegistration, "broker %d advertises a listener without name, host or port: %q at %q port %d",
				req.BrokerID, l.Name, l.Host, l.Port)
		}
		if slices.ContainsFunc(req.Listeners[:i], func(o kmsg.BrokerRegistrationRequestListener) bool { return o.Name == l.Name }) {
			return refuse(kerr.InvalidRegistration, "broker %d advertises listener %s twice", req.BrokerID, l.Name)
		}
	}
	return nil
}

// checkFeatures makes sure that a node supports the level of every finalized feature.
func (t *turn) checkFeatures(ranges []metadata.FeatureRange) error {
	find := func(name string) *metadata.FeatureRange {
		i := slices.IndexFunc(ranges, func(f metadata.FeatureRange) bool { return f.Name == name })
		if i < 0 {
			return nil
		}
		return &ranges[i]
	}
	if find(protocol.FeatureMetadataVersion) == nil {
		return refuse(kerr.InvalidRegistration, "Request features do not contain '%s'", protocol.FeatureMetadataVersion)
	}
	for name, level := range t.image().Features() {
		f := find(name)
		if f == nil { // it supports level 0 only
			f = &metadata.FeatureRange{Name: name}
		}
		if level < f.Min || level > f.Max {
			return refuse(kerr.UnsupportedVersion, "the cluster is at level %d of %s, the node supports levels %d to %d", level, name, f.Min, f.Max)
		}
	}
	return nil
}

func directoryIDs(ids [][16]byte) []uuid.UUID {
	out := make([]uuid.UUID, len(ids))
	for i, id := range ids {
		out[i] = id
	}
	return out
}

func (t *turn) checkLogDirs(req *kmsg.BrokerRegistrationRequest) error {
	if t.version < protocol.DirectoriesSince {
		return nil
	}
	dirs := directoryIDs(req.LogDirs)
	if len(dirs) == 0 {
		return refuse(kerr.InvalidRegistration, "No directories specified in request")
	}
	for i, d := range dirs {
		if d.IsReserved() {
			return refuse(kerr.InvalidRegistration, "Reserved directory ID %s in request", d)
		}
		if slices.Contains(dirs[:i], d) {
			return refuse(kerr.InvalidRegistration, "Duplicate directory ID %s in request", d)
		}
		for b := range t.image().Brokers() {
			if b.ID != req.BrokerID && slices.Contains(b.LogDirs, d) {
				return refuse(kerr.InvalidRegistration, "Broker %d is already registered with directory %s", b.ID, d)
			}
		}
	}
	return nil
}
