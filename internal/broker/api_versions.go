package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
	"ottla/internal/protocol"
)

// apiVersions answers a client of a broker listener; its range was checked by transport.
func (b *Broker) apiVersions(_ context.Context, req *kmsg.ApiVersionsRequest) *kmsg.ApiVersionsResponse {
	return apiVersions(req, protocol.OnBroker, b.image())
}

// apiVersions tells what a listener serves and which features the cluster has (KIP-584). The finalized features' epoch is
// the metadata offset that they were read at.
func apiVersions(req *kmsg.ApiVersionsRequest, listener protocol.Listener, img *metadata.Image) *kmsg.ApiVersionsResponse {
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	resp.ApiKeys = protocol.Advertised(listener, req.ClientSoftwareName)
	for _, f := range protocol.Features() {
		if req.Version < 4 && f.Min == 0 {
			f.Min = 1 // a client before version 4 takes a minimum of 0 for an error (KAFKA-17011)
		}
		s := kmsg.NewApiVersionsResponseSupportedFeature()
		s.Name, s.MinVersion, s.MaxVersion = f.Name, f.Min, f.Max
		resp.SupportedFeatures = append(resp.SupportedFeatures, s)
	}
	resp.FinalizedFeaturesEpoch = img.Offset
	for name, level := range img.Features() {
		f := kmsg.NewApiVersionsResponseFinalizedFeature()
		f.Name, f.MinVersionLevel, f.MaxVersionLevel = name, level, level
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, f)
	}
	return resp
}
