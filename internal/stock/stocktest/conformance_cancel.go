package stocktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"stock/internal/stock"
	"stock/internal/tcpproxy"
)

// runCancellations tests a strategy that keeps idempotency keys with cancellations of its sales.
func (s subject) runCancellations(t *testing.T) {
	t.Run("loses no unit that is given back while another sale is inside", s.cancelsBesideHolder)
	t.Run("conserves every unit under sales and cancellations", s.cancellationsConserve)
	if !s.firstOfKeeping {
		return
	}
	t.Run("gives units back once if two replicas are asked at the same time", s.givesBackOnceAtOnce)
	t.Run("cancels a sale while one of its messages is on its way", s.cancelsInFlight)
	t.Run("cancels a sale that is carried out between two messages of the cancellation", s.sellsWhileCancelling)
	t.Run("cancels once if any message of the cancellation is lost", s.survivesLostCancellation)
}

// cancel cancels units of the only item of a sale, so that count are cancelled in all, or the whole sale without a
// count.
func (s subject) cancel(t testing.TB, replica int, key string, count ...int) (stock.Sale, error) {
	t.Helper()
	return cancelBy(patient(t), s.replicas[replica].deducter, stock.SaleID{Key: key}, count...)
}

func cancelBy(ctx context.Context, d stock.Deducter, id stock.SaleID, count ...int) (stock.Sale, error) {
	req := stock.CancelRequest{SaleID: id}
	for _, n := range count {
		req.Lines = append(req.Lines, stock.Line{Count: n})
	}
	return d.(stock.Canceller).CancelSale(ctx, req)
}

// wantSale checks what became of a sale of one item. given are the units sold, cancelled and given back.
func wantSale(t testing.TB, what string, sale stock.Sale, err error, state stock.SaleState, given ...int) {
	t.Helper()
	var got []int
	for _, line := range sale.Lines {
		got = append(got, line.Count, line.Cancelled, line.GivenBack)
	}
	if err != nil || sale.State != state || !slices.Equal(got, given) {
		t.Errorf("%s: %+v, %v, want %s with %v units sold, cancelled and given back", what, sale, err, state, given)
	}
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

func (s subject) givesBackOnceAtOnce(t *testing.T) {
	id, ctx := s.newItem(t, 10), patient(t)
	req := stock.Request{GoodsID: id, Count: 6, Key: s.key(id)}
	s.deduct(t, req)
	var mu sync.Mutex
	changed := 0
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			var count []int // half of them ask for a part
			if i%4 >= 2 {
				count = []int{2}
			}
			sale, err := s.retryCancel(ctx, i%2, req.Key, count...)
			if err != nil {
				t.Errorf("cancellation %d: %v", i, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if !sale.Replayed {
				changed++
			}
		})
	}
	wg.Wait()
	if changed < 1 || changed > 2 {
		t.Errorf("%d cancellations changed the sale, want that of the whole, and perhaps one of the part before it", changed)
	}
	s.wantLeft(t, id, 10)
	s.wantCancelled(t, req)
}

// retryCancel sends a cancellation again until it is not refused as in progress or busy.
func (s subject) retryCancel(ctx context.Context, replica int, key string, count ...int) (stock.Sale, error) {
	for {
		sale, err := cancelBy(ctx, s.replicas[replica].deducter, stock.SaleID{Key: key}, count...)
		refused := errors.Is(err, stock.ErrInProgress) || errors.Is(err, stock.ErrBusy)
		if !refused || ctx.Err() != nil {
			return sale, err
		}
		time.Sleep(time.Millisecond)
	}
}

// cancelsInFlight cancels a sale while one of its messages is on its way: the first, the second and so on.
func (s subject) cancelsInFlight(t *testing.T) {
	victim, proxies := s.behindProxies(t)
	for _, units := range []int64{10, 2} { // enough, and too few
		eachMessage(t, func(n int) bool {
			id := s.newItem(t, units)
			req := stock.Request{GoodsID: id, Count: 3, Key: s.key(id)}
			sent := holdNth(t, proxies, n, req.Key, func() (stock.Receipt, error) {
				return victim.Deduct(patient(t), req)
			})
			if !sent.held {
				return false
			}
			early, err := cancelBy(stock.LimitWait(patient(t), 0), s.replicas[1].deducter, stock.SaleID{Key: req.Key})
			if err != nil && !errors.Is(err, stock.ErrInProgress) && !errors.Is(err, stock.ErrBusy) {
				t.Errorf("cancel while message %d is held: %v, want cancelled, in progress or busy", n, err)
			}
			if ended := sent.resume(); err == nil && early.State == stock.SaleNeverSold && ended.Err == nil {
				t.Errorf("message %d arrived after a cancellation of nothing, but the sale was confirmed: %+v", n, ended.Receipt)
			}
			sale, err := s.retryCancel(patient(t), 1, req.Key)
			if err != nil || !sale.CannotSell() {
				t.Errorf("cancel after message %d: %+v, %v, want cancelled", n, sale, err)
			}
			s.wantLeft(t, id, units)
			s.wantCancelled(t, req)
			s.wantLeft(t, id, units)
			return true
		})
	}
}

