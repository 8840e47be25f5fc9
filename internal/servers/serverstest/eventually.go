package serverstest

import (
	"testing"
	"time"
)

// eventuallyTimeout says that something is stuck, also on a busy machine. Only a failing test waits that long. It is
// shorter than the leases of tests in which none may end.
const eventuallyTimeout = 5 * time.Minute

// Eventually calls cond until it returns true, and fails the test after 5 minutes. The failure names what was
// expected, such as "the replica is ready".
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(eventuallyTimeout); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", eventuallyTimeout, what)
		}
	}
}
