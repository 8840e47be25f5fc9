package locks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

var errNoAnswer = errors.New("no answer")

// undoer is what a lock of this package uses to undo.
type undoer interface {
	TakeBack(context.Context, func(context.Context) error)
	TakeBackLater(func(context.Context) error)
	Pending() int
}

// away is a service that does not answer until it is back.
type away struct {
	back     chan struct{}
	attempts chan string // has room for those of a test
}

func newAway() away {
	return away{back: make(chan struct{}), attempts: make(chan string, 4*locks.MaxUndos)}
}

// undo returns an undo that succeeds when the service is back.
func (a away) undo(name string) func(context.Context) error {
	return func(context.Context) error {
		a.attempts <- name
		select {
		case <-a.back:
			return nil
		default:
			return errNoAnswer
		}
	}
}

// On a Cluster, one undoer serves all shards.
func TestUndosThatFailDoNotDelayThoseThatSucceed(t *testing.T) {
	t.Parallel()
	undoer, silent := locks.NewUndoer(time.Minute), newAway()
	defer undoer.Close()
	const many = 100
	for range many {
		undoer.TakeBack(t.Context(), silent.undo("silent"))
	}
	undone := 0
	undoer.TakeBack(t.Context(), func(context.Context) error {
		undone++
		return nil
	})
	if undone != 1 || undoer.Pending() != many {
		t.Errorf("%d attempts of an undo that succeeds, %d are pending, want 1 and %d", undone, undoer.Pending(), many)
	}
	working, goOn := make(chan struct{}), make(chan struct{})
	undoer.TakeBackLater(func(context.Context) error {
		close(working)
		<-goOn
		return nil
	})
	receive(t, working, nil)
	before, release := len(silent.attempts), make(chan int, 1)
	undoer.TakeBackLater(func(context.Context) error {
		release <- len(silent.attempts)
		return nil
	})
	close(goOn)
	if n := receive(t, release, nil) - before; n != 0 {
		t.Errorf("%d attempts for failed Locks before the first for an Unlock, want none", n)
	}
}

func TestLockIsRefusedWhileTooMuchWaitsToBeUndone(t *testing.T) {
	t.Parallel()
	client := connect(t, shared.Redis(t))
	lua, queue := locks.NewRedisLua(client, locks.Options{}), locks.NewRedisQueue(client, locks.Options{})
	etcd, zk := newEtcd(t, shared.Etcd(t), locks.Options{}), newZooKeeper(t, shared.ZooKeeper(t))
	for l, undos := range map[locks.Locker]undoer{
		lua: lua.Undos(), queue: queue.Undos(), etcd: etcd.Undos(), zk: zk.Undos(),
	} {
		service := newAway()
		undos.TakeBackLater(service.undo("unlock"))
		for range locks.MaxUndos {
			undos.TakeBack(t.Context(), service.undo("lock"))
		}
		_, err := l.Lock(t.Context(), "full")
		wantServiceError(t, err)
		if err == nil || !strings.Contains(err.Error(), "too many locks wait to be released") {
			t.Errorf("%T: Lock: %v, want it to say that too many locks wait", l, err)
		}
		if n := undos.Pending(); n != locks.MaxUndos+1 {
			t.Errorf("%T: %d undos are pending, want %d: that of an Unlock must not be lost", l, n, locks.MaxUndos+1)
		}
		close(service.back)
		serverstest.Eventually(t, "nothing is pending", func() bool { return undos.Pending() == 0 })
		mustUnlock(t, mustLock(t, l, "full"))
		_ = locks.Close(l)
	}
}

// A lock that was certainly not granted does not have to be undone.
func TestAnErrorMayProveThatRedisDidNothing(t *testing.T) {
	t.Parallel()
	server := serverstest.StartRedis(t, servers.RedisOptions{})
	at := &redis.Options{Addr: server.Addr}
	observer := connect(t, at)
	configure := func(name, value string) {
		t.Helper()
		must.Succeed(t, observer.ConfigSet(t.Context(), name, value).Err())
	}
	set := func(client redis.UniversalClient) error {
		return client.Set(context.WithoutCancel(t.Context()), "key", "value", 0).Err()
	}
	check := func(what string, client redis.UniversalClient, err error, want bool) {
		t.Helper()
		if err == nil || locks.NotDone(client, err) != want {
			t.Errorf("%s: %v: proves that nothing was done: %t, want %t", what, err, !want, want)
		}
	}
	down, closed := connect(t, nobody), connect(t, at)
	closed.Close()
	check("nobody listens", down, set(down), true)
	check("the client is closed", closed, set(closed), true)
	retrying := redis.NewClient(&redis.Options{Addr: nobody.Addr, DialerRetries: 1})
	defer retrying.Close()
	check("an earlier attempt may have reached Redis", retrying, set(retrying), false)
	for retries, want := range map[int]bool{-1: true, 3: false} {
		cluster := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{nobody.Addr}, MaxRedirects: -1, MaxRetries: retries, DialerRetries: 1,
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: nobody.Addr}}}}, nil
			},
		})
		check(fmt.Sprintf("a Cluster is down, with %d retries", retries), cluster, set(cluster), want)
		cluster.Close()
	}

	client := connect(t, at)
	script := redis.NewScript("redis.call('SET', KEYS[1], 1) return redis.call('LPUSH', KEYS[1], 1)")
	check("a script failed halfway", client, script.Run(t.Context(), client, []string{"key"}).Err(), false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check("the caller gave up", client, client.Set(ctx, "key", "value", 0).Err(), false)

	configure("maxmemory", "1")
	check("Redis is full", client, set(client), true)
	configure("maxmemory", "0")
	must.Succeed(t, observer.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
	check("Redis is a replica", client, set(client), true)
}

func TestUndoerRetriesUntilTheServiceAnswers(t *testing.T) {
	t.Parallel()
	undoer, service := locks.NewUndoer(time.Minute), newAway()
	defer undoer.Close()
	undoer.TakeBack(t.Context(), service.undo("first"))
	for range 3 {
		receive(t, service.attempts, nil)
	}
	undoer.TakeBack(t.Context(), service.undo("second"))
	close(service.back)
	serverstest.Eventually(t, "both are undone", func() bool { return undoer.Pending() == 0 })
	undoer.TakeBack(t.Context(), service.undo("third"))
	if undoer.Pending() > 0 {
		t.Error("the service answers, but an undo was not made at once")
	}
}
