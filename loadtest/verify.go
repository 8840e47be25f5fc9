package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/verify"
)

func verifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify DIR",
		Short: "Judge a recorded run again",
		Long: `verify reads the histories that run wrote to DIR/history, judges each again, and prints the same table. It
needs no server and writes nothing. A history that was cut off is inconclusive, and one that is missing is a problem.`,
		Example: `  loadtest verify out/20260102-150405`,
		Args:    exactArgs(1, "verify needs one DIR, such as out/before"),
		RunE: func(cmd *cobra.Command, args []string) error {
			result, err := verifyAgain(args[0])
			if err != nil {
				return err
			}
			if err := result.WriteText(cmd.OutOrStdout(), report.Colour(cmd.OutOrStdout())); err != nil {
				return err
			}
			return conclusion(result)
		},
	}
}

// exactArgs returns an error with the message unless there are n arguments.
func exactArgs(n int, message string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return errors.New(message)
		}
		return nil
	}
}

// verifyAgain judges the histories of a run and makes a report.
func verifyAgain(dir string) (*report.Report, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%s is no directory: DIR must be the directory of a run (--out)", dir)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "history", "*.jsonl"))
	if err != nil {
		return nil, err
	}
	manifest, err := history.ReadManifest(filepath.Join(dir, history.ManifestName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(paths) == 0 && len(manifest.Cells) == 0 {
		return nil, fmt.Errorf("%s holds no histories: DIR must be a directory that run wrote to (--out)", dir)
	}
	environment, err := recordedEnvironment(dir, manifest)
	if err != nil {
		return nil, err
	}
	builder := report.NewBuilder(environment)
	builder.Expect(manifest.Cells)
	for _, path := range paths {
		h, err := history.Read(path)
		if err != nil {
			return nil, err
		}
		builder.Add(h, verify.Judge(h))
	}
	return builder.Report(), nil
}

// recordedEnvironment returns the environment of a run. A run that was killed left no report, but it wrote its
// manifest before it began.
func recordedEnvironment(dir string, manifest history.Manifest) (environment report.Environment, err error) {
	recorded, err := lab.ReadReport(dir)
	switch {
	case err == nil:
		return recorded.Environment, nil
	case !errors.Is(err, fs.ErrNotExist):
		return environment, err
	case len(manifest.Environment) == 0:
		return environment, nil
	}
	if err := json.Unmarshal(manifest.Environment, &environment); err != nil {
		return environment, fmt.Errorf("read manifest %s: environment: %w", filepath.Join(dir, history.ManifestName), err)
	}
	return environment, nil
}

func compareCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "compare BEFORE AFTER",
		Short: "Compare two reports",
		Long: `compare shows, for every row of both reports, whether it became faster or slower, and with what
confidence. It compares figures as multiples of noop's in the same round, because the machine may be busier in one
of the runs, and corrects for the number of rows. BEFORE and AFTER are reports, or directories that hold one. If they
have nothing in common, the exit status is 2.`,
		Example: `  loadtest compare out/before out/after`,
		Args:    exactArgs(2, "compare needs two reports, such as out/before out/after"),
		RunE: func(cmd *cobra.Command, args []string) error {
			before, err := lab.ReadReport(args[0])
			if err != nil {
				return err
			}
			after, err := lab.ReadReport(args[1])
			if err != nil {
				return err
			}
			if !report.HaveCommon(before, after) {
				return fmt.Errorf("%s and %s have nothing in common: neither a strategy or service of the same name with the "+
					"same load (users, rate, hold, goods, counts, restocks), nor a fault scenario", args[0], args[1])
			}
			return report.Compare(before, after).WriteText(cmd.OutOrStdout(), report.Colour(cmd.OutOrStdout()))
		},
	}
}
