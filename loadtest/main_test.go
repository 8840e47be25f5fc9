package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"stock/loadtest/internal/report"
)

// The programs under test are built once: an interrupted `go run` would not tell its child.
var programs = sync.OnceValues(func() (dir string, err error) {
	dir, err = os.MkdirTemp("", "loadtest")
	if err != nil {
		return "", err
	}
	output, err := exec.Command("go", "build", "-o", dir+"/", "stock/loadtest", "stock/cmd/stock").CombinedOutput()
	if err != nil {
		return dir, fmt.Errorf("%w: %s", err, output)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := programs(); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(filepath.Join(dir, "loadtest"), args...)
}

// result is what a finished command left.
type result struct {
	code           int
	stdout, stderr string
}

func finish(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := command(t, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func TestQuickRunJudgesAsClaimedAndCanBeJudgedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ran := finish(t, "run", "--quick", "--strategies", "none,update", "--seed", "7", "--goods", "3", "--skew", "zipf",
		"--counts", "1-3", "--out", dir)
	if ran.code != exitHeld {
		t.Fatalf("exit status %d\n%s\n%s", ran.code, ran.stdout, ran.stderr)
	}
	r, err := readReport(dir)
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]string{"none": "wrong", "update": "correct", "noop": "wrong"}
	if len(r.Rows) != 2*len(verdicts) {
		t.Errorf("%d rows, want each of %d strategies under two workloads", len(r.Rows), len(verdicts))
	}
	for _, row := range r.Rows {
		if string(row.Result) != verdicts[row.Strategy] || !row.ClaimHeld {
			t.Errorf("%s: %s, claim held %v, want %s, true", row.Label(), row.Result, row.ClaimHeld, verdicts[row.Strategy])
		}
		if row.Requests != quickRequests {
			t.Errorf("%s: %d requests, want %d", row.Label(), row.Requests, quickRequests)
		}
		if len(row.ReplicaShares) != 2 {
			t.Errorf("%s: answered by %v, want two replicas", row.Label(), row.ReplicaShares)
		}
		if row.Strategy == "update" && row.Workload == "plenty" && (row.Final != 0 || row.Sold != row.Initial) {
			t.Errorf("%s: sold %d of %d, %d left, want every unit sold: demand is stock", row.Label(), row.Sold, row.Initial, row.Final)
		}
		if row.Strategy == "update" && row.MySQLStatementsPerSale < 1 {
			t.Errorf("%s: %.2f statements a sale, want at least 1", row.Label(), row.MySQLStatementsPerSale)
		}
	}
	for _, name := range []string{"report.md", "report.csv", "bench.txt"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s is missing or empty: %v", name, err)
		}
	}

	again := finish(t, "verify", dir)
	if again.code != exitHeld || !strings.Contains(again.stdout, "none") {
		t.Errorf("verify: exit status %d\n%s\n%s", again.code, again.stdout, again.stderr)
	}
	if got := finish(t, "run", "--quick", "--out", dir); got.code != exitUnusable || !strings.Contains(got.stderr, "another run") {
		t.Errorf("run into the same directory: exit status %d\n%s", got.code, got.stderr)
	}
	compared := finish(t, "compare", dir, filepath.Join(dir, "report.json"))
	if compared.code != exitHeld || !strings.Contains(compared.stdout, "update") {
		t.Errorf("compare: exit status %d\n%s\n%s", compared.code, compared.stdout, compared.stderr)
	}
}

// up starts a topology and returns it with the command that keeps it.
func up(t *testing.T) (described, *exec.Cmd) {
	t.Helper()
	cmd := command(t, "up", "--json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	})
	var d described
	if err := json.NewDecoder(stdout).Decode(&d); err != nil {
		t.Fatalf("up --json: %v\n%s", err, &stderr)
	}
	return d, cmd
}

type described struct {
	URL      string `json:"url"`
	Replicas []struct {
		Name     string `json:"name"`
		URL      string `json:"url"`
		AdminURL string `json:"admin_url"`
		PID      int    `json:"pid"`
	} `json:"replicas"`
	MySQLDSN string   `json:"mysql_dsn"`
	Redis    []string `json:"redis"`
	Nginx    struct {
		PID  int    `json:"pid"`
		Conf string `json:"conf"`
	} `json:"nginx"`
}

// gone waits until no process of a topology is left and none of its ports is bound.
func (d described) gone(t *testing.T) {
	t.Helper()
	addresses := append([]string{}, d.Redis...)
	for _, raw := range []string{d.URL, d.Replicas[0].URL, d.Replicas[0].AdminURL, d.Replicas[1].URL, d.Replicas[1].AdminURL} {
		parsed, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, parsed.Host)
	}
	_, host, _ := strings.Cut(d.MySQLDSN, "tcp(")
	host, _, _ = strings.Cut(host, ")")
	addresses = append(addresses, host)

	deadline := time.Now().Add(15 * time.Second)
	for _, pid := range []int{d.Replicas[0].PID, d.Replicas[1].PID, d.Nginx.PID} {
		for syscall.Kill(pid, 0) == nil {
			if time.Now().After(deadline) {
				t.Fatalf("process %d is still there", pid)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	for _, address := range addresses {
		for {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				break
			}
			conn.Close()
			if time.Now().After(deadline) {
				t.Fatalf("somebody still listens at %s", address)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func TestUpServesUntilCtrlC(t *testing.T) {
	t.Parallel()
	d, cmd := up(t)
	response, err := http.Post(d.URL+"/stock/deduct?goods_id=1&count=1", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("a deduction is answered %s", response.Status)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("up ends with %v, want status 0", err)
	}
	d.gone(t)
}

func TestKilledLabLeavesNoProcessAndNoPort(t *testing.T) {
	t.Parallel()
	d, cmd := up(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	d.gone(t)
}

// The service is told to the lab in three ways: the less the lab knows, the less it can do, and it says so.
func TestTargetIsJudgedWithWhatTheLabIsToldOfIt(t *testing.T) {
	t.Parallel()
	d, _ := up(t)
	set := func(units int) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, d.Replicas[0].AdminURL+"/admin/stock/1",
			strings.NewReader(fmt.Sprintf(`{"stock":%d}`, units)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
	witness := func(dir string) (who string, rows []*report.Row) {
		t.Helper()
		r, err := readReport(dir)
		if err != nil {
			t.Fatal(err)
		}
		paths, err := filepath.Glob(filepath.Join(dir, "history", "*update*.jsonl"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no histories: %v", err)
		}
		text, err := os.ReadFile(paths[0])
		if err != nil {
			t.Fatal(err)
		}
		who = "oracle"
		if bytes.Contains(text, []byte(`"witness":"service"`)) {
			who = "service"
		}
		return who, r.Rows
	}

	base := []string{"run", "--quick", "--strategies", "update", "--target", d.URL}
	t.Run("URL alone, no stock", func(t *testing.T) {
		set(0)
		got := finish(t, append(base, "--out", t.TempDir())...)
		if got.code != exitUnusable || !strings.Contains(got.stderr, "--admin") {
			t.Errorf("exit status %d, %s: want %d and what to do", got.code, got.stderr, exitUnusable)
		}
	})
	t.Run("URL alone", func(t *testing.T) {
		set(1000)
		dir := t.TempDir()
		got := finish(t, append(base, "--out", dir)...)
		if got.code != exitHeld {
			t.Fatalf("exit status %d\n%s\n%s", got.code, got.stdout, got.stderr)
		}
		who, rows := witness(dir)
		if who != "service" || len(rows) != 2 || rows[0].Workload != "found-stock" || rows[0].Result != "correct" {
			t.Errorf("witness %s, %d rows, the first %s: want the service, 2 and correct", who, len(rows), rows[0].Label())
		}
	})
	t.Run("with the DSN", func(t *testing.T) {
		dir := t.TempDir()
		got := finish(t, append(base, "--out", dir, "--admin", d.Replicas[1].AdminURL, "--mysql-dsn", d.MySQLDSN)...)
		if got.code != exitHeld {
			t.Fatalf("exit status %d\n%s\n%s", got.code, got.stdout, got.stderr)
		}
		if who, rows := witness(dir); who != "oracle" || len(rows) != 4 {
			t.Errorf("witness %s, %d rows: want the oracle, and 4", who, len(rows))
		}
	})
	t.Run("open loop", func(t *testing.T) {
		dir := t.TempDir()
		got := finish(t, append(base, "--out", dir, "--admin", d.Replicas[1].AdminURL, "--mysql-dsn", d.MySQLDSN,
			"--rate", "300", "--duration", "1s", "--rounds", "1")...)
		if got.code != exitHeld {
			t.Fatalf("exit status %d\n%s\n%s", got.code, got.stdout, got.stderr)
		}
		_, rows := witness(dir)
		for _, row := range rows {
			if row.RequestsSent+row.Dropped != 300 {
				t.Errorf("%s: %d sent and %d dropped, want 300", row.Label(), row.RequestsSent, row.Dropped)
			}
		}
	})
	t.Run("Ctrl-C", func(t *testing.T) {
		dir := t.TempDir()
		cmd := command(t, append(base, "--out", dir, "--admin", d.Replicas[0].AdminURL, "--requests", "100000",
			"--budget", "0")...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(30 * time.Second)
		for !underWay(t, d.URL) {
			if time.Now().After(deadline) {
				t.Fatalf("the run did not begin\n%s", &stderr)
			}
			time.Sleep(20 * time.Millisecond)
		}
		interrupted := time.Now()
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if took := time.Since(interrupted); took > 10*time.Second {
			t.Errorf("it took %v to stop", took)
		}
		if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || !strings.Contains(stdout.String(), "interrupted") {
			t.Errorf("exit status %d, want %d and a report that says so\n%s\n%s", code, exitInterrupted, &stdout, &stderr)
		}
		r, err := readReport(dir)
		if err != nil {
			t.Fatal(err)
		}
		if r.ClaimsHeld || len(r.Rows) > 1 {
			t.Errorf("claims held %v, %d rows: an interrupted run has no verdict", r.ClaimsHeld, len(r.Rows))
		}
	})
}

// underWay says whether a run of 100 000 requests has set its stock, which comes after the abundance of the warm-up.
func underWay(t *testing.T, base string) bool {
	t.Helper()
	response, err := http.Get(base + "/stock/1")
	if err != nil {
		return false
	}
	defer response.Body.Close()
	var level struct{ Stock int64 }
	if err := json.NewDecoder(response.Body).Decode(&level); err != nil {
		return false
	}
	return level.Stock > 6_000 && level.Stock <= 100_000
}

func TestWrongUsageIsOneClearLine(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for _, test := range []struct{ args, want string }{
		{"run --counts 3-1", "counts 3-1: a range of at least 1 is needed"},
		{"run --counts many", `--counts "many": a number or a range such as 1-3 is needed`},
		{"run --requests 10 --duration 1s", "--requests and --duration exclude each other"},
		{"run --replicas 3", "--replicas 3: it is 1 or 2"},
		{"run --skew pareto", `skew "pareto": it is uniform or zipf`},
		{"run --admin http://127.0.0.1:1", "need --target"},
		{"run --target http://127.0.0.1:1 --strategies update", "ask for the strategies"},
		{"verify " + empty, "holds no histories"},
		{"compare " + empty + " " + empty, "no such file"},
		{"frobnicate", `unknown command "frobnicate"`},
	} {
		args := strings.Fields(test.args)
		if args[0] == "run" {
			args = append(args, "--out", t.TempDir())
		}
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), args, func(string) string { return "" }, &stdout, &stderr)
		if code != exitUnusable || !strings.Contains(stderr.String(), test.want) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: status %d, %q, want %d and one line with %q", test.args, code, &stderr, exitUnusable, test.want)
		}
	}
}

func TestFlagsComeFromTheEnvironmentToo(t *testing.T) {
	t.Parallel()
	environment := map[string]string{"LOADTEST_REQUESTS": "3", "LOADTEST_COUNTS": "2"}
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"targets", "--requests", "2"}, func(name string) string { return environment[name] }, &stdout, &stderr)
	if code != exitHeld || strings.Count(stdout.String(), "\n") != 2 {
		t.Errorf("status %d, %d targets, want 2: the command line comes first\n%s", code, strings.Count(stdout.String(), "\n"), &stderr)
	}
	environment["LOADTEST_REQUESTS"] = "many"
	if code := run(context.Background(), []string{"targets"}, func(name string) string { return environment[name] }, &stdout, &stderr); code != exitUnusable {
		t.Errorf("status %d for a wrong LOADTEST_REQUESTS, want %d", code, exitUnusable)
	}
}
