package oracle

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func TestOracleReadsACluster(t *testing.T) {
	t.Parallel()
	cluster, err := servers.StartRedisCluster(t.Context(), servers.RedisClusterOptions{Replicas: true})
	if err != nil {
		t.Fatal(err)
	}
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
		if err := client.Set(t.Context(), fmt.Sprintf("stock:{%d}", id), 100+id, 0).Err(); err != nil {
			t.Fatal(err)
		}
		want[id], items = 100+id, append(items, id)
	}
	o, err := Open(t.Context(), Config{Redis: cluster.Addrs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	if got, err := o.Stock(t.Context(), Redis, items); err != nil || !maps.Equal(got, want) {
		t.Errorf("stock %v, %v, want %v", got, err, want)
	}
	found, err := o.Servers(t.Context())
	if err != nil || len(found) != 1 || !strings.HasSuffix(found[0].Version, " Cluster of 3 masters") {
		t.Errorf("servers %v, %v, want a Cluster of 3 masters", found, err)
	}
	before, err := o.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range items {
		if err := client.Decr(t.Context(), fmt.Sprintf("stock:{%d}", id)).Err(); err != nil {
			t.Fatal(err)
		}
		want[id]--
	}
	// Redis replicas, and clients that ask for the layout, send commands, too.
	after, err := o.Counters(t.Context())
	if n := after.Since(before).RedisCommands; err != nil || n < int64(len(items)) {
		t.Errorf("%d commands, %v, want at least %d", n, err, len(items))
	}

	for i, master := range cluster.Masters {
		if copies, err := connectTo(t, master.Addr).Wait(t.Context(), 1, 0).Result(); err != nil || copies != 1 {
			t.Fatalf("master %d has %d Redis replicas, %v, want 1", i, copies, err)
		}
	}
	cluster.Masters[0].Kill()
	if err := cluster.AwaitPromotion(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	serverstest.Eventually(t, "the oracle reads the same after a failover", func() bool {
		got, err := o.Stock(t.Context(), Redis, items)
		return err == nil && maps.Equal(got, want)
	})
}

func connectTo(t *testing.T, address string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: address})
	t.Cleanup(func() { client.Close() })
	return client
}
