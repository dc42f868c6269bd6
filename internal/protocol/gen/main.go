// Command gen writes schema_table.go and gate_table.go of package protocol from
// the JSON message schemas inside Apache Kafka's kafka-clients jar: fields, types
// and versions, none of their prose. Sizes of structs are kmsg's. Run it by
// go generate in internal/protocol after a new release of either.
package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"go/format"
	"io"
	"log"
	"math"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	log.SetFlags(0)
	jar := flag.String("jar", "", "kafka-clients jar (default: the newest in the user's cache, kafka-peers/apache-*)")
	flag.Parse()
	if err := run(*jar); err != nil {
		log.Fatal(err)
	}
}

func run(jar string) error {
	if jar == "" {
		var err error
		if jar, err = newestJar(); err != nil {
			return err
		}
	}
	messages, err := readMessages(jar)
	if err != nil {
		return err
	}
	source := path.Base(filepath.ToSlash(jar))
	if err := writeSchemas(messages, source); err != nil {
		return err
	}
	return writeGate(messages, source)
}

func newestJar() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	jars, err := filepath.Glob(filepath.Join(cache, "kafka-peers", "apache-*", "kafka-clients-*.jar"))
	if err != nil {
		return "", err
	}
	if len(jars) == 0 {
		return "", fmt.Errorf("no kafka-clients jar under %s/kafka-peers: fetch one with Maven, or name it with -jar", cache)
	}
	return slices.Max(jars), nil
}

// A message is one of Kafka's JSON files.
type message struct {
	APIKey           *int16 `json:"apiKey"`
	Type             string
	Name             string
	ValidVersions    string
	FlexibleVersions string
	Fields           []field
	CommonStructs    []field
}

type field struct {
	Name             string
	Type             string
	Versions         string
	NullableVersions string
	TaggedVersions   string
	Tag              *int16
	Fields           []field
}

// readMessages returns the requests and responses of APIs that still exist, by
// key, requests first.
func readMessages(jar string) ([]message, error) {
	z, err := zip.OpenReader(jar)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	var messages []message
	for _, f := range z.File {
		if path.Dir(f.Name) != "common/message" || path.Ext(f.Name) != ".json" {
			continue
		}
		m, err := readMessage(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		if m.APIKey != nil && m.ValidVersions != "none" {
			messages = append(messages, m)
		}
	}
	slices.SortFunc(messages, func(a, b message) int {
		return cmp.Or(cmp.Compare(*a.APIKey, *b.APIKey), cmp.Compare(a.Type, b.Type))
	})
	return messages, nil
}

func readMessage(f *zip.File) (m message, err error) {
	r, err := f.Open()
	if err != nil {
		return m, err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(withoutComments(b), &m); err != nil {
		return m, err
	}
	for i := range m.Fields {
		m.Fields[i].resolve(m.CommonStructs)
	}
	return m, nil
}

// withoutComments blanks // comments, which JSON does not know.
func withoutComments(b []byte) []byte {
	var out bytes.Buffer
	inString := false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			out.Write(b[i : i+2])
			i++
			continue
		case c == '"':
			inString = !inString
		case !inString && c == '/' && i+1 < len(b) && b[i+1] == '/':
			if n := bytes.IndexByte(b[i:], '\n'); n >= 0 {
				i += n
			} else {
				i = len(b)
			}
			out.WriteByte('\n')
			continue
		}
		out.WriteByte(b[i])
	}
	return out.Bytes()
}

// resolve gives fields of a common struct's type that struct's fields.
func (f *field) resolve(common []field) {
	name := strings.TrimPrefix(f.Type, "[]")
	if len(f.Fields) == 0 {
		if i := slices.IndexFunc(common, func(c field) bool { return c.Name == name }); i >= 0 {
			f.Fields = slices.Clone(common[i].Fields)
		}
	}
	for i := range f.Fields {
		f.Fields[i].resolve(common)
	}
}

