package records

// recordLevels says from which metadata.version on a metadata record may be written, and from which
// on in which version. Records that are not listed have one version, and every level has them.
// Source: Apache Kafka 4.4.0's MetadataVersion, by the levels of its log.
var recordLevels = map[int16][]levelVersion{
	(*RegisterBrokerRecord)(nil).APIKey():            {{7, 1}, {8, 2}, {17, 3}, {30, 4}},
	(*BrokerRegistrationChangeRecord)(nil).APIKey():  {{7, 1}, {17, 2}, {30, 3}},
	(*PartitionRecord)(nil).APIKey():                 {{7, 0}, {17, 1}, {23, 2}},
	(*PartitionChangeRecord)(nil).APIKey():           {{7, 0}, {17, 1}, {23, 2}},
	(*UserScramCredentialRecord)(nil).APIKey():       {{11, 0}},
	(*RemoveUserScramCredentialRecord)(nil).APIKey(): {{11, 0}},
	(*BeginTransactionRecord)(nil).APIKey():          {{13, 0}},
	(*EndTransactionRecord)(nil).APIKey():            {{13, 0}},
	(*AbortTransactionRecord)(nil).APIKey():          {{13, 0}},
	(*DelegationTokenRecord)(nil).APIKey():           {{14, 0}},
	(*RemoveDelegationTokenRecord)(nil).APIKey():     {{14, 0}},
	(*RegisterControllerRecord)(nil).APIKey():        {{15, 0}},
	(*ClearElrRecord)(nil).APIKey():                  {{23, 0}},
	(*UnregisterControllerRecord)(nil).APIKey():      {{33, 0}},
}

type levelVersion struct{ level, version int16 }

// MetadataRecordVersion returns the version in which a metadata record is written in a cluster whose
// metadata.version is level, and whether it may be written there at all: nodes of an older release
// that such a cluster may contain would not understand it.
func MetadataRecordVersion(m Message, level int16) (version int16, ok bool) {
	levels, listed := recordLevels[m.APIKey()]
	if !listed {
		return 0, true
	}
	for _, l := range levels {
		if level >= l.level {
			version, ok = l.version, true
		}
	}
	return version, ok
}
