package stream_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
	"stock/internal/stock/stream"
)

// takeFrom sells units of a goods as a replica does that has the entry delivered, and dies.
func (r streamReplica) takeFrom(t testing.TB, id, units int64) {
	t.Helper()
	stream, key := fmt.Sprintf("stock:{%d}:sales", id), fmt.Sprintf("stock:{%d}", id)
	epoch := r.deps.Redis.Get(t.Context(), key+":epoch").Val()
	_, err := r.deps.Redis.TxPipelined(t.Context(), func(tx redis.Pipeliner) error {
		tx.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: []any{"units", units, "epoch", epoch, "nonce", 7}})
		tx.DecrBy(t.Context(), key, units)
		tx.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "stock", Consumer: "stock", Streams: []string{stream, ">"}, Block: -1})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheEntriesOfADeadReplicaAreClaimedWhileAnotherGoodsIsSoldAllTheTime(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), 100*time.Millisecond)
	r.set(t, 1, abundance)
	r.set(t, 2, 10)
	r.sell(t, 2, 1)
	r.wantStock(t, 2, 9, 9)
	buyers := newShoppers(t, func(ctx context.Context, count int) error {
		_, err := r.Deduct(ctx, stock.Request{GoodsID: 1, Count: count})
		return err
	})
	buyers.sells(t, 300)
	r.takeFrom(t, 2, 4)
	serverstest.Eventually(t, "the dead replica's sale is in MySQL", func() bool { return r.recorded(t, 2) == 5 })
	buyers.sells(t, 1) // they had not stopped
	buyers.stop()
}

