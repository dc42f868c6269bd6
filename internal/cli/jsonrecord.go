package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A JSONRecord is a record as `consume -o jsonl` prints it and `produce -i jsonl` reads it, so that a
// topic can be piped into another with keys, headers and times. Text that is UTF-8 stands in key and
// value; other bytes stand, base64, in key_base64 and value_base64. A field that is null, or missing,
// is a null of Kafka: no key, or a tombstone.
type JSONRecord struct {
	Topic       string       `json:"topic,omitempty"`
	Partition   int32        `json:"partition" doc:"read by produce only with --keep-partitions"`
	Offset      int64        `json:"offset" doc:"not read by produce"`
	Timestamp   time.Time    `json:"timestamp,omitzero"`
	Key         *string      `json:"key"`
	KeyBytes    []byte       `json:"key_base64,omitempty"`
	Value       *string      `json:"value"`
	ValueBytes  []byte       `json:"value_base64,omitempty"`
	Headers     []JSONHeader `json:"headers,omitempty"`
	LeaderEpoch int32        `json:"leader_epoch,omitempty" doc:"not read by produce"`
}

// A JSONHeader is a header of a JSONRecord; names may repeat.
type JSONHeader struct {
	Name       string  `json:"name"`
	Value      *string `json:"value"`
	ValueBytes []byte  `json:"value_base64,omitempty"`
}

// toJSON converts a consumed record.
func toJSON(r *kgo.Record) JSONRecord {
	j := JSONRecord{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UTC(), LeaderEpoch: r.LeaderEpoch}
	j.Key, j.KeyBytes = textOrBytes(r.Key)
	j.Value, j.ValueBytes = textOrBytes(r.Value)
	for _, h := range r.Headers {
		header := JSONHeader{Name: h.Key}
		header.Value, header.ValueBytes = textOrBytes(h.Value)
		j.Headers = append(j.Headers, header)
	}
	return j
}

// textOrBytes puts UTF-8 on the one side and other bytes on the other; nil stays nil on both.
func textOrBytes(b []byte) (*string, []byte) {
	switch {
	case b == nil:
		return nil, nil
	case utf8.Valid(b):
		s := string(b)
		return &s, nil
	}
	return nil, b
}

func bytesOf(text *string, raw []byte) []byte {
	if text != nil {
		return []byte(*text)
	}
	return raw
}

// record converts back, for producing.
func (j JSONRecord) record() *kgo.Record {
	r := &kgo.Record{Topic: j.Topic, Partition: j.Partition, Timestamp: j.Timestamp,
		Key: bytesOf(j.Key, j.KeyBytes), Value: bytesOf(j.Value, j.ValueBytes)}
	for _, h := range j.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Name, Value: bytesOf(h.Value, h.ValueBytes)})
	}
	return r
}

// A recordSource yields the records to produce until io.EOF.
type recordSource interface {
	ReadRecord() (*kgo.Record, error)
}

// lineSource makes each line a value.
type lineSource struct{ in *bufio.Reader }

func (s lineSource) ReadRecord() (*kgo.Record, error) {
	line, err := s.in.ReadBytes('\n')
	if err != nil && len(line) == 0 {
		return nil, err
	}
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	return &kgo.Record{Value: line}, nil
}

// jsonSource reads a JSONRecord from each line.
type jsonSource struct {
	in   *json.Decoder
	read int64 // records so far, for error messages
}

func (s *jsonSource) ReadRecord() (*kgo.Record, error) {
	var j JSONRecord
	err := s.in.Decode(&j)
	if err == io.EOF {
		return nil, err
	}
	if s.read++; err != nil {
		return nil, fmt.Errorf("record %d of the input: %w (see: ottla consume --schema)", s.read, err)
	}
	return j.record(), nil
}
