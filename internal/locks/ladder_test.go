package locks_test

// The ladder of the Redis locks: the flaw of each lock, and how the next one repairs it.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/must"
	"stock/internal/servers/serverstest"
	"stock/internal/tcpproxy"
)

// redis-setnx

func TestRedisSetNXStaysLockedAfterItsHolderCrashed(t *testing.T) {
	l := newLadder(t)
	holder := l.client("redis-setnx", fleeting)
	mustLock(t, holder, rungKey)
	holder.crash()

	l.wantLockedForEver()
}

// wantLockedForEver checks that the lock of redis-setnx does not end.
func (l *ladder) wantLockedForEver() {
	l.t.Helper()
	if ttl, err := l.observer.TTL(l.t.Context(), rungKey).Result(); err != nil || ttl != -1 {
		l.t.Errorf("TTL %v (%v), want none", ttl, err)
	}
	wantWait(l.t, l.t.Context(), l.client("redis-setnx", fleeting), rungKey)
}

func TestRedisSetNXStaysLockedAfterALostReply(t *testing.T) {
	l := newLadder(t)
	unlucky := l.client("redis-setnx", lasting)
	unlucky.loseNextReply()
	_, err := unlucky.Lock(t.Context(), rungKey)
	wantNotAcquired(t, err, errLostReply)

	l.wantLockedForEver()
}

// redis-expiry

// lateHolder returns a holder's lease that has ended, and that of the next holder, who has been granted the lock since.
func (l *ladder) lateHolder(rung string) (late, next *locks.Lease) {
	l.t.Helper()
	late = mustLock(l.t, l.client(rung, fleeting), rungKey)
	next = mustLock(l.t, l.client(rung, lasting), rungKey)
	awaitLoss(l.t, late)
	return late, next
}

func TestRedisExpiryLetsALateHolderDeleteAnothersLock(t *testing.T) {
	l := newLadder(t)
	late, next := l.lateHolder("redis-expiry")
	mustUnlock(t, late) // it does not notice

	third := mustLock(t, l.client("redis-expiry", lasting), rungKey)
	if err := next.Context().Err(); err != nil {
		t.Errorf("the next holder noticed that its lock was deleted: %v", err)
	}
	mustUnlock(t, third)
	wantLeaseLost(t, next.Unlock())
}

// redis-owner

// tornRelease calls Unlock; after the first command of the release, the lease ends and another client is granted the
// lock.
func (l *ladder) tornRelease(rung string) (next *locks.Lease, err error) {
	l.t.Helper()
	holder, other := l.client(rung, lasting), l.client(rung, lasting)
	lease := mustLock(l.t, holder, rungKey)
	holder.afterNext(func() error {
		del(l.t, l.observer, rungKey)
		next = mustLock(l.t, other, rungKey)
		return nil
	})
	err = lease.Unlock() // grants next
	return next, err
}

func TestRedisOwnerIsTornBetweenGetAndDel(t *testing.T) {
	l := newLadder(t)
	next, err := l.tornRelease("redis-owner")
	if err != nil {
		t.Errorf("Unlock noticed that it deleted another client's lock: %v", err)
	}
	l.wantHeld(false)
	wantLeaseLost(t, next.Unlock())
}

func TestTheFirstRungsStayLockedAfterAnUnlockThatFailed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"redis-setnx", "redis-expiry", "redis-owner"} {
		t.Run(name, func(t *testing.T) {
			l := newLadder(t)
			proxy := tcpproxy.New(t, l.options.Addr)
			unlucky := rungs[name](connect(t, &redis.Options{Addr: proxy.Addr(), DB: l.options.DB}), lasting)
			lease := mustLock(t, unlucky, rungKey)
			proxy.Cut(1, tcpproxy.BeforeRequest)
			if err := lease.Unlock(); err == nil || errors.Is(err, locks.ErrLeaseLost) {
				t.Errorf("Unlock: %v, want the connection's error", err)
			}
			wantWait(t, t.Context(), l.client(name, lasting), rungKey)
			l.wantHeld(true)
		})
	}
}

// redis-lua

func TestRedisLuaChecksAndDeletesInOneStep(t *testing.T) {
	l := newLadder(t)
	next, err := l.tornRelease("redis-lua")
	if err != nil {
		t.Errorf("Unlock: %v", err)
	}
	l.wantHeld(true)
	mustUnlock(t, next)
}

func TestRedisLuaWaitsForItself(t *testing.T) {
	l := newLadder(t)
	client := l.client("redis-lua", lasting)
	lease := mustLock(t, client, rungKey)
	wantWait(t, lease.Context(), client, rungKey)
	mustUnlock(t, lease)
}

