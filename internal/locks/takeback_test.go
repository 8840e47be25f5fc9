package locks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/servers"
	"stock/internal/servers/serverstest"
)

var errNoAnswer = errors.New("no answer")

// away is a service that does not answer until it is back.
type away struct {
	back     chan struct{}
	attempts chan string // has room for those of a test
}

func newAway() away {
	return away{back: make(chan struct{}), attempts: make(chan string, 2*locks.MaxUndos)}
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

func (a away) awaitAttempt(t *testing.T) string {
	t.Helper()
	return receive(t, a.attempts, nil)
}

func TestUndoerRetriesUntilTheServiceAnswers(t *testing.T) {
	t.Parallel()
	undoer, service := locks.NewUndoer(time.Minute), newAway()
	defer undoer.Close()
	undoer.TakeBack(t.Context(), service.undo("first"))
	for range 3 {
		service.awaitAttempt(t)
	}
	undoer.TakeBack(t.Context(), service.undo("second"))
	close(service.back)
	serverstest.Eventually(t, "both are undone", func() bool { return undoer.Pending() == 0 })
	undoer.TakeBack(t.Context(), service.undo("third"))
	if undoer.Pending() > 0 {
		t.Error("the service answers, but an undo was not made at once")
	}
}

func TestUndoerMakesOneAttemptAfterTheOtherWhileTheServiceIsAway(t *testing.T) {
	t.Parallel()
	undoer := locks.NewUndoer(time.Minute)
	defer undoer.Close()
	undoer.TakeBack(t.Context(), func(context.Context) error { return errNoAnswer })
	attempt, finish := make(chan struct{}), make(chan struct{})
	for range 10 {
		undoer.TakeBack(t.Context(), func(context.Context) error { // returns at once
			attempt <- struct{}{}
			<-finish
			return nil
		})
	}
	receive(t, attempt, nil)
	select {
	case <-attempt:
		t.Error("two attempts at the same time")
	case <-time.After(inVain):
	}
	go func() {
		for range 9 {
			<-attempt
		}
	}()
	close(finish)
	serverstest.Eventually(t, "all but the first are undone", func() bool { return undoer.Pending() == 1 })
}

func TestUndoerForgetsTheOldestUndoIfThereAreTooMany(t *testing.T) {
	t.Parallel()
	undoer, service := locks.NewUndoer(time.Minute), newAway()
	defer undoer.Close()
	undoer.TakeBack(t.Context(), service.undo("oldest"))
	for range locks.MaxUndos {
		undoer.TakeBack(t.Context(), service.undo("later"))
	}
	if n := undoer.Pending(); n != locks.MaxUndos {
		t.Errorf("%d undos are pending, want %d", n, locks.MaxUndos)
	}
	for service.awaitAttempt(t) == "oldest" { // an attempt may have been due before it was forgotten
	}
	close(service.back)
	serverstest.Eventually(t, "nothing is pending", func() bool { return undoer.Pending() == 0 })
	close(service.attempts)
	for name := range service.attempts {
		if name == "oldest" {
			t.Error("an attempt of the oldest undo, which should be forgotten")
		}
	}
}

func TestUndoerForgetsAnUndoWhenItsLeaseHasEnded(t *testing.T) {
	t.Parallel()
	undoer := locks.NewUndoer(50 * time.Millisecond)
	undoer.TakeBack(t.Context(), func(context.Context) error { return errNoAnswer })
	serverstest.Eventually(t, "nothing is pending", func() bool { return undoer.Pending() == 0 })
}

func TestUndoerEndsWithItsClient(t *testing.T) {
	t.Parallel()
	undoer := locks.NewUndoer(time.Minute)
	for range 3 {
		undoer.TakeBack(t.Context(), func(context.Context) error { return redis.ErrClosed })
	}
	serverstest.Eventually(t, "nothing is pending", func() bool { return undoer.Pending() == 0 })
}

func TestUndoerEndsWithClose(t *testing.T) {
	t.Parallel()
	undoer := locks.NewUndoer(time.Minute)
	undoer.TakeBack(t.Context(), func(context.Context) error { return errNoAnswer })
	undoer.Close() // waits for the work in the background
	undoer.TakeBack(t.Context(), func(context.Context) error { return errNoAnswer })
	if n := undoer.Pending(); n > 0 {
		t.Errorf("%d undos are pending after Close", n)
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
		if err := observer.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
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

	client := connect(t, at)
	script := redis.NewScript("redis.call('SET', KEYS[1], 1) return redis.call('LPUSH', KEYS[1], 1)")
	check("a script failed halfway", client, script.Run(t.Context(), client, []string{"key"}).Err(), false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check("the caller gave up", client, client.Set(ctx, "key", "value", 0).Err(), false)

	configure("maxmemory", "1")
	check("Redis is full", client, set(client), true)
	configure("maxmemory", "0")
	if err := observer.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	check("Redis is a replica", client, set(client), true)
}
