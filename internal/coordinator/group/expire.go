package group

import (
	"ottla/internal/protocol/records"
)

// expire removes offsets that nobody committed or could have wanted for offsets.retention.minutes, and groups that are
// left with nothing. Source: KIP-211; OffsetMetadataManager.cleanupExpiredOffsets.
func (m *Machine) expire() {
	for _, g := range m.sorted() {
		if m.expireOffsets(g) {
			m.deleteGroup(g)
		}
	}
	m.timers.set(timer{kind: expiryTimer}, m.now.Add(m.settings.OffsetsRetentionCheckInterval))
}

// expireOffsets reports whether nothing is left that keeps the group.
func (m *Machine) expireOffsets(g *group) bool {
	gone := g.isEmpty() && len(m.offsets.open[g.id]) == 0
	since, ok := g.retentionBegins()
	for _, k := range m.offsets.keys(g.id) {
		o, committed := m.offsets.get(k)
		if !ok || !committed || g.isSubscribed(k.topic) || m.offsets.isPending(k) || !m.expired(o, since) {
			gone = false
			continue
		}
		m.emitOffsetTombstone(k)
	}
	return gone
}

func (m *Machine) expired(o offset, since int64) bool {
	if o.expireMs >= 0 {
		return m.nowMs() >= o.expireMs
	}
	if since < 0 {
		since = o.commitMs
	}
	return m.nowMs()-since >= m.settings.OffsetsRetention.Milliseconds()
}

// retentionBegins returns when the retention of the group's offsets began: -1 for when each was committed. It is false if
// none may expire now.
func (g *group) retentionBegins() (int64, bool) {
	c := g.classic
	switch {
	case c == nil, c.protocolType == nil:
		return -1, true
	case c.state == stateEmpty:
		return c.stateSince, true
	case c.state == stateStable && c.subscribed != nil:
		return -1, true
	}
	return 0, false
}

// isEmpty reports whether the group may be removed: it has no members and none that was just handed an id.
func (g *group) isEmpty() bool {
	if g.classic != nil {
		return g.classic.state == stateEmpty && len(g.classic.pendingJoin) == 0
	}
	return len(g.consumer.members) == 0
}

// deleteGroup writes the tombstones of a group without members.
func (m *Machine) deleteGroup(g *group) {
	if g.consumer != nil {
		m.deleteConsumer(g.consumer)
		return
	}
	m.emit(Record{Key: &records.GroupMetadataKey{Group: g.id}})
}
