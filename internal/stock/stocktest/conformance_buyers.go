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
	s.play(t, buyerScripts)
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
		s.play(t, buyerOrderScripts)
	}
}

// wantBuyerLimit checks that a request was refused, with what the buyer has bought.
func wantBuyerLimit(t *testing.T, err error, want stock.BuyerLimitError) {
	t.Helper()
	if limit, ok := errors.AsType[*stock.BuyerLimitError](err); !ok || *limit != want {
		t.Errorf("%v, want %v", err, &want)
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
