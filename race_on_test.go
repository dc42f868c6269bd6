//go:build race

package ottla_test

// raceFactor: the race detector keeps shadow bytes of what is accessed, five to ten times as many
// (go.dev/doc/articles/race_detector).
const raceFactor = 10
