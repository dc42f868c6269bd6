// Package uuid is Kafka's Uuid: 16 bytes, printed as 22 characters of unpadded
// URL-safe base64. Topics, log directories, clusters and incarnations carry one.
// It is a leaf: every package may import it, it imports none of ours.
package uuid

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
)

// UUID identifies a topic, a log directory, a cluster or a broker incarnation.
// The zero value means "none" on the wire. Source: Kafka's Uuid class.
type UUID [16]byte

// The ids that Kafka reserves; Random never returns one.
var (
	// Zero stands for "no id"; as a directory id it means MIGRATING.
	Zero = UUID{}
	// Metadata is the topic id of __cluster_metadata; as a directory id it
	// means UNASSIGNED.
	Metadata = UUID{15: 1}
	// LostDir is the directory id of a replica whose log directory failed.
	LostDir = UUID{15: 2}
)

// reservedBelow is the number of lowest ids that Kafka keeps for itself
// (DirectoryId.reserved).
const reservedBelow = 100

// Random returns a new random id (RFC 4122, version 4) that is not reserved and
// whose text does not begin with a dash, so that it can stand on a command line.
func Random() UUID {
	for {
		var u UUID
		rand.Read(u[:]) // never fails since Go 1.24
		u[6] = u[6]&0x0f | 0x40
		u[8] = u[8]&0x3f | 0x80
		if !u.IsReserved() && u.String()[0] != '-' {
			return u
		}
	}
}

// IsReserved reports whether u is one of the ids that name no real thing.
func (u UUID) IsReserved() bool {
	for _, b := range u[:15] {
		if b != 0 {
			return false
		}
	}
	return u[15] < reservedBelow
}

// IsZero reports whether u is the "no id" value.
func (u UUID) IsZero() bool { return u == Zero }

// String returns the 22 characters Kafka prints.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// MarshalText returns the same, so that JSON and logs show an id as Kafka does. It never fails.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Parse reads the 22 characters that String gives.
func Parse(s string) (UUID, error) {
	var u UUID
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(u) {
		return Zero, fmt.Errorf("%q is not a Kafka uuid (22 characters of URL-safe base64)", s)
	}
	copy(u[:], b)
	return u, nil
}
