package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A message is one of Kafka's JSON files.
type message struct {
	APIKey           int16 `json:"apiKey"`
	Type             string
	Name             string
	ValidVersions    string
	FlexibleVersions string
	Fields           []*field
	CommonStructs    []*field

	valid, flexible versions
	root            *structure
	nested          []*structure // in the order their types are met
}

// A field is one field of a message, or, among its common structs, the struct of that name.
type field struct {
	Name             string
	Type             string
	Versions         string
	NullableVersions string
	TaggedVersions   string
	Tag              int
	Default          json.RawMessage
	Fields           []*field

	versions versions
	of       *structure // of a struct or an array of structs
}

// A structure becomes a Go struct.
type structure struct {
	name     string // Kafka's
	goName   string
	message  *message
	fields   []*field
	versions versions // in which it occurs
}

// readMessages returns the named messages of a folder in a jar, or all of them, by name.
func readMessages(jar, folder string, names []string) ([]*message, error) {
	z, err := zip.OpenReader(jar)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	var messages []*message
	for _, f := range z.File {
		name, isJSON := strings.CutSuffix(path.Base(f.Name), ".json")
		if path.Dir(f.Name) != folder || !isJSON || len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		m, err := readMessage(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		messages = append(messages, m)
	}
	if len(messages) == 0 || len(names) > 0 && len(messages) != len(names) {
		return nil, fmt.Errorf("%d messages in %s, looked for %v", len(messages), folder, names)
	}
	slices.SortFunc(messages, func(a, b *message) int { return strings.Compare(a.Name, b.Name) })
	return messages, nil
}

func readMessage(f *zip.File) (*message, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	m := &message{APIKey: -1}
	if err := json.Unmarshal(withoutComments(b), m); err != nil {
		return nil, err
	}
	return m, m.resolve()
}

// withoutComments drops // comments, which JSON does not know; no string of the schemas that matters
// holds two slashes.
func withoutComments(b []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(b) {
		if before, _, found := bytes.Cut(line, []byte("//")); found && bytes.Count(before, []byte(`"`))%2 == 0 {
			line = append(before, '\n')
		}
		out.Write(line)
	}
	return out.Bytes()
}

func (m *message) resolve() (err error) {
	if m.valid, err = parseVersions(m.ValidVersions); err != nil {
		return err
	}
	if m.flexible, err = parseVersions(m.FlexibleVersions); err != nil {
		return err
	}
	m.root = &structure{name: m.Name, message: m, fields: m.Fields, versions: m.valid}
	return m.resolveFields(m.root)
}

func (m *message) resolveFields(s *structure) error {
	for _, f := range s.fields {
		if err := f.check(); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		if f.isPrimitive() {
			continue
		}
		var err error
		if f.of, err = m.structure(f); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return nil
}

// structure returns the struct that f or its elements are.
func (m *message) structure(f *field) (*structure, error) {
	name := f.elem()
	if i := slices.IndexFunc(m.nested, func(s *structure) bool { return s.name == name }); i >= 0 {
		return m.nested[i], nil
	}
	fields := f.Fields
	if i := slices.IndexFunc(m.CommonStructs, func(c *field) bool { return c.Name == name }); i >= 0 && len(fields) == 0 {
		fields = m.CommonStructs[i].Fields
	}
	if len(fields) == 0 {
		return nil, fmt.Errorf("no struct %s", name)
	}
	s := &structure{name: name, message: m, fields: fields, versions: f.versions.within(m.valid)}
	m.nested = append(m.nested, s)
	return s, m.resolveFields(s)
}

// nameStructs gives every struct a Go name: Kafka's, with its message before it where several
// messages have one of that name.
func nameStructs(messages []*message) error {
	count := map[string]int{}
	for _, m := range messages {
		count[m.Name]++
		for _, s := range m.nested {
			count[s.name]++
		}
	}
	taken := map[string]bool{}
	for _, m := range messages {
		m.root.goName = m.Name
		for _, s := range m.nested {
			s.goName = s.name
			if count[s.name] > 1 {
				s.goName = shortName(m.Name) + s.name
			}
		}
		for _, s := range append([]*structure{m.root}, m.nested...) {
			if taken[s.goName] {
				return fmt.Errorf("two structs would be called %s", s.goName)
			}
			taken[s.goName] = true
		}
	}
	return nil
}

func shortName(message string) string {
	for _, suffix := range []string{"Record", "Message", "Value"} {
		message = strings.TrimSuffix(message, suffix)
	}
	return message
}

func (s *structure) hasDefaults() bool {
	return slices.ContainsFunc(s.fields, func(f *field) bool { return f.goDefault() != f.zero() })
}

// tagged returns the tagged fields in the order in which they are encoded.
func (s *structure) tagged() []*field {
	var tagged []*field
	for _, f := range s.fields {
		if f.isTagged() {
			tagged = append(tagged, f)
		}
	}
	slices.SortFunc(tagged, func(a, b *field) int { return cmp.Compare(a.Tag, b.Tag) })
	return tagged
}

// check parses a field's versions and refuses what the generated code could not express.
func (f *field) check() (err error) {
	if f.versions, err = parseVersions(cmp.Or(f.Versions, f.TaggedVersions)); err != nil {
		return err
	}
	for _, part := range []string{f.NullableVersions, f.TaggedVersions} {
		if part == "" {
			continue
		}
		if v, err := parseVersions(part); err != nil || v != f.versions {
			return fmt.Errorf("null or tagged in versions %s, but there in %v: %w", part, f.versions, err)
		}
	}
	if f.isTagged() && f.isNullable() && !f.nullByDefault() && !f.isStruct() && !f.isArray() {
		return fmt.Errorf("tagged and nullable without being null by default")
	}
	return nil
}

func (f *field) isTagged() bool    { return f.TaggedVersions != "" }
func (f *field) isNullable() bool  { return f.NullableVersions != "" }
func (f *field) isArray() bool     { return strings.HasPrefix(f.Type, "[]") }
func (f *field) elem() string      { return strings.TrimPrefix(f.Type, "[]") }
func (f *field) isPrimitive() bool { return goTypes[f.elem()] != "" }
func (f *field) isStruct() bool    { return !f.isPrimitive() && !f.isArray() }

// nullByDefault tells the string "null" from JSON's null, which is no default: Kafka's generator takes an empty
// struct or array then, and null is sent.
func (f *field) nullByDefault() bool { return string(f.Default) == `"null"` }

func (f *field) isEmptyByDefault() bool { return f.isTagged() && f.isNullable() && !f.nullByDefault() }

// defaultText is the default without quotes.
func (f *field) defaultText() string { return strings.Trim(string(f.Default), `"`) }

// goTypes are the Go types of Kafka's.
var goTypes = map[string]string{
	"bool": "bool", "int8": "int8", "int16": "int16", "uint16": "uint16", "int32": "int32", "uint32": "uint32",
	"int64": "int64", "float64": "float64", "uuid": "uuid.UUID", "string": "string", "bytes": "[]byte",
}

// initialisms are the parts of names that Go writes in capitals.
var initialisms = map[string]string{"Id": "ID", "Ids": "IDs", "Isr": "ISR", "Elr": "ELR", "Crc": "CRC"}

// goName is the field's name, in Kafka's words and Go's capitals.
func (f *field) goName() string {
	name := strings.ToUpper(f.Name[:1]) + f.Name[1:]
	var out strings.Builder
	for len(name) > 0 {
		end := 1
		for end < len(name) && !('A' <= name[end] && name[end] <= 'Z') {
			end++
		}
		out.WriteString(cmp.Or(initialisms[name[:end]], name[:end]))
		name = name[end:]
	}
	return out.String()
}

func (f *field) goType() string {
	t := goTypes[f.elem()]
	if f.of != nil {
		t = f.of.goName
	}
	switch {
	case f.isArray():
		return "[]" + t
	case f.isNullable() && t != "[]byte":
		return "*" + t
	}
	return t
}

// notes says when a field may be nil and in which versions it is there, if not in all.
func (f *field) notes(of versions) string {
	var notes []string
	switch {
	case f.versions.condition(of) == "true":
	case f.versions.max >= of.max:
		notes = append(notes, fmt.Sprintf("since version %d", f.versions.min))
	default:
		notes = append(notes, "in version "+f.versions.within(of).String()+" only")
	}
	if f.isNullable() {
		notes = append(notes, "nil is null")
	}
	if d := f.goDefault(); d != f.zero() {
		notes = append(notes, "default "+d)
	}
	return strings.Join(notes, "; ")
}

// zero is Go's zero value of the field's type.
func (f *field) zero() string {
	switch t := f.goType(); {
	case t[0] == '*' || t[0] == '[':
		return "nil"
	case t == "bool":
		return "false"
	case t == "string":
		return `""`
	case t == "uuid.UUID":
		return "uuid.Zero"
	case f.of != nil:
		return t + "{}"
	}
	return "0"
}

func (f *field) goDefault() string {
	switch d := f.defaultText(); {
	case f.isEmptyByDefault() && f.isStruct():
		return "new(" + f.of.goName + ")"
	case f.isEmptyByDefault():
		return f.goType() + "{}"
	case d == "" || d == "null":
		return f.zero()
	case f.goType() == "string":
		return strconv.Quote(d)
	default:
		return d
	}
}

// notDefault is the condition under which a tagged field is sent.
func (f *field) notDefault(name string) string {
	switch t := f.goType(); {
	case f.isEmptyByDefault() && f.isStruct():
		return "true" // an empty one may be sent as well
	case f.isEmptyByDefault():
		return fmt.Sprintf("%s == nil || len(%s) > 0", name, name)
	case f.isNullable():
		return name + " != nil"
	case t[0] == '[':
		return "len(" + name + ") > 0"
	case t == "bool" && f.goDefault() == "false":
		return name
	case t == "bool":
		return "!" + name
	}
	return name + " != " + f.goDefault()
}

// encode is the statement that writes the field.
func (f *field) encode() string {
	name := "m." + f.goName()
	switch {
	case f.isArray() && f.of != nil:
		return fmt.Sprintf("writeStructs(w, %s, %t, v)", name, f.isNullable())
	case f.isArray():
		return fmt.Sprintf("writeArray(w, %s, %t, (*writer).%s)", name, f.isNullable(), f.elem())
	case f.of != nil && f.isNullable():
		return fmt.Sprintf("if w.%s(%s != nil) {\n%s.encode(w, v)\n}", f.present(), name, name)
	case f.of != nil:
		return name + ".encode(w, v)"
	}
	return fmt.Sprintf("w.%s(%s)", f.codec(), name)
}

// decode is the statement that reads the field.
func (f *field) decode() string {
	name := "m." + f.goName()
	switch {
	case f.isArray() && f.of != nil:
		return fmt.Sprintf("%s = readStructs[%s](r, %t, v)", name, f.of.goName, f.isNullable())
	case f.isArray():
		return fmt.Sprintf("%s = readArray(r, %t, (*reader).%s)", name, f.isNullable(), f.elem())
	case f.of != nil && f.isNullable():
		if f.goDefault() == "nil" {
			return fmt.Sprintf("if r.%s() {\n%s = new(%s)\n%s.decode(r, v)\n}", f.present(), name, f.of.goName, name)
		}
		return fmt.Sprintf("if r.%s() {\n%s.decode(r, v)\n} else {\n%s = nil\n}", f.present(), name, name)
	case f.of != nil:
		return name + ".decode(r, v)"
	}
	return fmt.Sprintf("%s = r.%s()", name, f.codec())
}

// present is the method of reader and writer for whether a nullable struct is there.
func (f *field) present() string {
	if f.isTagged() {
		return "presentTagged"
	}
	return "present"
}

// codec is the method of reader and writer for the field's type.
func (f *field) codec() string {
	if !f.isNullable() {
		return f.Type
	}
	return "nullable" + strings.ToUpper(f.Type[:1]) + f.Type[1:]
}

// versions is an inclusive range; min > max is none.
type versions struct{ min, max int }

func (v versions) empty() bool { return v.min > v.max }

func (v versions) within(of versions) versions {
	return versions{max(v.min, of.min), min(v.max, of.max)}
}

func (v versions) String() string {
	if v.min == v.max {
		return strconv.Itoa(v.min)
	}
	return fmt.Sprintf("%d–%d", v.min, v.max)
}

// condition is a Go expression on v, the version, that says whether it is in the range, given
// that it is one of the message's.
func (v versions) condition(of versions) string {
	switch low, high := v.min > of.min, v.max < of.max; {
	case v.empty():
		return "false"
	case low && high && v.min == v.max:
		return fmt.Sprintf("v == %d", v.min)
	case low && high:
		return fmt.Sprintf("v >= %d && v <= %d", v.min, v.max)
	case low:
		return fmt.Sprintf("v >= %d", v.min)
	case high:
		return fmt.Sprintf("v <= %d", v.max)
	}
	return "true"
}

func parseVersions(s string) (versions, error) {
	if s == "none" {
		return versions{0, -1}, nil
	}
	low, high, found := strings.Cut(s, "-")
	if fromLow, open := strings.CutSuffix(s, "+"); open {
		low, high, found = fromLow, strconv.Itoa(math.MaxInt16), true
	}
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
