package guard_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

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

func TestAFenceRefusesTheWriteOfALateHolder(t *testing.T) {
	eachFenced(t, func(t *testing.T, name string, on stock.Store) {
		d := newDuel(t, name, name, on)
		late := stocktest.Park(t, d.first, d.request(1), stock.BeforeWrite)
		d.expireFirst()
		stocktest.Sell(t, d.second, d.request(2))
		wantFenced(t, late.Resume())
		d.wantLeft(t, initial-2)
	})
}

// This is why a holder registers before it reads. If only writes checked the token, the late write would be accepted,
// since no later token has been written yet, and the next holder, which has read before, would overwrite it.
func TestAFenceRefusesALateWriteBetweenTheNextHoldersReadAndWrite(t *testing.T) {
	eachFenced(t, func(t *testing.T, name string, on stock.Store) {
		d := newDuel(t, name, name, on)
		late := stocktest.Park(t, d.first, d.request(1), stock.BeforeWrite)
		d.expireFirst()
		next := stocktest.Park(t, d.second, d.request(2), stock.BeforeWrite)
		wantFenced(t, late.Resume())
		if err := next.Resume(); err != nil {
			t.Errorf("the next holder: %v", err)
		}
		d.wantLeft(t, initial-2)
	})
}

func TestAFenceRefusesALateRegistration(t *testing.T) {
	eachFenced(t, func(t *testing.T, name string, on stock.Store) {
		d := newDuel(t, name, name, on)
		late := stocktest.Park(t, d.first, d.request(1), stock.AfterLock)
		d.expireFirst()
		next := stocktest.Park(t, d.second, d.request(2), stock.BeforeWrite)
		wantFenced(t, late.Resume())
		if err := next.Resume(); err != nil {
			t.Errorf("the next holder: %v", err)
		}
		d.wantLeft(t, initial-2)
	})
}

func TestALockWithoutAFenceLosesAnUpdateToALateHolder(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"lock-redis-expiry", "lock-redis-owner", "lock-redis-lua", "lock-redis-reentrant", "lock-redis-watchdog",
		"lock-redis-pubsub", "lock-redis-fair",
	} {
		for _, on := range bothStores {
			t.Run(name+"/"+string(on), func(t *testing.T) {
				t.Parallel()
				d := newDuel(t, name, name, on)
				late := stocktest.Park(t, d.first, d.request(1), stock.BeforeWrite)
				d.expireFirst()
				stocktest.Sell(t, d.second, d.request(2))
				if err := late.Resume(); err != nil {
					t.Errorf("the late holder: %v, want a receipt", err)
				}
				d.wantLeft(t, initial-1) // the sale of 2 units is lost
			})
		}
	}
}

// Tokens of different locks cannot be compared. The last one to register may write, and the write of the other one is
// refused.
func TestTwoKindsOfLocksOnOneItemLoseNothing(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{"lock-redis-fenced", "lock-redis-queue"},
		{"lock-redis-queue", "lock-etcd"},
		{"lock-etcd", "lock-zookeeper"},
		{"lock-zookeeper", "lock-redis-fenced"},
	} {
		for _, on := range bothStores {
			t.Run(pair[0]+"/"+pair[1]+"/"+string(on), func(t *testing.T) {
				t.Parallel()
				d := newDuel(t, pair[0], pair[1], on)
				stocktest.Sell(t, d.first, d.request(1))
				stocktest.Sell(t, d.second, d.request(1))
				first := stocktest.Park(t, d.first, d.request(1), stock.BeforeWrite)
				second := stocktest.Park(t, d.second, d.request(2), stock.BeforeWrite)
				wantFenced(t, first.Resume())
				if err := second.Resume(); err != nil {
					t.Errorf("the last one to register: %v", err)
				}
				d.wantLeft(t, initial-4)
			})
		}
	}
}

func TestSetStockEndsEveryRegistration(t *testing.T) {
	eachFenced(t, func(t *testing.T, name string, on stock.Store) {
		d := newDuel(t, name, name, on)
		late := stocktest.Park(t, d.first, d.request(1), stock.BeforeWrite)
		d.setStock(t, 100)
		wantFenced(t, late.Resume())
		d.wantLeft(t, 100)
	})
}

func TestRestockEndsTheRegistrationOfAHolderThatHasRead(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stocktest.NewAddresses(t).Connect(t))
	for _, on := range bothStores {
		d, id := service.Deducter(t, "lock-redis-fenced", on), service.NewItem(t, 10)
		holder := stocktest.Park(t, d, stock.Request{GoodsID: id, Count: 1}, stock.BeforeWrite)
		if _, err := service.Restock(t.Context(), on, id, 5); err != nil {
			t.Fatal(err)
		}
		if err := holder.Resume(); !errors.Is(err, stock.ErrFenced) {
			t.Errorf("%s: %v, want fenced", on, err)
		}
		receipt, err := d.Deduct(t.Context(), stock.Request{GoodsID: id, Count: 1})
		if err != nil || receipt.Remaining != 14 {
			t.Errorf("%s: the next holder: %+v, %v, want 14 remaining", on, receipt, err)
		}
	}
}

