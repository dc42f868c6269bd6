package config

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A Finding is what `ottla config check` says about one key of a file.
type Finding struct {
	Key     string `json:"key"`
	Value   string `json:"value"`             // "****" if it is a secret
	Verdict string `json:"verdict"`           // "used", "used differently", "ignored", "not yet", "refused", "unknown" or "invalid"
	Why     string `json:"why,omitempty"`     // a clause without full stop
	Default string `json:"default,omitempty"` // what holds when the key is left out
	From    string `json:"from"`
}

// A Report is the result of [Check].
type Report struct {
	Findings []Finding `json:"findings"` // by key
	Errors   []string  `json:"errors"`   // why the configuration would not start; one line each
}

// Check reads the sources as [Parse] does and tells of every key that they set what becomes of it. An
// error means that they cannot be read at all.
func Check(s Sources) (*Report, error) {
	raw, err := s.read()
	if err != nil {
		return nil, err
	}
	_, errs := build(raw)
	report := &Report{Findings: []Finding{}, Errors: []string{}}
	wrong := map[string]bool{}
	for _, err := range errs {
		report.Errors = append(report.Errors, err.Error())
		var bad *InvalidError
		if errors.As(err, &bad) {
			wrong[bad.Key] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		f := finding(name, raw[name])
		if wrong[name] {
			f.Verdict = "invalid"
		}
		report.Findings = append(report.Findings, f)
	}
	return report, nil
}

func finding(name string, r rawSetting) Finding {
	f := Finding{Key: name, Value: r.text, From: r.origin.From}
	k, known := Lookup(name)
	switch {
	case known:
		state, why := k.stateOf(name)
		f.Verdict, f.Why, f.Default = state.String(), why, k.defaultValue().text
		v, err := k.parse(r.text)
		if err != nil {
			f.Verdict = "invalid"
		} else if k.State == Refused && (v.text == "" || v.text == f.Default) {
			f.Verdict, f.Why = "used", "the default, which asks for nothing"
		}
	case strings.HasPrefix(name, "config.providers."):
		f.Verdict = "used"
	default:
		f.Verdict, f.Why = "unknown", unknown(name, brokerTable)
		if why, ignored := strings.CutPrefix(f.Why, "is ignored: "); ignored {
			f.Verdict, f.Why = "ignored", why
		}
	}
	if secret(name) {
		f.Value = "****"
	}
	return f
}

// secret reports whether a value is not for human eyes: passwords by type, and names unknown to the
// table that sound like one.
func secret(name string) bool {
	if k, known := Lookup(name); known {
		return k.Sensitive()
	}
	for _, word := range []string{"password", "secret", "token", "credential", "jaas"} {
		if strings.Contains(strings.ToLower(name), word) {
			return true
		}
	}
	return false
}

// A Line is an effective value, as `ottla config show` prints it.
type Line struct {
	Key    string `json:"key"`
	Value  string `json:"value"` // "****" if it is a secret
	Origin string `json:"origin"`
	Set    bool   `json:"set"` // by anybody, as opposed to the default
}

// Show lists the effective value of every key and who set it, by key. Keys that only tests use appear
// when they are set.
func (c *Config) Show() []Line {
	var out []Line
	add := func(name string, s setting) {
		l := Line{Key: name, Value: s.text, Origin: s.origin.From, Set: s.origin.Source != kmsg.ConfigSourceDefaultConfig}
		if secret(name) && s.text != "" {
			l.Value = "****"
		}
		out = append(out, l)
	}
	for i := range brokerTable.keys {
		if k := &brokerTable.keys[i]; !k.Internal || c.IsSet(k.Name) {
			add(k.Name, c.settings[k.Name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.others)) {
		add(name, c.others[name])
	}
	slices.SortFunc(out, func(a, b Line) int { return strings.Compare(a.Key, b.Key) })
	return out
}
