//go:build !race

package ottla_test

// raceFactor is what the race detector multiplies memory by; see race_on_test.go.
const raceFactor = 1
