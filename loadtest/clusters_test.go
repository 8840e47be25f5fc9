package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/report"
	"stock/loadtest/internal/verify"
)

func TestQuickRunOnClustersSaysSoAndHoldsItsClaims(t *testing.T) {
	serverstest.NeedAll(t)
	t.Parallel()
	dir := t.TempDir()
	ran := finish(t, "run", "--quick", "--redis-cluster", "--etcd-members", "3", "--goods", "6", "--requests", "150",
		"--strategies", "redis-stream,lock-redis-wait,lock-etcd",
		"--out", dir)
	ran.want(t, exitHeld)
	r := mustReadReport(t, dir)
	for _, row := range r.Rows {
		if row.Result != verify.Correct || !row.ClaimHeld {
			t.Errorf("%s: %s, claim held %v: %q", row.Label(), row.Result, row.ClaimHeld, row.Evidence)
		}
	}
	var names []string
	for _, server := range r.Environment.Servers {
		names = append(names, server.String())
	}
	for _, want := range []string{" Cluster of 3 masters", " of 3 members"} {
		if !slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, want) }) {
			t.Errorf("the servers of the report are %q, want one that ends with %q", names, want)
		}
	}
}

func TestFailoversOfClustersUnderLoadAreAsClaimed(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "out")
	runHere(t.Context(), "faults", "--scenarios", "cluster-failover,etcd-leader-killed",
		"--strategies", "redis-script,lock-redis-queue,lock-etcd", "--out", dir, stockBinary(t),
	).want(t, exitHeld)
	want := map[string][]report.Effect{
		"redis-script":     {report.Unsafe},
		"lock-redis-queue": {report.Blocked},
		"lock-etcd":        {report.Safe, report.Blocked},
	}
	for _, f := range mustReadReport(t, dir).Faults {
		if !slices.Contains(want[f.Strategy], f.Effect) || !strings.Contains(f.Proof, "s after that") {
			t.Errorf("%s, %s: %s (%s), want one of %v", f.Scenario, f.Strategy, f.Effect, f.Proof, want[f.Strategy])
		}
		delete(want, f.Strategy)
	}
	if len(want) > 0 {
		t.Errorf("the report lacks %v", want)
	}
}
