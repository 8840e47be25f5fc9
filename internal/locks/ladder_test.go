package locks_test

// The ladder of the Redis locks: each rung's flaw, and the next rung's mend of it.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/servers/serverstest"
)

// Each test has a Redis database of its own, so that they can all use one key.
const (
	rungKey        = "lock:{1}"
	rungKeyWaiters = rungKey + ":waiters" // of redis-fair
	rungKeyToken   = rungKey + ":token"   // of redis-fenced
)

var (
	lasting   = locks.Options{Lease: 30 * time.Second, Poll: time.Millisecond}       // outlasts a test
	fleeting  = locks.Options{Lease: 100 * time.Millisecond, Poll: time.Millisecond} // ends during a test
	pollsOnce = locks.Options{Lease: 30 * time.Second, Poll: time.Hour}
)

// rung makes a lock of one kind.
type rung func(redis.UniversalClient, locks.Options) locks.Locker

var rungs = map[string]rung{
	"redis-setnx":     func(c redis.UniversalClient, o locks.Options) locks.Locker { return locks.NewRedisSetNX(c, o) },
	"redis-expiry":    func(c redis.UniversalClient, o locks.Options) locks.Locker { return locks.NewRedisExpiry(c, o) },
	"redis-owner":     func(c redis.UniversalClient, o locks.Options) locks.Locker { return locks.NewRedisOwner(c, o) },
	"redis-lua":       func(c redis.UniversalClient, o locks.Options) locks.Locker { return locks.NewRedisLua(c, o) },
	"redis-reentrant": func(c redis.UniversalClient, o locks.Options) locks.Locker { return locks.NewRedisReentrant(c, o) },
	"redis-watchdog":  func(c redis.UniversalClient, o locks.Options) locks.Locker { return locks.NewRedisWatchdog(c, o) },
	"redis-pubsub":    func(c redis.UniversalClient, o locks.Options) locks.Locker { return locks.NewRedisPubSub(c, o) },
	"redis-fair":      func(c redis.UniversalClient, o locks.Options) locks.Locker { return locks.NewRedisFair(c, o) },
	"redis-fenced":    func(c redis.UniversalClient, o locks.Options) locks.Locker { return locks.NewRedisFenced(c, o) },
}

// ladder is one Redis database and what looks into it from outside.
type ladder struct {
	t       *testing.T
	options *redis.Options
	eye     redis.UniversalClient
}

func newLadder(t *testing.T) *ladder {
	t.Parallel()
	options := shared.Redis(t)
	return &ladder{t, options, connect(t, options)}
}

// client is a process that contends: a lock of the rung, on a connection of its own.
type client struct {
	locks.Locker
	*wire
	redis redis.UniversalClient
}

func (l *ladder) client(rung string, options locks.Options) *client {
	c := connect(l.t, l.options)
	if err := c.Ping(l.t.Context()).Err(); err != nil { // to connect takes its time, of which a lease or a release has little
		l.t.Fatal(err)
	}
	wire := &wire{resumed: make(chan struct{})}
	c.AddHook(wire)
	lock := rungs[rung](c, options)
	l.t.Cleanup(func() {
		wire.resume()
		if closer, ok := lock.(io.Closer); ok {
			closer.Close()
		}
	})
	return &client{lock, wire, c}
}

// crash ends a client as the death of its process does: nothing is given back, nothing renewed.
func (c *client) crash() { c.redis.Close() }

// wire is a hook on what a client sends. It counts it, stops it, loses a reply, or lets something happen after it.
type wire struct {
	sent    atomic.Int64 // commands that have been carried out
	paused  atomic.Bool
	resumed chan struct{}
	once    sync.Once

	mu    sync.Mutex
	after func() error // see afterNext
}

// pause stops what is sent from now on, as a stopped process does.
func (w *wire) pause() { w.paused.Store(true) }

func (w *wire) resume() { w.once.Do(func() { close(w.resumed) }) }