// holdsTags reports whether a struct below f has a tagged field.
func (f *field) holdsTags() bool {
	return slices.ContainsFunc(f.Fields, func(g field) bool { return g.Tag != nil || g.holdsTags() })
}

func (f *field) array() bool { return strings.HasPrefix(f.Type, "[]") }

// fixedSizes are the wire sizes of the types that have one.
var fixedSizes = map[string]int{
	"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "uuid": 16,
}

// kind names a type's kind in package protocol, and its size on the wire if fixed.
func (f *field) kind(typ string) (string, int) {
	if size, ok := fixedSizes[typ]; ok {
		return "fixedKind", size
	}
	switch typ {
	case "string":
		return "stringKind", 0
	case "bytes", "records":
		return "bytesKind", 0
	}
	return "structKind", 0
}

// versions is an inclusive range; min > max is none.
type versions struct{ min, max int }

func parseVersions(s string) (versions, error) {
	if s == "" || s == "none" {
		return versions{0, -1}, nil
	}
	if low, open := strings.CutSuffix(s, "+"); open {
		n, err := strconv.Atoi(low)
		return versions{n, math.MaxInt16}, err
	}
	low, high, found := strings.Cut(s, "-")
	if !found {
		high = low
	}
	n, err := strconv.Atoi(low)
	if err != nil {
		return versions{}, err
	}
	m, err := strconv.Atoi(high)
	return versions{n, m}, err
}

func (v versions) String() string {
	if v.min > v.max {
		return "none"
	}
	return fmt.Sprintf("versions{%d, %d}", v.min, v.max)
}

// writeSchemas writes the shapes of all requests.
func writeSchemas(messages []message, source string) error {
	var w bytes.Buffer
	fmt.Fprintf(&w, "// Code generated by gen from %s and kmsg. DO NOT EDIT.\n\npackage protocol\n\n", source)
	last := int16(0)
	for _, m := range messages {
		last = max(last, *m.APIKey)
	}
	fmt.Fprintf(&w, "// requestSchemas holds the shape of every request, by API key.\nvar requestSchemas = [%d]*schema{\n", last+1)
	for _, m := range messages {
		if m.Type != "request" {
			continue
		}
		flexible, err := parseVersions(m.FlexibleVersions)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		fmt.Fprintf(&w, "%d: {flexible: %s, fields: []field{ // %s\n", *m.APIKey, flexible, m.Name)
		t := reflect.TypeOf(kmsg.RequestForKey(*m.APIKey)).Elem()
		if err := writeFields(&w, m.Fields, t); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		w.WriteString("}},\n")
	}
	w.WriteString("}\n")
	return writeGo("schema_table.go", w.Bytes())
}

