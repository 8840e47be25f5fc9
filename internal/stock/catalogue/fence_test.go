package catalogue_test

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"stock/internal/locks/lockstest"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	mysqlstore "stock/internal/stock/mysql"
	redisstore "stock/internal/stock/redis"
	"stock/internal/stock/stocktest"
)

// duel is two replicas that want one goods. The first one's lock is taken away on the server, as happens to a holder
// that is stopped past its lease, and the first one does not hear of it.
type duel struct {
	first, second stock.Deducter
	goods         int64
	left          func() int64
	restock       func(units int64)
	expire        func()
}

const initial = 10 // units

// newDuel has the two replicas use a strategy each.
func newDuel(t *testing.T, first, second string, on stock.Store) duel {
	a := stocktest.NewAddresses(t)
	deps := a.Connect(t)
	service := stocktest.NewService(t, deps)
	network := lockstest.NewProxy(t, a.ZooKeeper)
	a.ZooKeeper = network.Addresses()[0]
	d := duel{first: stocktest.NewService(t, a.Connect(t)).Deducter(t, first, on), second: service.Deducter(t, second, on), goods: stocktest.NewItem()}
	d.left = func() int64 {
		units, err := service.Stock(t.Context(), on, d.goods)
		if err != nil {
			t.Fatal(err)
		}
		return units
	}
	d.restock = func(units int64) {
		if err := service.SetStock(t.Context(), d.goods, units); err != nil {
			t.Fatal(err)
		}
	}
	d.expire = func() {
		if first == "lock-zookeeper" {
			network.BlackHole() // it would tell at once
		}
		expire(t, deps, first, d.goods)
	}
	d.restock(initial)
	return d
}

// expire takes a lock away on its server. The other holders ask for theirs when they renew it, not before.
func expire(t testing.TB, deps stock.Deps, strategy string, goods int64) {
	key := strategy + ":{" + strconv.FormatInt(goods, 10) + "}"
	node := url.PathEscape(key)
	var deleted int
	var err error
	switch strategy {
	case "lock-etcd":
		var reply *clientv3.DeleteResponse
		if reply, err = deps.Etcd.Delete(t.Context(), "locks/"+node+"/", clientv3.WithPrefix()); err == nil {
			deleted = int(reply.Deleted)
		}
	case "lock-zookeeper":
		var waiters []string
		waiters, _, err = deps.ZooKeeper.Children("/stock/" + node)
		for _, waiter := range waiters {
			err = errors.Join(err, deps.ZooKeeper.Delete("/stock/"+node+"/"+waiter, -1))
			deleted++
		}
	default:
		var keys int64
		keys, err = deps.Redis.Del(t.Context(), key).Result()
		deleted = int(keys)
	}
	if err != nil || deleted != 1 {
		t.Fatalf("delete %s: %d, %v", key, deleted, err)
	}
}

// parked is a deduction that stops at a point until it is let go on. Like a stopped process, it does not listen
// meanwhile.
type parked struct {
	open chan struct{}
	done chan error
}

