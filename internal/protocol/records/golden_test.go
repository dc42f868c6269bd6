package records_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"ottla/internal/protocol/records"
	"ottla/internal/record"
)

// eachRecord calls f with the records of a file in testdata, which Apache Kafka wrote (make.sh).
func eachRecord(t *testing.T, file string, f func(h record.Header, r record.Record) error) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for len(b) > 0 {
		h, err := record.ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := record.Iterate(b, func(r record.Record) error { return f(h, r) }); err != nil {
			t.Fatal(err)
		}
		b = b[h.Size():]
	}
}

// TestApache reads every record of a metadata log and of a snapshot of Apache Kafka's and writes the
// same bytes.
func TestApache(t *testing.T) {
	kinds := map[string]int{}
	for _, file := range []string{"metadata.log", "metadata.checkpoint"} {
		eachRecord(t, file, func(h record.Header, r record.Record) error {
			again, m, err := decodeAgain(h, r)
			if err != nil {
				return err
			}
			if !bytes.Equal(again, r.Value) {
				t.Errorf("%s offset %d: %T %+v\n is %x,\nApache has %x", file, r.Offset, m, m, again, r.Value)
			}
			kinds[fmt.Sprintf("%T", m)]++
			return nil
		})
	}
	if len(kinds) < 22 {
		t.Errorf("the files hold %d kinds of records only", len(kinds))
	}
}

func decodeAgain(h record.Header, r record.Record) ([]byte, records.Message, error) {
	if !h.Attributes.Control() {
		m, version, err := records.DecodeMetadata(r.Value)
		if err != nil {
			return nil, nil, err
		}
		return records.AppendMetadata(nil, m, version), m, nil
	}
	kind, err := record.ParseControlKey(r.Key)
	if err != nil {
		return nil, nil, err
	}
	m := map[record.ControlType]records.Message{
		record.ControlLeaderChange: new(records.LeaderChangeMessage), record.ControlKRaftVersion: new(records.KRaftVersionRecord),
		record.ControlKRaftVoters: new(records.VotersRecord), record.ControlSnapshotHeader: new(records.SnapshotHeaderRecord),
		record.ControlSnapshotFooter: new(records.SnapshotFooterRecord),
	}[kind]
	version := int16(r.Value[0])<<8 | int16(r.Value[1]) // the first field of each
	if err := records.Decode(r.Value, m, version); err != nil {
		return nil, nil, err
	}
	return records.Append(nil, m, version), m, nil
}
