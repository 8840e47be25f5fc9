package mysql_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

// slotsReplica is a replica whose slots a test can read and change.
type slotsReplica struct {
	*stocktest.Service
	stock.Deducter
	deps stock.Deps
}

func newSlotsReplica(t *testing.T, a stocktest.Addresses) slotsReplica {
	t.Helper()
	deps := a.Connect(t)
	service := stocktest.NewService(t, deps)
	return slotsReplica{service, service.Deducter(t, "slots", stock.Slots), deps}
}

// fill creates an item with these slots.
func (r slotsReplica) fill(t *testing.T, slots ...int64) (goodsID int64) {
	t.Helper()
	id := stocktest.NewItem()
	for i, units := range slots {
		r.deps.MySQL.MustExecContext(t.Context(),
			"INSERT INTO good_slot (goods_id, slot, stock) VALUES (?, ?, ?)", id, i, units)
	}
	return id
}

func (r slotsReplica) wantSlots(t *testing.T, goodsID int64, want ...int64) {
	t.Helper()
	var got []int64
	err := r.deps.MySQL.SelectContext(t.Context(), &got,
		"SELECT stock FROM good_slot WHERE goods_id = ? ORDER BY slot", goodsID)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the slots have %v units, %v, want %v", got, err, want)
	}
}

func (r slotsReplica) wantLeft(t *testing.T, goodsID, want int64) {
	t.Helper()
	r.WantLeft(t, stock.Slots, goodsID, want)
}

// oneFull returns sixteen slots, all but one of them empty.
func oneFull(slot int, units int64) []int64 {
	slots := make([]int64, 16)
	slots[slot] = units
	return slots
}

func TestSlotsSellACountThatNoSingleSlotHas(t *testing.T) {
	t.Parallel()
	r := newSlotsReplica(t, stocktest.NewAddresses(t, stock.NeedMySQL))
	id := r.fill(t, 2, 0, 2, 1, 2, 2, 2, 2)
	_, err := r.Deduct(t.Context(), stock.Request{GoodsID: id, Count: 14})
	if soldOut, ok := errors.AsType[*stock.SoldOutError](err); !ok || soldOut.Remaining != 13 {
		t.Errorf("14 of 13 units: %v, want sold out with 13 remaining", err)
	}
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: 3})
	// The rest is spread so that the next requests for as many units need one slot each.
	r.wantSlots(t, id, 4, 3, 3, 0, 0, 0, 0, 0)
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: 10})
	r.wantSlots(t, id, 0, 0, 0, 0, 0, 0, 0, 0)
}

func TestSetStockAndRestockSpreadTheStockEvenlyOverSixteenSlots(t *testing.T) {
	t.Parallel()
	r := newSlotsReplica(t, stocktest.NewAddresses(t, stock.NeedMySQL))
	id := r.fill(t, slices.Repeat([]int64{9}, 16)...)
	r.Set(t, id, 34)
	r.wantSlots(t, id, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2)
	stocktest.Sell(t, r, stock.Request{GoodsID: id, Count: 3})
	if units, err := r.Restock(t.Context(), stock.Slots, id, 1); err != nil || units != 32 {
		t.Errorf("Restock = %d, %v, want 32", units, err)
	}
	r.wantSlots(t, id, slices.Repeat([]int64{2}, 16)...)
}

// While one request takes units from all slots, the others wait for the slots. None of them is refused.
func TestSlotsAreNotSoldOutWhileOneRequestHasLockedAllOfThem(t *testing.T) {
	t.Parallel()
	for _, at := range []stocktest.Point{stocktest.BeforeWrite, stocktest.BeforeCommit} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			a := stocktest.NewAddresses(t, stock.NeedMySQL)
			r, other := newSlotsReplica(t, a), newSlotsReplica(t, a)
			id := r.fill(t, slices.Repeat([]int64{2}, 16)...)
			writes := 0 // the first one is that of an attempt that finds too little in its slot
			large := stocktest.ParkWhen(t, r, stock.Request{GoodsID: id, Count: 20}, func(point stocktest.Point) bool {
				if point == stocktest.BeforeWrite {
					writes++
				}
				return writes == 2 && point == at
			})
			var wg sync.WaitGroup
			for _, count := range []int{1, 2, 3, 4} {
				wg.Go(func() {
					_, err := other.Deduct(t.Context(), stock.Request{GoodsID: id, Count: count})
					if err != nil {
						t.Errorf("%d of the 12 units that the large request leaves: %v", count, err)
					}
				})
			}
			stocktest.WaitForRowLock(t, r.deps.MySQL)
			other.wantLeft(t, id, 32) // nothing is committed yet
			must.Succeed(t, large.Resume())
			wg.Wait()
			r.wantLeft(t, id, 2)
		})
	}
}

// Each slot that the request tries is empty, because its units have just been moved to another one.
func TestSlotsAreNotSoldOutWhileTheirUnitsMove(t *testing.T) {
	t.Parallel()
	r := newSlotsReplica(t, stocktest.NewAddresses(t, stock.NeedMySQL))
	const moves = 20
	id := r.fill(t, oneFull(0, 5)...)
	moved := 0
	ctx := stocktest.WithPause(t.Context(), func(_ context.Context, at stocktest.Point) {
		if at == stocktest.BeforeWrite && moved < moves {
			moved++
			r.deps.MySQL.MustExec("UPDATE good_slot SET stock = IF(slot = ?, 5, 0) WHERE goods_id = ?", moved%16, id)
		}
	})
	if _, err := r.Deduct(ctx, stock.Request{GoodsID: id, Count: 5}); err != nil {
		t.Errorf("after %d moves: %v, want a receipt, since there were always 5 units", moved, err)
	}
	r.wantSlots(t, id, oneFull(0, 0)...)
}

func TestSlotsRetryAfterADeadlock(t *testing.T) {
	t.Parallel()
	r := newSlotsReplica(t, stocktest.NewAddresses(t, stock.NeedMySQL))
	id, other := r.fill(t, slices.Repeat([]int64{1}, 16)...), r.fill(t, make([]int64, 64)...)
	// The slots have numbers that the first attempt does not choose: it would wait for one of them as well.
	r.deps.MySQL.MustExec("UPDATE good_slot SET slot = slot + 16 WHERE goods_id = ?", id)
	rival := stocktest.Begin(t, r.deps.MySQL)
	// The server rolls back the transaction that has changed less. It must not be this one.
	rival.MustExec("UPDATE good_slot SET stock = 1 WHERE goods_id = ?", other)
	rival.MustExec("UPDATE good_slot SET stock = 2 WHERE goods_id = ? AND slot = 31", id)
	request := r.ask(t, id, 16)
	stocktest.WaitForRowLock(t, r.deps.MySQL) // the request has locked all slots but the last
	rival.MustExec("UPDATE good_slot SET stock = 1 WHERE goods_id = ? AND slot = 16", id)
	must.Succeed(t, rival.Commit())
	if a := <-request; a.Err != nil || a.Receipt.Attempts != 3 {
		t.Errorf("%+v, %v, want a receipt after 3 attempts: a miss, a deadlock and a success", a.Receipt, a.Err)
	}
	r.wantLeft(t, id, 1)
}
