// Package lint holds the house rules that a compiler does not know: which
// package may import which (ARCHITECTURE.md draws the same table), what
// tests must not do, and how the source is laid out. It is made of tests only.
package lint

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "ottla"

// mayImport is the import table: for each package of the product, the packages of ours
// that it may import. A package below another (protocol/records) has a row of its own.
// Test files may import more, for a test may stand a whole broker up.
var mayImport = map[string][]string{
	"internal/uuid":             {},
	"internal/vfs":              {},
	"internal/wake":             {},
	"internal/protocol":         {"internal/uuid"},
	"internal/protocol/records": {"internal/uuid"},
	"internal/record":           {"internal/protocol/records", "internal/uuid"},
	"internal/config":           {},
	"internal/auth":             {"internal/protocol"},
	"internal/storage":          {"internal/uuid", "internal/vfs", "internal/record", "internal/protocol/records"},
	"internal/metadata":         {"internal/uuid", "internal/protocol", "internal/protocol/records", "internal/auth"},
	"internal/quorum":           {"internal/uuid", "internal/vfs", "internal/storage", "internal/protocol", "internal/protocol/records", "internal/record"},
	"internal/controller":       {"internal/uuid", "internal/quorum", "internal/metadata", "internal/protocol", "internal/protocol/records", "internal/record", "internal/config", "internal/auth"},
	"internal/transport":        {"internal/uuid", "internal/protocol", "internal/auth", "internal/vfs", "internal/wake"},
	"internal/transport/memnet": {},
	"internal/replica": {"internal/uuid", "internal/storage", "internal/record", "internal/protocol", "internal/metadata", "internal/replica/state",
		"internal/replica/ages", "internal/wake"},
	"internal/replica/state": {"internal/uuid"},
	"internal/replica/ages":  {},
	"internal/coordinator": {"internal/uuid", "internal/record", "internal/protocol", "internal/protocol/records", "internal/metadata", "internal/config",
		"internal/auth", "internal/coordinator/group"},
	"internal/coordinator/group": {"internal/uuid", "internal/protocol/records", "internal/metadata", "internal/config"},
	"internal/broker": {"internal/uuid", "internal/vfs", "internal/protocol", "internal/protocol/records", "internal/record", "internal/config", "internal/auth",
		"internal/storage", "internal/metadata", "internal/quorum", "internal/controller", "internal/transport", "internal/replica", "internal/coordinator", "internal/wake"},
	"internal/console": {"internal/metadata"},
	"internal/cli":     {"", "internal/uuid", "internal/config", "internal/storage", "internal/record", "internal/vfs", "internal/protocol", "internal/protocol/records"},
	"":                 {"internal/uuid", "internal/vfs", "internal/broker", "internal/config", "internal/console", "internal/storage"},
	"cmd/ottla":        {"internal/cli"},
	// What measures the product from outside imports none of it.
	"bench":        {"bench/report"},
	"bench/load":   {},
	"bench/report": {},
}

// generators run by go generate; they are no part of the product and import none of it.
func isGenerator(pkg string) bool { return filepath.Base(pkg) == "gen" }

func TestImports(t *testing.T) {
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		pkg := filepath.ToSlash(filepath.Dir(file))
		if pkg == "." {
			pkg = ""
		}
		allowed, listed := mayImport[pkg]
		if !listed && !isGenerator(pkg) {
			t.Errorf("%s: package %q has no row in the import table", file, pkg)
			continue
		}
		for _, path := range imports(t, file) {
			ours, ok := strings.CutPrefix(path, module)
			if !ok || ours != "" && ours[0] != '/' {
				continue
			}
			if ours = strings.TrimPrefix(ours, "/"); !slices.Contains(allowed, ours) {
				t.Errorf("%s imports %s, which the table does not allow for %q", file, path, pkg)
			}
		}
	}
}

// TestNoSleepInTests keeps tests off the clock: a sleep is either a race or a wait for the wrong
// thing. Inside a testing/synctest bubble time.Sleep costs nothing and is how virtual time
// passes, so files that use synctest are exempt.
func TestNoSleepInTests(t *testing.T) {
	for _, file := range goFiles(t) {
		if !strings.HasSuffix(file, "_test.go") || slices.Contains(imports(t, file), "testing/synctest") {
			continue
		}
		parsed := parse(t, file, 0)
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "time" && call.Sel.Name == "Sleep" {
				t.Errorf("%s sleeps; wait for the event instead", file)
			}
			return true
		})
	}
}

// TestFormatted: neither vet nor staticcheck looks at the form.
func TestFormatted(t *testing.T) {
	for _, file := range goFiles(t) {
		source, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if formatted, err := format.Source(source); err != nil || !bytes.Equal(source, formatted) {
			t.Errorf("%s is not as gofmt has it (%v)", file, err)
		}
	}
}

var root = filepath.Join("..", "..")

// goFiles lists every Go file of the module, as slash paths from its root.
func goFiles(t *testing.T) []string {
	var files []string
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || path != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, ".go"):
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func imports(t *testing.T, file string) []string {
	var paths []string
	for _, spec := range parse(t, file, parser.ImportsOnly).Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		paths = append(paths, path)
	}
	return paths
}

func parse(t *testing.T, file string, mode parser.Mode) *ast.File {
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, mode)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
