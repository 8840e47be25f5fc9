package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"stock/docs"
	"stock/internal/suggest"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/size"
)

type sizeFlags struct {
	strategies  []string
	sales       float64
	items       int
	rtt, commit time.Duration
	record      string
	measure     bool
	rounds      int
	out         string
	seed        uint64
	stockBinary string
}

func sizeCommand() *cobra.Command {
	var f sizeFlags
	cmd := &cobra.Command{
		Use:   "size",
		Short: "Predict what strategies do on other machines",
		Long: `size predicts how many sales per second a strategy reaches, and how many cores it needs for them. The
predictions come from a record of one machine, and each strategy's error in tests is known: docs/sizing.md. With
--measure, it measures and tests a record of this machine instead, in about three minutes per strategy.

Exit status: 0 the question was answered, also with "not predicted" or "not possible"; 2 wrong usage, or something is
missing; 130 interrupted.`,
		Example: `  loadtest size --sales 100 --strategies update --rtt 0.5ms --commit 2ms
  loadtest size --sales 2000 --items 100
  loadtest size --measure --strategies update`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags()); err != nil {
				return err
			}
			if f.measure {
				return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			return f.answer(cmd.OutOrStdout())
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *sizeFlags) register(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringSliceVar(&f.strategies, "strategies", nil,
		"a comma-separated list (default: those of the record, or with --measure twelve of all kinds)")
	flags.Float64Var(&f.sales, "sales", 1000, "sales per second, of all items together")
	flags.IntVar(&f.items, "items", 1, "how many items are sold, all of them equally often")
	flags.DurationVar(&f.rtt, "rtt", 500*time.Microsecond, "round trip from the service to MySQL and Redis")
	flags.DurationVar(&f.commit, "commit", 2*time.Millisecond, "time of a commit in MySQL, with its flushes")
	flags.StringVar(&f.record, "record", "", "record of --measure (default: the one of docs/sizing.md)")
	flags.BoolVar(&f.measure, "measure", false, "measure this machine, and test predictions about it")
	flags.IntVar(&f.rounds, "rounds", 3, "with --measure: how often each setting is measured; a noisy machine needs more")
	flags.StringVar(&f.out, "out", "", "with --measure: directory for the results (default: out/ and the time)")
	flags.Uint64Var(&f.seed, "seed", 1, "with --measure: seed of the requests")
	flags.StringVar(&f.stockBinary, "stock-binary", "",
		"with --measure: path of the service (default: that built together with this program, else built from source)")
}

func (f *sizeFlags) check(flags *pflag.FlagSet) error {
	for _, name := range []string{"sales", "items", "rtt", "commit", "record"} {
		if f.measure && flags.Changed(name) {
			return fmt.Errorf("--%s cannot be used with --measure: it is about predictions from a record", name)
		}
	}
	switch {
	case !f.measure && flags.Changed("rounds"):
		return errors.New("--rounds needs --measure")
	case !(f.sales > 0) || math.IsInf(f.sales, 0):
		return fmt.Errorf("--sales %v: must be positive", f.sales)
	case f.items < 1 || f.items > 10_000:
		return fmt.Errorf("--items %d: must be a number from 1 to 10000", f.items)
	case f.rounds < 1:
		return fmt.Errorf("--rounds %d: must be positive", f.rounds)
	case f.rtt < 0 || f.commit < 0:
		return errors.New("--rtt and --commit must not be negative")
	}
	return nil
}

// answer predicts from a record.
func (f *sizeFlags) answer(out io.Writer) error {
	text := docs.Size
	if f.record != "" {
		var err error
		if text, err = os.ReadFile(f.record); err != nil {
			return fmt.Errorf("--record: %w", err)
		}
	}
	record, err := size.ReadRecord(text)
	if err != nil {
		return fmt.Errorf("%s: %w", cmp.Or(f.record, "docs/size.json"), err)
	}
	var known []string
	for _, p := range record.Profiles {
		known = append(known, p.Strategy)
	}
	names := f.strategies
	if len(names) == 0 {
		names = known
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("--strategies: the record has no %s%s", name, suggest.DidYouMean(name, known))
		}
	}
	if f.rtt < record.RTT {
		fmt.Fprintf(out, "--rtt %v is less than the %v of the record, which are used instead.\n",
			f.rtt, record.RTT.Round(10*time.Microsecond))
	}
	if f.commit < record.Commit {
		fmt.Fprintf(out, "--commit %v is less than the %v of the record, which are used instead.\n",
			f.commit, record.Commit.Round(10*time.Microsecond))
	}
	question := size.Question{Sales: f.sales, Setting: record.Target(f.items, f.rtt, f.commit)}
	possible := true
	for _, name := range names {
		possible = record.WriteAnswer(out, name, question) && possible
	}
	if !possible {
		record.WriteAble(out, question)
	}
	_, err = fmt.Fprintf(out, "\nMeasured on: %s. CPU times of other processors differ.\n", record.Machine)
	return err
}

// run measures a record, and writes its predictions before it tests them.
func (f *sizeFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	runtime.GOMAXPROCS(runtime.NumCPU()) // the proxies are part of what is measured
	screen := newScreen(stderr)
	defer screen.clear()
	out, removeIfEmpty, err := lab.CreateDir(f.out)
	if err != nil {
		return err
	}
	defer removeIfEmpty()
	screen.starting()
	rig, noQuotas, err := size.NewRig(ctx, f.stockBinary, f.seed)
	if err != nil {
		return startError(ctx, err)
	}
	defer func() { err = errors.Join(err, rig.Close()) }()
	rig.Rounds = f.rounds
	if noQuotas != nil {
		screen.println(fmt.Sprintf("no predictions about fewer cores are tested: %v", noQuotas))
	}
	record := &size.Record{Machine: conditions(rig.Environment())}
	if record.Basis, err = rig.Basis(ctx); err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	names := f.strategies
	if len(names) == 0 {
		names = size.UsualStrategies
	}
	if names, err = rig.Resolve(names); err != nil {
		return fmt.Errorf("--strategies: %w", err)
	}
	for _, name := range names {
		screen.logLine("measuring " + name)
		progress := func(s size.Setting) { screen.status(fmt.Sprintf("measuring %s: %v", name, s)) }
		profile, err := rig.Calibrate(ctx, name, record.Basis, progress)
		if err != nil {
			return cmp.Or(ctx.Err(), err)
		}
		tests := size.PredictAll(profile, noQuotas == nil)
		record.Profiles, record.Tests = append(record.Profiles, profile), append(record.Tests, tests...)
		if err := writeRecord(filepath.Join(out, "predictions.json"), record); err != nil {
			return err
		}
		tests = record.Tests[len(record.Tests)-len(tests):]
		if err := rig.MeasureTests(ctx, name, tests, progress); err != nil {
			return cmp.Or(ctx.Err(), err)
		}
		screen.clear()
		if err := errors.Join(
			writeRecord(filepath.Join(out, "size.json"), record), size.WriteTests(stdout, tests), writeBlankLine(stdout),
		); err != nil {
			return err
		}
	}
	if err := record.WriteErrors(stdout); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nPredict from this record with --record %s\n", filepath.Join(out, "size.json"))
	return nil
}

func writeBlankLine(w io.Writer) error {
	_, err := fmt.Fprintln(w)
	return err
}

func writeRecord(name string, r *size.Record) error {
	return lab.WriteFile(name, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", " ")
		return encoder.Encode(r)
	})
}
