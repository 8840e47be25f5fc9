package stock

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// clock reads CLOCK_MONOTONIC, which all processes of a host share, without a system call a reading: Go's own monotonic
// clock is the same one counted from another origin.
type clock struct {
	start  time.Time
	origin int64 // CLOCK_MONOTONIC nanoseconds at start
}

func newClock() clock {
	var best clock
	narrowest := time.Duration(math.MaxInt64)
	// The two clocks cannot be read at the same instant. A process that starts is often interrupted between the readings:
	// the try with the narrowest bracket is the one that was not.
	for range 100 {
		var ts unix.Timespec
		before := time.Now()
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // it exists on every system that Go runs on
		if bracket := time.Since(before); bracket < narrowest {
			narrowest = bracket
			best = clock{start: before.Add(bracket / 2), origin: ts.Nano()}
		}
	}
	return best
}

// now returns CLOCK_MONOTONIC nanoseconds.
func (c clock) now() int64 { return c.origin + int64(time.Since(c.start)) }

var monotonic = newClock()

// section times a deduction's way into its critical section and out of it. The section begins when the exclusion is
// certain (the lock is granted, the row is locked) and ends before the exclusion is given up, so that the sections of a
// strategy that keeps its promise never overlap.
type section struct{ asked, entered, left int64 }

func arrive() section { return section{asked: monotonic.now()} }

func (s *section) enter() { s.entered = monotonic.now() }
func (s *section) leave() { s.left = monotonic.now() }

func (s *section) receipt(remaining int64, attempts int) Receipt {
	return Receipt{
		Remaining: remaining,
		Attempts:  attempts,
		Waited:    time.Duration(s.entered - s.asked),
		Held:      time.Duration(s.left - s.entered),
		Entered:   s.entered,
		Left:      s.left,
	}
}
