package serverstest

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Gone waits until none of the processes is left, none of the process groups that they led, and nobody listens at the
// addresses (host:port). It fails the test for what is left after 20 seconds.
//
// A zombie counts as gone: it holds nothing, and in a container there may be no init that reaps it.
func Gone(t testing.TB, pids []int, addresses []string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for _, pid := range pids {
		for len(Running(t, pid)) > 0 {
			if time.Now().After(deadline) {
				t.Errorf("of the processes that %d led, these still run: %v", pid, Running(t, pid))
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	// The kernel shows a process as ended a little before its last thread lets go of the port.
	for _, address := range addresses {
		for listens(address) {
			if time.Now().After(deadline) {
				t.Errorf("somebody still listens at %s", address)
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// Running lists the process and those of the group that it leads, as far as they have not ended.
func Running(t testing.TB, pid int) (pids []int) {
	t.Helper()
	if runtime.GOOS != "linux" {
		if syscall.Kill(pid, 0) == nil || syscall.Kill(-pid, 0) == nil {
			return []int{pid}
		}
		return nil
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // ended since it was listed
		}
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		// After the name in parentheses, which may hold anything: state, parent, process group.
		fields := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))
		state, group := fields[0], fields[2]
		if state != "Z" && state != "X" && (id == pid || group == strconv.Itoa(pid)) {
			pids = append(pids, id)
		}
	}
	return pids
}

func listens(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		conn.Close()
	}
	return err == nil
}
