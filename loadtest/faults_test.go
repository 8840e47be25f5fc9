package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"stock/loadtest/internal/report"
)

// The claims of these four differ for each of the first three scenarios.
func TestFaultsFindsWhatTheStrategiesClaim(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{
		"faults", "--scenarios", "holder-dies,late-write,client-retries,deletes-anothers-lock,fence-counter-lost",
		"--strategies", "update,lock-redis-lua,lock-redis-fenced,ledger,incr-token", "--out", dir,
	}, func(string) string { return "" }, &stdout, &stderr)
	if code != exitHeld {
		t.Fatalf("exit status %d\n%s\n%s", code, &stdout, &stderr)
	}
	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var found struct{ Faults []report.Fault }
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	outcomes := map[string][]report.Outcome{}
	for _, f := range found.Faults {
		outcomes[f.Strategy] = append(outcomes[f.Strategy], f.Outcome)
		if f.Proof == "" || len(f.Steps) == 0 || f.Outcome == report.Unsafe && len(f.Evidence) == 0 {
			t.Errorf("%s, %s: %s without proof, steps or evidence: %+v", f.Scenario, f.Strategy, f.Outcome, f)
		}
	}
	// The first three are played by all but the practice.
	for strategy, want := range map[string][]report.Outcome{
		"update":            {report.Safe, report.Safe, report.Unsafe},
		"ledger":            {report.Safe, report.Safe, report.Safe},
		"lock-redis-lua":    {report.Blocked, report.Unsafe, report.Unsafe, report.Safe},
		"lock-redis-fenced": {report.Blocked, report.Blocked, report.Unsafe, report.Safe, report.Safe},
		"incr-token":        {report.Unavailable},
	} {
		if got := outcomes[strategy]; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", strategy, got, want)
		}
	}
}
