package stock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// Orderer deducts units of several items: all that an order asks for, or nothing. A Deducter may be one.
type Orderer interface {
	// Order returns an OrderReceipt or an error like those of Deduct. A refusal because of one item, such as
	// ErrSoldOut, comes as a *LineError.
	Order(ctx context.Context, req OrderRequest) (OrderReceipt, error)
}

// MaxLines is the largest number of lines of an order.
const MaxLines = 100

// Line asks for units of one item.
type Line struct {
	GoodsID int64
	Count   int // units, 1 to MaxCount
}

// Refused is the refusal of an order because of this line.
func (l Line) Refused(err error) error { return &LineError{GoodsID: l.GoodsID, Err: err} }

// OrderRequest asks for the units of all of its lines. NewOrder makes it.
type OrderRequest struct {
	lines []Line        // in ascending order of items, one line each
	Key   string        // idempotency key of the whole order, as in a Request
	Hold  time.Duration // time to spend inside the critical section, 0 to MaxHold
}

// NewOrder merges lines of the same item and sorts them by item. Strategies lock items in this order, so two orders
// never each hold what the other waits for. It refuses an order without lines, with more than MaxLines, or for more
// than MaxCount units of one item.
func NewOrder(lines ...Line) (OrderRequest, error) {
	if len(lines) < 1 || len(lines) > MaxLines {
		return OrderRequest{}, fmt.Errorf("the order has %d lines: it must have 1 to %d", len(lines), MaxLines)
	}
	lines = slices.SortedFunc(slices.Values(lines), func(a, b Line) int { return cmp.Compare(a.GoodsID, b.GoodsID) })
	merged := lines[:1]
	for _, line := range lines[1:] {
		last := &merged[len(merged)-1]
		if line.GoodsID != last.GoodsID {
			merged = append(merged, line)
			continue
		}
		last.Count += line.Count
		if last.Count > MaxCount {
			return OrderRequest{}, fmt.Errorf("the order asks for %d units of item %d in all: the limit is %d",
				last.Count, last.GoodsID, MaxCount)
		}
	}
	return OrderRequest{lines: merged}, nil
}

// Lines returns one line for each item, in ascending order of items.
func (r OrderRequest) Lines() []Line { return slices.Clone(r.lines) }

// Receipts confirms the lines of an order that leaves these stocks.
func (r OrderRequest) Receipts(stocks []ItemStock) []LineReceipt {
	receipts := make([]LineReceipt, len(r.lines))
	for i, line := range r.lines {
		receipts[i] = LineReceipt{Line: line, Remaining: stocks[i].Units, Token: stocks[i].Holder.Token}
	}
	return receipts
}

// ReadAll reads the stock of every line's item.
func (r OrderRequest) ReadAll(read func(Line) (ItemStock, error)) ([]ItemStock, error) {
	stocks := make([]ItemStock, len(r.lines))
	for i, line := range r.lines {
		var err error
		if stocks[i], err = read(line); err != nil {
			return nil, err
		}
	}
	return stocks, nil
}

// OrderReceipt confirms an order. The embedded Receipt is of the whole order: its Remaining and Token are 0, since each
// line has its own.
type OrderReceipt struct {
	Receipt
	Lines []LineReceipt // one for each item, in ascending order
}

// LineReceipt confirms the deduction of one line.
type LineReceipt struct {
	Line
	Remaining int64  // units left right after this order
	Token     uint64 // fencing token of the item's lock, 0 if the strategy has none
}
