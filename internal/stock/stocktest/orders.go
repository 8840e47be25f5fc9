package stocktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"stock/internal/stock"
)

// orders holds a strategy that takes orders of several goods to all or nothing.
func (s subject) orders(t *testing.T) {
	t.Run("conserves every unit of several goods under orders and deductions on two replicas", s.ordersConserve)
	t.Run("confirms every line of an order", s.orderConfirmed)
	t.Run("deducts nothing for an order of which the last line is sold out", s.orderSoldOut)
	t.Run("deducts nothing for an order of which the last line is unknown", s.orderUnknownGoods)
	t.Run("deducts nothing for an order that is cancelled in the critical section", s.orderCancelled)
}

func (s subject) takesOrders() bool {
	_, _, err := s.replicas[0].service.ResolveOrders(s.strategy.Name, s.store)
	return !errors.Is(err, stock.ErrNoOrders)
}

func (s subject) order(ctx context.Context, on int, pause stock.PauseFunc, lines ...stock.Line) (stock.OrderReceipt, error) {
	orderer, _, err := s.replicas[on].service.ResolveOrders(s.strategy.Name, s.store)
	if err != nil {
		return stock.OrderReceipt{}, err
	}
	req, err := stock.NewOrder(lines...)
	if err != nil {
		return stock.OrderReceipt{}, err
	}
	req.Pause = pause
	return orderer.Order(ctx, req)
}

// wantLeft fails the test where other units are left of the goods.
func (s subject) wantLeft(t testing.TB, want map[int64]int64) {
	t.Helper()
	for id, units := range want {
		if left := s.left(t, id); left != units {
			t.Errorf("%d units of goods %d are left, want %d", left, id, units)
		}
	}
}

// ordersConserve asks for more than there is, with lines in any order, goods twice in an order, and deductions
// between. The receipts of each goods are a chain, as in conserves: half an order would tear it.
func (s subject) ordersConserve(t *testing.T) {
	const buyers, rounds, initial = 8, 6, 60
	ctx := patient(t)
	ids := []int64{s.freshGoods(t, initial), s.freshGoods(t, initial), s.freshGoods(t, initial)}
	var mu sync.Mutex
	sales := map[int64][]sale{}
	var wg sync.WaitGroup
	for buyer := range buyers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(buyer)))
			for range rounds {
				var lines []stock.Line
				for range 1 + rng.IntN(4) {
					lines = append(lines, stock.Line{GoodsID: ids[rng.IntN(len(ids))], Count: 1 + rng.IntN(3)})
				}
				var receipt stock.OrderReceipt
				var err error
				if len(lines) > 1 {
					receipt, err = s.order(ctx, buyer%2, nil, lines...)
				} else {
					one := lines[0]
					receipt.Receipt, err = s.replicas[buyer%2].deducter.Deduct(ctx, stock.Request{GoodsID: one.GoodsID, Count: one.Count})
					receipt.Lines = []stock.LineReceipt{{Line: one, Remaining: receipt.Remaining}}
				}
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
		chain := int64(initial)
		slices.SortFunc(sales[id], func(a, b sale) int { return int(b.receipt.Remaining - a.receipt.Remaining) })
		for _, sale := range sales[id] {
			if chain -= int64(sale.count); chain != sale.receipt.Remaining {
				t.Fatalf("a sale of %d of goods %d says that %d remain: the sales before it leave %d", sale.count, id, sale.receipt.Remaining, chain)
			}
		}
		s.wantLeft(t, map[int64]int64{id: chain})
		if s.strategy.Claim.Exclusive {
			exclusive(t, sales[id])
		}
	}
}

func (s subject) orderConfirmed(t *testing.T) {
	a, b := s.freshGoods(t, 10), s.freshGoods(t, 10)
	receipt, err := s.order(patient(t), 0, nil, stock.Line{GoodsID: b, Count: 1}, stock.Line{GoodsID: a, Count: 2}, stock.Line{GoodsID: b, Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	lines := receipt.Lines
	if len(lines) != 2 || lines[0].Line != (stock.Line{GoodsID: a, Count: 2}) || lines[0].Remaining != 8 ||
		lines[1].Line != (stock.Line{GoodsID: b, Count: 4}) || lines[1].Remaining != 6 {
		t.Errorf("the receipt has the lines %+v, want 2 of goods %d with 8 remaining, and 4 of goods %d with 6", lines, a, b)
	}
	for _, line := range lines {
		if (line.Token != 0) != s.strategy.Fenced {
			t.Errorf("goods %d: token %d", line.GoodsID, line.Token)
		}
	}
	if receipt.Entered > receipt.Left || receipt.Waited < 0 || receipt.Attempts != 1 {
		t.Errorf("the receipt contradicts itself: %+v", receipt)
	}
	s.wantLeft(t, map[int64]int64{a: 8, b: 6})
}

func (s subject) orderSoldOut(t *testing.T) {
	a, b, last := s.freshGoods(t, 10), s.freshGoods(t, 10), s.freshGoods(t, 1)
	_, err := s.order(patient(t), 0, nil, stock.Line{GoodsID: last, Count: 2}, stock.Line{GoodsID: a, Count: 1}, stock.Line{GoodsID: b, Count: 1})
	line, named := errors.AsType[*stock.LineError](err)
	soldOut, told := errors.AsType[*stock.SoldOutError](err)
	if !named || !told || line.GoodsID != last || *soldOut != (stock.SoldOutError{GoodsID: last, Asked: 2, Remaining: 1}) {
		t.Errorf("got %v, want that the line of goods %d is sold out, with 1 remaining", err, last)
	}
	s.wantLeft(t, map[int64]int64{a: 10, b: 10, last: 1})
}

func (s subject) orderUnknownGoods(t *testing.T) {
	const unknown = 1 << 40
	a := s.freshGoods(t, 10)
	_, err := s.order(patient(t), 0, nil, stock.Line{GoodsID: unknown, Count: 1}, stock.Line{GoodsID: a, Count: 1})
	if line, named := errors.AsType[*stock.LineError](err); !named || line.GoodsID != unknown || !errors.Is(err, stock.ErrUnknownItem) {
		t.Errorf("got %v, want that the goods of the line is unknown", err)
	}
	s.wantLeft(t, map[int64]int64{a: 10})
}

func (s subject) orderCancelled(t *testing.T) {
	a, b := s.freshGoods(t, 10), s.freshGoods(t, 10)
	lines := []stock.Line{{GoodsID: a, Count: 1}, {GoodsID: b, Count: 1}}
	ctx, cancel := context.WithCancel(patient(t))
	defer cancel()
	parked := newGate(stock.AfterLock) // behind the first goods, before the second
	done := make(chan outcome, 1)
	go func() {
		_, err := s.order(ctx, 0, parked.pause, lines...)
		done <- outcome{err: err}
	}()
	parked.await(t, done)
	cancel()
	if ended := <-done; !errors.Is(ended.err, stock.ErrBusy) || !errors.Is(ended.err, context.Canceled) {
		t.Errorf("got %v, want busy joined with context.Canceled", ended.err)
	}
	s.wantLeft(t, map[int64]int64{a: 10, b: 10})
	// Nothing stays locked: the next order, on the other replica, is carried out.
	if _, err := s.order(patient(t), 1, nil, lines...); err != nil {
		t.Errorf("the next order: %v", err)
	}
	s.wantLeft(t, map[int64]int64{a: 9, b: 9})
}
