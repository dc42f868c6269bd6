package transport

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/protocol"
)

// TestFranzGo lets a real client talk to the server over TCP.
func TestFranzGo(t *testing.T) {
	address := startTCP(t, func(_ context.Context, r *Request) (Response, Pending) {
		switch req := r.Body.(type) {
		case *kmsg.ApiVersionsRequest:
			resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
			resp.ApiKeys = protocol.Advertised(protocol.OnBroker, req.ClientSoftwareName)
			return resp, nil
		case *kmsg.MetadataRequest:
			resp := req.ResponseKind().(*kmsg.MetadataResponse)
			resp.ClusterID = kmsg.StringPtr("q1Zr9a_tRk2xWb0hK3m7Ag")
			return resp, nil
		}
		return Close("not expected"), nil
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	if err != nil || resp.ClusterID == nil || *resp.ClusterID != "q1Zr9a_tRk2xWb0hK3m7Ag" {
		t.Errorf("answer %+v, %v", resp, err)
	}
}
