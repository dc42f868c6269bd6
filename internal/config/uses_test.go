package config

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// getter is a call such as c.Int("num.partitions") or b.static.Duration("…") in another package.
var getter = regexp.MustCompile(`\.(?:Int|Long|Bytes|Double|Bool|List|Duration|String)\("([a-z]+(?:\.[a-z0-9]+)+)"\)`)

// TestKeysInUseAreSaidToBe finds keys that the program reads although the table says that they have no
// effect: `ottla config check` would lie about them.
func TestKeysInUseAreSaidToBe(t *testing.T) {
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
		if err != nil {
			return err
		}
		for _, m := range getter.FindAllStringSubmatch(string(b), -1) {
			k := brokerTable.find(m[1])
			if k != nil && (k.State == NotYet || k.State == Ignored) {
				t.Errorf("%s reads %s, which the table calls %q", path, k.Name, k.State)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
