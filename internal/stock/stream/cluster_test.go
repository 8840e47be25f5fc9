package stream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/stock"
	"stock/internal/stock/stocktest"
	"stock/internal/stock/stream"
)

// connectCluster opens the connections that redis-stream needs, with Redis as a cluster.
func connectCluster(t testing.TB, dsn string, options redis.ClusterOptions) stock.Deps {
	t.Helper()
	options.MaxRedirects, options.DisableRoutingPolicies, options.ContextTimeoutEnabled = -1, true, true
	client := redis.NewClusterClient(&options)
	t.Cleanup(func() { client.Close() })
	mysql := stocktest.MySQL(t, dsn)
	return stock.Deps{MySQL: mysql, MySQLLocks: mysql, Redis: client}
}

// allowPartialCoverage lets the other masters answer while one is down.
func allowPartialCoverage(t testing.TB, cluster *servers.RedisCluster) {
	t.Helper()
	for _, addr := range cluster.Addrs {
		master := stocktest.Redis(t, &redis.Options{Addr: addr})
		must.Succeed(t, master.ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err())
	}
}

func TestRedisStreamSellsOnACluster(t *testing.T) {
	t.Parallel()
	cluster := serverstest.StartCluster(t)
	dsn := stocktest.NewDatabase(t)
	connect := func() stock.Deps { return connectCluster(t, dsn, redis.ClusterOptions{Addrs: cluster.Addrs}) }
	first := newReplica(t, connect(), 20*time.Millisecond)
	second := newReplica(t, connect(), 20*time.Millisecond)
	for id := range int64(12) { // on all masters
		first.set(t, 1+id, 10)
		first.sell(t, 1+id, 2)
		second.sell(t, 1+id, 1)
	}
	for id := range int64(12) {
		first.wantStock(t, 1+id, 7, 7)
		if balance, err := first.service.Reconcile(t.Context(), 1+id, false); err != nil || balance.Finding != stream.Agree {
			t.Errorf("Reconcile: %+v, %v, want agreement", balance, err)
		}
	}
	// Items of the other masters are sold and written while one master is down.
	allowPartialCoverage(t, cluster)
	// The master with the index of the streams is killed. A replica can start nevertheless.
	holder, err := connect().Redis.(*redis.ClusterClient).MasterForKey(t.Context(), "stock:streams")
	must.Succeed(t, err)
	for _, master := range cluster.Masters {
		if master.Addr == holder.Options().Addr {
			master.Kill()
		}
	}
	started := newReplica(t, connect(), 20*time.Millisecond)
	for name, replica := range map[string]replica{"the old replica": first, "the new replica": started} {
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
			t.Errorf("%s sold nothing while one of three masters was down, want sales of the items of the others", name)
		}
	}
}

// The master is stopped: it accepts connections, but does not answer.
func TestASilentMasterOfAClusterDelaysNoSaleOfTheOthers(t *testing.T) {
	t.Parallel()
	cluster := serverstest.StartCluster(t)
	const silence = time.Second
	deps := connectCluster(t, stocktest.NewDatabase(t), redis.ClusterOptions{Addrs: cluster.Addrs, ReadTimeout: silence})
	nodes := deps.Redis.(*redis.ClusterClient)
	r := newReplica(t, deps, time.Hour)
	allowPartialCoverage(t, cluster)
	var silent, answering []int64
	for id := range int64(12) {
		r.set(t, 1+id, 1000)
		r.sell(t, 1+id, 1)
		at, err := nodes.MasterForKey(t.Context(), fmt.Sprintf("stock:{%d}", 1+id))
		must.Succeed(t, err)
		if at.Options().Addr == cluster.Masters[0].Addr {
			silent = append(silent, 1+id)
		} else {
			answering = append(answering, 1+id)
		}
	}
	stocktest.Drain(t, r.service)
	if len(silent) == 0 || len(answering) == 0 {
		t.Fatalf("the first master has items %v, the others %v, want some of both", silent, answering)
	}
	must.Succeed(t, cluster.Masters[0].Signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = cluster.Masters[0].Signal(syscall.SIGCONT) })
	ctx, cancel := context.WithCancel(t.Context())
	var buyers sync.WaitGroup
	var unknown atomic.Int64
	t.Cleanup(func() { cancel(); buyers.Wait() })
	for _, id := range silent {
		buyers.Go(func() {
			for ctx.Err() == nil {
				if _, err := r.Deduct(ctx, stock.Request{GoodsID: id, Count: 1}); err != nil {
					unknown.Add(1)
				}
			}
		})
	}
	serverstest.Eventually(t, "the silence is noticed", func() bool { return unknown.Load() >= int64(len(silent)) })
	began := time.Now()
	const sales = 60
	for range sales {
		before := r.recorded(t, answering[0])
		r.sell(t, answering[0], 1)
		serverstest.Eventually(t, "the sale is in MySQL", func() bool { return r.recorded(t, answering[0]) == before+1 })
	}
	if took := time.Since(began); took > sales/2*silence {
		t.Errorf("%d sales were in MySQL after %v, want only the first to wait for the silent master", sales, took)
	}
}

func TestRedisStreamSellsThroughSentinels(t *testing.T) {
	t.Parallel()
	group := serverstest.StartSentinel(t)
	a := stocktest.Addresses{MySQL: stocktest.NewDatabase(t)}
	mysql := stocktest.MySQL(t, a.MySQL)
	failover := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: group.MasterName, SentinelAddrs: group.SentinelAddrs, MaxRetries: -1, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { failover.Close() })
	r := newReplica(t, stock.Deps{MySQL: mysql, MySQLLocks: mysql, Redis: failover}, 50*time.Millisecond)
	r.set(t, 1, 10)
	r.sell(t, 1, 2)
	r.wantStock(t, 1, 8, 8)
	if copied, err := failover.Wait(t.Context(), 1, 20*time.Second).Result(); err != nil || copied != 1 {
		t.Fatalf("%d Redis replicas have the sale, %v, want 1", copied, err)
	}
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: group.SentinelAddrs[0]})
	t.Cleanup(func() { sentinel.Close() })
	must.Succeed(t, sentinel.Failover(t.Context(), group.MasterName).Err())
	serverstest.Eventually(t, "the Redis replica is the master", func() bool {
		master, err := sentinel.GetMasterAddrByName(t.Context(), group.MasterName).Result()
		return err == nil && net.JoinHostPort(master[0], master[1]) == group.Replica.Addr
	})
	serverstest.Eventually(t, "the new master sells", func() bool {
		_, err := r.Deduct(t.Context(), stock.Request{GoodsID: 1, Count: 1})
		return err == nil
	})
	// A sale that the old master did not replicate is lost with it, but may be in MySQL already.
	stocktest.Drain(t, r.service)
	var balance stream.Balance
	serverstest.Eventually(t, "the client uses the new master", func() bool {
		var err error
		if balance, err = r.service.Reconcile(t.Context(), 1, true); err != nil && !errors.Is(err, stock.ErrUnavailable) {
			t.Fatalf("Reconcile: %v", err)
		}
		return err == nil
	})
	if balance.Finding != stream.Agree && !balance.Mended {
		t.Errorf("Reconcile: %+v, want agreement, or the lost sales deducted from the new master", balance)
	}
}
