package traffic

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Clock reads CLOCK_MONOTONIC, the one clock that is comparable between the processes of a host.
type Clock struct {
	started time.Time
	offset  int64 // CLOCK_MONOTONIC at started, nanoseconds
}

// NewClock asks the kernel once. From then on time.Since gives the same clock without a system call.
func NewClock() (Clock, error) {
	clock := Clock{started: time.Now()}
	best := time.Duration(1<<63 - 1)
	// The process may be preempted between the two readings: the closest of several pairs counts.
	for range 16 {
		before := time.Since(clock.started)
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return Clock{}, fmt.Errorf("read CLOCK_MONOTONIC: %w", err)
		}
		after := time.Since(clock.started)
		if gap := after - before; gap < best {
			best = gap
			clock.offset = ts.Nano() - int64(before+gap/2)
		}
	}
	return clock, nil
}

// Now is CLOCK_MONOTONIC in nanoseconds.
func (c Clock) Now() int64 { return c.offset + int64(time.Since(c.started)) }

// nearEnough is how long wait may be deaf to its context.
const nearEnough = 2 * time.Millisecond

// wait returns at the time, CLOCK_MONOTONIC nanoseconds, or at once where it is over; false where ctx ended first.
func (c Clock) wait(ctx context.Context, ns int64) bool {
	if early := time.Duration(ns - c.Now()); early > nearEnough {
		timer := time.NewTimer(early - nearEnough)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
	}
	if c.Now() < ns {
		c.sleepUntil(ns)
	}
	return ctx.Err() == nil
}
