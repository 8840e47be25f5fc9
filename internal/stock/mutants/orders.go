package mutants

import (
	"context"
	"errors"
	"slices"
	"strings"

	"stock/internal/stock"
)

var orderBugs = []Mutant{
	mutant("update-order-misses-a-line", "update", "1 order in 20 is carried out without its last line.",
		onOrder(20, missLastLine)),
	mutant("update-order-breaks-off", "update",
		"1 order in 50 is deducted from its first item only, and is answered with an error.",
		onOrder(50, func(ctx context.Context, req stock.OrderRequest, next orderFunc) (stock.OrderReceipt, error) {
			_, err := next(ctx, withLines(req, req.Lines()[0]))
			return stock.OrderReceipt{}, errors.Join(stock.ErrUnknown, err)
		})),
	mutant("update-order-twice", "update", "1 order in 20 is deducted twice.",
		onOrder(20, func(ctx context.Context, req stock.OrderRequest, next orderFunc) (stock.OrderReceipt, error) {
			keyless := req
			keyless.Key = ""
			if _, err := next(ctx, keyless); err != nil {
				return stock.OrderReceipt{}, err
			}
			return next(ctx, req)
		})),
	mutant("update-order-receipt-misses-a-line", "update", "The receipt of 1 order in 40 lacks the last line.",
		onOrderAnswer(40, isOrdered, func(a *orderAnswer) {
			a.receipt.Lines = a.receipt.Lines[:len(a.receipt.Lines)-1]
		})),
	mutant("update-order-receipt-wrong-count", "update",
		"The receipt of 1 order in 40 has one unit more than was asked for.",
		onOrderAnswer(40, isOrdered, func(a *orderAnswer) { a.receipt.Lines[0].Count++ })),
	mutant("for-update-order-swaps", "for-update",
		"1 order in 10 is told the remaining stock of its lines in the wrong order.",
		onOrderAnswer(10, isOrdered, func(a *orderAnswer) {
			first, last := &a.receipt.Lines[0], lastLine(a)
			first.Remaining, last.Remaining = last.Remaining, first.Remaining
		})),
	mutant("for-update-order-unlocked", "for-update", "Orders do not lock their rows; deductions do.",
		func(p *plan) {
			p.order = func(ctx context.Context, req stock.OrderRequest, next orderFunc) (stock.OrderReceipt, error) {
				return next(marked(ctx), req)
			}
			p.edit = func(s *statement) {
				if isMarked(s.ctx) && s.contains(locksRow) {
					p.strikes.Add(1)
					s.text = strings.Replace(s.text, locksRow, "", 1)
				}
			}
		}),
	mutant("update-order-takes-a-line", "update",
		"An order that is refused as sold out is deducted from one of its other items.",
		onOrderAnswer(1, isRefused, func(a *orderAnswer) { alsoDeduct(a, notRefused(a)) })),
	mutant("batch-order-blames-another", "batch", "An order that is refused names another item as sold out.",
		onOrderAnswer(1, isRefused, func(a *orderAnswer) {
			line := notRefused(a)
			a.err = line.Refused(&stock.SoldOutError{GoodsID: line.GoodsID, Asked: line.Count})
		})),
	mutant("for-update-order-sold-as-busy", "for-update", "1 order in 20 is told busy after the deduction.",
		onOrderAnswer(20, isOrdered, func(a *orderAnswer) {
			a.receipt, a.err = stock.OrderReceipt{}, stock.ErrBusy
		})),
	mutant("ledger-order-keeps-lines", "update",
		"An order that is refused keeps the deductions of the items before the one that is sold out.",
		onOrderAnswer(1, isRefused, keepLines)),
	mutant("ledger-order-forgets-a-line", "update", "The last line of an order is not recorded.",
		onEvery(1, anotherLine, withoutLastLine)),
	mutant("ledger-order-again", "update", "An order that is sent again gets its answer and is deducted again.",
		onOrderAnswer(1, isReplayedOrder, func(a *orderAnswer) {
			keyless := a.req
			keyless.Key = ""
			a.again(keyless)
		})),
	mutant("ledger-order-replays-less", "update",
		"The replay of an order tells one unit less for its last line than the first answer.",
		onOrderAnswer(1, isReplayedOrder, func(a *orderAnswer) { lastLine(a).Remaining-- })),
}

// refusedItem is the item because of which the order was refused.
func refusedItem(a *orderAnswer) int64 {
	refused, _ := errors.AsType[*stock.LineError](a.err)
	return refused.GoodsID
}

// notRefused returns a line of the order that is not the one that was refused.
func notRefused(a *orderAnswer) stock.Line {
	lines := a.req.Lines()
	return lines[slices.IndexFunc(lines, func(l stock.Line) bool { return l.GoodsID != refusedItem(a) })]
}

// alsoDeduct deducts a line of the order by itself, without a key.
func alsoDeduct(a *orderAnswer, line stock.Line) {
	one, _ := stock.NewOrder(line)
	a.again(one)
}

// keepLines deducts the lines before the one that is sold out.
func keepLines(a *orderAnswer) {
	for _, line := range a.req.Lines() {
		if line.GoodsID < refusedItem(a) {
			alsoDeduct(a, line)
		}
	}
}

// withoutLastLine leaves out the row of the last line of an order.
func withoutLastLine(s *statement) {
	s.text, s.args = s.text[:strings.LastIndex(s.text, ", (?")], s.args[:len(s.args)-ledgerColumns]
}
