package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/internal/access"
)

// flagGroup is a paragraph of a command's help.
type flagGroup struct {
	title string
	flags *pflag.FlagSet
}

func group(title string, define func(*pflag.FlagSet)) flagGroup {
	flags := pflag.NewFlagSet(title, pflag.ContinueOnError)
	flags.SortFlags = false
	define(flags)
	return flagGroup{title, flags}
}

// setFlags adds flags to a command, reads those that are not on the command line from the environment, and prints them
// by group in the command's help.
func setFlags(cmd *cobra.Command, getenv func(string) string, groups ...flagGroup) {
	for _, g := range groups {
		g.flags.VisitAll(func(f *pflag.Flag) { f.Usage += " [" + envName(f) + "]" })
		cmd.Flags().AddFlagSet(g.flags)
	}
	cmd.PreRunE = func(*cobra.Command, []string) error {
		for _, g := range groups {
			if err := fromEnvironment(g.flags, getenv); err != nil {
				return err
			}
		}
		return nil
	}
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		out := cmd.OutOrStderr()
		fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
		if cmd.HasExample() {
			fmt.Fprintf(out, "\nExamples:\n%s\n", cmd.Example)
		}
		for _, g := range groups {
			fmt.Fprintf(out, "\n%s:\n%s", g.title, g.flags.FlagUsagesWrapped(120))
		}
		return nil
	})
}

func fromEnvironment(flags *pflag.FlagSet, getenv func(string) string) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		value := getenv(envName(f))
		if err != nil || f.Changed || value == "" {
			return
		}
		// pflag's own error has the value, which may contain a password.
		if f.Value.Set(value) != nil {
			err = usagef("%s is not a valid %s", envName(f), f.Value.Type())
		}
	})
	return err
}

// envName returns STOCK_MYSQL_DSN for --mysql-dsn.
func envName(f *pflag.Flag) string {
	return "STOCK_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// checkAddress accepts host:port. Port 0 is any free port, and an empty host is every interface.
func checkAddress(flag, address string) error {
	if !access.IsHostPort(address) {
		return usagef("--%s is %q: it must be host:port without blanks, like 127.0.0.1:8080", flag, address)
	}
	return nil
}

// limit is what the value of a flag must be.
type limit struct {
	flag               string
	value, least, most time.Duration // most: 0 for any
	because            string
}

func (l limit) check() error {
	switch {
	case l.most != 0 && (l.value < l.least || l.value > l.most):
		return usagef("--%s is %v: it must be %v to %v%s", l.flag, l.value, l.least, l.most, l.because)
	case l.value < l.least:
		return usagef("--%s is %v: it must be at least %v%s", l.flag, l.value, l.least, l.because)
	}
	return nil
}

// newLogger returns a logger that writes a line of JSON for each message.
func newLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewJSONHandler(w, nil)) }
