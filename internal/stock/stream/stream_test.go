package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/inventory"
	"stock/internal/stock/stocktest"
	"stock/internal/stock/stream"
)

// streamReplica is a replica that sells by redis-stream and takes over from others within a moment.
type streamReplica struct {
	deps    stock.Deps
	service *stocktest.Service
	stock.Deducter
}

// newStreamReplica takes over entries that are not acknowledged for lease; it is closed after the test at the latest.
func newStreamReplica(t testing.TB, deps stock.Deps, lease time.Duration) streamReplica {
	t.Helper()
	deps.Lease = lease
	service := stocktest.NewService(t, deps, stocktest.Strategy(t, "redis-stream"))
	return streamReplica{deps, service, service.Deducter(t, "redis-stream", stock.Redis)}
}

func (r streamReplica) set(t testing.TB, id, units int64) {
	t.Helper()
	if err := r.service.SetStock(t.Context(), id, units); err != nil {
		t.Fatal(err)
	}
}

func (r streamReplica) sell(t testing.TB, id int64, count int) {
	t.Helper()
	if _, err := r.Deduct(t.Context(), stock.Request{GoodsID: id, Count: count}); err != nil {
		t.Fatal(err)
	}
}

// wantStock waits for the streams to be empty first.
func (r streamReplica) wantStock(t testing.TB, id, inRedis, inMySQL int64) {
	t.Helper()
	stocktest.Drain(t, r.service)
	for on, want := range map[stock.Store]int64{stock.Redis: inRedis, stock.MySQL: inMySQL} {
		if got, err := r.service.Stock(t.Context(), on, id); err != nil || got != want {
			t.Errorf("%d units are left in %s, %v, want %d", got, on, err, want)
		}
	}
}

// recorded are the units of a goods in stream_sale.
func (r streamReplica) recorded(t testing.TB, id int64) (units int64) {
	t.Helper()
	if err := r.deps.MySQL.Get(&units, "SELECT COALESCE(SUM(units), 0) FROM stream_sale WHERE goods_id = ?", id); err != nil {
		t.Fatal(err)
	}
	return units
}

// streamServers are a MySQL database and a Redis of the test's own.
func streamServers(t testing.TB, options servers.RedisOptions) (stocktest.Addresses, *servers.Redis) {
	a := stocktest.Addresses{MySQL: stocktest.NewDatabase(t)}
	server := serverstest.StartRedis(t, options)
	a.Redis = &redis.Options{Addr: server.Addr}
	return a, server
}

// connect makes the connections that redis-stream needs.
func connect(t testing.TB, a stocktest.Addresses) stock.Deps {
	mysql := stocktest.MySQL(t, a.MySQL)
	return stock.Deps{MySQL: mysql, MySQLLocks: mysql, Redis: stocktest.Redis(t, a.Redis)}
}

// A replica without the right to delete entries is one that dies between COMMIT and XACK, every time.
func TestSalesAreDeductedOnceWhenTheConsumerDiesBetweenCommitAndXAck(t *testing.T) {
	t.Parallel()
	a, server := streamServers(t, servers.RedisOptions{})
	admin := stocktest.Redis(t, a.Redis)
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "dying", "on", ">secret", "~*", "&*", "+@all", "-xdel", "-xack").Err(); err != nil {
		t.Fatal(err)
	}
	deps := connect(t, a)
	deps.Redis = stocktest.Redis(t, &redis.Options{Addr: server.Addr, Username: "dying", Password: "secret"})
	dying := newStreamReplica(t, deps, time.Hour)
	dying.set(t, 1, 10)
	dying.sell(t, 1, 2)
	serverstest.Eventually(t, "the sale is committed", func() bool { return dying.recorded(t, 1) == 2 })
	dying.sell(t, 1, 1)
	if err := dying.service.Close(); err != nil {
		t.Fatal(err)
	}
	if backlog, err := dying.service.Backlog(t.Context()); err != nil || backlog.Sales != 2 || backlog.Age <= 0 {
		t.Fatalf("the backlog is %+v, %v, want the sale that was not acknowledged and the one after it", backlog, err)
	}
	heir := newStreamReplica(t, connect(t, a), 50*time.Millisecond)
	heir.wantStock(t, 1, 7, 7)
	if units := heir.recorded(t, 1); units != 3 {
		t.Errorf("%d units are recorded, want 3", units)
	}
}

