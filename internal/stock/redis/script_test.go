package redis_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	stockredis "stock/internal/stock/redis"
	"stock/internal/stock/stocktest"
	"stock/internal/tcpproxy"
)

func TestMain(m *testing.M) { os.Exit(stocktest.Main(m)) }

// newScriptReplica makes a replica of redis-script. Its proxy counts calls of the script. One unit is sold at once, so
// that Redis knows the script.
func newScriptReplica(t testing.TB, units int64) *stocktest.BatchReplica {
	t.Helper()
	proxy, options := stocktest.ProxyRedis(t, stocktest.Servers.Redis(t))
	proxy.Select(stocktest.Matching(stocktest.Evalsha))
	deps := stocktest.Addresses{Redis: options}.Connect(t)
	r := stocktest.NewBatchReplica(t, "redis-script", stock.Redis, deps, proxy, units)
	stocktest.Sell(t, r, stock.Request{GoodsID: r.Item, Count: 1})
	return r
}

func TestWaitingRequestsShareTheNextCallOfTheScript(t *testing.T) {
	t.Parallel()
	r := newScriptReplica(t, 12)
	before := r.Proxy.Count()
	first, others, release := r.Gather(t, 4, 7, 5, 2, 1, 1)
	release()
	stocktest.WantAnswers(t, stocktest.Answers(append([]<-chan stocktest.Answer{first}, others...)...),
		"10 remain", "6 remain", "sold out at 6", "1 remain", "sold out at 1", "0 remain", "sold out at 0")
	if sent := r.Proxy.Count() - before; sent != 2 {
		t.Errorf("%d calls for 7 requests, want 2: one for the first and one for the others", sent)
	}
	r.WantLeft(t, 0)
}

func TestABatchWhoseRequestsHaveAllEndedCostsNoCallOfTheScript(t *testing.T) {
	t.Parallel()
	r := newScriptReplica(t, 5)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := r.Proxy.Count()
	if _, err := r.Deduct(ctx, stock.Request{GoodsID: r.Item, Count: 1}); !errors.Is(err, stock.ErrBusy) {
		t.Errorf("%v, want busy", err)
	}
	if sent := r.Proxy.Count() - before; sent != 0 {
		t.Errorf("%d calls of the script, want none", sent)
	}
	r.WantLeft(t, 4)
}

func TestALostCallOfTheScriptLeavesTheOutcomeOfEveryRequestUnknown(t *testing.T) {
	t.Parallel()
	for where, left := range map[tcpproxy.CutPoint]int64{tcpproxy.BeforeReply: 1, tcpproxy.BeforeRequest: 3} {
		r := newScriptReplica(t, 5)
		first, others, release := r.Gather(t, 2, 4)
		r.Proxy.Cut(1, where)
		release()
		stocktest.WantAnswers(t, stocktest.Answers(first), "3 remain")
		stocktest.WantAnswers(t, stocktest.Answers(others...), "outcome unknown", "outcome unknown")
		r.WantLeft(t, left)
	}
}

// Redis is killed while it sells. What becomes of the stock depends on its append-only file alone.
func TestARestartOfRedisKeepsWhatIsInItsAppendOnlyFile(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"redis-watch", "redis-script"} {
		t.Run(name+", with appendfsync always", func(t *testing.T) {
			t.Parallel()
			const initial = 100_000
			server := serverstest.StartRedis(t, servers.RedisOptions{AOF: true, Fsync: "always"})
			service := newService(t, server, initial)
			sold, unknown := sellUntilKilled(t, service.Deducter(t, name, stock.Redis), server)
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			left, err := service.Stock(t.Context(), stock.Redis, 1)
			if gone := initial - left; err != nil || gone < sold || gone > sold+unknown {
				t.Errorf("%d units are gone, %v, want the %d that were sold and up to %d whose outcome is unknown",
					gone, err, sold, unknown)
			}
		})
		t.Run(name+", without a file", func(t *testing.T) {
			t.Parallel()
			server := serverstest.StartRedis(t, servers.RedisOptions{})
			service := newService(t, server, 10)
			d := service.Deducter(t, name, stock.Redis)
			stocktest.Sell(t, d, stock.Request{GoodsID: 1, Count: 1})
			server.Kill()
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			// The first command may be sent on a broken connection.
			serverstest.Eventually(t, "Redis answers", func() bool {
				_, err := service.Stock(t.Context(), stock.Redis, 1)
				return !errors.Is(err, stock.ErrUnavailable)
			})
			_, err := d.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1})
			if !errors.Is(err, stock.ErrUnknownItem) {
				t.Errorf("Deduct: %v, want unknown item: the stock was lost with Redis", err)
			}
		})
	}
}

