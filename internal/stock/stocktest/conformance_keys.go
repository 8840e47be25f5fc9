package stocktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/tcpproxy"
)

// runKeys tests a strategy that keeps idempotency keys with requests that are sent again with the same key. Locks that
// keep them in the same way differ only in when requests meet. It reports whether the strategy keeps keys at all: if
// not, other tests of keys would wait for answers that never come.
func (s subject) runKeys(t *testing.T) (keeps bool) {
	if !t.Run("keeps keys", func(t *testing.T) { must.Succeed(t, s.keepsKeys(t)) }) {
		return false
	}
	t.Run("deducts once for a request that is sent again while the first one stops", func(t *testing.T) {
		s.buysOnceMeanwhile(t, 1)
	})
	if !s.firstOfKeeping {
		return true
	}
	t.Run("sells to one of two items that are asked for with one key at once", s.sellsOneOfTwo)
	if s.takesOrders() {
		t.Run("carries an order out once if it is sent again while the first one stops", func(t *testing.T) {
			s.buysOnceMeanwhile(t, 2)
		})
	}
	return true
}

// keepsKeys sends a deduction and an order twice. The second answer must be a replay.
func (s subject) keepsKeys(t testing.TB) error {
	t.Helper()
	lines := []stock.Line{{GoodsID: s.newItem(t, 10), Count: 1}, {GoodsID: s.newItem(t, 10), Count: 1}}
	asks := []request{{lines: lines[:1], key: s.key(lines[0].GoodsID)}}
	if s.takesOrders() {
		asks = append(asks, request{lines: lines, key: s.key(lines[1].GoodsID)})
	}
	ctx := stock.LimitWait(patient(t), 0)
	for _, ask := range asks {
		if _, err := s.buy(ctx, 0, ask); err != nil {
			return fmt.Errorf("%s: %+v: %w", s.strategy.Name, ask, err)
		}
		if again, err := s.buy(ctx, 1, ask); err != nil || !again.Replayed {
			return fmt.Errorf("%s keeps no keys: %+v, sent again, is answered %+v, %v instead of a replay: "+
				"wrap the work in the store's Once or OrderOnce, or say in NoKeys why not", s.strategy.Name, ask, again, err)
		}
	}
	return nil
}

// key returns a key for requests for this item.
func (s subject) key(goodsID int64) string {
	return fmt.Sprintf("%s on %s %d", s.strategy.Name, s.store, goodsID)
}

// buysOnceMeanwhile sends a request for some items again, to both replicas, while the first one stops at its first
// point, at its second, and so on. Requests with work to do lock their items; other orders may be one message.
func (s subject) buysOnceMeanwhile(t *testing.T, items int) {
	works := []time.Duration{time.Nanosecond}
	if items > 1 {
		works = append(works, 0)
	}
	for _, work := range works {
		eachMessage(t, func(n int) bool { return s.buysOnceWhileStopped(t, items, work, n) })
	}
}

// buysOnceWhileStopped stops the first request at its n-th point. It reports false if the request passes fewer.
func (s subject) buysOnceWhileStopped(t *testing.T, items int, work time.Duration, n int) (stopped bool) {
	const count, left = 3, manyUnits - 3
	var lines []stock.Line
	for range items {
		lines = append(lines, stock.Line{GoodsID: s.newItem(t, manyUnits), Count: count})
	}
	req := request{lines, s.key(lines[0].GoodsID), work}
	isOnce := func(receipt stock.OrderReceipt) bool {
		remaining := func(l stock.LineReceipt) bool { return !s.leaves(stock.Receipt{Remaining: l.Remaining}, left) }
		return len(receipt.Lines) == items && !slices.ContainsFunc(receipt.Lines, remaining)
	}
	passed := 0
	var receipt stock.OrderReceipt
	first, stopped := parkRequest(t, func(Point) bool { passed++; return passed == n },
		func(ctx context.Context) (_ stock.Receipt, err error) {
			receipt, err = s.buy(ctx, 0, req)
			return receipt.Receipt, err
		})
	var copies [2]chan error
	for replica := range s.replicas {
		copies[replica] = make(chan error, 1)
		go func() {
			again, err := s.buy(stock.LimitWait(patient(t), 0), replica, req)
			if err == nil && !isOnce(again) {
				err = fmt.Errorf("answered %+v", again)
			}
			copies[replica] <- err
		}()
		serverstest.Eventually(t, "the copy is answered, or waits in line behind the first request", func() bool {
			return len(copies[replica]) > 0 || s.waiting(replica, lines[0].GoodsID) > 0
		})
	}
	if err := first.Resume(); err != nil || !isOnce(receipt) {
		t.Errorf("the request, after it stopped at point %d: %+v, %v, want %d remaining", n, receipt, err, left)
	}
	for replica := range s.replicas {
		err := <-copies[replica]
		if err != nil && !errors.Is(err, stock.ErrInProgress) && !errors.Is(err, stock.ErrBusy) {
			t.Errorf("on replica %d, while the request stops at point %d: %v, want sold once, in progress or busy",
				replica, n, err)
		}
	}
	if again, err := s.buy(patient(t), 1, req); err != nil || !again.Replayed || again.Attempts != 1 || !isOnce(again) {
		t.Errorf("after the request stopped at point %d: %+v, %v, want a replay", n, again, err)
	}
	for _, line := range lines {
		s.wantLeft(t, line.GoodsID, left)
	}
	return stopped
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
	return RetryRefusals(ctx, s.replicas[replica].deducter, req)
}

// RetryRefusals sends a request again until it is not refused as in progress or busy.
func RetryRefusals(ctx context.Context, d stock.Deducter, req stock.Request) (receipt stock.Receipt, err error) {
	untilAnswered(ctx, func() error {
		receipt, err = d.Deduct(ctx, req)
		return err
	})
	return receipt, err
}

// untilAnswered sends something again until it is not refused as in progress or busy.
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

// behindProxies returns the strategy on a replica whose connections to MySQL and Redis lead through proxies.
func (s subject) behindProxies(t *testing.T) (victim stock.Deducter, proxies []*tcpproxy.Proxy) {
	t.Helper()
	a := s.addresses
	proxies = make([]*tcpproxy.Proxy, 2)
	proxies[0], a.MySQL = ProxyMySQL(t, a.MySQL)
	proxies[1], a.Redis = ProxyRedis(t, a.Redis)
	deps := a.Connect(t)
	deps.Lease = patience
	return NewService(t, deps, s.strategy).Deducter(t, s.strategy.Name, s.store), proxies
}