// redis-reentrant

func TestRedisReentrantIsHeldUntilItsLastHoldIsGivenBack(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{2, 1, 0}, {0, 1, 2}, {1, 2, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			l := newLadder(t)
			client := l.client("redis-reentrant", lasting)
			holds := []*locks.Lease{mustLock(t, client, rungKey)}
			for i := range 2 {
				before := holds[0].Deadline()
				lease, err := client.Lock(holds[i].Context(), rungKey)
				must.Succeed(t, err)
				if !holds[0].Deadline().After(before) {
					t.Error("the lease has not started anew")
				}
				holds = append(holds, lease)
			}
			for _, i := range order {
				l.wantHeld(true)
				mustUnlock(t, holds[i])
			}
			l.wantHeld(false)
		})
	}
}

func TestRedisReentrantTakesBackOnlyTheHoldWhoseReplyWasLost(t *testing.T) {
	l := newLadder(t)
	client := l.client("redis-reentrant", lasting)
	outer := mustLock(t, client, rungKey)
	client.loseNextReply()
	if _, err := client.Lock(outer.Context(), rungKey); !errors.Is(err, errLostReply) {
		t.Errorf("Lock whose reply was lost: %v, want the connection's error", err)
	}
	l.wantHeld(true)
	mustUnlock(t, outer)
	l.wantHeld(false)
}

func TestRedisReentrantLosesItsLeaseDuringWork(t *testing.T) {
	l := newLadder(t)
	working, next := l.lateHolder("redis-reentrant")
	l.wantHeld(true)
	wantLeaseLost(t, working.Unlock())
	mustUnlock(t, next)
}

func TestRedisReentrantDoesNotEnterALeaseThatIsOver(t *testing.T) {
	l := newLadder(t)
	client := l.client("redis-reentrant", lasting)
	over := mustLock(t, client, rungKey)
	mustUnlock(t, over)
	next := mustLock(t, client, rungKey)
	wantWait(t, context.WithoutCancel(over.Context()), client, rungKey)
	mustUnlock(t, next)
}

// redis-watchdog

// pausedHolder returns the lease of a holder that was paused until it ended, and that of the next holder.
func (l *ladder) pausedHolder(rung string) (paused, next *locks.Lease) {
	l.t.Helper()
	process := l.client(rung, fleeting)
	paused = mustLock(l.t, process, rungKey)
	process.pause()
	next = mustLock(l.t, l.client(rung, lasting), rungKey)
	awaitLoss(l.t, paused)
	process.resume()
	return paused, next
}

func TestRedisWatchdogLosesItsLeaseWhenItIsPaused(t *testing.T) {
	l := newLadder(t)
	paused, next := l.pausedHolder("redis-watchdog")
	if paused.Token() != 0 || next.Token() != 0 {
		t.Errorf("tokens %d and %d, want none: a store could refuse the paused holder's write", paused.Token(), next.Token())
	}
	wantLeaseLost(t, paused.Unlock())
	mustUnlock(t, next)
}

func TestRedisWatchdogSleepsThroughARelease(t *testing.T) {
	l := newLadder(t)
	holder := mustLock(t, l.client("redis-watchdog", pollsOnce), rungKey)
	waiter := l.client("redis-watchdog", pollsOnce)
	granted := l.lockLater(waiter)
	l.awaitSent(waiter, 1)
	mustUnlock(t, holder)
	select {
	case <-granted:
		t.Error("the waiter was granted the lock between two polls")
	case <-time.After(inVain):
		l.wantHeld(false)
	}
}

// redis-pubsub

func TestRedisPubSubWakesAtARelease(t *testing.T) {
	// Without messages, each hand-over would take two seconds.
	const handovers, limit = 100, 2 * time.Minute
	l := newLadder(t)
	clients := []*client{l.client("redis-pubsub", pollsOnce), l.client("redis-pubsub", pollsOnce)}
	began := time.Now()
	holder := mustLock(t, clients[0], rungKey)
	for i := range handovers {
		waiter := clients[(i+1)%2]
		before := waiter.sent.Load()
		granted := l.lockLater(waiter)
		l.awaitSent(waiter, before+1)
		mustUnlock(t, holder)
		holder = receive(t, granted, nil)
	}
	mustUnlock(t, holder)
	if took := time.Since(began); took > limit {
		t.Errorf("%d hand-overs took %v, want at most %v", handovers, took, limit)
	}
}

