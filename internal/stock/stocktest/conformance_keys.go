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

// runKeys tests an idempotent strategy with requests that are sent again with the same key.
func (s subject) runKeys(t *testing.T) {
	t.Run("replays a sale on the other replica", s.replaysSale)
	t.Run("replays sold out although the item was restocked", s.replaysSoldOut)
	t.Run("refuses a key that was used for another request", s.refusesReusedKey)
	t.Run("refuses a key whose first request is in progress on any replica", s.refusesInProgress)
	t.Run("deducts once for fifty requests with one key", s.deductsOnce)
	t.Run("accepts the key of a request that was refused", s.forgetsRefusals)
	t.Run("deducts for every request without a key", s.deductsWithoutKeys)
}

// key returns a key for requests for this item.
func (s subject) key(goodsID int64) string { return fmt.Sprintf("%s %d", s.strategy.Name, goodsID) }

func (s subject) deductOn(t testing.TB, replica int, req stock.Request) (stock.Receipt, error) {
	t.Helper()
	return s.replicas[replica].deducter.Deduct(patient(t), req)
}

func (s subject) replaysSale(t *testing.T) {
	id := s.newItem(t, 10)
	req := stock.Request{GoodsID: id, Count: 3, Key: s.key(id)}
	if first := s.deduct(t, req); first.Remaining != 7 || first.Replayed {
		t.Errorf("first: %+v, want 7 remaining and no replay", first)
	}
	s.deduct(t, stock.Request{GoodsID: id, Count: 1})
	req.Hold = time.Millisecond // need not be the same
	for replica := range s.replicas {
		again, err := s.deductOn(t, replica, req)
		if err != nil || again != (stock.Receipt{Remaining: 7, Attempts: 1, Replayed: true}) {
			t.Errorf("again on replica %d: %+v, %v, want a replay with 7 remaining", replica, again, err)
		}
	}
	s.wantLeft(t, id, 6)
}

func (s subject) replaysSoldOut(t *testing.T) {
	id := s.newItem(t, 2)
	req := stock.Request{GoodsID: id, Count: 3, Key: s.key(id)}
	for replica, want := range []bool{false, true} {
		receipt, err := s.deductOn(t, replica, req)
		soldOut, ok := errors.AsType[*stock.SoldOutError](err)
		if !ok || *soldOut != (stock.SoldOutError{GoodsID: id, Asked: 3, Remaining: 2}) || receipt.Replayed != want {
			t.Errorf("on replica %d: %+v, %v, want sold out with 2 remaining, replayed %v", replica, receipt, err, want)
		}
		s.replicas[0].service.Set(t, id, 10)
	}
	s.wantLeft(t, id, 10)
}

func (s subject) refusesReusedKey(t *testing.T) {
	id, otherID := s.newItem(t, 10), s.newItem(t, 10)
	req := stock.Request{GoodsID: id, Count: 3, Key: s.key(id)}
	s.deduct(t, req)
	otherCount, otherItem := req, req
	otherCount.Count = 2
	otherItem.GoodsID = otherID
	for _, other := range []stock.Request{otherCount, otherItem} {
		if _, err := s.deductOn(t, 1, other); !errors.Is(err, stock.ErrKeyReused) {
			t.Errorf("%+v: %v, want key reused", other, err)
		}
	}
	s.wantLeft(t, id, 7)
	s.wantLeft(t, otherID, 10)
}

// refusesInProgress stops the first request before it has locked the item, and before its COMMIT.
func (s subject) refusesInProgress(t *testing.T) {
	for _, at := range []Point{BeforeWrite, BeforeCommit} {
		id := s.newItem(t, 10)
		req := stock.Request{GoodsID: id, Count: 3, Key: s.key(id)}
		first := s.park(t, 0, WithWork(req), at)
		for replica := range s.replicas {
			if _, err := s.deductOn(t, replica, req); !errors.Is(err, stock.ErrInProgress) {
				t.Errorf("on replica %d, while the first request stops at %s: %v, want in progress", replica, at, err)
			}
		}
		if err := first.Resume(); err != nil || first.Receipt.Remaining != 7 {
			t.Errorf("the first request, after it stopped at %s: %+v, %v, want a receipt with 7 remaining",
				at, first.Receipt, err)
		}
		if again, err := s.deductOn(t, 1, req); err != nil || !again.Replayed || again.Remaining != 7 {
			t.Errorf("afterwards: %+v, %v, want a replay with 7 remaining", again, err)
		}
		s.wantLeft(t, id, 7)
	}
}

func (s subject) deductsOnce(t *testing.T) {
	const requests = 50
	id, ctx := s.newItem(t, 10), patient(t)
	req := stock.Request{GoodsID: id, Count: 3, Key: s.key(id)}
	var mu sync.Mutex
	var deducted int
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			receipt, err := s.retryRefusals(ctx, i%2, req)
			if err != nil || receipt.Remaining != 7 {
				t.Errorf("request %d: %+v, %v, want a receipt with 7 remaining", i, receipt, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if !receipt.Replayed {
				deducted++
			}
		})
	}
	wg.Wait()
	if deducted != 1 {
		t.Errorf("%d requests deducted, want 1", deducted)
	}
	s.wantLeft(t, id, 7)
}

// retryRefusals sends a request again until it is not refused as in progress or busy.
func (s subject) retryRefusals(ctx context.Context, replica int, req stock.Request) (stock.Receipt, error) {
	for {
		receipt, err := s.replicas[replica].deducter.Deduct(ctx, req)
		refused := errors.Is(err, stock.ErrInProgress) || errors.Is(err, stock.ErrBusy)
		if !refused || ctx.Err() != nil {
			return receipt, err
		}
		time.Sleep(time.Millisecond)
	}
}

func (s subject) forgetsRefusals(t *testing.T) {
	unknown := NewItem()
	req := stock.Request{GoodsID: unknown, Count: 1, Key: s.key(unknown)}
	if _, err := s.deductOn(t, 0, req); !errors.Is(err, stock.ErrUnknownItem) {
		t.Errorf("%v, want unknown item", err)
	}
	s.replicas[0].service.Set(t, unknown, 10)
	ctx, cancel := context.WithCancel(patient(t))
	defer cancel()
	if ended := <-s.start(cancelInside(ctx, cancel), 0, WithWork(req)); !errors.Is(ended.Err, stock.ErrBusy) {
		t.Errorf("%v, want busy", ended.Err)
	}
	if receipt, err := s.retryRefusals(patient(t), 1, req); err != nil || receipt.Replayed || receipt.Remaining != 9 {
		t.Errorf("once the item exists: %+v, %v, want a new sale with 9 remaining", receipt, err)
	}
}

func (s subject) deductsWithoutKeys(t *testing.T) {
	id := s.newItem(t, 10)
	for range 2 {
		if receipt := s.deduct(t, stock.Request{GoodsID: id, Count: 3}); receipt.Replayed {
			t.Errorf("%+v, want no replay", receipt)
		}
	}
	s.wantLeft(t, id, 4)
}
