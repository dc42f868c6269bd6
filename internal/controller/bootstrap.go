package controller

import (
	"fmt"

	"ottla/internal/metadata"
	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// bootstrap emits the first records of a cluster: what it was formatted with, and otherwise the features at the levels of
// Kafka's StorageTool. formatted are framed metadata records. They are one transaction, as Apache Kafka 4.4 writes it.
func (t *turn) bootstrap(formatted [][]byte) error {
	first, err := bootstrapRecords(formatted)
	if err != nil {
		return err
	}
	level := int16(0)
	elr := false
	for _, m := range first {
		f, ok := m.(*records.FeatureLevelRecord)
		if ok && f.Name == protocol.FeatureMetadataVersion {
			level = f.FeatureLevel
		}
		elr = elr || ok && f.Name == protocol.FeatureELR && f.FeatureLevel > 0
	}
	if elr { // the ELR depends on it: it must be the same on all brokers
		value := t.config.String(minISRKey)
		first = append(first, &records.ConfigRecord{ResourceType: int8(metadata.BrokerConfig), Name: minISRKey, Value: &value})
	}
	if protocol.MetadataVersion(level) >= protocol.TransactionsSince {
		name := "Bootstrap records"
		first = append([]records.Message{&records.BeginTransactionRecord{Name: &name}}, first...)
		first = append(first, &records.EndTransactionRecord{})
	}
	for _, m := range first {
		version, ok := records.MetadataRecordVersion(m, level)
		if !ok {
			return fmt.Errorf("the bootstrap checkpoint holds a %T, which metadata.version %d does not have; format the directory again", m, level)
		}
		t.add(m, version)
	}
	return nil
}

func bootstrapRecords(formatted [][]byte) ([]records.Message, error) {
	var out []records.Message
	for i, value := range formatted {
		m, _, err := records.DecodeMetadata(value)
		if err != nil {
			return nil, fmt.Errorf("record %d of the bootstrap checkpoint: %w", i, err)
		}
		out = append(out, m)
	}
	if len(out) > 0 {
		return out, nil
	}
	// metadata.version comes first: it says how the others are to be read.
	out = append(out, &records.FeatureLevelRecord{Name: protocol.FeatureMetadataVersion, FeatureLevel: int16(protocol.MetadataVersionLatest)})
	for _, f := range protocol.Features() {
		// kraft.version is in control records only.
		if f.Name != protocol.FeatureMetadataVersion && f.Name != protocol.FeatureKRaftVersion && f.Default > 0 {
			out = append(out, &records.FeatureLevelRecord{Name: f.Name, FeatureLevel: f.Default})
		}
	}
	return out, nil
}

// securityProtocols are Kafka's codes.
var securityProtocols = map[string]int16{"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

// registerSelf emits where this controller listens, unless the metadata says so already.
func (t *turn) registerSelf(incarnation uuid.UUID, endpoints []metadata.Endpoint) {
	if t.version < protocol.ControllerRegistrationSince || len(endpoints) == 0 {
		return
	}
	if c := t.image().Controller(t.nodeID); c != nil && c.Incarnation == incarnation {
		return
	}
	r := &records.RegisterControllerRecord{ControllerID: t.nodeID, IncarnationID: incarnation}
	for _, e := range endpoints {
		r.EndPoints = append(r.EndPoints, records.ControllerEndpoint(e))
	}
	for _, f := range protocol.Features() {
		r.Features = append(r.Features, records.ControllerFeature{Name: f.Name, MinSupportedVersion: f.Min, MaxSupportedVersion: f.Max})
	}
	t.emit(r)
}
