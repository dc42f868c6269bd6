package config

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sources are the program's files, tests and this package left out, by path from the module's root.
func sources(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == "internal/config" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != ".") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		b, err := fs.ReadFile(root, path)
		files[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// getter is a call such as c.Int("num.partitions") or b.static.Duration("…") in another package.
var getter = regexp.MustCompile(`\.(?:Int|Long|Bytes|Double|Bool|List|Duration|String)\("([a-z]+(?:\.[a-z0-9]+)+)"\)`)

// TestKeysInUseAreSaidToBe finds keys that the program reads although the table says that they have no
// effect: `ottla config check` would lie about them.
func TestKeysInUseAreSaidToBe(t *testing.T) {
	for path, text := range sources(t) {
		for _, m := range getter.FindAllStringSubmatch(text, -1) {
			k := brokerTable.find(m[1])
			if k != nil && (k.State == NotYet || k.State == Ignored) {
				t.Errorf("%s reads %s, which the table calls %q", path, k.Name, k.State)
			}
		}
	}
}

// readHere are the honoured keys that this package reads itself, for a method of Config.
var readHere = []string{
	"advertised.listeners", "broker.id", "controller.listener.names", "controller.quorum.bootstrap.servers", "controller.quorum.voters",
	"inter.broker.listener.name", "internal.segment.bytes", "listener.security.protocol.map", "listeners", "log.dir", "log.dirs",
	"max.connections.per.ip.overrides", "metadata.log.dir", "node.id", "process.roles", "security.inter.broker.protocol",
}

// TestHonouredKeysAreRead is the reverse: a key that the table calls used, but that nobody reads, is silently ignored.
func TestHonouredKeysAreRead(t *testing.T) {
	var all strings.Builder
	for path, text := range sources(t) {
		if !strings.HasPrefix(path, "internal/cli/") { // which reads a client's configuration, of the same words
			all.WriteString(text)
		}
	}
	fields := topicFields(t)
	read := func(name string) bool {
		return slices.Contains(readHere, name) || named(all.String(), name) ||
			slices.ContainsFunc(fields[name], func(field string) bool {
				return regexp.MustCompile(`\.` + field + `\b`).MatchString(all.String())
			})
	}
	inherited := map[string]bool{} // broker keys that give others their default
	for _, tab := range []*table{topicTable, groupTable, clientMetricsTable} {
		for i := range tab.keys {
			k := &tab.keys[i]
			if k.State == Honoured && !read(k.Name) {
				t.Errorf("the table calls %s used, but nobody reads it", k.Name)
			}
			for _, s := range k.Synonyms {
				inherited[s.Name] = inherited[s.Name] || k.State == Honoured || k.State == Different
			}
		}
	}
	for i := range brokerTable.keys {
		if k := &brokerTable.keys[i]; k.State == Honoured && !read(k.Name) && !inherited[k.Name] {
			t.Errorf("the table calls %s used, but nobody reads it", k.Name)
		}
	}
}

// named reports whether the program's text names a key, whole or put together of two parts: "group.consumer.min."+name.
func named(text, key string) bool {
	for i := range key {
		if key[i] == '.' && strings.Contains(text, `"`+key[:i+1]+`"+`) && strings.Contains(text, `"`+key[i+1:]+`"`) {
			return true
		}
	}
	return strings.Contains(text, `"`+key+`"`)
}

// topicFields are the fields of Topic that are made of each topic key, read from the assignments in topic.go.
func topicFields(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile("topic.go")
	if err != nil {
		t.Fatal(err)
	}
	field, key := regexp.MustCompile(`\bt\.([A-Z]\w+)`), regexp.MustCompile(`"([a-z]+(?:\.[a-z0-9]+)+)"`)
	fields := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		to, from, ok := strings.Cut(line, " = ")
		names, keys := field.FindAllStringSubmatch(to, -1), key.FindAllStringSubmatch(from, -1)
		if !ok || len(names) != len(keys) {
			continue
		}
		for i := range keys {
			fields[keys[i][1]] = append(fields[keys[i][1]], names[i][1])
		}
	}
	if len(fields["retention.ms"]) != 2 {
		t.Fatalf("topic.go makes %v of retention.ms: this test does not understand it any more", fields["retention.ms"])
	}
	return fields
}
