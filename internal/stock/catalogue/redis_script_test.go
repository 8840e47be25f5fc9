package catalogue_test

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
)

func newRedisCrowd(t testing.TB, units int64) crowd {
	p := newProxy(t, stocktest.Servers.Redis(t).Addr, regexp.MustCompile(`(?i)\r\nevalsha\r\n`))
	deps := stock.Deps{Redis: stocktest.Redis(t, &redis.Options{Addr: p.addr()}), LockWait: 20 * time.Second}
	c := crowd{deps: deps, service: stocktest.NewService(t, deps), proxy: p, on: stock.Redis}
	c.Deducter = c.service.Deducter(t, "redis-script", stock.Redis)
	c.goods = c.restock(t, units)
	sell(t, c.Deducter, stock.Request{GoodsID: c.goods, Count: 1}) // Redis knows the script from now on
	return c
}

func TestRequestsThatWaitShareTheNextCallOfTheScript(t *testing.T) {
	t.Parallel()
	c := newRedisCrowd(t, 12)
	before := c.proxy.writes()
	first, others, release := c.gather(t, 4, 7, 5, 2, 1, 1)
	release()
	want(t, outcomes(append([]<-chan answered{first}, others...)...),
		"10 remain", "6 remain", "sold out at 6", "1 remain", "sold out at 1", "0 remain", "sold out at 0")
	if sent := c.proxy.writes() - before; sent != 2 {
		t.Errorf("%d calls for 7 requests, want 1 for the first, and 1 for the others", sent)
	}
	c.wantLeft(t, 0)
}

func TestNobodyWhoSharesACallOfTheScriptThatIsCutIsToldMoreThanUnknown(t *testing.T) {
	t.Parallel()
	for cut, left := range map[cut]int64{beforeReply: 1, beforeSent: 3} {
		c := newRedisCrowd(t, 5)
		first, others, release := c.gather(t, 2, 4)
		c.proxy.arm(cut)
		release()
		want(t, outcomes(first), "3 remain")
		want(t, outcomes(others...), "unknown", "unknown")
		c.wantLeft(t, left)
	}
}

// Redis is killed while it sells. What becomes of the stock depends on nothing but its append-only file.
func TestARestartOfRedisKeepsWhatItsFileHas(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"redis-watch", "redis-script"} {
		t.Run(name+", flushed always", func(t *testing.T) {
			t.Parallel()
			const initial = 100_000
			server := serverstest.StartRedis(t, servers.RedisOptions{AOF: true, Fsync: "always"})
			service := redisService(t, server, initial)
			sold, unknown := sellUntilKilled(t, service.Deducter(t, name, stock.Redis), server)
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			left, err := service.Stock(t.Context(), stock.Redis, 1)
			if gone := initial - left; err != nil || gone < sold || gone > sold+unknown {
				t.Errorf("%d units are gone, %v, want %d, which were sold, and up to %d of unknown outcome", gone, err, sold, unknown)
			}
		})
		t.Run(name+", kept in memory only", func(t *testing.T) {
			t.Parallel()
			server := serverstest.StartRedis(t, servers.RedisOptions{})
			service := redisService(t, server, 10)
			d := service.Deducter(t, name, stock.Redis)
			sell(t, d, stock.Request{GoodsID: 1, Count: 1})
			server.Kill()
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			// The first command may find its connection broken.
			serverstest.Eventually(t, "Redis answers", func() bool {
				_, err := service.Stock(t.Context(), stock.Redis, 1)
				return !errors.Is(err, stock.ErrUnavailable)
			})
			if _, err := d.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1}); !errors.Is(err, stock.ErrUnknownItem) {
				t.Errorf("Deduct: %v, want unknown goods: the stock was lost with Redis", err)
			}
		})
	}
}

func redisService(t *testing.T, server *servers.Redis, units int64) *stocktest.Service {
	deps := stock.Deps{Redis: stocktest.Redis(t, &redis.Options{Addr: server.Addr}), LockWait: 20 * time.Second}
	service := stocktest.NewService(t, deps)
	if err := service.SetStock(t.Context(), 1, units); err != nil {
		t.Fatal(err)
	}
	return service
}

// sellUntilKilled kills the server once some have bought, and returns the units sold and those of unknown outcome.
func sellUntilKilled(t *testing.T, d stock.Deducter, server *servers.Redis) (sold, unknown int64) {
	const buyers, enough = 8, 50
	var acknowledged, open atomic.Int64
	var wg sync.WaitGroup
	for range buyers {
		wg.Go(func() {
			for {
				switch _, err := d.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1}); {
				case err == nil:
					acknowledged.Add(1)
				case errors.Is(err, stock.ErrUnknown):
					open.Add(1)
					return
				default:
					return
				}
			}
		})
	}
	serverstest.Eventually(t, "some have bought", func() bool { return acknowledged.Load() >= enough })
	server.Kill()
	wg.Wait()
	return acknowledged.Load(), open.Load()
}

func TestRedisStrategiesSellOnACluster(t *testing.T) {
	t.Parallel()
	cluster := serverstest.StartCluster(t)
	connect := func(slots func(context.Context) ([]redis.ClusterSlot, error)) *stocktest.Service {
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: cluster.Addrs, MaxRetries: -1, MaxRedirects: -1, DialerRetries: 1, ClusterSlots: slots,
		})
		t.Cleanup(func() { client.Close() })
		return stocktest.NewService(t, stock.Deps{Redis: client, LockWait: 20 * time.Second})
	}
	service := connect(nil)
	// Who believes that one master has every slot is told MOVED for most.
	mistaken := connect(func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: cluster.Addrs[0]}}}}, nil
	})
	for _, name := range []string{"redis-watch", "redis-script"} {
		sold, moved := 0, 0
		for id := int64(1); id <= 8; id++ { // on all masters
			if err := service.SetStock(t.Context(), id, 10); err != nil {
				t.Fatal(err)
			}
			sell(t, service.Deducter(t, name, stock.Redis), stock.Request{GoodsID: id, Count: 1})
			_, err := mistaken.Deducter(t, name, stock.Redis).Deduct(t.Context(), stock.Request{GoodsID: id, Count: 1})
			want := int64(9)
			switch {
			case err == nil:
				sold++
				want = 8
			case errors.Is(err, stock.ErrUnavailable):
				moved++
			default:
				t.Errorf("%s: %v, want a receipt or unavailable", name, err)
			}
			if left, err := service.Stock(t.Context(), stock.Redis, id); err != nil || left != want {
				t.Errorf("%s: %d units of goods %d are left, %v, want %d", name, left, id, err, want)
			}
		}
		if sold == 0 || moved == 0 {
			t.Errorf("%s: of 8 goods %d were sold and %d refused by one who knows one master: want some of both", name, sold, moved)
		}
	}
}
