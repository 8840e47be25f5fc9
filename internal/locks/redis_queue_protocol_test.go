package locks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/must"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

// The first attempt of a request that was repeated arrives after the lock was released.
func TestRedisQueueRefusesALateRequestOfATurnThatHasEnded(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, observer := newQueueProcess(t, server, locks.Options{}), connect(t, server)
	var requests []redis.Cmder
	p.client.AddHook(hook{script: func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
		requests = append(requests, cmd)
		return next(ctx, cmd)
	}})
	for range 3 { // the last ones take the fast path
		lease := mustLock(t, p, queueKey)
		late := requests[len(requests)-1]
		mustUnlock(t, lease)
		if reply, err := observer.Do(t.Context(), late.Args()...).Int(); err != nil || reply != 0 {
			t.Errorf("the late request is answered %d, %v, want 0: its owner has left", reply, err)
		}
		if exists(t, observer, queueKey) {
			t.Error("the late request took the lock, and nobody will release it")
		}
	}
}

func TestRedisQueueServesAnUncontendedLockInThreeCallsEach(t *testing.T) {
	t.Parallel()
	server := serverstest.StartRedis(t, servers.RedisOptions{}) // other tests send commands too
	options := &redis.Options{Addr: server.Addr}
	p, observer := newQueueProcess(t, options, locks.Options{}), connect(t, options)
	mustUnlock(t, mustLock(t, p, queueKey)) // the memory knows the process now
	mustUnlock(t, mustLock(t, p, queueKey)) // perhaps the first of an hour
	must.Succeed(t, observer.ConfigResetStat(t.Context()).Err())
	const times = 10
	for range times {
		mustUnlock(t, mustLock(t, p, queueKey))
	}
	info := observer.Info(t.Context(), "commandstats").Val()
	for _, command := range []string{"hmget", "time", "set", "get", "hset", "del"} {
		if want := fmt.Sprintf("cmdstat_%s:calls=%d,", command, times); !strings.Contains(info, want) {
			t.Errorf("want %s once for each lock and unlock", command)
		}
	}
	for _, command := range []string{"exists", "pexpire", "zrange", "publish"} {
		if strings.Contains(info, "cmdstat_"+command+":") {
			t.Errorf("%s was called, want only the fast path:\n%s", command, info)
		}
	}
}

