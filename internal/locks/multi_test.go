package locks_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

// releases lists the keys of the scripts that a client ran: the locks that it released, in order.
type releases struct {
	mu   sync.Mutex
	keys []string
}

func (r *releases) script(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error {
	err := next(ctx, cmd)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.keys = append(r.keys, cmd.Args()[3].(string))
	}
	return err
}

func (r *releases) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys
}

// watchedRedisLua makes a lock whose releases are recorded.
func watchedRedisLua(t testing.TB, options *redis.Options) (locks.Locker, *releases) {
	client, released := connect(t, options), &releases{}
	lock := locks.NewRedisLua(client, locks.Options{})
	mustUnlock(t, mustLock(t, lock, "warm-up")) // loads the script
	client.AddHook(hook{script: released.script})
	return lock, released
}

func TestLockAllLocksEachKeyOnceAndReleasesThemInReverseOrder(t *testing.T) {
	t.Parallel()
	lock, released := watchedRedisLua(t, shared.Redis(t))
	all, err := locks.LockAll(t.Context(), lock, "c", "a", "b", "a")
	must.Succeed(t, err)
	if len(all.ByKey) != 3 || all.ByKey["a"] == nil || all.ByKey["b"] == nil || all.ByKey["c"] == nil {
		t.Errorf("leases of %v, want those of a, b and c", all.ByKey)
	}
	mustUnlock(t, all.Lease)
	if got, want := released.list(), []string{"c", "b", "a"}; !slices.Equal(got, want) {
		t.Errorf("released %v, want %v", got, want)
	}
	if all.Context().Err() == nil {
		t.Error("the context of released keys has not ended")
	}
}

func TestLockAllTakesAllOrNone(t *testing.T) {
	t.Parallel()
	options := shared.Redis(t)
	observer := connect(t, options)
	lock, released := watchedRedisLua(t, options)
	held := mustLock(t, locks.NewRedisLua(observer, locks.Options{}), "c")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error)
	go func() {
		_, err := locks.LockAll(ctx, lock, "d", "c", "b", "a")
		failed <- err
	}()
	serverstest.Eventually(t, "the keys before the held one are locked", func() bool {
		return exists(t, observer, "a") && exists(t, observer, "b")
	})
	cancel()
	wantNotAcquired(t, <-failed, context.Canceled)
	for _, key := range []string{"a", "b", "d"} {
		if exists(t, observer, key) {
			t.Errorf("%s is still held", key)
		}
	}
	keys := slices.DeleteFunc(slices.Clone(released.list()), func(key string) bool { return key == "c" }) // not granted
	if want := []string{"b", "a"}; !slices.Equal(keys, want) {
		t.Errorf("released %v, want %v", keys, want)
	}
	mustUnlock(t, held)
}

func TestLockAllInOppositeOrdersDoesNotDeadlock(t *testing.T) {
	t.Parallel()
	var mutex locks.Mutex
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wg sync.WaitGroup
	for _, keys := range [][]string{{"a", "b"}, {"b", "a"}} {
		wg.Go(func() {
			for range 2000 {
				all, err := locks.LockAll(ctx, &mutex, keys...)
				if err != nil {
					t.Error(err)
					return
				}
				mustUnlock(t, all.Lease)
			}
		})
	}
	wg.Wait()
}

// renewing makes a lock that soon notices that it was lost.
func renewing(t testing.TB, options *redis.Options) *locks.RedisQueue {
	lock := locks.NewRedisQueue(connect(t, options), locks.Options{Lease: 5 * time.Second, Renew: 100 * time.Millisecond})
	t.Cleanup(func() { lock.Close() })
	return lock
}

func TestMultiTakesAllOrNone(t *testing.T) {
	t.Parallel()
	var before, after locks.Mutex
	down := locks.NewRedisLua(connect(t, nobody), locks.Options{})
	_, err := locks.Multi{&before, down, &after}.Lock(t.Context(), "key")
	if !errors.Is(err, locks.ErrNotAcquired) {
		t.Errorf("Lock: %v, want ErrNotAcquired", err)
	}
	if before.InUse("key") || after.InUse("key") {
		t.Error("a member is still in use")
	}
	if _, err := (locks.Multi{}).Lock(t.Context(), "key"); !errors.Is(err, locks.ErrNotAcquired) {
		t.Errorf("Lock of no members: %v, want ErrNotAcquired", err)
	}
}

func TestMultiEndsWithTheFirstMemberThatIsLost(t *testing.T) {
	t.Parallel()
	options := shared.Redis(t)
	var mutex locks.Mutex
	lease := mustLock(t, locks.Multi{renewing(t, options), &mutex}, "key")
	del(t, connect(t, options), "key")
	awaitLoss(t, lease)
	wantLeaseLost(t, lease.Unlock())
	if mutex.InUse("key") {
		t.Error("the other member is still in use")
	}
}

func TestMultiStopsWaitingWhenAMemberIsLost(t *testing.T) {
	t.Parallel()
	options := shared.Redis(t)
	observer := connect(t, options)
	var mutex locks.Mutex
	held := mustLock(t, &mutex, "key")
	_, failed := startLock(t.Context(), locks.Multi{renewing(t, options), &mutex}, "key")
	serverstest.Eventually(t, "the first member is taken", func() bool { return exists(t, observer, "key") })
	del(t, observer, "key")
	wantNotAcquired(t, <-failed, locks.ErrLeaseLost)
	mustUnlock(t, held)
}

func TestMultiHasTheEarliestDeadlineOfItsMembers(t *testing.T) {
	t.Parallel()
	var mutex locks.Mutex
	forever := mustLock(t, locks.Multi{&mutex}, "key")
	if !forever.Deadline().IsZero() {
		t.Errorf("deadline %v, want none: the lock does not end by itself", forever.Deadline())
	}
	mustUnlock(t, forever)

	short := renewing(t, shared.Redis(t))
	long := locks.NewRedisLua(connect(t, shared.Redis(t)), locks.Options{Lease: time.Hour})
	lease := mustLock(t, locks.Multi{&mutex, long, short}, "key")
	first := lease.Deadline()
	if left := time.Until(first); left > 5*time.Second {
		t.Errorf("the lock is guaranteed for %v, want the time of the shortest lease", left)
	}
	serverstest.Eventually(t, "the deadline moves when the member is renewed", func() bool {
		return lease.Deadline().After(first)
	})
	mustUnlock(t, lease)
}
