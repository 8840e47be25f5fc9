package stream_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
)

// interruption does something before a client sends a command of this name, and after its reply.
type interruption struct {
	command       string
	before, after func()
}

// interrupt does something once, just before the client of Redis sends the first command of this name.
func interrupt(deps stock.Deps, command string, do func()) {
	deps.Redis.AddHook(interruption{command, sync.OnceFunc(do), func() {}})
}

// interruptAfter does something once, just after the reply to the first command of this name.
func interruptAfter(deps stock.Deps, command string, do func()) {
	deps.Redis.AddHook(interruption{command, func() {}, sync.OnceFunc(do)})
}

func (i interruption) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (i interruption) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != i.command {
			return next(ctx, cmd)
		}
		i.before()
		defer i.after()
		return next(ctx, cmd)
	}
}

func (i interruption) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Name() == i.command }) {
			return next(ctx, cmds)
		}
		i.before()
		defer i.after()
		return next(ctx, cmds)
	}
}

// wantIdle waits until Redis has neither a stream nor an index.
func (r replica) wantIdle(t testing.TB) {
	t.Helper()
	serverstest.Eventually(t, "the streams are closed, and the index is empty", func() bool {
		left, err := r.deps.Redis.Exists(t.Context(), "stock:{1}:sales", "stock:streams").Result()
		return err == nil && left == 0
	})
}

// commands returns how many commands Redis has received, by name.
func (r replica) commands(t testing.TB) map[string]int {
	t.Helper()
	info, err := r.deps.Redis.InfoMap(t.Context(), "commandstats").Result()
	must.Succeed(t, err)
	sent := map[string]int{}
	for name, stats := range info["Commandstats"] {
		calls, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
		sent[strings.TrimPrefix(name, "cmdstat_")] = atoi(t, calls)
	}
	return sent
}

func TestAnIdleItemIsNotPolled(t *testing.T) {
	t.Parallel()
	r := newSingleReplica(t, 10*time.Millisecond)
	r.set(t, 1, 10)
	r.sell(t, 1, 1)
	r.wantStock(t, 1, 9, 9)
	r.wantIdle(t)
	waitForScans := func(n int) {
		before := r.commands(t)["smembers"]
		serverstest.Eventually(t, "there were more scans", func() bool { return r.commands(t)["smembers"] >= before+n })
	}
	waitForScans(2) // the scan that closed the stream has ended
	must.Succeed(t, r.deps.Redis.ConfigResetStat(t.Context()).Err())
	waitForScans(5)
	for name, calls := range r.commands(t) {
		if name != "smembers" && name != "info" && name != "config|resetstat" {
			t.Errorf("the scans of an idle item sent %s %d times, want only SMEMBERS", name, calls)
		}
	}
	r.sell(t, 1, 2)
	r.wantStock(t, 1, 7, 7)
}

// The item is sold just before one of the commands by which another replica takes an idle item out of the index. The
// seller dies after the sale.
func TestASaleWhileTheItemLeavesTheIndexReachesMySQL(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"xinfo", "eval", "srem"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			a, _ := newServers(t)
			deps := connect(t, a)
			// It sees an idle stream, which it is about to close.
			remover := newReplica(t, deps, 20*time.Millisecond)
			remover.set(t, 1, 10)
			remover.sell(t, 1, 1)
			serverstest.Eventually(t, "the sale is in MySQL", func() bool { return remover.recorded(t, 1) == 1 })
			sold, others := make(chan error, 1), withoutMySQL(t, connect(t, a))
			interrupt(deps, command, func() {
				dying := newReplica(t, others, time.Hour)
				_, err := dying.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 4})
				sold <- err
				dying.close(t)
			})
			must.Succeed(t, <-sold)
			serverstest.Eventually(t, "the sale is in MySQL", func() bool { return remover.recorded(t, 1) == 5 })
			remover.wantIdle(t)
		})
	}
}

// Another replica closes the stream between the moment it was opened for a sale, and the sale.
func TestASaleOpensAStreamAgainThatWasJustClosed(t *testing.T) {
	t.Parallel()
	a, _ := newServers(t)
	deps := withoutMySQL(t, connect(t, a)) // the sale stays in the stream
	r := newReplica(t, deps, time.Hour)
	newReplica(t, connect(t, a), time.Hour).set(t, 1, 10)
	other := connect(t, a).Redis
	interrupt(deps, "sadd", func() {
		if deleted, err := other.Del(t.Context(), "stock:{1}:sales").Result(); err != nil || deleted != 1 {
			t.Errorf("deleted %d streams, %v, want 1", deleted, err)
		}
	})
	r.sell(t, 1, 1)
	entries, err := other.XLen(t.Context(), "stock:{1}:sales").Result()
	if indexed := other.SIsMember(t.Context(), "stock:streams", 1).Val(); err != nil || entries != 1 || !indexed {
		t.Errorf("the stream has %d entries, %v, and being in the index is %v, want 1 and true", entries, err, indexed)
	}
}

// An index that was lost is restored by the replicas that know of the streams, without a sweep.
func TestALostIndexIsRestoredByTheReplicaThatSells(t *testing.T) {
	t.Parallel()
	a, _ := newServers(t)
	r := newReplica(t, withoutMySQL(t, connect(t, a)), 20*time.Millisecond)
	newReplica(t, connect(t, a), time.Hour).set(t, 1, 10)
	r.sell(t, 1, 1)
	must.Succeed(t, r.deps.Redis.Del(t.Context(), "stock:streams").Err())
	serverstest.Eventually(t, "the index has the stream again", func() bool {
		return r.deps.Redis.SIsMember(t.Context(), "stock:streams", 1).Val()
	})
}

func TestACallerWhoLeavesWhileTheStreamIsOpenedBuysNothing(t *testing.T) {
	t.Parallel()
	a, _ := newServers(t)
	deps := connect(t, a)
	r := newReplica(t, deps, time.Hour)
	r.set(t, 1, 10)
	r.close(t) // scans no more, so that only Deduct sends SADD
	ctx, leave := context.WithCancel(t.Context())
	interruptAfter(deps, "sadd", leave)
	if _, err := r.Deduct(ctx, stock.Request{GoodsID: 1, Count: 1}); !errors.Is(err, stock.ErrBusy) {
		t.Errorf("Deduct: %v, want busy", err)
	}
	r.service.WantLeft(t, stock.Redis, 1, 10)
}

// The stock was set by a replica without MySQL.
func TestARestockOfAnIdleItemWithoutAnEpochReachesMySQL(t *testing.T) {
	t.Parallel()
	r := newSingleReplica(t, 10*time.Millisecond)
	_, err := r.deps.MySQL.Exec("UPDATE good_stock SET stock = 10, epoch = 0 WHERE goods_id = 1")
	must.Succeed(t, err)
	must.Succeed(t, r.deps.Redis.Set(t.Context(), "stock:{1}", 10, 0).Err())
	r.sell(t, 1, 1)
	r.wantStock(t, 1, 9, 9)
	r.wantIdle(t)
	if units, err := r.service.Restock(t.Context(), stock.Redis, 1, 5); err != nil || units != 14 {
		t.Fatalf("Restock: %d, %v, want 14", units, err)
	}
	r.wantStock(t, 1, 14, 14)
}
