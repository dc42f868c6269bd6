package broker

import (
	"bytes"
	"math"
	"os"
	"strconv"
)

// memoryLimit returns how many bytes this process may use: what is configured, or, for 0, what the container or else
// the machine has.
func memoryLimit(configured int64) int64 {
	if configured > 0 {
		return configured
	}
	limit := machineMemory()
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if b, err := os.ReadFile(file); err == nil {
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64); err == nil && n > 0 {
				limit = min(limit, n) // version 1 says "none" with a huge number, version 2 with a word
			}
		}
	}
	if limit == math.MaxInt64 {
		return fallbackMemory
	}
	return limit
}

// fallbackMemory is assumed where the system does not tell.
const fallbackMemory = 1 << 30

// machineMemory reads MemTotal of /proc/meminfo; the largest number where there is none.
func machineMemory() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return math.MaxInt64
	}
	for line := range bytes.Lines(b) {
		fields := bytes.Fields(line)
		if len(fields) >= 2 && string(fields[0]) == "MemTotal:" {
			if kib, err := strconv.ParseInt(string(fields[1]), 10, 64); err == nil {
				return kib << 10
			}
		}
	}
	return math.MaxInt64
}