// afterNext runs do once, when the next command has been carried out. An error takes the place of the reply.
func (w *wire) afterNext(do func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.after = do
}

var errLostReply = errors.New("the connection broke before the reply came")

func (w *wire) loseNextReply() { w.afterNext(func() error { return errLostReply }) }

func (w *wire) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next // no rung uses a pipeline; go-redis does to connect
}

func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name == "hello" || name == "client" {
			return next(ctx, cmd) // go-redis makes a connection
		}
		if w.paused.Load() {
			<-w.resumed
		}
		err := next(ctx, cmd)
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			return err // it will be sent once more, with the script
		}
		w.sent.Add(1)
		w.mu.Lock()
		after := w.after
		w.after = nil
		w.mu.Unlock()
		if after != nil {
			if lost := after(); lost != nil {
				return lost
			}
		}
		return err
	}
}

// asked waits until the client has sent so many commands.
func (l *ladder) asked(c *client, n int64) {
	l.t.Helper()
	serverstest.Eventually(l.t, fmt.Sprintf("a client has sent %d commands", n), func() bool { return c.sent.Load() >= n })
}

// queued waits until so many wait in the queue of redis-fair, and returns their ids.
func (l *ladder) queued(n int) (ids []string) {
	l.t.Helper()
	serverstest.Eventually(l.t, fmt.Sprintf("%d waiters are in the queue", n), func() bool {
		var err error
		if ids, err = l.eye.LRange(l.t.Context(), rungKeyWaiters, 0, -1).Result(); err != nil {
			l.t.Fatal(err)
		}
		return len(ids) == n
	})
	return ids
}

// waiting calls Lock in the background until it is granted or the test ends.
func (l *ladder) waiting(c *client) <-chan *locks.Lease {
	granted := make(chan *locks.Lease, 1)
	ctx, cancel := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() {
		lease, err := c.Lock(ctx, rungKey)
		switch {
		case err == nil:
			granted <- lease
			<-ctx.Done()
			lease.Abandon() // unless it was unlocked
		case ctx.Err() == nil:
			l.t.Errorf("Lock: %v", err)
		}
	})
	l.t.Cleanup(func() {
		c.resume()
		cancel()
		over.Wait()
	})
	return granted
}

// granted waits for a lease.
func (l *ladder) granted(lease <-chan *locks.Lease) *locks.Lease {
	l.t.Helper()
	select {
	case lease := <-lease:
		return lease
	case <-time.After(patience):
		l.t.Fatal("a waiter is not granted the lock")
		return nil
	}
}

// isRefused checks that a Lock waits in vain.
func (l *ladder) isRefused(c *client, ctx context.Context, wait time.Duration) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	_, err := c.Lock(ctx, rungKey)
	wantNotAcquired(l.t, err, context.DeadlineExceeded)
}

const inVain = 100 * time.Millisecond

func (l *ladder) isHeld(want bool) {
	l.t.Helper()
	if held := exists(l.t, l.eye, rungKey); held != want {
		l.t.Errorf("the lock is held: %t, want %t", held, want)
	}
}

// redis-setnx

func TestRedisSetNXStaysLockedAfterItsHolderCrashed(t *testing.T) {
	l := newLadder(t)
	holder := l.client("redis-setnx", fleeting)
	mustLock(t, holder, rungKey)
	holder.crash()

	l.staysLocked()
}

// staysLocked checks that nothing ends the lock of redis-setnx.
func (l *ladder) staysLocked() {
	l.t.Helper()
	if ttl, err := l.eye.TTL(l.t.Context(), rungKey).Result(); err != nil || ttl != -1 {
		l.t.Errorf("the lock ends in %v (%v), want never", ttl, err)
	}
	l.isRefused(l.client("redis-setnx", fleeting), l.t.Context(), inVain)
}

func TestRedisSetNXStaysLockedAfterALostReply(t *testing.T) {
	l := newLadder(t)
	unlucky := l.client("redis-setnx", lasting)
	unlucky.loseNextReply()
	_, err := unlucky.Lock(t.Context(), rungKey)
	wantNotAcquired(t, err, errLostReply)

	l.staysLocked()
}

