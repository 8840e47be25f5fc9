// Package stocktest is one conformance suite for every strategy of a catalogue: each is held to its own claim, on real
// servers, on one replica and on two.
package stocktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stock/internal/stock"
)

// patience bounds what a test waits for; a strategy that works never uses it up.
const patience = 30 * time.Second

// Run runs the suite over every strategy of the catalogue, on every store that it works on.
func Run(t *testing.T, strategies []stock.Strategy, a Addresses) {
	for _, strategy := range strategies {
		for _, store := range strategy.Stores {
			t.Run(strategy.Name+"/"+string(store), func(t *testing.T) {
				newSubject(t, strategies, strategy, store, a).run(t)
			})
		}
	}
}

// subject is one strategy on one store, on two replicas.
type subject struct {
	strategy stock.Strategy
	store    stock.Store
	replicas [2]replica
}

type replica struct {
	service  *Service
	deducter stock.Deducter
}

func newSubject(t *testing.T, strategies []stock.Strategy, strategy stock.Strategy, store stock.Store, a Addresses) subject {
	s := subject{strategy: strategy, store: store}
	for i := range s.replicas {
		deps := a.Connect(t)
		service := NewService(t, deps, strategies...)
		s.replicas[i] = replica{service, service.Deducter(t, strategy.Name, store)}
		t.Cleanup(func() { WantIdle(t, deps) })
	}
	return s
}

func (s subject) run(t *testing.T) {
	if s.strategy.Claim.OneReplica == stock.SellsNothing {
		t.Run("confirms and deducts nothing", s.sellsNothing)
		return
	}
	for replicas, promise := range map[int]stock.Promise{1: s.strategy.Claim.OneReplica, 2: s.strategy.Claim.TwoReplicas} {
		on := map[int]string{1: " on one replica", 2: " on two replicas"}[replicas]
		switch promise {
		case stock.Correct:
			t.Run("conserves every unit"+on, func(t *testing.T) { s.conserves(t, replicas) })
		case stock.LosesUpdates:
			t.Run("loses an update"+on, func(t *testing.T) { s.losesUpdate(t, replicas) })
		case stock.Oversells:
			t.Run("sells below zero"+on, func(t *testing.T) { s.oversells(t, replicas) })
		default:
			t.Errorf("the suite cannot show the promise %q", promise)
		}
	}
	if s.strategy.Claim.OneReplica != stock.Oversells {
		t.Run("refuses more than is left", s.soldOut)
	}
	t.Run("refuses a goods that it does not know", s.unknownGoods)
	t.Run("sells every unit down to the last", s.sellsTheLast)
	t.Run("deducts nothing for a request that was cancelled before", s.cancelledBefore)
	t.Run("deducts nothing for a request that is cancelled in the critical section", s.cancelledInside)
	t.Run("works inside the critical section for as long as asked", s.holds)
	if s.strategy.Idempotent {
		s.runKeys(t)
	}
	if s.takesOrders() {
		s.orders(t)
	}
}

var goods atomic.Int64

// freshGoods keeps tests apart from each other.
func (s subject) freshGoods(t testing.TB, units int64) int64 {
	t.Helper()
	id := goods.Add(1)
	if err := s.replicas[0].service.SetStock(t.Context(), id, units); err != nil {
		t.Fatal(err)
	}
	return id
}

func (s subject) left(t testing.TB, goodsID int64) int64 {
	t.Helper()
	units, err := s.replicas[0].service.Stock(context.WithoutCancel(t.Context()), s.store, goodsID)
	if err != nil {
		t.Fatal(err)
	}
	return units
}

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func (s subject) deduct(t testing.TB, req stock.Request) stock.Receipt {
	t.Helper()
	receipt, err := s.replicas[0].deducter.Deduct(patient(t), req)
	if err != nil {
		t.Fatalf("Deduct %+v: %v", req, err)
	}
	return receipt
}

func (s subject) sellsNothing(t *testing.T) {
	s.deduct(t, stock.Request{GoodsID: 1, Count: 5})
}

type sale struct {
	count   int
	receipt stock.Receipt
}

