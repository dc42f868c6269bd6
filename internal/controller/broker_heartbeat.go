package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
	"ottla/internal/protocol"
	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// brokerHeartbeat keeps a broker's session alive and moves it on: unfenced once it has applied its own
// registration, through a controlled shutdown when it wants to stop. Source: Kafka's
// ReplicationControlManager.processBrokerHeartbeat, BrokerHeartbeatManager.calculateNextBrokerState.
func (t *turn) brokerHeartbeat(req *kmsg.BrokerHeartbeatRequest) answer {
	resp := req.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
	resp.IsFenced = true
	if err := t.checkBroker(req.BrokerID, req.BrokerEpoch); err != nil {
		resp.ErrorCode, _ = codeOf(err)
		return reply(resp)
	}
	s := t.sessions.touch(req.BrokerID, req.CurrentMetadataOffset, t.now)
	t.directoriesOffline(req)
	t.directoriesCordoned(req)
	b := t.image().Broker(req.BrokerID)
	resp.IsCaughtUp = req.CurrentMetadataOffset >= b.Epoch
	if b.Fenced {
		t.heartbeatFenced(req, resp)
		return reply(resp)
	}
	switch {
	case !req.WantFence && !req.WantShutdown:
		resp.IsFenced = false
	case !req.WantShutdown:
		t.fence(b.ID)
	case t.stopsNow(b, s):
		t.fence(b.ID)
		resp.ShouldShutdown = true
	default:
		resp.IsFenced = false
	}
	return reply(resp)
}

func (t *turn) heartbeatFenced(req *kmsg.BrokerHeartbeatRequest, resp *kmsg.BrokerHeartbeatResponse) {
	switch {
	case req.WantShutdown:
		resp.ShouldShutdown = true
	case !req.WantFence && resp.IsCaughtUp:
		t.unfence(req.BrokerID)
		resp.IsFenced = false
	}
}

// stopsNow moves the leaderships of a broker that wants to stop, and says whether it may: it leads nothing and
// the other brokers know who does.
func (t *turn) stopsNow(b *metadata.Broker, s *session) bool {
	if !b.InControlledShutdown {
		if !t.leads(b.ID) {
			return true
		}
		t.shutDown(b.ID)
		s.shutdownOffset = t.image().Offset + int64(len(t.emitted))
		return false
	}
	return !t.leads(b.ID) && t.sessions.lowestOffset(t.image()) >= s.shutdownOffset
}

// directoriesOffline takes leaderships away from replicas in log directories that failed.
func (t *turn) directoriesOffline(req *kmsg.BrokerHeartbeatRequest) {
	b := t.image().Broker(req.BrokerID)
	offline := directoryIDs(req.OfflineLogDirs)
	online := make([]uuid.UUID, 0, len(b.LogDirs))
	for _, d := range b.LogDirs {
		if !slices.Contains(offline, d) {
			online = append(online, d)
		}
	}
	if len(online) == len(b.LogDirs) || len(online) == 0 || t.version < protocol.DirectoriesSince {
		return
	}
	t.emit(&records.BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, LogDirs: online})
	t.elections(departure{remove: b.ID, unclean: nobody}, func(p *metadata.Partition) bool {
		dir, ok := p.Directory(b.ID)
		return ok && slices.Contains(offline, dir) && slices.Contains(p.ISR, b.ID)
	})
}

// directoriesCordoned notes which directories take no new replicas.
func (t *turn) directoriesCordoned(req *kmsg.BrokerHeartbeatRequest) {
	b := t.image().Broker(req.BrokerID)
	if req.CordonedLogDirs == nil || t.version < protocol.CordonedDirsSince {
		return
	}
	cordoned := directoryIDs(req.CordonedLogDirs)
	if b.CordonedLogDirs != nil && slices.Equal(b.CordonedLogDirs, cordoned) {
		return
	}
	t.emit(&records.BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, CordonedLogDirs: cordoned})
}
