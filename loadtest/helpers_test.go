package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/explore/script"
	"stock/loadtest/internal/lab"
	"stock/loadtest/internal/report"
)

// programs builds the programs under test once. The tests do not use `go run`, because it does not pass signals on.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "loadtest"); err != nil {
		return "", err
	}
	built = dir
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-w", "-o", dir+"/", "stock/loadtest", "stock/cmd/stock")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as the lab and make build do, so that they share what is compiled
	if output, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w: %s", err, output)
	}
	return dir, nil
})

// built is the directory of the programs, once there is one.
var built string

func TestMain(m *testing.M) {
	script.Interpret()
	flag.Parse()
	if at := flag.Lookup("test.parallel"); at.Value.String() == at.DefValue {
		_ = at.Value.Set(strconv.Itoa(runtime.GOMAXPROCS(0) + 1)) // there is always a test that waits for its servers
	}
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

// command returns a command that runs loadtest.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	serverstest.Long(t)
	dir, err := programs()
	must.Succeed(t, err)
	return exec.Command(filepath.Join(dir, "loadtest"), args...)
}

// stockBinary returns the flag with the service, for commands in this process, which would build it again.
func stockBinary(t *testing.T) string {
	t.Helper()
	dir, err := programs()
	must.Succeed(t, err)
	return "--stock-binary=" + filepath.Join(dir, "stock")
}

// result is the outcome of a finished command.
type result struct {
	code           int
	stdout, stderr string
}

// finish runs loadtest to its end.
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

// runHere runs loadtest in the process of the test, to its end.
func runHere(ctx context.Context, args ...string) result { return runWith(ctx, nil, args...) }

// runWith does the same with an environment.
func runWith(ctx context.Context, environment map[string]string, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, func(name string) string { return environment[name] }, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// execute runs statements.
func execute(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// want fails the test unless a command ended with a status and some words: on standard error if it could not be used.
func (r result) want(t *testing.T, code int, words ...string) {
	t.Helper()
	text := r.stdout
	if code == exitUnusable {
		text = r.stderr
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is missing:\n%s", word, text)
		}
	}
	if r.code != code {
		t.Errorf("exit status %d, want %d\n%s\n%s", r.code, code, r.stdout, r.stderr)
	}
}

func mustReadReport(t *testing.T, dir string) *report.Report {
	t.Helper()
	r, err := lab.ReadReport(dir)
	must.Succeed(t, err)
	return r
}

// up runs `loadtest up` until the end of the test, on ports that are free.
func up(t *testing.T) (d described, cmd *exec.Cmd, stderr *bufio.Reader) {
	t.Helper()
	const free = "127.0.0.1:0"
	cmd = command(t, "up", "--json", "--console", free, "--listen", free, "--admin-listen", free)
	cmd.Dir = t.TempDir() // for the reports of the console
	stderrPipe, err := cmd.StderrPipe()
	must.Succeed(t, err)
	stdout, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	})
	if err := json.NewDecoder(stdout).Decode(&d); err != nil {
		cmd.Process.Signal(os.Interrupt)
		rest, _ := io.ReadAll(stderrPipe)
		t.Fatalf("up --json: %v, %v\n%s", err, cmd.Wait(), rest)
	}
	return d, cmd, bufio.NewReader(stderrPipe)
}

// described is what `loadtest up --json` prints.
type described struct {
	URL       string `json:"url"`
	Console   string `json:"console"`
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

// gone waits until no process of the topology runs and none of its ports is in use.
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
		addresses = append(addresses,
			strings.TrimPrefix(replica.URL, "http://"), strings.TrimPrefix(replica.AdminURL, "http://"))
		pids = append(pids, replica.PID)
	}
	serverstest.Gone(t, pids, addresses)
}

// runningRun is a run with its own servers, in the middle of a measurement.
type runningRun struct {
	dir       string
	cmd       *exec.Cmd
	stderr    *bytes.Buffer
	pids      []int    // of its servers and replicas
	addresses []string // at which they listen
}

// startRun starts a run, and returns as soon as it has begun to measure.
func startRun(t *testing.T) runningRun {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows the processes and ports of a run in /proc")
	}
	r := runningRun{dir: t.TempDir(), stderr: &bytes.Buffer{}}
	r.cmd = command(t, "run", "--strategies", "update", "--duration", "2s", "--rounds", "20", "--out", r.dir)
	r.cmd.Stderr = r.stderr
	must.Succeed(t, r.cmd.Start())
	t.Cleanup(func() {
		r.cmd.Process.Kill()
		r.cmd.Wait()
	})
	awaitMeasurement(t, r.dir)
	r.pids = children(t, r.cmd.Process.Pid)
	r.addresses = listening(t, r.pids)
	// MySQL, Redis and its replica, three masters of Redlock, nginx and two replicas; nginx and each replica have two
	// ports.
	if len(r.pids) < 9 || len(r.addresses) < 12 {
		t.Fatalf("the run has %d processes and %d ports, want at least 9 and 12", len(r.pids), len(r.addresses))
	}
	return r
}

// awaitMeasurement waits until a run has begun to measure.
func awaitMeasurement(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if begun, _ := filepath.Glob(filepath.Join(dir, "history", "*.jsonl")); len(begun) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the run has not begun after minutes")
		}
	}
}

// children returns the PIDs of a process's children.
func children(t *testing.T, parent int) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must.Succeed(t, err)
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended since
		}
		// The fields after the name in parentheses begin with the state and the parent's PID.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && fields[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// listening returns the TCP addresses on 127.0.0.1 at which the processes listen.
func listening(t *testing.T, pids []int) (addresses []string) {
	t.Helper()
	sockets := map[string]bool{}
	for _, pid := range pids {
		descriptors, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		must.Succeed(t, err)
		for _, descriptor := range descriptors {
			if link, err := os.Readlink(descriptor); err == nil {
				sockets[strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")] = true
			}
		}
	}
	table, err := os.ReadFile("/proc/net/tcp")
	must.Succeed(t, err)
	for line := range strings.Lines(string(table)) {
		const listen = "0A"
		fields := strings.Fields(line)
		if host, port, _ := strings.Cut(fields[1], ":"); host == "0100007F" && fields[3] == listen && sockets[fields[9]] {
			number, err := strconv.ParseUint(port, 16, 16)
			must.Succeed(t, err)
			addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", number))
		}
	}
	return addresses
}
