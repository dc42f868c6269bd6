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
	for i := range req.FeatureUpdates {
		u := &req.FeatureUpdates[i]
		err := t.checkFeatureUpdate(u, req.Version)
		if slices.ContainsFunc(req.FeatureUpdates[:i], func(o kmsg.UpdateFeaturesRequestFeatureUpdate) bool { return o.Feature == u.Feature }) {
			err = refuse(kerr.InvalidRequest, "Feature %s is named twice", u.Feature)
		}
		if code, text := codeOf(err); code != 0 {
			all := "The update failed for all features since the following feature had an error: " + *text
			resp.ErrorCode, resp.ErrorMessage = code, &all
			return reply(resp)
		}
	}
	for i := range req.FeatureUpdates {
		u := &req.FeatureUpdates[i]
		if req.Version < 2 { // later versions have nothing to say of the single feature
			rr := kmsg.NewUpdateFeaturesResponseResult()
			rr.Feature, rr.ErrorMessage = u.Feature, kmsg.StringPtr("NONE")
			resp.Results = append(resp.Results, rr)
		}
		if !req.ValidateOnly {
			t.setFeature(u)
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
		return bad("The controller does not support the given upgrade type.")
	case u.MaxVersionLevel < 0:
		return bad("A feature version cannot be less than 0.")
	case own == nil:
		return bad("Local controller %d does not support this feature.", t.nodeID)
	case u.MaxVersionLevel < own.Min || u.MaxVersionLevel > own.Max:
		return bad("Local controller %d only supports versions %d-%d", t.nodeID, own.Min, own.Max)
	case u.MaxVersionLevel == now:
		return nil
	case u.MaxVersionLevel < now && kind == upgradeOnly:
		return bad("Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.")
	case u.MaxVersionLevel > now && kind != upgradeOnly:
		return bad("Can't downgrade to a newer version.")
	case u.Feature == protocol.FeatureKRaftVersion: // for good: ottla's controllers begin with the newest
		return bad("Can't downgrade the version of this feature.")
	case u.MaxVersionLevel < now && u.Feature == protocol.FeatureMetadataVersion:
		// Apache lets a level go that changed nothing in the records; here none may.
		why := "Refusing to perform the requested downgrade because it might delete metadata information."
		if kind == unsafeDowngrade {
			why = "Unsafe metadata downgrade is not supported in this version."
		}
		return refuse(kerr.InvalidUpdateVersion, "Unsupported metadata.version downgrade from %d to %d. %s", now, u.MaxVersionLevel, why)
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
