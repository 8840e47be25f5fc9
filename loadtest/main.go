// Command loadtest puts the stock service under load, judges what every strategy did to the stock, and compares them.
//
//	loadtest run        start servers, run every strategy, judge, report
//	loadtest up         start the servers and keep them
//	loadtest verify     judge a recorded run again
//	loadtest compare    compare two reports
//	loadtest targets    write targets for vegeta
//	loadtest bench      compare the fastest strategies with what the machine allows
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit statuses.
const (
	exitHeld        = 0
	exitNotHeld     = 1 // a claim failed or could not be judged
	exitUnusable    = 2 // wrong usage, or the environment lacks something
	exitInterrupted = 130
)

// errNotHeld ends a command whose report has said already what did not hold.
var errNotHeld = errors.New("not every claim held")

// revision is set by the Dockerfile: an image is built without the repository, which would tell.
var revision string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the next one has its default effect: it kills. The children die with their parent.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   "loadtest",
		Short: "Put the stock service under load and judge what it did to the stock",
		Long: `loadtest puts the stock service under load, judges what every strategy did to the stock, and compares them.

Every flag can also be given in the environment: --mysql-dsn is LOADTEST_MYSQL_DSN.

Exit status: 0 every claim held; 1 a claim failed, or could not be judged; 2 wrong usage, or something is
missing here; 130 interrupted.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return fromEnvironment(cmd.Flags(), getenv)
		},
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(runCommand(getenv), upCommand(), verifyCommand(), compareCommand(), targetsCommand(),
		benchCommand(), bareCommand())
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitHeld
	case err == errNotHeld: // the report has said it
		return exitNotHeld
	case errors.Is(err, errNotHeld):
		fmt.Fprintln(stderr, "loadtest:", err)
		return exitNotHeld
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "loadtest: interrupted")
		if err != context.Canceled {
			fmt.Fprintln(stderr, "loadtest:", err)
		}
		return exitInterrupted
	}
	fmt.Fprintln(stderr, "loadtest:", err)
	return exitUnusable
}

// fromEnvironment sets each flag that the command line does not give and the environment does.
func fromEnvironment(flags *pflag.FlagSet, getenv func(string) string) error {
	var errs []error
	flags.VisitAll(func(flag *pflag.Flag) {
		name := "LOADTEST_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		if value := getenv(name); value != "" && !flag.Changed {
			if err := flags.Set(flag.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		}
	})
	return errors.Join(errs...)
}
