package catalogue_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// slotsEnv is a replica whose slots a test can see and change.
type slotsEnv struct {
	*stocktest.Service
	stock.Deducter
	deps stock.Deps
}

func newSlots(t *testing.T, a stocktest.Addresses) slotsEnv {
	deps := a.Connect(t)
	service := stocktest.NewService(t, deps)
	return slotsEnv{service, service.Deducter(t, "slots", stock.Slots), deps}
}

// fill makes a goods of these slots.
func (e slotsEnv) fill(t *testing.T, slots ...int64) (goodsID int64) {
	id := stocktest.NewItem()
	for i, units := range slots {
		e.deps.MySQL.MustExecContext(t.Context(), "INSERT INTO good_slot (goods_id, slot, stock) VALUES (?, ?, ?)", id, i, units)
	}
	return id
}

// slots reads the slots of a goods.
func (e slotsEnv) slots(t *testing.T, goodsID int64) (slots []int64) {
	if err := e.deps.MySQL.SelectContext(t.Context(), &slots, "SELECT stock FROM good_slot WHERE goods_id = ? ORDER BY slot", goodsID); err != nil {
		t.Fatal(err)
	}
	return slots
}

func (e slotsEnv) wantSlots(t *testing.T, goodsID int64, want ...int64) {
	t.Helper()
	if got := e.slots(t, goodsID); !slices.Equal(got, want) {
		t.Errorf("the slots hold %v, want %v", got, want)
	}
}

// only is sixteen slots of which one holds units.
func only(slot int, units int64) []int64 {
	slots := make([]int64, 16)
	slots[slot] = units
	return slots
}

func TestSlotsFallOverToTheOneThatHoldsEnough(t *testing.T) {
	t.Parallel()
	e := newSlots(t, stocktest.NewAddresses(t))
	for _, slot := range []int{0, 7, 15} {
		id := e.fill(t, only(slot, 5)...)
		for range 5 {
			sell(t, e, stock.Request{GoodsID: id, Count: 1})
		}
		var soldOut *stock.SoldOutError
		if _, err := e.Deduct(t.Context(), stock.Request{GoodsID: id, Count: 1}); !errors.As(err, &soldOut) || soldOut.Remaining != 0 {
			t.Errorf("after the last unit of slot %d: %v, want sold out with 0 remaining", slot, err)
		}
	}
}

func TestSlotsSellTheTailThatOnlyTheirSumHolds(t *testing.T) {
	t.Parallel()
	e := newSlots(t, stocktest.NewAddresses(t))
	id := e.fill(t, 2, 0, 2, 1, 2, 2, 2, 2)
	var soldOut *stock.SoldOutError
	if _, err := e.Deduct(t.Context(), stock.Request{GoodsID: id, Count: 14}); !errors.As(err, &soldOut) || soldOut.Remaining != 13 {
		t.Errorf("14 of 13: %v, want sold out with 13 remaining", err)
	}
	sell(t, e, stock.Request{GoodsID: id, Count: 3})
	// The rest is spread so that the next buyers of as many need one slot each.
	e.wantSlots(t, id, 4, 3, 3, 0, 0, 0, 0, 0)
	sell(t, e, stock.Request{GoodsID: id, Count: 10})
	e.wantSlots(t, id, 0, 0, 0, 0, 0, 0, 0, 0)
}

func TestSlotsHaveTheStockSplitEvenly(t *testing.T) {
	t.Parallel()
	e := newSlots(t, stocktest.NewAddresses(t))
	id := e.fill(t, slices.Repeat([]int64{9}, 20)...) // as if there had been more slots once
	if err := e.SetStock(t.Context(), id, 34); err != nil {
		t.Fatal(err)
	}
	e.wantSlots(t, id, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2)
	sell(t, e, stock.Request{GoodsID: id, Count: 3})
	if units, err := e.Restock(t.Context(), stock.Slots, id, 1); err != nil || units != 32 {
		t.Errorf("Restock = %d, %v, want 32", units, err)
	}
	e.wantSlots(t, id, slices.Repeat([]int64{2}, 16)...)
}