// The first replica has entries delivered and cannot write them, since its MySQL is out of reach.
func TestTheEntriesOfADeadReplicaAreClaimedByAnother(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	other := newStreamReplica(t, connect(t, a), 50*time.Millisecond)
	other.set(t, 1, 10)
	deps := connect(t, a)
	deps.MySQL = stocktest.MySQL(t, "root@tcp(127.0.0.1:1)/nowhere")
	dead := newStreamReplica(t, deps, time.Hour)
	dead.sell(t, 1, 4)
	delivered := func() bool {
		pending, err := deps.Redis.XPending(t.Context(), "stock:{1}:sales", "stock").Result()
		backlog, _ := other.service.Backlog(t.Context())
		return err == nil && pending.Count == 1 || backlog.Sales == 0 // or claimed already
	}
	serverstest.Eventually(t, "the entry is delivered", delivered)
	if err := dead.service.Close(); err != nil {
		t.Fatal(err)
	}
	other.wantStock(t, 1, 6, 6)
}

// Many sales of several goods, by two replicas that claim each other's entries all the time.
func TestReplicasThatShareAStreamWriteEachSaleOnce(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	replicas := []streamReplica{
		newStreamReplica(t, connect(t, a), time.Millisecond),
		newStreamReplica(t, connect(t, a), time.Millisecond),
	}
	const goods, buyers, sales = 3, 8, 60
	for id := range int64(goods) {
		replicas[0].set(t, 1+id, 1000)
	}
	var wg sync.WaitGroup
	for buyer := range buyers {
		wg.Go(func() {
			for i := range sales {
				_, err := replicas[buyer%2].Deduct(t.Context(), stock.Request{GoodsID: 1 + int64(i%goods), Count: 1 + i%2})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for id := range int64(goods) {
		replicas[0].wantStock(t, 1+id, 1000-sales*buyers/goods*3/2, 1000-sales*buyers/goods*3/2)
	}
}

// In Redis, the last sale before SetStock is not deducted from the new stock, whoever comes first to MySQL.
func TestSetStockEndsOlderEntries(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	deps := connect(t, a)
	deps.MySQL = stocktest.MySQL(t, "root@tcp(127.0.0.1:1)/nowhere")
	blind := newStreamReplica(t, deps, time.Hour) // its sales stay in the stream
	setter := newStreamReplica(t, connect(t, a), time.Hour)
	setter.set(t, 1, 10)
	blind.sell(t, 1, 3)
	if err := blind.service.Close(); err != nil {
		t.Fatal(err)
	}
	setter.set(t, 1, 20)
	heir := newStreamReplica(t, connect(t, a), 20*time.Millisecond)
	heir.wantStock(t, 1, 20, 20)
	if units := heir.recorded(t, 1); units != 3 {
		t.Errorf("%d units are recorded, want the 3 that were sold", units)
	}
	heir.sell(t, 1, 5)
	heir.wantStock(t, 1, 15, 15)
}

func TestOfTwoThatSetTheStockTheSameOneComesLastInBothStores(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), time.Hour)
	for id := range int64(20) {
		var wg sync.WaitGroup
		for units := range int64(4) {
			wg.Go(func() {
				if err := r.service.SetStock(t.Context(), 1+id, units); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		inMySQL, err := r.service.Stock(t.Context(), stock.MySQL, 1+id)
		inRedis, err2 := r.service.Stock(t.Context(), stock.Redis, 1+id)
		if err := errors.Join(err, err2); err != nil || inMySQL != inRedis {
			t.Fatalf("MySQL has %d, Redis has %d: %v", inMySQL, inRedis, err)
		}
	}
}

// Somebody else sold from MySQL: what was sold in Redis is deducted all the same, and nobody waits.
func TestASaleIsDeductedFromAStockThatMySQLDoesNotHave(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), time.Hour)
	r.set(t, 1, 10)
	if _, err := r.deps.MySQL.Exec("UPDATE good_stock SET stock = 1 WHERE goods_id = 1"); err != nil {
		t.Fatal(err)
	}
	r.sell(t, 1, 3)
	r.wantStock(t, 1, 7, -2)
}

func TestARestockInRedisComesToMySQLByTheStream(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), 20*time.Millisecond)
	r.set(t, 1, 10)
	r.sell(t, 1, 3)
	if units, err := r.service.Restock(t.Context(), stock.Redis, 1, 5); err != nil || units != 12 {
		t.Fatalf("Restock: %d, %v, want 12", units, err)
	}
	r.wantStock(t, 1, 12, 12)
}

func TestARestockInRedisBeforeTheFirstSaleComesToMySQL(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), 20*time.Millisecond)
	r.set(t, 1, 10)
	if units, err := r.service.Restock(t.Context(), stock.Redis, 1, 5); err != nil || units != 15 {
		t.Fatalf("Restock: %d, %v, want 15", units, err)
	}
	r.wantStock(t, 1, 15, 15)
	r.sell(t, 1, 15)
	r.wantStock(t, 1, 0, 0)
}

