package explore

import (
	"context"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/scenario"
	"stock/loadtest/internal/topology"
)

// Subject is something else to explore than the strategies of the catalogue: a service of the user, or a script.
type Subject interface {
	// Choice returns what takes the place of a strategy. Its claim is what is judged.
	Choice() scenario.Choice
	// prepare makes the databases of a lane ready.
	prepare(ctx context.Context, l *lane) error
	// start starts a replica that finds its stores at these addresses. It returns nil if there is no process to start.
	start(ctx context.Context, t *topology.Topology, name string, at topology.Addresses) (*topology.Replica, error)
	// workloads lists what is explored, for a number of requests.
	workloads(requests int) []workload
	setStock(ctx context.Context, l *lane, stock map[int64]int64) error
	stock(ctx context.Context, l *lane, items []int64) (map[int64]int64, error)
	// client returns a client that sends a deduction to a replica.
	client(l *lane, at int, op history.Op) client
}
