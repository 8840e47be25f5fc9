package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"stock/internal/must"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/load"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/verify"
)

// judgedOfUpdate are the workloads under which update is judged and not measured.
var judgedOfUpdate = []string{
	load.Cancellations, load.Orders, load.Retries, load.Tail,
}

func TestQuickRunIsJudgedVerifiedAndCompared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	finish(t, "run", "--quick", "--strategies", "none,update", "--seed", "7", "--goods", "3", "--keys", "--out", dir).
		want(t, exitHeld)
	r := mustReadReport(t, dir)
	verdicts := map[string]string{"none": "wrong", "update": "correct", "noop": "correct"}
	judged := map[string]bool{}
	for _, row := range r.Rows {
		if row.Workload.Name == load.Retries && (row.AgainInStock < 50 || row.AgainElsewhere < 50) {
			t.Errorf("%s: of %d requests sent again, %d were sent while stock was left and %d to the other replica",
				row.Label(), row.SentAgain, row.AgainInStock, row.AgainElsewhere)
		}
		if row.JudgedOnly {
			judged[row.Workload.Name] = true
			if row.Strategy != "update" || row.Result != verify.Correct || !row.ClaimHeld {
				t.Errorf("%s: %s, claim held %v: %q", row.Label(), row.Result, row.ClaimHeld, row.Evidence)
			}
			continue
		}
		if string(row.Result) != verdicts[row.Strategy] || !row.ClaimHeld {
			t.Errorf("%s: %s, claim held %v, want %s, true", row.Label(), row.Result, row.ClaimHeld, verdicts[row.Strategy])
		}
		if row.LateLosesUpdate != (row.Strategy == "none") {
			t.Errorf("%s: claims that a late write loses an update: %v", row.Label(), row.LateLosesUpdate)
		}
		if row.Requests > quickRequests || row.Requests < quickRequests && row.Bounded == "" {
			t.Errorf("%s: %d requests, bounded %q, want %d", row.Label(), row.Requests, row.Bounded, quickRequests)
		}
		if row.Strategy == "update" && (row.Replays == 0 || row.LedgerGaps > 0) {
			t.Errorf("%s: %d replays, %d gaps", row.Label(), row.Replays, row.LedgerGaps)
		}
		if len(row.ReplicaShares) != 2 {
			t.Errorf("%s: answered by %v, want two replicas", row.Label(), row.ReplicaShares)
		}
		if row.Strategy == "update" && row.Workload.Name == "plenty" && (row.Final != 0 || row.Sold != row.Initial) {
			t.Errorf("%s: sold %d of %d, %d left, want all sold: demand equals stock",
				row.Label(), row.Sold, row.Initial, row.Final)
		}
		if row.Strategy == "update" && row.MySQLStatementsPerSale < 1 {
			t.Errorf("%s: %.2f statements per sale, want at least 1", row.Label(), row.MySQLStatementsPerSale)
		}
	}
	if got := slices.Sorted(maps.Keys(judged)); !slices.Equal(got, judgedOfUpdate) {
		t.Errorf("update is judged under %v, want %v", got, judgedOfUpdate)
	}
	if measured := len(r.Rows) - len(judged); measured != 2*len(verdicts) {
		t.Errorf("%d rows were measured, want each of %d strategies under two workloads", measured, len(verdicts))
	}
	for _, name := range []string{"report.md", lab.ReportPage} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s is missing or empty: %v", name, err)
		}
	}

	checkWindows(t, r)

	finish(t, "verify", dir).want(t, exitHeld, "none")
	finish(t, "run", "--quick", "--out", dir).want(t, exitUnusable, "another run")
	finish(t, "compare", dir, filepath.Join(dir, "report.json")).want(t, exitHeld, "update")
	t.Run("page", func(t *testing.T) { lookAtRun(t, dir, r) })
	verifyWithoutAnEntry(t, dir)
}

