package stocktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/tcpproxy"
)

// runKeys tests a strategy that keeps idempotency keys with requests that are sent again with the same key. Locks that
// keep them in the same way differ only in when requests meet.
func (s subject) runKeys(t *testing.T) {
	s.play(t, keyScripts)
	t.Run("deducts once for a request that is sent again while the first one stops", s.deductsOnceMeanwhile)
	if s.takesOrders() {
		s.play(t, keyedOrderScripts)
	}
	if !s.firstOfKeeping {
		return
	}
	s.play(t, firstKeyScripts)
	t.Run("sells to one of two items that are asked for with one key at once", s.sellsOneOfTwo)
	if s.takesOrders() {
		s.play(t, firstOrderScripts)
		t.Run("carries an order out once if it is sent again while the first one stops", s.ordersOnceMeanwhile)
	}
}

// key returns a key for requests for this item.
func (s subject) key(goodsID int64) string {
	return fmt.Sprintf("%s on %s %d", s.strategy.Name, s.store, goodsID)
}

func (s subject) deductOn(t testing.TB, replica int, req stock.Request) (stock.Receipt, error) {
	t.Helper()
	return s.replicas[replica].deducter.Deduct(patient(t), req)
}

// replay is the answer to a sale that is sent again.
func (s subject) replay(remaining int64) stock.Receipt {
	if !s.strategy.TellsRemaining() {
		remaining = 0
	}
	return stock.Receipt{Remaining: remaining, Attempts: 1, Replayed: true}
}

// deductsOnceMeanwhile sends a request again, to both replicas, while the first one stops at one of its points.
func (s subject) deductsOnceMeanwhile(t *testing.T) {
	const left = manyUnits - 3
	for _, at := range s.points(t, s.key(NewItem())) {
		id := s.newItem(t, manyUnits)
		req := WithWork(stock.Request{GoodsID: id, Count: 3, Key: s.key(id)})
		first := s.park(t, 0, req, at)
		var copies [2]<-chan Answer
		for replica := range s.replicas {
			copies[replica] = s.start(stock.LimitWait(patient(t), 0), replica, req)
			serverstest.Eventually(t, "the copy is answered, or waits in line behind the first request", func() bool {
				return len(copies[replica]) > 0 || s.waiting(replica, id) > 0
			})
		}
		if err := first.Resume(); err != nil || !s.leaves(first.Receipt, left) {
			t.Errorf("the first request, after it stopped at %s: %+v, %v, want a receipt with %d remaining",
				at, first.Receipt, err, left)
		}
		for replica := range s.replicas {
			again := <-copies[replica]
			refused := errors.Is(again.Err, stock.ErrInProgress) || errors.Is(again.Err, stock.ErrBusy)
			if again.Err != nil && !refused || again.Err == nil && !s.leaves(again.Receipt, left) {
				t.Errorf("on replica %d, while the first request stops at %s: %v, want %d remaining, in progress or busy",
					replica, at, again, left)
			}
		}
		if again, err := s.deductOn(t, 1, req); err != nil || again != s.replay(left) {
			t.Errorf("afterwards: %+v, %v, want a replay with %d remaining", again, err, left)
		}
		s.wantLeft(t, id, left)
	}
}

// waiting counts the requests for an item that wait in a replica for the batch under way.
func (s subject) waiting(replica int, goodsID int64) int {
	queue, ok := s.replicas[replica].deducter.(interface{ Waiting(goodsID int64) int })
	if !ok {
		return 0
	}
	return queue.Waiting(goodsID)
}

// sellsOneOfTwo asks for two items with one key, many times at once.
func (s subject) sellsOneOfTwo(t *testing.T) {
	ids, ctx := [2]int64{s.newItem(t, 10), s.newItem(t, 10)}, patient(t)
	var mu sync.Mutex
	var sold [2]bool
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := s.retryRefusals(ctx, i/2%2, stock.Request{GoodsID: ids[i%2], Count: 1, Key: s.key(ids[0])})
			if err != nil && !errors.Is(err, stock.ErrKeyReused) {
				t.Errorf("request %d: %v, want a receipt or key reused", i, err)
			}
			mu.Lock()
			defer mu.Unlock()
			sold[i%2] = sold[i%2] || err == nil
		})
	}
	wg.Wait()
	left := [2]int64{s.left(t, ids[0]), s.left(t, ids[1])}
	if sold[0] == sold[1] || left != [2]int64{9, 10} && left != [2]int64{10, 9} {
		t.Errorf("sold %v, %v units are left, want one of the items sold once", sold, left)
	}
}

