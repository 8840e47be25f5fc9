package bench

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"stock/internal/must"
)

func TestCPUTimeIncludesTheChildrenOfAProcess(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc of Linux")
	}
	// The shell waits while its child computes.
	shell := exec.CommandContext(t.Context(), "sh", "-c", "sh -c 'while :; do :; done' & wait")
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must.Succeed(t, shell.Start())
	defer func() {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL)
		_ = shell.Wait()
	}()
	awaitCPU(t, shell.Process.Pid, 50*time.Millisecond)
	if own, err := cpuOf(shell.Process.Pid); err != nil || own >= 50*time.Millisecond {
		t.Errorf("the shell itself has used %v (%v), want less", own, err)
	}
}

func TestCPUTimeOfACellBeginsAfterItsWarmUp(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc of Linux")
	}
	busy := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
	must.Succeed(t, busy.Start())
	defer func() {
		_ = busy.Process.Kill()
		_ = busy.Wait()
	}()
	awaitCPU(t, busy.Process.Pid, 100*time.Millisecond)
	b := newBench(Options{Parts: []Part{{"service", []int{busy.Process.Pid}}, {"gone", []int{1 << 30}}}})
	b.warm()
	const during = 50 * time.Millisecond
	awaitCPU(t, busy.Process.Pid, b.before["service"]+during)
	// The process stops, so that it uses no more while it is read.
	must.Succeed(t, busy.Process.Signal(syscall.SIGSTOP))
	total, err := cpuOf(busy.Process.Pid)
	must.Succeed(t, err)
	b.addCPU(noop, cell{requests: 10, load: time.Millisecond})
	want := float64((total - b.before["service"]).Microseconds()) / 10
	got := b.result.CPU[noop]
	if len(got["service"]) != 1 || got["service"][0] < want || got["service"][0] > want+1000 {
		t.Errorf("the service used %v µs per request, want %v", got["service"], want)
	}
	if load := got[Load]; len(load) != 1 || load[0] != 100 {
		t.Errorf("the load used %v µs per request, want 100", load)
	}
	if gone, ok := got["gone"]; ok {
		t.Errorf("a process that is gone used %v µs per request, want none", gone)
	}
}

// awaitCPU waits until a process and its children have used some CPU time.
func awaitCPU(t *testing.T, pid int, want time.Duration) {
	t.Helper()
	for {
		used, err := CPUTime(pid)
		must.Succeed(t, err)
		if used >= want {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
