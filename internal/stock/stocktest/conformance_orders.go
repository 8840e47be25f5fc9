package stocktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/stock"
)

// runOrders tests a strategy that takes orders: each is carried out completely or not at all.
func (s subject) runOrders(t *testing.T) {
	t.Run("conserves every unit under orders and deductions on two replicas", func(t *testing.T) { s.conserves(t, 2, 3) })
	t.Run("deducts nothing for an order that is cancelled in the critical section", s.cancelsOrder)
}

func (s subject) takesOrders() bool {
	_, _, err := s.replicas[0].service.ResolveOrders(s.strategy.Name, s.store)
	return !errors.Is(err, stock.ErrNoOrders)
}

func (s subject) order(ctx context.Context, replica int, lines ...stock.Line) error {
	req, err := stock.NewOrder(lines...)
	if err == nil {
		_, err = s.sendOrder(ctx, replica, req)
	}
	return err
}

func (s subject) sendOrder(ctx context.Context, replica int, req stock.OrderRequest) (stock.OrderReceipt, error) {
	return s.replicas[replica].deducter.(stock.Orderer).Order(ctx, req)
}

// request is an order, or a deduction if it has only one line.
type request struct {
	lines []stock.Line
	key   string
	work  time.Duration
}

func (s subject) buy(ctx context.Context, replica int, r request) (stock.OrderReceipt, error) {
	if len(r.lines) > 1 {
		req, err := stock.NewOrder(r.lines...)
		if err != nil {
			return stock.OrderReceipt{}, err
		}
		req.Key, req.Hold = r.key, r.work
		return s.sendOrder(ctx, replica, req)
	}
	line := r.lines[0]
	receipt, err := s.replicas[replica].deducter.Deduct(ctx,
		stock.Request{GoodsID: line.GoodsID, Count: line.Count, Key: r.key, Hold: r.work})
	if err != nil {
		return stock.OrderReceipt{Receipt: receipt}, err
	}
	lineReceipt := stock.LineReceipt{Line: line, Remaining: receipt.Remaining}
	return stock.OrderReceipt{Receipt: receipt, Lines: []stock.LineReceipt{lineReceipt}}, nil
}

func (s subject) cancelsOrder(t *testing.T) {
	a, b := s.newItem(t, 11), s.newItem(t, 11)
	lines := []stock.Line{{GoodsID: a, Count: 1}, {GoodsID: b, Count: 1}}
	// Locks read an item once to see that it exists.
	must.Succeed(t, s.order(patient(t), 0, lines...))
	ctx, cancel := context.WithCancel(patient(t))
	defer cancel()
	err := s.order(cancelInside(ctx, cancel), 0, lines...)
	if !errors.Is(err, stock.ErrBusy) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want busy joined with context.Canceled", err)
	}
	s.wantLeft(t, a, 10)
	s.wantLeft(t, b, 10)
	// Nothing stays locked: another order can be carried out by the other replica.
	if err := s.order(patient(t), 1, lines...); err != nil {
		t.Errorf("the next order: %v", err)
	}
	s.wantLeft(t, a, 9)
	s.wantLeft(t, b, 9)
}
