// Command loadtest puts the stock service under load, judges what each strategy did to the stock, and compares the
// strategies.
//
//	loadtest run        start servers, run every strategy, judge each, and report
//	loadtest up         start the servers and keep them running
//	loadtest verify     judge a recorded run again
//	loadtest compare    show what changed between two reports
//	loadtest faults     play crashes, late writes and retries for every strategy
//	loadtest explore    execute every interleaving of two requests, with faults
//	loadtest plant      test the judge with planted bugs
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/internal/suggest"
	"stock/loadtest/internal/explore/script"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/tenant"
)

// Exit statuses.
const (
	exitHeld         = 0
	exitNotHeld      = 1 // a claim failed
	exitUnusable     = 2 // wrong usage, or something that the command needs is missing
	exitInconclusive = 3 // no claim failed, but not every one could be judged
	exitInterrupted  = 130
)

// Errors of a command whose report already says which claims failed, or could not be judged.
var (
	errNotHeld      = errors.New("not every claim held")
	errInconclusive = errors.New("not every claim could be judged")
)

// conclusion is the error that a command with a report ends with.
func conclusion(r *report.Report) error {
	switch {
	case r.Err() == nil:
		return nil
	case r.ClaimFailed:
		return errNotHeld
	}
	return errInconclusive
}

// startError is what a command whose lab did not start ends with. An interrupted start can fail in many ways, of which
// only what it has left on the user's servers is of interest.
func startError(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if left := tenant.Left(err); left != nil {
		return errors.Join(ctx.Err(), left)
	}
	return ctx.Err()
}

// revision is set by the Makefile and the Dockerfile. It ends in +dirty if files were changed.
var revision string

func main() {
	script.Interpret()
	leaveProcessorsToTheService()
	redis.SetLogger(quiet{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// After the first signal, restore the default: a second one kills this process. Its children die with it.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// quiet drops the messages of go-redis, which also returns them as errors.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// leaveProcessorsToTheService lets the load run on a quarter of the processors, unless the environment sets GOMAXPROCS.
// It usually shares them with the service, and Go's scheduler spends the time of each that it may use on looking for
// work: with one of two processors, the lab's noop was 15 % faster.
func leaveProcessorsToTheService() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.NumCPU()/4))
	}
}

func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   "loadtest",
		Short: "Put the stock service under load and judge what it did to the stock",
		Long: `loadtest puts the stock service under load, judges what each strategy did to the stock, and compares the
strategies.

Every flag can also be set in the environment, for example --mysql-dsn as LOADTEST_MYSQL_DSN.

Exit status: 0 every claim held; 1 a claim failed; 2 wrong usage, or something that the command needs is missing;
3 no claim failed, but not every one could be judged; 130 interrupted.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return fromEnvironment(cmd.Flags(), getenv)
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w%s; see %s --help", flagError(err), suggest.Flag(cmd.Flags(), err), cmd.CommandPath())
	})
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(commands(getenv)...)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitHeld
	case errors.Is(err, errNotHeld), errors.Is(err, errInconclusive):
		if text := err.Error(); text != errNotHeld.Error() && text != errInconclusive.Error() { // more than the report says
			fmt.Fprintln(stderr, "loadtest:", text)
		}
		if errors.Is(err, errNotHeld) {
			return exitNotHeld
		}
		return exitInconclusive
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "loadtest: interrupted")
		if more := besidesInterrupted(err); more != "" {
			fmt.Fprintln(stderr, "loadtest:", more)
		}
		return exitInterrupted
	}
	fmt.Fprintln(stderr, "loadtest:", err)
	return exitUnusable
}

// commands are all commands.
func commands(getenv func(string) string) []*cobra.Command {
	return []*cobra.Command{
		runCommand(getenv), upCommand(getenv), verifyCommand(), compareCommand(), plantCommand(), faultsCommand(getenv),
		exploreCommand(getenv),
	}
}

// besidesInterrupted returns what an interrupted command has to say besides that it was interrupted.
func besidesInterrupted(err error) string {
	return strings.TrimSpace(strings.TrimPrefix(err.Error(), context.Canceled.Error()))
}

// variable is the variable of the environment for a flag.
func variable(flag string) string {
	return "LOADTEST_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets the flags that are given in the environment and not on the command line. Those that have no
// meaning for a service of the user's are for other commands.
func fromEnvironment(flags *pflag.FlagSet, getenv func(string) string) error {
	ofUser := flags.Lookup("service") != nil && (flags.Changed("service") || getenv(variable("service")) != "")
	var errs []error
	flags.VisitAll(func(flag *pflag.Flag) {
		name := variable(flag.Name)
		if flag.Changed || ofUser && slices.Contains(withoutService, flag.Name) {
			return
		}
		if value := getenv(name); value != "" {
			if err := flags.Set(flag.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, flagError(err)))
			}
		}
	})
	return errors.Join(errs...)
}