// conserves asks for twice the stock in unequal counts (equal ones mask a lost update) and reads the receipts as a
// chain: each must continue the stock that another left, from the first unit to the last. Receipts that do not tell
// what remains must at least add up.
func (s subject) conserves(t *testing.T, replicas int) {
	const buyers, initial = 16, 120
	id, ctx := s.freshGoods(t, initial), patient(t)
	var mu sync.Mutex
	var sales []sale
	leastRefused := stock.MaxCount
	var wg sync.WaitGroup
	for buyer := range buyers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(buyer)))
			for asked := 0; asked < 2*initial/buyers; {
				count := 1 + rng.IntN(3)
				asked += count
				receipt, err := s.replicas[buyer%replicas].deducter.Deduct(ctx, stock.Request{GoodsID: id, Count: count})
				mu.Lock()
				var soldOut *stock.SoldOutError
				switch {
				case err == nil:
					sales = append(sales, sale{count, receipt})
				case errors.As(err, &soldOut) && soldOut.Remaining < int64(count):
					leastRefused = min(leastRefused, count)
				default:
					t.Errorf("Deduct: %v", err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()

	slices.SortFunc(sales, func(a, b sale) int { return int(b.receipt.Remaining - a.receipt.Remaining) })
	chain := int64(initial)
	for _, sale := range sales {
		if chain -= int64(sale.count); chain != sale.receipt.Remaining && s.strategy.TellsRemaining() {
			t.Fatalf("a sale of %d says that %d remain: the sales before it leave %d", sale.count, sale.receipt.Remaining, chain)
		}
	}
	final := s.left(t, id)
	if final != chain {
		t.Errorf("%d units are left, the receipts leave %d", final, chain)
	}
	if final >= int64(leastRefused) {
		t.Errorf("a buyer of %d was refused while %d were left", leastRefused, final)
	}
	if s.strategy.Claim.Exclusive {
		exclusive(t, sales)
	}
}

func exclusive(t *testing.T, sales []sale) {
	slices.SortFunc(sales, func(a, b sale) int { return int(a.receipt.Entered - b.receipt.Entered) })
	for i := 1; i < len(sales); i++ {
		if before, after := sales[i-1].receipt, sales[i].receipt; after.Entered < before.Left {
			t.Errorf("two critical sections overlap by %v", time.Duration(before.Left-after.Entered))
		}
	}
}

// gate stops a request at a point until it is opened.
type gate struct {
	at            stock.Point
	reached, open chan struct{}
	once          sync.Once
}

func newGate(at stock.Point) *gate {
	return &gate{at: at, reached: make(chan struct{}), open: make(chan struct{})}
}

func (g *gate) pause(ctx context.Context, at stock.Point) error {
	if at != g.at {
		return nil
	}
	g.once.Do(func() { close(g.reached) })
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type outcome struct {
	receipt stock.Receipt
	err     error
}

func (s subject) start(ctx context.Context, on int, req stock.Request) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		receipt, err := s.replicas[on].deducter.Deduct(ctx, req)
		done <- outcome{receipt, err}
	}()
	return done
}

func (g *gate) await(t testing.TB, done <-chan outcome) {
	t.Helper()
	select {
	case <-g.reached:
	case ended := <-done:
		t.Fatalf("the request ended before it came to %s: %+v", g.at, ended)
	case <-time.After(patience):
		t.Fatalf("the request did not come to %s", g.at)
	}
}

// points lists the pause points that the strategy passes.
func (s subject) points(t testing.TB) (passed []stock.Point) {
	s.deduct(t, stock.Request{GoodsID: s.freshGoods(t, 1), Count: 1, Pause: func(_ context.Context, at stock.Point) error {
		passed = append(passed, at)
		return nil
	}})
	return passed
}

// losesUpdate stops the first request just before its write can be seen, lets the second one read, and then lets both
// write: the second write buries the first.
func (s subject) losesUpdate(t *testing.T, replicas int) {
	lastPoint := stock.BeforeWrite
	if slices.Contains(s.points(t), stock.BeforeCommit) {
		lastPoint = stock.BeforeCommit
	}
	const initial = 10
	id, ctx := s.freshGoods(t, initial), patient(t)

	first, second := newGate(lastPoint), newGate(stock.AfterRead)
	firstDone := s.start(ctx, 0, stock.Request{GoodsID: id, Count: 1, Pause: first.pause})
	first.await(t, firstDone)
	secondDone := s.start(ctx, replicas-1, stock.Request{GoodsID: id, Count: 2, Pause: second.pause})
	second.await(t, secondDone)
	close(first.open)
	if done := <-firstDone; done.err != nil {
		t.Fatalf("first: %v", done.err)
	}
	close(second.open)
	if done := <-secondDone; done.err != nil {
		t.Fatalf("second: %v", done.err)
	}
	if final := s.left(t, id); final != initial-2 {
		t.Errorf("3 of %d units were sold and %d are left: want %d, the first sale lost", initial, final, initial-2)
	}
}

func (s subject) oversells(t *testing.T, replicas int) {
	id := s.freshGoods(t, 1)
	for i := range 3 {
		receipt, err := s.replicas[i%replicas].deducter.Deduct(patient(t), stock.Request{GoodsID: id, Count: 1})
		if err != nil || receipt.Remaining != int64(-i) {
			t.Errorf("sale %d of a goods of 1: %+v, %v", i+1, receipt, err)
		}
	}
	if final := s.left(t, id); final != -2 {
		t.Errorf("%d units are left, want -2", final)
	}
}

func (s subject) soldOut(t *testing.T) {
	id := s.freshGoods(t, 4)
	_, err := s.replicas[0].deducter.Deduct(patient(t), stock.Request{GoodsID: id, Count: 5})
	var soldOut *stock.SoldOutError
	if !errors.Is(err, stock.ErrSoldOut) || !errors.As(err, &soldOut) || soldOut.Remaining != 4 {
		t.Errorf("5 of a goods of 4: %v, want sold out with 4 remaining", err)
	}
	if final := s.left(t, id); final != 4 {
		t.Errorf("%d units are left after a refusal, want 4", final)
	}
}

func (s subject) unknownGoods(t *testing.T) {
	_, err := s.replicas[0].deducter.Deduct(patient(t), stock.Request{GoodsID: 1 << 40, Count: 1})
	if !errors.Is(err, stock.ErrUnknownItem) {
		t.Errorf("Deduct: %v, want unknown goods", err)
	}
}

func (s subject) sellsTheLast(t *testing.T) {
	id := s.freshGoods(t, 3)
	if receipt := s.deduct(t, stock.Request{GoodsID: id, Count: 2}); !s.leaves(receipt, 1) || receipt.Attempts != 1 && s.strategy.TellsRemaining() {
		t.Errorf("the first receipt is %+v, want 1 remaining after 1 attempt", receipt)
	}
	receipt := s.deduct(t, stock.Request{GoodsID: id, Count: 1})
	if !s.leaves(receipt, 0) {
		t.Errorf("%d remain, want 0", receipt.Remaining)
	}
	if final := s.left(t, id); final != 0 {
		t.Errorf("%d units are left, want 0", final)
	}
	if receipt.Entered > receipt.Left || receipt.Waited < 0 || receipt.Held != time.Duration(receipt.Left-receipt.Entered) {
		t.Errorf("the times of the receipt contradict each other: %+v", receipt)
	}
}

// leaves says whether a receipt tells that so many units remain, or, where the strategy does not tell, that it does
// not.
func (s subject) leaves(receipt stock.Receipt, units int64) bool {
	if !s.strategy.TellsRemaining() {
		return receipt.RemainingUnknown && receipt.Remaining == 0
	}
	return !receipt.RemainingUnknown && receipt.Remaining == units
}

func (s subject) cancelledBefore(t *testing.T) {
	id := s.freshGoods(t, 4)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.replicas[0].deducter.Deduct(ctx, stock.Request{GoodsID: id, Count: 1})
	if !errors.Is(err, stock.ErrBusy) || !errors.Is(err, context.Canceled) {
		t.Errorf("Deduct: %v, want busy joined with context.Canceled", err)
	}
	if final := s.left(t, id); final != 4 {
		t.Errorf("%d units are left, want 4", final)
	}
}

func (s subject) cancelledInside(t *testing.T) {
	id := s.freshGoods(t, 4)
	ctx, cancel := context.WithCancel(patient(t))
	defer cancel()
	parked := newGate(stock.BeforeWrite)
	done := s.start(ctx, 0, stock.Request{GoodsID: id, Count: 1, Pause: parked.pause})
	parked.await(t, done)
	cancel()
	if ended := <-done; !errors.Is(ended.err, stock.ErrBusy) || !errors.Is(ended.err, context.Canceled) {
		t.Errorf("Deduct: %v, want busy joined with context.Canceled", ended.err)
	}
	if final := s.left(t, id); final != 4 {
		t.Errorf("%d units are left, want 4", final)
	}
	// Nothing stays locked: the next buyer, on the other replica, is served.
	next := <-s.start(patient(t), 1, stock.Request{GoodsID: id, Count: 1})
	if next.err != nil || !s.leaves(next.receipt, 3) {
		t.Errorf("the next buyer: %+v, %v", next.receipt, next.err)
	}
}

func (s subject) holds(t *testing.T) {
	const hold = 5 * time.Millisecond
	receipt := s.deduct(t, stock.Request{GoodsID: s.freshGoods(t, 1), Count: 1, Hold: hold})
	if receipt.Held < hold {
		t.Errorf("the critical section took %v, want at least %v", receipt.Held, hold)
	}
}