func writeFields(w *bytes.Buffer, fields []field, t reflect.Type) error {
	for i := range fields {
		f := &fields[i]
		g, err := goField(t, f)
		if err == nil {
			err = writeField(w, f, g)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return nil
}

// writeField writes one field. g is its type in kmsg, nil if kmsg lacks it: then
// nothing is built from it.
func writeField(w *bytes.Buffer, f *field, g reflect.Type) error {
	in, err1 := parseVersions(f.Versions)
	nullable, err2 := parseVersions(f.NullableVersions)
	if err := cmp.Or(err1, err2); err != nil {
		return err
	}
	kind, size := f.kind(strings.TrimPrefix(f.Type, "[]"))
	fmt.Fprintf(w, "{name: %q, ", f.Name)
	switch {
	case f.array():
		fmt.Fprintf(w, "kind: arrayKind, elem: %s, ", kind)
	default:
		fmt.Fprintf(w, "kind: %s, ", kind)
	}
	if size > 0 {
		fmt.Fprintf(w, "wire: %d, ", size)
	}
	if g != nil && (g.Kind() == reflect.Slice || g.Kind() == reflect.Pointer) {
		g = g.Elem()
		if f.array() || kind == "structKind" {
			fmt.Fprintf(w, "memory: %d, ", g.Size())
		}
	}
	tag := int16(-1)
	if f.Tag != nil {
		tag = *f.Tag
	}
	fmt.Fprintf(w, "in: %s, nullable: %s, tag: %d", in, nullable, tag)
	if len(f.Fields) > 0 {
		w.WriteString(", fields: []field{\n")
		if err := writeFields(w, f.Fields, g); err != nil {
			return err
		}
		w.WriteString("}")
	}
	w.WriteString("},\n")
	return nil
}

// kmsgNames are the fields that kmsg calls otherwise, by kmsg struct and Kafka's
// name; spellings that fold brings together are not among them.
var kmsgNames = map[string]string{
	"AddPartitionsToTxnRequest.V3AndBelowTopics":              "Topics",
	"AlterPartitionRequestTopicPartition.NewIsrWithEpochs":    "NewEpochISR",
	"ConsumerGroupDescribeRequest.GroupIds":                   "Groups",
	"ConsumerGroupHeartbeatRequest.TopicPartitions":           "Topics",
	"CreatePartitionsRequestTopic.Assignments":                "Assignment",
	"CreatePartitionsRequestTopicAssignment.BrokerIds":        "Replicas",
	"CreateTopicsRequestTopic.Assignments":                    "ReplicaAssignment",
	"CreateTopicsRequestTopicReplicaAssignment.BrokerIds":     "Replicas",
	"CreateTopicsResponseTopic.TopicConfigErrorCode":          "ConfigErrorCode",
	"DeleteGroupsRequest.GroupsNames":                         "Groups",
	"DescribeConfigsRequestResource.ConfigurationKeys":        "ConfigNames",
	"DescribeProducersRequestTopic.PartitionIndexes":          "Partitions",
	"ElectLeadersRequest.TopicPartitions":                     "Topics",
	"FetchRequest.ForgottenTopicsData":                        "ForgottenTopics",
	"FetchResponse.NodeEndpoints":                             "Brokers",
	"FetchResponse.Responses":                                 "Topics",
	"ListPartitionReassignmentsRequestTopic.PartitionIndexes": "Partitions",
	"OffsetFetchRequestGroupTopic.PartitionIndexes":           "Partitions",
	"OffsetFetchRequestTopic.PartitionIndexes":                "Partitions",
	"ProduceRequest.TopicData":                                "Topics",
	"ProduceRequestTopic.PartitionData":                       "Partitions",
	"ProduceResponse.NodeEndpoints":                           "Brokers",
	"ProduceResponse.Responses":                               "Topics",
	"ProduceResponseTopic.PartitionResponses":                 "Partitions",
	"StreamsGroupDescribeRequest.GroupIds":                    "Groups",
	"SyncGroupRequest.Assignments":                            "GroupAssignment",
	"TopicInfo.TopicConfigs":                                  "Configs",
	"WriteTxnMarkersRequestMarkerTopic.PartitionIndexes":      "Partitions",
}

// fold brings Kafka's and kmsg's spellings of a field together.
func fold(name string) string {
	name = strings.ToLower(name)
	name = strings.ReplaceAll(name, "millis", "ms")
	return strings.ReplaceAll(name, "_", "")
}

// goField returns the type of the field of t that stands for f, or nil: kmsg
// builds nothing from a plain field it lacks. To lack an array or a struct is an
// error, for then its cost would not be known.
func goField(t reflect.Type, f *field) (reflect.Type, error) {
	if t == nil {
		return nil, nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if g, ok := goFieldNamed(t, f.Name); ok {
		return g.Type, nil
	}
	if f.array() || len(f.Fields) > 0 {
		return nil, fmt.Errorf("kmsg's %s has no field for it: name it in kmsgNames", t.Name())
	}
	return nil, nil
}

func goFieldNamed(t reflect.Type, name string) (reflect.StructField, bool) {
	if other, ok := kmsgNames[t.Name()+"."+name]; ok {
		return t.FieldByName(other)
	}
	return t.FieldByNameFunc(func(s string) bool { return fold(s) == fold(name) })
}

// writeGate writes the function Gate. kmsg encodes a tagged field that is not at
// its default at every flexible version, also at those that lack it.
func writeGate(messages []message, source string) error {
	var w bytes.Buffer
	fmt.Fprintf(&w, "// Code generated by gen from %s and kmsg. DO NOT EDIT.\n\npackage protocol\n\n", source)
	w.WriteString("import \"github.com/twmb/franz-go/pkg/kmsg\"\n\n")
	w.WriteString(`// Gate resets to their defaults the tagged fields that a request or a response
// has not got at its version. Apache closes a connection that carries one
// ("Tag 1 is not valid for version 17"), and kmsg does not leave them out.
func Gate(message any) {
	switch m := message.(type) {
`)
	for _, m := range messages {
		flexible, err := parseVersions(m.FlexibleVersions)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		if flexible.min > flexible.max {
			continue
		}
		t := kmsgType(m)
		gates, last, err := gatesOf(m.Fields, t, flexible, "m", 0)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		if gates == "" {
			continue
		}
		fmt.Fprintf(&w, "case *kmsg.%s:\nif m.Version >= %d {\nreturn\n}\n%s", t.Name(), last, gates)
	}
	w.WriteString("}\n}\n")
	return writeGo("gate_table.go", w.Bytes())
}

func kmsgType(m message) reflect.Type {
	if m.Type == "request" {
		return reflect.TypeOf(kmsg.RequestForKey(*m.APIKey)).Elem()
	}
	return reflect.TypeOf(kmsg.ResponseForKey(*m.APIKey)).Elem()
}

// gatesOf returns the statements that gate the fields of the struct of type t that
// the expression expr stands for, and the version from which none is needed.
func gatesOf(fields []field, t reflect.Type, flexible versions, expr string, depth int) (code string, last int, err error) {
	var b strings.Builder
	for i := range fields {
		f := &fields[i]
		g, ok := goFieldNamed(t, f.Name)
		tagged, err := parseVersions(f.TaggedVersions)
		if err != nil {
			return "", 0, fmt.Errorf("%s: %w", f.Name, err)
		}
		if f.Tag != nil {
			if !ok {
				return "", 0, fmt.Errorf("%s: kmsg's %s has no field for it: name it in kmsgNames", f.Name, t.Name())
			}
			if tagged.min > flexible.min {
				fmt.Fprintf(&b, "if m.Version < %d {\n%s.%s = kmsg.New%s().%s\n}\n", tagged.min, expr, g.Name, t.Name(), g.Name)
				last = max(last, tagged.min)
			}
			continue
		}
		if !ok && f.holdsTags() {
			return "", 0, fmt.Errorf("%s: kmsg's %s has no field for it: name it in kmsgNames", f.Name, t.Name())
		}
		if !ok || len(f.Fields) == 0 || !f.array() || g.Type.Kind() != reflect.Slice || g.Type.Elem().Kind() != reflect.Struct {
			continue
		}
		name := fmt.Sprintf("e%d", depth)
		inner, innerLast, err := gatesOf(f.Fields, g.Type.Elem(), flexible, name, depth+1)
		if err != nil {
			return "", 0, fmt.Errorf("%s: %w", f.Name, err)
		}
		if inner != "" {
			index := fmt.Sprintf("i%d", depth)
			fmt.Fprintf(&b, "for %s := range %s.%s {\n%s := &%s.%s[%s]\n%s}\n", index, expr, g.Name, name, expr, g.Name, index, inner)
			last = max(last, innerLast)
		}
	}
	return b.String(), last, nil
}

func writeGo(name string, src []byte) error {
	out, err := format.Source(src)
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, src)
	}
	return os.WriteFile(name, out, 0o644)
}
