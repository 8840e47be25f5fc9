package traffic

import (
	"context"

	"stock/loadtest/internal/history"
)

// everything stands for all units of a sale.
const everything = 0

func cancelAll(p *pair)       { p.customer.cancel(p.ctx, p.op, everything) }
func cancelOne(p *pair)       { p.customer.cancel(p.ctx, p.op, 1) }
func otherCancelsAll(p *pair) { p.other.cancel(p.ctx, p.op, everything) }

// cancelHabits are what clients do with a sale, before they send it once more.
var cancelHabits = [][]step{
	{deduct},
	{deduct, cancelAll, otherCancelsAll},
	{deduct, cancelOne, func(p *pair) { p.other.cancel(p.ctx, p.op, 1) }},
	{together(otherCancelsAll, deduct)}, // before there is an answer
	{cancelAll, deduct},
	{deduct, together(otherCancelsAll, cancelOne)},
	{
		deduct, func(p *pair) { p.customer.cancel(p.ctx, p.op, p.op.Count+1) }, // more than was sold
		together(otherCancelsAll, cancelAll),
	},
}

// sellAndCancel sends the n-th sale, cancels some of it, and sends it again.
func (p *pair) sellAndCancel(n int) {
	p.take(n)
	p.follow(cancelHabits[n%len(cancelHabits)])
	sendAtOnce(p)
}

// cancel cancels so many units of a sale in all, and asks until it knows that they are.
func (u *user) cancel(ctx context.Context, sale history.Op, units int64) {
	insist(ctx, func(int) bool {
		return open(u.send(ctx, history.Op{Kind: history.CancelSale, Name: sale.Name, GoodsID: sale.GoodsID, Count: units}))
	})
}