func TestRedisPubSubWakesACrowd(t *testing.T) {
	const waiters = 5
	l := newLadderAlone(t)
	holder := mustLock(t, l.client("redis-pubsub", lasting), rungKey)
	process := l.client("redis-pubsub", lasting)
	granted := []<-chan *locks.Lease{l.lockLater(process)}
	l.awaitSent(process, 2) // at first, and after it subscribed
	for range waiters - 1 {
		granted = append(granted, l.lockLater(process))
	}
	l.awaitSent(process, 1+waiters)

	before := process.sent.Load()
	mustUnlock(t, holder)
	l.awaitSent(process, before+waiters)
	won := 0
	for _, granted := range granted {
		select {
		case <-granted:
			won++
		default:
		}
	}
	if won > 1 {
		t.Errorf("%d waiters were granted the lock, want at most 1", won)
	}
}

func TestRedisPubSubLetsALatecomerOvertake(t *testing.T) {
	l := newLadder(t)
	holder := mustLock(t, l.client("redis-pubsub", lasting), rungKey)
	first := l.client("redis-pubsub", lasting)
	granted := l.lockLater(first)
	l.awaitSent(first, 1)
	first.pause() // it is slow to wake up
	mustUnlock(t, holder)

	latecomer := mustLock(t, l.client("redis-pubsub", lasting), rungKey)
	first.resume()
	mustUnlock(t, latecomer)
	mustUnlock(t, receive(t, granted, nil))
}

// redis-rlock

// lockInTurn calls Lock n times in the background, one after the other, when earlier callers hold it or wait.
func (l *ladder) lockInTurn(c *client, n, earlier int) (granted []<-chan *locks.Lease) {
	l.t.Helper()
	for i := range n {
		granted = append(granted, l.lockLater(c))
		serverstest.Eventually(l.t, fmt.Sprintf("%d callers wait in the process", i+1), func() bool {
			return c.Locker.(*locks.RedisRLock).InTurn(rungKey) == earlier+i+1
		})
	}
	return granted
}

func TestRedisRLockWakesOneWaiterPerProcess(t *testing.T) {
	const waiters = 5
	l := newLadderAlone(t)
	holder := mustLock(t, l.client("redis-rlock", lasting), rungKey)
	process := l.client("redis-rlock", lasting)
	granted := l.lockInTurn(process, waiters, 0)
	l.awaitSent(process, 2) // by the first waiter: at first, and after it subscribed

	mustUnlock(t, holder)
	for _, next := range granted {
		mustUnlock(t, receive(t, next, nil))
	}
	// In a crowd, each waiter would ask when it comes, all that are left would ask after each release, and each would
	// release the lock. The number is not exact here either, because a waiter asks again every two seconds.
	const crowd = waiters + waiters*(waiters+1)/2 + waiters
	if sent := process.sent.Load(); sent >= crowd {
		t.Errorf("the process has sent %d commands, as many as a crowd: %d", sent, crowd)
	}
}

// The next caller does not wait for the holder to call Unlock: the turn ends when a renewal finds that the lock is
// lost.
func TestRedisRLockPassesItsTurnOnWhenTheLockIsLost(t *testing.T) {
	l := newLadder(t)
	process := l.client("redis-rlock", locks.Options{Lease: lasting.Lease, Renew: inVain})
	lost := mustLock(t, process, rungKey)
	next := l.lockLater(process)
	del(t, l.observer, rungKey)
	second := receive(t, next, nil)
	wantLeaseLost(t, lost.Unlock())

	last := l.lockLater(process)
	second.Abandon()
	del(t, l.observer, rungKey) // instead of waiting for the end of its lease
	must.Succeed(t, l.observer.Publish(t.Context(), "locks:redis-pubsub:released", rungKey).Err())
	mustUnlock(t, receive(t, last, nil))
}

func TestRedisRLockPassesTheLockOnInsideItsProcess(t *testing.T) {
	l := newLadderAlone(t)
	process, other := l.client("redis-rlock", lasting), l.client("redis-pubsub", lasting)
	holder := mustLock(t, process, rungKey)
	granted := l.lockInTurn(process, locks.PassesInARow+1, 1)
	others := l.lockLater(other)
	l.awaitSent(other, 2) // at first, and after it subscribed

	before := process.sent.Load()
	for _, next := range granted[:locks.PassesInARow] {
		mustUnlock(t, holder)
		holder = receive(t, next, nil)
	}
	if sent := process.sent.Load() - before; sent != locks.PassesInARow {
		t.Errorf("%d commands for %d hand-overs, want one each", sent, locks.PassesInARow)
	}
	if sent := other.sent.Load(); sent > 2 {
		t.Errorf("the other process has sent %d commands, want 2: no hand-over concerns it", sent)
	}
	process.afterNext(func() error { // after the release that is not a hand-over
		process.pause()
		return nil
	})
	mustUnlock(t, holder)
	mustUnlock(t, receive(t, others, nil))
	process.resume()
	mustUnlock(t, receive(t, granted[locks.PassesInARow], nil))
}

