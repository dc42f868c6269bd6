package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol"
)

// TestApiVersionsRequests are checked as Apache Kafka checks them (ApiVersionsRequest.isValid).
func TestApiVersionsRequests(t *testing.T) {
	cluster := kmsg.StringPtr("c")
	for _, test := range []struct {
		what          string
		version       int16
		name, release string
		cluster       *string
		node          int32
		want          int16
	}{
		{"no name before version 3", 2, "", "", nil, -1, 0},
		{"name and version", 3, "apache-kafka-java", "4.4.0", nil, -1, 0},
		{"no name", 3, "", "", nil, -1, kerr.InvalidRequest.Code},
		{"no version", 4, "kgo", "", nil, -1, kerr.InvalidRequest.Code},
		{"name with a space", 4, "a b", "1", nil, -1, kerr.InvalidRequest.Code},
		{"name that ends with a dash", 4, "a-", "1", nil, -1, kerr.InvalidRequest.Code},
		{"cluster and node", 5, "kgo", "1", cluster, 7, 0},
		{"cluster alone", 5, "kgo", "1", cluster, -1, kerr.InvalidRequest.Code},
		{"node alone", 5, "kgo", "1", nil, 7, kerr.InvalidRequest.Code},
		{"another cluster", 5, "kgo", "1", kmsg.StringPtr("d"), 7, kerr.RebootstrapRequired.Code},
		{"another node", 5, "kgo", "1", cluster, 8, kerr.RebootstrapRequired.Code},
	} {
		b := &Broker{clusterID: "c", nodeID: 7, images: newImages()}
		req := &kmsg.ApiVersionsRequest{Version: test.version, ClientSoftwareName: test.name, ClientSoftwareVersion: test.release, ClusterID: test.cluster, NodeID: test.node}
		if got := b.apiVersions(t.Context(), req); got.ErrorCode != test.want || (got.ErrorCode == 0) != (len(got.ApiKeys) == len(protocol.Advertised(protocol.OnBroker, test.name))) {
			t.Errorf("%s: code %d with %d APIs, want %d", test.what, got.ErrorCode, len(got.ApiKeys), test.want)
		}
	}
}
