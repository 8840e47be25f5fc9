package catalogue_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"stock/internal/must"
	"stock/internal/stock"
	"stock/internal/stock/catalogue"
	"stock/internal/stock/stocktest"
	"stock/internal/tcpproxy"
)

// proxies stand before MySQL and Redis.
type proxies struct {
	mysql, redis *tcpproxy.Proxy
}

// newProxies starts proxies, and returns them with the addresses that lead through them.
func newProxies(t testing.TB, a stocktest.Addresses) (proxies, stocktest.Addresses) {
	t.Helper()
	var p proxies
	p.mysql, a.MySQL = stocktest.ProxyMySQL(t, a.MySQL)
	p.redis, a.Redis = stocktest.ProxyRedis(t, a.Redis)
	return p, a
}

// cut cuts the connection of the next selected message to either server.
func (p proxies) cut(where tcpproxy.CutPoint) {
	p.mysql.Cut(1, where)
	p.redis.Cut(1, where)
}

// pass ends cut.
func (p proxies) pass() {
	p.mysql.Pass()
	p.redis.Pass()
}

// The connection is cut before the write of each strategy, or before its reply. The strategy cannot know whether the
// write was carried out, and must not say that nothing was deducted.
func TestALostReplyLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	a := stocktest.NewAddresses(t)
	direct := stocktest.NewService(t, a.Connect(t))
	network, proxied := newProxies(t, a)
	network.mysql.Select(stocktest.Committing(regexp.MustCompile(`UPDATE good_(stock|slot) SET stock|COMMIT$`)))
	const sale = "../redis/lua/sale.lua+" // comes before the scripts that sell
	write := regexp.MustCompile(`(?i)\r\n(?:set|decrby)\r\n\$\d+\r\nstock:|` +
		evalsha(t, a, "../redis/lua/write.lua", sale+"../redis/lua/deduct.lua", sale+"../stream/lua/sell.lua"))
	network.redis.Select(stocktest.Matching(write))
	service := stocktest.NewService(t, proxied.Connect(t))

	for _, strategy := range catalogue.Strategies {
		if strategy.Claim.OneReplica == stock.SellsNothing {
			continue
		}
		for _, on := range strategy.Stores {
			t.Run(strategy.Name+"/"+string(on), func(t *testing.T) {
				d := service.Deducter(t, strategy.Name, on)
				for where, left := range map[tcpproxy.CutPoint]int64{tcpproxy.BeforeRequest: 100, tcpproxy.BeforeReply: 97} {
					id := direct.NewItem(t, 101)                               // enough for each slot to have 3
					stocktest.Sell(t, d, stock.Request{GoodsID: id, Count: 1}) // the first sale of redis-stream opens a stream
					stocktest.Drain(t, direct)
					network.cut(where)
					_, err := d.Deduct(t.Context(), stock.Request{GoodsID: id, Count: 3})
					network.pass()
					direct.WantLeft(t, on, id, left)
					switch {
					case err == nil:
						t.Errorf("cut %s: the deduction was confirmed", where)
					case where == tcpproxy.BeforeReply && !errors.Is(err, stock.ErrUnknown):
						t.Errorf("cut %s: %v, want outcome unknown", where, err)
					}
					stocktest.Drain(t, direct) // or the next cut may hit a sale of redis-stream on its way to MySQL
				}
			})
		}
	}
}

// evalsha loads scripts into Redis and returns a pattern for their calls.
func evalsha(t testing.TB, a stocktest.Addresses, paths ...string) string {
	t.Helper()
	var hashes []string
	for _, path := range paths {
		var text []byte
		for part := range strings.SplitSeq(path, "+") {
			lua, err := os.ReadFile(part)
			must.Succeed(t, err)
			text = append(text, lua...)
		}
		hash, err := stocktest.Redis(t, a.Redis).ScriptLoad(t.Context(), string(text)).Result()
		must.Succeed(t, err)
		hashes = append(hashes, hash)
	}
	return `(?i)evalsha\r\n\$40\r\n(?:` + strings.Join(hashes, "|") + `)`
}

// The request is cancelled while its statement waits for a locked row. It keeps its lock and waits for the answer.
func TestACancelledRequestWaitsForItsWrite(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"update", "batch", "lock-redis-lua"} {
		deps := stocktest.NewAddresses(t, stock.NeedMySQL, stock.NeedRedis).Connect(t)
		service := stocktest.NewService(t, deps)
		d, id := service.Deducter(t, name, stock.MySQL), service.NewItem(t, 10)
		unlock := stocktest.LockRow(t, deps.MySQL, id)
		ctx, cancel := context.WithCancel(t.Context())
		done := stocktest.Start(ctx, d, stock.Request{GoodsID: id, Count: 1})
		stocktest.WaitForRowLock(t, deps.MySQL)
		cancel()
		unlock()
		if err := (<-done).Err; err != nil {
			t.Errorf("%s: %v, want a receipt: the statement was sent and carried out", name, err)
		}
		service.WantLeft(t, stock.MySQL, id, 9)
	}
}
