package controller

import (
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
	"ottla/internal/protocol/records"
)

// The types of a quota's entity. Source: ClientQuotaEntity.
const (
	quotaUser     = "user"
	quotaClientID = "client-id"
	quotaIP       = "ip"
)

// quotaKeys are the limits of users and clients, and whether they are whole numbers; those of addresses are ipQuotaKeys.
// Source: QuotaConfig.
var (
	quotaKeys   = map[string]bool{"producer_byte_rate": true, "consumer_byte_rate": true, "request_percentage": false, "controller_mutation_rate": false}
	ipQuotaKeys = map[string]bool{"connection_creation_rate": true}
)

// alterClientQuotas changes quotas, entry by entry. Source: Kafka's ClientQuotaControlManager.
func (t *turn) alterClientQuotas(req *kmsg.AlterClientQuotasRequest) answer {
	resp := req.ResponseKind().(*kmsg.AlterClientQuotasResponse)
	resp.Entries = []kmsg.AlterClientQuotasResponseEntry{}
	dry := t.dryIf(req.ValidateOnly)
	for i := range req.Entries {
		re := kmsg.NewAlterClientQuotasResponseEntry()
		for _, e := range req.Entries[i].Entity {
			x := kmsg.NewAlterClientQuotasResponseEntryEntity()
			x.Type, x.Name = e.Type, e.Name
			re.Entity = append(re.Entity, x)
		}
		re.ErrorCode, re.ErrorMessage = codeOf(dry.alterQuota(&req.Entries[i]))
		resp.Entries = append(resp.Entries, re)
	}
	return reply(resp)
}

func (t *turn) alterQuota(req *kmsg.AlterClientQuotasRequestEntry) error {
	keys, err := checkQuotaEntity(req.Entity)
	if err != nil {
		return err
	}
	for i := range req.Ops {
		if err := checkQuota(keys, &req.Ops[i]); err != nil {
			return err
		}
	}
	var entity metadata.QuotaEntity
	r := records.ClientQuotaRecord{}
	for _, e := range req.Entity {
		entity = append(entity, metadata.QuotaComponent{Type: e.Type, Name: e.Name})
		r.Entity = append(r.Entity, records.EntityData{EntityType: e.Type, EntityName: e.Name})
	}
	for _, op := range req.Ops {
		var now map[string]float64
		if q := t.image().ClientQuota(entity); q != nil {
			now = q.Limits
		}
		if was, ok := now[op.Key]; ok == !op.Remove && (op.Remove || was == op.Value) {
			continue
		}
		x := r
		x.Key, x.Remove = op.Key, op.Remove
		if !op.Remove {
			x.Value = op.Value
		}
		t.emit(&x)
	}
	return nil
}

// checkQuotaEntity returns the keys that an entity may have.
func checkQuotaEntity(entity []kmsg.AlterClientQuotasRequestEntryEntity) (map[string]bool, error) {
	if len(entity) == 0 {
		return nil, refuse(kerr.InvalidRequest, "Invalid empty client quota entity")
	}
	types := make([]string, len(entity))
	for i, e := range entity {
		types[i] = e.Type
		switch {
		case e.Type != quotaUser && e.Type != quotaClientID && e.Type != quotaIP:
			return nil, refuse(kerr.InvalidRequest, "Unhandled client quota entity type: %s", e.Type)
		case e.Name != nil && *e.Name == "":
			return nil, refuse(kerr.InvalidRequest, "Empty %s not supported", e.Type)
		case slices.Contains(types[:i], e.Type):
			return nil, refuse(kerr.InvalidRequest, "Duplicate client quota entity type: %s", e.Type)
		}
	}
	if !slices.Contains(types, quotaIP) {
		return quotaKeys, nil
	}
	if len(types) > 1 {
		return nil, refuse(kerr.InvalidRequest, "Invalid quota entity combination, IP entity should not be used with user or client-id.")
	}
	return ipQuotaKeys, nil
}

func checkQuota(keys map[string]bool, op *kmsg.AlterClientQuotasRequestEntryOp) error {
	whole, ok := keys[op.Key]
	switch {
	case !ok:
		return refuse(kerr.InvalidRequest, "Invalid configuration key %s", op.Key)
	case op.Remove:
		return nil
	case math.IsNaN(op.Value) || math.IsInf(op.Value, 0) || op.Value <= 0:
		return refuse(kerr.InvalidRequest, "Quota %s must be greater than 0", op.Key)
	case whole && op.Value != math.Trunc(op.Value):
		return refuse(kerr.InvalidRequest, "Configuration %s must be a whole number", op.Key)
	}
	return nil
}