// One goods' entries cannot be deleted, as if its master in a Cluster were down between COMMIT and XACK.
func TestWhatCannotBeDeletedFromOneStreamHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	a, server := streamServers(t, servers.RedisOptions{})
	err := stocktest.Redis(t, a.Redis).Do(t.Context(), "ACL", "SETUSER", "halved", "on", ">secret", "~*", "&*", "+@all", "-xdel", "-xack",
		"(+xdel +xack ~stock:{2}:sales)").Err()
	if err != nil {
		t.Fatal(err)
	}
	deps := connect(t, a)
	deps.Redis = stocktest.Redis(t, &redis.Options{Addr: server.Addr, Username: "halved", Password: "secret"})
	r := newStreamReplica(t, deps, time.Hour)
	r.set(t, 1, 10)
	r.set(t, 2, 10)
	r.sell(t, 1, 1)
	serverstest.Eventually(t, "the sale is committed", func() bool { return r.recorded(t, 1) == 1 })
	for sold := range int64(3) {
		r.sell(t, 2, 1)
		serverstest.Eventually(t, "the other goods' sale is in MySQL", func() bool { return r.recorded(t, 2) == sold+1 })
	}
	serverstest.Eventually(t, "they are deleted", func() bool { return r.deps.Redis.XLen(t.Context(), "stock:{2}:sales").Val() == 0 })
}

func TestALockedRowHoldsUpNoOtherGoods(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), time.Hour)
	r.set(t, 1, 10)
	r.set(t, 2, 10)
	row, err := r.deps.MySQL.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer row.Rollback()
	if _, err := row.Exec("SELECT stock FROM good_stock WHERE goods_id = 1 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	for sold := range int64(3) {
		r.sell(t, 1, 1)
		r.sell(t, 2, 1)
		serverstest.Eventually(t, "the other goods' sale is in MySQL", func() bool { return r.recorded(t, 2) == sold+1 })
	}
	if units := r.recorded(t, 1); units != 0 {
		t.Errorf("%d units of the locked goods are recorded", units)
	}
	if err := row.Rollback(); err != nil {
		t.Fatal(err)
	}
	r.wantStock(t, 1, 7, 7)
	r.wantStock(t, 2, 7, 7)
}

