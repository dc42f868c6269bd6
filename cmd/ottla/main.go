// Command ottla is the broker and its command line in one binary; see `ottla --help`.
package main

import (
	"os"

	"ottla/internal/cli"
)

func main() { os.Exit(cli.Main()) }
