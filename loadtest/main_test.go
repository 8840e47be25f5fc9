package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"stock/internal/servers/serverstest"
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
	verdicts := map[string]string{"none": "wrong", "update": "correct", "noop": "correct"}
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
		if row.Strategy == "update" && row.Workload.Name == "plenty" && (row.Final != 0 || row.Sold != row.Initial) {
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

func TestSweptRunIsJudgedReportedAndJudgedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ran := finish(t, "run", "--quick", "--strategies", "none,update", "--requests", "300", "--sweep", "replicas=1,2", "--out", dir)
	if ran.code != exitHeld || !strings.Contains(ran.stdout, "goodput/s by replicas") {
		t.Fatalf("exit status %d\n%s\n%s", ran.code, ran.stdout, ran.stderr)
	}
	r, err := readReport(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Sweep == nil || len(r.Sweep.Curves) != 6 || len(r.Rows) != 12 {
		t.Errorf("%d rows, sweep %+v: want three strategies under two workloads at two values", len(r.Rows), r.Sweep)
	}
	if again := finish(t, "verify", dir); again.code != exitHeld || !strings.Contains(again.stdout, "goodput/s by replicas") {
		t.Errorf("verify: exit status %d\n%s\n%s", again.code, again.stdout, again.stderr)
	}
	if compared := finish(t, "compare", dir, dir); compared.code != exitHeld || strings.Contains(compared.stdout, "Only in") {
		t.Errorf("compare: exit status %d\n%s\n%s", compared.code, compared.stdout, compared.stderr)
	}
}

func TestLedgerIsAuditedAndCanBeAuditedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ran := finish(t, "run", "--quick", "--strategies", "ledger", "--requests", "300", "--out", dir)
	if ran.code != exitHeld {
		t.Fatalf("exit status %d\n%s\n%s", ran.code, ran.stdout, ran.stderr)
	}
	r, err := readReport(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.Strategy == "ledger" && (row.Replays == 0 || row.LedgerGaps > 0 || row.Requests != 300) {
			t.Errorf("%s: %d requests, %d replays, %d gaps", row.Label(), row.Requests, row.Replays, row.LedgerGaps)
		}
	}
	if again := finish(t, "verify", dir); again.code != exitHeld {
		t.Errorf("verify: exit status %d\n%s\n%s", again.code, again.stdout, again.stderr)
	}

	// A sale that is not in the ledger is found from the disk alone.
	paths, err := filepath.Glob(filepath.Join(dir, "history", "*-ledger-plenty-*.jsonl"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("histories %v, %v", paths, err)
	}
	kept, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(kept, []byte(`{"entry":`))
	if at < 0 {
		t.Fatal("the history has no entry of the ledger")
	}
	end := at + bytes.IndexByte(kept[at:], '\n') + 1
	if err := os.WriteFile(paths[0], slices.Concat(kept[:at], kept[end:]), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := finish(t, "verify", dir); again.code != exitNotHeld || !strings.Contains(again.stdout, "is not in the ledger") {
		t.Errorf("verify: exit status %d, want %d and what is not in the ledger\n%s\n%s", again.code, exitNotHeld, again.stdout, again.stderr)
	}
}

func TestBenchMeasuresStrategiesAndReferences(t *testing.T) {
	t.Parallel()
	// Its histories are in the directory for temporary files, which the socket of MySQL wants to have a short name.
	dir, err := os.MkdirTemp("", "t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var stdout, stderr bytes.Buffer
	path := filepath.Join(dir, "bench.md")
	cmd := command(t, "bench", "--users", "8", "--time", "100ms", "--rounds", "2", "--markdown", path)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	kept := 0 // cells that had a history on the disk at a time
	for running := true; running; {
		select {
		case err = <-ended:
			running = false
		case <-time.After(2 * time.Millisecond):
			histories, _ := filepath.Glob(filepath.Join(dir, "bench*", "*", "history"))
			kept = max(kept, len(histories))
		}
	}
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, &stdout, &stderr)
	}
	if kept != 1 {
		t.Errorf("%d cells had their history on the disk at a time, want each gone before the next one", kept)
	}
	markdown, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"noop", "update", "batch", "batch-ledger", "redis-script", "optimistic-version, 8 users",
		"optimistic-version, 64 users", "raw", "bare"} {
		if !strings.Contains(stdout.String(), "\n"+subject+" ") || !strings.Contains(string(markdown), "| "+subject+" |") {
			t.Errorf("%s was not measured:\n%s\n%s", subject, &stdout, markdown)
		}
	}
	measured := []string{"under 60 MB resident, 8 users", "requests later"}
	if runtime.GOOS == "linux" { // elsewhere nobody tells
		measured = append(measured, " MB at most")
	}
	for _, want := range measured {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the memory was not measured: the report lacks %q\n%s", want, &stdout)
		}
	}
}