// redis-expiry

func TestRedisExpiryEndsALockWhoseHolderCrashed(t *testing.T) {
	l := newLadder(t)
	holder := l.client("redis-expiry", fleeting)
	mustLock(t, holder, rungKey)
	holder.crash()

	mustUnlock(t, mustLock(t, l.client("redis-expiry", lasting), rungKey))
}

// lateHolder makes a holder whose lease has ended, and the next one, who has been granted the lock since.
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
	mustUnlock(t, late) // it does not even notice

	third := mustLock(t, l.client("redis-expiry", lasting), rungKey)
	if err := next.Context().Err(); err != nil {
		t.Errorf("the next holder knows that its lock is gone: %v", err)
	}
	mustUnlock(t, third)
	wantLeaseLost(t, next.Unlock())
}

// redis-owner

func TestRedisOwnerLeavesAnothersLockAlone(t *testing.T) {
	l := newLadder(t)
	late, next := l.lateHolder("redis-owner")
	wantLeaseLost(t, late.Unlock())

	l.isHeld(true)
	mustUnlock(t, next)
}

func TestRedisOwnerTakesBackWhatALostReplyGranted(t *testing.T) { takesBack(t, "redis-owner") }

func takesBack(t *testing.T, rung string) {
	l := newLadder(t)
	unlucky := l.client(rung, lasting)
	unlucky.loseNextReply()
	_, err := unlucky.Lock(t.Context(), rungKey)
	wantNotAcquired(t, err, errLostReply)
	l.isHeld(false)
}

func TestEveryRungAfterOwnerTakesBackWhatALostReplyGranted(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"redis-lua", "redis-reentrant", "redis-watchdog", "redis-pubsub", "redis-fair", "redis-fenced"} {
		t.Run(name, func(t *testing.T) { takesBack(t, name) })
	}
}

