package stream_test

import (
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
	"stock/internal/stock/stream"
)

// The replica is not allowed to delete entries, as if it died between COMMIT and XACK each time.
func TestSalesAreDeductedOnceWhenTheConsumerDiesBetweenCommitAndXAck(t *testing.T) {
	t.Parallel()
	a, server := newServers(t)
	deps := connect(t, a)
	deps.Redis = stocktest.Redis(t, limitUser(t, server, "-xdel", "-xack"))
	dying := newReplica(t, deps, time.Hour)
	dying.set(t, 1, 10)
	dying.sell(t, 1, 2)
	serverstest.Eventually(t, "the sale is committed", func() bool { return dying.recorded(t, 1) == 2 })
	dying.sell(t, 1, 1)
	dying.close(t)
	if backlog, err := dying.service.Backlog(t.Context()); err != nil || backlog.Entries != 2 || backlog.Age <= 0 {
		t.Fatalf("the backlog is %+v, %v, want the unacknowledged sale and the one after it", backlog, err)
	}
	heir := newReplica(t, connect(t, a), 50*time.Millisecond)
	heir.wantStock(t, 1, 7, 7)
	if units := heir.recorded(t, 1); units != 3 {
		t.Errorf("%d units are recorded, want 3", units)
	}
}

// The replicas take over each other's entries all the time.
func TestReplicasThatShareAStreamWriteEachSaleOnce(t *testing.T) {
	t.Parallel()
	a, _ := newServers(t)
	replicas := []replica{
		newReplica(t, connect(t, a), time.Millisecond),
		newReplica(t, connect(t, a), time.Millisecond),
	}
	const items, buyers, sales = 3, 8, 60
	for id := range int64(items) {
		replicas[0].set(t, 1+id, 1000)
	}
	var wg sync.WaitGroup
	for buyer := range buyers {
		wg.Go(func() {
			for i := range sales {
				req := stock.Request{GoodsID: 1 + int64(i%items), Count: 1 + i%2}
				if _, err := replicas[buyer%2].Deduct(t.Context(), req); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	const left = 1000 - sales*buyers/items*3/2 // half of the sales are of one unit, half of two
	for id := range int64(items) {
		replicas[0].wantStock(t, 1+id, left, left)
	}
}

// The entries of item 1 cannot be deleted, as if its master in a cluster had died between COMMIT and XACK.
func TestAStreamWhoseEntriesCannotBeDeletedDelaysNoOther(t *testing.T) {
	t.Parallel()
	a, server := newServers(t)
	deps := connect(t, a)
	deps.Redis = stocktest.Redis(t, limitUser(t, server, "-xdel", "-xack", "(+xdel +xack ~stock:{2}:sales)"))
	r := newReplica(t, deps, time.Hour)
	r.set(t, 1, 10)
	r.set(t, 2, 10)
	r.sell(t, 1, 1)
	serverstest.Eventually(t, "the sale is committed", func() bool { return r.recorded(t, 1) == 1 })
	for sold := range int64(3) {
		r.sell(t, 2, 1)
		serverstest.Eventually(t, "the sale of the other item is in MySQL", func() bool { return r.recorded(t, 2) == sold+1 })
	}
	serverstest.Eventually(t, "the entries of the other item are deleted", func() bool {
		return r.deps.Redis.XLen(t.Context(), "stock:{2}:sales").Val() == 0
	})
}

func TestALockedRowDelaysNoOtherItem(t *testing.T) {
	t.Parallel()
	r := newSingleReplica(t, time.Hour)
	r.set(t, 1, 10)
	r.set(t, 2, 10)
	unlock := stocktest.LockRow(t, r.deps.MySQL, 1)
	for sold := range int64(3) {
		r.sell(t, 1, 1)
		r.sell(t, 2, 1)
		serverstest.Eventually(t, "the sale of the other item is in MySQL", func() bool { return r.recorded(t, 2) == sold+1 })
	}
	if units := r.recorded(t, 1); units != 0 {
		t.Errorf("%d units of the locked item are recorded, want 0", units)
	}
	unlock()
	r.wantStock(t, 1, 7, 7)
	r.wantStock(t, 2, 7, 7)
}

// A Redis that has lost its data, and whose clock is behind, uses an id again.
func TestASaleWhoseEntryHasAReusedIDIsDeducted(t *testing.T) {
	t.Parallel()
	r := newSingleReplica(t, 20*time.Millisecond)
	r.set(t, 1, 10)
	r.sell(t, 1, 1)
	r.wantStock(t, 1, 9, 9)
	var sale struct {
		Entry string
		Epoch int64
	}
	must.Succeed(t, r.deps.MySQL.Get(&sale, "SELECT entry, epoch FROM stream_sale"))
	_, err := r.deps.Redis.TxPipelined(t.Context(), func(tx redis.Pipeliner) error {
		tx.Del(t.Context(), "stock:{1}:sales")
		tx.XAdd(t.Context(), reusedEntry(sale.Entry, 4, sale.Epoch))
		tx.DecrBy(t.Context(), "stock:{1}", 4)
		return nil
	})
	must.Succeed(t, err)
	r.wantStock(t, 1, 5, 5)
}

// While a replica writes a sale, Redis loses its entry and gives its id to another sale.
func TestWritingASaleDoesNotDeleteAnotherOneWithTheSameID(t *testing.T) {
	t.Parallel()
	r := newSingleReplica(t, 200*time.Millisecond)
	r.set(t, 1, 10)
	unlock := stocktest.LockRow(t, r.deps.MySQL, 1)
	r.sell(t, 1, 3)
	serverstest.Eventually(t, "the sale is delivered", func() bool { return r.pendingEntries(t) == 1 })
	entry := r.deps.Redis.XRange(t.Context(), "stock:{1}:sales", "-", "+").Val()[0]
	_, err := r.deps.Redis.TxPipelined(t.Context(), func(tx redis.Pipeliner) error {
		tx.Del(t.Context(), "stock:{1}:sales")
		tx.XGroupCreateMkStream(t.Context(), "stock:{1}:sales", "stock", "0")
		tx.XAdd(t.Context(), reusedEntry(entry.ID, 2, entry.Values["epoch"]))
		return nil
	})
	must.Succeed(t, err)
	unlock()
	stocktest.Drain(t, r.service)
	if units := r.recorded(t, 1); units != 5 {
		t.Errorf("%d units are recorded, want 5 of both sales", units)
	}
}

// Another replica has written the sale meanwhile, and its record was pruned.
func TestASaleThatAReplicaHeldTooLongIsNotWrittenAgainAfterPrune(t *testing.T) {
	t.Parallel()
	a, _ := newServers(t)
	held := newReplica(t, connect(t, a), 200*time.Millisecond)
	stream.SetMaxEntryAge(held.Deducter, 100*time.Millisecond)
	held.set(t, 1, 10)
	resume := takeAllConnections(t, held.deps.MySQL)
	held.sell(t, 1, 3)
	serverstest.Eventually(t, "the sale is delivered", func() bool { return held.pendingEntries(t) == 1 })
	other := newReplica(t, connect(t, a), 200*time.Millisecond)
	other.wantStock(t, 1, 7, 7)
	_, err := other.deps.MySQL.Exec("UPDATE stream_sale SET written = written - INTERVAL 2 DAY")
	must.Succeed(t, err)
	if deleted, err := other.service.Prune(t.Context(), 24*time.Hour); err != nil || deleted != 1 {
		t.Fatalf("Prune deleted %d sales, %v, want 1", deleted, err)
	}
	other.close(t)
	resume()
	held.sell(t, 1, 1) // is written after the held sale would be
	serverstest.Eventually(t, "the last sale is in MySQL", func() bool { return held.recorded(t, 1) != 0 })
	held.wantStock(t, 1, 6, 6)
}

// A restock creates a stream without a group, and Redis has no memory for the group.
func TestAStreamThatCannotBeOpenedIsNotRetriedAllTheTime(t *testing.T) {
	t.Parallel()
	a, _ := newServers(t)
	deps := connect(t, a)
	log := new(stocktest.Log)
	deps.Log = slog.New(slog.NewTextHandler(log, nil))
	r := newReplica(t, deps, 50*time.Millisecond)
	r.set(t, 1, 10)
	// In one step, before the replica finds the stream.
	_, err := deps.Redis.TxPipelined(t.Context(), func(tx redis.Pipeliner) error {
		tx.XAdd(t.Context(), newEntry(1, -5, 0))
		tx.SAdd(t.Context(), "stock:streams", 1)
		tx.ConfigSet(t.Context(), "maxmemory", "1")
		return nil
	})
	must.Succeed(t, err)
	serverstest.Eventually(t, "the failure is logged", func() bool { return log.Count("cannot write the sales") == 1 })
	must.Succeed(t, deps.Redis.ConfigResetStat(t.Context()).Err())
	began, refusals := time.Now(), 0
	serverstest.Eventually(t, "Redis was asked for a group again and again", func() bool {
		stats, err := deps.Redis.InfoMap(t.Context(), "commandstats").Result()
		must.Succeed(t, err)
		_, refused, _ := strings.Cut(stats["Commandstats"]["cmdstat_xgroup|create"], "rejected_calls=")
		refused, _, _ = strings.Cut(refused+",", ",")
		refusals, _ = strconv.Atoi(refused)
		return refusals >= 10
	})
	// Every 50 ms, a scan takes over entries and reads new ones.
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("Redis was asked for a group %d times in %v", refusals, took)
	}
	must.Succeed(t, deps.Redis.ConfigSet(t.Context(), "maxmemory", "0").Err())
	serverstest.Eventually(t, "the restock is in MySQL", func() bool { return r.recorded(t, 1) == -5 })
	serverstest.Eventually(t, "the end of the failure is logged", func() bool { return log.Count("works again") == 1 })
}

// An entry that was added by hand must not delay the entries after it, nor be delivered again.
func TestAnInvalidEntryDelaysNoSale(t *testing.T) {
	t.Parallel()
	r := newSingleReplica(t, 20*time.Millisecond)
	r.set(t, 1, 10)
	invalid := &redis.XAddArgs{Stream: "stock:{1}:sales", Values: []string{"units", "many"}}
	must.Succeed(t, r.deps.Redis.XAdd(t.Context(), invalid).Err())
	r.sell(t, 1, 3)
	serverstest.Eventually(t, "the sale is in MySQL", func() bool { return r.recorded(t, 1) == 3 })
	serverstest.Eventually(t, "the invalid entry is still there, but not pending", func() bool {
		pending, err := r.deps.Redis.XPending(t.Context(), "stock:{1}:sales", "stock").Result()
		return err == nil && pending.Count == 0 && r.deps.Redis.XLen(t.Context(), "stock:{1}:sales").Val() == 1
	})
}

func TestAStreamThatIsMissingInTheIndexIsFound(t *testing.T) {
	t.Parallel()
	a, _ := newServers(t)
	deps := withoutMySQL(t, connect(t, a))
	dead := newReplica(t, deps, time.Hour)
	r := newReplica(t, connect(t, a), time.Hour)
	r.set(t, 1, 10)
	r.close(t)
	dead.sell(t, 1, 4)
	dead.close(t)
	must.Succeed(t, r.deps.Redis.Del(t.Context(), "stock:streams").Err())
	heir := newReplica(t, connect(t, a), 50*time.Millisecond)
	serverstest.Eventually(t, "the sale is in MySQL", func() bool { return heir.recorded(t, 1) == 4 })
	serverstest.Eventually(t, "the index has the stream", func() bool {
		return heir.deps.Redis.SIsMember(t.Context(), "stock:streams", 1).Val()
	})
}