// newService makes a service with item 1.
func newService(t *testing.T, server *servers.Redis, units int64) *stocktest.Service {
	t.Helper()
	a := stocktest.Addresses{Redis: &redis.Options{Addr: server.Addr}}
	service := stocktest.NewService(t, a.Connect(t))
	service.Set(t, 1, units)
	return service
}

// sellUntilKilled kills the server after some sales. It returns the units sold and those whose outcome is unknown.
func sellUntilKilled(t *testing.T, d stock.Deducter, server *servers.Redis) (sold, unknown int64) {
	t.Helper()
	const buyers, enough = 8, 50
	var confirmed, lost atomic.Int64
	var wg sync.WaitGroup
	for range buyers {
		wg.Go(func() {
			for {
				switch _, err := d.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1}); {
				case err == nil:
					confirmed.Add(1)
				case errors.Is(err, stock.ErrUnknown):
					lost.Add(1)
					return
				default:
					return
				}
			}
		})
	}
	serverstest.Eventually(t, "some units are sold", func() bool { return confirmed.Load() >= enough })
	server.Kill()
	wg.Wait()
	return confirmed.Load(), lost.Load()
}

// A client that assumes that one master has every hash slot gets MOVED for the items of the others.
func TestRedisStrategiesSellOnACluster(t *testing.T) {
	t.Parallel()
	cluster := serverstest.StartCluster(t)
	connect := func(hashSlots func(context.Context) ([]redis.ClusterSlot, error)) *stocktest.Service {
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: cluster.Addrs, MaxRetries: -1, MaxRedirects: -1, DialerRetries: 1, ClusterSlots: hashSlots,
		})
		t.Cleanup(func() { client.Close() })
		return stocktest.NewService(t, stock.Deps{Redis: client, LockWait: 20 * time.Second})
	}
	service := connect(nil)
	misled := connect(func(context.Context) ([]redis.ClusterSlot, error) {
		nodes := []redis.ClusterNode{{Addr: cluster.Addrs[0]}}
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: nodes}}, nil
	})
	for _, name := range []string{"redis-watch", "redis-script"} {
		sold, refused := 0, 0
		for id := int64(1); id <= 8; id++ { // on all masters
			service.Set(t, id, 10)
			stocktest.Sell(t, service.Deducter(t, name, stock.Redis), stock.Request{GoodsID: id, Count: 1})
			_, err := misled.Deducter(t, name, stock.Redis).Deduct(t.Context(), stock.Request{GoodsID: id, Count: 1})
			want := int64(9)
			switch {
			case err == nil:
				sold++
				want = 8
			case errors.Is(err, stock.ErrUnavailable):
				refused++
			default:
				t.Errorf("%s: %v, want a receipt or unavailable", name, err)
			}
			service.WantLeft(t, stock.Redis, id, want)
		}
		if sold == 0 || refused == 0 {
			t.Errorf("%s: the client that knows one master sold %d items and was refused for %d, want some of both",
				name, sold, refused)
		}
	}
}

// Lua's numbers are exact only up to 2^53, and as text "9" sorts after "10".
func TestTheFenceInRedisComparesTokensOfAnySize(t *testing.T) {
	t.Parallel()
	c := stocktest.Redis(t, stocktest.Servers.Redis(t))
	store := stockredis.Store{Client: c}
	for _, test := range []struct {
		before, token uint64
		accepted      bool
	}{
		{9, 10, true}, {10, 9, false}, {9, 9, false}, {19, 20, true}, {20, 19, false},
		{1 << 53, 1<<53 + 1, true}, {1<<53 + 1, 1 << 53, false},
		{1<<64 - 2, 1<<64 - 1, true}, {1<<64 - 1, 1<<64 - 2, false},
	} {
		err := c.MSet(t.Context(), "stock:{1}", 1, "stock:{1}:fence", strconv.FormatUint(test.before, 10)+" a lock").Err()
		if err != nil {
			t.Fatal(err)
		}
		holder := stock.Holder{Token: test.token, Issuer: "a lock"}
		stocks := []stock.ItemStock{{GoodsID: 1, Units: 1, Read: 1, Holder: holder}}
		err = store.WriteAll(t.Context(), stock.OrderRequest{}, stocks)
		if refused := errors.Is(err, stock.ErrFenced); refused == test.accepted || err != nil && !refused {
			t.Errorf("token %d after %d: %v, want accepted = %v", test.token, test.before, err, test.accepted)
		}
	}
}
