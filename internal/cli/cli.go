// Package cli is the kubectl plugin, kubectl routing: commands for pipelines and for people. The commands read flags
// and files, ask pure packages, and print; what those packages do not know is in no command.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/routing-operator/routing-operator/internal/release"
	simulatecmd "github.com/routing-operator/routing-operator/internal/simulate/cmd"
)

// Exit codes, besides those that a command gives a meaning of its own.
const (
	exitOK       = 0
	exitProblems = 1
	// exitUsage is for a command line that cannot be understood and for a command that could not be carried out.
	exitUsage = 2
	// exitInterrupted is what shells make of SIGINT.
	exitInterrupted = 130
)

// exit ends the program with a code. The error, if any, is printed before.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// app is what commands share.
type app struct {
	genericiooptions.IOStreams
	clock clock.PassiveClock
}

// Run executes a command line, without the program's name, and returns the exit code.
func Run(ctx context.Context, args []string, streams genericiooptions.IOStreams, clock clock.PassiveClock) int {
	root := New(streams, clock)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var ended *exit
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &ended):
		if ended.err != nil {
			fmt.Fprintf(streams.ErrOut, "error: %s\n", explained(ended.err))
		}
		return ended.code
	case errors.Is(err, errInterrupted) || ctx.Err() != nil:
		fmt.Fprintln(streams.ErrOut, "interrupted")
		return exitInterrupted
	default:
		fmt.Fprintf(streams.ErrOut, "error: %s\n", explained(err))
		return exitUsage
	}
}

// New makes the command with everything below it.
func New(streams genericiooptions.IOStreams, clock clock.PassiveClock) *cobra.Command {
	a := &app{IOStreams: streams, clock: clock}
	root := &cobra.Command{
		Use:   "kubectl-routing",
		Short: "Adopt, check, preview and steer the routing of an LLM platform",
		Long: `Works with RoutingPlanes and RoutingPolicies by the rules that the operator itself goes by.

Without a cluster: import, validate, render, simulate, and plan between two revisions of files.
With one: plan, status, pause, resume, history, rollback, unpin, retry and release.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl routing"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.AddGroup(
		&cobra.Group{ID: groupFiles, Title: "Without a cluster:"},
		&cobra.Group{ID: groupCluster, Title: "With a cluster:"},
	)
	for _, command := range []*cobra.Command{a.importCommand(), a.validateCommand(), a.renderCommand(), a.simulateCommand()} {
		command.GroupID = groupFiles
		root.AddCommand(command)
	}
	for _, command := range []*cobra.Command{
		a.planCommand(), a.statusCommand(), a.pauseCommand(), a.resumeCommand(), a.historyCommand(), a.rollbackCommand(), a.unpinCommand(), a.retryCommand(), a.releaseCommand(),
	} {
		command.GroupID = groupCluster
		root.AddCommand(command)
	}
	root.AddCommand(a.versionCommand())
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w%s; see %s --help", err, alike(c, err), c.CommandPath())
	})
	// Cobra says the same a moment later, without a word on where to look.
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if err := cmp.Or(c.ValidateRequiredFlags(), c.ValidateFlagGroups()); err != nil {
			return fmt.Errorf("%w; see %s --help", err, c.CommandPath())
		}
		return nil
	}
	return root
}

// alike names the flags that an unknown one may stand for, found as cobra finds commands.
func alike(c *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	flags := &cobra.Command{SuggestionsMinimumDistance: 2}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	found := flags.SuggestionsFor(unknown.GetSpecifiedName())
	if len(found) == 0 {
		return ""
	}
	return "; did you mean --" + strings.Join(found, ", --") + "?"
}

// noArguments refuses arguments, and says which flag takes what people write there.
func noArguments(flag string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("%s takes no argument such as %q; files are named with %s", c.CommandPath(), args[0], flag)
		}
		return nil
	}
}

// simulateCommand is a program's own elsewhere, whose examples do not say kubectl routing.
func (a *app) simulateCommand() *cobra.Command {
	c := simulatecmd.New(a.IOStreams)
	c.Example = strings.ReplaceAll(c.Example, "  simulate ", "  kubectl routing simulate ")
	return c
}

const (
	groupFiles   = "files"
	groupCluster = "cluster"
)

// stargateFlags say which Stargate is meant.
type stargateFlags struct {
	version     string
	generations map[string]string
}

func (f *stargateFlags) add(command *cobra.Command, unset string) {
	command.Flags().StringVar(&f.version, "stargate-version", "", "`release` of Stargate, such as 0.18.0, or a generation from V0 to V3 ("+unset+")")
	f.addTable(command)
	_ = command.RegisterFlagCompletionFunc("stargate-version", cobra.FixedCompletions([]string{"V0", "V1", "V2", "V3"}, cobra.ShellCompDirectiveNoFileComp))
}

// addTable adds the flag that the operator's manager has too.
func (f *stargateFlags) addTable(command *cobra.Command) {
	command.Flags().StringToStringVar(&f.generations, "stargate-generations", nil, "first Stargate `release` of each generation, as the operator has it (default V0=0.10.0,V1=0.18.0)")
	command.Flags().Lookup("stargate-generations").DefValue = "" // that of a flag of this type would be shown as []
}

func (f *stargateFlags) table() (release.Table, error) {
	if len(f.generations) == 0 {
		return release.DefaultTable(), nil
	}
	table, err := release.ParseTable(f.generations)
	if err != nil {
		return release.Table{}, fmt.Errorf("--stargate-generations: %w", err)
	}
	return table, nil
}

// generation of the release that was stated; ok is false where none was.
func (f *stargateFlags) generation() (generation release.Generation, ok bool, err error) {
	if f.version == "" {
		_, err := f.table()
		return release.Unknown, false, err
	}
	if generation, err = f.parse(f.version); err != nil {
		return release.Unknown, false, fmt.Errorf("--stargate-version: %w", err)
	}
	return generation, true, nil
}

// parse finds the generation of a release, or of a generation's own name.
func (f *stargateFlags) parse(version string) (release.Generation, error) {
	table, err := f.table()
	if err != nil {
		return release.Unknown, err
	}
	stated, err := table.Parse(version)
	if err != nil {
		return release.Unknown, err
	}
	if stated.Generation == release.Unsupported {
		return release.Unknown, fmt.Errorf("the operator does not support Stargate %s: it is older than the first release of its feature table; upgrade Stargate first", stated.Version)
	}
	return stated.Generation, nil
}

// count writes a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
