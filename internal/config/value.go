package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A value is a parsed value. Which field counts is a matter of the key's type; text is the canonical
// form for all of them, as Kafka prints it.
type value struct {
	null    bool
	text    string
	integer int64
	double  float64
	boolean bool
	list    []string
	isFloat bool
}

func (v value) number() float64 {
	if v.isFloat {
		return v.double
	}
	return float64(v.integer)
}

// An InvalidError is a value that a key does not take. Its text is Kafka's, with the origin of the
// value behind it where that is known.
type InvalidError struct {
	Key     string
	Value   string // "****" if the key is a secret
	Problem string // Kafka's sentence, such as "Value must be at least 1"
	Allowed string // what would have been right; "" if the problem says it
	Origin  Origin
	bare    bool // the problem is the whole sentence
}

// Error returns one line.
func (e *InvalidError) Error() string {
	s := e.Kafka()
	if !strings.Contains(s, e.Key) {
		s = e.Key + ": " + s
	}
	if e.Allowed != "" {
		s += " (allowed: " + e.Allowed + ")"
	}
	if e.Origin.From != "" {
		s += ", from " + e.Origin.From
	}
	return s
}

// Kafka returns the sentence as Apache Kafka words it, without allowed values and origin: the error
// message of an answer to a client.
func (e *InvalidError) Kafka() string {
	if e.bare {
		return e.Problem
	}
	return fmt.Sprintf("Invalid value %s for configuration %s: %s", e.Value, e.Key, e.Problem)
}

func (k *Key) invalid(text, problem string) *InvalidError {
	if k.Sensitive() {
		text = "****"
	}
	e := &InvalidError{Key: k.Name, Value: text, Problem: problem}
	if k.Rule == nil {
		e.Allowed = typeNames[k.Type]
	}
	return e
}

var typeNames = map[kmsg.ConfigType]string{
	Boolean: "true or false", Int: "a whole number", Short: "a whole number", Long: "a whole number", Double: "a number",
}

// parse reads text as a value of k and holds it against k's rule. Errors are *InvalidError.
// Source of syntax and messages: ConfigDef.parseType and its validators.
func (k *Key) parse(text string) (value, error) {
	v, err := k.parseType(text)
	if err != nil {
		return value{}, err
	}
	if k.Rule == nil {
		return v, nil
	}
	err = k.Rule.check(k, v)
	if err == nil {
		return v, nil
	}
	bad := k.invalid(v.text, err.Error())
	if k.Type == List {
		bad.Value = "[" + strings.Join(v.list, ", ") + "]" // as Java prints a list
	}
	var item itemError
	var whole wholeError
	switch {
	case errors.As(err, &item):
		bad.Value = item.item
	case errors.As(err, &whole):
		bad.bare = true
	}
	return value{}, bad
}

func (k *Key) parseType(text string) (value, error) {
	text = javaTrim(text)
	v := value{text: text}
	switch k.Type {
	case Boolean:
		if !strings.EqualFold(text, "true") && !strings.EqualFold(text, "false") {
			return v, k.invalid(text, "Expected value to be either true or false")
		}
		v.text = strings.ToLower(text)
		v.boolean = v.text == "true"
	case Int, Short, Long:
		n, err := strconv.ParseInt(text, 10, widths[k.Type])
		if err != nil {
			return v, k.invalid(text, "Not a number of type "+kafkaTypes[k.Type])
		}
		v.integer, v.text = n, strconv.FormatInt(n, 10)
	case Double:
		d, err := parseJavaDouble(text)
		if err != nil {
			return v, k.invalid(text, "Not a number of type DOUBLE")
		}
		v.double, v.isFloat, v.text = d, true, formatJavaDouble(d)
	case List:
		v.list = splitList(text)
		if _, ok := k.Rule.(items); ok {
			v.list = withoutRepeats(v.list)
		}
		v.text = strings.Join(v.list, ",")
	}
	return v, nil
}

var widths = map[kmsg.ConfigType]int{Int: 32, Short: 16, Long: 64}

var kafkaTypes = map[kmsg.ConfigType]string{
	Boolean: "BOOLEAN", String: "STRING", Int: "INT", Short: "SHORT", Long: "LONG",
	Double: "DOUBLE", List: "LIST", Class: "CLASS", Password: "PASSWORD",
}

// javaTrim takes blanks and control characters off both ends, as String.trim does.
func javaTrim(s string) string { return strings.TrimFunc(s, func(r rune) bool { return r <= ' ' }) }

var comma = regexp.MustCompile(`\s*,\s*`)

// splitList cuts at commas and takes the blanks beside them away; nothing is the empty list.
func splitList(text string) []string {
	if text == "" {
		return nil
	}
	return comma.Split(text, -1)
}

func withoutRepeats(list []string) []string {
	var out []string
	for _, item := range list {
		if !slices.Contains(out, item) {
			out = append(out, item)
		}
	}
	return out
}

// parseJavaDouble reads what Double.parseDouble reads, but for hexadecimal numbers.
func parseJavaDouble(s string) (float64, error) {
	switch strings.TrimLeft(s, "+-") {
	case "NaN":
		return math.NaN(), nil
	case "Infinity":
		if s[0] == '-' {
			return math.Inf(-1), nil
		}
		return math.Inf(1), nil
	}
	digits := strings.TrimRight(s, "fFdD")
	if len(s)-len(digits) > 1 || digits == "" {
		return 0, strconv.ErrSyntax
	}
	for _, r := range digits {
		if !strings.ContainsRune("0123456789+-.eE", r) {
			return 0, strconv.ErrSyntax
		}
	}
	d, err := strconv.ParseFloat(digits, 64)
	if errors.Is(err, strconv.ErrRange) { // Java rounds to infinity or zero
		return d, nil
	}
	return d, err
}

// formatJavaDouble prints as Double.toString does: 0.5, 1.0, 1.7976931348623157E308.
func formatJavaDouble(d float64) string {
	switch abs := math.Abs(d); {
	case math.IsNaN(d):
		return "NaN"
	case math.IsInf(d, 0):
		return map[bool]string{true: "Infinity", false: "-Infinity"}[d > 0]
	case abs == 0, abs >= 1e-3 && abs < 1e7:
		s := strconv.FormatFloat(d, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(d, 'e', -1, 64), "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	n, _ := strconv.Atoi(exponent) // FormatFloat wrote it
	return mantissa + "E" + strconv.Itoa(n)
}
