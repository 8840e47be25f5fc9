package stocktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"stock/internal/stock"
)

// runKeys is what a strategy that is idempotent owes to a client that sends an order again with the same key.
func (s subject) runKeys(t *testing.T) {
	t.Run("replays a sale on the other replica", s.replaysSale)
	t.Run("replays sold out although there is stock again", s.replaysSoldOut)
	t.Run("refuses a key with another order", s.refusesOtherOrder)
	t.Run("refuses a key whose first request is in progress on either replica", s.refusesInProgress)
	t.Run("deducts once for fifty requests with one key", s.deductsOnce)
	t.Run("keeps nothing of a request that was refused", s.forgetsRefusals)
	t.Run("deducts for every order without a key", s.keepsOrdersWithoutKeysApart)
}

// key names an order of the test.
func (s subject) key(goodsID int64) string { return fmt.Sprintf("%s %d", s.strategy.Name, goodsID) }

func (s subject) deductOn(t testing.TB, replica int, req stock.Request) (stock.Receipt, error) {
	t.Helper()
	return s.replicas[replica].deducter.Deduct(patient(t), req)
}

func (s subject) replaysSale(t *testing.T) {
	id := s.freshGoods(t, 10)
	order := stock.Request{GoodsID: id, Count: 3, Key: s.key(id)}
	if first := s.deduct(t, order); first.Remaining != 7 || first.Replayed {
		t.Errorf("first: %+v", first)
	}
	s.deduct(t, stock.Request{GoodsID: id, Count: 1})
	order.Hold = time.Millisecond // no part of what is ordered
	for replica := range s.replicas {
		again, err := s.deductOn(t, replica, order)
		if err != nil || again != (stock.Receipt{Remaining: 7, Attempts: 1, Replayed: true}) {
			t.Errorf("again on replica %d: %+v, %v, want the 7 remaining of the first answer", replica, again, err)
		}
	}
	if left := s.left(t, id); left != 6 {
		t.Errorf("%d units are left, want 6", left)
	}
}

func (s subject) replaysSoldOut(t *testing.T) {
	id := s.freshGoods(t, 2)
	order := stock.Request{GoodsID: id, Count: 3, Key: s.key(id)}
	for replica, want := range []bool{false, true} {
		receipt, err := s.deductOn(t, replica, order)
		var soldOut *stock.SoldOutError
		if !errors.As(err, &soldOut) || *soldOut != (stock.SoldOutError{GoodsID: id, Asked: 3, Remaining: 2}) || receipt.Replayed != want {
			t.Errorf("on replica %d: %+v, %v, want sold out with 2 remaining, replayed %v", replica, receipt, err, want)
		}
		if err := s.replicas[0].service.SetStock(t.Context(), id, 10); err != nil {
			t.Fatal(err)
		}
	}
	if left := s.left(t, id); left != 10 {
		t.Errorf("%d units are left, want 10", left)
	}
}

func (s subject) refusesOtherOrder(t *testing.T) {
	id, otherID := s.freshGoods(t, 10), s.freshGoods(t, 10)
	order := stock.Request{GoodsID: id, Count: 3, Key: s.key(id)}
	s.deduct(t, order)
	otherCount, otherGoods := order, order
	otherCount.Count = 2
	otherGoods.GoodsID = otherID
	for _, other := range []stock.Request{otherCount, otherGoods} {
		if _, err := s.deductOn(t, 1, other); !errors.Is(err, stock.ErrKeyReused) {
			t.Errorf("%+v: %v, want that the key was used", other, err)
		}
	}
	if left, otherLeft := s.left(t, id), s.left(t, otherID); left != 7 || otherLeft != 10 {
		t.Errorf("%d and %d units are left, want 7 and 10", left, otherLeft)
	}
}

// refusesInProgress has the first request wait where it holds no goods yet, and where all but its COMMIT is done.
func (s subject) refusesInProgress(t *testing.T) {
	for _, at := range []stock.Point{stock.BeforeWrite, stock.BeforeCommit} {
		id := s.freshGoods(t, 10)
		order := stock.Request{GoodsID: id, Count: 3, Key: s.key(id)}
		parked, first := newGate(at), order
		first.Pause = parked.pause
		done := s.start(patient(t), 0, first)
		parked.await(t, done)
		for replica := range s.replicas {
			if _, err := s.deductOn(t, replica, order); !errors.Is(err, stock.ErrInProgress) {
				t.Errorf("on replica %d, first request %s: %v, want in progress", replica, at, err)
			}
		}
		close(parked.open)
		if ended := <-done; ended.err != nil || ended.receipt.Remaining != 7 {
			t.Errorf("the first request, %s: %+v", at, ended)
		}
		if again, err := s.deductOn(t, 1, order); err != nil || !again.Replayed || again.Remaining != 7 {
			t.Errorf("afterwards: %+v, %v, want the first answer", again, err)
		}
		if left := s.left(t, id); left != 7 {
			t.Errorf("%d units are left, want 7", left)
		}
	}
}

func (s subject) deductsOnce(t *testing.T) {
	const requests = 50
	id, ctx := s.freshGoods(t, 10), patient(t)
	order := stock.Request{GoodsID: id, Count: 3, Key: s.key(id)}
	var mu sync.Mutex
	var fresh int
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			receipt, err := s.untilAnswered(ctx, i%2, order)
			if err != nil || receipt.Remaining != 7 {
				t.Errorf("request %d: %+v, %v", i, receipt, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if !receipt.Replayed {
				fresh++
			}
		})
	}
	wg.Wait()
	if left := s.left(t, id); left != 7 || fresh != 1 {
		t.Errorf("%d units are left, and %d requests deducted: want 7, and 1", left, fresh)
	}
}

// untilAnswered sends an order again as long as it is told to.
func (s subject) untilAnswered(ctx context.Context, replica int, order stock.Request) (stock.Receipt, error) {
	for {
		receipt, err := s.replicas[replica].deducter.Deduct(ctx, order)
		if again := errors.Is(err, stock.ErrInProgress) || errors.Is(err, stock.ErrBusy); !again || ctx.Err() != nil {
			return receipt, err
		}
		time.Sleep(time.Millisecond)
	}
}

func (s subject) forgetsRefusals(t *testing.T) {
	unknown := goods.Add(1)
	order := stock.Request{GoodsID: unknown, Count: 1, Key: s.key(unknown)}
	if _, err := s.deductOn(t, 0, order); !errors.Is(err, stock.ErrUnknownItem) {
		t.Errorf("%v, want unknown goods", err)
	}
	if err := s.replicas[0].service.SetStock(t.Context(), unknown, 10); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(patient(t))
	defer cancel()
	parked, cancelled := newGate(stock.BeforeCommit), order
	cancelled.Pause = parked.pause
	done := s.start(ctx, 0, cancelled)
	parked.await(t, done)
	cancel()
	if ended := <-done; !errors.Is(ended.err, stock.ErrBusy) {
		t.Errorf("%v, want busy", ended.err)
	}
	if receipt, err := s.untilAnswered(patient(t), 1, order); err != nil || receipt.Replayed || receipt.Remaining != 9 {
		t.Errorf("once the goods is known: %+v, %v, want a sale of its own", receipt, err)
	}
}

func (s subject) keepsOrdersWithoutKeysApart(t *testing.T) {
	id := s.freshGoods(t, 10)
	for range 2 {
		if receipt := s.deduct(t, stock.Request{GoodsID: id, Count: 3}); receipt.Replayed {
			t.Errorf("%+v was replayed", receipt)
		}
	}
	if left := s.left(t, id); left != 4 {
		t.Errorf("%d units are left, want 4", left)
	}
}