func TestALockWithoutAFenceLosesARestock(t *testing.T) {
	t.Parallel()
	service := stocktest.NewService(t, stocktest.NewAddresses(t).Connect(t))
	for _, name := range []string{"mutex", "lock-redis-watchdog", "lock-mysql-getlock"} {
		strategy := stocktest.Strategy(t, name)
		if strategy.Claim.Restocked != stock.LosesUpdates {
			t.Errorf("%s claims to be %s beside restocks", name, strategy.Claim.Restocked)
		}
		for _, on := range strategy.Stores {
			d, id := service.Deducter(t, name, on), service.NewItem(t, 10)
			holder := stocktest.Park(t, d, stock.Request{GoodsID: id, Count: 1}, stock.BeforeWrite)
			if _, err := service.Restock(t.Context(), on, id, 5); err != nil {
				t.Fatal(err)
			}
			if err := holder.Resume(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			service.WantLeft(t, on, id, 9) // the restock of 5 units is lost
		}
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
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range bothStores {
		_, err := service.Deducter(t, name, on).Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1})
		wantFenced(t, err)
		for _, part := range []string{
			"the fence of item 1 has token 1152921504606846976 of lock-redis-fenced registered, not token ",
			"set the stock of the item",
		} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("on %s: %q does not contain %q", on, err, part)
			}
		}
	}
	service.Set(t, 1, initial)
	for _, on := range bothStores {
		stocktest.Sell(t, service.Deducter(t, name, on), stock.Request{GoodsID: 1, Count: 1})
	}
}

// asHolder returns a store as seen by a holder who wants one unit.
func asHolder(d stock.Deps, on stock.Store, holder stock.Holder) stock.ReadWriter {
	if on == stock.Redis {
		return redisstore.Store{Client: d.Redis}.WithFence(holder, 1)
	}
	return mysqlstore.Store{DB: d.MySQL}.WithFence(holder, 1)
}

// registerForItem1 registers a holder: its first read does that.
func registerForItem1(ctx context.Context, as stock.ReadWriter) error {
	_, err := as.Read(ctx, 1)
	return err
}

func writeItem1(ctx context.Context, as stock.ReadWriter) error { return as.Write(ctx, 1, 5) }

// Tokens of two issuers may be equal by chance.
func TestARegistrationIsIdentifiedByItsTokenAndItsIssuer(t *testing.T) {
	t.Parallel()
	deps := stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis).Connect(t)
	stocktest.NewService(t, deps).Set(t, 1, initial)
	for _, on := range bothStores {
		for _, step := range []struct {
			do      func(context.Context, stock.ReadWriter) error
			name    string
			issuer  string
			token   uint64
			refused bool
		}{
			{registerForItem1, "registration", "a", 9, false},
			{registerForItem1, "registration", "a", 9, true},
			{writeItem1, "write", "b", 9, true},
			{writeItem1, "write", "a", 9, false},
			{registerForItem1, "registration", "b", 9, false},
			{writeItem1, "write", "a", 9, true},
			{writeItem1, "write", "b", 9, false},
			{registerForItem1, "registration", "b", 10, false},
			{writeItem1, "write", "b", 9, true},
			{registerForItem1, "registration", "b", 8, true},
			{registerForItem1, "registration", "a", 8, false},
		} {
			err := step.do(t.Context(), asHolder(deps, on, stock.Holder{Issuer: step.issuer, Token: step.token}))
			if errors.Is(err, stock.ErrFenced) != step.refused || err != nil && !step.refused {
				t.Errorf("%s: %s of token %d of %s: %v, want refused = %v",
					on, step.name, step.token, step.issuer, err, step.refused)
			}
		}
	}
}

func TestASoldOutRequestDoesNotRegister(t *testing.T) {
	t.Parallel()
	for _, on := range bothStores {
		t.Run(string(on), func(t *testing.T) {
			t.Parallel()
			d := newDuel(t, "lock-redis-fenced", "lock-redis-queue", on)
			registered := stocktest.Park(t, d.first, d.request(1), stock.BeforeWrite)
			_, err := d.second.Deduct(t.Context(), d.request(initial+1))
			wantSoldOut(t, err, initial)
			if err := registered.Resume(); err != nil {
				t.Errorf("the registered holder: %v", err)
			}
			d.setStock(t, -5)
			_, err = d.second.Deduct(t.Context(), d.request(1))
			wantSoldOut(t, err, -5)
		})
	}
}

func wantSoldOut(t testing.TB, err error, remaining int64) {
	t.Helper()
	if soldOut, ok := errors.AsType[*stock.SoldOutError](err); !ok || soldOut.Remaining != remaining {
		t.Errorf("Deduct: %v, want sold out with %d remaining", err, remaining)
	}
}