// retryRefusals sends a request again until it is not refused as in progress or busy.
func (s subject) retryRefusals(ctx context.Context, replica int, req stock.Request) (stock.Receipt, error) {
	return retryRefusals(ctx, s.replicas[replica].deducter, req)
}

func retryRefusals(ctx context.Context, d stock.Deducter, req stock.Request) (receipt stock.Receipt, err error) {
	untilAnswered(ctx, func() error {
		receipt, err = d.Deduct(ctx, req)
		return err
	})
	return receipt, err
}

// untilAnswered sends a request again until it is not refused as in progress or busy.
func untilAnswered(ctx context.Context, send func() error) {
	for {
		err := send()
		refused := errors.Is(err, stock.ErrInProgress) || errors.Is(err, stock.ErrBusy)
		if !refused || ctx.Err() != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// behindProxies returns the strategy on a replica whose connections to MySQL and Redis lead through proxies. Its leases
// are short, because a lock outlives a request whose outcome is unknown.
func (s subject) behindProxies(t *testing.T) (victim stock.Deducter, proxies []*tcpproxy.Proxy) {
	t.Helper()
	a := s.addresses
	proxies = make([]*tcpproxy.Proxy, 2)
	proxies[0], a.MySQL = ProxyMySQL(t, a.MySQL)
	proxies[1], a.Redis = ProxyRedis(t, a.Redis)
	deps := a.Connect(t)
	deps.Lease = 300 * time.Millisecond
	return NewService(t, deps, s.strategy).Deducter(t, s.strategy.Name, s.store), proxies
}

func (s subject) sendOrder(ctx context.Context, replica int, req stock.OrderRequest) (stock.OrderReceipt, error) {
	return s.replicas[replica].deducter.(stock.Orderer).Order(ctx, req)
}

func keyedOrder(t testing.TB, key string, lines ...stock.Line) stock.OrderRequest {
	t.Helper()
	req, err := stock.NewOrder(lines...)
	if err != nil {
		t.Fatal(err)
	}
	req.Key = key
	return req
}

// ordersOnceMeanwhile sends an order again, to both replicas, while the first one stops at its first point, at its
// second, and so on. Orders with work to do lock their items; others may be one message.
func (s subject) ordersOnceMeanwhile(t *testing.T) {
	for _, work := range []time.Duration{0, time.Nanosecond} {
		eachMessage(t, func(n int) bool { return s.ordersOnceWhileStopped(t, work, n) })
	}
}

// ordersOnceWhileStopped stops the first order at its n-th point. It reports false if the order passes fewer.
func (s subject) ordersOnceWhileStopped(t *testing.T, work time.Duration, n int) (stopped bool) {
	a, b := s.newItem(t, 10), s.newItem(t, 10)
	req := keyedOrder(t, s.key(a), stock.Line{GoodsID: a, Count: 2}, stock.Line{GoodsID: b, Count: 3})
	req.Hold = work
	isOnce := func(receipt stock.OrderReceipt) bool {
		return len(receipt.Lines) == 2 && receipt.Lines[0].Remaining == 8 && receipt.Lines[1].Remaining == 7
	}
	passed := 0
	var receipt stock.OrderReceipt
	first, stopped := parkRequest(t, func(Point) bool { passed++; return passed == n },
		func(ctx context.Context) (_ stock.Receipt, err error) {
			receipt, err = s.sendOrder(ctx, 0, req)
			return receipt.Receipt, err
		})
	for replica := range s.replicas {
		again, err := s.sendOrder(stock.LimitWait(patient(t), 0), replica, req)
		isRefused := errors.Is(err, stock.ErrInProgress) || errors.Is(err, stock.ErrBusy)
		if err != nil && !isRefused || err == nil && !isOnce(again) {
			t.Errorf("on replica %d, while the order stops at point %d: %+v, %v, want sold once, in progress or busy",
				replica, n, again, err)
		}
	}
	if err := first.Resume(); err != nil || !isOnce(receipt) {
		t.Errorf("the order, after it stopped at point %d: %+v, %v, want 8 and 7 remaining", n, receipt, err)
	}
	if again, err := s.sendOrder(patient(t), 1, req); err != nil || !again.Replayed || !isOnce(again) {
		t.Errorf("after the order stopped at point %d: %+v, %v, want a replay", n, again, err)
	}
	s.wantLeft(t, a, 8)
	s.wantLeft(t, b, 7)
	return stopped
}
