package monotonic

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"stock/internal/must"
)

// kernelTime reads CLOCK_MONOTONIC with a system call, in nanoseconds.
func kernelTime(t testing.TB) int64 {
	t.Helper()
	var ts unix.Timespec
	must.Succeed(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts))
	return ts.Nano()
}

// agrees checks a clock against the kernel's. The tolerance is far below a round trip to any server, which is what
// separates two critical sections.
func agrees(t *testing.T, now func() int64) {
	t.Helper()
	const tolerance = 5_000 // ns
	before := kernelTime(t)
	got := now()
	after := kernelTime(t)
	if got < before-tolerance || got > after+tolerance {
		t.Errorf("the clock reads %d, the kernel's %d to %d", got, before, after)
	}
}

func TestClockAgreesWithTheKernel(t *testing.T) {
	t.Parallel()
	for range 100 {
		agrees(t, newClock().now)
	}
	agrees(t, Now)
}

// The runtime's timers may be a millisecond late, so the kernel sleeps the last stretch. In a bubble timers are never
// late, but only they advance its time: after the kernel's sleep, the bubble must still be one stretch behind.
func TestSleepLeavesTheLastStretchToTheKernel(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux lets a thread sleep until a time of CLOCK_MONOTONIC")
	}
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		at := c.now() + int64(5*time.Millisecond)
		if !c.sleepUntil(t.Context(), at) {
			t.Fatal("the sleep was cut short")
		}
		if early := time.Duration(at - kernelTime(t)); early > 0 {
			t.Errorf("the sleep ended %v early", early)
		}
		if left := time.Duration(at - c.now()); left != lastStretch {
			t.Errorf("the timers left the last %v to the kernel, want %v", left, lastStretch)
		}
	})
}

func TestSleepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if SleepUntil(ctx, Now()+int64(time.Hour)) {
		t.Error("an hour passed")
	}
}
