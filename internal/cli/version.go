package cli

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"ottla"
)

// KafkaVersion is the release of Apache Kafka whose protocol and files are meant.
const KafkaVersion = "4.4"

// A VersionInfo says what this binary is.
type VersionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision" doc:"the commit it was built from; unknown if not recorded"`
	Kafka    string `json:"kafka" doc:"Apache Kafka release it is compatible with"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) version() *cobra.Command {
	return a.leaf(leaf{
		use: "version", short: "Print the version.", example: "ottla version\nottla version -o json", result: VersionInfo{},
		run: func(context.Context, []string) error {
			v := VersionInfo{version(), revision(), KafkaVersion, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return a.showOne(v, v.Version, func(w io.Writer) {
				fmt.Fprintf(w, "ottla %s · %s · Kafka %s protocol · %s · %s\n", v.Version, v.Platform, v.Kafka, v.Go, v.Revision)
			})
		},
	})
}

func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}

// version is that of the root package.
func version() string { return ottla.Version }