func TestBenchKeepsWhatIsGivenBesideQuick(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args   []string
		time   time.Duration
		rounds int
	}{
		{[]string{"--quick"}, 300 * time.Millisecond, 1},
		{[]string{"--quick", "--rounds", "3"}, 300 * time.Millisecond, 3},
		{[]string{"--quick", "--time", "1s"}, time.Second, 1},
		{nil, 2 * time.Second, 6},
	} {
		var f benchFlags
		flags := pflag.NewFlagSet("bench", pflag.ContinueOnError)
		f.register(flags)
		if err := flags.Parse(test.args); err != nil {
			t.Fatal(err)
		}
		f.defaults(flags)
		if f.time != test.time || f.rounds != test.rounds {
			t.Errorf("%q: %d rounds of %v, want %d of %v", test.args, f.rounds, f.time, test.rounds, test.time)
		}
	}
}

func TestBenchSaysHowManyUsersItCanHave(t *testing.T) {
	t.Parallel()
	for _, users := range []string{"0", "600"} {
		if got := finish(t, "bench", "--users", users); got.code != exitUnusable || !strings.Contains(got.stderr, "--users "+users+": a number from 1 to 384 is needed") {
			t.Errorf("--users %s: exit status %d\n%s", users, got.code, got.stderr)
		}
	}
}

func TestBenchHelpTellsTargetsAndExitStatus(t *testing.T) {
	t.Parallel()
	got := finish(t, "bench", "--help")
	for _, want := range []string{"0.7 × noop", "3 × update", "under 60 MB resident, 100 users", "A target that is not met is a\nmeasurement, and no failure"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("the help lacks %q:\n%s", want, got.stdout)
		}
	}
}

