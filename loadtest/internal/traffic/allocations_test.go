//go:build !race

package traffic

import (
	"testing"
)

// The name of a request is made after the load. What a sale allocates while the load runs is three small parts of its
// decoded reply.
//
// With the race detector, sync.Pool drops a part of what it is given, so this test runs without it.
func TestARequestCostsThreeAllocations(t *testing.T) {
	driver := drive(t, canned(t), 100)
	const requests = 10_000
	run := func() {
		send(t, driver, Load{Strategy: "update", Users: 100, Requests: requests, RequestPrefix: "bench"})
	}
	run() // opens the connections
	if perRequest := testing.AllocsPerRun(1, run) / requests; perRequest >= 4 {
		t.Errorf("%.2f allocations per request, want 3", perRequest)
	}
}
