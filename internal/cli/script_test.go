package cli_test

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"ottla"
	"ottla/internal/cli"
)

var bootstrap = flag.String("bootstrap", "", "run the scripts against this broker, Apache's for instance, instead of ottla; one at a time: -run TestScript/NAME on an empty broker")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"ottla": func() { os.Exit(cli.Main()) }})
}

// TestScript runs testdata/script: command lines against a broker of their own, with what they must print.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			address := *bootstrap
			if address == "" {
				b, err := ottla.Start(t.Context(), ottla.Config{})
				if err != nil {
					return err
				}
				env.Defer(func() {
					if err := b.Close(); err != nil {
						t.Error(err)
					}
				})
				address = b.Addr()
			}
			env.Setenv("OTTLA_BOOTSTRAP_SERVER", address)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits CODE COMMAND… runs a command that must end with that code; its output is there for stdout and stderr.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	code, err := strconv.Atoi(args[0])
	if neg || err != nil {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		ts.Fatalf("%v: %v, want exit code %d", args[1:], err, code)
	}
}
