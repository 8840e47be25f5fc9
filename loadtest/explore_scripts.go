package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"stock/loadtest/internal/explore"
	"stock/loadtest/internal/explore/trace"
)

// scriptLanes is the usual number of lanes for scripts, which are small.
const scriptLanes = 2

// areScripts reports whether arguments are files of scripts.
func areScripts(args []string, dash int) bool {
	return dash < 0 && len(args) > 0 && !slices.ContainsFunc(args, func(arg string) bool {
		return !strings.HasSuffix(arg, ".star")
	})
}

// checkScripts returns what is wrong with the flags of an exploration of scripts, and reads their files.
func (f *exploreFlags) checkScripts(flags *pflag.FlagSet, files []string) error {
	forStrategies := []string{"strategies", "store", "quick", "statements", "stock-binary", "service", "race", "races"}
	for _, name := range forStrategies {
		if flags.Changed(name) {
			return fmt.Errorf("--%s cannot be used with a script", name)
		}
	}
	if err := explore.CheckEngine(f.engine); err != nil {
		return fmt.Errorf("--engine: %w", err) // an address may have a password
	}
	if f.replay != "" && len(files) > 1 {
		return errors.New("--replay needs one script: that of the token")
	}
	if !flags.Changed("preemptions") {
		f.bounds.Preemptions = -1
	}
	if !flags.Changed("lanes") {
		f.lanes = scriptLanes
	}
	if f.replay != "" {
		f.lanes = 1
	}
	var errs []error
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			var s *explore.Script
			s, err = explore.LoadScript(file, text, f.requests)
			f.scripts = append(f.scripts, s)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// runScripts explores scripts.
func (f *exploreFlags) runScripts(ctx context.Context, stdout, stderr io.Writer) error {
	screen := newScreen(stderr)
	defer screen.clear()
	screen.starting()
	x, err := explore.StartScripts(ctx, f.lanes, f.engine)
	if err != nil {
		return startError(ctx, err)
	}
	defer x.Close()
	if f.replay != "" {
		screen.clear()
		o, err := x.ReplayScript(ctx, f.scripts[0], f.replay)
		if err != nil {
			return err
		}
		return writeReplay(stdout, o)
	}
	return f.report(x, len(f.scripts), screen, stdout, func(i int) (trace.Result, error) {
		return x.ExploreScript(ctx, f.scripts[i], f.bounds)
	})
}
