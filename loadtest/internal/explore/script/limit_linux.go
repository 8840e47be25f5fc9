package script

import (
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// limitMemory has the kernel refuse this process more address space than a script may use, beside what it has already.
// The Go runtime then ends the process. It reserves address space for its heap in arenas of 64 MiB, and there is room
// for one more beside the one that it has begun: so a script gets at least mostMemory, and less than twice as much. The
// other 56 MiB of the limit are for the stacks of threads: with cgo, each has 8 MiB, and a busy machine has more.
//
// RLIMIT_DATA would not do: the kernel does not compare with it when it makes reserved space writable.
func limitMemory() error {
	status, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	var pages uint64
	if _, err := fmt.Sscan(string(status), &pages); err != nil {
		return fmt.Errorf("/proc/self/statm: %q: %w", status, err)
	}
	debug.SetMemoryLimit(mostMemory) // collect garbage before
	most := pages*uint64(os.Getpagesize()) + mostMemory*15/8
	return unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: most, Max: most})
}
