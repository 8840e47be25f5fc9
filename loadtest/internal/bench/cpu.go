package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"stock/internal/servers"
)

// Part is a part of what is measured, with the CPU time that its processes and their children use.
type Part struct {
	Name string
	PIDs []int
}

// Load is the part that sends the load: this process, or wrk.
const Load = "load"

// cell is what was measured of a subject in a round.
type cell struct {
	rate     float64 // requests per second
	requests int     // that were answered
	load     time.Duration
}

// warm notes the CPU time of all parts at the end of a warm-up.
func (b *bench) warm() { b.before, b.after = b.usage(), nil }

// usage is the CPU time that each part has used so far. A part is missing if the system does not tell.
func (b *bench) usage() map[string]time.Duration {
	all := map[string]time.Duration{}
	for _, part := range b.Parts {
		var sum time.Duration
		var err error
		for _, pid := range part.PIDs {
			var used time.Duration
			if used, err = CPUTime(pid); err != nil {
				break
			}
			sum += used
		}
		if err == nil {
			all[part.Name] = sum
		}
	}
	return all
}

// addCPU adds the CPU time per request of a cell that has just ended, in µs.
func (b *bench) addCPU(name string, c cell) {
	if b.result.CPU[name] == nil {
		b.result.CPU[name] = map[string][]float64{}
	}
	add := func(part string, used time.Duration) {
		perRequest := float64(used) / float64(time.Microsecond) / float64(c.requests)
		b.result.CPU[name][part] = append(b.result.CPU[name][part], perRequest)
	}
	after := b.after
	if after == nil {
		after = b.usage()
	}
	for _, part := range b.Parts {
		before, known := b.before[part.Name]
		if used, still := after[part.Name]; known && still {
			add(part.Name, used-before)
		}
	}
	if c.load > 0 {
		add(Load, c.load)
	}
}

// clockTick is the unit of CPU times in /proc (USER_HZ), which is the same on all architectures of Linux that Go
// supports.
const clockTick = 10 * time.Millisecond

// CPUTime returns the CPU time that a process and its children have used, in user and system mode.
func CPUTime(pid int) (used time.Duration, err error) {
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
	return used, nil
}

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
