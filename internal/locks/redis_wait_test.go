package locks_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"stock/internal/locks"
	"stock/internal/must"
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

func newRedisWait(t testing.TB, client redis.UniversalClient, o locks.Options) *locks.RedisWait {
	t.Helper()
	lock, err := locks.NewRedisWait(client, o)
	must.Succeed(t, err)
	t.Cleanup(func() { lock.Close() })
	return lock
}

func clusterClient(t testing.TB, addrs ...string) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs, ContextTimeoutEnabled: true, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // see NewRedisWait
	})
	t.Cleanup(func() { client.Close() })
	return client
}

func TestRedisWaitIsGrantedOnlyIfCopied(t *testing.T) {
	r := newReplicated(t)
	lock := newRedisWait(t, r.onMaster, lasting)
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

// isCommand selects the messages that begin with a command of Redis.
func isCommand(name string) func(tcpproxy.Message) bool {
	return func(m tcpproxy.Message) bool {
		words := strings.SplitN(string(m.Data), "\r\n", 4)
		return len(words) == 4 && strings.EqualFold(words[2], name)
	}
}

// throughProxy returns a client of the master, and the proxy that it goes through.
func (r replicated) throughProxy(t *testing.T) (redis.UniversalClient, *tcpproxy.Proxy) {
	proxy := tcpproxy.New(t, r.master.Addr)
	return connect(t, &redis.Options{Addr: proxy.Addr()}), proxy
}

func TestRedisWaitAsksOnTheConnectionOfTheGrant(t *testing.T) {
	r := newReplicated(t)
	client, proxy := r.throughProxy(t)
	isSet, isWait := isCommand("set"), isCommand("wait")
	var mu sync.Mutex
	var grants, waits []int // the connections
	proxy.Select(func(m tcpproxy.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		if isSet(m) {
			grants = append(grants, m.Conn)
		}
		if isWait(m) {
			waits = append(waits, m.Conn)
		}
		return false
	})
	mustUnlock(t, mustLock(t, newRedisWait(t, client, lasting), rungKey))
	mu.Lock()
	defer mu.Unlock()
	if len(grants) == 0 || len(waits) == 0 || grants[len(grants)-1] != waits[len(waits)-1] {
		t.Errorf("SET was sent on the connections %v and WAIT on %v, want the same last one", grants, waits)
	}
}

func TestRedisWaitLeavesHalfOfTheConnectionsToOthers(t *testing.T) {
	const conns, callers = 4, 8
	r := newReplicated(t)
	client := connect(t, &redis.Options{Addr: r.master.Addr, PoolSize: conns})
	var mu sync.Mutex
	waits, most := 0, 0
	client.AddHook(hook{command: func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
		if cmd.Name() != "wait" {
			return next(ctx, cmd)
		}
		add := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			waits += n
			most = max(most, waits)
		}
		add(1)
		defer add(-1)
		return next(ctx, cmd)
	}})
	lock := newRedisWait(t, client, locks.Options{Lease: time.Second})
	r.link.BlackHole()
	ctx := patient(t)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			_, err := lock.Lock(ctx, fmt.Sprint(i))
			wantServiceError(t, err)
		})
	}
	all.Wait()
	if most == 0 || most > conns/2 {
		t.Errorf("%d WAITs were under way at once, want 1 to %d", most, conns/2)
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
				return newRedisWait(t, client, lasting)
			}
			mustLock(t, newLock(r.onMaster), rungKey)
			r.master.Kill()
			must.Succeed(t, r.replica.Promote(t.Context()))
			serverstest.StartRedis(t, servers.RedisOptions{ReplicaOf: r.replica.Addr}) // so that WAIT has one to ask
			if held := exists(t, r.onReplica, rungKey); held == granted {
				t.Fatalf("the promoted Redis replica has the lock: %v, want %v", held, !granted)
			}
			if granted {
				mustUnlock(t, mustLock(t, newLock(r.onReplica), rungKey))
				return
			}
			wantWait(t, t.Context(), newLock(r.onReplica), rungKey)
		})
	}
}

func TestRedisWaitWorksOnACluster(t *testing.T) {
	t.Parallel()
	cluster := serverstest.StartCluster(t)
	for _, master := range cluster.Addrs {
		serverstest.StartRedis(t, servers.RedisOptions{ReplicaOf: master})
	}
	client := clusterClient(t, cluster.Addrs...)
	lock := newRedisWait(t, client, lasting)
	for i := range 6 { // in different hash slots
		mustUnlock(t, mustLock(t, lock, fmt.Sprintf("lock:{%d}", i)))
	}
}