// A Redis that has lost its data, and whose clock is behind, gives an id again.
func TestASaleWhoseEntryHasTheIDOfAnotherIsDeducted(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), 20*time.Millisecond)
	r.set(t, 1, 10)
	r.sell(t, 1, 1)
	r.wantStock(t, 1, 9, 9)
	var sale struct {
		Entry string
		Epoch int64
	}
	if err := r.deps.MySQL.Get(&sale, "SELECT entry, epoch FROM stream_sale"); err != nil {
		t.Fatal(err)
	}
	_, err := r.deps.Redis.TxPipelined(t.Context(), func(tx redis.Pipeliner) error {
		tx.Del(t.Context(), "stock:{1}:sales")
		tx.XAdd(t.Context(), &redis.XAddArgs{Stream: "stock:{1}:sales", ID: sale.Entry, Values: []any{"units", 4, "epoch", sale.Epoch, "nonce", 7}})
		tx.DecrBy(t.Context(), "stock:{1}", 4)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.wantStock(t, 1, 5, 5)
}

func TestAStockThatIsNoWholeNumberIsNotSold(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), time.Hour)
	r.set(t, 1, 10)
	if err := r.deps.Redis.Set(t.Context(), "stock:{1}", "10.0", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1}); err == nil || errors.Is(err, stock.ErrUnknown) {
		t.Errorf("Deduct: %v, want a refusal", err)
	}
	if _, err := r.service.Restock(t.Context(), stock.Redis, 1, 1); err == nil || errors.Is(err, stock.ErrUnknown) {
		t.Errorf("Restock: %v, want a refusal", err)
	}
	if err := r.service.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := r.deps.Redis.XLen(t.Context(), "stock:{1}:sales").Result(); err != nil || n != 0 || r.recorded(t, 1) != 0 {
		t.Errorf("the stream has %d entries, %v, and %d units are recorded, want none: nothing was sold", n, err, r.recorded(t, 1))
	}
}

// Redis is ahead: MySQL was made anew, or another replica's clock set the stock before.
func TestSetStockReachesARedisWithALaterEpoch(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), time.Hour)
	r.set(t, 1, 10)
	later := time.Now().Add(time.Minute).UnixMicro()
	if err := r.deps.Redis.Set(t.Context(), "stock:{1}:epoch", later, 0).Err(); err != nil {
		t.Fatal(err)
	}
	r.set(t, 1, 99)
	r.sell(t, 1, 3)
	r.wantStock(t, 1, 96, 96)
}

func TestFillRedisGivesItWhatMySQLHasAndOnlyOnce(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), time.Hour)
	r.set(t, 1, 10)
	if err := r.deps.Redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 { // replicas that start together, and sell at once
		wg.Go(func() {
			if _, err := r.service.FillRedis(t.Context(), 1); err != nil {
				t.Error(err)
			}
			for range 2 {
				if _, err := r.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	r.wantStock(t, 1, 2, 2)
	if _, err := r.service.FillRedis(t.Context(), 1); err != nil {
		t.Error(err)
	}
	r.wantStock(t, 1, 2, 2)
}

func TestAStreamThatTheIndexLacksIsFound(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	deps := connect(t, a)
	deps.MySQL = stocktest.MySQL(t, "root@tcp(127.0.0.1:1)/nowhere")
	dead := newStreamReplica(t, deps, time.Hour)
	r := newStreamReplica(t, connect(t, a), time.Hour)
	r.set(t, 1, 10)
	if err := r.service.Close(); err != nil {
		t.Fatal(err)
	}
	dead.sell(t, 1, 4)
	if err := dead.service.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.deps.Redis.Del(t.Context(), "stock:streams").Err(); err != nil {
		t.Fatal(err)
	}
	heir := newStreamReplica(t, connect(t, a), 50*time.Millisecond)
	serverstest.Eventually(t, "the sale is in MySQL", func() bool { return heir.recorded(t, 1) == 4 })
	serverstest.Eventually(t, "the index has the stream", func() bool {
		return heir.deps.Redis.SIsMember(t.Context(), "stock:streams", 1).Val()
	})
}

// An entry that somebody put there by hand must not keep those after it, nor come again and again.
func TestAnEntryThatIsNoSaleHoldsUpNobody(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), 20*time.Millisecond)
	r.set(t, 1, 10)
	if err := r.deps.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: "stock:{1}:sales", Values: []string{"units", "many"}}).Err(); err != nil {
		t.Fatal(err)
	}
	r.sell(t, 1, 3)
	serverstest.Eventually(t, "the sale is in MySQL", func() bool { return r.recorded(t, 1) == 3 })
	serverstest.Eventually(t, "the other entry is there, and nobody's to write", func() bool {
		pending, err := r.deps.Redis.XPending(t.Context(), "stock:{1}:sales", "stock").Result()
		return err == nil && pending.Count == 0 && r.deps.Redis.XLen(t.Context(), "stock:{1}:sales").Val() == 1
	})
}

