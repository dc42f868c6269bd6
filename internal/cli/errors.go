package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kerr"

	"ottla/internal/config"
)

// The exit codes. Scripts rely on them; they never change meaning.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2   // the command line is wrong
	ExitNoBroker    = 3   // no broker, or no answer in time: a retry may help
	ExitNotFound    = 4   // topic, group, … does not exist
	ExitExists      = 5   // it exists already
	ExitForbidden   = 6   // not authorised or not authenticated
	ExitCondition   = 10  // an asked condition is not met: unhealthy, target missed
	ExitInterrupted = 130 // Ctrl-C
)

// usageError is a command line that cannot be carried out.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// conditionError is a condition that the user asked to hold and that does not.
type conditionError struct{ message string }

func (e *conditionError) Error() string { return e.message }

// noBrokerError is a connection that could not be made.
type noBrokerError struct {
	address string
	err     error
}

func (e *noBrokerError) Error() string {
	return fmt.Sprintf("no broker answers at %s: %s (start one: ottla serve; or name another: -b host:port)", e.address, cause(e.err))
}

func (e *noBrokerError) Unwrap() error { return e.err }

// cause takes the wrapping of the net package off, for one short line.
func cause(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err.Error()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return err.Error()
}

// failure is a request that a broker refused, with what was tried and what may help.
type failure struct {
	what    string // "create topic hello"
	err     error
	message string // the broker's own sentence, or ""
	hint    string // the next step, or ""
}

// failed describes err, which what ran into; nil if err is nil.
func failed(what string, err error, message, hint string) error {
	if err == nil {
		return nil
	}
	return &failure{what, err, message, hint}
}

func (e *failure) Unwrap() error { return e.err }

func (e *failure) Error() string {
	s := e.what + ": " + errorName(e.err)
	if e.message != "" {
		s += ": " + strings.TrimSuffix(strings.TrimSpace(e.message), ".")
	}
	if e.hint != "" {
		s += " (" + e.hint + ")"
	}
	return s
}

// errorName is Kafka's own name of an error if it is one of Kafka's.
func errorName(err error) string {
	var k *kerr.Error
	if errors.As(err, &k) {
		return k.Message
	}
	return cause(err)
}

var exitCodes = map[error]int{
	kerr.UnknownTopicOrPartition: ExitNotFound, kerr.UnknownTopicID: ExitNotFound, kerr.GroupIDNotFound: ExitNotFound,
	kerr.ResourceNotFound: ExitNotFound, kerr.UnknownMemberID: ExitNotFound,
	kerr.TopicAlreadyExists: ExitExists, kerr.DuplicateResource: ExitExists,
	kerr.TopicAuthorizationFailed: ExitForbidden, kerr.GroupAuthorizationFailed: ExitForbidden,
	kerr.ClusterAuthorizationFailed: ExitForbidden, kerr.TransactionalIDAuthorizationFailed: ExitForbidden,
	kerr.SaslAuthenticationFailed: ExitForbidden, kerr.UnsupportedSaslMechanism: ExitForbidden,
	kerr.RequestTimedOut: ExitNoBroker, kerr.BrokerNotAvailable: ExitNoBroker, kerr.CoordinatorNotAvailable: ExitNoBroker,
	kerr.LeaderNotAvailable: ExitNoBroker, kerr.NetworkException: ExitNoBroker, kerr.NotController: ExitNoBroker,
}

func exitCode(err error) int {
	switch {
	case errors.As(err, new(*usageError)):
		return ExitUsage
	case errors.As(err, new(*conditionError)):
		return ExitCondition
	case errors.As(err, new(*noBrokerError)):
		return ExitNoBroker
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	}
	var k *kerr.Error
	if errors.As(err, &k) {
		if code, ok := exitCodes[k]; ok {
			return code
		}
		return ExitFailed
	}
	var network *net.OpError
	if errors.As(err, &network) && network.Op != "listen" || errors.Is(err, context.DeadlineExceeded) {
		return ExitNoBroker
	}
	return ExitFailed
}

// errorLines splits joined errors into lines.
func errorLines(err error) []string { return strings.Split(strings.TrimSpace(err.Error()), "\n") }

// flagError turns what pflag says into one line with the nearest flag.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return usagef("%s (see: %s --help)", err, cmd.CommandPath())
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	name := unknown.GetSpecifiedName()
	if near := config.Suggest(name, names); near != "" && len(name) > 1 {
		return usagef("%s has no flag --%s; did you mean --%s?", cmd.CommandPath(), name, near)
	}
	return usagef("%s has no flag %s (see: %s --help)", cmd.CommandPath(), dashes(name), cmd.CommandPath())
}

func dashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func unknownCommand(cmd *cobra.Command, name string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if near := config.Suggest(name, names); near != "" {
		return usagef("%s has no command %s; did you mean %s?", cmd.CommandPath(), name, near)
	}
	return usagef("%s has no command %s (see: %s --help)", cmd.CommandPath(), name, cmd.CommandPath())
}

// usageArgs makes cobra's complaints about arguments usage errors of one line.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check == nil {
			check = cobra.NoArgs
		}
		if err := check(cmd, args); err != nil {
			return usagef("%s: %s (usage: %s)", cmd.CommandPath(), err, cmd.UseLine())
		}
		return nil
	}
}

// oneOf holds the value of a flag against the allowed ones.
func oneOf(flag, value string, allowed []string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	if near := config.Suggest(value, allowed); near != "" {
		return usagef("%s %s: did you mean %s?", flag, value, near)
	}
	return usagef("%s %s: choose one of %s", flag, value, strings.Join(allowed, ", "))
}
