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

	"stock/internal/must"
)

// Gone waits until the processes and the process groups that they led have ended, and nothing listens at the addresses
// (host:port). It reports an error for each that is left after 5 minutes.
//
// A zombie counts as ended: it holds no resources, and in a container there may be no init to reap it.
func Gone(t testing.TB, pids []int, addresses []string) {
	t.Helper()
	deadline := time.Now().Add(eventuallyTimeout)
	for _, pid := range pids {
		for len(Running(t, pid)) > 0 {
			if time.Now().After(deadline) {
				t.Errorf("these processes of group %d are still running: %v", pid, Running(t, pid))
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	// A process may appear as ended before its last thread has closed the port.
	for _, address := range addresses {
		for isListening(address) {
			if time.Now().After(deadline) {
				t.Errorf("a process still listens at %s", address)
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// Running returns which of the process and the members of its process group have not ended.
func Running(t testing.TB, pid int) (pids []int) {
	t.Helper()
	if runtime.GOOS != "linux" {
		if syscall.Kill(pid, 0) == nil || syscall.Kill(-pid, 0) == nil {
			return []int{pid}
		}
		return nil
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must.Succeed(t, err)
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		must.Succeed(t, err)
		// The name is in parentheses and may contain any character. Then come state, parent and process group.
		fields := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))
		state, group := fields[0], fields[2]
		if state != "Z" && state != "X" && (id == pid || group == strconv.Itoa(pid)) {
			pids = append(pids, id)
		}
	}
	return pids
}

func isListening(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		conn.Close()
	}
	return err == nil
}