// journal is a log for tests to read.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) count(part string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), part)
}

func TestAnOutageOfMySQLOnlyDelaysSales(t *testing.T) {
	t.Parallel()
	server := serverstest.StartMySQL(t, servers.MySQLOptions{})
	dsn, err := server.CreateDatabase(t.Context(), "stock")
	if err != nil {
		t.Fatal(err)
	}
	stocktest.Migrate(t, dsn)
	a := stocktest.Addresses{MySQL: dsn, Redis: stocktest.Servers.Redis(t)}
	deps := connect(t, a)
	log := new(journal)
	deps.Log = slog.New(slog.NewTextHandler(log, nil))
	r := newStreamReplica(t, deps, 200*time.Millisecond)
	r.set(t, 1, 100)
	server.Kill()
	for range 5 {
		r.sell(t, 1, 2)
	}
	serverstest.Eventually(t, "the outage is logged", func() bool { return log.count("cannot write the sales") == 1 })
	if backlog, err := r.service.Backlog(t.Context()); err != nil || backlog.Sales != 5 || backlog.Age <= 0 {
		t.Errorf("the backlog is %+v, %v, want 5 sales of some age", backlog, err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.wantStock(t, 1, 90, 90)
	serverstest.Eventually(t, "the end of the outage is logged", func() bool { return log.count("works again") == 1 })
	if began := log.count("level=WARN"); began != 1 {
		t.Errorf("the log has %d warnings, want one", began)
	}
}

func TestSellingGoesOnWhereRedisHasLostItsData(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), 20*time.Millisecond)
	r.set(t, 1, 10)
	r.sell(t, 1, 1)
	r.wantStock(t, 1, 9, 9)
	if err := r.deps.Redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r.set(t, 1, 50)
	r.sell(t, 1, 2)
	serverstest.Eventually(t, "the index is there again", func() bool {
		return r.deps.Redis.SIsMember(t.Context(), "stock:streams", 1).Val()
	})
	r.wantStock(t, 1, 48, 48)
}

func TestAGoodsThatDoesNotExistIsNotIndexed(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), time.Hour)
	_, err := r.Deduct(t.Context(), stock.Request{GoodsID: 404, Count: 1})
	if !errors.Is(err, stock.ErrUnknownItem) {
		t.Errorf("Deduct: %v, want unknown goods", err)
	}
	if keys, err := r.deps.Redis.Keys(t.Context(), "*").Result(); err != nil || len(keys) != 0 {
		t.Errorf("Redis has %v, %v", keys, err)
	}
}

// Nothing is asked of Redis or MySQL while nothing is sold.
func TestAnIdleStreamCostsNothing(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), time.Hour)
	r.set(t, 1, 10)
	r.sell(t, 1, 1)
	r.wantStock(t, 1, 9, 9)
	commands := func() string {
		info, err := r.deps.Redis.InfoMap(t.Context(), "stats").Result()
		if err != nil {
			t.Fatal(err)
		}
		return info["Stats"]["total_commands_processed"]
	}
	// A poll would show every time, and a look around, every 5 s, does not.
	serverstest.Eventually(t, "Redis has done nothing for 0.1 s but tell what it has done", func() bool {
		before := commands()
		time.Sleep(100 * time.Millisecond)
		return commands() == fmt.Sprint(atoi(t, before)+1)
	})
}

func TestCloseEndsTheWritingBehind(t *testing.T) {
	a := stocktest.Addresses{MySQL: "root@tcp(127.0.0.1:1)/nowhere", Redis: stocktest.Servers.Redis(t)}
	others := goleak.IgnoreCurrent()
	deps := connect(t, a)
	redisOnly := inventory.New(stock.Deps{Redis: deps.Redis})
	if err := redisOnly.SetStock(t.Context(), 1, 10); err != nil {
		t.Fatal(err)
	}
	r := newStreamReplica(t, deps, time.Hour)
	r.sell(t, 1, 1) // and MySQL is never there
	began := time.Now()
	if err := r.service.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	for _, c := range []io.Closer{deps.MySQL, deps.Redis} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	goleak.VerifyNone(t, others)
}