func TestRedisRLockReleasesWhatNobodyIsLeftToTake(t *testing.T) {
	l := newLadder(t)
	process := l.client("redis-rlock", lasting)
	holder := mustLock(t, process, rungKey)
	ctx, giveUp := context.WithCancel(t.Context())
	_, gaveUp := startLock(ctx, process, rungKey)
	rlock := process.Locker.(*locks.RedisRLock)
	serverstest.Eventually(t, "a caller waits", func() bool { return rlock.InTurn(rungKey) == 2 })
	process.afterNext(func() error { // when Redis has passed the lock to the caller
		giveUp()
		wantNotAcquired(t, <-gaveUp, context.Canceled)
		return nil
	})
	mustUnlock(t, holder)
	l.wantHeld(false)
}

func TestRedisRLockReleasesWhatItMayHavePassedOn(t *testing.T) {
	l := newLadder(t)
	process := l.client("redis-rlock", lasting)
	holder := mustLock(t, process, rungKey)
	granted := l.lockInTurn(process, 1, 1)
	process.loseNextReply()
	if err := holder.Unlock(); !errors.Is(err, errLostReply) {
		t.Errorf("Unlock: %v, want %v", err, errLostReply)
	}
	mustUnlock(t, receive(t, granted[0], nil)) // would time out if the lock had stayed with an owner whom nobody knows
}

// redis-fair

func TestRedisFairWakesOnlyTheHead(t *testing.T) {
	const channel, done = "locks:redis-fair:next", "the test is over: "
	l := newLadder(t)
	holder := mustLock(t, l.client("redis-fair", lasting), rungKey)
	head := l.lockLater(l.client("redis-fair", lasting))
	l.awaitQueue(1)
	l.lockLater(l.client("redis-fair", lasting))
	l.awaitQueue(2)
	l.lockLater(l.client("redis-fair", lasting))
	ids := l.awaitQueue(3)
	messages := l.observer.Subscribe(t.Context(), channel)
	defer messages.Close()
	_, err := messages.Receive(t.Context())
	must.Succeed(t, err)

	mustUnlock(t, holder)
	receive(t, head, nil)
	end := done + ids[0]
	must.Succeed(t, l.observer.Publish(t.Context(), channel, end).Err())
	var woken []string
	for {
		message, err := messages.ReceiveMessage(t.Context())
		must.Succeed(t, err)
		if message.Payload == end {
			break
		}
		if slices.Contains(ids, message.Payload) { // tests in other databases use the same channel
			woken = append(woken, message.Payload)
		}
	}
	if woken = slices.Compact(woken); !slices.Equal(woken, ids[:1]) {
		t.Errorf("the release woke %v, want only the first of %v", woken, ids)
	}
}

// redis-fenced

// The clock is set back long after the lease of the last grant has ended.
func TestRedisFencedTokensRiseWhenTheClockIsSetBack(t *testing.T) {
	l := newLadder(t)
	client := l.client("redis-fenced", fleeting)
	mustLock(t, client, rungKey).Abandon()
	// To set the clock back by an hour is the same as to have made the last grant an hour later.
	ahead := l.observer.Time(t.Context()).Val().Add(time.Hour)
	last := uint64(ahead.UnixMicro())
	must.Succeed(t, l.observer.Set(t.Context(), rungKeyToken, last, redis.KeepTTL).Err())
	for range 2 {
		lease := mustLock(t, client, rungKey)
		if lease.Token() <= last {
			t.Errorf("token %d after %d, want a greater one", lease.Token(), last)
		}
		last = lease.Token()
		_ = lease.Unlock()
	}
}

func TestRedisFencedPausedHolderHasAnOlderToken(t *testing.T) {
	l := newLadder(t)
	paused, next := l.pausedHolder("redis-fenced")
	if paused.Token() == 0 || next.Token() <= paused.Token() {
		t.Errorf("the paused holder has token %d, the next one %d, want a greater one", paused.Token(), next.Token())
	}
	wantLeaseLost(t, paused.Unlock())
	l.wantHeld(true)
	mustUnlock(t, next)
}
