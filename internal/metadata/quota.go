package metadata

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"ottla/internal/protocol/records"
)

// A QuotaEntity is whom a quota limits: one or more of a user, a client id and an address.
type QuotaEntity []QuotaComponent

// A QuotaComponent is one part of a QuotaEntity.
type QuotaComponent struct {
	Type string  // "user", "client-id" or "ip"
	Name *string // nil for the default of that type
}

// key encodes the entity, whatever the order of its parts, so that no two entities have one key.
func (e QuotaEntity) key() string {
	parts := slices.SortedFunc(slices.Values(e), func(a, b QuotaComponent) int { return strings.Compare(a.Type, b.Type) })
	var key []byte
	for _, c := range parts {
		key = append(binary.AppendUvarint(key, uint64(len(c.Type))), c.Type...)
		if c.Name == nil {
			key = append(key, 0)
			continue
		}
		key = append(binary.AppendUvarint(key, uint64(len(*c.Name)+1)), *c.Name...)
	}
	return string(key)
}

// A ClientQuota is the limits of one entity.
type ClientQuota struct {
	Entity QuotaEntity
	Limits map[string]float64 // by key, such as producer_byte_rate; never empty
}

// with returns the limits of an entity after a record, nil if none is left. q may be nil.
func (q *ClientQuota) with(entity QuotaEntity, r *records.ClientQuotaRecord) *ClientQuota {
	next := &ClientQuota{Entity: entity}
	if q != nil {
		next.Limits = maps.Clone(q.Limits)
	}
	if r.Remove {
		delete(next.Limits, r.Key)
	} else {
		if next.Limits == nil {
			next.Limits = map[string]float64{}
		}
		next.Limits[r.Key] = r.Value
	}
	if len(next.Limits) == 0 {
		return nil
	}
	return next
}

func quotaEntity(r *records.ClientQuotaRecord) QuotaEntity {
	e := make(QuotaEntity, len(r.Entity))
	for i, c := range r.Entity {
		e[i] = QuotaComponent{Type: c.EntityType, Name: c.EntityName}
	}
	slices.SortFunc(e, func(a, b QuotaComponent) int { return cmp.Compare(a.Type, b.Type) })
	return e
}

// records yields the records that make up q.
func (q *ClientQuota) records(emit func(records.Message)) {
	for _, key := range slices.Sorted(maps.Keys(q.Limits)) {
		r := &records.ClientQuotaRecord{Key: key, Value: q.Limits[key]}
		for _, c := range q.Entity {
			r.Entity = append(r.Entity, records.EntityData{EntityType: c.Type, EntityName: c.Name})
		}
		emit(r)
	}
}