func TestRedisStreamSellsOnACluster(t *testing.T) {
	t.Parallel()
	cluster := serverstest.StartCluster(t)
	a := stocktest.Addresses{MySQL: stocktest.NewDatabase(t)}
	connect := func() stock.Deps {
		mysql := stocktest.MySQL(t, a.MySQL)
		redis := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs, MaxRedirects: -1, DisableRoutingPolicies: true, ContextTimeoutEnabled: true})
		t.Cleanup(func() { redis.Close() })
		return stock.Deps{MySQL: mysql, MySQLLocks: mysql, Redis: redis}
	}
	first := newStreamReplica(t, connect(), 20*time.Millisecond)
	second := newStreamReplica(t, connect(), 20*time.Millisecond)
	for id := range int64(12) { // on every master
		first.set(t, 1+id, 10)
		first.sell(t, 1+id, 2)
		second.sell(t, 1+id, 1)
	}
	for id := range int64(12) {
		first.wantStock(t, 1+id, 7, 7)
		if balance, err := first.service.Reconcile(t.Context(), 1+id, false); err != nil || balance.Finding != stream.Agree {
			t.Errorf("Reconcile: %+v, %v", balance, err)
		}
	}
	// Goods of masters that are there are sold and written while another is down.
	for _, addr := range cluster.Addrs {
		if err := stocktest.Redis(t, &redis.Options{Addr: addr}).ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err(); err != nil {
			t.Fatal(err)
		}
	}
	// The index is down with it. A replica that starts now is no worse off.
	holder, err := connect().Redis.(*redis.ClusterClient).MasterForKey(t.Context(), "stock:streams")
	if err != nil {
		t.Fatal(err)
	}
	for _, master := range cluster.Masters {
		if master.Addr == holder.Options().Addr {
			master.Kill()
		}
	}
	started := newStreamReplica(t, connect(), 20*time.Millisecond)
	for name, replica := range map[string]streamReplica{"an old replica": first, "a new one": started} {
		written := 0
		for id := range int64(12) {
			before := replica.recorded(t, 1+id)
			if _, err := replica.Deduct(t.Context(), stock.Request{GoodsID: 1 + id, Count: 1}); err != nil {
				continue
			}
			written++
			serverstest.Eventually(t, "the sale is in MySQL", func() bool { return replica.recorded(t, 1+id) == before+1 })
		}
		if written == 0 {
			t.Errorf("%s sold nothing while one of three masters was down", name)
		}
	}
}

func TestRedisStreamSellsBySentinels(t *testing.T) {
	t.Parallel()
	group := serverstest.StartSentinel(t)
	a := stocktest.Addresses{MySQL: stocktest.NewDatabase(t)}
	mysql := stocktest.MySQL(t, a.MySQL)
	failover := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: group.MasterName, SentinelAddrs: group.SentinelAddrs, MaxRetries: -1, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { failover.Close() })
	r := newStreamReplica(t, stock.Deps{MySQL: mysql, MySQLLocks: mysql, Redis: failover}, 50*time.Millisecond)
	r.set(t, 1, 10)
	r.sell(t, 1, 2)
	r.wantStock(t, 1, 8, 8)
	if copied, err := failover.Wait(t.Context(), 1, 20*time.Second).Result(); err != nil || copied != 1 {
		t.Fatalf("%d replicas have the sale, %v", copied, err)
	}
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: group.SentinelAddrs[0]})
	t.Cleanup(func() { sentinel.Close() })
	if err := sentinel.Failover(t.Context(), group.MasterName).Err(); err != nil {
		t.Fatal(err)
	}
	serverstest.Eventually(t, "the replica is the master", func() bool {
		master, err := sentinel.GetMasterAddrByName(t.Context(), group.MasterName).Result()
		return err == nil && net.JoinHostPort(master[0], master[1]) == group.Replica.Addr
	})
	serverstest.Eventually(t, "the new master sells", func() bool {
		_, err := r.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1})
		return err == nil
	})
	// What the old master still sold, and had no time to replicate, is lost with it, and may be in MySQL already.
	stocktest.Drain(t, r.service)
	var balance stream.Balance
	serverstest.Eventually(t, "the client has heard of the new master", func() (answered bool) { // and closed its connections to the old one
		var err error
		if balance, err = r.service.Reconcile(t.Context(), 1, true); err != nil && !errors.Is(err, stock.ErrUnavailable) {
			t.Fatalf("Reconcile: %v", err)
		}
		return err == nil
	})
	if balance.Finding != stream.Agree && !balance.Mended {
		t.Errorf("Reconcile: %+v, want agreement, or sales of the old master taken from the new one", balance)
	}
}