// tornRelease unlocks while, after the first command of the release, the lease ends and another is granted the lock.
func (l *ladder) tornRelease(rung string) (next *locks.Lease, err error) {
	l.t.Helper()
	holder, other := l.client(rung, lasting), l.client(rung, lasting)
	lease := mustLock(l.t, holder, rungKey)
	holder.afterNext(func() error {
		del(l.t, l.eye, rungKey)
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
		t.Errorf("Unlock noticed that it took another's lock: %v", err)
	}
	l.isHeld(false)
	wantLeaseLost(t, next.Unlock())
}

// redis-lua

func TestRedisLuaChecksAndDeletesInOneStep(t *testing.T) {
	l := newLadder(t)
	next, err := l.tornRelease("redis-lua")
	if err != nil {
		t.Errorf("Unlock: %v", err)
	}
	l.isHeld(true)
	mustUnlock(t, next)
}

func TestRedisLuaWaitsForItself(t *testing.T) {
	l := newLadder(t)
	client := l.client("redis-lua", lasting)
	lease := mustLock(t, client, rungKey)
	l.isRefused(client, lease.Context(), inVain)
	mustUnlock(t, lease)
}

func TestRedisLuaLosesItsLeaseDuringWork(t *testing.T) { losesItsLease(t, "redis-lua") }

func losesItsLease(t *testing.T, rung string) {
	l := newLadder(t)
	working, next := l.lateHolder(rung)
	l.isHeld(true)
	wantLeaseLost(t, working.Unlock())
	mustUnlock(t, next)
}

// redis-reentrant

func TestRedisReentrantEntersAgain(t *testing.T) {
	l := newLadder(t)
	client, stranger := l.client("redis-reentrant", lasting), l.client("redis-reentrant", lasting)
	outer := mustLock(t, client, rungKey)
	before := outer.Deadline()

	inner, err := client.Lock(outer.Context(), rungKey)
	if err != nil {
		t.Fatalf("Lock under the lease's own context: %v", err)
	}
	if !outer.Deadline().After(before) {
		t.Errorf("the lease ends at %v, as before it was entered again", outer.Deadline())
	}
	l.isRefused(client, t.Context(), inVain)
	l.isRefused(stranger, inner.Context(), inVain)
	mustUnlock(t, inner)
	mustUnlock(t, outer)
	l.isHeld(false)
}

func TestRedisReentrantIsHeldUntilItsLastHoldIsGivenBack(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{2, 1, 0}, {0, 1, 2}, {1, 2, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			l := newLadder(t)
			client, ctx := l.client("redis-reentrant", lasting), t.Context()
			var holds []*locks.Lease
			for range 3 {
				lease, err := client.Lock(ctx, rungKey)
				if err != nil {
					t.Fatal(err)
				}
				holds, ctx = append(holds, lease), lease.Context()
			}
			for _, i := range order {
				l.isHeld(true)
				mustUnlock(t, holds[i])
			}
			l.isHeld(false)
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
	l.isHeld(true)
	mustUnlock(t, outer)
	l.isHeld(false)
}

func TestRedisReentrantDoesNotEnterALeaseThatIsOver(t *testing.T) {
	l := newLadder(t)
	client := l.client("redis-reentrant", lasting)
	over := mustLock(t, client, rungKey)
	mustUnlock(t, over)
	next := mustLock(t, client, rungKey)
	l.isRefused(client, context.WithoutCancel(over.Context()), inVain)
	mustUnlock(t, next)
}

func TestRedisReentrantLosesItsLeaseDuringWork(t *testing.T) { losesItsLease(t, "redis-reentrant") }

// redis-watchdog

func TestRedisWatchdogOutlastsItsLease(t *testing.T) { outlasts(t, "redis-watchdog") }

func TestEveryRungAfterWatchdogOutlastsItsLease(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"redis-pubsub", "redis-fair", "redis-fenced"} {
		t.Run(name, func(t *testing.T) { outlasts(t, name) })
	}
}

// outlasts takes time from the lease on the server rather than wait for it to pass, since a loaded machine may well
// be too late with the renewal of a lease that is short enough to wait for.
func outlasts(t *testing.T, rung string) {
	l := newLadder(t)
	options := locks.Options{Lease: 20 * time.Second, Renew: 100 * time.Millisecond, Poll: time.Millisecond}
	working := mustLock(t, l.client(rung, options), rungKey)
	const left = 10 * time.Second
	for range 4 { // two leases and more
		guaranteed := working.Deadline()
		if err := l.eye.PExpire(t.Context(), rungKey, left).Err(); err != nil {
			t.Fatal(err)
		}
		serverstest.Eventually(t, "the lease is renewed", func() bool {
			ttl, err := l.eye.PTTL(t.Context(), rungKey).Result()
			if err != nil {
				t.Fatal(err)
			}
			return ttl > left && working.Deadline().After(guaranteed)
		})
	}
	l.isRefused(l.client(rung, options), t.Context(), inVain)
	if err := working.Context().Err(); err != nil {
		t.Errorf("the lease ended during work: %v", context.Cause(working.Context()))
	}
	mustUnlock(t, working)
}

// pausedHolder makes a holder whose renewals stopped, and the next one, who has been granted the lock since.
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
		t.Errorf("tokens %d and %d: a store could tell the paused holder's write", paused.Token(), next.Token())
	}
	wantLeaseLost(t, paused.Unlock())
	mustUnlock(t, next)
}

func TestRedisWatchdogSleepsThroughARelease(t *testing.T) {
	l := newLadder(t)
	holder := mustLock(t, l.client("redis-watchdog", pollsOnce), rungKey)
	waiter := l.client("redis-watchdog", pollsOnce)
	granted := l.waiting(waiter)
	l.asked(waiter, 1)
	mustUnlock(t, holder)
	select {
	case <-granted:
		t.Error("the waiter was granted the lock between two polls")
	case <-time.After(inVain):
		l.isHeld(false)
	}
}

