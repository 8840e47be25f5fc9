package mutants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"stock/internal/stock"
)

// onDeduction takes the place of every n-th deduction.
func onDeduction(n int64, instead around[stock.Request, stock.Receipt]) change {
	return func(p *plan) { p.deduct = onNth(p, n, instead) }
}

// answerTo is the answer to a request that was carried out or refused.
type answerTo[Q, R any] struct {
	req     Q
	receipt R
	err     error
	again   func(Q) // carries out another request
}

// fail replaces an answer by an error.
func (a *answerTo[Q, R]) fail(err error) {
	var none R
	a.receipt, a.err = none, err
}

// onNthAnswer changes every n-th answer of those that match.
func onNthAnswer[Q, R any](
	p *plan, n int64, match func(*answerTo[Q, R]) bool, edit func(*answerTo[Q, R]),
) around[Q, R] {
	strikes := p.every(n)
	return func(ctx context.Context, req Q, next step[Q, R]) (R, error) {
		receipt, err := next(ctx, req)
		a := &answerTo[Q, R]{req, receipt, err, func(other Q) { _, _ = next(ctx, other) }}
		if match(a) && strikes() {
			edit(a)
		}
		return a.receipt, a.err
	}
}

type (
	answer      = answerTo[stock.Request, stock.Receipt]
	orderAnswer = answerTo[stock.OrderRequest, stock.OrderReceipt]
)

func isSale(a *answer) bool   { return a.err == nil }
func isReplay(a *answer) bool { return a.err == nil && a.receipt.Replayed }

// failedWith matches an answer with an error.
func failedWith(err error) func(*answer) bool {
	return func(a *answer) bool { return errors.Is(a.err, err) }
}

// onAnswer changes every n-th answer to a deduction of those that match.
func onAnswer(n int64, match func(*answer) bool, edit func(*answer)) change {
	return func(p *plan) { p.deduct = onNthAnswer(p, n, match, edit) }
}

// tell is an edit of onAnswer: it replaces the answer by an error.
func tell(err error) func(*answer) { return func(a *answer) { a.fail(err) } }

// tellSoldOut is an edit of onAnswer: it tells the buyer that nothing is left.
func tellSoldOut(a *answer) { a.fail(soldOut(a.req)) }

// addRemaining is an edit of onAnswer: it adds to the units that the buyer is told.
func addRemaining(units int64) func(*answer) { return func(a *answer) { a.receipt.Remaining += units } }

// wait is an edit of onAnswer: it delays the answer.
func wait(delay func() time.Duration) func(*answer) { return func(*answer) { time.Sleep(delay()) } }

var errPlanted = fmt.Errorf("%w: planted", stock.ErrBusy)

// onOrder takes the place of every n-th order of at least two lines.
func onOrder(n int64, instead around[stock.OrderRequest, stock.OrderReceipt]) change {
	return func(p *plan) {
		strikes := p.every(n)
		p.order = func(ctx context.Context, req stock.OrderRequest, next orderFunc) (stock.OrderReceipt, error) {
			if len(req.Lines()) > 1 && strikes() {
				return instead(ctx, req, next)
			}
			return next(ctx, req)
		}
	}
}

func isOrdered(a *orderAnswer) bool       { return a.err == nil }
func isReplayedOrder(a *orderAnswer) bool { return a.err == nil && a.receipt.Replayed }

// isRefused reports that one of the items is sold out. A replay is no refusal.
func isRefused(a *orderAnswer) bool { return errors.Is(a.err, stock.ErrSoldOut) && !a.receipt.Replayed }

// onOrderAnswer changes every n-th answer to an order of at least two lines, of those that match.
func onOrderAnswer(n int64, match func(*orderAnswer) bool, edit func(*orderAnswer)) change {
	ofSeveral := func(a *orderAnswer) bool { return len(a.req.Lines()) > 1 && match(a) }
	return func(p *plan) { p.order = onNthAnswer(p, n, ofSeveral, edit) }
}

// lastLine is the last line of the receipt.
func lastLine(a *orderAnswer) *stock.LineReceipt { return &a.receipt.Lines[len(a.receipt.Lines)-1] }

// withLines is an order with other lines.
func withLines(req stock.OrderRequest, lines ...stock.Line) stock.OrderRequest {
	other, err := stock.NewOrder(lines...)
	if err != nil {
		return req // the lines are some of an order's, so they are valid
	}
	other.Key, other.Hold = req.Key, req.Hold
	return other
}

// soldOut says that nothing is left.
func soldOut(req stock.Request) error {
	return &stock.SoldOutError{GoodsID: req.GoodsID, Asked: req.Count}
}

// refuse deducts nothing.
func refuse(_ context.Context, req stock.Request, _ deductFunc) (stock.Receipt, error) {
	return stock.Receipt{}, soldOut(req)
}

// tellPrevious tells each buyer what remained after the sale before, of the same item.
func tellPrevious(p *plan) {
	var told sync.Map // by item
	onAnswer(1, isSale, func(a *answer) {
		if last, known := told.Swap(a.req.GoodsID, a.receipt.Remaining); known {
			a.receipt.Remaining = last.(int64)
		}
	})(p)
}

// tellOfAnother tells every tenth buyer what remains of another item.
func tellOfAnother(p *plan) {
	var sold sync.Map // what remains, by item
	knowsOther := func(a *answer) bool {
		if !isSale(a) {
			return false
		}
		sold.Store(a.req.GoodsID, a.receipt.Remaining)
		_, known := sold.Load(a.req.GoodsID + 1)
		return known
	}
	onAnswer(10, knowsOther, func(a *answer) {
		remaining, _ := sold.Load(a.req.GoodsID + 1)
		a.receipt.Remaining = remaining.(int64)
	})(p)
}

// missLastLine carries out an order without its last line and confirms it nevertheless.
func missLastLine(ctx context.Context, req stock.OrderRequest, next orderFunc) (stock.OrderReceipt, error) {
	lines := req.Lines()
	last := len(lines) - 1
	receipt, err := next(ctx, withLines(req, lines[:last]...))
	if err == nil {
		receipt.Lines = append(slices.Clone(receipt.Lines), stock.LineReceipt{Line: lines[last]})
	}
	return receipt, err
}