// shoppers sells until it is stopped, and counts the units that were confirmed and those of which nobody knows.
type shoppers struct {
	confirmed, unknown atomic.Int64
	stop               func()
}

func newShoppers(t testing.TB, sell func(ctx context.Context, count int) error) *shoppers {
	c := new(shoppers)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				count := 1 + i%3
				switch err := sell(context.WithoutCancel(ctx), count); {
				case err == nil:
					c.confirmed.Add(int64(count))
				case errors.Is(err, stock.ErrUnknown):
					c.unknown.Add(int64(count))
				default:
					time.Sleep(time.Millisecond) // a server is down
				}
			}
		})
	}
	c.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(c.stop)
	return c
}

// sells waits until so many more units are confirmed.
func (c *shoppers) sells(t testing.TB, units int64) {
	t.Helper()
	from := c.confirmed.Load()
	serverstest.Eventually(t, "units are sold", func() bool { return c.confirmed.Load() >= from+units })
}

// wantAll checks that everything confirmed is durable in MySQL, and no more than that and what is unknown; and that
// both stores agree.
func (c *shoppers) wantAll(t testing.TB, r streamReplica, id, initial int64) {
	t.Helper()
	stocktest.Drain(t, r.service)
	balance, err := r.service.Reconcile(t.Context(), id, false)
	if err != nil || balance.Finding != stream.Agree || balance.Pending != 0 {
		t.Errorf("Reconcile: %+v, %v, want agreement", balance, err)
	}
	confirmed, unknown, durable := c.confirmed.Load(), c.unknown.Load(), initial-balance.MySQL
	if recorded := r.recorded(t, id); durable < confirmed || durable > confirmed+unknown || durable != recorded {
		t.Errorf("%d units were confirmed, %d are unknown; MySQL has deducted %d and recorded %d", confirmed, unknown, durable, recorded)
	}
}

const abundance = 1_000_000

func TestARestartOfRedisLosesNoSaleOfRedisStream(t *testing.T) {
	t.Parallel()
	a, server := streamServers(t, servers.RedisOptions{AOF: true, Fsync: "always"})
	r := newStreamReplica(t, connect(t, a), 200*time.Millisecond)
	r.set(t, 1, abundance)
	shoppers := newShoppers(t, func(ctx context.Context, count int) error {
		_, err := r.Deduct(ctx, stock.Request{GoodsID: 1, Count: count})
		return err
	})
	for range 2 {
		shoppers.sells(t, 300)
		server.Kill()
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	shoppers.sells(t, 300)
	shoppers.stop()
	shoppers.wantAll(t, r, 1, abundance)
}

func TestACrashOfMySQLLosesNoSaleOfRedisStream(t *testing.T) {
	t.Parallel()
	server := serverstest.StartMySQL(t, servers.MySQLOptions{}) // durable
	dsn, err := server.CreateDatabase(t.Context(), "stock")
	if err != nil {
		t.Fatal(err)
	}
	stocktest.Migrate(t, dsn)
	a := stocktest.Addresses{MySQL: dsn, Redis: stocktest.Servers.Redis(t)}
	r := newStreamReplica(t, connect(t, a), 200*time.Millisecond)
	r.set(t, 1, abundance)
	shoppers := newShoppers(t, func(ctx context.Context, count int) error {
		_, err := r.Deduct(ctx, stock.Request{GoodsID: 1, Count: count})
		return err
	})
	shoppers.sells(t, 300)
	server.Kill()
	shoppers.sells(t, 300) // buyers do not notice
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	shoppers.sells(t, 300)
	shoppers.stop()
	shoppers.wantAll(t, r, 1, abundance)
}

func atoi(t testing.TB, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
