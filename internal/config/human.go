package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// FromHuman turns a size or a time as people write it ("512MiB", "7d", "1h30m", "unlimited") into the
// plain number that Kafka wants. Text that is a plain number already, or of a key that counts
// neither, comes back unchanged. An error says what would have been right.
func (k *Key) FromHuman(text string) (string, error) {
	unit := k.Unit()
	text = strings.TrimSpace(text)
	if unit == "" || text == "" {
		return text, nil
	}
	if _, err := strconv.ParseInt(text, 10, 64); err == nil {
		return text, nil
	}
	if text == "unlimited" || text == "forever" {
		return "-1", nil
	}
	if unit == "bytes" {
		n, err := ParseSize(text)
		return strconv.FormatInt(n, 10), err
	}
	ms, err := ParseMilliseconds(text)
	if err != nil {
		return "", err
	}
	per := map[string]int64{"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000}[unit]
	if ms%per != 0 {
		return "", fmt.Errorf("%s is no whole number of the unit of %s", text, k.Name)
	}
	return strconv.FormatInt(ms/per, 10), nil
}

var sizeUnits = []struct {
	suffix string
	bytes  float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40},
	{"K", 1 << 10}, {"k", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40}, {"B", 1},
}

// ParseSize reads a size such as 512MiB, 1.5GiB, 10MB or a plain number, in bytes. A bare K, M, G or T
// is a power of 1024.
func ParseSize(text string) (int64, error) {
	digits, unit := text, 1.0
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			digits, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsNaN(n) || n < 0 || n*unit >= 1<<63 {
		return 0, fmt.Errorf("%q is no size (write 1048576, 512KiB, 1.5GiB)", text)
	}
	return int64(n * unit), nil
}

var timeUnits = []struct {
	suffix string
	ms     float64
}{{"ms", 1}, {"s", 1e3}, {"m", 6e4}, {"h", 36e5}, {"d", 864e5}, {"w", 7 * 864e5}}

// ParseMilliseconds reads a time such as 7d, 1h30m, 250ms or a plain number, in milliseconds.
func ParseMilliseconds(text string) (int64, error) {
	bad := fmt.Errorf("%q is no time (write 250ms, 90s, 1h30m, 7d)", text)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return n, nil
	}
	total := 0.0
	for rest := text; rest != ""; {
		end := strings.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
		if end <= 0 {
			return 0, bad
		}
		n, err := strconv.ParseFloat(rest[:end], 64)
		if err != nil {
			return 0, bad
		}
		rest = rest[end:]
		end = strings.IndexFunc(rest, func(r rune) bool { return r >= '0' && r <= '9' })
		if end < 0 {
			end = len(rest)
		}
		unit := 0.0
		for _, u := range timeUnits {
			if rest[:end] == u.suffix {
				unit = u.ms
			}
		}
		if unit == 0 {
			return 0, bad
		}
		total, rest = total+n*unit, rest[end:]
	}
	if text == "" || total >= 1<<63 {
		return 0, bad
	}
	return int64(math.Round(total)), nil
}
