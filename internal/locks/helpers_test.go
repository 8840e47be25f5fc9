package locks_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"stock/internal/locks"
	"stock/internal/locks/lockstest"
	"stock/internal/must"
	"stock/internal/servers/serverstest"
)

const patience = lockstest.Patience

var (
	patient    = lockstest.Patient
	mustLock   = lockstest.MustLock
	mustUnlock = lockstest.MustUnlock
	wantWait   = lockstest.WantWait
	awaitLoss  = lockstest.WantLost
)

const inVain = 100 * time.Millisecond

// nobody is an address where nothing listens.
var nobody = &redis.Options{Addr: "127.0.0.1:1"}

func connect(t testing.TB, options *redis.Options) redis.UniversalClient {
	return serverstest.RedisClient(t, options)
}

func connectAll(t testing.TB, options []*redis.Options) []redis.UniversalClient {
	var clients []redis.UniversalClient
	for _, o := range options {
		clients = append(clients, connect(t, o))
	}
	return clients
}

func exists(t testing.TB, client redis.UniversalClient, key string) bool {
	n, err := client.Exists(context.WithoutCancel(t.Context()), key).Result()
	must.Succeed(t, err)
	return n == 1
}

func del(t testing.TB, client redis.UniversalClient, key string) {
	must.Succeed(t, client.Del(t.Context(), key).Err())
}

// startLock calls Lock in the background.
func startLock(ctx context.Context, l locks.Locker, key string) (granted <-chan *locks.Lease, failed <-chan error) {
	leases, errs := make(chan *locks.Lease, 1), make(chan error, 1)
	go func() {
		lease, err := l.Lock(ctx, key)
		if err != nil {
			errs <- err
			return
		}
		leases <- lease
	}()
	return leases, errs
}

// receive waits for a value. It fails the test on an error of startLock.
func receive[T any](t testing.TB, from <-chan T, failed <-chan error) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case err := <-failed:
		t.Fatalf("Lock: %v", err)
	case <-time.After(patience):
		t.Fatalf("nothing happened within %v", patience)
	}
	panic("unreachable")
}

// lockLater calls Lock in the background. At the end of the test it gives up, or abandons the lock unless that was
// unlocked.
func lockLater(t testing.TB, l locks.Locker, key string) <-chan *locks.Lease {
	granted := make(chan *locks.Lease, 1)
	ctx, cancel := context.WithCancel(patient(t))
	var over sync.WaitGroup
	over.Go(func() {
		lease, err := l.Lock(ctx, key)
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Lock: %v", err)
			}
			close(granted)
			return
		}
		granted <- lease
		<-ctx.Done()
		lease.Abandon()
	})
	t.Cleanup(func() {
		cancel()
		over.Wait()
	})
	return granted
}

func wantLeaseLost(t testing.TB, unlockErr error) {
	t.Helper()
	if !errors.Is(unlockErr, locks.ErrLeaseLost) {
		t.Errorf("Unlock of a lost lock: %v, want ErrLeaseLost", unlockErr)
	}
}

// wantNotAcquired checks that Lock failed, and because of cause.
func wantNotAcquired(t testing.TB, lockErr, cause error) {
	t.Helper()
	if !errors.Is(lockErr, locks.ErrNotAcquired) || !errors.Is(lockErr, cause) {
		t.Errorf("Lock: %v, want ErrNotAcquired joined with %v", lockErr, cause)
	}
}

// wantServiceError checks that Lock failed with an error of the lock service, not because the caller's deadline passed.
func wantServiceError(t testing.TB, lockErr error) {
	t.Helper()
	if !errors.Is(lockErr, locks.ErrNotAcquired) || errors.Is(lockErr, context.DeadlineExceeded) {
		t.Errorf("Lock: %v, want ErrNotAcquired joined with the service's error", lockErr)
	}
}

// hook intercepts the commands that a client sends: all of them, or only scripts. It may send them with next.
type hook struct {
	command, script func(ctx context.Context, next redis.ProcessHook, cmd redis.Cmder) error
}

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch {
		case h.command != nil:
			return h.command(ctx, next, cmd)
		case h.script != nil && strings.HasPrefix(cmd.Name(), "eval"):
			return h.script(ctx, next, cmd)
		}
		return next(ctx, cmd)
	}
}

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
