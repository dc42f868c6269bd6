// Package cli is the command line: the tree of commands, what they print, and how they fail. Every
// command is a thin shell: it reads flags, asks a broker through kadm and kgo as any Kafka client would,
// and prints a typed result. [Main] is the only entrance; it starts nothing that outlives it.
//
// What holds for every command: results go to stdout, everything else to stderr; -o json prints the type
// whose schema --schema prints; an error is one line with Kafka's name for it and a next step; the exit
// code tells its kind ([ExitUsage] and its neighbours).
package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// IO is the world as a command sees it.
type IO struct {
	Args     []string // without the program's name
	Env      []string // as os.Environ gives it
	In       io.Reader
	Out, Err io.Writer
	Terminal bool // In and Out are a person's terminal
}

// Main runs the command line of this process and returns its exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends the process at once
	return Run(ctx, IO{
		Args: os.Args[1:], Env: os.Environ(), In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Terminal: term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd())),
	})
}

// Run runs one command and returns its exit code. If ctx is cancelled the command ends and the code is
// [ExitInterrupted].
func Run(ctx context.Context, world IO) int {
	a := newApp(world)
	root := a.root()
	root.SetArgs(world.Args)
	err := root.ExecuteContext(ctx)
	if flushed := a.out.Flush(); err == nil && flushed != nil && !errors.Is(flushed, syscall.EPIPE) {
		err = fmt.Errorf("write to stdout: %w", flushed)
	}
	if err == nil || errors.Is(err, syscall.EPIPE) { // `| head` has seen enough
		return ExitDone
	}
	if ctx.Err() != nil && !errors.As(err, new(*conditionError)) {
		return ExitInterrupted
	}
	for _, line := range errorLines(err) {
		fmt.Fprintln(a.err, "ottla: "+line)
	}
	return exitCode(err)
}

// app is what the commands of one run share.
type app struct {
	IO
	out *bufio.Writer // over IO.Out; flushed at the end, and by followers after each burst
	err io.Writer

	// flags of all commands
	bootstrap     string
	commandConfig string
	properties    []string
	timeout       time.Duration
	verbose       bool
	quiet         bool
	noColor       bool

	// flags of all leaves
	format string
	schema bool
	// of those that change something
	yes, dryRun bool
}

func newApp(world IO) *app {
	return &app{IO: world, out: bufio.NewWriterSize(world.Out, 64<<10), err: world.Err}
}

// env returns a variable of the environment, or "".
func (a *app) env(name string) string {
	value := ""
	for _, e := range a.Env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			value = v
		}
	}
	return value
}

const defaultBootstrap = "127.0.0.1:9092"

// shortHelp is what bare `ottla` prints: ten lines, and no server started by accident.
const shortHelp = `ottla is an event-streaming broker that speaks Apache Kafka's protocol.

  ottla serve                       start a broker here, data in ./ottla-data
  ottla topic create hello -p 3     make a topic
  seq 5 | ottla produce hello       write to it
  ottla consume hello -n 5          read it
  ottla cluster health              is anything wrong?
  ottla bench produce               how fast is it?

ottla --help lists all commands; each has --help with examples.
`

func (a *app) root() *cobra.Command {
	root := group("ottla", "An event-streaming broker that speaks Apache Kafka's protocol.",
		a.serve(), a.topics(), a.produce(), a.consume(), a.groups(), a.configs(), a.cluster(), a.brokers(), a.partitions(),
		a.logs(), a.bench(), a.version())
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(a.In)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		_, err := a.out.WriteString(shortHelp)
		return err
	}
	root.SetFlagErrorFunc(flagError)
	f := root.PersistentFlags()
	f.StringVarP(&a.bootstrap, "bootstrap-server", "b", "", "brokers to ask, `host:port,…` (default $OTTLA_BOOTSTRAP_SERVER or "+defaultBootstrap+")")
	f.StringVar(&a.commandConfig, "command-config", a.env("OTTLA_COMMAND_CONFIG"), "`file` with Java client properties")
	f.StringArrayVarP(&a.properties, "property", "X", nil, "a Java client property, `key=value`; may be repeated")
	f.DurationVar(&a.timeout, "timeout", 10*time.Second, "longest wait for an answer")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "log the requests to stderr")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "print nothing but results and errors")
	f.BoolVar(&a.noColor, "no-color", false, "no colours, as with NO_COLOR")
	root.CompletionOptions.HiddenDefaultCmd = false
	return root
}

