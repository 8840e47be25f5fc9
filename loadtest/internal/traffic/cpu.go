package traffic

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is what this process has used of the CPU so far, in user and system mode. It is 0 if the system does not say.
func cpuTime() time.Duration {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