// sellsWhileCancelling carries a sale out, and another cancellation of a part of it, while a message of a cancellation
// has not reached its server.
func (s subject) sellsWhileCancelling(t *testing.T) {
	victim, proxies := s.behindProxies(t)
	eachMessage(t, func(n int) bool {
		id := s.newItem(t, 10)
		req := stock.Request{GoodsID: id, Count: 3, Key: s.key(id)}
		sent := holdNth(t, proxies, n, req.Key, func() (stock.Receipt, error) {
			_, err := cancelBy(patient(t), victim, stock.SaleID{Key: req.Key})
			return stock.Receipt{}, err
		})
		if !sent.held {
			return false
		}
		_, sold := s.deductOn(t, 1, req)
		if sold == nil {
			if _, err := s.cancel(t, 1, req.Key, 1); err != nil {
				t.Errorf("cancel a part while message %d is held: %v", n, err)
			}
		}
		if ended := sent.resume(); ended.Err != nil || sold != nil && !errors.Is(sold, stock.ErrCancelled) {
			t.Errorf("message %d was held: the cancellation ended with %v, and the sale meanwhile with %v", n, ended.Err, sold)
		}
		s.wantLeft(t, id, 10)
		s.wantCancelled(t, req)
		return true
	})
}

// survivesLostCancellation cuts the connection before a message of a cancellation, and before its reply.
func (s subject) survivesLostCancellation(t *testing.T) {
	victim, proxies := s.behindProxies(t)
	for _, where := range []tcpproxy.CutPoint{tcpproxy.BeforeRequest, tcpproxy.BeforeReply} {
		for _, sells := range []bool{true, false} {
			eachMessage(t, func(n int) (struck bool) {
				id := s.newItem(t, 10)
				req := stock.Request{GoodsID: id, Count: 3, Key: s.key(id)}
				if sells {
					s.deduct(t, req)
				}
				var err error
				struck = cutNth(proxies, n, req.Key, where, func() {
					_, err = cancelBy(patient(t), victim, stock.SaleID{Key: req.Key})
				})
				if struck == (err == nil) && n == 1 {
					t.Errorf("cut %s of message %d: %v", where, n, err)
				}
				sale, err := s.retryCancel(patient(t), 1, req.Key)
				if err != nil || !sale.CannotSell() {
					t.Errorf("cut %s of message %d, sent again: %+v, %v, want cancelled", where, n, sale, err)
				}
				s.wantLeft(t, id, 10)
				s.wantCancelled(t, req)
				return struck
			})
		}
	}
}

// cancelsBesideHolder cancels a sale, on each replica, while another one, with or without a key, stops at one of its
// points.
func (s subject) cancelsBesideHolder(t *testing.T) {
	replicas := 2
	if s.strategy.Claim.TwoReplicas != stock.Correct {
		replicas = 1
	}
	for _, key := range []string{"", s.key(NewItem())} {
		for _, point := range s.points(t, key) {
			for replica := range replicas {
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
	_, err := cancelBy(stock.LimitWait(patient(t), 0), s.replicas[replica].deducter, stock.SaleID{Key: req.Key})
	if err != nil && !errors.Is(err, stock.ErrBusy) {
		t.Errorf("cancel while a holder (key %v) is at %s: %v, want cancelled or busy", keyed, point, err)
	}
	if err := holder.Resume(); err != nil {
		t.Errorf("the holder (key %v) at %s: %v", keyed, point, err)
	}
	sale, err := s.retryCancel(patient(t), replica, req.Key)
	what := fmt.Sprintf("after the holder (key %v) at %s", keyed, point)
	wantSale(t, what, sale, err, stock.SaleCancelled, 3, 3, 3)
	s.wantLeft(t, id, manyUnits-2)
}

// cancellationsConserve sells to many buyers. Most requests have a key and are sent twice at once. These buyers then
// cancel nothing, a part, or everything, some of them before they know whether they were sold anything.
func (s subject) cancellationsConserve(t *testing.T) {
	const buyers, requests, initial = 12, 5, 70
	id, ctx := s.newItem(t, initial), patient(t)
	replicas := 2
	if s.strategy.Claim.TwoReplicas != stock.Correct {
		replicas = 1
	}
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
	if cancel == req.Count { // at the same time as the sale
		meanwhile.Go(func() {
			if _, err := s.retryCancel(ctx, rng.IntN(replicas), req.Key); err != nil {
				t.Errorf("cancel: %v", err)
			}
		})
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
