package protocol

import "slices"

// Names of the features a cluster finalizes (KIP-584).
const (
	FeatureMetadataVersion = "metadata.version"
	FeatureKRaftVersion    = "kraft.version"
	FeatureTransaction     = "transaction.version"
	FeatureGroup           = "group.version"
	FeatureELR             = "eligible.leader.replicas.version"
	FeatureShare           = "share.version"
	FeatureStreams         = "streams.version"
)

// A Feature is a feature that ottla supports and the levels it may have.
type Feature struct {
	Name string
	// Min and Max are the levels a node offers at registration; a cluster whose
	// finalized level lies outside refuses it (UNSUPPORTED_VERSION).
	Min, Max int16
	// Default is the level at which ottla formats a cluster of its own: Apache
	// 4.4.0's latest production level, as StorageTool format chooses.
	Default int16
}

// features lists all of them by name. Levels: Apache Kafka 4.4.0's Feature and
// MetadataVersion, printed by a program.
var features = []Feature{
	{FeatureELR, 0, 1, 1},
	{FeatureGroup, 0, 1, 1},
	{FeatureKRaftVersion, 0, 1, 1},
	{FeatureMetadataVersion, int16(MetadataVersionMin), int16(MetadataVersionLatest), int16(MetadataVersionLatest)},
	{FeatureShare, 0, 2, 2},
	{FeatureStreams, 0, 1, 1},
	{FeatureTransaction, 0, 2, 2},
}

// Features returns the features ottla supports, by name. The caller owns the slice.
func Features() []Feature { return slices.Clone(features) }

// A MetadataVersion is a level of the feature metadata.version. It fixes the
// versions of the metadata records and of the requests between brokers.
type MetadataVersion int16

// Levels that code asks for.
const (
	MetadataVersionMin    MetadataVersion = 7  // 3.3-IV3, the first with KRaft in production
	MetadataVersionLatest MetadataVersion = 33 // 4.4-IV2

	// ScramSince: SCRAM credentials may be stored (3.5-IV2).
	ScramSince MetadataVersion = 11
	// NoEpochBumpOnShrinkSince: an ISR shrink leaves the leader epoch alone (3.6-IV0).
	NoEpochBumpOnShrinkSince MetadataVersion = 12
	// TransactionsSince: metadata records may be grouped in transactions (3.6-IV1).
	TransactionsSince MetadataVersion = 13
	// DelegationTokensSince: delegation tokens may be stored (3.6-IV2).
	DelegationTokensSince MetadataVersion = 14
	// ControllerRegistrationSince: controllers register (3.7-IV0).
	ControllerRegistrationSince MetadataVersion = 15
	// DirectoriesSince: replicas are assigned to log directories (3.7-IV2).
	DirectoriesSince MetadataVersion = 17
	// ELRSince: eligible leader replicas may be stored (4.0-IV1).
	ELRSince MetadataVersion = 23
	// CordonedDirsSince: log directories may be cordoned (4.3-IV0).
	CordonedDirsSince MetadataVersion = 30
	// CIDRACLsSince: an ACL's host may be an address range (4.4-IV1).
	CIDRACLsSince MetadataVersion = 32
	// ControllerUnregistrationSince: controllers may be unregistered (4.4-IV2).
	ControllerUnregistrationSince MetadataVersion = 33
)

// metadataVersionNames begin at MetadataVersionMin.
var metadataVersionNames = [...]string{
	"3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2",
	"3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0",
	"4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1",
	"4.3-IV0", "4.4-IV0", "4.4-IV1", "4.4-IV2",
}

// Supported reports whether ottla can live in a cluster finalized at this level.
func (v MetadataVersion) Supported() bool {
	return MetadataVersionMin <= v && v <= MetadataVersionLatest
}

// String returns Kafka's name of the level, such as 4.4-IV2, or "" for one that
// is not supported.
func (v MetadataVersion) String() string {
	if !v.Supported() {
		return ""
	}
	return metadataVersionNames[v-MetadataVersionMin]
}

// ParseMetadataVersion reads a name such as 4.4-IV2 or, short for the newest of
// its release, 4.4.
func ParseMetadataVersion(name string) (MetadataVersion, bool) {
	for v := MetadataVersionLatest; v >= MetadataVersionMin; v-- {
		full := v.String()
		if name == full || len(name) == len("4.4") && name == full[:len(name)] {
			return v, true
		}
	}
	return 0, false
}

// FetchVersion is the version of Fetch requests between nodes at this level
// (MetadataVersion.fetchRequestVersion).
func (v MetadataVersion) FetchVersion() int16 {
	switch {
	case v >= 27:
		return 18
	case v >= 21:
		return 17
	case v >= 19:
		return 16
	case v >= 10:
		return 15
	case v >= 9:
		return 14
	default:
		return 13
	}
}

// ListOffsetsVersion is the version of ListOffsets requests between nodes at this
// level (MetadataVersion.listOffsetRequestVersion).
func (v MetadataVersion) ListOffsetsVersion() int16 {
	switch {
	case v >= 29:
		return 11
	case v >= 25:
		return 10
	case v >= 21:
		return 9
	case v >= 9:
		return 8
	default:
		return 7
	}
}
