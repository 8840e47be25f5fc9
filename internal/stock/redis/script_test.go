package redis_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers/serverstest"
	"stock/internal/stock"
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
