package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"stock/loadtest/internal/history"
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
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			paths, err := filepath.Glob(filepath.Join(args[0], "history", "*.jsonl"))
			if err != nil {
				return err
			}
			// The histories are the evidence. The report only tells where they come from, and is missing where the run was
			// killed; what was planned is known all the same.
			manifest, err := history.ReadManifest(filepath.Join(args[0], history.ManifestName))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if len(paths) == 0 && len(manifest.Cells) == 0 {
				return fmt.Errorf("%s holds no histories: the directory is the one that run wrote to (--out)", args[0])
			}
			environment := report.Environment{}
			switch recorded, err := readReport(args[0]); {
			case err == nil:
				environment = recorded.Environment
			case !errors.Is(err, fs.ErrNotExist):
				return err
			case len(manifest.Environment) > 0:
				if err := json.Unmarshal(manifest.Environment, &environment); err != nil {
					return fmt.Errorf("%s: %w", history.ManifestName, err)
				}
			}
			builder := report.NewBuilder(environment)
			builder.Expect(manifest.Cells)
			for _, path := range paths {
				h, err := history.Read(path)
				if err != nil {
					return err
				}
				builder.Add(h, verify.Judge(h))
			}
			result := builder.Report()
			if err := result.WriteText(cmd.OutOrStdout(), report.Colour(cmd.OutOrStdout())); err != nil {
				return err
			}
			if result.Err() != nil {
				return errNotHeld
			}
			return nil
		},
	}
}

func compareCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "compare A.json B.json",
		Short:   "Compare two reports",
		Long:    `compare shows, for every row that two reports share, whether it became faster or slower, and how sure that is.`,
		Example: `  loadtest compare out/before/report.json out/after/report.json`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			before, err := readReport(args[0])
			if err != nil {
				return err
			}
			after, err := readReport(args[1])
			if err != nil {
				return err
			}
			return report.Compare(before, after).WriteText(cmd.OutOrStdout(), report.Colour(cmd.OutOrStdout()))
		},
	}
}
