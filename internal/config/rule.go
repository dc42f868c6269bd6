package config

import (
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Rule is what a value must satisfy beyond its type. It says in String which values it allows.
type Rule interface {
	// check returns nil or the complaint about a parsed value, in the words that Kafka uses.
	check(k *Key, v value) error
	fmt.Stringer
}

// bounds allows the numbers from min to max, and one more if extra is set.
type bounds struct {
	min, max float64 // ±Inf is open
	extra    *float64
}

func atLeast(min float64) Rule      { return bounds{min: min, max: math.Inf(1)} }
func between(min, max float64) Rule { return bounds{min: min, max: max} }
func betweenOr(min, max, extra float64) Rule {
	return bounds{min: min, max: max, extra: &extra}
}

func (b bounds) check(_ *Key, v value) error {
	n := v.number()
	switch {
	case b.extra != nil && (n == *b.extra || n >= b.min && n <= b.max):
		return nil
	case b.extra != nil:
		return said("Value must be between %s and %s or equal to %s", plain(b.min), plain(b.max), plain(*b.extra))
	case n < b.min:
		return said("Value must be at least %s", plain(b.min))
	case n > b.max || math.IsNaN(n):
		return said("Value must be no more than %s", plain(b.max))
	}
	return nil
}

func (b bounds) String() string {
	s := fmt.Sprintf("at least %s", plain(b.min))
	if !math.IsInf(b.max, 1) {
		s = fmt.Sprintf("%s to %s", plain(b.min), plain(b.max))
	}
	if b.extra != nil {
		s += " or " + plain(*b.extra)
	}
	return s
}

func plain(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// words allows one of a few strings.
type words struct {
	allowed []string
	fold    bool // upper and lower case are the same
}

func oneOf(allowed ...string) Rule     { return words{allowed: allowed} }
func oneOfFold(allowed ...string) Rule { return words{allowed: allowed, fold: true} }

func (w words) check(_ *Key, v value) error {
	for _, a := range w.allowed {
		if v.text == a || w.fold && strings.EqualFold(v.text, a) {
			return nil
		}
	}
	if w.fold {
		return said("String must be one of (case insensitive): %s", strings.Join(w.allowed, ", "))
	}
	return said("String must be one of: %s", strings.Join(w.allowed, ", "))
}

func (w words) String() string { return "one of " + strings.Join(w.allowed, ", ") }

// items is the rule of most lists: no item is empty, each counts once, and perhaps only some are
// allowed. Kafka drops repeated items instead of refusing them; so does the parser.
type items struct {
	allowed []string // empty is any
	filled  bool     // the list must have items
}

func distinct(allowed ...string) Rule { return items{allowed: allowed} }
func filled(allowed ...string) Rule   { return items{allowed: allowed, filled: true} }

func (r items) check(k *Key, v value) error {
	if r.filled && len(v.list) == 0 {
		return wholeError{fmt.Sprintf("Configuration '%s' must not be empty. Valid values include: %s", k.Name, r.valid())}
	}
	for _, item := range v.list {
		if item == "" {
			return wholeError{fmt.Sprintf("Configuration '%s' values must not be empty.", k.Name)}
		}
		if len(r.allowed) > 0 && !slices.Contains(r.allowed, item) {
			return itemError{item, words{allowed: r.allowed}.check(k, value{text: item})}
		}
	}
	return nil
}

func (r items) valid() string {
	switch {
	case len(r.allowed) > 0:
		return "[" + strings.Join(r.allowed, ", ") + "]"
	case r.filled:
		return "any non-empty value"
	}
	return "any value"
}

func (r items) String() string {
	if len(r.allowed) > 0 {
		return "a list of " + strings.Join(r.allowed, ", ")
	}
	return "a list separated by commas"
}

// A sentence is an error in Kafka's own words, which begin with a capital letter.
type sentence string

func (s sentence) Error() string { return string(s) }

func said(format string, args ...any) error { return sentence(fmt.Sprintf(format, args...)) }

// wholeError is a complaint that Kafka words without naming the value.
type wholeError struct{ message string }

func (e wholeError) Error() string { return e.message }

// itemError is a complaint about one item of a list, which Kafka names in the place of the value.
type itemError struct {
	item string
	error
}

// nonEmpty allows any text but the empty one, and null.
type nonEmpty struct{}

func (nonEmpty) check(_ *Key, v value) error {
	if !v.null && v.text == "" {
		return sentence("String must be non-empty")
	}
	return nil
}

func (nonEmpty) String() string { return "not empty" }

// voterList is the rule of controller.quorum.voters.
type voterList struct{}

func (voterList) check(_ *Key, v value) error {
	_, err := parseVoters(v.list)
	return err
}

func (voterList) String() string { return "a list of id@host:port" }

// serverList is the rule of controller.quorum.bootstrap.servers.
type serverList struct{}

func (serverList) check(_ *Key, v value) error {
	_, err := parseServers(v.list)
	return err
}

func (serverList) String() string { return "a list of host:port" }

// throttledReplicas is the rule of the two lists of throttled replicas.
type throttledReplicas struct{}

var throttledReplica = regexp.MustCompile(`^[0-9]+:[0-9]+$`)

func (throttledReplicas) check(k *Key, v value) error {
	if len(v.list) == 1 && v.list[0] == "*" {
		return nil
	}
	for _, item := range v.list {
		if !throttledReplica.MatchString(item) {
			return said("%s must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...", k.Name)
		}
	}
	return nil
}

func (throttledReplicas) String() string { return "* or a list of partition:broker" }

// shareOffsetReset is the rule of share.auto.offset.reset.
type shareOffsetReset struct{}

var isoDuration = regexp.MustCompile(`^(?i)P(?:\d+D)?(?:T(?:\d+H)?(?:\d+M)?(?:\d+(?:[.,]\d{0,9})?S)?)?$`)

func (shareOffsetReset) check(k *Key, v value) error {
	if v.text == "earliest" || v.text == "latest" {
		return nil
	}
	d, ok := strings.CutPrefix(v.text, "by_duration:")
	if ok && isoDuration.MatchString(d) && d[len(d)-1] != 'T' && len(d) > 1 {
		return nil
	}
	return said("Invalid value `%s` for configuration %s. The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.", v.text, k.Name)
}

func (shareOffsetReset) String() string { return "earliest, latest or by_duration:PnDTnHnMn.nS" }

// hostPort allows an address to listen on, or nothing.
type hostPort struct{}

func (hostPort) check(_ *Key, v value) error {
	if v.text == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(v.text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return sentence("Value must be host:port, or empty")
	}
	return nil
}

func (hostPort) String() string { return "host:port, or empty" }
