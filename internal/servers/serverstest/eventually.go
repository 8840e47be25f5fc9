package serverstest

import (
	"testing"
	"time"
)

// eventuallyTimeout is long enough for a loaded machine. Only a failing test waits that long. It is shorter than the
// leases of tests in which none may end.
const eventuallyTimeout = 50 * time.Second

// Eventually calls cond until it returns true, and fails the test after 50 seconds. The failure names what was
// expected, such as "the replica is ready".
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(eventuallyTimeout); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", eventuallyTimeout, what)
		}
	}
}
