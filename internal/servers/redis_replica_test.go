package servers_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

func TestRedisReplicaIsInSyncWhenItHasStarted(t *testing.T) {
	t.Parallel()
	master := serverstest.StartRedis(t, servers.RedisOptions{})
	to := connect(t, &redis.Options{Addr: master.Addr})
	must.Succeed(t, to.Set(t.Context(), "stock:{1}", 6000, 0).Err())
	replica := serverstest.StartRedis(t, servers.RedisOptions{ReplicaOf: master.Addr})
	got, err := connect(t, &redis.Options{Addr: replica.Addr}).Get(t.Context(), "stock:{1}").Int()
	if err != nil || got != 6000 {
		t.Errorf("the Redis replica has %d, %v, want 6000", got, err)
	}
	if copies, err := to.Wait(t.Context(), 1, 20*time.Second).Result(); err != nil || copies != 1 {
		t.Errorf("%d Redis replicas have the write, %v, want 1", copies, err)
	}
}

func TestAServerFollowsAnother(t *testing.T) {
	t.Parallel()
	master := serverstest.StartRedis(t, servers.RedisOptions{})
	follower := serverstest.StartRedis(t, servers.RedisOptions{})
	must.Succeed(t, follower.Follow(t.Context(), master))
	must.Succeed(t, master.AwaitReplica(t.Context()))
	must.Succeed(t, follower.AwaitSync(t.Context()))
}
