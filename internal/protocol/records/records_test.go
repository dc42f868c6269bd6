package records

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/uuid"
)

// TestBytes compares with bytes written down from Apache Kafka, or worked out by hand from the
// protocol guide.
func TestBytes(t *testing.T) {
	alice := "alice"
	change := NewPartitionChangeRecord()
	change.PartitionID, change.TopicID, change.ISR, change.Leader = 3, uuid.UUID{15: 9}, []int32{1, 2}, 1
	emptyELR := NewPartitionChangeRecord()
	emptyELR.EligibleLeaderReplicas = []int32{}
	for _, c := range []struct {
		what    string
		message Message
		version int16
		bytes   string
	}{
		{"principal in an Envelope, without its version", &DefaultPrincipalData{Type: "User", Name: "ANONYMOUS"}, 0,
			"05 55736572 0a 414e4f4e594d4f5553 00 00"},
		{"KRaftVersion", &KRaftVersionRecord{KRaftVersion: 1}, 0, "0000 0001 00"},
		{"tags in order, their sizes before them", change, 2,
			"00000003 00000000000000000000000000000009 02 00 09 03 00000001 00000002 01 04 00000001"},
		{"empty is not null", emptyELR, 2,
			"ffffffff 00000000000000000000000000000000 01 06 01 01"},
		{"a field its version lacks", emptyELR, 1,
			"ffffffff 00000000000000000000000000000000 00"},
		{"not flexible", &TransactionLogValue{PreviousProducerID: -1, NextProducerID: -1, NextProducerEpoch: -1, ProducerID: 1, TransactionPartitions: nil}, 0,
			"0000000000000001 0000 00000000 00 ffffffff 0000000000000000 0000000000000000"},
		{"null and present strings", &ClientQuotaRecord{Entity: []EntityData{{"user", &alice}, {"client-id", nil}}, Key: "k", Value: 1}, 0,
			"03 05 75736572 06 616c696365 00 0a 636c69656e742d6964 00 00 02 6b 3ff0000000000000 00 00"},
		{"null where the default is an empty struct", &ConsumerGroupMemberMetadataValue{ClientID: "c", SubscribedTopicRegex: new(string)}, 0,
			"00 00 02 63 01 01 01 00000000 00 01 00 01 00"},
		{"a struct in a tag", &ConsumerGroupMemberMetadataValue{ClientID: "c", ClassicMemberMetadata: &ClassicMemberMetadata{SessionTimeoutMs: 1}}, 0,
			"00 00 02 63 01 01 00 00000000 00 01 00 07 01 00000001 01 00"},
		{"producer snapshot", &ProducerSnapshot{CRC: 1, ProducerEntries: []ProducerEntry{{CurrentTxnFirstOffset: -1}}}, 1,
			"00000001 00000001 0000000000000000 0000 00000000 0000000000000000 00000000 0000000000000000 00000000 ffffffffffffffff"},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(c.bytes, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := Append(nil, c.message, c.version); !bytes.Equal(got, want) {
			t.Errorf("%s: %x, Kafka writes %x", c.what, got, want)
		}
		again := reflect.New(reflect.TypeOf(c.message).Elem()).Interface().(Message)
		if err := Decode(want, again, c.version); err != nil || !bytes.Equal(Append(nil, again, c.version), want) {
			t.Errorf("%s: Kafka's bytes are read as %+v, %v", c.what, again, err)
		}
	}
}

// TestLongTag has a tagged field whose size takes two bytes.
func TestLongTag(t *testing.T) {
	change := NewPartitionChangeRecord()
	change.Directories = make([]uuid.UUID, 20)
	change.LastKnownELR = []int32{1}
	b := Append(nil, change, 2)
	back := new(PartitionChangeRecord)
	if err := Decode(b, back, 2); err != nil || !reflect.DeepEqual(back, change) {
		t.Errorf("%+v came back as %+v, %v", change, back, err)
	}
}

// TestAgainstKmsg compares with the records that franz-go has as well.
func TestAgainstKmsg(t *testing.T) {
	leader := "leader"
	value := NewGroupMetadataValue()
	value.ProtocolType, value.Generation, value.Leader, value.CurrentStateTimestamp = "consumer", 4, &leader, 7
	member := NewMemberMetadata()
	member.MemberID, member.ClientHost, member.RebalanceTimeout, member.Subscription = "m", "/h", 5, []byte{1, 2}
	value.Members = []MemberMetadata{member}
	theirs := kmsg.NewGroupMetadataValue()
	theirs.Version, theirs.ProtocolType, theirs.Generation, theirs.Leader, theirs.CurrentStateTimestamp = 3, "consumer", 4, &leader, 7
	m := kmsg.NewGroupMetadataValueMember()
	m.MemberID, m.ClientHost, m.RebalanceTimeoutMillis, m.Subscription = "m", "/h", 5, []byte{1, 2}
	theirs.Members = append(theirs.Members, m)
	if got, want := AppendValue(nil, value, 3), theirs.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("group metadata: %x, kmsg writes %x", got, want)
	}
	key := kmsg.NewOffsetCommitKey()
	key.Version, key.Group, key.Topic, key.Partition = 1, "g", "t", 6
	if got, want := AppendKey(nil, &OffsetCommitKey{"g", "t", 6}), key.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("offset commit key: %x, kmsg writes %x", got, want)
	}
}

