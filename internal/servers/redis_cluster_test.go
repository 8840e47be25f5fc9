package servers_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func TestReplicasOfAClusterTakeTheirMastersPlaces(t *testing.T) {
	serverstest.Long(t)
	t.Parallel()
	cluster, err := servers.StartRedisCluster(t.Context(), servers.RedisClusterOptions{Replicas: true})
	must.Succeed(t, err)
	t.Cleanup(func() {
		for _, server := range append(cluster.Masters, cluster.Replicas...) {
			defer gone(t, server.Process)
		}
		must.Succeed(t, cluster.Stop(context.Background()))
	})
	const key = "stock:{3}" // a hash slot of the first master
	master := connect(t, &redis.Options{Addr: cluster.Masters[0].Addr})
	set := func(client *redis.Client, units int) {
		t.Helper()
		must.Succeed(t, client.Set(t.Context(), key, units, 0).Err())
	}
	set(master, 6000)
	if copies, err := master.Wait(t.Context(), 1, 20*time.Second).Result(); err != nil || copies != 1 {
		t.Fatalf("%d Redis replicas have the stock, %v, want 1", copies, err)
	}
	must.Succeed(t, cluster.Replicas[0].CutReplication(t.Context()))
	set(master, 5999)
	cluster.Masters[0].Kill()
	must.Succeed(t, cluster.AwaitPromotion(t.Context(), 0))
	replica := connect(t, &redis.Options{Addr: cluster.Replicas[0].Addr})
	if units, err := replica.Get(t.Context(), key).Int(); err != nil || units != 6000 {
		t.Errorf("the promoted Redis replica has %d units, %v, want the 6000 from before it was cut off", units, err)
	}
	set(replica, 5998)
}
