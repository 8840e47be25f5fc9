package traffic

import (
	"context"
	"slices"

	"stock/loadtest/internal/history"
)

// maxAgain is how many requests of a load are sent again: at most this many whose outcome is known, and as many whose
// outcome is unknown.
const maxAgain = 100

// SendAgain sends some requests of a load with Keys once more, and adds them to its result. The answers should be the
// first ones again, and unknown outcomes become known. Each request is sent by the user who sent it before, as a
// customer would who lost the answer. It is not part of the load, so nothing should be measured any more.
func (d *Driver) SendAgain(ctx context.Context, load Load, result *Result) {
	r := newRun(d, load)
	chosen := chooseAgain(result.Ops, load.Users)
	r.eachUser(ctx, func(u *user) {
		if u.number >= len(chosen) {
			return
		}
		for _, op := range chosen[u.number] {
			if ctx.Err() == nil {
				u.sendAgain(ctx, op, "")
			}
		}
	})
	result.Ops = r.collect(result.Ops)
	result.sort()
}

// chooseAgain chooses the latest deductions and orders of each user.
func chooseAgain(ops []history.Op, users int) (chosen [][]history.Op) {
	chosen = make([][]history.Op, min(users, maxAgain)) // by user
	answered, unknown := make([]int, users), make([]int, users)
	limit := max(1, maxAgain/users)
	for _, op := range slices.Backward(ops) {
		if !op.Sells() || op.Client >= len(chosen) {
			continue
		}
		var n *int
		switch op.Outcome {
		case history.Sold, history.SoldOut:
			n = &answered[op.Client]
		case history.Unknown:
			n = &unknown[op.Client]
		default:
			continue
		}
		if *n++; *n <= limit {
			chosen[op.Client] = append(chosen[op.Client], op)
		}
	}
	return chosen
}