// While one buyer rearranges all slots, the others wait for them, and are served.
func TestSlotsAreNotSoldOutWhileTheyAreRearranged(t *testing.T) {
	t.Parallel()
	for _, at := range []stock.Point{stock.AfterLock, stock.BeforeCommit} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			a := stocktest.NewAddresses(t)
			e, other := newSlots(t, a), newSlots(t, a)
			id := e.fill(t, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2)
			// The first BeforeCommit is that of a try that found too little in its slot.
			tail := parkAcross(t, e, stock.Request{GoodsID: id, Count: 20}, at)
			var wg sync.WaitGroup
			for _, count := range []int{1, 2, 3, 4} {
				wg.Go(func() {
					if _, err := other.Deduct(t.Context(), stock.Request{GoodsID: id, Count: count}); err != nil {
						t.Errorf("%d of the 12 that the other leaves: %v", count, err)
					}
				})
			}
			waitForRowLock(t, e.deps)
			if units, err := other.Stock(t.Context(), stock.Slots, id); err != nil || units != 32 {
				t.Errorf("meanwhile there are %d units, %v, want 32: nothing is committed", units, err)
			}
			if err := tail.goOn(); err != nil {
				t.Errorf("the buyer of 20: %v", err)
			}
			wg.Wait()
			if units, err := e.Stock(t.Context(), stock.Slots, id); err != nil || units != 2 {
				t.Errorf("%d units are left, %v, want 2", units, err)
			}
		})
	}
}

// parkAcross parks a request at a point after it has locked all slots.
func parkAcross(t *testing.T, d stock.Deducter, req stock.Request, at stock.Point) parked {
	p := parked{make(chan struct{}), make(chan error, 1)}
	reached := make(chan struct{})
	locked := false
	req.Pause = func(_ context.Context, point stock.Point) error {
		if locked = locked || point == stock.AfterLock; locked && point == at {
			close(reached)
			<-p.open
		}
		return nil
	}
	go func() {
		_, err := d.Deduct(t.Context(), req)
		p.done <- err
	}()
	select {
	case <-reached:
	case err := <-p.done:
		t.Fatalf("the request ended before it came to %s: %v", at, err)
	}
	return p
}

// Every slot that is tried turns out empty, as its units have just been put into another one.
func TestSlotsAreNotSoldOutWhileTheirUnitsRunAwayFromABuyer(t *testing.T) {
	t.Parallel()
	e := newSlots(t, stocktest.NewAddresses(t))
	const moves = 20
	id := e.fill(t, only(0, 5)...)
	moved := 0
	move := func(ctx context.Context, at stock.Point) error {
		if at != stock.BeforeWrite || moved == moves {
			return nil
		}
		moved++
		_, err := e.deps.MySQL.ExecContext(ctx, "UPDATE good_slot SET stock = IF(slot = ?, 5, 0) WHERE goods_id = ?", moved%16, id)
		return err
	}
	if _, err := e.Deduct(t.Context(), stock.Request{GoodsID: id, Count: 5, Pause: move}); err != nil {
		t.Errorf("after %d moves: %v, want a receipt: 5 units were there all the time", moved, err)
	}
	e.wantSlots(t, id, only(0, 0)...)
}

func TestTheSumOfSlotsIsNeverFalse(t *testing.T) {
	t.Parallel()
	const initial, buyers, restocks = 400, 8, 20
	a := stocktest.NewAddresses(t)
	replicas := []slotsEnv{newSlots(t, a), newSlots(t, a)}
	id := stocktest.NewItem()
	if err := replicas[0].SetStock(t.Context(), id, initial); err != nil {
		t.Fatal(err)
	}
	// Units that are asked for, and those that are confirmed; the stock is always between what the two leave.
	var asked, sold, back, added atomic.Int64
	var working, reading sync.WaitGroup
	for buyer := range buyers {
		working.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(buyer)))
			for range 30 {
				count := 1 + rng.IntN(5)
				asked.Add(int64(count))
				switch _, err := replicas[buyer%2].Deduct(t.Context(), stock.Request{GoodsID: id, Count: count}); {
				case err == nil:
					sold.Add(int64(count))
				case !errors.Is(err, stock.ErrSoldOut):
					t.Errorf("Deduct: %v", err)
				}
			}
		})
	}
	working.Go(func() {
		for range restocks {
			back.Add(3)
			if _, err := replicas[0].Restock(t.Context(), stock.Slots, id, 3); err != nil {
				t.Errorf("Restock: %v", err)
			}
			added.Add(3)
		}
	})
	done := make(chan struct{})
	reading.Go(func() {
		for reads := 0; ; reads++ {
			most, least := initial-sold.Load(), initial+added.Load()
			units, err := replicas[1].Stock(t.Context(), stock.Slots, id)
			most, least = most+back.Load(), least-asked.Load()
			if err != nil || units < max(least, 0) || units > most {
				t.Errorf("the sum is %d, %v, want %d to %d", units, err, least, most)
			}
			select {
			case <-done:
				if reads < 10 {
					t.Errorf("only %d sums were read", reads)
				}
				return
			default:
			}
		}
	})
	working.Wait()
	close(done)
	reading.Wait()
	if units, err := replicas[0].Stock(t.Context(), stock.Slots, id); err != nil || units != initial+3*restocks-sold.Load() {
		t.Errorf("%d units are left, %v, after %d were sold of %d", units, err, sold.Load(), initial+3*restocks)
	}
}

