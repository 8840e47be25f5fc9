// Package stocktest tests strategies on real servers. Run is a conformance suite: it checks every strategy of a
// catalogue against its claim, on one replica and on two, with requests that meet. Package contract says how
// requests one after another must be answered. The rest is shared by the tests of several packages.
package stocktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
)

// patience limits a request. A correct strategy answers much sooner.
const patience = 5 * time.Minute

// Run runs the suite for every strategy of the catalogue, on every store that it works on.
func Run(t *testing.T, strategies []stock.Strategy, a Addresses) {
	deps := a.Connect(t)
	t.Cleanup(func() { WantIdle(t, deps) })
	seen := map[keeping]bool{}
	for _, strategy := range strategies {
		for _, store := range strategy.Stores {
			way := wayOfKeeping(strategy, store)
			first := !seen[way]
			seen[way] = true
			t.Run(strategy.Name+"/"+string(store), func(t *testing.T) {
				t.Parallel()
				if serverstest.TiDB != "" && slices.Contains(strategy.Needs, stock.NeedInnoDB) {
					t.Skip("it cannot run on TiDB")
				}
				s := newSubject(t, strategy, store, a)
				s.firstOfKeeping = first
				s.run(t)
			})
		}
	}
}

// keeping is a way to keep idempotency keys. Which lock it is makes no difference to a store.
type keeping struct {
	name             string // empty for a lock
	store            stock.Store
	fenced, excludes bool
}

func wayOfKeeping(s stock.Strategy, on stock.Store) keeping {
	way := keeping{name: s.Name, store: on, fenced: s.Fenced, excludes: s.Claim.TwoReplicas == stock.Correct}
	if s.Lock != nil {
		way.name = ""
	}
	return way
}

// subject is one strategy on one store, on two replicas.
type subject struct {
	strategy stock.Strategy
	store    stock.Store
	replicas [2]replica

	addresses      Addresses
	firstOfKeeping bool // no strategy before it keeps keys in the same way
}

type replica struct {
	service  *Service
	deducter stock.Deducter
}

func newSubject(t *testing.T, strategy stock.Strategy, store stock.Store, a Addresses) subject {
	s := subject{strategy: strategy, store: store, addresses: a}
	for i := range s.replicas {
		deps := a.Connect(t)
		service := NewService(t, deps, strategy)
		s.replicas[i] = replica{service, service.Deducter(t, strategy.Name, store)}
		t.Cleanup(func() { wantUnused(t, deps) })
	}
	return s
}

func (s subject) run(t *testing.T) {
	if s.strategy.Claim.OneReplica == stock.SellsNothing {
		t.Run("confirms and deducts nothing", s.sellsNothing)
		return
	}
	claim := s.strategy.Claim
	for replicas, behaviour := range map[int]stock.Behaviour{1: claim.OneReplica, 2: claim.TwoReplicas} {
		onReplicas := map[int]string{1: " on one replica", 2: " on two replicas"}[replicas]
		switch behaviour {
		case stock.Correct:
			if replicas < s.sellers() {
				continue // buyers at two replicas are also several at one
			}
			t.Run("conserves every unit"+onReplicas, func(t *testing.T) { s.conserves(t, replicas, 1) })
		case stock.LosesUpdates:
			t.Run("loses an update"+onReplicas, func(t *testing.T) { s.losesUpdate(t, replicas) })
		case stock.Oversells: // the contract shows it
		case stock.Undersells:
			t.Run("refuses the last unit"+onReplicas, func(t *testing.T) { s.undersells(t, replicas) })
		default:
			t.Errorf("the suite has no test of a strategy that claims %q", behaviour)
		}
	}
	t.Run("leaves no trace of an item that is not known", s.leavesNoTrace)
	t.Run("deducts nothing for a request that is cancelled before it is sent", s.cancelledBefore)
	t.Run("deducts nothing for a request that is cancelled in the critical section", s.cancelledInside)
	t.Run("spends the requested time inside the critical section", s.holds)
	if s.strategy.Lock != nil && claim.OneReplica == stock.Correct {
		t.Run("refuses a request that does not wait while the lock is held", s.triesLocked)
		t.Run("refuses a request that waits briefly while the lock is held", s.waitsBriefly)
	}
	if claim.TwoReplicas == stock.Correct && s.usesMySQL() {
		t.Run("blocks no more than it claims while a replica is stopped after any statement", s.runStops)
	}
	if s.strategy.Idempotent() {
		if !s.runKeys(t) {
			return
		}
	}
	if s.takesOrders() {
		s.runOrders(t)
	}
}

