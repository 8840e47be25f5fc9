package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/fault"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/timeline"
)

// The claims of these four differ for each of the first three scenarios.
func TestFaultsFindsWhatTheStrategiesClaim(t *testing.T) {
	t.Parallel()
	serverstest.Long(t)
	dir := filepath.Join(t.TempDir(), "out")
	runHere(t.Context(),
		"faults", "--scenarios", "holder-dies,late-write,client-retries,deletes-anothers-lock",
		"--strategies", "update,lock-redis-lua,lock-redis-fenced,decrement", "--out", dir, stockBinary(t),
	).want(t, exitHeld)
	found := mustReadReport(t, dir)
	outcomes := map[string][]report.Effect{}
	for _, f := range found.Faults {
		checkFaultWindows(t, f)
		outcomes[f.Strategy] = append(outcomes[f.Strategy], f.Effect)
		if f.Proof == "" || len(f.Steps) == 0 || f.Effect == report.Unsafe && len(f.Evidence) == 0 {
			t.Errorf("%s, %s: %s without proof, steps or evidence: %+v", f.Scenario, f.Strategy, f.Effect, f)
		}
	}
	// The first three are played by all.
	for strategy, want := range map[string][]report.Effect{
		"update":            {report.Safe, report.Safe, report.Safe},
		"decrement":         {report.Safe, report.Safe, report.Unsafe},
		"lock-redis-lua":    {report.Blocked, report.Unsafe, report.Safe, report.Safe},
		"lock-redis-fenced": {report.Blocked, report.Blocked, report.Safe, report.Safe},
	} {
		if got := outcomes[strategy]; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", strategy, got, want)
		}
	}
	t.Run("page", func(t *testing.T) { lookAtFaults(t, dir, found.Faults) })
}

func TestAFaultsDirectoryIsNotUsedTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "faults"), 0o755))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "faults", "late-write-update-1.jsonl"), nil, 0o600))
	if _, _, err := lab.CreateDir(dir); err == nil || !strings.Contains(err.Error(), "of another run") {
		t.Errorf("error %v, want that another run is there", err)
	}
}

func TestEachStepWaitsForEnter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		input, enter := io.Pipe()
		f := faultsFlags{step: true}
		step := f.stepper(t.Context(), input, io.Discard)
		steps := make(chan int, 3)
		go func() {
			for i := range 3 {
				step(&fault.Stage{}, report.FaultStep{})
				steps <- i
			}
		}()
		for played := range 3 {
			synctest.Wait()
			if len(steps) != played {
				t.Errorf("%d steps were played after Enter was pressed %d times", len(steps), played)
			}
			if played == 2 {
				enter.Close() // the rest is played without waiting
			} else if _, err := enter.Write([]byte("\n")); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			<-steps
		}
	})
}

func TestCtrlCEndsAStepThatWaitsForEnter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		input, enter := io.Pipe()
		defer enter.Close()
		ctx, cancel := context.WithCancel(t.Context())
		f := faultsFlags{step: true}
		step := f.stepper(ctx, input, io.Discard)
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		if step(&fault.Stage{}, report.FaultStep{}); time.Since(began) != time.Second {
			t.Errorf("the step ended after %v, want it to end with the context", time.Since(began))
		}
	})
}

// slowReader presses Enter after longer than a request of the scenario may take, twice, and then closes its input.
type slowReader struct{ lines int }

func (r *slowReader) Read(p []byte) (int, error) {
	if r.lines++; r.lines > 2 {
		return 0, io.EOF
	}
	time.Sleep(7 * time.Second)
	return copy(p, "\n"), nil
}

func TestAScenarioEndsAsClaimedHoweverSlowlyItIsRead(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	f := faultsFlags{
		scenarios: []string{"late-write"}, strategies: []string{"lock-redis-lua"}, repeat: 1, step: true,
		out: filepath.Join(t.TempDir(), "out"),
	}
	_, f.local.stockBinary, _ = strings.Cut(stockBinary(t), "=")
	var stdout, stderr bytes.Buffer
	if err := f.run(t.Context(), &slowReader{}, &stdout, &stderr); err != nil {
		t.Errorf("%v\n%s\n%s", err, &stdout, &stderr)
	}
	if got := mustReadReport(t, f.out).Faults; len(got) != 1 || got[0].Effect != report.Unsafe {
		t.Errorf("%+v, want one that is unsafe", got)
	}
}

func TestAScenarioEndsWithItsOutcomeAndTheClaim(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]report.Fault{
		"unsafe (a sale is lost), as claimed": {
			Effect: report.Unsafe, Evidence: []string{"a sale is lost"}, Claimed: "loses-updates", ClaimHeld: true,
		},
		"blocked 4.0 s, but claimed: safe": {Effect: report.Blocked, Seconds: 4, Claimed: "harmless"},
		"safe":                             {Effect: report.Safe},
		"skipped (no compiler)": {
			Effect: report.Skipped, Evidence: []string{"no compiler"}, Claimed: "harmless",
		},
	} {
		if got := compared(f); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	r := report.Report{Faults: []report.Fault{{Effect: report.Unsafe}}}
	if got := r.Success(); !strings.Contains(got, "nothing is unsafe that is claimed to be safe") {
		t.Errorf("a report with an unsafe outcome concludes %q", got)
	}
}

func TestStrategiesThatPlayNoScenarioAreWrongUsage(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "out")
	none := []string{"faults", "--scenarios", "pass-after-loss", "--strategies", "update"}
	runHere(t.Context(), append(none, "--out", dir, stockBinary(t))...).
		want(t, exitUnusable, "loadtest: no scenario that was chosen applies to update\n")
}

// checkFaultWindows checks that a scenario is shown on a time axis, with its fault shaded.
func checkFaultWindows(t *testing.T, f report.Fault) {
	t.Helper()
	name := f.Scenario + ", " + f.Strategy
	if len(f.Windows) == 0 || len(f.Windows[0].Shaded) != 1 {
		t.Errorf("%s: windows %+v", name, f.Windows)
		return
	}
	w := f.Windows[0]
	struck := func(step report.FaultStep) bool {
		return int64(step.After) == w.Shaded[0].Start && (step.Kind == report.Strike || step.Kind == report.Proof)
	}
	if !slices.ContainsFunc(f.Steps, struck) || w.Shaded[0].End <= w.Shaded[0].Start || w.From != 0 {
		t.Errorf("%s: shaded %+v, steps %+v", name, w.Shaded, f.Steps)
	}
	if last := f.Steps[len(f.Steps)-1].After; w.To > int64(last) || w.To < int64(last)/2 {
		t.Errorf("%s: it is shown up to %d ns, but the last step was after %v", name, w.To, last)
	}
	if name != "late-write, lock-redis-lua" {
		return
	}
	if len(w.Findings) == 0 || w.Findings[0].Kind != timeline.Overlap {
		t.Fatalf("%s: findings %+v", name, w.Findings)
	}
	if a, b := w.Sections[w.Findings[0].Sections[0]], w.Sections[w.Findings[0].Sections[1]]; a.Request != "A" ||
		b.Request[0] != 'B' || w.Lanes[a.Lane].Replica != "victim" || w.Lanes[b.Lane].Replica != "survivor" {
		t.Errorf("%s: %+v and %+v overlap", name, a, b)
	}
}
