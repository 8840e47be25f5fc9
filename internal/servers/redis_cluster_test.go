package servers_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func TestClusterServesEveryHashSlot(t *testing.T) {
	t.Parallel()
	cluster := serverstest.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs[:1]})
	t.Cleanup(func() { client.Close() })
	for i := range 100 {
		if err := client.Set(t.Context(), fmt.Sprintf("stock:{%d}", i), 6000, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, addr := range cluster.Addrs {
		if keys, err := connect(t, &redis.Options{Addr: addr}).DBSize(t.Context()).Result(); err != nil || keys == 0 {
			t.Errorf("master %s has %d of the 100 keys, %v, want some", addr, keys, err)
		}
	}
}

func TestReplicasOfAClusterTakeTheirMastersPlaces(t *testing.T) {
	t.Parallel()
	cluster, err := servers.StartRedisCluster(t.Context(), servers.RedisClusterOptions{Replicas: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, server := range append(cluster.Masters, cluster.Replicas...) {
			defer gone(t, server.Process, server.Addr)
		}
		if err := cluster.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	cluster.Masters[0].Kill()
	replica := connect(t, &redis.Options{Addr: cluster.Replicas[0].Addr})
	const key = "stock:{3}" // a hash slot of the first master
	serverstest.Eventually(t, "the Redis replica of the killed master accepts writes", func() bool {
		return replica.Set(t.Context(), key, 6000, 0).Err() == nil
	})
}
