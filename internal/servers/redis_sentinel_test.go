package servers_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func TestThreeSentinelsPromoteTheReplicaOfAKilledMaster(t *testing.T) {
	t.Parallel()
	group, err := servers.StartRedisSentinel(t.Context(), servers.RedisSentinelOptions{})
	must.Succeed(t, err)
	serverstest.StopAfterTest(t, group)
	group.Master.Kill()
	must.Succeed(t, group.AwaitPromotion(t.Context()))
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
