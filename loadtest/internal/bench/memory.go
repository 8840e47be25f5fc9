package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// peakMemory is the most that a process has had in memory, bytes (VmHWM of Linux).
func peakMemory(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("process %d does not tell its peak", pid)
}
