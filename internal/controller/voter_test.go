package controller

import (
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/config"
	"ottla/internal/quorum"
	"ottla/internal/uuid"
	"ottla/internal/vfs"
)

// A node is a lone controller over a real voter.
type node struct {
	voter      *quorum.Voter
	controller *Controller
}

func openNode(t *testing.T, fs vfs.FS, dir uuid.UUID, settings ...string) *node {
	t.Helper()
	fail := func(err error) { panic(err) }
	v, err := quorum.OpenVoter(quorum.VoterOptions{
		FS: fs, Dir: "data", ClusterID: testCluster, NodeID: 1, DirectoryID: dir, Logger: slog.New(slog.DiscardHandler), OnFailure: fail,
		Voters: []quorum.Replica{{NodeID: 1, DirectoryID: dir, Endpoints: []quorum.Endpoint{{Name: "CONTROLLER", Host: "localhost", Port: 9093}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := New(Options{
		NodeID: 1, ClusterID: testCluster, Config: testConfig(t, settings...), Quorum: v, Events: v.Cursor(), Logger: slog.New(slog.DiscardHandler), OnFailure: fail,
		Listeners: []config.Endpoint{{Name: "CONTROLLER", Host: "localhost", Port: 9093, SecurityProtocol: "PLAINTEXT"}},
	})
	return &node{v, c}
}

func (n *node) close(t *testing.T) {
	t.Helper()
	n.controller.Close()
	if err := n.voter.Close(); err != nil {
		t.Fatal(err)
	}
}

// register repeats the registration until this controller is the active one.
func (n *node) register(t *testing.T, incarnation byte) int64 {
	t.Helper()
	retry := time.NewTicker(time.Millisecond)
	defer retry.Stop()
	for {
		resp := ask[*kmsg.BrokerRegistrationResponse](t, n.controller, registrationOf(1, incarnation))
		switch resp.ErrorCode {
		case 0:
			return resp.BrokerEpoch
		case 41: // not yet
			<-retry.C
		default:
			t.Fatalf("registration: error code %d", resp.ErrorCode)
		}
	}
}

// TestVoter runs a cluster of one over its log: what was answered is there after a restart, and a broker that was
// killed with the controller comes back at once.
func TestVoter(t *testing.T) {
	fs, dir := vfs.NewMem(), uuid.Random()
	if err := fs.MkdirAll("data", 0o755); err != nil {
		t.Fatal(err)
	}
	n := openNode(t, fs, dir, "metadata.log.max.record.bytes.between.snapshots=500")
	epoch := n.register(t, 1)
	if hb := ask[*kmsg.BrokerHeartbeatResponse](t, n.controller, heartbeatOf(1, epoch, epoch)); hb.ErrorCode != 0 || hb.IsFenced {
		t.Fatalf("heartbeat: %+v", hb)
	}
	for _, topic := range []string{"a", "b", "c"} {
		if resp := ask[*kmsg.CreateTopicsResponse](t, n.controller, creationOf(topic)); resp.Topics[0].ErrorCode != 0 {
			t.Fatalf("create %s: %+v", topic, resp.Topics[0])
		}
	}
	n.close(t)

	n = openNode(t, fs, dir)
	defer func() { n.close(t) }()
	again := n.register(t, 2)
	if again <= epoch {
		t.Errorf("broker epoch %d after %d", again, epoch)
	}
	if hb := ask[*kmsg.BrokerHeartbeatResponse](t, n.controller, heartbeatOf(1, again, again)); hb.ErrorCode != 0 || hb.IsFenced {
		t.Fatalf("heartbeat after the restart: %+v", hb)
	}
	if resp := ask[*kmsg.CreateTopicsResponse](t, n.controller, creationOf("a")); resp.Topics[0].ErrorCode != 36 {
		t.Errorf("create a again: error code %d, want 36", resp.Topics[0].ErrorCode)
	}
}
