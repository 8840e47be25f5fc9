package mysql_test

import (
	"slices"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// newEscrowReplica makes a replica. The first one of a database sells from slot 1, the next one from slot 2.
func newEscrowReplica(t *testing.T, a stocktest.Addresses) slotsReplica {
	t.Helper()
	deps := a.Connect(t)
	service := stocktest.NewService(t, deps)
	r := slotsReplica{service, service.Deducter(t, "escrow", stock.Slots), deps}
	stocktest.Sell(t, r, stock.Request{GoodsID: r.fill(t, 1), Count: 1})
	return r
}

// ask starts a deduction.
func (r slotsReplica) ask(t *testing.T, goodsID int64, count int) <-chan stocktest.Answer {
	return stocktest.Start(t.Context(), r, stock.Request{GoodsID: goodsID, Count: count})
}

// slots returns sixteen slots, of which the first ones have these units.
func slots(units ...int64) []int64 { return append(units, make([]int64, 16-len(units))...) }

func TestReplicasSellFromDifferentSlots(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	r, other := newEscrowReplica(t, a), newEscrowReplica(t, a)
	id := r.fill(t, slices.Repeat([]int64{10}, 16)...)
	for range 3 {
		stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: 2})
		stocktest.Sell(t, other, stock.Request{GoodsID: id, Count: 1})
	}
	want := slices.Repeat([]int64{10}, 16)
	want[1], want[2] = 4, 7
	r.wantSlots(t, id, want...)
}

// Slots that nobody sells from are emptied, and the others are filled so that they run out at the same time.
func TestUnitsAreDrawnInProportionToWhatTheReplicasSell(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	r, other := newEscrowReplica(t, a), newEscrowReplica(t, a)
	id := r.fill(t, slices.Repeat([]int64{10}, 16)...)
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: 9})
	stocktest.Sell(t, other, stock.Request{GoodsID: id, Count: 3})
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: 2}) // 146 are left, after sales of 11 and 3
	r.wantSlots(t, id, slots(0, 115, 31)...)
	// The next time, only what was sold since then counts.
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: 100})
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: 20})
	r.wantSlots(t, id, slots(0, 26)...)
}

func TestADrawOfTheLargestStockLosesNoUnit(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL)
	r, other := newEscrowReplica(t, a), newEscrowReplica(t, a)
	id := r.NewItem(t, stock.MaxStock)
	stocktest.Sell(t, other, stock.Request{GoodsID: id, Count: stock.MaxStock / 17})
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: stock.MaxStock / 3})
	r.wantLeft(t, id, stock.MaxStock-stock.MaxStock/17-stock.MaxStock/3)
}

// Another replica draws the units of this one's slot while this one waits for it.
func TestAReplicaWhoseUnitsWereDrawnSellsFromOtherSlots(t *testing.T) {
	t.Parallel()
	r := newEscrowReplica(t, stocktest.NewAddresses(t, stock.NeedMySQL))
	id := r.fill(t, oneFull(1, 5)...)
	other := stocktest.Begin(t, r.deps.MySQL)
	other.MustExec("UPDATE good_slot SET stock = IF(slot = 9, 5, 0) WHERE goods_id = ?", id)
	request := r.ask(t, id, 2)
	stocktest.WaitForRowLock(t, r.deps.MySQL)
	must.Succeed(t, other.Commit())
	stocktest.WantAnswers(t, stocktest.Answers(request), "0 remain")
	r.wantSlots(t, id, slots(0, 3)...)
}

// The last unit is sold after the request has counted it and before it has locked it.
func TestADrawDecidesByTheStockThatItHasLocked(t *testing.T) {
	t.Parallel()
	r := newEscrowReplica(t, stocktest.NewAddresses(t, stock.NeedMySQL))
	id := r.fill(t, oneFull(15, 1)...)
	other := stocktest.Begin(t, r.deps.MySQL)
	other.MustExec("UPDATE good_slot SET stock = 0 WHERE goods_id = ? AND slot = 15", id)
	request := r.ask(t, id, 1)
	stocktest.WaitForRowLock(t, r.deps.MySQL) // a plain read does not wait
	must.Succeed(t, other.Commit())
	stocktest.WantAnswers(t, stocktest.Answers(request), "sold out at 0")
	r.wantLeft(t, id, 0)
}
