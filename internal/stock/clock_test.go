package stock

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestClockAgreesWithTheSystems(t *testing.T) {
	t.Parallel()
	system := func() int64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		return ts.Nano()
	}
	const error = 5_000 // ns: far below a round trip to any server, which is what separates two critical sections
	for range 100 {
		c := newClock()
		before := system()
		now := c.now()
		after := system()
		if now < before-error || now > after+error {
			t.Errorf("the clock reads %d, the system's %d to %d", now, before, after)
		}
	}
}
