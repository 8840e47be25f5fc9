package guard_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	mysqlstore "stock/internal/stock/mysql"
	redisstore "stock/internal/stock/redis"
	"stock/internal/stock/stocktest"
)

// eachFenced runs a test for every fenced strategy on every store, all at the same time.
func eachFenced(t *testing.T, test func(t *testing.T, name string, on stock.Store)) {
	t.Parallel()
	for _, strategy := range catalogue.Strategies {
		for _, on := range strategy.Stores {
			if strategy.Fenced {
				t.Run(strategy.Name+"/"+string(on), func(t *testing.T) {
					t.Parallel()
					test(t, strategy.Name, on)
				})
			}
		}
	}
}

func wantFenced(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, stock.ErrFenced) || !errors.Is(err, stock.ErrBusy) {
		t.Errorf("the late holder: %v, want fenced, which is a kind of busy", err)
	}
}

// A late holder that stopped before its write has read a stock that has changed since, or that a restock brought back.
// What one has read that stopped before its read is still right: this is why a write is not checked against the stock
// alone.
func TestAFenceRefusesTheWriteOfALateHolder(t *testing.T) {
	eachFenced(t, func(t *testing.T, name string, on stock.Store) {
		for _, late := range []struct {
			at       stocktest.Point
			restocks int64
		}{{stocktest.BeforeWrite, 0}, {stocktest.BeforeRead, 0}, {stocktest.BeforeWrite, 2}} {
			d := newDuel(t, name, name, on)
			holder := stocktest.Park(t, d.first, d.request(1), late.at)
			d.expireFirst()
			stocktest.Sell(t, d.second, d.request(2))
			if late.restocks > 0 {
				_, err := d.service.Restock(t.Context(), on, d.item, late.restocks)
				must.Succeed(t, err)
			}
			wantFenced(t, holder.Resume())
			d.wantLeft(t, initial-2+late.restocks)
		}
	})
}

// A token that only writes show does not refuse this late write, since no later token has been written yet. The check
// of the stock keeps the next holder, which has read before, from overwriting it.
func TestALateWriteBetweenTheNextHoldersReadAndWriteIsNotLost(t *testing.T) {
	for _, late := range []stocktest.Point{stocktest.BeforeRead, stocktest.BeforeWrite} {
		t.Run(string(late), func(t *testing.T) {
			eachFenced(t, func(t *testing.T, name string, on stock.Store) {
				d := newDuel(t, name, name, on)
				late := stocktest.Park(t, d.first, d.request(1), late)
				d.expireFirst()
				next := stocktest.Park(t, d.second, d.request(2), stocktest.BeforeWrite)
				if err := late.Resume(); err != nil {
					t.Errorf("the late holder: %v, want a receipt: nobody has written since it read", err)
				}
				err := next.Resume()
				if err != nil || next.Receipt.Attempts != 2 || next.Receipt.Remaining != initial-3 {
					t.Errorf("the next holder: %+v, %v, want %d left at the second attempt", next.Receipt, err, initial-3)
				}
				d.wantLeft(t, initial-3)
			})
		})
	}
}

func TestAHolderWhoseStockChangesAtEveryTryGivesUp(t *testing.T) {
	t.Parallel()
	o := stocktest.NewOrders(t, stocktest.NewAddresses(t), 10, 10)
	for _, on := range bothStores {
		restocks := int64(0)
		var last stocktest.Point
		restock := func(ctx context.Context, at stocktest.Point) {
			if at == stocktest.BeforeWrite && last == stocktest.AfterRead { // the first write of a try
				restocks++
				if _, err := o.Service.Restock(ctx, on, o.Items[1], 1); err != nil {
					t.Error(err)
				}
			}
			last = at
		}
		_, err := o.Service.Deducter(t, "lock-redis-fenced", on).Deduct(stocktest.WithPause(t.Context(), restock),
			stock.Request{GoodsID: o.Items[1], Count: 1})
		if !errors.Is(err, stock.ErrChanged) || !errors.Is(err, stock.ErrBusy) || restocks != 10 {
			t.Errorf("on %s: %v after %d tries, want busy after 10", on, err, restocks)
		}
		if on != stock.MySQL {
			o.WantLeft(on, 10, 20)
			continue
		}
		_, err = o.Place("lock-redis-fenced", on, restock, 1, 1)
		line, isLine := errors.AsType[*stock.LineError](err)
		if !isLine || line.GoodsID != o.Items[1] || !errors.Is(err, stock.ErrChanged) || restocks != 20 {
			t.Errorf("an order on %s: %v after %d tries, want item %d changed after 10", on, err, restocks-10, o.Items[1])
		}
		o.WantLeft(on, 10, 30)
	}
}

