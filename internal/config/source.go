package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/magiconair/properties"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxFileBytes bounds what is read of a configuration file or of a file that a value names.
const maxFileBytes = 16 << 20

// rawSetting is a value as somebody wrote it.
type rawSetting struct {
	text   string
	origin Origin
}

// read lays the sources over one another and resolves ${provider:path:key}.
func (s Sources) read() (map[string]rawSetting, error) {
	raw := map[string]rawSetting{}
	put := func(name, text, from string) {
		raw[name] = rawSetting{text, Origin{kmsg.ConfigSourceStaticBrokerConfig, from}}
	}
	if s.File != "" {
		file, err := readProperties(s.File)
		if err != nil {
			return nil, err
		}
		for name, text := range file {
			put(name, text, s.File)
		}
	}
	for name, text := range s.Properties {
		put(name, text, "the program")
	}
	for _, e := range readEnv(s.Env) {
		put(e.key, e.text, "the environment, "+e.name)
	}
	for _, kv := range s.Set {
		name, text, ok := strings.Cut(kv, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, fmt.Errorf("--set %s: write key=value", kv)
		}
		put(name, text, "--set")
	}
	return raw, resolve(raw)
}

// readProperties reads a file in the syntax of java.util.Properties: ISO 8859-1, escapes,
// continuation lines; the last of several settings of a key counts.
func readProperties(path string) (map[string]string, error) {
	b, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	m, err := ParseProperties(b)
	if err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	return m, nil
}

// ParseProperties reads text in the syntax of java.util.Properties. Nothing is expanded.
func ParseProperties(b []byte) (map[string]string, error) {
	loader := properties.Loader{Encoding: properties.ISO_8859_1, DisableExpansion: true}
	p, err := loader.LoadBytes(b)
	if err != nil {
		return nil, err
	}
	return p.Map(), nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() || info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%s is no file of less than %d MiB", path, maxFileBytes>>20)
	}
	return os.ReadFile(path)
}

// variable is ${provider:key} or ${provider:path:key}. Source: ConfigTransformer.
var variable = regexp.MustCompile(`\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}`)

// providerClasses are Apache's own config providers, all of which ottla carries in itself.
var providerClasses = map[string]string{
	"org.apache.kafka.common.config.provider.EnvVarConfigProvider":    "env",
	"org.apache.kafka.common.config.provider.FileConfigProvider":      "file",
	"org.apache.kafka.common.config.provider.DirectoryConfigProvider": "dir",
}

// resolve replaces the variables in all values. A variable of an unknown provider stays as it is, as
// in Kafka; one that a known provider cannot resolve is an error, where Kafka would keep the text.
func resolve(raw map[string]rawSetting) error {
	names := map[string]string{"env": "env", "file": "file", "dir": "dir"}
	for _, name := range splitList(raw["config.providers"].text) {
		if kind, ok := providerClasses[raw["config.providers."+name+".class"].text]; ok {
			names[name] = kind
		}
	}
	files := map[string]map[string]string{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		r := raw[name]
		r.text = variable.ReplaceAllStringFunc(r.text, func(match string) string {
			m := variable.FindStringSubmatch(match)
			kind, known := names[m[1]]
			if !known {
				return match
			}
			text, err := lookUp(kind, m[3], m[4], files)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w, from %s", name, match, err, r.origin.From))
			}
			return text
		})
		raw[name] = r
	}
	return errors.Join(errs...)
}

// lookUp asks a provider; files caches the property files it read.
func lookUp(kind, path, key string, files map[string]map[string]string) (string, error) {
	switch kind {
	case "env":
		text, ok := os.LookupEnv(key)
		if !ok {
			return "", fmt.Errorf("the environment has no %s", key)
		}
		return text, nil
	case "dir":
		b, err := readFile(filepath.Join(path, filepath.Base(key)))
		return string(b), err
	}
	file, ok := files[path]
	if !ok {
		var err error
		if file, err = readProperties(path); err != nil {
			return "", err
		}
		files[path] = file
	}
	text, ok := file[key]
	if !ok {
		return "", fmt.Errorf("%s has no key %s", path, key)
	}
	return text, nil
}
