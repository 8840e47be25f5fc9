package stocktest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"stock/internal/stock"
)

// runBuyers tests a strategy that counts what buyers have bought.
func (s subject) runBuyers(t *testing.T) {
	t.Run("refuses a buyer what goes beyond the limit", s.refusesBeyondLimit)
	t.Run("replays the refusal of a buyer", s.replaysBuyerLimit)
	t.Run("counts a request that is sent again once", s.countsOnce)
	t.Run("counts anew when the stock is set", s.countsAnew)
	t.Run("counts units that were cancelled no longer", s.countsNoCancelled)
	switch s.strategy.Claim.BuyerLimit {
	case stock.BuyerLimitIsKept:
		t.Run("keeps the limit if two requests of a buyer meet", func(t *testing.T) { s.meets(t, BeforeRead, 2) })
		t.Run("keeps the limit of buyers who send many requests", s.keepsLimits)
	case stock.BuyerLimitIsExceeded:
		t.Run("exceeds the limit if two requests of a buyer meet", func(t *testing.T) { s.meets(t, BeforeWrite, 4) })
	default:
		t.Errorf("the suite has no test of a strategy that claims the limit is %q", s.strategy.Claim.BuyerLimit)
	}
	if s.takesOrders() && s.strategy.Idempotent() {
		t.Run("refuses an order of which one item goes beyond the limit", s.refusesOrderBeyondLimit)
	}
}

// wantBuyerLimit checks that a request was refused, with what the buyer has bought.
func wantBuyerLimit(t *testing.T, err error, want stock.BuyerLimitError) {
	t.Helper()
	if limit, ok := errors.AsType[*stock.BuyerLimitError](err); !ok || *limit != want {
		t.Errorf("%v, want %v", err, &want)
	}
}

func (s subject) countsNoCancelled(t *testing.T) {
	id, buyer := s.newItem(t, 10), stock.Buyer{Name: "buyer", Limit: 3}
	req := stock.Request{GoodsID: id, Count: 3, Buyer: buyer, Key: s.key(id)}
	s.deduct(t, req)
	for range 2 {
		sale, err := s.cancel(t, 1, req.Key, 2)
		wantSale(t, "cancelled in part", sale, err, stock.SaleDone, 3, 2, 2)
	}
	_, err := s.deductOn(t, 0, stock.Request{GoodsID: id, Count: 3, Buyer: buyer})
	wantBuyerLimit(t, err, stock.BuyerLimitError{GoodsID: id, Asked: 3, Bought: 1, Limit: 3})
	s.deduct(t, stock.Request{GoodsID: id, Count: 2, Buyer: buyer})
	s.wantLeft(t, id, 7)
	s.replicas[0].service.Set(t, id, 10)
	s.deduct(t, stock.Request{GoodsID: id, Count: 2, Buyer: buyer})
	sale, err := s.cancel(t, 0, req.Key)
	wantSale(t, "cancelled after the stock was set", sale, err, stock.SaleCancelled, 3, 3, 2)
	_, err = s.deductOn(t, 1, stock.Request{GoodsID: id, Count: 2, Buyer: buyer})
	wantBuyerLimit(t, err, stock.BuyerLimitError{GoodsID: id, Asked: 2, Bought: 2, Limit: 3})
}

func (s subject) refusesBeyondLimit(t *testing.T) {
	id := s.newItem(t, 10)
	first, second := stock.Buyer{Name: "first buyer", Limit: 3}, stock.Buyer{Name: "second", Limit: 3}
	_, err := s.deductOn(t, 0, stock.Request{GoodsID: id, Count: 4, Buyer: first})
	wantBuyerLimit(t, err, stock.BuyerLimitError{GoodsID: id, Asked: 4, Limit: 3})
	s.deduct(t, stock.Request{GoodsID: id, Count: 2, Buyer: first})
	_, err = s.deductOn(t, 1, stock.Request{GoodsID: id, Count: 2, Buyer: first})
	wantBuyerLimit(t, err, stock.BuyerLimitError{GoodsID: id, Asked: 2, Bought: 2, Limit: 3})
	s.deduct(t, stock.Request{GoodsID: id, Count: 1, Buyer: first})
	s.deduct(t, stock.Request{GoodsID: id, Count: 2}) // nobody's: it does not count
	s.deduct(t, stock.Request{GoodsID: id, Count: 3, Buyer: second})
	s.wantLeft(t, id, 2)
	third := stock.Buyer{Name: "third", Limit: 3}
	if _, err := s.deductOn(t, 1, stock.Request{GoodsID: id, Count: 3, Buyer: third}); !errors.Is(err, stock.ErrSoldOut) {
		t.Errorf("%v, want sold out", err)
	}
	if left := s.deduct(t, stock.Request{GoodsID: id, Count: 2, Buyer: third}); left.Remaining != 0 {
		t.Errorf("%+v, want nothing left: a refusal must not count", left)
	}
	_, err = s.deductOn(t, 1, stock.Request{GoodsID: NewItem(), Count: 1, Buyer: third})
	if !errors.Is(err, stock.ErrUnknownItem) {
		t.Errorf("%v, want unknown item", err)
	}
}

func (s subject) replaysBuyerLimit(t *testing.T) {
	id := s.newItem(t, 10)
	req := stock.Request{GoodsID: id, Count: 2, Key: s.key(id), Buyer: stock.Buyer{Name: "b", Limit: 1}}
	for replica, want := range []bool{false, true} {
		receipt, err := s.deductOn(t, replica, req)
		wantBuyerLimit(t, err, stock.BuyerLimitError{GoodsID: id, Asked: 2, Limit: 1})
		if receipt.Replayed != want {
			t.Errorf("on replica %d: replayed %v, want %v", replica, receipt.Replayed, want)
		}
	}
	otherLimit, otherBuyer := req, req
	otherLimit.Buyer.Limit, otherBuyer.Buyer.Name = 5, "c"
	for _, other := range []stock.Request{otherLimit, otherBuyer} {
		if _, err := s.deductOn(t, 0, other); !errors.Is(err, stock.ErrKeyReused) {
			t.Errorf("%+v: %v, want key reused", other, err)
		}
	}
	s.wantLeft(t, id, 10)
}