// A lock service that has lost its data issues its first tokens again.
func TestSetStockAcceptsTokensThatStartAgain(t *testing.T) {
	t.Parallel()
	deps := stocktest.NewAddresses(t).Connect(t)
	service := stocktest.NewService(t, deps)
	const name, future = "lock-redis-fenced", 1 << 60
	service.Set(t, 1, initial)
	deps.MySQL.MustExec("UPDATE good_stock SET fence = ?, fence_issuer = ? WHERE goods_id = 1", future, name)
	err := deps.Redis.Set(t.Context(), "stock:{1}:fence", strconv.Itoa(future)+" "+name, 0).Err()
	must.Succeed(t, err)
	for _, on := range bothStores {
		_, err := service.Deducter(t, name, on).Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1})
		wantFenced(t, err)
		if !strings.Contains(err.Error(), "token 1152921504606846976") || !strings.Contains(err.Error(), "set the stock") {
			t.Errorf("on %s: %v, want the token of the last sale, and what to do", on, err)
		}
	}
	service.Set(t, 1, initial)
	for _, on := range bothStores {
		stocktest.Sell(t, service.Deducter(t, name, on), stock.Request{GoodsID: 1, Count: 1})
	}
}

// sellAs writes to an item as the holder of a token, and leaves the stock as it is.
func sellAs(ctx context.Context, d stock.Deps, on stock.Store, goodsID int64, holder stock.Holder) error {
	store := mysqlstore.Store{DB: d.MySQL}.As(holder, stock.Request{})
	if on == stock.Redis {
		store = redisstore.Store{Client: d.Redis}.As(holder, stock.Request{})
	}
	units, err := store.Read(ctx, goodsID)
	if err != nil {
		return err
	}
	return store.Write(ctx, goodsID, units)
}

// Tokens of two issuers may be equal by chance. Lua's numbers are exact only up to 2^53, and as text "9" sorts after
// "10".
func TestASaleIsIdentifiedByItsTokenAndItsIssuer(t *testing.T) {
	t.Parallel()
	deps := stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis).Connect(t)
	stocktest.NewService(t, deps).Set(t, 1, initial)
	for _, on := range bothStores {
		for _, step := range []struct {
			issuer  string
			token   uint64
			refused bool
		}{
			{"a", 9, false}, {"a", 9, true}, {"a", 8, true}, {"a", 10, false}, {"a", 9, true},
			{"b", 10, false}, {"b", 9, true}, {"a", 8, false},
			{"a", 19, false}, {"a", 20, false}, {"a", 19, true}, {"a", 1<<53 + 1, false}, {"a", 1 << 53, true},
			{"a", 1<<63 + 1, false}, {"a", 1 << 63, true}, {"a", 1<<63 + 2, false},
			{"a", 1<<64 - 1, false}, {"a", 1<<64 - 2, true},
		} {
			err := sellAs(t.Context(), deps, on, 1, stock.Holder{Issuer: step.issuer, Token: step.token})
			if errors.Is(err, stock.ErrFenced) != step.refused || err != nil && !step.refused {
				t.Errorf("%s: a sale with token %d of %s: %v, want refused = %v",
					on, step.token, step.issuer, err, step.refused)
			}
		}
	}
}