// sellers returns how many replicas may sell one item at the same time.
func (s subject) sellers() int {
	if s.strategy.Claim.TwoReplicas == stock.Correct {
		return 2
	}
	return 1
}

func (s subject) newItem(t testing.TB, units int64) int64 {
	t.Helper()
	return s.replicas[0].service.NewItem(t, units)
}

func (s subject) left(t testing.TB, goodsID int64) int64 {
	t.Helper()
	return s.replicas[0].service.Left(t, s.store, goodsID)
}

func (s subject) wantLeft(t testing.TB, goodsID, want int64) {
	t.Helper()
	s.replicas[0].service.WantLeft(t, s.store, goodsID, want)
}

// patient returns a context for a request that must be answered.
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

// bought is a line that was sold.
type bought struct {
	count   int
	receipt stock.Receipt // with what remains of the item
}

// conserves asks for twice the stock of some items, in different counts, since equal ones can hide a lost update. If
// there are several items, a request has one to four lines in random order, some of them for the same item. The
// receipts of each item must form a chain: each one starts from the stock that another one left. Half an order would
// break it. Receipts without the remaining stock must add up.
func (s subject) conserves(t *testing.T, replicas, items int) {
	const buyers, initial = 16, 120
	ctx := patient(t)
	var ids []int64
	smallestRefused := map[int64]int{}
	for range items {
		ids = append(ids, s.newItem(t, initial))
		smallestRefused[ids[len(ids)-1]] = stock.MaxCount
	}
	var mu sync.Mutex
	sales := map[int64][]bought{} // by item
	var wg sync.WaitGroup
	for buyer := range buyers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(buyer)))
			for asked := 0; asked < 2*initial*items/buyers; {
				var lines []stock.Line
				for range 1 + rng.IntN(4)*min(items-1, 1) {
					lines = append(lines, stock.Line{GoodsID: ids[rng.IntN(items)], Count: 1 + rng.IntN(3)})
					asked += lines[len(lines)-1].Count
				}
				receipt, err := s.buy(ctx, buyer%replicas, request{lines: lines})
				mu.Lock()
				if no, ok := errors.AsType[*stock.SoldOutError](err); ok && no.Remaining < int64(no.Asked) {
					smallestRefused[no.GoodsID] = min(smallestRefused[no.GoodsID], no.Asked)
				} else if err != nil {
					t.Errorf("%v: %v", lines, err)
				}
				for _, line := range receipt.Lines {
					of := receipt.Receipt
					of.Remaining = line.Remaining
					sales[line.GoodsID] = append(sales[line.GoodsID], bought{line.Count, of})
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()

	for _, id := range ids {
		chain := s.wantChain(t, initial, sales[id])
		final := s.left(t, id)
		if final != chain {
			t.Errorf("%d units are left, want %d according to the receipts", final, chain)
		}
		if final >= int64(smallestRefused[id]) {
			t.Errorf("%d units were refused as sold out, but %d are left", smallestRefused[id], final)
		}
	}
}

// wantChain checks that each sale starts from the stock that another one left, and returns the stock that all of them
// leave.
func (s subject) wantChain(t *testing.T, initial int64, sales []bought) (left int64) {
	t.Helper()
	slices.SortFunc(sales, func(a, b bought) int { return int(b.receipt.Remaining - a.receipt.Remaining) })
	left = initial
	for _, sale := range sales {
		if left -= int64(sale.count); left != sale.receipt.Remaining && s.strategy.TellsRemaining() {
			t.Fatalf("a sale of %d has %d remaining, want %d after the sales before it",
				sale.count, sale.receipt.Remaining, left)
		}
	}
	if s.strategy.Claim.Exclusive {
		wantExclusive(t, sales)
	}
	return left
}

// wantExclusive checks that no two critical sections overlap.
func wantExclusive(t *testing.T, sales []bought) {
	slices.SortFunc(sales, func(a, b bought) int { return int(a.receipt.Entered - b.receipt.Entered) })
	overlaps, longest, left := 0, int64(0), int64(0)
	for _, sale := range sales {
		if sale.receipt.Entered == 0 {
			t.Fatal("a sale never entered its critical section: call Enter of its stock.Section when exclusion begins")
		}
		if overlap := left - sale.receipt.Entered; overlap > 0 {
			overlaps++
			longest = max(longest, overlap)
		}
		left = max(left, sale.receipt.Left)
	}
	if overlaps > 0 {
		t.Errorf("%d of %d critical sections overlap, by up to %v", overlaps, len(sales), time.Duration(longest))
	}
}

func (s subject) park(t testing.TB, replica int, req stock.Request, at Point) *Parked {
	t.Helper()
	return Park(t, s.replicas[replica].deducter, req, at)
}

func (s subject) start(ctx context.Context, replica int, req stock.Request) <-chan Answer {
	return Start(ctx, s.replicas[replica].deducter, req)
}

// losesUpdate lets two requests race, of which the second must overwrite the first. A strategy that compares whole
// seconds loses no update if a second ends between the two writes, so they race once more if none is lost.
func (s subject) losesUpdate(t *testing.T, replicas int) {
	var left int64
	for range 2 {
		// The first sale, of 1 unit, is lost if only the second one, of 2 units, is missing.
		if left = s.leftByRace(t, replicas); left == initialOfRace-2 {
			return
		}
	}
	t.Errorf("%d of %d units are left after sales of 1 and 2, want %d", left, initialOfRace, initialOfRace-2)
}

// initialOfRace is the stock that two requests race for.
const initialOfRace = 10

// leftByRace stops the first request before its write is visible, lets the second one read, and then lets both write.
// It returns the units left.
func (s subject) leftByRace(t *testing.T, replicas int) int64 {
	t.Helper()
	id := s.newItem(t, initialOfRace)
	first := s.park(t, 0, stock.Request{GoodsID: id, Count: 1}, s.lastPoint(t))
	second := s.park(t, replicas-1, stock.Request{GoodsID: id, Count: 2}, BeforeWrite)
	must.Succeed(t, first.Resume())
	must.Succeed(t, second.Resume())
	return s.left(t, id)
}

// lastPoint returns the point after which the write of a request takes effect.
func (s subject) lastPoint(t testing.TB) Point {
	if slices.Contains(s.points(t, ""), BeforeCommit) {
		return BeforeCommit
	}
	return BeforeWrite
}

// manyUnits is a stock so large that each slot has enough for a sale of few units. All such sales pass the same points.
const manyUnits = 1000

// points returns the points that a sale of few of many units passes if it has work to do. Some stores
// read in another way for a request with a key.
func (s subject) points(t testing.TB, key string) (passed []Point) {
	ctx := WithPause(patient(t), func(_ context.Context, at Point) {
		if !slices.Contains(passed, at) {
			passed = append(passed, at)
		}
	})
	req := WithWork(stock.Request{GoodsID: s.newItem(t, manyUnits), Count: 1, Key: key})
	if sold := <-s.start(ctx, 0, req); sold.Err != nil {
		t.Fatal(sold.Err)
	}
	return passed
}

// undersells lets a request that asks for too much take units, and another one ask for a unit before they are back.
func (s subject) undersells(t *testing.T, replicas int) {
	id := s.newItem(t, 2)
	greedy := s.park(t, 0, stock.Request{GoodsID: id, Count: 3}, AfterWrite)
	second := <-s.start(patient(t), replicas-1, stock.Request{GoodsID: id, Count: 1})
	if err := greedy.Resume(); !errors.Is(err, stock.ErrSoldOut) || !errors.Is(second.Err, stock.ErrSoldOut) {
		t.Errorf("requests for 3 and 1 of 2 units: %v, %v, want both refused as sold out", err, second.Err)
	}
	s.wantLeft(t, id, 2)
}

// leaves reports whether the receipt says that these units remain. If the strategy cannot know that, the receipt must
// say so.
func (s subject) leaves(receipt stock.Receipt, units int64) bool {
	if !s.strategy.TellsRemaining() {
		return receipt.Remaining == 0
	}
	return receipt.Remaining == units
}

// leavesNoTrace asks for an item that is not known, without and with a key.
func (s subject) leavesNoTrace(t *testing.T) {
	req := stock.Request{GoodsID: NewItem(), Count: 1}
	if s.strategy.Idempotent() {
		req.Key = s.key(req.GoodsID)
	}
	for replica := range s.sellers() {
		if sold := <-s.start(patient(t), replica, req); !errors.Is(sold.Err, stock.ErrUnknownItem) {
			t.Errorf("%+v, %v, want unknown item", sold.Receipt, sold.Err)
		}
	}
	wantNoTrace(t, s.replicas[0].service.deps, req.GoodsID)
}

func (s subject) cancelledBefore(t *testing.T) {
	id := s.newItem(t, 4)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.replicas[0].deducter.Deduct(ctx, stock.Request{GoodsID: id, Count: 1})
	if !errors.Is(err, stock.ErrBusy) || !errors.Is(err, context.Canceled) {
		t.Errorf("Deduct: %v, want busy joined with context.Canceled", err)
	}
	s.wantLeft(t, id, 4)
}

// cancelledInside cancels a request while it works. A key of it stays new.
func (s subject) cancelledInside(t *testing.T) {
	id := s.newItem(t, 5)
	s.deduct(t, stock.Request{GoodsID: id, Count: 1}) // a lock reads an item once to see that it exists
	req := stock.Request{GoodsID: id, Count: 1}
	if s.strategy.Idempotent() {
		req.Key = s.key(id)
	}
	ctx, cancel := context.WithCancel(patient(t))
	defer cancel()
	slow := req
	slow.Hold = stock.MaxHold
	ended := <-s.start(s.cancelAtWork(ctx, cancel), 0, slow)
	if !errors.Is(ended.Err, stock.ErrBusy) || !errors.Is(ended.Err, context.Canceled) {
		t.Errorf("Deduct: %v, want busy joined with context.Canceled", ended.Err)
	}
	s.wantLeft(t, id, 4)
	// Nothing stays locked: the request can be carried out by the other replica.
	next := <-s.start(patient(t), 1, req)
	if next.Err != nil || next.Receipt.Replayed || !s.leaves(next.Receipt, 3) {
		t.Errorf("sent again: %+v, %v, want a new sale with 3 remaining", next.Receipt, next.Err)
	}
}

// cancelAtWork makes cancel end a request with work to do inside its critical section.
func (s subject) cancelAtWork(ctx context.Context, cancel func()) context.Context {
	if s.store == stock.Redis && s.strategy.Claim.OneReplica == stock.Correct && !s.strategy.Claim.Exclusive {
		return cancelledByWait{ctx, cancel} // it works before it sends a script
	}
	return cancelInside(ctx, cancel)
}

// cancelInside makes cancel end a request once it has read or written the stock.
func cancelInside(ctx context.Context, cancel func()) context.Context {
	return WithPause(ctx, func(_ context.Context, at Point) {
		if at == AfterRead || at == AfterWrite {
			cancel()
		}
	})
}

// cancelledByWait is a context that ends when a request begins to wait for its end, as stock.Work does.
type cancelledByWait struct {
	context.Context
	cancel func()
}

func (c cancelledByWait) Done() <-chan struct{} {
	c.cancel()
	return c.Context.Done()
}

func (s subject) holds(t *testing.T) {
	const hold = 5 * time.Millisecond
	receipt := s.deduct(t, stock.Request{GoodsID: s.newItem(t, 1), Count: 1, Hold: hold})
	if receipt.Held < hold {
		t.Errorf("the critical section took %v, want at least %v", receipt.Held, hold)
	}
}
