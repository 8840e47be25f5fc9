package servers_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
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
	if err := group.AwaitPromotion(t.Context()); err != nil {
		t.Fatal(err)
	}
	promoted := connect(t, &redis.Options{Addr: group.Replica.Addr})
	if got, err := promoted.Get(t.Context(), "stock:{1}").Int(); err != nil || got != 6000 {
		t.Errorf("the promoted replica has %d, %v, want 6000", got, err)
	}
}

func TestThreeSentinelsPromoteTheReplicaOfAKilledMaster(t *testing.T) {
	t.Parallel()
	group, err := servers.StartRedisSentinel(t.Context(), servers.RedisSentinelOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := group.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	group.Master.Kill()
	if err := group.AwaitPromotion(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(group.SentinelAddrs) != 3 {
		t.Errorf("there are %d Sentinels, want 3", len(group.SentinelAddrs))
	}
	for _, addr := range group.SentinelAddrs {
		client := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: group.MasterName, SentinelAddrs: []string{addr},
		})
		t.Cleanup(func() { client.Close() })
		if err := client.Set(t.Context(), "key", "value", 0).Err(); err != nil {
			t.Errorf("writing to the master that Sentinel %s names: %v", addr, err)
		}
	}
}

func TestSentinelStopFreesThePortsAndTheDirectories(t *testing.T) {
	t.Parallel()
	group, err := servers.StartRedisSentinel(t.Context(), servers.RedisSentinelOptions{Sentinels: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := group.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	for _, server := range append(group.Sentinels, group.Master, group.Replica) {
		gone(t, server.Process, server.Addr)
	}
}
