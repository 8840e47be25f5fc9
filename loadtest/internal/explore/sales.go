package explore

import (
	"context"
	"fmt"

	"stock/loadtest/internal/explore/trace"
	"stock/loadtest/internal/history"
)

// cancelsSale reports whether the sale of the first request is cancelled.
func (w workload) cancelsSale() bool {
	return w.requests[0].kind == history.Deduct && w.requests[0].ends == history.Cancel
}

// cancelAgain cancels the sale of a schedule once more, so that it is known what must be left: everything.
func (x *session) cancelAgain(ctx context.Context, items []int64) (answers, error) {
	late := x.lane.late()
	return x.client(items, 0, late, cancelFirst)(ctx, quietly)
}

// givenBack judges what the last cancellation has left: the units of the sale are back, once.
func (x *session) givenBack(last history.Op, left int64) (kind string, evidence []string) {
	had := x.workload.stock[0]
	switch {
	case !last.Wholly():
		return trace.NotCancelled, []string{fmt.Sprintf("a last cancellation was answered %s %s", last.Outcome, last.Error)}
	case left > had:
		return trace.BackTwice, []string{fmt.Sprintf("the sale is cancelled, and there are %d units of %d", left, had)}
	case left < had:
		return trace.Leaked, []string{fmt.Sprintf("the sale is cancelled, and %d units of %d are left", left, had)}
	}
	return trace.Right, nil
}
