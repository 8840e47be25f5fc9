package monotonic

import "golang.org/x/sys/unix"

// block blocks the thread in the kernel until the given time. The runtime's own timers may be a millisecond late,
// because epoll_wait counts in milliseconds.
func (clock) block(ns int64) {
	at := unix.NsecToTimespec(ns)
	// The runtime's signals interrupt the call. The time is absolute, so it can simply be repeated.
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &at, nil) == unix.EINTR {
	}
}
