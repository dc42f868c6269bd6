package broker

import (
	"context"
	"regexp"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
	"ottla/internal/protocol"
)

// apiVersions answers a client of a broker listener; its range was checked by transport. One that looks for another cluster or
// node than this, say because an address has been given to another machine, is sent back to its bootstrap servers.
func (b *Broker) apiVersions(_ context.Context, req *kmsg.ApiVersionsRequest) *kmsg.ApiVersionsResponse {
	if validApiVersions(req) && req.ClusterID != nil && (*req.ClusterID != b.clusterID || req.NodeID != b.nodeID) {
		return failed[*kmsg.ApiVersionsResponse](req, kerr.RebootstrapRequired)
	}
	return apiVersions(req, protocol.OnBroker, b.image())
}

// apiVersions tells what a listener serves and which features the cluster has (KIP-584). The finalized features' epoch is
// the metadata offset that they were read at.
func apiVersions(req *kmsg.ApiVersionsRequest, listener protocol.Listener, img *metadata.Image) *kmsg.ApiVersionsResponse {
	if !validApiVersions(req) {
		return failed[*kmsg.ApiVersionsResponse](req, kerr.InvalidRequest)
	}
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

// software is what a client's name and version look like (KIP-511).
var software = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

// validApiVersions reports whether a request says from version 3 on what software sends it, and names, from version 5 on, either both
// a cluster and a node, or neither. Source: ApiVersionsRequest.isValid.
func validApiVersions(req *kmsg.ApiVersionsRequest) bool {
	switch {
	case req.Version >= 5 && (req.ClusterID == nil) != (req.NodeID == -1):
		return false
	case req.Version >= 3:
		return software.MatchString(req.ClientSoftwareName) && software.MatchString(req.ClientSoftwareVersion)
	}
	return true
}