// redis-pubsub

func TestRedisPubSubWakesAtARelease(t *testing.T) {
	// Without messages each hand-over would take two seconds.
	const handovers, limit = 20, 30 * time.Second
	l := newLadder(t)
	clients := []*client{l.client("redis-pubsub", pollsOnce), l.client("redis-pubsub", pollsOnce)}
	began := time.Now()
	holder := mustLock(t, clients[0], rungKey)
	for i := range handovers {
		waiter := clients[(i+1)%2]
		before := waiter.sent.Load()
		granted := l.waiting(waiter)
		l.asked(waiter, before+1)
		mustUnlock(t, holder)
		holder = l.granted(granted)
	}
	mustUnlock(t, holder)
	if took := time.Since(began); took > limit {
		t.Errorf("%d hand-overs took %v, want less than %v", handovers, took, limit)
	}
}

func TestRedisPubSubWakesACrowd(t *testing.T) {
	const waiters = 5
	l := newLadder(t)
	holder := mustLock(t, l.client("redis-pubsub", lasting), rungKey)
	process := l.client("redis-pubsub", lasting)
	granted := []<-chan *locks.Lease{l.waiting(process)}
	l.asked(process, 2) // at first, and when it was subscribed
	for range waiters - 1 {
		granted = append(granted, l.waiting(process))
	}
	l.asked(process, 1+waiters)

	before := process.sent.Load()
	mustUnlock(t, holder)
	l.asked(process, before+waiters)
	won := 0
	for _, granted := range granted {
		select {
		case <-granted:
			won++
		default:
		}
	}
	if won > 1 {
		t.Errorf("%d waiters were granted the lock", won)
	}
}

func TestRedisPubSubLetsALatecomerOvertake(t *testing.T) {
	l := newLadder(t)
	holder := mustLock(t, l.client("redis-pubsub", lasting), rungKey)
	first := l.client("redis-pubsub", lasting)
	granted := l.waiting(first)
	l.asked(first, 1)
	first.pause() // it is a little slow to wake up
	mustUnlock(t, holder)

	latecomer := mustLock(t, l.client("redis-pubsub", lasting), rungKey)
	first.resume()
	mustUnlock(t, latecomer)
	mustUnlock(t, l.granted(granted))
}

// redis-fair

func TestRedisFairGrantsInOrderOfArrival(t *testing.T) {
	const waiters = 4
	l := newLadder(t)
	holder := mustLock(t, l.client("redis-fair", lasting), rungKey)
	var queue []<-chan *locks.Lease
	for i := range waiters {
		queue = append(queue, l.waiting(l.client("redis-fair", lasting)))
		l.queued(i + 1)
	}
	mustUnlock(t, holder)
	for _, next := range queue {
		mustUnlock(t, l.granted(next)) // in vain, had another been granted the lock before
	}
	l.leavesNothing()
}

// leavesNothing checks that neither the lock nor its queue is left.
func (l *ladder) leavesNothing() {
	l.t.Helper()
	if keys, err := l.eye.Keys(l.t.Context(), "*").Result(); err != nil || len(keys) > 0 {
		l.t.Errorf("left behind: %v (%v)", keys, err)
	}
}

func TestRedisFairWakesOnlyTheHead(t *testing.T) {
	const channel, done = "locks:redis-fair:next", "the test is over: "
	l := newLadder(t)
	holder := mustLock(t, l.client("redis-fair", lasting), rungKey)
	head := l.waiting(l.client("redis-fair", lasting))
	l.queued(1)
	l.waiting(l.client("redis-fair", lasting))
	l.queued(2)
	l.waiting(l.client("redis-fair", lasting))
	ids := l.queued(3)
	messages := l.eye.Subscribe(t.Context(), channel)
	defer messages.Close()
	if _, err := messages.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}

	mustUnlock(t, holder)
	l.granted(head)
	end := done + ids[0]
	if err := l.eye.Publish(t.Context(), channel, end).Err(); err != nil {
		t.Fatal(err)
	}
	var woken []string
	for {
		message, err := messages.ReceiveMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if message.Payload == end {
			break
		}
		if slices.Contains(ids, message.Payload) { // other tests, in other databases, use the channel too
			woken = append(woken, message.Payload)
		}
	}
	if woken = slices.Compact(woken); !slices.Equal(woken, ids[:1]) {
		t.Errorf("the release woke %v of the queue %v, want only the first", woken, ids)
	}
}

