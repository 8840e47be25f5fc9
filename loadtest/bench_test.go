package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"stock/internal/must"
)

func TestBenchMeasuresStrategiesAndReferences(t *testing.T) {
	t.Parallel()
	// The name of t.TempDir is too long for MySQL's socket.
	dir, err := os.MkdirTemp("", "t")
	must.Succeed(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	var stdout, stderr bytes.Buffer
	path := filepath.Join(dir, "new", "bench.md")
	cmd := command(t, "bench", "--users", "8", "--time", "100ms", "--rounds", "2", "--markdown", path)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	must.Succeed(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	kept := 0 // the most cells whose histories were on disk at the same time
	for running := true; running; {
		select {
		case err = <-ended:
			running = false
		case <-time.After(2 * time.Millisecond):
			histories, _ := filepath.Glob(filepath.Join(dir, "bench*", "*", "history"))
			kept = max(kept, len(histories))
		}
	}
	// On a busy machine, a cell of 100 ms may be too short to be judged.
	if code := cmd.ProcessState.ExitCode(); code != exitHeld && code != exitInconclusive {
		t.Fatalf("%v\n%s\n%s", err, &stdout, &stderr)
	}
	if kept != 1 {
		t.Errorf("the histories of %d cells were on disk at the same time, want 1", kept)
	}
	markdown, err := os.ReadFile(path)
	must.Succeed(t, err)
	for _, subject := range []string{
		"noop", "update", "update, key", "batch", "batch, key", "redis-script", "optimistic-version, 8 users",
		"optimistic-version, 64 users", "redis-stream", "noop, 256 users", "batch, 256 users", "raw", "bare",
	} {
		if !strings.Contains(stdout.String(), "| "+subject+" ") ||
			!strings.Contains(string(markdown), "| "+subject+" |") {
			t.Errorf("%s was not measured:\n%s\n%s", subject, &stdout, markdown)
		}
	}
	measured := []string{"under 60 MB resident, 8 users", "requests later"}
	if _, err := exec.LookPath("wrk"); err == nil {
		measured = append(measured, "| noop by wrk ", "| redis-script by wrk ", "| batch by wrk ", "| update by wrk ",
			"load µs", "Redis µs")
	}
	if runtime.GOOS == "linux" { // the only system that shows it
		measured = append(measured, " MB at most")
	}
	for _, want := range measured {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("something was not measured: the report lacks %q\n%s", want, &stdout)
		}
	}
}
