package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/loadtest/internal/lab"
)

func TestCtrlCStopsEverythingAndLeavesAPartialReport(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) runningRun{
		"a run": startRun, "in the middle of a fault": startFault,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			must.Succeed(t, r.cmd.Process.Signal(os.Interrupt))
			r.cmd.Wait()
			code := r.cmd.ProcessState.ExitCode()
			if code != exitInterrupted || !strings.HasSuffix(r.stderr.String(), "loadtest: interrupted\n") {
				t.Errorf("exit status %d, want %d\n%s", code, exitInterrupted, r.stderr)
			}
			partial := mustReadReport(t, r.dir)
			if partial.ClaimsHeld || len(partial.Faults) > 0 || !strings.Contains(partial.Problems[0], "interrupted") {
				t.Errorf("%+v: want that it was interrupted", partial)
			}
			serverstest.Gone(t, r.pids, r.addresses)
		})
	}
}

func TestInterruptedStartSaysOnlyThat(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	for _, command := range [][]string{
		{"run", "--quick"},
		{"up", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"},
		{"faults", "--scenarios", "late-write"},
	} {
		for _, after := range []time.Duration{0, 100 * time.Millisecond} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(after, func() { cancel(errors.New("interrupt signal received")) })
			args, dir := command, filepath.Join(t.TempDir(), "new")
			if command[0] != "up" {
				args = append(args, "--out", dir)
			}
			got := runHere(ctx, args...)
			said := got.stderr
			if command[0] == "up" {
				_, said, _ = strings.Cut(said, "…\n") // it says first what it starts
			}
			if got.code != exitInterrupted || said != "loadtest: interrupted\n" {
				t.Errorf("%s, interrupted after %v: exit status %d\n%s", command, after, got.code, got.stderr)
			}
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s was not removed: %v", dir, err)
			}
		}
	}
}

func TestKilledRunLeavesNoServerAndNoVerdict(t *testing.T) {
	t.Parallel()
	r := startRun(t)
	must.Succeed(t, r.cmd.Process.Kill())
	r.cmd.Wait()
	serverstest.Gone(t, r.pids, r.addresses)
	finish(t, "verify", r.dir).want(t, exitInconclusive, "planned runs are missing", "interrupted")
	// The same for a run that was killed before its first history.
	must.Succeed(t, os.RemoveAll(filepath.Join(r.dir, "history")))
	finish(t, "verify", r.dir).want(t, exitInconclusive)
}

func TestDeadReplicaEndsTheRunAndIsInTheReport(t *testing.T) {
	t.Parallel()
	r := startRun(t)
	killed := slices.ContainsFunc(r.pids, func(pid int) bool {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err == nil && bytes.Contains(line, []byte("--replica=replica-2")) &&
			syscall.Kill(pid, syscall.SIGKILL) == nil
	})
	if !killed {
		t.Fatal("the run has no second replica")
	}
	r.cmd.Wait()
	const death = "replica-2 ended (signal: killed)"
	if code := r.cmd.ProcessState.ExitCode(); code != exitUnusable || !strings.Contains(r.stderr.String(), death) {
		t.Errorf("exit status %d, want %d and which part died\n%s", code, exitUnusable, r.stderr)
	}
	partial := mustReadReport(t, r.dir)
	if partial.ClaimsHeld || len(partial.Problems) == 0 || partial.Problems[0] != death {
		t.Errorf("claims held %v, problems %q: want the dead replica first", partial.ClaimsHeld, partial.Problems)
	}
	for _, name := range []string{"report.md", lab.ReportPage} {
		if _, err := os.Stat(filepath.Join(r.dir, name)); err != nil {
			t.Error(err)
		}
	}
	serverstest.Gone(t, r.pids, r.addresses)
}

// startFault plays a fault, and returns when a replica is stopped (SIGSTOP). Until then, somebody presses Enter after
// each step.
func startFault(t *testing.T) runningRun {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows the processes and ports of a run in /proc")
	}
	r := runningRun{dir: filepath.Join(t.TempDir(), "out"), stderr: &bytes.Buffer{}}
	r.cmd = command(t, "faults", "--scenarios", "holder-pauses", "--strategies", "none", "--step", "--out", r.dir)
	r.cmd.Stderr = r.stderr
	input, err := r.cmd.StdinPipe()
	must.Succeed(t, err)
	stdout, err := r.cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, r.cmd.Start())
	t.Cleanup(func() {
		input.Close()
		r.cmd.Process.Kill()
		r.cmd.Wait()
	})
	lines := bufio.NewScanner(stdout)
	for stopped := false; !stopped; stopped = strings.HasSuffix(lines.Text(), "the victim is stopped") {
		if strings.Contains(lines.Text(), " s  ") { // a step, and the time since the beginning
			fmt.Fprintln(input)
		}
		if !lines.Scan() {
			r.cmd.Wait()
			t.Fatalf("the replica was not stopped: %s", r.stderr)
		}
	}
	r.pids = children(t, r.cmd.Process.Pid)
	stopped := func(pid int) bool { state, _ := servers.ProcessState(pid); return state == 'T' }
	if !slices.ContainsFunc(r.pids, stopped) {
		t.Fatalf("none of %v is stopped", r.pids)
	}
	r.addresses = listening(t, append(slices.Clone(r.pids), r.cmd.Process.Pid)) // also those of its proxies
	return r
}
