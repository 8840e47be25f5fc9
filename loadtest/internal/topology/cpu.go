package topology

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"stock/internal/servers"
)

// CPU returns the CPU time that the parts of the topology have used so far, as far as it started them and the system
// tells: the replicas together as "service", "nginx", "MySQL" and "Redis".
func (t *Topology) CPU() map[string]time.Duration {
	pids := map[string][]int{}
	for _, replica := range t.Replicas {
		pids["service"] = append(pids["service"], replica.PID)
	}
	if t.Nginx.PID != 0 {
		pids["nginx"] = []int{t.Nginx.PID}
	}
	if t.Servers.MySQL != nil {
		pids["MySQL"] = []int{t.Servers.MySQL.PID}
	}
	if t.Servers.Redis != nil {
		pids["Redis"] = []int{t.Servers.Redis.PID}
	}
	used := map[string]time.Duration{}
	for part, of := range pids {
		if sum, err := cpuTime(of); err == nil {
			used[part] = sum
		}
	}
	return used
}

// cpuTime is the CPU time that processes and their children have used, in user and system mode.
func cpuTime(pids []int) (used time.Duration, err error) {
	for _, pid := range pids {
		children, err := servers.Children(pid)
		if err != nil {
			return 0, err
		}
		for _, member := range append(children, pid) {
			of, err := cpuOf(member)
			if err != nil {
				return 0, err
			}
			used += of
		}
	}
	return used, nil
}

// clockTick is the unit of CPU times in /proc (USER_HZ), which is the same on all architectures of Linux that Go
// supports.
const clockTick = 10 * time.Millisecond

// cpuOf is the CPU time of a process without its children: the fields utime and stime of /proc/PID/stat.
func cpuOf(pid int) (time.Duration, error) {
	name := fmt.Sprintf("/proc/%d/stat", pid)
	stat, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	// The name of the program comes before, in brackets, and may contain spaces.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const utime, stime = 11, 12
	if len(fields) <= stime {
		return 0, fmt.Errorf("%s has %d fields after the name, want at least %d", name, len(fields), stime+1)
	}
	var ticks int64
	for _, field := range fields[utime : stime+1] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}
