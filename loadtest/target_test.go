package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stock/internal/must"
)

// What up has started is looked at by others, one after the other.
func TestUp(t *testing.T) {
	t.Parallel()
	d, cmd, _ := up(t)
	t.Run("the console refuses other origins and rubbish", func(t *testing.T) { refuseOtherOriginsAndRubbish(t, d) })
	// The more flags describe a running service, the more the lab can do with it.
	target := target{d}
	t.Run("target without the DSN", target.withoutDSN)
	t.Run("target with the DSN", target.withDSN)
	t.Run("admin listener fails during the run", target.failingAdmin)
	t.Run("open loop", target.openLoop)
	t.Run("the console steps through a scenario", func(t *testing.T) { stepThroughAScenario(t, d, cmd) })
}

// target is a service that the lab did not start.
type target struct{ described }

// args returns the arguments of a quick run against the target, followed by more.
func (d target) args(out string, more ...string) []string {
	return append([]string{"run", "--quick", "--strategies", "update", "--target", d.URL, "--out", out}, more...)
}

// argsWithStock returns args with the flags to set the stock, and to read it directly.
func (d target) argsWithStock(out string, more ...string) []string {
	return d.args(out, append([]string{"--admin", d.Replicas[1].AdminURL, "--mysql-dsn", d.MySQLDSN}, more...)...)
}

func (d target) withoutDSN(t *testing.T) {
	dir := t.TempDir()
	finish(t, d.args(dir, "--admin", d.Replicas[0].AdminURL, "--stock", "1000")...).want(t, exitHeld)
	if name := witness(t, dir); name != "service" {
		t.Errorf("the %s read the stock, want the service", name)
	}
}

func (d target) withDSN(t *testing.T) {
	dir := t.TempDir()
	finish(t, d.argsWithStock(dir, "--requests", "300")...).want(t, exitHeld)
	if name := witness(t, dir); name != "oracle" {
		t.Errorf("the %s read the stock, want the oracle", name)
	}
	measured := 2 * 2 // update and noop, under two workloads
	if rows := mustReadReport(t, dir).Rows; len(rows) != measured+len(judgedOfUpdate) {
		t.Errorf("%d rows, want %d measured, and %v", len(rows), measured, judgedOfUpdate)
	}
}

func (d target) failingAdmin(t *testing.T) {
	admin, err := url.Parse(d.Replicas[1].AdminURL)
	must.Succeed(t, err)
	proxy, requests := httputil.NewSingleHostReverseProxy(admin), 0
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests++; requests > 2 { // the first two are for the warm-up and the first run
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer failing.Close()
	dir := t.TempDir()
	finish(t, d.args(dir, "--admin", failing.URL, "--mysql-dsn", d.MySQLDSN, "--stock", "1000")...).
		want(t, exitUnusable, "set the stock of item 1")
	r := mustReadReport(t, dir)
	if len(r.Rows) != 1 || r.ClaimsHeld || len(r.Problems) == 0 || !strings.Contains(r.Problems[0], "out of order") {
		t.Errorf("%d rows, claims held %v, problems %q: want the first run, and why there are no more",
			len(r.Rows), r.ClaimsHeld, r.Problems)
	}
}

func (d target) openLoop(t *testing.T) {
	dir := t.TempDir()
	// With --hold 5ms, no request ends before the next one begins.
	got := finish(t, d.argsWithStock(dir, "--rate", "300", "--duration", "1s", "--rounds", "1", "--hold", "5ms")...)
	got.want(t, exitHeld)
	if !strings.Contains(got.stderr, "4 runs of 1s take a little more than 4s") {
		t.Errorf("it does not say how long it takes: %s", got.stderr)
	}
	for _, row := range mustReadReport(t, dir).Rows {
		if row.RequestsSent+row.Dropped != 300 {
			t.Errorf("%s: %d sent and %d dropped, want 300", row.Label(), row.RequestsSent, row.Dropped)
		}
		if row.Strategy == "update" && row.Workload.Name == "flash-sale" && !row.DemandExceeded {
			t.Errorf("%s does not sell out", row.Label())
		}
	}
}

// witness returns who read the stock, according to the histories of a run.
func witness(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "history", "*update*.jsonl"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no histories: %v", err)
	}
	text, err := os.ReadFile(paths[0])
	must.Succeed(t, err)
	if bytes.Contains(text, []byte(`"witness":"service"`)) {
		return "service"
	}
	return "oracle"
}
