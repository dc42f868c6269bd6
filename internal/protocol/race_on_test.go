//go:build race

package protocol

// raceFactor: the race detector switches off the compiler's in-place
// append(s, make([]T, n)...), with which kmsg makes every array, so that each is
// made twice.
const raceFactor = 2
