package controller

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
)

// controllerRegistration notes where a controller listens and what it supports (KIP-919).
func (t *turn) controllerRegistration(req *kmsg.ControllerRegistrationRequest) answer {
	resp := req.ResponseKind().(*kmsg.ControllerRegistrationResponse)
	r := &records.RegisterControllerRecord{ControllerID: req.ControllerID, IncarnationID: req.IncarnationID, ZkMigrationReady: req.ZkMigrationReady}
	var ranges []metadata.FeatureRange
	for _, f := range req.Features {
		r.Features = append(r.Features, records.ControllerFeature{Name: f.Name, MinSupportedVersion: f.MinSupportedVersion, MaxSupportedVersion: f.MaxSupportedVersion})
		ranges = append(ranges, metadata.FeatureRange{Name: f.Name, Min: f.MinSupportedVersion, Max: f.MaxSupportedVersion})
	}
	var err error
	for _, l := range req.Listeners {
		r.EndPoints = append(r.EndPoints, records.ControllerEndpoint{Name: l.Name, Host: l.Host, Port: l.Port, SecurityProtocol: l.SecurityProtocol})
		if l.Name == "" || l.Host == "" || l.Port == 0 {
			err = refuse(kerr.InvalidRegistration, "controller %d advertises a listener without name, host or port: %q at %q port %d",
				req.ControllerID, l.Name, l.Host, l.Port)
		}
	}
	if t.version < protocol.ControllerRegistrationSince {
		err = refuse(kerr.UnsupportedVersion, "metadata.version %s has no record of controllers", t.version)
	}
	if err == nil {
		err = t.checkFeatures(ranges)
	}
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeOf(err)
		return reply(resp)
	}
	t.emit(r)
	return reply(resp)
}
