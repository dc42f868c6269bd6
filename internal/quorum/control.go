package quorum

import (
	"errors"
	"fmt"
	"slices"

	"ottla/internal/protocol/records"
	"ottla/internal/record"
)

// kraftVersion is the level of kraft.version that ottla's quorums have: voters are named in the log, with
// their directories and addresses (KIP-853). Levels 0 and 1 are understood.
const kraftVersion = 1

// appendControl adds a control record to a control batch.
func appendControl(b *record.Builder, timestamp int64, t record.ControlType, m records.Message) *record.Builder {
	b.Append(record.Record{Timestamp: timestamp, Key: record.AppendControlKey(nil, t), Value: records.Append(nil, m, 0)})
	return b
}

// appendVoters adds the two records that name the voters, as Apache Kafka's leader writes them into a fresh log.
func appendVoters(b *record.Builder, timestamp int64, voters []Replica) *record.Builder {
	m := new(records.VotersRecord)
	for _, r := range voters {
		voter := records.VotersVoter{VoterID: r.NodeID, VoterDirectoryID: r.DirectoryID}
		voter.KRaftVersionFeature.MaxSupportedVersion = kraftVersion
		for _, e := range r.Endpoints {
			voter.Endpoints = append(voter.Endpoints, records.VotersEndpoint{Name: e.Name, Host: e.Host, Port: e.Port})
		}
		m.Voters = append(m.Voters, voter)
	}
	appendControl(b, timestamp, record.ControlKRaftVersion, &records.KRaftVersionRecord{KRaftVersion: kraftVersion})
	return appendControl(b, timestamp, record.ControlKRaftVoters, m)
}

// appendLeaderChange appends the control batch with which a leader begins, not yet placed in the log. group are the
// members of the quorum; voters, if any, are what the log is to say of them from here on.
func appendLeaderChange(dst []byte, timestamp int64, leader int32, group []member, voters []Replica) []byte {
	b := record.NewBuilder(dst, record.BatchOptions{Flags: record.FlagControl})
	m := &records.LeaderChangeMessage{LeaderID: leader}
	for _, g := range group {
		m.Voters = append(m.Voters, records.LeaderChangeVoter{VoterID: g.nodeID})
	}
	// Raft does not tell who granted its vote; nobody reads it.
	m.GrantingVoters = []records.LeaderChangeVoter{{VoterID: leader}}
	appendControl(b, timestamp, record.ControlLeaderChange, m)
	if len(voters) > 0 {
		appendVoters(b, timestamp, voters)
	}
	return b.Bytes()
}

// appendSnapshotHead fills the first batch of a checkpoint.
func appendSnapshotHead(b *record.Builder, timestamp int64, head checkpointHead) *record.Builder {
	appendControl(b, timestamp, record.ControlSnapshotHeader, &records.SnapshotHeaderRecord{LastContainedLogTimestamp: head.timestamp})
	if len(head.voters) > 0 {
		appendVoters(b, timestamp, head.voters)
	}
	return b
}

// appendSnapshotFooter fills the last batch of a checkpoint.
func appendSnapshotFooter(b *record.Builder, timestamp int64) *record.Builder {
	return appendControl(b, timestamp, record.ControlSnapshotFooter, new(records.SnapshotFooterRecord))
}

// eachControl calls visit with each record of a control batch.
func eachControl(batch []byte, visit func(t record.ControlType, r record.Record) error) error {
	return record.Iterate(batch, func(r record.Record) error {
		t, err := record.ParseControlKey(r.Key)
		if err != nil {
			return err
		}
		return visit(t, r)
	})
}

// absorb reads the control batches among batches and brings leader and voters up to date with them.
func absorb(batches []byte, leader *leadership, voters *[]Replica) error {
	return eachBatch(batches, func(h record.Header, batch []byte) error {
		if !h.Attributes.Control() {
			return nil
		}
		return eachControl(batch, func(t record.ControlType, r record.Record) error {
			switch t {
			case record.ControlLeaderChange:
				id, err := parseLeaderChange(r.Value)
				*leader = leadership{id: id, epoch: h.LeaderEpoch, offset: r.Offset}
				return err
			case record.ControlKRaftVoters:
				var err error
				*voters, err = parseVoters(r.Value)
				return err
			}
			return nil
		})
	})
}

// controlVersion returns the version of a control record's value, which begins with it.
func controlVersion(value []byte) (int16, error) {
	if len(value) < 2 {
		return 0, errors.New("a control record has no version: it is cut off")
	}
	return int16(value[0])<<8 | int16(value[1]), nil
}

func decodeControl(value []byte, m records.Message) error {
	version, err := controlVersion(value)
	if err != nil {
		return err
	}
	return records.Decode(value, m, version)
}

func parseLeaderChange(value []byte) (int32, error) {
	m := new(records.LeaderChangeMessage)
	err := decodeControl(value, m)
	return m.LeaderID, err
}

func parseVoters(value []byte) ([]Replica, error) {
	m := new(records.VotersRecord)
	if err := decodeControl(value, m); err != nil {
		return nil, err
	}
	voters := make([]Replica, 0, len(m.Voters))
	for _, v := range m.Voters {
		r := Replica{NodeID: v.VoterID, DirectoryID: v.VoterDirectoryID}
		for _, e := range v.Endpoints {
			r.Endpoints = append(r.Endpoints, Endpoint{Name: e.Name, Host: e.Host, Port: e.Port})
		}
		voters = append(voters, r)
	}
	return voters, nil
}

// parseSnapshotHead reads the first batch of a checkpoint.
func parseSnapshotHead(h record.Header, batch []byte) (checkpointHead, error) {
	var head checkpointHead
	found := false
	if !h.Attributes.Control() {
		return head, errors.New("it does not begin with a snapshot header")
	}
	err := eachControl(batch, func(t record.ControlType, r record.Record) error {
		switch t {
		case record.ControlSnapshotHeader:
			m := new(records.SnapshotHeaderRecord)
			err := decodeControl(r.Value, m)
			head.timestamp, found = m.LastContainedLogTimestamp, true
			return err
		case record.ControlKRaftVoters:
			var err error
			head.voters, err = parseVoters(r.Value)
			return err
		}
		return nil
	})
	if err == nil && !found {
		err = errors.New("it does not begin with a snapshot header")
	}
	if err != nil {
		return head, fmt.Errorf("snapshot header: %w", err)
	}
	return head, nil
}

// endsSnapshot reports whether a control batch is the footer of a checkpoint.
func endsSnapshot(batch []byte) (bool, error) {
	last := false
	err := eachControl(batch, func(t record.ControlType, _ record.Record) error {
		last = t == record.ControlSnapshotFooter
		return nil
	})
	return last, err
}

// sameVoters reports whether two lists name the same voters at the same addresses, in whatever order.
func sameVoters(a, b []Replica) bool {
	if len(a) != len(b) {
		return false
	}
	for _, r := range a {
		same := func(o Replica) bool {
			return o.NodeID == r.NodeID && o.DirectoryID == r.DirectoryID && slices.Equal(o.Endpoints, r.Endpoints)
		}
		if !slices.ContainsFunc(b, same) {
			return false
		}
	}
	return true
}