func TestSlotsTryAgainAfterADeadlock(t *testing.T) {
	t.Parallel()
	e := newSlots(t, stocktest.NewAddresses(t))
	id, other := e.fill(t, slices.Repeat([]int64{1}, 16)...), e.fill(t, make([]int64, 64)...)
	// Out of reach of a blind try, which would wait as well.
	e.deps.MySQL.MustExec("UPDATE good_slot SET slot = slot + 16 WHERE goods_id = ?", id)
	against := e.deps.MySQL.MustBegin()
	defer against.Rollback()
	// The server ends the transaction that has changed less: not this one.
	against.MustExec("UPDATE good_slot SET stock = 1 WHERE goods_id = ?", other)
	against.MustExec("UPDATE good_slot SET stock = 2 WHERE goods_id = ? AND slot = 31", id)
	var receipt stock.Receipt
	done := make(chan error, 1)
	go func() {
		var err error
		receipt, err = e.Deduct(t.Context(), stock.Request{GoodsID: id, Count: 16})
		done <- err
	}()
	waitForRowLock(t, e.deps) // it has locked all but the last
	against.MustExec("UPDATE good_slot SET stock = 1 WHERE goods_id = ? AND slot = 16", id)
	if err := against.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || receipt.Attempts != 3 {
		t.Errorf("%+v, %v, want a receipt after a miss, a deadlock and a third try", receipt, err)
	}
	if units, err := e.Stock(t.Context(), stock.Slots, id); err != nil || units != 1 {
		t.Errorf("%d units are left, %v, want 1", units, err)
	}
}

// In the tail all depends on COMMIT, whose reply can be lost like any other.
func TestALostReplyInTheTailOfSlotsLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t)
	direct := newSlots(t, a)
	config, err := mysql.ParseDSN(a.MySQL)
	if err != nil {
		t.Fatal(err)
	}
	network := newProxy(t, config.Addr, regexp.MustCompile(`COMMIT$`))
	config.Addr = network.addr()
	a.MySQL = config.FormatDSN()
	e := newSlots(t, a)
	for _, test := range []struct {
		cut  cut
		left int64
	}{{beforeSent, 16}, {beforeReply, 13}} {
		id := direct.fill(t, slices.Repeat([]int64{1}, 16)...)
		network.arm(test.cut)
		if _, err := e.Deduct(t.Context(), stock.Request{GoodsID: id, Count: 3}); !errors.Is(err, stock.ErrUnknown) {
			t.Errorf("%v, want outcome unknown", err)
		}
		if left, err := direct.Stock(t.Context(), stock.Slots, id); err != nil || left != test.left {
			t.Errorf("%d units are left, %v, want %d", left, err, test.left)
		}
	}
}

func TestKillingMySQLLosesNoSaleOfSlots(t *testing.T) {
	t.Parallel()
	server := serverstest.StartMySQL(t, servers.MySQLOptions{}) // durable
	dsn, err := server.CreateDatabase(t.Context(), "stock")
	if err != nil {
		t.Fatal(err)
	}
	stocktest.Migrate(t, dsn)
	const initial, buyers, enough = 2000, 8, 200
	deps := stock.Deps{MySQL: stocktest.MySQL(t, dsn), MySQLLocks: stocktest.MySQL(t, dsn)}
	service := stocktest.NewService(t, deps)
	d := service.Deducter(t, "slots", stock.Slots)
	if err := service.SetStock(t.Context(), 1, initial); err != nil {
		t.Fatal(err)
	}
	var sold, unknown atomic.Int64
	var wg sync.WaitGroup
	for buyer := range buyers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(3, uint64(buyer)))
			for {
				count := 1 + rng.IntN(3)
				switch _, err := d.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: count}); {
				case err == nil:
					sold.Add(int64(count))
					continue
				case errors.Is(err, stock.ErrUnknown):
					unknown.Add(int64(count))
				case !errors.Is(err, stock.ErrUnavailable):
					t.Errorf("Deduct: %v", err)
				}
				return
			}
		})
	}
	serverstest.Eventually(t, "much is sold", func() bool { return sold.Load() >= enough })
	server.Kill()
	wg.Wait()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	serverstest.Eventually(t, "MySQL answers", func() bool { return deps.MySQL.PingContext(t.Context()) == nil })
	left, err := service.Stock(t.Context(), stock.Slots, 1)
	if most := initial - sold.Load(); err != nil || left > most || left < most-unknown.Load() {
		t.Errorf("%d units are left, %v, want %d to %d: %d were sold, of %d nobody knows", left, err, most-unknown.Load(), most, sold.Load(), unknown.Load())
	}
}
