package mutants

import (
	"context"
	"errors"
	"slices"
	"strings"

	"stock/internal/locks"
	"stock/internal/stock"
)

var orderBugs = []Mutant{
	{
		Name: "update-order-misses-a-line", Strategy: "update",
		Planted: "1 order in 20 is carried out without its last line.",
		change:  onOrder(20, missLastLine),
	},
	{
		Name: "update-order-breaks-off", Strategy: "update",
		Planted: "1 order in 50 is deducted from its first item only, and is answered with an error.",
		change: onOrder(50, func(ctx context.Context, req stock.OrderRequest, next orderFunc) (stock.OrderReceipt, error) {
			_, err := next(ctx, withLines(req, req.Lines()[0]))
			return stock.OrderReceipt{}, errors.Join(stock.ErrUnknown, err)
		}),
	},
	{
		Name: "update-order-twice", Strategy: "update",
		Planted: "1 order in 20 is deducted twice.",
		change: onOrder(20, func(ctx context.Context, req stock.OrderRequest, next orderFunc) (stock.OrderReceipt, error) {
			keyless := req
			keyless.Key = ""
			if _, err := next(ctx, keyless); err != nil {
				return stock.OrderReceipt{}, err
			}
			return next(ctx, req)
		}),
	},
	{
		Name: "update-order-receipt-misses-a-line", Strategy: "update",
		Planted: "The receipt of 1 order in 40 lacks the last line.",
		change: onOrderAnswer(40, isOrdered, func(a *orderAnswer) {
			a.receipt.Lines = a.receipt.Lines[:len(a.receipt.Lines)-1]
		}),
	},
	{
		Name: "update-order-receipt-wrong-count", Strategy: "update",
		Planted: "The receipt of 1 order in 40 has one unit more than was asked for.",
		change:  onOrderAnswer(40, isOrdered, func(a *orderAnswer) { a.receipt.Lines[0].Count++ }),
	},
	{
		Name: "for-update-order-swaps", Strategy: "for-update",
		Planted: "1 order in 10 is told the remaining stock of its lines in the wrong order.",
		change: onOrderAnswer(10, isOrdered, func(a *orderAnswer) {
			first, last := &a.receipt.Lines[0], a.last()
			first.Remaining, last.Remaining = last.Remaining, first.Remaining
		}),
	},
	{
		Name: "for-update-order-unlocked", Strategy: "for-update",
		Planted: "Orders do not lock their rows; deductions do.",
		change: func(p *plan) {
			p.order = func(ctx context.Context, req stock.OrderRequest, next orderFunc) (stock.OrderReceipt, error) {
				return next(marked(ctx), req)
			}
			p.edit = func(s *statement) {
				if isMarked(s.ctx) && s.contains(locksRow) {
					p.strikes.Add(1)
					s.text = strings.Replace(s.text, locksRow, "", 1)
				}
			}
		},
	},
	{
		Name: "update-order-takes-a-line", Strategy: "update",
		Planted: "An order that is refused as sold out is deducted from one of its other items.",
		change:  onOrderAnswer(1, isRefused, func(a *orderAnswer) { a.alsoDeduct(a.notRefused()) }),
	},
	{
		Name: "batch-order-blames-another", Strategy: "batch",
		Planted: "An order that is refused names another item as sold out.",
		change: onOrderAnswer(1, isRefused, func(a *orderAnswer) {
			line := a.notRefused()
			a.err = line.Refused(&stock.SoldOutError{GoodsID: line.GoodsID, Asked: line.Count})
		}),
	},
	{
		Name: "for-update-order-sold-as-busy", Strategy: "for-update",
		Planted: "1 order in 20 is told busy after the deduction.",
		change: onOrderAnswer(20, isOrdered, func(a *orderAnswer) {
			a.receipt, a.err = stock.OrderReceipt{}, stock.ErrBusy
		}),
	},
	{
		Name: "ledger-order-keeps-lines", Strategy: "update",
		Planted: "An order that is refused keeps the deductions of the items before the one that is sold out.",
		change:  onOrderAnswer(1, isRefused, keepLines),
	},
	{
		Name: "ledger-order-forgets-a-line", Strategy: "update",
		Planted: "The last line of an order is not recorded.",
		change:  onEvery(1, anotherLine, withoutLastLine),
	},
	{
		Name: "ledger-order-again", Strategy: "update",
		Planted: "An order that is sent again gets its answer and is deducted again.",
		change: onOrderAnswer(1, isReplayedOrder, func(a *orderAnswer) {
			keyless := a.req
			keyless.Key = ""
			a.again(keyless)
		}),
	},
	{
		Name: "ledger-order-replays-less", Strategy: "update",
		Planted: "The replay of an order tells one unit less for its last line than the first answer.",
		change:  onOrderAnswer(1, isReplayedOrder, func(a *orderAnswer) { a.last().Remaining-- }),
	},
	{
		Name: "lock-redis-lua-order-misses-a-line", Strategy: "lock-redis-lua", Store: stock.Redis,
		Planted: "The script that writes an order leaves out its last item.",
		change: rewriteLua(1, "for i = 1, 2 * items, 2 do\n  local arg = (i - 1) / 2 * 3 + 3\n  redis.call('SET'",
			"for i = 1, math.max(2, 2 * items - 2), 2 do\n  local arg = (i - 1) / 2 * 3 + 3\n  redis.call('SET'"),
	},
	{
		Name: "lock-redis-watchdog-order-unlocked", Strategy: "lock-redis-watchdog",
		Planted: "Of the locks that an order needs, the second replica takes the first only.",
		change:  lockFirstOnly,
	},
}

// refusedItem is the item because of which the order was refused.
func (a *orderAnswer) refusedItem() int64 {
	refused, _ := errors.AsType[*stock.LineError](a.err)
	return refused.GoodsID
}

// notRefused returns a line of the order that is not the one that was refused.
func (a *orderAnswer) notRefused() stock.Line {
	lines := a.req.Lines()
	return lines[slices.IndexFunc(lines, func(l stock.Line) bool { return l.GoodsID != a.refusedItem() })]
}

// alsoDeduct deducts a line of the order by itself, without a key.
func (a *orderAnswer) alsoDeduct(line stock.Line) {
	one, _ := stock.NewOrder(line)
	a.again(one)
}

// keepLines deducts the lines before the one that is sold out.
func keepLines(a *orderAnswer) {
	for _, line := range a.req.Lines() {
		if line.GoodsID < a.refusedItem() {
			a.alsoDeduct(line)
		}
	}
}

// withoutLastLine leaves out the row of the last line of an order.
func withoutLastLine(s *statement) {
	s.text, s.args = s.text[:strings.LastIndex(s.text, ", (?")], s.args[:len(s.args)-ledgerColumns]
}

// lockFirstOnly makes the second replica take only the first of several locks. A lock is not the first if its context
// derives from that of another lock.
func lockFirstOnly(p *plan) {
	p.lock = func(ctx context.Context, key string, next lockFunc) (*locks.Lease, error) {
		if p.isSecond() && isMarked(ctx) {
			p.strikes.Add(1)
			return grant(ctx, key)
		}
		return next(marked(ctx), key)
	}
}
