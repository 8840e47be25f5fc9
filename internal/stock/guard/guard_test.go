package guard_test

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
	"stock/internal/tcpproxy"
)

// Items can be moved from one lock to the other while some replicas use the old lock and others use both.
func TestLockMultiAndEachOfItsLocksExcludeEachOther(t *testing.T) {
	t.Parallel()
	for _, single := range []string{"lock-redis-watchdog", "lock-mysql-getlock"} {
		for _, pair := range [][2]string{{single, "lock-multi"}, {"lock-multi", single}} {
			t.Run(pair[0]+" excludes "+pair[1], func(t *testing.T) {
				t.Parallel()
				d := newDuel(t, pair[0], pair[1], stock.MySQL)
				holder := stocktest.Park(t, d.first, d.request(1), stocktest.BeforeWrite)
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				if _, err := d.second.Deduct(ctx, d.request(2)); !errors.Is(err, stock.ErrBusy) {
					t.Errorf("while the lock is held: %v, want busy", err)
				}
				must.Succeed(t, holder.Resume())
				stocktest.Sell(t, d.second, d.request(2))
				d.wantLeft(t, initial-3)
			})
		}
	}
}

// If the lock were released while the write may be on its way, the next holder could read before the write arrives.
func TestALockWithoutAFenceIsKeptWhileTheOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis)
	proxy, dsn := stocktest.ProxyMySQL(t, a.MySQL)
	proxy.Select(stocktest.Committing(regexp.MustCompile(`UPDATE good_stock SET stock`)))
	a.MySQL = dsn
	deps := a.Connect(t)
	service := stocktest.NewService(t, deps)
	for name, kept := range map[string]bool{
		"lock-redis-lua":    true,
		"lock-redis-fenced": false, // the next holder reads the write, or one of the two is refused
	} {
		service.Set(t, 1, 10)
		proxy.Cut(1, tcpproxy.BeforeReply)
		_, err := service.Deducter(t, name, stock.MySQL).Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1})
		if !errors.Is(err, stock.ErrUnknown) {
			t.Fatalf("%s: %v, want outcome unknown", name, err)
		}
		if left := deps.Redis.PTTL(t.Context(), name+":{1}").Val(); (left > 0) != kept {
			t.Errorf("%s: the lease lasts for another %v, want kept = %v", name, left, kept)
		}
	}
}

func TestALostLeaseEndsTheDeduction(t *testing.T) {
	t.Parallel()
	deps := stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis, stock.NeedRedlock).Connect(t)
	deps.Lease = 200 * time.Millisecond
	service := stocktest.NewService(t, deps)
	for _, name := range []string{ // none of them renews its lease
		"lock-redis-expiry", "lock-redis-owner", "lock-redis-lua", "lock-redis-reentrant", "lock-redlock",
	} {
		for _, on := range bothStores {
			service.Set(t, 1, 10)
			req := stock.Request{GoodsID: 1, Count: 1, Hold: stock.MaxHold}
			if _, err := service.Deducter(t, name, on).Deduct(t.Context(), req); !errors.Is(err, stock.ErrBusy) {
				t.Errorf("%s on %s: %v, want busy: the lease ended before the write", name, on, err)
			}
			service.WantLeft(t, on, 1, 10)
		}
	}
}

// A server without a free connection is not unavailable: a connection will become free.
func TestALockWithoutAFreeConnectionIsBusy(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis)
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		deps := a.Connect(t)
		full := redis.NewClient(&redis.Options{
			Addr: a.Redis.Addr, DB: a.Redis.DB, PoolSize: 1, PoolTimeout: time.Millisecond, MaxRetries: -1,
		})
		defer full.Close()
		taken := full.Conn()
		defer taken.Close()
		must.Succeed(t, taken.Ping(t.Context()).Err())
		item := stocktest.NewService(t, deps).NewItem(t, 10)
		deps.Redis = full
		wantBusy(t, stocktest.NewService(t, deps).Deducter(t, "lock-redis-lua", stock.MySQL), item)
	})
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		options := servers.MySQLOptions{Relaxed: true, Args: []string{"--max-connections=10"}}
		_, dsn := serverstest.StartDatabase(t, options)
		deps := a.Connect(t)
		deps.MySQLLocks = stocktest.MySQL(t, dsn)
		service := stocktest.NewService(t, deps)
		others := stocktest.MySQL(t, dsn)
		var err error
		for err == nil {
			_, err = others.Conn(t.Context())
		}
		if number, ok := errors.AsType[*mysql.MySQLError](err); !ok || number.Number != 1040 {
			t.Fatalf("%v, want error 1040, too many connections", err)
		}
		wantBusy(t, service.Deducter(t, "lock-mysql-getlock", stock.Redis), service.NewItem(t, 10))
	})
}

func wantBusy(t testing.TB, d stock.Deducter, item int64) {
	t.Helper()
	_, err := d.Deduct(t.Context(), stock.Request{GoodsID: item, Count: 1})
	if !errors.Is(err, stock.ErrBusy) || errors.Is(err, stock.ErrUnavailable) {
		t.Errorf("Deduct: %v, want busy", err)
	}
}
