// Package monotonic reads CLOCK_MONOTONIC, the clock that all processes of a host share. Its readings can be compared
// between processes of one host, not between hosts.
package monotonic

import (
	"context"
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// process is calibrated at startup, once for the process, because Now is on the path of every request.
var process = newClock()

// Now returns the time in nanoseconds.
func Now() int64 { return process.now() }

// SleepUntil returns at the given time, in nanoseconds, or at once if the time has passed. It returns false if ctx
// ended first.
func SleepUntil(ctx context.Context, ns int64) bool { return process.sleepUntil(ctx, ns) }

// Sleep waits for d. If ctx ends first, it returns ctx.Err().
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// clock counts from Go's own monotonic clock, which reads the same source from another origin without a system call.
type clock struct {
	start  time.Time
	origin int64 // CLOCK_MONOTONIC at start, in nanoseconds
}

func newClock() clock {
	var best clock
	narrowest := time.Duration(math.MaxInt64)
	// The two clocks cannot be read at the same instant, and the process may be interrupted between the readings. The
	// attempt with the narrowest bracket was not.
	for range 100 {
		var ts unix.Timespec
		before := time.Now()
		err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
		bracket := time.Since(before)
		if err != nil {
			panic(fmt.Sprintf("monotonic: the system has no CLOCK_MONOTONIC: %v", err))
		}
		if bracket < narrowest {
			narrowest = bracket
			best = clock{start: before.Add(bracket / 2), origin: ts.Nano()}
		}
	}
	return best
}

func (c clock) now() int64 { return c.origin + int64(time.Since(c.start)) }

// lastStretch is how long sleepUntil sleeps in the kernel, where it does not notice the end of its context.
const lastStretch = 2 * time.Millisecond

func (c clock) sleepUntil(ctx context.Context, ns int64) bool {
	if early := time.Duration(ns - c.now()); early > lastStretch && Sleep(ctx, early-lastStretch) != nil {
		return false
	}
	if c.now() < ns {
		c.block(ns)
	}
	return ctx.Err() == nil
}
