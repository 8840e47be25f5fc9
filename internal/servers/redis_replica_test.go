package servers_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
)

func TestRedisReplicaIsInSyncWhenItHasStarted(t *testing.T) {
	t.Parallel()
	master := serverstest.StartRedis(t, servers.RedisOptions{})
	to := connect(t, &redis.Options{Addr: master.Addr})
	if err := to.Set(t.Context(), "stock:{1}", 6000, 0).Err(); err != nil {
		t.Fatal(err)
	}
	replica := serverstest.StartRedis(t, servers.RedisOptions{ReplicaOf: master.Addr})
	got, err := connect(t, &redis.Options{Addr: replica.Addr}).Get(t.Context(), "stock:{1}").Int()
	if err != nil || got != 6000 {
		t.Errorf("the Redis replica has %d, %v, want 6000", got, err)
	}
	if copies, err := to.Wait(t.Context(), 1, 20*time.Second).Result(); err != nil || copies != 1 {
		t.Errorf("%d Redis replicas have the write, %v, want 1", copies, err)
	}
}

func TestPromotedRedisReplicaLacksTheWritesThatTheProxySwallowed(t *testing.T) {
	t.Parallel()
	master := serverstest.StartRedis(t, servers.RedisOptions{})
	link := tcpproxy.New(t, master.Addr)
	replica := serverstest.StartRedis(t, servers.RedisOptions{ReplicaOf: link.Addr()})

	link.BlackHole()
	if err := connect(t, &redis.Options{Addr: master.Addr}).Set(t.Context(), "key", "A", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := replica.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	promoted := connect(t, &redis.Options{Addr: replica.Addr})
	granted, err := promoted.SetNX(t.Context(), "key", "B", 0).Result()
	if err != nil || !granted {
		t.Errorf("SETNX on the promoted Redis replica gives %v, %v, want true", granted, err)
	}
}

func TestRedisReplicaSyncsAgainWhenItsLinkIsBack(t *testing.T) {
	t.Parallel()
	master := serverstest.StartRedis(t, servers.RedisOptions{})
	link := tcpproxy.New(t, master.Addr)
	replica := serverstest.StartRedis(t, servers.RedisOptions{ReplicaOf: link.Addr()})
	from := connect(t, &redis.Options{Addr: replica.Addr})

	link.BlackHole() // so that the Redis replica cannot connect again
	link.Break()
	serverstest.Eventually(t, "the Redis replica has noticed that its link is down", func() bool {
		info, err := from.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:down")
	})
	if err := connect(t, &redis.Options{Addr: master.Addr}).Set(t.Context(), "stock:{1}", 6000, 0).Err(); err != nil {
		t.Fatal(err)
	}
	link.Pass()
	if err := replica.AwaitSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	serverstest.Eventually(t, "the Redis replica has the write", func() bool {
		got, err := from.Get(t.Context(), "stock:{1}").Int()
		return err == nil && got == 6000
	})
}

func TestAServerFollowsAnother(t *testing.T) {
	t.Parallel()
	master := serverstest.StartRedis(t, servers.RedisOptions{})
	follower := serverstest.StartRedis(t, servers.RedisOptions{})
	if err := follower.Follow(t.Context(), master); err != nil {
		t.Fatal(err)
	}
	if err := master.AwaitReplica(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := follower.AwaitSync(t.Context()); err != nil {
		t.Error(err)
	}
}
