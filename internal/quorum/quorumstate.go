package quorum

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"ottla/internal/uuid"
)

// quorumState is Kafka's quorum-state file (QuorumStateData.json). ottla keeps its votes elsewhere and writes this one
// for the day Apache Kafka takes the directory over: it must not begin in an epoch that was used.
// Reading it serves the other direction.
type quorumState struct {
	LeaderID         int32  `json:"leaderId"`
	LeaderEpoch      int32  `json:"leaderEpoch"`
	VotedID          int32  `json:"votedId"`
	VotedDirectoryID string `json:"votedDirectoryId,omitempty"` // version 1
	DataVersion      *int16 `json:"data_version"`
}

func (q quorumState) encode() []byte {
	version := int16(1)
	q.DataVersion = &version
	if q.VotedDirectoryID == "" {
		q.VotedDirectoryID = uuid.Zero.String()
	}
	b, err := json.Marshal(q)
	if err != nil {
		panic(err) // a struct of numbers and a string always marshals
	}
	return b
}

func decodeQuorumState(b []byte) (quorumState, error) {
	q := quorumState{LeaderID: NoLeader, LeaderEpoch: -1, VotedID: NoLeader}
	if err := json.Unmarshal(b, &q); err != nil {
		return q, err
	}
	switch {
	case q.DataVersion == nil:
		return q, errors.New("it has no data_version")
	case *q.DataVersion < 0 || *q.DataVersion > 1:
		return q, fmt.Errorf("its data_version is %d, and 0 and 1 are known", *q.DataVersion)
	case q.LeaderEpoch < -1 || q.LeaderEpoch == math.MaxInt32:
		return q, fmt.Errorf("its leaderEpoch is %d", q.LeaderEpoch)
	}
	return q, nil
}
