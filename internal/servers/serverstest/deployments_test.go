package serverstest_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers/serverstest"
)

func TestSentinelPromotesTheReplicaOnFailover(t *testing.T) {
	t.Parallel()
	group := serverstest.StartSentinel(t)
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: group.MasterName, SentinelAddrs: group.SentinelAddrs,
	})
	t.Cleanup(func() { client.Close() })
	if err := client.Set(t.Context(), "stock:{1}", 6000, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if copied, err := client.Wait(t.Context(), 1, 20*time.Second).Result(); err != nil || copied != 1 {
		t.Fatalf("%d replicas have the write, %v, want 1", copied, err)
	}

	sentinel := redis.NewSentinelClient(&redis.Options{Addr: group.SentinelAddrs[0]})
	t.Cleanup(func() { sentinel.Close() })
	if err := sentinel.Failover(t.Context(), group.MasterName).Err(); err != nil {
		t.Fatal(err)
	}
	serverstest.Eventually(t, "the Sentinel names the replica "+group.Replica.Addr+" as master", func() bool {
		master, err := sentinel.GetMasterAddrByName(t.Context(), group.MasterName).Result()
		return err == nil && net.JoinHostPort(master[0], master[1]) == group.Replica.Addr
	})
	promoted := redis.NewClient(&redis.Options{Addr: group.Replica.Addr})
	t.Cleanup(func() { promoted.Close() })
	if got, err := promoted.Get(t.Context(), "stock:{1}").Int(); err != nil || got != 6000 {
		t.Errorf("the promoted replica has %d, %v, want 6000", got, err)
	}
}

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
		master := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { master.Close() })
		if keys, err := master.DBSize(t.Context()).Result(); err != nil || keys == 0 {
			t.Errorf("master %s has %d of the 100 keys, %v, want some", addr, keys, err)
		}
	}
}