// verifyWithoutAnEntry removes a sale from the ledger. verify finds that from the files alone.
func verifyWithoutAnEntry(t *testing.T, dir string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "history", "*-update-plenty-*.jsonl"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("histories %v, %v", paths, err)
	}
	kept, err := os.ReadFile(paths[0])
	must.Succeed(t, err)
	at := max(0, bytes.Index(kept, []byte(`{"entry":`))) // without one, verify could not read what is left
	end := at + bytes.IndexByte(kept[at:], '\n') + 1
	must.Succeed(t, os.WriteFile(paths[0], slices.Concat(kept[:at], kept[end:]), 0o600))
	finish(t, "verify", dir).want(t, exitNotHeld, "is not in the ledger")
}

func TestSweepIsJudgedVerifiedAndCompared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ran := finish(t, "run", "--quick", "--strategies", "none,update", "--requests", "300", "--sweep", "replicas=1,2",
		"--out", dir)
	ran.want(t, exitHeld, "goodput/s by replicas")
	r := mustReadReport(t, dir)
	if s := r.Sweep(); s == nil || len(s.Charts) != 2 || len(s.Charts[0].Curves) != 3 || len(r.Rows) != 12 {
		t.Errorf("%d rows, sweep %+v: want three strategies under two workloads at two values", len(r.Rows), s)
	}
	finish(t, "verify", dir).want(t, exitHeld, "goodput/s by replicas")
	compared := finish(t, "compare", dir, dir)
	if compared.code != exitHeld || strings.Contains(compared.stdout, "Only in") {
		t.Errorf("compare: exit status %d\n%s\n%s", compared.code, compared.stdout, compared.stderr)
	}
	t.Run("page", func(t *testing.T) { lookAtSweep(t, dir) })
}

func TestReportShowsOptionsFromTheEnvironment(t *testing.T) {
	t.Parallel()
	var f runFlags
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.register(flags)
	must.Succeed(t, flags.Parse([]string{"--quick", "--strategies", "none,update"}))
	environment := map[string]string{
		"LOADTEST_MYSQL_DSN": "stock:secret@tcp(mysql:3306)/stock",
		"LOADTEST_QUICK":     "false",
	}
	must.Succeed(t, fromEnvironment(flags, func(name string) string { return environment[name] }))
	f.options = givenOptions(flags)
	got := report.NewBuilder(report.Environment{Options: f.runOptions().CommandLine}).
		Environment().Options
	slices.Sort(got)
	want := []string{"--mysql-dsn=stock:***@tcp(mysql:3306)/stock", "--quick=true", "--strategies=none,update", "run"}
	if !slices.Equal(got, want) {
		t.Errorf("options %q, want %q", got, want)
	}
}

func TestStrategiesAreCheckedOnEveryStoreUnlessOneIsNamed(t *testing.T) {
	t.Parallel()
	lock := load.Strategy{
		Name: "lock", Stores: []string{"mysql", "redis", "slots"}, Unavailable: map[string]string{"slots": "not here"},
	}
	chosen := []load.Choice{{Strategy: lock, Store: "mysql"}}
	for name, c := range map[string]struct {
		got  []load.Choice
		want string
	}{
		"run":               {(&runFlags{}).stores(chosen), "mysql redis"},
		"run, named":        {(&runFlags{store: "mysql"}).stores(chosen), "mysql"},
		"explore":           {(&exploreFlags{}).stores(lock), "mysql redis"},
		"explore, named":    {(&exploreFlags{store: "redis", quick: true}).stores(lock), "redis"},
		"explore, quick":    {(&exploreFlags{quick: true}).stores(lock), "mysql"},
		"explore, a token":  {(&exploreFlags{replay: "one:A"}).stores(lock), "mysql"},
		"explore, not here": {(&exploreFlags{store: "slots"}).stores(lock), ""},
	} {
		var stores []string
		for _, choice := range c.got {
			stores = append(stores, choice.Store)
		}
		if got := strings.Join(stores, " "); got != c.want {
			t.Errorf("%s: on %q, want %q", name, got, c.want)
		}
	}
}
