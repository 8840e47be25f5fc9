package serverstest

import (
	"testing"
	"time"
)

// eventuallyTimeout is generous: a loaded machine is slow, and a passing test never waits this long.
const eventuallyTimeout = 20 * time.Second

// Eventually waits until cond reports true. It fails the test after 20 seconds.
// The message says what was expected, for example "the replica is ready".
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(eventuallyTimeout); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", eventuallyTimeout, what)
		}
	}
}