// group makes a command that only holds others.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.ArbitraryArgs,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true}, // so that a mistyped verb is what is reported
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(children...)
	return cmd
}

// plural lets `ottla topics list` work as well.
func plural(cmd *cobra.Command) *cobra.Command {
	cmd.Aliases = append(cmd.Aliases, cmd.Name()+"s")
	return cmd
}

// A leaf is a command that does something. Result is the zero value of what -o json prints; lists are
// slices.
type leaf struct {
	use, short string
	example    string // lines without indentation
	args       cobra.PositionalArgs
	complete   func(ctx context.Context, toComplete string) []string
	result     any
	formats    []string // of -o beyond the usual ones
	flags      func(f *pflag.FlagSet)
	run        func(ctx context.Context, args []string) error
}

func (a *app) leaf(l leaf) *cobra.Command {
	cmd := &cobra.Command{Use: l.use, Short: l.short, Example: indent(l.example), Args: usageArgs(l.args)}
	formats := append([]string{"table", "wide", "json", "jsonl", "name"}, l.formats...)
	f := cmd.Flags()
	f.StringVarP(&a.format, "output", "o", "table", "form of the result: "+strings.Join(formats, ", "))
	f.BoolVar(&a.schema, "schema", false, "print the JSON Schema of the result and do nothing else")
	if l.flags != nil {
		l.flags(f)
	}
	cmd.Annotations = map[string]string{schemaAnnotation: schemaOf(l.result)}
	if l.complete != nil {
		cmd.ValidArgsFunction = completion(l.complete)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := oneOf("-o", a.format, formats); err != nil {
			return err
		}
		if a.schema {
			_, err := a.out.WriteString(cmd.Annotations[schemaAnnotation] + "\n")
			return err
		}
		return l.run(cmd.Context(), args)
	}
	inner := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if a.schema {
			return nil
		}
		return inner(cmd, args)
	}
	return cmd
}

// completion gives live names, for at most a second and silent on failure.
func completion(names func(ctx context.Context, toComplete string) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
		defer cancel()
		return names(ctx, toComplete), cobra.ShellCompDirectiveNoFileComp
	}
}

func indent(example string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(example), "\n", "\n  ")
}

// note prints a line for people, beside the result and behind what there is of it.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		_ = a.out.Flush() // its error stays with the writer, and is met at the end
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

// changes adds the flags of a command that changes or destroys something.
func (a *app) changes(f *pflag.FlagSet) {
	f.BoolVar(&a.yes, "yes", false, "do not ask")
	f.BoolVar(&a.dryRun, "dry-run", false, "show what would change, and change nothing")
}

// confirm shows what would change and asks. It returns whether to go on: not for --dry-run, and not
// without an answer; without a terminal and without --yes it is a usage error.
func (a *app) confirm(question string) (bool, error) {
	switch {
	case a.dryRun:
		a.note("dry run: nothing changed")
		return false, nil
	case a.yes:
		return true, nil
	case !a.Terminal:
		return false, usagef("%s needs --yes when nobody can be asked (or --dry-run to look first)", question)
	}
	fmt.Fprintf(a.err, "%s? [y/N] ", question)
	answer, err := bufio.NewReader(a.In).ReadString('\n')
	if err != nil && err != io.EOF {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	a.note("nothing changed")
	return false, nil
}
