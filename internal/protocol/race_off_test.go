//go:build !race

package protocol

// raceFactor is what the race detector multiplies allocations by; see race_on_test.go.
const raceFactor = 1
