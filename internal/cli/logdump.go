package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ottla/internal/protocol/records"
	"ottla/internal/record"
	"ottla/internal/storage"
	"ottla/internal/vfs"
)

// A DumpEntry is one thing in a file: beside the file exactly one field is set.
type DumpEntry struct {
	File     string        `json:"file"`
	Batch    *DumpBatch    `json:"batch,omitempty"`
	Record   *DumpRecord   `json:"record,omitempty"`
	Index    *DumpIndex    `json:"index,omitempty"`
	Aborted  *DumpAborted  `json:"aborted,omitempty"`
	Producer *DumpProducer `json:"producer,omitempty"`
	Epoch    *DumpEpoch    `json:"epoch,omitempty"`
	Offset   *DumpOffset   `json:"offset,omitempty"`
	Damage   *DumpDamage   `json:"damage,omitempty"`
}

// A DumpBatch is a record batch of a .log or .checkpoint file.
type DumpBatch struct {
	Position      int64     `json:"position"`
	Size          int64     `json:"size" doc:"bytes"`
	BaseOffset    int64     `json:"base_offset"`
	LastOffset    int64     `json:"last_offset"`
	Count         int32     `json:"count" doc:"records"`
	LeaderEpoch   int32     `json:"leader_epoch"`
	MaxTimestamp  time.Time `json:"max_timestamp,omitzero"`
	LogAppendTime bool      `json:"log_append_time"`
	Compression   string    `json:"compression"`
	ProducerID    int64     `json:"producer_id" doc:"-1 none"`
	ProducerEpoch int16     `json:"producer_epoch"`
	BaseSequence  int32     `json:"base_sequence"`
	Transactional bool      `json:"transactional"`
	Control       bool      `json:"control"`
	CRC           uint32    `json:"crc"`
}

// A DumpRecord is a record of the batch before it.
type DumpRecord struct {
	Offset     int64        `json:"offset"`
	Timestamp  time.Time    `json:"timestamp,omitzero"`
	KeySize    int          `json:"key_size" doc:"-1 null"`
	ValueSize  int          `json:"value_size" doc:"-1 null"`
	Headers    []string     `json:"headers,omitempty" doc:"their names"`
	Control    string       `json:"control,omitempty" doc:"type of a control record"`
	Key        *string      `json:"key,omitempty" doc:"with --print-data-log, as is the rest"`
	KeyBytes   []byte       `json:"key_base64,omitempty"`
	Value      *string      `json:"value,omitempty"`
	ValueBytes []byte       `json:"value_base64,omitempty"`
	Decoded    *DumpMessage `json:"decoded,omitempty" doc:"records of the cluster metadata and of __consumer_offsets"`
}

// A DumpMessage is what a record of Kafka's own topics says.
type DumpMessage struct {
	Type    string `json:"type" doc:"by the name of Kafka's schema"`
	Version *int16 `json:"version,omitempty"`
	Key     any    `json:"key,omitempty"`
	Data    any    `json:"data" doc:"null for a tombstone"`
	Problem string `json:"problem,omitempty" doc:"why it could not be decoded"`
}

// A DumpIndex is an entry of an .index or .timeindex file.
type DumpIndex struct {
	Offset    int64     `json:"offset"`
	Position  *int64    `json:"position,omitempty"`
	Timestamp time.Time `json:"timestamp,omitzero"`
}

// A DumpAborted is an entry of a .txnindex file.
type DumpAborted struct {
	ProducerID       int64 `json:"producer_id"`
	FirstOffset      int64 `json:"first_offset"`
	LastOffset       int64 `json:"last_offset"`
	LastStableOffset int64 `json:"last_stable_offset"`
}

// A DumpProducer is an entry of a .snapshot file.
type DumpProducer struct {
	ProducerID            int64     `json:"producer_id"`
	ProducerEpoch         int16     `json:"producer_epoch"`
	LastSequence          int32     `json:"last_sequence"`
	LastTimestamp         time.Time `json:"last_timestamp,omitzero"`
	CoordinatorEpoch      int32     `json:"coordinator_epoch" doc:"-1 none"`
	CurrentTxnFirstOffset int64     `json:"current_txn_first_offset" doc:"-1 none"`
}

// A DumpEpoch is a line of a leader-epoch-checkpoint.
type DumpEpoch struct {
	Epoch       int32 `json:"epoch"`
	StartOffset int64 `json:"start_offset"`
}

// A DumpOffset is a line of an offset checkpoint.
type DumpOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// DumpDamage is a stretch of bytes that are not what the file should hold.
type DumpDamage struct {
	Position int64  `json:"position"`
	Size     int64  `json:"size" doc:"bytes"`
	Reason   string `json:"reason"`
}

