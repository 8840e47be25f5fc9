package mysql_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/mysql"
	"stock/internal/stock/stocktest"
)

// unitsReplica is a replica whose rows of units a test can count.
type unitsReplica struct {
	*stocktest.Service
	stock.Deducter
	deps stock.Deps
}

func newUnitsReplica(t *testing.T, a stocktest.Addresses) unitsReplica {
	t.Helper()
	deps := a.Connect(t)
	service := stocktest.NewService(t, deps)
	return unitsReplica{service, service.Deducter(t, "units", stock.Units), deps}
}

func (r unitsReplica) wantRows(t *testing.T, goodsID, want int64) {
	t.Helper()
	var rows int64
	err := r.deps.MySQL.GetContext(t.Context(), &rows, "SELECT COUNT(*) FROM good_unit WHERE goods_id = ?", goodsID)
	if err != nil || rows != want {
		t.Errorf("item %d has %d rows, %v, want %d", goodsID, rows, err, want)
	}
}

func TestUnitsGetTheirRowsAThousandAtATime(t *testing.T) {
	t.Parallel()
	r := newUnitsReplica(t, stocktest.NewAddresses(t, stock.NeedMySQL))
	id := r.NewItem(t, stock.MaxStock)
	r.wantRows(t, id, 0)
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: 1})
	r.wantRows(t, id, 999)
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: 1000})
	r.wantRows(t, id, 999)
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: stock.MaxCount}) // without rows
	r.wantRows(t, id, 999)
	r.WantLeft(t, stock.Units, id, stock.MaxStock-1001-stock.MaxCount)
	r.Set(t, id, 1500)
	r.wantRows(t, id, 0)
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: 1})
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: 1400}) // from both
	r.WantLeft(t, stock.Units, id, 99)
	r.wantRows(t, id, 99)
}

// deletes starts a request that has deleted its units when deletes returns. giveUp ends the request, and its sale is
// rolled back.
func deletes(t *testing.T, r unitsReplica, req stock.Request) (giveUp func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	deleted, goOn := make(chan struct{}), make(chan struct{})
	pause := stocktest.Once(stocktest.AfterWrite, func(context.Context) {
		close(deleted)
		<-goOn
		cancel()
	})
	answer := stocktest.Start(stocktest.WithPause(ctx, pause), r, req)
	<-deleted
	return func() {
		t.Helper()
		close(goOn)
		if err := (<-answer).Err; !errors.Is(err, context.Canceled) {
			t.Errorf("who gave up: %v", err)
		}
	}
}

// A buyer who has locked all units gives up. Those who wait for them are sold some.
func TestUnitsAreNotSoldOutWhileOneRequestHasLockedAllOfThem(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	r, other := newUnitsReplica(t, a), newUnitsReplica(t, a)
	id := r.NewItem(t, 4)
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: 1}) // makes the rows of the others
	giveUp := deletes(t, r, stock.Request{GoodsID: id, Count: 3})
	second := stocktest.Start(t.Context(), other, stock.Request{GoodsID: id, Count: 2})
	stocktest.WaitForRowLock(t, other.deps.MySQL)
	giveUp()
	must.Succeed(t, (<-second).Err) // the units were only locked
	r.WantLeft(t, stock.Units, id, 1)
}

// With few rows, a server that scans the table would wait for the rows of the other item.
func TestUnitsOfAnItemDoNotWaitForThoseOfAnother(t *testing.T) {
	t.Parallel()
	r := newUnitsReplica(t, stocktest.NewAddresses(t, stock.NeedMySQL))
	held, free := r.NewItem(t, 17), r.NewItem(t, 16)
	stocktest.Sell(t, r, stock.Request{GoodsID: held, Count: 1}) // makes the rows of the others
	parked := stocktest.Park(t, r, stock.Request{GoodsID: held, Count: 16}, stocktest.BeforeWrite)
	_, err := r.Deduct(t.Context(), stock.Request{GoodsID: free, Count: 15})
	must.Succeed(t, err)
	must.Succeed(t, r.SetStock(t.Context(), free, 3))
	must.Succeed(t, parked.Resume())
}

// A sale has locked units when it reads the epoch of the item, which whoever sets the stock locks first.
func TestASaleOfUnitsWithAKeyDoesNotDeadlockWithASet(t *testing.T) {
	t.Parallel()
	r := newUnitsReplica(t, stocktest.NewAddresses(t, stock.NeedMySQL))
	id := r.NewItem(t, 4)
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: 1}) // makes the rows of the others
	parked := stocktest.Park(t, r, stock.Request{GoodsID: id, Count: 2, Key: "k"}, stocktest.AfterWrite)
	set := make(chan error, 1)
	go func() { set <- r.SetStock(t.Context(), id, 50) }()
	stocktest.WaitForRowLock(t, r.deps.MySQL)
	must.Succeed(t, parked.Resume())
	must.Succeed(t, <-set)
	r.WantLeft(t, stock.Units, id, 50)
}