// everyMessage returns an empty message of every generated type.
func everyMessage() []Message {
	all := []Message{new(KRaftVersionRecord), new(LeaderChangeMessage), new(SnapshotFooterRecord), new(SnapshotHeaderRecord),
		new(VotersRecord), new(DefaultPrincipalData), new(ProducerSnapshot)}
	for key := int16(0); key < 100; key++ {
		for _, lookup := range []func(int16) Message{newMetadata, newGroupKey, newGroupValue, newTransactionKey, newTransactionValue, newShareKey, newShareValue} {
			if m := lookup(key); m != nil {
				all = append(all, m)
			}
		}
	}
	return all
}

// TestDefaultsEverywhere encodes a message without content in each of its versions and reads it back.
func TestDefaultsEverywhere(t *testing.T) {
	messages := everyMessage()
	if want := 7 + 27 + 44 + 2 + 4; len(messages) != want {
		t.Errorf("%d messages, Apache Kafka 4.4.0 has %d", len(messages), want)
	}
	for _, m := range messages {
		lowest, highest := m.Versions()
		for version := lowest; version <= highest; version++ {
			b := Append(nil, m, version)
			again := reflect.New(reflect.TypeOf(m).Elem()).Interface().(Message)
			if err := Decode(b, again, version); err != nil {
				t.Errorf("%s version %d: %v", name(m), version, err)
			}
			if got := Append(nil, again, version); !bytes.Equal(got, b) {
				t.Errorf("%s version %d: %x was read and written as %x", name(m), version, b, got)
			}
			if err := Decode(append(b, 0), again, version); err == nil {
				t.Errorf("%s version %d accepts a byte behind it", name(m), version)
			}
			for n := range b {
				if err := Decode(b[:n], again, version); err == nil {
					t.Errorf("%s version %d accepts %d of %d bytes", name(m), version, n, len(b))
				}
			}
		}
	}
}

func TestUnknown(t *testing.T) {
	for what, b := range map[string][]byte{
		"kind":    {1, 99, 0},
		"version": {1, 2, 1},
	} {
		_, _, err := DecodeMetadata(b)
		if unknown := new(UnknownError); !errors.As(err, &unknown) {
			t.Errorf("metadata record of unknown %s: %v", what, err)
		}
	}
	if _, _, err := DecodeMetadata([]byte{2, 2, 0}); err == nil {
		t.Error("frame version 2 was accepted")
	}
	// A tag from a later release is passed over.
	b := []byte{1, 20, 0, 1, 77, 3, 1, 2, 3}
	if m, _, err := DecodeMetadata(b); err != nil || !reflect.DeepEqual(m, &NoOpRecord{}) {
		t.Errorf("NoOpRecord with an unknown tag: %v, %v", m, err)
	}
	if _, _, err := DecodeGroup([]byte{0, 99, 1}, nil); !errors.As(err, new(*UnknownError)) {
		t.Errorf("group key of unknown kind: %v", err)
	}
}

func TestCoordinatorRecords(t *testing.T) {
	key, value := &ConsumerGroupMetadataKey{GroupID: "g"}, &ConsumerGroupMetadataValue{Epoch: 3}
	k, v, err := DecodeGroup(AppendKey(nil, key), AppendValue(nil, value, 0))
	if err != nil || !reflect.DeepEqual(k, key) || !reflect.DeepEqual(v, value) {
		t.Errorf("%+v %+v %v", k, v, err)
	}
	if k, v, err := DecodeGroup(AppendKey(nil, key), nil); err != nil || k == nil || v != nil {
		t.Errorf("tombstone: %+v %+v %v", k, v, err)
	}
}

func TestLevels(t *testing.T) {
	for _, c := range []struct {
		m       Message
		level   int16
		version int16
		ok      bool
	}{
		{&RegisterBrokerRecord{}, 7, 1, true}, {&RegisterBrokerRecord{}, 20, 3, true}, {&RegisterBrokerRecord{}, 33, 4, true},
		{&PartitionRecord{}, 16, 0, true}, {&PartitionRecord{}, 17, 1, true}, {&PartitionRecord{}, 33, 2, true},
		{&UserScramCredentialRecord{}, 10, 0, false}, {&UserScramCredentialRecord{}, 11, 0, true},
		{&UnregisterControllerRecord{}, 32, 0, false}, {&TopicRecord{}, 7, 0, true},
	} {
		if version, ok := MetadataRecordVersion(c.m, c.level); version != c.version || ok != c.ok {
			t.Errorf("%s at level %d: version %d, %t; Kafka has %d, %t", name(c.m), c.level, version, ok, c.version, c.ok)
		}
	}
}

// FuzzDecode holds every decoder to this: no panic, and what it accepts it writes again as something
// it reads as the same.
func FuzzDecode(f *testing.F) {
	messages := everyMessage()
	for i, m := range messages {
		_, highest := m.Versions()
		f.Add(uint8(i), uint8(highest), Append(nil, m, highest))
	}
	f.Fuzz(func(t *testing.T, which, v uint8, b []byte) {
		m, version := messages[int(which)%len(messages)], int16(v)
		if Decode(b, m, version) != nil {
			return
		}
		once := Append(nil, m, version)
		if err := Decode(once, m, version); err != nil {
			t.Fatalf("%s: %x was accepted and written as %x: %v", name(m), b, once, err)
		}
		if again := Append(nil, m, version); !bytes.Equal(once, again) {
			t.Errorf("%s: %x is written as %x", name(m), once, again)
		}
	})
}
