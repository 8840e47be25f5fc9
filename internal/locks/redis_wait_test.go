package locks_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
)

// replicated is a master and a Redis replica that reaches it through a proxy.
type replicated struct {
	master, replica     *servers.Redis
	onMaster, onReplica redis.UniversalClient
	link                *tcpproxy.Proxy
}

func newReplicated(t *testing.T) replicated {
	t.Parallel()
	r := replicated{master: serverstest.StartRedis(t, servers.RedisOptions{})}
	r.link = tcpproxy.New(t, r.master.Addr)
	r.replica = serverstest.StartRedis(t, servers.RedisOptions{ReplicaOf: r.link.Addr()})
	r.onMaster = connect(t, &redis.Options{Addr: r.master.Addr})
	r.onReplica = connect(t, &redis.Options{Addr: r.replica.Addr})
	return r
}

func TestRedisWaitIsGrantedOnlyIfCopied(t *testing.T) {
	r := newReplicated(t)
	lock := locks.NewRedisWait(r.onMaster, lasting)
	lease := mustLock(t, lock, rungKey)
	if !exists(t, r.onReplica, rungKey) {
		t.Error("the lock is granted, but the Redis replica does not have it")
	}
	mustUnlock(t, lease)

	r.link.BlackHole()
	_, err := lock.Lock(patient(t), rungKey)
	wantServiceError(t, err)
	if err != nil && !strings.Contains(err.Error(), "no Redis replica has confirmed") {
		t.Errorf("Lock: %v, want that no Redis replica has confirmed the grant", err)
	}
	if exists(t, r.onMaster, rungKey) {
		t.Error("the master still has the lock that was not confirmed")
	}
}

// The last write of another connection may be confirmed although the grant is not.
func TestWaitOnAnotherConnectionDoesNotWaitForTheGrant(t *testing.T) {
	r := newReplicated(t)
	other := connect(t, &redis.Options{Addr: r.master.Addr}).(*redis.Client).Conn()
	defer other.Close()
	if err := other.Set(t.Context(), "another key", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	type waiter interface {
		Wait(ctx context.Context, copies int, limit time.Duration) *redis.IntCmd
	}
	wait := func(client waiter) int64 {
		copies, err := client.Wait(t.Context(), 1, 500*time.Millisecond).Result()
		if err != nil {
			t.Fatal(err)
		}
		return copies
	}
	if wait(other) != 1 {
		t.Fatal("the Redis replica does not confirm")
	}
	r.link.BlackHole()
	grant := r.onMaster.(*redis.Client).Conn()
	defer grant.Close()
	if err := grant.Set(t.Context(), rungKey, "owner", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if elsewhere, here := wait(other), wait(grant); elsewhere != 1 || here != 0 {
		t.Errorf("WAIT says %d on another connection and %d on that of the grant, want 1 and 0", elsewhere, here)
	}
}

func TestRedisWaitOutlivesAFailover(t *testing.T) {
	for name, granted := range map[string]bool{"redis-wait": false, "redis-lua": true} { // again, after the failover
		t.Run(name, func(t *testing.T) {
			r := newReplicated(t)
			if name == "redis-lua" { // replication is behind, which WAIT would notice
				r.link.BlackHole()
			}
			newLock := func(client redis.UniversalClient) locks.Locker {
				if name == "redis-lua" {
					return locks.NewRedisLua(client, lasting)
				}
				return locks.NewRedisWait(client, lasting)
			}
			mustLock(t, newLock(r.onMaster), rungKey)
			r.master.Kill()
			if err := r.replica.Promote(t.Context()); err != nil {
				t.Fatal(err)
			}
			serverstest.StartRedis(t, servers.RedisOptions{ReplicaOf: r.replica.Addr}) // so that WAIT has one to ask
			if granted {
				mustUnlock(t, mustLock(t, newLock(r.onReplica), rungKey))
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), inVain)
			defer cancel()
			_, err := newLock(r.onReplica).Lock(ctx, rungKey)
			wantNotAcquired(t, err, context.DeadlineExceeded)
		})
	}
}

func TestRedisWaitWorksOnACluster(t *testing.T) {
	t.Parallel()
	cluster := serverstest.StartCluster(t)
	for _, master := range cluster.Addrs {
		serverstest.StartRedis(t, servers.RedisOptions{ReplicaOf: master})
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs, ContextTimeoutEnabled: true})
	defer client.Close()
	lock := locks.NewRedisWait(client, lasting)
	defer lock.Close()
	for i := range 6 { // in different hash slots
		mustUnlock(t, mustLock(t, lock, fmt.Sprintf("lock:{%d}", i)))
	}
}
