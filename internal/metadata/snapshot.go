package metadata

import (
	"fmt"
	"maps"
	"slices"

	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
)

// Snapshot calls emit with records that make up the image, in the order in which Kafka's snapshots
// have them: metadata.version first, a topic before its partitions. The records share memory with
// the image. kraft.version is not among them: it is in the control records around a snapshot.
func (img *Image) Snapshot(emit func(records.Message)) {
	img.snapshotFeatures(emit)
	for c := range img.Controllers() {
		emit(c.record())
	}
	for b := range img.Brokers() {
		emit(b.record())
	}
	for t := range img.Topics() {
		emit(&records.TopicRecord{Name: t.Name, TopicID: t.ID})
		for id, p := range t.Partitions() {
			emit(p.record(t.ID, id))
		}
	}
	for r, config := range img.Configs() {
		for _, key := range slices.Sorted(maps.Keys(config)) {
			value := config[key]
			emit(&records.ConfigRecord{ResourceType: int8(r.Type), ResourceName: r.Name, Name: key, Value: &value})
		}
	}
	for q := range img.ClientQuotas() {
		q.records(emit)
	}
	if img.NextProducerID >= 0 {
		emit(&records.ProducerIdsRecord{BrokerID: -1, BrokerEpoch: -1, NextProducerID: img.NextProducerID})
	}
	for a := range img.ACLs() {
		emit(a)
	}
	for c := range img.ScramCredentials() {
		emit(c)
	}
	for t := range img.DelegationTokens() {
		emit(t)
	}
}

func (img *Image) snapshotFeatures(emit func(records.Message)) {
	if level := img.MetadataVersion(); level > 0 {
		emit(&records.FeatureLevelRecord{Name: protocol.FeatureMetadataVersion, FeatureLevel: int16(level)})
	}
	for name, level := range all(img.features) {
		if name != protocol.FeatureMetadataVersion {
			emit(&records.FeatureLevelRecord{Name: name, FeatureLevel: level})
		}
	}
}

// WriteSnapshot calls emit with the records of Snapshot as they stand in a file, in the versions
// that the finalized metadata.version has. What that level cannot express is an error, for a snapshot without it would be another
// state; the controller finalizes no such level. The bytes are emit's only until it returns.
func (img *Image) WriteSnapshot(emit func(value []byte)) (err error) {
	level := max(img.MetadataVersion(), protocol.MetadataVersionMin)
	var buffer []byte
	img.Snapshot(func(m records.Message) {
		version, ok := records.MetadataRecordVersion(m, int16(level))
		if !ok {
			err = fmt.Errorf("the metadata holds a %T, which metadata.version %s has no record for", m, level)
			return
		}
		buffer = records.AppendMetadata(buffer[:0], m, version)
		emit(buffer)
	})
	return err
}