// up starts a topology and returns it with the command that keeps it, and what that says.
func up(t *testing.T) (d described, cmd *exec.Cmd, stderr *bufio.Reader) {
	t.Helper()
	cmd = command(t, "up", "--json", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
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
	if err := json.NewDecoder(stdout).Decode(&d); err != nil {
		cmd.Process.Signal(os.Interrupt)
		rest, _ := io.ReadAll(said)
		t.Fatalf("up --json: %v, %v\n%s", err, cmd.Wait(), rest)
	}
	return d, cmd, bufio.NewReader(said)
}

type described struct {
	URL       string `json:"url"`
	SingleURL string `json:"single_url"`
	Replicas  []struct {
		Name     string `json:"name"`
		URL      string `json:"url"`
		AdminURL string `json:"admin_url"`
		PID      int    `json:"pid"`
	} `json:"replicas"`
	MySQLDSN  string   `json:"mysql_dsn"`
	Redis     []string `json:"redis"`
	Redlock   []string `json:"redlock"`
	Etcd      []string `json:"etcd"`
	ZooKeeper []string `json:"zookeeper"`
	Nginx     struct {
		PID  int    `json:"pid"`
		Conf string `json:"conf"`
	} `json:"nginx"`
}

// gone waits until no process of a topology is left and none of its ports is bound.
func (d described) gone(t *testing.T) {
	t.Helper()
	_, mysql, _ := strings.Cut(d.MySQLDSN, "tcp(")
	mysql, _, _ = strings.Cut(mysql, ")")
	addresses := slices.Concat([]string{mysql}, d.Redis, d.Redlock, d.Etcd, d.ZooKeeper)
	pids := []int{d.Nginx.PID}
	for _, address := range []string{d.URL, d.SingleURL} {
		addresses = append(addresses, strings.TrimPrefix(address, "http://"))
	}
	for _, replica := range d.Replicas {
		addresses = append(addresses, strings.TrimPrefix(replica.URL, "http://"), strings.TrimPrefix(replica.AdminURL, "http://"))
		pids = append(pids, replica.PID)
	}
	serverstest.Gone(t, pids, addresses)
}

func TestUpServesUntilCtrlC(t *testing.T) {
	t.Parallel()
	d, cmd, _ := up(t)
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
	d, cmd, _ := up(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	d.gone(t)
}

func TestUpTellsWhichPartDiedAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	d, cmd, stderr := up(t)
	if err := syscall.Kill(d.Replicas[1].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for line := ""; !strings.Contains(line, "replica-2 ended (signal: killed)"); {
		var err error
		if line, err = stderr.ReadString('\n'); err != nil {
			t.Fatalf("up did not tell that replica-2 was killed: %v", err)
		}
	}
	response, err := http.Post(d.Replicas[0].URL+"/stock/deduct?goods_id=1&count=1", "", nil)
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

// ownRun starts a run with servers of its own, and returns once it has begun to measure.
func ownRun(t *testing.T) (dir string, cmd *exec.Cmd, stderr *bytes.Buffer, pids []int, addresses []string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells in /proc which processes and ports a run has")
	}
	dir, stderr = t.TempDir(), &bytes.Buffer{}
	cmd = command(t, "run", "--strategies", "update", "--duration", "2s", "--rounds", "20", "--out", dir)
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if begun, _ := filepath.Glob(filepath.Join(dir, "history", "*.jsonl")); len(begun) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the run did not begin")
		}
	}
	pids = children(t, cmd.Process.Pid)
	addresses = listening(t, pids)
	// MySQL, Redis, three masters of Redlock, nginx and two replicas; nginx and each replica have two ports.
	if len(pids) < 8 || len(addresses) < 11 {
		t.Fatalf("the run has %d processes and %d ports", len(pids), len(addresses))
	}
	return dir, cmd, stderr, pids, addresses
}

// children lists the processes that a process started, by pid.
func children(t *testing.T, parent int) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // ended since it was listed
		}
		// After the name in parentheses: state, parent.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && fields[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// listening lists the TCP addresses on 127.0.0.1 at which processes listen.
func listening(t *testing.T, pids []int) (addresses []string) {
	t.Helper()
	sockets := map[string]bool{}
	for _, pid := range pids {
		descriptors, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, descriptor := range descriptors {
			if link, err := os.Readlink(descriptor); err == nil {
				sockets[strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")] = true
			}
		}
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		const listen = "0A"
		fields := strings.Fields(line)
		if host, port, _ := strings.Cut(fields[1], ":"); host == "0100007F" && fields[3] == listen && sockets[fields[9]] {
			number, err := strconv.ParseUint(port, 16, 16)
			if err != nil {
				t.Fatal(err)
			}
			addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", number))
		}
	}
	return addresses
}

func TestCtrlCEndsARunAndItsServersWithAPartialReport(t *testing.T) {
	t.Parallel()
	dir, cmd, stderr, pids, addresses := ownRun(t)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || !strings.HasSuffix(stderr.String(), "\nloadtest: interrupted\n") {
		t.Errorf("exit status %d, want %d\n%s", code, exitInterrupted, stderr)
	}
	r, err := readReport(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.ClaimsHeld || len(r.Problems) == 0 || !strings.Contains(r.Problems[0], "interrupted") {
		t.Errorf("claims held %v, problems %q: want that it was interrupted", r.ClaimsHeld, r.Problems)
	}
	serverstest.Gone(t, pids, addresses)
}

func TestInterruptedStartSaysJustThat(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{{"run", "--quick"}, {"up", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}} {
		for _, after := range []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(after, func() { cancel(errors.New("interrupt signal received")) })
			args, dir := command, filepath.Join(t.TempDir(), "new")
			if command[0] == "run" {
				args = append(args, "--out", dir)
			}
			var stdout, stderr bytes.Buffer
			code := run(ctx, args, func(string) string { return "" }, &stdout, &stderr)
			if code != exitInterrupted || stderr.String() != "loadtest: interrupted\n" {
				t.Errorf("%s, interrupted after %v: exit status %d\n%s", command, after, code, &stderr)
			}
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it leaves %s behind: %v", dir, err)
			}
		}
	}
}

