package stocktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"stock/internal/stock"
)

// runCancellations tests a strategy that keeps idempotency keys with cancellations of its sales.
func (s subject) runCancellations(t *testing.T) {
	// Under a lock without a fence, a holder overwrites what is given back meanwhile, as it does with a restock.
	if s.strategy.Claim.Restocked == stock.Correct {
		t.Run("loses no unit that is given back while another sale is inside", s.cancelsBesideHolder)
		t.Run("conserves every unit under sales and cancellations", s.cancellationsConserve)
	}
	if !s.firstOfKeeping {
		return
	}
	t.Run("sells and cancels once if any message is late or lost", s.survivesDisturbances)
}

// cancelBy cancels units of the only item of a sale, so that count are cancelled in all, or the whole sale without a
// count.
func cancelBy(ctx context.Context, d stock.Deducter, key string, count ...int) (stock.Sale, error) {
	req := stock.CancelRequest{SaleID: stock.SaleID{Key: key}}
	for _, n := range count {
		req.Lines = append(req.Lines, stock.Line{Count: n})
	}
	return d.(stock.Canceller).CancelSale(ctx, req)
}

// wantCancelled checks that a request sells nothing, on either replica.
func (s subject) wantCancelled(t testing.TB, req stock.Request) {
	t.Helper()
	for replica := range s.replicas {
		receipt, err := s.retryRefusals(patient(t), replica, req)
		if !errors.Is(err, stock.ErrCancelled) || !receipt.Replayed {
			t.Errorf("the sale, sent to replica %d: %+v, %v, want cancelled and a replay", replica, receipt, err)
		}
	}
}

// retryCancel sends a cancellation again until it is not refused as in progress or busy.
func (s subject) retryCancel(
	ctx context.Context, replica int, key string, count ...int,
) (sale stock.Sale, err error) {
	untilAnswered(ctx, func() error {
		sale, err = cancelBy(ctx, s.replicas[replica].deducter, key, count...)
		return err
	})
	return sale, err
}

// cancelsBesideHolder cancels a sale, on each replica, while another one, with or without a key, stops at one of its
// points.
func (s subject) cancelsBesideHolder(t *testing.T) {
	for _, key := range []string{"", s.key(NewItem())} {
		for _, point := range s.points(t, key) {
			for replica := range s.sellers() {
				s.cancelsBesideHolderAt(t, replica, point, key != "")
			}
		}
	}
}

func (s subject) cancelsBesideHolderAt(t *testing.T, replica int, point Point, keyed bool) {
	id := s.newItem(t, manyUnits)
	req, held := stock.Request{GoodsID: id, Count: 3, Key: s.key(id)}, stock.Request{GoodsID: id, Count: 2}
	if keyed {
		held.Key = req.Key + " held"
	}
	s.deduct(t, req)
	holder := s.park(t, 0, WithWork(held), point)
	_, err := cancelBy(stock.LimitWait(patient(t), 0), s.replicas[replica].deducter, req.Key)
	if err != nil && !errors.Is(err, stock.ErrBusy) {
		t.Errorf("cancel while a holder (key %v) is at %s: %v, want cancelled or busy", keyed, point, err)
	}
	if err := holder.Resume(); err != nil {
		t.Errorf("the holder (key %v) at %s: %v", keyed, point, err)
	}
	sale, err := s.retryCancel(patient(t), replica, req.Key)
	if err != nil || sale.State != stock.SaleCancelled || sale.Lines[0].GivenBack != 3 {
		t.Errorf("after the holder (key %v) at %s: %+v, %v, want all units given back", keyed, point, sale, err)
	}
	s.wantLeft(t, id, manyUnits-2)
}

// cancellationsConserve sells to many buyers. Most requests have a key and are sent twice at once. These buyers then
// cancel nothing, a part, or everything, some of them before they know whether they were sold anything.
func (s subject) cancellationsConserve(t *testing.T) {
	const buyers, requests, initial = 12, 5, 70
	id, ctx := s.newItem(t, initial), patient(t)
	replicas := s.sellers()
	var mu sync.Mutex
	left := int64(initial)
	sold := func(units int) {
		mu.Lock()
		defer mu.Unlock()
		left -= int64(units)
	}
	var wg sync.WaitGroup
	for buyer := range buyers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(3, uint64(buyer)))
			for i := range requests {
				req := stock.Request{GoodsID: id, Count: 1 + rng.IntN(3)}
				if rng.IntN(4) > 0 {
					req.Key = fmt.Sprint(s.key(id), " ", buyer, " ", i)
				}
				sold(s.buyAndCancel(ctx, t, rng, replicas, req))
			}
		})
	}
	wg.Wait()
	s.wantLeft(t, id, left)
	s.wantLeftInMySQL(t, id, left)
}

// wantLeftInMySQL checks that a strategy that writes to MySQL later has written what it gave back, once.
func (s subject) wantLeftInMySQL(t testing.TB, id, want int64) {
	t.Helper()
	if s.strategy.WriteBehind {
		Drain(t, s.replicas[0].service)
		s.replicas[0].service.WantLeft(t, stock.MySQL, id, want)
	}
}

// buyAndCancel returns how many units of a sale were not cancelled.
func (s subject) buyAndCancel(
	ctx context.Context, t *testing.T, rng *rand.Rand, replicas int, req stock.Request,
) (kept int) {
	cancel := []int{0, 0, req.Count, 1 + rng.IntN(req.Count)}[rng.IntN(4)]
	if req.Key == "" {
		cancel = 0
	}
	replica := rng.IntN(replicas)
	var meanwhile sync.WaitGroup
	if cancel == req.Count { // twice, at the same time as the sale
		for i := range 2 {
			meanwhile.Go(func() {
				if _, err := s.retryCancel(ctx, i%replicas, req.Key); err != nil {
					t.Errorf("cancel: %v", err)
				}
			})
		}
	}
	var copied error
	if req.Key != "" {
		meanwhile.Go(func() { _, copied = s.retryRefusals(ctx, (replica+1)%replicas, req) })
	}
	_, err := s.retryRefusals(ctx, replica, req)
	meanwhile.Wait()
	if req.Key != "" && cancel < req.Count && errors.Is(err, stock.ErrSoldOut) != errors.Is(copied, stock.ErrSoldOut) {
		t.Errorf("two requests with one key were answered %v and %v", err, copied)
	}
	switch {
	case errors.Is(err, stock.ErrSoldOut), errors.Is(err, stock.ErrCancelled) && cancel == req.Count:
		return 0
	case err != nil:
		t.Errorf("Deduct: %v", err)
	}
	if cancel > 0 && cancel < req.Count {
		if _, err := s.retryCancel(ctx, rng.IntN(replicas), req.Key, cancel); err != nil {
			t.Errorf("cancel %d of %d: %v", cancel, req.Count, err)
		}
	}
	return req.Count - cancel
}