func TestRedisFairPassesADeadHead(t *testing.T) {
	l := newLadder(t)
	short := locks.Options{Lease: 600 * time.Millisecond} // and heartbeat
	holder := mustLock(t, l.client("redis-fair", lasting), rungKey)
	dead := l.client("redis-fair", short)
	head := l.waiting(dead)
	ids := l.queued(1)
	dead.pause()
	alive := l.client("redis-fair", lasting)
	second := l.waiting(alive)
	l.asked(alive, 1)

	mustUnlock(t, holder)
	next := l.granted(second)
	dead.resume()
	// It was not dead, after all: it is last in the queue now.
	if again := l.queued(1); !slices.Equal(again, ids) {
		t.Errorf("the queue is %v, want the passed waiter %v", again, ids)
	}
	mustUnlock(t, next)
	mustUnlock(t, l.granted(head))
	l.leavesNothing()
}

func TestRedisFairForgetsAWaiterThatGaveUp(t *testing.T) {
	l := newLadder(t)
	holder := mustLock(t, l.client("redis-fair", lasting), rungKey)
	waiter := l.client("redis-fair", lasting)
	l.isRefused(waiter, t.Context(), inVain)
	l.queued(0)

	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() {
		_, err := waiter.Lock(ctx, rungKey)
		gaveUp <- err
	}()
	l.queued(1)
	cancel()
	wantNotAcquired(t, <-gaveUp, context.Canceled)
	l.queued(0)
	mustUnlock(t, holder)
	l.leavesNothing()
}

// redis-fenced

func TestRedisFencedTokensRise(t *testing.T) {
	l := newLadder(t)
	var last uint64
	grant := func(what string, options locks.Options) *locks.Lease {
		t.Helper()
		lease := mustLock(t, l.client("redis-fenced", options), rungKey)
		if lease.Token() <= last {
			t.Errorf("%s: token %d after %d", what, lease.Token(), last)
		}
		last = lease.Token()
		return lease
	}
	mustUnlock(t, grant("the first grant", lasting))
	mustUnlock(t, grant("another client", lasting))
	grant("a holder that lets its lease end", fleeting).Abandon()
	mustUnlock(t, grant("after the lease has ended", lasting))
	del(t, l.eye, rungKeyToken)
	mustUnlock(t, grant("after the last token was lost", lasting))
	last += uint64(time.Hour.Microseconds())
	if err := l.eye.Set(t.Context(), rungKeyToken, last, 0).Err(); err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, grant("after the clock was set back", lasting))
	if stored, err := l.eye.Get(t.Context(), rungKeyToken).Uint64(); err != nil || stored != last {
		t.Errorf("the last token is %d in Redis (%v), and was granted as %d", stored, err, last)
	}
	for _, key := range l.eye.Keys(t.Context(), "*").Val() {
		if !strings.Contains(key, "{1}") {
			t.Errorf("key %s is in another slot of a cluster than the lock", key)
		}
	}
}

func TestRedisFencedPausedHolderHasAnOlderToken(t *testing.T) {
	l := newLadder(t)
	paused, next := l.pausedHolder("redis-fenced")
	if paused.Token() == 0 || next.Token() <= paused.Token() {
		t.Errorf("the paused holder has token %d, the next one %d, want a greater one", paused.Token(), next.Token())
	}
	wantLeaseLost(t, paused.Unlock())
	l.isHeld(true)
	mustUnlock(t, next)
}