func (s subject) countsOnce(t *testing.T) {
	id := s.newItem(t, 10)
	buyer := stock.Buyer{Name: "b", Limit: 2}
	for range 3 {
		for replica := range s.replicas {
			req := stock.Request{GoodsID: id, Count: 1, Key: s.key(id), Buyer: buyer}
			if receipt, err := s.deductOn(t, replica, req); err != nil || receipt.Remaining != 9 {
				t.Errorf("%+v, %v, want 9 remaining", receipt, err)
			}
		}
	}
	s.deduct(t, stock.Request{GoodsID: id, Count: 1, Buyer: buyer})
	s.wantLeft(t, id, 8)
}

func (s subject) countsAnew(t *testing.T) {
	id := s.newItem(t, 10)
	req := stock.Request{GoodsID: id, Count: 1, Buyer: stock.Buyer{Name: "b", Limit: 1}}
	for range 2 {
		s.deduct(t, req)
		_, err := s.deductOn(t, 1, req)
		wantBuyerLimit(t, err, stock.BuyerLimitError{GoodsID: id, Asked: 1, Bought: 1, Limit: 1})
		if _, err := s.replicas[0].service.Restock(patient(t), s.store, id, 1); err != nil { // no new count
			t.Error(err)
		}
		_, err = s.deductOn(t, 1, req)
		wantBuyerLimit(t, err, stock.BuyerLimitError{GoodsID: id, Asked: 1, Bought: 1, Limit: 1})
		s.replicas[0].service.Set(t, id, 10)
	}
}

// meets stops a request of a buyer at a point, until another one of the same buyer has been sold on the other replica.
// Both ask for two units, and the limit is two.
func (s subject) meets(t *testing.T, at Point, sold int64) {
	id := s.newItem(t, 10)
	req := stock.Request{GoodsID: id, Count: 2, Buyer: stock.Buyer{Name: "b", Limit: 2}}
	late := s.park(t, 0, req, at)
	if _, err := s.deductOn(t, 1, req); err != nil {
		t.Errorf("the second request: %v, want a receipt", err)
	}
	if err := late.Resume(); sold == 2 {
		wantBuyerLimit(t, err, stock.BuyerLimitError{GoodsID: id, Asked: 2, Bought: 2, Limit: 2})
	} else if err != nil {
		t.Errorf("the first request: %v, want a receipt", err)
	}
	s.wantLeft(t, id, 10-sold)
}

// keepsLimits has few buyers send many requests at once to both replicas. Units are left in the end, so that each buyer
// gets exactly the limit.
func (s subject) keepsLimits(t *testing.T) {
	const buyers, limit, requests = 3, 7, 90
	id, ctx := s.newItem(t, buyers*limit+5), patient(t)
	var mu sync.Mutex
	sold := map[string]int{}
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			name := fmt.Sprint("buyer ", i%buyers)
			req := stock.Request{GoodsID: id, Count: 1, Buyer: stock.Buyer{Name: name, Limit: limit}}
			if i%3 == 0 {
				req.Key = fmt.Sprint(s.key(id), " ", i)
			}
			_, err := s.retryRefusals(ctx, i/buyers%2, req)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				sold[name]++
			} else if !errors.Is(err, stock.ErrBuyerLimit) {
				t.Errorf("request %d: %v, want a receipt or buyer limit", i, err)
			}
		})
	}
	wg.Wait()
	for i := range buyers {
		if name := fmt.Sprint("buyer ", i); sold[name] != limit {
			t.Errorf("%s has %d units, want %d", name, sold[name], limit)
		}
	}
	s.wantLeft(t, id, 5)
}

func (s subject) refusesOrderBeyondLimit(t *testing.T) {
	first, second := s.newItem(t, 10), s.newItem(t, 10)
	buyer := stock.Buyer{Name: "b", Limit: 3}
	s.deduct(t, stock.Request{GoodsID: second, Count: 2, Buyer: buyer})
	for _, key := range []string{"", s.key(first)} {
		req, err := stock.NewOrder(stock.Line{GoodsID: first, Count: 1}, stock.Line{GoodsID: second, Count: 2})
		if err != nil {
			t.Fatal(err)
		}
		req.Key, req.Buyer = key, buyer
		for replica := range s.replicas {
			receipt, err := s.replicas[replica].deducter.(stock.Orderer).Order(patient(t), req)
			wantBuyerLimit(t, err, stock.BuyerLimitError{GoodsID: second, Asked: 2, Bought: 2, Limit: 3})
			if replayed := key != "" && replica == 1; receipt.Replayed != replayed {
				t.Errorf("on replica %d: replayed %v, want %v", replica, receipt.Replayed, replayed)
			}
		}
	}
	s.wantLeft(t, first, 10)
	s.wantLeft(t, second, 8)
	req, _ := stock.NewOrder(stock.Line{GoodsID: first, Count: 3}, stock.Line{GoodsID: second, Count: 1})
	req.Buyer = buyer
	if _, err := s.replicas[0].deducter.(stock.Orderer).Order(patient(t), req); err != nil {
		t.Errorf("an order within the limits: %v", err)
	}
	s.wantLeft(t, first, 7)
	s.wantLeft(t, second, 7)
}
