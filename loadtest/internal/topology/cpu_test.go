package topology

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
	const want = 50 * time.Millisecond
	for used := time.Duration(0); used < want; time.Sleep(time.Millisecond) {
		var err error
		used, err = cpuTime([]int{shell.Process.Pid})
		must.Succeed(t, err)
	}
	if own, err := cpuOf(shell.Process.Pid); err != nil || own >= want {
		t.Errorf("the shell itself has used %v (%v), want less", own, err)
	}
}