// dump is one run of log dump.
type dump struct {
	deep, data bool
	print      func(DumpEntry) error
}

func (a *app) logDump() *cobra.Command {
	var d dump
	return a.leaf(leaf{
		use: "dump FILE|DIR…", short: "Print the batches, records, index entries, producers and epochs in files of a log directory.",
		example: "ottla log dump ottla-data/hello-0/00000000000000000000.log\nottla log dump ottla-data/hello-0 --print-data-log -o jsonl\n" +
			"ottla log dump ottla-data/__cluster_metadata-0 --deep",
		args: cobra.MinimumNArgs(1), result: []DumpEntry{},
		flags: func(f *pflag.FlagSet) {
			f.BoolVarP(&d.deep, "deep", "d", false, "each record as well, that of the cluster metadata decoded; --deep-iteration is the same")
			f.BoolVar(&d.data, "print-data-log", false, "with key and value")
			f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
				if name == "deep-iteration" {
					name = "deep"
				}
				return pflag.NormalizedName(name)
			})
		},
		run: func(ctx context.Context, args []string) error {
			end := a.dumpPrinter(&d)
			for _, path := range args {
				if err := d.path(ctx, path); err != nil {
					return err
				}
			}
			return end()
		},
	})
}

// dumpPrinter sets how entries are printed, and returns what is to be called behind the last.
func (a *app) dumpPrinter(d *dump) (end func() error) {
	end = func() error { return nil }
	file := ""
	switch a.format {
	case "json":
		var write func(any) error
		write, end = a.jsonArray()
		d.print = func(e DumpEntry) error { return write(e) }
	case "jsonl":
		d.print = func(e DumpEntry) error { return writeJSON(a.out, e, false) }
	default:
		d.print = func(e DumpEntry) error {
			if e.File != file {
				file = e.File
				fmt.Fprintln(a.out, file)
			}
			if a.format == "name" {
				return nil
			}
			_, err := fmt.Fprintln(a.out, "  "+e.line())
			return err
		}
	}
	return end
}