func TestKilledRunLeavesNoServerAndNoVerdict(t *testing.T) {
	t.Parallel()
	dir, cmd, _, pids, addresses := ownRun(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	serverstest.Gone(t, pids, addresses)
	if got := finish(t, "verify", dir); got.code != exitNotHeld || !strings.Contains(got.stdout, "planned runs are missing") ||
		!strings.Contains(got.stdout, "interrupted") {
		t.Errorf("verify: exit status %d, want %d and what is missing\n%s\n%s", got.code, exitNotHeld, got.stdout, got.stderr)
	}
	// Killed even before the first history.
	if err := os.RemoveAll(filepath.Join(dir, "history")); err != nil {
		t.Fatal(err)
	}
	if got := finish(t, "verify", dir); got.code != exitNotHeld {
		t.Errorf("verify without histories: exit status %d, want %d\n%s\n%s", got.code, exitNotHeld, got.stdout, got.stderr)
	}
}

func TestReplicaThatDiesEndsTheRunAndTheReportSaysSo(t *testing.T) {
	t.Parallel()
	dir, cmd, stderr, pids, addresses := ownRun(t)
	killed := slices.ContainsFunc(pids, func(pid int) bool {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err == nil && bytes.Contains(line, []byte("--replica=replica-2")) && syscall.Kill(pid, syscall.SIGKILL) == nil
	})
	if !killed {
		t.Fatal("the run has no second replica")
	}
	died := time.Now()
	cmd.Wait()
	if took := time.Since(died); took > 20*time.Second {
		t.Errorf("the run went on for %v", took)
	}
	if code := cmd.ProcessState.ExitCode(); code != exitUnusable || !strings.Contains(stderr.String(), "replica-2 ended (signal: killed)") {
		t.Errorf("exit status %d, want %d and which part died\n%s", code, exitUnusable, stderr)
	}
	r, err := readReport(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.ClaimsHeld || len(r.Problems) == 0 || r.Problems[0] != "replica-2 ended (signal: killed)" {
		t.Errorf("claims held %v, problems %q: want the dead replica first", r.ClaimsHeld, r.Problems)
	}
	for _, name := range []string{"report.md", "report.csv", "bench.txt"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	serverstest.Gone(t, pids, addresses)
}

// The service is told to the lab in three ways: the less the lab knows, the less it can do, and it says so.
func TestTargetIsJudgedWithWhatTheLabIsToldOfIt(t *testing.T) {
	t.Parallel()
	d, _, _ := up(t)
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
		if who != "service" || len(rows) != 2 || rows[0].Workload.Name != "found-stock" || rows[0].Result != "correct" {
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
	t.Run("stock that cannot be set any more", func(t *testing.T) {
		admin, err := url.Parse(d.Replicas[1].AdminURL)
		if err != nil {
			t.Fatal(err)
		}
		proxy, settings := httputil.NewSingleHostReverseProxy(admin), 0
		failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if settings++; settings > 2 { // the warm-up's, and the first run's
				http.Error(w, "out of order", http.StatusInternalServerError)
				return
			}
			proxy.ServeHTTP(w, r)
		}))
		defer failing.Close()
		dir := t.TempDir()
		got := finish(t, append(base, "--out", dir, "--admin", failing.URL, "--mysql-dsn", d.MySQLDSN)...)
		if got.code != exitUnusable || !strings.Contains(got.stderr, "set the stock of goods 1") {
			t.Errorf("exit status %d, %s: want %d and what failed", got.code, got.stderr, exitUnusable)
		}
		r, err := readReport(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Rows) != 1 || r.ClaimsHeld || len(r.Problems) == 0 || !strings.Contains(r.Problems[0], "out of order") {
			t.Errorf("%d rows, claims held %v, problems %q: want the first run, and why there are no more", len(r.Rows), r.ClaimsHeld, r.Problems)
		}
	})
	t.Run("longer than the budget", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "new")
		got := finish(t, append(base, "--out", dir, "--admin", d.Replicas[1].AdminURL, "--duration", "20s", "--budget", "1m")...)
		if got.code != exitUnusable || !strings.Contains(got.stderr, "4 runs of --duration 20s take 1m20s, more than --budget 1m0s") {
			t.Errorf("exit status %d, %s", got.code, got.stderr)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it leaves %s behind: %v", dir, err)
		}
	})
	t.Run("open loop", func(t *testing.T) {
		dir := t.TempDir()
		got := finish(t, append(base, "--out", dir, "--admin", d.Replicas[1].AdminURL, "--mysql-dsn", d.MySQLDSN,
			"--rate", "300", "--duration", "1s", "--rounds", "1", "--hold", "5ms")...) // no request ends before the next one begins
		if got.code != exitHeld {
			t.Fatalf("exit status %d\n%s\n%s", got.code, got.stdout, got.stderr)
		}
		if !strings.Contains(got.stderr, "4 runs of 1s take a little more than 4s") {
			t.Errorf("it does not say how long it takes: %s", got.stderr)
		}
		_, rows := witness(dir)
		for _, row := range rows {
			if row.RequestsSent+row.Dropped != 300 {
				t.Errorf("%s: %d sent and %d dropped, want 300", row.Label(), row.RequestsSent, row.Dropped)
			}
			if row.Strategy == "update" && row.Workload.Name == "flash-sale" && !row.DemandExceeded {
				t.Errorf("%s does not sell out", row.Label())
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
		{"run --counts 3-1", "--counts 3-1: a number or a range between 1 and 1000000 is needed"},
		{"run --counts 1-1000001", "--counts 1-1000001: a number or a range between 1 and 1000000 is needed"},
		{"targets --target zzz", `--target "zzz": a URL such as http://127.0.0.1:8000 is needed`},
		{"run --goods 0", "--goods 0: at least 1 is needed"},
		{"run --users 0", "--users 0: at least 1 is needed"},
		{"run --users 10001", "--users 10001: one process plays 10000 at most"},
		{"run --rounds 0", "--rounds 0: at least 1 is needed"},
		{"run --stock -1", "--stock -1: at least 1 is needed"},
		{"run --restock -1", "--restock -1: units are needed, up to 1000000"},
		{"run --target http://127.0.0.1:1 --restock 10", "--restock needs --admin"},
		{"run --rate -5", "--rate -5: requests a second are needed"},
		{"run --rate NaN", "--rate NaN: requests a second are needed"},
		{"run --timeout 0", "--timeout 0s: more than that is needed"},
		{"run --duration 0", "--duration 0s: more than that is needed"},
		{"run --budget -1s", "--budget -1s: it cannot be negative"},
		{"run --target http://127.0.0.1:1 --stock 10", "--stock needs --admin"},
		{"run --target http://127.0.0.1:1 --stock-binary stock", "--stock-binary has no use with --target"},
		{"run --counts many", `--counts "many": a number or a range such as 1-3 is needed`},
		{"run --requests 10 --duration 1s", "--requests and --duration exclude each other"},
		{"run --replicas 3", "--replicas 3: it is 1 or 2"},
		{"run --sweep users=8,1", "--sweep users=8,1: 1 after 8: values ascend"},
		{"run --sweep colour=red,blue", `--sweep colour=red,blue: nothing is swept by "colour": it is users, hold, goods or replicas`},
		{"run --sweep users=1,8 --users 3", "--users and --sweep users exclude each other"},
		{"run --sweep users=1,8 --rate 10", "--sweep users needs a closed loop"},
		{"run --target http://127.0.0.1:1 --sweep replicas=1,2", "--sweep replicas needs --single"},
		{"bench --rounds 0", "--rounds 0: at least 1 is needed"},
		{"run --skew pareto", `skew "pareto": it is uniform or zipf`},
		{"run --admin http://127.0.0.1:1", "need --target"},
		{"run --target http://127.0.0.1:1 --strategies update", "ask for the strategies"},
		{"verify " + empty, "holds no histories"},
		{"compare " + empty + " " + empty, "no such file"},
		{"frobnicate", `unknown command "frobnicate"`},
	} {
		args := strings.Fields(test.args)
		out := filepath.Join(empty, "out")
		if args[0] == "run" {
			args = append(args, "--out", out)
		}
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), args, func(string) string { return "" }, &stdout, &stderr)
		if code != exitUnusable || !strings.Contains(stderr.String(), test.want) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: status %d, %q, want %d and one line with %q", test.args, code, &stderr, exitUnusable, test.want)
		}
		if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s leaves %s behind: %v", test.args, out, err)
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

func TestReportHasTheOptionsOfTheEnvironmentToo(t *testing.T) {
	t.Parallel()
	var f runFlags
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.register(flags)
	if err := flags.Parse([]string{"--quick", "--strategies", "none,update"}); err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{"LOADTEST_MYSQL_DSN": "stock:secret@tcp(mysql:3306)/stock", "LOADTEST_QUICK": "false"}
	if err := fromEnvironment(flags, func(name string) string { return environment[name] }); err != nil {
		t.Fatal(err)
	}
	f.defaults(flags)
	got := report.NewBuilder(f.environment(&lab{}, nil)).Environment().Options
	slices.Sort(got)
	want := []string{"--mysql-dsn=stock:***@tcp(mysql:3306)/stock", "--quick=true", "--strategies=none,update", "run"}
	if !slices.Equal(got, want) {
		t.Errorf("options %q, want %q", got, want)
	}
}

func TestLabSaysWhereTheServiceMayBeAnOldOne(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ service, lab, want string }{
		{"0123456789abcdef0123", "0123456789ab", ""},
		{"0123456789abcdef0123", "0123456789ab+changes", ""},
		{"fedcba98765432100123", "0123456789ab", "the service was built from revision fedcba987654, and the lab from 0123456789ab"},
		{"", "0123456789ab", "the service does not tell"},
		{"0123456789abcdef0123", "", "the lab does not know"},
	} {
		if got := stale(test.service, test.lab); !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
			t.Errorf("service %q, lab %q: %q, want %q", test.service, test.lab, got, test.want)
		}
	}
}

func TestLabSaysWhetherItMayShareTheHostOfTheService(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		address string
		shares  bool
		note    string
	}{
		{"http://127.0.0.1:8000", true, ""},
		{"http://localhost:8000", true, ""},
		{"http://[::1]:8000", true, ""},
		{"http://172.18.0.5:8000", true, "172.18.0.5 has a private address"},
		{"http://nobody.invalid", true, "nobody knows the address of nobody.invalid"},
		{"http://192.0.2.1", false, ""},
	} {
		shares, note := sharesHost(t.Context(), test.address)
		if shares != test.shares || !strings.HasPrefix(note, test.note) || test.note == "" && note != "" {
			t.Errorf("%s: %v, %q, want %v, %q", test.address, shares, note, test.shares, test.note)
		}
	}
}
