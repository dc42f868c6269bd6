package controller

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
)

// Values of UpdateFeaturesRequest.UpgradeType (KIP-584).
const (
	upgradeOnly     int8 = 1
	safeDowngrade   int8 = 2
	unsafeDowngrade int8 = 3
)

// updateFeatures changes finalized feature levels, all or none. Source: Kafka's FeatureControlManager.
func (t *turn) updateFeatures(req *kmsg.UpdateFeaturesRequest) answer {
	resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	var failed error
	for i := range req.FeatureUpdates {
		u := &req.FeatureUpdates[i]
		err := t.checkFeatureUpdate(u, req.Version)
		if slices.ContainsFunc(req.FeatureUpdates[:i], func(o kmsg.UpdateFeaturesRequestFeatureUpdate) bool { return o.Feature == u.Feature }) {
			err = refuse(kerr.InvalidRequest, "Feature %s is named twice", u.Feature)
		}
		rr := kmsg.NewUpdateFeaturesResponseResult()
		rr.Feature = u.Feature
		rr.ErrorCode, rr.ErrorMessage = codeOf(err)
		resp.Results = append(resp.Results, rr)
		if failed == nil {
			failed = err
		}
	}
	if failed != nil {
		if req.Version >= 2 { // one for all
			resp.Results = nil
			resp.ErrorCode, resp.ErrorMessage = codeOf(failed)
		}
		return reply(resp)
	}
	if req.Version >= 2 {
		resp.Results = nil
	}
	if !req.ValidateOnly {
		for i := range req.FeatureUpdates {
			t.setFeature(&req.FeatureUpdates[i])
		}
	}
	return reply(resp)
}

func (t *turn) setFeature(u *kmsg.UpdateFeaturesRequestFeatureUpdate) {
	if t.image().FeatureLevel(u.Feature) == u.MaxVersionLevel {
		return
	}
	turnsELRoff := u.Feature == protocol.FeatureELR && u.MaxVersionLevel == 0
	turnsELRon := u.Feature == protocol.FeatureELR && u.MaxVersionLevel > 0
	if turnsELRon { // the ELR depends on it: it must not differ between brokers any longer
		t.pinMinISR()
	}
	t.emit(&records.FeatureLevelRecord{Name: u.Feature, FeatureLevel: u.MaxVersionLevel})
	if turnsELRoff {
		t.emit(&records.ClearElrRecord{})
	}
}

// pinMinISR makes min.insync.replicas a setting of the cluster and takes it from the brokers.
func (t *turn) pinMinISR() {
	if _, ok := t.image().ConfigValue(minISRKey, metadata.ClusterDefaults); !ok {
		value := t.config.String(minISRKey)
		t.emit(&records.ConfigRecord{ResourceType: int8(metadata.BrokerConfig), Name: minISRKey, Value: &value})
	}
	for b := range t.image().Brokers() {
		if _, ok := t.image().ConfigValue(minISRKey, metadata.BrokerResource(b.ID)); ok {
			t.emit(&records.ConfigRecord{ResourceType: int8(metadata.BrokerConfig), ResourceName: metadata.BrokerResource(b.ID).Name, Name: minISRKey})
		}
	}
}

func (t *turn) checkFeatureUpdate(u *kmsg.UpdateFeaturesRequestFeatureUpdate, version int16) error {
	kind := u.UpgradeType
	if version == 0 {
		kind = upgradeOnly
		if u.AllowDowngrade {
			kind = safeDowngrade
		}
	}
	own := supported(u.Feature)
	now := t.image().FeatureLevel(u.Feature)
	bad := func(why string, args ...any) error {
		return refuse(kerr.InvalidUpdateVersion, "Invalid update version %d for feature %s. %s", u.MaxVersionLevel, u.Feature, fmt.Sprintf(why, args...))
	}
	switch {
	case kind < upgradeOnly || kind > unsafeDowngrade:
		return refuse(kerr.InvalidRequest, "The controller does not support the given upgrade type %d.", kind)
	case own == nil:
		return bad("Local controller %d does not support this feature.", t.nodeID)
	case u.MaxVersionLevel < own.Min || u.MaxVersionLevel > own.Max:
		return bad("Local controller %d only supports versions %d-%d", t.nodeID, own.Min, own.Max)
	case u.MaxVersionLevel == now:
		return nil
	case u.Feature == protocol.FeatureKRaftVersion:
		return bad("Its level is %d for good in a cluster of ottla controllers.", now)
	case u.MaxVersionLevel < now && kind == upgradeOnly:
		return bad("Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.")
	case u.MaxVersionLevel > now && kind != upgradeOnly:
		return bad("Can't downgrade to a newer version.")
	case u.MaxVersionLevel < now && u.Feature == protocol.FeatureMetadataVersion:
		return bad("Downgrades of it are not supported, records in the log may not fit the older level.")
	case u.Feature == protocol.FeatureELR && u.MaxVersionLevel > 0 && t.version < protocol.ELRSince:
		return bad("It needs metadata.version %s or newer.", protocol.ELRSince)
	}
	return t.allSupport(u)
}

func supported(feature string) *protocol.Feature {
	for _, f := range protocol.Features() {
		if f.Name == feature {
			return &f
		}
	}
	return nil
}

// allSupport makes sure that every registered node takes the new level.
func (t *turn) allSupport(u *kmsg.UpdateFeaturesRequestFeatureUpdate) error {
	check := func(kind string, id int32, ranges []metadata.FeatureRange) error {
		lo, hi := int16(0), int16(0)
		if i := slices.IndexFunc(ranges, func(f metadata.FeatureRange) bool { return f.Name == u.Feature }); i >= 0 {
			lo, hi = ranges[i].Min, ranges[i].Max
		}
		if u.MaxVersionLevel < lo || u.MaxVersionLevel > hi {
			return refuse(kerr.InvalidUpdateVersion, "Invalid update version %d for feature %s. %s %d only supports versions %d-%d",
				u.MaxVersionLevel, u.Feature, kind, id, lo, hi)
		}
		return nil
	}
	for b := range t.image().Brokers() {
		if err := check("Broker", b.ID, b.Features); err != nil {
			return err
		}
	}
	for c := range t.image().Controllers() {
		if err := check("Controller", c.ID, c.Features); err != nil {
			return err
		}
	}
	return nil
}
