package traffic

import "golang.org/x/sys/unix"

// sleepUntil blocks the thread, in the kernel, until CLOCK_MONOTONIC shows the time. The runtime's own timers may be a
// millisecond late: it waits for them in epoll_wait, which counts in milliseconds.
func (c Clock) sleepUntil(ns int64) {
	at := unix.NsecToTimespec(ns)
	// The runtime's own signals interrupt it: the time is absolute, so it just goes on.
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &at, nil) == unix.EINTR {
	}
}