func TestRedisQueueRefusesALateRequestOfACallerThatGaveUp(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, observer := newQueueProcess(t, server, locks.Options{}), connect(t, server)
	var late redis.Cmder // a request that is delayed until its caller has given up
	p.client.AddHook(hook{script: func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
		if late != nil {
			return next(ctx, cmd)
		}
		late = cmd
		<-ctx.Done()
		return ctx.Err()
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := p.Lock(ctx, queueKey)
	wantNotAcquired(t, err, context.DeadlineExceeded)

	mustUnlock(t, mustLock(t, p, "lock:{2}")) // loads the script
	reply, err := observer.Do(t.Context(), late.Args()...).Int()
	if err != nil || reply != 0 {
		t.Errorf("the late request is answered %d, %v, want 0: its owner has left", reply, err)
	}
	if exists(t, observer, queueKey) || exists(t, observer, queueKey+":queue") {
		t.Error("the late request took the lock, or waits for it")
	}
}

func TestRedisQueueTokensRiseWithoutTheirMemory(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, observer := newQueueProcess(t, server, locks.Options{}), connect(t, server)
	var last uint64
	for _, before := range []func(){
		func() {},
		func() { del(t, observer, queueKey+":memory") },
		func() { // as if the server's clock had been set back by an hour
			observer.HSet(t.Context(), queueKey+":memory", "token", time.Now().Add(time.Hour).UnixMicro())
			last = uint64(time.Now().Add(time.Hour).UnixMicro()) - uint64(time.Minute.Microseconds())
		},
		func() {},
		func() { del(t, observer, queueKey) }, // the lock was lost
	} {
		before()
		lease := mustLock(t, p, queueKey)
		if lease.Token() <= last {
			t.Errorf("token %d after %d, want a greater one", lease.Token(), last)
		}
		last = lease.Token()
		mustUnlock(t, lease)
	}
}

func TestRedisQueueKeepsItsMemoryForADay(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	holding, observer := newQueueProcess(t, server, locks.Options{}), connect(t, server)
	expires := func(key string) {
		t.Helper()
		if ttl := observer.PTTL(t.Context(), key).Val(); ttl < 23*time.Hour || ttl > 25*time.Hour {
			t.Errorf("%s expires in %v, want about a day", key, ttl)
		}
	}
	mustUnlock(t, mustLock(t, holding, queueKey))
	for range 2 { // the fast path of a process that the memory knows
		mustUnlock(t, mustLock(t, holding, queueKey))
	}
	expires(queueKey + ":memory")
	// The last lock was an hour ago, and the memory would expire soon.
	must.Succeed(t, observer.HIncrBy(t.Context(), queueKey+":memory", "token", -time.Hour.Microseconds()).Err())
	must.Succeed(t, observer.PExpire(t.Context(), queueKey+":memory", time.Minute).Err())
	mustUnlock(t, mustLock(t, holding, queueKey))
	expires(queueKey + ":memory")
	lease := mustLock(t, holding, queueKey)
	del(t, observer, queueKey+":memory")
	mustUnlock(t, lease)
	expires(queueKey + ":memory")
}

func TestRedisQueueRemembersABoundedNumberOfProcesses(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	client, observer := connect(t, server), connect(t, server)
	for range 300 {
		q := locks.NewRedisQueue(client, locks.Options{})
		mustUnlock(t, mustLock(t, q, queueKey))
		must.Succeed(t, q.Close())
	}
	if n := observer.HLen(t.Context(), queueKey+":memory").Val(); n > 260 {
		t.Errorf("the memory has %d fields, want at most 260", n)
	}
}

func TestRedisQueueNeedsNoMessage(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	first, second := newQueueProcess(t, server, locks.Options{}), newQueueProcess(t, server, locks.Options{})
	observer := connect(t, server)
	holder := mustLock(t, first, queueKey)
	granted := lockLater(t, second, queueKey)
	awaitQueue(t, observer, 1)
	// Nobody receives the message of the release.
	second.Deafen()
	mustUnlock(t, holder)
	mustUnlock(t, <-granted)
}

// A message may come after its grant has ended, when the process has asked again and been told to wait.
func TestRedisQueueIgnoresALateGrant(t *testing.T) {
	t.Parallel()
	p, observer, holder, granted := waitBehindHolder(t)
	_, number, _ := strings.Cut(observer.ZRange(t.Context(), queueKey+":queue", 0, 0).Val()[0], "/")
	del(t, observer, queueKey+":memory") // so that no later token has been given out when p asks again
	must.Succeed(t, observer.HSet(t.Context(), queueKey+":memory", "token", holder.Token()+1).Err())
	p.AskAll()
	serverstest.Eventually(t, "the process was told the last token", func() bool {
		return p.After(queueKey) == holder.Token()+1
	})
	for _, message := range []string{fmt.Sprintf("%s 3000 %d %s", number, holder.Token(), queueKey), "of no version"} {
		p.Hear(message)
		if p.Waiting(queueKey) != 1 {
			t.Errorf("the process took %q for a grant", message)
		}
	}
	mustUnlock(t, holder)
	mustUnlock(t, <-granted)
}

func TestRedisQueueReliesOnAGrantNoLongerThanItLasts(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, observer := newQueueProcess(t, server, locks.Options{Lease: 30 * time.Second}), connect(t, server)
	// The release makes a grant that is as short as the holder's lease.
	holder := mustLock(t, newQueueProcess(t, server, locks.Options{Lease: 10 * time.Second}), queueKey)
	granted := waitFor(t, p, observer, 1)
	mustUnlock(t, holder)
	lease := <-granted
	deadline := lease.Deadline()
	if ends := time.Now().Add(observer.PTTL(t.Context(), queueKey).Val()); deadline.After(ends) {
		t.Errorf("the process relies on the lock for %v longer than Redis grants it", deadline.Sub(ends))
	}
	mustUnlock(t, lease)
}

// The message of a grant may arrive before the reply that says to wait for it.
func TestRedisQueueRemembersAnEarlyMessage(t *testing.T) {
	t.Parallel()
	server := shared.Redis(t)
	p, other := newQueueProcess(t, server, locks.Options{}), newQueueProcess(t, server, locks.Options{})
	observer := connect(t, server)
	holder := mustLock(t, other, queueKey)
	granted := waitFor(t, p, observer, 1)
	mustUnlock(t, holder)
	mustUnlock(t, <-granted) // p is subscribed now

	holder = mustLock(t, other, queueKey)
	var once sync.Once
	p.client.AddHook(hook{script: func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		once.Do(func() {
			mustUnlock(t, holder)
			serverstest.Eventually(t, "the message came before the reply", func() bool { return p.Hinted(queueKey) })
		})
		return err
	}})
	mustUnlock(t, mustLock(t, p, queueKey))
}

func TestRedisQueueIsGrantedByTheMessageOfTheRelease(t *testing.T) {
	t.Parallel()
	p, _, holder, granted := waitBehindHolder(t)
	p.client.AddHook(hook{script: func(context.Context, redis.ProcessHook, redis.Cmder) error {
		return errors.New("Redis answers no more requests")
	}})
	mustUnlock(t, holder)
	(<-granted).Abandon()
}
