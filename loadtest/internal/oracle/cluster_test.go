package oracle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func TestOracleReadsAClusterWithTheDocumentedAccount(t *testing.T) {
	t.Parallel()
	cluster, err := servers.StartRedisCluster(t.Context(), servers.RedisClusterOptions{Replicas: true})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := cluster.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs})
	t.Cleanup(func() { client.Close() })
	want := map[int64]int64{}
	var items []int64
	for id := range int64(12) { // on all masters
		must.Succeed(t, client.Set(t.Context(), fmt.Sprintf("stock:{%d}", id), 100+id, 0).Err())
		want[id], items = 100+id, append(items, id)
	}
	rules := serverstest.Rules(t, "../../../docs/accounts.md", "ACL SETUSER stock_reader ")
	for _, server := range slices.Concat(cluster.Masters, cluster.Replicas) {
		serverstest.SetUser(t, &redis.Options{Addr: server.Addr}, rules)
	}
	o, err := Open(t.Context(), Config{
		Redis: cluster.Addrs, Account: Account{RedisUser: "stock_reader", RedisPassword: serverstest.Secret},
	})
	must.Succeed(t, err)
	t.Cleanup(func() { o.Close() })
	if got, err := o.Stock(t.Context(), Redis, items); err != nil || !maps.Equal(got, want) {
		t.Errorf("stock %v, %v, want %v", got, err, want)
	}
	found, err := o.Servers(t.Context())
	if err != nil || len(found) != 1 || !strings.HasSuffix(found[0].Version, " Cluster of 3 masters") {
		t.Errorf("servers %v, %v, want a Cluster of 3 masters", found, err)
	}
	before, err := o.Counters(t.Context())
	must.Succeed(t, err)
	for _, id := range items {
		must.Succeed(t, client.Decr(t.Context(), fmt.Sprintf("stock:{%d}", id)).Err())
		want[id]--
	}
	// Redis replicas, and clients that ask for the layout, send commands, too.
	after, err := o.Counters(t.Context())
	if n := after.Since(before).RedisCommands; err != nil || n < int64(len(items)) {
		t.Errorf("%d commands, %v, want at least %d", n, err, len(items))
	}

	for i, master := range cluster.Masters {
		admin := redis.NewClient(&redis.Options{Addr: master.Addr})
		t.Cleanup(func() { admin.Close() })
		if copies, err := admin.Wait(t.Context(), 1, 0).Result(); err != nil || copies != 1 {
			t.Fatalf("master %d has %d Redis replicas, %v, want 1", i, copies, err)
		}
		refused, err := admin.ACLLog(t.Context(), 10).Result()
		if err != nil {
			t.Error(err)
		}
		for _, entry := range refused {
			if entry.Object != "config|get" {
				t.Errorf("%s refuses %+v", master.Name, entry)
			}
		}
	}
	cluster.Masters[0].Kill()
	must.Succeed(t, cluster.AwaitPromotion(t.Context(), 0))
	serverstest.Eventually(t, "the oracle reads the same after a failover", func() bool {
		got, err := o.Stock(t.Context(), Redis, items)
		return err == nil && maps.Equal(got, want)
	})
}