func park(t testing.TB, d stock.Deducter, req stock.Request, at stock.Point) parked {
	p := parked{make(chan struct{}), make(chan error, 1)}
	reached := make(chan struct{})
	req.Pause = func(_ context.Context, point stock.Point) error {
		if point == at {
			close(reached)
			<-p.open
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	go func() {
		_, err := d.Deduct(ctx, req)
		p.done <- err
	}()
	select {
	case <-reached:
	case err := <-p.done:
		t.Fatalf("the request ended before it came to %s: %v", at, err)
	}
	return p
}

func (p parked) goOn() error {
	close(p.open)
	return <-p.done
}

func (d duel) request(count int) stock.Request { return stock.Request{GoodsID: d.goods, Count: count} }

func sell(t testing.TB, d stock.Deducter, req stock.Request) {
	t.Helper()
	if _, err := d.Deduct(t.Context(), req); err != nil {
		t.Fatalf("Deduct: %v", err)
	}
}

// eachFenced visits every fenced strategy on every store, all at the same time.
func eachFenced(t *testing.T, visit func(t *testing.T, name string, on stock.Store)) {
	t.Parallel()
	for _, strategy := range catalogue.Strategies {
		for _, on := range strategy.Stores {
			if strategy.Fenced {
				t.Run(strategy.Name+"/"+string(on), func(t *testing.T) {
					t.Parallel()
					visit(t, strategy.Name, on)
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

func (d duel) wantLeft(t testing.TB, want int64) {
	t.Helper()
	if left := d.left(); left != want {
		t.Errorf("%d units are left, want %d", left, want)
	}
}

func TestAFenceRefusesTheWriteOfALateHolder(t *testing.T) {
	eachFenced(t, func(t *testing.T, name string, on stock.Store) {
		d := newDuel(t, name, name, on)
		late := park(t, d.first, d.request(1), stock.BeforeWrite)
		d.expire()
		sell(t, d.second, d.request(2))
		wantFenced(t, late.goOn())
		d.wantLeft(t, initial-2)
	})
}

// This is why a holder claims before it reads. If the token were looked at by writes alone, the late write would be
// let in, for no later token has written yet, and the next holder, who has read before, would bury it.
func TestAFenceRefusesALateWriteBetweenTheNextHoldersReadAndWrite(t *testing.T) {
	eachFenced(t, func(t *testing.T, name string, on stock.Store) {
		d := newDuel(t, name, name, on)
		late := park(t, d.first, d.request(1), stock.BeforeWrite)
		d.expire()
		next := park(t, d.second, d.request(2), stock.BeforeWrite)
		wantFenced(t, late.goOn())
		if err := next.goOn(); err != nil {
			t.Errorf("the next holder: %v", err)
		}
		d.wantLeft(t, initial-2)
	})
}

func TestAFenceRefusesALateClaim(t *testing.T) {
	eachFenced(t, func(t *testing.T, name string, on stock.Store) {
		d := newDuel(t, name, name, on)
		late := park(t, d.first, d.request(1), stock.AfterLock)
		d.expire()
		next := park(t, d.second, d.request(2), stock.BeforeWrite)
		wantFenced(t, late.goOn())
		if err := next.goOn(); err != nil {
			t.Errorf("the next holder: %v", err)
		}
		d.wantLeft(t, initial-2)
	})
}

func TestALockWithoutAFenceLosesAnUpdateToALateHolder(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"lock-redis-expiry", "lock-redis-owner", "lock-redis-lua", "lock-redis-reentrant", "lock-redis-watchdog", "lock-redis-pubsub", "lock-redis-fair"} {
		for _, on := range []stock.Store{stock.MySQL, stock.Redis} {
			t.Run(name+"/"+string(on), func(t *testing.T) {
				t.Parallel()
				d := newDuel(t, name, name, on)
				late := park(t, d.first, d.request(1), stock.BeforeWrite)
				d.expire()
				sell(t, d.second, d.request(2))
				if err := late.goOn(); err != nil {
					t.Errorf("the late holder: %v, want a receipt for what it sold twice", err)
				}
				d.wantLeft(t, initial-1)
			})
		}
	}
}

// Their tokens cannot be compared. Whoever claims last is let in, and the other one's write is refused.
func TestLocksOfTwoKindsLoseNothingOnOneGoods(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{{"lock-redis-fenced", "lock-redis-queue"}, {"lock-redis-queue", "lock-etcd"}, {"lock-etcd", "lock-zookeeper"}, {"lock-zookeeper", "lock-redis-fenced"}} {
		for _, on := range []stock.Store{stock.MySQL, stock.Redis} {
			t.Run(pair[0]+"/"+pair[1]+"/"+string(on), func(t *testing.T) {
				t.Parallel()
				d := newDuel(t, pair[0], pair[1], on)
				sell(t, d.first, d.request(1))
				sell(t, d.second, d.request(1))
				first := park(t, d.first, d.request(1), stock.BeforeWrite)
				second := park(t, d.second, d.request(2), stock.BeforeWrite)
				wantFenced(t, first.goOn())
				if err := second.goOn(); err != nil {
					t.Errorf("the last to claim: %v", err)
				}
				d.wantLeft(t, initial-4)
			})
		}
	}
}

func TestSettingTheStockEndsEveryClaim(t *testing.T) {
	eachFenced(t, func(t *testing.T, name string, on stock.Store) {
		d := newDuel(t, name, name, on)
		late := park(t, d.first, d.request(1), stock.BeforeWrite)
		d.restock(100)
		wantFenced(t, late.goOn())
		d.wantLeft(t, 100)
	})
}

// A lock service that lost its data counts its tokens from the beginning.
func TestSettingTheStockLetsTokensStartAnew(t *testing.T) {
	t.Parallel()
	deps := stocktest.NewAddresses(t).Connect(t)
	service := stocktest.NewService(t, deps)
	const name, future = "lock-redis-fenced", 1 << 60
	if err := service.SetStock(t.Context(), 1, initial); err != nil {
		t.Fatal(err)
	}
	deps.MySQL.MustExec("UPDATE good_stock SET fence = ?, fence_issuer = ? WHERE goods_id = 1", future, name)
	if err := deps.Redis.Set(t.Context(), "stock:{1}:fence", strconv.Itoa(future)+" "+name, 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, on := range []stock.Store{stock.MySQL, stock.Redis} {
		_, err := service.Deducter(t, name, on).Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1})
		wantFenced(t, err)
		for _, part := range []string{"item 1 was last locked by token 1152921504606846976 of lock-redis-fenced, not by token ", "set the stock of the item"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("on %s: %q does not say %q", on, err, part)
			}
		}
	}
	if err := service.SetStock(t.Context(), 1, initial); err != nil {
		t.Fatal(err)
	}
	for _, on := range []stock.Store{stock.MySQL, stock.Redis} {
		sell(t, service.Deducter(t, name, on), stock.Request{GoodsID: 1, Count: 1})
	}
}

// Tokens of two issuers may be equal by chance.
func TestAClaimIsKnownByItsTokenAndItsIssuer(t *testing.T) {
	t.Parallel()
	deps := stocktest.NewAddresses(t).Connect(t)
	if err := stocktest.NewService(t, deps).SetStock(t.Context(), 1, initial); err != nil {
		t.Fatal(err)
	}
	for _, on := range []stock.Store{stock.MySQL, stock.Redis} {
		for _, step := range []struct {
			do      func(context.Context, stock.ReadWriter) error
			what    string
			issuer  string
			token   uint64
			refused bool
		}{
			{readItem1, "read", "a", 9, false},
			{readItem1, "read", "a", 9, true},
			{writeItem1, "write", "b", 9, true},
			{writeItem1, "write", "a", 9, false},
			{readItem1, "read", "b", 9, false},
			{writeItem1, "write", "a", 9, true},
			{writeItem1, "write", "b", 9, false},
			{readItem1, "read", "b", 10, false},
			{writeItem1, "write", "b", 9, true},
			{readItem1, "read", "b", 8, true},
			{readItem1, "read", "a", 8, false},
		} {
			err := step.do(t.Context(), fenced(deps, on, stock.Holder{Issuer: step.issuer, Token: step.token}))
			if errors.Is(err, stock.ErrFenced) != step.refused || err != nil && !step.refused {
				t.Errorf("%s: %s by token %d of %s: %v, want refused = %v", on, step.what, step.token, step.issuer, err, step.refused)
			}
		}
	}
}

func TestASoldOutRequestClaimsNothing(t *testing.T) {
	t.Parallel()
	for _, on := range []stock.Store{stock.MySQL, stock.Redis} {
		t.Run(string(on), func(t *testing.T) {
			t.Parallel()
			d := newDuel(t, "lock-redis-fenced", "lock-redis-queue", on)
			claimed := park(t, d.first, d.request(1), stock.BeforeWrite)
			_, err := d.second.Deduct(t.Context(), d.request(initial+1))
			wantSoldOut(t, err, initial)
			if err := claimed.goOn(); err != nil {
				t.Errorf("the holder of the claim: %v", err)
			}
			d.restock(-5)
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

// Lua's numbers are exact up to 2^53 only, and as text "9" is after "10".
func TestTheClaimScriptComparesTokensOfAnySize(t *testing.T) {
	t.Parallel()
	c := stocktest.Redis(t, stocktest.NewAddresses(t).Redis)
	claim := redis.NewScript(script(t, "../redis/lua/register.lua"))
	for _, test := range []struct {
		before, token uint64
		claimed       bool
	}{
		{9, 10, true}, {10, 9, false}, {9, 9, false}, {19, 20, true}, {20, 19, false},
		{1 << 53, 1<<53 + 1, true}, {1<<53 + 1, 1 << 53, false}, {1<<64 - 2, 1<<64 - 1, true}, {1<<64 - 1, 1<<64 - 2, false},
	} {
		err := c.MSet(t.Context(), "stock:{1}", 1, "stock:{1}:fence", strconv.FormatUint(test.before, 10)+" a lock").Err()
		if err != nil {
			t.Fatal(err)
		}
		err = claim.Run(t.Context(), c, []string{"stock:{1}", "stock:{1}:fence"}, "a lock", test.token, 1).Err()
		if refused := redis.HasErrorPrefix(err, "FENCED"); refused == test.claimed || err != nil && !refused {
			t.Errorf("token %d after %d: %v, want claimed = %v", test.token, test.before, err, test.claimed)
		}
	}
}

func TestAServiceThatIsClosedLeavesNothingRunning(t *testing.T) {
	a := stocktest.NewAddresses(t) // the first to ask starts the servers
	others := goleak.IgnoreCurrent()
	t.Run("use every strategy", func(t *testing.T) {
		service := stocktest.NewService(t, a.Connect(t))
		id := stocktest.NewItem()
		if err := service.SetStock(t.Context(), id, 1000); err != nil {
			t.Fatal(err)
		}
		for _, strategy := range catalogue.Strategies {
			for _, on := range strategy.Stores {
				sell(t, service.Deducter(t, strategy.Name, on), stock.Request{GoodsID: id, Count: 1})
			}
		}
	})
	goleak.VerifyNone(t, others)
}

// fenced returns a store as seen by a holder who wants one unit.
func fenced(d stock.Deps, on stock.Store, holder stock.Holder) stock.ReadWriter {
	if on == stock.Redis {
		return redisstore.Store{Client: d.Redis}.Fenced(holder, 1)
	}
	return mysqlstore.Store{DB: d.MySQL}.Fenced(holder, 1)
}

func readItem1(ctx context.Context, as stock.ReadWriter) error {
	_, err := as.Read(ctx, 1)
	return err
}

func writeItem1(ctx context.Context, as stock.ReadWriter) error { return as.Write(ctx, 1, 5) }
