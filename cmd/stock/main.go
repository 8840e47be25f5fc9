// Command stock deducts units of items from stock over HTTP, with a choice of concurrency-control strategies.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"stock/internal/access"
	"stock/internal/suggest"
)

func main() {
	logging.Disable() // go-redis logs to standard error at any log level, and also returns what it logs as errors
	err := run(untilSignal(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "stock:", err)
	}
	os.Exit(exitCode(err))
}

// untilSignal returns a context that ends at the first signal. From then on, signals are no longer caught: a second one
// kills at once.
func untilSignal() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}

// exitError has an exit code of its own: see exitCode.
type exitError struct {
	error
	code int
}

func (e exitError) Unwrap() error { return e.error }

// Exit codes of failures.
const (
	exitFailed    = 1
	exitMisused   = 2 // a mistake in the command line or the environment: nothing was started
	exitUndecided = 3 // reconcile found no difference, but could not compare everything
)

func usagef(format string, args ...any) error {
	return exitError{fmt.Errorf(format, args...), exitMisused}
}

// exitCode returns 0 for success.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[exitError](err); ok {
		return e.code
	}
	return exitFailed
}

// run is the program except for signals and the exit code. It returns when the command is done or ctx ends.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	root := &cobra.Command{
		Use:   "stock",
		Short: "An inventory service with a choice of concurrency control",
		Long: `stock deducts units of items from stock over HTTP. Every request can choose one of many strategies: locks,
transactions, conditional updates, and some that are wrong on purpose.

Every flag can also be set in the environment, for example --mysql-dsn as STOCK_MYSQL_DSN. Flags take precedence.
The exit status is 0 for success, 2 for a mistake in the configuration and 1 for any other failure. Only reconcile has
one more.`,
		Example: `  stock migrate --mysql-dsn 'root:secret@tcp(127.0.0.1:3306)/stock'
  stock serve   --mysql-dsn 'root:secret@tcp(127.0.0.1:3306)/stock' --redis 127.0.0.1:6379
  curl -X POST  'http://127.0.0.1:8080/stock/deduct?goods_id=1&count=1'`,
		Args:          noArguments,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, // main prints the error
		SilenceUsage:  true,
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w%s; see %s --help", err, suggest.Flag(cmd.Flags(), err), cmd.CommandPath())
	})
	root.AddCommand(newServe(getenv), newMigrate(getenv), newPrune(getenv), newReconcile(getenv),
		newHealthcheck(getenv), newVersion())
	return access.Explain(root.ExecuteContext(ctx))
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		var commands []string
		for _, c := range cmd.Commands() {
			commands = append(commands, c.Name())
		}
		return usagef("unknown command or argument %q%s; see %s --help", args[0],
			suggest.DidYouMean(args[0], commands), cmd.CommandPath())
	}
	return nil
}
