package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

// redisDeployments returns deployments of several Redis servers, with the values of --redis-master and --redis.
func redisDeployments(t *testing.T, test func(t *testing.T, master string, addresses, masters []string)) {
	t.Parallel()
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		group := serverstest.StartSentinel(t)
		test(t, group.MasterName, group.SentinelAddrs, []string{group.Master.Addr})
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		cluster := serverstest.StartCluster(t)
		test(t, "", cluster.Addrs, cluster.Addrs)
	})
}

// The connection of a blocking command ends without a reply, as it may for any command that was carried out. If the
// command were sent again, it would block again.
func TestARedisCommandIsNeverSentTwice(t *testing.T) {
	redisDeployments(t, func(t *testing.T, master string, addresses, masters []string) {
		client := new(storeOptions).openRedis(master, addresses...)
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		asked := make(chan error, 1)
		go func() { asked <- client.BLPop(ctx, 0, "list").Err() }()

		var blocked *redis.Client // connected to the master that has the key
		eventually(t, "the command has arrived", func() bool {
			for _, addr := range masters {
				direct := redis.NewClient(&redis.Options{Addr: addr})
				info, err := direct.Info(ctx, "clients").Result()
				if err == nil && strings.Contains(info, "blocked_clients:1") {
					blocked = direct
					return true
				}
				direct.Close()
			}
			return false
		})
		defer blocked.Close()
		must.Succeed(t, blocked.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
		if err := <-asked; err == nil || ctx.Err() != nil {
			t.Errorf("the command ended with %v, want the error of its connection, at once", err)
		}
	})
}

func TestAReplicaIsNotReadyIfTheRedisClusterLacksAMaster(t *testing.T) {
	t.Parallel()
	cluster := serverstest.StartCluster(t)
	p := launch(t, environment{"STOCK_REDIS": strings.Join(cluster.Addrs, ",")}, "serve")
	p.awaitReady(t)
	cluster.Masters[2].Kill()
	eventually(t, "readyz answers 503", func() bool {
		status, _ := p.call("GET", p.url+"/readyz")
		return status == 503
	})
}

// go-redis reports a refused connection in another way to pipelines, with which the streams of sales are scanned.
func TestAReplicaOutlivesAChangeOfThePasswordOfRedis(t *testing.T) {
	t.Parallel()
	server := serverstest.StartRedis(t, redisOptions)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	admin := client.Conn() // a connection that is open may go on after a change
	defer admin.Close()
	setPassword := func(password string) {
		t.Helper()
		must.Succeed(t, admin.ConfigSet(t.Context(), "requirepass", password).Err())
		must.Succeed(t, admin.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	}
	setPassword("old")
	env := migrated(t)
	env["STOCK_REDIS"], env["STOCK_REDIS_PASSWORD"] = server.Addr, "old"
	p := launch(t, env, "serve", "--lease=200ms") // the streams are scanned as often
	p.setStock(t, 1, 100)
	p.expect(t, "POST", p.url+"/stock/deduct/redis-stream?goods_id=1&count=1", 200)
	setPassword("new")
	eventually(t, "the scan of the streams is refused", func() bool {
		return strings.Contains(p.log(), "cannot write the sales of redis-stream to MySQL")
	})
	p.expect(t, "POST", p.url+"/stock/deduct/update?goods_id=1&count=1", 200)
	setPassword("old")
	eventually(t, "Redis sells again", func() bool {
		status, _ := p.call("POST", p.url+"/stock/deduct/redis-stream?goods_id=1&count=1")
		return status == 200
	})
}