func TestAUnitThatABuyerGaveUpIsSoldAfterThoseBehindIt(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	r, other := newUnitsReplica(t, a), newUnitsReplica(t, a)
	id := r.NewItem(t, 3)
	one := stock.Request{GoodsID: id, Count: 1}
	stocktest.Sell(t, r, one)
	giveUp := deletes(t, other, one)
	stocktest.Sell(t, r, one) // the last unit
	giveUp()
	stocktest.Sell(t, r, one)
	if _, err := r.Deduct(t.Context(), one); !errors.Is(err, stock.ErrSoldOut) {
		t.Errorf("after all units were sold: %v", err)
	}
}

// What a replica knows of an item is kept in one of 256 places.
func TestUnitsOfItemsThatShareAPlaceAreSold(t *testing.T) {
	t.Parallel()
	r := newUnitsReplica(t, stocktest.NewAddresses(t, stock.NeedMySQL))
	first := r.NewItem(t, 4)
	second := first - 256*1000 // no other test has it
	r.Set(t, second, 4)
	for _, sale := range []stock.Request{
		{GoodsID: first, Count: 3}, {GoodsID: second, Count: 1}, {GoodsID: first, Count: 1}, {GoodsID: second, Count: 3},
	} {
		stocktest.Sell(t, r, sale)
	}
	r.WantLeft(t, stock.Units, first, 0)
	r.WantLeft(t, stock.Units, second, 0)
}

// A replica that has just started does not know yet which units have rows.
func TestABuyerWhoDoesNotWaitGetsUnitsFromANewReplica(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	r := newUnitsReplica(t, a)
	id := r.NewItem(t, 3000)
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: 999})
	r.wantRows(t, id, 1)
	_, err := newUnitsReplica(t, a).Deduct(stock.LimitWait(t.Context(), 0), stock.Request{GoodsID: id, Count: 2})
	must.Succeed(t, err)
	r.wantRows(t, id, 999)
}

// Others take the rows that a buyer has made, twice. Nothing was locked, so the buyer is not told "busy".
func TestABuyerWhoDoesNotWaitGetsUnitsAlthoughOthersTookTheRowsThatItMade(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	r, other := newUnitsReplica(t, a), newUnitsReplica(t, a)
	id := r.NewItem(t, 5000)
	taken := 0
	ctx := stocktest.WithPause(stock.LimitWait(t.Context(), 0), func(_ context.Context, at stocktest.Point) {
		if at == stocktest.AfterWrite && taken < 2 {
			taken++
			stocktest.Sell(t, other, stock.Request{GoodsID: id, Count: 1000})
		}
	})
	_, err := r.Deduct(ctx, stock.Request{GoodsID: id, Count: 1})
	must.Succeed(t, err)
	r.WantLeft(t, stock.Units, id, 2999)
	r.wantRows(t, id, 999)
}

func TestNothingIsSoldIfALockedUnitIsGone(t *testing.T) {
	t.Parallel()
	r := newUnitsReplica(t, stocktest.NewAddresses(t, stock.NeedMySQL))
	id := r.NewItem(t, 3)
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: 1}) // makes the rows of the others
	err := mysql.New(r.deps).InTx(t.Context(), []int64{id}, mysql.ReadCommitted, func(tx mysql.Tx) error {
		return mysql.DeleteUnits(t.Context(), tx, id, []int64{2, 4})
	})
	if err == nil || !strings.Contains(err.Error(), "1 of 2 locked units") {
		t.Errorf("with one unit of two: %v", err)
	}
	r.WantLeft(t, stock.Units, id, 2)
}

func TestTheLastUnitsOfAnItemDoNotWaitForTheItemBehindIt(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	r, other := newUnitsReplica(t, a), newUnitsReplica(t, a)
	id, next := r.NewItem(t, 3), r.NewItem(t, 3)
	for _, item := range []int64{id, next} { // makes the rows of the others
		stocktest.Sell(t, r, stock.Request{GoodsID: item, Count: 1})
	}
	behind := stocktest.Park(t, r, stock.Request{GoodsID: next, Count: 2}, stocktest.BeforeWrite)
	first := stocktest.Park(t, other, stock.Request{GoodsID: id, Count: 1}, stocktest.AfterWrite)
	second := stocktest.Start(t.Context(), r, stock.Request{GoodsID: id, Count: 2})
	stocktest.WaitForRowLock(t, r.deps.MySQL)
	must.Succeed(t, first.Resume())
	if err := (<-second).Err; !errors.Is(err, stock.ErrSoldOut) {
		t.Errorf("for two units, of which one is left: %v", err)
	}
	must.Succeed(t, behind.Resume())
}
