package stocktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"stock/internal/stock"
)

// runOrders tests a strategy that takes orders: each is carried out completely or not at all.
func (s subject) runOrders(t *testing.T) {
	t.Run("conserves every unit under orders and deductions on two replicas", s.ordersConserve)
	s.play(t, orderScripts)
	t.Run("deducts nothing for an order that is cancelled in the critical section", s.cancelsOrder)
}

func (s subject) takesOrders() bool {
	_, _, err := s.replicas[0].service.ResolveOrders(s.strategy.Name, s.store)
	return !errors.Is(err, stock.ErrNoOrders)
}

func (s subject) order(
	ctx context.Context, replica int, lines ...stock.Line,
) (stock.OrderReceipt, error) {
	orderer, _, err := s.replicas[replica].service.ResolveOrders(s.strategy.Name, s.store)
	if err != nil {
		return stock.OrderReceipt{}, err
	}
	req, err := stock.NewOrder(lines...)
	if err != nil {
		return stock.OrderReceipt{}, err
	}
	return orderer.Order(ctx, req)
}

// ordersConserve asks for more than there is. A request has one to four lines in random order, some of them for the
// same item; one line is sent as a deduction. The receipts of each item must form a chain, as in conserves: half an
// order would break it.
func (s subject) ordersConserve(t *testing.T) {
	const buyers, rounds, initial = 8, 6, 60
	ctx := patient(t)
	ids := []int64{s.newItem(t, initial), s.newItem(t, initial), s.newItem(t, initial)}
	var mu sync.Mutex
	sales := map[int64][]sale{} // by item
	var wg sync.WaitGroup
	for buyer := range buyers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(buyer)))
			for range rounds {
				var lines []stock.Line
				for range 1 + rng.IntN(4) {
					lines = append(lines, stock.Line{GoodsID: ids[rng.IntN(len(ids))], Count: 1 + rng.IntN(3)})
				}
				receipt, err := s.buy(ctx, buyer%2, lines)
				if soldOut, ok := errors.AsType[*stock.SoldOutError](err); ok && soldOut.Remaining < int64(soldOut.Asked) {
					continue
				}
				if err != nil {
					t.Errorf("%v: %v", lines, err)
					return
				}
				mu.Lock()
				for _, line := range receipt.Lines {
					of := receipt.Receipt
					of.Remaining = line.Remaining
					sales[line.GoodsID] = append(sales[line.GoodsID], sale{line.Count, of})
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()

	for _, id := range ids {
		s.wantLeft(t, id, s.wantChain(t, initial, sales[id]))
	}
}

// buy sends an order, or a deduction if there is only one line.
func (s subject) buy(ctx context.Context, replica int, lines []stock.Line) (stock.OrderReceipt, error) {
	if len(lines) > 1 {
		return s.order(ctx, replica, lines...)
	}
	line := lines[0]
	receipt, err := s.replicas[replica].deducter.Deduct(ctx, stock.Request{GoodsID: line.GoodsID, Count: line.Count})
	lineReceipt := stock.LineReceipt{Line: line, Remaining: receipt.Remaining}
	return stock.OrderReceipt{Receipt: receipt, Lines: []stock.LineReceipt{lineReceipt}}, err
}

func (s subject) cancelsOrder(t *testing.T) {
	a, b := s.newItem(t, 11), s.newItem(t, 11)
	lines := []stock.Line{{GoodsID: a, Count: 1}, {GoodsID: b, Count: 1}}
	// Locks read an item once to see that it exists.
	if _, err := s.order(patient(t), 0, lines...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(patient(t))
	defer cancel()
	_, err := s.order(cancelInside(ctx, cancel), 0, lines...)
	if !errors.Is(err, stock.ErrBusy) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want busy joined with context.Canceled", err)
	}
	s.wantLeft(t, a, 10)
	s.wantLeft(t, b, 10)
	// Nothing stays locked: another order can be carried out by the other replica.
	if _, err := s.order(patient(t), 1, lines...); err != nil {
		t.Errorf("the next order: %v", err)
	}
	s.wantLeft(t, a, 9)
	s.wantLeft(t, b, 9)
}
