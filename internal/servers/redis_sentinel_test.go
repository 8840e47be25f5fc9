package servers_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
)

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
