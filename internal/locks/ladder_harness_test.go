package locks_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

// Each test has its own Redis database, so that all can use the same key.
const (
	rungKey        = "lock:{1}"
	rungKeyWaiters = rungKey + ":waiters" // of redis-fair
	rungKeyToken   = rungKey + ":token"   // of redis-fenced
)

var (
	lasting   = locks.Options{Lease: time.Hour, Poll: time.Millisecond}              // outlasts a test
	fleeting  = locks.Options{Lease: 100 * time.Millisecond, Poll: time.Millisecond} // ends during a test
	pollsOnce = locks.Options{Lease: time.Hour, Poll: time.Hour}
)

// newRung makes a lock of the ladder.
type newRung func(redis.UniversalClient, locks.Options) locks.Locker

func rung[L locks.Locker](create func(redis.UniversalClient, locks.Options) L) newRung {
	return func(client redis.UniversalClient, o locks.Options) locks.Locker { return create(client, o) }
}

var rungs = map[string]newRung{
	"redis-setnx":     rung(locks.NewRedisSetNX),
	"redis-expiry":    rung(locks.NewRedisExpiry),
	"redis-owner":     rung(locks.NewRedisOwner),
	"redis-lua":       rung(locks.NewRedisLua),
	"redis-reentrant": rung(locks.NewRedisReentrant),
	"redis-watchdog":  rung(locks.NewRedisWatchdog),
	"redis-pubsub":    rung(locks.NewRedisPubSub),
	"redis-rlock":     rung(locks.NewRedisRLock),
	"redis-fair":      rung(locks.NewRedisFair),
	"redis-fenced":    rung(locks.NewRedisFenced),
}

// ladder is a Redis database, and a connection that observes it.
type ladder struct {
	t        *testing.T
	options  *redis.Options
	observer redis.UniversalClient
}

func newLadder(t *testing.T) *ladder {
	t.Parallel()
	return newLadderOn(t, shared.Redis(t))
}

// newLadderAlone starts a server for this test: on the shared one, the clients of every database get the messages that
// other tests publish.
func newLadderAlone(t *testing.T) *ladder {
	t.Parallel()
	return newLadderOn(t, &redis.Options{Addr: serverstest.StartRedis(t, servers.RedisOptions{}).Addr})
}

func newLadderOn(t *testing.T, options *redis.Options) *ladder {
	return &ladder{t: t, options: options, observer: connect(t, options)}
}

// client is a process that contends for the lock, with its own connection.
type client struct {
	locks.Locker
	*wire
	redis redis.UniversalClient
}

func (l *ladder) client(rung string, options locks.Options) *client {
	c := connect(l.t, l.options)
	if err := c.Ping(l.t.Context()).Err(); err != nil { // connect now: it may take longer than a short lease
		l.t.Fatal(err)
	}
	wire := &wire{resumed: make(chan struct{})}
	c.AddHook(hook{command: wire.process})
	lock := rungs[rung](c, options)
	l.t.Cleanup(func() {
		wire.resume()
		_ = locks.Close(lock)
	})
	return &client{Locker: lock, wire: wire, redis: c}
}

// crash ends a client like the death of its process: nothing is released or renewed any more.
func (c *client) crash() { c.redis.Close() }

// wire handles the commands of a client. It counts them, pauses them, loses a reply, or runs a function after one.
type wire struct {
	sent    atomic.Int64 // commands that have been carried out
	paused  atomic.Bool
	resumed chan struct{}
	once    sync.Once

	mu    sync.Mutex
	after func() error // see afterNext
}

// pause holds back the commands that are sent from now on, as if the process were stopped.
func (w *wire) pause() { w.paused.Store(true) }

func (w *wire) resume() { w.once.Do(func() { close(w.resumed) }) }

// afterNext runs do once, after the next command has been carried out. An error replaces the reply.
func (w *wire) afterNext(do func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.after = do
}

var errLostReply = errors.New("the connection broke before the reply came")

func (w *wire) loseNextReply() { w.afterNext(func() error { return errLostReply }) }

func (w *wire) process(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
	if name := cmd.Name(); name == "hello" || name == "client" {
		return next(ctx, cmd) // go-redis connects
	}
	if w.paused.Load() {
		<-w.resumed
	}
	err := next(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return err // it is repeated with the script
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

// awaitSent waits until the client has sent n commands.
func (l *ladder) awaitSent(c *client, n int64) {
	l.t.Helper()
	serverstest.Eventually(l.t, fmt.Sprintf("a client has sent %d commands", n), func() bool { return c.sent.Load() >= n })
}

// awaitQueue waits until n clients wait in the queue of redis-fair, and returns their ids.
func (l *ladder) awaitQueue(n int) (ids []string) {
	l.t.Helper()
	serverstest.Eventually(l.t, fmt.Sprintf("%d clients wait in the queue", n), func() bool {
		var err error
		if ids, err = l.observer.LRange(l.t.Context(), rungKeyWaiters, 0, -1).Result(); err != nil {
			l.t.Fatal(err)
		}
		return len(ids) == n
	})
	return ids
}

// lockLater is the function of that name. A client that is paused goes on at the end of the test.
func (l *ladder) lockLater(c *client) <-chan *locks.Lease {
	granted := lockLater(l.t, c, rungKey)
	l.t.Cleanup(c.resume)
	return granted
}

func (l *ladder) wantHeld(want bool) {
	l.t.Helper()
	if held := exists(l.t, l.observer, rungKey); held != want {
		l.t.Errorf("held: %t, want %t", held, want)
	}
}
