package mutants

import (
	"context"
	"errors"
	"slices"

	"stock/internal/stock"
)

// onDeduction takes the place of every n-th deduction.
func onDeduction(
	n int64, instead func(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error),
) change {
	return func(p *plan) {
		strikes := p.every(n)
		p.deduct = func(next deductFunc) deductFunc {
			return func(ctx context.Context, req stock.Request) (stock.Receipt, error) {
				if strikes() {
					return instead(ctx, req, next)
				}
				return next(ctx, req)
			}
		}
	}
}

// onReceipt changes the receipt of every n-th sale.
func onReceipt(n int64, edit func(stock.Request, *stock.Receipt)) change {
	return func(p *plan) {
		strikes := p.every(n)
		afterSale(func(req stock.Request, receipt *stock.Receipt) {
			if strikes() {
				edit(req, receipt)
			}
		})(p)
	}
}

// afterSale calls a function with the receipt of every sale. It counts no strikes.
func afterSale(then func(stock.Request, *stock.Receipt)) change {
	return func(p *plan) {
		p.deduct = func(next deductFunc) deductFunc {
			return func(ctx context.Context, req stock.Request) (stock.Receipt, error) {
				receipt, err := next(ctx, req)
				if err == nil {
					then(req, &receipt)
				}
				return receipt, err
			}
		}
	}
}

// onOrder takes the place of every n-th order of at least two lines.
func onOrder(
	n int64, instead func(ctx context.Context, req stock.OrderRequest, next orderFunc) (stock.OrderReceipt, error),
) change {
	return func(p *plan) {
		strikes := p.every(n)
		p.order = func(next orderFunc) orderFunc {
			return func(ctx context.Context, req stock.OrderRequest) (stock.OrderReceipt, error) {
				if len(req.Lines()) > 1 && strikes() {
					return instead(ctx, req, next)
				}
				return next(ctx, req)
			}
		}
	}
}

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

// tellSoldOut carries out the deduction and tells the buyer that the item is sold out.
func tellSoldOut(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error) {
	if _, err := next(ctx, req); err != nil {
		return stock.Receipt{}, err
	}
	return stock.Receipt{}, soldOut(req)
}

// tellBusy carries out the deduction and tells the buyer that the service was busy.
func tellBusy(ctx context.Context, req stock.Request, next deductFunc) (stock.Receipt, error) {
	if _, err := next(ctx, req); err != nil {
		return stock.Receipt{}, err
	}
	return stock.Receipt{}, stock.ErrBusy
}

// refuse deducts nothing.
func refuse(_ context.Context, req stock.Request, _ deductFunc) (stock.Receipt, error) {
	return stock.Receipt{}, soldOut(req)
}

// tellPrevious tells each buyer what remained after the sale before, of the same item.
func tellPrevious(p *plan) {
	var told memory[int64, int64]
	afterSale(func(req stock.Request, receipt *stock.Receipt) {
		if last, known := told.swap(req.GoodsID, receipt.Remaining); known {
			p.strikes.Add(1)
			receipt.Remaining = last
		}
	})(p)
}

// tellOfAnother tells every tenth buyer what remains of another item.
func tellOfAnother(p *plan) {
	var sold memory[int64, int64]
	tenth := p.every(10)
	afterSale(func(req stock.Request, receipt *stock.Receipt) {
		own := receipt.Remaining
		if other, known := sold.get(req.GoodsID + 1); known && tenth() {
			receipt.Remaining = other
		}
		sold.swap(req.GoodsID, own)
	})(p)
}

// tellNothingLeft replaces what is left in each refusal.
func tellNothingLeft(p *plan) {
	p.deduct = func(next deductFunc) deductFunc {
		return func(ctx context.Context, req stock.Request) (stock.Receipt, error) {
			receipt, err := next(ctx, req)
			if refused, ok := errors.AsType[*stock.SoldOutError](err); ok && refused.Remaining > 0 {
				p.strikes.Add(1)
				err = soldOut(req)
			}
			return receipt, err
		}
	}
}

// swapRemaining swaps what the first and the last line of an order are told.
func swapRemaining(ctx context.Context, req stock.OrderRequest, next orderFunc) (stock.OrderReceipt, error) {
	receipt, err := next(ctx, req)
	if err == nil {
		first, last := &receipt.Lines[0], &receipt.Lines[len(receipt.Lines)-1]
		first.Remaining, last.Remaining = last.Remaining, first.Remaining
	}
	return receipt, err
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
