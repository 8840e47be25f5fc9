package mutants

import (
	"context"
	"database/sql/driver"
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
			if _, err := next(ctx, req); err != nil {
				return stock.OrderReceipt{}, err
			}
			return next(ctx, req)
		}),
	},
	{
		Name: "update-order-receipt-misses-a-line", Strategy: "update",
		Planted: "The receipt of 1 order in 40 lacks the last line.",
		change: onOrder(40, func(ctx context.Context, req stock.OrderRequest, next orderFunc) (stock.OrderReceipt, error) {
			receipt, err := next(ctx, req)
			if err == nil {
				receipt.Lines = receipt.Lines[:len(receipt.Lines)-1]
			}
			return receipt, err
		}),
	},
	{
		Name: "update-order-receipt-wrong-count", Strategy: "update",
		Planted: "The receipt of 1 order in 40 has one unit more than was asked for.",
		change: onOrder(40, func(ctx context.Context, req stock.OrderRequest, next orderFunc) (stock.OrderReceipt, error) {
			receipt, err := next(ctx, req)
			if err == nil {
				receipt.Lines[0].Count++
			}
			return receipt, err
		}),
	},
	{
		Name: "for-update-order-swaps", Strategy: "for-update",
		Planted: "1 order in 10 is told the remaining stock of its lines in the wrong order.",
		change:  onOrder(10, swapRemaining),
	},
	{
		Name: "for-update-order-unlocked", Strategy: "for-update",
		Planted: "Orders do not lock their rows; deductions do.",
		change: func(p *plan) {
			p.order = func(next orderFunc) orderFunc {
				return func(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
					return next(context.WithValue(ctx, inRequest{}, true), req)
				}
			}
			p.query = func(next queryFunc) queryFunc {
				return func(ctx context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
					if ctx.Value(inRequest{}) != nil && strings.Contains(statement, locksRow) {
						p.strikes.Add(1)
						statement = strings.Replace(statement, locksRow, "", 1)
					}
					return next(ctx, statement, args)
				}
			}
		},
	},
	{
		Name: "update-order-takes-a-line", Strategy: "update",
		Planted: "An order that is refused as sold out is deducted from one of its other items.",
		change:  onRefusedOrder(takeAnotherLine),
	},
	{
		Name: "batch-order-blames-another", Strategy: "batch",
		Planted: "An order that is refused names another item as sold out.",
		change:  onRefusedOrder(blameAnother),
	},
	{
		Name: "batch-order-misses-a-line", Strategy: "batch",
		Planted: "1 order in 20 is carried out without its last line.",
		change:  onOrder(20, missLastLine),
	},
	{
		Name: "for-update-order-sold-as-busy", Strategy: "for-update",
		Planted: "1 order in 20 is told busy after the deduction.",
		change: onOrder(20, func(ctx context.Context, req stock.OrderRequest, next orderFunc) (stock.OrderReceipt, error) {
			if _, err := next(ctx, req); err != nil {
				return stock.OrderReceipt{}, err
			}
			return stock.OrderReceipt{}, stock.ErrBusy
		}),
	},
	{
		Name: "ledger-order-keeps-lines", Strategy: "update",
		Planted: "An order that is refused keeps the deductions of the items before the one that is sold out.",
		change:  onOrder(1, keepLines),
	},
	{
		Name: "ledger-order-forgets-a-line", Strategy: "update",
		Planted: "The last line of an order is not recorded.",
		change:  onStatement(1, anotherLine, withoutLastLine),
	},
	{
		Name: "ledger-order-again", Strategy: "update",
		Planted: "An order that is sent again gets its answer and is deducted again.",
		change: onReplayedOrder(func(
			ctx context.Context, req stock.OrderRequest, receipt stock.OrderReceipt, next orderFunc,
		) stock.OrderReceipt {
			keyless := req
			keyless.Key = ""
			_, _ = next(ctx, keyless)
			return receipt
		}),
	},
	{
		Name: "ledger-order-replays-less", Strategy: "update",
		Planted: "The replay of an order tells one unit less for its last line than the first answer.",
		change: onReplayedOrder(func(
			_ context.Context, _ stock.OrderRequest, receipt stock.OrderReceipt, _ orderFunc,
		) stock.OrderReceipt {
			receipt.Lines[len(receipt.Lines)-1].Remaining--
			return receipt
		}),
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

// onRefusedOrder changes what happens to an order that is refused as sold out.
func onRefusedOrder(
	then func(ctx context.Context, req stock.OrderRequest, refused *stock.LineError, next orderFunc) error,
) change {
	return func(p *plan) {
		p.order = func(next orderFunc) orderFunc {
			return func(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
				receipt, err := next(ctx, req)
				refused, ok := errors.AsType[*stock.LineError](err)
				if ok && errors.Is(err, stock.ErrSoldOut) && len(req.Lines()) > 1 {
					p.strikes.Add(1)
					err = then(ctx, req, refused, next)
				}
				return receipt, err
			}
		}
	}
}

// other returns a line of the order that is not the one that was refused.
func other(req stock.OrderRequest, refused *stock.LineError) stock.Line {
	lines := req.Lines()
	i := slices.IndexFunc(lines, func(l stock.Line) bool { return l.GoodsID != refused.GoodsID })
	return lines[i]
}

func takeAnotherLine(ctx context.Context, req stock.OrderRequest, refused *stock.LineError, next orderFunc) error {
	_, _ = next(ctx, withLines(req, other(req, refused)))
	return refused
}

func blameAnother(_ context.Context, req stock.OrderRequest, refused *stock.LineError, _ orderFunc) error {
	line := other(req, refused)
	return line.Refused(&stock.SoldOutError{GoodsID: line.GoodsID, Asked: line.Count})
}

// keepLines deducts the lines before the one that is sold out.
func keepLines(ctx context.Context, req stock.OrderRequest, next orderFunc) (stock.OrderReceipt, error) {
	receipt, err := next(ctx, req)
	var refused *stock.LineError
	if !receipt.Replayed && errors.As(err, &refused) && errors.Is(err, stock.ErrSoldOut) {
		for _, line := range req.Lines() {
			if line.GoodsID < refused.GoodsID {
				one, _ := stock.NewOrder(line)
				_, _ = next(ctx, one)
			}
		}
	}
	return receipt, err
}

// withoutLastLine leaves out the row of the last line of an order.
func withoutLastLine(
	ctx context.Context, statement string, args []driver.NamedValue, next executeFunc,
) (driver.Result, error) {
	last := strings.LastIndex(statement, ", (?")
	return next(ctx, statement[:last], args[:len(args)-ledgerColumns])
}

// onReplayedOrder changes what happens to an order that is sent again.
func onReplayedOrder(
	then func(context.Context, stock.OrderRequest, stock.OrderReceipt, orderFunc) stock.OrderReceipt,
) change {
	return func(p *plan) {
		p.order = func(next orderFunc) orderFunc {
			return func(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
				receipt, err := next(ctx, req)
				if err == nil && receipt.Replayed {
					p.strikes.Add(1)
					receipt = then(ctx, req, receipt, next)
				}
				return receipt, err
			}
		}
	}
}

// lockFirstOnly makes the second replica take only the first of several locks. A lock is not the first if its context
// derives from that of another lock.
func lockFirstOnly(p *plan) {
	type held struct{}
	p.lock = func(next lockFunc) lockFunc {
		return func(ctx context.Context, key string) (*locks.Lease, error) {
			if p.isSecond() && ctx.Value(held{}) != nil {
				p.strikes.Add(1)
				return grant(ctx, key)
			}
			return next(context.WithValue(ctx, held{}, true), key)
		}
	}
}