// More entries than one XAUTOCLAIM takes are there at once, and not a part of them each time.
func TestAllThatIsOverdueIsTakenOverAtOneLook(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	setter := newStreamReplica(t, connect(t, a), time.Hour)
	setter.set(t, 1, 1000)
	if err := setter.service.Close(); err != nil {
		t.Fatal(err)
	}
	if err := setter.deps.Redis.XGroupCreateMkStream(t.Context(), "stock:{1}:sales", "stock", "0").Err(); err != nil {
		t.Fatal(err)
	}
	claim := []any{"XCLAIM", "stock:{1}:sales", "stock", "stock", 0}
	for range 600 {
		setter.takeFrom(t, 1, 1)
	}
	for _, entry := range setter.deps.Redis.XRange(t.Context(), "stock:{1}:sales", "-", "+").Val() {
		claim = append(claim, entry.ID)
	}
	if err := setter.deps.Redis.Do(t.Context(), append(claim, "IDLE", time.Hour.Milliseconds(), "JUSTID")...).Err(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	heir := newStreamReplica(t, connect(t, a), time.Hour)
	serverstest.Eventually(t, "all sales are in MySQL", func() bool { return heir.recorded(t, 1) == 600 })
	if took := time.Since(began); took > 4*time.Second { // the second look is after 5 s
		t.Errorf("it took %v", took)
	}
}

// A restock makes a stream without a group, and a Redis without memory takes none.
func TestAStreamThatCannotBeOpenedIsNotAskedAllTheTime(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	deps := connect(t, a)
	log := new(journal)
	deps.Log = slog.New(slog.NewTextHandler(log, nil))
	r := newStreamReplica(t, deps, 50*time.Millisecond)
	r.set(t, 1, 10)
	_, err := deps.Redis.TxPipelined(t.Context(), func(tx redis.Pipeliner) error { // before anybody looks
		tx.XAdd(t.Context(), &redis.XAddArgs{Stream: "stock:{1}:sales", Values: []any{"units", -5, "epoch", 0, "nonce", 7}})
		tx.SAdd(t.Context(), "stock:streams", 1)
		tx.ConfigSet(t.Context(), "maxmemory", "1")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	serverstest.Eventually(t, "the failure is logged", func() bool { return log.count("cannot write the sales") == 1 })
	if err := deps.Redis.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	stats, err := deps.Redis.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	// A look every 50 ms takes over and reads.
	_, refused, _ := strings.Cut(stats["Commandstats"]["cmdstat_xgroup|create"], "rejected_calls=")
	refused, _, _ = strings.Cut(refused, ",")
	if n := atoi(t, refused); n < 1 || n > 30 {
		t.Errorf("Redis was asked for a group %d times in half a second", n)
	}
	if err := deps.Redis.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	serverstest.Eventually(t, "the restock is in MySQL", func() bool { return r.recorded(t, 1) == -5 })
	serverstest.Eventually(t, "the end of the failure is logged", func() bool { return log.count("works again") == 1 })
}

// halted is a pool that gives nobody a connection until it is let go on.
func halted(t testing.TB, db *sqlx.DB) (goOn func()) {
	t.Helper()
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	goOn = sync.OnceFunc(func() { conn.Close() })
	t.Cleanup(goOn)
	return goOn
}

// pendingEntries counts the entries of goods 1 that were delivered and not acknowledged.
func (r streamReplica) pendingEntries(t testing.TB) int64 {
	t.Helper()
	pending, err := r.deps.Redis.XPending(t.Context(), "stock:{1}:sales", "stock").Result()
	if err != nil {
		t.Fatal(err)
	}
	return pending.Count
}

// Another replica has written them meanwhile, and MySQL has forgotten it.
func TestSalesThatWereHeldForLongAreNotWrittenAfterTheyWerePruned(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	held := newStreamReplica(t, connect(t, a), 200*time.Millisecond)
	stream.HoldSales(held.Deducter, 100*time.Millisecond)
	held.set(t, 1, 10)
	goOn := halted(t, held.deps.MySQL)
	held.sell(t, 1, 3)
	serverstest.Eventually(t, "the sale is delivered", func() bool { return held.pendingEntries(t) == 1 })
	other := newStreamReplica(t, connect(t, a), 200*time.Millisecond)
	other.wantStock(t, 1, 7, 7)
	if _, err := other.deps.MySQL.Exec("UPDATE stream_sale SET written = written - INTERVAL 2 DAY"); err != nil {
		t.Fatal(err)
	}
	if deleted, err := other.service.Prune(t.Context(), 24*time.Hour); err != nil || deleted != 1 {
		t.Fatalf("PruneStream: %d, %v, want the sale", deleted, err)
	}
	if err := other.service.Close(); err != nil {
		t.Fatal(err)
	}
	goOn()
	held.sell(t, 1, 1) // it is written after that
	serverstest.Eventually(t, "the last sale is in MySQL", func() bool { return held.recorded(t, 1) != 0 })
	held.wantStock(t, 1, 6, 6)
}

// Redis loses an entry that a replica is writing, and gives its id to another sale.
func TestASaleIsNotDeletedForAnotherOfTheSameID(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), 200*time.Millisecond)
	r.set(t, 1, 10)
	row, err := r.deps.MySQL.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer row.Rollback()
	if _, err := row.Exec("SELECT stock FROM good_stock WHERE goods_id = 1 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	r.sell(t, 1, 3)
	serverstest.Eventually(t, "the sale is delivered", func() bool { return r.pendingEntries(t) == 1 })
	entry := r.deps.Redis.XRange(t.Context(), "stock:{1}:sales", "-", "+").Val()[0]
	_, err = r.deps.Redis.TxPipelined(t.Context(), func(tx redis.Pipeliner) error {
		tx.Del(t.Context(), "stock:{1}:sales")
		tx.XGroupCreateMkStream(t.Context(), "stock:{1}:sales", "stock", "0")
		tx.XAdd(t.Context(), &redis.XAddArgs{Stream: "stock:{1}:sales", ID: entry.ID, Values: []any{"units", 2, "epoch", entry.Values["epoch"], "nonce", 7}})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := row.Rollback(); err != nil {
		t.Fatal(err)
	}
	stocktest.Drain(t, r.service)
	if units := r.recorded(t, 1); units != 5 {
		t.Errorf("%d units are recorded, want both sales, of 3 and of 2", units)
	}
}

// As many goods are locked as may wait for their rows, and one more, which is read together with one that is free.
func TestAGoodsThatIsReadWithALockedOneDoesNotWaitForManyThatAre(t *testing.T) {
	t.Parallel()
	a, _ := streamServers(t, servers.RedisOptions{})
	r := newStreamReplica(t, connect(t, a), 50*time.Millisecond)
	const locked, free = 9, 11 // MySQL locks the one in between, too
	for id := range int64(free) {
		r.set(t, 1+id, 10)
	}
	other := stocktest.MySQL(t, a.MySQL)
	row, err := other.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer row.Rollback()
	if _, err := row.Exec("SELECT stock FROM good_stock FORCE INDEX (good_stock_goods_id) WHERE goods_id BETWEEN 1 AND ? FOR UPDATE", locked); err != nil {
		t.Fatal(err)
	}
	for id := range int64(locked - 1) {
		r.sell(t, 1+id, 1)
	}
	serverstest.Eventually(t, "all wait that may", func() bool { return r.deps.MySQL.Stats().InUse == locked-1 })
	_, err = r.deps.Redis.TxPipelined(t.Context(), func(tx redis.Pipeliner) error { // one look finds both
		tx.SAdd(t.Context(), "stock:streams", locked, free)
		for _, id := range []int64{locked, free} {
			tx.XAdd(t.Context(), &redis.XAddArgs{Stream: fmt.Sprintf("stock:{%d}:sales", id), Values: []any{"units", 1, "epoch", 0, "nonce", 7}})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	serverstest.Eventually(t, "the free goods' sale is in MySQL", func() bool { return r.recorded(t, free) == 1 })
	if units := r.recorded(t, 1); units != 0 { // or else it had waited
		t.Errorf("%d units of a locked goods are recorded", units)
	}
}

// The master does not refuse connections. It says nothing.
func TestASilentMasterOfAClusterHoldsUpNoSalesOfOthers(t *testing.T) {
	t.Parallel()
	cluster := serverstest.StartCluster(t)
	a := stocktest.Addresses{MySQL: stocktest.NewDatabase(t)}
	mysql := stocktest.MySQL(t, a.MySQL)
	const silence = time.Second
	nodes := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: cluster.Addrs, MaxRedirects: -1, DisableRoutingPolicies: true, ContextTimeoutEnabled: true, ReadTimeout: silence,
	})
	t.Cleanup(func() { nodes.Close() })
	r := newStreamReplica(t, stock.Deps{MySQL: mysql, MySQLLocks: mysql, Redis: nodes}, time.Hour)
	for _, addr := range cluster.Addrs {
		err := stocktest.Redis(t, &redis.Options{Addr: addr}).ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	var dumb, answering []int64
	for id := range int64(12) {
		r.set(t, 1+id, 1000)
		r.sell(t, 1+id, 1)
		at, err := nodes.MasterForKey(t.Context(), fmt.Sprintf("stock:{%d}", 1+id))
		if err != nil {
			t.Fatal(err)
		}
		if at.Options().Addr == cluster.Masters[0].Addr {
			dumb = append(dumb, 1+id)
		} else {
			answering = append(answering, 1+id)
		}
	}
	stocktest.Drain(t, r.service)
	if len(dumb) == 0 || len(answering) == 0 {
		t.Fatalf("masters have goods %v and %v", dumb, answering)
	}
	if err := cluster.Masters[0].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Masters[0].Signal(syscall.SIGCONT) })
	ctx, cancel := context.WithCancel(t.Context())
	var buyers sync.WaitGroup
	var unknown atomic.Int64
	t.Cleanup(func() { cancel(); buyers.Wait() })
	for _, id := range dumb {
		buyers.Go(func() {
			for ctx.Err() == nil {
				if _, err := r.Deduct(ctx, stock.Request{GoodsID: id, Count: 1}); err != nil {
					unknown.Add(1)
				}
			}
		})
	}
	serverstest.Eventually(t, "the silence is noticed", func() bool { return unknown.Load() >= int64(len(dumb)) })
	began := time.Now()
	for range 10 {
		before := r.recorded(t, answering[0])
		r.sell(t, answering[0], 1)
		serverstest.Eventually(t, "the sale is in MySQL", func() bool { return r.recorded(t, answering[0]) == before+1 })
	}
	if took := time.Since(began); took > 5*silence {
		t.Errorf("ten sales came to MySQL in %v, want none but the first to wait for the silent master", took)
	}
}
