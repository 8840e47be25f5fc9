package explore

import (
	"context"

	"stock/loadtest/internal/history"
	"stock/loadtest/internal/service"
)

// Subject is something else to explore than the strategies of the catalogue: a service of the user, or a script.
type Subject interface {
	setStock(ctx context.Context, l *lane, stock map[int64]int64) error
	// running reads the stock of a lane.
	running(l *lane) *service.Running
	// client returns a client that sends a deduction to a replica.
	client(l *lane, at int, op history.Op) client
}