// path dumps a file, or all files of a directory that hold something, in order of their names.
func (d *dump) path(ctx context.Context, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	info, err := vfs.OS.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		if _, ok := storage.KindOf(path); !ok {
			return usagef("%s holds nothing to dump: name .log, .checkpoint, .torn, .index, .timeindex, .txnindex, .snapshot or checkpoint files", path)
		}
		return d.file(path)
	}
	entries, err := vfs.OS.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, ok := storage.KindOf(e.Name()); !ok && !e.IsDir() {
			continue
		}
		if err := d.path(ctx, filepath.Join(path, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (d *dump) file(path string) error {
	kind, _ := storage.KindOf(path)
	switch kind {
	case storage.KindBatches:
		return d.batches(path)
	case storage.KindIndex, storage.KindTimeIndex:
		return d.index(path)
	case storage.KindTxnIndex:
		return d.aborted(path)
	case storage.KindProducers:
		return d.producers(path)
	case storage.KindEpochs:
		return d.epochs(path)
	}
	return d.offsets(path)
}

// instant is a timestamp of Kafka, which is none if it is negative.
func instant(ms int64) time.Time {
	if ms < 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func (d *dump) batches(path string) error {
	decode := decoderFor(path)
	return storage.DumpSegment(vfs.OS, path, func(b storage.DumpedBatch) error {
		if b.Err != nil {
			reason := b.Err.Error()
			var damaged *storage.CorruptError
			if errors.As(b.Err, &damaged) {
				reason = damaged.Reason
			}
			return d.print(DumpEntry{File: path, Damage: &DumpDamage{b.Pos, b.Size, reason}})
		}
		h := &b.Header
		err := d.print(DumpEntry{File: path, Batch: &DumpBatch{
			Position: b.Pos, Size: b.Size, BaseOffset: h.BaseOffset, LastOffset: h.LastOffset(), Count: h.Count, LeaderEpoch: h.LeaderEpoch,
			MaxTimestamp: instant(h.MaxTimestamp), LogAppendTime: h.Attributes.LogAppendTime(), Compression: h.Attributes.Codec().String(),
			ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, BaseSequence: h.BaseSequence,
			Transactional: h.Attributes.Transactional(), Control: h.Attributes.Control(), CRC: h.CRC,
		}})
		if err != nil || !d.deep && !d.data {
			return err
		}
		var printing error
		err = record.Iterate(b.Bytes, func(r record.Record) error {
			printing = d.print(DumpEntry{File: path, Record: d.record(r, h.Attributes.Control(), decode)})
			return printing
		})
		if err != nil && printing == nil {
			return d.print(DumpEntry{File: path, Damage: &DumpDamage{b.Pos, b.Size, err.Error()}})
		}
		return printing
	})
}

func (d *dump) record(r record.Record, control bool, decode func(key, value []byte) *DumpMessage) *DumpRecord {
	out := &DumpRecord{Offset: r.Offset, Timestamp: instant(r.Timestamp), KeySize: lengthOf(r.Key), ValueSize: lengthOf(r.Value)}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, string(h.Key))
	}
	switch {
	case control:
		t, err := record.ParseControlKey(r.Key)
		out.Control = t.String()
		if err != nil {
			out.Control = err.Error()
		}
	case decode != nil:
		out.Decoded = decode(r.Key, r.Value)
	}
	if d.data && out.Decoded == nil {
		out.Key, out.KeyBytes = textOrBytes(r.Key)
		out.Value, out.ValueBytes = textOrBytes(slices.Clone(r.Value))
	}
	return out
}

func lengthOf(b []byte) int {
	if b == nil {
		return -1
	}
	return len(b)
}

// decoderFor returns what reads the records of the partition that a file belongs to; nil if they are the users' own.
func decoderFor(path string) func(key, value []byte) *DumpMessage {
	if full, err := filepath.Abs(path); err == nil {
		path = full
	}
	switch partition := filepath.Base(filepath.Dir(path)); {
	case strings.HasPrefix(partition, "__cluster_metadata-"):
		return decodeMetadata
	case strings.HasPrefix(partition, "__consumer_offsets-"):
		return decodeGroup
	}
	return nil
}

func decodeMetadata(_, value []byte) *DumpMessage {
	m, version, err := records.DecodeMetadata(value)
	if err != nil {
		return &DumpMessage{Problem: err.Error()}
	}
	return &DumpMessage{Type: typeName(m), Version: &version, Data: m}
}

func decodeGroup(key, value []byte) *DumpMessage {
	k, v, err := records.DecodeGroup(key, value)
	if err != nil {
		return &DumpMessage{Problem: err.Error()}
	}
	m := &DumpMessage{Type: typeName(k), Key: k}
	if v != nil {
		m.Type, m.Data = typeName(v), v
	}
	return m
}

func typeName(m records.Message) string { return strings.TrimPrefix(fmt.Sprintf("%T", m), "*records.") }

// rest prints what stands behind the entries of an index.
func (d *dump) rest(path string, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	return d.print(DumpEntry{File: path, Damage: &DumpDamage{Position: -1, Size: bytes, Reason: "these bytes at the end are no entries in order"}})
}

func (d *dump) index(path string) error {
	entries, rest, err := storage.ReadIndexFile(vfs.OS, path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		x := &DumpIndex{Offset: e.Offset, Timestamp: instant(e.Timestamp)}
		if e.Pos >= 0 {
			x.Position = &e.Pos
		}
		if err := d.print(DumpEntry{File: path, Index: x}); err != nil {
			return err
		}
	}
	return d.rest(path, rest)
}

func (d *dump) aborted(path string) error {
	entries, rest, err := storage.ReadTxnIndexFile(vfs.OS, path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := d.print(DumpEntry{File: path, Aborted: &DumpAborted{e.ProducerID, e.FirstOffset, e.LastOffset, e.LastStableOffset}}); err != nil {
			return err
		}
	}
	return d.rest(path, rest)
}

func (d *dump) producers(path string) error {
	producers, err := storage.ReadProducerFile(vfs.OS, path)
	if err != nil {
		return d.print(DumpEntry{File: path, Damage: &DumpDamage{Position: -1, Reason: err.Error()}})
	}
	for _, p := range producers {
		err := d.print(DumpEntry{File: path, Producer: &DumpProducer{
			p.ProducerID, p.ProducerEpoch, p.LastSequence, instant(p.LastTimestamp), p.CoordinatorEpoch, p.CurrentTxnStartOffset}})
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *dump) epochs(path string) error {
	starts, err := storage.ReadEpochFile(vfs.OS, path)
	if err != nil {
		return d.print(DumpEntry{File: path, Damage: &DumpDamage{Position: -1, Reason: err.Error()}})
	}
	for _, e := range starts {
		if err := d.print(DumpEntry{File: path, Epoch: &DumpEpoch{e.Epoch, e.Offset}}); err != nil {
			return err
		}
	}
	return nil
}

func (d *dump) offsets(path string) error {
	offsets, err := storage.ReadOffsetFile(vfs.OS, path)
	if err != nil {
		return d.print(DumpEntry{File: path, Damage: &DumpDamage{Position: -1, Reason: err.Error()}})
	}
	partitions := slices.SortedFunc(maps.Keys(offsets), func(a, b storage.TopicPartition) int { return strings.Compare(a.String(), b.String()) })
	for _, tp := range partitions {
		if err := d.print(DumpEntry{File: path, Offset: &DumpOffset{tp.Topic, tp.Partition, offsets[tp]}}); err != nil {
			return err
		}
	}
	return nil
}

// line prints an entry for people, in the words of Apache's kafka-dump-log. What a batch has not is left out.
func (e DumpEntry) line() string {
	switch {
	case e.Batch != nil:
		return e.Batch.line()
	case e.Record != nil:
		return e.Record.line()
	case e.Index != nil && e.Index.Position != nil:
		return fmt.Sprintf("offset: %d position: %d", e.Index.Offset, *e.Index.Position)
	case e.Index != nil:
		return fmt.Sprintf("timestamp: %s offset: %d", clock(e.Index.Timestamp), e.Index.Offset)
	case e.Aborted != nil:
		t := e.Aborted
		return fmt.Sprintf("producerId: %d firstOffset: %d lastOffset: %d lastStableOffset: %d", t.ProducerID, t.FirstOffset, t.LastOffset, t.LastStableOffset)
	case e.Producer != nil:
		p := e.Producer
		return fmt.Sprintf("producerId: %d producerEpoch: %d lastSequence: %d lastTimestamp: %s coordinatorEpoch: %d currentTxnFirstOffset: %d",
			p.ProducerID, p.ProducerEpoch, p.LastSequence, clock(p.LastTimestamp), p.CoordinatorEpoch, p.CurrentTxnFirstOffset)
	case e.Epoch != nil:
		return fmt.Sprintf("epoch: %d startOffset: %d", e.Epoch.Epoch, e.Epoch.StartOffset)
	case e.Offset != nil:
		return fmt.Sprintf("topic: %s partition: %d offset: %d", e.Offset.Topic, e.Offset.Partition, e.Offset.Offset)
	}
	return e.Damage.line()
}

func (b *DumpBatch) line() string {
	kind := "CreateTime"
	if b.LogAppendTime {
		kind = "LogAppendTime"
	}
	s := fmt.Sprintf("baseOffset: %d lastOffset: %d count: %d position: %d size: %d partitionLeaderEpoch: %d %s: %s compresscodec: %s crc: %d",
		b.BaseOffset, b.LastOffset, b.Count, b.Position, b.Size, b.LeaderEpoch, kind, clock(b.MaxTimestamp), b.Compression, b.CRC)
	if b.ProducerID >= 0 {
		s += fmt.Sprintf(" producerId: %d producerEpoch: %d baseSequence: %d", b.ProducerID, b.ProducerEpoch, b.BaseSequence)
	}
	if b.Transactional {
		s += " isTransactional: true"
	}
	if b.Control {
		s += " isControl: true"
	}
	return s
}

func (r *DumpRecord) line() string {
	s := fmt.Sprintf("| offset: %d CreateTime: %s keySize: %d valueSize: %d", r.Offset, clock(r.Timestamp), r.KeySize, r.ValueSize)
	if len(r.Headers) > 0 {
		s += " headerKeys: " + strings.Join(r.Headers, ",")
	}
	if r.Control != "" {
		return s + " controlType: " + r.Control
	}
	if r.Decoded != nil {
		return s + " payload: " + r.Decoded.line()
	}
	for _, part := range []struct {
		title string
		text  *string
		raw   []byte
	}{{" key: ", r.Key, r.KeyBytes}, {" payload: ", r.Value, r.ValueBytes}} {
		if b := bytesOf(part.text, part.raw); b != nil {
			s += part.title + shown(b)
		}
	}
	return s
}

func (m *DumpMessage) line() string {
	if m.Problem != "" {
		return m.Problem
	}
	b, err := json.Marshal(m.Data)
	if m.Key != nil && err == nil {
		var key []byte
		key, err = json.Marshal(m.Key)
		b = slices.Concat(key, []byte(" = "), b)
	}
	if err != nil {
		return m.Type + ": " + err.Error()
	}
	return m.Type + " " + string(b)
}

func (d *DumpDamage) line() string {
	s := "DAMAGE"
	if d.Position >= 0 {
		s += fmt.Sprintf(" at byte %d", d.Position)
	}
	if d.Size > 0 {
		s += fmt.Sprintf(", %d bytes", d.Size)
	}
	return s + ": " + d.Reason
}

// clock prints a time of a record; -1, as Kafka does, for none.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-1"
	}
	return t.Format("2006-01-02T15:04:05.000Z07:00")
}

// shown prints bytes as they are if that is one line of text, else quoted.
func shown(b []byte) string {
	s := string(b)
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	return strconv.Quote(s)
}
